//! Programs in C, built against Debian's headers and libraries: the guests have them on those, and this computer on ours.

use crate::stock_driver::{InC, Program, provision};
use std::path::Path;

/// Those of `cargo rig c-abi`.
const PROGRAMS: [InC; 2] = [
    InC {
        name: "port_space_ib",
        text: include_str!("../c_abi/programs/port_space_ib.c"),
        libraries: &["-lrdmacm", "-libverbs"],
    },
    InC {
        name: "external_qp",
        text: include_str!("../c_abi/programs/external_qp.c"),
        libraries: &["-lrdmacm", "-libverbs"],
    },
];
const PACKAGES: &[&str] = &[
    "libibverbs-dev",
    "libibverbs1",
    "librdmacm-dev",
    "librdmacm1t64",
];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

/// Builds them below `directory`, for the guests, and puts them and our libraries beside this computer's programs.
pub(super) fn build(directory: &Path, ours: &Path) -> Result<Vec<Program>, String> {
    let tree = provision::guest_packages(directory, PACKAGES, RECIPE)?;
    let libraries = ours.join("libraries");
    bareverbs_bundle::build(Some(&libraries), bareverbs_bundle::Kept::Code)?;
    let mut built = Vec::new();
    for program in &PROGRAMS {
        let path = program.build(directory, &tree, None)?;
        let beside = libraries.join(program.name);
        provision::copy(&path, &beside)?;
        built.push(Program {
            name: program.name,
            path,
        });
    }
    Ok(built)
}
