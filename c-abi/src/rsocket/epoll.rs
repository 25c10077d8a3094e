//! `repoll_create`, `repoll_ctl`, `repoll_wait`: epoll for rsockets and ordinary descriptors.
//!
//! As in librdmacm 65, events are reported for as long as they last, also with `EPOLLET` and `EPOLLONESHOT`; there are
//! `EPOLLIN`, `EPOLLOUT`, `EPOLLERR` and `EPOLLHUP`; `repoll_ctl` returns an error number.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_short};
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::{epoll_event, pollfd};

use crate::process::descriptor::Counter;
use crate::process::failure::{Errno, Result, as_errno, as_number, lock};
use crate::rsocket::poll::{deadline, poll};
use crate::rsocket::task::as_length;

/// A set of descriptors that are waited for together.
struct Set {
    /// Its descriptor, which is there for its number.
    reserved: Counter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order in which they were added.
    interests: Vec<Interest>,
    /// These counters wake the threads that wait, to look at the interests again.
    waiting: Vec<Arc<Counter>>,
    closed: bool,
}

#[derive(Clone, Copy)]
struct Interest {
    fd: c_int,
    events: c_short,
    data: u64,
}

static SETS: Mutex<Option<HashMap<c_int, Arc<Set>>>> = Mutex::new(None);

/// Events of epoll that there are, each of which is the one of `poll` with the same bits.
const KNOWN: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) as u32;

fn set(number: c_int) -> Result<Arc<Set>> {
    let all = lock(&SETS);
    let set = all.as_ref().and_then(|all| all.get(&number));
    set.cloned().ok_or(Errno::EINVAL)
}

/// Closes a set, if the number is one's. EBUSY while it has descriptors.
pub(super) fn close(number: c_int) -> Option<Result<()>> {
    let mut all = lock(&SETS);
    let set = all.as_mut()?.get(&number)?.clone();
    let mut state = lock(&set.state);
    if !state.interests.is_empty() {
        return Some(Err(Errno::EBUSY));
    }
    state.closed = true;
    state.wake();
    drop(state);
    all.as_mut()?.remove(&number);
    Some(Ok(()))
}

impl State {
    fn wake(&self) {
        for waiting in &self.waiting {
            waiting.add();
        }
    }

    fn control(&mut self, operation: c_int, fd: c_int, event: Option<&epoll_event>) -> Result<()> {
        let at = self.interests.iter().position(|one| one.fd == fd);
        let interest = || {
            let event = event.ok_or(Errno(libc::EFAULT));
            event.map(|event| Interest {
                fd,
                events: (event.events & KNOWN) as c_short,
                data: event.u64,
            })
        };
        match (operation, at) {
            (libc::EPOLL_CTL_ADD, None) => self.interests.push(interest()?),
            (libc::EPOLL_CTL_ADD, Some(_)) => return Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD, Some(at)) => self.interests[at] = interest()?,
            (libc::EPOLL_CTL_DEL, Some(at)) => drop(self.interests.remove(at)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => return Err(Errno(libc::ENOENT)),
            _ => return Err(Errno::EINVAL),
        }
        self.wake();
        Ok(())
    }
}

/// A thread that waits for a set.
struct Waiting {
    set: Arc<Set>,
    waker: Arc<Counter>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let waiting = &mut lock(&self.set.state).waiting;
        waiting.retain(|other| !Arc::ptr_eq(other, &self.waker));
    }
}

impl Set {
    /// Waits; how many events. None after the deadline, or when the set is closed meanwhile.
    async fn wait(self: Arc<Self>, to: &mut [epoll_event], timeout: c_int) -> Result<usize> {
        let ready = self.look(to, None, Some(Instant::now())).await?;
        if ready != Some(0) || timeout == 0 {
            return Ok(ready.unwrap_or(0));
        }
        let until = deadline(u64::try_from(timeout).ok().map(Duration::from_millis));
        let waiting = Waiting {
            set: self.clone(),
            waker: Arc::new(Counter::new()?),
        };
        lock(&self.state).waiting.push(waiting.waker.clone());
        loop {
            match self.look(to, Some(&waiting.waker), until).await? {
                Some(ready) => return Ok(ready),
                None if lock(&self.state).closed => return Ok(0),
                None => {}
            }
        }
    }

    /// Waits with the interests as they are; how many events. `None`: it was woken, to look again.
    async fn look(
        &self,
        to: &mut [epoll_event],
        waker: Option<&Counter>,
        until: Option<Instant>,
    ) -> Result<Option<usize>> {
        let interests = lock(&self.state).interests.clone();
        let entry = |fd, events| pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut fds: Vec<pollfd> = interests
            .iter()
            .map(|one| entry(one.fd, one.events))
            .collect();
        fds.extend(waker.map(|waker| entry(waker.fd(), libc::POLLIN)));
        poll(&mut fds, until, waker.is_none()).await?;
        let ready = interests.iter().zip(&fds).filter(|(_, fd)| fd.revents != 0);
        let mut count = 0;
        for ((interest, fd), to) in ready.zip(&mut *to) {
            *to = epoll_event {
                events: fd.revents as u32 & KNOWN,
                u64: interest.data,
            };
            count += 1;
        }
        let woken = waker.is_some_and(|waker| {
            let mut any = false;
            while waker.try_take() {
                any = true;
            }
            any
        });
        Ok((count > 0 || !woken).then_some(count))
    }
}

/// Makes a set of descriptors: `repoll_create`. To be closed with `rclose`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_create(_flags: c_int) -> c_int {
    as_number(|| {
        let set = Arc::new(Set {
            reserved: Counter::new()?,
            state: Mutex::default(),
        });
        let number = set.reserved.fd();
        let mut all = lock(&SETS);
        all.get_or_insert_default().insert(number, set);
        Ok(number)
    })
}

/// Adds, changes or removes a descriptor: `repoll_ctl`. Returns 0 or an error number.
///
/// # Safety
/// `event` is NULL or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    as_errno(|| {
        if fd < 0 {
            return Err(Errno(libc::EBADF));
        }
        if fd == epfd {
            return Err(Errno::EINVAL);
        }
        let set = set(epfd)?;
        // SAFETY: the caller promises that `event` is NULL or can be read.
        let event = unsafe { event.as_ref() };
        lock(&set.state).control(op, fd, event)
    })
}

/// Waits for events: `repoll_wait`. Returns how many, or -1 with an errno; librdmacm 65 returns the error number itself,
/// which is a number of events as well.
///
/// # Safety
/// `maxevents` events at `events` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn repoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    let ready = as_length(|| async move {
        let set = set(epfd)?;
        if maxevents <= 0 {
            return Err(Errno::EINVAL);
        }
        if events.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller promises that `maxevents` events at `events` can be written.
        let to = unsafe { slice::from_raw_parts_mut(events, maxevents as usize) };
        set.wait(to, timeout).await
    });
    ready as c_int
}
