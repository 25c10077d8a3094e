//! Rules in the flow tables of RDMA's packets, by rdma-core's mlx5dv on Linux's driver. A program of this rig, built against
//! Debian's headers and libraries, has them drop packets and change headers.

use super::rdma_core_vfio;
use crate::stock_driver::{BOOT, Boot, InC, Program, SCENARIO as DEFAULT, Scenario};
use std::path::Path;

const PROGRAM: InC = InC {
    name: "rdma_flows",
    text: include_str!("rdma_flows.c"),
    libraries: &["-lmlx5", "-libverbs"],
};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "rdma-flows",
    about: "mlx5dv's rules in the flow tables of RDMA's packets: changed headers, packets that are dropped, refusals",
    rounds: &[Boot {
        script: include_str!("scripts/rdma-flows.sh"),
        prints: &[
            ("rules", "PASS changed headers of one sender's packets"),
            ("rules", "PASS what is received is dropped"),
            ("rules", "15 passed"),
        ],
        ..BOOT
    }],
    ..DEFAULT
};

/// The program, for the guests.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    rdma_core_vfio::on_mlx5dv(directory, &PROGRAM)
}
