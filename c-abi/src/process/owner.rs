//! The process that opened the devices, and its threads: a child has none of them, and signals do not reach them.

// UNSAFETY: signal masks of the C library.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bareverbs_node::last_messages::End;

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

/// The time that is waited for what another process has: one that is about to end, or that hangs up for one that has ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens something, and tries again while another process has it.
pub(crate) fn when_free<T, E>(
    is_in_use: impl Fn(&E) -> bool,
    open: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    bareverbs_node::last_messages::when_free(PATIENCE, is_in_use, open)
}

/// This process waits for no process that hangs up for another one.
static WAITS_NO_MORE: AtomicBool = AtomicBool::new(false);

/// This process hangs up for another one, and waits for no other that does.
pub(crate) fn hang_up() {
    claim();
    WAITS_NO_MORE.store(true, Ordering::Relaxed);
}

/// Waits for all these ends, and from then on for none: a process that may hang up for this one is to hold their names.
pub(crate) fn wait_for_all(ends: &[End]) {
    ends.iter().for_each(End::wait);
    WAITS_NO_MORE.store(true, Ordering::Relaxed);
}

/// Waits until no process may hang up for another one that had the same end.
pub(crate) fn wait_for_end(end: &End) {
    if !WAITS_NO_MORE.load(Ordering::Relaxed) {
        end.wait();
    }
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
