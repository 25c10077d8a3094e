//! Instructions of the data path through the C interface, beside those of rdma-core's provider.

use super::run::Place;
use super::trouble;
use crate::outcome::Outcome;
use bareverbs_bench::callgrind;
use bareverbs_bench::peer::{self, Peer};
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

/// The goal, as a share of what rdma-core's provider takes.
const GOAL: f64 = 0.6;

/// An operation.
struct Row {
    what: &'static str,
    /// The program's function that does it.
    function: &'static str,
    /// In how many of the four kinds of rounds.
    rounds: f64,
    /// Operations of a call.
    batch: f64,
    peer: Peer,
    /// The most instructions that pass: 5 % above the most that builds of one source have had.
    most: f64,
}

const fn row(what: &'static str, function: &'static str, peer: Peer, most: f64) -> Row {
    Row {
        what,
        function,
        rounds: 1.0,
        batch: 1.0,
        peer,
        most,
    }
}

const ROWS: &[Row] = &[
    row(
        "ibv_post_send: SEND, 1 SGE",
        "counted_send",
        peer::SEND,
        169.0,
    ),
    row(
        "ibv_post_send: SEND inline 32",
        "counted_inline",
        peer::SEND_INLINE_DYN,
        197.0,
    ),
    row(
        "ibv_post_send: WRITE, 1 SGE",
        "counted_write",
        peer::WRITE,
        178.0,
    ),
    Row {
        batch: BATCH,
        ..row(
            "ibv_post_send: SEND x16, each",
            "counted_send_16",
            peer::SEND_16,
            95.0,
        )
    },
    Row {
        rounds: 2.0,
        ..row("ibv_post_recv", "counted_recv", peer::RECV, 103.0)
    },
    Row {
        batch: BATCH,
        ..row(
            "ibv_post_recv x16, each",
            "counted_recv_16",
            peer::RECV_16,
            45.0,
        )
    },
    Row {
        rounds: 3.0,
        ..row("ibv_poll_cq: 1", "counted_poll", peer::POLL, 128.0)
    },
    Row {
        batch: BATCH,
        ..row(
            "ibv_poll_cq: 16 sends, each",
            "counted_poll_16",
            peer::POLL_16_REQ_FULL,
            73.0,
        )
    },
    Row {
        rounds: 4.0,
        ..row(
            "ibv_poll_cq: nothing there",
            "counted_poll_empty",
            peer::POLL_EMPTY,
            68.0,
        )
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
    println!("| operation | instructions | rdma-core, best | share of rdma-core | |");
    println!("| --- | --: | --: | --: | --- |");
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
        let share = ours / row.peer.rdma_core;
        let verdict = if share <= GOAL { "goal reached" } else { "" };
        println!(
            "| {what} | {ours:.1} | {:.0} | {:.0} % | {verdict} |",
            row.peer.rdma_core,
            share * 100.0
        );
        outcome.check(ours <= row.most, || {
            format!("{what}: {ours:.1} instructions, more than {}", row.most)
        });
    }
    Ok(outcome)
}
