//! Programs that get no device: the library says why on standard error, as they only say that there is none.

use super::run::Place;
use super::scenario::Side;
use crate::outcome::Outcome;
use std::time::{Duration, Instant};

/// A program may take this long.
const END: Duration = Duration::from_secs(20);

struct Case {
    name: &'static str,
    options: &'static [&'static str],
    command: &'static [&'static str],
    /// The program says the first of these, and the library says the second.
    says: [&'static str; 2],
}

const CASES: &[Case] = &[
    Case {
        name: "no-capture",
        options: &["--pcap", "/nonexistent/x"],
        command: &["ibv_devinfo"],
        says: [
            "Failed to open device",
            "/nonexistent/x: No such file or directory",
        ],
    },
    Case {
        name: "no-memory",
        options: &[],
        command: &["c:memory", "device"],
        says: ["without memory: Cannot allocate memory", "no memory for it"],
    },
];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Runs what is named.
pub(super) fn run(place: &Place<'_>, is_named: impl Fn(&str) -> bool) -> Outcome {
    let mut outcome = Outcome::default();
    for case in CASES.iter().filter(|case| is_named(case.name)) {
        let done = fails(place, case);
        outcome.check(done.is_ok(), || {
            let logs = place.logs.display();
            format!("{0}: {1} (logs: {logs}/{0}*)", case.name, done.unwrap_err())
        });
        println!("{}", case.name);
    }
    outcome
}

fn fails(place: &Place<'_>, case: &Case) -> Result<(), String> {
    let mut running = place.start_as(case.name, Side::Server, case.options, case.command)?;
    let status = running.end(Instant::now() + END)?;
    let printed = running.printed();
    if status.code().is_none() {
        return Err(format!("{status}"));
    }
    match case.says.iter().find(|text| !printed.contains(**text)) {
        Some(text) => Err(format!("did not say {text:?}")),
        None => Ok(()),
    }
}
