//! The segments before the data of a work request, by the type of the QP: they name the receiver.

pub(super) mod dc;
pub(super) mod raw_packet;
mod routed;
pub(super) mod segments;
pub(super) mod service;
pub(super) mod xrc;
