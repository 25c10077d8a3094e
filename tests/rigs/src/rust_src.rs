//! The sources of Rust's library, for what cargo builds with `-Z build-std`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, unpack};
use crate::folder::empty;
use crate::outcome::Outcome;
use crate::process::output;

/// The version or the machine of this compiler, as it prints them.
pub(crate) fn rustc(field: &str) -> Result<String, String> {
    let said = output(Command::new("rustc").args(["--version", "--verbose"]))?;
    let line = said.lines().find_map(|line| line.strip_prefix(field));
    let value = line.and_then(|rest| rest.strip_prefix(": "));
    Ok(value
        .ok_or_else(|| format!("rustc has no {field}"))?
        .to_string())
}

/// The sources are here, below the root of the repository: .ci/run builds from there as well.
const UNPACKED: &str = "target/ci/rust-src";

pub(crate) const ABOUT: &str =
    "fetches the sources of Rust's library that `-Z build-std` builds from";

/// The rig that fetches them.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("unknown argument {argument:?}"));
    }
    println!("{}", library()?.display());
    Ok(Outcome {
        passed: 1,
        failed: 0,
    })
}

/// Where they are. Debian's package of exactly this compiler is fetched if it is not there yet.
pub(crate) fn library() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let version = rustc("release")?;
    let unpacked = root.join(UNPACKED);
    let library = unpacked.join(format!("usr/src/rustc-{version}/library"));
    if !library.join("core/src/lib.rs").exists() {
        fetch(&unpacked, &version)?;
    }
    // Cargo takes another way to the same sources for others, and builds them again.
    let canonical = library.canonicalize();
    canonical.map_err(|error| format!("{}: {error}", library.display()))
}

fn fetch(unpacked: &Path, version: &str) -> Result<(), String> {
    let work = unpacked.with_extension("fetched");
    empty(&work)?;
    let apt = Apt::of_suite(&work, "trixie-backports")?;
    let debs = apt.fetch(&work.join("debs"), &[&format!("rust-src={version}+*")])?;
    empty(unpacked)?;
    for deb in debs {
        unpack(&deb, unpacked)?;
    }
    fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))
}
