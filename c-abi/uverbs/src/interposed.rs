//! The C library's functions that a program reaches the kernel's verbs by. What is not for the device goes to the system
//! as it is.

// UNSAFETY: functions of C.
#![expect(unsafe_code)]
#![expect(
    unreachable_pub,
    reason = "C finds functions by their names, wherever they are"
)]

use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_ulong, c_void, off64_t, size_t, ssize_t};

use crate::abi::RDMA_VERBS_IOCTL;
use crate::{cm, server, trap};

/// Descriptors with a number below this can be the device's.
const MOST: usize = 4096;
/// For each descriptor that is a context of the device, the file with its doorbell pages; 0 for others.
static PAGES: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];
/// `enum mlx5_ib_mmap_cmd`: doorbell pages, however they are to be cached.
const DOORBELLS: [i64; 3] = [0, 2, 3];
const PAGE: i64 = 4096;
const NETLINK_RDMA: c_int = 20;
const NULL: u32 = 3;
const FULL: u32 = 7;
/// In place of a file with doorbell pages: the descriptor is the connection manager's.
const CM: c_int = -1;

fn pages(fd: c_int) -> Option<&'static AtomicI32> {
    PAGES.get(usize::try_from(fd).ok()?)
}

/// A descriptor is a context, whose doorbell pages this file has.
pub(crate) fn add(fd: c_int, file: OwnedFd) -> Result<(), c_int> {
    let pages = pages(fd).ok_or(libc::EMFILE)?;
    pages.store(file.into_raw_fd(), Ordering::Release);
    Ok(())
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Returns `true` if a descriptor is this memory device of the kernel's, by another name: the verbs device is `/dev/null`, the
/// connection manager `/dev/full`.
fn is_device(fd: c_int, minor: u32) -> bool {
    // SAFETY: numbers may be zero, and the structure can be written.
    let found = unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut found) == 0).then_some(found)
    };
    found.is_some_and(|found| {
        found.st_mode & libc::S_IFMT == libc::S_IFCHR && found.st_rdev == libc::makedev(1, minor)
    })
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request & 0xffff_ffff == RDMA_VERBS_IOCTL && is_device(fd, NULL) {
        return match server::call(fd, argument) {
            0 => 0,
            errno => fail(errno),
        };
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    let (mut fd, mut offset) = (fd, offset);
    let file = pages(fd).map_or(0, |file| file.load(Ordering::Acquire));
    if file > 0 {
        let page = offset / PAGE;
        if !DOORBELLS.contains(&(page >> 8 & 0xff)) {
            fail(libc::EINVAL);
            return libc::MAP_FAILED;
        }
        (fd, offset) = (file, (page & 0xff) * PAGE);
    }
    // SAFETY: the caller's promise.
    let place = unsafe {
        libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) as *mut c_void
    };
    if file > 0 && place != libc::MAP_FAILED {
        trap::mapped(place as usize);
    }
    place
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    // Before another thread can get this address.
    trap::unmapped(address as usize, len);
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let file = pages(fd).map_or(0, |file| file.swap(0, Ordering::AcqRel));
    if file != 0 {
        server::closed(fd, file == CM);
    }
    if file > 0 {
        // SAFETY: the context was the only user of it.
        unsafe { libc::syscall(libc::SYS_close, file) };
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        // The kernel's devices are others; libibverbs then reads the files.
        return fail(libc::EPROTONOSUPPORT);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    if signal == libc::SIGSEGV && !action.is_null() {
        trap::end();
    }
    // SAFETY: the caller's promise.
    unsafe { trap::real_sigaction(signal, action, before) }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
    let file = pages(fd).map(|file| file.load(Ordering::Acquire));
    // SAFETY: the caller's promise.
    let command = unsafe { cm::Written::new(data, len) };
    let ours = match file {
        Some(CM) => true,
        // The first command says that it is the connection manager's file.
        Some(0) => len >= 8 && command.is_command() && is_device(fd, FULL) && open_cm(fd),
        _ => false,
    };
    if !ours {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_write, fd, data, len) as ssize_t };
    }
    loop {
        let errno = match server::written(fd, data, len) {
            libc::EAGAIN => match cm::wait(fd) {
                Ok(()) => continue,
                Err(errno) => errno,
            },
            errno => errno,
        };
        return match errno {
            0 => len as ssize_t,
            errno => fail(errno) as ssize_t,
        };
    }
}

fn open_cm(fd: c_int) -> bool {
    let Some(pages) = pages(fd) else {
        return false;
    };
    let opened = server::opened_cm(fd) == 0;
    if opened {
        pages.store(CM, Ordering::Release);
    }
    opened
}
