//! Memory that the firmware asks of the host: given in pages of 4 KiB, taken back page by page, never lost.
//!
//! At run time the firmware asks through its event queue. The answer goes through the command queue's own slot, without
//! anyone waiting: [`PageSupply::step`] moves it on, whichever caller drives the device.

use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::pages::{ManagePagesIn, ManagePagesOut};
use bareverbs_firmware_cmds::values::ManagePages;
use zerocopy::{FromZeros, IntoBytes};

use crate::firmware::command_queue::{PostError, RecordedQueue, SlotClass, Ticket};
use crate::firmware::mailbox::TailIn;
use crate::firmware::page_chunk::{self, OfferError, Offered, PageChunk};
use crate::platform::{DmaError, Platform};
use crate::types::error::{BadOutput, CommandError, CommandFailure};

/// Pages in one MANAGE_PAGES that gives.
const MAX_GIVE: u32 = 32 * 1024;
/// Pages in one MANAGE_PAGES that takes.
const MAX_TAKE: u32 = 512;
/// Pages that a function can request, or return, at a time.
const MOST_WANTED: u32 = i32::MAX as u32;
/// Functions (this one, its virtual functions, the embedded processor) that can have pages at a time.
const MAX_FUNCTIONS: usize = 8;

/// A function that has pages, or requests some.
#[derive(Debug, Clone, Copy)]
struct Function {
    id: u16,
    embedded_cpu: bool,
    given: u32,
    /// Still to be given.
    to_give: u32,
    /// Still to be taken back. What the firmware asks for and what it offers are counted apart: a command waits for the
    /// one, and what it offered earlier does not help that command.
    to_take: u32,
    /// The function is gone. Its pages are free, without a command: the firmware knows no pages of it any more.
    gone: bool,
}

impl Function {
    fn owner(&self) -> u32 {
        owner(self.id, self.embedded_cpu)
    }

    fn is_idle(&self) -> bool {
        self.to_give == 0 && self.to_take == 0 && !self.gone
    }

    fn give_up(&mut self) {
        self.to_give = 0;
        self.to_take = 0;
    }
}

/// A function's name in the chunks of memory.
fn owner(id: u16, embedded_cpu: bool) -> u32 {
    u32::from(id) | u32::from(embedded_cpu) << 16
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
    Chunks {
        /// The number of further chunks that would have been enough.
        missing: usize,
    },
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
    /// Why its last command failed.
    error: Option<SupplyError>,
    /// The driver's own function, which cannot go while the driver talks to it.
    own: Option<u32>,
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
            own: None,
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

    /// Returns `true` if nothing is in flight and nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.functions.iter().all(Function::is_idle)
    }

    /// Why the last command failed, once.
    pub(crate) fn take_error(&mut self) -> Option<SupplyError> {
        self.error.take()
    }

    /// Pages that came back with the last MANAGE_PAGES that takes.
    pub(crate) fn take_returned(&mut self) -> u32 {
        core::mem::take(&mut self.last_taken)
    }

    /// Notes that the driver's own function requests pages, as it comes up.
    pub(crate) fn request_own(&mut self, id: u16, embedded_cpu: bool, pages: i32) {
        self.own = Some(owner(id, embedded_cpu));
        self.request(id, embedded_cpu, pages.into());
    }

    /// Notes that a function requests pages (> 0), or that pages of it are to be taken back (< 0).
    pub(crate) fn request(&mut self, id: u16, embedded_cpu: bool, pages: i64) {
        // Firmware that asks without end gets no further than 2^31 pages.
        let count = pages.unsigned_abs().min(MOST_WANTED.into()) as u32;
        let (to_give, to_take) = if pages < 0 { (0, count) } else { (count, 0) };
        if let Some(function) = self.function(id, embedded_cpu) {
            function.to_give = (function.to_give + to_give).min(MOST_WANTED);
            function.to_take = (function.to_take + to_take).min(MOST_WANTED);
            return;
        }
        let function = Function {
            id,
            embedded_cpu,
            given: 0,
            to_give,
            to_take,
            gone: false,
        };
        // A function that has no pages any more leaves its place.
        let in_use = self.in_flight.map(|in_flight| in_flight.function);
        let free = (0..self.functions.len()).find(|&index| {
            let function = &self.functions[index];
            function.given == 0 && function.is_idle() && in_use != Some(index)
        });
        if let Some(index) = free {
            self.functions[index] = function;
        } else if self.functions.push(function).is_err() {
            self.refused += 1;
            log::error!("function {id} asks for {pages} pages, but too many functions have some");
        }
    }

    /// Notes that a function is gone, and the firmware's knowledge of its pages with it. What was requested for it before
    /// no longer matters.
    pub(crate) fn release(&mut self, id: u16, embedded_cpu: bool) {
        if self.own == Some(owner(id, embedded_cpu)) {
            log::error!("the firmware says that this function, {id}, is gone: its pages stay");
            return;
        }
        if let Some(function) = self.function(id, embedded_cpu) {
            function.give_up();
            function.gone = true;
        }
    }

    fn function(&mut self, id: u16, embedded_cpu: bool) -> Option<&mut Function> {
        self.functions
            .iter_mut()
            .find(|function| function.id == id && function.embedded_cpu == embedded_cpu)
    }

    /// Asks for everything back that any function has.
    pub(crate) fn request_all_back(&mut self) {
        for function in &mut self.functions {
            function.to_give = 0;
            function.to_take = function.given;
        }
    }

    /// Moves the supply on: finishes the command in flight, posts the next one. Never waits.
    pub(crate) fn step<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        queue: &mut RecordedQueue<'_>,
    ) {
        if let Some(in_flight) = self.in_flight
            && !self.finish(platform, chunks, queue, in_flight)
        {
            return;
        }
        while let Some(index) = self
            .functions
            .iter()
            .position(|function| !function.is_idle())
        {
            if self.start(platform, chunks, queue, index) {
                return;
            }
        }
    }

    /// Returns `true` if the command in flight is done.
    fn finish<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        queue: &mut RecordedQueue<'_>,
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
                    self.functions[in_flight.function].to_take = 0;
                }
            },
            ManagePages::CannotGive => {
                if let Err(failure) = result {
                    log::warn!("refusing the firmware's pages failed: {failure}");
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
            page_chunk::free_unused(platform, chunks);
        } else {
            self.given += in_flight.pages;
            self.functions[in_flight.function].given += in_flight.pages;
        }
        if let Err(failure) = result {
            self.error = Some(refusal(ManagePages::Give, failure));
            self.functions[in_flight.function].to_give = 0;
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
        let owner = function.owner();
        if entries > in_flight.pages {
            let bad = BadOutput::TooManyPages { returned: entries };
            self.error = Some(refusal(ManagePages::Take, CommandFailure::BadOutput(bad)));
            // No part of such an answer is trusted, as the firmware may use the pages.
            log::error!("MANAGE_PAGES: {bad}: all of them are kept");
            function.to_take = 0;
            return;
        }
        let mut returned = 0;
        for address in tail.chunks_exact(8).take(entries as usize) {
            let iova = address
                .first_chunk()
                .map_or(0, |bytes| u64::from_be_bytes(*bytes));
            if chunks.iter().any(|chunk| chunk.take_back(owner, iova)) {
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
        function.to_take = match returned {
            0 => 0,
            _ => function.to_take.saturating_sub(returned),
        };
        page_chunk::free_unused(platform, chunks);
    }

    /// Posts the next command for a function; whether one is in flight now.
    fn start<P: Platform>(
        &mut self,
        platform: &P,
        chunks: &[PageChunk],
        queue: &mut RecordedQueue<'_>,
        index: usize,
    ) -> bool {
        let function = &mut self.functions[index];
        let owner = function.owner();
        if core::mem::take(&mut function.gone) {
            function.given = 0;
            let released = page_chunk::free_of(platform, chunks, owner);
            self.given = self.given.saturating_sub(released);
        }
        let Function {
            id,
            embedded_cpu,
            to_give,
            to_take,
            given,
            ..
        } = *function;
        let mut input = ManagePagesIn::new();
        input
            .set_function_id(id)
            .set_embedded_cpu_function(embedded_cpu);
        if to_give == 0 {
            let pages = to_take.min(given).min(MAX_TAKE);
            if pages == 0 {
                self.functions[index].to_take = 0;
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
        let pages = to_give.min(MAX_GIVE);
        match page_chunk::offer(platform, chunks, owner, pages) {
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
                    self.functions[index].to_give -= pages;
                } else {
                    page_chunk::withdraw(platform, chunks);
                }
                posted
            }
            Err(error) => {
                log::error!("the firmware asks for {to_give} pages for function {id}: {error}");
                self.error = Some(match error {
                    OfferError::Memory(error) => SupplyError::Memory(error),
                    OfferError::Chunks { missing, run } => {
                        let later = (to_give - pages) as usize;
                        let missing = (missing as usize + later).div_ceil(run);
                        SupplyError::Chunks { missing }
                    }
                });
                self.refused += 1;
                self.functions[index].to_give = 0;
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
        queue: &mut RecordedQueue<'_>,
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
            SlotClass::Pages,
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
                self.functions[function].give_up();
                let waited = queue.timeout().into();
                self.error = Some(refusal(what, CommandFailure::QueueFull { waited }));
                false
            }
            Err(PostError::Failed(failure)) => {
                self.functions[function].give_up();
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
