//! A program that this one starts: the lines that it prints, and how it ends.

use super::super::stock_driver::{Process, spawn};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

pub(super) struct Program {
    name: String,
    process: Process,
    lines: Receiver<String>,
    printed: Vec<String>,
    log: File,
}

/// One that has ended.
pub(super) struct Ended {
    /// Its exit status; `None` if it was killed.
    pub(super) status: Option<i32>,
    /// The lines that it printed.
    pub(super) printed: Vec<String>,
}

impl Ended {
    /// The part of its stack that a unikernel used at most; all of it if it did not print that.
    pub(super) fn stack(&self) -> u64 {
        let text = self.after("stack high-water mark: ").unwrap_or_default();
        let used = text.split(' ').next().and_then(|used| used.parse().ok());
        used.unwrap_or(u64::MAX)
    }

    /// The rest of the first line that has this text, behind it.
    pub(super) fn after(&self, text: &str) -> Option<&str> {
        let mut found = self.printed.iter().filter_map(|line| line.split_once(text));
        found.next().map(|(_, rest)| rest)
    }
}

impl Program {
    /// Starts it. What it prints goes to `NAME.log` as well.
    pub(super) fn start(command: &mut Command, logs: &Path, name: &str) -> Result<Self, String> {
        let file = |end: &str| {
            let path = logs.join(format!("{name}{end}"));
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file(".errors.log")?);
        let mut process = spawn(command)?;
        let out = process.0.stdout.take().ok_or("no standard output")?;
        let (sender, lines) = mpsc::channel();
        // Ends with the program, or when the receiver of its lines is gone.
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).find(Result::is_err)
        });
        Ok(Self {
            name: name.to_string(),
            process,
            lines,
            printed: Vec::new(),
            log: file(".log")?,
        })
    }

    /// Waits until it prints a line with this text.
    pub(super) fn until(&mut self, text: &str, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        loop {
            match self.next(deadline)? {
                Some(line) if line.contains(text) => return Ok(()),
                Some(_) => {}
                None => {
                    let last = self.printed.iter().rev().take(5).rev();
                    let last: Vec<&str> = last.map(String::as_str).collect();
                    let last = last.join("\n  ");
                    let name = &self.name;
                    return Err(format!("{name} ended without {text:?}:\n  {last}"));
                }
            }
        }
    }

    /// Waits for its end.
    pub(super) fn end(mut self, limit: Duration) -> Result<Ended, String> {
        let deadline = Instant::now() + limit;
        while self.next(deadline)?.is_some() {}
        // Its output is closed, so that it is about to end.
        let status = self.process.0.wait();
        let status = status.map_err(|error| format!("{}: {error}", self.name))?;
        Ok(Ended {
            status: status.code(),
            printed: self.printed,
        })
    }

    /// The next line; `None` if there are no more.
    fn next(&mut self, deadline: Instant) -> Result<Option<&str>, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                let written = writeln!(self.log, "{line}");
                written.map_err(|error| format!("{}: {error}", self.name))?;
                self.printed.push(line.trim_end().to_string());
                Ok(self.printed.last().map(String::as_str))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                let last = self.printed.last().map_or("nothing", String::as_str);
                Err(format!(
                    "{} takes too long; its last line: {last}",
                    self.name
                ))
            }
        }
    }
}
