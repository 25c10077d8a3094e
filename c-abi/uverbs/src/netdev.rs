//! The port's network interface, as programs ask the kernel about it: by its name, and by `ioctl` on any socket. The system does not
//! have it, and it takes no frames.

// UNSAFETY: requests are the program's memory.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char, c_uint};
use std::sync::OnceLock;

use libc::{c_int, c_ulong, c_void};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::attrs::Result;

/// Its name, which stands in the device's folder as well, and a number that the system gives to none.
pub(crate) const NAME: &CStr = c"roce0";
const INDEX: u32 = 0x7fff_fffe;
const MTU: u32 = 1500;
/// Speed, in Mb/s, as the device's folder has it.
const SPEED: u32 = 100_000;
/// `ARPHRD_ETHER`.
const ETHER: u16 = 1;
const FLAGS: c_int = libc::IFF_UP | libc::IFF_BROADCAST | libc::IFF_RUNNING | libc::IFF_MULTICAST;
/// `SIOCETHTOOL`, and the command that asks for the speed: `ETHTOOL_GSET`.
const SIOCETHTOOL: c_ulong = 0x8946;
const GSET: u32 = 1;

/// `struct ifreq`: a name, and what is asked or answered.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Request {
    name: [u8; 16],
    value: [u8; 24],
}

/// The beginning of `struct ethtool_cmd`.
#[repr(C)]
struct Speed {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    port: u8,
    rest: [u8; 12],
    speed_high: u16,
}

static MAC: OnceLock<[u8; 6]> = OnceLock::new();

/// The interface is there, with this address.
pub(crate) fn appear(mac: [u8; 6]) {
    // It never changes.
    let _ = MAC.set(mac);
}

/// The number of an interface with this name, if it is this one.
pub(crate) fn index(name: &CStr) -> Option<c_uint> {
    MAC.get().filter(|_| name == NAME).map(|_| INDEX)
}

/// Writes the name if this is its number.
///
/// # Safety
/// There is room for `IF_NAMESIZE` bytes.
pub(crate) unsafe fn put_name(index: c_uint, to: *mut c_char) -> bool {
    let is_this = index == INDEX && MAC.get().is_some();
    if is_this {
        let name = NAME.to_bytes_with_nul();
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), name.len()) };
    }
    is_this
}

/// Answers a request about the interface; `None` if it is about another one, or not known.
///
/// # Safety
/// `argument` is what the request has.
pub(crate) unsafe fn answer(request: c_ulong, argument: *mut c_void) -> Option<Result<()>> {
    if !(libc::SIOCGIFNAME..=SIOCETHTOOL).contains(&request) || argument.is_null() {
        return None;
    }
    let mac = MAC.get()?;
    // SAFETY: the caller's promise: requests of this range have such a structure, or a larger one that begins with a name.
    let name = unsafe { argument.cast::<[u8; 16]>().read_unaligned() };
    if request == libc::SIOCGIFNAME {
        // SAFETY: the caller's promise.
        let request = unsafe { &mut *argument.cast::<Request>() };
        let (index, _) = u32::read_from_prefix(&request.value).ok()?;
        // SAFETY: the name has so much room.
        return unsafe { put_name(index, request.name.as_mut_ptr().cast()) }.then_some(Ok(()));
    }
    if CStr::from_bytes_until_nul(&name) != Ok(NAME) {
        return None;
    }
    // SAFETY: the caller's promise.
    let value = &mut unsafe { &mut *argument.cast::<Request>() }.value;
    match request {
        libc::SIOCGIFINDEX => INDEX.write_to_prefix(value).ok()?,
        libc::SIOCGIFFLAGS => (FLAGS as u16).write_to_prefix(value).ok()?,
        libc::SIOCGIFMTU => MTU.write_to_prefix(value).ok()?,
        libc::SIOCGIFHWADDR => {
            value[..2].copy_from_slice(&ETHER.to_ne_bytes());
            value[2..8].copy_from_slice(mac);
        }
        // It is always up.
        libc::SIOCSIFFLAGS => {}
        libc::SIOCSIFMTU if u32::read_from_prefix(value).ok()?.0 == MTU => {}
        libc::SIOCSIFMTU => return Some(Err(libc::EINVAL)),
        SIOCETHTOOL => {
            let (at, _) = usize::read_from_prefix(value).ok()?;
            let at = at as *mut Speed;
            if at.is_null() {
                return Some(Err(libc::EFAULT));
            }
            // SAFETY: the caller's promise: a command begins with its number.
            if unsafe { at.cast::<u32>().read() } != GSET {
                return Some(Err(libc::EOPNOTSUPP));
            }
            // SAFETY: the caller's promise: this one has such a structure.
            let answer = unsafe { &mut *at };
            (answer.speed, answer.speed_high) = (SPEED as u16, (SPEED >> 16) as u16);
            answer.duplex = 1;
        }
        _ => return None,
    }
    Some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_answers_by_its_name_and_number() {
        let ask = |number: c_ulong, name: &[u8], value: &[u8]| {
            let mut request = Request {
                name: [0; 16],
                value: [0; 24],
            };
            request.name[..name.len()].copy_from_slice(name);
            request.value[..value.len()].copy_from_slice(value);
            // SAFETY: it is the structure of these requests.
            let answer = unsafe { answer(number, (&raw mut request).cast()) };
            answer.map(|done| done.map(|()| request))
        };
        let of = |number| ask(number, b"roce0", &[]);
        appear([2, 0, 0, 0, 0, 7]);
        let Some(Ok(found)) = of(libc::SIOCGIFHWADDR) else {
            panic!("no address");
        };
        assert_eq!(found.value[..8], [1, 0, 2, 0, 0, 0, 0, 7]);
        let Some(Ok(found)) = ask(libc::SIOCGIFNAME, b"", &INDEX.to_ne_bytes()) else {
            panic!("no name");
        };
        assert_eq!(found.name[..6], *b"roce0\0");
        let refused = ask(libc::SIOCSIFMTU, b"roce0", &9000_u32.to_ne_bytes());
        assert!(refused.is_some_and(|done| done.err() == Some(libc::EINVAL)));
        // Other interfaces, and requests that are not known, are the system's.
        let others = [
            ask(libc::SIOCGIFMTU, b"roce00", &[]),
            ask(libc::SIOCGIFNAME, b"", &1_u32.to_ne_bytes()),
            of(libc::SIOCGIFMETRIC),
        ];
        assert!(others.iter().all(Option::is_none));
    }
}
