//! The command queue: commands go to the firmware through slots, several at a time, and come back in any order.
//!
//! Asynchronous at the bottom: [`post`](CommandQueue::post) fills a slot and rings the doorbell,
//! [`finish`](CommandQueue::finish) looks whether the answer is there. Whether it is, only the slot's ownership bit
//! decides; command events are a reason to look, so a lost interrupt costs time but never an answer.
//!
//! The last slot takes nothing but MANAGE_PAGES: a command may need pages before it can be answered, and the request for
//! them must not queue behind it.
//!
//! A slot whose command timed out is retired: the firmware may still answer, into memory that must have no other owner then.
//! Once it has, the slot is used again, as Linux does (`mlx5_cmd_comp_handler`: only a real completion frees it).
//!
//! With the [flight recorder](CommandQueue::recorded) each command is recorded when it is posted, and again when it has ended.

use core::time::Duration;

use bareverbs_firmware_cmds::cmdq::{
    BLOCK_DATA_SIZE, CommandQueueEntry, INLINE_SIZE, MAX_ENTRIES, MailboxBlock, OWNED_BY_DEVICE,
    QUEUE_ALIGN, STATUS_OWNERSHIP_OFFSET, TYPE_PCI, blocks_needed, next_token,
};
use bareverbs_firmware_cmds::dump::{self, Direction};
use bareverbs_firmware_cmds::init_segment::{
    CMD_DBELL, CMDQ_ADDR_H, CMDQ_ADDR_L_SZ, CommandQueueRegister,
};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::Status;

use crate::barrier;
use crate::firmware::health::read_health;
use crate::firmware::mailbox::{Chain, MAX_BLOCKS, Mailboxes, Parts, TailIn, Writer};
use crate::firmware::recorder::{CommandRecord, FlightRecorder, Place, RecordKind, object};
use crate::memory::dma::DmaMemory;
use crate::platform::{DmaError, Platform};
use crate::types::error::{BadOutput, CommandError, CommandFailure};

/// A command in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    slot: u8,
    sequence: u32,
}

impl Ticket {
    /// Index of its slot.
    pub(crate) const fn slot(&self) -> u8 {
        self.slot
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Pending,
    /// Timed out: not used again before it was answered after all, or the function was reset.
    Retired,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    token: u8,
    sequence: u32,
    opcode: Opcode,
    op_mod: u16,
    input: Chain,
    output: Chain,
    output_len: usize,
    posted: Duration,
    deadline: Duration,
    /// True once a message has said that it is late.
    late: bool,
    /// Its place in the flight recorder.
    record: Place,
}

impl Slot {
    const EMPTY: Self = Self {
        state: State::Free,
        token: 0,
        sequence: 0,
        opcode: Opcode::Nop,
        op_mod: 0,
        input: Chain::EMPTY,
        output: Chain::EMPTY,
        output_len: 0,
        posted: Duration::ZERO,
        deadline: Duration::ZERO,
        late: false,
        record: Place::UNUSED,
    };

    /// The record of the slot's command in the flight recorder.
    fn record(&self, index: u8, object: u32) -> CommandRecord {
        CommandRecord {
            opcode: self.opcode,
            op_mod: self.op_mod,
            object,
            slot: index,
            end: None,
        }
    }
}

/// After this time without an answer a command is late.
const LATE: Duration = Duration::from_secs(1);

/// The kind of slot that a command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotClass {
    /// Any but the last.
    Ordinary,
    /// Any but the last two, or the first if there are only two: for commands that are begun and not waited for. Their slots stay taken until
    /// the caller looks, which a command that is waited for must not depend on.
    Begun,
    /// The last, which is for MANAGE_PAGES alone.
    Pages,
}

/// A command could not be posted because its class has no free slot: not an error yet.
#[derive(Debug)]
pub(crate) enum PostError {
    /// Try again after something has completed.
    Full,
    /// It will not go.
    Failed(CommandFailure),
}

/// Why the queue could not be set up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SetUpError {
    /// The device describes a queue that cannot be.
    Geometry { log_size: u8, log_stride: u8 },
    /// No memory for it.
    Memory(DmaError),
}

/// The queue, its slots, and the memory for their messages.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    entries: DmaMemory,
    log_stride: u8,
    len: u8,
    slots: [Slot; MAX_ENTRIES],
    mailboxes: Mailboxes,
    token: u8,
    sequence: u32,
    /// Signatures of answers are to be verified.
    verify: bool,
    /// Mailbox blocks are signed. Entries always are.
    signs: bool,
    timeout: Duration,
    executed: u64,
}

impl CommandQueue {
    /// Allocates the queue and writes its address to the device.
    pub(crate) fn set_up<P: Platform>(platform: &P, timeout: Duration) -> Result<Self, SetUpError> {
        let register = CommandQueueRegister(platform.read_be32(CMDQ_ADDR_L_SZ));
        let (log_size, log_stride) = (register.log_size(), register.log_stride());
        let page = QUEUE_ALIGN.trailing_zeros() as u8;
        // At least two slots, or pages could not be supplied while a command waits for them; at least an entry apart.
        if !(1..=5).contains(&log_size) || log_stride < 6 || log_size + log_stride > page {
            return Err(SetUpError::Geometry {
                log_size,
                log_stride,
            });
        }
        let entries = DmaMemory::alloc_pages(platform, QUEUE_ALIGN).map_err(SetUpError::Memory)?;
        let mailboxes = match Mailboxes::new(platform) {
            Ok(mailboxes) => mailboxes,
            Err(error) => {
                entries.free(platform);
                return Err(SetUpError::Memory(error));
            }
        };
        // The low half makes the address valid, so it comes last.
        platform.write_be32(CMDQ_ADDR_H, (entries.iova() >> 32) as u32);
        platform.write_be32(CMDQ_ADDR_L_SZ, entries.iova() as u32);
        Ok(Self {
            entries,
            log_stride,
            len: 1 << log_size,
            slots: [Slot::EMPTY; MAX_ENTRIES],
            mailboxes,
            token: 0,
            sequence: 0,
            verify: false,
            signs: true,
            timeout,
            executed: 0,
        })
    }

    /// Where the device has its commands from.
    pub(crate) fn address(&self) -> u64 {
        self.entries.iova()
    }

    /// Gives all memory back. The device no longer uses any of it.
    pub(crate) fn free<P: Platform>(self, platform: &P) {
        self.entries.free(platform);
        self.mailboxes.free(platform);
    }

    /// Bytes of DMA memory held.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.len() as u64 + self.mailboxes.bytes()
    }

    /// Verifies signatures from now on.
    pub(crate) fn verify_signatures(&mut self) {
        self.verify = true;
    }

    /// The device checks no signatures of blocks: they need none from now on. (Linux's driver signs none at all.)
    pub(crate) fn leave_blocks_unsigned(&mut self) {
        self.signs = false;
    }

    /// Commands that were answered, well or badly.
    pub(crate) fn executed(&self) -> u64 {
        self.executed
    }

    /// The time that a command may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns `true` if the device may still answer a command that is not waited for any more.
    pub(crate) fn has_retired(&self) -> bool {
        let is_free = |index| self.slots[usize::from(index)].state == State::Free;
        (0..self.len).any(|index| !is_free(index) && self.owned_by_device(index))
    }

    /// The queue with its flight recorder.
    pub(crate) fn recorded<'q>(
        &'q mut self,
        recorder: Option<&'q FlightRecorder>,
    ) -> RecordedQueue<'q> {
        RecordedQueue {
            queue: self,
            recorder,
        }
    }

    /// Posts a command. `output_len` counts the fixed part and the tail of the answer.
    pub(crate) fn post<P: Platform>(
        &mut self,
        platform: &P,
        class: SlotClass,
        opcode: Opcode,
        fixed: &[u8],
        mut tail: TailIn<'_>,
        output_len: usize,
    ) -> Result<Ticket, PostError> {
        let index = self.free_slot(platform, class).ok_or(PostError::Full)?;
        let input_len = fixed.len().saturating_add(tail.len());
        let (input_blocks, output_blocks) = (blocks_needed(input_len), blocks_needed(output_len));
        if input_blocks.max(output_blocks) > MAX_BLOCKS {
            let len = input_len.max(output_len);
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            return Err(PostError::Failed(CommandFailure::TooLong { len }));
        }
        let urgent = class == SlotClass::Pages;
        let memory = |error| PostError::Failed(CommandFailure::Memory(error));
        let input = self
            .mailboxes
            .alloc(platform, input_blocks, urgent)
            .map_err(memory)?;
        let output = match self.mailboxes.alloc(platform, output_blocks, urgent) {
            Ok(output) => output,
            Err(error) => {
                self.mailboxes.release(platform, input);
                return Err(memory(error));
            }
        };
        self.token = next_token(self.token);
        let token = self.token;
        self.sequence = self.sequence.wrapping_add(1);

        let mut entry = CommandQueueEntry::ZERO;
        if input_blocks == 0
            && let Some(all) = fixed.first_chunk()
        {
            // The entry has as many bytes as the shortest command.
            *entry.command_input_inline_data_mut() = *all;
        } else {
            let mut block;
            let signed = match self.signs {
                true => {
                    block = MailboxBlock::ZERO;
                    Some(&mut block)
                }
                false => None,
            };
            let mut writer = Writer {
                entry: &mut entry,
                mailboxes: &self.mailboxes,
                chain: &input,
                token,
                at: 0,
                signed,
            };
            writer.put(fixed);
            writer.put_tail(&mut tail);
            writer.finish();
        }
        for block in 0..output_blocks {
            self.mailboxes.clear(&output, block, token);
        }
        entry
            .set_type(TYPE_PCI)
            .set_input_length(input_len as u32)
            .set_input_mailbox(self.mailboxes.iova(&input, 0))
            .set_output_mailbox(self.mailboxes.iova(&output, 0))
            .set_output_length(output_len as u32)
            .set_token(token)
            .set_ownership(true)
            .sign();
        let op_mod = u16::from_be_bytes([
            fixed.get(6).copied().unwrap_or(0),
            fixed.get(7).copied().unwrap_or(0),
        ]);
        if dump::log_enabled() {
            let blocks = (0..input_blocks).map(|block| self.mailboxes.copy(&input, block));
            let slot = usize::from(index);
            dump::log(slot, opcode.number(), Direction::Input, &entry, blocks);
        }

        let at = usize::from(index) << self.log_stride;
        let (body, last) = entry.0.split_at(STATUS_OWNERSHIP_OFFSET - 3);
        self.entries.write_bytes(at, body);
        // The entry's last dword holds the ownership bit: the device must not see it before the rest.
        barrier::write_barrier();
        let last = last
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes));
        self.entries.write_be32(at + body.len(), last);
        let now = platform.now();
        self.slots[usize::from(index)] = Slot {
            state: State::Pending,
            token,
            sequence: self.sequence,
            opcode,
            op_mod,
            input,
            output,
            output_len,
            posted: now,
            deadline: now.saturating_add(self.timeout),
            late: false,
            record: Place::UNUSED,
        };
        platform.write_be32(CMD_DBELL, 1 << index);
        Ok(Ticket {
            slot: index,
            sequence: self.sequence,
        })
    }

    /// The slots of this set that the device has answered.
    pub(crate) fn answered(&self, slots: u32) -> u32 {
        (0..self.len)
            .filter(|&index| slots >> index & 1 != 0 && !self.owned_by_device(index))
            .fold(0, |answered, index| answered | 1 << index)
    }

    /// Returns `true` if there is one slot for all commands but MANAGE_PAGES.
    pub(crate) fn has_one_ordinary_slot(&self) -> bool {
        self.len == 2
    }

    fn free_slot<P: Platform>(&mut self, platform: &P, class: SlotClass) -> Option<u8> {
        let pages = self.len - 1;
        let candidates = match class {
            SlotClass::Ordinary => 0..pages,
            SlotClass::Begun => 0..(pages - 1).max(1),
            SlotClass::Pages => pages..self.len,
        };
        let free = candidates
            .clone()
            .find(|&index| self.slots[usize::from(index)].state == State::Free);
        free.or_else(|| {
            candidates
                .into_iter()
                .find(|&index| self.reap(platform, index))
        })
    }

    /// Frees a slot whose command was answered too late, or when its poster had lost interest (its deadline has passed).
    #[cold]
    fn reap<P: Platform>(&mut self, platform: &P, index: u8) -> bool {
        let slot = self.slots[usize::from(index)];
        let over = match slot.state {
            State::Free => false,
            State::Pending => platform.now() >= slot.deadline.saturating_add(self.timeout),
            State::Retired => true,
        };
        if over && !self.owned_by_device(index) {
            self.release(platform, index);
        }
        self.slots[usize::from(index)].state == State::Free
    }

    /// Frees the slots of commands that were answered, as their answers are not needed any more, and retires those whose
    /// answers are late. Whether the device still works on others.
    #[cold]
    pub(crate) fn forget<P: Platform>(&mut self, platform: &P) -> bool {
        let now = platform.now();
        let mut left = false;
        for index in 0..self.len - 1 {
            let slot = self.slots[usize::from(index)];
            if slot.state != State::Pending {
                continue;
            }
            if !self.owned_by_device(index) {
                self.release(platform, index);
            } else if now >= slot.deadline {
                self.slots[usize::from(index)].state = State::Retired;
            } else {
                left = true;
            }
        }
        left
    }

    fn owned_by_device(&self, index: u8) -> bool {
        let at = (usize::from(index) << self.log_stride) + STATUS_OWNERSHIP_OFFSET;
        self.entries.read_u8(at) & OWNED_BY_DEVICE != 0
    }

    fn release<P: Platform>(&mut self, platform: &P, index: u8) {
        let slot = &mut self.slots[usize::from(index)];
        slot.state = State::Free;
        let input = core::mem::replace(&mut slot.input, Chain::EMPTY);
        let output = core::mem::replace(&mut slot.output, Chain::EMPTY);
        self.mailboxes.release(platform, input);
        self.mailboxes.release(platform, output);
    }

    /// Looks for the answer of a command; `None` while it is not there. `fixed` and `tail` take the answer's two parts
    /// and are as long together as was said when it was posted. After anything but `None` the ticket is used up.
    pub(crate) fn finish<P: Platform>(
        &mut self,
        platform: &P,
        ticket: Ticket,
        fixed: &mut [u8],
        tail: &mut [u8],
    ) -> Option<Result<(), CommandFailure>> {
        let index = ticket.slot;
        let slot = match self.slots.get(usize::from(index)) {
            Some(slot) if slot.state == State::Pending && slot.sequence == ticket.sequence => *slot,
            _ => return Some(Err(CommandFailure::UnknownTicket)),
        };
        if self.owned_by_device(index) {
            let now = platform.now();
            let waited = now.saturating_sub(slot.posted);
            if now < slot.deadline && (slot.late || waited < LATE) {
                return None;
            }
            if now < slot.deadline {
                self.slots[usize::from(index)].late = true;
                say_late(platform, index, &slot, waited, log::Level::Warn);
                return None;
            }
            self.slots[usize::from(index)].state = State::Retired;
            say_late(platform, index, &slot, waited, log::Level::Error);
            let waited = waited.into();
            return Some(Err(CommandFailure::Timeout { waited }));
        }
        // The ownership bit was read first; what it guards must be read after it.
        barrier::read_barrier();
        let result = self.take_answer(index, &slot, fixed, tail);
        self.release(platform, index);
        self.executed += 1;
        if let Err(failure) = result {
            let error = CommandError {
                opcode: slot.opcode,
                op_mod: slot.op_mod,
                failure,
            };
            log::debug!("command failed: {error}");
        }
        Some(result)
    }

    fn take_answer(
        &self,
        index: u8,
        slot: &Slot,
        fixed: &mut [u8],
        tail: &mut [u8],
    ) -> Result<(), CommandFailure> {
        let mut entry = CommandQueueEntry::ZERO;
        self.entries
            .read_bytes(usize::from(index) << self.log_stride, &mut entry.0);
        if dump::log_enabled() {
            let blocks = (0..blocks_needed(slot.output_len))
                .map(|block| self.mailboxes.copy(&slot.output, block));
            let number = slot.opcode.number();
            dump::log(
                usize::from(index),
                number,
                Direction::Output,
                &entry,
                blocks,
            );
        }
        let delivery = entry.delivery_status();
        if !delivery.is_ok() {
            return Err(CommandFailure::Delivery(delivery));
        }
        if self.verify {
            if entry.token() != slot.token {
                return Err(CommandFailure::BadOutput(BadOutput::EntryToken {
                    expected: slot.token,
                    found: entry.token(),
                }));
            }
            // A card's log has answers signed with the ownership bit still set. Linux's `verify_signature` expects it
            // clear, and has never been in use.
            if !(entry.answer_signature_is_valid() || entry.signature_is_valid()) {
                return Err(CommandFailure::BadOutput(BadOutput::EntrySignature));
            }
        }
        let inline = entry.command_output_inline_data();
        let status = Status::from_number(inline[0]);
        if !status.is_ok() {
            let syndrome = inline[4..8]
                .first_chunk()
                .map_or(0, |bytes| u32::from_be_bytes(*bytes));
            return Err(CommandFailure::Status { status, syndrome });
        }
        let mut parts = Parts { fixed, tail };
        match parts.fixed.first_chunk_mut() {
            // The entry has as many bytes as the shortest answer.
            Some(first) => *first = *inline,
            None => parts.put(0, inline),
        }
        let verify = self.verify.then_some(slot.token);
        for block in 0..blocks_needed(slot.output_len) {
            let at = INLINE_SIZE + block * BLOCK_DATA_SIZE;
            let mut data = [0; BLOCK_DATA_SIZE];
            let len = (slot.output_len - at).min(BLOCK_DATA_SIZE);
            self.mailboxes
                .read(&slot.output, block, verify, &mut data[..len])
                .map_err(CommandFailure::BadOutput)?;
            parts.put(at, &data[..len]);
        }
        Ok(())
    }
}

/// Logs that a command has no answer yet, with the device's health.
#[cold]
#[inline(never)]
fn say_late<P: Platform>(
    platform: &P,
    index: u8,
    slot: &Slot,
    waited: Duration,
    level: log::Level,
) {
    let Slot { opcode, op_mod, .. } = slot;
    let health = read_health(platform);
    log::log!(
        level,
        "{opcode} op_mod {op_mod:#x} in slot {index}: no answer for {waited:?}; health: {health}"
    );
}

/// Records a command that has ended behind all others, as its record was overwritten.
#[cold]
#[inline(never)]
fn again(
    recorder: &FlightRecorder,
    slot: &Slot,
    index: u8,
    now: Duration,
    result: Result<(), CommandFailure>,
    answer: &[u8],
) {
    let place = recorder.begin(slot.posted, slot.record(index, 0));
    recorder.end(place, now, result, || object(answer));
}

/// The queue, with the flight recorder that has what goes through it.
pub(crate) struct RecordedQueue<'q> {
    queue: &'q mut CommandQueue,
    recorder: Option<&'q FlightRecorder>,
}

impl RecordedQueue<'_> {
    /// The time that a command may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.queue.timeout()
    }

    /// Posts a command ([`CommandQueue::post`]), and records it.
    pub(crate) fn post<P: Platform>(
        &mut self,
        platform: &P,
        class: SlotClass,
        opcode: Opcode,
        fixed: &[u8],
        tail: TailIn<'_>,
        output_len: usize,
    ) -> Result<Ticket, PostError> {
        let queue = &mut *self.queue;
        let ticket = queue.post(platform, class, opcode, fixed, tail, output_len)?;
        if let Some(recorder) = self.recorder
            && let Some(slot) = queue.slots.get_mut(usize::from(ticket.slot))
        {
            let command = slot.record(ticket.slot, object(fixed));
            slot.record = recorder.begin(slot.posted, command);
        }
        Ok(ticket)
    }

    /// Takes the answer of a command if it is there ([`CommandQueue::finish`]), and records how it ended.
    pub(crate) fn finish<P: Platform>(
        &mut self,
        platform: &P,
        ticket: Ticket,
        fixed: &mut [u8],
        tail: &mut [u8],
    ) -> Option<Result<(), CommandFailure>> {
        let result = self.queue.finish(platform, ticket, fixed, tail)?;
        if let Some(recorder) = self.recorder
            && result != Err(CommandFailure::UnknownTicket)
            // It is free by now, and has what the command was until another takes it.
            && let Some(slot) = self.queue.slots.get(usize::from(ticket.slot))
        {
            let now = platform.now();
            if !recorder.end(slot.record, now, result, || object(fixed)) {
                again(recorder, slot, ticket.slot, now, result, fixed);
            }
            if matches!(result, Err(CommandFailure::Timeout { .. })) {
                recorder.push(now, RecordKind::Health(read_health(platform)));
            }
        }
        Some(result)
    }

    /// Records the commands under way again whose records were overwritten.
    #[cold]
    pub(crate) fn keep_pending(&self) {
        let Some(recorder) = self.recorder else {
            return;
        };
        for (index, slot) in self.queue.slots.iter().enumerate() {
            if slot.state == State::Pending && !recorder.holds(slot.record) {
                recorder.begin(slot.posted, slot.record(index as u8, 0));
            }
        }
    }
}
