//! CREATE_QP, DESTROY_QP, QUERY_QP.

use super::umem::{Buffer, Record};
use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::memory::ring::{Ring, RingError};
use crate::objects::ObjectKind;
use crate::objects::qp::{Qp, receive, service};
use crate::roce::env::QpState;
use crate::roce::transport::Transport;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::qp::{CreateQpIn, DestroyQpIn, Qpc, QueryQpIn, scatter};
use bareverbs_firmware_cmds::values::PathMigration;

/// The path migration state of a QP without an alternate path.
pub(super) const PM_MIGRATED: u8 = PathMigration::Migrated.number();

/// The context as it lies in the host's pages: the state changes without commands and is kept elsewhere.
pub(super) fn image(context: &Qpc) -> Qpc {
    let mut image = *context;
    image.set_state(0);
    image
}

pub(super) fn checked(device: &mut Device, io: &mut Io<'_>, qpn: u32) -> Result {
    let qp = device.qps.get(qpn).filter(|qp| qp.dct.is_none());
    let qp = qp.ok_or(Syndrome::QpUnknown)?;
    let (place, stored) = (qp.place, image(&qp.context));
    device.check(io, place, ObjectKind::Qp, qpn, &stored.0)
}

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateQpIn>) -> Result {
    let context = *call.input.qpc();
    if call.input.input_qpn() != 0 {
        return Err(Syndrome::QpInputNumber.into());
    }
    if call.input.ece() != 0 {
        return Err(Syndrome::QpEce.into());
    }
    if context.state() != 0 {
        return Err(Syndrome::QpStateGiven.into());
    }
    check_type(device, &context)?;
    check_references(device, &context)?;
    check_scatter(device, &context)?;
    let limit = device.caps.general.log_max_qp_sz();
    if context.log_sq_size() > limit || context.log_rq_size() > limit {
        return Err(Syndrome::QpSize.into());
    }
    let mut qp = Qp::new(context);
    if qp.rq_entries() != 0 && qp.rq_stride() > u64::from(device.caps.general.max_wqe_sz_rq()) {
        return Err(Syndrome::QpStride.into());
    }
    let has_queues = qp.sq_blocks() != 0 || qp.rq_entries() != 0;
    let umem = context.dbr_umem_valid().then(|| context.dbr_umem_id());
    let mut record = 0;
    if has_queues {
        let wanted = Record {
            umem,
            address: context.dbr_addr(),
            len: 8,
        };
        record = device.record_address(io, wanted, Syndrome::QpRecord, Syndrome::QpUmem)?;
    }
    qp.sq_start = u64::from(qp.rq_entries()) * qp.rq_stride();
    let buffer = if call.input.wq_umem_valid() {
        Buffer::Umem {
            id: call.input.wq_umem_id(),
            offset: call.input.wq_umem_offset(),
        }
    } else {
        Buffer::List {
            list: call.tail,
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
        }
    };
    let len = qp.sq_start + u64::from(qp.sq_blocks()) * crate::objects::qp::BLOCK;
    qp.ring = device
        .queue_memory(buffer, len)
        .map_err(|error| match error {
            RingError::Short => Syndrome::QpPages,
            RingError::PageSize => Syndrome::QpPageSize,
            RingError::Unaligned => Syndrome::QpPageUnaligned,
            RingError::Umem => Syndrome::QpUmem,
            RingError::Range => Syndrome::UmemRange,
        })?
        .with_record(record, umem.filter(|_| has_queues));
    let special = matches!(context.st(), service::QP0 | service::QP1);
    let number = device.next_qpn(special)?;
    qp.place = device.store(io, ObjectKind::Qp, number, &context.0)?;
    device.qps.insert(qp);
    let transport = device.transport_config(number).map(Transport::new);
    if let Some(qp) = device.qps.get_mut(number) {
        qp.transport = transport.map(Box::new);
    }
    device.hold(&context, true);
    match context.st() {
        service::QP0 => device.smi = Some(number),
        service::QP1 => device.gsi = Some(number),
        _ => {}
    }
    call.output.set_qpn(number);
    Ok(())
}

fn check_type(device: &Device, context: &Qpc) -> core::result::Result<(), Syndrome> {
    let caps = &device.caps.general;
    let supported = match context.st() {
        service::RC => caps.rc(),
        service::UC => caps.uc(),
        service::UD => caps.ud(),
        service::XRC => caps.xrc(),
        service::DCI => caps.dct(),
        service::QP0 => !device.ethernet(),
        service::QP1 | service::REG_UMR => true,
        _ => false,
    };
    if !supported {
        return Err(Syndrome::QpType);
    }
    match context.st() {
        service::QP0 if device.smi.is_some() => return Err(Syndrome::QpSmiTaken),
        service::QP1 if device.gsi.is_some() => return Err(Syndrome::QpGsiTaken),
        _ => {}
    }
    if device.config.strict && context.pm_state() != PM_MIGRATED {
        return Err(Syndrome::QpMigration);
    }
    let (channels, errored) = (
        context.log_num_dci_stream_channels(),
        context.log_num_dci_errored_streams(),
    );
    let streams = channels != 0 || errored != 0;
    if streams && context.st() != service::DCI
        || channels > caps.log_max_dci_stream_channels()
        || errored > caps.log_max_dci_errored_streams()
    {
        return Err(Syndrome::QpStreams);
    }
    if !matches!(
        context.rq_type(),
        receive::OWN | receive::SHARED | receive::NONE
    ) {
        return Err(Syndrome::QpReceiveType);
    }
    Ok(())
}

/// Small messages in completions: those received on connections, and what is read or fetched on reliable ones, as large
/// as there is space in the entries of the completion queue.
fn check_scatter(device: &Device, context: &Qpc) -> core::result::Result<(), Syndrome> {
    let (receives, responses) = (context.cs_res(), context.cs_req());
    if receives == 0 && responses == 0 {
        return Ok(());
    }
    let wide = |cqn| device.has_long_entries(cqn);
    let initiator = context.st() == service::DCI;
    let reliable = context.st() == service::RC || initiator;
    let connected = reliable || context.st() == service::UC;
    let receives = match receives {
        0 => true,
        // An initiator receives nothing. UCX asks for it nevertheless.
        scatter::RECEIVES_32 | scatter::RECEIVES_64 if initiator => true,
        scatter::RECEIVES_32 => connected,
        scatter::RECEIVES_64 => connected && wide(context.cqn_rcv()),
        _ => false,
    };
    let responses = match responses {
        0 => true,
        scatter::RESPONSES_32 if initiator => device.caps.general.dc_req_scat_data_cqe(),
        scatter::RESPONSES_32 => reliable,
        scatter::RESPONSES_64 => reliable && wide(context.cqn_snd()),
        _ => false,
    };
    if device.caps.general.sctr_data_cqe() && receives && responses {
        Ok(())
    } else {
        Err(Syndrome::QpScatter)
    }
}

fn check_references(device: &Device, context: &Qpc) -> core::result::Result<(), Syndrome> {
    let st = context.st();
    let sends = !context.no_sq();
    let receives = context.rq_type() != receive::NONE;
    let late_pd = matches!(st, service::REG_UMR | service::XRC) && context.pd() == 0;
    if !late_pd && !device.has(ObjectKind::Pd, context.pd()) {
        return Err(Syndrome::QpPd);
    }
    if (sends || context.cqn_snd() != 0) && !device.has(ObjectKind::Cq, context.cqn_snd()) {
        return Err(Syndrome::QpSendCq);
    }
    if (receives || context.cqn_rcv() != 0) && !device.has(ObjectKind::Cq, context.cqn_rcv()) {
        return Err(Syndrome::QpReceiveCq);
    }
    if sends && !device.has(ObjectKind::Uar, context.uar_page()) {
        return Err(Syndrome::QpUar);
    }
    if context.rq_type() == receive::SHARED
        && !device.has(ObjectKind::Srq, context.srqn_rmpn_xrqn())
    {
        return Err(Syndrome::QpSrq);
    }
    if st == service::XRC && !device.has(ObjectKind::Xrcd, context.xrcd()) {
        return Err(Syndrome::QpXrcd);
    }
    Ok(())
}

impl Qp {
    pub(super) fn new(context: Qpc) -> Self {
        Self {
            dct: None,
            context,
            state: QpState::Reset,
            ring: Ring::default(),
            sq_start: 0,
            sq_next: 0,
            sq_posted: 0,
            written: None,
            rq_next: 0,
            rq_posted: 0,
            place: crate::memory::pages::Place::default(),
            transport: None,
            queued: false,
            deadline: None,
            broken: false,
            last_wqe_due: false,
        }
    }
}

impl Device {
    /// Counts a QP over from what it referred to, to what it refers to now; mostly that is the same.
    pub(super) fn hold_instead(&mut self, old: &Qpc, new: &Qpc) {
        let held = |context: &Qpc| {
            (
                [context.cqn_snd(), context.cqn_rcv(), context.pd()],
                [context.uar_page(), context.srqn_rmpn_xrqn(), context.xrcd()],
                (context.no_sq(), context.rq_type(), context.st()),
                context.counter_set_id(),
            )
        };
        if held(old) != held(new) {
            self.hold(old, false);
            self.hold(new, true);
        }
    }

    /// Counts a QP in or out of everything that it refers to.
    pub(super) fn hold(&mut self, context: &Qpc, add: bool) {
        let change = |users: &mut u32| {
            *users = if add {
                *users + 1
            } else {
                users.saturating_sub(1)
            };
        };
        for cqn in [context.cqn_snd(), context.cqn_rcv()] {
            if let Some(cq) = self.cqs.get_mut(cqn) {
                change(&mut cq.users);
            }
        }
        if let Some(pd) = self.pds.get_mut(context.pd()) {
            change(&mut pd.users);
        }
        if context.rq_type() == receive::SHARED
            && let Some(srq) = self.srqs.get_mut(context.srqn_rmpn_xrqn())
        {
            change(&mut srq.users);
        }
        if context.st() == service::XRC
            && let Some(xrcd) = self.xrcds.get_mut(context.xrcd())
        {
            change(&mut xrcd.users);
        }
        if let Some(set) = self.counters.get_mut(u32::from(context.counter_set_id())) {
            change(&mut set.users);
        }
    }
}

pub(super) fn destroy(device: &mut Device, io: &mut Io<'_>, call: Call<'_, DestroyQpIn>) -> Result {
    let qpn = call.input.qpn();
    checked(device, io, qpn)?;
    if device.groups.has_qp(qpn) {
        return Err(Syndrome::QpMulticast.into());
    }
    device.unschedule(qpn);
    if let Some(qp) = device.qps.remove(qpn) {
        device.pages.release(qp.place);
        device.hold(&qp.context, false);
    }
    for special in [&mut device.smi, &mut device.gsi] {
        if *special == Some(qpn) {
            *special = None;
        }
    }
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryQpIn>) -> Result {
    let qpn = call.input.qpn();
    checked(device, io, qpn)?;
    let qp = device.qps.get(qpn).ok_or(Syndrome::QpUnknown)?;
    let mut context = qp.context;
    context
        .set_state(qp.state_code())
        .set_hw_sq_wqebb_counter(qp.sq_next)
        .set_sw_sq_wqebb_counter(qp.sq_posted)
        .set_hw_rq_counter(u32::from(qp.rq_next))
        .set_sw_rq_counter(u32::from(qp.rq_posted));
    if let Some(transport) = &qp.transport {
        context
            .set_next_send_psn(transport.next_send_psn())
            .set_last_acked_psn(transport.last_acked_psn())
            .set_next_rcv_psn(transport.next_recv_psn())
            .set_rmsn(transport.msn());
    }
    *call.output.qpc_mut() = context;
    super::put_pages(call.output_tail, qp.ring.pages());
    Ok(())
}
