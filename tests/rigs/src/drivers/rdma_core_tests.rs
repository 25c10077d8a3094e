//! rdma-core's own test suite, unmodified from Debian's `python3-pyverbs`, on its own provider and Linux's driver: the tests of
//! memory windows, indirect keys and device memory, whose requests no program of Debian's posts.
//!
//! `cargo rig c-abi` has the same suite run on this project's libraries.

use crate::process::quiet_output;
use crate::stock_driver::provision::{Apt, unpack};
use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario, empty};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The release of the guests' libraries.
const SUITE: &str = "trixie";
/// The suite, Python, and the libraries that guests do not have.
const PACKAGES: &[&str] = &[
    "libexpat1",
    "libffi8",
    "libpython3.13",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "python3-pyverbs",
    "python3.13-minimal",
];
/// The suite in its package: documentation, for Debian.
const TESTS: &str = "usr/share/doc/rdma-core/tests";
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "rdma-core-tests",
    about: "rdma-core's test suite on Linux's driver: memory windows, indirect keys, device memory",
    rounds: &[Boot {
        script: include_str!("scripts/rdma-core-tests.sh"),
        ..BOOT
    }],
    ..DEFAULT
};

/// The suite and Python, in one archive.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let archive = directory.join("tests.tar");
    let stamp = directory.join("stamp");
    if fs::read_to_string(&stamp).unwrap_or_default() != RECIPE {
        let tree = directory.join("packages");
        empty(&tree)?;
        let apt = Apt::new(directory)?;
        let wanted: Vec<String> = PACKAGES
            .iter()
            .map(|name| format!("{name}/{SUITE}"))
            .collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let debs = directory.join("debs");
        for deb in apt.fetch(&debs, &wanted)? {
            unpack(&deb, &tree)?;
        }
        // Its longer files are packed.
        quiet_output(Command::new("gunzip").arg("-r").arg(tree.join(TESTS)))?;
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&archive).arg("-C").arg(&tree);
        tar.args(["--transform", &format!("s,^{TESTS},tests,")]);
        quiet_output(tar.args(["usr/bin", "usr/lib", TESTS]))?;
        // The archive has what guests need.
        for done in [tree, debs] {
            fs::remove_dir_all(&done).map_err(|error| format!("{}: {error}", done.display()))?;
        }
        fs::write(&stamp, RECIPE).map_err(|error| format!("{}: {error}", stamp.display()))?;
    }
    Ok(vec![Program {
        name: "tests.tar",
        path: archive,
    }])
}
