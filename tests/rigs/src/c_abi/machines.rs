//! Two network namespaces as two machines: an Ethernet between them (veth, with its usual MTU), on each a switch with an
//! uplink to the other one, and Debian's programs and Open MPI's ranks on both. No root: a user namespace is enough.

use super::larger::{Ended, Engines, end, judge};
use super::mpi;
use super::run::{Place, Running};
use crate::apt::{Apt, unpack};
use crate::outcome::Outcome;
use crate::process::quiet_output;
use crate::stock_driver::{Process, spawn};
use bareverbs_bundle::RUNNER;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Debian's `ibv_rc_pingpong` and `rping` from one machine to the other.
const PAIRS: &str = "machines-pairs";
/// The time that a program may take.
const END: Duration = Duration::from_secs(150);
/// The time that a server may take until it listens.
const START: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(5);
/// Addresses of the two machines on the Ethernet, and the port of their uplinks.
const NEAR: &str = "192.168.7.1";
const FAR: &str = "192.168.7.2";
const PORT: u16 = 7000;

/// The packages that make the Ethernet.
const PACKAGES: &[&str] = &[
    "iproute2", "libbpf1", "libbsd0", "libcap2", "libelf1", "libmd0", "libmnl0", "zlib1g",
];
const SUITE: &str = "bookworm";
/// Changes when what is unpacked changes.
const RECIPE: &str = "1";

/// A parallel job: name, ranks of which half are on each machine, its engine, and the environment.
type Job = (
    &'static str,
    u8,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

const JOBS: &[Job] = &[
    ("machines-mpi-ucx-rc-2", 2, mpi::UCX, mpi::RC),
    ("machines-mpi-ucx-rc-8", 8, mpi::UCX, mpi::RC),
    ("machines-mpi-ucx-ud-8", 8, mpi::UCX, mpi::UD),
    ("machines-mpi-ofi-2", 2, mpi::OFI, &[]),
    ("machines-mpi-ofi-8", 8, mpi::OFI, &[]),
];

/// All names, and which run for every change.
pub(super) fn names() -> impl Iterator<Item = (&'static str, bool)> {
    // Not every machine that checks a change lets its users make namespaces.
    let jobs = JOBS.iter().map(|(name, ..)| *name);
    std::iter::once(PAIRS).chain(jobs).map(|name| (name, false))
}

/// Returns `true` if a job of several ranks is named, for which the engines are needed.
pub(super) fn is_parallel(is_named: impl Fn(&str) -> bool) -> bool {
    JOBS.iter().any(|(name, ..)| is_named(name))
}

/// Runs what is named. A machine on which there can be no namespaces fails.
pub(super) fn run(
    place: &Place<'_>,
    directory: &Path,
    engines: Option<&Engines>,
    is_named: impl Fn(&str) -> bool,
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    if !names().any(|(name, _)| is_named(name)) {
        return Ok(outcome);
    }
    let machines = Machines::make(place, &directory.join("iproute2"))?;
    if is_named(PAIRS) {
        let begun = Instant::now();
        let ended = pairs(&machines);
        outcome.check(ended.is_ok(), || {
            let logs = place.logs.display();
            format!("{PAIRS}: {} (logs: {logs}/{PAIRS}*)", ended.unwrap_err())
        });
        println!("{PAIRS}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    let Some(engines) = engines.filter(|_| is_parallel(&is_named)) else {
        return Ok(outcome);
    };
    let program = mpi::compile(place.logs, engines)?;
    let agent = machines.agent()?;
    for job in JOBS.iter().filter(|job| is_named(job.0)) {
        let begun = Instant::now();
        let lost_before = machines.lost()?;
        let ended = machines.parallel(engines, job, &agent, &program);
        let measured = ended.as_ref().ok().and_then(mpi::measured);
        let ranks = format!("{} ranks", job.1);
        let mut says = mpi::SAYS.to_vec();
        says.push(&ranks);
        outcome.add(judge(place, job.0, ended, &says));
        let lost = machines.lost()? - lost_before;
        let seconds = begun.elapsed().as_secs_f64();
        let measured = measured.unwrap_or_default();
        println!(
            "{}: {seconds:.1} s; {measured}; {lost} frames lost between the machines",
            job.0
        );
    }
    Ok(outcome)
}

/// Programs that find each other by the connection manager, and over TCP, at once. What they send goes from one machine to the
/// other.
fn pairs(machines: &Machines<'_>) -> Result<(), String> {
    let packages = &machines.place.packages;
    let start = |machine: Machine, unit, program: &str, arguments: &[&str]| {
        let log = format!("{PAIRS}.{program}.{}", machine.name());
        let mut command = machines.joined(machine, &["--unit", unit, "--log", "info"]);
        command.arg(packages.programs.join(program)).args(arguments);
        command.env("LD_LIBRARY_PATH", &packages.others);
        machines.start(command, &log)
    };
    let (first, second) = ("rping", "ibv_rc_pingpong");
    let ping = ["-a", "10.0.0.1", "-C", "20", "-V"];
    let bytes = ["-g", "0", "-c", "-m", "4096", "-s", "65536", "-n", "20"];
    let serve = [&["-s"], &ping[..]].concat();
    let servers = [
        start(Machine::Near, "1", first, &serve)?,
        start(Machine::Near, "2", second, &bytes)?,
    ];
    let until = Instant::now() + START;
    while !(servers[0].printed().contains("rdma_listen") && machines.near_listens()?) {
        if Instant::now() > until {
            return Err("the servers do not listen".into());
        }
        std::thread::sleep(INTERVAL);
    }
    let clients = [
        start(Machine::Far, "3", first, &[&["-c"], &ping[..]].concat())?,
        start(Machine::Far, "4", second, &[&bytes[..], &[NEAR]].concat())?,
    ];
    let until = Instant::now() + START;
    for (name, mut running) in [first, second]
        .into_iter()
        .cycle()
        .zip(clients.into_iter().chain(servers))
    {
        let status = running.end(until).map_err(|why| format!("{name}: {why}"))?;
        if !status.success() {
            return Err(format!("{name}: {status}"));
        }
        if let Some(said) = super::run::never(&running.printed()).first() {
            return Err(format!("{name} printed {said}"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Machine {
    Near,
    Far,
}

impl Machine {
    fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }

    /// Addresses of this one and of the other one.
    fn addresses(self) -> (&'static str, &'static str) {
        match self {
            Self::Near => (NEAR, FAR),
            Self::Far => (FAR, NEAR),
        }
    }
}

/// The two, for as long as it lives: a process in each keeps its namespaces.
struct Machines<'a> {
    place: &'a Place<'a>,
    near: Process,
    far: Process,
}

impl<'a> Machines<'a> {
    fn make(place: &'a Place<'a>, tools: &Path) -> Result<Self, String> {
        let root = iproute2(tools)?;
        let user = ["--user", "--map-root-user", "--net"];
        let near = holder(Command::new("unshare").args(user))?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &near.0.id().to_string()]);
        command.args(["--user", "--preserve-credentials", "unshare", "--net"]);
        let far = holder(&mut command)?;
        let machines = Self { place, near, far };
        let ip = |machine: Machine, words: &str| {
            let mut command = machines.inside(machine);
            command
                .arg(root.join("bin/ip"))
                .args(words.split(' '))
                .env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
            quiet_output(&mut command)
        };
        let far_id = machines.far.0.id();
        ip(
            Machine::Near,
            &format!("link add near type veth peer name far netns {far_id}"),
        )?;
        for machine in [Machine::Near, Machine::Far] {
            let (address, name) = (machine.addresses().0, machine.name());
            ip(machine, &format!("address add {address}/24 dev {name}"))?;
            ip(machine, "link set lo up")?;
            ip(machine, &format!("link set {name} up"))?;
        }
        Ok(machines)
    }

    /// The command that runs a program on a machine; the program is to be appended.
    fn inside(&self, machine: Machine) -> Command {
        let mut command = Command::new("nsenter");
        command.args(self.entry(machine));
        command
    }

    /// Arguments of `nsenter`.
    fn entry(&self, machine: Machine) -> Vec<String> {
        let process = match machine {
            Machine::Near => &self.near,
            Machine::Far => &self.far,
        };
        let target = process.0.id().to_string();
        let words = [
            "--preserve-credentials",
            "--user",
            "--net",
            "--target",
            &target,
        ];
        words.map(String::from).into()
    }

    /// The arguments that join a program to the switch of its machine.
    fn joining(&self, machine: Machine) -> Vec<String> {
        let (local, remote) = machine.addresses();
        let switch = self.place.sockets.join(machine.name());
        let uplink = format!("udp:{local}:{PORT},{remote}:{PORT}");
        vec![
            self.place.bundle.folder.join(RUNNER).display().to_string(),
            "--switch".into(),
            switch.display().to_string(),
            "--uplink".into(),
            uplink,
        ]
    }

    fn joined(&self, machine: Machine, options: &[&str]) -> Command {
        let mut command = self.inside(machine);
        command.args(self.joining(machine)).args(options);
        command
    }

    fn start(&self, mut command: Command, log: &str) -> Result<Running, String> {
        let log = self.place.logs.join(log);
        let fail = |error: std::io::Error| format!("{}: {error}", log.display());
        let file = File::create(&log).map_err(fail)?;
        command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(fail)?)
            .stderr(file);
        Ok(Running::new(spawn(&mut command)?, log))
    }

    /// Returns `true` if a program on the near machine waits for TCP connections.
    fn near_listens(&self) -> Result<bool, String> {
        let mut listens = false;
        for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let sockets = quiet_output(self.inside(Machine::Near).args(["cat", file]))?;
            // 0A is LISTEN, 18515 the port of ibverbs-utils' programs.
            listens |= sockets
                .lines()
                .any(|line| line.contains(&format!(":{:04X} ", 18515)) && line.contains(" 0A "));
        }
        Ok(listens)
    }

    /// Datagrams that arrived at a machine and were dropped there, as the switch did not take them in time.
    fn lost(&self) -> Result<u64, String> {
        let mut lost = 0;
        for machine in [Machine::Near, Machine::Far] {
            let counters = quiet_output(self.inside(machine).args(["cat", "/proc/net/snmp"]))?;
            let mut lines = counters.lines().filter(|line| line.starts_with("Udp:"));
            let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
                return Err("/proc/net/snmp has no counters of UDP".into());
            };
            let mut counters = names.split(' ').zip(values.split(' '));
            let errors = counters.find(|(name, _)| *name == "RcvbufErrors");
            let errors = errors.and_then(|(_, value)| value.parse::<u64>().ok());
            lost += errors.ok_or("/proc/net/snmp has no RcvbufErrors")?;
        }
        Ok(lost)
    }

    /// A program in place of `ssh` for Open MPI: it gets a host's name and a command.
    fn agent(&self) -> Result<PathBuf, String> {
        let path = self.place.sockets.join("agent");
        let far = self.far.0.id();
        // `mpirun` is in the user namespace already.
        let script = format!("#!/bin/sh\nshift\nexec nsenter --net --target {far} sh -c \"$*\"\n");
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::write(&path, script).map_err(fail)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(fail)?;
        Ok(path)
    }

    /// Runs a job whose ranks are on both machines.
    fn parallel(
        &self,
        engines: &Engines,
        (name, ranks, engine, environment): &Job,
        agent: &Path,
        program: &Path,
    ) -> Result<Ended, String> {
        let options = ["--log", "warn", "--address", "10.0.0.{unit}"];
        let mut command = self.joined(Machine::Near, &options);
        let half = ranks / 2;
        // Its daemon on the other machine, which starts the ranks there.
        let mut daemon = self.joining(Machine::Far);
        daemon.extend(options.map(String::from));
        let daemon: Vec<String> = daemon.iter().map(|word| format!("'{word}'")).collect();
        let launcher = engines.program("mpirun.openmpi");
        command
            .arg(&launcher)
            .args(["--oversubscribe", "-n", &ranks.to_string()])
            .args(["--host", &format!("{NEAR}:{half},{FAR}:{half}")])
            .args(["--mca", "plm_rsh_agent"])
            .arg(agent)
            .args(["--mca", "orte_launch_agent"])
            .arg(format!("{} orted", daemon.join(" ")))
            .args(*engine)
            .arg(program)
            .arg(mpi::LARGE);
        engines.environment(&mut command);
        command.envs(environment.iter().copied());
        // It names the daemon without its folder.
        let mut path = launcher
            .parent()
            .unwrap_or(&launcher)
            .as_os_str()
            .to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path);
        end(self.start(command, name)?, END)
    }
}

/// Starts a process in new namespaces that stays in them until its standard input ends, which is with this program at the latest.
fn holder(command: &mut Command) -> Result<Process, String> {
    command
        .args(["sh", "-c", "echo there; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = spawn(command)?;
    let mut said = String::new();
    if let Some(output) = process.0.stdout.take() {
        let read = BufReader::new(output).read_line(&mut said);
        read.map_err(|error| format!("{command:?}: {error}"))?;
    }
    match said.trim_end() {
        "there" => Ok(process),
        _ => Err(format!("no namespace: {command:?} has failed")),
    }
}

/// Fetches and unpacks `ip`, if it is not there yet; the folder that it is in.
fn iproute2(directory: &Path) -> Result<PathBuf, String> {
    let root = directory.join("root");
    let stamp = directory.join("stamp");
    let recipe = format!("{RECIPE} {SUITE} {PACKAGES:?}\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == recipe) {
        return Ok(root);
    }
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(fail)?;
    }
    fs::create_dir_all(directory).map_err(fail)?;
    let named: Vec<String> = PACKAGES
        .iter()
        .map(|name| format!("{name}/{SUITE}"))
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    for deb in Apt::new(directory)?.fetch(&directory.join("debs"), &named)? {
        unpack(&deb, &root)?;
    }
    // Before the system's directories were merged, some libraries were here.
    let (old, new) = (
        root.join("lib/x86_64-linux-gnu"),
        root.join("usr/lib/x86_64-linux-gnu"),
    );
    for entry in fs::read_dir(&old).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        fs::rename(entry.path(), new.join(entry.file_name())).map_err(fail)?;
    }
    fs::write(&stamp, recipe).map_err(fail)?;
    Ok(root)
}
