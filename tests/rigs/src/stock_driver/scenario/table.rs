//! The scenarios. Those that take long come first.

use super::super::kernel::Purpose;
use super::super::provision::Kernel;
use super::description::{Boot, Scenario};

/// One machine with one function.
pub(crate) const BOOT: Boot = Boot {
    script: "",
    machines: &[&[0]],
    processors: 2,
    memory: 768,
    iommu: false,
    network: false,
    here: None,
    record: false,
    filters: &[],
    shared_slot: false,
    buttons: false,
    known_abort: None,
    boots_twice: None,
    loader: None,
    prints: &[],
    driver_warns: &[],
    driver_may_warn: &[],
    driver_may_warn_times: usize::MAX,
    limit: 7,
};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "",
    about: "",
    every_kernel: false,
    kernel: None,
    functions: 1,
    model: &[],
    roce: true,
    damaged: false,
    model_logs: &[],
    model_may_warn: &[],
    rounds: &[],
};

/// Output of programs about a port's settings in `settings.sh`, and about its module, which is `Module::copper_cable`'s.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    (
        "module",
        "Identifier                                : 0x11 (QSFP28)",
    ),
    ("module", "100G Base-CR4"),
    (
        "module",
        "BR Nominal                                : 25500Mbps",
    ),
    ("module", "Length (Copper or Active cable)           : 1m"),
    (
        "module",
        "Transmitter technology                    : 0xa0 (Copper cable, unequalized)",
    ),
    (
        "module",
        "Vendor name                               : Bareverbs",
    ),
    (
        "module",
        "Vendor OUI                                : 02:c9:00",
    ),
    (
        "module",
        "Vendor PN                                 : MODEL-CABLE-1M",
    ),
    ("module", "Vendor rev                                : A1"),
    (
        "module",
        "Vendor SN                                 : BV000001",
    ),
    (
        "module",
        "Date code                                 : 261125",
    ),
    (
        "memory of the module",
        "0x0090:\t\t00 00 01 a0 42 61 72 65 76 65 72 62 73 20 20 20",
    ),
    (
        "memory of the module",
        "0x00d0:\t\t20 20 20 20 32 36 31 31 32 35 20 20 00 00 67 9c",
    ),
    ("pauses when sending", "RX:\t\toff"),
    ("pauses when sending", "TX:\t\ton"),
    ("pauses both ways", "RX:\t\ton"),
    ("pauses both ways", "TX:\t\ton"),
    ("error correction", "Active FEC encoding: RS"),
    ("without error correction", "Active FEC encoding: Off"),
    ("error correction again", "Active FEC encoding: RS"),
    (
        "pauses of priorities",
        "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:on 6:off 7:off",
    ),
    ("DSCPs", "dscp-prio 26:3 46:5"),
    ("traffic classes", "tc-bw 0:40 1:60"),
    ("traffic classes", "tc-tsa 0:ets 1:ets 2:strict"),
    ("traffic classes", "prio-tc 0:0 1:0 2:0 3:1 4:0 5:2 6:0 7:0"),
    ("limit", "tc-maxrate 0:0bit 1:80Mbit"),
    ("parameters of congestion control", "np_cnp_dscp 48"),
    ("parameters of congestion control", "rp_byte_reset 32767"),
    ("parameters of congestion control", "rp_dce_tcp_g 1019"),
    (
        "parameters of congestion control",
        "rp_initial_alpha_value 1023",
    ),
    ("parameters of congestion control", "rp_time_reset 300"),
    (
        "counters of the link to the host",
        "rx_pci_signal_integrity: 0",
    ),
    ("counters of priorities", "rx_prio3_pause: 0"),
    ("rdma statistic", "np_ecn_marked_roce_packets 0"),
    ("health", "state healthy error 0"),
    ("queue pairs", "state RTS"),
];

pub(in super::super) const ALL: &[Scenario] = &[
    Scenario {
        name: "infiniband",
        about: "rdma-core's and perftest's programs between two machines with InfiniBand ports",
        functions: 2,
        model: &["--port-type", "ib"],
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            network: true,
            script: include_str!("../scripts/infiniband.sh"),
            prints: &[
                ("devinfo", "state:\t\t\tPORT_ACTIVE (4)"),
                ("devinfo", "link_layer:\t\tInfiniBand"),
                ("ibstat", "State: Active"),
                ("ibstat", "Link layer: InfiniBand"),
            ],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "ethernet",
        about: "the network device between two machines: ping, VLAN, iperf3, ethtool, and what the cable does",
        every_kernel: true,
        functions: 2,
        roce: false,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            script: include_str!("../scripts/ethernet.sh"),
            prints: &[
                ("ethtool -i", "driver: mlx5_core"),
                ("ethtool -k", "rx-checksumming: on"),
                ("ethtool -k", "tx-checksumming: on"),
                ("ethtool -S", "rx_csum_complete"),
                ("VLAN", "vlan protocol 802.1Q id 5"),
                ("cable out", "NO-CARRIER"),
                ("cable in", "LOWER_UP"),
                ("jumbo frames", "mtu "),
            ],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "roce",
        about: "rdma-core's ping-pongs between two machines, RoCE v1 and v2",
        every_kernel: true,
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("../scripts/roce.sh"),
            prints: &[
                ("GIDs", "state:\t\t\tPORT_ACTIVE (4)"),
                ("GIDs", "link_layer:\t\tEthernet"),
                ("GIDs", ", RoCE v1"),
                ("GIDs", ", RoCE v2"),
            ],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "blueflame",
        about: "requests in doorbell registers: the driver's test, and rdma-core's ping-pongs, on a bus that combines writes",
        functions: 2,
        model: &["--blue-flame", "--combining", "10000"],
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: concat!("combining=yes\n", include_str!("../scripts/blueflame.sh")),
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "blueflame-in-pieces",
        about: "the same on a bus that does not: the driver finds that out",
        functions: 2,
        model: &["--blue-flame"],
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: concat!("combining=no\n", include_str!("../scripts/blueflame.sh")),
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "cm",
        about: "librdmacm's programs between two machines",
        functions: 2,
        // rdma-core's provider asks for it, and takes rping's short messages out of completions, and 64 bytes of a pingpong.
        model_logs: &[
            "the first message in the entry of its completion",
            "the first message in front of its completion",
        ],
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("../scripts/cm.sh"),
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "nvme",
        about: "a kernel's own protocol on the card: NVMe over RoCE between two machines",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("../scripts/nvme.sh"),
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "perf",
        about: "perftest's programs between two machines",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("../scripts/perf.sh"),
            limit: 10,
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "dc",
        about: "perftest's programs between two machines, over dynamic connections",
        functions: 2,
        model_logs: &["the first message in front of its completion"],
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("../scripts/dc.sh"),
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "accidents",
        about: "what happens to cards, cables and machines while there is traffic",
        functions: 2,
        model_may_warn: &[
            (
                "doorbell of QP",
                "the kernel takes a device away from a program: its queues go first, then its page of doorbells",
            ),
            (
                "doorbell in page",
                "the driver resets firmware that has stopped while a program still has its page of doorbells",
            ),
        ],
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            boots_twice: Some(1),
            script: include_str!("../scripts/accidents.sh"),
            prints: &[],
            driver_warns: &[
                ("firmware stops", "Fatal error"),
                ("firmware stops", "health recovery succeeded"),
                ("model dies", "Fatal error"),
                ("unload without card", ""),
            ],
            limit: 10,
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "steering",
        about: "which frames the network device takes: addresses, VLANs, groups, all of them, and rules of ethtool",
        functions: 2,
        roce: false,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            script: include_str!("../scripts/steering.sh"),
            prints: &[("rules", "ntuple-filters: on")],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "rdma-counters",
        about: "mlx5_ib's optional counters of RDMA's packets, which are rules in flow tables, against what perftest sends",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            script: include_str!("../scripts/rdma_counters.sh"),
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "tunnel",
        about: "TCP in VXLAN and GRE: large sends and checksums of inner headers, verified on the other side",
        functions: 2,
        roce: false,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            script: include_str!("../scripts/tunnel.sh"),
            prints: &[
                ("offers", "tx-udp_tnl-segmentation: on"),
                ("offers", "tx-udp_tnl-csum-segmentation: on"),
                ("offers", "tx-gre-segmentation: on"),
            ],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "flow-offload",
        about: "rules of tc in the card: their counters, and headers that they change (on a kernel that is built for it)",
        kernel: Some(Kernel::Built(Purpose::FlowOffload)),
        functions: 2,
        roce: false,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            script: include_str!("../scripts/flow_offload.sh"),
            prints: &[("offload", "hw-tc-offload: on")],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "settings",
        about: "what Linux's programs read and set of the port, its module and its sensors",
        rounds: &[Boot {
            script: include_str!("../scripts/settings.sh"),
            prints: SETTINGS,
            driver_warns: &[("heat", "High temperature on sensors")],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "probe",
        about: "mlx5_core probes and removes ten times, then again in a second machine",
        every_kernel: true,
        rounds: &[
            Boot {
                script: include_str!("../scripts/probe.sh"),
                prints: &[
                    ("probe 1", "mlx5_core.rdma.0"),
                    ("probe 10", "mlx5_core.eth.0"),
                ],
                ..BOOT
            },
            Boot {
                script: include_str!("../scripts/probe_once.sh"),
                prints: &[("probe 1", "mlx5_core.rdma.0")],
                ..BOOT
            },
        ],
        ..SCENARIO
    },
    Scenario {
        name: "pages",
        about: "the same with thousands of boot and init pages",
        model: &["--boot-pages", "1500", "--init-pages", "5000"],
        rounds: &[Boot {
            processors: 1,
            script: include_str!("../scripts/probe.sh"),
            prints: &[("probe 10", "mlx5_core.rdma.0")],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "infiniband-port",
        about: "mlx5_ib on an InfiniBand port comes and goes",
        every_kernel: true,
        model: &["--port-type", "ib"],
        rounds: &[Boot {
            processors: 1,
            script: include_str!("../scripts/verbs.sh"),
            prints: &[
                ("devinfo 1", "hca_id:\tmlx5_0"),
                ("devinfo 3", "state:\t\t\tPORT_ACTIVE (4)"),
                ("devinfo 3", "link_layer:\t\tInfiniBand"),
                ("devinfo 3", "port_lid:\t\t1"),
                (
                    "devinfo 3",
                    "GID[  0]:\t\tfe80:0000:0000:0000:0002:c903:0000:0101",
                ),
            ],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "hungry",
        about: "mlx5_ib ten times while the firmware asks for every page by event",
        model: &[
            "--port-type",
            "ib",
            "--boot-pages",
            "1",
            "--init-pages",
            "1",
            "--page-chunk",
            "1",
        ],
        model_logs: &["asks for 1 pages", "asks for 300 pages"],
        rounds: &[Boot {
            processors: 1,
            script: include_str!("../scripts/hungry.sh"),
            prints: &[("devinfo 10", "state:\t\t\tPORT_ACTIVE (4)")],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "iommu",
        about: "traffic behind a virtual IOMMU, whose maps come page by page and go again",
        model: &["--port-type", "ib"],
        // Single pages.
        model_logs: &[" + 0x1000 to 0x"],
        rounds: &[Boot {
            processors: 1,
            iommu: true,
            script: include_str!("../scripts/iommu.sh"),
            prints: &[("groups", "0000:01:00.0")],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "trouble",
        about: "the cable comes out, the function is reset, the firmware stops, the card falls off the bus",
        every_kernel: true,
        model: &["--port-type", "ib"],
        rounds: &[Boot {
            driver_warns: &[
                ("stopped", "Fatal error"),
                ("without firmware", ""),
                ("gone", "Fatal error"),
                ("without card", ""),
            ],
            script: include_str!("../scripts/trouble.sh"),
            prints: &[
                ("cable out", "1: DOWN"),
                ("cable in", "4: ACTIVE"),
                ("after it", "4: ACTIVE"),
            ],
            ..BOOT
        }],
        ..SCENARIO
    },
    Scenario {
        name: "vf",
        about: "virtual functions: one with addresses and one without, then one beside a physical function",
        functions: 3,
        model: &["--vf", "1", "--vf-without-mac", "2"],
        model_may_warn: &[(
            "doorbell in page",
            "the firmware was reset behind the driver's back, which rings until it finds out",
        )],
        rounds: &[
            Boot {
                machines: &[&[1], &[2]],
                processors: 1,
                script: concat!(
                    "first=virtual first_function=1 second=unaddressed second_function=2\n",
                    include_str!("../scripts/vf.sh")
                ),
                prints: &[
                    ("ethtool", "driver: mlx5_core"),
                    ("GIDs", "state:\t\t\tPORT_ACTIVE (4)"),
                    ("GIDs", "vendor_part_id:\t\t\t4120"),
                ],
                driver_warns: &[
                    ("firmware stops", "Fatal error"),
                    ("firmware again", "health recovery succeeded"),
                ],
                ..BOOT
            },
            Boot {
                machines: &[&[0], &[1]],
                processors: 1,
                script: concat!(
                    "first=physical first_function=0 second=virtual second_function=1\n",
                    include_str!("../scripts/vf.sh")
                ),
                driver_warns: &[
                    ("firmware stops", "Fatal error"),
                    ("firmware again", "health recovery succeeded"),
                ],
                ..BOOT
            },
        ],
        ..SCENARIO
    },
    Scenario {
        name: "roce-port",
        about: "mlx5_ib on an Ethernet port, which is down until its network device is up",
        rounds: &[Boot {
            processors: 1,
            script: include_str!("../scripts/verbs.sh"),
            prints: &[
                ("devinfo 1", "hca_id:\tmlx5_0"),
                ("devinfo 3", "state:\t\t\tPORT_DOWN (1)"),
                ("devinfo 3", "link_layer:\t\tEthernet"),
            ],
            ..BOOT
        }],
        ..SCENARIO
    },
];
