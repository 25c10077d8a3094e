//! Instructions of the data path through the C interface. `cargo rig peers` shows them beside those of rdma-core's provider.

use super::run::Place;
use super::trouble;
use crate::outcome::Outcome;
use bareverbs_bench::callgrind;
use bareverbs_bundle::RUNNER;
use std::ffi::OsString;
use std::process::Command;

/// The name of this check on the command line.
pub(super) const NAME: &str = "cost";

/// The program that posts and polls.
const SOURCE: &str = include_str!("cost.c");
/// Its constants: requests of a round, rounds, requests of a list.
const DEPTH: f64 = 64.0;
const ROUNDS: f64 = 4.0;
const BATCH: f64 = 16.0;

/// The model's work, which it does in the calling thread: a doorbell that it takes, and a poll that finds nothing.
const OF_THE_MODEL: [&str; 2] = ["Shared::bar_write", "Shared::relax"];

/// An operation.
struct Row {
    what: &'static str,
    /// The program's function that does it.
    function: &'static str,
    /// In how many of the four kinds of rounds.
    rounds: f64,
    /// Operations of a call.
    batch: f64,
    /// The most instructions that pass: 5 % above the most that builds of one source have had.
    most: f64,
}

const fn row(what: &'static str, function: &'static str, most: f64) -> Row {
    Row {
        what,
        function,
        rounds: 1.0,
        batch: 1.0,
        most,
    }
}

const ROWS: &[Row] = &[
    row("ibv_post_send: SEND, 1 SGE", "counted_send", 169.0),
    row("ibv_post_send: SEND inline 32", "counted_inline", 197.0),
    row("ibv_post_send: WRITE, 1 SGE", "counted_write", 178.0),
    Row {
        batch: BATCH,
        ..row("ibv_post_send: SEND x16, each", "counted_send_16", 95.0)
    },
    Row {
        rounds: 2.0,
        ..row("ibv_post_recv", "counted_recv", 103.0)
    },
    Row {
        batch: BATCH,
        ..row("ibv_post_recv x16, each", "counted_recv_16", 45.0)
    },
    Row {
        rounds: 3.0,
        ..row("ibv_poll_cq: 1", "counted_poll", 128.0)
    },
    Row {
        batch: BATCH,
        ..row("ibv_poll_cq: 16 sends, each", "counted_poll_16", 73.0)
    },
    Row {
        rounds: 4.0,
        ..row("ibv_poll_cq: nothing there", "counted_poll_empty", 68.0)
    },
];

/// Counts, prints the rows, and compares them with what the interface may cost.
pub(super) fn run(place: &Place<'_>) -> Result<Outcome, String> {
    let program = trouble::compile(place, NAME, SOURCE)?;
    let mut command = Command::new(place.bundle.folder.join(RUNNER));
    command.args(["--log", "error"]).arg("valgrind");
    let words = [OsString::from(program)];
    let costs = callgrind::count_program(command, &words, "counted_", &OF_THE_MODEL)
        .map_err(|error| format!("{NAME}: {error}"))?;
    let nothing = costs
        .of("counted_nothing")
        .ok_or("counted_nothing was not counted")?;
    let nothing = nothing as f64 / (DEPTH * ROUNDS);

    let mut outcome = Outcome::default();
    println!("| operation | instructions | gate |");
    println!("| --- | --: | --: |");
    for row in ROWS {
        let Row { what, function, .. } = *row;
        let cost = costs
            .of(function)
            .ok_or_else(|| format!("{function} was not counted"))?;
        let of_the_model: u64 = OF_THE_MODEL
            .iter()
            .map(|name| costs.of_calls(name, function))
            .sum();
        let operations = DEPTH * ROUNDS * row.rounds;
        let ours = (cost - of_the_model) as f64 / operations - nothing / row.batch;
        println!("| {what} | {ours:.1} | {:.0} |", row.most);
        outcome.check(ours <= row.most, || {
            format!("{what}: {ours:.1} instructions, more than {}", row.most)
        });
    }
    Ok(outcome)
}
