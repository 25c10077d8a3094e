//! Programs that are run to their end.

use std::process::{Command, Stdio};

/// Runs a program, and returns what it printed. A program that fails is an error with its messages.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let done = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let errors = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        return Err(format!("{command:?}: {}\n{errors}", done.status));
    }
    String::from_utf8(done.stdout).map_err(|error| format!("{command:?}: {error}"))
}
