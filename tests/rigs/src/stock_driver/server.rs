//! The model's process.

use super::process::{Process, spawn};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// The time that the model may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The model, serving; or none, where no machine has a function of it.
pub(crate) struct Server {
    /// `None` once it was killed, and where there is none.
    process: Option<Process>,
    /// The lines that it prints.
    lines: Receiver<String>,
    pub(crate) sockets: Vec<PathBuf>,
    log: PathBuf,
}

impl Server {
    /// Starts the model with this many functions, and waits until it listens. Logs go to `logs`, sockets to `sockets`.
    pub(crate) fn start(
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
        if functions == 0 {
            return Ok(Self {
                process: None,
                lines: mpsc::channel().1,
                sockets,
                log,
            });
        }
        let mut command = Command::new(program);
        command.arg("serve").args(["--log", "debug,vfio_user=warn"]);
        for socket in &sockets {
            command.arg("--socket").arg(socket);
        }
        if functions > 1 {
            command.arg("--pcap").arg(record(logs));
        }
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file);
        let mut process = spawn(&mut command)?;
        // It prints a line for each function when its socket exists.
        let out = process.0.stdout.take().ok_or("the model has no output")?;
        let (sender, lines) = mpsc::channel();
        // Ends with the model, or when the receiver of its lines is gone.
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).find(Result::is_err)
        });
        for _ in 0..functions {
            if lines.recv().is_err() {
                let log = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{command:?} ended:\n{log}"));
            }
        }
        Ok(Self {
            process: Some(process),
            lines,
            sockets,
            log,
        })
    }

    /// Kills the model, once it has read and answered all that it was sent.
    pub(super) fn die(&mut self) -> Result<(), String> {
        let process = self.process.take();
        let process = process.ok_or("there is no model any more")?;
        let started = Instant::now();
        let mut before = Vec::new();
        while started.elapsed() < ANSWER {
            let now = threads(process.0.id()).map_err(|error| format!("the model: {error}"))?;
            // None ran since the last check, and none has anything to do.
            if now == before && now.iter().all(|thread| thread.sleeps) {
                return Ok(());
            }
            before = now;
        }
        Err("the model does not become idle".into())
    }

    /// Sends the model a command for a function, or for all at once.
    pub(crate) fn send(&mut self, line: &str) -> Result<(), String> {
        let process = self.process.as_mut().ok_or("there is no model any more")?;
        let input = process.0.stdin.as_mut();
        let input = input.ok_or("the model has no standard input")?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .map_err(|error| format!("{line:?} to the model: {error}"))
    }

    /// The model's state of a function: the value of a name in its line about it.
    pub(crate) fn ask(&mut self, function: &str, name: &str) -> Result<String, String> {
        self.send(&format!("state {function}"))?;
        let begins = format!("state {function} ");
        loop {
            let line = self.lines.recv_timeout(ANSWER);
            let line = line.map_err(|error| format!("the model does not answer: {error}"))?;
            if let Some(state) = line.strip_prefix(&begins) {
                return value(state, name)
                    .ok_or_else(|| format!("the model does not report {name:?}: {line}"));
            }
        }
    }

    /// The way in which it ended by itself, which it never should.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        match process.0.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("the model ended by itself: {status}")),
            Err(error) => Some(format!("the model's process: {error}")),
        }
    }

    /// Ends it. What it logged.
    pub(crate) fn stop(self) -> Result<Vec<String>, String> {
        let Self { process, log, .. } = self;
        drop(process);
        let text =
            fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(text.lines().map(str::to_string).collect())
    }

    /// Returns `true` if a line of the model's log is a warning, an error, or a part of a panic, which has no level in front.
    pub(crate) fn is_warning(line: &str) -> bool {
        // What vfio_user says of a machine that was ended before it took an answer.
        const LEFT: &str = "Error writing to stream: Broken pipe";
        let levels = ["[INFO", "[DEBUG", "[TRACE"];
        !levels.iter().any(|level| line.starts_with(level)) && !line.contains(LEFT)
    }
}

/// The state of a thread.
#[derive(PartialEq, Eq)]
struct Thread {
    sleeps: bool,
    /// The number of times that it went to sleep: the kernel's voluntary context switches.
    slept: Option<String>,
}

fn threads(process: u32) -> std::io::Result<Vec<Thread>> {
    let entries = fs::read_dir(format!("/proc/{process}/task"))?;
    entries
        .map(|entry| {
            let status = fs::read_to_string(entry?.path().join("status"))?;
            let line = |name| status.lines().find(|line| line.starts_with(name));
            Ok(Thread {
                sleeps: line("State:").is_some_and(|state| state.contains("S (sleeping)")),
                slept: line("voluntary_ctxt_switches:").map(str::to_string),
            })
        })
        .collect()
}

/// Where what goes between functions is recorded, if there are more than one.
pub(super) fn record(logs: &Path) -> PathBuf {
    logs.join("cable.pcap")
}

/// The value of a name among `name=value` words.
fn value(words: &str, name: &str) -> Option<String> {
    let mut pairs = words.split(' ').filter_map(|word| word.split_once('='));
    let (_, value) = pairs.find(|(known, _)| *known == name)?;
    Some(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_name() {
        let line = "commands=17 reach=0";
        assert_eq!(value(line, "reach"), Some("0".into()));
        assert_eq!(value(line, "ach"), None);
    }
}
