//! The ring of a CQ and the reading of completions: the hot path of polling.
//!
//! **Consumer index.** It is published before a completion is handed out, without that completion, and once at the end of a
//! batch; so the device never overwrites a CQE whose fields may still be decoded. The ring has one entry more than
//! the caller may count on, which pays for that.
//!
//! **Trust.** User index, QP number and WQE counter come from the device. Each is checked or masked; a completion that
//! matches nothing that was posted is counted, dropped and never indexes anything. Nor does one that names a QP of
//! other CQs: their owners may be freeing the QP's memory at that moment. A QP's two CQs are not distinguished, as both
//! keep its memory: if a device reports a send in the receive CQ, or the reverse, the caller gets an identifier from
//! the wrong CQ, and if both are polled at once it may get one twice.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use bareverbs_firmware_cmds::cqe::mini::{MiniCqe, MiniFormat};
use bareverbs_firmware_cmds::cqe::{ErrorWord, IndexWord, OpOwn, Opcode, SIZE, Syndrome, TailWord};
use bareverbs_firmware_cmds::doorbell::CqConsumerRecord;

use crate::memory::cqe_ring::{Cqe, CqeRing, Entries, SharedRing};
use crate::memory::prefetch::prefetch;
use crate::memory::record::DoorbellRecord;
use crate::memory::session_ring::{Arrays, Session, SessionRing};
use crate::memory::slots::{LiveQp, QpSlot, SrqSlot, XRC_SRQ, error_flags};
use crate::types::wc;

/// Not an opcode of the device: this driver marks completions of a destroyed or reset queue with it.
const VOID: u8 = 7;

/// Why the straight way has taken no completion: [`Batch::next_usual`](crate::cq::Batch::next_usual).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusual {
    /// The CQ is empty.
    Nothing,
    /// There is a completion of another kind than the usual ones: of an SRQ, in error, or of a QP that is gone.
    Something,
}

/// The current completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    /// Its CQE.
    pub(crate) cqe: Cqe,
    /// Its work request's identifier.
    pub(crate) wr_id: u64,
    /// Its last eight bytes, read once.
    pub(crate) tail: TailWord,
    /// Its entry has 128 bytes, of which the CQE is the second half.
    pub(crate) is_long: bool,
}

/// Completions that [`Ring::prefetch`] looks at.
const AHEAD: usize = 16;

/// The result of the slow path, without what the ring knows itself, so that rings stay small.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    cqe: Cqe,
    wr_id: u64,
    tail: TailWord,
}

impl Current {
    /// Of a ring whose entries have 64 bytes, as all that are taken in a straight line.
    #[inline(always)]
    fn of_short(cqe: Cqe, wr_id: u64, tail: TailWord) -> Self {
        Self {
            cqe,
            wr_id,
            tail,
            is_long: false,
        }
    }
}

/// The stand-in for the last QP before there is one. Its `qpn_tag` matches no QP.
#[cfg(not(all(test, loom)))]
static NO_SLOT: QpSlot = QpSlot::new();
#[cfg(all(test, loom))]
loom::lazy_static! {
    static ref NO_SLOT: QpSlot = QpSlot::new();
}

/// The consumer's side of a CQ.
#[derive(Debug)]
pub(crate) struct Ring<'d> {
    pub(crate) entries: CqeRing,
    /// The QP of the last completion. It is not detached from this CQ: [`flush_stale`](Self::flush_stale) clears it
    /// first.
    last_slot: &'d QpSlot,
    pub(crate) qps: &'d [QpSlot],
    /// Doorbell record: consumer index, then arm state.
    pub(crate) record: DoorbellRecord,
    pub(crate) srqs: &'d [SrqSlot],
    /// The result of the slow path.
    pub(crate) found: Option<Found>,
    /// Completions that matched nothing.
    pub(crate) garbage: u64,
    /// Index of the CQ.
    cq: u32,
    /// Queues of raw packets use the CQ. Their numbers are not of the same kind as those of QPs, and receives have
    /// something else in the number's place: so the QP of the last completion says nothing of the next one.
    by_index: bool,
    /// The ring of a CQ that compresses or has long entries. `entries` is one unusual entry then, so that all polls take
    /// the slow path, which looks here; its index is this ring's.
    sessions: Option<SessionRing>,
}

/// Takes the next completion if it is usual, and returns what `$send` or `$recv` makes of it. Text rather than a function, so that
/// both have the same code, and each caller's is compiled where it stands.
macro_rules! next {
    ($ring:ident, $current:ident => $send:expr, $recv:expr) => {{
        let Some((cqe, tail)) = $ring.entries.peek() else {
            return Err(Unusual::Nothing);
        };
        // Completions come in bursts of one QP, and no two live QPs have the same number.
        let qp = match $ring.last_slot.live(tail.qpn()) {
            Some(qp) => qp,
            None => {
                // The high byte of the user index dword is 0 for all that this driver creates.
                let IndexWord(index) = cqe.word();
                let Some(slot) = $ring.qps.get(index as usize) else {
                    return Err(Unusual::Something);
                };
                if !slot.uses_cq($ring.cq) {
                    return Err(Unusual::Something);
                }
                let Some(qp) = slot.live(tail.qpn()) else {
                    return Err(Unusual::Something);
                };
                if !$ring.by_index {
                    $ring.last_slot = slot;
                }
                qp
            }
        };
        let op = tail.last().opcode();
        if op == Opcode::Requester as u8 {
            if let Some(wr_id) = qp.complete_send(tail.wqe_counter()) {
                $ring.entries.advance(cqe);
                let $current = Current::of_short(cqe, wr_id, tail);
                return Ok($send);
            }
        } else if op < Opcode::ResizeCq as u8
            && let Some(wr_id) = qp.complete_recv(tail.wqe_counter())
        {
            $ring.entries.advance(cqe);
            let $current = Current::of_short(cqe, wr_id, tail);
            return Ok($recv);
        }
        Err(Unusual::Something)
    }};
}

impl<'d> Ring<'d> {
    /// On entries that were not used yet.
    pub(crate) fn new(
        cq: u32,
        entries: CqeRing,
        sessions: Option<SessionRing>,
        record: DoorbellRecord,
        qps: &'d [QpSlot],
        srqs: &'d [SrqSlot],
    ) -> Self {
        Self {
            entries,
            last_slot: &NO_SLOT,
            qps,
            record,
            srqs,
            found: None,
            garbage: 0,
            cq,
            by_index: false,
            sessions,
        }
    }

    /// Number of CQEs.
    pub(crate) fn size(&self) -> u32 {
        self.all().size
    }

    /// The result of the slow path.
    pub(crate) fn found(&self) -> Option<Current> {
        let Found { cqe, wr_id, tail } = self.found?;
        Some(Current {
            cqe,
            wr_id,
            tail,
            is_long: self.all().log_stride > SIZE.ilog2() as u8,
        })
    }

    /// Returns `true` if the next CQE is the host's.
    pub(crate) fn is_ready(&self) -> bool {
        self.all().is_there(self.ci())
    }

    /// The part of the ring that others than the owner may use.
    pub(crate) fn share(&self) -> SharedRing {
        SharedRing::new(*self.all(), self.record)
    }

    /// Where the CQEs of any ring are.
    fn all(&self) -> &Entries {
        match &self.sessions {
            None => self.entries.entries(),
            Some(ring) => ring.entries(),
        }
    }

    /// The next CQE of any ring.
    fn peek(&mut self) -> Option<(Cqe, TailWord)> {
        match &mut self.sessions {
            None => self.entries.peek(),
            Some(ring) => {
                let ci = self.entries.ci();
                ring.owned(ci, ci)
            }
        }
    }

    fn advance(&mut self, next: Cqe) {
        match self.sessions {
            None => self.entries.advance(next),
            Some(_) => self.entries.set_pass(self.ci().wrapping_add(1)),
        }
    }

    /// The CQE with this index in any ring.
    fn owned(&mut self, index: u32) -> Option<(Cqe, TailWord)> {
        match &mut self.sessions {
            None => self.entries.owned(index),
            Some(ring) => ring.owned(self.entries.ci(), index),
        }
    }

    /// Hands each completion of the next session to `each`, if it is one of receives of a live QP with a queue of its own
    /// that come in their order; how many there were.
    #[inline(always)]
    pub(crate) fn next_session(&mut self, mut each: impl FnMut(u64, MiniCqe, &Session)) -> u32 {
        let Some(ring) = &mut self.sessions else {
            return 0;
        };
        let ci = self.entries.ci();
        let Some(session) = ring.begin(ci) else {
            return 0;
        };
        let IndexWord(index) = session.title.word();
        let qp = self.qps.get(index as usize);
        let qp = qp.filter(|slot| slot.uses_cq(self.cq));
        let Some(qp) = qp.and_then(|slot| slot.live(session.tail.qpn())) else {
            return 0;
        };
        let op = session.tail.last().opcode();
        // Counters of their own need not be in order.
        let counted = session.format != MiniFormat::ChecksumStride;
        if op == Opcode::Requester as u8 || op >= Opcode::ResizeCq as u8 || !counted {
            return 0;
        }
        let Some(ids) = qp.complete_recvs(session.tail.wqe_counter(), session.count) else {
            return 0;
        };
        ring.minis(ci, &session, ids, |wr_id, mini| {
            each(wr_id, mini, &session);
        });
        self.entries.set_pass(ring.end(ci, &session));
        session.count
    }

    /// The next session, if one comes next, and where its mini CQEs lie.
    #[inline(always)]
    pub(crate) fn begin_session(&self) -> Option<(Session, Arrays)> {
        let (ring, ci) = (self.sessions.as_ref()?, self.entries.ci());
        Some((ring.begin(ci)?, ring.arrays(ci)))
    }

    /// Takes it.
    #[inline(always)]
    pub(crate) fn end_session(&mut self, session: &Session) {
        if let Some(ring) = &mut self.sessions {
            self.entries.set_pass(ring.end(self.entries.ci(), session));
        }
    }

    /// Index of the next CQE, running freely.
    #[inline(always)]
    pub(crate) fn ci(&self) -> u32 {
        self.entries.ci()
    }

    /// Finds QPs by their index from now on.
    pub(crate) fn expect_packets(&mut self) {
        self.by_index = true;
        self.last_slot = &NO_SLOT;
    }

    /// Takes the next CQE as it is, if it is the host's. Nothing in it was checked.
    pub(crate) fn take_entry(&mut self) -> Option<[u8; SIZE]> {
        let (entry, _) = self.take()?;
        Some(entry.to_bytes())
    }

    /// The same where it lies.
    pub(crate) fn take(&mut self) -> Option<(Cqe, TailWord)> {
        let (entry, tail) = self.peek()?;
        self.advance(entry);
        Some((entry, tail))
    }

    /// Writes the consumer index to the doorbell record.
    #[inline(always)]
    pub(crate) fn publish(&self, consumed: u32) {
        let mut record = CqConsumerRecord(0);
        record.set_consumer(consumed);
        self.record.consume(record);
    }

    /// Brings nearer what the completions of a batch read: their slots, all at once, and then what these lead to.
    #[inline(never)]
    pub(crate) fn prefetch(&self) {
        let mut works = [(self.last_slot, TailWord(0)); AHEAD];
        let mut count = 0;
        for (index, work) in (0..).zip(&mut works) {
            let Some((cqe, tail)) = self.entries.owned(self.ci().wrapping_add(index)) else {
                break;
            };
            let IndexWord(index) = cqe.word();
            let Some(slot) = self.qps.get(index as usize) else {
                break;
            };
            prefetch(slot);
            *work = (slot, tail);
            count += 1;
        }
        for (slot, tail) in works.iter().take(count) {
            slot.prefetch_work(*tail);
        }
    }

    /// Hands the next completion to `found` if it is usual, in a straight line without a call: a success of a live QP with
    /// queues of its own. `found` is compiled once for sends and once for receives, so that the fields it reads are
    /// selected at compile time. `Err` says that there is something else, or nothing: see
    /// [`next_slow`](Self::next_slow).
    #[inline(always)]
    pub(crate) fn next<R>(&mut self, found: impl FnOnce(Current) -> R) -> Result<R, Unusual> {
        next!(self, current => found(current), found(current))
    }

    /// The same with a function for sends and one for receives, which get `with`.
    #[inline(always)]
    pub(crate) fn next_by_kind<C, R>(
        &mut self,
        with: C,
        send: impl FnOnce(C, Current) -> R,
        recv: impl FnOnce(C, Current) -> R,
    ) -> Result<R, Unusual> {
        next!(self, current => send(with, current), recv(with, current))
    }

    /// As [`next`](Self::next), for everything that a completion can be. What there is, is left in `found`. Errors, and what
    /// a broken device writes, take this way.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_slow(&mut self) {
        self.found = None;
        while let Some((entry, mut tail)) = self.peek() {
            self.advance(entry);
            let slot = self.slot_of(entry).map(|(_, slot)| slot);
            // Looked up once: the QP may be destroyed at any moment, and its completion counts all the same.
            let mut qp = slot.and_then(|slot| slot.live(tail.qpn()));
            let mut frame = false;
            if is_of_receiver(tail)
                && let Some((packets, qpn)) = slot.and_then(QpSlot::live_packets)
            {
                qp = Some(packets);
                tail.set_qpn(qpn);
                frame = true;
            }
            if let Some(slot) = slot
                && (qp.is_some() || slot.matches_live(XRC_SRQ))
            {
                let mut id = self.unusual(slot, qp, tail);
                if id.is_none() && is_of_requester(tail) {
                    id = qp.and_then(|qp| qp.complete_closing(tail.wqe_counter()));
                    tail.set_wqe_opcode(wc::LOCAL_INV);
                }
                if let Some(wr_id) = id {
                    record_error(slot, entry, tail);
                    if frame {
                        tail = as_frame(tail);
                    }
                    self.found = Some(Found {
                        cqe: entry,
                        wr_id,
                        tail,
                    });
                    return;
                }
                if !is_silent(slot, qp, entry, tail) {
                    self.count_garbage(tail.last().opcode());
                }
            } else {
                self.drop_unmatched(entry, tail);
            }
            self.publish(self.ci());
            // A ring full of garbage must not keep the caller for ever.
            if self.ci() & (self.size() - 1) == 0 {
                return;
            }
        }
    }

    /// Takes the CQEs that come next and are of work requests whose completions are not handed out.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_silent(&mut self) {
        while let Some((entry, tail)) = self.peek() {
            let slot = self.slot_of(entry).map(|(_, slot)| slot);
            let taken = slot.is_some_and(|slot| {
                let qp = slot.live(tail.qpn());
                is_silent(slot, qp, entry, tail)
            });
            if !taken {
                return;
            }
            self.advance(entry);
            self.publish(self.ci());
        }
    }

    /// The slot that a CQE names, and its index, if it is of a QP that is not detached from this CQ.
    fn slot_of(&self, entry: Cqe) -> Option<(u32, &'d QpSlot)> {
        let index = entry.word::<IndexWord>().srqn_uidx();
        let slot = self.qps.get(index as usize)?;
        slot.uses_cq(self.cq).then_some((index, slot))
    }

    /// The identifier of any completion of a live QP, or of an SRQ, which has no QP.
    fn unusual(&self, slot: &QpSlot, qp: Option<LiveQp<'_>>, tail: TailWord) -> Option<u64> {
        let op = Opcode::from_number(tail.last().opcode())?;
        let counter = tail.wqe_counter();
        match op {
            Opcode::Requester | Opcode::RequesterError => qp?.complete_send(counter),
            Opcode::ResponderWriteImmediate
            | Opcode::ResponderSend
            | Opcode::ResponderSendImmediate
            | Opcode::ResponderSendInvalidate
            | Opcode::ResponderError => match self.srqs.get(slot.srq.load(Relaxed) as usize) {
                Some(srq) => srq.complete(counter),
                None if op != Opcode::ResponderError => qp?.complete_recv(counter),
                None => qp?.flush_recv(),
            },
            _ => None,
        }
    }

    /// A completion that names no live QP.
    fn drop_unmatched(&mut self, entry: Cqe, tail: TailWord) {
        let was = self
            .slot_of(entry)
            .is_some_and(|(_, slot)| slot.tracks_dead(tail.qpn()) || is_frame_of(slot, tail));
        if is_of_qp(tail) && was {
            return self.recycle(entry, tail);
        }
        self.count_garbage(tail.last().opcode());
    }

    /// Counts completions that match nothing, except for those that this driver marked as stale.
    fn count_garbage(&mut self, op: u8) {
        if op == VOID {
            return;
        }
        self.garbage += 1;
        log::warn!("a completion (opcode {op:#x}) that fits no work request was dropped");
    }

    /// Gives the SRQ entry of a completion back that is not reported.
    fn recycle(&self, entry: Cqe, tail: TailWord) {
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

    /// Marks the completions of QP slot `index` that lie in the ring (those before `bound`, if there is one) as stale,
    /// so that later polls skip them.
    pub(crate) fn flush_stale(&mut self, index: u32, bound: Option<u32>) {
        self.last_slot = &NO_SLOT;
        let ahead = bound.map_or(1, |bound| bound.wrapping_sub(self.ci()) & 0xff_ffff);
        if ahead >= 1 << 23 {
            return;
        }
        let mut at = self.ci();
        while at.wrapping_sub(self.ci()) < self.size()
            && bound.is_none_or(|bound| bound.wrapping_sub(at) & 0xff_ffff != 0)
        {
            let Some((entry, tail)) = self.owned(at) else {
                break;
            };
            if let Some((of, slot)) = self.slot_of(entry)
                && is_of_qp(tail)
                && of == index
                && (slot.tracks_live(tail.qpn())
                    || slot.tracks_dead(tail.qpn())
                    || is_frame_of(slot, tail))
            {
                self.recycle(entry, tail);
                let mut last = OpOwn(0);
                last.set_opcode(VOID);
                last.set_owner(tail.last().owner());
                // No slot has this index, so the poll takes its slow path.
                entry.set_word(IndexWord(u32::MAX));
                entry.set_word(last);
            }
            at = at.wrapping_add(1);
        }
    }
}

/// Returns `true` if a CQE is one of a requester.
fn is_of_requester(tail: TailWord) -> bool {
    matches!(
        Opcode::from_number(tail.last().opcode()),
        Some(Opcode::Requester | Opcode::RequesterError)
    )
}

/// Returns `true` if a CQE is one of a responder.
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

/// Returns `true` if a CQE is one that QPs get.
fn is_of_qp(tail: TailWord) -> bool {
    is_of_requester(tail) || is_of_receiver(tail)
}

/// Returns `true` if a CQE is a receive of this slot's QP, whatever its number is, since frames come to it.
fn is_frame_of(slot: &QpSlot, tail: TailWord) -> bool {
    is_of_receiver(tail) && slot.has_packets()
}

/// The tail of a frame's completion, as decoding it distinguishes it from a message's.
fn as_frame(mut tail: TailWord) -> TailWord {
    if !is_error(tail) {
        let mut last = tail.last();
        last.set_opcode(wc::FRAME);
        tail.set_op_own(last.0);
    }
    tail
}

/// Returns `true` if a CQE reports a failure.
fn is_error(tail: TailWord) -> bool {
    tail.last().opcode() >= Opcode::RequesterError as u8
}

/// Returns true if a completion is of a work request whose completion is not handed out, and frees its place. An error is
/// recorded.
fn is_silent(slot: &QpSlot, qp: Option<LiveQp<'_>>, entry: Cqe, tail: TailWord) -> bool {
    let op = Opcode::from_number(tail.last().opcode());
    let of_send = matches!(op, Some(Opcode::Requester | Opcode::RequesterError));
    let silent = of_send && qp.is_some_and(|qp| qp.complete_silent(tail.wqe_counter()));
    if silent {
        record_error(slot, entry, tail);
    }
    silent
}

/// Records in its QP's slot that a completion reports an error, for [`DynQp::state`](crate::verbs::qp::DynQp::state).
fn record_error(slot: &QpSlot, entry: Cqe, tail: TailWord) {
    let flag = match Opcode::from_number(tail.last().opcode()) {
        Some(Opcode::RequesterError) => {
            let error = entry.word::<ErrorWord>();
            match Syndrome::from_number(error.syndrome()) {
                Syndrome::WrFlush => error_flags::FAILED,
                _ => error_flags::SEND_FAILED,
            }
        }
        // The slot of an XRC SRQ stands for many queue pairs.
        Some(Opcode::ResponderError) if !slot.is_xrc_srq() => {
            // A frame that is too long costs its buffer only.
            let error = entry.word::<ErrorWord>();
            let too_long = Syndrome::from_number(error.syndrome()) == Syndrome::LocalLength;
            if slot.has_packets() && too_long {
                return;
            }
            error_flags::FAILED
        }
        _ => return,
    };
    slot.flags.fetch_or(flag, AcqRel);
}
