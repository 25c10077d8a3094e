//! What the benchmarks share: instruction counting, the peer's numbers, and the table that shows both.
//!
//! Numbers are instructions per operation, counted by callgrind, so that they are the same on every machine and in every
//! run. A benchmark is one file in `benches/`: it runs itself once more under callgrind ([`callgrind::count`]), reads the
//! inclusive cost of its measured functions, and prints them beside the peer's.

pub mod callgrind;
pub mod pair;
pub mod peer;
pub mod report;
