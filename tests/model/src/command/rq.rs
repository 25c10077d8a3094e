//! CREATE_RQ and the other commands of receive queues.

use super::umem::{buffer_of, record_of};
use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::ethernet::{MEMORY_INLINE, MEMORY_RMP, QueueState, Rq, Strides, wq};
use crate::memory::ring::{Ring, RingError};
use crate::objects::ObjectKind;
use crate::objects::srq::SrqKind;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::doorbell::ReceiveRecord;
use bareverbs_firmware_cmds::rq::{CreateRqIn, DestroyRqIn, ModifyRqIn, QueryRqIn, Rqc};

/// Fields that MODIFY_RQ can change.
const MODIFY_VSD: u64 = 1 << 1;
const MODIFY_COUNTER_SET: u64 = 1 << 3;

/// The context as it lies in the host's pages: the state changes without commands and is kept elsewhere.
fn image(context: &Rqc) -> Rqc {
    let mut image = *context;
    image.set_state(0);
    image
}

fn check_counter(device: &Device, set: u8) -> core::result::Result<(), Syndrome> {
    if set == 0 || device.has(ObjectKind::QCounter, u32::from(set)) {
        Ok(())
    } else {
        Err(Syndrome::RqCounter)
    }
}

fn check_context(device: &Device, context: &Rqc) -> core::result::Result<(), Syndrome> {
    let wq = context.wq();
    if context.state() != QueueState::Reset as u8 {
        return Err(Syndrome::RqState);
    }
    // Hairpins, delayed drops, check sequences and reservations are not offered.
    if context.hairpin()
        || context.delay_drop_en()
        || context.scatter_fcs()
        || wq.shampo_enable()
        || wq.two_byte_shift_en()
    {
        return Err(Syndrome::RqFeature);
    }
    if !device.has(ObjectKind::Cq, context.cqn()) {
        return Err(Syndrome::RqCq);
    }
    check_counter(device, context.counter_set_id())?;
    if context.mem_rq_type() == MEMORY_RMP {
        let pool = device.srqs.get(context.rmpn());
        return match pool {
            Some(pool)
                if pool.kind == SrqKind::Rmp && device.has(ObjectKind::Srq, context.rmpn()) =>
            {
                Ok(())
            }
            _ => Err(Syndrome::RqPool),
        };
    }
    if context.mem_rq_type() != MEMORY_INLINE {
        return Err(Syndrome::RqType);
    }
    let cyclic = match wq.wq_type() {
        wq::LINKED_LIST | wq::LINKED_LIST_STRIDING => false,
        wq::CYCLIC | wq::CYCLIC_STRIDING => true,
        _ => return Err(Syndrome::RqType),
    };
    if wq.wq_signature() {
        return Err(Syndrome::RqType);
    }
    let strides = Strides::of(wq);
    if let Some(strides) = strides {
        let general = &device.caps.general;
        // 2^9 to 2^16 strides, from 2^3 on with the capability (`MLX5_MPWQE_LOG_NUM_STRIDES_EXT_BASE` of Linux).
        let least = if general.ext_stride_num_range() { 3 } else { 9 };
        if !general.striding_rq() {
            return Err(Syndrome::RqType);
        }
        if strides.log_number < least {
            return Err(Syndrome::RqStrides);
        }
    }
    // A list's WQE starts with the link to the next one, a striding queue's with as much, be it a list or a ring.
    let linked = !cyclic || strides.is_some();
    if wq.log_wq_stride() > 11 || wq.log_wq_stride() < if linked { 5 } else { 4 } {
        return Err(Syndrome::RqStride);
    }
    if 1 << wq.log_wq_stride() > device.caps.general.max_wqe_sz_rq() {
        return Err(Syndrome::RqWqeSize);
    }
    if wq.log_wq_sz() > device.caps.general.log_max_wq_sz() {
        return Err(Syndrome::RqSize);
    }
    // The vendor's driver has a queue that only drops, without a protection domain: none of its buffers can be written.
    if wq.pd() != 0 && !device.has(ObjectKind::Pd, wq.pd()) {
        return Err(Syndrome::RqPd);
    }
    Ok(())
}

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateRqIn>) -> Result {
    let context = *call.input.ctx();
    check_context(device, &context)?;
    let wq = context.wq();
    let ring = if context.mem_rq_type() == MEMORY_RMP {
        Ring::default()
    } else {
        let wanted = record_of(wq, 8);
        let record = device.record_address(io, wanted, Syndrome::RqRecord, Syndrome::RqUmem)?;
        let len = 1u64 << (wq.log_wq_stride() + wq.log_wq_sz());
        device
            .queue_memory(buffer_of(wq, call.tail), len)
            .map_err(|error| match error {
                RingError::Short => Syndrome::RqPages,
                RingError::PageSize => Syndrome::RqPageSize,
                RingError::Unaligned => Syndrome::RqPageUnaligned,
                RingError::Umem => Syndrome::RqUmem,
                RingError::Range => Syndrome::UmemRange,
            })?
            .with_record(record, wanted.umem)
    };
    let number = device.nic.rqs.next_number().ok_or(Syndrome::RqExhausted)?;
    let place = device.store(io, ObjectKind::Rq, number, &context.0)?;
    device.nic.rqs.insert(Rq {
        context,
        state: QueueState::Reset,
        ring,
        next: 0,
        posted: 0,
        link: 0,
        open: None,
        users: 0,
        place,
    });
    device.hold_rq(&context, true);
    if Strides::of(context.wq()).is_some()
        && let Some(cq) = device.cqs.get_mut(context.cqn())
    {
        cq.strides = true;
    }
    call.output.set_rqn(number);
    Ok(())
}

fn checked(device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
    let rq = device.nic.rqs.get(number).ok_or(Syndrome::RqUnknown)?;
    let (place, stored) = (rq.place, image(&rq.context));
    device.check(io, place, ObjectKind::Rq, number, &stored.0)
}

pub(super) fn modify(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ModifyRqIn>) -> Result {
    let number = call.input.rqn();
    checked(device, io, number)?;
    let fields = call.input.modify_bitmask();
    let wanted = call.input.ctx();
    if fields & !(MODIFY_VSD | MODIFY_COUNTER_SET) != 0 {
        return Err(Syndrome::RqModifyFields.into());
    }
    if fields & MODIFY_COUNTER_SET != 0 {
        if !device.caps.general.modify_rq_counter_set_id() {
            return Err(Syndrome::RqModifyFields.into());
        }
        check_counter(device, wanted.counter_set_id())?;
    }
    let rq = device.nic.rqs.get(number).ok_or(Syndrome::RqUnknown)?;
    if rq.state == QueueState::Reset
        && wanted.state() == QueueState::Ready as u8
        && rq.context.mem_rq_type() != MEMORY_RMP
        && io
            .read_be32(rq.ring.record())
            .is_ok_and(|record| ReceiveRecord(record).counter() != 0)
    {
        // "The RQ consumer index must be zeroed while moving from RESET state to RDY state" (DPDK, `mlx5_rx_err_handle`).
        return Err(Syndrome::RqPostedEarly.into());
    }
    let rq = device.nic.rqs.get_mut(number).ok_or(Syndrome::RqUnknown)?;
    if call.input.rq_state() != rq.state as u8 {
        return Err(Syndrome::RqCurrentState.into());
    }
    let next = QueueState::from_code(wanted.state()).ok_or(Syndrome::RqNextState)?;
    if !rq.state.may_become(next) {
        return Err(Syndrome::RqNextState.into());
    }
    let old = rq.context;
    if fields & MODIFY_VSD != 0 {
        rq.context.set_vsd(wanted.vsd());
    }
    if fields & MODIFY_COUNTER_SET != 0 {
        rq.context.set_counter_set_id(wanted.counter_set_id());
    }
    rq.state = next;
    if next == QueueState::Reset {
        rq.next = 0;
        rq.posted = 0;
        rq.link = 0;
        rq.open = None;
    }
    let (place, context) = (rq.place, rq.context);
    device.hold_rq(&context, true);
    device.hold_rq(&old, false);
    if next == QueueState::Error {
        device.fail_rq(io, number);
    } else {
        device.draining.remove(&number);
    }
    device.restore(io, place, ObjectKind::Rq, number, &image(&context).0)
}

pub(super) fn destroy(device: &mut Device, io: &mut Io<'_>, call: Call<'_, DestroyRqIn>) -> Result {
    let number = call.input.rqn();
    checked(device, io, number)?;
    if device.nic.rqs.get(number).is_some_and(|rq| rq.users != 0) {
        return Err(Syndrome::RqBusy.into());
    }
    if let Some(rq) = device.nic.rqs.remove(number) {
        device.pages.release(rq.place);
        device.hold_rq(&rq.context, false);
    }
    device.draining.remove(&number);
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryRqIn>) -> Result {
    let number = call.input.rqn();
    checked(device, io, number)?;
    let rq = device.nic.rqs.get(number).ok_or(Syndrome::RqUnknown)?;
    let mut context = rq.context;
    context.set_state(rq.state as u8);
    context
        .wq_mut()
        .set_hw_counter(u32::from(rq.next))
        .set_sw_counter(u32::from(rq.posted));
    *call.output.rq_context_mut() = context;
    super::put_pages(call.output_tail, rq.ring.pages());
    Ok(())
}

impl Device {
    /// Counts a receive queue in or out of what it refers to.
    fn hold_rq(&mut self, context: &Rqc, add: bool) {
        let change = |users: &mut u32| {
            *users = if add {
                *users + 1
            } else {
                users.saturating_sub(1)
            };
        };
        if let Some(cq) = self.cqs.get_mut(context.cqn()) {
            change(&mut cq.users);
        }
        if let Some(pd) = self.pds.get_mut(context.wq().pd()) {
            change(&mut pd.users);
        }
        if context.mem_rq_type() == MEMORY_RMP
            && let Some(pool) = self.srqs.get_mut(context.rmpn())
        {
            change(&mut pool.users);
        }
        if let Some(set) = self.counters.get_mut(u32::from(context.counter_set_id())) {
            change(&mut set.users);
        }
    }
}
