//! CREATE_SQ and the other commands of send queues.

use super::umem::{buffer_of, record_of};
use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::ethernet::{BLOCK, QueueState, Sq, wq};
use crate::memory::ring::RingError;
use crate::objects::ObjectKind;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::sq::{CreateSqIn, DestroySqIn, ModifySqIn, QuerySqIn, Sqc};
use bareverbs_firmware_cmds::umem::UCTX_CAP_RAW_TX;

/// Binary logarithm of a send queue's basic block.
const LOG_BLOCK: u8 = 6;

/// The context as it lies in the host's pages: the state changes without commands and is kept elsewhere.
fn image(context: &Sqc) -> Sqc {
    let mut image = *context;
    image.set_state(0);
    image
}

fn check_context(device: &Device, context: &Sqc) -> core::result::Result<(), Syndrome> {
    let wq = context.wq();
    if context.state() != QueueState::Reset as u8 {
        return Err(Syndrome::SqState);
    }
    let caps = &device.caps.ethernet;
    let multi = caps.enhanced_multi_pkt_send_wqe() || caps.multi_pkt_send_wqe() != 0;
    // Linux and DPDK set the inline mode where the port's context has it (`MLX5_CAP_INLINE_MODE_VPORT_CONTEXT`) only.
    let inline_mode = caps.wqe_inline_mode() == 1 || context.min_wqe_inline_mode() == 0;
    // Hairpins, pacing and time stamps elsewhere are not offered.
    if !inline_mode
        || context.hairpin()
        || context.packet_pacing_rate_limit_index() != 0
        || context.qos_queue_group_id() != 0
        || context.allow_multi_pkt_send_wqe() && !multi
        || context.allow_swp() && !caps.swp()
        || context.ts_cqe_to_dest_cqn() != 0
        || context.cd_master()
        || context.reg_umr() && !caps.reg_umr_sq()
    {
        return Err(Syndrome::SqFeature);
    }
    if !device.users.may(UCTX_CAP_RAW_TX) {
        return Err(Syndrome::SqRawTx);
    }
    if wq.wq_type() != wq::CYCLIC || wq.wq_signature() || wq.log_wq_stride() != LOG_BLOCK {
        return Err(Syndrome::SqType);
    }
    if wq.log_wq_sz() > device.caps.general.log_max_wq_sz() {
        return Err(Syndrome::SqSize);
    }
    if !device.has(ObjectKind::Cq, context.cqn()) {
        return Err(Syndrome::SqCq);
    }
    if !device.has(ObjectKind::Pd, wq.pd()) {
        return Err(Syndrome::SqPd);
    }
    if !device.has(ObjectKind::Uar, wq.uar_page()) {
        return Err(Syndrome::SqUar);
    }
    // A queue that only changes memory keys and wakes its owner needs none.
    match context.tis_lst_sz() {
        0 => Ok(()),
        1 if device.has(ObjectKind::Tis, context.tis_num_0()) => Ok(()),
        _ => Err(Syndrome::SqTis),
    }
}

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateSqIn>) -> Result {
    let context = *call.input.ctx();
    check_context(device, &context)?;
    let wq = context.wq();
    let wanted = record_of(wq, 8);
    let record = device.record_address(io, wanted, Syndrome::SqRecord, Syndrome::SqUmem)?;
    let ring = device
        .queue_memory(buffer_of(wq, call.tail), BLOCK << wq.log_wq_sz())
        .map_err(|error| match error {
            RingError::Short => Syndrome::SqPages,
            RingError::PageSize => Syndrome::SqPageSize,
            RingError::Unaligned => Syndrome::SqPageUnaligned,
            RingError::Umem => Syndrome::SqUmem,
            RingError::Range => Syndrome::UmemRange,
        })?
        .with_record(record, wanted.umem);
    let number = device.nic.sqs.next_number().ok_or(Syndrome::SqExhausted)?;
    let place = device.store(io, ObjectKind::Sq, number, &context.0)?;
    device.nic.sqs.insert(Sq {
        context,
        state: QueueState::Reset,
        ring,
        next: 0,
        posted: 0,
        written: None,
        queued: false,
        place,
    });
    device.hold_sq(&context, true);
    call.output.set_sqn(number);
    Ok(())
}

fn checked(device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
    let sq = device.nic.sqs.get(number).ok_or(Syndrome::SqUnknown)?;
    let (place, stored) = (sq.place, image(&sq.context));
    device.check(io, place, ObjectKind::Sq, number, &stored.0)
}

pub(super) fn modify(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ModifySqIn>) -> Result {
    let number = call.input.sqn();
    checked(device, io, number)?;
    if call.input.modify_bitmask() != 0 {
        return Err(Syndrome::SqModifyFields.into());
    }
    let sq = device.nic.sqs.get_mut(number).ok_or(Syndrome::SqUnknown)?;
    if call.input.sq_state() != sq.state as u8 {
        return Err(Syndrome::SqCurrentState.into());
    }
    let next = QueueState::from_code(call.input.ctx().state()).ok_or(Syndrome::SqNextState)?;
    if !sq.state.may_become(next) {
        return Err(Syndrome::SqNextState.into());
    }
    sq.state = next;
    if next == QueueState::Reset {
        sq.next = 0;
        sq.posted = 0;
        sq.written = None;
    }
    device.wake_sq(number);
    Ok(())
}

pub(super) fn destroy(device: &mut Device, io: &mut Io<'_>, call: Call<'_, DestroySqIn>) -> Result {
    let number = call.input.sqn();
    checked(device, io, number)?;
    if let Some(sq) = device.nic.sqs.remove(number) {
        device.pages.release(sq.place);
        device.hold_sq(&sq.context, false);
    }
    device.ready.retain(|&other| other != number);
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QuerySqIn>) -> Result {
    let number = call.input.sqn();
    checked(device, io, number)?;
    let sq = device.nic.sqs.get(number).ok_or(Syndrome::SqUnknown)?;
    let mut context = sq.context;
    context.set_state(sq.state as u8);
    context
        .wq_mut()
        .set_hw_counter(u32::from(sq.next))
        .set_sw_counter(u32::from(sq.posted));
    *call.output.sq_context_mut() = context;
    super::put_pages(call.output_tail, sq.ring.pages());
    Ok(())
}

impl Device {
    /// Counts a send queue in or out of what it refers to.
    fn hold_sq(&mut self, context: &Sqc, add: bool) {
        let change = |users: &mut u32| {
            *users = if add {
                *users + 1
            } else {
                users.saturating_sub(1)
            };
        };
        let wq = context.wq();
        if let Some(cq) = self.cqs.get_mut(context.cqn()) {
            change(&mut cq.users);
        }
        if let Some(pd) = self.pds.get_mut(wq.pd()) {
            change(&mut pd.users);
        }
        if context.tis_lst_sz() != 0
            && let Some(tis) = self.nic.tises.get_mut(context.tis_num_0())
        {
            change(&mut tis.users);
        }
    }
}
