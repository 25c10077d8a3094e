//! QPs that wait for the firmware: being created, modified or destroyed, looked at in a loop or awaited in a task.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::device::in_flight::SlotClass;
use crate::platform::Platform;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::create::CreatingObject;
use crate::verbs::qp::control::destroy::DestroyQpError;
use crate::verbs::qp::control::init_attr::CreateQpError;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::control::states::QpAttrMask;
use crate::verbs::qp::route::service::QpType;

/// A QP that is being created ([`Pd::start_create_qp`](crate::Pd::start_create_qp)).
///
/// Its command is with the firmware, or waits for a place in the command queue. Look for the QP with
/// [`try_finish`](Self::try_finish) while the device is [polled](crate::Device::poll), or await it: see the [crate](crate#tasks).
///
/// If it is dropped before, the answer is waited for, and the QP destroyed, as when a QP is dropped.
#[must_use = "dropping it waits for the firmware"]
pub struct CreatingQp<'d, P: Platform, T: QpType> {
    object: CreatingObject<'d, P>,
    kind: PhantomData<fn() -> T>,
}

impl<'d, P: Platform, T: QpType> CreatingQp<'d, P, T> {
    pub(crate) fn of(object: CreatingObject<'d, P>) -> Self {
        Self {
            object,
            kind: PhantomData,
        }
    }

    /// The QP, or why there is none; `None` while the firmware has not answered, and once this has returned something. It
    /// waits for nothing; meanwhile the device has to be [polled](crate::Device::poll).
    pub fn try_finish(&mut self) -> Option<Result<Qp<'d, P, T>, CreateQpError>> {
        self.object.try_finish(None).map(|made| made.map(Qp::of))
    }

    /// Returns `true` if the firmware has the command. If not, the command queue is full, and
    /// [`try_finish`](Self::try_finish) asks again.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        self.object.is_posted()
    }

    /// Waits for the QP, driving the device.
    pub(crate) fn wait(mut self) -> Result<Qp<'d, P, T>, CreateQpError> {
        let device = self.object.device;
        device.until(|| self.try_finish())
    }
}

impl<'d, P: Platform, T: QpType> Future for CreatingQp<'d, P, T> {
    type Output = Result<Qp<'d, P, T>, CreateQpError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().object.try_finish(Some(task.waker())) {
            Some(made) => Poll::Ready(made.map(Qp::of)),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform, T: QpType> fmt::Debug for CreatingQp<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatingQp")
            .field("kind", &T::KIND)
            .field("posted", &self.is_posted())
            .finish_non_exhaustive()
    }
}

/// A QP that is being modified ([`Qp::modifying`]).
#[must_use = "futures do nothing unless they are awaited"]
pub struct ModifyingQp<'q, 'd, P: Platform, T: QpType> {
    qp: &'q mut Qp<'d, P, T>,
    /// Until it is started.
    asked: Option<(QpAttr, QpAttrMask)>,
}

impl<'d, P: Platform, T: QpType> Qp<'d, P, T> {
    /// [`modify`](Self::modify) in a task. If it is dropped after its first poll, what was started goes on, and
    /// [`try_finish_modify`](Self::try_finish_modify) says how it went.
    pub fn modifying(&mut self, attr: &QpAttr, mask: QpAttrMask) -> ModifyingQp<'_, 'd, P, T> {
        ModifyingQp {
            qp: self,
            asked: Some((*attr, mask)),
        }
    }
}

impl<P: Platform, T: QpType> Future for ModifyingQp<'_, '_, P, T> {
    type Output = Result<(), ModifyError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some((attr, mask)) = &this.asked {
            match this.qp.start_modify(attr, *mask) {
                Ok(()) => this.asked = None,
                Err(ModifyError::Command(error)) if error.failure.is_queue_full() => {
                    // No event says when a slot is free again: soon.
                    task.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        match this.qp.finish_modify(Some(task.waker())) {
            Some(modified) => Poll::Ready(modified),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform, T: QpType> fmt::Debug for ModifyingQp<'_, '_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModifyingQp").field(&self.qp).finish()
    }
}

/// A QP that is being destroyed ([`Qp::start_destroy`]).
///
/// Look with [`try_finish`](Self::try_finish) whether it is gone while the device is [polled](crate::Device::poll), or await it:
/// see the [crate](crate#tasks). Dropping it waits for the firmware.
#[must_use = "dropping it waits for the firmware"]
pub struct DestroyingQp<'d, P: Platform, T: QpType> {
    qp: Option<Qp<'d, P, T>>,
    class: SlotClass,
}

/// The result of destroying a QP, which is given back if that failed.
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
    /// `true` if it is gone; `None` while the firmware has not answered. If the firmware refuses, the QP comes back. Meanwhile
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
