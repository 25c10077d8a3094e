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
    /// Whether the gate holds, or what is accepted in its place.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.ours
            <= self
                .peer
                .accepted
                .map_or(self.peer.must, |(limit, _)| limit)
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
        let verdict = match row.peer.accepted {
            _ if !row.passes() => "**misses the gate**".to_owned(),
            Some((limit, why)) if row.ours > row.peer.must => {
                format!("misses the gate; up to {limit} accepted: {why}")
            }
            _ if row.ours > row.peer.goal => String::new(),
            _ => "goal reached".to_owned(),
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
