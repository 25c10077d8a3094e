//! A card with unusual but legal behaviour.
//!
//! Everything here is legal: the order in which commands complete, the moment of a page request, the time between a
//! completion and its event are the device's to choose. The choices follow from a seed, so that a run can be repeated.

mod choices;
pub(crate) mod state;

use core::time::Duration;

/// The unusual behaviours of the card. By default there are none: what can be done is done at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quirks {
    /// Decides everything that happens at random.
    pub seed: u64,
    /// Each command is executed up to this long after its doorbell, so that commands complete out of order.
    pub command_delay: Duration,
    /// The `initializing` bit is set once more for this long after the driver wrote the command queue's address.
    pub initialize_again: Duration,
    /// The firmware asks for pages, or offers some back, at random moments that are at most this far apart. Zero: only
    /// when it has to.
    pub page_period: Duration,
    /// The most pages of one such request.
    pub page_most: u16,
    /// MANAGE_PAGES that takes pages back returns fewer than it was asked for, at times none.
    pub keeps_pages: bool,
    /// An entry of an event queue is written up to this late after its cause. The order within the queue stays.
    pub event_delay: Duration,
    /// An interrupt is raised up to this late after the entry that it is about.
    pub interrupt_delay: Duration,
    /// So many interrupts out of a thousand are raised twice.
    pub repeated_interrupts: u16,
    /// Work queues rest up to this long between two bursts of work.
    pub rest: Duration,
    /// Queue pairs have their turns in any order and of any length, so that their completions mix.
    pub any_turn: bool,
    /// QUERY_DCT calls each target active: no driver waits for another state in its answers.
    pub targets_look_active: bool,
    /// The signature of an answer's entry is that of the entry without the ownership bit: what Linux's `verify_signature`
    /// expects, which no driver runs. A card's log has it with the bit.
    pub signs_what_lies_there: bool,
}
