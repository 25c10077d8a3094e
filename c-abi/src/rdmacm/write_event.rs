//! Events of the program or of the library itself, from being reported to being taken: `rdma_write_cm_event`,
//! `rdma_resolve_addrinfo`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr;

use crate::abi::cma::{rdma_addrinfo, rdma_cm_id};
use crate::abi::numbers::*;
use crate::process::failure::{Errno, Result, as_status, guarded, lock};
use crate::rdmacm::addrinfo::{Failure, getaddrinfo};
use crate::rdmacm::channel::channel;
use crate::rdmacm::event::completed;
use crate::rdmacm::id::id;
use crate::rdmacm::own_events::{Found, OwnEvent};

/// Adds an event to those of an id, whose channel becomes readable.
///
/// # Safety
/// The id was created here.
unsafe fn write(id: *mut rdma_cm_id, event: OwnEvent) -> Result<()> {
    // SAFETY: the caller promises that the id was created here.
    let object = unsafe { self::id(id) }?;
    {
        let mut inner = lock(&object.inner);
        let (hca, cm) = (inner.hca, inner.cm);
        inner.own.add(event, &mut *hca.manager()?, cm)?;
    }
    // SAFETY: the id's channel is there for as long as the id.
    unsafe { channel(object.c.channel) }?.signal();
    Ok(())
}

/// Reports an event of the program's own: `rdma_write_cm_event`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: c_int,
    status: c_int,
    arg: u64,
) -> c_int {
    as_status(|| {
        if event != RDMA_CM_EVENT_USER {
            return Err(Errno::EINVAL);
        }
        let event = OwnEvent { event, status, arg };
        // SAFETY: the caller promises that the id was created here.
        unsafe { write(id, event) }
    })
}

/// Resolves a name and a service as `rdma_getaddrinfo` does, and reports that as an event: `rdma_resolve_addrinfo`. As in
/// librdmacm, the name is resolved before this returns, and a name that is not found is an error of the call.
///
/// # Safety
/// The id was created here; the rest is as for `rdma_getaddrinfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    let begun = guarded(|| {
        // SAFETY: the caller promises that the id was created here; the rest is as for `rdma_getaddrinfo`.
        let object = unsafe { self::id(id) }?;
        if std::mem::replace(&mut lock(&object.inner).own.resolving, true) {
            return Err(Errno::EBUSY);
        }
        // SAFETY: the caller promises that the id was created here; the rest is as for `rdma_getaddrinfo`.
        let resolved = unsafe { resolve(id, node, service, hints) };
        if resolved.is_err() {
            let own = &mut lock(&object.inner).own;
            (own.resolving, own.resolved) = (false, None);
        }
        resolved.map(|()| true)
    });
    // SAFETY: the caller promises that the id was created here; the rest is as for `rdma_getaddrinfo`.
    unsafe { completed(id, begun) }
}

/// # Safety
/// As `rdma_resolve_addrinfo`.
unsafe fn resolve(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_resolve_addrinfo`.
    let found = match unsafe { getaddrinfo(node, service, hints.as_ref()) } {
        Ok(found) => found,
        Err(Failure::Errno(errno)) => return Err(errno),
        Err(Failure::Resolver(_)) => return Err(Errno::EINVAL),
    };
    // SAFETY: the caller promises the same as for `rdma_resolve_addrinfo`.
    lock(&unsafe { self::id(id) }?.inner).own.resolved = Some(Found(found));
    let event = OwnEvent {
        event: RDMA_CM_EVENT_ADDRINFO_RESOLVED,
        status: 0,
        arg: 0,
    };
    // SAFETY: the caller promises the same as for `rdma_resolve_addrinfo`.
    unsafe { write(id, event) }
}

/// Takes what `rdma_resolve_addrinfo` has found: `rdma_query_addrinfo`. To be freed with `rdma_freeaddrinfo`.
///
/// # Safety
/// The id was created here, and `info` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here, and `info` can be written.
        let object = unsafe { self::id(id) }?;
        if info.is_null() {
            return Err(Errno::EINVAL);
        }
        let own = &mut lock(&object.inner).own;
        let found = own.resolved.take();
        let mut found = found.ok_or(Errno(libc::ENOENT))?;
        own.resolving = false;
        // SAFETY: the caller promises that the id was created here, and `info` can be written.
        unsafe { info.write(std::mem::replace(&mut found.0, ptr::null_mut())) };
        Ok(())
    })
}
