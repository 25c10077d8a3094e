//! Targets of dynamic connections. To everything but these commands a target is a queue pair that is ready to receive and
//! whose receive queue is a shared one.

use super::qp::PM_MIGRATED;
use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::objects::qp::{Dct, Qp, receive, service};
use crate::roce::env::QpState;
use crate::roce::transport::Transport;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::dct::{
    ArmDctIn, CreateDctIn, Dctc, DestroyDctIn, DrainDctIn, QueryDctIn,
};
use bareverbs_firmware_cmds::qp::{Qpc, scatter};
use bareverbs_firmware_cmds::roce::RoceAddr;
use bareverbs_firmware_cmds::values::DctState;

/// The context of the target's queue pair in the transport.
fn queue_pair(device: &Device, dct: &Dctc) -> Qpc {
    let caps = &device.caps.general;
    let mut context = Qpc::ZERO;
    context
        .set_st(service::DCT)
        .set_pm_state(PM_MIGRATED)
        .set_no_sq(true)
        .set_rq_type(receive::SHARED)
        .set_srqn_rmpn_xrqn(dct.srqn_xrqn())
        .set_cqn_rcv(dct.cqn())
        .set_pd(dct.pd())
        .set_user_index(dct.user_index())
        .set_counter_set_id(dct.counter_set_id())
        .set_rlky(dct.rlky())
        .set_rre(dct.rre())
        .set_rwe(dct.rwe())
        .set_rae(dct.rae())
        .set_atomic_mode(dct.atomic_mode())
        .set_min_rnr_nak(dct.min_rnr_nak())
        .set_mtu(dct.mtu())
        .set_log_msg_max(caps.log_max_msg())
        .set_log_rra_max(caps.log_max_ra_res_dc().min(7))
        .set_cs_res(dct.cs_res())
        .set_dc_access_key(dct.dc_access_key());
    context
        .primary_address_path_mut()
        .set_vhca_port_num(dct.port())
        .set_pkey_index(dct.pkey_index())
        .set_src_addr_index(dct.my_addr_index())
        .set_hop_limit(dct.hop_limit())
        .set_tclass(dct.tclass())
        .set_dscp(dct.dscp())
        .set_ecn(dct.ecn())
        .set_flow_label(dct.flow_label())
        .set_eth_prio(dct.eth_prio());
    context
}

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateDctIn>) -> Result {
    let dctc = *call.input.dct_context_entry();
    check(device, &dctc)?;
    let context = queue_pair(device, &dctc);
    let number = device.next_qpn(false)?;
    let mut qp = Qp::new(context);
    qp.place = device.store(io, ObjectKind::Dct, number, &dctc.0)?;
    qp.dct = Some(Box::new(Dct {
        context: dctc,
        violations: 0,
        armed: false,
    }));
    device.qps.insert(qp);
    let transport = device.transport_config(number).map(Transport::new);
    if let Some(qp) = device.qps.get_mut(number) {
        qp.transport = transport.map(Box::new);
    }
    device.hold(&context, true);
    device.enter_state(io, number, QpState::Rtr);
    call.output.set_dctn(number);
    Ok(())
}

fn check(device: &Device, dct: &Dctc) -> core::result::Result<(), Syndrome> {
    let caps = &device.caps.general;
    if !caps.dct() {
        return Err(Syndrome::DctUnsupported);
    }
    if dct.state() != 0 || dct.dc_access_key_violation_count() != 0 {
        return Err(Syndrome::DctStateGiven);
    }
    if dct.ece() != 0 {
        return Err(Syndrome::QpEce);
    }
    if !device.has(ObjectKind::Pd, dct.pd()) {
        return Err(Syndrome::DctPd);
    }
    if !device.has(ObjectKind::Cq, dct.cqn()) {
        return Err(Syndrome::DctCq);
    }
    // Linux's driver asks for no other size.
    let scatters = caps.sctr_data_cqe() && device.has_long_entries(dct.cqn());
    if !matches!(
        (dct.cs_res(), scatters),
        (0, _) | (scatter::RECEIVES_64, true)
    ) {
        return Err(Syndrome::DctScatter);
    }
    if !device.has(ObjectKind::Srq, dct.srqn_xrqn()) {
        return Err(Syndrome::DctSrq);
    }
    let set = dct.counter_set_id();
    if set != 0 && !device.has(ObjectKind::QCounter, u32::from(set)) {
        return Err(Syndrome::QpCounter);
    }
    if !(1..=caps.num_ports()).contains(&dct.port()) {
        return Err(Syndrome::QpPort);
    }
    if dct.pkey_index() >= crate::port::vport::PKEYS {
        return Err(Syndrome::QpPkey);
    }
    if dct.rae() && !device.has_atomics(service::DCT) {
        return Err(Syndrome::QpAtomic);
    }
    if !(1..=5).contains(&dct.mtu())
        || device.ethernet() && dct.mtu() > device.vport.path_mtu_code()
    {
        return Err(Syndrome::QpMtu);
    }
    if device.ethernet() {
        let source = device.gids.get(usize::from(dct.my_addr_index()));
        if *source.ok_or(Syndrome::QpSourceAddress)? == RoceAddr::ZERO {
            return Err(Syndrome::QpNoAddress);
        }
    }
    Ok(())
}

fn checked(device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
    let qp = device.qps.get(number).ok_or(Syndrome::DctUnknown)?;
    let dct = qp.dct.as_ref().ok_or(Syndrome::DctUnknown)?;
    let (place, stored) = (qp.place, dct.context);
    device.check(io, place, ObjectKind::Dct, number, &stored.0)
}

/// A target is to drain before it goes: drivers wait for the event that says so.
pub(super) fn destroy(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyDctIn>,
) -> Result {
    let number = call.input.dctn();
    checked(device, io, number)?;
    if state(device, number) != DctState::Drained {
        return Err(Syndrome::DctNotDrained.into());
    }
    device.unschedule(number);
    if let Some(qp) = device.qps.remove(number) {
        device.pages.release(qp.place);
        device.hold(&qp.context, false);
    }
    Ok(())
}

pub(super) fn drain(device: &mut Device, io: &mut Io<'_>, call: Call<'_, DrainDctIn>) -> Result {
    let number = call.input.dctn();
    checked(device, io, number)?;
    if state(device, number) != DctState::Active {
        return Err(Syndrome::DctNotActive.into());
    }
    device.enter_state(io, number, QpState::Sqd);
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryDctIn>) -> Result {
    let number = call.input.dctn();
    checked(device, io, number)?;
    let state = match device.config.quirks.targets_look_active {
        true => DctState::Active,
        false => state(device, number),
    };
    let qp = device.qps.get(number).ok_or(Syndrome::DctUnknown)?;
    let dct = qp.dct.as_ref().ok_or(Syndrome::DctUnknown)?;
    let mut context = dct.context;
    context
        .set_state(state.number())
        .set_dc_access_key_violation_count(dct.violations);
    *call.output.dct_context_entry_mut() = context;
    Ok(())
}

pub(super) fn arm(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ArmDctIn>) -> Result {
    let number = call.input.dct_number();
    checked(device, io, number)?;
    if let Some(dct) = device.qps.get_mut(number).and_then(|qp| qp.dct.as_mut()) {
        dct.armed = true;
    }
    Ok(())
}

fn state(device: &Device, number: u32) -> DctState {
    let Some(qp) = device.qps.get(number) else {
        return DctState::Drained;
    };
    match &qp.transport {
        Some(transport) if transport.drained() => DctState::Drained,
        _ if qp.state == QpState::Sqd => DctState::Draining,
        _ => DctState::Active,
    }
}
