//! Cancellation: threads that are ended by `pthread_cancel` in a call that waits.
//!
//! The C library ends such a thread by unwinding its stack, from within the function of its own in which the thread waits. That
//! may pass frames of Rust only where nothing is to be dropped, and nothing that catches panics. So
//!
//! * cancellation is switched off ([`Off`]) in all that does not wait;
//! * calls that wait do it in `read`, `poll` and the like, called from functions in which nothing is to be dropped, with
//!   `extern "C-unwind"` where C calls them;
//! * what has to be dropped after the wait is lent to the thread meanwhile ([`holding`]), which drops it if it is cancelled.

// UNSAFETY: functions of the C library, and boxes by their addresses.
#![expect(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use libc::{nfds_t, pollfd, size_t, ssize_t};

// The C library's, as what they are: functions that may unwind.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
    /// Waits as the C library's: `read`.
    pub(crate) fn read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t;
    /// Waits as the C library's: `poll`.
    pub(crate) fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

/// The calling thread cannot be cancelled for as long as this lives.
pub(crate) struct Off(c_int);

impl Off {
    #[inline]
    pub(crate) fn new() -> Self {
        let mut before = DISABLE;
        // SAFETY: the number can be written.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self(before)
    }
}

impl Drop for Off {
    #[inline]
    fn drop(&mut self) {
        let mut ignored = 0;
        // SAFETY: the number can be written. It is no point at which threads are cancelled.
        unsafe { pthread_setcancelstate(self.0, &mut ignored) };
    }
}

/// Ends the calling thread if it was cancelled. To be called where nothing is to be dropped.
#[inline]
pub(crate) fn point() {
    // SAFETY: takes nothing; it may unwind, and so may this.
    unsafe { pthread_testcancel() };
}

/// Something in a box: its address, and how it is dropped.
#[derive(Clone, Copy)]
struct Lent {
    address: *mut (),
    drop: unsafe fn(*mut ()),
}

/// The objects that a thread holds while its calls wait.
struct Held(RefCell<Vec<Lent>>);

impl Drop for Held {
    fn drop(&mut self) {
        // The thread was cancelled.
        for lent in self.0.take() {
            // SAFETY: made by `holding`, which does not return any more.
            unsafe { (lent.drop)(lent.address) };
        }
    }
}

thread_local! {
    static HELD: Held = const { Held(RefCell::new(Vec::new())) };
}

/// # Safety
/// It is a box of a `T` that is not used again.
unsafe fn drop_box<T>(held: *mut ()) {
    // SAFETY: the caller promises that it is a box of a `T` that is not used again.
    drop(unsafe { Box::from_raw(held.cast::<T>()) });
}

fn hold<T: 'static>(it: T) -> *mut T {
    let held = Box::into_raw(Box::new(it));
    // At the end of a thread that has nothing to hold with, it is not cancelled any more.
    let lent = Lent {
        address: held.cast(),
        drop: drop_box::<T>,
    };
    let _ = HELD.try_with(|all| all.0.borrow_mut().push(lent));
    held
}

/// # Safety
/// It is from [`hold`], and is not used again.
unsafe fn release<T>(held: *mut T) {
    let _ = HELD.try_with(|all| {
        let mut all = all.0.borrow_mut();
        // The last one, unless a signal's handler has left the calls that it came into.
        if let Some(at) = all.iter().rposition(|lent| lent.address == held.cast()) {
            all.truncate(at);
        }
    });
    // SAFETY: the caller promises that it is from [`hold`], and is not used again.
    unsafe { drop_box::<T>(held.cast()) };
}

/// Does something that may wait with something that is dropped afterwards, also if the thread is cancelled meanwhile. Nothing is
/// to be dropped in `work`, nor in what it returns.
pub(crate) fn holding<T: 'static, R: Copy>(it: T, work: impl FnOnce(&mut T) -> R) -> R {
    const { assert!(!std::mem::needs_drop::<R>()) };
    let held = hold(it);
    // SAFETY: it is there until it is released, and no other code uses it.
    let result = work(unsafe { &mut *held });
    // SAFETY: made above.
    unsafe { release(held) };
    result
}
