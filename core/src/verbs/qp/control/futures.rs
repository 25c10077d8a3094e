//! QPs that wait for the firmware: being created, modified or destroyed, looked at in a loop or awaited in a task.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::device::in_flight::{InFlight, SlotClass};
use crate::platform::Platform;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::create::CreatingObject;
use crate::verbs::qp::control::destroy::DestroyQpError;
use crate::verbs::qp::control::dyn_qp::DynQp;
use crate::verbs::qp::control::init_attr::CreateQpError;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::control::states::QpAttrMask;
use crate::verbs::qp::route::service::QpType;

/// [`Qp`] of any type, or [`DynQp`].
pub trait FromDyn<'d, P: Platform> {
    /// The QP, which is of this type.
    fn from_dyn(qp: DynQp<'d, P>) -> Self;
}

impl<'d, P: Platform> FromDyn<'d, P> for DynQp<'d, P> {
    #[inline(always)]
    fn from_dyn(qp: DynQp<'d, P>) -> Self {
        qp
    }
}

impl<'d, P: Platform, T: QpType> FromDyn<'d, P> for Qp<'d, P, T> {
    #[inline(always)]
    fn from_dyn(qp: DynQp<'d, P>) -> Self {
        Self::of(qp)
    }
}

/// A QP that is being created ([`Pd::start_create_qp`](crate::Pd::start_create_qp)).
///
/// Its command is with the firmware, or waits for a place in the command queue. Look for the QP with
/// [`try_finish`](Creating::try_finish) while the device is [polled](crate::Device::poll), or await it: see the
/// [crate](crate#tasks).
///
/// If it is dropped before, the answer is waited for, and the QP destroyed, as when a QP is dropped.
pub type CreatingQp<'d, P, T> = Creating<'d, P, Qp<'d, P, T>>;

/// [`CreatingQp`] of a type that is a value ([`Pd::start_create_dyn_qp_by_handles`](crate::Pd::start_create_dyn_qp_by_handles)).
pub type CreatingDynQp<'d, P> = Creating<'d, P, DynQp<'d, P>>;

/// [`CreatingQp`] or [`CreatingDynQp`].
#[must_use = "dropping it waits for the firmware"]
pub struct Creating<'d, P: Platform, Q> {
    object: CreatingObject<'d, P>,
    qp: PhantomData<fn() -> Q>,
}

impl<'d, P: Platform, Q: FromDyn<'d, P>> Creating<'d, P, Q> {
    pub(crate) fn of(object: CreatingObject<'d, P>) -> Self {
        Self {
            object,
            qp: PhantomData,
        }
    }

    #[inline]
    fn step(&mut self, waker: Option<&Waker>) -> Option<Result<Q, CreateQpError>> {
        let made = self.object.try_finish(waker)?;
        Some(made.map(|object| Q::from_dyn(DynQp::of(object))))
    }

    /// The QP, or why there is none; `None` while the firmware has not answered, and once this has returned something. It
    /// waits for nothing; meanwhile the device has to be [polled](crate::Device::poll).
    pub fn try_finish(&mut self) -> Option<Result<Q, CreateQpError>> {
        self.step(None)
    }

    /// Returns `true` if the firmware has the command. If not, the command queue is full, and
    /// [`try_finish`](Self::try_finish) asks again.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        self.object.is_posted()
    }

    /// Waits for the QP, driving the device.
    pub(crate) fn wait(mut self) -> Result<Q, CreateQpError> {
        let device = self.object.device;
        device.until(|| self.try_finish())
    }
}

impl<'d, P: Platform, Q: FromDyn<'d, P>> Future for Creating<'d, P, Q> {
    type Output = Result<Q, CreateQpError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().step(Some(task.waker())) {
            Some(made) => Poll::Ready(made),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform, Q> fmt::Debug for Creating<'_, P, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatingQp")
            .field("posted", &self.object.is_posted())
            .finish_non_exhaustive()
    }
}

/// A QP that is being modified ([`Qp::modifying`]).
#[must_use = "futures do nothing unless they are awaited"]
pub struct ModifyingQp<'q, 'd, P: Platform, T: QpType> {
    qp: &'q mut Qp<'d, P, T>,
    /// Until it is started.
    asked: Option<(QpAttr, QpAttrMask)>,
    /// Since when the command queue is full.
    waiting: InFlight,
}

impl<'d, P: Platform, T: QpType> Qp<'d, P, T> {
    /// [`modify`](Self::modify) in a task. If it is dropped after its first poll, what was started goes on, and
    /// [`try_finish_modify`](Self::try_finish_modify) says how it went.
    pub fn modifying(&mut self, attr: &QpAttr, mask: QpAttrMask) -> ModifyingQp<'_, 'd, P, T> {
        ModifyingQp {
            qp: self,
            asked: Some((*attr, mask)),
            waiting: InFlight::Idle,
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
                Err(ModifyError::Command(error)) => {
                    let device = this.qp.qp.device();
                    if let Err(error) = device.defer(&mut this.waiting, error) {
                        return Poll::Ready(Err(error.into()));
                    }
                    // No event says when a slot is free again: soon.
                    task.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        match this.qp.qp.finish_modify(Some(task.waker())) {
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

/// A QP that is being destroyed ([`Qp::start_destroy`]). Look whether it is gone with [`try_finish`](Destroying::try_finish),
/// or await it: see the [crate](crate#tasks). Dropping it waits for the firmware.
pub type DestroyingQp<'d, P, T> = Destroying<'d, P, Qp<'d, P, T>>;

/// [`DestroyingQp`] of a type that is a value ([`DynQp::start_destroy`]).
pub type DestroyingDynQp<'d, P> = Destroying<'d, P, DynQp<'d, P>>;

/// [`DestroyingQp`] or [`DestroyingDynQp`].
#[must_use = "dropping it waits for the firmware"]
pub struct Destroying<'d, P: Platform, Q> {
    qp: Option<DynQp<'d, P>>,
    class: SlotClass,
    back: PhantomData<fn() -> Q>,
}

/// The result of destroying a QP, which is given back if that failed.
type Destroyed<Q> = Result<(), (Q, DestroyQpError)>;

impl<'d, P: Platform> DynQp<'d, P> {
    /// Destroys it: `ibv_destroy_qp`. Completions that were not polled yet are gone with it. Gives it back if the firmware
    /// refuses, or while it is in a multicast group.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn destroy(self) -> Result<(), (Self, DestroyQpError)> {
        let device = self.device();
        let mut destroying = Destroying::start(self, SlotClass::Ordinary)?;
        device.until(|| destroying.try_finish())
    }

    /// As [`Qp::start_destroy`].
    ///
    /// # Errors
    /// While it is in a multicast group, with the QP.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn start_destroy(self) -> Result<DestroyingDynQp<'d, P>, (Self, DestroyQpError)> {
        Destroying::start(self, SlotClass::Begun)
    }
}

impl<'d, P: Platform, T: QpType> Qp<'d, P, T> {
    /// Begins to destroy it, and waits for nothing. What is under way of a [`start_modify`](Self::start_modify) comes first.
    ///
    /// # Errors
    /// While it is in a multicast group, with the QP.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn start_destroy(self) -> Result<DestroyingQp<'d, P, T>, (Self, DestroyQpError)> {
        Destroying::start(self.into_dyn(), SlotClass::Begun)
    }
}

impl<'d, P: Platform, Q: FromDyn<'d, P>> Destroying<'d, P, Q> {
    /// Asks the firmware for it. What is begun leaves places in the command queue to other callers.
    fn start(mut qp: DynQp<'d, P>, class: SlotClass) -> Result<Self, (Q, DestroyQpError)> {
        qp.check_queues();
        if let Err(error) = qp.object.check_destroy() {
            return Err((Q::from_dyn(qp), error));
        }
        let mut destroying = Self {
            qp: Some(qp),
            class,
            back: PhantomData,
        };
        match destroying.try_finish() {
            Some(Err((kept, error))) => Err((kept, error)),
            _ => Ok(destroying),
        }
    }

    /// `true` if it is gone; `None` while the firmware has not answered. If the firmware refuses, the QP comes back. Meanwhile
    /// the device has to be [polled](crate::Device::poll).
    pub fn try_finish(&mut self) -> Option<Destroyed<Q>> {
        self.step(None)
    }

    /// Returns `true` if the firmware has the command. If not, the command queue is full, and
    /// [`try_finish`](Self::try_finish) asks again.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        let qp = self.qp.as_ref();
        qp.is_some_and(|qp| qp.object.is_posted())
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Destroyed<Q>> {
        let Some(qp) = &mut self.qp else {
            return Some(Ok(()));
        };
        match qp.object.try_destroy(self.class, waker)? {
            Ok(()) => {
                self.qp = None;
                Some(Ok(()))
            }
            Err(error) => {
                let qp = Q::from_dyn(self.qp.take()?);
                Some(Err((qp, DestroyQpError::Command(error))))
            }
        }
    }
}

impl<'d, P: Platform, Q: FromDyn<'d, P>> Future for Destroying<'d, P, Q> {
    type Output = Destroyed<Q>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().step(Some(task.waker())) {
            Some(destroyed) => Poll::Ready(destroyed),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform, Q> fmt::Debug for Destroying<'_, P, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DestroyingQp").field(&self.qp).finish()
    }
}
