//! Contexts: devices that a program has opened.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;

use crate::abi::objects::ibv_context;
use crate::abi::ops::verbs_context;
use crate::ethernet::rules::Frames;
use crate::process::descriptor::Events;
use crate::process::failure::{Errno, Result};
use crate::process::hca::Hca;
use crate::verbs::subject::AsyncItem;

/// A device that a program has opened.
#[repr(C)]
pub(crate) struct ContextObject {
    pub(crate) verbs: verbs_context,
    pub(crate) hca: &'static Hca,
    pub(crate) events: Events<AsyncItem>,
    pub(crate) frames: Frames,
}

impl ContextObject {
    /// Refuses an object of another context: as in the kernel, where the handles of a context name its own objects alone.
    pub(crate) fn check_owner(&self, owner: *mut ibv_context) -> Result<()> {
        match ptr::eq(owner, &raw const self.verbs.context) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    /// Hands it to C.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut ibv_context {
        let context = Box::into_raw(self);
        // SAFETY: a field of what was just allocated.
        unsafe { &raw mut (*context).verbs.context }
    }
}

/// The object behind a context of C.
///
/// # Safety
/// The context was opened here, and is not closed for as long as the result is used.
pub(crate) unsafe fn context<'a>(context: *mut ibv_context) -> Result<&'a ContextObject> {
    if context.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise: the context of C is a field of a `ContextObject`.
    Ok(unsafe { &*object(context) })
}

/// The object around a context of C.
pub(crate) fn object(context: *mut ibv_context) -> *mut ContextObject {
    const AT: usize = offset_of!(ContextObject, verbs) + offset_of!(verbs_context, context);
    context
        .cast::<c_void>()
        .wrapping_byte_sub(AT)
        .cast::<ContextObject>()
}
