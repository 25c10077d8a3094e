//! Asynchronous events: `ibv_get_async_event`.

// UNSAFETY: raw pointers of C and of the registry.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};

use bareverbs_node::verbs::AsyncEvent;

use crate::abi::numbers::*;
use crate::abi::objects::{async_element, ibv_async_event, ibv_context};
use crate::ethernet::work_queue::WqObject;
use crate::process::failure::{as_nothing, as_status_after};
use crate::process::hca::Hca;
use crate::process::registry::Objects;
use crate::verbs::context::context;
use crate::verbs::cq::CqObject;
use crate::verbs::qp::QpObject;
use crate::verbs::srq::SrqObject;
use crate::verbs::subject::{AsyncItem, Subject};

/// `IBV_EVENT_DEVICE_SPEED_CHANGE`, which the headers of Debian 12 do not have.
const DEVICE_SPEED_CHANGE: c_int = 20;

/// Counts an event that was handed out, or acknowledges one.
///
/// # Safety
/// The event's object was created here, and is not destroyed meanwhile.
unsafe fn count(subject: Subject, acknowledged: bool) {
    // SAFETY: the caller promises that the object is there; C's structure is the first field of the object of its kind.
    let acks = unsafe {
        match subject {
            Subject::Cq(cq) => &(*cq.cast::<CqObject>()).async_acks,
            Subject::Qp(qp) => &(*qp.cast::<QpObject>()).acks,
            Subject::Srq(srq) => &(*srq.cast::<SrqObject>()).acks,
            Subject::Wq(wq) => &(*wq.cast::<WqObject>()).acks,
            Subject::Port(_) => return,
        }
    };
    if acknowledged {
        acks.acknowledge(1);
    } else {
        acks.hand_out();
    }
}

/// The event's number in libibverbs, and its object; `None` for an object that is not there any more.
fn item(objects: &Objects, event: &AsyncEvent) -> Option<AsyncItem> {
    let qp = |qpn: &bareverbs_node::verbs::Qpn| {
        let qp = objects.qps.get(&qpn.number()).copied();
        qp.map(Subject::Qp)
    };
    let srq = |srqn: &bareverbs_node::verbs::Srqn| {
        let srq = objects.srqs.get(&srqn.number()).copied();
        srq.map(Subject::Srq)
    };
    let (event_type, subject) = match event {
        AsyncEvent::PortActive { port } => (IBV_EVENT_PORT_ACTIVE, Subject::Port(*port)),
        AsyncEvent::PortError { port } => (IBV_EVENT_PORT_ERR, Subject::Port(*port)),
        AsyncEvent::LidChange { port } => (IBV_EVENT_LID_CHANGE, Subject::Port(*port)),
        AsyncEvent::PkeyChange { port } => (IBV_EVENT_PKEY_CHANGE, Subject::Port(*port)),
        AsyncEvent::GidChange { port } => (IBV_EVENT_GID_CHANGE, Subject::Port(*port)),
        AsyncEvent::ClientReregister { port } => {
            (IBV_EVENT_CLIENT_REREGISTER, Subject::Port(*port))
        }
        AsyncEvent::CommunicationEstablished { qpn } => (IBV_EVENT_COMM_EST, qp(qpn)?),
        AsyncEvent::SqDrained { qpn } => (IBV_EVENT_SQ_DRAINED, qp(qpn)?),
        AsyncEvent::PathMigrated { qpn } => (IBV_EVENT_PATH_MIG, qp(qpn)?),
        AsyncEvent::PathMigrationError { qpn } => (IBV_EVENT_PATH_MIG_ERR, qp(qpn)?),
        AsyncEvent::QpFatal { qpn } => (IBV_EVENT_QP_FATAL, qp(qpn)?),
        AsyncEvent::QpRequestError { qpn } => (IBV_EVENT_QP_REQ_ERR, qp(qpn)?),
        AsyncEvent::QpAccessError { qpn } => (IBV_EVENT_QP_ACCESS_ERR, qp(qpn)?),
        AsyncEvent::QpLastWqeReached { qpn } => (IBV_EVENT_QP_LAST_WQE_REACHED, qp(qpn)?),
        AsyncEvent::CqError { cqn, .. } => {
            let cq = *objects.cqs.get(&cqn.number())?;
            (IBV_EVENT_CQ_ERR, Subject::Cq(cq))
        }
        AsyncEvent::SrqError { srqn } => (IBV_EVENT_SRQ_ERR, srq(srqn)?),
        AsyncEvent::SrqLimitReached { srqn } => (IBV_EVENT_SRQ_LIMIT_REACHED, srq(srqn)?),
        // As with Linux's driver, the queue of a raw packet QP is the QP.
        AsyncEvent::WqFatal { rqn } => match objects.receiving.get(&rqn.number()) {
            Some(qp) => (IBV_EVENT_QP_FATAL, Subject::Qp(*qp)),
            None => {
                let wq = *objects.wqs.get(&rqn.number())?;
                (IBV_EVENT_WQ_FATAL, Subject::Wq(wq))
            }
        },
        AsyncEvent::DeviceFatal(_) => (IBV_EVENT_DEVICE_FATAL, Subject::Port(0)),
        // What libibverbs has no name for: a port that is initialised, and what later versions of the driver add.
        _ => return None,
    };
    Some(AsyncItem {
        event_type,
        subject,
    })
}

/// Hands an event of the device to the context of the object that it is about, or to all contexts.
pub(crate) fn deliver(hca: &Hca, event: &AsyncEvent) {
    hca.registry.with(|objects| {
        let Some(item) = item(objects, event) else {
            return;
        };
        // SAFETY: what is in the registry is there while the registry is locked, and so are the contexts of its objects.
        unsafe {
            let only = match item.subject {
                Subject::Cq(cq) => (*cq).context,
                Subject::Qp(qp) => (*qp).context,
                Subject::Srq(srq) => (*srq).context,
                Subject::Wq(wq) => (*wq).context,
                Subject::Port(_) => {
                    for context in &objects.contexts {
                        if let Ok(context) = self::context(*context) {
                            context.events.push(item);
                        }
                    }
                    return;
                }
            };
            if let Ok(context) = context(only) {
                context.events.push(item);
            }
        }
    });
}

/// Waits for an asynchronous event: `ibv_get_async_event`. To be acknowledged with `ibv_ack_async_event`.
///
/// # Safety
/// The context is open, and `event` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller promises that the context is open, and `event` can be written.
    let context = unsafe { self::context(context) };
    as_status_after(
        || context?.events.wait(),
        || {
            let item = context?.events.take(|item| {
                // SAFETY: an object takes its events out of the queue before it goes, and the queue is locked.
                unsafe { count(item.subject, false) }
            });
            // SAFETY: the caller promises that the context is open, and `event` can be written.
            Ok(item.map(|item| unsafe { event.write(to_c(&item)) }))
        },
    )
}

/// An event as C has it.
fn to_c(item: &AsyncItem) -> ibv_async_event {
    let element = match item.subject {
        Subject::Cq(cq) => async_element { cq: cq.cast_mut() },
        Subject::Qp(qp) => async_element { qp: qp.cast_mut() },
        Subject::Srq(srq) => async_element {
            srq: srq.cast_mut(),
        },
        Subject::Wq(wq) => async_element { wq: wq.cast_mut() },
        Subject::Port(port) => async_element {
            port_num: port.into(),
        },
    };
    ibv_async_event {
        element,
        event_type: item.event_type,
    }
}

/// Acknowledges an asynchronous event: `ibv_ack_async_event`. Destroying its object waits for that.
///
/// # Safety
/// `event` is one of `ibv_get_async_event` that was not acknowledged yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    as_nothing(|| {
        // SAFETY: the caller's promise: the element is the kind of object that the type says, and it is there until the event
        // is acknowledged.
        unsafe {
            let ibv_async_event {
                element,
                event_type,
            } = *event;
            let subject = match event_type {
                IBV_EVENT_CQ_ERR => Subject::Cq(element.cq),
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_SQ_DRAINED
                | IBV_EVENT_PATH_MIG
                | IBV_EVENT_PATH_MIG_ERR
                | IBV_EVENT_QP_LAST_WQE_REACHED => Subject::Qp(element.qp),
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => Subject::Srq(element.srq),
                IBV_EVENT_WQ_FATAL => Subject::Wq(element.wq),
                _ => Subject::Port(0),
            };
            count(subject, true);
        }
        Ok(())
    });
}

/// An event as text: `ibv_event_type_str`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    let text = match event {
        IBV_EVENT_CQ_ERR => c"CQ error",
        IBV_EVENT_QP_FATAL => c"local work queue catastrophic error",
        IBV_EVENT_QP_REQ_ERR => c"invalid request local work queue error",
        IBV_EVENT_QP_ACCESS_ERR => c"local access violation work queue error",
        IBV_EVENT_COMM_EST => c"communication established",
        IBV_EVENT_SQ_DRAINED => c"send queue drained",
        IBV_EVENT_PATH_MIG => c"path migrated",
        IBV_EVENT_PATH_MIG_ERR => c"path migration request error",
        IBV_EVENT_DEVICE_FATAL => c"local catastrophic error",
        IBV_EVENT_PORT_ACTIVE => c"port active",
        IBV_EVENT_PORT_ERR => c"port error",
        IBV_EVENT_LID_CHANGE => c"LID change",
        IBV_EVENT_PKEY_CHANGE => c"P_Key change",
        IBV_EVENT_SM_CHANGE => c"SM change",
        IBV_EVENT_SRQ_ERR => c"SRQ catastrophic error",
        IBV_EVENT_SRQ_LIMIT_REACHED => c"SRQ limit reached",
        IBV_EVENT_QP_LAST_WQE_REACHED => c"last WQE reached",
        IBV_EVENT_CLIENT_REREGISTER => c"client reregistration",
        IBV_EVENT_GID_CHANGE => c"GID table change",
        IBV_EVENT_WQ_FATAL => c"WQ fatal",
        DEVICE_SPEED_CHANGE => c"Device link speed change",
        _ => c"unknown",
    };
    text.as_ptr()
}
