//! Debian's packages: the libraries that ours stand in for, their headers, and the programs.

use crate::stock_driver::provision::{Apt, copy, unpack};
use std::fs;
use std::path::{Path, PathBuf};

/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";
/// The release whose programs run here.
const SUITE: &str = "bookworm";
/// The libraries that ours are compared with.
const LIBRARIES: &[&str] = &["libibverbs1", "librdmacm1", "ibverbs-providers"];
/// Their headers, the programs, and what the programs need besides.
const PROGRAMS: &[&str] = &[
    "libibverbs-dev",
    "librdmacm-dev",
    "ibverbs-utils",
    "rdmacm-utils",
    "perftest",
    "libibumad3",
    "libpci3",
];

/// The unpacked packages.
pub(super) struct Packages {
    /// Names and versions.
    pub(super) versions: Vec<String>,
    /// Debian's libraries, which programs must not find.
    pub(super) libraries: PathBuf,
    /// The headers.
    pub(super) include: PathBuf,
    /// The programs.
    pub(super) programs: PathBuf,
    /// What the programs need besides the libraries that ours stand in for.
    pub(super) others: PathBuf,
}

impl Packages {
    /// Names and versions of those with the libraries.
    pub(super) fn libraries_versions(&self) -> Vec<&str> {
        let versions = self.versions.iter().map(String::as_str);
        let of_libraries = |version: &&str| {
            LIBRARIES
                .iter()
                .any(|name| version.split(' ').next() == Some(name))
        };
        versions.filter(of_libraries).collect()
    }
}

/// Fetches and unpacks what is not there yet.
pub(super) fn fetch(directory: &Path) -> Result<Packages, String> {
    let [libraries, programs, others] =
        ["libraries", "programs", "others"].map(|part| directory.join(part));
    let stamp = directory.join("stamp");
    let recipe = format!("{RECIPE} {SUITE} {LIBRARIES:?} {PROGRAMS:?}\n");
    let found = fs::read_to_string(&stamp).unwrap_or_default();
    let versions = match found.strip_prefix(&recipe) {
        Some(versions) => versions.lines().map(str::to_owned).collect(),
        None => {
            let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
            if directory.exists() {
                fs::remove_dir_all(directory).map_err(fail)?;
            }
            fs::create_dir_all(directory).map_err(fail)?;
            let apt = Apt::new(directory)?;
            let mut versions = Vec::new();
            for (packages, into) in [(LIBRARIES, &libraries), (PROGRAMS, &programs)] {
                let named: Vec<String> = packages
                    .iter()
                    .map(|name| format!("{name}/{SUITE}"))
                    .collect();
                let named: Vec<&str> = named.iter().map(String::as_str).collect();
                for deb in apt.fetch(&directory.join("debs"), &named)? {
                    unpack(&deb, into)?;
                    let name = deb.file_stem().unwrap_or_default().to_string_lossy();
                    versions.push(name.trim_end_matches("_amd64").replace('_', " "));
                }
            }
            // By themselves: the development packages have links to the libraries that ours stand in for.
            for name in ["libibumad.so.3", "libpci.so.3"] {
                copy(&programs.join(LIB).join(name), &others.join(name))?;
            }
            fs::write(&stamp, format!("{recipe}{}\n", versions.join("\n"))).map_err(fail)?;
            versions
        }
    };
    Ok(Packages {
        versions,
        libraries: libraries.join(LIB),
        include: programs.join("usr/include"),
        programs: programs.join("usr/bin"),
        others,
    })
}

const LIB: &str = "usr/lib/x86_64-linux-gnu";
