//! The scenarios of unikernels with each other and with our `rping` on this computer.

use super::super::stock_driver::Server;
use super::image::Machine;
use super::program::{Ended, Program};
use super::setup::Setup;
use super::sizes;
use crate::outcome::Outcome;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// QEMU's exit status when the unikernel reports success, and failure.
pub(super) const GOOD: i32 = 33;
const FAILED: i32 = 35;

/// Enough on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(120);
/// Of the stack, in bytes.
const STACK_BUDGET: u64 = 60 << 10;

pub(super) struct Scenario {
    pub(super) name: &'static str,
    about: &'static str,
    work: fn(&mut Scene<'_>) -> Result<(), String>,
}

/// Those that build other images in the place of the usual ones: nothing else boots meanwhile.
const BUILDERS: &[Scenario] = &[
    Scenario {
        name: "sizes",
        about: "what each part of the library costs, and that nothing can allocate",
        work: sizes::all,
    },
    Scenario {
        name: "tasks",
        about: "a server with async/await: three unikernels are its clients, two of them at once; its size",
        work: |scene| sizes::tasks(scene, several),
    },
];

/// The others. The one that takes longest, and waits most of the time, comes first.
const BOOTS: &[Scenario] = &[
    Scenario {
        name: "peer",
        about: "the peer vanishes: a client reports it and ends, a server goes on with the next client",
        work: peer,
    },
    Scenario {
        name: "conformance",
        about: "the platform is held against its requirements, polled and by interrupts",
        work: conformance,
    },
    Scenario {
        name: "server",
        about: "our rping on Linux is the unikernel's client, over IPv4 and IPv6, polled and by interrupts",
        work: server,
    },
    Scenario {
        name: "client",
        about: "our rping on Linux is the unikernel's server",
        work: client,
    },
    Scenario {
        name: "two",
        about: "two unikernels on one cable",
        work: two,
    },
    Scenario {
        name: "blueflame",
        about: "WQEs in doorbell registers, from x86-64 and aarch64, on a bus that combines writes and on one that does not",
        work: blueflame,
    },
    Scenario {
        name: "loss",
        about: "frames between two unikernels are lost, doubled, overtaken, late and damaged",
        work: loss,
    },
    Scenario {
        name: "reset",
        about: "a server's function is reset by another driver, or removed from the bus: it restarts, or reports it",
        work: reset,
    },
    Scenario {
        name: "aarch64",
        about: "on aarch64: server and client of our rping on Linux, of x86-64, and of each other with frames lost; a reset",
        work: aarch64,
    },
];

/// The number of scenarios that run at a time.
const AT_A_TIME: usize = 2;

/// The names of all.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    BUILDERS.iter().chain(BOOTS).map(|known| known.name)
}

/// Runs those that are wanted, and prints each when it has ended.
pub(super) fn run(setup: &Setup, wanted: impl Fn(&str) -> bool) -> Result<Outcome, String> {
    let of = |list: &'static [Scenario]| -> Vec<&Scenario> {
        list.iter().filter(|known| wanted(known.name)).collect()
    };
    let sum = Mutex::new(Outcome::default());
    for (list, at_a_time) in [(of(BUILDERS), 1), (of(BOOTS), AT_A_TIME)] {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(scenario) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (outcome, report) = scenario.run(setup);
                let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                print!("{report}");
                sum.add(outcome);
            }
        };
        thread::scope(|scope| {
            for _ in 0..at_a_time {
                scope.spawn(work);
            }
        });
    }
    sum.into_inner().map_err(|_| "a scenario panicked".into())
}

impl Scenario {
    /// The result of the scenario, and its report.
    fn run(&self, setup: &Setup) -> (Outcome, String) {
        let started = Instant::now();
        let mut outcome = Outcome::default();
        let mut scene = Scene {
            setup,
            machines: [Machine::X86; 2],
            name: self.name,
            rounds: 0,
            stack: STACK_BUDGET,
            report: String::new(),
            outcome: &mut outcome,
        };
        let done = (self.work)(&mut scene);
        let report = format!(
            "{}, {} s: {}\n{}",
            self.name,
            started.elapsed().as_secs(),
            self.about,
            scene.report
        );
        if let Err(why) = done {
            outcome.check(false, || format!("{}: {why}", self.name));
        }
        (outcome, report)
    }
}

/// A scenario that runs.
pub(super) struct Scene<'a> {
    setup: &'a Setup,
    /// The machine with the first of the model's cards, and the one with the others.
    machines: [Machine; 2],
    name: &'static str,
    rounds: usize,
    /// The budget of the stack, in bytes.
    pub(super) stack: u64,
    report: String,
    pub(super) outcome: &'a mut Outcome,
}

/// A model with some functions, and where its files are.
pub(super) struct Model {
    server: Server,
    logs: PathBuf,
    sockets: PathBuf,
}

impl Model {
    /// The wire's two ends, as the model and a program at the other end have it.
    fn wires(sockets: &std::path::Path) -> [String; 2] {
        let (near, far) = (sockets.join("near"), sockets.join("far"));
        let wire = |local: &PathBuf, remote: &PathBuf| {
            format!("unix:{},{}", local.display(), remote.display())
        };
        [wire(&near, &far), wire(&far, &near)]
    }

    /// Ends it. A warning in its log is a failure, unless it is allowed.
    pub(super) fn end(self, scene: &mut Scene<'_>, allowed: &[&str]) -> Result<(), String> {
        let log = self.server.stop()?;
        fs::remove_dir_all(&self.sockets).map_err(|error| error.to_string())?;
        let is_allowed = |line: &str| allowed.iter().any(|text| line.contains(text));
        let is_wrong = |line: &&String| Server::is_warning(line) && !is_allowed(line);
        let first: Vec<&String> = log.iter().filter(is_wrong).take(10).collect();
        let name = scene.name;
        scene.outcome.check(first.is_empty(), || {
            format!("{name}: the model warns: {first:#?}")
        });
        Ok(())
    }
}

impl Scene<'_> {
    /// Adds a line to its report.
    pub(super) fn say(&mut self, line: &str) {
        self.report.push_str(line);
        self.report.push('\n');
    }

    /// A model of two cards with a cable between them, or of one whose port is on a wire.
    pub(super) fn model(&mut self, functions: usize, arguments: &[&str]) -> Result<Model, String> {
        self.rounds += 1;
        let round = format!("{}-{}", self.name, self.rounds);
        let logs = self.setup.logs.join(&round);
        // The path of a socket is limited to about a hundred bytes.
        let sockets = format!("unikernel-{}-{round}", std::process::id());
        let sockets = std::env::temp_dir().join(sockets);
        for directory in [&logs, &sockets] {
            crate::folder::empty(directory)?;
        }
        let [near, _] = Model::wires(&sockets);
        let link = ["--link", &near, "--first-unit", "9"];
        let all: Vec<&str> = match functions {
            1 => link.iter().chain(arguments).copied().collect(),
            _ => arguments.to_vec(),
        };
        let server = Server::start(&logs, &sockets, functions, &all)?;
        Ok(Model {
            server,
            logs,
            sockets,
        })
    }

    pub(super) fn boot(
        &self,
        model: &Model,
        function: usize,
        words: &str,
    ) -> Result<Program, String> {
        let role = words.split(['=', ' ']).next().unwrap_or_default();
        let name = format!("{function}-{role}");
        let socket = &model.server.sockets[function];
        let machine = self.machines[function.min(1)];
        self.setup.boot(machine, &model.logs, &name, socket, words)
    }

    /// Our `rping` on this computer, at the other end of the wire.
    fn rping(&self, model: &Model, arguments: &str) -> Result<Program, String> {
        let [_, far] = Model::wires(&model.sockets);
        let mut command = Command::new(self.setup.ours.join("rping"));
        command.args(["--link", &far, "--interrupts", "-V"]);
        command.args(arguments.split(' '));
        Program::start(&mut command, &model.logs, "rping")
    }

    /// Checks that a unikernel ended as it should.
    pub(super) fn check(
        &mut self,
        who: &str,
        program: Program,
        status: i32,
    ) -> Result<Ended, String> {
        let ended = program.end(LIMIT)?;
        let name = self.name;
        self.outcome.check(ended.status == Some(status), || {
            let last = ended.printed.last().map_or("nothing", String::as_str);
            let found = ended.status;
            format!("{name}: {who}: exit status {found:?}, not {status}; its last line: {last}")
        });
        let micros = ended.after("boot to first RDMA operation: ");
        let (used, budget) = (ended.stack(), self.stack);
        self.outcome.check(used <= budget, || {
            format!("{name}: {who}: the stack's budget is {budget} bytes, and {used} were used")
        });
        let micros = micros.unwrap_or("never");
        self.say(&format!(
            "  {who}: boot to first RDMA operation {micros}, stack {used} of {budget} bytes"
        ));
        Ok(ended)
    }

    /// Checks that it printed a text.
    pub(super) fn expect(&mut self, who: &str, ended: &Ended, text: &str) {
        let name = self.name;
        self.outcome.check(ended.after(text).is_some(), || {
            format!("{name}: {who} did not print {text:?}")
        });
    }
}

/// Words for the command line, and for our `rping`: the network, bytes of a message, and whether to sleep.
type Way = (&'static str, &'static str, &'static str);

const WAYS: [Way; 3] = [
    ("10.0.0.", "4096", ""),
    ("fd00::", "64", " interrupts"),
    ("10.0.0.", "65535", " interrupts"),
];

fn conformance(scene: &mut Scene<'_>) -> Result<(), String> {
    for machine in Machine::ALL {
        for (words, found) in [
            ("", "bytes moved by the device; polled"),
            ("interrupts", "; sleeps for "),
        ] {
            let model = scene.model(2, &[])?;
            let socket = &model.server.sockets[0];
            let setup = scene.setup;
            let program =
                setup.boot_program(machine, "conformance", &model.logs, "0", socket, words)?;
            let who = format!("{} {words}", machine.name());
            let ended = scene.check(&who, program, GOOD)?;
            scene.expect("the test", &ended, found);
            if let Some(report) = ended.after("conformance: BAR of ") {
                scene.say(&format!("    BAR of {report}"));
            }
            model.end(scene, &[])?;
        }
    }
    Ok(())
}

fn server(scene: &mut Scene<'_>) -> Result<(), String> {
    WAYS.into_iter().try_for_each(|way| serve(scene, way))
}

fn client(scene: &mut Scene<'_>) -> Result<(), String> {
    WAYS.into_iter().try_for_each(|way| ping(scene, way))
}

fn serve(scene: &mut Scene<'_>, (net, size, how): Way) -> Result<(), String> {
    let model = scene.model(1, &[])?;
    let words = format!("server address={net}2 size={size}{how}");
    let mut unikernel = scene.boot(&model, 0, &words)?;
    unikernel.until("listening on", LIMIT)?;
    let arguments = format!("-c -a {net}2 -I {net}3 -C 50 -S {size}");
    let linux = scene.rping(&model, &arguments)?.end(LIMIT)?;
    let name = scene.name;
    scene.outcome.check(linux.status == Some(0), || {
        format!(
            "{name}: rping's exit status as client is {:?}",
            linux.status
        )
    });
    let ended = scene.check(&words, unikernel, GOOD)?;
    scene.expect("the server", &ended, "rping server: 50 pings");
    model.end(scene, &[])
}

fn ping(scene: &mut Scene<'_>, (net, size, how): Way) -> Result<(), String> {
    let model = scene.model(1, &[])?;
    let mut linux = scene.rping(&model, &format!("-s -a {net}2 -S {size}"))?;
    linux.until("listening on", LIMIT)?;
    let words = format!("client={net}2 address={net}3 count=50 size={size}{how}");
    let unikernel = scene.boot(&model, 0, &words)?;
    let ended = scene.check(&words, unikernel, GOOD)?;
    scene.expect("the client", &ended, "rping client: 50 pings");
    let linux = linux.end(LIMIT)?;
    let name = scene.name;
    scene.outcome.check(linux.status == Some(0), || {
        format!(
            "{name}: rping's exit status as server is {:?}",
            linux.status
        )
    });
    model.end(scene, &[])
}

/// A server with tasks, whose clients come while it serves another one. The most of the stack that was used.
fn several(scene: &mut Scene<'_>) -> Result<u64, String> {
    let mut model = scene.model(3, &[])?;
    let words = "server address=10.0.0.1 interrupts clients=3";
    let mut server = scene.boot(&model, 0, words)?;
    server.until("listening on", LIMIT)?;
    for (link, event) in [("down", "PortError"), ("up", "PortActive")] {
        model.server.send(&format!("link 0 {link}"))?;
        server.until(&format!("asynchronous event: {event}"), LIMIT)?;
    }
    // Enough pings that the others come and go meanwhile.
    let words = "client=10.0.0.1 address=10.0.0.2 interrupts count=3000";
    let mut first = scene.boot(&model, 1, words)?;
    first.until("boot to first RDMA operation", LIMIT)?;
    let mut most = 0;
    for who in ["the second client", "the third client"] {
        let words = "client=10.0.0.1 address=10.0.0.3 interrupts count=20";
        let client = scene.boot(&model, 2, words)?;
        let ended = scene.check(who, client, GOOD)?;
        scene.expect(who, &ended, "rping client: 20 pings");
        most = most.max(ended.stack());
    }
    let ended = scene.check("the first client", first, GOOD)?;
    scene.expect("the first client", &ended, "rping client: 3000 pings");
    most = most.max(ended.stack());
    let ended = scene.check("the server", server, GOOD)?;
    let text = "rping server: 3040 pings, 2 clients at once";
    scene.expect("the server", &ended, text);
    model.end(scene, &[])?;
    Ok(most.max(ended.stack()))
}

/// A server and its client, until both have ended successfully.
fn pair(scene: &mut Scene<'_>, model: &Model, words: &str) -> Result<(), String> {
    let mut server = scene.boot(model, 0, "server address=10.0.0.1 interrupts")?;
    server.until("listening on", LIMIT)?;
    let words = format!("client=10.0.0.1 address=10.0.0.2 interrupts {words}");
    let client = scene.boot(model, 1, &words)?;
    let ended = scene.check("client", client, GOOD)?;
    scene.expect("the client", &ended, " bytes verified");
    let ended = scene.check("server", server, GOOD)?;
    scene.expect("the server", &ended, "rping server: ");
    Ok(())
}

fn two(scene: &mut Scene<'_>) -> Result<(), String> {
    let model = scene.model(2, &[])?;
    pair(scene, &model, "count=100")?;
    model.end(scene, &[])
}

/// The card's own counters show it: it takes a WQE from the register only if that came in whole bursts.
fn blueflame(scene: &mut Scene<'_>) -> Result<(), String> {
    let combining = (&["--combining", "2000"][..], true);
    for (machines, (bus, combined)) in [
        ([Machine::X86, Machine::Arm], combining),
        ([Machine::Arm, Machine::X86], (&[], false)),
    ] {
        scene.machines = machines;
        let arguments = [&["--blue-flame"], bus].concat();
        let mut model = scene.model(2, &arguments)?;
        let mut server = scene.boot(&model, 0, "server address=10.0.0.1")?;
        server.until("listening on", LIMIT)?;
        let words = "client=10.0.0.1 address=10.0.0.2 count=50 size=64";
        let client = scene.boot(&model, 1, words)?;
        let ended = scene.check("client", client, GOOD)?;
        scene.expect("the client", &ended, "rping client: 50 pings");
        scene.expect("the client", &ended, "is write-combining");
        scene.expect("the client", &ended, "is uncached");
        scene.check("server", server, GOOD)?;
        for function in ["0", "1"] {
            let mut count = |name| -> Result<u64, String> {
                let count = model.server.ask(function, name)?;
                count.parse().map_err(|_| format!("{name}: {count:?}"))
            };
            let (taken, rung) = (count("blue-flame")?, count("doorbells")?);
            scene.say(&format!(
                "    function {function}: {taken} of {rung} doorbells brought the WQE"
            ));
            // Each end sends, reads or writes twice in a ping, or more often. Where the host left the machine alone between two
            // stores the card fetches.
            let expected = if combined { 50..=rung } else { 0..=0 };
            scene.outcome.check(expected.contains(&taken) && rung >= 100, || {
                format!("blueflame: function {function}: {taken} WQEs of {rung} doorbells, not {expected:?}")
            });
        }
        model.end(scene, &[])?;
    }
    Ok(())
}

fn loss(scene: &mut Scene<'_>) -> Result<(), String> {
    let faults = "loss=0.01,duplicate=0.01,reorder=0.01,delay=0.01,corrupt=0.01,max-delay=5ms";
    let mut model = scene.model(2, &["--fault", faults, "--seed", "7"])?;
    pair(scene, &model, "count=100")?;
    model.server.send("faults")?;
    // The model answers this after it has logged the counters.
    model.server.ask("0", "commands")?;
    let log = fs::read_to_string(model.logs.join("model.log"));
    let log = log.map_err(|error| error.to_string())?;
    let befell = log.lines().find(|line| line.contains(" dropped, "));
    let befell = befell.unwrap_or_default();
    scene.say(&format!("    {befell}"));
    let all = ["dropped", "duplicated", "reordered", "delayed", "corrupted"];
    let missing = |kind: &&str| !befell.contains(*kind) || befell.contains(&format!(" 0 {kind}"));
    let missing = all.iter().find(|kind| missing(kind));
    scene.outcome.check(missing.is_none(), || {
        format!("loss: not a frame was {missing:?}: {befell}")
    });
    model.end(scene, &[])
}

fn peer(scene: &mut Scene<'_>) -> Result<(), String> {
    let model = scene.model(2, &[])?;
    // More pings than fit into the time limit.
    let words = "client=10.0.0.1 address=10.0.0.2 interrupts silence=3 count=10000000";
    let serve = "server address=10.0.0.1 interrupts silence=3 attempts=2";
    let first = "boot to first RDMA operation";

    let mut server = scene.boot(&model, 0, serve)?;
    server.until("listening on", LIMIT)?;
    let mut client = scene.boot(&model, 1, words)?;
    client.until(first, LIMIT)?;
    drop(client);
    server.until("attempt 1 failed: ", LIMIT)?;
    server.until("listening on", LIMIT)?;
    let again = "client=10.0.0.1 address=10.0.0.2 interrupts count=10";
    let client = scene.boot(&model, 1, again)?;
    scene.check("the next client", client, GOOD)?;
    let ended = scene.check("the server", server, GOOD)?;
    scene.expect("the server", &ended, "rping server: 10 pings");

    let mut server = scene.boot(&model, 0, serve)?;
    server.until("listening on", LIMIT)?;
    let mut client = scene.boot(&model, 1, words)?;
    client.until(first, LIMIT)?;
    drop(server);
    let ended = scene.check("a client without its server", client, FAILED)?;
    let why = ended.after("failed: ").unwrap_or_default().to_string();
    scene.say(&format!("    {why}"));
    scene.expect("the client", &ended, "failed: ");
    model.end(scene, &[])
}

fn reset(scene: &mut Scene<'_>) -> Result<(), String> {
    let mut model = scene.model(2, &[])?;
    let serve = "server address=10.0.0.1 interrupts silence=3 attempts=5";
    let words = "client=10.0.0.1 address=10.0.0.2 interrupts silence=3 attempts=5 count=2000";
    let first = "boot to first RDMA operation";
    let mut server = scene.boot(&model, 0, serve)?;
    server.until("listening on", LIMIT)?;
    let mut client = scene.boot(&model, 1, words)?;
    client.until(first, LIMIT)?;
    model.server.send("restart 0")?;
    server.until("attempt 1 failed: ", LIMIT)?;
    let client = scene.check("the client", client, GOOD)?;
    scene.expect("the client", &client, "attempt 1 failed: ");
    scene.expect("the client", &client, "rping client: 2000 pings");
    let server = scene.check("the server", server, GOOD)?;
    let why = server.after("attempt 1 failed: ").unwrap_or_default();
    scene.say(&format!("    {why}"));
    scene.expect("the server", &server, "rping server: 2000 pings");

    let mut server = scene.boot(&model, 0, "server address=10.0.0.1 interrupts")?;
    server.until("listening on", LIMIT)?;
    model.server.send("vanish 0")?;
    let server = scene.check("a server whose card fell off the bus", server, FAILED)?;
    let why = server.after("failed: ").unwrap_or_default();
    scene.say(&format!("    {why}"));
    // Before the driver detects the reset, it rings doorbells as before.
    model.end(scene, &["which is no UAR"])
}

fn aarch64(scene: &mut Scene<'_>) -> Result<(), String> {
    scene.machines = [Machine::Arm; 2];
    let [polled, short, long] = WAYS;
    serve(scene, polled)?;
    serve(scene, short)?;
    ping(scene, polled)?;
    ping(scene, long)?;
    loss(scene)?;
    reset(scene)?;
    for machines in [[Machine::Arm, Machine::X86], [Machine::X86, Machine::Arm]] {
        scene.machines = machines;
        two(scene)?;
    }
    Ok(())
}
