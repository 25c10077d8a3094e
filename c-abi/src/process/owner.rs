//! The process that opened the devices, and its threads: a child has none of them, and signals do not reach them.

// UNSAFETY: signal masks of the C library.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that opened the devices.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// This process opens a device.
pub(crate) fn claim() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
}

/// Returns `true` if this process is a child of the one that opened the devices, which has none of its threads.
pub(crate) fn in_child() -> bool {
    OWNER.load(Ordering::Relaxed) != std::process::id()
}

/// No signal reaches threads that are made meanwhile: signals are for the program's own threads, whose calls they interrupt.
pub(crate) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are written before they are read; the second one is empty if it is not written.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
