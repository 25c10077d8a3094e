//! Shared receive queues of the three kinds, and their limits.

use super::umem::{Buffer, Record, buffer_of, record_of};
use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::memory::ring::RingError;
use crate::objects::ObjectKind;
use crate::objects::cqe::NO_USER_INDEX;
use crate::objects::srq::{Srq, SrqKind};
use crate::syndrome::{Reject, Syndrome};
use bareverbs_firmware_cmds::srq::{
    ArmRqIn, ArmXrcSrqIn, CreateRmpIn, CreateSrqIn, CreateXrcSrqIn, DestroyRmpIn, DestroySrqIn,
    DestroyXrcSrqIn, ModifyRmpIn, QueryRmpIn, QuerySrqIn, QueryXrcSrqIn, Rmpc, Srqc, XrcSrqc,
};
use bareverbs_firmware_cmds::values::{ArmRq, RmpState, WqType};
use zerocopy::FromBytes;

/// The part that the three contexts have in common.
struct Plan<'a> {
    kind: SrqKind,
    context: &'a [u8],
    buffer: Buffer<'a>,
    log_size: u8,
    log_stride: u8,
    record: Record,
    pd: u32,
    cqn: Option<u32>,
    xrcd: Option<u32>,
    user_index: u32,
    cyclic: bool,
    basic: bool,
    limit: u16,
}

fn create(
    device: &mut Device,
    io: &mut Io<'_>,
    plan: Plan<'_>,
) -> core::result::Result<u32, Reject> {
    if !device.has(ObjectKind::Pd, plan.pd) {
        return Err(Syndrome::SrqPd.into());
    }
    if plan.log_size > device.caps.general.log_max_srq_sz() {
        return Err(Syndrome::SrqSize.into());
    }
    // A WQE starts with the link to the next one, unless it is a basic one.
    let smallest = if plan.basic { 4 } else { 5 };
    if !(smallest..=11).contains(&plan.log_stride) {
        return Err(Syndrome::SrqStride.into());
    }
    if 1 << plan.log_stride > device.caps.general.max_wqe_sz_rq() {
        return Err(Syndrome::SrqWqeSize.into());
    }
    if plan.xrcd.is_some() && !device.caps.general.xrc() {
        return Err(Syndrome::SrqXrcUnsupported.into());
    }
    if plan.basic && !device.caps.general.basic_cyclic_rcv_wqe() {
        return Err(Syndrome::SrqCyclic.into());
    }
    if plan
        .xrcd
        .is_some_and(|xrcd| !device.has(ObjectKind::Xrcd, xrcd))
    {
        return Err(Syndrome::SrqXrcd.into());
    }
    if plan.cqn.is_some_and(|cqn| !device.has(ObjectKind::Cq, cqn)) {
        return Err(Syndrome::SrqCq.into());
    }
    let record = device.record_address(io, plan.record, Syndrome::SrqRecord, Syndrome::SrqUmem)?;
    if u32::from(plan.limit) > 1 << plan.log_size {
        return Err(Syndrome::SrqLimit.into());
    }
    let stride = 1u64 << plan.log_stride;
    let ring = device
        .queue_memory(plan.buffer, stride << plan.log_size)
        .map_err(|error| match error {
            RingError::Short => Syndrome::SrqPages,
            RingError::PageSize => Syndrome::SrqPageSize,
            RingError::Unaligned => Syndrome::SrqPageUnaligned,
            RingError::Umem => Syndrome::SrqUmem,
            RingError::Range => Syndrome::UmemRange,
        })?
        .with_record(record, plan.record.umem);
    let number = device.srqs.next_number().ok_or(Syndrome::SrqExhausted)?;
    let place = device.store(io, ObjectKind::Srq, number, plan.context)?;
    device.srqs.insert(Srq {
        kind: plan.kind,
        context: plan.context.to_vec(),
        ring,
        log_size: plan.log_size,
        stride,
        record,
        pd: plan.pd,
        cqn: plan.cqn,
        xrcd: plan.xrcd,
        user_index: plan.user_index,
        cyclic: plan.cyclic,
        basic: plan.basic,
        limit: plan.limit,
        users: 0,
        place,
        next: 0,
        consumed: 0,
        posted: 0,
        failed: false,
    });
    if let Some(pd) = device.pds.get_mut(plan.pd) {
        pd.users += 1;
    }
    if let Some(cq) = plan.cqn.and_then(|cqn| device.cqs.get_mut(cqn)) {
        cq.users += 1;
    }
    if let Some(xrcd) = plan.xrcd.and_then(|number| device.xrcds.get_mut(number)) {
        xrcd.users += 1;
    }
    Ok(number)
}

fn checked(device: &mut Device, io: &mut Io<'_>, number: u32, kind: SrqKind) -> Result {
    let srq = device.srqs.get(number).ok_or(Syndrome::SrqUnknown)?;
    if srq.kind != kind {
        return Err(Syndrome::SrqKind.into());
    }
    let (place, context) = (srq.place, srq.context.clone());
    device.check(io, place, ObjectKind::Srq, number, &context)
}

fn destroy(device: &mut Device, io: &mut Io<'_>, number: u32, kind: SrqKind) -> Result {
    checked(device, io, number, kind)?;
    if device.srqs.get(number).is_some_and(|srq| srq.users != 0) {
        return Err(Syndrome::SrqBusy.into());
    }
    if let Some(srq) = device.srqs.remove(number) {
        device.pages.release(srq.place);
        if let Some(pd) = device.pds.get_mut(srq.pd) {
            pd.users -= 1;
        }
        if let Some(cq) = srq.cqn.and_then(|cqn| device.cqs.get_mut(cqn)) {
            cq.users -= 1;
        }
        if let Some(xrcd) = srq.xrcd.and_then(|number| device.xrcds.get_mut(number)) {
            xrcd.users -= 1;
        }
    }
    Ok(())
}

fn arm(device: &mut Device, io: &mut Io<'_>, number: u32, limit: u16) -> Result {
    let srq = device.srqs.get(number).ok_or(Syndrome::SrqUnknown)?;
    if !device.users.controls(ObjectKind::Srq, number) {
        return Err(Syndrome::OtherUser.into());
    }
    if u32::from(limit) > srq.size() {
        return Err(Syndrome::SrqLimit.into());
    }
    device.arm_limit(io, number, limit);
    Ok(())
}

pub(super) fn create_srq(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, CreateSrqIn>,
) -> Result {
    if device.issi != 0 {
        return Err(Syndrome::SrqLevel.into());
    }
    let context = call.input.srq_context_entry();
    if context.wq_signature() || context.cont_srq() {
        return Err(Syndrome::SrqType.into());
    }
    let xrc = context.xrcd() != 0;
    let number = create(
        device,
        io,
        Plan {
            kind: SrqKind::Basic,
            context: &context.0,
            buffer: Buffer::List {
                list: call.tail,
                log_page_size: context.log_page_size(),
                page_offset: context.page_offset(),
            },
            log_size: context.log_srq_size(),
            log_stride: context.log_rq_stride() + 4,
            record: Record {
                umem: None,
                address: context.dbr_addr(),
                len: 4,
            },
            pd: context.pd(),
            cqn: xrc.then(|| context.cqn()),
            xrcd: xrc.then(|| context.xrcd()),
            user_index: NO_USER_INDEX,
            cyclic: false,
            basic: false,
            limit: context.lwm(),
        },
    )?;
    call.output.set_srqn(number);
    Ok(())
}

pub(super) fn destroy_srq(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroySrqIn>,
) -> Result {
    destroy(device, io, call.input.srqn(), SrqKind::Basic)
}

pub(super) fn query_srq(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, QuerySrqIn>,
) -> Result {
    let number = call.input.srqn();
    checked(device, io, number, SrqKind::Basic)?;
    let srq = device.srqs.get(number).ok_or(Syndrome::SrqUnknown)?;
    let mut context = Srqc::read_from_bytes(&srq.context).unwrap_or_default();
    context
        .set_state(u8::from(srq.failed))
        .set_lwm(srq.limit)
        .set_wqe_cnt(srq.available());
    *call.output.srq_context_entry_mut() = context;
    super::put_pages(call.output_tail, srq.ring.pages());
    Ok(())
}

pub(super) fn arm_rq(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ArmRqIn>) -> Result {
    if call.input.op_mod() != ArmRq::Srq.number() {
        return Err(Syndrome::SrqOpMod.into());
    }
    arm(device, io, call.input.srq_number(), call.input.lwm())
}

pub(super) fn create_xrc_srq(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, CreateXrcSrqIn>,
) -> Result {
    if device.issi == 0 {
        return Err(Syndrome::SrqLevel.into());
    }
    let context = call.input.xrc_srq_context_entry();
    if call.input.xrc_srq_umem_valid() || context.dbr_umem_valid() {
        // Where the identifiers of the user memory are is not published.
        return Err(Syndrome::SrqUmem.into());
    }
    if context.wq_signature() || context.cont_srq() {
        return Err(Syndrome::SrqType.into());
    }
    let number = create(
        device,
        io,
        Plan {
            kind: SrqKind::Xrc,
            context: &context.0,
            buffer: Buffer::List {
                list: call.tail,
                log_page_size: context.log_page_size(),
                page_offset: context.page_offset(),
            },
            log_size: context.log_xrc_srq_size(),
            log_stride: context.log_rq_stride() + 4,
            record: Record {
                umem: None,
                address: u64::from(context.db_record_addr_h()) << 32
                    | u64::from(context.db_record_addr_l()) << 2,
                len: 4,
            },
            pd: context.pd(),
            cqn: Some(context.cqn()),
            xrcd: Some(context.xrcd()),
            user_index: context.user_index(),
            cyclic: context.basic_cyclic_rcv_wqe(),
            basic: context.basic_cyclic_rcv_wqe(),
            limit: context.lwm(),
        },
    )?;
    if context.user_index_equal_xrc_srqn()
        && let Some(srq) = device.srqs.get_mut(number)
    {
        srq.user_index = number;
    }
    call.output.set_xrc_srqn(number);
    Ok(())
}

pub(super) fn destroy_xrc_srq(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyXrcSrqIn>,
) -> Result {
    destroy(device, io, call.input.xrc_srqn(), SrqKind::Xrc)
}

pub(super) fn query_xrc_srq(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, QueryXrcSrqIn>,
) -> Result {
    let number = call.input.xrc_srqn();
    checked(device, io, number, SrqKind::Xrc)?;
    let srq = device.srqs.get(number).ok_or(Syndrome::SrqUnknown)?;
    let mut context = XrcSrqc::read_from_bytes(&srq.context).unwrap_or_default();
    context
        .set_state(u8::from(srq.failed))
        .set_lwm(srq.limit)
        .set_wqe_cnt(srq.available());
    *call.output.xrc_srq_context_entry_mut() = context;
    super::put_pages(call.output_tail, srq.ring.pages());
    Ok(())
}

pub(super) fn arm_xrc_srq(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, ArmXrcSrqIn>,
) -> Result {
    checked(device, io, call.input.xrc_srqn(), SrqKind::Xrc)?;
    arm(device, io, call.input.xrc_srqn(), call.input.lwm())
}

pub(super) fn create_rmp(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, CreateRmpIn>,
) -> Result {
    if device.issi == 0 {
        return Err(Syndrome::SrqLevel.into());
    }
    let context = call.input.ctx();
    let wq = context.wq();
    if context.state() != RmpState::Ready.number() {
        return Err(Syndrome::SrqState.into());
    }
    let wq_type = WqType::from_number(wq.wq_type());
    if !matches!(wq_type, Some(WqType::LinkedList | WqType::Cyclic)) || wq.wq_signature() {
        return Err(Syndrome::SrqType.into());
    }
    let cyclic = wq_type == Some(WqType::Cyclic);
    let number = create(
        device,
        io,
        Plan {
            kind: SrqKind::Rmp,
            context: &context.0,
            buffer: buffer_of(wq, call.tail),
            log_size: wq.log_wq_sz(),
            log_stride: wq.log_wq_stride(),
            record: record_of(wq, 4),
            pd: wq.pd(),
            cqn: None,
            xrcd: None,
            user_index: NO_USER_INDEX,
            cyclic,
            basic: cyclic && context.basic_cyclic_rcv_wqe(),
            limit: wq.lwm(),
        },
    )?;
    call.output.set_rmpn(number);
    Ok(())
}

pub(super) fn modify_rmp(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, ModifyRmpIn>,
) -> Result {
    let number = call.input.rmpn();
    checked(device, io, number, SrqKind::Rmp)?;
    let ready = RmpState::Ready.number();
    if call.input.rmp_state() != ready || call.input.ctx().state() != ready {
        return Err(Syndrome::SrqState.into());
    }
    if !call.input.bitmask().lwm() {
        return Err(Syndrome::SrqModifyFields.into());
    }
    arm(device, io, number, call.input.ctx().wq().lwm())
}

pub(super) fn destroy_rmp(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyRmpIn>,
) -> Result {
    destroy(device, io, call.input.rmpn(), SrqKind::Rmp)
}

pub(super) fn query_rmp(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, QueryRmpIn>,
) -> Result {
    let number = call.input.rmpn();
    checked(device, io, number, SrqKind::Rmp)?;
    let srq = device.srqs.get(number).ok_or(Syndrome::SrqUnknown)?;
    let mut context = Rmpc::read_from_bytes(&srq.context).unwrap_or_default();
    context.wq_mut().set_lwm(srq.limit);
    *call.output.rmp_context_mut() = context;
    Ok(())
}
