//! Debian's packages: the libraries that ours stand in for, their headers, and the programs.

use crate::apt::{Apt, unpack};
use crate::process::quiet_output;
use crate::stock_driver::provision::copy;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "4";
/// The release whose programs run here.
const SUITE: &str = "bookworm";
/// The libraries that ours are compared with, by release. Programs of the other one run in guests (`cargo rig vfio c-abi`).
const LIBRARIES: &[(&str, &[&str])] = &[
    (
        SUITE,
        &[
            "libibverbs1",
            "librdmacm1",
            "ibverbs-providers",
            "libibverbs-dev",
            "librdmacm-dev",
            // These run here, with what they are linked to.
            "libnl-3-200",
            "libnl-route-3-200",
        ],
    ),
    (
        "trixie",
        &[
            "libibverbs1",
            "librdmacm1t64",
            "ibverbs-providers",
            "libibverbs-dev",
            "librdmacm-dev",
        ],
    ),
    (
        NEWEST,
        &[
            "libibverbs1",
            "librdmacm1t64",
            "ibverbs-providers",
            "libibverbs-dev",
            "librdmacm-dev",
        ],
    ),
];
/// Debian has the newest rdma-core in this suite.
const NEWEST: &str = "sid";
/// The headers, the programs, and what the programs need besides.
const PROGRAMS: &[&str] = &[
    "libibverbs-dev",
    "librdmacm-dev",
    "ibverbs-utils",
    "rdmacm-utils",
    "perftest",
    "libibumad3",
    "libpci3",
    // Programs with ordinary sockets.
    "netcat-openbsd",
    "libbsd0",
    "libmd0",
    "iperf3",
    "libiperf0",
    "libsctp1",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libexpat1",
    // rdma-core's test suite, and what it is linked to.
    "python3-pyverbs",
    "libpython3.11",
];
/// The libraries among these.
const OTHERS: &[&str] = &[
    "usr/lib/x86_64-linux-gnu/libibumad.so.3",
    "usr/lib/x86_64-linux-gnu/libpci.so.3",
    "usr/lib/x86_64-linux-gnu/libbsd.so.0",
    "usr/lib/x86_64-linux-gnu/libmd.so.0",
    "usr/lib/x86_64-linux-gnu/libiperf.so.0",
    "usr/lib/x86_64-linux-gnu/libsctp.so.1",
    "lib/x86_64-linux-gnu/libexpat.so.1",
    "usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
];

/// A release's libraries, which programs must not find.
pub(super) struct Libraries {
    /// Names and versions of the packages.
    pub(super) versions: Vec<String>,
    pub(super) folder: PathBuf,
    /// This folder has what they are linked to, as far as it is not in `folder`.
    pub(super) others: PathBuf,
    pub(super) include: PathBuf,
}

/// rdma-core's test suite in its package.
const SUITE_OF_TESTS: &str = "usr/share/doc/rdma-core/tests";

/// The unpacked packages.
pub(super) struct Packages {
    /// The folder that has all of the programs' files.
    pub(super) root: PathBuf,
    /// Names and versions of those with the programs.
    pub(super) versions: Vec<String>,
    /// Oldest first.
    pub(super) libraries: Vec<Libraries>,
    /// The headers.
    pub(super) include: PathBuf,
    /// The programs.
    pub(super) programs: PathBuf,
    /// The packages that the programs need besides the libraries that ours stand in for.
    pub(super) others: PathBuf,
}

impl Packages {
    /// rdma-core's test suite.
    pub(super) fn suite(&self) -> PathBuf {
        self.root.join(SUITE_OF_TESTS)
    }
}

/// Fetches and unpacks what is not there yet.
pub(super) fn fetch(directory: &Path) -> Result<Packages, String> {
    let [programs, others] = ["programs", "others"].map(|part| directory.join(part));
    let stamp = directory.join("stamp");
    let recipe = format!("{RECIPE} {LIBRARIES:?} {PROGRAMS:?} {OTHERS:?}\n");
    let found = fs::read_to_string(&stamp).unwrap_or_default();
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    if !found.starts_with(&recipe) {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(fail)?;
        }
        fs::create_dir_all(directory).map_err(fail)?;
        let apt = Apt::new(directory)?;
        unpack_all(&apt, directory, SUITE, PROGRAMS, "programs")?;
        for (suite, names) in LIBRARIES {
            let newest = match *suite {
                NEWEST => Some(Apt::of_suite(&directory.join(NEWEST), NEWEST)?),
                _ => None,
            };
            unpack_all(
                newest.as_ref().unwrap_or(&apt),
                directory,
                suite,
                names,
                suite,
            )?;
        }
        // By themselves: the development packages have links to the libraries that ours stand in for.
        for path in OTHERS.iter().map(Path::new) {
            let name = path.file_name().unwrap_or_default();
            copy(&programs.join(path), &others.join(name))?;
        }
        copy(
            &programs.join("bin/nc.openbsd"),
            &programs.join("usr/bin/nc"),
        )?;
        // Documentation, for Debian: its longer files are packed.
        quiet_output(
            Command::new("gunzip")
                .arg("-r")
                .arg(programs.join(SUITE_OF_TESTS)),
        )?;
        fs::write(&stamp, &recipe).map_err(fail)?;
    }
    let libraries = LIBRARIES.iter().map(|(suite, _)| {
        let root = directory.join(suite);
        Ok(Libraries {
            versions: versions(&root)?,
            folder: root.join(LIB),
            others: root.join(OTHER_LIB),
            include: root.join("usr/include"),
        })
    });
    Ok(Packages {
        root: programs.clone(),
        versions: versions(&programs)?,
        libraries: libraries.collect::<Result<_, String>>()?,
        include: programs.join("usr/include"),
        programs: programs.join("usr/bin"),
        others,
    })
}

/// Packages of a release into a folder of `directory`, and their names and versions beside them.
fn unpack_all(
    apt: &Apt,
    directory: &Path,
    suite: &str,
    names: &[&str],
    into: &str,
) -> Result<(), String> {
    let root = directory.join(into);
    let named: Vec<String> = names.iter().map(|name| format!("{name}/{suite}")).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let mut text = String::new();
    for deb in apt.fetch(&directory.join("debs"), &named)? {
        unpack(&deb, &root)?;
        let name = deb.file_stem().unwrap_or_default().to_string_lossy();
        text += &format!("{}\n", name.trim_end_matches("_amd64").replace('_', " "));
    }
    fs::write(root.join(VERSIONS), text).map_err(|error| format!("{}: {error}", root.display()))
}

fn versions(root: &Path) -> Result<Vec<String>, String> {
    let file = root.join(VERSIONS);
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Where an unpacked folder says what it is made of.
const VERSIONS: &str = "versions";
const LIB: &str = "usr/lib/x86_64-linux-gnu";
const OTHER_LIB: &str = "lib/x86_64-linux-gnu";
