//! Programs that a rig runs to their end.

use std::process::{Command, Output, Stdio};

/// The folder with the headers of the rigs' programs in C, for the compiler.
pub(crate) const C_HEADERS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/src/c");

/// Runs a program to its end. What it printed; its errors are on this program's standard error.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let done = run(command.stderr(Stdio::inherit()))?;
    if !done.status.success() {
        return Err(format!("{command:?}: {}", done.status));
    }
    Ok(text(&done.stdout))
}

/// Runs a program to its end, in the C locale. What it printed; if it fails, both of its outputs are in the error.
pub(crate) fn quiet_output(command: &mut Command) -> Result<String, String> {
    let done = run(command.stderr(Stdio::piped()).env("LC_ALL", "C"))?;
    let (stdout, stderr) = (text(&done.stdout), text(&done.stderr));
    if !done.status.success() {
        return Err(format!("{command:?}: {}\n{stdout}{stderr}", done.status));
    }
    Ok(stdout)
}

/// Runs a program to its end, in the C locale. If it fails, both of its outputs are in the error.
pub(crate) fn quietly(command: &mut Command) -> Result<(), String> {
    quiet_output(command).map(|_| ())
}

fn run(command: &mut Command) -> Result<Output, String> {
    let done = command.stdin(Stdio::null()).output();
    done.map_err(|error| format!("{command:?}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
