//! Packets of unknown, faulty and malicious hosts.

mod addresses;
mod bench;
mod floods;
mod half_open;
mod mutations;
