//! Creating and destroying a QP: its memory, its context, its slot.
//!
//! One block of DMA memory holds everything: receive ring, send ring, the doorbell record in a line of its own, and the
//! side arrays (identifiers by work request, counters by block), which only the driver sees. It
//! starts anywhere at a multiple of 64 bytes, so that small QPs share pages.

// UNSAFETY: says which parts of the block are the queues' and the slot's.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use bareverbs_firmware_cmds::qp::CreateQpIn;

use crate::device::xrc_objects::{NO_USER_INDEX, XrcNumbers};
use crate::device::{Device, TailIn};
use crate::memory::dma::DmaMemory;
use crate::memory::record::{DoorbellRecord, RECORD_LEN};
use crate::memory::recv_ring::{RecvRing, RecvRingParts};
use crate::memory::ring_pages::{PageOffset, RingPages};
use crate::memory::send_ring::{SendRing, SendRingParts};
use crate::memory::slots::{NONE, QpArrays, QpSlot};
use crate::platform::{DmaError, Platform};
use crate::types::sge::Access;
use crate::verbs::cq::{CqHandle, count_user};
use crate::verbs::pd::Pd;
use crate::verbs::qp::caps::{QpCap, QpKind, QueueLimits, QueueSizes, queue_sizes};
use crate::verbs::qp::init::{CreateQpError, QpInitAttr, QpInitHandles};
use crate::verbs::qp::kind::QpType;
use crate::verbs::qp::object::{DestroyQpError, QpObject};
use crate::verbs::qp::recv::RecvQueue;
use crate::verbs::qp::send::SendQueue;
use crate::verbs::qp::state::QpState;
use crate::verbs::srq::SrqHandle;
use bareverbs_firmware_cmds::doorbell;
use bareverbs_firmware_cmds::numbers::{LKey, Pdn, Qpn, Xrcdn};
use bareverbs_firmware_cmds::values::{PathMigration, RqType, TimestampFormat};
use bareverbs_firmware_cmds::wqe::{ControlWord, completion};

/// Where things lie in a QP's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    /// Bytes of both rings, receive first.
    pub(crate) rings: usize,
    /// Offset of the send ring.
    pub(crate) sq: usize,
    /// Offset of the doorbell record.
    pub(crate) record: usize,
    /// Offsets of the side arrays.
    pub(crate) sq_wr_ids: usize,
    pub(crate) rq_wr_ids: usize,
    pub(crate) sq_heads: usize,
    /// Entries of `sq_wr_ids`.
    pub(crate) wr_entries: usize,
    pub(crate) len: usize,
}

impl BlockLayout {
    /// Each array has at least one entry, so that no pointer ever dangles.
    pub(crate) const fn new(sizes: &QueueSizes) -> Self {
        let sq = sizes.rq_entries as usize * sizes.rq_stride as usize;
        let rings = sq + sizes.sq_blocks as usize * 64;
        let record = rings;
        let sq_wr_ids = record + RECORD_LEN;
        let wr_entries = (sizes.cap.max_send_wr as usize).next_power_of_two();
        let rq_wr_ids = sq_wr_ids + 8 * wr_entries;
        let rq_entries = if sizes.rq_entries == 0 {
            1
        } else {
            sizes.rq_entries as usize
        };
        let sq_heads = rq_wr_ids + 8 * rq_entries;
        let blocks = if sizes.sq_blocks == 0 {
            1
        } else {
            sizes.sq_blocks as usize
        };
        let len = (sq_heads + 4 * blocks).next_multiple_of(64);
        Self {
            rings,
            sq,
            record,
            sq_wr_ids,
            rq_wr_ids,
            sq_heads,
            wr_entries,
            len,
        }
    }
}

impl BlockLayout {
    /// Makes no block the start of a work request that could be outstanding: all counters are the one before the first.
    pub(crate) fn reset_wqe_heads(&self, block: &DmaMemory) {
        block.fill(self.sq_heads, self.len - self.sq_heads, 0xff);
    }
}

/// A queue pair: `struct ibv_qp`. Destroyed when dropped.
///
/// # Methods, in the order of use
///
/// With libibverbs' names, where it has them.
///
/// * **What it is**:
///   [`qpn`](Self::qpn) (`qp->qp_num`), [`state`](Self::state) (`qp->state`),
///   [`query`](Self::query) (`ibv_query_qp`), [`device`](Self::device) (`qp->context`)
/// * **Connecting**:
///   [`endpoint`](Self::endpoint), [`connect`](Self::connect), [`bring_to_rts`](Self::bring_to_rts),
///   [`modify`](Self::modify) (`ibv_modify_qp`)
/// * **Data**:
///   [`send_queue`](Self::send_queue) (`ibv_post_send`), [`recv_queue`](Self::recv_queue) (`ibv_post_recv`),
///   [`split`](Self::split)
pub struct Qp<'d, P: Platform, T: QpType> {
    pub(crate) sq: SendQueue<'d, P, T>,
    pub(crate) rq: RecvQueue<'d>,
    pub(crate) object: QpObject<'d, P>,
}

impl<'d, P: Platform> Device<'d, P> {
    /// The device's limits on queues, for [`queue_sizes`].
    #[must_use]
    pub fn queue_limits(&self) -> QueueLimits {
        let caps = &self.capabilities().hca;
        QueueLimits::new(
            caps.max_wqe_sz_sq(),
            caps.max_wqe_sz_rq(),
            caps.log_max_qp_sz(),
        )
    }
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates a QP in state RESET: `ibv_create_qp`. `init.cap` is updated to what was given, which is at least what
    /// was asked for. (An XRC target is made by [`Xrcd::create_qp`](crate::verbs::xrc::Xrcd::create_qp), and does not compile here.)
    pub fn create_qp<T: QpType>(
        &self,
        init: &mut QpInitAttr<'_, 'd, P>,
    ) -> Result<Qp<'d, P, T>, CreateQpError> {
        let mut handles = init.handles();
        let mut created = self.create_qp_by_handles(&mut handles);
        if let Err(CreateQpError::NoSlot { .. }) = created {
            // Destroyed QPs may still wait until the poller of these CQs detaches them.
            init.send_cq.reap();
            init.recv_cq.reap();
            created = self.create_qp_by_handles(&mut handles);
        }
        init.cap = handles.cap;
        created
    }

    /// The same on CQs and an SRQ that another caller owns. (If all slots are in use, that of a destroyed QP may become
    /// free once its CQs are polled.)
    pub fn create_qp_by_handles<T: QpType>(
        &self,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<Qp<'d, P, T>, CreateQpError> {
        const {
            assert!(
                !matches!(T::KIND, QpKind::XrcRecv),
                "an XRC target is made in its domain: `Xrcd::create_qp`"
            );
        }
        create(CreateQpArgs {
            kind: T::KIND,
            device: self.device,
            pdn: Some(self.pdn()),
            xrcdn: None,
            send_cq: Some(&init.send_cq),
            recv_cq: Some(&init.recv_cq).filter(|_| !T::XRC),
            srq: init.srq.as_ref(),
            cap: &mut init.cap,
            sq_sig_all: init.sq_sig_all,
        })
        .map(Qp::of)
    }
}

/// What a QP is made of.
pub(crate) struct CreateQpArgs<'a, 'd, P: Platform> {
    pub(crate) kind: QpKind,
    pub(crate) device: &'d Device<'d, P>,
    /// The base's, without one.
    pub(crate) pdn: Option<Pdn>,
    /// Of an XRC target.
    pub(crate) xrcdn: Option<Xrcdn>,
    pub(crate) send_cq: Option<&'a CqHandle<'d, P>>,
    pub(crate) recv_cq: Option<&'a CqHandle<'d, P>>,
    pub(crate) srq: Option<&'a SrqHandle<'d, P>>,
    pub(crate) cap: &'a mut QpCap,
    pub(crate) sq_sig_all: bool,
}

impl<P: Platform> CreateQpArgs<'_, '_, P> {
    fn check(&self) -> Result<(), CreateQpError> {
        let same = |other: &Device<'_, P>| core::ptr::addr_eq(self.device, other);
        let cqs = [self.send_cq, self.recv_cq];
        if !cqs.iter().flatten().all(|cq| same(cq.device))
            || !self.srq.is_none_or(|srq| same(srq.device))
        {
            return Err(CreateQpError::OtherDevice);
        }
        if let Some(srq) = self.srq {
            if !matches!(self.kind, QpKind::Rc | QpKind::Ud) {
                return Err(CreateQpError::NoSrq { kind: self.kind });
            }
            if srq.xrc {
                return Err(CreateQpError::XrcSrq);
            }
        }
        let caps = self.device.capabilities();
        if caps.hca.cqe_version() == 0 {
            return Err(CreateQpError::NoUserIndex);
        }
        let xrc = matches!(self.kind, QpKind::XrcSend | QpKind::XrcRecv);
        if xrc && !caps.has_xrc() {
            return Err(CreateQpError::NoXrc);
        }
        Ok(())
    }
}

/// Creates a QP, with what the contexts of XRC name beside it.
pub(crate) fn create<'d, P: Platform>(
    args: CreateQpArgs<'_, 'd, P>,
) -> Result<QpObject<'d, P>, CreateQpError> {
    args.check()?;
    let device = args.device;
    if args.kind == QpKind::Gsi {
        if device.gsi_taken.swap(true, AcqRel) {
            return Err(CreateQpError::GsiTaken);
        }
        let created = create_with(args, None);
        if created.is_err() {
            device.gsi_taken.store(false, Release);
        }
        return created;
    }
    if !args.kind.is_xrc() {
        return create_with(args, None);
    }
    let base = device.acquire_xrc_base()?;
    let created = create_with(args, Some(base));
    if created.is_err() {
        device.release_xrc_base();
    }
    created
}

fn create_with<'d, P: Platform>(
    args: CreateQpArgs<'_, 'd, P>,
    base: Option<XrcNumbers>,
) -> Result<QpObject<'d, P>, CreateQpError> {
    let device = args.device;
    let sizes = queue_sizes(
        args.kind,
        args.cap,
        args.srq.is_some() || args.kind.is_xrc(),
        &device.queue_limits(),
    )
    .map_err(CreateQpError::Cap)?;
    let layout = BlockLayout::new(&sizes);
    let align = QpSlot::BLOCK_ALIGN;
    let memory_layout = Layout::from_size_align(layout.len, align)
        .map_err(|_| CreateQpError::Memory(DmaError::OutOfMemory))?;
    let block = device
        .alloc_dma(memory_layout)
        .map_err(CreateQpError::Memory)?;
    layout.reset_wqe_heads(&block);
    let tables = &device.tables;
    let index = tables.alloc_qp();
    let Some(index) = index else {
        return Err(CreateQpError::NoSlot {
            limit: tables.qps.len(),
        });
    };

    let pages = RingPages::new(block.iova(), layout.rings.max(64), PageOffset::SixBits);
    let (command, ids) = context(&args, base, &sizes, index, &block, &layout);
    let mut list = |i: usize| pages.page(i);
    // A target has no memory.
    let count = if args.kind == QpKind::XrcRecv {
        0
    } else {
        pages.len()
    };
    let qpn = match device.execute_with(&command, TailIn::Qwords(count, &mut list), &mut []) {
        Ok(out) => Qpn::from_low_bits(out.qpn()),
        Err(error) => {
            tables.free_qp(index);
            if error.may_still_happen() {
                block.quarantine();
            }
            return Err(CreateQpError::Command(error));
        }
    };

    *args.cap = sizes.cap;
    let slot = &tables.qps[index as usize];
    let srq = args.srq.map(|srq| srq.index);
    slot.srq.store(srq.unwrap_or(NONE), Relaxed);
    let arrays = QpArrays {
        heads: block.part(layout.sq_heads),
        blocks: sizes.sq_blocks.max(1),
        send_ids: block.part(layout.sq_wr_ids),
        sends: layout.wr_entries as u32,
        recv_ids: block.part(layout.rq_wr_ids),
        recvs: sizes.rq_entries.max(1),
    };
    // SAFETY: the arrays lie in the block as `BlockLayout` divides it. The object keeps the block until it is dropped,
    // and then moves it to the slot, which frees it when the QP is detached from its last CQ.
    unsafe { slot.publish(arrays) };
    for (side, cq) in [args.send_cq, args.recv_cq].into_iter().enumerate() {
        // Release: a poller that finds its CQ here finds the arrays, too.
        slot.cqs[side].store(cq.map_or(NONE, |cq| cq.index), Release);
        if let Some(cq) = cq {
            count_user(cq.slot);
        }
    }
    if let Some(srq) = args.srq {
        srq.slot.users.fetch_add(1, AcqRel);
        srq.slot.pins.fetch_add(1, AcqRel);
    }
    slot.qpn_tag.store(qpn.number(), Release);

    Ok(QpObject {
        kind: args.kind,
        device,
        slot,
        block,
        queues_swapped: false,
        index,
        qpn,
        pdn: ids.pdn,
        sizes,
        state: QpState::Reset,
        sq_sig_all: args.sq_sig_all,
        cqns: ids.cqns,
        port: 1,
        access: Access::empty(),
        responder_depth: 0,
        srq,
        groups: 0,
    })
}

/// Numbers that the transitions repeat.
struct QpcIds {
    pdn: Pdn,
    /// Send and receive; 0 for none.
    cqns: [u32; 2],
}

/// The command, whose context names everything that the QP uses.
fn context<P: Platform>(
    args: &CreateQpArgs<'_, '_, P>,
    base: Option<XrcNumbers>,
    sizes: &QueueSizes,
    index: u32,
    block: &DmaMemory,
    layout: &BlockLayout,
) -> (CreateQpIn, QpcIds) {
    let device = args.device;
    let pages = RingPages::new(block.iova(), layout.rings.max(64), PageOffset::SixBits);
    let cqns = [args.send_cq, args.recv_cq].map(|cq| cq.map(|cq| cq.cqn.number()));
    let unused = base.map_or(0, |base| base.cqn);
    let pdn = args
        .pdn
        .unwrap_or(Pdn::from_low_bits(base.map_or(0, |base| base.pdn)));
    let mut command = CreateQpIn::new();
    let qpc = command.qpc_mut();
    qpc.set_st(args.kind.service())
        .set_pm_state(PathMigration::Migrated.number())
        .set_pd(pdn.number())
        .set_cqn_snd(cqns[0].unwrap_or(unused))
        .set_cqn_rcv(cqns[1].unwrap_or(unused));
    let ids = QpcIds {
        pdn,
        cqns: cqns.map(Option::unwrap_or_default),
    };
    // Time stamps free running, unless the device has only the kind that it calls default.
    let caps = device.capabilities();
    if caps.roce.is_some_and(|roce| roce.qp_ts_format() == 1) {
        qpc.set_ts_format(TimestampFormat::Default.number());
    }
    if let Some(base) = base {
        let xrcdn = args.xrcdn.map_or(base.xrcdn, |xrcdn| xrcdn.number());
        qpc.set_xrcd(xrcdn)
            .set_rq_type(RqType::Srq.number())
            .set_srqn_rmpn_xrqn(base.srqn);
    }
    if args.kind == QpKind::XrcRecv {
        // Its completions are the SRQs'.
        qpc.set_no_sq(true).set_user_index(NO_USER_INDEX);
        return (command, ids);
    }
    qpc.set_uar_page(device.qp_uar().number())
        .set_user_index(index)
        .set_log_page_size(pages.log_page_size())
        .set_page_offset(pages.page_offset())
        .set_dbr_addr(block.iova() + layout.record as u64);
    match sizes.sq_blocks.checked_ilog2() {
        Some(log) => qpc.set_log_sq_size(log as u8),
        None => qpc.set_no_sq(true),
    };
    match (args.srq, sizes.rq_entries.checked_ilog2()) {
        _ if args.kind.is_xrc() => qpc,
        (Some(srq), _) => qpc
            .set_rq_type(RqType::Srq.number())
            .set_srqn_rmpn_xrqn(srq.srqn.number()),
        (None, Some(log)) => qpc
            .set_log_rq_size(log as u8)
            .set_log_rq_stride((sizes.rq_stride.ilog2() - 4) as u8),
        (None, None) => qpc.set_rq_type(RqType::ZeroSize.number()),
    };
    (command, ids)
}

/// Whether these are the doorbell record of a QP's block. Queues with other records lie in another block.
fn lie_in(block: &DmaMemory, sizes: &QueueSizes, records: [DoorbellRecord; 2]) -> bool {
    let own = block.part(BlockLayout::new(sizes).record);
    records.iter().all(|record| record.is_at(own))
}

impl<'d, P: Platform, T: QpType> Qp<'d, P, T> {
    /// An object that was just created, with its queues.
    pub(crate) fn of(object: QpObject<'d, P>) -> Self {
        let (device, sizes) = (object.device, &object.sizes);
        let layout = BlockLayout::new(sizes);
        let send_parts = SendRingParts {
            base: object.block.part(layout.sq),
            wr_ids: object.block.part(layout.sq_wr_ids),
            heads: object.block.part(layout.sq_heads),
            blocks: sizes.sq_blocks.max(1),
            wrs: layout.wr_entries as u32,
        };
        let recv_parts = RecvRingParts {
            lists: object.block.ptr(),
            wr_ids: object.block.part(layout.rq_wr_ids),
            entries: sizes.rq_entries.max(1),
            log_stride: sizes.rq_stride.max(16).ilog2() as u8,
            max_sge: sizes.cap.max_recv_sge as u16,
            terminator: LKey(device.list_terminator),
        };
        // SAFETY: the parts lie in the block as `BlockLayout` divides it, and the object keeps the block for as long as
        // it and its queues live; if another QP has got a queue by `mem::swap`, the block stays allocated until the
        // device is closed (`QpObject::release`). A queue without WQEs has the record's line for a ring, which is never
        // posted to: its capacity is 0.
        let (send_ring, recv_ring, record) = unsafe {
            let record = DoorbellRecord::new(object.block.part(layout.record));
            (SendRing::new(send_parts), RecvRing::new(recv_parts), record)
        };
        Self {
            sq: SendQueue {
                ring: send_ring,
                record,
                slot: object.slot,
                device,
                doorbell: (device.qp_uar().bar_offset() + doorbell::SEND) as u32,
                control: ControlWord::of_queue(object.qpn).0 as u32,
                head: 0,
                tail: 0,
                capacity: 0,
                max_inline: sizes.cap.max_inline_data as u16,
                max_sge: sizes.cap.max_send_sge as u8,
                always: if object.sq_sig_all {
                    completion::ALWAYS
                } else {
                    completion::ON_ERROR
                },
                blue_flame: match P::WRITE_COMBINING {
                    true => device.blue_flame.blocks(),
                    false => 0,
                },
                atomics: device.capabilities().has_atomics(),
                kind: PhantomData,
            },
            rq: RecvQueue {
                ring: recv_ring,
                record,
                slot: object.slot,
                head: 0,
                tail: 0,
                capacity: 0,
            },
            object,
        }
    }

    /// Its number. (That of a GSI QP is the device's for the object; on the wire it is 1.)
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.object.qpn
    }

    /// Its state as the host has recorded it: that of the last [`modify`](Self::modify), or SQE or ERR once a polled
    /// completion has reported an error. The device may change the state by itself; [`query`](Self::query) asks it.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.object.known_state()
    }

    /// What its queues hold.
    #[must_use]
    pub fn cap(&self) -> QpCap {
        self.object.sizes.cap
    }

    /// Whether it receives from an SRQ.
    #[must_use]
    pub fn has_srq(&self) -> bool {
        self.object.srq.is_some()
    }

    /// The protection domain that it belongs to.
    #[must_use]
    pub fn pdn(&self) -> Pdn {
        self.object.pdn
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &'d Device<'d, P> {
        self.object.device
    }

    /// The send half. (Swapped with another QP's it stays usable, but neither QP can be modified until it is swapped back,
    /// and the memory of one that is destroyed before stays allocated until the device is closed.)
    #[inline(always)]
    pub fn send_queue(&mut self) -> &mut SendQueue<'d, P, T> {
        &mut self.sq
    }

    /// The receive half.
    #[inline(always)]
    pub fn recv_queue(&mut self) -> &mut RecvQueue<'d> {
        &mut self.rq
    }

    /// Both halves, for two threads.
    pub fn split(&mut self) -> (&mut SendQueue<'d, P, T>, &mut RecvQueue<'d>) {
        (&mut self.sq, &mut self.rq)
    }

    /// Checks whether the queues are those that it was created with.
    pub(super) fn check_queues(&mut self) {
        let records = [self.sq.record, self.rq.record];
        self.object.queues_swapped = !lie_in(&self.object.block, &self.object.sizes, records);
    }

    /// Bytes of device memory that it holds: rings, records, side arrays.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        self.object.block.len()
    }

    /// Destroys it: `ibv_destroy_qp`. Completions that were not polled yet are gone with it. Gives it back if the firmware
    /// refuses, or while it is in a multicast group.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn destroy(self) -> Result<(), (Self, DestroyQpError)> {
        let mut this = ManuallyDrop::new(self);
        this.check_queues();
        let destroyed = this.object.destroy();
        destroyed.map_err(|error| (ManuallyDrop::into_inner(this), error))
    }
}

impl<P: Platform, T: QpType> Drop for Qp<'_, P, T> {
    fn drop(&mut self) {
        // The object, which goes next, destroys it.
        self.check_queues();
    }
}

impl<P: Platform, T: QpType> fmt::Debug for Qp<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("kind", &T::KIND)
            .field("qpn", &self.object.qpn)
            .field("state", &self.object.state)
            .field("cap", &self.object.sizes.cap)
            .finish_non_exhaustive()
    }
}
