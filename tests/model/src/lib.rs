//! A ConnectX device model.
pub mod host;
pub mod link;
pub mod pcap;
pub mod roce;
