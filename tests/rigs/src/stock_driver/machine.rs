//! The machines of a rig, and the messages between them.

use super::cpio::Archive;
use super::process::{Process, spawn};
use super::provision::Provisions;
use super::rig::Program;
use super::scenario::Loader;
use super::server::Server;
use super::transcript::{Request, Transcript};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The guest's first process.
const INIT: &str = include_str!("guest/init.sh");
/// The script by which it communicates with this program.
const SESSION: &str = include_str!("guest/session.sh");
/// This computer's part, where it is one of the machines.
const HERE: &str = include_str!("guest/here.sh");
/// Functions for its scripts.
const HELPERS: &str = include_str!("guest/helpers.sh");

/// When the machine that emulates it is busy, the guest cannot measure the emulated cycle counter: its clock would run
/// many times too fast, or stand still. Nor can it check the timer, and it would panic.
///
/// What begins with `mitigations` is left out because it costs an emulated processor a fifth of its time and more, and these
/// tests do not need it. The calls that are not made test ciphers, and load modules for keys, for a fifth of the time in which
/// the guest boots.
const CMDLINE: &str = "console=ttyS0 quiet panic=-1 notsc clocksource=hpet no_timer_check mitigations=off nokaslr \
                       randomize_kstack_offset=off init_on_alloc=0 cryptomgr.notests audit=0 apparmor=0 selinux=0 nowatchdog \
                       initcall_blacklist=crypto_kdf108_init,init_encrypted,jent_mod_init";

/// The interval at which the model's process is checked while nothing else happens.
const LOOK_AFTER_MODEL: Duration = Duration::from_secs(1);

/// Machines that run at the same time, with one script.
pub(super) struct Round<'a> {
    /// Begins the names of the files that they leave in `logs`.
    pub(super) name: &'a str,
    /// The functions of each machine.
    pub(super) machines: &'a [&'a [usize]],
    pub(super) script: &'a str,
    /// The programs that guests have in `/ours`.
    pub(super) programs: &'a [Program],
    /// Where this repository's programs are.
    pub(super) ours: &'a Path,
    /// The machine that is this computer instead of a guest.
    pub(super) here: Option<usize>,
    /// `true` if the ordinary network is recorded.
    pub(super) record: bool,
    /// Processors of each machine.
    pub(super) processors: usize,
    /// Memory of each machine, in MiB.
    pub(super) memory: usize,
    /// `true` if they have an IOMMU, which maps every page by itself.
    pub(super) iommu: bool,
    /// `true` if there is an ordinary network between them.
    pub(super) network: bool,
    /// `true` if the first function shares its slot with one that is not a card's.
    pub(super) shared_slot: bool,
    /// `true` if slots have a button and power of their own, as PCI Express has it; otherwise it is all ACPI's.
    pub(super) buttons: bool,
    /// The message with which QEMU itself may abort.
    pub(super) known_abort: Option<&'a str>,
    /// The machine that boots twice.
    pub(super) boots_twice: Option<usize>,
    /// The loader that one machine boots instead of Linux.
    pub(super) loader: Option<&'a Loader>,
    pub(super) limit: Duration,
}

/// Directories for logs and sockets.
pub(super) struct Places<'a> {
    pub(super) logs: &'a Path,
    pub(super) sockets: &'a Path,
}

impl Places<'_> {
    /// The ends of the ordinary network's cable, a machine's own first.
    fn wire(&self, machine: usize) -> (PathBuf, PathBuf) {
        let end = |end: usize| self.sockets.join(format!("{end}.wire"));
        (end(machine), end(1 - machine))
    }

    /// Where a round records that network.
    pub(super) fn record(&self, round: &str) -> PathBuf {
        self.logs.join(format!("{round}wire.pcap"))
    }
}

/// The result of a round.
pub(super) struct Ran {
    /// By machine.
    pub(super) transcripts: Vec<Transcript>,
    /// Failures of the machines themselves.
    pub(super) wrong: Vec<String>,
    /// `true` if QEMU aborted in the known way.
    pub(super) died: bool,
}

impl Ran {
    /// Returns `true` if QEMU aborted in the known way, but before the guest was through these steps, of each machine: on a
    /// busy computer the guest's last steps may take longer than QEMU needs. A step that failed stays a failure.
    pub(super) fn cut_short(&self, planned: &[Vec<String>]) -> bool {
        let mut machines = self.transcripts.iter().zip(planned);
        let mut steps = self.transcripts.iter().flat_map(|it| &it.steps);
        self.died
            && steps.all(|step| step.status.is_none_or(|status| status == 0))
            && machines.any(|(transcript, planned)| {
                let ended = transcript.steps.iter().filter(|it| it.status.is_some());
                ended.count() < planned.len()
            })
    }
}

/// A running machine.
struct Machine {
    process: Process,
    console: File,
    /// Lines that it gets once it listens.
    waiting: Vec<String>,
    listens: bool,
    transcript: Transcript,
    /// QEMU's monitor: where it listens, and the connection.
    monitor: (PathBuf, Option<UnixStream>),
    /// QEMU's own messages.
    complaints: PathBuf,
}

impl Machine {
    /// Executes a command of QEMU's monitor, whose answer is in a log.
    fn command(&mut self, line: &str) -> std::io::Result<()> {
        let (path, connection) = &mut self.monitor;
        let connection = match connection {
            Some(connection) => connection,
            none => none.insert(UnixStream::connect(path)?),
        };
        writeln!(connection, "{line}")
    }

    fn aborted_with(&mut self, text: &str) -> bool {
        // Its log is complete once it has ended.
        let _ = self.process.0.wait();
        fs::read_to_string(&self.complaints).is_ok_and(|log| log.contains(text))
    }

    fn send(&mut self, word: &str) -> std::io::Result<()> {
        if !self.listens {
            self.waiting.push(word.to_string());
            return Ok(());
        }
        match self.process.0.stdin.as_mut() {
            Some(input) => writeln!(input, "{word}").and_then(|()| input.flush()),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Sends the machines a signal.
fn signal(name: &str, machines: &[Machine]) -> Result<(), String> {
    let mut command = Command::new("sh");
    command.args(["-c", r#"kill -s "$@""#, "kill", name]);
    command.args(
        machines
            .iter()
            .map(|machine| machine.process.0.id().to_string()),
    );
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

impl Round<'_> {
    /// Boots the machines, passes on their messages, and waits until all have ended.
    pub(super) fn run(
        &self,
        provisions: &Provisions,
        places: &Places<'_>,
        server: &mut Server,
    ) -> Result<Ran, String> {
        let fail = |error: std::io::Error| format!("{}: {error}", self.name);
        let initrd = self.initrd(provisions, places).map_err(fail)?;
        let (sender, lines) = mpsc::channel();
        let mut machines = Vec::new();
        let mut readers = Vec::new();
        for (index, functions) in self.machines.iter().enumerate() {
            let path = |end: &str| places.logs.join(format!("{}{index}.{end}.log", self.name));
            let file = |end: &str| File::create(path(end)).map_err(fail);
            let monitor = places.sockets.join(format!("{}{index}.monitor", self.name));
            let mut command = if self.here == Some(index) {
                self.shell(index, places).map_err(fail)?
            } else {
                let mut command = provisions.qemu();
                self.arguments(&mut command, index, functions, places, server);
                command.arg("-chardev").arg(format!(
                    "socket,id=wire-to-monitor,server=on,wait=off,path={},logfile={}",
                    monitor.display(),
                    path("monitor").display()
                ));
                command.args(["-object", "monitor-hmp,id=monitor,chardev=wire-to-monitor"]);
                match self.loader_of(index) {
                    Some(loader) => self.load(&mut command, loader, places)?,
                    None => {
                        command.arg("-kernel").arg(&provisions.kernel);
                        command.arg("-initrd").arg(&initrd);
                        let iommu = if self.iommu { " intel_iommu=on" } else { "" };
                        command.arg("-append").arg(format!("{CMDLINE}{iommu}"));
                    }
                }
                command
            };
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(file("qemu")?);
            let mut process = spawn(&mut command)?;
            let console = process.0.stdout.take();
            let console = console.ok_or("the machine has no console")?;
            let sender = sender.clone();
            readers.push(std::thread::spawn(move || {
                let mut console = BufReader::new(console);
                let mut line = Vec::new();
                while let Ok(1..) = console.read_until(b'\n', &mut line) {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    if sender.send((index, Some(text))).is_err() {
                        return;
                    }
                    line.clear();
                }
                // The receiver may be gone.
                let _ = sender.send((index, None));
            }));
            machines.push(Machine {
                process,
                console: file("console")?,
                waiting: Vec::new(),
                listens: false,
                transcript: Transcript::default(),
                monitor: (monitor, None),
                complaints: path("qemu"),
            });
        }
        drop(sender);
        let started = Instant::now();
        let mut wrong = Vec::new();
        let mut died = false;
        let mut running = machines.len();
        while running > 0 {
            let left = self.limit.saturating_sub(started.elapsed());
            let (index, line) = match lines.recv_timeout(left.min(LOOK_AFTER_MODEL)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(how) = server.ended() {
                        wrong.push(how);
                        break;
                    }
                    if left.is_zero() {
                        wrong.push(format!("did not end within {} s", self.limit.as_secs()));
                        break;
                    }
                    continue;
                }
            };
            let Some(line) = line else {
                running -= 1;
                if machines[index].transcript.ended {
                    continue;
                }
                if let Some(text) = self.known_abort
                    && machines[index].aborted_with(text)
                {
                    died = true;
                    continue;
                }
                // The others would wait for it.
                wrong.push(format!("machine {index} ended before its script"));
                break;
            };
            let machine = &mut machines[index];
            machine.console.write_all(line.as_bytes()).map_err(fail)?;
            match machine.transcript.line(started.elapsed(), &line) {
                None => {}
                Some(Request::Host("die")) => {
                    // In the middle of a message QEMU 11 may abort (an assertion in `error_setv`), so none is sent
                    // meanwhile.
                    signal("STOP", &machines)?;
                    let died = server.die();
                    signal("CONT", &machines)?;
                    died?;
                }
                Some(Request::Host(event)) => server.send(event)?,
                Some(Request::Monitor(line)) => machine.command(line).map_err(fail)?,
                Some(Request::Ask(question)) => {
                    let mut words = question.split(' ');
                    let mut word = || words.next().unwrap_or_default();
                    let (name, function, value) = (word(), word(), word());
                    let answer = server.ask(function, value)?;
                    machine.send(&format!("{name}={answer}")).map_err(fail)?;
                }
                Some(Request::Send(word)) => {
                    for (other, machine) in machines.iter_mut().enumerate() {
                        if other != index {
                            machine.send(word).map_err(fail)?;
                        }
                    }
                }
                Some(Request::Down) => machine.listens = false,
                Some(Request::Up) => {
                    let boots = machine.transcript.boots;
                    if boots > self.boots(index) {
                        wrong.push(format!("machine {index} booted {boots} times"));
                        break;
                    }
                    machine.listens = true;
                    let about = format!("{index} {} {boots}", self.machines.len());
                    machine.send(&about).map_err(fail)?;
                    for word in std::mem::take(&mut machine.waiting) {
                        machine.send(&word).map_err(fail)?;
                    }
                }
            }
        }
        let transcripts = machines
            .into_iter()
            .map(|mut machine| {
                drop(machine.process);
                machine.transcript.close(started.elapsed());
                machine.transcript
            })
            .collect();
        drop(lines);
        for reader in readers {
            reader.join().map_err(|_| "a console's reader panicked")?;
        }
        fs::remove_file(&initrd).map_err(fail)?;
        Ok(Ran {
            transcripts,
            wrong,
            died,
        })
    }

    /// The number of times that a machine boots.
    pub(super) fn boots(&self, machine: usize) -> usize {
        1 + usize::from(self.boots_twice == Some(machine))
    }

    /// The script comes in a separate archive behind the common one.
    fn initrd(&self, provisions: &Provisions, places: &Places<'_>) -> std::io::Result<PathBuf> {
        let initrd = places.sockets.join(format!("{}initrd", self.name));
        fs::copy(&provisions.initrd, &initrd)?;
        let mut archive = Archive::new(Vec::new());
        archive.file("init", 0o755, INIT.as_bytes())?;
        archive.file("session", 0o644, SESSION.as_bytes())?;
        archive.file("helpers", 0o644, HELPERS.as_bytes())?;
        archive.file("script", 0o644, self.script.as_bytes())?;
        archive.directory("ours")?;
        for Program { name, path } in self.programs {
            archive.file(&format!("ours/{name}"), 0o755, &fs::read(path)?)?;
        }
        let archive = archive.finish()?;
        let mut file = File::options().append(true).open(&initrd)?;
        file.write_all(&archive)?;
        Ok(initrd)
    }

    /// A shell of this computer that runs the script.
    fn shell(&self, index: usize, places: &Places<'_>) -> std::io::Result<Command> {
        let at = places.sockets.join(format!("{}here", self.name));
        fs::create_dir(&at)?;
        // dash cannot wait for a line for a limited time.
        let mut command = Command::new("bash");
        command.arg("-c").arg(HERE);
        for (name, text) in [
            ("session", SESSION),
            ("helpers", HELPERS),
            ("script", self.script),
        ] {
            let path = at.join(name);
            fs::write(&path, text)?;
            command.env(name, path);
        }
        let (local, remote) = places.wire(index);
        let wire = format!("unix:{},{}", local.display(), remote.display());
        command
            .env("run", at)
            .env("ours", self.ours)
            .env("wire", wire);
        Ok(command)
    }

    fn arguments(
        &self,
        command: &mut Command,
        index: usize,
        functions: &[usize],
        places: &Places<'_>,
        server: &Server,
    ) {
        command
            .args(["-M", "q35,kernel-irqchip=split", "-accel", "tcg"])
            .args(["-cpu", "Nehalem", "-m", &self.memory.to_string()])
            .args(["-smp", &self.processors.to_string()])
            .arg("-object")
            .arg(format!(
                "memory-backend-memfd,id=memory,size={}M,share=on",
                self.memory
            ))
            .args(["-numa", "node,memdev=memory"])
            .args(["-display", "none", "-serial", "stdio"]);
        if self.boots(index) == 1 {
            command.arg("-no-reboot");
        }
        if self.buttons {
            command.args([
                "-global",
                "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off",
            ]);
        }
        if self.iommu {
            command.args(["-device", "intel-iommu,caching-mode=on,intremap=on"]);
        }
        if self.network {
            let (local, remote) = places.wire(index);
            command.arg("-netdev").arg(format!(
                "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                local.display(),
                remote.display()
            ));
            let device = format!("virtio-net-pci,netdev=wire,mac=02:00:00:00:00:0{index}");
            command.arg("-device").arg(device);
            if self.record {
                let file = places.record(self.name);
                let recorder = format!(
                    "filter-dump,id=recorder,netdev=wire,file={}",
                    file.display()
                );
                command.arg("-object").arg(recorder);
            }
        } else {
            command.args(["-nic", "none"]);
        }
        for (place, &function) in functions.iter().enumerate() {
            let shared_slot = self.shared_slot && place == 0;
            // Behind a root port, as a card is: on the root bus it would be integrated, and have no link.
            let port =
                format!("pcie-root-port,id=port{function},chassis={function},slot={function}");
            let card = format!(
                r#"{{"driver":"vfio-user-pci","id":"card{function}","bus":"port{function}","multifunction":{shared_slot},"socket":{{"type":"unix","path":"{}"}}}}"#,
                server.sockets[function].display()
            );
            command.arg("-device").arg(port).arg("-device").arg(card);
            if shared_slot {
                let other = format!("virtio-rng-pci,bus=port{function},addr=0.1");
                command.arg("-device").arg(other);
            }
        }
    }

    fn loader_of(&self, machine: usize) -> Option<&Loader> {
        self.loader.filter(|loader| loader.machine == machine)
    }

    /// Boots a loader with its script.
    fn load(
        &self,
        command: &mut Command,
        loader: &Loader,
        places: &Places<'_>,
    ) -> Result<(), String> {
        let program = self
            .programs
            .iter()
            .find(|program| program.name == loader.program);
        let program = program.ok_or_else(|| format!("there is no {}", loader.program))?;
        let script = places.sockets.join(format!("{}loader", self.name));
        fs::write(&script, loader.script)
            .map_err(|error| format!("{}: {error}", script.display()))?;
        command.arg("-kernel").arg(&program.path);
        command.arg("-initrd").arg(script);
        // The firmware shows what it prints on the serial port.
        command.args(["-M", "graphics=off"]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(died: bool, lines: &[&str]) -> Ran {
        let mut transcript = Transcript::default();
        for line in lines {
            transcript.line(Duration::ZERO, line);
        }
        transcript.close(Duration::ZERO);
        Ran {
            transcripts: vec![transcript],
            wrong: Vec::new(),
            died,
        }
    }

    #[test]
    fn a_round_is_cut_short_by_the_known_end_alone() {
        let planned = [vec!["bind".to_string(), "unplug".to_string()]];
        let whole = [
            "@@ step bind",
            "@status 0",
            "@@ done bind",
            "@@ step unplug",
            "@status 0",
            "@@ done unplug",
        ];
        assert!(!ran(true, &whole).cut_short(&planned));
        for length in 1..whole.len() - 1 {
            let short = &whole[..length];
            assert_eq!(
                ran(true, short).cut_short(&planned),
                length < 5,
                "{short:?}"
            );
            assert!(!ran(false, short).cut_short(&planned), "{short:?}");
        }
        let failed = [
            "@@ step bind",
            "@status 1",
            "@@ done bind",
            "@@ step unplug",
        ];
        assert!(!ran(true, &failed).cut_short(&planned));
    }
}
