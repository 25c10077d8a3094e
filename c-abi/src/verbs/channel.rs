//! Completion channels: descriptors that are readable when a CQ has an event.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::objects::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::process::descriptor::Events;
use crate::process::failure::{Errno, Result, as_errno, as_nothing, as_pointer, as_status_after};
use crate::verbs::context::context;
use crate::verbs::cq::CqObject;

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    c: ibv_comp_channel,
    events: Events<CqEvent>,
    /// CQs that report to it.
    users: AtomicUsize,
}

/// A CQ that has got an event.
#[derive(Debug, Clone, Copy)]
struct CqEvent(*const CqObject);

// SAFETY: a CQ takes its events out before it goes.
unsafe impl Send for CqEvent {}

impl ChannelObject {
    /// A CQ reports to it from now on, or no longer.
    pub(crate) fn count_user(&self, more: bool) {
        if more {
            self.users.fetch_add(1, Ordering::AcqRel);
        } else {
            self.users.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A CQ has an event.
    pub(crate) fn push(&self, cq: *const CqObject) {
        self.events.push(CqEvent(cq));
    }

    /// A CQ goes.
    pub(crate) fn forget(&self, cq: *const CqObject) {
        self.events.remove(|event| event.0 == cq);
    }
}

/// The object behind a completion channel of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
pub(crate) unsafe fn channel<'a>(channel: *mut ibv_comp_channel) -> Result<&'a ChannelObject> {
    // SAFETY: the caller's promise: it is the first field of a `ChannelObject`.
    unsafe { channel.cast::<ChannelObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Creates a completion channel: `ibv_create_comp_channel`.
///
/// # Safety
/// The context is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    as_pointer(|| {
        // SAFETY: the caller's promise; looked at for NULL only.
        unsafe { self::context(context) }?;
        let events = Events::new()?;
        let c = ibv_comp_channel {
            context,
            fd: events.fd(),
            refcnt: 0,
        };
        let users = AtomicUsize::new(0);
        Ok(Box::into_raw(Box::new(ChannelObject { c, events, users })).cast())
    })
}

/// Destroys a completion channel: `ibv_destroy_comp_channel`. EBUSY while CQs report to it.
///
/// # Safety
/// It was created here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    as_errno(|| {
        // SAFETY: the caller's promise.
        let object = unsafe { self::channel(channel) }?;
        if object.users.load(Ordering::Acquire) != 0 {
            return Err(Errno::EBUSY);
        }
        // SAFETY: the caller's promise: it was made by `ibv_create_comp_channel`.
        drop(unsafe { Box::from_raw(channel.cast::<ChannelObject>()) });
        Ok(())
    })
}

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
    // SAFETY: the caller's promise.
    let object = unsafe { self::channel(channel) };
    as_status_after(
        || object?.events.wait(),
        || {
            let found = object?.events.take(|event| {
                // SAFETY: a CQ takes its events out of the queue before it goes, and the queue is locked.
                unsafe { &*event.0 }.comp_acks.hand_out();
            });
            Ok(found.map(|CqEvent(found)| {
                // SAFETY: the CQ cannot go before this event is acknowledged; the caller's promise for the rest.
                unsafe {
                    cq.write(found.cast_mut().cast());
                    cq_context.write((*found).ex.cq_context);
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
        // SAFETY: the caller's promise.
        let object = unsafe { crate::verbs::cq::cq(cq) }?;
        object.comp_acks.acknowledge(nevents.into());
        Ok(())
    });
}
