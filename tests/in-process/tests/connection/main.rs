//! The whole stack, driver and CM on two models, with failures: on the wire, in the firmware, with the device. Every
//! run ends in verified data or in a clean typed failure, and leaves nothing behind.

mod cable;
mod chaos;
mod commands;
mod errors;
mod forever;
mod handshake;
mod lost;
mod many_clients;
mod support;
