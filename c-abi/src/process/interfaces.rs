//! The ports' addresses, for the preload library that shows them among those of the system's network interfaces.

// UNSAFETY: writes a structure of C.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint};
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::sockaddr_storage;

use crate::process::device;
use crate::process::failure::guarded;
use crate::rdmacm;

/// An address of a port, as `bareverbs-paths` has it.
#[repr(C)]
pub struct Answer {
    name: [c_char; 16],
    address: sockaddr_storage,
    mask: sockaddr_storage,
}

/// The address of a number from 0, over all ports: 1 if there is one. Not a function of libibverbs.
///
/// # Safety
/// `answer` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bareverbs_addresses(number: c_uint, answer: *mut Answer) -> c_int {
    let found = guarded(|| {
        let all = device::devices()?
            .iter()
            .enumerate()
            .flat_map(|(index, device)| device.addresses().iter().map(move |of| (index, of)));
        Ok(all.into_iter().nth(number as usize))
    });
    let Ok(Some((index, address))) = found else {
        return 0;
    };
    // SAFETY: all-zero is a value of it.
    let mut filled: Answer = unsafe { zeroed() };
    let name = format!("roce{index}");
    for (to, from) in filled.name.iter_mut().take(15).zip(name.bytes()) {
        *to = from as c_char;
    }
    let storage = |ip| rdmacm::to_c(SocketAddr::new(ip, 0)).0;
    filled.address = storage(address.ip);
    filled.mask = storage(mask(address.ip, address.prefix_len()));
    // SAFETY: the caller promises that `answer` can be written.
    unsafe { answer.write(filled) };
    1
}

/// The bits of an address that are those of its network.
fn mask(ip: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match ip {
        IpAddr::V4(_) => Ipv4Addr::from_bits(!u32::MAX.checked_shr(prefix).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(!u128::MAX.checked_shr(prefix).unwrap_or(0)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        for (ip, prefix, expected) in [
            ("10.0.0.1", 24, "255.255.255.0"),
            ("10.0.0.1", 0, "0.0.0.0"),
            ("10.0.0.1", 32, "255.255.255.255"),
            ("fd00::1", 64, "ffff:ffff:ffff:ffff::"),
        ] {
            let found = mask(ip.parse().unwrap(), prefix);
            assert_eq!(found, expected.parse::<IpAddr>().unwrap());
        }
    }
}
