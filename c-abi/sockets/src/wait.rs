//! Waiting for sockets of both kinds together.

// UNSAFETY: functions of C, in place of the C library's.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use libc::{fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::cancel::holding;
use crate::rdma;
use crate::real::{self, check, set_errno};
use crate::sets::{Sets, from_poll, to_poll};
use crate::table::{self, Companion};

/// Entries of a wait, of which some have rsockets.
struct Both {
    companions: Vec<Option<Arc<Companion>>>,
    /// The rsockets, and what is the system's.
    all: Vec<pollfd>,
    /// The place that each element of `all` has among the entries.
    places: Vec<usize>,
}

impl Both {
    fn new(fds: &mut [pollfd]) -> Self {
        let companions = fds.iter().map(|entry| table::find(entry.fd)).collect();
        let mut both = Self {
            companions,
            all: Vec::with_capacity(fds.len() + 1),
            places: Vec::with_capacity(fds.len() + 1),
        };
        for (place, (entry, companion)) in fds.iter_mut().zip(&both.companions).enumerate() {
            entry.revents = 0;
            if let Some(companion) = companion {
                both.all.push(pollfd {
                    fd: companion.rsocket,
                    ..*entry
                });
                both.places.push(place);
            }
            if companion
                .as_ref()
                .is_none_or(|companion| companion.is_both())
            {
                both.all.push(*entry);
                both.places.push(place);
            }
        }
        both
    }
}

/// Waits for entries of which some may have rsockets; the results are added to `revents`. How many have any, or -1.
pub(crate) fn wait(fds: &mut [pollfd], timeout: c_int) -> c_int {
    holding(Both::new(fds), |both| {
        let count = both.all.len() as nfds_t;
        // SAFETY: so many entries, which can be written.
        if unsafe { rdma::rpoll(both.all.as_mut_ptr(), count, timeout) } < 0 {
            return -1;
        }
        for (place, found) in both.places.iter().zip(&both.all) {
            fds[*place].revents |= found.revents;
        }
        let found = fds.iter().filter(|entry| entry.revents != 0).count();
        found as c_int
    })
}

/// The entries, if some of them have rsockets.
///
/// # Safety
/// NULL, or so many entries that can be written.
unsafe fn ours<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if fds.is_null() || rdma::is_inside() {
        return None;
    }
    // SAFETY: the caller promises that nULL, or so many entries that can be written.
    let fds = unsafe { slice::from_raw_parts_mut(fds, count as usize) };
    fds.iter()
        .any(|entry| table::may_have(entry.fd))
        .then_some(fds)
}

/// Waits for events of descriptors: `poll`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller promises what the C library's `poll` asks of its arguments.
    match unsafe { ours(fds, count) } {
        Some(fds) => wait(fds, timeout),
        // Also our library's own, in which threads are cancelled.
        // SAFETY: the caller promises what the C library's `poll` asks of its arguments.
        None => rdma::outside(|| unsafe { real::poll(fds, count, timeout) }),
    }
}

/// A timeout in milliseconds, rounded up; `None` for ever.
pub(crate) fn millis(timeout: Option<Duration>) -> c_int {
    timeout.map_or(-1, |timeout| {
        let up = timeout.saturating_add(Duration::from_nanos(999_999));
        c_int::try_from(up.as_millis()).unwrap_or(c_int::MAX)
    })
}

/// A timeout of C; `None` if it is none that is possible.
pub(crate) fn duration(seconds: i64, nanos: i64) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

/// # Safety
/// NULL, or it can be read.
unsafe fn of_timespec(timeout: *const timespec) -> Result<Option<Duration>, ()> {
    // SAFETY: the caller promises that nULL, or it can be read.
    match unsafe { timeout.as_ref() } {
        Some(timeout) => match duration(timeout.tv_sec, timeout.tv_nsec) {
            Some(timeout) => Ok(Some(timeout)),
            None => Err(()),
        },
        None => Ok(None),
    }
}

/// Does something with other signals blocked. The two do not happen at once, other than in the kernel.
///
/// # Safety
/// NULL, or a set that can be read.
pub(crate) unsafe fn with_signals(signals: *const sigset_t, work: impl FnOnce() -> c_int) -> c_int {
    if signals.is_null() {
        return work();
    }
    let mut before = MaybeUninit::uninit();
    // SAFETY: the caller's promise; the second set is written before it is read.
    unsafe {
        // A device model that this thread executes meanwhile needs those of its own accesses to memory.
        let mut signals = *signals;
        libc::sigdelset(&mut signals, libc::SIGSEGV);
        libc::sigdelset(&mut signals, libc::SIGBUS);
        if libc::pthread_sigmask(libc::SIG_SETMASK, &signals, before.as_mut_ptr()) != 0 {
            set_errno(libc::EINVAL);
            return -1;
        }
        let result = work();
        let errno = real::errno();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        set_errno(errno);
        result
    }
}

/// Waits for events of descriptors, with other signals blocked: `ppoll`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: the caller promises what the C library's `ppoll` asks of its arguments.
    unsafe {
        let Some(fds) = ours(fds, count) else {
            return real::ppoll(fds, count, timeout, signals);
        };
        let Ok(timeout) = of_timespec(timeout) else {
            set_errno(libc::EINVAL);
            return -1;
        };
        with_signals(signals, || wait(fds, millis(timeout)))
    }
}

/// `poll` with the size of the memory: what compilers make of it.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    size: size_t,
) -> c_int {
    check((count as usize).saturating_mul(size_of::<pollfd>()), size);
    // SAFETY: the caller promises what the C library's `__poll_chk` asks of its arguments.
    unsafe { poll(fds, count, timeout) }
}

/// The same of `ppoll`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
    size: size_t,
) -> c_int {
    check((count as usize).saturating_mul(size_of::<pollfd>()), size);
    // SAFETY: the caller promises what the C library's `__ppoll_chk` asks of its arguments.
    unsafe { ppoll(fds, count, timeout, signals) }
}

/// The descriptors in the sets, if some of them have rsockets.
///
/// # Safety
/// Each is NULL or a set that can be written.
unsafe fn ours_of_sets<'a>(
    count: c_int,
    sets: [*mut fd_set; 3],
) -> Option<(Vec<pollfd>, Sets<'a>)> {
    if rdma::is_inside() {
        return None;
    }
    // SAFETY: the caller promises that each is NULL or a set that can be written.
    let sets: Sets<'_> = sets.map(|set| unsafe { set.as_mut() });
    let fds = to_poll(count, &sets);
    fds.iter()
        .any(|entry| table::may_have(entry.fd))
        .then_some((fds, sets))
}

fn wait_for_sets(fds: Vec<pollfd>, mut sets: Sets<'_>, timeout: c_int) -> c_int {
    holding(fds, |fds| {
        if wait(fds, timeout) < 0 {
            return -1;
        }
        if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            set_errno(libc::EBADF);
            return -1;
        }
        from_poll(fds, &mut sets)
    })
}

/// Waits for sets of descriptors: `select`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller promises what the C library's `select` asks of its arguments.
    unsafe {
        let Some((fds, sets)) = ours_of_sets(count, [read, write, except]) else {
            return real::select(count, read, write, except, timeout);
        };
        let limit = match timeout.as_ref() {
            Some(limit) => {
                // Unlike `pselect`, it takes more microseconds than a second has.
                let seconds = u64::try_from(limit.tv_sec);
                let (Ok(seconds), Ok(micros)) = (seconds, u64::try_from(limit.tv_usec)) else {
                    set_errno(libc::EINVAL);
                    return -1;
                };
                Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
            }
            None => None,
        };
        wait_for_sets(fds, sets, millis(limit))
    }
}

/// Waits for sets of descriptors, with other signals blocked: `pselect`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    // SAFETY: the caller promises what the C library's `pselect` asks of its arguments.
    unsafe {
        let Some((fds, sets)) = ours_of_sets(count, [read, write, except]) else {
            return real::pselect(count, read, write, except, timeout, signals);
        };
        let Ok(timeout) = of_timespec(timeout) else {
            set_errno(libc::EINVAL);
            return -1;
        };
        with_signals(signals, || wait_for_sets(fds, sets, millis(timeout)))
    }
}
