//! rdma-core's VFIO driver (`mlx5dv_get_vfio_device_list` of libmlx5): it brings functions up itself, and makes its queues by
//! DevX over user memory. A program of this rig, built against Debian's headers and libraries, drives two functions with it.

use crate::layouts::kernel_headers;
use crate::stock_driver::provision;
use crate::stock_driver::{BOOT, Boot, InC, Program, SCENARIO as DEFAULT, Scenario};
use std::path::Path;

const PROGRAM: InC = InC {
    name: "rdma_core_vfio",
    text: include_str!("rdma_core_vfio.c"),
    libraries: &["-lmlx5", "-libverbs"],
};
const PACKAGES: &[&str] = &["ibverbs-providers", "libibverbs-dev", "libibverbs1"];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "rdma-core-vfio",
    about: "rdma-core's VFIO driver: queues by DevX over user memory, data between two functions, refusals",
    functions: 2,
    rounds: &[Boot {
        machines: &[&[0, 1]],
        iommu: true,
        script: include_str!("scripts/rdma-core-vfio.sh"),
        prints: &[
            ("two functions, time 1", "PASS RDMA READ"),
            ("two functions, time 1", "PASS two users"),
            ("two functions, time 2", "21 passed"),
        ],
        ..BOOT
    }],
    ..DEFAULT
};

/// The program, for the guests.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    on_mlx5dv(directory, &PROGRAM)
}

/// A program of this rig on rdma-core's mlx5dv, for the guests.
pub(super) fn on_mlx5dv(directory: &Path, program: &InC) -> Result<Vec<Program>, String> {
    let tree = provision::guest_packages(directory, PACKAGES, RECIPE)?;
    // The kernel's other headers stand for those of the C library.
    let others = kernel_headers()?.join("linux/mlx5");
    let path = program.build(directory, &tree, Some(&others))?;
    Ok(vec![Program {
        name: program.name,
        path,
    }])
}
