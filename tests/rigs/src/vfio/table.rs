//! The scenarios. Those that take long come first.

use super::super::stock_driver::{BOOT, Boot, SCENARIO, Scenario};

/// Machines with an IOMMU.
const MACHINE: Boot = Boot {
    iommu: true,
    ..BOOT
};

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "trouble",
        about: "processes are killed 50 times, functions are reset, unplugged and fall off the bus, under traffic",
        functions: 2,
        says: &["Vanish"],
        excuses: &[
            (
                " with bus mastering off",
                "a process was killed, and the kernel silences the card before it resets it",
            ),
            (
                "health syndrome 0xc",
                "that was an event which the card could not write",
            ),
            (
                " failed, status 0x",
                "that was a completion which the card could not write",
            ),
        ],
        rounds: &[Boot {
            machines: &[&[0, 1]],
            script: include_str!("scripts/trouble.sh"),
            complains: &[("off the bus", "not ready 65535ms after FLR; giving up")],
            limit: 12,
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "driver",
        about: "binding, bring-up, rping in one process and in two, polled and by interrupts, huge pages, users",
        functions: 2,
        says: &[
            "IOMMU fault: write of 6 bytes",
            "IOMMU fault: read of 6 bytes",
        ],
        excuses: &[(
            " of 6 bytes at 0x400000",
            "a test has the card reach where nothing is mapped",
        )],
        rounds: &[Boot {
            machines: &[&[0, 1]],
            script: include_str!("scripts/driver.sh"),
            prints: &[
                ("not bound", "is bound to no driver"),
                ("what binding takes", "echo vfio-pci > "),
                ("devinfo", "PORT_ACTIVE (4)"),
                ("tests", "test result: ok. 8 passed"),
                ("perf", "RDMA atomic_lat"),
                ("interrupts", "vfio-msix[0]"),
                ("idle", "wakes in 5 s"),
                (
                    "a user with too little",
                    "the limit on locked memory is 65536",
                ),
                (
                    "a user without the file",
                    "no permission to open /dev/vfio/",
                ),
                ("a user who binds", "only root may bind drivers"),
                ("held by the kernel", "is bound to mlx5_core"),
                ("from the kernel", "network interfaces that go away"),
            ],
            complains: &[("a user with too little", "RLIMIT_MEMLOCK (65536) exceeded")],
            ..MACHINE
        }],
        ..SCENARIO
    },
    Scenario {
        name: "pair",
        about: "rping between two machines",
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
        about: "our rping against rdma-core's on the stock driver, each as server and as client",
        functions: 2,
        rounds: &[Boot {
            machines: &[&[0], &[1]],
            processors: 1,
            script: include_str!("scripts/peers.sh"),
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
}
