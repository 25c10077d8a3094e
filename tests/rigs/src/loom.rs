//! `core`'s shared state and the model's rings in every order of threads: unit tests with loom's atomics.
//!
//! They are built with `--cfg loom`, into a folder of their own.

use std::path::Path;
use std::process::Command;

use crate::cargo_test;
use crate::outcome::Outcome;

pub(crate) const ABOUT: &str = "what poster, poller and control path share, and two ends of a ring, in every order of threads (loom)";

pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    cargo_test::run(
        Command::new(env!("CARGO"))
            .args(["test", "--locked", "--release"])
            .args(["--package", "bareverbs-core"])
            .args(["--package", "connectx-model", "--lib"])
            .args(["--", "loom_tests"])
            .args(arguments)
            .current_dir(&root)
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", root.join("target/loom")),
    )
}
