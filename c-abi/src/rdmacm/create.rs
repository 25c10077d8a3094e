//! Creating and destroying ids.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::cma::{rdma_cm_id, rdma_event_channel};
use crate::process::failure::{Errno, Result, as_status, lock};
use crate::rdmacm::channel::{EventChannel, channel};
use crate::rdmacm::id::{IdObject, acknowledge, id};
use crate::rdmacm::wildcard;

/// Creates an id: `rdma_create_id`. Without a channel its calls wait for their events.
///
/// # Safety
/// The channel is NULL or was created here; `id` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the channel is NULL or was created here; `id` can be written.
        unsafe {
            let object = IdObject::create(channel, context, ps, None)?;
            id.write(object.cast());
        }
        Ok(())
    })
}

/// Destroys an id, after its events were acknowledged: `rdma_destroy_id`.
///
/// # Safety
/// It was created here, has no QP, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller promises the same here.
    as_status(|| unsafe { destroy_id(id) })
}

/// `rdma_destroy_id` for callers in Rust.
///
/// # Safety
/// As `rdma_destroy_id`.
pub(crate) unsafe fn destroy_id(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_destroy_id`.
    let object = unsafe { self::id(id) }?;
    let (hca, cm, sync, qpn) = {
        let inner = lock(&object.inner);
        (inner.hca, inner.cm, inner.sync, inner.qpn)
    };
    if let Some(qpn) = qpn {
        hca.registry.with(|objects| {
            // The number may be another QP's since.
            if objects.cm_ids.get(&qpn) == Some(&cm) {
                objects.cm_ids.remove(&qpn);
            }
        });
    }
    wildcard::forget(object);
    // What the manager has begun with its QP is over when the QP is no longer the id's.
    hca.settle(cm, None);
    match hca.manager() {
        Ok(mut manager) => manager.destroy_id(cm)?,
        // The process is about to end.
        Err(Errno::ENODEV) => {}
        Err(errno) => return Err(errno),
    }
    // From here on no event of it is handed out. Those that were not taken are gone.
    // SAFETY: the id's channel is there for as long as the id.
    if let Ok(channel) = unsafe { channel((*id).channel) } {
        channel.signal();
    }
    // SAFETY: the caller promises the same as for `rdma_destroy_id`.
    unsafe {
        let event = (*id).event;
        if !event.is_null() {
            (*id).event = ptr::null_mut();
            acknowledge(event)?;
        }
        object.acks.wait();
        if sync {
            EventChannel::destroy((*id).channel.cast());
        }
        drop(Box::from_raw(id.cast::<IdObject>()));
    }
    Ok(())
}
