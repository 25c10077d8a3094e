//! The process that opened the devices, and its threads: a child has none of them, and signals do not reach them.

// UNSAFETY: signal masks of the C library.
#![expect(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
/// The interval at which it is tried again.
const INTERVAL: Duration = Duration::from_millis(1);

/// Opens something, and tries again while another process has it.
pub(crate) fn when_free<T, E>(
    is_in_use: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let end = Instant::now() + PATIENCE;
    loop {
        match open() {
            Err(error) if is_in_use(&error) && Instant::now() < end => {
                thread::sleep(INTERVAL);
            }
            done => return done,
        }
    }
}

/// This process waits for no process that hangs up for another one.
static WAITS_NO_MORE: AtomicBool = AtomicBool::new(false);

/// This process hangs up for another one, and waits for no other that does.
pub(crate) fn hang_up() {
    claim();
    WAITS_NO_MORE.store(true, Ordering::Relaxed);
}

/// Waits for all these names, and from then on for none: a process that may hang up for this one is to hold them.
pub(crate) fn wait_for_all(names: &[String]) {
    for name in names {
        wait_for_name(name);
    }
    WAITS_NO_MORE.store(true, Ordering::Relaxed);
}

/// The name in the abstract namespace that a process holds as long as it may hang up for another one with the same end of a
/// network, or the same card.
pub(crate) fn name_of(end: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    end.hash(&mut hasher);
    format!("bareverbs-hang-up-{:x}", hasher.finish())
}

/// Waits until no process may hang up for another one that had the same end.
pub(crate) fn wait_for_end(end: &impl Hash) {
    if !WAITS_NO_MORE.load(Ordering::Relaxed) {
        wait_for_name(&name_of(end));
    }
}

fn wait_for_name(name: &str) {
    let is_in_use = |error: &io::Error| error.kind() == ErrorKind::AddrInUse;
    let held = SocketAddr::from_abstract_name(name)
        .and_then(|address| when_free(is_in_use, || UnixDatagram::bind_addr(&address)));
    if let Err(error) = held {
        log::debug!("another process may hang up: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_is_tried_again_only_while_another_process_is_in_the_way() {
        let mut left = vec![Ok("open"), Err("in use"), Err("in use")];
        let opened = when_free(
            |why| *why == "in use",
            || left.pop().expect("no more tries"),
        );
        assert_eq!(opened, Ok("open"));
        let mut tries = 0;
        let refused: std::result::Result<(), _> = when_free(
            |why| *why == "in use",
            || {
                tries += 1;
                Err("refused")
            },
        );
        assert_eq!((refused, tries), (Err("refused"), 1));
    }

    #[test]
    fn names_differ_by_end_and_can_be_bound() {
        let name = name_of(&("/tmp/a", 1));
        assert_eq!(name, name_of(&("/tmp/a", 1)));
        assert_ne!(name, name_of(&("/tmp/a", 2)));
        assert_ne!(name, name_of(&("/tmp/b", 1)));
        SocketAddr::from_abstract_name(name).expect("a name of this length");
    }
}
