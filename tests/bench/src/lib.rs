//! Shared parts of the benchmarks: instruction counting and reports.
//!
//! Numbers are instructions per operation, counted by callgrind, so that they are the same on every machine and in every
//! run. A benchmark is one file in `benches/`: it runs itself once more under callgrind ([`callgrind::count`]), reads the
//! inclusive cost of its measured functions, and prints them beside their limits. `cargo rig peers` counts what other projects'
//! drivers take for the same.

pub mod callgrind;
pub mod lanes;
pub mod linked;
pub mod pair;
pub mod report;
