//! The scenarios. Those that take long come first.

use super::super::stock_driver::{BOOT, Boot, Kernel, Purpose, SCENARIO, Scenario};

/// Machines with an IOMMU.
const MACHINE: Boot = Boot {
    iommu: true,
    ..BOOT
};

/// One from whose slots functions are taken.
const UNPLUG: Boot = Boot {
    machines: &[&[0, 1]],
    buttons: true,
    known_abort: Some((
        "memory_region_del_subregion: Assertion `subregion->container == mr' failed",
        "QEMU 11 aborts when it has taken a vfio-user-pci out of its slot: its driver has ended long before",
    )),
    ..MACHINE
};

/// Warnings of the model that the driver's own tests cause, and why.
const FAULTS_OF_TESTS: &[&str] = &[
    "IOMMU fault: write of 6 bytes",
    "IOMMU fault: read of 6 bytes",
];
const FAULT_OF_TESTS: (&str, &str) = (
    " of 6 bytes at 0x400000",
    "a test has the card reach where nothing is mapped",
);

/// The kernel's warning when a function's own reset is disabled.
const NO_OWN_RESET: (&str, &str) = (
    "no reset of its own",
    "All device reset methods disabled by user",
);

/// Warnings of the model about queues whose memory it can no longer reach.
const NOT_RECEIVED: (&str, &str) = (
    "RQ 0x",
    "that was a receive request which the card could not read",
);
const NOT_SENT: (&str, &str) = ("SQ 0x", "that was a frame which the card could not read");

/// One with faults of processes and functions.
const TROUBLED: Boot = Boot {
    machines: &[&[0, 1]],
    driver_warns: &[
        ("bus error", "AER"),
        ("off the bus", "not ready 65535ms after FLR; giving up"),
    ],
    limit: 12,
    ..MACHINE
};

const TROUBLE: Scenario = Scenario {
    functions: 2,
    model_logs: &["Vanish"],
    model_may_warn: &[
        (
            " with bus mastering off",
            "a process was killed, and the kernel silences the card before it resets it",
        ),
        (
            "health: syndrome 0xc",
            "that was an event which the card could not write",
        ),
        (
            " failed, status 0x",
            "that was a completion which the card could not write",
        ),
        NOT_RECEIVED,
        NOT_SENT,
        (
            "doorbell in page 0x",
            "a driver that polls a completion while another process resets the function may post once more",
        ),
    ],
    ..SCENARIO
};

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "trouble",
        about: "processes are killed 50 times, functions are reset, unplugged and fall off the bus, under traffic",
        rounds: &[Boot {
            script: concat!(
                "rounds='1 2 3 4 5 6 7 8 9 10'\n",
                include_str!("scripts/trouble.sh")
            ),
            ..TROUBLED
        }],
        ..TROUBLE
    },
    Scenario {
        name: "cdev-trouble",
        about: "the same with fewer kills, through the functions' own device files and iommufd",
        kernel: Some(Kernel::Built(Purpose::Iommufd)),
        rounds: &[Boot {
            script: concat!("rounds='1 2 3'\n", include_str!("scripts/trouble.sh")),
            ..TROUBLED
        }],
        ..TROUBLE
    },
    Scenario {
        name: "driver",
        about: "binding, the platform's conformance, bring-up, rping and perf in one process and in two, polled and by interrupts, huge pages, users",
        functions: 2,
        model_logs: FAULTS_OF_TESTS,
        model_may_warn: &[FAULT_OF_TESTS],
        rounds: &[Boot {
            machines: &[&[0, 1]],
            script: concat!("interface=group\n", include_str!("scripts/driver.sh")),
            prints: &[
                ("not bound", "is bound to no driver"),
                ("what binding takes", "echo vfio-pci > "),
                ("bind", "# opened through /dev/vfio/5 and /dev/vfio/vfio"),
                ("devinfo", "PORT_ACTIVE (4)"),
                ("self test", "PASS  interrupt"),
                ("self test", "PASS  close"),
                ("self test with no cable", "Ethernet, down"),
                ("self test with no cable", "PASS  close"),
                ("report", "0 parts failed"),
                ("a card of the report", "PASS  close"),
                ("report of a failure", "bring-up: failed: "),
                (
                    "the same failure",
                    "driver: creating an event queue: CREATE_EQ(0x301)",
                ),
                ("the same failure", "syndrome 0x3c5a71"),
                ("no reset of its own", "cannot be reset alone"),
                ("platform, 0 huge pages", "PASS  polled"),
                ("platform, 0 huge pages", "sleeps for 2 interrupt vectors"),
                ("platform, 64 huge pages", "PASS  polled"),
                ("platform, 64 huge pages", "sleeps for 2 interrupt vectors"),
                ("tests", "test result: ok. 11 passed"),
                ("perf", "RDMA cmp_swap_lat"),
                ("interrupts", "vfio-msix[0]"),
                ("idle until a client comes", "s of processor time in "),
                ("idle until a message comes", "s of processor time in "),
                (
                    "a user with too little",
                    "the limit on locked memory is 64 KiB",
                ),
                (
                    "a user without the file",
                    "no permission to open /dev/vfio/",
                ),
                ("a user who binds", "only root may bind drivers"),
                ("held by the kernel", "is bound to mlx5_core"),
                ("from the kernel", "network interfaces that go away"),
            ],
            driver_warns: &[
                NO_OWN_RESET,
                ("a user with too little", "RLIMIT_MEMLOCK (65536) exceeded"),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "cdev-driver",
        about: "the same through the functions' own device files and iommufd",
        kernel: Some(Kernel::Built(Purpose::Iommufd)),
        functions: 2,
        model_logs: FAULTS_OF_TESTS,
        model_may_warn: &[FAULT_OF_TESTS],
        rounds: &[Boot {
            machines: &[&[0, 1]],
            script: concat!("interface=cdev\n", include_str!("scripts/driver.sh")),
            prints: &[
                (
                    "bind",
                    "opened through /dev/vfio/devices/vfio0 and /dev/iommu",
                ),
                ("devinfo", "PORT_ACTIVE (4)"),
                ("self test", "PASS  interrupt"),
                ("self test", "PASS  close"),
                ("no reset of its own", "cannot be reset alone"),
                ("platform, 0 huge pages", "sleeps for 2 interrupt vectors"),
                ("platform, 64 huge pages", "sleeps for 2 interrupt vectors"),
                ("tests", "test result: ok. 10 passed"),
                ("perf", "RDMA cmp_swap_lat"),
                ("interface", "/dev/vfio/devices/vfio0"),
                ("one interface each", "/dev/vfio/devices/vfio0 is in use"),
                (
                    "a user with too little",
                    "the limit on locked memory is 64 KiB",
                ),
                (
                    "a user without the file",
                    "no permission to open /dev/vfio/devices/vfio1",
                ),
                ("a user without the file", "nor can its group be used"),
            ],
            driver_warns: &[NO_OWN_RESET],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "unplug",
        about: "QEMU unplugs functions that are at work",
        functions: 2,
        model_may_warn: &[
            (
                " with bus mastering off",
                "the kernel takes a function away that works, and silences it",
            ),
            (
                "health: syndrome 0xc",
                "that was an event which the card could not write",
            ),
            (
                " failed, status 0x",
                "that was a completion which the card could not write",
            ),
            NOT_RECEIVED,
            NOT_SENT,
        ],
        rounds: &[
            Boot {
                script: concat!(
                    "what=ping card=1 options=\n",
                    include_str!("scripts/unplug.sh")
                ),
                ..UNPLUG
            },
            Boot {
                script: concat!(
                    "what=ping card=0 options=--interrupts\n",
                    include_str!("scripts/unplug.sh")
                ),
                ..UNPLUG
            },
            Boot {
                script: concat!(
                    "what=waiters card=1 options=\n",
                    include_str!("scripts/unplug.sh")
                ),
                prints: &[
                    ("unplug", "5 waiters"),
                    ("unplug", "test result: ok. 1 passed"),
                ],
                ..UNPLUG
            },
        ],
        ..SCENARIO
    },
    Scenario {
        name: "group",
        about: "a function whose IOMMU group has one that the kernel drives",
        rounds: &[Boot {
            script: include_str!("scripts/group.sh"),
            shared_slot: true,
            prints: &[
                ("bind", "is not viable: 0000:01:00.1 is bound to virtio-pci"),
                ("open", "is not viable: 0000:01:00.1 is bound to virtio-pci"),
                ("the other let go", "PORT_"),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "vf",
        about: "virtual functions, with addresses and without, beside a physical one",
        functions: 3,
        model: &["--vf", "0", "--vf-without-mac", "1"],
        model_logs: FAULTS_OF_TESTS,
        model_may_warn: &[FAULT_OF_TESTS],
        rounds: &[Boot {
            machines: &[&[0, 1, 2]],
            script: include_str!("scripts/vf.sh"),
            prints: &[
                ("devinfo", "function:                   virtual"),
                ("devinfo", "PORT_ACTIVE (4)"),
                ("devinfo", "02:c9:00:00:00:01"),
                ("devinfo", " 0 pages"),
                ("devinfo without MAC", "00:00:00:00:00:00"),
                (
                    "devinfo of the physical one",
                    "function:                   physical",
                ),
                ("tests", "test result: ok."),
                ("self test", "PASS  close"),
                ("without MAC", "the port has no MAC address"),
                ("perf", "RDMA cmp_swap_lat"),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "cmtime",
        about: "connections per second, beside those of rdma-core's cmtime on the stock driver in the same machine",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0, 1]],
            // Threads of rdma-core's that never sleep take two.
            processors: 4,
            script: include_str!("scripts/cmtime.sh"),
            prints: &[("beside each other", "note: ours is ")],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "pair",
        about: "rping and perf between two machines",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("scripts/pair.sh"),
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "peers",
        about: "our rping against rdma-core's on the stock driver, each as server and as client, in each kind of memory; dynamic connections",
        functions: 2,
        model_logs: &["the first message in front of its completion"],
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("scripts/peers.sh"),
            prints: &[
                ("our client, rdma-core's server, RoCE v1", "RoCE v1"),
                (
                    "dynamic connections, their client, our server",
                    "initiator: 20000 bytes written and read, 4 messages, and a wrong key is refused",
                ),
                (
                    "dynamic connections, our client, their server",
                    "target: 20000 bytes, 4 messages",
                ),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "frames",
        about: "raw packet QPs at both ends, and our forwarder's queues between network devices of the stock driver",
        functions: 4,
        roce: false,
        rounds: &[Boot {
            machines: &[&[0, 1], &[2, 3]],
            // Linux has as many queues.
            processors: 4,
            script: concat!(
                include_str!("scripts/forwarder.sh"),
                include_str!("scripts/frames.sh")
            ),
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "strides",
        about: "our forwarder's queues with strides and many frames in a request, between network devices of the stock driver; what ports count",
        functions: 4,
        roce: false,
        rounds: &[Boot {
            machines: &[&[0, 1], &[2, 3]],
            // Linux has as many queues.
            processors: 4,
            script: concat!(
                include_str!("scripts/forwarder.sh"),
                include_str!("scripts/strides.sh")
            ),
            prints: &[
                (
                    "strides, from the first to the second: our counters",
                    "note: our ports have counted 2000,2000,",
                ),
                (
                    "strides, from the second to the first: our counters",
                    "note: our ports have counted 2000,2000,",
                ),
                ("together", "note: strides: "),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "stamps",
        about: "time stamps of completions: ibv_rc_pingpong on our libraries against rdma-core's and the stock driver",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            network: true,
            script: concat!(
                include_str!("scripts/libraries.sh"),
                "set --\n",
                include_str!("scripts/transports.sh"),
                include_str!("scripts/stamps.sh")
            ),
            prints: &[
                ("their client, our server: averages", "cycles at this end"),
                ("our client, their server: averages", "cycles at this end"),
                ("our client, their server: the clock's rate", "kHz"),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "c-abi",
        about: "programs in C on our libraries, Debian's and of this rig, against rdma-core's and the stock driver",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            network: true,
            script: concat!(
                include_str!("scripts/libraries.sh"),
                "set -- 'ibv_uc_pingpong -c -n 100' 'ibv_ud_pingpong -c -n 100' 'ibv_srq_pingpong -c -n 100'\n",
                include_str!("scripts/transports.sh"),
                include_str!("scripts/c-abi.sh")
            ),
            prints: &[
                (
                    "ibv_uc_pingpong -c -n 100, their client, our server",
                    "100 iters in",
                ),
                (
                    "ibv_ud_pingpong -c -n 100, our client, their server",
                    "100 iters in",
                ),
                (
                    "ibv_srq_pingpong -c -n 100, their client, our server",
                    "100 iters in",
                ),
                ("windows of ours", "14 passed"),
                ("windows and indirect keys of theirs", "18 passed"),
                ("operations, their client, our server", "4 passed"),
                ("operations, our client, their server", "4 passed"),
                ("ends of programs in C, heard by Linux", "all ended"),
                ("ends of programs in Rust, heard by Linux", "all ended"),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "served",
        about: "Debian's programs on Debian's own libraries, for which the kernel's verbs ABI is served on functions of vfio-pci",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0, 1]],
            script: include_str!("scripts/served.sh"),
            prints: &[
                ("devinfo", "hca_id:\tmlx5_0"),
                ("devinfo", "vendor_part_id:\t\t\t4119"),
                ("devinfo", "PORT_ACTIVE (4)"),
                ("devinfo", "::ffff:10.0.0.1, RoCE v2"),
                ("ibv_rc_pingpong -c -n 100 -g 0", "100 iters in"),
                ("ibv_rc_pingpong -c -e -n 100 -g 0", "100 iters in"),
                ("ib_write_bw -F -n 200 -x 0", " 65536      200 "),
                ("ib_send_lat -F -n 100 -x 0", " 2       100 "),
                ("rping", "ping data: rdma-ping-19"),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "served-peers",
        about: "the same against rdma-core's on the stock driver: rping, ibverbs-utils and perftest, each as server and as client",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            network: true,
            script: concat!(
                "served=yes\n",
                include_str!("scripts/libraries.sh"),
                "set -- 'ibv_rc_pingpong -c -n 100' 'ibv_ud_pingpong -c -n 100' 'ibv_srq_pingpong -c -e -n 100' \\\n",
                "    'ib_write_bw -s 5000 -n 50' 'ib_send_lat -n 50'\n",
                include_str!("scripts/transports.sh"),
                include_str!("scripts/served-rping.sh")
            ),
            prints: &[
                (
                    "ibv_rc_pingpong -c -n 100, their client, our server",
                    "100 iters in",
                ),
                (
                    "ib_write_bw -s 5000 -n 50, our client, their server",
                    " 5000       50 ",
                ),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "transports",
        about: "ibverbs-utils and perftest over RC, UC, UD and XRC, on our libraries against rdma-core's and the stock driver",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            network: true,
            script: concat!(
                include_str!("scripts/libraries.sh"),
                "set -- 'ibv_rc_pingpong -c -n 100' 'ibv_uc_pingpong -c -e -n 100' 'ibv_ud_pingpong -c -e -n 100' \\\n",
                "    'ibv_srq_pingpong -c -e -n 100' 'ibv_xsrq_pingpong -n 100' \\\n",
                "    'ib_send_bw -c UC -s 5000 -n 50' 'ib_send_bw -c UD -s 1000 -n 50' \\\n",
                "    'ib_send_bw -c UD -s 1000 -n 50 --use-srq' \\\n",
                "    'ib_send_bw -c UC -s 5000 -n 50 --use-srq' \\\n",
                "    'ib_send_bw -c XRC -s 5000 -n 50' 'ib_write_bw -c UC -s 5000 -n 50' \\\n",
                "    'ib_send_bw -s 5000 -n 50 --use-srq' 'ib_send_bw -s 64 -n 50 -I 64' 'ib_atomic_bw -n 50' \\\n",
                "    'ib_atomic_bw -A FETCH_AND_ADD -n 50' 'ib_atomic_lat -n 50' \\\n",
                "    'ib_write_bw --write_with_imm -s 5000 -n 50' 'ib_write_bw -s 64 -n 50 --use_old_post_send'\n",
                include_str!("scripts/transports.sh")
            ),
            prints: &[
                (
                    "ib_send_bw -c UC -s 5000 -n 50, their client, our server",
                    " 5000       50 ",
                ),
                (
                    "ib_send_bw -c UC -s 5000 -n 50 --use-srq, their client, our server",
                    " 5000       50 ",
                ),
                (
                    "ib_send_bw -c UD -s 1000 -n 50, our client, their server",
                    " 1000       50 ",
                ),
                (
                    "ib_send_bw -s 5000 -n 50 --use-srq, their client, our server",
                    " 5000       50 ",
                ),
                (
                    "ibv_xsrq_pingpong -n 100, our client, their server",
                    "success",
                ),
            ],
            ..MACHINE
        }],
        ..SCENARIO
    },
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_script_can_be_planned_and_has_what_is_expected_of_it() {
        super::super::super::stock_driver::check_plans(super::ALL);
    }

    /// The number in docs/hardware.md is the one that bring-up is held to.
    #[test]
    fn the_documentation_states_what_bring_up_may_cost() {
        let script = include_str!("scripts/driver.sh");
        let allowed = script
            .lines()
            .find_map(|line| line.strip_prefix("allowed="));
        let claim = format!("bring-up takes {} firmware commands", allowed.unwrap());
        let text = include_str!("../../../../docs/hardware.md");
        let text: Vec<&str> = text.split_whitespace().collect();
        assert!(
            text.join(" ").contains(&claim),
            "docs/hardware.md: {claim}?"
        );
    }
}
