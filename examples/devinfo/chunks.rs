//! Storage for the firmware's pages, as much as a device turns out to need.

use bareverbs::verbs::PageChunk;
use bareverbs_examples::Result;
use bareverbs_node::PageChunks;

/// Chunks of at most 2 MiB for the firmware's pages to begin with: more than most cards require for one function.
const CHUNKS: usize = 64;

/// Attempts to bring a device up, and again with storage for as many of the firmware's pages as it lacked.
pub(crate) fn with_page_chunks<T>(
    mut attempt: impl FnMut(Vec<PageChunk>) -> Result<T>,
) -> Result<T> {
    let mut chunks = PageChunks::new(CHUNKS);
    loop {
        match attempt(chunks.allocate()) {
            Err(error) if error.downcast_ref().is_some_and(|open| chunks.grow(open)) => {}
            done => return done,
        }
    }
}
