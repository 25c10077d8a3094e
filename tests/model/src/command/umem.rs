//! CREATE_UCTX, DESTROY_UCTX, CREATE_UMEM, DESTROY_UMEM, and whose objects commands may name.
//!
//! The rules are those that the vendor's driver for Linux and rdma-core rely on (`drivers/infiniband/hw/mlx5/devx.c`): it
//! puts its number of the program (`uid`) into every command of a program and does not look further. No card's answers are
//! recorded.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::memory::ring::{Ring, RingError};
use crate::objects::ObjectKind;
use crate::objects::umem::Umem;
use crate::syndrome::{Reject, Syndrome};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::srq::Wq;
use bareverbs_firmware_cmds::umem::{CreateUctxIn, CreateUmemIn, DestroyUctxIn, DestroyUmemIn};

/// Page sizes that addresses can say.
const MOST_LOG_PAGE: u32 = 43;

pub(super) fn create_uctx(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, CreateUctxIn>,
) -> Result {
    let log_max = device.caps.general.log_max_uctx();
    if log_max == 0 {
        return Err(Syndrome::UctxUnsupported.into());
    }
    if device.users.current != 0 {
        return Err(Syndrome::UctxByUser.into());
    }
    let cap = call.input.uctx().cap();
    if cap & !device.caps.general.uctx_cap() != 0 {
        return Err(Syndrome::UctxCap.into());
    }
    // One number is the kernel's.
    if device.users.len() + 1 >= 1 << log_max {
        return Err(Syndrome::UctxExhausted.into());
    }
    let uid = device.users.create(cap).ok_or(Syndrome::UctxExhausted)?;
    call.output.set_uid(uid);
    Ok(())
}

pub(super) fn destroy_uctx(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, DestroyUctxIn>,
) -> Result {
    if device.users.current != 0 {
        return Err(Syndrome::UctxByUser.into());
    }
    let uid = call.input.uid();
    // Drivers destroy what a program left behind before its context.
    if device.users.has_objects(uid) {
        return Err(Syndrome::UctxBusy.into());
    }
    if !device.users.destroy(uid) {
        return Err(Syndrome::UctxUnknown.into());
    }
    Ok(())
}

pub(super) fn create_umem(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, CreateUmemIn>,
) -> Result {
    let caps = &device.caps.general;
    if caps.log_max_umem() == 0 || device.users.current == 0 && !caps.umem_uid_0() {
        return Err(Syndrome::UmemUnsupported.into());
    }
    let wanted = call.input.umem();
    if wanted.ats() && !caps.ats() {
        return Err(Syndrome::UmemAts.into());
    }
    let log_page = u32::from(wanted.log_page_size()) + 12;
    let offset = u64::from(wanted.page_offset());
    if log_page > MOST_LOG_PAGE || offset >> log_page != 0 {
        return Err(Syndrome::UmemPageSize.into());
    }
    let count = wanted.num_of_mtt();
    if count == 0 {
        return Err(Syndrome::UmemList.into());
    }
    let list = usize::try_from(count)
        .ok()
        .and_then(|count| call.tail.get(..count.checked_mul(8)?))
        .ok_or(Syndrome::UmemList)?;
    let entries = list
        .as_chunks::<8>()
        .0
        .iter()
        .map(|e| u64::from_be_bytes(*e));
    // The access bits of each entry: 0 read, 1 write.
    let rights = entries.clone().fold(3, |all, entry| all & entry);
    let pages: Vec<u64> = entries.map(|entry| entry & !0xff).collect();
    if pages.iter().any(|page| page & ((1 << log_page) - 1) != 0) {
        return Err(Syndrome::UmemUnaligned.into());
    }
    let number = device.umems.next_number().ok_or(Syndrome::UmemExhausted)?;
    let place = device.store(io, ObjectKind::Umem, number, &wanted.0)?;
    device.umems.insert(Umem {
        pages,
        log_page,
        offset,
        readable: rights & 1 != 0,
        writable: rights & 2 != 0,
        context: *wanted,
        place,
    });
    call.output.set_umem_id(number);
    Ok(())
}

pub(super) fn destroy_umem(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyUmemIn>,
) -> Result {
    let number = call.input.umem_id();
    let umem = device.umems.get(number).ok_or(Syndrome::UmemUnknown)?;
    let (place, context) = (umem.place, umem.context);
    device.check(io, place, ObjectKind::Umem, number, &context.0)?;
    if device.is_umem_used(number) {
        return Err(Syndrome::UmemBusy.into());
    }
    device.umems.remove(number);
    device.pages.release(place);
    Ok(())
}

/// Where a command says that a queue lies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Buffer<'a> {
    /// In the pages of a list that came with it.
    List {
        list: &'a [u8],
        log_page_size: u8,
        page_offset: u8,
    },
    /// In user memory, from `offset` on.
    Umem { id: u32, offset: u64 },
}

/// Where a command says that a doorbell record lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// In this user memory, if in any; the address is an offset then.
    pub(super) umem: Option<u32>,
    pub(super) address: u64,
    /// Its length, and what its address has to be a multiple of.
    pub(super) len: u64,
}

/// Where a work queue inside another context lies.
pub(super) fn buffer_of<'a>(wq: &Wq, list: &'a [u8]) -> Buffer<'a> {
    if wq.wq_umem_valid() {
        Buffer::Umem {
            id: wq.wq_umem_id(),
            offset: wq.wq_umem_offset(),
        }
    } else {
        Buffer::List {
            list,
            log_page_size: wq.log_wq_pg_sz(),
            page_offset: wq.page_offset(),
        }
    }
}

/// Where its doorbell record is.
pub(super) fn record_of(wq: &Wq, len: u64) -> Record {
    Record {
        umem: wq.dbr_umem_valid().then(|| wq.dbr_umem_id()),
        address: wq.dbr_addr(),
        len,
    }
}

impl Device {
    /// Returns `true` if there is an object that the current user's may name.
    pub(super) fn has(&self, kind: ObjectKind, number: u32) -> bool {
        let there = match kind {
            ObjectKind::Uar => self.uars.contains(number),
            ObjectKind::Pd => self.pds.contains(number),
            ObjectKind::TransportDomain => self.transport_domains.contains(number),
            ObjectKind::Xrcd => self.xrcds.contains(number),
            ObjectKind::Eq => self.eqs.contains(number),
            ObjectKind::Cq => self.cqs.contains(number),
            ObjectKind::Mkey => self.mkeys.contains(number),
            ObjectKind::Qp => self.qps.get(number).is_some_and(|qp| qp.dct.is_none()),
            ObjectKind::Srq => self.srqs.contains(number),
            ObjectKind::QCounter => self.counters.contains(number),
            ObjectKind::Tis => self.nic.tises.contains(number),
            ObjectKind::Tir => self.nic.tirs.contains(number),
            ObjectKind::Rqt => self.nic.rqts.contains(number),
            ObjectKind::Sq => self.nic.sqs.contains(number),
            ObjectKind::Rq => self.nic.rqs.contains(number),
            ObjectKind::Umem => self.umems.contains(number),
            _ => false,
        };
        there && self.users.may_name(kind, number)
    }

    /// User memory that the current user's objects may lie in.
    pub(super) fn umem(&self, id: u32) -> Option<&Umem> {
        self.has(ObjectKind::Umem, id)
            .then(|| self.umems.get(id))
            .flatten()
    }

    /// The memory of a queue.
    pub(super) fn queue_memory(
        &self,
        buffer: Buffer<'_>,
        len: u64,
    ) -> core::result::Result<Ring, RingError> {
        match buffer {
            Buffer::List {
                list,
                log_page_size,
                page_offset,
            } => Ring::new(list, log_page_size, page_offset, len),
            Buffer::Umem { id, offset } => {
                let umem = self.umem(id).ok_or(RingError::Umem)?;
                Ring::over(id, umem, offset, len).ok_or(RingError::Range)
            }
        }
    }

    /// The address of a doorbell record that the device can reach.
    pub(super) fn record_address(
        &self,
        io: &mut Io<'_>,
        record: Record,
        unreachable: Syndrome,
        no_umem: Syndrome,
    ) -> core::result::Result<u64, Reject> {
        let address = match record.umem {
            None => record.address,
            Some(id) => {
                let umem = self.umem(id).ok_or(no_umem)?;
                if !umem.readable || !umem.has(record.address, record.len) {
                    return Err(Syndrome::UmemRange.into());
                }
                umem.address(record.address).ok_or(Syndrome::UmemRange)?.0
            }
        };
        let mut found = [0; 8];
        let found = &mut found[..record.len.min(8) as usize];
        if !address.is_multiple_of(record.len) || io.read(address, found).is_err() {
            return Err(unreachable.into());
        }
        Ok(address)
    }

    /// Returns `true` if a queue, a doorbell record or a key lies in user memory.
    fn is_umem_used(&self, id: u32) -> bool {
        let rings = (self.cqs.iter().map(|(_, cq)| &cq.ring))
            .chain(self.qps.iter().map(|(_, qp)| &qp.ring))
            .chain(self.srqs.iter().map(|(_, srq)| &srq.ring))
            .chain(self.nic.sqs.iter().map(|(_, sq)| &sq.ring))
            .chain(self.nic.rqs.iter().map(|(_, rq)| &rq.ring));
        let mut keys = self.mkeys.iter().map(|(_, mkey)| mkey.umem);
        rings
            .into_iter()
            .any(|ring| ring.umems().contains(&Some(id)))
            || keys.any(|umem| umem == Some(id))
    }

    /// Finds the object that a command would destroy, which has to be the current user's.
    pub(super) fn to_be_destroyed(
        &self,
        opcode: Opcode,
        input: &[u8],
    ) -> core::result::Result<Option<(ObjectKind, u32)>, Syndrome> {
        let number = |at: usize| {
            let bytes = input.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map(|bytes| u32::from_be_bytes(*bytes))
        };
        let Some((kind, number)) =
            destroyed(opcode).and_then(|(kind, at)| Some((kind, number(at)?)))
        else {
            return Ok(None);
        };
        let number = match kind {
            ObjectKind::FlowCounter | ObjectKind::ModifyHeader => number,
            _ => number & 0xff_ffff,
        };
        if self.users.controls(kind, number) {
            Ok(Some((kind, number)))
        } else {
            Err(Syndrome::OtherUser)
        }
    }
}

/// The kind of object that a command destroys, and the byte at which its number is.
fn destroyed(opcode: Opcode) -> Option<(ObjectKind, usize)> {
    let kind = match opcode {
        Opcode::DeallocUar => ObjectKind::Uar,
        Opcode::DeallocPd => ObjectKind::Pd,
        Opcode::DeallocTransportDomain => ObjectKind::TransportDomain,
        Opcode::DeallocXrcd => ObjectKind::Xrcd,
        Opcode::DestroyMkey => ObjectKind::Mkey,
        Opcode::DestroyEq => ObjectKind::Eq,
        Opcode::DestroyCq => ObjectKind::Cq,
        Opcode::DestroyQp => ObjectKind::Qp,
        Opcode::DestroyDct => ObjectKind::Dct,
        Opcode::DestroySrq | Opcode::DestroyXrcSrq | Opcode::DestroyRmp => ObjectKind::Srq,
        Opcode::DeallocQCounter => ObjectKind::QCounter,
        Opcode::DestroyTis => ObjectKind::Tis,
        Opcode::DestroyTir => ObjectKind::Tir,
        Opcode::DestroyRqt => ObjectKind::Rqt,
        Opcode::DestroySq => ObjectKind::Sq,
        Opcode::DestroyRq => ObjectKind::Rq,
        Opcode::DestroyUmem => ObjectKind::Umem,
        Opcode::DeallocFlowCounter => ObjectKind::FlowCounter,
        Opcode::DeallocModifyHeaderContext => ObjectKind::ModifyHeader,
        Opcode::DestroyFlowTable => return Some((ObjectKind::FlowTable, 0x14)),
        Opcode::DestroyFlowGroup => return Some((ObjectKind::FlowGroup, 0x18)),
        _ => return None,
    };
    Some((kind, 8))
}
