//! Addresses and routes of ids.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::time::Duration;

use bareverbs_node::cm::rdma::SockAddr;
use libc::sockaddr;

use crate::abi::cma::rdma_cm_id;
use crate::process::failure::{Errno, Result, as_status, guarded, lock, status};
use crate::rdmacm::id::{IdObject, id, manager_of};
use crate::rdmacm::sockaddr::{from_c, ip, to_c};
use crate::rdmacm::waiting::complete;

/// A time-out of C.
fn timeout(milliseconds: c_int) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

/// Gives an id a local address: `rdma_bind_addr`. The loopback address is no device's: the id has none then. On an InfiniBand
/// port, which has no IP addresses, an IPv6 address that is the port's GID stands for the GID.
///
/// # Safety
/// The id was created here, and `addr` is an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: the caller promises the same here.
    as_status(|| unsafe { bind_addr(id, addr) })
}

/// `rdma_bind_addr` for callers in Rust.
///
/// # Safety
/// As `rdma_bind_addr`.
pub(crate) unsafe fn bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_bind_addr`.
    unsafe {
        let object = self::id(id)?;
        let address = from_c(addr)?.ok_or(Errno::EINVAL)?;
        object.choose_device(Some(address))?;
        let (hca, cm) = manager_of(id)?;
        if ip(&address).is_loopback() {
            lock(&object.inner).loopback = true;
            (*id).route.addr.src_storage = to_c(address).0;
            return Ok(());
        }
        let address = object.on_port(address)?;
        hca.manager()?.bind_addr(cm, address)?;
        IdObject::show_addresses(id.cast())
    }
}

/// Looks for the way to an address: `rdma_resolve_addr`.
///
/// # Safety
/// The id was created here; the addresses are addresses, the source may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller promises the same here.
    status(unsafe { resolve_addr(id, src_addr, dst_addr, timeout_ms) }.map(|()| 0))
}

/// `rdma_resolve_addr` for callers in Rust. The thread may be cancelled meanwhile: nothing is to be dropped where this is called.
///
/// # Safety
/// As `rdma_resolve_addr`.
pub(super) unsafe fn resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> Result<()> {
    let begun = guarded(|| {
        // SAFETY: the caller promises the same as for `rdma_resolve_addr`.
        unsafe {
            let object = self::id(id)?;
            let source = from_c(src_addr)?;
            let destination = from_c(dst_addr)?.ok_or(Errno::EINVAL)?;
            if lock(&object.inner).loopback {
                return Err(Errno::ENODEV);
            }
            object.choose_device(source)?;
            let (hca, cm) = manager_of(id)?;
            let source = source.map(|source| object.on_port(source)).transpose()?;
            let destination = object.of_family(destination, Errno::ENETUNREACH)?;
            let until = timeout(timeout_ms);
            hca.manager()?
                .resolve_addr(cm, source, destination, until)?;
            (*id).route.addr.dst_storage = to_c(destination).0;
            Ok(true)
        }
    });
    // SAFETY: the caller promises the same as for `rdma_resolve_addr`.
    unsafe { complete(id, begun) }
}

/// Looks for the path to the address: `rdma_resolve_route`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller promises the same here.
    status(unsafe { resolve_route(id, timeout_ms) }.map(|()| 0))
}

/// `rdma_resolve_route` for callers in Rust. The thread may be cancelled meanwhile: nothing is to be dropped where this is called.
///
/// # Safety
/// As `rdma_resolve_route`.
pub(super) unsafe fn resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> Result<()> {
    let begun = guarded(|| {
        // SAFETY: the caller promises the same as for `rdma_resolve_route`.
        unsafe {
            let (hca, cm) = manager_of(id)?;
            hca.manager()?.resolve_route(cm, timeout(timeout_ms))?;
            Ok(true)
        }
    });
    // SAFETY: the caller promises the same as for `rdma_resolve_route`.
    unsafe { complete(id, begun) }
}

/// The local port in network order, 0 if there is none: `rdma_get_src_port`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller promises that the id was created here.
    unsafe { port((&raw const (*id).route.addr.src_storage).cast()) }
}

/// The other end's port in network order, 0 if there is none: `rdma_get_dst_port`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller promises that the id was created here.
    unsafe { port((&raw const (*id).route.addr.dst_storage).cast()) }
}

/// # Safety
/// It is an address, or zero.
unsafe fn port(address: *const sockaddr) -> u16 {
    // SAFETY: the caller promises that it is an address, or zero.
    match unsafe { from_c(address) } {
        Ok(Some(SockAddr::Ip(address))) => address.port().to_be(),
        // Whatever the mask says, as librdmacm has it.
        Ok(Some(SockAddr::Ib(address))) => (address.sid as u16).to_be(),
        _ => 0,
    }
}
