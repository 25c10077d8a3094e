//! The C library's functions that a program reaches the kernel's verbs by. What is not for the device goes to the system
//! as it is.

// UNSAFETY: functions of C.
#![expect(unsafe_code)]
#![expect(
    unreachable_pub,
    reason = "C finds functions by their names, wherever they are"
)]

use std::ffi::{CStr, c_char, c_uint};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use libc::{
    c_int, c_ulong, c_void, iovec, msghdr, off64_t, sighandler_t, size_t, sockaddr, socklen_t,
    ssize_t,
};

use crate::abi::RDMA_VERBS_IOCTL;
use crate::doorbell_pages::{self, MOST, pages};
use crate::real::{self, fail};
use crate::{clock, cm, dm, netdev, netlink, thread, trap};

/// `enum mlx5_ib_mmap_cmd`: doorbell pages, however they are to be cached.
const DOORBELLS: [i64; 4] = [0, 2, 3, 6];
/// `MLX5_IB_MMAP_CLOCK_INFO`.
const CLOCK_INFO: i64 = 7;
/// `MLX5_IB_MMAP_DEVICE_MEM`.
const DEVICE_MEMORY: i64 = 8;
const PAGE: i64 = 4096;
const NETLINK_RDMA: c_int = 20;
/// The memory devices of the kernel's that the verbs device and the connection manager are by other names.
pub(crate) const NULL: u32 = 3;
pub(crate) const FULL: u32 = 7;
/// In place of a file with doorbell pages: the descriptor is the connection manager's.
const CM: c_int = -1;
/// Lengths that a command of the connection manager can have.
const COMMANDS: RangeInclusive<usize> = 8..=1024;

fn stat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: numbers may be zero, and the structure can be written.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut found) == 0).then_some(found)
    }
}

/// Returns `true` if a descriptor is this memory device of the kernel's.
fn is_device(fd: c_int, minor: u32) -> bool {
    stat(fd).is_some_and(|found| {
        found.st_mode & libc::S_IFMT == libc::S_IFCHR && found.st_rdev == libc::makedev(1, minor)
    })
}

/// Returns `true` if a descriptor can be a counter (eventfd), which is a file without a type.
fn is_counter(fd: c_int) -> bool {
    stat(fd).is_some_and(|found| found.st_mode & libc::S_IFMT == 0)
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request & 0xffff_ffff == RDMA_VERBS_IOCTL && is_device(fd, NULL) {
        return match thread::call(fd, argument) {
            0 => 0,
            errno => fail(errno),
        };
    }
    // SAFETY: the caller's promise.
    match unsafe { netdev::answer(request, argument) } {
        Some(Ok(())) => 0,
        Some(Err(errno)) => fail(errno),
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int },
    }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    // SAFETY: the caller's promise: it is text.
    let own = netdev::index(unsafe { CStr::from_ptr(name) });
    // SAFETY: the caller's promise.
    own.unwrap_or_else(|| unsafe { real::if_nametoindex(name) })
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn if_indextoname(index: c_uint, to: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's promise: there is room for a name.
    match unsafe { netdev::put_name(index, to) } {
        true => to,
        // SAFETY: the caller's promise.
        false => unsafe { real::if_indextoname(index, to) },
    }
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
    let ours = file > 0 && is_device(fd, NULL);
    if ours {
        let page = offset / PAGE;
        let other = match page >> 8 & 0xff {
            CLOCK_INFO => Some(clock::file(page & 0xff, len, protection).map(|file| (file, 0))),
            // The index has 8 bits more above the command.
            DEVICE_MEMORY => Some(dm::file(fd, page & 0xff | page >> 16 << 8, len)),
            _ => None,
        };
        match other {
            // SAFETY: the caller's promise.
            Some(Ok((file, at))) => unsafe {
                return map(address, len, protection, flags, file, at);
            },
            Some(Err(errno)) => {
                fail(errno);
                return libc::MAP_FAILED;
            }
            None => {}
        }
        if !DOORBELLS.contains(&(page >> 8 & 0xff)) {
            fail(libc::EINVAL);
            return libc::MAP_FAILED;
        }
        (fd, offset) = (file, doorbell_pages::place(fd, page & 0xff));
    }
    // SAFETY: the caller's promise.
    let place = unsafe { map(address, len, protection, flags, fd, offset) };
    if ours && place != libc::MAP_FAILED {
        trap::mapped(place as usize, len);
    }
    place
}

/// `mmap` of the kernel.
///
/// # Safety
/// As that of the C library.
unsafe fn map(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) as *mut c_void
    }
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

/// A descriptor ends, or has become another file's: the thread drops what it had.
fn ended(fd: c_int) {
    let Some(pages) = pages(fd).filter(|pages| pages.load(Ordering::Acquire) != 0) else {
        return;
    };
    // A child may have this memory in common with its parent (vfork).
    if !thread::is_asked_here() {
        return;
    }
    let file = pages.swap(0, Ordering::AcqRel);
    if file != 0 {
        thread::closed(fd, file == CM);
    }
    if file > 0 {
        // SAFETY: the context was the only user of it.
        unsafe { libc::syscall(libc::SYS_close, file) };
    }
}

/// All descriptors from one number to another end.
fn ended_from(first: usize, last: usize) {
    for fd in first..last.saturating_add(1).min(MOST) {
        ended(fd as c_int);
    }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    ended(fd);
    // SAFETY: the caller's promise.
    unsafe { real::close(fd) }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        ended_from(first as usize, last as usize);
    }
    // SAFETY: the caller's promise.
    unsafe { real::close_range(first, last, flags) }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    ended_from(first.max(0) as usize, MOST);
    // SAFETY: the caller's promise.
    unsafe { real::closefrom(first) };
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let copy = unsafe { libc::syscall(libc::SYS_dup, fd) as c_int };
    let file = pages(fd).map_or(0, |file| file.load(Ordering::Acquire));
    if copy >= 0 && file > 0 && is_device(fd, NULL) && thread::is_asked_here() {
        let copied = doorbell_pages::copy(fd, copy).err().unwrap_or(0);
        if copied != 0 || thread::duplicated(fd, copy) != 0 {
            log::warn!("the copy {copy} of descriptor {fd} is not the device's");
        }
    }
    copy
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { real::dup2(from, to) };
    if done >= 0 && from != to {
        ended(to);
    }
    done
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { real::dup3(from, to, flags) };
    if done >= 0 {
        ended(to);
    }
    done
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return netlink::open(kind);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    if netlink::is_socket(fd) {
        // SAFETY: the caller's promise.
        if let Some(sent) = unsafe { netlink::send(fd, message, flags) } {
            return sent;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { real::sendmsg(fd, message, flags) }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if netlink::is_socket(fd) {
        let mut part = iovec {
            iov_base: data.cast_mut(),
            iov_len: len,
        };
        // SAFETY: numbers may be zero, pointers NULL.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_name, message.msg_namelen) = (to.cast_mut().cast(), to_len);
        // SAFETY: the caller's promise.
        if let Some(sent) = unsafe { netlink::send(fd, &raw const message, flags) } {
            return sent;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { real::sendto(fd, data, len, flags, to, to_len) }
}

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { sendto(fd, data, len, flags, std::ptr::null(), 0) }
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
    unsafe { real::sigaction(signal, action, before) }
}

/// Functions that set a handler as `signal` does.
macro_rules! handlers {
    ($($name:ident)*) => { $(
        /// # Safety
        /// As that of the C library.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            if signal == libc::SIGSEGV {
                trap::end();
            }
            // SAFETY: the caller's promise.
            unsafe { real::$name(signal, handler) }
        }
    )* };
}

handlers! { signal ssignal bsd_signal sysv_signal __sysv_signal sigset }

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
    if !is_command(fd, data, len) {
        // SAFETY: the caller's promise.
        return unsafe { real::write(fd, data, len) };
    }
    loop {
        let errno = match thread::written(fd, data, len) {
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

/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    what: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // `/dev/full` cannot be watched: it becomes the connection manager's file before the first command.
    let is_new = || pages(fd).is_some_and(|file| file.load(Ordering::Acquire) == 0);
    if what == libc::EPOLL_CTL_ADD && is_new() && is_device(fd, FULL) {
        open_cm(fd);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, what, fd, event) as c_int }
}

/// Returns `true` if what is written is a command of the connection manager's.
fn is_command(fd: c_int, data: *const c_void, len: size_t) -> bool {
    if !COMMANDS.contains(&len) {
        return false;
    }
    match pages(fd).map(|file| file.load(Ordering::Acquire)) {
        Some(CM) => is_counter(fd),
        // The first command says that it is the connection manager's file.
        Some(0) if is_device(fd, FULL) => cm::Written::new(data, len).is_command() && open_cm(fd),
        _ => false,
    }
}

fn open_cm(fd: c_int) -> bool {
    let Some(pages) = pages(fd) else {
        return false;
    };
    let opened = thread::opened_cm(fd) == 0;
    if opened {
        pages.store(CM, Ordering::Release);
    }
    opened
}
