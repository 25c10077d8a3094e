//! The object behind `struct rdma_cm_event`, and acknowledging it.

// UNSAFETY: takes pointers to objects of C back.
#![expect(unsafe_code)]

use crate::abi::cma::rdma_cm_event;
use crate::process::failure::{Errno, Result};
use crate::rdmacm::id::IdObject;

/// An event with its private data.
#[repr(C)]
pub(super) struct EventObject {
    pub(super) c: rdma_cm_event,
    /// The id or listener that counts it among its events.
    pub(super) owner: *const IdObject,
    pub(super) private: [u8; 256],
}

/// Acknowledges an event, which is gone then.
///
/// # Safety
/// It is one that was handed out, and was not acknowledged yet.
pub(crate) unsafe fn acknowledge(event: *mut rdma_cm_event) -> Result<()> {
    if event.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise: it was made by `process`, and its owner waits for this.
    unsafe {
        let object = Box::from_raw(event.cast::<EventObject>());
        (*object.owner).acks.acknowledge(1);
    }
    Ok(())
}
