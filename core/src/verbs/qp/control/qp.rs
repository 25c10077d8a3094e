//! A QP of a type that is known when the code is compiled: the object, and its queues.

// UNSAFETY: says which parts of the block are the queues' and the slot's.
#![expect(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use crate::device::Device;
use crate::device::in_flight::SlotClass;
use crate::memory::dma::DmaMemory;
use crate::memory::record::DoorbellRecord;
use crate::memory::recv_ring::{RecvRing, RecvRingParts};
use crate::memory::send_ring::{Cursor, SendRing, SendRingParts, Wqe};
use crate::platform::Platform;
use crate::types::qp::QpState;
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::destroy::DestroyQpError;
use crate::verbs::qp::control::init_attr::QpInitHandles;
use crate::verbs::qp::control::object::QpObject;
use crate::verbs::qp::queue::block::BlockLayout;
use crate::verbs::qp::queue::recv::RecvQueue;
use crate::verbs::qp::queue::send::SendQueue;
use crate::verbs::qp::queue::sizes::{QpCap, QueueSizes, queue_sizes};
use crate::verbs::qp::queue::slow_path_arguments::Late;
use crate::verbs::qp::route::raw_packet::Packets;
use crate::verbs::qp::route::service::QpType;
use bareverbs_firmware_cmds::doorbell;
use bareverbs_firmware_cmds::numbers::{LKey, Pdn, Qpn};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{ControlFlags, completion};

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
/// * **Without waiting for the firmware**:
///   [`Pd::start_create_qp`], [`start_modify`](Self::start_modify), [`start_destroy`](Self::start_destroy);
///   in tasks these are awaited, and [`modifying`](Self::modifying)
/// * **Data**:
///   [`send_queue`](Self::send_queue) (`ibv_post_send`), [`recv_queue`](Self::recv_queue) (`ibv_post_recv`),
///   [`split`](Self::split)
pub struct Qp<'d, P: Platform, T: QpType> {
    pub(crate) sq: SendQueue<'d, P, T>,
    pub(crate) rq: RecvQueue<'d>,
    pub(crate) object: QpObject<'d, P>,
}

/// Returns `true` if these are the doorbell record of a QP's block. Queues with other records lie in another block.
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
            // Without WQEs there is no room for a list.
            max_sge: if sizes.rq_entries == 0 {
                0
            } else {
                sizes.cap.max_recv_sge as u16
            },
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
                cursor: Cursor::new(object.qpn),
                always: ControlFlags::new(
                    if object.sq_sig_all {
                        completion::ALWAYS
                    } else {
                        completion::ON_ERROR
                    },
                    0,
                )
                .to_memory(),
                head: 0,
                limit: 0,
                capacity: 0,
                max_inline: sizes.cap.max_inline_data as u16,
                blue_flame: match P::WRITE_COMBINING {
                    true => device.blue_flame.bytes(),
                    false => 0,
                },
                short_inline: (sizes.cap.max_inline_data as usize).min(Wqe::SHORT),
                max_sge: sizes.cap.max_send_sge as u8,
                atomics: match T::DYNAMIC {
                    true => device.capabilities().has_dc_atomics(),
                    false => device.capabilities().has_atomics(),
                },
                late: Late::none(Cursor::new(object.qpn)),
                packets: Packets::NONE,
                kind: PhantomData,
            },
            rq: RecvQueue {
                ring: recv_ring,
                record,
                slot: object.slot,
                head: 0,
                limit: 0,
                capacity: 0,
                late: 0,
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

    /// Returns `true` if every request reports its completion ([`QpInitAttr::sq_sig_all`](crate::QpInitAttr::sq_sig_all)).
    #[must_use]
    pub fn sq_sig_all(&self) -> bool {
        self.object.sq_sig_all
    }

    /// Returns `true` if it receives from an SRQ.
    #[must_use]
    pub fn has_srq(&self) -> bool {
        self.object.srq.is_some()
    }

    /// Returns `true` if a QP that is created with `init` in `pd` would be as this one was: of the same sizes, on the same
    /// CQs.
    #[must_use]
    pub fn is_as_created(&self, pd: &Pd<'d, P>, init: &QpInitHandles<'d, P>) -> bool {
        let object = &self.object;
        let limits = object.device.queue_limits();
        core::ptr::addr_eq(object.device, pd.device())
            && object.pdn == pd.pdn()
            && object.cqns == [&init.send_cq, &init.recv_cq].map(|cq| cq.cqn.number())
            && (object.srq, object.sq_sig_all)
                == (init.srq.as_ref().map(|srq| srq.index), init.sq_sig_all)
            && queue_sizes(T::KIND, &init.cap, init.srq.is_some(), &limits)
                .is_ok_and(|sizes| sizes == object.sizes)
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
    pub(in crate::verbs::qp) fn check_queues(&mut self) {
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
        let device = self.device();
        let mut destroying = self.begin_destroy(SlotClass::Ordinary)?;
        device.until(|| destroying.try_finish())
    }
}

impl<P: Platform, T: QpType> Drop for Qp<'_, P, T> {
    fn drop(&mut self) {
        // The object, which goes next, destroys it, unless it is gone already.
        if !self.object.is_gone() {
            self.check_queues();
        }
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
