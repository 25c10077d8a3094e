//! rsockets between two models in this process, called as C calls them.

// UNSAFETY: calls functions of C.
#![expect(unsafe_code)]

mod calls;
mod datagram;
mod errors;
mod hostile;
mod stream;

/// When waiting calls ask for signs of life, in milliseconds.
pub(crate) const PROBE: &str = "1000";
