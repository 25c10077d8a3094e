//! rdma-core's own test suite, unmodified from Debian's `python3-pyverbs`, on its own provider and Linux's driver: the tests of
//! memory windows, indirect keys and device memory, whose requests no program of Debian's posts.
//!
//! `cargo rig c-abi` has the same suite run on this project's libraries.

use crate::process::quiet_output;
use crate::stock_driver::provision::unpack_for_guests;
use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The suite, Python, and the libraries that guests do not have.
const PACKAGES: &[&str] = &[
    "libexpat1",
    "libffi8",
    "libpython3.13",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "python3-pyverbs",
    "python3-scapy",
    "python3.13-minimal",
];
/// The suite in its package: documentation, for Debian.
const TESTS: &str = "usr/share/doc/rdma-core/tests";
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "2";

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
        unpack_for_guests(directory, PACKAGES, &tree)?;
        // Its longer files are packed.
        quiet_output(Command::new("gunzip").arg("-r").arg(tree.join(TESTS)))?;
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&archive).arg("-C").arg(&tree);
        tar.args(["--transform", &format!("s,^{TESTS},tests,")]);
        quiet_output(tar.args(["usr/bin", "usr/lib", TESTS]))?;
        // The archive has what guests need.
        for done in [tree, directory.join("debs")] {
            fs::remove_dir_all(&done).map_err(|error| format!("{}: {error}", done.display()))?;
        }
        fs::write(&stamp, RECIPE).map_err(|error| format!("{}: {error}", stamp.display()))?;
    }
    Ok(vec![Program {
        name: "tests.tar",
        path: archive,
    }])
}
