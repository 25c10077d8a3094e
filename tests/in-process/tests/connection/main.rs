//! The whole stack, driver and CM on two models, with things going wrong: on the wire, in the firmware, with the device.
//! Every run ends in verified data or in a clean typed failure, and leaves nothing behind.

mod cable;
mod chaos;
mod commands;
mod crowd;
mod errors;
mod forever;
mod handshake;
mod lost;
mod support;
