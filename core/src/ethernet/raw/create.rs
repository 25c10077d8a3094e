//! Creating a raw packet QP: its queues, its slot, and where frames go in and out.
//!
//! Each queue has a block of DMA memory with its ring and its doorbell record. What the poller reads beside completions
//! (identifiers by work request, counters by block) is in a third one, which outlives the queues until the QP is detached
//! from its CQs.

// UNSAFETY: says which parts of the blocks are the queues' and the slot's.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Relaxed, Release};

use bareverbs_firmware_cmds::doorbell;
use bareverbs_firmware_cmds::numbers::{LKey, Qpn};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{ControlFlags, completion};

use crate::device::Device;
use crate::ethernet::domain::EthernetDomain;
use crate::ethernet::limits::Limits;
use crate::ethernet::objects::{Object, QueueMemory, WorkQueue};
use crate::ethernet::offload::EthernetSendFlags;
use crate::ethernet::raw::RawPacketQp;
use crate::ethernet::raw::error::RawPacketError;
use crate::ethernet::raw::object::RawObject;
use crate::ethernet::work_queues::Completes;
use crate::memory::record::DoorbellRecord;
use crate::memory::recv_ring::{RecvRing, RecvRingParts};
use crate::memory::send_ring::{Cursor, SendRing, SendRingParts, Wqe};
use crate::memory::slots::{NONE, PACKETS, QpArrays, QpSlot};
use crate::platform::{DmaError, Platform};
use crate::types::qp::{QpKind, QpState};
use crate::verbs::cq::{CqHandle, count_user};
use crate::verbs::pd::Pd;
use crate::verbs::qp::Late;
use crate::verbs::qp::Packets;
use crate::verbs::qp::caps::{CapError, QpCap, QueueSizes, queue_sizes};
use crate::verbs::qp::recv::RecvQueue;
use crate::verbs::qp::send::SendQueue;
use crate::verbs::qp::{CreateQpError, QpInitAttr, QpInitHandles};

/// Bytes of the Ethernet segment that inline headers fill before they go on behind it.
const IN_SEGMENT: usize = 2;

/// What the poller reads beside completions, by its place in a block.
struct Arrays {
    send_ids: usize,
    recv_ids: usize,
    heads: usize,
    len: usize,
    /// Entries, each a power of two.
    sends: u32,
    recvs: u32,
    blocks: u32,
}

impl Arrays {
    /// Each has one entry at least, so that no pointer ever dangles.
    fn new(sizes: &QueueSizes) -> Self {
        let sends = sizes.cap.max_send_wr.max(1).next_power_of_two();
        let recvs = sizes.rq_entries.max(1);
        let blocks = sizes.sq_blocks.max(1);
        let recv_ids = 8 * sends as usize;
        let heads = recv_ids + 8 * recvs as usize;
        Self {
            send_ids: 0,
            recv_ids,
            heads,
            len: (heads + 4 * blocks as usize).next_multiple_of(64),
            sends,
            recvs,
            blocks,
        }
    }
}

/// A slot until it is a QP's.
struct FreeSlot<'d, P: Platform> {
    device: &'d Device<'d, P>,
    index: Option<u32>,
}

impl<P: Platform> Drop for FreeSlot<'_, P> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.device.tables.free_qp(index);
        }
    }
}

/// The sizes of a QP's queues. Headers that have to be inline take the place of entries.
fn sizes(
    asked: &QpCap,
    limits: &Limits,
    device: &Device<'_, impl Platform>,
) -> Result<QueueSizes, RawPacketError> {
    let cap_error = |error| RawPacketError::Create(CreateQpError::Cap(error));
    let headers = limits.min_inline().saturating_sub(IN_SEGMENT).div_ceil(16) as u32;
    let mut wanted = *asked;
    if asked.max_send_wr != 0 {
        wanted.max_send_sge = asked.max_send_sge.saturating_add(headers);
        if headers != 0 && asked.max_inline_data != 0 {
            // What is inline starts anew behind the headers.
            wanted.max_inline_data = asked.max_inline_data.saturating_add(16);
        }
    }
    let refused = |error: CapError| {
        let less = match error.field {
            "max_send_sge" => headers,
            "max_inline_data" if headers != 0 => 16,
            _ => 0,
        };
        cap_error(CapError {
            asked: error.asked.saturating_sub(less),
            limit: error.limit.saturating_sub(less),
            ..error
        })
    };
    let kind = QpKind::RawPacket;
    let mut sizes = queue_sizes(kind, &wanted, false, &device.queue_limits()).map_err(refused)?;
    if sizes.sq_blocks != 0 {
        sizes.cap.max_send_sge = asked.max_send_sge;
        if headers != 0 {
            sizes.cap.max_inline_data = sizes.cap.max_inline_data.saturating_sub(16);
        }
    }
    let most = 1_u32 << limits.log_queue;
    if sizes.sq_blocks > most {
        let each = (sizes.sq_wqe / 64).max(1);
        return Err(cap_error(CapError {
            field: "max_send_wr",
            asked: asked.max_send_wr,
            limit: most / each,
        }));
    }
    if sizes.rq_entries > most {
        return Err(cap_error(CapError {
            field: "max_recv_wr",
            asked: asked.max_recv_wr,
            limit: most,
        }));
    }
    Ok(sizes)
}

impl<'d, P: Platform> EthernetDomain<'d, P> {
    /// Creates a raw packet QP in state RESET: `ibv_create_qp` with `IBV_QPT_RAW_PACKET`. `init.cap` is updated to what was
    /// given. Without sends or without receives it has only the other queue.
    ///
    /// # Errors
    /// [`RawPacketError`] says which size or which capability is missing, or what the firmware refused.
    pub fn create_raw_packet_qp(
        &self,
        pd: &Pd<'d, P>,
        init: &mut QpInitAttr<'_, 'd, P>,
    ) -> Result<RawPacketQp<'d, P>, RawPacketError> {
        let mut handles = init.handles();
        let mut created = self.create_raw_packet_qp_by_handles(pd, &mut handles);
        if let Err(RawPacketError::Create(CreateQpError::NoSlot { .. })) = created {
            // Destroyed QPs may still wait until the poller of these CQs detaches them.
            init.send_cq.reap();
            init.recv_cq.reap();
            created = self.create_raw_packet_qp_by_handles(pd, &mut handles);
        }
        init.cap = handles.cap;
        created
    }

    /// The same on CQs that another caller owns.
    ///
    /// # Errors
    /// The errors are those of [`create_raw_packet_qp`](Self::create_raw_packet_qp).
    pub fn create_raw_packet_qp_by_handles(
        &self,
        pd: &Pd<'d, P>,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<RawPacketQp<'d, P>, RawPacketError> {
        self.create_packet_queues(pd, init, true)
    }

    /// Creates a receive queue that an [indirection table](crate::IndirectionTable) can name, in state RESET:
    /// `ibv_create_wq`. It is a raw packet QP without sends and without a target of its own; `IBV_WQS_RDY` is its INIT.
    ///
    /// # Errors
    /// The errors are those of [`create_raw_packet_qp`](Self::create_raw_packet_qp).
    pub fn create_work_queue_by_handles(
        &self,
        pd: &Pd<'d, P>,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<RawPacketQp<'d, P>, RawPacketError> {
        (init.cap.max_send_wr, init.cap.max_send_sge) = (0, 0);
        init.cap.max_inline_data = 0;
        self.create_packet_queues(pd, init, false)
    }

    fn create_packet_queues(
        &self,
        pd: &Pd<'d, P>,
        init: &mut QpInitHandles<'d, P>,
        target: bool,
    ) -> Result<RawPacketQp<'d, P>, RawPacketError> {
        let (device, limits) = (self.device, &self.limits);
        let same = |other: &Device<'_, P>| core::ptr::addr_eq(device, other);
        let cqs = [&init.send_cq, &init.recv_cq];
        if !same(pd.device()) || !cqs.iter().all(|cq| same(cq.device)) {
            return Err(CreateQpError::OtherDevice.into());
        }
        let kind = QpKind::RawPacket;
        if init.srq.is_some() {
            return Err(CreateQpError::NoSrq { kind }.into());
        }
        if device.capabilities().hca.cqe_version() == 0 {
            return Err(CreateQpError::NoUserIndex.into());
        }
        let sizes = sizes(&init.cap, limits, device)?;
        if sizes.sq_blocks == 0 && sizes.rq_entries == 0 {
            return Err(RawPacketError::NoQueue);
        }
        let arrays = Arrays::new(&sizes);
        let layout = Layout::from_size_align(arrays.len, QpSlot::BLOCK_ALIGN)
            .map_err(|_| CreateQpError::Memory(DmaError::OutOfMemory))?;
        let block = device.alloc_dma(layout).map_err(CreateQpError::Memory)?;
        // No block is the start of a work request: all counters are the one before the first.
        block.fill(arrays.heads, arrays.len - arrays.heads, 0xff);
        let mut slot = FreeSlot {
            device,
            index: device.tables.alloc_qp(),
        };
        let Some(index) = slot.index else {
            let limit = device.tables.qps.len();
            return Err(CreateQpError::NoSlot { limit }.into());
        };
        // Before the first completion: the poller of a CQ looks at this before it looks into the ring.
        for cq in cqs {
            cq.slot.expect_packets();
        }
        let completes = |cq: &CqHandle<'d, P>| Completes {
            cqn: cq.cqn.number(),
            user_index: index,
        };
        let (mut tis, mut sq) = (None, None);
        if sizes.sq_blocks != 0 {
            let object = Object::tis(device, self.domain.number())?;
            let ring = sizes.sq_blocks as usize * 64;
            let memory = QueueMemory::new(device, ring, 0).map_err(CreateQpError::Memory)?;
            let to = completes(&init.send_cq);
            let queue = self.make_sq(pd, memory, sizes.sq_blocks, object.number(), to)?;
            (tis, sq) = (Some(object), Some(queue));
        }
        let (mut tir, mut rq) = (None, None);
        if sizes.rq_entries != 0 {
            let shape = (sizes.rq_entries, sizes.rq_stride);
            let ring = shape.0 as usize * shape.1 as usize;
            let memory = QueueMemory::new(device, ring, 0).map_err(CreateQpError::Memory)?;
            let queue = self.make_rq(pd, memory, shape, completes(&init.recv_cq))?;
            if target {
                tir = Some(Object::tir(device, self.domain.number(), queue.number())?);
            }
            rq = Some(queue);
        }
        slot.index = None;
        init.cap = sizes.cap;
        let number = sq.as_ref().or(rq.as_ref()).map_or(0, WorkQueue::number);
        let object = RawObject {
            tir,
            rq,
            sq,
            tis,
            device,
            slot: &device.tables.qps[index as usize],
            index,
            qpn: Qpn::from_low_bits(number),
            cap: sizes.cap,
            state: QpState::Reset,
            block: block.into_memory(),
            heads: arrays.heads,
            sq_sig_all: init.sq_sig_all,
            port: 1,
            vlan_cap: limits.vlan_strip,
            strip_vlan: false,
            strips_vlan: false,
            swapped: false,
            gone: false,
        };
        publish(&object, &arrays, [&init.send_cq, &init.recv_cq]);
        Ok(queues(object, &sizes, &arrays, limits))
    }
}

/// Makes the QP known to the pollers of its CQs.
fn publish<P: Platform>(object: &RawObject<'_, P>, arrays: &Arrays, cqs: [&CqHandle<'_, P>; 2]) {
    let (slot, block) = (object.slot, &object.block);
    slot.srq.store(NONE, Relaxed);
    slot.flags.fetch_or(PACKETS, Relaxed);
    let parts = QpArrays {
        heads: block.part(arrays.heads),
        blocks: arrays.blocks,
        send_ids: block.part(arrays.send_ids),
        sends: arrays.sends,
        recv_ids: block.part(arrays.recv_ids),
        recvs: arrays.recvs,
    };
    // SAFETY: the arrays lie in the block as `Arrays` divides it. The object keeps the block until it is destroyed, and then
    // moves it to the slot, which frees it when the QP is detached from its last CQ.
    unsafe { slot.publish(parts) };
    for (side, cq) in cqs.into_iter().enumerate() {
        // Release: a poller that finds its CQ here finds the arrays, too.
        slot.cqs[side].store(cq.index, Release);
        count_user(cq.slot);
    }
    slot.qpn_tag.store(object.qpn.number(), Release);
}

/// Ring and record of a queue, or a place that nothing is ever posted to.
fn parts<P: Platform>(
    queue: Option<&WorkQueue<'_, P>>,
    other: Option<&WorkQueue<'_, P>>,
    block: NonNull<u8>,
) -> (NonNull<u8>, NonNull<u8>) {
    match (queue, other) {
        (Some(queue), _) => {
            let memory = queue.memory();
            (memory.buffer.part(0), memory.buffer.part(memory.record))
        }
        // A record is read and written in whole lines: the other queue's, whose words are apart.
        (None, Some(other)) => {
            let record = other.memory().record;
            let record = other.memory().buffer.part(record);
            (record, record)
        }
        (None, None) => (block, block),
    }
}

/// The QP with its queues.
fn queues<'d, P: Platform>(
    object: RawObject<'d, P>,
    sizes: &QueueSizes,
    arrays: &Arrays,
    limits: &Limits,
) -> RawPacketQp<'d, P> {
    let device = object.device;
    let (sq, rq) = (object.sq.as_ref(), object.rq.as_ref());
    let base = object.block.part(0);
    let (sends, send_record) = parts(sq, rq, base);
    let (recvs, recv_record) = parts(rq, sq, base);
    let send_parts = SendRingParts {
        base: sends,
        wr_ids: object.block.part(arrays.send_ids),
        heads: object.block.part(arrays.heads),
        blocks: arrays.blocks,
        wrs: arrays.sends,
    };
    let recv_parts = RecvRingParts {
        lists: recvs,
        wr_ids: object.block.part(arrays.recv_ids),
        entries: arrays.recvs,
        log_stride: sizes.rq_stride.max(16).ilog2() as u8,
        // Without WQEs there is no room for a list.
        max_sge: match sizes.rq_entries {
            0 => 0,
            _ => sizes.cap.max_recv_sge as u16,
        },
        terminator: LKey(device.list_terminator),
    };
    // SAFETY: the rings and records lie in the queues' memory, the arrays in the block, and the object keeps all of these for
    // as long as it and its queues live; if another QP has got a queue by `mem::swap`, they stay allocated until the device is
    // closed (`RawObject::destroy`). A queue without WQEs has the other's record for a ring, which is never posted to: its
    // capacity is 0.
    let (send_ring, recv_ring, send_record, recv_record) = unsafe {
        (
            SendRing::new(send_parts),
            RecvRing::new(recv_parts),
            DoorbellRecord::new(send_record),
            DoorbellRecord::new(recv_record),
        )
    };
    let always = match object.sq_sig_all {
        true => completion::ALWAYS,
        false => completion::ON_ERROR,
    };
    let cursor = Cursor::new(object.qpn);
    RawPacketQp {
        sq: SendQueue {
            ring: send_ring,
            record: send_record,
            slot: object.slot,
            device,
            doorbell: (device.qp_uar().bar_offset() + doorbell::SEND) as u32,
            cursor,
            always: ControlFlags::new(always, 0).to_memory(),
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
            atomics: false,
            late: Late::none(cursor),
            packets: Packets {
                min_inline: limits.min_inline() as u16,
                max_wqe: sizes.sq_wqe as u16,
                checksums: limits.checksums.contains(EthernetSendFlags::OUTER),
            },
            kind: PhantomData,
        },
        rq: RecvQueue {
            ring: recv_ring,
            record: recv_record,
            slot: object.slot,
            head: 0,
            limit: 0,
            capacity: 0,
            late: 0,
        },
        object,
    }
}
