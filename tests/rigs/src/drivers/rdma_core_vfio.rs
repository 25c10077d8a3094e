//! rdma-core's VFIO driver (`mlx5dv_get_vfio_device_list` of libmlx5): it brings functions up itself, and makes its queues by
//! DevX over user memory. A program of this rig, built against Debian's headers and libraries, drives two functions with it.

use crate::layouts::kernel_headers;
use crate::process::output;
use crate::stock_driver::provision::{Apt, unpack};
use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario, empty};
use std::fs;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = include_str!("rdma_core_vfio.c");
/// The release of the guests' libraries.
const SUITE: &str = "trixie";
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
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let tree = directory.join("packages");
    let stamp = directory.join("stamp");
    if fs::read_to_string(&stamp).unwrap_or_default() != RECIPE {
        empty(&tree)?;
        let apt = Apt::new(directory)?;
        let wanted: Vec<String> = PACKAGES
            .iter()
            .map(|name| format!("{name}/{SUITE}"))
            .collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        for deb in apt.fetch(&directory.join("debs"), &wanted)? {
            unpack(&deb, &tree)?;
        }
        fs::write(&stamp, RECIPE).map_err(|error| format!("{}: {error}", stamp.display()))?;
    }
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
