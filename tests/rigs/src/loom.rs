//! `core`'s shared state in every order of threads: its unit tests with loom's atomics.
//!
//! They are built with `--cfg loom`, into a folder of their own.

use std::path::Path;
use std::process::Command;

use crate::outcome::Outcome;

pub(crate) const ABOUT: &str =
    "what poster, poller and control path share, in every order of threads (loom)";

pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "test",
            "--locked",
            "--release",
            "--package",
            "bareverbs-core",
            "--lib",
        ])
        .args(["--", "memory::loom_tests"])
        .args(arguments)
        .current_dir(&root)
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", root.join("target/loom"));
    let output = command
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let mut outcome = Outcome::default();
    for line in text.lines().filter(|line| is_result(line)) {
        outcome.check(line.ends_with("... ok"), || line.to_owned());
    }
    outcome.check(output.status.success(), || {
        format!("cargo test: {}", output.status)
    });
    if outcome.passed < 2 {
        return Err("no test ran".to_owned());
    }
    Ok(outcome)
}

/// Whether a line of the test program is a test's result. It also prints which tests take long.
fn is_result(line: &str) -> bool {
    line.starts_with("test memory::") && (line.ends_with("... ok") || line.ends_with("... FAILED"))
}

#[cfg(test)]
mod tests {
    use super::is_result;

    #[test]
    fn only_results_count() {
        assert!(is_result("test memory::loom_tests::sends ... ok"));
        assert!(is_result("test memory::loom_tests::sends ... FAILED"));
        assert!(!is_result(
            "test memory::loom_tests::sends has been running for over 60 seconds"
        ));
        assert!(!is_result("test result: ok. 9 passed; 0 failed"));
    }
}
