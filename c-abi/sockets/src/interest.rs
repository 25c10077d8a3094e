//! The interest of epoll descriptors in sockets with rsockets. The kernel knows the rest.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_short};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Flags of `epoll_event` that are no events.
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

/// The interest in one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Events that the program asked for, in its own bits.
    pub(crate) events: u32,
    pub(crate) data: u64,
    /// It has reported once, and shall not again.
    spent: bool,
}

impl Interest {
    /// Gives the events in `poll`'s bits; `None` if nothing is to be reported.
    pub(crate) fn poll_events(&self) -> Option<c_short> {
        let mask = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
        (!self.spent).then_some(self.events as c_short & mask)
    }
}

/// By epoll descriptor, and then by socket.
#[derive(Debug, Default)]
pub(crate) struct Interests(BTreeMap<c_int, BTreeMap<c_int, Interest>>);

impl Interests {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds or changes one.
    pub(crate) fn set(&mut self, epoll: c_int, fd: c_int, events: u32, data: u64) {
        let interest = Interest {
            events,
            data,
            spent: false,
        };
        self.0.entry(epoll).or_default().insert(fd, interest);
    }

    pub(crate) fn has(&self, epoll: c_int, fd: c_int) -> bool {
        self.of(epoll).any(|(other, _)| other == fd)
    }

    /// Removes one; whether it was there.
    pub(crate) fn remove(&mut self, epoll: c_int, fd: c_int) -> bool {
        let Some(all) = self.0.get_mut(&epoll) else {
            return false;
        };
        let removed = all.remove(&fd).is_some();
        if all.is_empty() {
            self.0.remove(&epoll);
        }
        removed
    }

    /// A descriptor was closed.
    pub(crate) fn forget(&mut self, fd: c_int) {
        self.0.remove(&fd);
        for all in self.0.values_mut() {
            all.remove(&fd);
        }
        self.0.retain(|_, all| !all.is_empty());
    }

    /// Those of an epoll descriptor.
    pub(crate) fn of(&self, epoll: c_int) -> impl Iterator<Item = (c_int, Interest)> {
        let all = self.0.get(&epoll).into_iter().flatten();
        all.map(|(fd, interest)| (*fd, *interest))
    }

    /// One has reported.
    pub(crate) fn reported(&mut self, epoll: c_int, fd: c_int) {
        let found = self.0.get_mut(&epoll).and_then(|all| all.get_mut(&fd));
        if let Some(interest) = found.filter(|interest| interest.events & ONE_SHOT != 0) {
            interest.spent = true;
        }
    }
}

static INTERESTS: Mutex<Interests> = Mutex::new(Interests::new());

/// Works on what is waited for.
pub(crate) fn with<R>(work: impl FnOnce(&mut Interests) -> R) -> R {
    work(&mut INTERESTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// There has been something in [`INTERESTS`].
pub(crate) static IS_USED: AtomicBool = AtomicBool::new(false);

/// A descriptor is closed: one of epoll's, or one that is waited for.
pub(crate) fn forget(fd: c_int) {
    if IS_USED.load(Ordering::Relaxed) {
        with(|all| all.forget(fd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interests_come_and_go() {
        let mut all = Interests::new();
        all.set(3, 7, libc::EPOLLIN as u32, 70);
        all.set(3, 8, libc::EPOLLOUT as u32 | ONE_SHOT, 80);
        all.set(4, 7, libc::EPOLLIN as u32, 71);
        assert!(all.has(3, 7) && !all.has(3, 9) && !all.has(5, 7));
        let of = |all: &Interests, epoll| -> Vec<_> {
            all.of(epoll)
                .map(|(fd, one)| (fd, one.data, one.poll_events()))
                .collect()
        };
        let [reads, writes] = [libc::POLLIN, libc::POLLOUT].map(Some);
        assert_eq!(of(&all, 3), [(7, 70, reads), (8, 80, writes)]);
        all.reported(3, 7);
        all.reported(3, 8);
        assert_eq!(of(&all, 3), [(7, 70, reads), (8, 80, None)]);
        all.set(3, 8, libc::EPOLLIN as u32, 81);
        assert_eq!(of(&all, 3), [(7, 70, reads), (8, 81, reads)]);
        assert!(all.remove(3, 8) && !all.remove(3, 8));
        all.forget(7);
        assert!(of(&all, 3).is_empty() && of(&all, 4).is_empty());
        all.set(3, 7, 0, 0);
        all.forget(3);
        assert!(!all.has(3, 7));
    }
}
