//! Memory for the pages of a card's firmware, as much as the card wants.

use std::error::Error;

use bareverbs::verbs::{OpenError, PageChunk};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The most that a card is given: 32 GiB.
const MOST: usize = 16 * 1024;
/// Firmware asks for its pages step by step, and may want more again at a later one.
const ATTEMPTS: usize = 8;

/// Attempts to bring a device up with room in so many chunks of at most 2 MiB, and again with as many as it lacked
/// ([`OpenError::page_chunks`]). Everything that an attempt did was undone when it failed.
pub(crate) fn with_room<T>(
    mut chunks: usize,
    mut attempt: impl FnMut(Vec<PageChunk>) -> Result<T>,
) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt(room(chunks)) {
            Err(error) => match error.downcast_ref().and_then(OpenError::page_chunks) {
                Some(more) if (chunks + 1..=MOST).contains(&more) => {
                    log::info!("{error}: trying again with {more} page chunks");
                    chunks = more;
                }
                _ => return Err(error),
            },
            done => return done,
        }
    }
    attempt(room(chunks))
}

fn room(chunks: usize) -> Vec<PageChunk> {
    std::iter::repeat_with(PageChunk::new)
        .take(chunks)
        .collect()
}
