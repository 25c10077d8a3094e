//! Processes that end with the process that started them.

use std::process::{Child, Command};

/// A child process that does not outlive its handle.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn spawn(command: &mut Command) -> Result<Process, String> {
    command
        .spawn()
        .map(Process)
        .map_err(|error| format!("{command:?}: {error}"))
}
