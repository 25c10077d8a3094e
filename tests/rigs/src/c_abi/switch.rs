//! Four processes on one switch, of which one is killed.

use super::larger::{Ended, Program, end, start};
use super::run::{Place, Running, free_port};
use super::scenario::Ready;
use crate::outcome::Outcome;
use std::time::{Duration, Instant};

pub(super) const NAME: &str = "switch-one-of-four-killed";
/// The time that the others may take: the time-out of `ib_write_bw` is 537 ms with `-u 17`, and it tries eight times.
const END: Duration = Duration::from_secs(240);
/// A switch ends with its last process.
const GONE: Duration = Duration::from_secs(60);
/// So many bytes are more than the requests by which the two find each other.
const UNDER_WAY: u64 = 1 << 20;

/// Kills a process with SIGKILL while its peer writes into its memory: the peer has to end with the error, another pair
/// has to find the right data, and nothing is left in the end.
pub(super) fn run(place: &Place<'_>) -> Outcome {
    let begun = Instant::now();
    let done = killed(place);
    let mut outcome = Outcome::default();
    outcome.check(done.is_ok(), || {
        let logs = place.logs.display();
        format!("{NAME}: {} (logs: {logs}/{NAME}*)", done.unwrap_err())
    });
    println!("{NAME}: {:.1} s", begun.elapsed().as_secs_f64());
    outcome
}

fn process(
    place: &Place<'_>,
    number: u8,
    options: &[&str],
    program: &str,
    arguments: &[&str],
) -> Result<Running, String> {
    let options = [&["--log", "info"], options].concat();
    let program = Program {
        log: format!("{NAME}.{number}"),
        options: &options,
        environment: &[],
        path: place.packages.programs.join(program),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
    };
    start(place, None, &program)
}

fn killed(place: &Place<'_>) -> Result<(), String> {
    let port_number = free_port()?;
    let port = port_number.to_string();
    let write = ["-F", "-x", "0", "-u", "17", "-n", "1000000", "-p", &port];
    // The switch gives unit numbers but for one, which has to be free.
    let mut victim = process(place, 1, &[], "ib_write_bw", &write)?;
    place.wait_until_ready(&mut victim, Ready::Tcp, port_number)?;
    let capture = place.logs.join(format!("{NAME}.pcap"));
    // That of an earlier run would say that writes are under way.
    if capture.exists() {
        std::fs::remove_file(&capture)
            .map_err(|error| format!("{}: {error}", capture.display()))?;
    }
    let of_capture = capture.display().to_string();
    let writes = [&write[..], &["localhost"]].concat();
    let mut writer = process(place, 2, &["--pcap", &of_capture], "ib_write_bw", &writes)?;
    writer.wait_until_it_wrote(&capture, UNDER_WAY)?;
    let ping = ["-a", "10.0.0.7", "-C", "300", "-V"];
    let serve = [&["-s"], &ping[..]].concat();
    let mut server = process(place, 3, &["--unit", "7"], "rping", &serve)?;
    place.wait_until_ready(&mut server, Ready::Listens, 0)?;
    let client = process(place, 4, &[], "rping", &[&["-c"], &ping[..]].concat())?;
    let dead = victim.process.0.kill();
    dead.map_err(|error| error.to_string())?;
    drop(victim);
    for (side, running) in [("client", client), ("server", server)] {
        let Ended { status, .. } = end(running, END)?;
        if !status.success() {
            return Err(format!("{side} of the other pair: {status}"));
        }
    }
    let Ended { status, printed } = end(writer, END)?;
    // IBV_WC_RETRY_EXC_ERR
    if status.success() || !printed.contains("Failed status 12") {
        return Err(format!("the peer of the one that was killed: {status}"));
    }
    let deadline = Instant::now() + GONE;
    while place.sockets.join("switch").exists() {
        if Instant::now() > deadline {
            return Err("the switch is still there".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}
