//! Completions as futures: waiting for a CQ in a task instead of a thread.
//!
//! A future arms its CQ as a thread does that is about to sleep, with the task's waker in the place of the sleep: the waker
//! goes into the CQ's slot, the CQ is armed, and is looked at once more. The waker is woken where the event is read:
//! in [`Device::poll`](crate::Device::poll) and in waits for commands, by whichever thread.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::platform::Platform;
use crate::types::wc::Wc;
use crate::verbs::cq::{Cq, CqError};

/// A completion to come ([`Cq::next`]).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Next<'c, 'd, P: Platform>(&'c mut Cq<'d, P>);

/// Completions to come ([`Cq::ready`]).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Ready<'c, 'd, P: Platform>(&'c mut Cq<'d, P>);

impl<'d, P: Platform> Cq<'d, P> {
    /// Waits in a task for the next completion, and takes it.
    ///
    /// Another task has to drive the device meanwhile: see the [crate](crate#tasks). A future that is dropped takes nothing with
    /// it: what completes later is taken by the next poll, whichever that is.
    ///
    /// # Errors
    /// As [`poll`](Self::poll), and [`CqError::Device`] once the device has failed and what came before has been taken.
    #[expect(clippy::should_implement_trait, reason = "it is that of streams")]
    pub fn next(&mut self) -> Next<'_, 'd, P> {
        Next(self)
    }

    /// Waits in a task until there is a completion, for [`poll`](Self::poll), [`batch`](Self::batch) or
    /// [`poll_wcs`](Self::poll_wcs) to take. It may be wrong: what lies in the ring may be of a QP that was destroyed, so that
    /// they find nothing. Otherwise as [`next`](Self::next).
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn ready(&mut self) -> Ready<'_, 'd, P> {
        Ready(self)
    }

    /// [`next`](Self::next) for a future of the caller's own. `Pending`: the task is woken at the next completion, in the
    /// place of the task that asked last. [`forget_task`](Self::forget_task) calls that off.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Result<Wc, CqError>> {
        for _ in 0..2 {
            if let Some(completion) = self.poll()? {
                return Poll::Ready(Ok(completion.to_wc()));
            }
            if self.poll_ready(task)?.is_pending() {
                return Poll::Pending;
            }
        }
        // There was something, and it was no completion. A device that goes on like that must not keep the executor.
        task.waker().wake_by_ref();
        Poll::Pending
    }

    /// [`ready`](Self::ready) for a future of the caller's own. `Pending` as in [`poll_next`](Self::poll_next).
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), CqError>> {
        if self.has_entry() {
            return Poll::Ready(Ok(()));
        }
        self.slot.task.register(task.waker());
        self.arm(false);
        // After all that could wake the task: what came before is seen now.
        let outcome = if self.has_entry() {
            Ok(())
        } else if let Err(error) = self.process_pending_flags() {
            Err(error)
        } else if let Some(error) = self.device.failure() {
            Err(CqError::Device(error))
        } else {
            return Poll::Pending;
        };
        self.forget_task();
        Poll::Ready(outcome)
    }

    /// No task is woken by the CQ any more.
    pub fn forget_task(&self) {
        self.slot.task.clear();
    }

    fn has_entry(&self) -> bool {
        let ring = self.ring();
        ring.is_ready()
    }
}

impl<P: Platform> Future for Next<'_, '_, P> {
    type Output = Result<Wc, CqError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll_next(task)
    }
}

impl<P: Platform> Future for Ready<'_, '_, P> {
    type Output = Result<(), CqError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll_ready(task)
    }
}

impl<P: Platform> Drop for Next<'_, '_, P> {
    fn drop(&mut self) {
        self.0.forget_task();
    }
}

impl<P: Platform> Drop for Ready<'_, '_, P> {
    fn drop(&mut self) {
        self.0.forget_task();
    }
}

impl<P: Platform> fmt::Debug for Next<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Next").field(&self.0).finish()
    }
}

impl<P: Platform> fmt::Debug for Ready<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ready").field(&self.0).finish()
    }
}
