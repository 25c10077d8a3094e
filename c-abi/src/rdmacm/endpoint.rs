//! Addresses and routes of ids; endpoints, which are ids that are made ready in one call, and the requests of listeners without a
//! channel.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use bareverbs_node::cm::rdma::SockAddr;
use libc::sockaddr;

use crate::abi::cma::{rdma_addrinfo, rdma_cm_event, rdma_cm_id};
use crate::abi::numbers::{RAI_PASSIVE, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH};
use crate::abi::objects::{ibv_pd, ibv_qp_init_attr};
use crate::process::failure::{Errno, Result, as_status, guarded, lock, status};
use crate::rdmacm::create::destroy_id;
use crate::rdmacm::event::{complete, get};
use crate::rdmacm::id::{IdObject, acknowledge, id, manager_of};
use crate::rdmacm::options::set_option;
use crate::rdmacm::queues;
use crate::rdmacm::sockaddr::{check_length, from_c, ip, is_any, to_c};

/// The time that librdmacm gives each step of address resolution here, in milliseconds.
const RESOLVE: c_int = 2000;
/// `RDMA_CM_EVENT_CONNECT_REQUEST`.
const CONNECT_REQUEST: c_int = 4;

/// Makes an id ready for connecting or for listening: `rdma_create_ep`.
///
/// # Safety
/// `res` is from `rdma_getaddrinfo`; the domain and the objects in the attributes were created here, and may be NULL; `id` can be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller promises the same here.
    status(unsafe { create_ep(id, res, pd, qp_init_attr) }.map(|()| 0))
}

/// `rdma_create_ep` as a result. The thread may be cancelled meanwhile: nothing is to be dropped here.
///
/// # Safety
/// As `rdma_create_ep`.
unsafe fn create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: the caller promises that `res` is from `rdma_getaddrinfo`, that the objects were created here, and that `id` can
    // be written.
    unsafe {
        let res = res.as_ref().ok_or(Errno::EINVAL)?;
        let (space, kind) = (res.ai_port_space, Some(res.ai_qp_type));
        let made: *mut rdma_cm_id =
            guarded(|| IdObject::create(ptr::null_mut(), ptr::null_mut(), space, kind))?.cast();
        if let Err(errno) = make_ready(made, res, pd, qp_init_attr) {
            // The first error is the one to report.
            let _: Result<()> = guarded(|| destroy_id(made));
            return Err(errno);
        }
        id.write(made);
        Ok(())
    }
}

/// Makes a new id ready for connecting or for listening. The thread may be cancelled meanwhile: nothing is to be dropped here.
///
/// # Safety
/// As `rdma_create_ep`.
unsafe fn make_ready(
    made: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_create_ep`.
    unsafe {
        for (address, length) in [
            (res.ai_src_addr, res.ai_src_len),
            (res.ai_dst_addr, res.ai_dst_len),
        ] {
            if !address.is_null() && length > 0 {
                check_length(address, length)?;
            }
        }
        if res.ai_flags & RAI_PASSIVE != 0 {
            guarded(|| bind_addr(made, res.ai_src_addr))?;
            return guarded(|| {
                if let Some(attr) = qp_init_attr.as_ref() {
                    lock(&self::id(made)?.inner).queues = Some((*attr, pd));
                }
                Ok(())
            });
        }
        resolve_addr(made, res.ai_src_addr, res.ai_dst_addr, RESOLVE)?;
        if res.ai_route_len > 0 {
            let set = guarded(|| {
                set_option(
                    made,
                    RDMA_OPTION_IB,
                    RDMA_OPTION_IB_PATH,
                    res.ai_route,
                    res.ai_route_len,
                )
                .map(|()| true)
            });
            complete(made, set)?;
        } else {
            resolve_route(made, RESOLVE)?;
        }
        guarded(|| {
            if let Some(attr) = qp_init_attr.as_mut() {
                attr.qp_type = res.ai_qp_type;
                let mut all = queues::extended(attr, pd);
                queues::create(made, &mut all)?;
                attr.cap = all.cap;
            }
            Ok(())
        })
    }
}

/// Destroys an endpoint with its QP and SRQ: `rdma_destroy_ep`.
///
/// # Safety
/// It was created here, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    let destroyed = guarded(|| {
        // SAFETY: the caller promises that it was created here, and is not used again.
        unsafe {
            queues::destroy(id);
            queues::destroy_srq(id)?;
            destroy_id(id)
        }
    });
    if let Err(errno) = destroyed {
        log::warn!("an endpoint stays: {errno:?}");
    }
}

/// Waits for a request on a listener without a channel: `rdma_get_request`. Its QP is made as `rdma_create_ep` was told.
///
/// # Safety
/// The listener was created here, and `id` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller promises that the listener was created here, and `id` can be written.
    unsafe {
        let prepared = guarded(|| {
            if !lock(&self::id(listen)?.inner).sync {
                return Err(Errno::EINVAL);
            }
            let before = (*listen).event;
            if !before.is_null() {
                (*listen).event = ptr::null_mut();
                acknowledge(before)?;
            }
            Ok(())
        });
        let got = match prepared {
            Ok(()) => get((*listen).channel),
            Err(errno) => Err(errno),
        };
        match got {
            Ok(event) => as_status(|| take_request(listen, event, id)),
            Err(errno) => status(Err(errno)),
        }
    }
}

/// Hands out the id of a request, which is the event's, with its QP.
///
/// # Safety
/// As `rdma_get_request`.
unsafe fn take_request(
    listen: *mut rdma_cm_id,
    event: *mut rdma_cm_event,
    id: *mut *mut rdma_cm_id,
) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_get_request`.
    unsafe {
        if (*event).status != 0 || (*event).event != CONNECT_REQUEST {
            let status = (*event).status;
            (*listen).event = event;
            return Err(match status {
                0 => Errno::EINVAL,
                status => Errno(status.saturating_abs()),
            });
        }
        let made = (*event).id;
        let recipe = lock(&self::id(listen)?.inner).queues;
        if let Some((attr, pd)) = recipe {
            let mut all = queues::extended(&attr, pd);
            all.qp_type = (*made).qp_type;
            if let Err(errno) = queues::create(made, &mut all) {
                acknowledge(event)?;
                let _: Result<()> = destroy_id(made);
                return Err(errno);
            }
        }
        (*made).event = event;
        id.write(made);
    }
    Ok(())
}

/// A time-out of C.
fn timeout(milliseconds: c_int) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

/// Gives an id a local address: `rdma_bind_addr`. The loopback address is no device's, as the one for all: the id has none
/// then. On an InfiniBand port, which has no IP addresses, an IPv6 address that is the port's GID stands for the GID.
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
unsafe fn bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_bind_addr`.
    unsafe {
        let object = self::id(id)?;
        let address = from_c(addr)?.ok_or(Errno::EINVAL)?;
        object.choose_device(Some(address))?;
        let (hca, cm) = manager_of(id)?;
        if !is_any(&address) {
            object.check_port_space()?;
        }
        let on_port = object.on_port(address)?;
        hca.manager()?.bind_addr(cm, on_port)?;
        lock(&object.inner).loopback = ip(&address).is_loopback();
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
unsafe fn resolve_addr(
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
            if lock(&object.inner).loopback && !is_any(&destination) {
                // From there this host alone is reached.
                return Err(Errno::ENODEV);
            }
            object.choose_device(source)?;
            object.check_port_space()?;
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
unsafe fn resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> Result<()> {
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
