//! The state transitions of QPs.
//!
//! A transition brings a QP context in which only the attributes of that very call are set and everything else is zero, so
//! it is merged field by field: those that the transition requires always, the optional ones when their bit in
//! `opt_param_mask` is set.

use super::qp::{PM_MIGRATED, checked, image};
use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::objects::eq::event;
use crate::objects::qp::kind;
use crate::port::lid::unicast;
use crate::roce::env::{PathMigration, QpKind, QpState};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::qp::{
    Ads, Init2initQpIn, Init2rtrQpIn, Qp2ErrIn, Qp2RstIn, Qpc, QpcExt, Rst2initQpIn, Rtr2rtsQpIn,
    Rts2rtsQpIn, Sqd2rtsQpIn, Sqerr2rtsQpIn,
};
use bareverbs_firmware_cmds::roce::RoceAddr;
use bareverbs_firmware_cmds::values::OptParamMask as Opt;
use zerocopy::FromBytes;

/// One transition.
struct Transition {
    from: &'static [QpState],
    to: QpState,
    /// Optional attributes that it accepts.
    optional: fn() -> Opt,
    required: fn(&mut Qpc, &Qpc),
}

const RST2INIT: Transition = Transition {
    from: &[QpState::Reset],
    to: QpState::Init,
    optional: || {
        Opt::ACCESS
            | Opt::PKEY_INDEX
            | Opt::Q_KEY
            | Opt::PRI_PORT
            | Opt::COUNTER_SET_ID
            | Opt::LAG_TX_AFF
    },
    required: |to, from| {
        merge_port(to, from);
        to.set_rre(from.rre())
            .set_rwe(from.rwe())
            .set_rae(from.rae())
            .set_atomic_mode(from.atomic_mode())
            .set_q_key(from.q_key())
            .set_counter_set_id(from.counter_set_id())
            .set_deth_sqpn(from.deth_sqpn());
        if from.rlky() {
            to.set_rlky(true);
        }
    },
};

const INIT2INIT: Transition = Transition {
    from: &[QpState::Init],
    to: QpState::Init,
    optional: || {
        Opt::ACCESS
            | Opt::PKEY_INDEX
            | Opt::Q_KEY
            | Opt::PRI_PORT
            | Opt::COUNTER_SET_ID
            | Opt::LAG_TX_AFF
    },
    required: |_, _| {},
};

const INIT2RTR: Transition = Transition {
    from: &[QpState::Init],
    to: QpState::Rtr,
    optional: || {
        Opt::ALT_ADDR_PATH
            | Opt::ACCESS
            | Opt::PKEY_INDEX
            | Opt::Q_KEY
            | Opt::COUNTER_SET_ID
            | Opt::LAG_TX_AFF
    },
    required: |to, from| {
        merge_path(to.primary_address_path_mut(), from.primary_address_path());
        to.set_mtu(from.mtu())
            .set_log_msg_max(from.log_msg_max())
            .set_remote_qpn(from.remote_qpn())
            .set_next_rcv_psn(from.next_rcv_psn())
            .set_log_rra_max(from.log_rra_max())
            .set_min_rnr_nak(from.min_rnr_nak());
    },
};

const RTR2RTS: Transition = Transition {
    from: &[QpState::Rtr],
    to: QpState::Rts,
    optional: || {
        Opt::ALT_ADDR_PATH
            | Opt::ACCESS
            | Opt::Q_KEY
            | Opt::RNR_TIMEOUT
            | Opt::PM_STATE
            | Opt::COUNTER_SET_ID
            | Opt::LAG_TX_AFF
    },
    required: |to, from| {
        let timeout = from.primary_address_path().ack_timeout();
        to.primary_address_path_mut().set_ack_timeout(timeout);
        to.set_next_send_psn(from.next_send_psn())
            .set_retry_count(from.retry_count())
            .set_rnr_retry(from.rnr_retry())
            .set_log_sra_max(from.log_sra_max());
    },
};

/// The options of a QP that is in use.
fn live() -> Opt {
    Opt::ALT_ADDR_PATH
        | Opt::ACCESS
        | Opt::PKEY_INDEX
        | Opt::Q_KEY
        | Opt::RNR_TIMEOUT
        | Opt::PM_STATE
        | Opt::RETRY_COUNT
        | Opt::RNR_RETRY
        | Opt::ACK_TIMEOUT
        | Opt::COUNTER_SET_ID
        | Opt::LAG_TX_AFF
}

const RTS2RTS: Transition = Transition {
    from: &[QpState::Rts],
    to: QpState::Rts,
    optional: live,
    required: |_, _| {},
};

const SQERR2RTS: Transition = Transition {
    from: &[QpState::Sqe],
    to: QpState::Rts,
    optional: || Opt::Q_KEY | Opt::ACCESS,
    required: |_, _| {},
};

const SQD2RTS: Transition = Transition {
    from: &[QpState::Sqd],
    to: QpState::Rts,
    optional: || live() | Opt::PRIMARY_ADDR_PATH | Opt::SRA_MAX | Opt::RRA_MAX | Opt::PRI_PORT,
    required: |_, _| {},
};

fn merge_port(to: &mut Qpc, from: &Qpc) {
    let from = from.primary_address_path();
    let (pkey, port) = (from.pkey_index(), from.vhca_port_num());
    to.primary_address_path_mut()
        .set_pkey_index(pkey)
        .set_vhca_port_num(port);
}

/// The path without what other attributes own: P_Key, port, timeout.
fn merge_path(to: &mut Ads, from: &Ads) {
    let (pkey, port, timeout) = (to.pkey_index(), to.vhca_port_num(), to.ack_timeout());
    *to = *from;
    to.set_pkey_index(pkey)
        .set_vhca_port_num(port)
        .set_ack_timeout(timeout);
}

fn merge_optional(to: &mut Qpc, from: &Qpc, mask: u32) {
    let has = |bit: Opt| mask & bit.bits() != 0;
    if has(Opt::ALT_ADDR_PATH) {
        *to.secondary_address_path_mut() = *from.secondary_address_path();
    }
    if has(Opt::PRIMARY_ADDR_PATH) {
        merge_path(to.primary_address_path_mut(), from.primary_address_path());
    }
    if has(Opt::RRE) {
        to.set_rre(from.rre());
    }
    if has(Opt::RWE) {
        to.set_rwe(from.rwe());
    }
    if has(Opt::RAE) {
        to.set_rae(from.rae()).set_atomic_mode(from.atomic_mode());
    }
    if has(Opt::PKEY_INDEX) {
        let pkey = from.primary_address_path().pkey_index();
        to.primary_address_path_mut().set_pkey_index(pkey);
    }
    if has(Opt::PRI_PORT) {
        let port = from.primary_address_path().vhca_port_num();
        to.primary_address_path_mut().set_vhca_port_num(port);
    }
    if has(Opt::ACK_TIMEOUT) {
        let timeout = from.primary_address_path().ack_timeout();
        to.primary_address_path_mut().set_ack_timeout(timeout);
    }
    if has(Opt::Q_KEY) {
        to.set_q_key(from.q_key());
    }
    if has(Opt::RNR_TIMEOUT) {
        to.set_min_rnr_nak(from.min_rnr_nak());
    }
    if has(Opt::SRA_MAX) {
        to.set_log_sra_max(from.log_sra_max());
    }
    if has(Opt::RRA_MAX) {
        to.set_log_rra_max(from.log_rra_max());
    }
    if has(Opt::PM_STATE) {
        to.set_pm_state(from.pm_state());
    }
    if has(Opt::RETRY_COUNT) {
        to.set_retry_count(from.retry_count());
    }
    if has(Opt::RNR_RETRY) {
        to.set_rnr_retry(from.rnr_retry());
    }
    if has(Opt::COUNTER_SET_ID) {
        to.set_counter_set_id(from.counter_set_id());
    }
}

fn apply(
    device: &mut Device,
    io: &mut Io<'_>,
    transition: &Transition,
    qpn: u32,
    mask: u32,
    ece: u32,
    from: &Qpc,
) -> Result {
    checked(device, io, qpn)?;
    let qp = device.qps.get(qpn).ok_or(Syndrome::QpUnknown)?;
    if !transition.from.contains(&qp.state) {
        return Err(Syndrome::QpTransition.into());
    }
    if ece != 0 {
        return Err(Syndrome::QpEce.into());
    }
    if mask & !(transition.optional)().bits() != 0 {
        return Err(Syndrome::QpOptMask.into());
    }
    if from.st() != 0 && from.st() != qp.context.st() {
        return Err(Syndrome::QpTypeChanged.into());
    }
    let old = qp.context;
    let mut new = old;
    (transition.required)(&mut new, from);
    merge_optional(&mut new, from, mask);
    merge_always(device, &mut new, from)?;
    check_migration(device, &new, from, mask)?;
    let migrates = old.pm_state() == PM_ARMED
        && new.pm_state() == PM_MIGRATED
        && has_alternate(&new)
        && device.migrates();
    if migrates {
        exchange_paths(&mut new);
    }
    let place = qp.place;
    check_merged(device, &new, transition.to)?;
    device.restore(io, place, ObjectKind::Qp, qpn, &image(&new).0)?;
    device.hold_instead(&old, &new);
    if let Some(qp) = device.qps.get_mut(qpn) {
        qp.context = new;
    }
    device.enter_state(io, qpn, transition.to);
    if migrates {
        device.qp_event(io, qpn, event::PATH_MIGRATED);
    }
    Ok(())
}

const PM_ARMED: u8 = PathMigration::Armed.number();
const PM_REARM: u8 = PathMigration::Rearm.number();

fn has_alternate(context: &Qpc) -> bool {
    context.secondary_address_path().rlid() != 0
}

fn exchange_paths(context: &mut Qpc) {
    let primary = *context.primary_address_path();
    *context.primary_address_path_mut() = *context.secondary_address_path();
    *context.secondary_address_path_mut() = primary;
}

/// Checks the request for path migration. Only the device arms a QP.
fn check_migration(device: &Device, new: &Qpc, from: &Qpc, mask: u32) -> Result {
    let has = |bit: Opt| mask & bit.bits() != 0;
    let able =
        device.migrates() && kind(new).is_some_and(|kind| kind.connected() && !kind.dynamic());
    if has(Opt::ALT_ADDR_PATH) {
        let path = new.secondary_address_path();
        let ports = 1..=device.caps.general.num_ports();
        if !able || !unicast(path.rlid()) || !ports.contains(&path.vhca_port_num()) {
            return Err(Syndrome::QpAlternatePath.into());
        }
        if path.pkey_index() >= crate::port::vport::PKEYS {
            return Err(Syndrome::QpPkey.into());
        }
        check_rate(device, path)?;
    }
    let state = from.pm_state();
    let sound = match (has(Opt::PM_STATE), state) {
        (_, PM_MIGRATED) => true,
        (true, PM_REARM) if able => has_alternate(new),
        // iPXE leaves it at zero where it does not ask for a change.
        (false, 0) => true,
        _ => !device.config.strict,
    };
    if sound {
        Ok(())
    } else {
        Err(Syndrome::QpMigration.into())
    }
}

impl Device {
    /// Returns `true` if QPs of this device have alternate paths.
    pub(crate) fn migrates(&self) -> bool {
        self.caps.general.apm() && !self.ethernet()
    }

    /// A QP's migration state has changed, not by a command.
    pub(crate) fn migrate(&mut self, io: &mut Io<'_>, qpn: u32, to: PathMigration) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        qp.context.set_pm_state(to.number());
        if to == PathMigration::Migrated {
            exchange_paths(&mut qp.context);
        }
        let (place, stored) = (qp.place, image(&qp.context));
        if self
            .restore(io, place, ObjectKind::Qp, qpn, &stored.0)
            .is_err()
        {
            log::warn!("QP {qpn:#x} has migrated, and its context cannot be written");
        }
    }
}

/// Merges the fields that drivers send with every transition.
fn merge_always(device: &Device, to: &mut Qpc, from: &Qpc) -> Result {
    if from.pd() != 0 && from.pd() != to.pd() {
        if !device.has(ObjectKind::Pd, from.pd()) {
            return Err(Syndrome::QpModifyPd.into());
        }
        to.set_pd(from.pd());
    }
    if from.cqn_snd() != 0 && from.cqn_snd() != to.cqn_snd() {
        if !device.has(ObjectKind::Cq, from.cqn_snd()) {
            return Err(Syndrome::QpModifySendCq.into());
        }
        to.set_cqn_snd(from.cqn_snd());
    }
    if from.cqn_rcv() != 0 && from.cqn_rcv() != to.cqn_rcv() {
        if !device.has(ObjectKind::Cq, from.cqn_rcv()) {
            return Err(Syndrome::QpModifyReceiveCq.into());
        }
        to.set_cqn_rcv(from.cqn_rcv());
    }
    if from.log_ack_req_freq() != 0 {
        to.set_log_ack_req_freq(from.log_ack_req_freq());
    }
    // Datagram QPs take the packet size from any transition that carries it.
    if !kind(to).is_some_and(QpKind::connected) {
        if from.mtu() != 0 {
            to.set_mtu(from.mtu());
        }
        if from.log_msg_max() != 0 {
            to.set_log_msg_max(from.log_msg_max());
        }
    }
    Ok(())
}

/// 0 is the port's own rate.
fn check_rate(device: &Device, path: &Ads) -> Result {
    let rate = path.stat_rate();
    let has = rate == 0 || device.caps.general.stat_rate_support() >> rate & 1 != 0;
    if has || !device.config.strict {
        Ok(())
    } else {
        Err(Syndrome::QpStaticRate.into())
    }
}

fn check_merged(device: &mut Device, context: &Qpc, to: QpState) -> Result {
    let caps = &device.caps.general;
    let path = context.primary_address_path();
    let reaches_wire = kind(context);
    if reaches_wire.is_some() && !(1..=caps.num_ports()).contains(&path.vhca_port_num()) {
        return Err(Syndrome::QpPort.into());
    }
    if path.pkey_index() >= crate::port::vport::PKEYS {
        return Err(Syndrome::QpPkey.into());
    }
    let set = context.counter_set_id();
    if set != 0 && !device.has(ObjectKind::QCounter, u32::from(set)) {
        return Err(Syndrome::QpCounter.into());
    }
    if context.rae() && !device.has_atomics(context.st()) {
        return Err(Syndrome::QpAtomic.into());
    }
    if matches!(to, QpState::Reset | QpState::Init) {
        return Ok(());
    }
    let (responder, requester) = if reaches_wire.is_some_and(QpKind::dynamic) {
        (caps.log_max_ra_res_dc(), caps.log_max_ra_req_dc())
    } else {
        (caps.log_max_ra_res_qp(), caps.log_max_ra_req_qp())
    };
    if context.log_rra_max() > responder || context.log_sra_max() > requester {
        return Err(Syndrome::QpReadAtomic.into());
    }
    if context.log_msg_max() > caps.log_max_msg() {
        return Err(Syndrome::QpMessageSize.into());
    }
    let forced = path.fl();
    if forced && !(reaches_wire == Some(QpKind::Rc) && device.forces_loopback()) {
        if reaches_wire != Some(QpKind::Rc) {
            let st = context.st();
            device.answer_unknown(format_args!("force loopback on a QP of type {st}"));
        }
        return Err(Syndrome::QpForceLoopback.into());
    }
    if !reaches_wire.is_some_and(QpKind::connected) {
        return Ok(());
    }
    // What never leaves the device need not fit the port: the kernel's own loopback QPs have the largest MTU always.
    if !(1..=5).contains(&context.mtu())
        || device.ethernet() && !forced && context.mtu() > device.vport.path_mtu_code()
    {
        return Err(Syndrome::QpMtu.into());
    }
    if reaches_wire == Some(QpKind::Dci) {
        // Its work requests say where they go.
        return Ok(());
    }
    if context.remote_qpn() < 2 {
        return Err(Syndrome::QpRemoteNumber.into());
    }
    if !forced {
        check_rate(device, path)?;
    }
    if device.ethernet() && !forced {
        let index = usize::from(path.src_addr_index());
        let source = device.gids.get(index).ok_or(Syndrome::QpSourceAddress)?;
        if *source == RoceAddr::ZERO {
            return Err(Syndrome::QpNoAddress.into());
        }
    }
    Ok(())
}

macro_rules! transition {
    ($name:ident, $In:ty, $table:ident, $ece:expr) => {
        pub(super) fn $name(device: &mut Device, io: &mut Io<'_>, call: Call<'_, $In>) -> Result {
            let input = call.input;
            let ece: fn(&$In) -> u32 = $ece;
            apply(
                device,
                io,
                &$table,
                input.qpn(),
                input.opt_param_mask(),
                ece(input),
                input.qpc(),
            )
        }
    };
}

transition!(rst2init, Rst2initQpIn, RST2INIT, |input| input.ece());
transition!(init2init, Init2initQpIn, INIT2INIT, |input| input.ece());
transition!(init2rtr, Init2rtrQpIn, INIT2RTR, |input| input.ece());
transition!(rtr2rts, Rtr2rtsQpIn, RTR2RTS, |input| input.ece());
transition!(sqerr2rts, Sqerr2rtsQpIn, SQERR2RTS, |_| 0);
transition!(sqd2rts, Sqd2rtsQpIn, SQD2RTS, |_| 0);

pub(super) fn rts2rts(device: &mut Device, io: &mut Io<'_>, call: Call<'_, Rts2rtsQpIn>) -> Result {
    let input = call.input;
    let (qpn, mask) = (input.qpn(), input.opt_param_mask());
    let stream = match extension(device, &call)? {
        Some(extension) => {
            checked(device, io, qpn)?;
            let qp = device.qps.get(qpn).ok_or(Syndrome::QpUnknown)?;
            if qp.kind() != Some(QpKind::Dci) {
                return Err(Syndrome::QpExtension.into());
            }
            Some(extension.dci_stream_channel_id())
        }
        None => None,
    };
    apply(device, io, &RTS2RTS, qpn, mask, input.ece(), input.qpc())?;
    let Some(stream) = stream else {
        return Ok(());
    };
    let mut was_in_error = false;
    device.with_transport(io, qpn, |transport, _| {
        was_in_error = transport.reset_stream(stream);
    });
    if was_in_error {
        Ok(())
    } else {
        Err(Syndrome::QpStreamSound.into())
    }
}

/// The extension behind RTS2RTS_QP, if it asks for the one change that there is: a stream of an initiator.
fn extension(
    device: &Device,
    call: &Call<'_, Rts2rtsQpIn>,
) -> core::result::Result<Option<QpcExt>, Syndrome> {
    let asked = call.input.opt_param_mask_95_32();
    if !call.input.qpc_ext() {
        return if asked == 0 {
            Ok(None)
        } else {
            Err(Syndrome::QpExtension)
        };
    }
    let caps = &device.caps.general;
    let (extension, _) = QpcExt::read_from_prefix(call.tail).map_err(|_| Syndrome::QpExtension)?;
    let streams = asked == QpcExt::OPT_DCI_STREAM_CHANNEL_ID;
    if !caps.qpc_extension()
        || asked & !QpcExt::OPT_DCI_STREAM_CHANNEL_ID != 0
        || streams && caps.log_max_dci_stream_channels() == 0
    {
        return Err(Syndrome::QpExtension);
    }
    Ok(streams.then_some(extension))
}

pub(super) fn to_error(device: &mut Device, io: &mut Io<'_>, call: Call<'_, Qp2ErrIn>) -> Result {
    let qpn = call.input.qpn();
    checked(device, io, qpn)?;
    device.enter_state(io, qpn, QpState::Err);
    Ok(())
}

/// Everything is dropped silently, the counters start over, the attributes go back to what CREATE_QP gave.
pub(super) fn to_reset(device: &mut Device, io: &mut Io<'_>, call: Call<'_, Qp2RstIn>) -> Result {
    let qpn = call.input.qpn();
    checked(device, io, qpn)?;
    let qp = device.qps.get_mut(qpn).ok_or(Syndrome::QpUnknown)?;
    let old = qp.context;
    qp.context.set_counter_set_id(0);
    qp.context.set_rre(false).set_rwe(false).set_rae(false);
    *qp.context.primary_address_path_mut() = Ads::ZERO;
    *qp.context.secondary_address_path_mut() = Ads::ZERO;
    qp.context.set_pm_state(PM_MIGRATED);
    qp.sq_next = 0;
    qp.sq_posted = 0;
    qp.written = None;
    qp.rq_next = 0;
    qp.rq_posted = 0;
    qp.broken = false;
    qp.last_wqe_due = false;
    let (new, place) = (qp.context, qp.place);
    device.hold_instead(&old, &new);
    device.enter_state(io, qpn, QpState::Reset);
    device.unschedule(qpn);
    if let Some(qp) = device.qps.get_mut(qpn) {
        qp.queued = false;
    }
    device.restore(io, place, ObjectKind::Qp, qpn, &image(&new).0)
}
