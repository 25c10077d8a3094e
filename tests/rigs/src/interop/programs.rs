//! A program in C, built against Debian's headers and libraries: the guests have it on those, and this computer on ours.

use super::super::stock_driver::Program;
use super::super::stock_driver::provision;
use crate::process::output;
use std::fs;
use std::path::Path;
use std::process::Command;

/// That of `cargo rig c-abi`.
const SOURCE: &str = include_str!("../c_abi/programs/port_space_ib.c");
const NAME: &str = "port_space_ib";
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
    let fail = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let source = directory.join("port_space_ib.c");
    fs::write(&source, SOURCE).map_err(|error| fail(&source, error))?;
    let path = directory.join(NAME);
    output(
        Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-s", "-I"])
            .arg(tree.join("usr/include"))
            .arg("-o")
            .arg(&path)
            .arg(&source)
            // The guests' C library is newer than this computer's.
            .arg("-Wl,--allow-shlib-undefined")
            .arg("-L")
            .arg(tree.join("usr/lib/x86_64-linux-gnu"))
            .args(["-lrdmacm", "-libverbs"]),
    )?;
    let libraries = ours.join("libraries");
    bareverbs_bundle::build(Some(&libraries), false)?;
    let beside = libraries.join(NAME);
    fs::copy(&path, &beside).map_err(|error| fail(&beside, error))?;
    Ok(vec![Program { name: NAME, path }])
}
