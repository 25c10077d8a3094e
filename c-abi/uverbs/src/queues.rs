//! CQs and QPs over rings and records of the program's.

// UNSAFETY: memory of the program is mapped for the device, and its doorbell records are read.
#![expect(unsafe_code)]

use std::rc::Rc;

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::cq::{CreateCqIn as CreateCq, DestroyCqIn};
use bareverbs_node::verbs::firmware_cmds::numbers::{Cqn, Qpn};
use bareverbs_node::verbs::firmware_cmds::qp::{CreateQpIn as CreateQp, DestroyQpIn};
use bareverbs_node::verbs::firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use bareverbs_node::verbs::firmware_cmds::values::{PathMigration, RqType};
use bareverbs_node::verbs::platform::Mapping;
use bareverbs_node::verbs::{CommandError, Device, Mr, Pd, Platform, TailIn};

use crate::abi::{CreateCqOut, ExCreateCqIn, ExCreateQpIn, Mlx5CreateCqIn, Mlx5CreateQpIn};
use crate::attrs::Result;
use crate::doorbells::{self, Queue};
use crate::events::Channel;
use crate::memory::region;
use crate::transition::State;

const PAGE: u64 = 4096;
/// Length of a doorbell record.
const RECORD: u64 = 8;
/// Unit of a ring's offset in its first page.
const UNIT: u64 = 64;

/// An object behind a handle.
pub(crate) enum Object<'d> {
    Pd(Pd<'d, P>),
    Mr(Mr<'d, P>),
    Cq(Cq<'d>),
    Qp(Qp<'d>),
    /// An address handle is the program's own memory.
    Ah,
}

/// An error number for what the firmware answers.
pub(crate) fn refused(error: CommandError) -> i32 {
    log::warn!("{error}");
    error.errno().abs()
}

/// A doorbell page of the device, given back when it is dropped.
pub(crate) struct Uar<'d> {
    device: &'d Device<'d, P>,
    pub(crate) number: u32,
}

impl<'d> Uar<'d> {
    pub(crate) fn alloc(device: &'d Device<'d, P>) -> Result<Self> {
        let allocated = device.execute(&AllocUarIn::new()).map_err(refused)?;
        Ok(Self {
            device,
            number: allocated.uar(),
        })
    }
}

impl Drop for Uar<'_> {
    fn drop(&mut self) {
        let mut command = DeallocUarIn::new();
        command.set_uar(self.number);
        // One that the firmware does not take back stays.
        let _ = self.device.execute(&command).map_err(refused);
    }
}

/// Memory of the program that the device reaches.
pub(crate) struct Mapped<'d> {
    device: &'d Device<'d, P>,
    mapping: Option<Mapping>,
}

impl<'d> Mapped<'d> {
    fn new(device: &'d Device<'d, P>, address: u64, len: u64) -> Result<Self> {
        let region = region(address, len)?;
        // SAFETY: the program says that this is a ring or a record, which stays until the object is destroyed. If it is not so,
        // it is as with the kernel: the device writes where it was told.
        let mapping = unsafe { device.platform().dma_map(region) };
        let mapping = mapping.map_err(|error| {
            log::warn!("{error}");
            libc::ENOMEM
        })?;
        Ok(Self {
            device,
            mapping: Some(mapping),
        })
    }

    fn pages(&self) -> usize {
        self.mapping.as_ref().map_or(0, |mapping| mapping.pages)
    }

    /// The address of a page for the device.
    fn page(&self, index: usize) -> u64 {
        let mapping = self.mapping.as_ref();
        mapping.map_or(0, |mapping| {
            self.device.platform().page_iova(mapping, index)
        })
    }

    /// The 64ths of a page before it.
    fn offset(&self) -> u8 {
        let mapping = self.mapping.as_ref();
        mapping.map_or(0, |mapping| {
            ((mapping.ptr.as_ptr() as u64 % PAGE) >> 6) as u8
        })
    }

    /// The address of its beginning for the device.
    fn iova(&self) -> u64 {
        let mapping = self.mapping.as_ref();
        mapping.map_or(0, |mapping| {
            self.page(0) + mapping.ptr.as_ptr() as u64 % PAGE
        })
    }
}

/// An error number for an object that was not made, and what becomes of its memory.
fn undone(error: CommandError, memory: [&mut Mapped<'_>; 2]) -> i32 {
    if error.may_still_happen() {
        // The device may use it for ever.
        for mapped in memory {
            mapped.mapping = None;
        }
    }
    refused(error)
}

/// A ring, whose offset in its first page has a unit.
fn ring<'d>(device: &'d Device<'d, P>, address: u64, len: u64) -> Result<Mapped<'d>> {
    match address.is_multiple_of(UNIT) {
        true => Mapped::new(device, address, len),
        false => Err(libc::EINVAL),
    }
}

/// A doorbell record, which lies at a multiple of its length.
fn record<'d>(device: &'d Device<'d, P>, address: u64) -> Result<Mapped<'d>> {
    match address.is_multiple_of(RECORD) {
        true => Mapped::new(device, address, RECORD),
        false => Err(libc::EINVAL),
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take() {
            // SAFETY: the object that used it was destroyed.
            unsafe { self.device.platform().dma_unmap(mapping) };
        }
    }
}

pub(crate) struct Cq<'d> {
    device: &'d Device<'d, P>,
    pub(crate) cqn: Cqn,
    _ring: Mapped<'d>,
    _record: Mapped<'d>,
    pub(crate) channel: Option<Rc<Channel>>,
    pub(crate) user_handle: u64,
    /// Events sent into the channel.
    pub(crate) events: u32,
}

impl<'d> Cq<'d> {
    pub(crate) fn create(
        device: &'d Device<'d, P>,
        (eqn, uar): (u32, u32),
        wanted: &ExCreateCqIn,
        provided: &Mlx5CreateCqIn,
        channel: Option<Rc<Channel>>,
    ) -> Result<(Self, CreateCqOut)> {
        let log_max = device.capabilities().hca.log_max_cq_sz();
        if wanted.cqe == 0 || wanted.cqe >= 1 << log_max {
            return Err(libc::EINVAL);
        }
        let (code, stride) = match provided.cqe_size {
            64 => (0, 64),
            128 => (1, 128),
            _ => return Err(libc::EINVAL),
        };
        let size = (wanted.cqe + 1).next_power_of_two();
        let mut ring = ring(device, provided.buf_addr, u64::from(size) * stride)?;
        let mut record = record(device, provided.db_addr)?;
        let word = doorbells::word(provided.db_addr)?;
        let mut create = CreateCq::new();
        create
            .cq_context_mut()
            .set_cqe_sz(code)
            .set_log_cq_size(size.ilog2() as u8)
            .set_oi(wanted.flags & 2 != 0)
            .set_cqe_comp_en(provided.cqe_comp_en != 0)
            .set_mini_cqe_res_format(provided.cqe_comp_res_format.trailing_zeros() as u8 & 3)
            .set_uar_page(uar)
            .set_c_eqn_or_apu_element(eqn)
            .set_page_offset(ring.offset())
            .set_dbr_addr(record.iova());
        let mut page = |index| ring.page(index);
        let tail = TailIn::Qwords(ring.pages(), &mut page);
        let created = device.execute_with(&create, tail, &mut []);
        let created = created.map_err(|error| undone(error, [&mut ring, &mut record]))?;
        let cqn = Cqn::from_low_bits(created.cqn());
        doorbells::add(Queue::Arm(cqn), uar, word);
        let cq = Self {
            device,
            cqn,
            _ring: ring,
            _record: record,
            channel,
            user_handle: wanted.user_handle,
            events: 0,
        };
        let out = CreateCqOut {
            handle: 0,
            cqe: size - 1,
        };
        Ok((cq, out))
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        let mut command = DestroyCqIn::new();
        command.set_cqn(self.cqn.number());
        self.device.execute(&command).map_err(refused)?;
        doorbells::remove(Queue::Arm(self.cqn));
        Ok(())
    }
}

pub(crate) struct Qp<'d> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) qpn: Qpn,
    _ring: Mapped<'d>,
    pub(crate) record: Mapped<'d>,
    /// The values that its transitions repeat.
    pub(crate) state: State,
    pub(crate) wanted: ExCreateQpIn,
}

impl<'d> Qp<'d> {
    pub(crate) fn create(
        device: &'d Device<'d, P>,
        uar: u32,
        (pdn, cqns): (u32, [u32; 2]),
        wanted: &ExCreateQpIn,
        provided: &Mlx5CreateQpIn,
    ) -> Result<Self> {
        let state = State::new(wanted.qp_type, pdn, cqns)?;
        if wanted.is_srq != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let log = |count: u32| match count.is_power_of_two() && count <= 1 << 15 {
            true => Ok(count.ilog2() as u8),
            false => Err(libc::EINVAL),
        };
        let (sends, receives) = (provided.sq_wqe_count, provided.rq_wqe_count);
        if receives > 0 && !(4..=11).contains(&provided.rq_wqe_shift) {
            return Err(libc::EINVAL);
        }
        let mut create = CreateQp::new();
        let context = create.qpc_mut();
        let mut len = 0;
        match sends {
            0 => context.set_no_sq(true),
            _ => {
                len += u64::from(sends) << 6;
                context.set_log_sq_size(log(sends)?)
            }
        };
        match receives {
            0 => context.set_rq_type(RqType::ZeroSize.number()),
            _ => {
                len += u64::from(receives) << provided.rq_wqe_shift;
                context
                    .set_log_rq_size(log(receives)?)
                    .set_log_rq_stride(provided.rq_wqe_shift as u8 - 4)
            }
        };
        let mut ring = ring(device, provided.buf_addr, len.max(64))?;
        let mut record = record(device, provided.db_addr)?;
        let word = doorbells::word(provided.db_addr)?;
        context
            .set_st(state.service)
            .set_pm_state(PathMigration::Migrated.number())
            .set_pd(pdn)
            .set_cqn_snd(cqns[0])
            .set_cqn_rcv(cqns[1])
            .set_uar_page(uar)
            .set_user_index(provided.uidx & 0xff_ffff)
            .set_page_offset(ring.offset())
            .set_dbr_addr(record.iova());
        let mut page = |index| ring.page(index);
        let tail = TailIn::Qwords(ring.pages(), &mut page);
        let created = device.execute_with(&create, tail, &mut []);
        let created = created.map_err(|error| undone(error, [&mut ring, &mut record]))?;
        let qpn = Qpn::from_low_bits(created.qpn());
        doorbells::add(Queue::Send(qpn), uar, word);
        Ok(Self {
            device,
            qpn,
            _ring: ring,
            record,
            state,
            wanted: *wanted,
        })
    }

    pub(crate) fn record_iova(&self) -> u64 {
        self.record.iova()
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        let mut command = DestroyQpIn::new();
        command.set_qpn(self.qpn.number());
        self.device.execute(&command).map_err(refused)?;
        doorbells::remove(Queue::Send(self.qpn));
        Ok(())
    }
}
