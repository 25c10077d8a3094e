//! Our librdmacm's functions, found when a socket first needs them.

// UNSAFETY: calls of functions that the dynamic linker finds.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};

use crate::cancel;
use crate::real::set_errno;

/// The library; NULL if there is none.
fn library() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let load = || {
        // SAFETY: C's text. The library is the one that RDMA programs of this environment get.
        unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) as usize }
    };
    *LIBRARY.get_or_init(load) as *mut c_void
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if the calling thread is in a function of the library, whose own calls are the system's.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Does something in the library. The thread may be cancelled meanwhile: nothing is to be dropped in `work`.
pub(crate) fn inside<R>(work: impl FnOnce() -> R) -> R {
    set_inside(true, work)
}

/// Does something of the system's that waits. A thread that is cancelled in it is not in the library any more, but in its own
/// handlers.
pub(crate) fn outside<R>(work: impl FnOnce() -> R) -> R {
    set_inside(false, work)
}

fn set_inside<R>(is_inside: bool, work: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(is_inside);
    let result = work();
    INSIDE.set(before);
    result
}

struct Function {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Function {
    fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        let library = library();
        if library.is_null() {
            return library;
        }
        // SAFETY: a library that stays, and C's text.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! rdma {
    ($before:block $($name:ident($($argument:ident: $type:ty),*) -> $returns:ty;)*) => {
        $(
            /// The library's; -1 with ENOSYS if it has none.
            ///
            /// # Safety
            /// Its own contract.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $returns {
                static FUNCTION: Function = Function {
                    name: {
                        const NAME: &str = concat!(stringify!($name), "\0");
                        match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name has no zero"),
                        }
                    },
                    found: AtomicPtr::new(ptr::null_mut()),
                };
                $before
                inside(|| {
                    type Type = unsafe extern "C-unwind" fn($($type),*) -> $returns;
                    // SAFETY: the library's function has this type; NULL is `None`.
                    match unsafe { transmute::<*mut c_void, Option<Type>>(FUNCTION.address()) } {
                        // SAFETY: the caller promises what librdmacm's function asks of its arguments.
                        Some(function) => unsafe { function($($argument),*) },
                        None => {
                            set_errno(libc::ENOSYS);
                            -1
                        }
                    }
                })
            }
        )*
    };
}

rdma! {
    {}
    rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    rbind(socket: c_int, addr: *const sockaddr, length: socklen_t) -> c_int;
    rlisten(socket: c_int, backlog: c_int) -> c_int;
    rshutdown(socket: c_int, how: c_int) -> c_int;
    rclose(socket: c_int) -> c_int;
    rgetpeername(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
    rgetsockname(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
    rgetsockopt(socket: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    rsetsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    rfcntl(socket: c_int, command: c_int, argument: c_long) -> c_int;
    bareverbs_addresses(number: c_int, answer: *mut c_void) -> c_int;
}

// Those that wait, where threads that were cancelled end, as in the C library.
rdma! {
    { cancel::point(); }
    raccept(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
    rconnect(socket: c_int, addr: *const sockaddr, length: socklen_t) -> c_int;
    rrecvfrom(socket: c_int, to: *mut c_void, length: size_t, flags: c_int, addr: *mut sockaddr,
        addr_length: *mut socklen_t) -> ssize_t;
    rrecvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    rsendto(socket: c_int, from: *const c_void, length: size_t, flags: c_int, addr: *const sockaddr,
        addr_length: socklen_t) -> ssize_t;
    rsendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    rpoll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
}
