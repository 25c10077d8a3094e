//! Asynchronous events as a future.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::device::Device;
use crate::platform::Platform;
use crate::types::error::DeviceError;
use crate::types::event::AsyncEvent;

/// An asynchronous event to come ([`Device::async_event`]).
#[must_use = "futures do nothing unless they are awaited"]
pub struct NextAsyncEvent<'a, 'd, P: Platform>(&'a Device<'d, P>);

impl<'d, P: Platform> Device<'d, P> {
    /// Waits in a task for the next asynchronous event, and takes it. Another task has to drive the device meanwhile: see the
    /// [crate](crate#tasks). One task at a time can wait: the next one that does takes its place, and wakes it.
    ///
    /// # Errors
    /// Once the device has failed and all events were taken, as [`get_async_event`](Self::get_async_event).
    pub fn async_event(&self) -> NextAsyncEvent<'_, 'd, P> {
        NextAsyncEvent(self)
    }

    /// Why the device no longer works, if it does not.
    pub(crate) fn failure(&self) -> Option<DeviceError> {
        self.with(|control| control.failed())
            .unwrap_or(Some(DeviceError::Closed))
    }
}

impl<P: Platform> Future for NextAsyncEvent<'_, '_, P> {
    type Output = Result<AsyncEvent, DeviceError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waker = Some(task.waker().clone());
        let found = self.0.with(|control| match control.next_event() {
            Some(event) => Some(Ok(event)),
            None => match control.failed() {
                Some(error) => Some(Err(error)),
                None => {
                    waker = control.set_event_task(waker.take());
                    None
                }
            },
        });
        match found.unwrap_or(Some(Err(DeviceError::Closed))) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                if let Some(other) = waker
                    && !other.will_wake(task.waker())
                {
                    other.wake();
                }
                Poll::Pending
            }
        }
    }
}

impl<P: Platform> Drop for NextAsyncEvent<'_, '_, P> {
    fn drop(&mut self) {
        // Another task's, perhaps: woken rather than forgotten.
        if let Some(Some(waker)) = self.0.with(|control| control.set_event_task(None)) {
            waker.wake();
        }
    }
}

impl<P: Platform> fmt::Debug for NextAsyncEvent<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NextAsyncEvent").finish()
    }
}
