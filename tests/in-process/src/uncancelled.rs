//! Work in which threads are not ended by `pthread_cancel`. A driver's thread that executes its function may be a C program's own,
//! and what wakes another process is a call in which the C library would end it, with locks of the world.

// UNSAFETY: a function of the C library that the crate for it does not have.
#![expect(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

fn set(state: c_int) -> c_int {
    let mut before = DISABLE;
    // SAFETY: the number can be written.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// The state of the calling thread before.
struct Before(c_int);

impl Drop for Before {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// Does something in which the calling thread is not cancelled.
pub(crate) fn uncancelled<R>(work: impl FnOnce() -> R) -> R {
    let _before = Before(set(DISABLE));
    work()
}
