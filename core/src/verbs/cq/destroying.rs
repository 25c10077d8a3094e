//! CQs that are being destroyed.

use core::fmt;
use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::sync::atomic::Ordering::Acquire;
use core::task::{Context, Poll, Waker};

use bareverbs_firmware_cmds::cq::DestroyCqIn;

use crate::device::in_flight::{InFlight, SlotClass};
use crate::platform::Platform;
use crate::verbs::cq::{Cq, CqError};

/// A CQ that is being destroyed ([`Cq::start_destroy`]).
///
/// Look with [`try_finish`](Self::try_finish) whether it is gone while the device is [polled](crate::Device::poll), or await it:
/// see the [crate](crate#tasks). Dropping it waits for the firmware.
#[must_use = "dropping it waits for the firmware"]
pub struct DestroyingCq<'d, P: Platform> {
    cq: Option<Cq<'d, P>>,
    class: SlotClass,
    flight: InFlight,
}

impl<'d, P: Platform> Cq<'d, P> {
    /// Begins to destroy it, and waits for nothing.
    ///
    /// # Errors
    /// While QPs use it, with the CQ.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn start_destroy(self) -> Result<DestroyingCq<'d, P>, (Self, CqError)> {
        self.begin_destroy(SlotClass::Begun)
    }

    /// The same, for a caller that waits, or not.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub(super) fn begin_destroy(
        self,
        class: SlotClass,
    ) -> Result<DestroyingCq<'d, P>, (Self, CqError)> {
        let users = self.slot.users.load(Acquire);
        if users != 0 {
            return Err((self, CqError::Busy { users }));
        }
        self.reap();
        let mut destroying = DestroyingCq {
            cq: Some(self),
            class,
            flight: InFlight::Idle,
        };
        match destroying.step(None) {
            Some(Err(failed)) => Err(failed),
            _ => Ok(destroying),
        }
    }

    /// The device has destroyed it.
    fn gone(self) {
        let mut this = ManuallyDrop::new(self);
        this.slot.task.wake();
        *this.slot.ring.lock() = None;
        this.device.tables.free_cq(this.index);
        for memory in [this.memory.take(), this.records.take()] {
            memory.free(this.device.platform());
        }
    }
}

impl<'d, P: Platform> DestroyingCq<'d, P> {
    /// `true` if it is gone; `None` while the firmware has not answered. If the firmware refuses, the CQ comes back. Meanwhile
    /// the device has to be [polled](crate::Device::poll).
    pub fn try_finish(&mut self) -> Option<Result<(), (Cq<'d, P>, CqError)>> {
        self.step(None)
    }

    /// Returns `true` if the firmware has the command. If not, the command queue is full, and
    /// [`try_finish`](Self::try_finish) asks again.
    #[must_use]
    pub const fn is_posted(&self) -> bool {
        self.flight.is_posted()
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Result<(), (Cq<'d, P>, CqError)>> {
        let Some(cq) = &self.cq else {
            return Some(Ok(()));
        };
        let device = cq.device;
        let mut outcome = Ok(());
        if !self.flight.is_posted() {
            let mut command = DestroyCqIn::new();
            command.set_cqn(cq.cqn.number());
            outcome = device.begin_no_output(&mut self.flight, self.class, &command);
        }
        if outcome.is_ok() {
            outcome = device.look_no_output(&self.flight, waker)?;
        }
        let cq = self.cq.take()?;
        Some(match outcome {
            Ok(()) => {
                cq.gone();
                Ok(())
            }
            Err(error) => Err((cq, CqError::Command(error))),
        })
    }
}

impl<P: Platform> Drop for DestroyingCq<'_, P> {
    fn drop(&mut self) {
        if let Some(cq) = &self.cq {
            let device = cq.device;
            self.class = SlotClass::Ordinary;
            // If the firmware refuses, the CQ is dropped.
            drop(device.until(|| self.step(None)));
        }
    }
}

impl<'d, P: Platform> Future for DestroyingCq<'d, P> {
    type Output = Result<(), (Cq<'d, P>, CqError)>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().step(Some(task.waker())) {
            Some(destroyed) => Poll::Ready(destroyed),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform> fmt::Debug for DestroyingCq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DestroyingCq").field(&self.cq).finish()
    }
}
