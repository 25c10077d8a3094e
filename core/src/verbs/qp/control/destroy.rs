//! QPs that are being destroyed.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::device::in_flight::SlotClass;
use crate::platform::Platform;
use crate::verbs::qp::control::object::DestroyQpError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::route::service::QpType;

/// A QP that is being destroyed ([`Qp::start_destroy`]).
///
/// Look with [`try_finish`](Self::try_finish) whether it is gone while the device is [polled](crate::Device::poll), or await it:
/// see the [crate](crate#tasks). Dropping it waits for the firmware.
#[must_use = "dropping it waits for the firmware"]
pub struct DestroyingQp<'d, P: Platform, T: QpType> {
    qp: Option<Qp<'d, P, T>>,
    class: SlotClass,
}

/// How a QP was destroyed; it is given back if it was not.
type Destroyed<Q> = Result<(), (Q, DestroyQpError)>;

impl<'d, P: Platform, T: QpType> Qp<'d, P, T> {
    /// Begins to destroy it, and waits for nothing. What is under way of a [`start_modify`](Self::start_modify) comes first.
    ///
    /// # Errors
    /// While it is in a multicast group, with the QP.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn start_destroy(self) -> Result<DestroyingQp<'d, P, T>, (Self, DestroyQpError)> {
        self.begin_destroy(SlotClass::Begun)
    }

    /// The same, for a caller that waits, or not.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub(in crate::verbs::qp) fn begin_destroy(
        mut self,
        class: SlotClass,
    ) -> Result<DestroyingQp<'d, P, T>, (Self, DestroyQpError)> {
        self.check_queues();
        if let Err(error) = self.object.check_destroy() {
            return Err((self, error));
        }
        let mut destroying = DestroyingQp {
            qp: Some(self),
            class,
        };
        match destroying.step(None) {
            Some(Err(failed)) => Err(failed),
            _ => Ok(destroying),
        }
    }
}

impl<'d, P: Platform, T: QpType> DestroyingQp<'d, P, T> {
    /// Whether it is gone; `None` while the firmware has not answered. If the firmware refuses, the QP comes back. Meanwhile
    /// the device has to be [polled](crate::Device::poll).
    pub fn try_finish(&mut self) -> Option<Destroyed<Qp<'d, P, T>>> {
        self.step(None)
    }

    /// Returns `true` if the firmware has the command. If not, the command queue is full, and
    /// [`try_finish`](Self::try_finish) asks again.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        let qp = self.qp.as_ref();
        qp.is_some_and(|qp| qp.object.is_posted())
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Destroyed<Qp<'d, P, T>>> {
        let Some(qp) = &mut self.qp else {
            return Some(Ok(()));
        };
        match qp.object.try_destroy(self.class, waker)? {
            Ok(()) => {
                self.qp = None;
                Some(Ok(()))
            }
            Err(error) => {
                let qp = self.qp.take()?;
                Some(Err((qp, DestroyQpError::Command(error))))
            }
        }
    }
}

impl<'d, P: Platform, T: QpType> Future for DestroyingQp<'d, P, T> {
    type Output = Destroyed<Qp<'d, P, T>>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().step(Some(task.waker())) {
            Some(destroyed) => Poll::Ready(destroyed),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform, T: QpType> fmt::Debug for DestroyingQp<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DestroyingQp").field(&self.qp).finish()
    }
}
