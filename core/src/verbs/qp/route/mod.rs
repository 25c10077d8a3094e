//! The segments before the data of a work request, by the type of the QP: they name the receiver.

pub(super) mod dc;
mod dc_open_batch;
pub(super) mod raw_packet;
pub(super) mod service;
pub(super) mod xrc;
