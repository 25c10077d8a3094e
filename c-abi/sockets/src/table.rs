//! Sockets of the program that have an rsocket besides.

// UNSAFETY: calls of the C library on descriptors.
#![expect(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use libc::pollfd;

use crate::cancel::{Off, holding};
use crate::rdma;

/// Descriptors from here on are the system's alone.
const MOST: usize = 1 << 16;

/// The companion of a program's socket.
#[derive(Debug)]
pub(crate) struct Companion {
    pub(crate) rsocket: c_int,
    /// `AF_INET` or `AF_INET6`, and `SOCK_STREAM` or `SOCK_DGRAM`.
    pub(crate) domain: c_int,
    pub(crate) kind: c_int,
    /// The socket is on the system's network as well.
    is_both: AtomicBool,
    /// The socket was connected without being bound first.
    unbound: AtomicBool,
    /// The file behind the descriptor. Another one is there when the descriptor was closed where nothing is interposed.
    file: Option<(u64, u64)>,
}

impl Companion {
    pub(crate) fn new(fd: c_int, rsocket: c_int, (domain, kind): (c_int, c_int)) -> Self {
        Self {
            rsocket,
            domain,
            kind,
            is_both: AtomicBool::new(false),
            unbound: AtomicBool::new(false),
            file: file(fd),
        }
    }

    pub(crate) fn is_both(&self) -> bool {
        self.is_both.load(Ordering::Relaxed)
    }

    /// The socket was connected as it was made.
    pub(crate) fn set_unbound(&self) {
        self.unbound.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the socket has its address from a connection that there is not, or no longer: it can be bound.
    pub(crate) fn has_lost_address(&self) -> bool {
        let mut entry = pollfd {
            fd: self.rsocket,
            events: 0,
            revents: 0,
        };
        // SAFETY: an entry, which can be written.
        self.unbound.load(Ordering::Relaxed)
            && unsafe { rdma::rpoll(&raw mut entry, 1, 0) } > 0
            && entry.revents & libc::POLLHUP != 0
    }

    pub(crate) fn set_both(&self, is_both: bool) {
        self.is_both.store(is_both, Ordering::Relaxed);
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let _off = Off::new();
        // SAFETY: takes no pointers; no other entry has the number.
        unsafe { rdma::rclose(self.rsocket) };
    }
}

/// Device and number of the file behind a descriptor.
fn file(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: numbers, which may be zero.
    let mut found: libc::stat = unsafe { zeroed() };
    // SAFETY: the structure can be written.
    match unsafe { libc::fstat(fd, &mut found) } {
        0 => Some((found.st_dev, found.st_ino)),
        _ => None,
    }
}

/// The descriptors in the table, for a quick look.
static IS_IN: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];
static TABLE: RwLock<BTreeMap<c_int, Arc<Companion>>> = RwLock::new(BTreeMap::new());

fn flag(fd: c_int) -> Option<&'static AtomicBool> {
    IS_IN.get(usize::try_from(fd).ok()?)
}

/// Returns `true` if a descriptor may have a companion.
pub(crate) fn may_have(fd: c_int) -> bool {
    flag(fd).is_some_and(|flag| flag.load(Ordering::Acquire)) && !rdma::is_inside()
}

/// The companion of a descriptor. There is none for calls of our own library.
pub(crate) fn find(fd: c_int) -> Option<Arc<Companion>> {
    if !may_have(fd) {
        return None;
    }
    let found = {
        let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&fd).cloned()
    }?;
    if found.file == file(fd) {
        return Some(found);
    }
    remove(fd);
    None
}

/// Returns true if a descriptor has an rsocket besides.
pub(crate) fn has(fd: c_int) -> bool {
    find(fd).is_some()
}

/// Does something with what a descriptor has besides; `None` if it has nothing. The thread may be cancelled in `work`, in which
/// nothing is to be dropped.
pub(crate) fn with<R: Copy>(fd: c_int, work: impl FnOnce(&Companion) -> R) -> Option<R> {
    let found = find(fd)?;
    Some(holding(found, |companion| work(companion)))
}

/// A descriptor has something besides from now on; `false` if there is no room.
pub(crate) fn insert(fd: c_int, companion: Arc<Companion>) -> bool {
    let Some(flag) = flag(fd) else {
        return false;
    };
    let before = {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        flag.store(true, Ordering::Release);
        table.insert(fd, companion)
    };
    // Without the lock: closing may take long.
    drop(before);
    true
}

/// A descriptor has nothing besides any more.
pub(crate) fn remove(fd: c_int) -> Option<Arc<Companion>> {
    let flag = flag(fd)?;
    if !flag.load(Ordering::Acquire) {
        return None;
    }
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    flag.store(false, Ordering::Release);
    table.remove(&fd)
}

/// The new descriptor of a file has what the old one has.
pub(crate) fn copy(from: c_int, to: c_int) {
    if from == to || to < 0 {
        return;
    }
    drop(remove(to));
    if let Some(companion) = find(from) {
        insert(to, companion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    fn companion(fd: c_int) -> Arc<Companion> {
        Arc::new(Companion::new(fd, -1, (libc::AF_INET, libc::SOCK_STREAM)))
    }

    #[test]
    fn a_descriptor_that_was_closed_elsewhere_has_nothing() {
        let own = std::env::current_exe().unwrap();
        let fd = File::open(&own).unwrap().into_raw_fd();
        assert!(find(fd).is_none());
        assert!(insert(fd, companion(fd)));
        assert!(find(fd).is_some());
        // Another file gets the number.
        let other = File::open("/").unwrap();
        // SAFETY: the descriptor is this test's.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
        assert!(find(fd).is_none());
        assert!(!may_have(fd));
        // SAFETY: the same.
        unsafe { libc::close(fd) };
    }

    #[test]
    fn copies_of_a_descriptor_have_the_same() {
        let file = File::open("/").unwrap();
        let copied = file.try_clone().unwrap();
        let (fd, to) = (file.as_raw_fd(), copied.as_raw_fd());
        copy(fd, to);
        assert!(find(to).is_none());
        insert(fd, companion(fd));
        copy(fd, to);
        assert!(Arc::ptr_eq(&find(fd).unwrap(), &find(to).unwrap()));
        drop(remove(fd));
        assert!(find(fd).is_none() && find(to).is_some());
        drop(remove(to));
    }

    #[test]
    fn calls_of_our_own_library_are_the_systems() {
        let file = File::open("/").unwrap();
        let fd = file.as_raw_fd();
        insert(fd, companion(fd));
        assert!(rdma::inside(|| find(fd).is_none()));
        assert!(rdma::inside(|| rdma::outside(|| find(fd).is_some())));
        assert!(find(fd).is_some());
        drop(remove(fd));
    }

    #[test]
    fn numbers_out_of_range_have_nothing() {
        for fd in [-1, c_int::MIN, MOST as c_int, c_int::MAX] {
            assert!(find(fd).is_none());
            assert!(remove(fd).is_none());
            assert!(!insert(fd, companion(fd)));
        }
    }
}
