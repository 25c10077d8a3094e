//! Ethernet queues through the command interface and doorbells: what is sent, what is received, and what is refused.

#[path = "../common/mod.rs"]
mod common;

mod cable;
mod lab;
mod objects;
mod port;
mod random;
mod receiving;
mod sending;
mod strict;
mod striding;
