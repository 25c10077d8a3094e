//! The ports' addresses among those of the system's network interfaces.

// UNSAFETY: lists of C's structures, and calls of functions that the dynamic linker finds.
#![expect(unsafe_code)]
#![expect(
    unreachable_pub,
    reason = "C finds functions by their names, wherever they are"
)]

use std::ffi::{c_char, c_int, c_uint};
use std::mem::{transmute, zeroed};
use std::ptr;

use libc::{ifaddrs, sockaddr_storage};

use crate::next::Next;

static GETIFADDRS: Next = Next::new(c"getifaddrs");
static FREEIFADDRS: Next = Next::new(c"freeifaddrs");

/// The target of our entries' `ifa_data`: it distinguishes them.
static MARK: u8 = 0;

/// An address of a port, as the library gives it for each number from 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Answer {
    /// The interface's name, C's text.
    pub name: [c_char; 16],
    /// The address.
    pub address: sockaddr_storage,
    /// The bits of it that are those of the network.
    pub mask: sockaddr_storage,
}

/// The library's function: 1 if there is an address of this number.
type Addresses = unsafe extern "C" fn(number: c_uint, answer: *mut Answer) -> c_int;

/// An entry with what it points to, in one piece of C's memory.
#[repr(C)]
struct Entry {
    c: ifaddrs,
    answer: Answer,
}

/// The library's function, if the process has loaded the library.
fn addresses() -> Option<Addresses> {
    // SAFETY: the names are C's text. The library is not loaded by this, and it stays when it was.
    let function = unsafe {
        let library = libc::dlopen(
            c"libibverbs.so.1".as_ptr(),
            libc::RTLD_NOLOAD | libc::RTLD_LAZY,
        );
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, c"bareverbs_addresses".as_ptr())
    };
    // SAFETY: only our library has a function of this name, of this type; NULL is `None`.
    unsafe { transmute::<*mut libc::c_void, Option<Addresses>>(function) }
}

/// Lists the interfaces' addresses: `getifaddrs`, with those of the ports at the end.
///
/// # Safety
/// `list` can be written.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    // SAFETY: the C library's function has this type; NULL is `None`.
    let next = unsafe {
        transmute::<*mut libc::c_void, Option<unsafe extern "C" fn(*mut *mut ifaddrs) -> c_int>>(
            GETIFADDRS.address(),
        )
    };
    let Some(next) = next else {
        return -1;
    };
    // SAFETY: the caller promises that `list` can be written.
    let result = unsafe { next(list) };
    if result == 0
        && let Some(addresses) = addresses()
    {
        // SAFETY: the list is whole, and the function is the library's.
        unsafe { append(&mut *list, addresses) };
    }
    result
}

/// Appends the ports' addresses. Without memory for it they are left out.
///
/// # Safety
/// The list is one of the C library's.
unsafe fn append(list: &mut *mut ifaddrs, addresses: Addresses) {
    // SAFETY: entries of the list are there, and those that are made here are written before they are in it.
    unsafe {
        let mut end: *mut *mut ifaddrs = list;
        while !(*end).is_null() {
            end = &raw mut (**end).ifa_next;
        }
        for number in 0.. {
            let mut answer: Answer = zeroed();
            if addresses(number, &mut answer) != 1 {
                break;
            }
            let entry: *mut Entry = libc::malloc(size_of::<Entry>()).cast();
            if entry.is_null() {
                break;
            }
            entry.write(Entry {
                c: zeroed(),
                answer,
            });
            let flags =
                libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_BROADCAST | libc::IFF_MULTICAST;
            let answer = &raw mut (*entry).answer;
            (*entry).c.ifa_name = (&raw mut (*answer).name).cast();
            (*entry).c.ifa_flags = flags as c_uint;
            (*entry).c.ifa_addr = (&raw mut (*answer).address).cast();
            (*entry).c.ifa_netmask = (&raw mut (*answer).mask).cast();
            (*entry).c.ifa_data = ptr::from_ref(&MARK).cast_mut().cast();
            *end = entry.cast();
            end = &raw mut (*entry).c.ifa_next;
        }
    }
}

/// Frees such a list: `freeifaddrs`.
///
/// # Safety
/// It is from [`getifaddrs`], and not used again.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn freeifaddrs(mut list: *mut ifaddrs) {
    // SAFETY: the caller's promise. Ours are at the end; each is C's memory by itself.
    unsafe {
        let mut end: *mut *mut ifaddrs = &mut list;
        while !(*end).is_null() && (**end).ifa_data != ptr::from_ref(&MARK).cast_mut().cast() {
            end = &raw mut (**end).ifa_next;
        }
        let mut ours = *end;
        *end = ptr::null_mut();
        while !ours.is_null() {
            let next = (*ours).ifa_next;
            libc::free(ours.cast());
            ours = next;
        }
        // SAFETY: the C library's function has this type; NULL is `None`.
        let next = transmute::<*mut libc::c_void, Option<unsafe extern "C" fn(*mut ifaddrs)>>(
            FREEIFADDRS.address(),
        );
        if let (Some(next), false) = (next, list.is_null()) {
            next(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn two(number: c_uint, answer: *mut Answer) -> c_int {
        if number >= 2 {
            return 0;
        }
        // SAFETY: the caller's.
        unsafe { (*answer).address.ss_family = libc::AF_INET as u16 + number as u16 };
        1
    }

    fn families(mut list: *const ifaddrs) -> Vec<u16> {
        let mut families = Vec::new();
        // SAFETY: a list that is whole.
        while let Some(entry) = unsafe { list.as_ref() } {
            if !entry.ifa_addr.is_null() {
                // SAFETY: it has an address.
                families.push(unsafe { (*entry.ifa_addr).sa_family });
            }
            list = entry.ifa_next;
        }
        families
    }

    #[test]
    fn the_ports_addresses_come_last_and_all_is_freed() {
        // SAFETY: lists of the C library's, each freed once.
        unsafe {
            let mut list = ptr::null_mut();
            assert_eq!(getifaddrs(&mut list), 0);
            // No library is loaded here.
            let before = families(list);
            append(&mut list, two);
            let after = families(list);
            assert_eq!(after[..before.len()], before);
            assert_eq!(after[before.len()..], [2, 3]);
            freeifaddrs(list);
            let mut none = ptr::null_mut();
            append(&mut none, two);
            assert_eq!(families(none), [2, 3]);
            freeifaddrs(none);
            freeifaddrs(ptr::null_mut());
        }
    }
}
