//! Latency and message rate of perftest's programs on our libraries, beside `perf`, which uses the driver as a Rust library:
//! the same operations over the same kind of wire, one after the other.

use super::run::Place;
use super::scenario::{Ready, Scenario, Side, pair, same};
use crate::outcome::Outcome;

pub(super) const NAME: &str = "rates";

/// Runs of each program, of which the middle one counts: what else the machine does moves them.
const RUNS: usize = 5;

/// A measurement by both programs.
struct Row {
    what: &'static str,
    perftest: Scenario,
    perf: Scenario,
    /// The column with the number, in the tables of both.
    column: usize,
    unit: &'static str,
}

/// Our program that it runs.
pub(super) const OURS: [&str; 1] = ["perf"];
const SERVER: &[&str] = &["our:perf", "-s", "-a", "10.0.0.1"];

const ROWS: &[Row] = &[
    Row {
        what: "ib_write_lat, 8 bytes",
        perftest: perftest(
            "rates-write-lat",
            &[
                "ib_write_lat",
                "-F",
                "-p",
                "{port}",
                "-s",
                "8",
                "-n",
                "5000",
            ],
        ),
        perf: pair(
            "rates-write-lat-perf",
            Ready::Listens,
            SERVER,
            &[
                "our:perf", "-c", "-a", "10.0.0.1", "-I", "10.0.0.2", "--verbs", "write",
                "--tests", "lat", "-S", "8", "-n", "5000",
            ],
            &[],
        ),
        column: 4,
        unit: "us, typical",
    },
    Row {
        what: "ib_send_bw, 64 bytes, 128 in flight",
        perftest: perftest(
            "rates-send-bw",
            &[
                "ib_send_bw",
                "-F",
                "-p",
                "{port}",
                "-s",
                "64",
                "-t",
                "128",
                "-n",
                "50000",
            ],
        ),
        perf: pair(
            "rates-send-bw-perf",
            Ready::Listens,
            SERVER,
            &[
                "our:perf", "-c", "-a", "10.0.0.1", "-I", "10.0.0.2", "--verbs", "send", "--tests",
                "bw", "-S", "64", "-t", "128", "-n", "50000",
            ],
            &[],
        ),
        column: 4,
        unit: "million messages a second",
    },
];

const fn perftest(name: &'static str, program: &'static [&'static str]) -> Scenario {
    same(name, Ready::Tcp, program, &["localhost"], &[])
}

/// Prints the rows. What is checked is that each program ends well and has its number.
pub(super) fn run(place: &Place<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    println!("| what | through the C interface | perf | share | |");
    println!("| --- | --: | --: | --: | --- |");
    for row in ROWS {
        match measure(place, row) {
            Ok([c, rust]) => {
                let share = c / rust * 100.0;
                println!(
                    "| {} | {c:.3} | {rust:.3} | {share:.0} % | {} |",
                    row.what, row.unit
                );
                outcome.check(c > 0.0 && rust > 0.0, || {
                    format!("{}: nothing moved", row.what)
                });
            }
            Err(why) => outcome.check(false, || format!("{}: {why}", row.what)),
        }
    }
    outcome
}

/// The middle number of each program, whose runs take turns.
fn measure(place: &Place<'_>, row: &Row) -> Result<[f64; 2], String> {
    let mut numbers = [const { Vec::new() }; 2];
    for _ in 0..RUNS {
        for (scenario, numbers) in [&row.perftest, &row.perf].into_iter().zip(&mut numbers) {
            numbers.push(number(place, scenario, row.column)?);
        }
    }
    Ok(numbers.map(|mut numbers| {
        numbers.sort_by(f64::total_cmp);
        numbers[RUNS / 2]
    }))
}

/// The number in a column of the client's table.
fn number(place: &Place<'_>, scenario: &Scenario, column: usize) -> Result<f64, String> {
    let ends = place.ends(scenario)?;
    let client = ends.iter().find(|(side, ..)| *side == Side::Client);
    let (_, status, printed) = client.ok_or("no client")?;
    if !status.is_some_and(|status| status.success()) {
        return Err(format!(
            "{}: the client ended with {status:?}",
            scenario.name
        ));
    }
    // The table's heading begins with `#bytes`.
    let mut lines = printed
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let values = lines.nth(1).unwrap_or_default();
    let value = values.split_whitespace().nth(column).unwrap_or_default();
    value.parse().map_err(|_| {
        format!(
            "{}: {values:?} has no number in column {column}",
            scenario.name
        )
    })
}
