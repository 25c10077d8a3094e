//! Addresses, and whose they are.

// UNSAFETY: structures of C.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::rdma;

/// An address of a port, as `bareverbs_addresses` gives it.
#[repr(C)]
struct Answer {
    name: [c_char; 16],
    address: sockaddr_storage,
    mask: sockaddr_storage,
}

/// A network that a port is in: the port's address, and the bits that are the network's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) ip: IpAddr,
    pub(crate) mask: IpAddr,
}

/// The owner of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// All addresses.
    Any,
    /// A port of ours has it.
    Own,
    /// It is in the network of a port of ours.
    Near,
    System,
}

/// An address of C, if it is one of IP.
///
/// # Safety
/// `length` bytes at `addr` can be read.
pub(crate) unsafe fn read(addr: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if addr.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller's promise; the family is in front.
    let family = unsafe { addr.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: the caller promises that `length` bytes at `addr` can be read.
            let address = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some((ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: the caller promises that `length` bytes at `addr` can be read.
            let address = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some((ip, u16::from_be(address.sin6_port)).into())
        }
        _ => None,
    }
}

/// All addresses, of a family.
pub(crate) fn any(domain: c_int, port: u16) -> (sockaddr_storage, socklen_t) {
    // SAFETY: all-zero is a value of it.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    storage.ss_family = domain as libc::sa_family_t;
    // The port lies behind the family in both.
    let at = (&raw mut storage).cast::<u16>();
    // SAFETY: within the storage.
    unsafe { at.add(1).write(port.to_be()) };
    let length = match domain {
        libc::AF_INET => size_of::<sockaddr_in>(),
        _ => size_of::<sockaddr_in6>(),
    };
    (storage, length as socklen_t)
}

/// The networks of our ports; none if our library is not there.
fn networks() -> &'static [Network] {
    static NETWORKS: OnceLock<Vec<Network>> = OnceLock::new();
    NETWORKS.get_or_init(|| {
        let mut all = Vec::new();
        for number in 0.. {
            // SAFETY: all-zero is a value of it.
            let mut answer: Answer = unsafe { zeroed() };
            let to = (&raw mut answer).cast::<c_void>();
            // SAFETY: it can be written.
            if unsafe { rdma::bareverbs_addresses(number, to) } != 1 {
                break;
            }
            let ip_of = |storage: &sockaddr_storage| {
                let length = size_of::<sockaddr_storage>() as socklen_t;
                // SAFETY: a whole address.
                unsafe { read((&raw const *storage).cast(), length) }.map(|address| address.ip())
            };
            if let (Some(ip), Some(mask)) = (ip_of(&answer.address), ip_of(&answer.mask)) {
                all.push(Network { ip, mask });
            }
        }
        all
    })
}

/// The owner of an address.
pub(crate) fn whose(ip: IpAddr) -> Whose {
    let ip = ip.to_canonical();
    if ip.is_unspecified() {
        return Whose::Any;
    }
    // Without loading a library for it.
    if ip.is_loopback() || ip.is_multicast() {
        return Whose::System;
    }
    // A router leads everywhere.
    let has_router = std::env::var_os("BAREVERBS_GATEWAY").is_some_and(|value| !value.is_empty());
    among(networks(), ip, has_router)
}

fn among(networks: &[Network], ip: IpAddr, has_router: bool) -> Whose {
    if networks.iter().any(|network| network.ip == ip) {
        Whose::Own
    } else if networks.iter().any(|network| network.has(ip)) || has_router && !networks.is_empty() {
        Whose::Near
    } else {
        Whose::System
    }
}

impl Network {
    fn has(&self, ip: IpAddr) -> bool {
        match (self.ip, self.mask, ip) {
            (IpAddr::V4(own), IpAddr::V4(mask), IpAddr::V4(ip)) => {
                (own.to_bits() ^ ip.to_bits()) & mask.to_bits() == 0
            }
            (IpAddr::V6(own), IpAddr::V6(mask), IpAddr::V6(ip)) => {
                (own.to_bits() ^ ip.to_bits()) & mask.to_bits() == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_addresses_are() {
        let network = |ip: &str, mask: &str| Network {
            ip: ip.parse().unwrap(),
            mask: mask.parse().unwrap(),
        };
        let networks = [
            network("10.0.0.1", "255.255.255.0"),
            network("fd00::1", "ffff:ffff:ffff:ffff::"),
        ];
        for (ip, expected) in [
            ("10.0.0.1", Whose::Own),
            ("10.0.0.2", Whose::Near),
            ("10.0.1.1", Whose::System),
            ("fd00::1", Whose::Own),
            ("fd00::99", Whose::Near),
            ("fd00:0:0:1::1", Whose::System),
        ] {
            assert_eq!(
                among(&networks, ip.parse().unwrap(), false),
                expected,
                "{ip}"
            );
        }
        let far = "192.0.2.1".parse().unwrap();
        assert_eq!(among(&networks, far, true), Whose::Near);
        assert_eq!(among(&[], far, true), Whose::System);
        assert_eq!(whose("0.0.0.0".parse().unwrap()), Whose::Any);
        assert_eq!(whose("::".parse().unwrap()), Whose::Any);
        assert_eq!(whose("127.0.0.1".parse().unwrap()), Whose::System);
        assert_eq!(whose("::ffff:127.0.0.1".parse().unwrap()), Whose::System);
    }

    #[test]
    fn all_addresses_of_a_family_and_back() {
        for (domain, expected) in [
            (libc::AF_INET, "0.0.0.0:7000"),
            (libc::AF_INET6, "[::]:7000"),
        ] {
            let (storage, length) = any(domain, 7000);
            // SAFETY: a whole address.
            let found = unsafe { read((&raw const storage).cast(), length) };
            assert_eq!(found, Some(expected.parse().unwrap()));
            // SAFETY: as many bytes can be read.
            let cut = unsafe { read((&raw const storage).cast(), length - 1) };
            assert_eq!(cut, None);
        }
    }
}
