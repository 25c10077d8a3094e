//! A ConnectX device model.
pub mod host;
