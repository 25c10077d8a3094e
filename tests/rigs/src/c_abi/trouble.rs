//! Programs on wires that lose, delay and reorder, with cables pulled out and peers killed; and a program that opens and
//! closes everything a thousand times.

use super::run::{Place, free_port};
use super::scenario::{Ready, Scenario, Side};
use crate::outcome::Outcome;
use crate::process::{C_HEADERS, quiet_output};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Damage in both directions, as each side has its own options.
const IMPAIRED: &[&str] = &[
    "--loss",
    "1%",
    "--reorder",
    "1%",
    "--delay",
    "50us",
    "--fault-seed",
    "7",
    "--pcap",
    "{log}.pcap",
];

/// Pairs on wires that damage what passes: the data has to be right all the same, and the capture of the client has to
/// show packets that were sent again.
pub(super) const IMPAIRED_PAIRS: &[Scenario] = &[
    Scenario {
        name: "impaired-rping",
        server: &[
            "rping", "-s", "-a", "10.0.0.1", "-C", "200", "-S", "4000", "-V",
        ],
        client: &[
            "rping", "-c", "-a", "10.0.0.1", "-C", "200", "-S", "4000", "-V",
        ],
        ready: Ready::Listens,
        options: IMPAIRED,
        says: &[],
        ..Scenario::NONE
    },
    Scenario {
        name: "impaired-send-bw",
        server: &["ib_send_bw", "-n", "100", "-p", "{port}"],
        client: &["ib_send_bw", "-n", "100", "-p", "{port}", "localhost"],
        ready: Ready::Tcp,
        options: IMPAIRED,
        says: &[(Side::Client, "65536      100 ", 1)],
        ..Scenario::NONE
    },
    Scenario {
        name: "cable-out-and-in",
        server: &["ib_write_bw", "-n", "20000", "-p", "{port}"],
        client: &["ib_write_bw", "-n", "20000", "-p", "{port}", "localhost"],
        ready: Ready::Tcp,
        options: &["--cable-out-after", "2500ms", "--cable-out-for", "200ms"],
        says: &[(Side::Client, "65536      20000 ", 1)],
        ..Scenario::NONE
    },
];

/// Returns `true` if the client's capture has to show packets that were sent again.
fn is_lossy(scenario: &Scenario) -> bool {
    scenario.options.contains(&"--loss")
}

/// The trouble that befalls the server.
#[derive(Clone, Copy)]
enum Blow {
    /// Its process is killed.
    Kill,
    /// Its cable is pulled out.
    CableOut,
}

/// The client of a pair that loses its peer, which has to end with the error of its work request.
struct Loss {
    name: &'static str,
    blow: Blow,
}

const LOSSES: &[Loss] = &[
    Loss {
        name: "peer-killed",
        blow: Blow::Kill,
    },
    Loss {
        name: "peer-without-cable",
        blow: Blow::CableOut,
    },
];

/// So many bytes are more than the requests by which the two find each other.
const UNDER_WAY: u64 = 1 << 20;
/// The time-out is 537 ms, and `ib_write_bw` tries eight times, each of which may take four times as long.
const NOTICED_AFTER: Duration = Duration::from_secs(60);

/// All names, for the command line.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let pairs = IMPAIRED_PAIRS.iter().map(|scenario| scenario.name);
    pairs
        .chain(LOSSES.iter().map(|loss| loss.name))
        .chain([OPENS])
}

/// Runs what is named.
pub(super) fn run(place: &Place<'_>, is_named: impl Fn(&str) -> bool) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for scenario in IMPAIRED_PAIRS
        .iter()
        .filter(|scenario| is_named(scenario.name))
    {
        outcome.add(place.run(scenario));
        if is_lossy(scenario) {
            let capture = place.logs.join(format!("{}.client.pcap", scenario.name));
            let again = sent_again(&capture)?;
            println!("    {again} packets were sent again");
            outcome.check(again > 0, || {
                format!("{}: no packet was sent again", scenario.name)
            });
        }
    }
    for loss in LOSSES.iter().filter(|loss| is_named(loss.name)) {
        let why = lose(place, loss);
        let failed = why.is_err();
        outcome.check(!failed, || {
            format!(
                "{}: {} (logs: {}/{}.*)",
                loss.name,
                why.unwrap_err(),
                place.logs.display(),
                loss.name
            )
        });
        if failed {
            place.show_ends(loss.name);
        }
    }
    if is_named(OPENS) {
        outcome.add(opens(place)?);
    }
    Ok(outcome)
}

/// The number of request packets that tshark finds more than once: the same QP, operation and packet sequence number.
fn sent_again(capture: &Path) -> Result<usize, String> {
    let fields = [
        "ip.src",
        "infiniband.bth.destqp",
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
    ];
    let printed = quiet_output(
        Command::new("tshark")
            .arg("-r")
            .arg(capture)
            // What a responder sends has numbers of its peer's, and may have one twice.
            .args(["-Y", "infiniband.bth.opcode <= 12", "-T", "fields"])
            .args(fields.iter().flat_map(|field| ["-e", field])),
    )?;
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for packet in printed.lines() {
        *seen.entry(packet).or_default() += 1;
    }
    Ok(seen.values().map(|count| count - 1).sum())
}

/// Lets the client lose its peer while it writes, and looks at how it ends.
fn lose(place: &Place<'_>, loss: &Loss) -> Result<(), String> {
    let begun = Instant::now();
    let scenario = |options| Scenario {
        name: loss.name,
        server: &["ib_write_bw", "-n", "1000000", "-p", "{port}"],
        client: &["ib_write_bw", "-n", "1000000", "-p", "{port}", "localhost"],
        ready: Ready::Tcp,
        options,
        says: &[],
        ..Scenario::NONE
    };
    let of_server = scenario(match loss.blow {
        Blow::Kill => &[],
        Blow::CableOut => &["--cable-out-after", "3500ms"],
    });
    // The program's own output comes late, as it does not go to a terminal: the capture shows when it writes.
    let of_client = scenario(match loss.blow {
        Blow::Kill => &["--pcap", "{log}.pcap"],
        Blow::CableOut => &[],
    });
    let capture = place.logs.join(format!("{}.client.pcap", loss.name));
    if capture.exists() {
        // That of an earlier run is long enough at once.
        fs::remove_file(&capture).map_err(|error| format!("{}: {error}", capture.display()))?;
    }
    let port = free_port()?;
    let mut server = place.start(&of_server, Side::Server, of_server.server, port)?;
    place.wait_until_ready(&mut server, Ready::Tcp, port)?;
    let mut client = place.start(&of_client, Side::Client, of_client.client, port)?;
    if let Blow::Kill = loss.blow {
        client.wait_until_it_wrote(&capture, UNDER_WAY)?;
        let killed = server.process.0.kill();
        killed.map_err(|error| error.to_string())?;
    }
    let status = client.end(Instant::now() + NOTICED_AFTER)?;
    println!("{}: {:.1} s", loss.name, begun.elapsed().as_secs_f64());
    if status.success() || status.code().is_none() {
        return Err(format!("client: {status}"));
    }
    // IBV_WC_RETRY_EXC_ERR
    if !client.printed().contains("Failed status 12") {
        return Err("the client did not say that its retries were exceeded".into());
    }
    Ok(())
}

const OPENS: &str = "opens";

/// Opens and closes everything again and again, and counts the descriptors of its process.
const OPENS_SOURCE: &str = include_str!("opens.c");
/// Rounds, and rounds under valgrind.
const ROUNDS: &str = "1000";
const ROUNDS_WATCHED: &str = "20";
/// The time that either may take.
const OPENS_END: Duration = Duration::from_secs(120);

/// Runs the program, also under valgrind.
fn opens(place: &Place<'_>) -> Result<Outcome, String> {
    let program = compile(place, OPENS, OPENS_SOURCE)?;
    let program = program.to_str().ok_or("a path that is not UTF-8")?;
    // As users have it: what is lost, and what may be, is an error.
    let watched = [
        "/usr/bin/env",
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        program,
        ROUNDS_WATCHED,
    ];
    let mut outcome = Outcome::default();
    let runs: [(&str, &[&str]); 2] = [("opens", &[program, ROUNDS]), ("opens-valgrind", &watched)];
    for (name, command) in runs {
        let begun = Instant::now();
        let mut running = place.start_as(name, Side::Server, &[], command)?;
        let status = running.end(begun + OPENS_END)?;
        outcome.check(
            status.success() && running.printed().contains("rounds done"),
            || {
                format!(
                    "{name}: {status} (log: {}/{name}.server)",
                    place.logs.display()
                )
            },
        );
        println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    Ok(outcome)
}

/// Compiles a program of the rig's own with Debian's headers, and links it with the bundle.
pub(super) fn compile(place: &Place<'_>, name: &str, source: &str) -> Result<PathBuf, String> {
    let program = place.logs.join(format!("{name}-program"));
    let file = program.with_extension("c");
    fs::write(&file, source).map_err(|error| format!("{}: {error}", file.display()))?;
    quiet_output(
        Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg(C_HEADERS)
            .arg("-I")
            .arg(&place.packages.include)
            .arg(&file)
            .arg(format!("-L{}", place.bundle.folder.display()))
            .args(["-l:libibverbs.so.1", "-l:librdmacm.so.1"]),
    )?;
    Ok(program)
}
