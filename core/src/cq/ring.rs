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

use crate::dma::read_barrier;
use crate::slots::{DEAD, QpSlot, SRQ_POSTED, SrqSlot};
use crate::wc::{cqe, cqe_op};

/// The completion at hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    /// Its CQE.
    pub(crate) cqe: NonNull<u8>,
    /// Its work request's identifier.
    pub(crate) wr_id: u64,
    /// The byte with its opcode, read once.
    pub(crate) op_own: u8,
}

/// The consumer's side of a CQ.
#[derive(Debug)]
pub(crate) struct Ring<'d> {
    pub(crate) base: NonNull<u8>,
    /// Doorbell record: consumer index, then arm state.
    pub(crate) record: *mut u32,
    /// Number of CQEs, a power of two.
    pub(crate) size: u32,
    /// Index of the next CQE; 24 bits of it are the device's business.
    pub(crate) ci: u32,
    pub(crate) qps: &'d [QpSlot],
    pub(crate) srqs: &'d [SrqSlot],
    /// Completions that fitted nothing.
    pub(crate) garbage: u64,
}

// SAFETY: the pointers are to memory that the ring's owner has to itself (and the device).
unsafe impl Send for Ring<'_> {}

/// The big-endian dword at `offset` of a CQE.
///
/// # Safety
/// `cqe` points to a CQE of 64 bytes in live memory, aligned to 64, and `offset` is a multiple of 4 below 64.
#[inline(always)]
pub(crate) unsafe fn word(cqe: *const u8, offset: usize) -> u32 {
    // SAFETY: the caller's promise; volatile, since the memory is shared with the device.
    u32::from_be(unsafe { cqe.add(offset).cast::<u32>().read_volatile() })
}

impl Ring<'_> {
    /// The CQE with this index and its ownership byte, if it belongs to the host.
    #[inline(always)]
    pub(crate) fn owned(&self, index: u32) -> Option<(NonNull<u8>, u8)> {
        let at = (index & (self.size - 1)) as usize * cqe::SIZE;
        // SAFETY: the masked index lies inside the ring.
        let entry = unsafe { self.base.add(at) };
        // SAFETY: inside the CQE.
        let op_own = unsafe { entry.as_ptr().add(cqe::OP_OWN).read_volatile() };
        let parity = u8::from(index & self.size != 0);
        // Bit 0 has to equal the parity, and the high half must not be 0xf: one comparison for both.
        if (op_own ^ parity).rotate_right(1) >= cqe_op::INVALID << 3 {
            return None;
        }
        read_barrier();
        Some((entry, op_own))
    }

    /// Tells the device how far the ring was consumed.
    #[inline(always)]
    pub(crate) fn publish(&self, consumed: u32) {
        // Orders the reads of the CQEs given back before the store, too.
        read_barrier();
        // SAFETY: the record is ours as long as the CQ lives.
        unsafe { self.record.write_volatile((consumed & 0xff_ffff).to_be()) };
    }

    /// Takes the next completion. What is usual is decided here, in a straight line without a call: a success of a live QP
    /// with queues of its own. All else, the errors too, is out of line.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Current> {
        let (entry, op_own) = self.owned(self.ci)?;
        let cqe = entry.as_ptr();
        // SAFETY: a CQE of this ring.
        let (user_index, op_qpn) =
            unsafe { (word(cqe, cqe::USER_INDEX), word(cqe, cqe::WQE_OPCODE_QPN)) };
        // The high byte of the user index dword is 0 for all that this driver creates.
        if let Some(slot) = self.qps.get(user_index as usize)
            && slot.key.load(Acquire) == op_qpn & 0xff_ffff
        {
            // SAFETY: inside the CQE, at a multiple of 2.
            let counter = u16::from_be(unsafe { cqe.add(cqe::LAST).cast::<u16>().read_volatile() });
            if op_own < cqe_op::RESP_WRITE_IMM << 4 {
                if let Some(wr_id) = send_completion(slot, counter) {
                    self.ci = self.ci.wrapping_add(1);
                    return Some(Current {
                        cqe: entry,
                        wr_id,
                        op_own,
                    });
                }
            } else if op_own < cqe_op::RESIZE << 4
                && let Some(wr_id) = receive_completion(slot, counter)
            {
                self.ci = self.ci.wrapping_add(1);
                return Some(Current {
                    cqe: entry,
                    wr_id,
                    op_own,
                });
            }
        }
        self.next_slow()
    }

    /// As [`next`](Self::next), for everything that a completion can be.
    #[cold]
    #[inline(never)]
    fn next_slow(&mut self) -> Option<Current> {
        loop {
            let (entry, op_own) = self.owned(self.ci)?;
            self.ci = self.ci.wrapping_add(1);
            let cqe = entry.as_ptr();
            // SAFETY: a CQE of this ring.
            let (user_index, op_qpn, last) = unsafe {
                (
                    word(cqe, cqe::USER_INDEX),
                    word(cqe, cqe::WQE_OPCODE_QPN),
                    word(cqe, cqe::LAST),
                )
            };
            let op = op_own >> 4;
            if let Some(slot) = self.qps.get((user_index & 0xff_ffff) as usize)
                && slot.key.load(Acquire) == op_qpn & 0xff_ffff
            {
                if let Some(wr_id) = self.unusual(slot, op, (last >> 16) as u16) {
                    return Some(Current {
                        cqe: entry,
                        wr_id,
                        op_own,
                    });
                }
                self.count_garbage(op);
            } else {
                self.drop_unmatched(cqe, op);
            }
            self.publish(self.ci);
            // A ring full of rubbish must not keep the caller for ever.
            if self.ci & (self.size - 1) == 0 {
                return None;
            }
        }
    }

    /// The identifier of any completion of a live QP.
    fn unusual(&self, slot: &QpSlot, op: u8, counter: u16) -> Option<u64> {
        match op {
            cqe_op::REQ | cqe_op::REQ_ERR => send_completion(slot, counter),
            cqe_op::RESP_WRITE_IMM..=cqe_op::RESP_SEND_INV | cqe_op::RESP_ERR => {
                match self.srqs.get(slot.srq.load(Relaxed) as usize) {
                    Some(srq) => shared_completion(srq, counter),
                    None if op != cqe_op::RESP_ERR => receive_completion(slot, counter),
                    // A flushed receive need not name its WQE; they come in order anyway.
                    None => receive_completion(slot, slot.rq_tail.load(Relaxed) as u16),
                }
            }
            _ => None,
        }
    }

    /// A completion that names no live QP.
    fn drop_unmatched(&mut self, entry: *mut u8, op: u8) {
        let of_qp = op < cqe_op::RESIZE || op == cqe_op::REQ_ERR || op == cqe_op::RESP_ERR;
        if of_qp && self.is_of_dead_qp(entry) {
            return self.recycle(entry);
        }
        self.count_garbage(op);
    }

    fn is_of_dead_qp(&self, entry: *const u8) -> bool {
        // SAFETY: a CQE of this ring.
        let (user_index, op_qpn) = unsafe {
            (
                word(entry, cqe::USER_INDEX),
                word(entry, cqe::WQE_OPCODE_QPN),
            )
        };
        self.qps
            .get((user_index & 0xff_ffff) as usize)
            .is_some_and(|slot| slot.key.load(Acquire) == op_qpn & 0xff_ffff | DEAD)
    }

    /// Counts what fits nothing, except for what this driver disarmed.
    fn count_garbage(&mut self, op: u8) {
        if op == cqe_op::VOID {
            return;
        }
        self.garbage += 1;
        log::warn!("a completion (opcode {op:#x}) that fits no work request was dropped");
    }

    /// Gives the SRQ entry of a completion back that nobody will see.
    pub(crate) fn recycle(&self, entry: *const u8) {
        // SAFETY: a CQE of this ring.
        let (user_index, last) = unsafe { (word(entry, cqe::USER_INDEX), word(entry, cqe::LAST)) };
        let op = (last as u8) >> 4;
        if !matches!(
            op,
            cqe_op::RESP_WRITE_IMM..=cqe_op::RESP_SEND_INV | cqe_op::RESP_ERR
        ) {
            return;
        }
        let Some(slot) = self.qps.get((user_index & 0xff_ffff) as usize) else {
            return;
        };
        if let Some(srq) = self.srqs.get(slot.srq.load(Relaxed) as usize) {
            shared_completion(srq, (last >> 16) as u16);
        }
    }

    /// Disarms the completions of QP slot `index` that lie in the ring (those before `bound`, if there is one), so that
    /// later polls skip them.
    pub(crate) fn void(&mut self, index: u32, bound: Option<u32>) {
        let qpn = self.qps[index as usize].key.load(Relaxed) & !DEAD;
        let ahead = bound.map_or(1, |bound| bound.wrapping_sub(self.ci) & 0xff_ffff);
        if ahead >= 1 << 23 {
            return;
        }
        let mut at = self.ci;
        while at.wrapping_sub(self.ci) < self.size
            && bound.is_none_or(|bound| bound.wrapping_sub(at) & 0xff_ffff != 0)
        {
            let Some((entry, _)) = self.owned(at) else {
                break;
            };
            let entry = entry.as_ptr();
            // SAFETY: a CQE of this ring.
            let (user_index, op_qpn, last) = unsafe {
                (
                    word(entry, cqe::USER_INDEX),
                    word(entry, cqe::WQE_OPCODE_QPN),
                    word(entry, cqe::LAST),
                )
            };
            let op = (last as u8) >> 4;
            let of_qp = op < cqe_op::RESIZE || op == cqe_op::REQ_ERR || op == cqe_op::RESP_ERR;
            if of_qp && user_index & 0xff_ffff == index && op_qpn & 0xff_ffff == qpn {
                self.recycle(entry);
                // SAFETY: inside the CQE, which is the host's.
                unsafe {
                    // No QP has the number 0xffffff here, so the poll takes its cold path.
                    entry
                        .add(cqe::USER_INDEX)
                        .cast::<u32>()
                        .write_volatile(u32::MAX);
                    entry
                        .add(cqe::OP_OWN)
                        .write_volatile(cqe_op::VOID << 4 | last as u8 & 1);
                }
            }
            at = at.wrapping_add(1);
        }
    }
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
    let tail = slot.sq_tail.load(Relaxed);
    if u32::from(u32::from(head).wrapping_sub(tail) as u16) > mask {
        return None;
    }
    let at = (u32::from(head) & mask) as usize;
    // SAFETY: as above, `wr_mask + 1` identifiers.
    let wr_id = unsafe { (*slot.sq_wr_ids.load(Relaxed).add(at)).load(Relaxed) };
    slot.sq_tail.store(u32::from(head.wrapping_add(1)), Release);
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

/// A work request of an SRQ has completed: takes its entry back. `None` if the device does not hold it.
fn shared_completion(srq: &SrqSlot, counter: u16) -> Option<u64> {
    let index = u32::from(counter);
    if index > srq.mask.load(Relaxed) {
        return None;
    }
    // SAFETY: QPs keep the SRQ's memory alive (`SrqSlot::pins`), which holds `mask + 1` of each.
    let (wr_id, state) = unsafe {
        let at = index as usize;
        (
            (*srq.wr_ids.load(Acquire).add(at)).load(Relaxed),
            &*srq.states.load(Acquire).add(at),
        )
    };
    // Whoever turns the state takes the entry; a second completion for it finds it taken.
    state
        .compare_exchange(SRQ_POSTED, 0, AcqRel, Relaxed)
        .ok()?;
    let mut head = srq.returned.load(Relaxed);
    loop {
        state.store(head, Relaxed);
        match srq
            .returned
            .compare_exchange_weak(head, index + 1, Release, Relaxed)
        {
            Ok(_) => return Some(wr_id),
            Err(now) => head = now,
        }
    }
}
