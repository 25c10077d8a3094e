//! Completion events: waiting for them at a channel, and acknowledging them.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::objects::{ibv_comp_channel, ibv_cq};
use crate::process::failure::{as_nothing, as_status_after};
use crate::verbs::channel::{CqEvent, channel};
use crate::verbs::cq::{CqObject, cq};

/// Waits for an event of a CQ: `ibv_get_cq_event`. To be acknowledged with `ibv_ack_cq_events`.
///
/// # Safety
/// The channel was created here; `cq` and `cq_context` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that the channel was created here; `cq` and `cq_context` can be written.
    let object = unsafe { self::channel(channel) };
    as_status_after(
        || object?.events.wait(),
        || {
            let found = object?.events.take(|event| {
                // SAFETY: a CQ takes its events out of the queue before it goes, and the queue is locked.
                unsafe { &*event.0.cast::<CqObject>() }.comp_acks.hand_out();
            });
            Ok(found.map(|CqEvent(found)| {
                // SAFETY: the CQ cannot go before this event is acknowledged; the caller's promise for the rest.
                unsafe {
                    cq.write(found.cast_mut());
                    cq_context.write((*found).cq_context);
                }
            }))
        },
    )
}

/// Acknowledges events of a CQ: `ibv_ack_cq_events`. Destroying the CQ waits for that.
///
/// # Safety
/// The CQ was created here, and so many of its events were handed out and not acknowledged yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    as_nothing(|| {
        // SAFETY: the caller promises that the CQ was created here, and so many of its events were handed out and not
        // acknowledged yet.
        let object = unsafe { self::cq(cq) }?;
        object.comp_acks.acknowledge(nevents.into());
        Ok(())
    });
}
