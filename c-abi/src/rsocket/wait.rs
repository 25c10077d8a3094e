//! Threads that wait for rsockets: each has a descriptor of its own, which goes into a `poll` together with others.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::{c_int, pollfd};

use crate::process::descriptor::Counter;
use crate::process::failure::{Result, lock};
use crate::rsocket::task;

/// A thread that waits, or may.
#[derive(Debug)]
pub(super) struct Waiter(Counter);

thread_local! {
    static OWN: RefCell<Option<(u32, Arc<Waiter>)>> = const { RefCell::new(None) };
}

impl Waiter {
    /// The calling thread's. A child has one of its own, since the descriptor would wake its parent. A thread that ends may have
    /// lost its own already, and gets another one for each call: functions that are called at exit wait as well.
    pub(super) fn own() -> Result<Arc<Self>> {
        let process = std::process::id();
        let new = || Ok(Arc::new(Self(Counter::new()?)));
        let own = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            if let Some((of, waiter)) = &*own
                && *of == process
            {
                return Ok(waiter.clone());
            }
            let waiter = new()?;
            *own = Some((process, waiter.clone()));
            Ok(waiter)
        });
        own.unwrap_or_else(|_| new())
    }

    fn fd(&self) -> RawFd {
        self.0.fd()
    }

    /// Forgets that it was woken.
    pub(super) fn clear(&self) {
        while self.0.try_take() {}
    }
}

/// The threads that wait for one rsocket.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Vec<Arc<Waiter>>>);

impl Waiters {
    /// Lets a thread be woken, until what this returns is dropped.
    pub(super) fn enter<'a>(&'a self, waiter: &Arc<Waiter>) -> Entered<'a> {
        lock(&self.0).push(waiter.clone());
        Entered {
            waiters: self,
            waiter: waiter.clone(),
        }
    }

    /// Wakes all.
    pub(super) fn wake(&self) {
        for waiter in lock(&self.0).iter() {
            waiter.0.add();
        }
    }

    /// Returns `true` if no thread waits.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

/// A thread that waits for an rsocket.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    waiters: &'a Waiters,
    waiter: Arc<Waiter>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.waiters.0);
        if let Some(at) = all
            .iter()
            .position(|other| Arc::ptr_eq(other, &self.waiter))
        {
            all.swap_remove(at);
        }
    }
}

/// Waits until the thread is woken, or something of `others` is ready, or the deadline.
///
/// # Errors
/// EINTR after a signal.
pub(super) async fn sleep(
    waiter: &Waiter,
    others: &mut Vec<pollfd>,
    deadline: Option<Instant>,
) -> Result<()> {
    others.push(pollfd {
        fd: waiter.fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Up to the next millisecond: not a moment too early.
        let left = left + Duration::from_micros(999);
        c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX)
    });
    let result = task::sleep(others, timeout).await;
    others.pop();
    result
}
