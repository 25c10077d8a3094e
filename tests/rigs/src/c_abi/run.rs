//! Runs programs, alone or in pairs, each process with a model of its own and a wire between the two.

use super::packages::Packages;
use super::scenario::{IN_C, OURS, Ready, SERVED, Scenario, Side};
use crate::outcome::Outcome;
use crate::stock_driver::{Process, spawn};
use bareverbs_bundle::{Bundle, RUNNER};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The time that a server may take until it listens, on a busy machine.
const START: Duration = Duration::from_secs(30);
/// The time that a program may run: some take half a minute where nothing else runs.
const END: Duration = Duration::from_secs(240);
/// The interval at which a process is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// The most lines that are shown of each program of a scenario that failed.
const LAST_LINES: usize = 12;

/// Where the programs are.
pub(super) struct Place<'a> {
    pub(super) bundle: &'a Bundle,
    pub(super) packages: &'a Packages,
    /// Our programs, if a scenario has some.
    pub(super) examples: Option<&'a Path>,
    /// The rig's programs in C.
    pub(super) in_c: &'a Path,
    /// For what the programs print.
    pub(super) logs: &'a Path,
    /// For sockets, whose paths must be short.
    pub(super) sockets: &'a Path,
}

/// The end of a program, `None` if it was stopped, and its output.
pub(super) type End = (Side, Option<ExitStatus>, String);

/// A program that runs.
pub(super) struct Running {
    pub(super) process: Process,
    log: PathBuf,
}

impl Running {
    pub(super) fn new(process: Process, log: PathBuf) -> Self {
        Self { process, log }
    }

    pub(super) fn printed(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.process.0.try_wait().map_err(|error| error.to_string())
    }

    /// Waits until it has ended by itself.
    pub(super) fn end(&mut self, deadline: Instant) -> Result<ExitStatus, String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "still running after {} s",
                    begun.elapsed().as_secs()
                ));
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Waits until a file that the program writes has so many bytes.
    pub(super) fn wait_until_it_wrote(&mut self, path: &Path, bytes: u64) -> Result<(), String> {
        self.wait_until("its bytes", START, |_| {
            fs::metadata(path).is_ok_and(|file| file.len() >= bytes)
        })
    }

    /// Waits until something is so; an error names it, if the program ends before or the time is over.
    pub(super) fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        is: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        while !is(self) {
            if let Some(status) = self.ended()? {
                return Err(format!("{status} before {what}"));
            }
            if Instant::now() >= deadline {
                return Err(format!("no {what} in {} s", limit.as_secs()));
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }
}

impl Place<'_> {
    /// Runs a scenario, and checks exit statuses and what was printed.
    pub(super) fn run(&self, scenario: &Scenario) -> Outcome {
        let name = scenario.name;
        let begun = Instant::now();
        let mut outcome = Outcome::default();
        let mut ends = self.ends(scenario);
        for _ in 1..ATTEMPTS {
            if !ends.as_ref().is_ok_and(|ends| came_too_early(ends)) {
                break;
            }
            println!("{name}: the client came before its server listened; again");
            ends = self.ends(scenario);
        }
        let faults = match ends {
            Err(why) => vec![why],
            Ok(ends) => faults(scenario, &ends),
        };
        for fault in &faults {
            println!("    {fault}");
        }
        outcome.check(faults.is_empty(), || {
            format!(
                "{name}: {} (logs: {}/{name}.*)",
                faults.join("; "),
                self.logs.display()
            )
        });
        if !faults.is_empty() {
            self.show_ends(name);
        }
        println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
        outcome
    }

    /// Shows the last lines that the programs of a scenario printed.
    pub(super) fn show_ends(&self, name: &str) {
        for side in [Side::Server, Side::Client] {
            let printed = fs::read(self.logs.join(format!("{name}.{side}"))).unwrap_or_default();
            let printed = String::from_utf8_lossy(&printed);
            let lines: Vec<&str> = printed.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
                println!("    {side}: {line}");
            }
        }
    }

    /// Runs the programs to their ends: exit status and output of each.
    pub(super) fn ends(&self, scenario: &Scenario) -> Result<Vec<End>, String> {
        let port = free_port()?;
        let mut server = self.start(scenario, Side::Server, scenario.server, port)?;
        if scenario.client.is_empty() && scenario.stays {
            let printed = self.wait_until_said(&mut server, scenario)?;
            return Ok(vec![(Side::Server, None, printed)]);
        }
        let mut client = match scenario.client {
            [] => None,
            client => {
                self.wait_until_ready(&mut server, scenario.ready, port)?;
                let command = [client, scenario.more].concat();
                Some(self.start(scenario, Side::Client, &command, port)?)
            }
        };
        let deadline = Instant::now() + END;
        let mut ends = Vec::new();
        // The client first: where it has failed, the server may wait for it for ever.
        if let Some(client) = &mut client {
            let status = client
                .end(deadline)
                .map_err(|why| format!("client: {why}"))?;
            ends.push((Side::Client, Some(status), client.printed()));
        }
        let expected =
            |(_, status, _): &End| status.and_then(|status| status.code()) == Some(scenario.status);
        let failed = !ends.iter().all(expected);
        if scenario.stays && !failed {
            // What it was sent last may still be on its way.
            self.wait_until_said(&mut server, scenario)?;
        }
        // One that stays is stopped when `server` goes.
        let deadline = if failed || scenario.stays {
            Instant::now()
        } else {
            deadline
        };
        match server.end(deadline) {
            Ok(status) if scenario.stays => return Err(format!("server ended: {status}")),
            Ok(status) => ends.push((Side::Server, Some(status), server.printed())),
            Err(_) if scenario.stays => ends.push((Side::Server, None, server.printed())),
            Err(_) if failed => {}
            Err(why) => return Err(format!("server: {why}")),
        }
        Ok(ends)
    }

    /// Waits until a program that does not end has printed what it should; what it printed.
    fn wait_until_said(&self, server: &mut Running, scenario: &Scenario) -> Result<String, String> {
        let deadline = Instant::now() + END;
        loop {
            let printed = server.printed();
            let said = |(side, text, count): &(Side, &str, usize)| {
                *side == Side::Client || lines_with(&printed, text) >= *count
            };
            if scenario.says.iter().all(said) || Instant::now() >= deadline {
                return Ok(printed);
            }
            if let Some(status) = server.ended()? {
                return Err(format!("server ended: {status}"));
            }
            thread::sleep(INTERVAL);
        }
    }

    pub(super) fn start(
        &self,
        scenario: &Scenario,
        side: Side,
        command: &[&str],
        port: u16,
    ) -> Result<Running, String> {
        let command: Vec<String> = command
            .iter()
            .map(|word| self.fill_in(word, port))
            .collect();
        let mut command: Vec<&str> = command.iter().map(String::as_str).collect();
        if command[0].starts_with("ib_") && !command.contains(&"-u") {
            command.splice(1..1, PATIENT);
        }
        self.start_as(scenario.name, side, scenario.options, &command)
    }

    /// Starts a program of the packages, or one with an absolute path, with options of `bareverbs-run`; `name` is that of
    /// the log.
    pub(super) fn start_as(
        &self,
        name: &str,
        side: Side,
        options: &[&str],
        command: &[&str],
    ) -> Result<Running, String> {
        let log = self.logs.join(format!("{name}.{side}"));
        let fail = |error: std::io::Error| format!("{}: {error}", log.display());
        let file = File::create(&log).map_err(fail)?;
        let [program, arguments @ ..] = command else {
            return Err("no program".into());
        };
        let (unit, other) = match side {
            Side::Server => ("1", "2"),
            Side::Client => ("2", "1"),
        };
        let wire = self.sockets.join("wire");
        if let Some(ours) = program.strip_prefix(OURS) {
            let examples = self.examples.ok_or("our programs were not built")?;
            let wire = wire.display();
            let mut command = Command::new(examples.join(ours));
            command
                .args(arguments)
                .args(["--link", &format!("unix:{wire}.{unit},{wire}.{other}")])
                .env("RUST_LOG", "info")
                .stdin(Stdio::null())
                .stdout(file.try_clone().map_err(fail)?)
                .stderr(file);
            let process = spawn(&mut command)?;
            return Ok(Running { process, log });
        }
        // For programs that are started by another one.
        let mut path = self.packages.programs.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new(self.bundle.folder.join(RUNNER));
        command
            .arg("--wire")
            .arg(wire)
            .args(["--unit", unit, "--log", "info"])
            .args(
                options
                    .iter()
                    .map(|option| option.replace("{log}", &log.display().to_string())),
            )
            .arg(match program.strip_prefix(IN_C) {
                Some(program) => self.in_c.join(program),
                None => self.packages.programs.join(program),
            })
            .args(arguments)
            .env("LD_LIBRARY_PATH", &self.packages.others)
            .env("LC_ALL", "C")
            .env("PATH", &path)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(fail)?)
            .stderr(file);
        if options == SERVED {
            command.envs(self.debian()?);
        }
        let process = spawn(&mut command)?;
        Ok(Running { process, log })
    }

    /// Environment in which programs find the libraries of Debian's oldest release instead of ours.
    pub(super) fn debian(&self) -> Result<[(&'static str, OsString); 2], String> {
        let debian = self.packages.libraries.first().ok_or("no libraries")?;
        let folders = [&debian.folder, &debian.others, &self.packages.others];
        let folders = std::env::join_paths(folders).map_err(|error| error.to_string())?;
        // In place of the file of an installed system that names it.
        let driver = debian.folder.join("libibverbs/libmlx5").into_os_string();
        Ok([("LD_LIBRARY_PATH", folders), ("IBV_DRIVERS", driver)])
    }

    fn fill_in(&self, argument: &str, port: u16) -> String {
        argument
            .replace("{port}", &port.to_string())
            .replace("{programs}", &self.packages.programs.to_string_lossy())
            .replace("{scratch}", &self.sockets.to_string_lossy())
    }

    pub(super) fn wait_until_ready(
        &self,
        server: &mut Running,
        ready: Ready,
        port: u16,
    ) -> Result<(), String> {
        let deadline = Instant::now() + START;
        loop {
            let is_ready = match ready {
                Ready::RListens => {
                    let printed = server.printed();
                    printed.contains("rlisten: ") || printed.contains("rbind: ")
                }
                Ready::Listens => {
                    let printed = server.printed();
                    printed.contains("rdma_listen") || printed.contains("listening on")
                }
                Ready::Joined => server.printed().contains("rdma_join_multicast"),
                Ready::Steered => server.printed().contains("ibv_create_flow: "),
                Ready::Tcp => listens(port)?,
            };
            if is_ready {
                return Ok(());
            }
            if let Some(status) = server.ended()? {
                return Err(format!("server ended before it listened: {status}"));
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "server does not listen after {} s",
                    START.as_secs()
                ));
            }
            thread::sleep(INTERVAL);
        }
    }
}

/// The time-out of perftest's connections is 67 ms otherwise, which ends them after half a second in which a busy machine runs
/// one of two processes only. This one is 537 ms.
const PATIENT: [&str; 2] = ["-u", "17"];

/// The line that perftest prints with `-R` where its second connection comes before its server listens for it: the first one was
/// the hand-shake, and nothing makes the client wait. The reason in the REJ is that there is no listener (IBTA volume 1, chapter
/// 12.6.7.2).
const TOO_EARLY: &str = "Event: RDMA_CM_EVENT_REJECTED; error: 8.";
/// The most runs of such programs.
const ATTEMPTS: usize = 3;

/// Returns `true` if the client was refused for this reason.
fn came_too_early(ends: &[End]) -> bool {
    ends.iter()
        .any(|(side, _, printed)| *side == Side::Client && printed.contains(TOO_EARLY))
}

/// The faults in the ends of the programs.
fn faults(scenario: &Scenario, ends: &[End]) -> Vec<String> {
    let mut faults = Vec::new();
    for (side, status, printed) in ends {
        let expected = match side {
            Side::Server => 0,
            Side::Client => scenario.status,
        };
        if let Some(status) = status
            && status.code() != Some(expected)
        {
            faults.push(format!("{side}: {status}"));
        }
        let lines = never(printed).into_iter();
        faults.extend(lines.map(|line| format!("{side} printed {line}")));
        for (of, text, count) in scenario.says {
            let found = lines_with(printed, text);
            if of == side && found != *count {
                faults.push(format!(
                    "{side} printed {text:?} {found} times, not {count}"
                ));
            }
        }
    }
    for (side, text, _) in scenario.says {
        if !ends.iter().any(|(of, ..)| of == side) {
            faults.push(format!("{side} did not end, and did not print {text:?}"));
        }
    }
    faults
}

/// The number of printed lines that have a text.
fn lines_with(printed: &str, text: &str) -> usize {
    printed.lines().filter(|line| line.contains(text)).count()
}

/// The texts that no program may print: the programs' words for data that is not what was sent, and the library's for its own
/// faults.
const NEVER: &[&str] = &[
    "invalid data",
    "data mismatch",
    "verify failed",
    "data verification failed",
    "panicked at",
    "ERROR bareverbs",
];

/// The first line of each kind that no program may print.
pub(super) fn never(printed: &str) -> Vec<String> {
    let line = |text: &&str| printed.lines().find(|line| line.contains(*text));
    let lines = NEVER.iter().filter_map(line);
    lines.map(|line| format!("{line:?}")).collect()
}

/// A TCP port that no process has: the programs that do not use the connection manager exchange their addresses over
/// it.
pub(super) fn free_port() -> Result<u16, String> {
    let listener =
        TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("a TCP port: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok(address.port())
}

/// Returns `true` if a process listens at a TCP port of this machine.
fn listens(port: u16) -> Result<bool, String> {
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // There is no tcp6 without IPv6.
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.lines().any(|line| is_listener(line, port)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A line of `/proc/net/tcp`: number, local address, remote address, state, and more. State 0A listens.
fn is_listener(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let local = words.next().unwrap_or_default();
    let state = words.nth(1).unwrap_or_default();
    state == "0A" && local.ends_with(&format!(":{port:04X}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    const SCENARIO: Scenario = Scenario {
        name: "test",
        server: &["server"],
        client: &["client"],
        more: &[],
        ready: Ready::Tcp,
        options: &[],
        says: &[(Side::Client, "ping", 2)],
        stays: false,
        status: 0,
        whole: false,
    };

    fn ends(client: i32, printed: &str) -> Vec<End> {
        vec![
            (
                Side::Client,
                Some(ExitStatus::from_raw(client << 8)),
                printed.to_owned(),
            ),
            (Side::Server, Some(ExitStatus::from_raw(0)), String::new()),
        ]
    }

    #[test]
    fn a_client_that_came_too_early_is_found() {
        let rejected = |error| format!("Event: RDMA_CM_EVENT_REJECTED; error: {error}.\n");
        assert!(came_too_early(&ends(1, &rejected(8))));
        assert!(!came_too_early(&ends(1, &rejected(28))));
    }

    #[test]
    fn faults_are_found() {
        assert_eq!(
            faults(&SCENARIO, &ends(0, "ping\nping\n")),
            Vec::<String>::new()
        );
        for (status, printed) in [
            (1, "ping\nping\n"),
            (0, "ping\n"),
            (0, "ping\nping\nping\n"),
            (0, "ping\nping\ninvalid data in page 0\n"),
        ] {
            assert_eq!(
                faults(&SCENARIO, &ends(status, printed)).len(),
                1,
                "{status} {printed}"
            );
        }
        assert_eq!(faults(&SCENARIO, &ends(0, "ping\nping\n")[1..]).len(), 1);
    }

    #[test]
    fn a_client_that_has_to_fail_and_a_server_that_is_stopped() {
        let scenario = Scenario {
            stays: true,
            status: 255,
            ..SCENARIO
        };
        let of = |client: i32, server: &str| {
            let mut ends = ends(client, "ping\nping\n");
            ends[1] = (Side::Server, None, server.to_owned());
            faults(&scenario, &ends)
        };
        assert_eq!(of(255, ""), Vec::<String>::new());
        assert_eq!(of(0, "").len(), 1);
        assert_eq!(of(255, "ERROR bareverbs_c: no").len(), 1);
    }

    #[test]
    fn a_listener_is_found() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert!(is_listener(line, 8080));
        assert!(!is_listener(line, 8081));
        assert!(!is_listener(&line.replace(" 0A ", " 01 "), 8080));
        assert!(!is_listener("", 8080));
    }
}
