//! The task that waits for a CQ's next event, and its waker.
//!
//! The task registers its waker *before* it reads how many events have come ([`Arm::request`](super::arm::Arm)); the event
//! queue's reader counts an event *before* it looks whether a task waits. Both mark that with a read-modify-write operation
//! of the same word, one of which is first: either the reader finds the task, or the task finds the event counted.

use core::sync::atomic::Ordering::AcqRel;
use core::task::Waker;

use crate::memory::sync::{AtomicU32, constant};

/// Room for one task.
#[derive(Debug)]
pub(crate) struct WaitingTask {
    /// 1 from when a waker is registered until an event has found it.
    waits: AtomicU32,
    waker: spin::Mutex<Option<Waker>>,
}

impl WaitingTask {
    constant! {
    pub(crate) const fn new() -> Self {
        Self {
            waits: AtomicU32::new(0),
            waker: spin::Mutex::new(None),
        }
    }
    }

    /// The task waits from now on. Another one that waited is woken, so that it can find out that it does not any more.
    pub(crate) fn register(&self, waker: &Waker) {
        // What a waker does when it is cloned, dropped or woken is the executor's: not under the lock.
        let new = waker.clone();
        let old = self.waker.lock().replace(new);
        self.waits.swap(1, AcqRel);
        if let Some(old) = old
            && !old.will_wake(waker)
        {
            old.wake();
        }
    }

    /// Returns `true` if a task waits for the event that was just counted. It has to be woken then ([`take`](Self::take)).
    pub(crate) fn notify(&self) -> bool {
        self.waits.swap(0, AcqRel) != 0
    }

    /// The waker, which is not registered any more.
    #[inline(never)]
    pub(crate) fn take(&self) -> Option<Waker> {
        self.waker.lock().take()
    }

    /// Wakes the task, if one waits.
    #[inline(never)]
    pub(crate) fn wake(&self) {
        if self.notify()
            && let Some(waker) = self.take()
        {
            waker.wake();
        }
    }

    /// No task waits any more.
    pub(crate) fn clear(&self) {
        self.waits.swap(0, AcqRel);
        drop(self.take());
    }
}
