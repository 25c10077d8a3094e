//! `rdma_getaddrinfo`: names and services, and what kind of endpoint they are for.

// UNSAFETY: raw pointers of C, and the C library's resolver.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::mem::zeroed;
use std::net::SocketAddr;
use std::ptr;

use bareverbs_node::cm::rdma::{SockAddr, SockaddrIb};
use bareverbs_node::verbs::Gid;
use libc::{addrinfo, sockaddr, sockaddr_storage, socklen_t};

use crate::abi::cma::rdma_addrinfo;
use crate::abi::numbers::*;
use crate::process::failure::{Errno, Result, as_nothing, guarded};
use crate::rdmacm::sockaddr::{check_length, from_c, to_c as address_to_c};

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

/// Copies an address, which has to be as long as its family says: who reads the result goes by that.
///
/// # Safety
/// `length` bytes at `from` can be read.
unsafe fn copy(from: *const sockaddr, length: socklen_t, to: &mut sockaddr_storage) -> Result<()> {
    // SAFETY: the caller promises that `length` bytes at `from` can be read.
    unsafe { check_length(from, length) }?;
    let length = length as usize;
    if length > size_of::<sockaddr_storage>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise, and it fits.
    unsafe {
        ptr::copy_nonoverlapping(from.cast::<u8>(), ptr::from_mut(to).cast::<u8>(), length);
    }
    Ok(())
}

/// Returns `true` if the hints say that a numeric address of IPv6 is a GID. As librdmacm has it, the family alone, without
/// both flags, asks for nothing.
fn wants_gid(hints: &rdma_addrinfo) -> bool {
    let flags = RAI_FAMILY | RAI_NUMERICHOST;
    hints.ai_family == libc::AF_IB && hints.ai_flags & flags == flags
}

/// Makes a GID's address of an IPv6 one: in the default partition, with the service of the port in the port space, or without
/// a port with any service of it. Its length.
fn to_gid(storage: &mut sockaddr_storage, port_space: c_int) -> Result<socklen_t> {
    /// The bits of a service that are the port, and the port space (`RDMA_IB_IP_PORT_MASK`, `RDMA_IB_IP_PS_MASK`).
    const PORT: u64 = 0xffff;
    const PORT_SPACE: u64 = !PORT;
    // SAFETY: the storage is as long as every address.
    let found = unsafe { from_c(ptr::from_ref(storage).cast()) }?;
    let Some(SockAddr::Ip(SocketAddr::V6(address))) = found else {
        return Err(Errno(libc::EAFNOSUPPORT));
    };
    let port = u64::from(address.port());
    let (made, length) = address_to_c(SockaddrIb {
        pkey: 0xffff,
        flowinfo: u32::from_be(address.flowinfo()),
        gid: Gid::from_ipv6(*address.ip()),
        sid: (port_space as u64) << 16 | port,
        sid_mask: PORT_SPACE | if port == 0 { 0 } else { PORT },
    });
    *storage = made;
    Ok(length)
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
        // SAFETY: the caller promises that `node` and `service` are text or NULL; `hints` is NULL or a structure of the
        // headers; `res` can be written.
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
                let gid = hints.is_some_and(wants_gid);
                let family = match hints.map_or(0, |hints| hints.ai_family) {
                    libc::AF_IB if gid => libc::AF_INET6,
                    // Names are resolved to IP addresses.
                    libc::AF_IB => libc::AF_UNSPEC,
                    family => family,
                };
                let passive = flags & RAI_PASSIVE != 0;
                let storage = if passive {
                    &mut object.source
                } else {
                    &mut object.destination
                };
                match resolve(node, service, flags, family, storage, &mut object.name) {
                    Ok((mut family, mut length)) => {
                        if gid {
                            length = to_gid(storage, port_space)?;
                            family = libc::AF_IB;
                        }
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
            // SAFETY: the caller promises that `node` and `service` are text or NULL; `hints` is NULL or a structure of the
            // headers; `res` can be written.
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
        // SAFETY: the caller promises that each structure in it, and what it points to, is C's memory or NULL.
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
        // SAFETY: the caller promises that it is one, and is not used again.
        unsafe { free(res) };
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

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

    /// Resolves, and returns the error or family and local address of the result.
    fn found(node: &CStr, hints: &rdma_addrinfo) -> std::result::Result<(c_int, SockAddr), c_int> {
        let mut made = ptr::null_mut();
        // SAFETY: the text and the hints are there during the call; the result is freed once.
        unsafe {
            match rdma_getaddrinfo(node.as_ptr(), c"7471".as_ptr(), hints, &mut made) {
                0 => {}
                error => return Err(error),
            }
            let result = &*made;
            assert_eq!(check_length(result.ai_src_addr, result.ai_src_len), Ok(()));
            let address = from_c(result.ai_src_addr);
            let family = result.ai_family;
            rdma_freeaddrinfo(made);
            Ok((family, address.unwrap().unwrap()))
        }
    }

    fn hints(flags: c_int, port_space: c_int) -> rdma_addrinfo {
        // SAFETY: numbers and raw pointers may be zero.
        let mut hints: rdma_addrinfo = unsafe { zeroed() };
        hints.ai_flags = flags | RAI_PASSIVE;
        hints.ai_family = libc::AF_IB;
        hints.ai_port_space = port_space;
        hints
    }

    #[test]
    fn numeric_addresses_are_gids_where_the_hints_say_so() {
        let flags = RAI_FAMILY | RAI_NUMERICHOST;
        let (family, address) = found(c"fe80::2:c903:0:101", &hints(flags, RDMA_PS_UDP)).unwrap();
        let SockAddr::Ib(address) = address else {
            panic!("{address}");
        };
        assert_eq!(family, libc::AF_IB);
        assert_eq!((address.sid, address.sid_mask), (0x0111_1d2f, u64::MAX));
        assert_eq!(address.pkey, 0xffff);
        assert_eq!(address.gid.0[..10], [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2]);
        // What is no address of IPv6 is none.
        let error = found(c"10.0.0.1", &hints(flags, RDMA_PS_TCP)).unwrap_err();
        // `EAI_ADDRFAMILY` of glibc.
        assert_eq!(error, -9);
        // One flag alone leaves it what it is.
        for flags in [RAI_FAMILY, RAI_NUMERICHOST] {
            let (family, address) = found(c"fd00::1", &hints(flags, RDMA_PS_TCP)).unwrap();
            assert_eq!(family, libc::AF_INET6);
            assert!(matches!(address, SockAddr::Ip(_)));
        }
    }

    #[test]
    fn addresses_in_hints_are_as_long_as_their_family_says() {
        let mut address = [0_u8; 48];
        for (to, from) in address.iter_mut().zip((libc::AF_IB as u16).to_ne_bytes()) {
            *to = from;
        }
        for length in 0..=48 {
            let mut hints = hints(0, RDMA_PS_TCP);
            hints.ai_src_addr = address.as_mut_ptr().cast();
            hints.ai_src_len = length;
            let mut made = ptr::null_mut();
            // SAFETY: the hints and the address are there during the call; the result is freed once.
            unsafe {
                let error = rdma_getaddrinfo(ptr::null(), ptr::null(), &hints, &mut made);
                assert_eq!(error == 0, length == 0 || length == 48, "{length}");
                rdma_freeaddrinfo(made);
            }
        }
    }
}
