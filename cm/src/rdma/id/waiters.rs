//! The tasks that wait for the events of a channel, or of an id without one.

use core::task::Waker;

/// The waker of the task that looked last, and how many futures wait.
///
/// One task is expected. Where there are more, each is woken when another takes its place, so that it looks again.
#[derive(Debug, Clone)]
pub(crate) struct Waiters {
    waker: Option<Waker>,
    count: u32,
}

impl Waiters {
    pub(crate) const NONE: Self = Self {
        waker: None,
        count: 0,
    };

    /// One more future waits.
    pub(crate) fn enter(&mut self) {
        self.count += 1;
    }

    /// One future waits no more. The others, if there are any, look again: the waker may be that of one of them.
    pub(crate) fn leave(&mut self) {
        self.count = self.count.saturating_sub(1);
        let waker = self.waker.take();
        if self.count > 0
            && let Some(waker) = waker
        {
            waker.wake();
        }
    }

    /// A future has found nothing.
    pub(crate) fn register(&mut self, waker: &Waker) {
        if let Some(old) = self.waker.replace(waker.clone())
            && !old.will_wake(waker)
        {
            old.wake();
        }
    }

    /// There is something to find.
    #[inline(never)]
    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
