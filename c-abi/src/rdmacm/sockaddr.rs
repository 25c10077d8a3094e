//! Addresses of sockets, in C and in Rust.

// UNSAFETY: reads addresses that C points to.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use bareverbs_node::cm::rdma::{SockAddr, SockaddrIb};
use bareverbs_node::verbs::Gid;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::abi::cma::sockaddr_ib;
use crate::process::failure::{Errno, Result};

/// The length of an address of a family. Of another family there is none, which librdmacm's calls answer with EINVAL
/// (`ucma_addrlen`).
pub(crate) fn length_of(family: libc::sa_family_t) -> Result<usize> {
    match c_int::from(family) {
        libc::AF_INET => Ok(size_of::<sockaddr_in>()),
        libc::AF_INET6 => Ok(size_of::<sockaddr_in6>()),
        libc::AF_IB => Ok(size_of::<sockaddr_ib>()),
        _ => Err(Errno::EINVAL),
    }
}

/// Checks that an address is as long as its family says.
///
/// # Safety
/// `length` bytes at `address` can be read.
pub(crate) unsafe fn check_length(address: *const sockaddr, length: socklen_t) -> Result<()> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise; the family is in front of every address.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    if length < length_of(family)? {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// An address that C points to; `None` for NULL.
///
/// # Safety
/// The pointer is NULL, or points to an address that is as long as its family says.
pub(crate) unsafe fn from_c(address: *const sockaddr) -> Result<Option<SockAddr>> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise; the family is in front of every address.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the caller promises that the pointer is NULL, or points to an address that is as long as its family
            // says.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            let port = u16::from_be(address.sin_port);
            Ok(Some(SocketAddr::V4(SocketAddrV4::new(ip, port)).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: the caller promises that the pointer is NULL, or points to an address that is as long as its family
            // says.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            let port = u16::from_be(address.sin6_port);
            let address = SocketAddrV6::new(ip, port, address.sin6_flowinfo, address.sin6_scope_id);
            Ok(Some(SocketAddr::V6(address).into()))
        }
        libc::AF_IB => {
            // SAFETY: the caller promises that the pointer is NULL, or points to an address that is as long as its family
            // says.
            let address = unsafe { address.cast::<sockaddr_ib>().read_unaligned() };
            Ok(Some(SockAddr::Ib(SockaddrIb {
                pkey: u16::from_be(address.sib_pkey),
                flowinfo: u32::from_be(address.sib_flowinfo),
                gid: Gid(address.sib_addr),
                sid: u64::from_be(address.sib_sid),
                sid_mask: u64::from_be(address.sib_sid_mask),
            })))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The GID that an address stands for.
pub(crate) fn gid(address: &SockAddr) -> Gid {
    match address {
        SockAddr::Ip(address) => Gid::from(address.ip()),
        SockAddr::Ib(address) => address.gid,
    }
}

/// The address without its port: a GID is an address of IPv6.
pub(crate) fn ip(address: &SockAddr) -> IpAddr {
    match address {
        SockAddr::Ip(address) => address.ip(),
        SockAddr::Ib(address) => IpAddr::V6(address.gid.to_ipv6()),
    }
}

/// Returns `true` for an address of no device: the one for all, or the loopback address (`cma_any_addr` of core/cma.c).
pub(crate) fn is_any(address: &SockAddr) -> bool {
    let ip = ip(address);
    ip.is_unspecified() || ip.is_loopback()
}

/// An address of C, and its length.
pub(crate) fn to_c(address: impl Into<SockAddr>) -> (sockaddr_storage, socklen_t) {
    // SAFETY: numbers may be zero.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let length = match address.into() {
        SockAddr::Ip(SocketAddr::V4(address)) => {
            let c = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*address.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: every address fits into the storage, which is aligned for all of them.
            unsafe { (&raw mut storage).cast::<sockaddr_in>().write(c) };
            size_of::<sockaddr_in>()
        }
        SockAddr::Ip(SocketAddr::V6(address)) => {
            let c = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: the same.
            unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(c) };
            size_of::<sockaddr_in6>()
        }
        SockAddr::Ib(address) => {
            let c = sockaddr_ib {
                sib_family: libc::AF_IB as u16,
                sib_pkey: address.pkey.to_be(),
                sib_flowinfo: address.flowinfo.to_be(),
                sib_addr: address.gid.0,
                sib_sid: address.sid.to_be(),
                sib_sid_mask: address.sid_mask.to_be(),
                sib_scope_id: 0,
            };
            // SAFETY: the same.
            unsafe { (&raw mut storage).cast::<sockaddr_ib>().write(c) };
            size_of::<sockaddr_ib>()
        }
    };
    (storage, length as socklen_t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_node::cm::rdma::PortSpace;

    fn found(storage: &sockaddr_storage) -> Result<Option<SockAddr>> {
        // SAFETY: the storage is as long as any address.
        unsafe { from_c(std::ptr::from_ref(storage).cast()) }
    }

    #[test]
    fn addresses_come_back_from_c() {
        for text in ["10.0.0.1:7471", "[fd00::1]:7471", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, length) = to_c(address);
            assert_eq!(length, if address.is_ipv4() { 16 } else { 28 });
            assert_eq!(found(&storage), Ok(Some(address.into())));
        }
        let gid = Gid::from_ipv6("fe80::2:c903:0:101".parse().unwrap());
        let address = SockaddrIb {
            flowinfo: 0xabcde,
            ..SockaddrIb::new(gid, PortSpace::Udp, 7174).with_pkey(0x8001)
        };
        let (storage, length) = to_c(address);
        assert_eq!(length, 48);
        assert_eq!(found(&storage), Ok(Some(address.into())));
    }

    #[test]
    fn fields_of_gid_addresses_are_where_c_has_them() {
        let gid = Gid(core::array::from_fn(|place| place as u8 + 1));
        let address = SockaddrIb {
            pkey: 0x1234,
            flowinfo: 0x0009_8765,
            gid,
            sid: 0x0106_1c06,
            sid_mask: 0xffff_ffff_ffff_0000,
        };
        let (storage, _) = to_c(address);
        // SAFETY: the storage has more bytes, all of them written.
        let bytes: [u8; 48] = unsafe { (&raw const storage).cast::<[u8; 48]>().read() };
        assert_eq!(bytes[2..8], [0x12, 0x34, 0, 9, 0x87, 0x65]);
        assert_eq!(bytes[8..24], gid.0);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 1, 6, 0x1c, 6]);
        assert_eq!(bytes[32..40], [255, 255, 255, 255, 255, 255, 0, 0]);
    }

    #[test]
    fn other_families_are_refused() {
        // SAFETY: numbers may be zero.
        let mut storage: sockaddr_storage = unsafe { zeroed() };
        for family in [libc::AF_UNSPEC, libc::AF_UNIX, 28, 0xffff] {
            storage.ss_family = family as u16;
            assert_eq!(found(&storage), Err(Errno::EINVAL));
        }
        // SAFETY: NULL is no address.
        assert_eq!(unsafe { from_c(std::ptr::null()) }, Ok(None));
    }

    #[test]
    fn short_addresses_are_refused() {
        for (family, length) in [(libc::AF_INET, 16), (libc::AF_INET6, 28), (libc::AF_IB, 48)] {
            for short in 0..length + 2 {
                // No byte more than it is said to have.
                let mut bytes = vec![0_u8; short as usize];
                for (to, from) in bytes.iter_mut().zip((family as u16).to_ne_bytes()) {
                    *to = from;
                }
                // SAFETY: there are so many bytes.
                let checked = unsafe { check_length(bytes.as_ptr().cast(), short) };
                let wanted = if short < length {
                    Err(Errno::EINVAL)
                } else {
                    Ok(())
                };
                assert_eq!(checked, wanted, "{family} {short}");
            }
        }
        // SAFETY: NULL is no address.
        let checked = unsafe { check_length(std::ptr::null(), 48) };
        assert_eq!(checked, Err(Errno::EINVAL));
    }
}
