//! The chunks of memory that the firmware's pages lie in, and which of them it has.
//!
//! A [`PageChunk`] of the caller's storage records one run of up to 2 MiB from the platform and the state of each page:
//! free, offered (named in a command that was not answered yet), given. Only what was given can be taken back, so an
//! address that the firmware makes up frees nothing.

// UNSAFETY: a chunk's memory is kept as plain atomics in the caller's storage and put together again to free it.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use crate::memory::dma::DmaMemory;
use crate::platform::{Dma, DmaError, Platform};

/// The firmware's page.
pub(crate) const PAGE: usize = 4096;
/// Pages in the largest chunk.
const CHUNK_PAGES: usize = 512;
/// The smallest chunk worth a place in the storage, unless the platform has nothing larger.
const MIN_CHUNK_PAGES: usize = 32;

/// State of one run of memory lent to the firmware: up to 2 MiB from the platform, and who has which page of it.
///
/// Opaque to the caller, who only provides the memory (see [`Storage`](crate::Storage)).
#[derive(Debug)]
pub struct PageChunk {
    ptr: AtomicPtr<u8>,
    iova: AtomicU64,
    /// 0 while there is no memory.
    pages: AtomicU32,
    /// The function that has all of its pages: a function's pages go at once when the function does.
    owner: AtomicU32,
    /// The firmware has it, or may have it.
    given: [AtomicU64; CHUNK_PAGES / 64],
    /// Named in a MANAGE_PAGES that was not answered yet.
    offered: [AtomicU64; CHUNK_PAGES / 64],
}

impl PageChunk {
    /// A place for a chunk, without one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ptr: AtomicPtr::new(core::ptr::null_mut()),
            iova: AtomicU64::new(0),
            pages: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            given: [const { AtomicU64::new(0) }; CHUNK_PAGES / 64],
            offered: [const { AtomicU64::new(0) }; CHUNK_PAGES / 64],
        }
    }

    /// The number of chunks that are enough for a card whose firmware requires `pages` pages of 4 KiB until it is up
    /// (QUERY_PAGES, boot and init), with a reserve for what it requires later for the objects that are made: a quarter
    /// more, and 32 chunks, since at run time it often asks for few pages at a time. A platform that has no runs of 2
    /// MiB needs more.
    ///
    /// How many pages that is depends on the card and on the number of queue pairs: 12,868 for a ConnectX-4 Lx with 2^17.
    /// [`OpenError::page_chunks`](crate::OpenError::page_chunks) says it after an attempt with too few.
    #[must_use]
    pub const fn count_for(pages: u32) -> usize {
        let pages = pages as usize;
        (pages + pages / 4).div_ceil(CHUNK_PAGES) + 32
    }

    /// Clears what an earlier device left.
    pub(crate) fn reset(&self) {
        self.pages.store(0, Relaxed);
        self.ptr.store(core::ptr::null_mut(), Relaxed);
        for word in self.given.iter().chain(&self.offered) {
            word.store(0, Relaxed);
        }
    }

    fn len(&self) -> u32 {
        self.pages.load(Relaxed)
    }

    fn belongs_to(&self, owner: u32) -> bool {
        self.len() != 0 && self.owner.load(Relaxed) == owner
    }

    fn adopt(&self, owner: u32, memory: DmaMemory) {
        self.owner.store(owner, Relaxed);
        let Dma { ptr, iova, layout } = memory.into_raw();
        self.ptr.store(ptr.as_ptr(), Relaxed);
        self.iova.store(iova, Relaxed);
        self.pages.store((layout.size() / PAGE) as u32, Relaxed);
    }

    /// The chunk's memory, which it then no longer has.
    fn take(&self) -> Option<DmaMemory> {
        let size = self.len() as usize * PAGE;
        let ptr = NonNull::new(self.ptr.load(Relaxed))?;
        let layout = Layout::from_size_align(size, PAGE).ok()?;
        let iova = self.iova.load(Relaxed);
        self.reset();
        // SAFETY: these are the parts that `adopt` stored, and `reset` has made sure that they are taken once. Storage is
        // borrowed exclusively by one device, which changes chunks under its control lock only.
        Some(unsafe { DmaMemory::from_raw(Dma { ptr, iova, layout }) })
    }

    fn is_unused(&self) -> bool {
        self.given
            .iter()
            .chain(&self.offered)
            .all(|word| word.load(Relaxed) == 0)
    }

    /// Bits of word `word` that represent pages.
    fn valid(&self, word: usize) -> u64 {
        let pages = match (self.len() as usize).saturating_sub(word * 64) {
            0 => 0,
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        };
        // Firmware takes no page at address 0 (Linux: `alloc_system_page`).
        pages & !u64::from(word == 0 && self.iova.load(Relaxed) == 0)
    }

    /// Offers up to `wanted` free pages; returns how many.
    fn offer(&self, wanted: u32) -> u32 {
        let mut offered = 0;
        for word in 0..CHUNK_PAGES / 64 {
            let mut free = self.valid(word)
                & !self.given[word].load(Relaxed)
                & !self.offered[word].load(Relaxed);
            let mut chosen = 0;
            while free != 0 && offered < wanted {
                chosen |= free & free.wrapping_neg();
                free &= free - 1;
                offered += 1;
            }
            self.offered[word].fetch_or(chosen, Relaxed);
        }
        offered
    }

    /// Ends an offer: the firmware accepted (or may have), or did not.
    pub(crate) fn settle(&self, accepted: bool) {
        for (given, offered) in self.given.iter().zip(&self.offered) {
            let pages = offered.swap(0, Relaxed);
            if accepted {
                given.fetch_or(pages, Relaxed);
            }
        }
    }

    /// Takes the page at `iova` back. Returns true if the firmware had it for this function.
    pub(crate) fn take_back(&self, owner: u32, iova: u64) -> bool {
        let offset = iova.wrapping_sub(self.iova.load(Relaxed));
        if !self.belongs_to(owner)
            || offset >= u64::from(self.len()) * PAGE as u64
            || !offset.is_multiple_of(PAGE as u64)
        {
            return false;
        }
        let page = offset as usize / PAGE;
        let bit = 1 << (page % 64);
        self.given[page / 64].fetch_and(!bit, Relaxed) & bit != 0
    }
}

impl Default for PageChunk {
    fn default() -> Self {
        Self::new()
    }
}

/// Walks over the offered pages in order.
pub(crate) struct Offered<'a> {
    chunks: &'a [PageChunk],
    chunk: usize,
    word: usize,
    bits: Option<u64>,
}

impl<'a> Offered<'a> {
    pub(crate) fn new(chunks: &'a [PageChunk]) -> Self {
        Self {
            chunks,
            chunk: 0,
            word: 0,
            bits: None,
        }
    }
}

impl Iterator for Offered<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let chunk = self.chunks.get(self.chunk)?;
            let bits = self
                .bits
                .get_or_insert_with(|| chunk.offered[self.word].load(Relaxed));
            if *bits != 0 {
                let page = self.word * 64 + bits.trailing_zeros() as usize;
                *bits &= *bits - 1;
                return Some(chunk.iova.load(Relaxed) + (page * PAGE) as u64);
            }
            self.bits = None;
            self.word += 1;
            if self.word == chunk.offered.len() || chunk.len() == 0 {
                self.word = 0;
                self.chunk += 1;
            }
        }
    }
}

/// Why pages cannot be offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferError {
    /// The platform has no memory.
    Memory(DmaError),
    /// The storage has no chunk left.
    Chunks {
        /// Pages for which there is none.
        missing: u32,
        /// Pages in the longest run that the platform had then, up to what a chunk takes.
        run: usize,
    },
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::Chunks { missing, .. } => {
                write!(f, "the storage has no page chunks for {missing} of them")
            }
        }
    }
}

/// Offers `pages` pages to a function, with new memory from the platform as far as needed; all or none.
pub(crate) fn offer<P: Platform>(
    platform: &P,
    chunks: &[PageChunk],
    owner: u32,
    pages: u32,
) -> Result<(), OfferError> {
    let mut missing = pages;
    for chunk in chunks.iter().filter(|chunk| chunk.belongs_to(owner)) {
        missing -= chunk.offer(missing);
        if missing == 0 {
            return Ok(());
        }
    }
    let mut size = CHUNK_PAGES;
    let mut places = chunks.iter().filter(|chunk| chunk.len() == 0);
    loop {
        let needed = (missing as usize).next_power_of_two().max(MIN_CHUNK_PAGES);
        let memory = loop {
            size = size.min(needed);
            match DmaMemory::alloc_pages(platform, size * PAGE) {
                Ok(memory) => break Ok(memory),
                Err(DmaError::OutOfMemory) if size > 1 => size /= 2,
                Err(error) => break Err(error),
            }
        };
        let error = match (memory, places.next()) {
            (Ok(memory), Some(chunk)) => {
                chunk.adopt(owner, memory);
                missing -= chunk.offer(missing);
                if missing == 0 {
                    return Ok(());
                }
                continue;
            }
            (Ok(memory), None) => {
                memory.free(platform);
                OfferError::Chunks { missing, run: size }
            }
            (Err(error), _) => OfferError::Memory(error),
        };
        withdraw(platform, chunks);
        return Err(error);
    }
}

/// Takes an offer back.
pub(crate) fn withdraw<P: Platform>(platform: &P, chunks: &[PageChunk]) {
    chunks.iter().for_each(|chunk| chunk.settle(false));
    free_unused(platform, chunks);
}

/// Gives chunks back of which the firmware has nothing.
pub(crate) fn free_unused<P: Platform>(platform: &P, chunks: &[PageChunk]) {
    for chunk in chunks
        .iter()
        .filter(|chunk| chunk.len() != 0 && chunk.is_unused())
    {
        if let Some(memory) = chunk.take() {
            memory.free(platform);
        }
    }
}

/// Gives the chunks back of a function that no longer exists. Returns the number of their pages that the firmware had for it.
pub(crate) fn free_of<P: Platform>(platform: &P, chunks: &[PageChunk], owner: u32) -> u32 {
    let mut pages = 0;
    for chunk in chunks.iter().filter(|chunk| chunk.belongs_to(owner)) {
        for word in &chunk.given {
            pages += word.load(Relaxed).count_ones();
        }
        if let Some(memory) = chunk.take() {
            memory.free(platform);
        }
    }
    pages
}

/// Gives all chunks back. The device no longer uses any of them.
pub(crate) fn free_all<P: Platform>(platform: &P, chunks: &[PageChunk]) {
    for memory in chunks.iter().filter_map(PageChunk::take) {
        memory.free(platform);
    }
}

/// Bytes of memory in the chunks.
pub(crate) fn bytes(chunks: &[PageChunk]) -> u64 {
    chunks
        .iter()
        .map(|chunk| u64::from(chunk.len()) * PAGE as u64)
        .sum()
}
