//! Programs of the rig's own, for what no program of Debian's does.

use super::packages::Packages;
use crate::process::{C_HEADERS, quiet_output};
use bareverbs_bundle::Bundle;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "tests/rigs/src/c_abi/programs";

/// These programs are about new functions, and are compiled with the headers of the newest release.
const OF_NEWEST: &[&str] = &["newest"];

/// Compiles them with Debian's headers against our libraries. The directory that they are in.
pub(super) fn compile(
    root: &Path,
    directory: &Path,
    bundle: &Bundle,
    packages: &Packages,
) -> Result<PathBuf, String> {
    let into = directory.join("programs");
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| format!("{}: {error}", path.display())
    };
    fs::create_dir_all(&into).map_err(fail(&into))?;
    let sources = root.join(SOURCES);
    for entry in fs::read_dir(&sources).map_err(fail(&sources))? {
        let source = entry.map_err(fail(&sources))?.path();
        let name = source.file_stem().unwrap_or_default();
        let newest = packages.libraries.last();
        let newest = newest.filter(|_| OF_NEWEST.iter().any(|newest| name == *newest));
        let include = newest.map_or(&packages.include, |release| &release.include);
        quiet_output(
            Command::new("cc")
                .args(["-O1", "-Wall", "-Werror", "-o"])
                .arg(into.join(name))
                .arg(C_HEADERS)
                .arg("-I")
                .arg(include)
                .arg(&source)
                .arg("-L")
                .arg(&bundle.folder)
                .args(["-l:libibverbs.so.1", "-l:librdmacm.so.1"]),
        )?;
    }
    Ok(into)
}
