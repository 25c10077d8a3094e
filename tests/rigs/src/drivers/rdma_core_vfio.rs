//! rdma-core's VFIO driver (`mlx5dv_get_vfio_device_list` of libmlx5): it brings functions up itself, and makes its queues by
//! DevX over user memory. A program of this rig, built against Debian's headers and libraries, drives two functions with it.

use crate::layouts::kernel_headers;
use crate::process::output;
use crate::stock_driver::provision;
use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario};
use std::fs;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = include_str!("rdma_core_vfio.c");
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
    let tree = provision::guest_packages(directory, PACKAGES, RECIPE)?;
    let source = directory.join("rdma_core_vfio.c");
    fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
    let path = directory.join("rdma_core_vfio");
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    output(
        Command::new("cc")
            .args(["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-s"])
            .arg("-isystem")
            .arg(tree.join("usr/include"))
            // The kernel's other headers stand for those of the C library.
            .arg("-idirafter")
            .arg(kernel_headers()?.join("linux/mlx5"))
            .arg("-o")
            .arg(&path)
            .arg(&source)
            // The guests' C library is newer than this computer's.
            .arg("-Wl,--allow-shlib-undefined")
            .arg("-L")
            .arg(&libraries)
            .args(["-lmlx5", "-libverbs"]),
    )?;
    Ok(vec![Program {
        name: "rdma_core_vfio",
        path,
    }])
}
