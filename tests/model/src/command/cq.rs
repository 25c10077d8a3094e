//! CREATE_CQ, DESTROY_CQ, QUERY_CQ, MODIFY_CQ.

use super::umem::{Buffer, Record};
use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::memory::ring::RingError;
use crate::objects::ObjectKind;
use crate::objects::cq::Cq;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::cq::{Cqc, CreateCqIn, DestroyCqIn, ModifyCqIn, QueryCqIn};
use bareverbs_firmware_cmds::cqe::mini::MiniFormat;
use bareverbs_firmware_cmds::cqe::{OpOwn, Opcode, SIZE};
use bareverbs_firmware_cmds::values::{CqeSize, ModifyCq};
use bareverbs_firmware_cmds::word::Word;

/// Fields that MODIFY_CQ can modify.
const PERIOD: u32 = 1 << 0;
const MAX_COUNT: u32 = 1 << 1;
const OVERRUN: u32 = 1 << 2;
const REMAP: u32 = 1 << 3;
const PERIOD_MODE: u32 = 1 << 4;

/// Fields that a resize brings.
const RESIZE_LOG_SIZE: u32 = 1 << 0;
const RESIZE_PAGE_OFFSET: u32 = 1 << 1;
const RESIZE_PAGE_SIZE: u32 = 1 << 2;

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateCqIn>) -> Result {
    let context = *call.input.cq_context();
    if context.apu_cq() {
        return Err(Syndrome::CqApu.into());
    }
    let fresh = context.status() == 0
        && context.st() == 0
        && context.consumer_counter() == 0
        && context.producer_counter() == 0;
    if !fresh {
        return Err(Syndrome::CqState.into());
    }
    if context.log_cq_size() > device.caps.general.log_max_cq_sz() {
        return Err(Syndrome::CqSize.into());
    }
    if CqeSize::from_number(context.cqe_sz()).is_none() {
        return Err(Syndrome::CqEntrySize.into());
    }
    if context.cqe_comp_en() {
        compression(device, &context)?;
    }
    if context.oi() && !device.caps.general.cq_oi() {
        return Err(Syndrome::CqIgnoreOverrun.into());
    }
    if context.cq_period_mode() != 0 && !device.caps.general.cq_period_start_from_cqe() {
        return Err(Syndrome::CqPeriodMode.into());
    }
    if context.scqe_break_moderation_en() && !device.caps.general.scqe_break_moderation() {
        return Err(Syndrome::CqSolicitedBreak.into());
    }
    if !device.has(ObjectKind::Uar, context.uar_page()) {
        return Err(Syndrome::CqUar.into());
    }
    let eqn = context.c_eqn_or_apu_element() & 0xff;
    if !device.has(ObjectKind::Eq, eqn) {
        return Err(Syndrome::CqEq.into());
    }
    let umem = context.dbr_umem_valid().then(|| context.dbr_umem_id());
    let record = device.record_address(
        io,
        Record {
            umem,
            address: context.dbr_addr(),
            len: 8,
        },
        Syndrome::CqRecord,
        Syndrome::CqUmem,
    )?;
    let buffer = if call.input.cq_umem_valid() {
        Buffer::Umem {
            id: call.input.cq_umem_id(),
            offset: call.input.cq_umem_offset(),
        }
    } else {
        Buffer::List {
            list: call.tail,
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
        }
    };
    let len = Cq::stride(context.cqe_sz()) << context.log_cq_size();
    let ring = device
        .queue_memory(buffer, len)
        .map_err(|error| match error {
            RingError::Short => Syndrome::CqPages,
            RingError::PageSize => Syndrome::CqPageSize,
            RingError::Unaligned => Syndrome::CqPageUnaligned,
            RingError::Umem => Syndrome::CqUmem,
            RingError::Range => Syndrome::UmemRange,
        })?
        .with_record(record, umem);
    let number = device.cqs.next_number().ok_or(Syndrome::CqExhausted)?;
    let place = device.store(io, ObjectKind::Cq, number, &context.0)?;
    device.cqs.insert(Cq::new(context, ring, place));
    if let Some(eq) = device.eqs.get_mut(eqn) {
        eq.users += 1;
    }
    call.output.set_cqn(number);
    Ok(())
}

/// Checks whether the queue may be one that compresses.
fn compression(device: &Device, context: &Cqc) -> Result {
    let caps = &device.caps.general;
    let wide = Cq::stride(context.cqe_sz()) == 128;
    let offered = match MiniFormat::from_number(context.mini_cqe_res_format()) {
        Some(MiniFormat::Hash | MiniFormat::Checksum) => true,
        Some(MiniFormat::ChecksumStride) => caps.mini_cqe_resp_stride_index(),
        None => false,
    };
    let basic = context.cqe_compression_layout() == 0;
    if !caps.cqe_compression() || wide && !caps.cqe_compression_128() {
        return Err(Syndrome::CqCompression.into());
    }
    if !offered || !basic {
        return Err(Syndrome::CqCompressionFormat.into());
    }
    Ok(())
}

pub(super) fn destroy(device: &mut Device, io: &mut Io<'_>, call: Call<'_, DestroyCqIn>) -> Result {
    let number = call.input.cqn();
    let cq = device.cqs.get(number).ok_or(Syndrome::CqUnknown)?;
    if cq.users != 0 {
        return Err(Syndrome::CqBusy.into());
    }
    let (place, context) = (cq.place, cq.context);
    device.check(io, place, ObjectKind::Cq, number, &context.0)?;
    device.cqs.remove(number);
    device.held_back.retain(|&(_, cqn)| cqn != number);
    device.sessions.retain(|&(_, cqn)| cqn != number);
    device.pages.release(place);
    if let Some(eq) = device.eqs.get_mut(context.c_eqn_or_apu_element() & 0xff) {
        eq.users -= 1;
    }
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryCqIn>) -> Result {
    let number = call.input.cqn();
    let cq = device.cqs.get(number).ok_or(Syndrome::CqUnknown)?;
    let (place, context) = (cq.place, cq.context);
    device.check(io, place, ObjectKind::Cq, number, &context.0)?;
    device.refresh_consumer(io, number);
    let cq = device.cqs.get(number).ok_or(Syndrome::CqUnknown)?;
    *call.output.cq_context_mut() = cq.shown();
    if device.config.cq_counters_lag {
        let context = call.output.cq_context_mut();
        context.set_producer_counter(context.consumer_counter());
    }
    super::put_pages(call.output_tail, cq.ring.pages());
    Ok(())
}

pub(super) fn modify(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ModifyCqIn>) -> Result {
    let number = call.input.cqn();
    let cq = device.cqs.get(number).ok_or(Syndrome::CqUnknown)?;
    let (place, context) = (cq.place, cq.context);
    device.check(io, place, ObjectKind::Cq, number, &context.0)?;
    match ModifyCq::from_number(call.input.op_mod()) {
        Some(ModifyCq::Modify) => modify_fields(device, &call)?,
        Some(ModifyCq::Resize) => resize(device, io, &call)?,
        None => return Err(Syndrome::CqModifyOpMod.into()),
    }
    let cq = device.cqs.get(number).ok_or(Syndrome::CqUnknown)?;
    let context = cq.context;
    device.restore(io, place, ObjectKind::Cq, number, &context.0)
}

fn modify_fields(device: &mut Device, call: &Call<'_, ModifyCqIn>) -> Result {
    let number = call.input.cqn();
    let fields = call.input.modify_field_select_resize_field_select();
    let wanted = call.input.cq_context();
    if fields & !(PERIOD | MAX_COUNT | OVERRUN | REMAP | PERIOD_MODE) != 0 {
        return Err(Syndrome::CqModifyFields.into());
    }
    if fields & (PERIOD | MAX_COUNT | PERIOD_MODE) != 0 && !device.caps.general.cq_moderation() {
        return Err(Syndrome::CqModerationUnsupported.into());
    }
    let period_mode = fields & PERIOD_MODE != 0 && wanted.cq_period_mode() != 0;
    if period_mode && !device.caps.general.cq_period_start_from_cqe() {
        return Err(Syndrome::CqPeriodMode.into());
    }
    if fields & OVERRUN != 0 && wanted.oi() && !device.caps.general.cq_oi() {
        return Err(Syndrome::CqModifyOverrun.into());
    }
    if fields & REMAP != 0 && !device.caps.general.cq_eq_remap() {
        return Err(Syndrome::CqRemapUnsupported.into());
    }
    let eqn = wanted.c_eqn_or_apu_element() & 0xff;
    if fields & REMAP != 0 && !device.has(ObjectKind::Eq, eqn) {
        return Err(Syndrome::CqEq.into());
    }
    let cq = device.cqs.get_mut(number).ok_or(Syndrome::CqUnknown)?;
    if fields & PERIOD != 0 {
        cq.context.set_cq_period(wanted.cq_period());
    }
    if fields & MAX_COUNT != 0 {
        cq.context.set_cq_max_count(wanted.cq_max_count());
    }
    if fields & PERIOD_MODE != 0 {
        cq.context.set_cq_period_mode(wanted.cq_period_mode());
    }
    if fields & OVERRUN != 0 {
        cq.context.set_oi(wanted.oi());
    }
    if fields & REMAP != 0 {
        let old = cq.context.c_eqn_or_apu_element() & 0xff;
        cq.context.set_c_eqn_or_apu_element(eqn);
        for (eqn, add) in [(old, false), (eqn, true)] {
            if let Some(eq) = device.eqs.get_mut(eqn) {
                eq.users = if add { eq.users + 1 } else { eq.users - 1 };
            }
        }
    }
    Ok(())
}

/// The last entry of the old queue says that the next one is in the new queue.
fn resize(device: &mut Device, io: &mut Io<'_>, call: &Call<'_, ModifyCqIn>) -> Result {
    let number = call.input.cqn();
    let wanted = call.input.cq_context();
    let fields = call.input.modify_field_select_resize_field_select();
    if !device.caps.general.cq_resize() {
        return Err(Syndrome::CqResizeUnsupported.into());
    }
    if fields & !(RESIZE_LOG_SIZE | RESIZE_PAGE_OFFSET | RESIZE_PAGE_SIZE) != 0
        || fields & RESIZE_LOG_SIZE == 0
    {
        return Err(Syndrome::CqResizeFields.into());
    }
    let size_is_known = CqeSize::from_number(wanted.cqe_sz()).is_some();
    if wanted.log_cq_size() > device.caps.general.log_max_cq_sz() || !size_is_known {
        return Err(Syndrome::CqResizeSize.into());
    }
    device.refresh_consumer(io, number);
    let cq = device.cqs.get(number).ok_or(Syndrome::CqUnknown)?;
    if cq.status != 0 {
        return Err(Syndrome::CqResizeState.into());
    }
    // The present entries are moved, and one more entry reports the resize.
    if cq.outstanding() + 1 > 1 << wanted.log_cq_size() || cq.outstanding() >= cq.size() {
        return Err(Syndrome::CqResizeOutstanding.into());
    }
    let mut context = cq.context;
    context.set_log_cq_size(wanted.log_cq_size());
    if fields & RESIZE_PAGE_OFFSET != 0 {
        context.set_page_offset(wanted.page_offset());
    }
    if fields & RESIZE_PAGE_SIZE != 0 {
        context.set_log_page_size(wanted.log_page_size());
    }
    // Drivers always say the entry size, 64 bytes being zero.
    context.set_cqe_sz(wanted.cqe_sz());
    let buffer = if call.input.cq_umem_valid() {
        Buffer::Umem {
            id: call.input.cq_umem_id(),
            offset: call.input.cq_umem_offset(),
        }
    } else {
        Buffer::List {
            list: call.tail,
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
        }
    };
    let len = Cq::stride(context.cqe_sz()) << context.log_cq_size();
    let ring = device
        .queue_memory(buffer, len)
        .map_err(|error| match error {
            RingError::Short => Syndrome::CqResizePages,
            RingError::PageSize => Syndrome::CqResizePageSize,
            RingError::Unaligned => Syndrome::CqResizePageUnaligned,
            RingError::Umem => Syndrome::CqUmem,
            RingError::Range => Syndrome::UmemRange,
        })?
        .with_record_of(&cq.ring);
    let mut entry = [0; SIZE];
    OpOwn::new(Opcode::ResizeCq).write(&mut entry);
    device
        .complete(io, number, &mut entry, false)
        .map_err(|_| Syndrome::CqResizeState)?;
    if let Some(cq) = device.cqs.get_mut(number) {
        cq.context = context;
        cq.ring = ring;
    }
    Ok(())
}
