//! Memory that the firmware asks of the host: given in pages of 4 KiB, taken back page by page, never forgotten.
//!
//! The pages lie in chunks of up to 2 MiB from the platform. A [`PageChunk`] of the caller's storage records one chunk and
//! which of its pages the firmware holds, so that every address that the firmware returns can be checked against what it
//! was given: an address that it does not hold frees nothing.
//!
//! At run time the firmware asks through its event queue. The answer goes through the command queue's own slot, without
//! anyone waiting: [`PageSupply::step`] moves it on, whoever drives the device.

// UNSAFETY: a chunk's memory is kept as plain atomics in the caller's storage and put together again to free it.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::pages::{ManagePagesIn, ManagePagesOut};
use bareverbs_firmware_cmds::values::ManagePages;
use zerocopy::{FromZeros, IntoBytes};

use crate::command_queue::{CommandQueue, Lane, PostError, TailIn, Ticket};
use crate::dma::DmaMemory;
use crate::error::{BadOutput, CommandError, CommandFailure};
use crate::platform::{Dma, DmaError, Platform};

/// What the firmware calls a page.
pub(crate) const PAGE: usize = 4096;
/// Pages in the largest chunk.
pub(crate) const CHUNK_PAGES: usize = 512;
/// The smallest chunk worth a place in the storage, unless the platform has nothing larger.
const MIN_CHUNK_PAGES: usize = 32;
/// Pages in one MANAGE_PAGES that gives.
const MAX_GIVE: u32 = 32 * 1024;
/// Pages in one MANAGE_PAGES that takes.
pub(crate) const MAX_TAKE: u32 = 512;
/// Functions (this one, its virtual functions, the embedded processor) that can have pages at a time.
const MAX_FUNCTIONS: usize = 8;

/// State of one run of memory lent to the firmware: up to 2 MiB from the platform, and who has which page of it.
///
/// Opaque to the caller, who only provides the memory (see [`Storage`](crate::Storage)).
#[derive(Debug)]
pub struct PageChunk {
    ptr: AtomicPtr<u8>,
    iova: AtomicU64,
    /// 0 while there is no memory.
    pages: AtomicU32,
    /// The firmware has it, or may have it.
    given: [AtomicU64; CHUNK_PAGES / 64],
    /// Named in a MANAGE_PAGES that was not answered yet.
    offered: [AtomicU64; CHUNK_PAGES / 64],
}

impl PageChunk {
    /// An empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ptr: AtomicPtr::new(core::ptr::null_mut()),
            iova: AtomicU64::new(0),
            pages: AtomicU32::new(0),
            given: [const { AtomicU64::new(0) }; CHUNK_PAGES / 64],
            offered: [const { AtomicU64::new(0) }; CHUNK_PAGES / 64],
        }
    }

    /// Forgets whatever an earlier device left.
    fn reset(&self) {
        self.pages.store(0, Relaxed);
        self.ptr.store(core::ptr::null_mut(), Relaxed);
        for word in self.given.iter().chain(&self.offered) {
            word.store(0, Relaxed);
        }
    }

    fn len(&self) -> u32 {
        self.pages.load(Relaxed)
    }

    fn adopt(&self, memory: DmaMemory) {
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

    /// Bits of word `word` that stand for pages.
    fn valid(&self, word: usize) -> u64 {
        match (self.len() as usize).saturating_sub(word * 64) {
            0 => 0,
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        }
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
    fn settle(&self, accepted: bool) {
        for (given, offered) in self.given.iter().zip(&self.offered) {
            let pages = offered.swap(0, Relaxed);
            if accepted {
                given.fetch_or(pages, Relaxed);
            }
        }
    }

    /// Takes page at `iova` back; whether the firmware had it.
    fn take_back(&self, iova: u64) -> bool {
        let offset = iova.wrapping_sub(self.iova.load(Relaxed));
        if offset >= u64::from(self.len()) * PAGE as u64 || !offset.is_multiple_of(PAGE as u64) {
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
struct Offered<'a> {
    chunks: &'a [PageChunk],
    chunk: usize,
    word: usize,
    bits: Option<u64>,
}

impl<'a> Offered<'a> {
    fn new(chunks: &'a [PageChunk]) -> Self {
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

/// A function that has pages, or wants some.
#[derive(Debug, Clone, Copy)]
struct Function {
    id: u16,
    embedded_cpu: bool,
    given: u32,
    /// Still to be given (> 0) or taken back (< 0).
    wanted: i64,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    ticket: Ticket,
    function: usize,
    what: ManagePages,
    pages: u32,
}

/// Why pages could not be supplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupplyError {
    /// The platform has no memory.
    Memory(DmaError),
    /// The storage has no chunk left.
    Chunks,
    /// The firmware did not take the pages, or did not give any back.
    Command(CommandError),
}

/// The pages lent to the firmware.
#[derive(Debug)]
pub(crate) struct PageSupply {
    functions: heapless::Vec<Function, MAX_FUNCTIONS>,
    in_flight: Option<InFlight>,
    given: u32,
    /// Addresses returned that the firmware did not have.
    bad_returns: u64,
    /// Requests that could not be met.
    refused: u64,
    /// Pages that came back with the last MANAGE_PAGES that takes.
    last_taken: u32,
    /// Why the last command of its own failed.
    error: Option<SupplyError>,
}

impl PageSupply {
    /// Takes the chunks over.
    pub(crate) fn new(chunks: &[PageChunk]) -> Self {
        chunks.iter().for_each(PageChunk::reset);
        Self {
            functions: heapless::Vec::new(),
            in_flight: None,
            given: 0,
            bad_returns: 0,
            refused: 0,
            last_taken: 0,
            error: None,
        }
    }

    /// Pages that the firmware holds.
    pub(crate) fn given(&self) -> u32 {
        self.given
    }

    /// Page requests of the firmware that could not be met.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Addresses that the firmware returned without having them.
    pub(crate) fn bad_returns(&self) -> u64 {
        self.bad_returns
    }

    /// Whether nothing is in flight and nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.functions.iter().all(|function| function.wanted == 0)
    }

    /// Why the last command failed, once.
    pub(crate) fn take_error(&mut self) -> Option<SupplyError> {
        self.error.take()
    }

    /// Pages that came back with the last MANAGE_PAGES that takes.
    pub(crate) fn take_returned(&mut self) -> u32 {
        core::mem::take(&mut self.last_taken)
    }

    /// Notes that a function wants pages (> 0), or that pages of it are to be taken back (< 0).
    pub(crate) fn request(&mut self, id: u16, embedded_cpu: bool, pages: i64) {
        let known = self
            .functions
            .iter_mut()
            .find(|function| function.id == id && function.embedded_cpu == embedded_cpu);
        if let Some(function) = known {
            // Whoever asks without end gets no further than 2^31 pages.
            let limit = i64::from(i32::MAX);
            function.wanted = function.wanted.saturating_add(pages).clamp(-limit, limit);
            return;
        }
        let function = Function {
            id,
            embedded_cpu,
            given: 0,
            wanted: pages,
        };
        if self.functions.push(function).is_err() {
            self.refused += 1;
            log::error!("function {id} asks for {pages} pages, but too many functions have some");
        }
    }

    /// Asks for everything back that any function has.
    pub(crate) fn request_all_back(&mut self) {
        for function in &mut self.functions {
            function.wanted = -i64::from(function.given);
        }
    }

    /// Moves the supply on: finishes the command in flight, posts the next one. Never waits.
    pub(crate) fn step<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        queue: &mut CommandQueue,
    ) {
        if let Some(in_flight) = self.in_flight
            && !self.finish(platform, chunks, queue, in_flight)
        {
            return;
        }
        while let Some(index) = self
            .functions
            .iter()
            .position(|function| function.wanted != 0)
        {
            if self.start(platform, chunks, queue, index) {
                return;
            }
        }
    }

    /// Whether the command in flight is done.
    fn finish<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        queue: &mut CommandQueue,
        in_flight: InFlight,
    ) -> bool {
        let mut output = ManagePagesOut::new_zeroed();
        let mut returned = [0; MAX_TAKE as usize * 8];
        let tail = match in_flight.what {
            ManagePages::Take => &mut returned[..in_flight.pages as usize * 8],
            _ => &mut [],
        };
        let Some(result) = queue.finish(platform, in_flight.ticket, output.as_mut_bytes(), tail)
        else {
            return false;
        };
        self.in_flight = None;
        match in_flight.what {
            ManagePages::Give => self.given_away(platform, chunks, in_flight, result),
            ManagePages::Take => match result {
                Ok(()) => self.taken_back(
                    platform,
                    chunks,
                    in_flight,
                    output.output_num_entries(),
                    tail,
                ),
                Err(failure) => {
                    self.error = Some(refusal(ManagePages::Take, failure));
                    self.functions[in_flight.function].wanted = 0;
                }
            },
            ManagePages::CannotGive => {
                if let Err(failure) = result {
                    log::warn!("the firmware was not told that there are no pages: {failure:?}");
                }
            }
        }
        true
    }

    fn given_away<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        in_flight: InFlight,
        result: Result<(), CommandFailure>,
    ) {
        // After a refusal the firmware does not have the pages. After anything less clear it may.
        let refused = matches!(
            result,
            Err(CommandFailure::Status { .. } | CommandFailure::Delivery(_))
        );
        chunks.iter().for_each(|chunk| chunk.settle(!refused));
        if refused {
            free_unused(platform, chunks);
        } else {
            self.given += in_flight.pages;
            self.functions[in_flight.function].given += in_flight.pages;
        }
        if let Err(failure) = result {
            self.error = Some(refusal(ManagePages::Give, failure));
            self.functions[in_flight.function].wanted = 0;
        }
    }

    fn taken_back<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        in_flight: InFlight,
        entries: u32,
        tail: &[u8],
    ) {
        let function = &mut self.functions[in_flight.function];
        if entries > in_flight.pages {
            let bad = BadOutput::Value {
                field: "output_num_entries",
                value: u64::from(entries),
            };
            self.error = Some(refusal(ManagePages::Take, CommandFailure::BadOutput(bad)));
        }
        let mut returned = 0;
        for address in tail.chunks_exact(8).take(entries as usize) {
            let iova = address
                .first_chunk()
                .map_or(0, |bytes| u64::from_be_bytes(*bytes));
            if chunks.iter().any(|chunk| chunk.take_back(iova)) {
                returned += 1;
            } else {
                self.bad_returns += 1;
                log::error!("the firmware returned page {iova:#x}, which it does not have");
            }
        }
        self.last_taken = self.last_taken.saturating_add(returned);
        self.given = self.given.saturating_sub(returned);
        function.given = function.given.saturating_sub(returned);
        // The firmware gives what it can spare. When that is nothing, asking on at once would get nothing again.
        function.wanted = match returned {
            0 => 0,
            _ => (function.wanted + i64::from(returned)).min(0),
        };
        free_unused(platform, chunks);
    }

    /// Posts the next command for a function; whether one is in flight now.
    fn start<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        queue: &mut CommandQueue,
        index: usize,
    ) -> bool {
        let Function {
            id,
            embedded_cpu,
            wanted,
            given,
        } = self.functions[index];
        let mut input = ManagePagesIn::new();
        input
            .set_function_id(id)
            .set_embedded_cpu_function(embedded_cpu);
        if wanted < 0 {
            let pages = wanted.unsigned_abs().min(u64::from(given.min(MAX_TAKE))) as u32;
            if pages == 0 {
                self.functions[index].wanted = 0;
                return false;
            }
            input
                .set_op_mod(ManagePages::Take.number())
                .set_input_num_entries(pages);
            return self.post(
                platform,
                queue,
                index,
                &input,
                TailIn::None,
                ManagePages::Take,
                pages,
            );
        }
        let pages = wanted.min(i64::from(MAX_GIVE)) as u32;
        match offer(platform, chunks, pages) {
            Ok(()) => {
                input
                    .set_op_mod(ManagePages::Give.number())
                    .set_input_num_entries(pages);
                let mut addresses = Offered::new(chunks);
                let mut next = |_| addresses.next().unwrap_or(0);
                let tail = TailIn::Qwords(pages as usize, &mut next);
                let posted = self.post(
                    platform,
                    queue,
                    index,
                    &input,
                    tail,
                    ManagePages::Give,
                    pages,
                );
                if posted {
                    self.functions[index].wanted -= i64::from(pages);
                } else {
                    chunks.iter().for_each(|chunk| chunk.settle(false));
                    free_unused(platform, chunks);
                }
                posted
            }
            Err(error) => {
                log::error!("the firmware asks for {wanted} pages for function {id}: {error:?}");
                self.error = Some(error);
                self.refused += 1;
                self.functions[index].wanted = 0;
                input.set_op_mod(ManagePages::CannotGive.number());
                self.post(
                    platform,
                    queue,
                    index,
                    &input,
                    TailIn::None,
                    ManagePages::CannotGive,
                    0,
                )
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one command and of its record"
    )]
    fn post<P: Platform>(
        &mut self,
        platform: &P,
        queue: &mut CommandQueue,
        function: usize,
        input: &ManagePagesIn,
        tail: TailIn<'_>,
        what: ManagePages,
        pages: u32,
    ) -> bool {
        let answer = if what == ManagePages::Take {
            pages as usize * 8
        } else {
            0
        };
        let output_len = ManagePagesOut::SIZE + answer;
        match queue.post(
            platform,
            Lane::Pages,
            Opcode::ManagePages,
            input.as_bytes(),
            tail,
            output_len,
        ) {
            Ok(ticket) => {
                self.in_flight = Some(InFlight {
                    ticket,
                    function,
                    what,
                    pages,
                });
                true
            }
            // The slot is lost to a command that timed out: no pages will ever be supplied again.
            Err(PostError::Full) => {
                self.functions[function].wanted = 0;
                let waited = queue.timeout();
                self.error = Some(refusal(what, CommandFailure::QueueFull { waited }));
                false
            }
            Err(PostError::Failed(failure)) => {
                self.functions[function].wanted = 0;
                self.error = Some(refusal(what, failure));
                false
            }
        }
    }
}

fn refusal(what: ManagePages, failure: CommandFailure) -> SupplyError {
    let (opcode, op_mod) = (Opcode::ManagePages, what.number());
    SupplyError::Command(CommandError {
        opcode,
        op_mod,
        failure,
    })
}

/// Offers `pages` pages, with new memory from the platform as far as needed; all or none.
fn offer<P: Platform>(platform: &P, chunks: &[PageChunk], pages: u32) -> Result<(), SupplyError> {
    let mut missing = pages;
    for chunk in chunks {
        missing -= chunk.offer(missing);
        if missing == 0 {
            return Ok(());
        }
    }
    let mut size = CHUNK_PAGES;
    for chunk in chunks.iter().filter(|chunk| chunk.len() == 0) {
        let needed = (missing as usize).next_power_of_two().max(MIN_CHUNK_PAGES);
        let memory = loop {
            size = size.min(needed);
            match DmaMemory::alloc_pages(platform, size * PAGE) {
                Ok(memory) => break Ok(memory),
                Err(DmaError::OutOfMemory) if size > 1 => size /= 2,
                Err(error) => break Err(error),
            }
        };
        match memory {
            Ok(memory) => chunk.adopt(memory),
            Err(error) => {
                withdraw(platform, chunks);
                return Err(SupplyError::Memory(error));
            }
        }
        missing -= chunk.offer(missing);
        if missing == 0 {
            return Ok(());
        }
    }
    withdraw(platform, chunks);
    Err(SupplyError::Chunks)
}

fn withdraw<P: Platform>(platform: &P, chunks: &[PageChunk]) {
    chunks.iter().for_each(|chunk| chunk.settle(false));
    free_unused(platform, chunks);
}

/// Gives chunks back of which the firmware has nothing.
fn free_unused<P: Platform>(platform: &P, chunks: &[PageChunk]) {
    for chunk in chunks
        .iter()
        .filter(|chunk| chunk.len() != 0 && chunk.is_unused())
    {
        if let Some(memory) = chunk.take() {
            memory.free(platform);
        }
    }
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
