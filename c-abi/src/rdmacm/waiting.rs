//! Calls on ids without a channel of the program's, which wait for their events.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use crate::abi::cma::{rdma_cm_event, rdma_cm_id};
use crate::process::failure::{Errno, Result, guarded, lock, status};
use crate::rdmacm::channel::channel;
use crate::rdmacm::event;
use crate::rdmacm::event_object::acknowledge;
use crate::rdmacm::id::id;

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
            if !lock(&self::id(id)?.inner).sync {
                return Ok(false);
            }
            let before = (*id).event;
            if !before.is_null() {
                (*id).event = ptr::null_mut();
                acknowledge(before)?;
            }
            Ok(true)
        })?;
        if !waits {
            return Ok(());
        }
        let event: *mut rdma_cm_event = event::get((*id).channel)?;
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

/// `RDMA_CM_EVENT_REJECTED`.
const REJECTED: c_int = 8;
