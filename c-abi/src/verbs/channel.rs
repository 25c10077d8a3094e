//! Completion channels: descriptors that are readable when a CQ has an event.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::objects::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::process::descriptor::Events;
use crate::process::failure::{Errno, Result, as_errno, as_pointer};
use crate::verbs::context::context;

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    c: ibv_comp_channel,
    pub(crate) events: Events<CqEvent>,
    /// CQs that report to it.
    users: AtomicUsize,
}

/// A CQ that has got an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CqEvent(pub(crate) *const ibv_cq);

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
    pub(crate) fn push(&self, cq: *const ibv_cq) {
        self.events.push(CqEvent(cq));
    }

    /// A CQ goes.
    pub(crate) fn forget(&self, cq: *const ibv_cq) {
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
    // SAFETY: the caller promises the same here.
    as_pointer(|| unsafe { create(context) })
}

/// `ibv_create_comp_channel` for callers in Rust.
///
/// # Safety
/// As `ibv_create_comp_channel`.
pub(crate) unsafe fn create(context: *mut ibv_context) -> Result<*mut ibv_comp_channel> {
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
}

/// Destroys a completion channel: `ibv_destroy_comp_channel`. EBUSY while CQs report to it.
///
/// # Safety
/// It was created here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller promises the same here.
    as_errno(|| unsafe { destroy(channel) })
}

/// `ibv_destroy_comp_channel` for callers in Rust.
///
/// # Safety
/// As `ibv_destroy_comp_channel`.
pub(crate) unsafe fn destroy(channel: *mut ibv_comp_channel) -> Result<()> {
    // SAFETY: the caller promises the same as for `ibv_destroy_comp_channel`.
    let object = unsafe { self::channel(channel) }?;
    if object.users.load(Ordering::Acquire) != 0 {
        return Err(Errno::EBUSY);
    }
    // SAFETY: the caller's promise: it was made by `ibv_create_comp_channel`.
    drop(unsafe { Box::from_raw(channel.cast::<ChannelObject>()) });
    Ok(())
}
