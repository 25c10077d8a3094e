//! Shared receive queues.
//!
//! The device walks the WQEs along a chain of links, and says in each completion which WQE it took. The host keeps the
//! free ones in a list in the same links: posting takes the head, a completion puts the WQE back at the tail.
//! Completions are polled by the owners of CQs, perhaps on other threads; they only push the WQE on a stack in the
//! SRQ's slot, and the SRQ's owner appends them to the list when it next runs out of free WQEs.

// UNSAFETY: says which parts of its memory are the ring and what pollers share.
#![expect(unsafe_code)]

mod context;
mod handle;

pub use handle::SrqHandle;

use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use bareverbs_firmware_cmds::srq::{
    ArmRqIn, ArmXrcSrqIn, DestroyRmpIn, DestroySrqIn, DestroyXrcSrqIn, ModifyRmpIn, QueryRmpIn,
    QuerySrqIn, QueryXrcSrqIn,
};

use crate::device::Device;
use crate::device::dma_buffer::DmaBuffer;
use crate::memory::record::{DoorbellRecord, RECORD_LEN};
use crate::memory::recv_ring::{RecvRing, RecvRingParts};
use crate::memory::ring_pages::{PageOffset, RingPages};
use crate::memory::slots::{DEAD, NONE, SrqSlot, XRC_SRQ};
use crate::platform::{DmaError, Platform};
use crate::types::error::CommandError;
use crate::types::sge::Sge;
use crate::verbs::cq::{Cq, count_user, deferred_destroy};
use crate::verbs::pd::Pd;
use crate::verbs::qp::caps::CapError;
use crate::verbs::qp::check_list;
use crate::verbs::qp::wr::{BadWr, PostError, RecvWr};
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;
use bareverbs_firmware_cmds::numbers::{LKey, Srqn, Xrcdn};
use bareverbs_firmware_cmds::values::{ArmRq, ArmXrcSrq, RmpState};
use bareverbs_firmware_cmds::wqe::{SEGMENT_UNIT, SrqNextWord};
use context::RingContext;

/// Sizes of an SRQ and its limit: `struct ibv_srq_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SrqAttr {
    /// Receives outstanding.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// The device reports an event, once, when fewer receives than this are left; 0 for none.
    pub srq_limit: u32,
}

/// The error of an SRQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SrqError {
    /// A size is more than the device gives, or 0.
    Cap(CapError),
    /// The storage that the device was opened with holds no more SRQs.
    NoSlot {
        /// The number of SRQs that it holds.
        limit: usize,
    },
    /// QPs still use it.
    Busy {
        /// The number of QPs.
        users: u32,
    },
    /// The limit has to be below the size.
    Limit {
        /// The limit that was asked for.
        asked: u32,
        /// The size.
        max_wr: u32,
    },
    /// The storage that the device was opened with holds no more QPs, of which an XRC SRQ counts as one.
    NoQpSlot {
        /// The number of QPs that it holds.
        limit: usize,
    },
    /// The device, or the software interface agreed on, does not have XRC.
    NoXrc,
    /// CQ, XRC domain and PD are not all of one device.
    OtherDevice,
    /// The platform has no memory for the ring.
    Memory(DmaError),
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for SrqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cap(error) => error.fmt(f),
            Self::NoSlot { limit } => {
                write!(f, "the device's storage holds {limit} SRQs, all are in use")
            }
            Self::NoQpSlot { limit } => {
                write!(f, "the device's storage holds {limit} QPs, all are in use")
            }
            Self::NoXrc => f.write_str("the device does not have XRC"),
            Self::OtherDevice => f.write_str("CQ, XRC domain and PD are not all of one device"),
            Self::Busy { users } => write!(f, "the SRQ is in use by {users} QPs"),
            Self::Limit { asked, max_wr } => write!(
                f,
                "a limit of {asked} is not below the SRQ's size, {max_wr}"
            ),
            Self::Memory(error) => error.fmt(f),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SrqError {}

/// The first word of a WQE that leads to another one. It starts the WQE.
fn link_to(index: u32) -> u32 {
    let mut word = SrqNextWord(0);
    word.set_next_wqe_index(index as u16);
    word.0
}

/// The object of the device behind an SRQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    /// ISSI 0.
    Srq,
    /// ISSI 1: a receive memory pool.
    Rmp,
    /// The receive queue of XRC targets; it takes slots of a QP (with this index) and of a CQ.
    Xrc { source: u32, cq: u32 },
}

/// A shared receive queue: `struct ibv_srq`. Destroyed when dropped.
pub struct Srq<'d, P: Platform> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) slot: &'d SrqSlot,
    pub(crate) index: u32,
    srqn: Srqn,
    object: Object,
    memory: DmaBuffer<'d, P>,
    ring: RecvRing,
    record: DoorbellRecord,
    pdn: u32,
    /// First and last WQE of the free list. The last one is never posted, so that the device's chain always ends in
    /// a link that can still be set.
    head: u16,
    tail: u16,
    /// Receives posted so far; the record carries 16 bits of it.
    counter: u16,
    shift: u8,
    entries: u32,
    max_sge: u32,
}

/// Where things lie in an SRQ's block: ring, record, identifiers, states.
struct SrqLayout {
    record: usize,
    wr_ids: usize,
    states: usize,
    len: usize,
}

impl SrqLayout {
    const fn new(entries: usize, stride: usize) -> Self {
        let record = (entries * stride).next_multiple_of(64);
        let wr_ids = record + RECORD_LEN;
        let states = wr_ids + 8 * entries;
        Self {
            record,
            wr_ids,
            states,
            len: (states + 4 * entries).next_multiple_of(64),
        }
    }
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates an SRQ: `ibv_create_srq`. `attr` is updated to what was given; its limit is ignored.
    pub fn create_srq(&self, attr: &mut SrqAttr) -> Result<Srq<'d, P>, SrqError> {
        self.create_srq_in(None, attr)
    }

    /// Creates an SRQ, or one for XRC in a domain and with a CQ.
    pub(crate) fn create_srq_in(
        &self,
        xrc: Option<(Xrcdn, &Cq<'d, P>)>,
        attr: &mut SrqAttr,
    ) -> Result<Srq<'d, P>, SrqError> {
        let device = self.device;
        let caps = device.capabilities();
        if xrc.is_some() && (!caps.has_xrc() || caps.hca.cqe_version() == 0) {
            return Err(SrqError::NoXrc);
        }
        let max_wr = 1_u32 << caps.hca.log_max_srq_sz().min(15);
        let max_wqe = u32::from(caps.hca.max_wqe_sz_rq()).min(2048);
        let max_sge = max_wqe.saturating_sub(16) / 16;
        let refuse = |field, asked, limit| {
            Err(SrqError::Cap(CapError {
                field,
                asked,
                limit,
            }))
        };
        if attr.max_wr == 0 || attr.max_wr >= max_wr {
            return refuse("max_wr", attr.max_wr, max_wr - 1);
        }
        if attr.max_sge > max_sge {
            return refuse("max_sge", attr.max_sge, max_sge);
        }
        let stride = (16 + 16 * attr.max_sge).next_power_of_two().max(32);
        // One more than can be posted: the end of the free list.
        let entries = (attr.max_wr + 1).next_power_of_two().max(2);
        let layout = SrqLayout::new(entries as usize, stride as usize);
        let memory_layout = Layout::from_size_align(layout.len, SrqSlot::BLOCK_ALIGN)
            .map_err(|_| SrqError::Memory(DmaError::OutOfMemory))?;
        let memory = device.alloc_dma(memory_layout).map_err(SrqError::Memory)?;
        // The free list: each WQE leads to the next.
        for index in 0..entries as usize {
            memory.write_be32(
                index * stride as usize,
                link_to((index as u32 + 1) & (entries - 1)),
            );
        }
        let tables = &device.tables;
        // Slots of destroyed objects may still wait until the CQ's poller detaches them.
        let reap = || xrc.map(|(_, cq)| cq.reap());
        let index = tables
            .alloc_srq()
            .or_else(|| reap().and_then(|()| tables.alloc_srq()));
        let Some(index) = index else {
            return Err(SrqError::NoSlot {
                limit: tables.srqs.len(),
            });
        };
        let object = match xrc {
            None if caps.issi == 0 => Object::Srq,
            None => Object::Rmp,
            Some((_, cq)) => {
                let source = tables
                    .alloc_qp()
                    .or_else(|| reap().and_then(|()| tables.alloc_qp()));
                let Some(source) = source else {
                    tables.free_srq(index);
                    return Err(SrqError::NoQpSlot {
                        limit: tables.qps.len(),
                    });
                };
                Object::Xrc {
                    source,
                    cq: cq.index,
                }
            }
        };
        let field = match object {
            Object::Rmp => PageOffset::FiveBits,
            Object::Srq | Object::Xrc { .. } => PageOffset::SixBits,
        };
        let ring_len = entries as usize * stride as usize;
        let ring = RingContext {
            pages: RingPages::new(memory.iova(), ring_len, field),
            log_entries: entries.ilog2() as u8,
            log_stride: stride.ilog2() as u8,
            record: memory.iova() + layout.record as u64,
            pdn: self.pdn().number(),
        };
        let created = match (object, xrc) {
            (Object::Srq, _) => ring.create_srq(device),
            (Object::Xrc { source, .. }, Some((xrcdn, cq))) => {
                ring.create_xrc_srq(device, xrcdn, cq.cqn.number(), source)
            }
            (Object::Rmp | Object::Xrc { .. }, _) => ring.create_rmp(device),
        };
        let srqn = match created {
            Ok(number) => Srqn::from_low_bits(number),
            Err(error) => {
                tables.free_srq(index);
                if let Object::Xrc { source, .. } = object {
                    tables.free_qp(source);
                }
                if error.may_still_happen() {
                    memory.quarantine();
                }
                return Err(SrqError::Command(error));
            }
        };
        let slot = &tables.srqs[index as usize];
        let wr_ids = memory.part(layout.wr_ids);
        let parts = RecvRingParts {
            // Behind the link.
            lists: memory.part(SEGMENT_UNIT),
            wr_ids,
            entries,
            log_stride: stride.ilog2() as u8,
            max_sge: (stride / 16 - 1) as u16,
            terminator: LKey(device.list_terminator),
        };
        // SAFETY: the parts lie in the block as `SrqLayout` divides it. The SRQ keeps the block until it is dropped,
        // and then moves it to the slot, which frees it with the last pin.
        let (ring_of_lists, record) = unsafe {
            slot.publish(wr_ids, memory.part(layout.states), entries);
            let record = DoorbellRecord::new(memory.part(layout.record));
            (RecvRing::new(parts), record)
        };
        slot.pins.store(1, Relaxed);
        slot.qpn_tag.store(srqn.number(), Release);
        if let (Object::Xrc { source, .. }, Some((_, cq))) = (object, xrc) {
            slot.pins.store(2, Relaxed);
            count_user(cq.slot);
            let source = &tables.qps[source as usize];
            source.srq.store(index, Relaxed);
            source.cqs[0].store(NONE, Relaxed);
            source.cqs[1].store(cq.index, Release);
            source.qpn_tag.store(XRC_SRQ, Release);
        }
        attr.max_wr = entries - 1;
        attr.max_sge = stride / 16 - 1;
        Ok(Srq {
            device,
            slot,
            index,
            srqn,
            object,
            memory,
            ring: ring_of_lists,
            record,
            pdn: self.pdn().number(),
            head: 0,
            tail: (entries - 1) as u16,
            counter: 0,
            shift: stride.ilog2() as u8,
            entries,
            max_sge: stride / 16 - 1,
        })
    }
}

impl<P: Platform> Srq<'_, P> {
    /// Returns `true` if it is one that XRC targets receive into.
    #[must_use]
    pub fn is_xrc(&self) -> bool {
        matches!(self.object, Object::Xrc { .. })
    }

    /// Its number; for XRC what work requests of the peer name.
    #[must_use]
    pub fn srqn(&self) -> Srqn {
        self.srqn
    }

    /// QPs that receive from it, and handles of it.
    #[must_use]
    pub fn users(&self) -> u32 {
        self.slot.users.load(Acquire)
    }

    /// Receives that it holds.
    #[must_use]
    pub fn max_wr(&self) -> u32 {
        self.entries - 1
    }

    /// Posts one receive: `ibv_post_srq_recv`.
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.put(wr_id, sges)?;
        self.ring();
        Ok(())
    }

    /// Posts a list with one update of the record. On an error those before the failing one are posted.
    pub fn post_list(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), BadWr> {
        let mut result = Ok(());
        for (index, wr) in wrs.iter().enumerate() {
            if let Err(error) = self.put(wr.wr_id, wr.sges) {
                result = Err(BadWr { index, error });
                break;
            }
        }
        self.ring();
        result
    }

    fn put(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if self.head == self.tail {
            self.take_back();
            if self.head == self.tail {
                return Err(PostError::QueueFull {
                    limit: self.entries - 1,
                });
            }
        }
        check_list(sges, self.ring.max_sge())?;
        let at = usize::from(self.head) << self.shift;
        let next = SrqNextWord(self.memory.read_be32(at)).next_wqe_index();
        self.ring.write(self.head.into(), wr_id, sges);
        self.slot.post(self.head.into());
        self.head = next & (self.entries - 1) as u16;
        self.counter = self.counter.wrapping_add(1);
        Ok(())
    }

    fn ring(&self) {
        let mut record = ReceiveRecord(0);
        record.set_counter(self.counter);
        self.record.post(record);
    }

    /// Appends the WQEs that completions gave back to the free list.
    fn take_back(&mut self) {
        self.slot.take_returned(|index| {
            self.memory
                .write_be32(usize::from(self.tail) << self.shift, link_to(index));
            self.tail = index as u16;
        });
    }

    /// Arms the limit: an event comes once fewer than `limit` receives are left (`ibv_modify_srq` with `SRQ_LIMIT`).
    pub fn arm_limit(&mut self, limit: u32) -> Result<(), SrqError> {
        if limit >= self.entries {
            return Err(SrqError::Limit {
                asked: limit,
                max_wr: self.entries - 1,
            });
        }
        let result = match self.object {
            Object::Srq => {
                let mut command = ArmRqIn::new();
                command
                    .set_op_mod(ArmRq::Srq.number())
                    .set_srq_number(self.srqn.number())
                    .set_lwm(limit as u16);
                self.device.execute_no_output(&command)
            }
            Object::Xrc { .. } => {
                let mut command = ArmXrcSrqIn::new();
                command
                    .set_op_mod(ArmXrcSrq::XrcSrq.number())
                    .set_xrc_srqn(self.srqn.number())
                    .set_lwm(limit as u16);
                self.device.execute_no_output(&command)
            }
            Object::Rmp => {
                let mut command = ModifyRmpIn::new();
                command
                    .set_rmp_state(RmpState::Ready.number())
                    .set_rmpn(self.srqn.number());
                command.bitmask_mut().set_lwm(true);
                command
                    .ctx_mut()
                    .set_state(RmpState::Ready.number())
                    .wq_mut()
                    .set_lwm(limit as u16)
                    .set_pd(self.pdn);
                self.device.execute_no_output(&command)
            }
        };
        result.map_err(SrqError::Command)
    }

    /// Returns `true` if the limit's event came since the last call.
    pub fn take_limit_event(&mut self) -> bool {
        self.slot.limit_reached.swap(0, AcqRel) != 0
    }

    /// Sizes and armed limit: `ibv_query_srq`.
    pub fn query(&self) -> Result<SrqAttr, SrqError> {
        let limit = match self.object {
            Object::Srq => {
                let mut command = QuerySrqIn::new();
                command.set_srqn(self.srqn.number());
                self.device
                    .execute(&command)
                    .map(|out| out.srq_context_entry().lwm())
            }
            Object::Xrc { .. } => {
                let mut command = QueryXrcSrqIn::new();
                command.set_xrc_srqn(self.srqn.number());
                self.device
                    .execute(&command)
                    .map(|out| out.xrc_srq_context_entry().lwm())
            }
            Object::Rmp => {
                let mut command = QueryRmpIn::new();
                command.set_rmpn(self.srqn.number());
                self.device
                    .execute(&command)
                    .map(|out| out.rmp_context().wq().lwm())
            }
        };
        let srq_limit = limit.map_err(SrqError::Command)?.into();
        Ok(SrqAttr {
            max_wr: self.entries - 1,
            max_sge: self.max_sge,
            srq_limit,
        })
    }

    fn destroy_in_device(&self) -> Result<(), CommandError> {
        match self.object {
            Object::Srq => {
                let mut command = DestroySrqIn::new();
                command.set_srqn(self.srqn.number());
                self.device.execute_no_output(&command)
            }
            Object::Xrc { .. } => {
                let mut command = DestroyXrcSrqIn::new();
                command.set_xrc_srqn(self.srqn.number());
                self.device.execute_no_output(&command)
            }
            Object::Rmp => {
                let mut command = DestroyRmpIn::new();
                command.set_rmpn(self.srqn.number());
                self.device.execute_no_output(&command)
            }
        }
    }

    /// Destroys it: `ibv_destroy_srq`. Gives it back while QPs use it, or if the firmware refuses.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn destroy(self) -> Result<(), (Self, SrqError)> {
        let users = self.slot.users.load(Acquire);
        if users != 0 {
            return Err((self, SrqError::Busy { users }));
        }
        let mut this = ManuallyDrop::new(self);
        match this.destroy_in_device() {
            Ok(()) => {
                this.release(true);
                Ok(())
            }
            Err(error) => Err((ManuallyDrop::into_inner(this), SrqError::Command(error))),
        }
    }

    /// The host's part of destruction. Pollers may still hold pins; the last one frees the memory.
    fn release(&mut self, gone: bool) {
        let memory = self.memory.take();
        if !gone {
            // The memory stays, so pollers may continue to use it. The slots are lost with it: the device may still write
            // completions with their indexes, which must not count as another SRQ's.
            memory.quarantine();
        } else {
            self.slot.block.keep(memory.into_memory());
        }
        let tables = &self.device.tables;
        if let Object::Xrc { source, cq: index } = self.object {
            if gone {
                deferred_destroy::detach(self.device, source);
            } else if let Some(source) = tables.qps.get(source as usize) {
                source.qpn_tag.fetch_or(DEAD, Release);
            }
            // Only now may the CQ be destroyed: the slot is on its list. If the SRQ is still there the device may refuse.
            if let Some(cq) = tables.cqs.get(index as usize) {
                deferred_destroy::release_cq(self.device, cq, index);
            }
        }
        if gone {
            deferred_destroy::unpin_srq(self.device, self.slot, self.index);
        }
    }
}

impl<P: Platform> Drop for Srq<'_, P> {
    fn drop(&mut self) {
        let gone = self.slot.users.load(Acquire) == 0
            && match self.destroy_in_device() {
                Ok(()) => true,
                Err(error) => {
                    log::warn!("{} stays with the device: {error}", self.srqn);
                    false
                }
            };
        self.release(gone);
    }
}

impl<P: Platform> fmt::Debug for Srq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("srqn", &self.srqn)
            .field("max_wr", &self.max_wr())
            .finish_non_exhaustive()
    }
}
