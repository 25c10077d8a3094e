//! Completion queues.

// UNSAFETY: says which memory is the ring and which the doorbell record.
#![expect(unsafe_code)]

mod completion;
mod compressed;
mod creating;
pub(crate) mod deferred_destroy;
mod destroying;
mod entries;
mod error;
mod handle;
mod inline;
mod raw;
pub(crate) mod ring;
mod tasks;

pub use completion::{Completion, CompletionKind};
pub use compressed::Compressed;
pub use creating::CreatingCq;
pub use destroying::DestroyingCq;
pub use entries::CqEntries;
pub use error::CqError;
pub use handle::{CqEvents, CqHandle};
pub use inline::{InlineData, InlineDataError};
pub use ring::Unusual;
pub use tasks::{Next, Ready};

use core::alloc::Layout;
use core::cell::{Ref, RefCell};
use core::fmt;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::time::Duration;

use bareverbs_firmware_cmds::cq::{DestroyCqIn, ModifyCqIn};

use crate::device::dma_buffer::DmaBuffer;
use crate::device::in_flight::SlotClass;
use crate::device::{Device, TailIn};
use crate::firmware::recorder::RecordKind;
use crate::memory::arm::Arm;
use crate::memory::cqe_ring::Position;
use crate::memory::dma::DmaMemory;
use crate::memory::ring_pages::{PageOffset, RingPages};
use crate::memory::slots::{CQ_FAILED, CqSlot};
use crate::platform::{DmaError, Platform};
use crate::types::error::DeviceError;
use crate::types::wc::{Wc, WcStatus};
use crate::verbs::cq::ring::{Current, Ring};
use bareverbs_firmware_cmds::cqe::{self, OpOwn};
use bareverbs_firmware_cmds::doorbell::{self, CqArmRecord};
use bareverbs_firmware_cmds::numbers::Cqn;
use bareverbs_firmware_cmds::values::ModifyCq;

pub use bareverbs_firmware_cmds::cqe::mini::MiniFormat;
pub use bareverbs_firmware_cmds::values::CqeSize;

/// The attributes of a new CQ: `struct ibv_cq_init_attr_ex`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqInit {
    /// Completions that it holds at least.
    pub cqe: u32,
    /// The completion vector (hence interrupt) that its events use, modulo their number.
    pub comp_vector: u16,
    /// Let the device continue when the CQ overflows: completions are lost then, without an error.
    pub ignore_overrun: bool,
    /// The size of its entries, and their compression.
    pub entries: CqEntries,
}

impl CqInit {
    /// A CQ for this many completions.
    #[must_use]
    pub const fn new(cqe: u32) -> Self {
        Self {
            cqe,
            comp_vector: 0,
            ignore_overrun: false,
            entries: CqEntries::PLAIN,
        }
    }
}

/// Queues of a CQ, above which the slots of a batch's completions are prefetched. Of fewer the cache has them, and the hints would
/// only take time: the two ways take the same with about 4,000 QPs of 16 work requests.
const MANY: u32 = 1 << 13;

/// A completion queue: `struct ibv_cq`.
///
/// It may be sent to another thread but not shared: polling takes no lock.
///
/// ```compile_fail
/// use bareverbs_core::{Cq, Platform};
/// fn shared<T: Sync>() {}
/// fn no<P: Platform + Sync>() {
///     shared::<Cq<'_, P>>();
/// }
/// ```
///
/// A completion lives until the next poll, because the device gets its entry back then:
///
/// ```compile_fail
/// use bareverbs_core::{Cq, Platform};
/// fn stale<P: Platform>(cq: &mut Cq<'_, P>) {
///     let first = cq.poll().unwrap();
///     let _second = cq.poll();
///     println!("{:?}", first.map(|completion| completion.wr_id()));
/// }
/// ```
/// It need not outlive the QPs that use it as far
/// as the compiler is concerned; [`destroy`](Self::destroy) refuses while there are any, and a CQ that is dropped
/// in that state is destroyed with the last of them.
pub struct Cq<'d, P: Platform> {
    /// Not `Sync`: [`reap`](Self::reap) changes the ring through `&self`.
    ring: RefCell<Ring<'d>>,
    pub(crate) slot: &'d CqSlot,
    events: Arm,
    pub(crate) cqn: Cqn,
    pub(crate) index: u32,
    pub(crate) device: &'d Device<'d, P>,
    /// Both are given back when it is dropped.
    memory: DmaMemory,
    records: DmaMemory,
    init: CqInit,
}

/// Allocates and fills a ring of `size` entries.
fn ring_memory<'d, P: Platform>(
    device: &'d Device<'d, P>,
    size: u32,
    log_stride: u8,
) -> Result<DmaBuffer<'d, P>, CqError> {
    let len = (size as usize) << log_stride;
    let align = if len < 4096 {
        64
    } else {
        len.next_power_of_two().min(1 << 16)
    };
    let memory = memory(device, len, align)?;
    memory.fill(0, len, OpOwn::INIT.0);
    Ok(memory)
}

/// Allocates memory for a CQ.
#[inline(never)]
fn memory<'d, P: Platform>(
    device: &'d Device<'d, P>,
    len: usize,
    align: usize,
) -> Result<DmaBuffer<'d, P>, CqError> {
    Layout::from_size_align(len, align)
        .map_err(|_| DmaError::OutOfMemory)
        .and_then(|layout| device.alloc_dma(layout))
        .map_err(CqError::Memory)
}

/// The ring size for `cqe` completions, as libmlx5 rounds it.
fn ring_size<P: Platform>(device: &Device<'_, P>, cqe: u32) -> Result<u32, CqError> {
    let log_max = device.capabilities().hca.log_max_cq_sz().min(22);
    let max = 1_u32 << log_max;
    if cqe == 0 || cqe >= max {
        return Err(CqError::Size {
            asked: cqe,
            limit: max - 1,
        });
    }
    Ok((cqe + 1).next_power_of_two())
}

impl<'d, P: Platform> Device<'d, P> {
    /// Creates a CQ: `ibv_create_cq`. It holds at least as many completions as asked for ([`Cq::cqe`] says how many).
    pub fn create_cq(&'d self, init: CqInit) -> Result<Cq<'d, P>, CqError> {
        let mut creating = self.begin_cq(SlotClass::Ordinary, init)?;
        self.until(|| creating.try_finish())
    }
}

/// The result of a slow poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Slow {
    /// The result, if there is one, is in the ring.
    Polled,
    Failed,
}

/// Several polls for one update of the consumer index, which happens when this is dropped.
pub struct Batch<'c, 'd, P: Platform> {
    cq: &'c mut Cq<'d, P>,
    /// Where the ring was when the batch began.
    from: Position,
}

impl<P: Platform> Batch<'_, '_, P> {
    /// The next completion, `None` if there is none.
    #[inline(always)]
    #[expect(
        clippy::should_implement_trait,
        reason = "it lends what the next call takes back"
    )]
    pub fn next(&mut self) -> Option<Completion<'_>> {
        let ring = self.cq.ring.get_mut();
        match ring.next(|current| current) {
            Ok(current) => Some(Completion::new(current)),
            Err(Unusual::Nothing) => None,
            Err(Unusual::Something) => self.cq.next_slow().map(Completion::new),
        }
    }

    /// Hands the next completion to `handle`; `None` if there is none. `handle` is compiled for sends and for receives
    /// apart, which makes reading many fields cheaper than with [`next`](Self::next).
    #[inline(always)]
    pub fn next_with<R>(&mut self, handle: impl Fn(Completion<'_>) -> R) -> Option<R> {
        let ring = self.cq.ring.get_mut();
        match ring.next(|current| handle(Completion::new(current))) {
            Ok(result) => Some(result),
            Err(Unusual::Nothing) => None,
            Err(Unusual::Something) => {
                let found = self.cq.next_slow();
                found.map(|found| handle(Completion::new(found)))
            }
        }
    }
}

impl<P: Platform> Batch<'_, '_, P> {
    /// As [`next_with`](Self::next_with), without a call: `Err` says that there is nothing, or something that takes a call of
    /// [`next`](Self::next). Each kind has a function of its own, which gets `with`, and is one place in the code.
    #[inline(always)]
    pub fn next_usual<C, R>(
        &mut self,
        with: C,
        send: impl FnOnce(C, Completion<'_>) -> R,
        recv: impl FnOnce(C, Completion<'_>) -> R,
    ) -> Result<R, Unusual> {
        self.cq.ring.get_mut().next_by_kind(
            with,
            |with, current| send(with, Completion::new(current)),
            |with, current| recv(with, Completion::new(current)),
        )
    }

    /// Writes the next completion; false if there is none. As in [`next_with`](Self::next_with), that of a send and that of
    /// a receive apart.
    #[inline(always)]
    fn next_into(&mut self, to: &mut Wc) -> bool {
        let ring = self.cq.ring.get_mut();
        match ring.next_by_kind(&mut *to, write_wc, write_wc) {
            Ok(()) => true,
            Err(Unusual::Nothing) => false,
            Err(Unusual::Something) => {
                let found = self.cq.next_slow();
                found
                    .map(|found| Completion::new(found).write_any_wc(to))
                    .is_some()
            }
        }
    }

    /// Hands each completion of the next session of compressed ones to `each`, and returns how many there were: 0 if what
    /// comes next is something else, or nothing, which [`next`](Self::next) takes. That, like every other way to poll, also
    /// takes the completions of sessions, one by one, at the cost of a CQE each.
    ///
    /// So are taken, with a few instructions each, the successes of a receive queue that no SRQ serves, with the formats
    /// that hold the hash or the checksum.
    #[inline(always)]
    pub fn next_compressed(&mut self, mut each: impl FnMut(Compressed<'_>)) -> u32 {
        let ring = self.cq.ring.get_mut();
        ring.next_session(|wr_id, mini, session| each(Compressed::new(wr_id, mini, session)))
    }

    /// Ends the batch where something was taken, which dropping it has to find out.
    #[inline(always)]
    pub fn finish(self) {
        let mut batch = ManuallyDrop::new(self);
        let ring = batch.cq.ring.get_mut();
        ring.publish(ring.ci());
    }
}

impl<P: Platform> Drop for Batch<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        let ring = self.cq.ring.get_mut();
        if ring.entries.position() != self.from {
            ring.publish(ring.ci());
        }
    }
}

impl<'d, P: Platform> Cq<'d, P> {
    /// Takes the next completion: `None` if there is none.
    ///
    /// # Errors
    /// [`CqError::Failed`] once the device has put the CQ into error and what came before has been taken.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Completion<'_>>, CqError> {
        if self.slot.pending_flags.load(Acquire) == 0 {
            let ring = self.ring.get_mut();
            match ring.next(|current| current) {
                Ok(current) => {
                    // The completion at hand stays the host's until the next poll.
                    ring.publish(ring.ci().wrapping_sub(1));
                    return Ok(Some(Completion::new(current)));
                }
                Err(Unusual::Nothing) => return Ok(None),
                Err(Unusual::Something) => {}
            }
        }
        match self.poll_slow() {
            Slow::Polled => Ok(self.ring.get_mut().found().map(Completion::new)),
            Slow::Failed => Err(self.failure()),
        }
    }

    /// A poll that has more to do than to take a success. What it finds is left in the ring, so that the usual case needs
    /// no memory for it.
    #[cold]
    #[inline(never)]
    fn poll_slow(&mut self) -> Slow {
        if self.process_pending_flags().is_err() {
            return Slow::Failed;
        }
        if self.next_slow().is_some() {
            let ring = self.ring.get_mut();
            ring.publish(ring.ci().wrapping_sub(1));
        }
        Slow::Polled
    }

    /// Takes the next completion of any kind, also one with an error, which the flight recorder gets.
    #[cold]
    #[inline(never)]
    fn next_slow(&mut self) -> Option<Current> {
        let ring = self.ring.get_mut();
        ring.next_slow();
        let found = ring.found()?;
        if let Some(recorder) = self.device.recorder
            && let wc = Completion::new(found).to_wc()
            && !matches!(wc.status, WcStatus::Success | WcStatus::WrFlushErr)
        {
            let now = self.device.platform.now();
            recorder.push(now, RecordKind::Completion(wc.error()));
        }
        Some(found)
    }

    #[cold]
    fn failure(&self) -> CqError {
        CqError::Failed {
            cqn: self.cqn,
            syndrome: self.slot.syndrome.load(Relaxed),
        }
    }

    /// Starts a batch: polls that share one update of the consumer index.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[inline(always)]
    pub fn batch(&mut self) -> Result<Batch<'_, 'd, P>, CqError> {
        if self.slot.pending_flags.load(Acquire) != 0 {
            self.process_pending_flags()?;
        }
        if self.slot.users.load(Relaxed) > MANY {
            self.ring.get_mut().prefetch();
        }
        Ok(self.resume_batch())
    }

    /// As [`batch`](Self::batch), without a call, and without prefetching, which the C functions leave out: `None` if there is
    /// something to do besides, for which `batch` is called.
    #[inline(always)]
    pub fn usual_batch(&mut self) -> Option<Batch<'_, 'd, P>> {
        if self.slot.pending_flags.load(Acquire) != 0 {
            return None;
        }
        Some(self.resume_batch())
    }

    /// Goes on with a batch that was forgotten ([`core::mem::forget`]) rather than ended: nothing is done besides.
    #[inline(always)]
    pub fn resume_batch(&mut self) -> Batch<'_, 'd, P> {
        let from = self.ring.get_mut().entries.position();
        Batch { cq: self, from }
    }

    /// Fills `wcs` with completions: `ibv_poll_cq`. Returns how many there were.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_wcs(&mut self, wcs: &mut [Wc]) -> Result<usize, CqError> {
        let mut taken = 0;
        let mut batch = self.batch()?;
        for wc in wcs.iter_mut() {
            if !batch.next_into(wc) {
                break;
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Processes what [`CqSlot::pending_flags`] holds.
    #[cold]
    #[inline(never)]
    fn process_pending_flags(&mut self) -> Result<(), CqError> {
        self.reap();
        let ring = self.ring.get_mut();
        if self.slot.take_packets() {
            ring.expect_packets();
        }
        if self.slot.pending_flags.load(Acquire) & CQ_FAILED != 0 && !ring.is_ready() {
            return Err(self.failure());
        }
        Ok(())
    }

    /// Takes the completions of keep-alives ([`SendQueue::post_keep_alive`](crate::SendQueue::post_keep_alive)) that come
    /// next, and no others: for a CQ that is not polled for long. A failure shows in the QP's state.
    pub fn take_keep_alives(&mut self) {
        if self.slot.pending_flags.load(Acquire) == 0 {
            self.ring.get_mut().take_silent();
        }
    }

    /// Asks for an event at the next completion: `ibv_req_notify_cq`. Poll again afterwards, before going to sleep: the
    /// device gives no event for a completion that came before this request.
    ///
    /// Asking again while no event has come costs nothing: the request still stands. An event that is already under way
    /// may wake a thread that then finds no completion; it arms the CQ again.
    pub fn arm(&mut self, solicited_only: bool) {
        let ring = self.ring.get_mut();
        ring.publish(ring.ci());
        let Some(sequence) = self.events.request(self.slot, solicited_only) else {
            return;
        };
        let record = CqArmRecord::new(sequence, solicited_only, ring.ci());
        ring.record.arm(record);
        self.device.platform().write_be64(
            self.device.uar().bar_offset() + doorbell::CQ_ARM,
            record.doorbell(self.cqn).0,
        );
    }

    /// Returns `true` if an event came since the last call: `ibv_get_cq_event` and `ibv_ack_cq_events` for this one CQ.
    /// Events arrive while the device is polled ([`Device::poll`]).
    pub fn take_event(&mut self) -> bool {
        self.events.take_event(self.slot)
    }

    /// Waits for an event until `deadline` (the platform's clock), driving the device meanwhile: `ibv_get_cq_event`, for
    /// this one CQ, and acknowledged. It sleeps for the interrupt of the CQ's completion vector.
    pub fn wait_event(&mut self, deadline: Duration) -> Result<bool, DeviceError> {
        loop {
            self.device.poll()?;
            if self.take_event() {
                return Ok(true);
            }
            if !self
                .device
                .wait_completion(self.init.comp_vector, deadline)?
            {
                return Ok(self.take_event());
            }
        }
    }

    /// Completions that it holds.
    #[must_use]
    pub fn cqe(&self) -> u32 {
        self.ring().size() - 1
    }

    /// Its number.
    #[must_use]
    pub fn cqn(&self) -> Cqn {
        self.cqn
    }

    /// Completions that fitted no work request and were dropped. Anything but 0 means a broken device.
    #[must_use]
    pub fn garbage_completions(&self) -> u64 {
        self.ring().garbage
    }

    /// Bytes of device memory that it holds.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        self.memory.len() + self.records.len()
    }

    /// The ring. Only [`reap`](Self::reap) changes it through `&self`, and it calls nothing that borrows the ring
    /// again.
    fn ring(&self) -> Ref<'_, Ring<'d>> {
        self.ring.borrow()
    }

    /// Detaches destroyed QPs, as the next poll would: their slots and their memory become free.
    pub fn reap(&self) {
        let mut ring = self.ring.borrow_mut();
        deferred_destroy::reap(self.device, self.slot, self.index, &mut ring);
    }

    /// Makes it ready for another user, once its QPs are in RESET or destroyed: what lies in it is dropped, events that came are
    /// forgotten, and no task waits for it. False if it cannot be: it is in error, or more than one queue uses it.
    #[must_use]
    pub fn renew(&mut self) -> bool {
        self.slot.task.wake();
        self.forget_task();
        // Stale completions are skipped, and with them their places are the device's again.
        let nothing = matches!(self.poll(), Ok(None));
        let ring = self.ring.get_mut();
        ring.publish(ring.ci());
        self.take_event();
        nothing && self.slot.users.load(Acquire) <= 1
    }

    /// Changes the size: `ibv_resize_cq`. Completions that lie in it are kept, in order. CQs with compression or entries of 128
    /// bytes keep their size.
    pub fn resize(&mut self, cqe: u32) -> Result<(), CqError> {
        if self.init.entries.kind().is_some() || !self.device.capabilities().hca.cq_resize() {
            return Err(CqError::Unsupported);
        }
        let size = ring_size(self.device, cqe)?;
        self.reap();
        let outstanding = self.outstanding();
        if outstanding >= size {
            return Err(CqError::TooManyOutstanding { outstanding });
        }
        if size == self.ring().size() {
            return Ok(());
        }
        let memory = ring_memory(self.device, size, cqe::SIZE.ilog2() as u8)?;
        // Under this lock no other thread counts completions in the ring, which are about to get other indexes. What was
        // counted before is dealt with first.
        //
        // It is held while the command runs: the device moves to the new ring during the command, and the index of a
        // completion depends on whether it has. Polling takes no lock, and the CQ is borrowed here; the only thread that
        // waits is one that resets a QP of this CQ (`deferred_destroy::mark_stale`). In libmlx5, `mlx5_resize_cq`
        // (rdma-core, providers/mlx5/verbs.c) holds the CQ's lock for as long, and pollers wait for it.
        let mut shared = self.slot.ring.lock();
        self.reap();
        let pages = RingPages::new(memory.iova(), memory.len(), PageOffset::SixBits);
        let mut command = ModifyCqIn::new();
        // Resize: log size, page offset and page size are new.
        command
            .set_op_mod(ModifyCq::Resize.number())
            .set_cqn(self.cqn.number())
            .set_modify_field_select_resize_field_select(0b111);
        command
            .cq_context_mut()
            .set_log_cq_size(size.ilog2() as u8)
            .set_log_page_size(pages.log_page_size())
            .set_page_offset(pages.page_offset());
        let mut list = |i: usize| pages.page(i);
        if let Err(error) =
            self.device
                .execute_with(&command, TailIn::Qwords(pages.len(), &mut list), &mut [])
        {
            if error.may_still_happen() {
                memory.quarantine();
            }
            return Err(CqError::Command(error));
        }
        let ring = self.ring.get_mut();
        ring.found = None;
        // SAFETY: as at creation. The device has left the old ring: its answer came after the RESIZE_CQ completion.
        unsafe { ring.entries.move_to(memory.ptr(), size) };
        ring.publish(ring.ci());
        *shared = Some(ring.share());
        let old = core::mem::replace(&mut self.memory, memory.into_memory());
        drop(DmaBuffer::new(self.device, old));
        Ok(())
    }

    /// Completions in the ring that the host has not taken.
    fn outstanding(&self) -> u32 {
        let ring = self.ring();
        (0..ring.entries.size())
            .take_while(|&n| ring.entries.owned(ring.ci().wrapping_add(n)).is_some())
            .count() as u32
    }

    /// Sets the moderation: an event at the latest `count` completions or `period` microseconds after the first one
    /// that asks for it (`ibv_modify_cq`).
    pub fn modify(&mut self, count: u16, period: u16) -> Result<(), CqError> {
        if period > 0xfff {
            return Err(CqError::Size {
                asked: period.into(),
                limit: 0xfff,
            });
        }
        if !self.device.capabilities().hca.cq_moderation() {
            return Err(CqError::Unsupported);
        }
        let mut command = ModifyCqIn::new();
        // Period and count.
        command
            .set_cqn(self.cqn.number())
            .set_modify_field_select_resize_field_select(0b11);
        command
            .cq_context_mut()
            .set_cq_period(period)
            .set_cq_max_count(count);
        self.device
            .execute_no_output(&command)
            .map_err(CqError::Command)
    }

    /// The attributes with which it was created.
    #[must_use]
    pub fn init(&self) -> CqInit {
        self.init
    }

    /// Destroys it: `ibv_destroy_cq`. Gives it back while QPs use it, or if the firmware refuses.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn destroy(self) -> Result<(), (Self, CqError)> {
        let device = self.device;
        let mut destroying = self.begin_destroy(SlotClass::Ordinary)?;
        device.until(|| destroying.try_finish())
    }
}

impl<P: Platform> Drop for Cq<'_, P> {
    fn drop(&mut self) {
        self.slot.task.wake();
        // As a user, so that the last user to be released finds that the owner is gone.
        let busy = self.slot.users.fetch_add(1, AcqRel) != 0;
        if busy {
            self.slot.abandon();
        }
        self.reap();
        let mut command = DestroyCqIn::new();
        command.set_cqn(self.cqn.number());
        let gone = !busy
            && match self.device.execute(&command) {
                Ok(_) => true,
                Err(error) => {
                    log::warn!("{} stays with the device: {error}", self.cqn);
                    false
                }
            };
        let memory = [self.memory.take(), self.records.take()];
        let memory = if gone {
            Some(memory)
        } else {
            for memory in memory {
                self.device.quarantine(memory);
            }
            None
        };
        if busy {
            deferred_destroy::release_cq(self.device, self.slot, self.index);
            return;
        }
        *self.slot.ring.lock() = None;
        self.device.tables.free_cq(self.index);
        for memory in memory.into_iter().flatten() {
            memory.free(self.device.platform());
        }
    }
}

impl<P: Platform> fmt::Debug for Cq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("cqn", &self.cqn)
            .field("cqe", &self.cqe())
            .finish_non_exhaustive()
    }
}

/// A function rather than a closure, which the compiler would leave outside of the loop.
#[inline(always)]
fn write_wc(to: &mut Wc, current: Current) {
    Completion::new(current).write_wc(to);
}

/// One more queue uses the CQ. [`deferred_destroy::release_cq`] takes that back.
pub(crate) fn count_user(slot: &CqSlot) {
    slot.users.fetch_add(1, AcqRel);
}
