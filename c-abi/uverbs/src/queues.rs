//! CQs and QPs over rings and records of the program's.

// UNSAFETY: memory of the program is mapped for the device, and its doorbell records are read.
#![expect(unsafe_code)]

use std::rc::Rc;

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::caps::HcaCap;
use bareverbs_node::verbs::firmware_cmds::cq::{CreateCqIn as CreateCq, DestroyCqIn, ModifyCqIn};
use bareverbs_node::verbs::firmware_cmds::numbers::Cqn;
use bareverbs_node::verbs::firmware_cmds::qp::CreateQpIn as CreateQp;
use bareverbs_node::verbs::firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use bareverbs_node::verbs::firmware_cmds::values::{CqeSize, ModifyCq, RqType};
use bareverbs_node::verbs::platform::Mapping;
use bareverbs_node::verbs::qp::ForeignQp;
use bareverbs_node::verbs::{
    CommandError, CreateQpError, Device, Platform, QpKind, QpState, TailIn,
};

use crate::abi::{
    CreateCqOut, ExCreateCqIn, ExCreateQpIn, Mlx5CreateCqIn, Mlx5CreateQpIn, Mlx5ResizeCqIn,
    ModifyQpIn, QueryQpOut,
};
use crate::attrs::{Result, refused, region};
use crate::doorbells::{self, Queue};
use crate::events::Channel;
use crate::srq::Opened;
use crate::transition;

const PAGE: u64 = 4096;
/// Length of a doorbell record.
const RECORD: u64 = 8;
/// Unit of a ring's offset in its first page.
const UNIT: u64 = 64;

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
    pub(crate) fn new(
        device: &'d Device<'d, P>,
        address: u64,
        len: u64,
        writable: bool,
    ) -> Result<Self> {
        let region = region(address, len, writable)?;
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

    /// The device may use it for ever.
    pub(crate) fn keep(&mut self) {
        self.mapping = None;
    }

    /// Pages of 4 KiB, whichever the mapping's are.
    pub(crate) fn pages(&self) -> usize {
        self.mapping.as_ref().map_or(0, |mapping| {
            let before = mapping.ptr.as_ptr() as u64 % PAGE;
            (before + mapping.len as u64).div_ceil(PAGE) as usize
        })
    }

    /// The address of a page of 4 KiB for the device.
    pub(crate) fn page(&self, index: usize) -> u64 {
        self.mapping.as_ref().map_or(0, |mapping| {
            let (page, rest) = large_page(mapping, index);
            self.device.platform().page_iova(mapping, page) + rest
        })
    }

    /// The 64ths of a page before it.
    pub(crate) fn offset(&self) -> u8 {
        let mapping = self.mapping.as_ref();
        mapping.map_or(0, |mapping| {
            ((mapping.ptr.as_ptr() as u64 % PAGE) >> 6) as u8
        })
    }

    /// The address of its beginning for the device.
    pub(crate) fn iova(&self) -> u64 {
        let mapping = self.mapping.as_ref();
        mapping.map_or(0, |mapping| {
            self.page(0) + mapping.ptr.as_ptr() as u64 % PAGE
        })
    }
}

/// The mapping's page that has a page of 4 KiB, and the place in it.
fn large_page(mapping: &Mapping, index: usize) -> (usize, u64) {
    let within = (1 << mapping.page_shift) - 1;
    let first = mapping.ptr.as_ptr() as u64 & within & !(PAGE - 1);
    let at = first + index as u64 * PAGE;
    ((at >> mapping.page_shift) as usize, at & within)
}

/// An error number for an object that was not made, and what becomes of its memory.
pub(crate) fn undone<'a, 'd: 'a>(
    error: CommandError,
    memory: impl IntoIterator<Item = &'a mut Mapped<'d>>,
) -> i32 {
    if error.may_still_happen() {
        // The device may use it for ever.
        memory.into_iter().for_each(Mapped::keep);
    }
    refused(error)
}

/// A ring, whose offset in its first page has a unit.
pub(crate) fn ring<'d>(device: &'d Device<'d, P>, address: u64, len: u64) -> Result<Mapped<'d>> {
    match address.is_multiple_of(UNIT) {
        true => Mapped::new(device, address, len, true),
        false => Err(libc::EINVAL),
    }
}

/// A doorbell record, which lies at a multiple of its length.
pub(crate) fn record<'d>(device: &'d Device<'d, P>, address: u64) -> Result<Mapped<'d>> {
    match address.is_multiple_of(RECORD) {
        true => Mapped::new(device, address, RECORD, true),
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

/// `MLX5_QP_FLAG_DCI_STREAM`.
const DCI_STREAM: u32 = 1 << 11;
/// `MLX5_IB_CREATE_CQ_FLAGS_*`.
const CQE_128B_PAD: u16 = 1 << 0;
const UAR_PAGE_INDEX: u16 = 1 << 1;

/// Entries of a CQ that has room for as many completions as are asked for.
fn cq_size(device: &Device<'_, P>, cqe: u32) -> Result<u32> {
    let most = 1 << device.capabilities().hca.log_max_cq_sz();
    match cqe {
        0 => Err(libc::EINVAL),
        _ if cqe >= most => Err(libc::EINVAL),
        _ => Ok((cqe + 1).next_power_of_two()),
    }
}

/// The size of a CQE as the context has it, and in bytes.
fn size_code(cqe_size: u32, padded: bool) -> Result<(CqeSize, u64)> {
    match cqe_size {
        64 => Ok((CqeSize::Bytes64, 64)),
        128 if padded => Ok((CqeSize::Bytes128Padded, 128)),
        128 => Ok((CqeSize::Bytes128, 128)),
        _ => Err(libc::EINVAL),
    }
}

/// The format of compressed CQEs as the context has it: `mini_cqe_res_format_to_hw`. Errors as `create_cq_user` has them.
fn mini_format(caps: &HcaCap, provided: &Mlx5CreateCqIn) -> Result<u8> {
    if provided.cqe_comp_en != 1 {
        return Ok(0);
    }
    let compresses = match provided.cqe_size {
        128 => caps.cqe_compression_128(),
        _ => caps.cqe_compression(),
    };
    match provided.cqe_comp_res_format {
        _ if !compresses => Err(libc::EOPNOTSUPP),
        1 => Ok(0),
        2 => Ok(1),
        4 if caps.mini_cqe_resp_stride_index() => Ok(3),
        4 => Err(libc::EOPNOTSUPP),
        _ => Err(libc::EINVAL),
    }
}

pub(crate) struct Cq<'d> {
    device: &'d Device<'d, P>,
    pub(crate) cqn: Cqn,
    ring: Mapped<'d>,
    _record: Mapped<'d>,
    size: u32,
    /// Its CQEs are as long as two, and the device writes both.
    padded: bool,
    pub(crate) channel: Option<Rc<Channel>>,
    pub(crate) user_handle: u64,
    /// Events sent into the channel, and asynchronous ones.
    pub(crate) events: u32,
    pub(crate) async_events: u32,
}

impl<'d> Cq<'d> {
    pub(crate) fn create(
        device: &'d Device<'d, P>,
        (eqn, uar, uid): (u32, u32, u16),
        wanted: &ExCreateCqIn,
        provided: &Mlx5CreateCqIn,
        channel: Option<Rc<Channel>>,
    ) -> Result<(Self, CreateCqOut)> {
        let caps = &device.capabilities().hca;
        let padded = provided.flags & CQE_128B_PAD != 0;
        if provided.flags & !(CQE_128B_PAD | UAR_PAGE_INDEX) != 0 {
            return Err(libc::EINVAL);
        }
        let (code, stride) = size_code(provided.cqe_size, padded)?;
        let format = mini_format(caps, provided)?;
        if padded && (stride != 128 || !caps.cqe_128_always()) {
            return Err(libc::EOPNOTSUPP);
        }
        let size = cq_size(device, wanted.cqe)?;
        let mut ring = ring(device, provided.buf_addr, u64::from(size) * stride)?;
        let mut record = record(device, provided.db_addr)?;
        let word = doorbells::word(provided.db_addr)?;
        let mut create = CreateCq::new();
        create.set_uid(uid);
        create
            .cq_context_mut()
            .set_cqe_sz(code.number())
            .set_log_cq_size(size.ilog2() as u8)
            .set_oi(wanted.flags & 2 != 0)
            .set_cqe_comp_en(provided.cqe_comp_en == 1)
            .set_mini_cqe_res_format(format)
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
            ring,
            _record: record,
            size,
            padded,
            channel,
            user_handle: wanted.user_handle,
            events: 0,
            async_events: 0,
        };
        let out = CreateCqOut {
            handle: 0,
            cqe: size - 1,
        };
        Ok((cq, out))
    }

    /// Moves it to another ring. How many completions it has room for then.
    pub(crate) fn resize(&mut self, cqe: u32, provided: &Mlx5ResizeCqIn) -> Result<u32> {
        if !self.device.capabilities().hca.cq_resize() {
            return Err(libc::ENOSYS);
        }
        let size = cq_size(self.device, cqe)?;
        if size == self.size {
            return Ok(size - 1);
        }
        let (code, stride) = size_code(provided.cqe_size.into(), self.padded)?;
        let len = u64::from(size) * stride;
        let mut ring = ring(self.device, provided.buf_addr, len)?;
        let mut command = ModifyCqIn::new();
        // Log size, page offset and page size are new.
        command
            .set_op_mod(ModifyCq::Resize.number())
            .set_cqn(self.cqn.number())
            .set_modify_field_select_resize_field_select(0b111);
        command
            .cq_context_mut()
            .set_cqe_sz(code.number())
            .set_log_cq_size(size.ilog2() as u8)
            .set_page_offset(ring.offset());
        let mut page = |index| ring.page(index);
        let tail = TailIn::Qwords(ring.pages(), &mut page);
        let done = self.device.execute_with(&command, tail, &mut []);
        done.map_err(|error| undone(error, [&mut ring]))?;
        (self.ring, self.size) = (ring, size);
        Ok(size - 1)
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
    pub(crate) qp: ForeignQp<'d, P>,
    /// Ring and record, where it has some.
    _memory: Option<[Mapped<'d>; 2]>,
    /// The handle of the domain that a target of XRC is in.
    pub(crate) xrcd: Option<Rc<Opened<'d>>>,
    pub(crate) wanted: ExCreateQpIn,
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) uid: u16,
    /// Multicast groups, each with its LID.
    pub(crate) groups: Vec<([u8; 16], u16)>,
    /// Receives that its ring has room for, and the entries of each.
    receives: (u32, u32),
    pub(crate) events: u32,
}

/// The numbers of objects that a QP's context names; 0 where there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) pdn: u32,
    pub(crate) cqns: [u32; 2],
    pub(crate) srqn: Option<u32>,
    pub(crate) xrcdn: u32,
    pub(crate) uar: u32,
    pub(crate) uid: u16,
}

impl<'d> Qp<'d> {
    pub(crate) fn create(
        device: &'d Device<'d, P>,
        kind: QpKind,
        numbers: Numbers,
        wanted: &ExCreateQpIn,
        provided: &Mlx5CreateQpIn,
    ) -> Result<Self> {
        let log = |count: u32| match count.is_power_of_two() && count <= 1 << 15 {
            true => Ok(count.ilog2() as u8),
            false => Err(libc::EINVAL),
        };
        let mut create = CreateQp::new();
        create.set_uid(numbers.uid);
        let context = create.qpc_mut();
        context
            .set_pd(numbers.pdn)
            .set_cqn_snd(numbers.cqns[0])
            .set_cqn_rcv(numbers.cqns[1])
            .set_xrcd(numbers.xrcdn)
            .set_user_index(provided.uidx & 0xff_ffff);
        if kind == QpKind::Dci && provided.flags & DCI_STREAM != 0 {
            let [concurrent, errored] = provided.dci_streams;
            let most = device.capabilities().dci_streams();
            let most = most.ok_or(libc::EOPNOTSUPP)?;
            if concurrent > most.log_concurrent || errored > most.log_errored {
                return Err(libc::EINVAL);
            }
            context
                .set_log_num_dci_stream_channels(concurrent)
                .set_log_num_dci_errored_streams(errored);
        }
        let is_target = kind == QpKind::XrcRecv;
        let (sends, receives) = match is_target {
            true => (0, 0),
            false => (provided.sq_wqe_count, provided.rq_wqe_count),
        };
        let mut len = 0;
        match sends {
            0 => context.set_no_sq(true),
            _ => {
                len += u64::from(sends) << 6;
                context.set_log_sq_size(log(sends)?)
            }
        };
        match (numbers.srqn, receives) {
            (Some(srqn), _) => context
                .set_rq_type(RqType::Srq.number())
                .set_srqn_rmpn_xrqn(srqn),
            (None, 0) => context.set_rq_type(RqType::ZeroSize.number()),
            (None, _) => {
                if !(4..=11).contains(&provided.rq_wqe_shift) {
                    return Err(libc::EINVAL);
                }
                len += u64::from(receives) << provided.rq_wqe_shift;
                context
                    .set_log_rq_size(log(receives)?)
                    .set_log_rq_stride(provided.rq_wqe_shift as u8 - 4)
            }
        };
        let mut memory = match is_target {
            true => None,
            false => {
                let ring = ring(device, provided.buf_addr, len.max(64))?;
                let record = record(device, provided.db_addr)?;
                context
                    .set_uar_page(numbers.uar)
                    .set_page_offset(ring.offset())
                    .set_dbr_addr(record.iova());
                Some([ring, record])
            }
        };
        let ring = memory.as_ref().map(|[ring, _]| ring);
        let mut page = |index| ring.map_or(0, |ring| ring.page(index));
        let tail = TailIn::Qwords(ring.map_or(0, Mapped::pages), &mut page);
        let created = ForeignQp::create(device, kind, &mut create, tail);
        let qp = created.map_err(|error| match error {
            CreateQpError::Command(error) => {
                let memory = memory.as_mut().into_iter().flatten();
                undone(error, memory)
            }
            error => {
                log::warn!("{error}");
                match error {
                    CreateQpError::Memory(_) | CreateQpError::NoSlot { .. } => libc::ENOMEM,
                    CreateQpError::NoXrc | CreateQpError::NoDc => libc::EOPNOTSUPP,
                    _ => libc::EINVAL,
                }
            }
        })?;
        if memory.is_some() {
            let word = doorbells::word(provided.db_addr)?;
            doorbells::add(Queue::Send(qp.qpn()), numbers.uar, word);
        }
        Ok(Self {
            qp,
            _memory: memory,
            xrcd: None,
            wanted: *wanted,
            device,
            uid: numbers.uid,
            groups: Vec::new(),
            receives: match receives {
                0 => (0, 0),
                _ => (receives, 1 << provided.rq_wqe_shift >> 4),
            },
            events: 0,
        })
    }

    pub(crate) fn modify(&mut self, modify: &ModifyQpIn, mac: [u8; 6]) -> Result<()> {
        let mask = transition::mask(modify)?;
        let attr = transition::attributes(modify, mask, mac)?;
        let done = self.qp.modify(&attr, mask);
        done.map_err(transition::unmodified)?;
        if self.qp.state() == QpState::Reset {
            doorbells::reset(Queue::Send(self.qp.qpn()));
        }
        Ok(())
    }

    pub(crate) fn query(&mut self) -> Result<QueryQpOut> {
        let found = self.qp.query().map_err(transition::unmodified)?;
        Ok(QueryQpOut {
            max_send_wr: self.wanted.max_send_wr,
            // libmlx5 knows the rest, but its ring's.
            max_recv_wr: self.receives.0,
            max_send_sge: self.wanted.max_send_sge,
            max_recv_sge: self.receives.1,
            max_inline_data: self.wanted.max_inline_data,
            sq_sig_all: self.wanted.sq_sig_all,
            ..transition::answer(&found)
        })
    }

    /// Destroys it; that of a context that is closed may be in groups.
    pub(crate) fn destroy(&mut self) -> Result<()> {
        while !self.groups.is_empty() {
            self.detach_at(0)?;
        }
        self.qp.destroy().map_err(refused)?;
        doorbells::remove(Queue::Send(self.qp.qpn()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{NonNull, without_provenance_mut};

    #[test]
    fn pages_of_4_kib_are_found_in_larger_ones() {
        let mapping = |page_shift| Mapping {
            ptr: NonNull::new(without_provenance_mut(0x7f00_003f_e040)).unwrap(),
            len: 0x3000,
            page_shift,
            pages: 2,
            token: 0,
        };
        let large = |shift| [0, 1, 2, 3].map(|index| large_page(&mapping(shift), index));
        assert_eq!(large(12), [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(
            large(21),
            [(0, 0x1f_e000), (0, 0x1f_f000), (1, 0), (1, 0x1000)]
        );
    }
}
