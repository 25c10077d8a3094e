//! The ring of a CQ and the reading of completions: the hot path of polling.
//!
//! **Ownership.** A CQE belongs to the host when its opcode is not 0xf (a ring starts out filled with that) and its owner
//! bit equals the parity of the pass through the ring. The device writes the byte that says so last; this driver reads
//! it first, and the rest behind a read barrier (nothing on x86, where loads stay in order).
//!
//! **Consumer index.** It is published before a completion is handed out, without that completion, and once at the end of a
//! batch; so the device never overwrites a CQE whose fields may still be decoded. The ring has one entry more than
//! the caller may count on, which pays for that.
//!
//! **Trust.** User index, QP number and WQE counter come from the device. Each is checked or masked; a completion that
//! fits nothing that was posted is counted, dropped and never indexes anything.

// UNSAFETY: rings are raw memory shared with the device.
#![expect(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use bareverbs_firmware_cmds::cqe::{ErrorWord, IndexWord, OpOwn, Opcode, SIZE, Syndrome, TailWord};
use bareverbs_firmware_cmds::doorbell::CqConsumerRecord;

use crate::memory::dma::{load, read_barrier, store};
use crate::memory::record::DoorbellRecord;
use crate::memory::slots::{QpSlot, SrqSlot, told};

/// Not an opcode of the device's: this driver marks a completion of a queue that is gone.
const VOID: u8 = 7;

/// Why [`Ring::next`] has no completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusual {
    /// The CQ is empty.
    Nothing,
    /// There is a CQE that needs a closer look.
    Something,
}

/// The completion at hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    /// Its CQE.
    pub(crate) cqe: NonNull<u8>,
    /// Its work request's identifier.
    pub(crate) wr_id: u64,
    /// Its last eight bytes, read once.
    pub(crate) tail: TailWord,
}

/// What a ring takes for the last QP before there was one. Its key is no QP's.
static NOBODY: QpSlot = QpSlot::new();

/// The consumer's side of a CQ.
#[derive(Debug)]
pub(crate) struct Ring<'d> {
    /// The next CQE.
    next: NonNull<u8>,
    /// The QP of the last completion.
    last_slot: &'d QpSlot,
    /// Behind the last CQE.
    end: *mut u8,
    pub(crate) qps: &'d [QpSlot],
    /// Doorbell record: consumer index, then arm state.
    pub(crate) record: DoorbellRecord,
    /// Index of the first CQE in this pass through the ring.
    pass: u32,
    /// Owner bit of this pass through the ring.
    parity: u8,
    /// Number of CQEs, a power of two.
    pub(crate) size: u32,
    base: NonNull<u8>,
    pub(crate) srqs: &'d [SrqSlot],
    /// What the slow path has found.
    pub(crate) found: Current,
    /// Completions that fitted nothing.
    pub(crate) garbage: u64,
}

// SAFETY: the pointers are to memory that the ring's owner has to itself (and the device).
unsafe impl Send for Ring<'_> {}

impl<'d> Ring<'d> {
    /// A ring of `size` CQEs at `base` that was not used yet.
    pub(crate) fn new(
        base: NonNull<u8>,
        size: u32,
        record: DoorbellRecord,
        qps: &'d [QpSlot],
        srqs: &'d [SrqSlot],
    ) -> Self {
        let found = Current {
            cqe: base,
            wr_id: 0,
            tail: TailWord(0),
        };
        let mut ring = Self {
            next: base,
            last_slot: &NOBODY,
            end: base.as_ptr(),
            qps,
            record,
            pass: 0,
            parity: 0,
            size,
            base,
            srqs,
            found,
            garbage: 0,
        };
        ring.move_to(base, size, 0);
        ring
    }

    /// Goes on in another ring, at consumer index `ci`.
    pub(crate) fn move_to(&mut self, base: NonNull<u8>, size: u32, ci: u32) {
        self.base = base;
        self.size = size;
        self.end = base.as_ptr().wrapping_add(size as usize * SIZE);
        self.pass = ci & !(size - 1);
        self.parity = u8::from(ci & size != 0);
        // SAFETY: the masked index lies inside the ring.
        self.next = unsafe { base.add((ci & (size - 1)) as usize * SIZE) };
        self.found = Current {
            cqe: base,
            wr_id: 0,
            tail: TailWord(0),
        };
    }

    /// The next CQE and its tail, if it is the host's.
    #[inline(always)]
    fn peek(&self) -> Option<(NonNull<u8>, TailWord)> {
        // SAFETY: the next CQE lies inside the ring.
        let tail = unsafe { load::<TailWord>(self.next.as_ptr()) };
        if !tail.last().is_ready(self.parity) {
            return None;
        }
        read_barrier();
        Some((self.next, tail))
    }

    /// Goes on to the CQE behind the next one, which is `next`.
    #[inline(always)]
    fn advance(&mut self, next: NonNull<u8>) {
        // SAFETY: at most the end of the ring.
        self.next = unsafe { next.add(SIZE) };
        if self.next.as_ptr() == self.end {
            self.next = self.base;
            self.parity ^= 1;
            self.pass = self.pass.wrapping_add(self.size);
        }
    }

    /// Takes the next CQE as it is, if it is the host's. Nothing in it was checked.
    pub(crate) fn take_entry(&mut self) -> Option<[u8; SIZE]> {
        let (entry, _) = self.peek()?;
        let mut copy = [0; SIZE];
        for (index, word) in copy.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // SAFETY: inside the CQE, which lies in the ring; volatile, since the memory is shared with the device.
            let value = unsafe { entry.cast::<u64>().add(index).read_volatile() };
            *word = value.to_ne_bytes();
        }
        self.advance(entry);
        Some(copy)
    }

    /// Index of the next CQE, counted on; 24 bits of it are the device's business.
    #[inline(always)]
    pub(crate) fn ci(&self) -> u32 {
        let offset = self.next.as_ptr() as usize - self.base.as_ptr() as usize;
        self.pass.wrapping_add((offset / SIZE) as u32)
    }

    /// Where the consumer is, to see whether it has moved.
    #[inline(always)]
    pub(crate) fn position(&self) -> (NonNull<u8>, u32) {
        (self.next, self.pass)
    }

    /// The CQE with this index (less than the ring's size ahead) and its tail, if it belongs to the host.
    pub(crate) fn owned(&self, index: u32) -> Option<(NonNull<u8>, TailWord)> {
        let at = (index & (self.size - 1)) as usize * SIZE;
        // SAFETY: the masked index lies inside the ring.
        let (entry, tail) = unsafe {
            let entry = self.base.add(at);
            (entry, load::<TailWord>(entry.as_ptr()))
        };
        if !tail.last().is_ready(u8::from(index & self.size != 0)) {
            return None;
        }
        read_barrier();
        Some((entry, tail))
    }

    /// Tells the device how far the ring was consumed.
    #[inline(always)]
    pub(crate) fn publish(&self, consumed: u32) {
        let mut record = CqConsumerRecord(0);
        record.set_consumer(consumed);
        self.record.consume(record);
    }

    /// Hands the next completion to `found` if it is usual, in a straight line without a call: a success of a live QP with
    /// queues of its own. `found` is compiled once for sends and once for receives, so that what it asks of the
    /// completion is decided where the kind is. `Err` says that there is something else, or nothing: see
    /// [`next_slow`](Self::next_slow).
    #[inline(always)]
    pub(crate) fn next<R>(&mut self, found: impl FnOnce(Current) -> R) -> Result<R, Unusual> {
        let Some((cqe, tail)) = self.peek() else {
            return Err(Unusual::Nothing);
        };
        // Completions come in bursts of one QP, and no two live QPs have the same number.
        let mut slot = self.last_slot;
        if slot.key.load(Acquire) != tail.qpn() {
            // SAFETY: a CQE of this ring.
            let IndexWord(index) = unsafe { load(cqe.as_ptr()) };
            // The high byte of the user index dword is 0 for all that this driver creates.
            match self.qps.get(index as usize) {
                Some(named) if named.key.load(Acquire) == tail.qpn() => slot = named,
                _ => return Err(Unusual::Something),
            }
            self.last_slot = slot;
        }
        let op = tail.last().opcode();
        if op == Opcode::Requester as u8 {
            if let Some(wr_id) = send_completion(slot, tail.wqe_counter()) {
                self.advance(cqe);
                return Ok(found(Current { cqe, wr_id, tail }));
            }
        } else if op < Opcode::ResizeCq as u8
            && let Some(wr_id) = receive_completion(slot, tail.wqe_counter())
        {
            self.advance(cqe);
            return Ok(found(Current { cqe, wr_id, tail }));
        }
        Err(Unusual::Something)
    }

    /// As [`next`](Self::next), for everything that a completion can be; true if there is one, in `found`. Errors, and what
    /// a broken device writes, take this way.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_slow(&mut self) -> bool {
        while let Some((entry, tail)) = self.peek() {
            self.advance(entry);
            if let Some((_, slot)) = self.slot_of(entry)
                && slot.takes(tail.qpn())
            {
                if let Some(wr_id) = self.unusual(slot, tail) {
                    note_failure(slot, entry, tail);
                    self.found = Current {
                        cqe: entry,
                        wr_id,
                        tail,
                    };
                    return true;
                }
                self.count_garbage(tail.last().opcode());
            } else {
                self.drop_unmatched(entry, tail);
            }
            self.publish(self.ci());
            // A ring full of rubbish must not keep the caller for ever.
            if self.ci() & (self.size - 1) == 0 {
                return false;
            }
        }
        false
    }

    /// The slot that a CQE names, and its index.
    fn slot_of(&self, entry: NonNull<u8>) -> Option<(u32, &'d QpSlot)> {
        // SAFETY: a CQE of this ring.
        let index = unsafe { load::<IndexWord>(entry.as_ptr()) }.srqn_uidx();
        Some((index, self.qps.get(index as usize)?))
    }

    /// The identifier of any completion of a live QP.
    fn unusual(&self, slot: &QpSlot, tail: TailWord) -> Option<u64> {
        let op = Opcode::from_number(tail.last().opcode())?;
        let counter = tail.wqe_counter();
        match op {
            // An SRQ has no sends.
            Opcode::Requester | Opcode::RequesterError if slot.is_source() => None,
            Opcode::Requester | Opcode::RequesterError => send_completion(slot, counter),
            Opcode::ResponderWriteImmediate
            | Opcode::ResponderSend
            | Opcode::ResponderSendImmediate
            | Opcode::ResponderSendInvalidate
            | Opcode::ResponderError => match self.srqs.get(slot.srq.load(Relaxed) as usize) {
                Some(srq) => srq.complete(counter),
                None if slot.is_source() => None,
                None if op != Opcode::ResponderError => receive_completion(slot, counter),
                // A flushed receive need not name its WQE; they come in order anyway.
                None => receive_completion(slot, slot.rq_tail.load(Relaxed) as u16),
            },
            _ => None,
        }
    }

    /// A completion that names no live QP.
    fn drop_unmatched(&mut self, entry: NonNull<u8>, tail: TailWord) {
        let was = self
            .slot_of(entry)
            .is_some_and(|(_, slot)| slot.took(tail.qpn()));
        if is_of_qp(tail) && was {
            return self.recycle(entry, tail);
        }
        self.count_garbage(tail.last().opcode());
    }

    /// Counts what fits nothing, except for what this driver disarmed.
    fn count_garbage(&mut self, op: u8) {
        if op == VOID {
            return;
        }
        self.garbage += 1;
        log::warn!("a completion (opcode {op:#x}) that fits no work request was dropped");
    }

    /// Gives the SRQ entry of a completion back that nobody will see.
    fn recycle(&self, entry: NonNull<u8>, tail: TailWord) {
        if !is_of_receiver(tail) {
            return;
        }
        let Some((_, slot)) = self.slot_of(entry) else {
            return;
        };
        if let Some(srq) = self.srqs.get(slot.srq.load(Relaxed) as usize) {
            let _ = srq.complete(tail.wqe_counter());
        }
    }

    /// Disarms the completions of QP slot `index` that lie in the ring (those before `bound`, if there is one), so that
    /// later polls skip them.
    pub(crate) fn void(&mut self, index: u32, bound: Option<u32>) {
        self.last_slot = &NOBODY;
        let ahead = bound.map_or(1, |bound| bound.wrapping_sub(self.ci()) & 0xff_ffff);
        if ahead >= 1 << 23 {
            return;
        }
        let mut at = self.ci();
        while at.wrapping_sub(self.ci()) < self.size
            && bound.is_none_or(|bound| bound.wrapping_sub(at) & 0xff_ffff != 0)
        {
            let Some((entry, tail)) = self.owned(at) else {
                break;
            };
            if let Some((of, slot)) = self.slot_of(entry)
                && is_of_qp(tail)
                && of == index
                && (slot.takes(tail.qpn()) || slot.took(tail.qpn()))
            {
                self.recycle(entry, tail);
                let mut last = OpOwn(0);
                last.set_opcode(VOID);
                last.set_owner(tail.last().owner());
                let cqe = entry.as_ptr();
                // SAFETY: the CQE is the host's.
                unsafe {
                    // No slot has this index, so the poll takes its slow path.
                    store(cqe, IndexWord(u32::MAX));
                    store(cqe, last);
                }
            }
            at = at.wrapping_add(1);
        }
    }
}

/// Whether a CQE is one of a requester.
fn is_of_requester(tail: TailWord) -> bool {
    matches!(
        Opcode::from_number(tail.last().opcode()),
        Some(Opcode::Requester | Opcode::RequesterError)
    )
}

/// Whether a CQE is one of a responder.
fn is_of_receiver(tail: TailWord) -> bool {
    matches!(
        Opcode::from_number(tail.last().opcode()),
        Some(
            Opcode::ResponderWriteImmediate
                | Opcode::ResponderSend
                | Opcode::ResponderSendImmediate
                | Opcode::ResponderSendInvalidate
                | Opcode::ResponderError
        )
    )
}

/// Whether a CQE is one that QPs get.
fn is_of_qp(tail: TailWord) -> bool {
    is_of_requester(tail) || is_of_receiver(tail)
}

/// A send work request has completed, and with it all before it: frees them. `None` if none that is outstanding starts
/// at this block.
#[inline(always)]
fn send_completion(slot: &QpSlot, counter: u16) -> Option<u64> {
    let block = (u32::from(counter) & slot.sq_mask.load(Relaxed)) as usize;
    // SAFETY: the slot belongs to a live QP (or one to which this CQ has not said goodbye), whose block holds
    // `sq_mask + 1` counters here.
    let head = unsafe { (*slot.sq_heads.load(Relaxed).add(block)).load(Relaxed) };
    // A counter is there only if it was posted, so it lies before the next one; it also has to lie behind the tail.
    let mask = slot.wr_mask.load(Relaxed);
    if head.wrapping_sub(slot.sq_tail.load(Relaxed)) > mask {
        return None;
    }
    // SAFETY: as above, `wr_mask + 1` identifiers.
    let wr_id =
        unsafe { (*slot.sq_wr_ids.load(Relaxed).add((head & mask) as usize)).load(Relaxed) };
    slot.sq_tail.store(head.wrapping_add(1), Release);
    Some(wr_id)
}

/// The oldest receive work request has completed. `None` if the device names another one.
#[inline(always)]
fn receive_completion(slot: &QpSlot, counter: u16) -> Option<u64> {
    let tail = slot.rq_tail.load(Relaxed);
    let mask = slot.rq_mask.load(Relaxed);
    if (tail ^ u32::from(counter)) & mask != 0 || tail == slot.rq_head.load(Relaxed) {
        return None;
    }
    // SAFETY: as in `send_completion`: `rq_mask + 1` identifiers.
    let wr_id =
        unsafe { (*slot.rq_wr_ids.load(Relaxed).add((tail & mask) as usize)).load(Relaxed) };
    slot.rq_tail.store(tail.wrapping_add(1), Release);
    Some(wr_id)
}

/// Notes at its QP that a completion tells of an error, for [`Qp::state`](crate::verbs::qp::Qp::state).
fn note_failure(slot: &QpSlot, entry: NonNull<u8>, tail: TailWord) {
    let flag = match Opcode::from_number(tail.last().opcode()) {
        Some(Opcode::RequesterError) => {
            // SAFETY: a CQE of this ring.
            let error = unsafe { load::<ErrorWord>(entry.as_ptr()) };
            match Syndrome::from_number(error.syndrome()) {
                Syndrome::WrFlush => told::FAILED,
                _ => told::SEND_FAILED,
            }
        }
        // An SRQ of an XRC domain stands for no one queue pair.
        Some(Opcode::ResponderError) if !slot.is_source() => told::FAILED,
        _ => return,
    };
    slot.flags.fetch_or(flag, AcqRel);
}
