//! Tests of this repository that a rig runs: each is a check.

use std::process::Command;

use crate::outcome::Outcome;

/// Runs a `cargo test` and shows what it prints.
pub(crate) fn run(command: &mut Command) -> Result<Outcome, String> {
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
    if outcome.passed + outcome.failed == 0 {
        return Err(format!("{command:?}: no test ran"));
    }
    outcome.check(output.status.success(), || {
        format!("cargo test: {}", output.status)
    });
    Ok(outcome)
}

/// Returns `true` if a line of the test program is a test's result. It also prints which tests take long.
fn is_result(line: &str) -> bool {
    line.starts_with("test ") && (line.ends_with("... ok") || line.ends_with("... FAILED"))
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
