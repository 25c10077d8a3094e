//! The C library's functions behind those of this library. Calls that wait are left by unwinding when the thread is cancelled.

// UNSAFETY: functions of C.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char, c_uint};
use std::mem::transmute;

use libc::{c_int, c_void, msghdr, sighandler_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::next::Next;

/// Sets the error number of the calling thread; -1, as the C library's functions return it.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $returns:ty)?, $failed:expr;)*) => { $(
        /// # Safety
        /// As that of the C library.
        pub(crate) unsafe fn $name($($argument: $type),*) $(-> $returns)? {
            static NEXT: Next = {
                const NAME: &str = concat!(stringify!($name), "\0");
                match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => Next::new(name),
                    Err(_) => panic!("a name has no zero"),
                }
            };
            type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $returns)?;
            // SAFETY: the C library's function has this type; NULL is `None`.
            let next = unsafe { transmute::<*mut c_void, Option<Function>>(NEXT.address()) };
            match next {
                // SAFETY: the caller's promise.
                Some(next) => unsafe { next($($argument),*) },
                None => {
                    fail(libc::ENOSYS);
                    $failed
                }
            }
        }
    )* };
}

real! {
    write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t, -1;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, -1;
    sendto(fd: c_int, data: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t, -1;
    close(fd: c_int) -> c_int, -1;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, -1;
    closefrom(first: c_int), ();
    dup2(from: c_int, to: c_int) -> c_int, -1;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int, -1;
    sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int, -1;
    signal(signal: c_int, handler: sighandler_t) -> sighandler_t, libc::SIG_ERR;
    ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t, libc::SIG_ERR;
    bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, libc::SIG_ERR;
    sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, libc::SIG_ERR;
    __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, libc::SIG_ERR;
    if_nametoindex(name: *const c_char) -> c_uint, 0;
    if_indextoname(index: c_uint, to: *mut c_char) -> *mut c_char, std::ptr::null_mut();
    sigset(signal: c_int, handler: sighandler_t) -> sighandler_t, libc::SIG_ERR;
}
