//! The common part of the examples: their command lines, both ends of a program in one process, and messages of fixed length. A
//! program of your own needs `bareverbs-node` only.
#![expect(missing_docs, reason = "the examples are the documentation of this")]

pub mod addresses;
pub mod channel;
pub mod datagrams;
pub mod dead_address;
pub mod devices;
pub mod echo_clients;
pub mod ends;
pub mod exchange;
pub mod function;
pub mod log_tap;
pub mod plugged;
pub mod program;
pub mod progress;
pub mod times;

/// The reason why a program, or a part of it, failed.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;
