//! Sets of descriptors, as `select` has them, and what `poll` makes of them.

// UNSAFETY: sets of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_short};

use libc::{FD_SETSIZE, fd_set, pollfd};

/// The events that each of the three sets waits for.
const WANTED: [c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
/// The events that each of them shows.
const SHOWN: [c_short; 3] = [
    libc::POLLIN | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLERR,
    libc::POLLPRI,
];

/// The sets for reading, writing and exceptions.
pub(crate) type Sets<'a> = [Option<&'a mut fd_set>; 3];

/// The descriptors below `count` in the sets.
pub(crate) fn to_poll(count: c_int, sets: &Sets<'_>) -> Vec<pollfd> {
    let mut fds = Vec::new();
    for fd in 0..count.clamp(0, FD_SETSIZE as c_int) {
        let mut events = 0;
        for (set, wanted) in sets.iter().zip(WANTED) {
            // SAFETY: the number is below the size of a set.
            let is_in = |set: &&mut fd_set| unsafe { libc::FD_ISSET(fd, *set) };
            if set.as_ref().is_some_and(is_in) {
                events |= wanted;
            }
        }
        if events != 0 {
            fds.push(pollfd {
                fd,
                events,
                revents: 0,
            });
        }
    }
    fds
}

/// Leaves in the sets what was found; how many that are.
pub(crate) fn from_poll(fds: &[pollfd], sets: &mut Sets<'_>) -> c_int {
    let mut count = 0;
    for ((set, wanted), shown) in sets.iter_mut().zip(WANTED).zip(SHOWN) {
        let Some(set) = set else { continue };
        // SAFETY: the set can be written.
        unsafe { libc::FD_ZERO(*set) };
        for entry in fds {
            if entry.events & wanted != 0 && entry.revents & shown != 0 {
                // SAFETY: the number is one that was in a set.
                unsafe { libc::FD_SET(entry.fd, *set) };
                count += 1;
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::zeroed;

    fn set(fds: &[c_int]) -> fd_set {
        // SAFETY: an empty set is all-zero, and the numbers are small.
        unsafe {
            let mut set: fd_set = zeroed();
            for fd in fds {
                libc::FD_SET(*fd, &mut set);
            }
            set
        }
    }

    fn members(set: &fd_set) -> Vec<c_int> {
        // SAFETY: the numbers are small.
        (0..FD_SETSIZE as c_int)
            .filter(|fd| unsafe { libc::FD_ISSET(*fd, set) })
            .collect()
    }

    #[test]
    fn sets_and_back() {
        let (mut read, mut write) = (set(&[1, 5, 9]), set(&[5, 1023]));
        let mut sets: Sets<'_> = [Some(&mut read), Some(&mut write), None];
        let mut fds = to_poll(1024, &sets);
        let found: Vec<_> = fds.iter().map(|entry| (entry.fd, entry.events)).collect();
        let (reads, writes) = (libc::POLLIN, libc::POLLOUT);
        assert_eq!(
            found,
            [(1, reads), (5, reads | writes), (9, reads), (1023, writes)]
        );
        assert_eq!(to_poll(5, &sets).len(), 1);
        assert!(to_poll(-1, &sets).is_empty());
        fds[0].revents = libc::POLLHUP;
        fds[1].revents = libc::POLLIN | libc::POLLOUT;
        fds[3].revents = libc::POLLIN;
        assert_eq!(from_poll(&fds, &mut sets), 3);
        assert_eq!((members(&read), members(&write)), (vec![1, 5], vec![5]));
    }
}
