//! Requests that no driver in the field makes, so that what a card answers is not known.
//!
//! The model answers in one of the ways that are possible, as the place says, counts the request in
//! [`Stats::unknown_answers`](crate::Stats::unknown_answers) and logs it. A test that excludes them sets
//! [`Config::unknown_answers_are_fatal`](crate::Config::unknown_answers_are_fatal).

use crate::device::Device;
use crate::health::FIRMWARE_ERROR;
use core::fmt;

/// `ext_synd` of the health buffer after a request whose answer is not known.
const EXT_SYNDROME: u16 = 0x1002;

impl Device {
    /// Says that the answer to a request is the model's choice.
    pub(crate) fn answer_unknown(&mut self, request: fmt::Arguments<'_>) {
        self.stats.unknown_answers += 1;
        log::info!("{request}: what a card does is not known");
        if self.config.unknown_answers_are_fatal {
            self.health.fail(FIRMWARE_ERROR, EXT_SYNDROME);
        }
    }
}
