//! Rules in the flow tables of RDMA's packets, by rdma-core's mlx5dv on Linux's driver. A program of this rig, built against
//! Debian's headers and libraries, has them drop packets and change headers.

use crate::layouts::kernel_headers;
use crate::stock_driver::provision;
use crate::stock_driver::{BOOT, Boot, InC, Program, SCENARIO as DEFAULT, Scenario};
use std::path::Path;

const PROGRAM: InC = InC {
    name: "rdma_flows",
    text: include_str!("rdma_flows.c"),
    libraries: &["-lmlx5", "-libverbs"],
};
const PACKAGES: &[&str] = &["ibverbs-providers", "libibverbs-dev", "libibverbs1"];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

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
    let tree = provision::guest_packages(directory, PACKAGES, RECIPE)?;
    // The kernel's other headers stand for those of the C library.
    let others = kernel_headers()?.join("linux/mlx5");
    let path = PROGRAM.build(directory, &tree, Some(&others))?;
    Ok(vec![Program {
        name: PROGRAM.name,
        path,
    }])
}
