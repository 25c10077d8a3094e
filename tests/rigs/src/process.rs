//! Programs that a rig runs to their end.

use std::process::{Command, Stdio};

/// Runs a program to its end. What it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !done.status.success() {
        return Err(format!("{command:?}: {}", done.status));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
