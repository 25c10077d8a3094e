//! `rpoll` and `rselect`: waiting for rsockets and ordinary descriptors together.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_short};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};

use crate::process::failure::{Errno, Result, lock};
use crate::rsocket::connection::End;
use crate::rsocket::socket::{Phase, Socket, State};
use crate::rsocket::table;
use crate::rsocket::task::as_length;
use crate::rsocket::wait::{Waiter, sleep};

const IN: c_short = libc::POLLIN | libc::POLLRDNORM;
const OUT: c_short = libc::POLLOUT | libc::POLLWRNORM;
/// The events that are reported whether they were asked for or not.
const ALWAYS: c_short = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// The events that an rsocket is ready for.
pub(super) fn ready(state: &State) -> c_short {
    let is_ordinary = state.options.is_ordinary;
    match &state.phase {
        Phase::Open(connection) if is_ordinary => {
            let is_broken = matches!(connection.end, End::Broken(_));
            let mut ready = 0;
            if connection.inbound.unread() > 0 || !connection.is_readable() {
                ready |= IN;
            }
            if connection.can_send() || !connection.is_writable() {
                ready |= OUT;
            }
            if !connection.is_readable() {
                ready |= libc::POLLRDHUP;
            }
            // Both directions have ended, as this end knows it: that of sending when the program has ended it.
            if !connection.is_readable() && connection.shut_write || is_broken {
                ready |= libc::POLLHUP;
            }
            if is_broken {
                ready |= libc::POLLERR;
            }
            ready
        }
        Phase::Open(connection) => {
            let mut ready = 0;
            if connection.inbound.unread() > 0 || !connection.is_readable() {
                ready |= IN;
            }
            if connection.can_send() || !connection.is_writable() {
                ready |= OUT;
            }
            if connection.peer_shut {
                ready |= libc::POLLRDHUP;
            }
            match connection.end {
                // Not while there is something to read: programs take it for an error.
                End::Closed if connection.inbound.unread() == 0 => ready |= libc::POLLHUP,
                End::Open | End::Closed => {}
                End::Broken(_) => ready |= libc::POLLHUP | libc::POLLERR,
            }
            ready
        }
        Phase::Datagrams(datagrams) => {
            let mut ready = 0;
            if datagrams.has_arrived() {
                ready |= IN;
            }
            if datagrams.can_send() {
                ready |= OUT;
            }
            if datagrams.failure.is_some() {
                ready |= IN | OUT | libc::POLLERR;
            }
            ready
        }
        Phase::Listening(listener) if listener.ready.is_empty() => 0,
        Phase::Listening(_) => IN,
        Phase::Connecting(_) => 0,
        Phase::Failed if is_ordinary => {
            let error = if state.error.is_some() {
                libc::POLLERR
            } else {
                0
            };
            IN | OUT | libc::POLLRDHUP | libc::POLLHUP | error
        }
        Phase::Failed => IN | OUT | libc::POLLERR | libc::POLLHUP,
        // As the kernel has it for sockets that are not connected.
        Phase::New | Phase::Bound => OUT | libc::POLLHUP,
    }
}

impl Socket {
    /// The events among those asked for that it is ready for, after asking for an event if a thread is about to wait.
    fn readiness(&self, events: c_short, is_waiting: bool) -> c_short {
        let mut state = lock(&self.state);
        if state.closed {
            return libc::POLLNVAL;
        }
        if is_waiting {
            state.arm();
        }
        state.process();
        state.settle();
        ready(&state) & (events | ALWAYS)
    }
}

/// Waits until something is ready, or the deadline; how many entries.
pub(super) async fn poll(
    fds: &mut [pollfd],
    deadline: Option<Instant>,
    timeout_is_zero: bool,
) -> Result<usize> {
    let find = |entry: &pollfd| table::find(entry.fd);
    let sockets: Vec<Option<Arc<Socket>>> = fds.iter().map(find).collect();
    // The ordinary ones, and where they are among all.
    let is_ordinary = |(_, socket): &(usize, &Option<Arc<Socket>>)| socket.is_none();
    let places: Vec<usize> = sockets
        .iter()
        .enumerate()
        .filter(is_ordinary)
        .map(|(place, _)| place)
        .collect();
    let mut others: Vec<pollfd> = places.iter().map(|place| fds[*place]).collect();

    let look = |fds: &mut [pollfd], is_waiting: bool| {
        for (entry, socket) in fds.iter_mut().zip(&sockets) {
            if let Some(socket) = socket {
                entry.revents = socket.readiness(entry.events, is_waiting);
            }
        }
        fds.iter()
            .zip(&sockets)
            .any(|(entry, socket)| socket.is_some() && entry.revents != 0)
    };
    let take = |fds: &mut [pollfd], others: &[pollfd]| {
        for (place, other) in places.iter().zip(others) {
            fds[*place].revents = other.revents;
        }
        fds.iter().filter(|entry| entry.revents != 0).count()
    };

    let waiter = Waiter::own()?;
    let mut is_ready = look(fds, false);
    let mut is_last = timeout_is_zero;
    loop {
        waiter.clear();
        let waits = !is_ready && !is_last;
        let entered: Vec<_> = match waits {
            true => sockets
                .iter()
                .flatten()
                .map(|socket| socket.waiters.enter(&waiter))
                .collect(),
            false => Vec::new(),
        };
        if waits {
            is_ready = look(fds, true);
        }
        let until = match is_ready || is_last {
            true => Some(Instant::now()),
            false => deadline,
        };
        // Also if an rsocket is ready: the ordinary ones count as well.
        if !others.is_empty() || !is_ready && !is_last {
            sleep(&waiter, &mut others, until).await?;
        }
        drop(entered);
        look(fds, false);
        let count = take(fds, &others);
        if count > 0 {
            return Ok(count);
        }
        if is_last {
            if timeout_is_zero && let Some(socket) = sockets.iter().flatten().next() {
                lock(&socket.state).relax();
            }
            return Ok(0);
        }
        is_ready = false;
        is_last = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    }
}

/// Waits for events of rsockets and ordinary descriptors: `rpoll`.
///
/// # Safety
/// There are so many entries, which can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    let count = as_length(|| async move {
        let fds = match nfds {
            0 => &mut [],
            _ if fds.is_null() => return Err(Errno(libc::EFAULT)),
            // SAFETY: the caller promises that there are so many entries, which can be written.
            _ => unsafe { slice::from_raw_parts_mut(fds, nfds as usize) },
        };
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        poll(fds, deadline(timeout), timeout == Some(Duration::ZERO)).await
    });
    count as c_int
}

pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

/// Waits for events of rsockets and ordinary descriptors below `nfds`: `rselect`.
///
/// # Safety
/// The sets are NULL or can be written, and so is the timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let count = as_length(|| async move {
        if !(0..=libc::FD_SETSIZE as c_int).contains(&nfds) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises that the sets are NULL or can be written, and so is the timeout.
        let (mut sets, timeout) = unsafe {
            let sets = [readfds.as_mut(), writefds.as_mut(), exceptfds.as_mut()];
            (sets, timeout.as_ref())
        };
        let wanted = [IN, OUT, libc::POLLPRI];
        let mut fds = Vec::new();
        for fd in 0..nfds {
            let mut events = 0;
            for (set, wanted) in sets.iter().zip(wanted) {
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
        let timeout = match timeout {
            Some(timeout) => {
                let seconds = u64::try_from(timeout.tv_sec).map_err(|_| Errno::EINVAL)?;
                let micros = u64::try_from(timeout.tv_usec).map_err(|_| Errno::EINVAL)?;
                Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
            }
            None => None,
        };
        poll(&mut fds, deadline(timeout), timeout == Some(Duration::ZERO)).await?;
        if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        let shown = [
            IN | libc::POLLHUP | libc::POLLERR,
            OUT | libc::POLLERR,
            libc::POLLPRI,
        ];
        let mut count = 0;
        for ((set, wanted), shown) in sets.iter_mut().zip(wanted).zip(shown) {
            let Some(set) = set else { continue };
            // SAFETY: the set can be written.
            unsafe { libc::FD_ZERO(*set) };
            let is_ready =
                |entry: &&pollfd| entry.events & wanted != 0 && entry.revents & shown != 0;
            for entry in fds.iter().filter(is_ready) {
                // SAFETY: the number is below the size of a set.
                unsafe { libc::FD_SET(entry.fd, *set) };
                count += 1;
            }
        }
        Ok(count)
    });
    count as c_int
}
