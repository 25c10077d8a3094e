//! Addresses of sockets, in C and in Rust.

// UNSAFETY: reads addresses that C points to.
#![expect(unsafe_code)]

use std::mem::zeroed;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::failure::{Errno, Result};

/// An address that C points to; `None` for NULL.
///
/// # Safety
/// The pointer is NULL, or points to an address that is as long as its family says.
pub(crate) unsafe fn from_c(address: *const sockaddr) -> Result<Option<SocketAddr>> {
    // SAFETY: the caller's promise; the family is in front of every address.
    let Some(family) = (unsafe { address.as_ref() }).map(|address| address.sa_family) else {
        return Ok(None);
    };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the caller's promise.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            let port = u16::from_be(address.sin_port);
            Ok(Some(SocketAddrV4::new(ip, port).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's promise.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            let port = u16::from_be(address.sin6_port);
            let address = SocketAddrV6::new(ip, port, address.sin6_flowinfo, address.sin6_scope_id);
            Ok(Some(address.into()))
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// An address of C, and its length.
pub(crate) fn to_c(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: numbers may be zero.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let length = match address {
        SocketAddr::V4(address) => {
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
        SocketAddr::V6(address) => {
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
    };
    (storage, length as socklen_t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_from_c() {
        for text in ["10.0.0.1:7471", "[fd00::1]:7471", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, length) = to_c(address);
            assert_eq!(length, if address.is_ipv4() { 16 } else { 28 });
            // SAFETY: what was just made.
            let found = unsafe { from_c((&raw const storage).cast()) };
            assert_eq!(found, Ok(Some(address)));
        }
    }

    #[test]
    fn other_families_are_refused() {
        // SAFETY: numbers may be zero.
        let mut storage: sockaddr_storage = unsafe { zeroed() };
        storage.ss_family = libc::AF_UNIX as u16;
        // SAFETY: an address of any family.
        let found = unsafe { from_c((&raw const storage).cast()) };
        assert_eq!(found, Err(Errno(libc::EAFNOSUPPORT)));
        // SAFETY: NULL is no address.
        assert_eq!(unsafe { from_c(std::ptr::null()) }, Ok(None));
    }
}
