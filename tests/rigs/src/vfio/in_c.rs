//! Programs of this rig in C, built against Debian's headers and libraries of RDMA.

use crate::process::output;
use crate::stock_driver::empty;
use crate::stock_driver::provision::{Apt, unpack};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program's name, its text, and the libraries that it is linked to.
type Source = (&'static str, &'static str, &'static [&'static str]);

const SOURCES: &[Source] = &[
    (
        "mlx5dv-dc",
        include_str!("programs/dc.c"),
        &["-lrdmacm", "-lmlx5", "-libverbs"],
    ),
    ("flows", include_str!("programs/flows.c"), &[]),
    (
        "keys",
        include_str!("programs/keys.c"),
        &["-lrdmacm", "-libverbs"],
    ),
];

/// The release of the guests' libraries.
const SUITE: &str = "trixie";
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
    let compiled = SOURCES.iter().map(|(name, text, libraries)| {
        let path = directory.join(name);
        let source = path.with_extension("c");
        fs::write(&source, text).map_err(|error| format!("{}: {error}", source.display()))?;
        output(
            Command::new("cc")
                .args(["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror"])
                .arg("-isystem")
                .arg(tree.join("usr/include"))
                .arg("-o")
                .arg(&path)
                .arg(&source)
                // The guests' C library is newer than this computer's.
                .arg("-Wl,--allow-shlib-undefined")
                .arg("-L")
                .arg(tree.join("usr/lib/x86_64-linux-gnu"))
                .args(*libraries),
        )?;
        Ok((*name, path))
    });
    compiled.collect()
}
