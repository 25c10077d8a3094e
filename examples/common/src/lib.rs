//! What the examples share: their command lines, both ends of a program in one process, and messages of fixed length. A
//! program of your own needs `bareverbs-node` only.
#![expect(missing_docs, reason = "the examples are the documentation of this")]

pub mod addresses;
pub mod channel;
pub mod datagrams;
pub mod dead_address;
pub mod ends;
pub mod exchange;
pub mod hello;
pub mod plugged;
pub mod program;

/// What a program ends with.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of a program's part.
pub type Result<T, E = Error> = std::result::Result<T, E>;
