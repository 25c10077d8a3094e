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
}

/// Why there is no result.
pub(super) enum Failure {
    /// An error of the C library's `getaddrinfo`, which is the result; errno is as that left it.
    Resolver(c_int),
    /// The result is -1.
    Errno(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// The hints of the C library's resolver (`ucma_convert_to_ai`). It knows no GIDs: numbers that are to be some are addresses of
/// IPv6 to it (librdmacm asks for any family, and reads an address of IPv4 as one of IPv6), and names are resolved to IP addresses.
fn resolver_hints(hints: &rdma_addrinfo) -> addrinfo {
    // SAFETY: numbers and raw pointers may be zero.
    let mut of_resolver: addrinfo = unsafe { zeroed() };
    for (of_rdma, flag) in [
        (RAI_PASSIVE, libc::AI_PASSIVE),
        (RAI_NUMERICHOST, libc::AI_NUMERICHOST),
    ] {
        if hints.ai_flags & of_rdma != 0 {
            of_resolver.ai_flags |= flag;
        }
    }
    of_resolver.ai_family = match hints.ai_family {
        libc::AF_IB if wants_gid(hints) => libc::AF_INET6,
        libc::AF_IB => libc::AF_UNSPEC,
        family => family,
    };
    of_resolver.ai_socktype = match hints.ai_qp_type {
        IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => libc::SOCK_STREAM,
        IBV_QPT_UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    of_resolver.ai_protocol = match (hints.ai_port_space, of_resolver.ai_socktype) {
        (RDMA_PS_TCP, _) | (RDMA_PS_IB, libc::SOCK_STREAM) => libc::IPPROTO_TCP,
        (RDMA_PS_IPOIB | RDMA_PS_UDP, _) | (RDMA_PS_IB, libc::SOCK_DGRAM) => libc::IPPROTO_UDP,
        _ => 0,
    };
    of_resolver
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

/// Resolves a name and a service (`ucma_getaddrinfo`).
///
/// # Safety
/// Both are text or NULL.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    info: &mut Info,
) -> std::result::Result<(), Failure> {
    let of_resolver = hints.map(resolver_hints);
    let of_resolver = of_resolver.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut list = ptr::null_mut();
    // SAFETY: the caller's promise; the hints are there during the call.
    match unsafe { libc::getaddrinfo(node, service, of_resolver, &mut list) } {
        0 => {}
        error => return Err(Failure::Resolver(error)),
    }
    // SAFETY: a list that was just made, which is freed once.
    let taken = unsafe {
        let taken = take(&*list, hints, info);
        libc::freeaddrinfo(list);
        taken
    };
    Ok(taken?)
}

/// Takes what the resolver has found (`ucma_convert_to_rai`). Hints win over it.
///
/// # Safety
/// It is one of the resolver's results.
unsafe fn take(found: &addrinfo, hints: Option<&rdma_addrinfo>, info: &mut Info) -> Result<()> {
    let c = &mut info.c;
    c.ai_qp_type = match hints.map_or(0, |hints| hints.ai_qp_type) {
        0 if found.ai_socktype == libc::SOCK_DGRAM => IBV_QPT_UD,
        0 => IBV_QPT_RC,
        qp_type => qp_type,
    };
    c.ai_port_space = match hints.map_or(0, |hints| hints.ai_port_space) {
        0 if found.ai_protocol == libc::IPPROTO_UDP => RDMA_PS_UDP,
        0 => RDMA_PS_TCP,
        port_space => port_space,
    };
    let passive = hints.is_some_and(|hints| hints.ai_flags & RAI_PASSIVE != 0);
    let (storage, length) = if passive {
        c.ai_flags = RAI_PASSIVE;
        (&mut info.source, &mut c.ai_src_len)
    } else {
        (&mut info.destination, &mut c.ai_dst_len)
    };
    // SAFETY: the caller promises that it is one of the resolver's results.
    unsafe { copy(found.ai_addr, found.ai_addrlen, storage) }?;
    (c.ai_family, *length) = (found.ai_family, found.ai_addrlen);
    if hints.is_some_and(wants_gid) {
        *length = to_gid(storage, c.ai_port_space)?;
        c.ai_family = libc::AF_IB;
    }
    Ok(())
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
    let mut of_resolver = None;
    let made = guarded(|| {
        // SAFETY: the caller promises that `node` and `service` are text or NULL; `hints` is NULL or a structure of the
        // headers.
        match unsafe { getaddrinfo(node, service, hints.as_ref()) } {
            Ok(made) => Ok(Some(made)),
            Err(Failure::Errno(errno)) => Err(errno),
            Err(Failure::Resolver(error)) => {
                of_resolver = Some(error);
                Ok(None)
            }
        }
    });
    match made {
        Ok(Some(made)) => {
            // SAFETY: the caller promises that `res` can be written.
            unsafe { res.write(made) };
            0
        }
        Ok(None) => of_resolver.unwrap_or(-1),
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// Does what `rdma_getaddrinfo` of librdmacm's addrinfo.c does. Service records of a subnet (`RAI_SA`) are not looked for.
///
/// # Safety
/// `node` and `service` are text or NULL; addresses in the hints are as long as they say.
pub(super) unsafe fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> std::result::Result<*mut rdma_addrinfo, Failure> {
    if node.is_null() && service.is_null() && hints.is_none() {
        return Err(Errno::EINVAL.into());
    }
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    if flags & RAI_SA != 0 {
        let records = flags & RAI_DNS == 0 && node.is_null();
        return Err(match records && service.is_null() {
            true => Errno::EINVAL.into(),
            false => Errno::EOPNOTSUPP.into(),
        });
    }
    // SAFETY: numbers and raw pointers may be zero.
    let mut info: Info = unsafe { zeroed() };
    if !node.is_null() || !service.is_null() {
        // SAFETY: the caller's promise.
        unsafe { resolve(node, service, hints, &mut info) }?;
    } else if let Some(hints) = hints {
        info.c.ai_flags = hints.ai_flags;
        info.c.ai_family = hints.ai_family;
        info.c.ai_qp_type = hints.ai_qp_type;
        info.c.ai_port_space = hints.ai_port_space;
        if hints.ai_dst_len > 0 {
            // SAFETY: the caller's promise.
            unsafe { copy(hints.ai_dst_addr, hints.ai_dst_len, &mut info.destination) }?;
            info.c.ai_dst_len = hints.ai_dst_len;
        }
    }
    if let Some(hints) = hints
        && info.c.ai_src_len == 0
        && hints.ai_src_len > 0
    {
        // SAFETY: the caller's promise.
        unsafe { copy(hints.ai_src_addr, hints.ai_src_len, &mut info.source) }?;
        info.c.ai_src_len = hints.ai_src_len;
    }
    Ok(to_c(&info)?)
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

    /// The parts of a result that are no addresses.
    type Kind = (c_int, c_int, c_int);

    fn kind(
        node: Option<&CStr>,
        hints: Option<&rdma_addrinfo>,
    ) -> std::result::Result<Kind, c_int> {
        let mut made = ptr::null_mut();
        let node = node.map_or(ptr::null(), CStr::as_ptr);
        let service = if node.is_null() { None } else { Some(c"7471") };
        let service = service.map_or(ptr::null(), CStr::as_ptr);
        let hints = hints.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the text and the hints are there during the call; the result is freed once.
        unsafe {
            match rdma_getaddrinfo(node, service, hints, &mut made) {
                0 => {}
                error => return Err(error),
            }
            let result = &*made;
            assert!(result.ai_src_canonname.is_null() && result.ai_dst_canonname.is_null());
            let kind = (result.ai_flags, result.ai_qp_type, result.ai_port_space);
            rdma_freeaddrinfo(made);
            Ok(kind)
        }
    }

    /// By `ucma_convert_to_ai` and `ucma_convert_to_rai` of librdmacm's addrinfo.c: what hints leave open is that of the
    /// socket which the C library's resolver finds, so that XRC is a stream of TCP.
    #[test]
    fn what_hints_leave_open_is_as_in_librdmacm() {
        let host = Some(c"10.0.0.1");
        assert_eq!(kind(host, None), Ok((0, IBV_QPT_RC, RDMA_PS_TCP)));
        for (qp_type, port_space, expected) in [
            (0, 0, (IBV_QPT_RC, RDMA_PS_TCP)),
            (IBV_QPT_UC, 0, (IBV_QPT_UC, RDMA_PS_TCP)),
            (IBV_QPT_UD, 0, (IBV_QPT_UD, RDMA_PS_UDP)),
            (IBV_QPT_XRC_SEND, 0, (IBV_QPT_XRC_SEND, RDMA_PS_TCP)),
            (IBV_QPT_XRC_RECV, 0, (IBV_QPT_XRC_RECV, RDMA_PS_TCP)),
            (0, RDMA_PS_UDP, (IBV_QPT_UD, RDMA_PS_UDP)),
            (0, RDMA_PS_IPOIB, (IBV_QPT_UD, RDMA_PS_IPOIB)),
            (0, RDMA_PS_IB, (IBV_QPT_RC, RDMA_PS_IB)),
            (IBV_QPT_UD, RDMA_PS_IB, (IBV_QPT_UD, RDMA_PS_IB)),
            (IBV_QPT_XRC_SEND, RDMA_PS_IB, (IBV_QPT_XRC_SEND, RDMA_PS_IB)),
        ] {
            for (flags, left) in [
                (0, 0),
                (RAI_NUMERICHOST | RAI_NOROUTE, 0),
                (RAI_NUMERICHOST | RAI_PASSIVE, RAI_PASSIVE),
            ] {
                // SAFETY: numbers and raw pointers may be zero.
                let mut hints: rdma_addrinfo = unsafe { zeroed() };
                hints.ai_flags = flags;
                hints.ai_qp_type = qp_type;
                hints.ai_port_space = port_space;
                let (qp_type, port_space) = expected;
                assert_eq!(kind(host, Some(&hints)), Ok((left, qp_type, port_space)));
            }
        }
    }

    #[test]
    fn without_a_name_the_hints_are_the_result() {
        // SAFETY: numbers and raw pointers may be zero.
        let mut hints: rdma_addrinfo = unsafe { zeroed() };
        assert_eq!(kind(None, Some(&hints)), Ok((0, 0, 0)));
        hints.ai_flags = RAI_NUMERICHOST | RAI_NOROUTE;
        hints.ai_qp_type = IBV_QPT_UD;
        let flags = hints.ai_flags;
        assert_eq!(kind(None, Some(&hints)), Ok((flags, IBV_QPT_UD, 0)));
        hints.ai_flags = RAI_SA;
        assert_eq!(kind(None, Some(&hints)), Err(-1));
        assert_eq!(Errno::last(), Errno::EINVAL);
        assert_eq!(kind(None, None), Err(-1));
        assert_eq!(Errno::last(), Errno::EINVAL);
    }

    /// An error of the resolver is the result, and errno is not librdmacm's.
    #[test]
    fn errors_of_the_resolver_leave_errno_alone() {
        // SAFETY: numbers and raw pointers may be zero.
        let mut hints: rdma_addrinfo = unsafe { zeroed() };
        hints.ai_flags = RAI_NUMERICHOST;
        Errno(4711).set();
        assert_eq!(
            kind(Some(c"no number"), Some(&hints)),
            Err(libc::EAI_NONAME)
        );
        assert_eq!(Errno::last(), Errno(4711));
        // No datagrams over TCP.
        hints.ai_qp_type = IBV_QPT_UD;
        hints.ai_port_space = RDMA_PS_TCP;
        assert_eq!(
            kind(Some(c"10.0.0.1"), Some(&hints)),
            Err(libc::EAI_SOCKTYPE)
        );
    }
}
