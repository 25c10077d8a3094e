//! The C library's functions that stand behind those here.

// UNSAFETY: calls of functions that the dynamic linker finds.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_long, c_uint, c_void};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

use crate::next::Next;

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// The calling thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) -> $returns:ty;)*) => {
        $(
            /// The C library's; -1 with ENOSYS if it has none.
            ///
            /// # Safety
            /// Its own contract.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $returns {
                static NEXT: Next = Next::new({
                    const NAME: &str = concat!(stringify!($name), "\0");
                    match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero"),
                    }
                });
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $returns;
                // SAFETY: the C library's function has this type; NULL is `None`. For the call: the caller's promise.
                match unsafe { std::mem::transmute::<*mut c_void, Option<Function>>(NEXT.address()) } {
                    // SAFETY: the caller promises what the C library's function asks of its arguments.
                    Some(next) => unsafe { next($($argument),*) },
                    None => {
                        set_errno(libc::ENOSYS);
                        -1
                    }
                }
            }
        )*
    };
}

// What is variadic in C takes its third argument in the register in which an ordinary one would come, on x86-64 and AArch64
// under Linux.
real! {
    bind(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, addr: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    close(fd: c_int) -> c_int;
    getpeername(fd: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getsockname(fd: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    recvfrom(fd: c_int, to: *mut c_void, length: size_t, flags: c_int, addr: *mut sockaddr, addr_length: *mut socklen_t)
        -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t;
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    sendto(fd: c_int, from: *const c_void, length: size_t, flags: c_int, addr: *const sockaddr, addr_length: socklen_t)
        -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t;
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, signals: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        signals: *const sigset_t) -> c_int;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, signals: *const sigset_t) -> c_int;
}

/// Ends the process as the C library does when memory is smaller than the data for it.
pub(crate) fn check(length: size_t, size: size_t) {
    if length > size {
        // SAFETY: takes no pointers.
        unsafe { libc::abort() };
    }
}
