//! The table of a benchmark.

use crate::peer::Peer;

/// A measured operation.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// Instructions per operation.
    pub ours: f64,
    /// The peer's numbers and our limits.
    pub peer: Peer,
}

impl Row {
    /// Whether the gate holds.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.ours <= self.peer.must
    }
}

/// Prints the rows; returns how many miss their gate.
pub fn print(rows: &[Row]) -> usize {
    println!(
        "| operation | instructions | rdma-core, best | UCX | share of rdma-core | must | goal | |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: | --- |");
    for row in rows {
        let ucx = row
            .peer
            .ucx
            .map_or_else(|| "-".to_owned(), |ucx| format!("{ucx:.0}"));
        let verdict = match () {
            () if !row.passes() => "**misses the gate**",
            () if row.ours > row.peer.goal => "",
            () => "goal reached",
        };
        println!(
            "| {} | {:.1} | {:.0} | {ucx} | {:.0} % | {:.0} | {:.0} | {verdict} |",
            row.name,
            row.ours,
            row.peer.rdma_core,
            row.ours / row.peer.rdma_core * 100.0,
            row.peer.must,
            row.peer.goal,
        );
    }
    rows.iter().filter(|row| !row.passes()).count()
}

/// Ends a benchmark: says how many gates hold, and fails if any does not.
#[must_use]
pub fn verdict(passed: usize, failed: usize) -> std::process::ExitCode {
    println!("\n{passed} passed, {failed} failed");
    match failed {
        0 => std::process::ExitCode::SUCCESS,
        _ => std::process::ExitCode::FAILURE,
    }
}
