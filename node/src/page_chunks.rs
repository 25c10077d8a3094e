//! Memory for the pages of a device's firmware, as much as the device asks for.

use bareverbs_core::{OpenError, PageChunk};

/// The most that a device is given: 32 GiB.
const MOST: usize = 16 * 1024;
/// Firmware asks for its pages step by step, and may require more at a later one.
const ATTEMPTS: usize = 8;

/// The number of chunks of at most 2 MiB for the next attempt to bring a device up: as many as the last one lacked
/// ([`OpenError::page_chunks`]).
#[derive(Debug)]
pub struct PageChunks {
    count: usize,
    attempts: usize,
}

impl PageChunks {
    /// Begins with `count` chunks in the first attempt.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        Self { count, attempts: 1 }
    }

    /// Memory for an attempt.
    #[must_use]
    pub fn allocate(&self) -> Vec<PageChunk> {
        std::iter::repeat_with(PageChunk::new)
            .take(self.count)
            .collect()
    }

    /// Takes more of them for another attempt, if one makes sense after this error. Everything that a failed attempt did was
    /// undone.
    pub fn grow(&mut self, error: &OpenError) -> bool {
        match error.page_chunks() {
            Some(more) if self.attempts < ATTEMPTS && (self.count + 1..=MOST).contains(&more) => {
                log::info!("{error}: trying again with {more} page chunks");
                *self = Self {
                    count: more,
                    attempts: self.attempts + 1,
                };
                true
            }
            _ => false,
        }
    }
}
