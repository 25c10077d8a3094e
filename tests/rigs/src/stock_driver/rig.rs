//! The parts of a rig of machines.

use super::scenario::Scenario;
use std::path::PathBuf;

/// A rig of machines: this one, or another that boots the same ones.
pub(crate) struct Rig {
    /// As `cargo rig` has it.
    pub(crate) name: &'static str,
    pub(crate) scenarios: &'static [Scenario],
    /// The programs that the guests have in `/ours`.
    pub(crate) programs: Vec<Program>,
    /// Where this repository's programs are, for scenarios in which this computer is one of the machines.
    pub(crate) ours: PathBuf,
}

/// A program of this repository.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Where it was built.
    pub(crate) path: PathBuf,
}
