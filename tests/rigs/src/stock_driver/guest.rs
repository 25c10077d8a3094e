//! The two processes of a rig, the model and the machine, and what comes out of the machine's console.

use super::cpio::Archive;
use super::provision::Provisions;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A child process that does not outlive its handle.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(command: &mut Command) -> Result<Process, String> {
    command
        .spawn()
        .map(Process)
        .map_err(|error| format!("{command:?}: {error}"))
}

/// The model, serving.
pub(super) struct Server {
    process: Process,
    sockets: Vec<PathBuf>,
    log: PathBuf,
}

impl Server {
    /// Starts the model with this many functions, and waits until it listens.
    pub(super) fn start(
        directory: &Path,
        name: &str,
        functions: usize,
        arguments: &[&str],
    ) -> Result<Self, String> {
        let program = std::env::current_exe()
            .map_err(|error| error.to_string())?
            .with_file_name("connectx-model");
        let sockets: Vec<PathBuf> = (0..functions)
            .map(|index| directory.join(format!("{index}.socket")))
            .collect();
        let log = directory.join(format!("{name}.model.log"));
        let fail = |error: std::io::Error| format!("{}: {error}", log.display());
        let file = File::create(&log).map_err(fail)?;
        let mut command = Command::new(program);
        command.arg("serve").args(["--log", "debug,vfio_user=warn"]);
        for socket in &sockets {
            command.arg("--socket").arg(socket);
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
            process,
            sockets,
            log,
        })
    }

    /// Has something happen to a function.
    fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.process.0.stdin.as_mut();
        let input = input.ok_or("the model has no standard input")?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .map_err(|error| format!("{line:?} to the model: {error}"))
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

/// One command in the guest.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) name: String,
    /// Its exit status; `None` if it never ended.
    pub(super) status: Option<u32>,
    pub(super) output: Vec<String>,
    /// Kernel messages: level and text.
    pub(super) log: Vec<(u8, String)>,
}

/// What a machine's console showed.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub(super) steps: Vec<Step>,
    /// The script came to its end.
    pub(super) ended: bool,
    /// What belongs to no step: the firmware, the kernel's last words.
    pub(super) rest: Vec<String>,
}

impl Transcript {
    pub(super) fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        let mut open: Option<Step> = None;
        for line in lines {
            let line = line.trim_end();
            if let Some(name) = line.strip_prefix("@@ step ") {
                all.steps.extend(open.replace(Step {
                    name: name.to_string(),
                    ..Step::default()
                }));
            } else if line.starts_with("@@ done ") {
                all.steps.extend(open.take());
            } else if line.starts_with("@@ host ") {
                // Done when it came.
            } else if line == "@@ end" {
                all.ended = true;
            } else {
                let step = open.as_mut();
                match (line.split_once(' '), step) {
                    (Some(("@out", text)), Some(step)) => {
                        match text.strip_prefix("@status ").map(str::parse) {
                            Some(Ok(status)) => step.status = Some(status),
                            _ => step.output.push(text.to_string()),
                        }
                    }
                    (Some(("@log", text)), Some(step)) => step.log.push(level(text)),
                    _ => all.rest.push(line.to_string()),
                }
            }
        }
        all.steps.extend(open);
        all
    }
}

/// Takes the level off a raw kernel message; its low three bits, the rest is the facility.
fn level(message: &str) -> (u8, String) {
    match message.strip_prefix('<').and_then(|m| m.split_once('>')) {
        Some((number, text)) => match number.parse::<u32>() {
            Ok(number) => ((number & 7) as u8, text.to_string()),
            Err(_) => (0, message.to_string()),
        },
        None => (0, message.to_string()),
    }
}

/// The guest's first process.
const INIT: &str = include_str!("init.sh");
/// Runs a server and its client.
const PAIR: &str = include_str!("pair.sh");

/// The emulated cycle counter stands still when the machine that emulates it is busy, which the guest is not to mind.
const CMDLINE: &str = "console=ttyS0 quiet panic=-1 tsc=reliable";

/// Boots a machine with functions of the model plugged in, runs the script in it, and waits for the end.
pub(super) fn boot(
    provisions: &Provisions,
    directory: &Path,
    name: &str,
    server: &mut Server,
    iommu: bool,
    script: &str,
    limit: Duration,
) -> Result<Transcript, String> {
    let fail = |error: std::io::Error| format!("{name}: {error}");
    // The script comes in an archive of its own behind the common one.
    let initrd = directory.join(format!("{name}.initrd"));
    fs::copy(&provisions.initrd, &initrd).map_err(fail)?;
    let mut file = File::options().append(true).open(&initrd).map_err(fail)?;
    let mut archive = Archive::new(Vec::new());
    for (path, mode, text) in [
        ("init", 0o755, INIT),
        ("pair", 0o755, PAIR),
        ("script", 0o644, script),
    ] {
        archive.file(path, mode, text.as_bytes()).map_err(fail)?;
    }
    let archive = archive.finish().map_err(fail)?;
    file.write_all(&archive).map_err(fail)?;
    drop(file);

    let mut command = provisions.qemu();
    command
        .args(["-M", "q35,kernel-irqchip=split", "-accel", "tcg"])
        .args(["-cpu", "Nehalem"])
        .args(["-smp", "2", "-m", "768"])
        .args([
            "-object",
            "memory-backend-memfd,id=memory,size=768M,share=on",
        ])
        .args(["-numa", "node,memdev=memory"])
        .args(["-nic", "none", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-monitor", "none"]);
    if iommu {
        command.args(["-device", "intel-iommu,caching-mode=on,intremap=on"]);
    }
    for (index, socket) in server.sockets.iter().enumerate() {
        // Behind a root port, as a card is: on the root bus it would be integrated, and have no link.
        command.args([
            "-device",
            &format!("pcie-root-port,id=port{index},chassis={index},slot={index}"),
            "-device",
            &format!(
                r#"{{"driver":"vfio-user-pci","bus":"port{index}","socket":{{"type":"unix","path":"{}"}}}}"#,
                socket.display()
            ),
        ]);
    }
    command
        .arg("-kernel")
        .arg(&provisions.kernel)
        .arg("-initrd")
        .arg(&initrd)
        .arg("-append")
        .arg(if iommu {
            format!("{CMDLINE} intel_iommu=on")
        } else {
            CMDLINE.to_string()
        });
    let log = directory.join(format!("{name}.console.log"));
    let errors = File::create(directory.join(format!("{name}.qemu.log"))).map_err(fail)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut machine = spawn(&mut command)?;
    let console = machine
        .0
        .stdout
        .take()
        .ok_or("the machine has no console")?;
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut console = BufReader::new(console);
        let mut line = Vec::new();
        while let Ok(1..) = console.read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    let mut file = File::create(&log).map_err(fail)?;
    let mut text = Vec::new();
    let deadline = Instant::now() + limit;
    let in_time = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                file.write_all(line.as_bytes()).map_err(fail)?;
                if let Some(event) = line.strip_prefix("@@ host ") {
                    server.tell(event.trim_end())?;
                }
                text.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    drop(machine);
    drop(lines);
    if reader.join().is_err() {
        return Err(format!("{name}: the console's reader panicked"));
    }
    if !in_time {
        println!("{name}: not over after {} s, killed", limit.as_secs());
    }
    fs::remove_file(&initrd).map_err(fail)?;
    Ok(Transcript::parse(text.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_come_apart() {
        let transcript = Transcript::parse([
            "SeaBIOS\r\n",
            "@@ step probe\r\n",
            "@out hello\r\n",
            "@out @status 3\r\n",
            "@log <4>[    1.5] mlx5_core 0000:01:00.0: odd\r\n",
            "@log <30>[    1.6] mlx5_core: fine\r\n",
            "@@ done probe\r\n",
            "@@ step hang\r\n",
            "Kernel panic\r\n",
        ]);
        let [probe, hang] = &transcript.steps[..] else {
            panic!("{transcript:?}");
        };
        assert_eq!(probe.name, "probe");
        assert_eq!(probe.status, Some(3));
        assert_eq!(probe.output, ["hello"]);
        assert_eq!(probe.log[0].0, 4);
        assert_eq!(probe.log[1], (6, "[    1.6] mlx5_core: fine".to_string()));
        assert_eq!(hang.status, None);
        assert!(!transcript.ended);
        assert_eq!(transcript.rest, ["SeaBIOS", "Kernel panic"]);
        assert!(Transcript::parse(["@@ end\n"]).ended);
    }
}
