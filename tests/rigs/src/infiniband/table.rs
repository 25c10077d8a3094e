//! The subnets. Those that take long come first.

use super::super::stock_driver::{BOOT, Boot, SCENARIO, Scenario};

/// A script behind what every one begins with.
macro_rules! script {
    ($file:literal) => {
        concat!(
            include_str!("scripts/begin.sh"),
            include_str!("scripts/manager.sh"),
            include_str!($file)
        )
    };
}

/// Two machines.
const MACHINES: Boot = Boot {
    machines: &[&[0], &[1]],
    processors: 1,
    // A refused interface asks again after 1, 2, 4, ... up to 16 seconds. Each of two interfaces may be refused three times in each
    // of three times without a manager that knows it; a machine that stalls, and packets that wait meanwhile, double that.
    driver_may_warn_times: 36,
    limit: 12,
    ..BOOT
};

/// IPoIB's words for an answer with a status other than 0.
const REFUSED_JOIN: &str = "multicast join failed for ff12:401b:";
const PORT_IS_NEW: &str = "a manager that had lost sight of a port refuses it until it has set up its partitions; the interface asks again";
const NEW_MANAGER: &str = "a manager that has just begun refuses members whose partitions it has not set up yet; the interface asks again";

/// Two switches with two cables between them.
const TWO_SWITCHES: &[&str] = &[
    "--port-type",
    "ib",
    "--subnet-managed",
    "--topology",
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/infiniband/topologies/two_paths.txt"
    ),
];

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "back-to-back",
        about: "two ports on a cable under OpenSM: IPoIB, partitions, the RDMA CM, cable out, other identifiers, a second \
                manager",
        functions: 2,
        model: &["--port-type", "ib", "--subnet-managed"],
        rounds: &[Boot {
            script: script!("scripts/back_to_back.sh"),
            prints: &[
                ("no manager", "State: Initializing"),
                ("no manager", "Base lid: 0"),
                ("port comes up", "State: Active"),
                ("partitions", "0x8001"),
                ("topology", "Ca\t1 \"H-0002c90300000100\""),
                ("topology", "Ca\t1 \"H-0002c90300000200\""),
                ("interface", "mtu 4092"),
                ("two identifiers", "LMC: 1"),
            ],
            driver_may_warn: &[
                ("cable in", REFUSED_JOIN, PORT_IS_NEW),
                ("another manager", REFUSED_JOIN, NEW_MANAGER),
                ("two identifiers", REFUSED_JOIN, NEW_MANAGER),
                ("ping again", REFUSED_JOIN, NEW_MANAGER),
                ("rping again", REFUSED_JOIN, NEW_MANAGER),
                ("second manager", REFUSED_JOIN, NEW_MANAGER),
                ("first manager killed", REFUSED_JOIN, NEW_MANAGER),
                ("taken over", REFUSED_JOIN, NEW_MANAGER),
                ("ping under the second", REFUSED_JOIN, NEW_MANAGER),
                ("interfaces gone", REFUSED_JOIN, NEW_MANAGER),
                (
                    "interfaces gone",
                    "dev_queue_xmit failed to re-queue packet",
                    "a group is joined while its interface goes: packets that waited for it are dropped by the queue of an interface that is down (noop_enqueue)",
                ),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "switch",
        about: "four ports on a switch under OpenSM: tables, groups, a cable that is pulled out",
        functions: 4,
        model: &["--port-type", "ib", "--subnet-managed", "--switch"],
        rounds: &[Boot {
            machines: &[&[0, 1], &[2, 3]],
            script: script!("scripts/switched.sh"),
            prints: &[
                ("topology", "Switch\t4 \"S-0002c90200000100\""),
                ("topology", "Ca\t1 \"H-0002c90300000400\""),
            ],
            driver_may_warn: &[
                ("cable out", REFUSED_JOIN, PORT_IS_NEW),
                ("cable in", REFUSED_JOIN, PORT_IS_NEW),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "two-paths",
        about: "two switches with two cables between them, of which one is cut",
        functions: 2,
        model: TWO_SWITCHES,
        rounds: &[Boot {
            script: script!("scripts/two_paths.sh"),
            prints: &[
                ("topology", "Switch\t4 \"S-0002c90200000100\""),
                ("topology", "Switch\t4 \"S-0002c90200000200\""),
            ],
            driver_may_warn: &[
                ("first cable cut", REFUSED_JOIN, PORT_IS_NEW),
                ("second cable cut", REFUSED_JOIN, PORT_IS_NEW),
                ("rping on the first", REFUSED_JOIN, PORT_IS_NEW),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "alternate-paths",
        about: "rdma-core's alternate paths over two switches: a connection keeps data moving while either cable is cut",
        functions: 2,
        model: TWO_SWITCHES,
        rounds: &[Boot {
            machines: &[&[0, 1]],
            script: concat!(
                include_str!("scripts/begin.sh"),
                include_str!("scripts/manager.sh"),
                include_str!("scripts/identifiers.sh"),
                include_str!("scripts/alternate_paths.sh")
            ),
            prints: &[
                (
                    "either cable cut under a flow",
                    "PASS cut 1: both ends have migrated",
                ),
                (
                    "either cable cut under a flow",
                    "PASS cut 2: both ends have migrated",
                ),
                ("either cable cut under a flow", "PASS 3 cuts"),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "migration",
        about: "our driver over two switches, against Linux: the alternate path of a request, and the cable in use cut under the \
                connection",
        functions: 2,
        model: TWO_SWITCHES,
        rounds: &[Boot {
            iommu: true,
            script: concat!(
                include_str!("scripts/ours_begin.sh"),
                include_str!("scripts/manager.sh"),
                include_str!("scripts/identifiers.sh"),
                include_str!("scripts/migration.sh")
            ),
            prints: &[
                ("armed", "path Armed"),
                ("both ends migrate", "path Migrated, LID"),
                ("data goes on", "10 replies"),
                ("data goes on", "LAP ALTERNATE_PATH_ERROR -110"),
                ("what Linux saw", "cm_rx_duplicates/lap:3"),
            ],
            driver_may_warn: &[(
                "what Linux saw",
                "unexpected IB CM event",
                "the manager takes the LAP, and rdma_cm has no use for it",
            )],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "ours",
        about: "our driver and libraries on a switch under OpenSM, against Linux: paths and groups of OpenSM's, connections \
                by GID",
        functions: 2,
        model: &["--port-type", "ib", "--subnet-managed", "--switch"],
        rounds: &[Boot {
            iommu: true,
            script: concat!(
                include_str!("scripts/ours_begin.sh"),
                include_str!("scripts/manager.sh"),
                include_str!("scripts/ours_up.sh"),
                include_str!("scripts/ours.sh")
            ),
            prints: &[
                ("ours without a manager", "PORT_INIT (2)"),
                ("ours without a manager", "port_lid:\t\t0"),
                ("ours comes up", "PORT_ACTIVE (4)"),
                (
                    "example devinfo",
                    "GID[  0]:                   fe80::2:c903:0:201",
                ),
                (
                    "example devinfo",
                    "PKEY[  0]:                  0xffff, full member",
                ),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "partitions",
        about: "our interface in another partition beside Linux's child interface, and a subnet administration that stops \
                answering, or is busy",
        functions: 2,
        model: &["--port-type", "ib", "--subnet-managed", "--switch"],
        rounds: &[Boot {
            iommu: true,
            script: concat!(
                include_str!("scripts/ours_begin.sh"),
                include_str!("scripts/manager.sh"),
                include_str!("scripts/partitions.sh")
            ),
            prints: &[
                ("groups of the partition", "ff12:401b:8001::ffff:ffff"),
                (
                    "no answer within the time",
                    "subnet administration does not answer",
                ),
                ("busy all the time", "0x0001 ("),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "limited",
        about: "an OpenSM without a default partition in its list: ours and another port are limited members, and our tools say so",
        functions: 3,
        model: &["--port-type", "ib", "--subnet-managed", "--switch"],
        rounds: &[Boot {
            machines: &[&[0, 2], &[1]],
            iommu: true,
            script: concat!(
                include_str!("scripts/ours_begin.sh"),
                include_str!("scripts/manager.sh"),
                include_str!("scripts/limited.sh")
            ),
            prints: &[
                ("ours is a limited member", "0x7fff, limited member"),
                ("limited to limited", "limited member of partition 0x7fff"),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "connections",
        about: "our driver on a switch under OpenSM, against Linux by IP: rdma_client, cmtime, a thousand connections at once, \
                refusals, ends that are killed",
        functions: 2,
        model: &["--port-type", "ib", "--subnet-managed", "--switch"],
        rounds: &[Boot {
            iommu: true,
            script: concat!(
                include_str!("scripts/ours_begin.sh"),
                include_str!("scripts/manager.sh"),
                include_str!("scripts/ours_up.sh"),
                include_str!("scripts/connections.sh")
            ),
            prints: &[
                ("no listener there", "reason 8 (invalid service ID"),
                (
                    "refused there",
                    r#"reason 28 (rejected by the consumer), and says "\x00\x00\x02""#,
                ),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "records",
        about: "our driver on a switch under OpenSM: a service that is offered, reports of a port that goes and comes, and tables \
                as saquery reads them",
        functions: 3,
        model: &["--port-type", "ib", "--subnet-managed", "--switch"],
        rounds: &[Boot {
            machines: &[&[0, 2], &[1]],
            iommu: true,
            script: concat!(
                include_str!("scripts/ours_begin.sh"),
                include_str!("scripts/manager.sh"),
                include_str!("scripts/records.sh")
            ),
            prints: &[
                ("services", "0x6261726576657262"),
                ("services", "bareverbs"),
                ("services", "fe80::2:c903:0:201"),
                ("subscriptions", "fe80::2:c903:0:201"),
                ("subscriptions", "trap_num................65"),
                ("offers and subscribes", "by service fe80::2:c903:0:201"),
                (
                    "offers and subscribes",
                    "service 0x6261726576657262 fe80::2:c903:0:201 bareverbs",
                ),
                (
                    "offers and subscribes",
                    "subscription fe80::2:c903:0:201 67",
                ),
            ],
            ..MACHINES
        }],
        ..SCENARIO
    },
    Scenario {
        name: "sweep",
        about: "a fat tree of 500 adapters, swept by OpenSM: what it finds, in which time, beside ibsim with the same subnet",
        model: &[
            "--port-type",
            "ib",
            "--subnet-managed",
            "--topology",
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/infiniband/topologies/fat_tree.txt"
            ),
        ],
        rounds: &[Boot {
            script: include_str!("scripts/sweep.sh"),
            limit: 20,
            ..BOOT
        }],
        ..SCENARIO
    },
];
