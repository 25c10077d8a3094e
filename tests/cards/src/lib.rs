//! Cards and behaviours drawn from seeds, and what must hold on each of them.
//!
//! [`check`] draws two cards from a seed (`draw`), joins them with a cable, and runs each from reset to reset:
//! bring-up, a self test of reliable connections in loopback, a connection between the two through the connection
//! manager with every byte verified, and teardown. Each step succeeds, or is refused for one of the reasons that the
//! draw itself names (`refusal`); the list of reasons comes from the draw and not from the driver. In the end no page,
//! no memory, no mapping and no object of either card is left.
//!
//! The world is a stepped one, so that a seed always gives the same run.

mod card;
mod commands;
mod connection;
mod draw;
mod lifecycle;
mod pattern;
mod refusal;
mod report;
mod selftest;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use draw::{CardDraw, PairDraw};
pub use refusal::{Refusal, StepError};
pub use report::Report;

/// Seeds that found something once, with what it was. They are always run.
///
/// A seed is worth something only with the draw that it was found with: a change of the draw needs others, which the same
/// faults, put back into the driver for a moment, will show.
pub const KEPT: &[u64] = &[
    // Pages that the firmware asked for while it took others back were never given: the command that waited for them
    // was answered after 60 s with a time-out.
    10, 14, 26, 45, 62, 140,
    // The connection manager granted atomics on cards that have none: no connection, at the server or at the client.
    1, 5,
    // The connection manager took an InfiniBand completion's service level for the type of RoCE's network header: requests
    // with a global header and service level 2, 6, 10 or 14 were lost.
    46, 143,
];

/// Runs the two cards of a seed.
///
/// # Errors
/// Says what went wrong, and on which cards.
pub fn check(seed: u64) -> Result<Report, String> {
    let pair = PairDraw::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| lifecycle::run(&pair)));
    let failure = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("without a message"))
        }
    };
    Err(format!("seed {seed}: {failure}\n{pair}"))
}
