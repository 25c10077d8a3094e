//! Events: `rdma_get_cm_event`, what librdmacm does with them before the program sees them, and calls on ids without a channel of
//! the program's, which wait for their events.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr;

use bareverbs_node::cm::rdma::{CmEvent, EventType, RdmaError};

use crate::abi::cma::{
    rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_ud_param,
};
use crate::abi::numbers::IBV_QPT_UD;
use crate::process::failure::{Errno, Result, as_status, guarded, lock, status};
use crate::process::hca::Hca;
use crate::rdmacm::channel::{EventChannel, channel};
use crate::rdmacm::groups;
use crate::rdmacm::id::{EventObject, IdObject, acknowledge, id};
use crate::rdmacm::own_events::OwnEvent;
use crate::verbs::path;

/// `RDMA_CM_EVENT_REJECTED`.
const REJECTED: c_int = 8;

/// An event as it was taken, with its id counted.
struct Taken {
    hca: &'static Hca,
    event: CmEvent,
    /// The event's id; for a request the listener.
    owner: *mut IdObject,
}

/// Waits for an event that is for the program. The thread may be cancelled meanwhile: nothing is to be dropped here, and where
/// this is called.
///
/// # Safety
/// The channel was created here.
pub(crate) unsafe fn get(from: *mut rdma_event_channel) -> Result<*mut rdma_cm_event> {
    // SAFETY: the caller promises that the channel was created here.
    let channel = unsafe { channel(from) }?;
    loop {
        channel.wait()?;
        if let Some(event) = guarded(|| look(channel))? {
            return Ok(event);
        }
    }
}

/// Takes an event after a wait, if there is one for the program.
fn look(channel: &EventChannel) -> Result<Option<*mut rdma_cm_event>> {
    let taken = channel.take(|hca, manager, event| {
        if event.event == EventType::ConnectRequest
            && let Err(error) = manager.be_quiet_before_accept(event.id)
        {
            log::debug!("{error}");
        }
        let owner = event.context as *mut IdObject;
        // SAFETY: the manager has the id, or the listener, and is locked: it is not destroyed before.
        unsafe { &*owner }.acks.hand_out();
        Taken { hca, event, owner }
    })?;
    let Some(taken) = taken else {
        return Ok(None);
    };
    // SAFETY: the id is there until the event is acknowledged.
    match unsafe { process(&taken) } {
        Ok(Some(event)) => return Ok(Some(event)),
        // Not for the program.
        other => {
            // SAFETY: the same.
            unsafe { &*taken.owner }.acks.acknowledge(1);
            if let Err(errno) = other {
                log::error!("{}: {errno:?}", taken.event.event);
            }
        }
    }
    Ok(None)
}

/// Does what librdmacm does with an event. `None` if the program does not get it.
///
/// # Safety
/// The owner is there.
unsafe fn process(taken: &Taken) -> Result<Option<*mut rdma_cm_event>> {
    let Taken { hca, event, owner } = taken;
    // SAFETY: numbers and raw pointers may be zero, and so may either part of the union.
    let mut c: rdma_cm_event = unsafe { zeroed() };
    c.id = owner.cast();
    c.event = event.event as c_int;
    c.status = event.status;
    let mut argument = None;
    // SAFETY: the caller's promise, for all of this: the owner is there, and its program does not use it meanwhile.
    unsafe {
        match event.event {
            EventType::AddrResolved => IdObject::show_addresses(*owner)?,
            EventType::RouteResolved => IdObject::show_route(*owner)?,
            EventType::ConnectRequest => {
                c.listen_id = owner.cast();
                c.id = request(hca, event, *owner)?.cast();
            }
            EventType::ConnectResponse if !(**owner).c.qp.is_null() => {
                // The program has destroyed the QP, and not by `rdma_destroy_qp`.
                let refused = hca.manager()?.reject(event.id, &[]);
                if let Err(error) = refused {
                    log::debug!("{error}");
                }
                c.event = EventType::ConnectError as c_int;
                c.status = -Errno::EINVAL.0;
            }
            // The QP is in ERR when the program hears of it.
            EventType::Rejected => hca.settle(event.id, None),
            EventType::ConnectError => {
                hca.settle(event.id, None);
                let why = hca.manager_quietly()?.last_error(event.id)?;
                if let Some(refused @ RdmaError::ModifyQp(_)) = why {
                    c.status = -Errno::from(refused).0;
                }
            }
            EventType::Disconnected => lock(&(**owner).inner).disconnected = true,
            EventType::MulticastJoin => {
                if let Err(errno) = groups::joined(*owner, event) {
                    c.event = EventType::MulticastError as c_int;
                    c.status = -errno.0;
                }
            }
            EventType::User => match next_own(*owner)? {
                Some(own) => {
                    (c.event, c.status) = (own.event, own.status);
                    argument = Some(own.arg);
                }
                None => return Ok(None),
            },
            // The manager has none of these: see `own_events`.
            EventType::AddrInfoResolved | EventType::AddrInfoError => return Ok(None),
            _ => {}
        }
    }
    let mut object = Box::new(EventObject {
        c,
        owner: *owner,
        private: [0; 256],
    });
    let data = event.private_data();
    let length = data.len().min(object.private.len());
    object.private[..length].copy_from_slice(&data[..length]);
    let pointer = Box::into_raw(object);
    // SAFETY: just made; the parameters point into it.
    unsafe {
        let private: *const c_void = match length {
            0 => ptr::null(),
            _ => (&raw const (*pointer).private).cast(),
        };
        let id = (*pointer).c.id;
        let datagrams = !id.is_null() && (*id).qp_type == IBV_QPT_UD;
        match argument {
            // The rest of the union stays zero.
            Some(arg) => (*pointer).c.param.arg = arg,
            None if datagrams => (*pointer).c.param.ud = ud_param(event, private, length),
            None => (*pointer).c.param.conn = conn_param(event, private, length),
        }
        Ok(Some(pointer.cast()))
    }
}

fn conn_param(event: &CmEvent, private_data: *const c_void, length: usize) -> rdma_conn_param {
    let conn = &event.conn;
    rdma_conn_param {
        private_data,
        private_data_len: length as u8,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control.into(),
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
        srq: conn.srq.into(),
        qp_num: conn.qp_num,
    }
}

fn ud_param(event: &CmEvent, private_data: *const c_void, length: usize) -> rdma_ud_param {
    rdma_ud_param {
        // The context of `rdma_join_multicast` comes back in its place.
        private_data: match event.event {
            EventType::MulticastJoin | EventType::MulticastError => event.arg as *const c_void,
            _ => private_data,
        },
        private_data_len: length as u8,
        ah_attr: path::to_c(&event.ud.ah_attr),
        qp_num: event.ud.qp_num,
        qkey: event.ud.qkey,
    }
}

/// The id of a request for a connection.
///
/// # Safety
/// The listener is there.
unsafe fn request(
    hca: &'static Hca,
    event: &CmEvent,
    listener: *mut IdObject,
) -> Result<*mut IdObject> {
    // SAFETY: the caller promises that the listener is there.
    unsafe {
        let listening = &(*listener).c;
        let object = IdObject::new(
            hca,
            event.id,
            listening.channel.cast(),
            listening.context,
            listening.ps,
            listening.qp_type,
        );
        let made = (|| {
            hca.manager()?.set_context(event.id, object as u64)?;
            IdObject::show_addresses(object)?;
            IdObject::show_route(object)?;
            if lock(&(*listener).inner).sync {
                super::options::migrate(object.cast(), ptr::null_mut())?;
            }
            Ok(object)
        })();
        if made.is_err() {
            if let Ok(mut manager) = hca.manager() {
                let _: std::result::Result<(), RdmaError> = manager.destroy_id(event.id);
            }
            drop(Box::from_raw(object));
        }
        made
    }
}

/// Takes the next one of an id, of which the manager has said that there are some.
///
/// # Safety
/// The id is there.
unsafe fn next_own(id: *mut IdObject) -> Result<Option<OwnEvent>> {
    // SAFETY: the caller promises that the id is there.
    let object = unsafe { &*id };
    let taken = {
        let mut inner = lock(&object.inner);
        let (hca, cm) = (inner.hca, inner.cm);
        inner.own.take(&mut *hca.manager()?, cm)
    };
    // SAFETY: the id's channel is there for as long as the id.
    unsafe { channel(object.c.channel) }?.signal();
    Ok(taken)
}

/// The result of a call that has begun something, if `Ok(true)`: on an id without a channel of the program's, what its event says,
/// for which this waits. The thread may be cancelled meanwhile: nothing is to be dropped here, and where this is called.
///
/// # Safety
/// The id was created here.
pub(crate) unsafe fn complete(id: *mut rdma_cm_id, begun: Result<bool>) -> Result<()> {
    if !begun? {
        return Ok(());
    }
    // SAFETY: the caller promises that the id was created here.
    unsafe {
        let waits = guarded(|| {
            channel(self::id(id)?.c.channel)?.signal();
            acknowledge_last(id)
        })?;
        if !waits {
            return Ok(());
        }
        let event: *mut rdma_cm_event = get((*id).channel)?;
        (*id).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
            (_, status) => Err(Errno(status.saturating_abs())),
        }
    }
}

/// [`complete`] for C.
///
/// # Safety
/// The caller promises the same as for [`complete`].
pub(crate) unsafe fn completed(id: *mut rdma_cm_id, begun: Result<bool>) -> c_int {
    // SAFETY: the caller promises that the caller promises the same as for [`complete`].
    status(unsafe { complete(id, begun) }.map(|()| 0))
}

/// Acknowledges the event that the last call on an id that waits has left there. Returns `false` if the id does not wait.
///
/// # Safety
/// The id was created here.
pub(crate) unsafe fn acknowledge_last(id: *mut rdma_cm_id) -> Result<bool> {
    // SAFETY: the caller promises that the id was created here; an event in it was not acknowledged yet.
    unsafe {
        if !lock(&self::id(id)?.inner).sync {
            return Ok(false);
        }
        let before = (*id).event;
        if !before.is_null() {
            (*id).event = ptr::null_mut();
            acknowledge(before)?;
        }
    }
    Ok(true)
}

/// Waits for an event: `rdma_get_cm_event`. To be acknowledged with `rdma_ack_cm_event`.
///
/// # Safety
/// The channel was created here, and `event` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the caller promises that the channel was created here, and `event` can be written.
    let got = unsafe { get(channel).map(|found| event.write(found)) };
    status(got.map(|()| 0))
}

/// Acknowledges an event: `rdma_ack_cm_event`.
///
/// # Safety
/// It is one of `rdma_get_cm_event`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: the caller promises that it is one of `rdma_get_cm_event`, and is not used again.
    as_status(|| unsafe { acknowledge(event) })
}

/// An event as text: `rdma_event_str`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let text = match event {
        0 => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        1 => c"RDMA_CM_EVENT_ADDR_ERROR",
        2 => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        3 => c"RDMA_CM_EVENT_ROUTE_ERROR",
        4 => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        5 => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        6 => c"RDMA_CM_EVENT_CONNECT_ERROR",
        7 => c"RDMA_CM_EVENT_UNREACHABLE",
        8 => c"RDMA_CM_EVENT_REJECTED",
        9 => c"RDMA_CM_EVENT_ESTABLISHED",
        10 => c"RDMA_CM_EVENT_DISCONNECTED",
        11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        12 => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        13 => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
        15 => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        16 => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        17 => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        // librdmacm has no name for the event of a program's own, 18.
        _ => c"UNKNOWN EVENT",
    };
    text.as_ptr()
}
