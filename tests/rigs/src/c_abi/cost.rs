//! Instructions of the data path through the C interface: of one program on our library, and on rdma-core's provider in plain
//! memory.

use super::run::Place;
use super::trouble;
use crate::outcome::Outcome;
use crate::peers::rdma_core::{self, Beside};
use bareverbs_bench::callgrind::{self, Costs};
use bareverbs_bundle::RUNNER;
use std::ffi::OsString;
use std::process::Command;

/// The name of this check on the command line.
pub(super) const NAME: &str = "cost";

/// The program that posts and polls, on a device.
const SOURCE: &str = concat!(include_str!("cost.c"), include_str!("cost_device.c"));
/// The same in plain memory.
const PLAIN: &str = concat!(
    "#include \"plain.h\"\n",
    include_str!("cost.c"),
    include_str!("cost_plain.c")
);
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
    /// In how many kinds of rounds.
    rounds: f64,
    /// Operations of a call.
    batch: f64,
    /// The most instructions that pass: 5 % above what it takes.
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

impl Row {
    /// In this many kinds of rounds.
    const fn in_rounds(self, rounds: f64) -> Self {
        Self { rounds, ..self }
    }

    /// In lists.
    const fn listed(self) -> Self {
        Self {
            batch: BATCH,
            ..self
        }
    }
}

const ROWS: &[Row] = &[
    row("`ibv_post_send`: SEND, 1 SGE", "counted_send", 133.0),
    row("`ibv_post_send`: SEND inline 32", "counted_inline", 160.0),
    row("`ibv_post_send`: WRITE, 1 SGE", "counted_write", 143.0),
    row("`ibv_post_send`: SEND x16, each", "counted_send_16", 77.0).listed(),
    row("`ibv_wr_*`: SEND, 1 SGE", "counted_wr_send", 166.0),
    row("`ibv_wr_*`: SEND inline 32", "counted_wr_inline", 218.0),
    row("`ibv_wr_*`: WRITE, 1 SGE", "counted_wr_write", 179.0),
    row("`ibv_wr_*`: SEND x16, each", "counted_wr_send_16", 94.0).listed(),
    row("`ibv_post_recv`", "counted_recv", 64.0).in_rounds(4.0),
    row("`ibv_post_recv` x16, each", "counted_recv_16", 35.0)
        .listed()
        .in_rounds(2.0),
    row("`ibv_poll_cq`: 1", "counted_poll", 94.0).in_rounds(3.0),
    row("`ibv_poll_cq`: 16 sends, each", "counted_poll_16", 63.0).listed(),
    row("`ibv_poll_cq`: nothing there", "counted_poll_empty", 43.0).in_rounds(4.0),
    row("`ibv_start_poll`: 1", "counted_start_poll", 112.0).in_rounds(3.0),
    row(
        "`ibv_start_poll`: 16 sends, each",
        "counted_start_poll_16",
        66.0,
    )
    .listed(),
    row(
        "`ibv_start_poll`: nothing there",
        "counted_start_poll_empty",
        57.0,
    )
    .in_rounds(4.0),
];

/// Counts, prints the rows, and compares them with what the interface may cost.
pub(super) fn run(place: &Place<'_>) -> Result<Outcome, String> {
    let program = trouble::compile(place, NAME, SOURCE)?;
    let mut command = Command::new(place.bundle.folder.join(RUNNER));
    command.args(["--log", "error"]).arg("valgrind");
    let words = [OsString::from(program)];
    let costs = callgrind::count_program(command, &words, "counted_", &OF_THE_MODEL)
        .map_err(|error| format!("{NAME}: {error}"))?;
    let directory = place.logs.with_file_name("peers");
    let theirs = rdma_core::beside(&directory, NAME, PLAIN)?;
    let mut outcome = Outcome::default();
    println!(
        "{} beside ours: as programs get it (-O2, locks), and the best of its builds without locks",
        theirs.version
    );
    println!(
        "| operation | ours | gate | rdma-core | rdma-core, best | ours / rdma-core | ours / best |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: |");
    for row in ROWS {
        let ours = row.of(&costs)?;
        let (default, best) = row.of_peer(&theirs)?;
        println!(
            "| {} | {ours:.1} | {:.0} | {default:.0} | {best:.0} | {:.2} | {:.2} |",
            row.what,
            row.most,
            ours / default,
            ours / best
        );
        outcome.check(ours <= row.most, || {
            let (what, most) = (row.what, row.most);
            format!("{what}: {ours:.1} instructions, more than {most}")
        });
    }
    Ok(outcome)
}

impl Row {
    /// Instructions of an operation, less those of a call and of the model.
    fn of(&self, costs: &Costs) -> Result<f64, String> {
        let counted = |function: &str| {
            let cost = costs.of(function);
            cost.ok_or_else(|| format!("{function} was not counted"))
        };
        let of_the_model: u64 = OF_THE_MODEL
            .iter()
            .map(|name| costs.of_calls(name, self.function))
            .sum();
        let nothing = counted("counted_nothing")? as f64 / (DEPTH * ROUNDS);
        let operations = DEPTH * ROUNDS * self.rounds;
        let cost = counted(self.function)? - of_the_model;
        Ok(cost as f64 / operations - nothing / self.batch)
    }

    /// The same of rdma-core's provider: as it is, and in the best of its builds.
    fn of_peer(&self, peer: &Beside) -> Result<(f64, f64), String> {
        let mut best = f64::INFINITY;
        for costs in &peer.all {
            best = best.min(self.of(costs)?);
        }
        Ok((self.of(&peer.default)?, best))
    }
}
