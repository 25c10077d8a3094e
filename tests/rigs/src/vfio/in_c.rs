//! Programs of this rig in C, against rdma-core's libraries.

use crate::stock_driver::{InC, provision};
use std::path::{Path, PathBuf};

const PROGRAMS: &[InC] = &[
    InC {
        name: "mlx5dv-dc",
        text: include_str!("programs/dc.c"),
        libraries: &["-lrdmacm", "-lmlx5", "-libverbs"],
    },
    InC {
        name: "ends",
        text: include_str!("../c_abi/programs/ends.c"),
        libraries: &["-lrdmacm", "-libverbs"],
    },
    InC {
        name: "flows",
        text: include_str!("programs/flows.c"),
        libraries: &[],
    },
    InC {
        name: "keys",
        text: include_str!("programs/keys.c"),
        libraries: &["-lrdmacm", "-libverbs"],
    },
    InC {
        name: "operations",
        text: include_str!("programs/operations.c"),
        libraries: &["-lrdmacm", "-libverbs"],
    },
];

const PACKAGES: &[&str] = &[
    "ibverbs-providers",
    "libibverbs-dev",
    "libibverbs1",
    "librdmacm-dev",
    "librdmacm1t64",
];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

/// Builds them below a directory.
pub(super) fn build(directory: &Path) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let tree = provision::guest_packages(directory, PACKAGES, RECIPE)?;
    PROGRAMS
        .iter()
        .map(|program| Ok((program.name, program.build(directory, &tree, None)?)))
        .collect()
}
