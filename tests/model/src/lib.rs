//! A ConnectX device model.
pub mod host;
pub mod roce;
