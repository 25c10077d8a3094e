//! A program in C, built against Debian's headers and libraries: the guests have it on those, and this computer on ours.

use crate::stock_driver::{InC, Program, provision};
use std::path::Path;

/// That of `cargo rig c-abi`.
const PROGRAM: InC = InC {
    name: "port_space_ib",
    text: include_str!("../c_abi/programs/port_space_ib.c"),
    libraries: &["-lrdmacm", "-libverbs"],
};
const PACKAGES: &[&str] = &[
    "libibverbs-dev",
    "libibverbs1",
    "librdmacm-dev",
    "librdmacm1t64",
];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

/// Builds it below `directory`, for the guests, and puts it and our libraries beside this computer's programs.
pub(super) fn build(directory: &Path, ours: &Path) -> Result<Vec<Program>, String> {
    let tree = provision::guest_packages(directory, PACKAGES, RECIPE)?;
    let path = PROGRAM.build(directory, &tree, None)?;
    let libraries = ours.join("libraries");
    bareverbs_bundle::build(Some(&libraries), false)?;
    let beside = libraries.join(PROGRAM.name);
    provision::copy(&path, &beside)?;
    Ok(vec![Program {
        name: PROGRAM.name,
        path,
    }])
}
