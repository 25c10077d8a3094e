//! A QP whose type is a value: the object and its queues. [`Qp`](crate::Qp) is one whose type is known when the code is compiled.

// UNSAFETY: says which parts of the block are the queues' and the slot's.
#![expect(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use crate::device::Device;
use crate::memory::dma::DmaMemory;
use crate::memory::record::DoorbellRecord;
use crate::memory::recv_ring::{RecvRing, RecvRingParts};
use crate::memory::send_ring::{Cursor, SendRing, SendRingParts, Wqe};
use crate::platform::Platform;
use crate::types::qp::{QpKind, QpState};
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::init_attr::QpInitHandles;
use crate::verbs::qp::control::object::QpObject;
use crate::verbs::qp::queue::block::BlockLayout;
use crate::verbs::qp::queue::recv::RecvQueue;
use crate::verbs::qp::queue::send::SendQueue;
use crate::verbs::qp::queue::sizes::{QpCap, QueueSizes, queue_sizes};
use crate::verbs::qp::queue::slow_path_arguments::Late;
use crate::verbs::qp::route::raw_packet::Packets;
use crate::verbs::qp::route::service::{QpType, Rc};
use bareverbs_firmware_cmds::doorbell;
use bareverbs_firmware_cmds::numbers::{LKey, Pdn, Qpn};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{ControlFlags, completion};

/// A queue pair of any type: number, state and control, and its queues by request. Destroyed when dropped.
///
/// A [`Qp`](crate::Qp) is a `DynQp` of a type that is known when the code is compiled. A program that learns the type while it
/// runs creates it with [`Pd::create_dyn_qp_by_handles`], keeps it like this, and asks for the queue of the type that it posts
/// to ([`send_queue`](Self::send_queue)).
///
/// It has the calls of `Qp` except [`bring_to_rts`](crate::Qp::bring_to_rts), [`modifying`](crate::Qp::modifying) and those that
/// some types alone have: multicast groups, connections, streams of DCIs. [`as_qp_mut`](Self::as_qp_mut) lends the `Qp`
/// for these.
pub struct DynQp<'d, P: Platform> {
    /// Holds the place of a queue of the QP's type: [`queue_of`].
    pub(in crate::verbs::qp) sq: SendQueue<'d, P, Rc>,
    pub(in crate::verbs::qp) rq: RecvQueue<'d>,
    pub(in crate::verbs::qp) object: QpObject<'d, P>,
}

/// Lends the send queue as one of the type that the QP is of.
#[inline(always)]
pub(in crate::verbs::qp) fn queue_of<'q, 'd, P: Platform, T: QpType>(
    queue: &'q mut SendQueue<'d, P, Rc>,
) -> &'q mut SendQueue<'d, P, T> {
    let queue: *mut SendQueue<'d, P, T> = core::ptr::from_mut(queue).cast();
    // SAFETY: both types are `repr(C)` with the same fields in the same order, and differ in the parameter of a `PhantomData`
    // alone, which has no bytes. The new reference borrows what the one given did.
    unsafe { &mut *queue }
}

/// Returns `true` if these are the doorbell record of a QP's block. Queues with other records lie in another block.
fn lie_in(block: &DmaMemory, sizes: &QueueSizes, records: [DoorbellRecord; 2]) -> bool {
    let own = block.part(BlockLayout::new(sizes).record);
    records.iter().all(|record| record.is_at(own))
}

impl<'d, P: Platform> DynQp<'d, P> {
    /// An object that was just created, with its queues.
    #[inline(always)]
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
                atomics: match object.kind {
                    QpKind::Dci => device.capabilities().has_dc_atomics(),
                    _ => device.capabilities().has_atomics(),
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

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> QpKind {
        self.object.kind
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

    /// The sizes of its queues.
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
            && queue_sizes(object.kind, &init.cap, init.srq.is_some(), &limits)
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

    /// The send half, for QPs of this type; `None` if this one is of another. See [`Qp::send_queue`](crate::Qp::send_queue).
    #[inline]
    pub fn send_queue<T: QpType>(&mut self) -> Option<&mut SendQueue<'d, P, T>> {
        (self.object.kind == T::KIND).then(|| queue_of(&mut self.sq))
    }

    /// The receive half, which is the same for every type.
    #[inline]
    pub fn recv_queue(&mut self) -> &mut RecvQueue<'d> {
        &mut self.rq
    }

    /// Both halves, for two threads; `None` if the QP is of another type.
    #[inline]
    pub fn split<T: QpType>(&mut self) -> Option<(&mut SendQueue<'d, P, T>, &mut RecvQueue<'d>)> {
        (self.object.kind == T::KIND).then(|| (queue_of(&mut self.sq), &mut self.rq))
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
}

impl<P: Platform> Drop for DynQp<'_, P> {
    fn drop(&mut self) {
        // The object, which goes next, destroys it, unless it is gone already.
        if !self.object.is_gone() {
            self.check_queues();
        }
    }
}

impl<P: Platform> fmt::Debug for DynQp<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynQp")
            .field("kind", &self.object.kind)
            .field("qpn", &self.object.qpn)
            .field("state", &self.object.state)
            .field("cap", &self.object.sizes.cap)
            .finish_non_exhaustive()
    }
}
