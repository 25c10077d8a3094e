//! What came of a pair of drawn cards.

use crate::refusal::Refusal;

/// What came of a pair of drawn cards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Cards that came up.
    pub up: usize,
    /// Self tests that passed.
    pub self_tests: usize,
    /// Connections that were made.
    pub connections: usize,
    /// Those of them that are between InfiniBand ports.
    pub infiniband_connections: usize,
    /// Steps that were refused for a reason that the draw names, by reason ([`Refusal::ALL`]).
    pub refused: [usize; Refusal::ALL.len()],
}

impl Report {
    /// All steps that were refused.
    #[must_use]
    pub fn refusals(&self) -> usize {
        self.refused.iter().sum()
    }
}

impl core::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.up += other.up;
        self.self_tests += other.self_tests;
        self.connections += other.connections;
        self.infiniband_connections += other.infiniband_connections;
        for (sum, more) in self.refused.iter_mut().zip(other.refused) {
            *sum += more;
        }
    }
}
