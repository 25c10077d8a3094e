//! rsockets whose waiting calls never ask for a sign of life: a wake-up that is lost stays lost, and the test says so.

// UNSAFETY: calls functions of C.
#![expect(unsafe_code)]

#[path = "../rsockets/calls.rs"]
mod calls;
#[path = "../rsockets/datagram.rs"]
mod datagram;
#[path = "../rsockets/errors.rs"]
mod errors;
mod ping_pong;
#[path = "../rsockets/stream.rs"]
mod stream;

/// When waiting calls ask for signs of life: never.
pub(crate) const PROBE: &str = "0";
