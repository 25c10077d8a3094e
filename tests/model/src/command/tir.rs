//! CREATE_TIR and the other commands of TIRs, and the tables of receive queues that TIRs spread frames over.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::ethernet::rss::{function, select};
use crate::ethernet::{DIRECT, INDIRECT, Rqt, Tir};
use crate::objects::ObjectKind;
use crate::syndrome::{Reject, Syndrome};
use bareverbs_firmware_cmds::tir::{
    CreateRqtIn, CreateTirIn, DestroyRqtIn, DestroyTirIn, ModifyRqtIn, ModifyTirIn, QueryRqtIn,
    QueryTirIn, Rqtc, Tirc,
};

/// `list_q_type`: receive queues.
const LIST_OF_RQS: u8 = 0;
/// The transport domain of those that are in none: DPDK makes the TIR of what it drops before it knows of any.
const NO_DOMAIN: u32 = 0;

/// Checks what says how a TIR hashes.
fn check_hash(context: &Tirc) -> core::result::Result<(), Syndrome> {
    if context.rx_hash_fn() > function::TOEPLITZ {
        return Err(Syndrome::TirHash);
    }
    for fields in [
        context.rx_hash_field_selector_outer(),
        context.rx_hash_field_selector_inner(),
    ] {
        if fields.selected_fields() & !select::ALL != 0 {
            return Err(Syndrome::TirHash);
        }
    }
    Ok(())
}

fn check_tir(device: &Device, context: &Tirc) -> core::result::Result<(), Syndrome> {
    let domain = context.transport_domain();
    if domain != NO_DOMAIN && !device.has(ObjectKind::TransportDomain, domain) {
        return Err(Syndrome::TirDomain);
    }
    // Merging of packets and encryption are not offered.
    if context.tls_en()
        || context.packet_merge_mask() != 0
        || context.lro_timeout_period_usecs() != 0
        || context.lro_max_ip_payload_size() != 0
        || context.tunneled_offload_en() && !device.nic.tunnels.any()
    {
        return Err(Syndrome::TirFeature);
    }
    check_hash(context)?;
    let inner = context.rx_hash_field_selector_inner().selected_fields() != 0;
    if inner && !context.tunneled_offload_en() {
        return Err(Syndrome::TirHash);
    }
    match context.disp_type() {
        DIRECT if context.rx_hash_fn() != function::NONE => Err(Syndrome::TirHash),
        DIRECT if !device.has(ObjectKind::Rq, context.inline_rqn()) => Err(Syndrome::TirQueue),
        INDIRECT if !device.has(ObjectKind::Rqt, context.indirect_table()) => {
            Err(Syndrome::TirTable)
        }
        DIRECT | INDIRECT => Ok(()),
        _ => Err(Syndrome::TirType),
    }
}

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateTirIn>) -> Result {
    let context = *call.input.ctx();
    check_tir(device, &context)?;
    let number = device
        .nic
        .tirs
        .next_number()
        .ok_or(Syndrome::TirExhausted)?;
    let place = device.store(io, ObjectKind::Tir, number, &context.0)?;
    device.nic.tirs.insert(Tir { context, place });
    device.hold_tir(&context, true);
    call.output.set_tirn(number);
    Ok(())
}

fn checked(device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
    let tir = device.nic.tirs.get(number).ok_or(Syndrome::TirUnknown)?;
    let (place, context) = (tir.place, tir.context);
    device.check(io, place, ObjectKind::Tir, number, &context.0)
}

pub(super) fn modify(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ModifyTirIn>) -> Result {
    let number = call.input.tirn();
    checked(device, io, number)?;
    let fields = call.input.bitmask();
    let wanted = call.input.ctx();
    let merges = wanted.packet_merge_mask() != 0
        || wanted.lro_timeout_period_usecs() != 0
        || wanted.lro_max_ip_payload_size() != 0;
    if fields.packet_merge() && merges {
        return Err(Syndrome::TirFeature.into());
    }
    if fields.hash() {
        check_hash(wanted)?;
    }
    let tir = device
        .nic
        .tirs
        .get_mut(number)
        .ok_or(Syndrome::TirUnknown)?;
    let context = &mut tir.context;
    if fields.hash() {
        if context.disp_type() == DIRECT {
            return Err(Syndrome::TirHash.into());
        }
        context
            .set_rx_hash_fn(wanted.rx_hash_fn())
            .set_rx_hash_symmetric(wanted.rx_hash_symmetric());
        *context.rx_hash_toeplitz_key_mut() = *wanted.rx_hash_toeplitz_key();
        *context.rx_hash_field_selector_outer_mut() = *wanted.rx_hash_field_selector_outer();
        *context.rx_hash_field_selector_inner_mut() = *wanted.rx_hash_field_selector_inner();
    }
    if fields.self_lb_en() {
        context.set_self_lb_block(wanted.self_lb_block());
    }
    let (place, context) = (tir.place, tir.context);
    device.restore(io, place, ObjectKind::Tir, number, &context.0)
}

pub(super) fn destroy(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyTirIn>,
) -> Result {
    let number = call.input.tirn();
    checked(device, io, number)?;
    if device.steering.is_tir_used(number) {
        return Err(Syndrome::TirBusy.into());
    }
    if let Some(tir) = device.nic.tirs.remove(number) {
        device.pages.release(tir.place);
        device.hold_tir(&tir.context, false);
    }
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryTirIn>) -> Result {
    let number = call.input.tirn();
    checked(device, io, number)?;
    let tir = device.nic.tirs.get(number).ok_or(Syndrome::TirUnknown)?;
    *call.output.tir_context_mut() = tir.context;
    Ok(())
}

/// The queue numbers behind a table's context.
fn queues(device: &Device, context: &Rqtc, list: &[u8]) -> core::result::Result<Vec<u32>, Reject> {
    let count = usize::from(context.rqt_actual_size());
    if count == 0 || context.rq_vhca_id_format() {
        return Err(Syndrome::RqtSize.into());
    }
    let list = list.get(..count * 4).ok_or(Syndrome::RqtList)?;
    let numbers: Vec<u32> = list
        .as_chunks::<4>()
        .0
        .iter()
        .map(|entry| u32::from_be_bytes(*entry) & 0xff_ffff)
        .collect();
    if numbers.iter().any(|&rqn| !device.has(ObjectKind::Rq, rqn)) {
        return Err(Syndrome::RqtQueue.into());
    }
    Ok(numbers)
}

pub(super) fn create_rqt(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, CreateRqtIn>,
) -> Result {
    let context = *call.input.rqt_context();
    let max = 1u32 << device.caps.general.log_max_rqt_size();
    if context.list_q_type() != LIST_OF_RQS {
        return Err(Syndrome::RqtType.into());
    }
    if u32::from(context.rqt_max_size()) > max || context.rqt_actual_size() > context.rqt_max_size()
    {
        return Err(Syndrome::RqtSize.into());
    }
    let queues = queues(device, &context, call.tail)?;
    let number = device
        .nic
        .rqts
        .next_number()
        .ok_or(Syndrome::RqtExhausted)?;
    let place = device.store(io, ObjectKind::Rqt, number, &context.0)?;
    device.hold_queues(&queues, true);
    device.nic.rqts.insert(Rqt {
        context,
        queues,
        users: 0,
        place,
    });
    call.output.set_rqtn(number);
    Ok(())
}

fn checked_rqt(device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
    let table = device.nic.rqts.get(number).ok_or(Syndrome::RqtUnknown)?;
    let (place, context) = (table.place, table.context);
    device.check(io, place, ObjectKind::Rqt, number, &context.0)
}

pub(super) fn modify_rqt(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, ModifyRqtIn>,
) -> Result {
    let number = call.input.rqtn();
    checked_rqt(device, io, number)?;
    if !call.input.bitmask().rqn_list() {
        return Ok(());
    }
    let wanted = call.input.ctx();
    let queues = queues(device, wanted, call.tail)?;
    let table = device
        .nic
        .rqts
        .get_mut(number)
        .ok_or(Syndrome::RqtUnknown)?;
    if wanted.rqt_actual_size() > table.context.rqt_max_size() {
        return Err(Syndrome::RqtSize.into());
    }
    table.context.set_rqt_actual_size(wanted.rqt_actual_size());
    let (place, context) = (table.place, table.context);
    let old = core::mem::replace(&mut table.queues, queues.clone());
    device.hold_queues(&queues, true);
    device.hold_queues(&old, false);
    device.restore(io, place, ObjectKind::Rqt, number, &context.0)
}

pub(super) fn destroy_rqt(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyRqtIn>,
) -> Result {
    let number = call.input.rqtn();
    checked_rqt(device, io, number)?;
    let busy = |table: &Rqt| table.users != 0;
    if device.nic.rqts.get(number).is_some_and(busy) {
        return Err(Syndrome::RqtBusy.into());
    }
    if let Some(table) = device.nic.rqts.remove(number) {
        device.pages.release(table.place);
        device.hold_queues(&table.queues, false);
    }
    Ok(())
}

pub(super) fn query_rqt(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, QueryRqtIn>,
) -> Result {
    let number = call.input.rqtn();
    checked_rqt(device, io, number)?;
    let table = device.nic.rqts.get(number).ok_or(Syndrome::RqtUnknown)?;
    *call.output.rqt_context_mut() = table.context;
    if !call.output_tail.is_empty() {
        let entries = call.output_tail.as_chunks_mut::<4>().0;
        if entries.len() < table.queues.len() {
            return Err(Syndrome::RqtOutput.into());
        }
        for (entry, number) in entries.iter_mut().zip(&table.queues) {
            *entry = number.to_be_bytes();
        }
    }
    Ok(())
}

impl Device {
    /// Counts a TIR in or out of what it refers to.
    fn hold_tir(&mut self, context: &Tirc, add: bool) {
        self.use_domain(context.transport_domain(), add);
        if context.disp_type() == DIRECT {
            self.hold_queues(&[context.inline_rqn()], add);
        } else if let Some(table) = self.nic.rqts.get_mut(context.indirect_table()) {
            table.users = if add {
                table.users + 1
            } else {
                table.users.saturating_sub(1)
            };
        }
    }

    fn hold_queues(&mut self, queues: &[u32], add: bool) {
        for &number in queues {
            if let Some(rq) = self.nic.rqs.get_mut(number) {
                rq.users = if add {
                    rq.users + 1
                } else {
                    rq.users.saturating_sub(1)
                };
            }
        }
    }
}
