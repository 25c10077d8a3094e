//! The model's process.

use super::machine::{Process, spawn};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The model, serving.
pub(super) struct Server {
    /// `None` once it was killed.
    process: Option<Process>,
    pub(super) sockets: Vec<PathBuf>,
    log: PathBuf,
}

impl Server {
    /// Starts the model with this many functions, and waits until it listens. Logs go to `logs`, sockets to `sockets`.
    pub(super) fn start(
        logs: &Path,
        sockets: &Path,
        functions: usize,
        arguments: &[&str],
    ) -> Result<Self, String> {
        let program = std::env::current_exe()
            .map_err(|error| error.to_string())?
            .with_file_name("connectx-model");
        let sockets: Vec<PathBuf> = (0..functions)
            .map(|index| sockets.join(format!("{index}.socket")))
            .collect();
        let log = logs.join("model.log");
        let fail = |error: std::io::Error| format!("{}: {error}", log.display());
        let file = File::create(&log).map_err(fail)?;
        let mut command = Command::new(program);
        command.arg("serve").args(["--log", "debug,vfio_user=warn"]);
        for socket in &sockets {
            command.arg("--socket").arg(socket);
        }
        if functions > 1 {
            command.arg("--pcap").arg(logs.join("cable.pcap"));
        }
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file);
        let mut process = spawn(&mut command)?;
        // It says each function when its socket is there.
        let out = process.0.stdout.take().ok_or("the model has no output")?;
        let mut lines = BufReader::new(out).lines();
        for _ in 0..functions {
            match lines.next() {
                Some(Ok(_)) => {}
                _ => {
                    let log = fs::read_to_string(&log).unwrap_or_default();
                    return Err(format!("{command:?} ended:\n{log}"));
                }
            }
        }
        Ok(Self {
            process: Some(process),
            sockets,
            log,
        })
    }

    /// Has something happen to a function, or to all at once: `die` kills the model.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), String> {
        if line == "die" {
            self.process = None;
            return Ok(());
        }
        let process = self.process.as_mut().ok_or("the model was killed")?;
        let input = process.0.stdin.as_mut();
        let input = input.ok_or("the model has no standard input")?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .map_err(|error| format!("{line:?} to the model: {error}"))
    }

    /// How it ended by itself, which it never should.
    pub(super) fn ended(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        match process.0.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("the model ended by itself: {status}")),
            Err(error) => Some(format!("the model's process: {error}")),
        }
    }

    /// Ends it. What it logged.
    pub(super) fn stop(self) -> Result<Vec<String>, String> {
        let Self { process, log, .. } = self;
        drop(process);
        let text =
            fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(text.lines().map(str::to_string).collect())
    }
}
