//! epoll of sockets with rsockets, which the kernel knows nothing of: what is waited for of them is kept here (`Interests`),
//! and a wait is one in `rpoll` for them and for the epoll descriptor itself.
//!
//! A socket is the kernel's for epoll if it got its rsocket after it was added. Events are reported for as long as they last,
//! also with `EPOLLET`.

// UNSAFETY: functions of C, in place of the C library's.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr::null;
use std::slice;
use std::sync::atomic::Ordering;

use libc::{epoll_event, pollfd, sigset_t};

use crate::cancel::holding;
use crate::interest::{IS_USED, Interest, with};
use crate::rdma;
use crate::real::{self, set_errno};
use crate::table;
use crate::wait::{wait, with_signals};

/// Says what is waited for: `epoll_ctl`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let is_found = table::has(fd);
    let kept = is_found && with(|all| all.has(epoll, fd));
    let adds = operation == libc::EPOLL_CTL_ADD;
    let is_ours = kept || adds && is_found;
    if !is_ours || rdma::is_inside() {
        // SAFETY: the caller promises what the C library's `epoll_ctl` asks of its arguments.
        return unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    }
    if kept && adds {
        set_errno(libc::EEXIST);
        return -1;
    }
    if operation == libc::EPOLL_CTL_DEL {
        with(|all| all.remove(epoll, fd));
        return 0;
    }
    // SAFETY: the caller promises what the C library's `epoll_ctl` asks of its arguments.
    let Some(event) = (unsafe { event.as_ref() }) else {
        set_errno(libc::EFAULT);
        return -1;
    };
    let (events, data) = (event.events, event.u64);
    IS_USED.store(true, Ordering::Relaxed);
    with(|all| all.set(epoll, fd, events, data));
    0
}

/// Waits: `epoll_wait`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller promises what the C library's `epoll_wait` asks of its arguments.
    unsafe { epoll_pwait(epoll, events, most, timeout, null()) }
}

/// Waits with other signals blocked: `epoll_pwait`.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    signals: *const sigset_t,
) -> c_int {
    let of_epoll = || with(|all| all.of(epoll).collect::<Vec<_>>());
    let ours = match rdma::is_inside() {
        true => Vec::new(),
        false => of_epoll(),
    };
    if ours.is_empty() || events.is_null() || most <= 0 {
        // Before the wait, in which the thread may be cancelled.
        drop(ours);
        // SAFETY: the caller promises what the C library's `epoll_pwait` asks of its arguments.
        return unsafe { real::epoll_pwait(epoll, events, most, timeout, signals) };
    }
    // SAFETY: the caller promises what the C library's `epoll_pwait` asks of its arguments.
    let to = unsafe { slice::from_raw_parts_mut(events, most as usize) };
    holding(ours, |ours| {
        // SAFETY: the caller promises what the C library's `epoll_pwait` asks of its arguments.
        unsafe { with_signals(signals, || wait_for(epoll, ours, to, timeout)) }
    })
}

fn wait_for(
    epoll: c_int,
    ours: &[(c_int, Interest)],
    to: &mut [epoll_event],
    timeout: c_int,
) -> c_int {
    let entry = |fd, events| pollfd {
        fd,
        events,
        revents: 0,
    };
    let asked = ours.iter().filter_map(|(fd, interest)| {
        // Closed where nothing is interposed.
        table::find(*fd)?;
        Some((*fd, *interest, interest.poll_events()?))
    });
    let asked: Vec<_> = asked.collect();
    let mut fds: Vec<pollfd> = asked
        .iter()
        .map(|(fd, _, events)| entry(*fd, *events))
        .collect();
    fds.push(entry(epoll, libc::POLLIN));
    holding((asked, fds), |(asked, fds)| {
        if wait(fds, timeout) < 0 {
            return -1;
        }
        let mut count = 0;
        for ((fd, interest, _), found) in asked.iter().zip(&*fds) {
            if found.revents == 0 || count == to.len() {
                continue;
            }
            to[count] = epoll_event {
                events: found.revents as u16 as u32,
                u64: interest.data,
            };
            count += 1;
            with(|all| all.reported(epoll, *fd));
        }
        let kernel = fds.last().is_some_and(|entry| entry.revents != 0);
        let rest = &mut to[count..];
        if kernel && !rest.is_empty() {
            let most = rest.len() as c_int;
            // SAFETY: so many can be written.
            let found = unsafe { real::epoll_pwait(epoll, rest.as_mut_ptr(), most, 0, null()) };
            count += usize::try_from(found).unwrap_or(0);
        }
        count as c_int
    })
}
