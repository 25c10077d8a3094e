//! Subnet administration.

#[path = "../common/mod.rs"]
mod common;

mod client;
mod patience;
mod users;
