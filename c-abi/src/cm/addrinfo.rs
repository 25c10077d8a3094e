//! `rdma_getaddrinfo`: names and services, and what kind of endpoint they are for.

// UNSAFETY: raw pointers of C, and the C library's resolver.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::mem::zeroed;
use std::ptr;

use libc::{addrinfo, sockaddr, sockaddr_storage, socklen_t};

use crate::abi::cma::rdma_addrinfo;
use crate::abi::numbers::*;
use crate::failure::{Errno, Result, as_nothing, guarded};

/// The result of `rdma_getaddrinfo`, with what it will point to.
struct Info {
    c: rdma_addrinfo,
    source: sockaddr_storage,
    destination: sockaddr_storage,
    name: Vec<u8>,
}

/// The QP that a port space is for.
fn qp_type_of(port_space: c_int) -> c_int {
    match port_space {
        RDMA_PS_UDP | RDMA_PS_IPOIB => IBV_QPT_UD,
        _ => IBV_QPT_RC,
    }
}

fn port_space_of(qp_type: c_int) -> c_int {
    match qp_type {
        IBV_QPT_UD => RDMA_PS_UDP,
        IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => RDMA_PS_IB,
        _ => RDMA_PS_TCP,
    }
}

/// Copies an address.
///
/// # Safety
/// So many bytes can be read.
unsafe fn copy(from: *const sockaddr, length: socklen_t, to: &mut sockaddr_storage) -> Result<()> {
    let length = length as usize;
    if from.is_null() || length > size_of::<sockaddr_storage>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise, and it fits.
    unsafe {
        ptr::copy_nonoverlapping(from.cast::<u8>(), ptr::from_mut(to).cast::<u8>(), length);
    }
    Ok(())
}

/// Resolves a name and a service. The error is one of `getaddrinfo`.
///
/// # Safety
/// Both are text or NULL.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    flags: c_int,
    family: c_int,
    storage: &mut sockaddr_storage,
    name: &mut Vec<u8>,
) -> std::result::Result<(c_int, socklen_t), c_int> {
    // SAFETY: the caller's promise; the list is freed once.
    unsafe {
        let mut hints: addrinfo = zeroed();
        hints.ai_family = family;
        hints.ai_socktype = libc::SOCK_STREAM;
        if flags & RAI_PASSIVE != 0 {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if flags & RAI_NUMERICHOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        } else if !node.is_null() {
            hints.ai_flags |= libc::AI_CANONNAME;
        }
        let mut list = ptr::null_mut();
        match libc::getaddrinfo(node, service, &hints, &mut list) {
            0 => {}
            error => return Err(error),
        }
        let found = &*list;
        let copied = copy(found.ai_addr, found.ai_addrlen, storage);
        if !found.ai_canonname.is_null() {
            *name = std::ffi::CStr::from_ptr(found.ai_canonname)
                .to_bytes_with_nul()
                .to_vec();
        }
        let result = (found.ai_family, found.ai_addrlen);
        libc::freeaddrinfo(list);
        copied.map(|()| result).map_err(|_| libc::EAI_FAMILY)
    }
}

/// Resolves a name and a service to what an endpoint is made from: `rdma_getaddrinfo`. Returns 0, an error of `getaddrinfo`, or -1
/// with an errno. To be freed with `rdma_freeaddrinfo`.
///
/// # Safety
/// `node` and `service` are text or NULL; `hints` is NULL or a structure of the headers; `res` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let mut error = -1;
    let made = guarded(|| {
        // SAFETY: the caller's promise, for all of this.
        unsafe {
            let hints = hints.as_ref();
            if node.is_null() && service.is_null() && hints.is_none() {
                return Err(Errno::EINVAL);
            }
            let mut object = Info {
                c: zeroed(),
                source: zeroed(),
                destination: zeroed(),
                name: Vec::new(),
            };
            let flags = hints.map_or(0, |hints| hints.ai_flags);
            let (mut qp_type, mut port_space) =
                hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
            if port_space == 0 {
                port_space = if qp_type == 0 {
                    RDMA_PS_TCP
                } else {
                    port_space_of(qp_type)
                };
            }
            if qp_type == 0 {
                qp_type = qp_type_of(port_space);
            }
            let info = &mut object.c;
            info.ai_flags = flags;
            info.ai_qp_type = qp_type;
            info.ai_port_space = port_space;
            if !node.is_null() || !service.is_null() {
                let family = hints.map_or(0, |hints| hints.ai_family);
                let passive = flags & RAI_PASSIVE != 0;
                let storage = if passive {
                    &mut object.source
                } else {
                    &mut object.destination
                };
                match resolve(node, service, flags, family, storage, &mut object.name) {
                    Ok((family, length)) => {
                        info.ai_family = family;
                        if passive {
                            info.ai_src_len = length;
                        } else {
                            info.ai_dst_len = length;
                        }
                    }
                    Err(of_resolver) => {
                        error = of_resolver;
                        return Err(Errno::EINVAL);
                    }
                }
            }
            if let Some(hints) = hints {
                if info.ai_src_len == 0 && hints.ai_src_len > 0 {
                    copy(hints.ai_src_addr, hints.ai_src_len, &mut object.source)?;
                    info.ai_src_len = hints.ai_src_len;
                }
                if info.ai_dst_len == 0 && hints.ai_dst_len > 0 {
                    copy(hints.ai_dst_addr, hints.ai_dst_len, &mut object.destination)?;
                    info.ai_dst_len = hints.ai_dst_len;
                }
                if info.ai_family == 0 {
                    info.ai_family = hints.ai_family;
                }
            }
            to_c(&object)
        }
    });
    match made {
        Ok(made) => {
            // SAFETY: the caller's promise.
            unsafe { res.write(made) };
            0
        }
        Err(errno) => {
            errno.set();
            error
        }
    }
}

/// The result in C's memory. Each part is by itself there: programs make such structures themselves and give them to
/// `rdma_freeaddrinfo`, as libfabric does, or replace parts.
fn to_c(info: &Info) -> Result<*mut rdma_addrinfo> {
    let mut c = info.c;
    // SAFETY: an address has at most as many bytes as its storage, and the structure was given its memory before.
    unsafe {
        let made: *mut rdma_addrinfo = allocate(size_of::<rdma_addrinfo>())?;
        let mut parts = || {
            c.ai_src_addr = part((&raw const info.source).cast(), c.ai_src_len as usize)?;
            c.ai_dst_addr = part((&raw const info.destination).cast(), c.ai_dst_len as usize)?;
            let name = part(info.name.as_ptr(), info.name.len())?;
            if c.ai_flags & RAI_PASSIVE != 0 {
                c.ai_src_canonname = name;
            } else {
                c.ai_dst_canonname = name;
            }
            Ok(())
        };
        let done = parts();
        made.write(c);
        if let Err(errno) = done {
            free(made);
            return Err(errno);
        }
        Ok(made)
    }
}

/// So many bytes of C's memory.
fn allocate<T>(bytes: usize) -> Result<*mut T> {
    // SAFETY: it takes any number.
    let made: *mut T = unsafe { libc::malloc(bytes) }.cast();
    if made.is_null() {
        return Err(Errno::ENOMEM);
    }
    Ok(made)
}

/// A copy of so many bytes in C's memory; NULL of none.
///
/// # Safety
/// They can be read.
unsafe fn part<T>(from: *const u8, bytes: usize) -> Result<*mut T> {
    if bytes == 0 {
        return Ok(ptr::null_mut());
    }
    let made: *mut u8 = allocate(bytes)?;
    // SAFETY: the caller's promise; it was just made of so many bytes.
    unsafe { ptr::copy_nonoverlapping(from, made, bytes) };
    Ok(made.cast())
}

/// Frees a list.
///
/// # Safety
/// Each structure in it, and what it points to, is C's memory or NULL.
unsafe fn free(mut info: *mut rdma_addrinfo) {
    while !info.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            let c = info.read();
            for part in [
                c.ai_src_addr.cast(),
                c.ai_dst_addr.cast(),
                c.ai_src_canonname.cast(),
                c.ai_dst_canonname.cast(),
                c.ai_route,
                c.ai_connect,
            ] {
                libc::free(part);
            }
            libc::free(info.cast());
            info = c.ai_next;
        }
    }
}

/// Frees the result of `rdma_getaddrinfo`, or a list of C's memory: `rdma_freeaddrinfo`.
///
/// # Safety
/// It is one, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    as_nothing(|| {
        // SAFETY: the caller's promise.
        unsafe { free(res) };
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_result_are_freed_by_themselves() {
        let mut made = ptr::null_mut();
        // SAFETY: the text and the hints are there during the call; the result is freed once, and its parts are C's memory.
        unsafe {
            let mut hints: rdma_addrinfo = zeroed();
            hints.ai_flags = RAI_NUMERICHOST | RAI_PASSIVE;
            let (node, service) = (c"10.0.0.1", c"7471");
            let error = rdma_getaddrinfo(node.as_ptr(), service.as_ptr(), &hints, &mut made);
            assert_eq!(error, 0);
            let found = &mut *made;
            assert_eq!(found.ai_src_len as usize, size_of::<libc::sockaddr_in>());
            assert!(found.ai_dst_addr.is_null());
            // A program may replace a part, change the flags, and append one of its own.
            libc::free(found.ai_src_addr.cast());
            found.ai_src_addr = libc::calloc(1, 48).cast();
            found.ai_flags = 0;
            let own: *mut rdma_addrinfo = libc::calloc(1, size_of::<rdma_addrinfo>()).cast();
            (*own).ai_src_addr = libc::calloc(1, 48).cast();
            found.ai_next = own;
            rdma_freeaddrinfo(made);
            rdma_freeaddrinfo(ptr::null_mut());
        }
    }
}
