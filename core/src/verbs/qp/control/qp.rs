//! A QP of a type that is known when the code is compiled.

// UNSAFETY: takes a `DynQp` for a `Qp`, which is the same.
#![expect(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

use crate::platform::Platform;
use crate::verbs::qp::control::attr::{QpAttr, QueriedQp};
use crate::verbs::qp::control::destroy::DestroyQpError;
use crate::verbs::qp::control::dyn_qp::{DynQp, queue_of};
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::states::QpAttrMask;
use crate::verbs::qp::queue::recv::RecvQueue;
use crate::verbs::qp::queue::send::SendQueue;
use crate::verbs::qp::route::service::QpType;

/// A queue pair: `struct ibv_qp`. Destroyed when dropped.
///
/// # Methods, in the order of use
///
/// With libibverbs' names, where it has them.
///
/// * **What it is**:
///   [`qpn`](DynQp::qpn) (`qp->qp_num`), [`state`](DynQp::state) (`qp->state`),
///   [`query`](Self::query) (`ibv_query_qp`), [`device`](DynQp::device) (`qp->context`)
/// * **Connecting**:
///   [`endpoint`](Self::endpoint), [`connect`](Self::connect), [`bring_to_rts`](Self::bring_to_rts),
///   [`modify`](Self::modify) (`ibv_modify_qp`)
/// * **Without waiting for the firmware**:
///   [`Pd::start_create_qp`](crate::Pd::start_create_qp), [`start_modify`](Self::start_modify), [`start_destroy`](Self::start_destroy);
///   in tasks these are awaited, and [`modifying`](Self::modifying)
/// * **Data**:
///   [`send_queue`](Self::send_queue) (`ibv_post_send`), [`recv_queue`](Self::recv_queue) (`ibv_post_recv`),
///   [`split`](Self::split)
#[repr(transparent)]
pub struct Qp<'d, P: Platform, T: QpType> {
    /// Of this type.
    pub(in crate::verbs::qp) qp: DynQp<'d, P>,
    kind: PhantomData<fn() -> T>,
}

impl<'d, P: Platform, T: QpType> Qp<'d, P, T> {
    /// Takes a QP that is of this type for a QP of a known type.
    #[inline(always)]
    pub(in crate::verbs::qp) fn of(qp: DynQp<'d, P>) -> Self {
        debug_assert!(qp.kind() == T::KIND, "a QP of another type");
        let kind = PhantomData;
        Self { qp, kind }
    }

    /// The QP with its type as a value.
    #[must_use]
    pub fn into_dyn(self) -> DynQp<'d, P> {
        self.qp
    }

    /// The send half. (Swapped with another QP's it stays usable, but neither QP can be modified until it is swapped back,
    /// and the memory of one that is destroyed before stays allocated until the device is closed.)
    #[inline(always)]
    pub fn send_queue(&mut self) -> &mut SendQueue<'d, P, T> {
        queue_of(&mut self.qp.sq)
    }

    /// The receive half.
    #[inline(always)]
    pub fn recv_queue(&mut self) -> &mut RecvQueue<'d> {
        &mut self.qp.rq
    }

    /// Both halves, for two threads.
    pub fn split(&mut self) -> (&mut SendQueue<'d, P, T>, &mut RecvQueue<'d>) {
        (queue_of(&mut self.qp.sq), &mut self.qp.rq)
    }

    /// Modifies attributes and state: `ibv_modify_qp`. Without `STATE` in `mask` the state stays. (A transition that was
    /// [started](Self::start_modify) is waited for first.)
    pub fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        self.qp.modify(attr, mask)
    }

    /// Begins to modify attributes and state, and waits for nothing. Until [`try_finish_modify`](Self::try_finish_modify) says
    /// that it is over, the state is recorded as it was, and no other transition can be started.
    ///
    /// # Errors
    /// As [`modify`](Self::modify) as far as the host can see it, and [`ModifyError::UnderWay`]. With
    /// [`CommandFailure::QueueFull`](crate::CommandFailure::QueueFull) nothing was started: later.
    pub fn start_modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        self.qp.start_modify(attr, mask)
    }

    /// The result of what [`start_modify`](Self::start_modify) began; `None` while the firmware has not
    /// answered. Meanwhile the device has to be [polled](crate::Device::poll).
    pub fn try_finish_modify(&mut self) -> Option<Result<(), ModifyError>> {
        self.qp.try_finish_modify()
    }

    /// Asks the firmware for the attributes: `ibv_query_qp`. The state is recorded, too, since the device may have
    /// changed it.
    pub fn query(&mut self) -> Result<QueriedQp, ModifyError> {
        self.qp.query()
    }

    /// Destroys it: `ibv_destroy_qp`. Completions that were not polled yet are gone with it. Gives it back if the firmware
    /// refuses, or while it is in a multicast group.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn destroy(self) -> Result<(), (Self, DestroyQpError)> {
        self.qp
            .destroy()
            .map_err(|(qp, error)| (Self::of(qp), error))
    }
}

impl<'d, P: Platform, T: QpType> Deref for Qp<'d, P, T> {
    type Target = DynQp<'d, P>;

    fn deref(&self) -> &Self::Target {
        &self.qp
    }
}

impl<'d, P: Platform> DynQp<'d, P> {
    /// The QP as one of this type, for the calls that only this type has; `None` if it is of another.
    #[inline]
    pub fn as_qp_mut<T: QpType>(&mut self) -> Option<&mut Qp<'d, P, T>> {
        if self.kind() != T::KIND {
            return None;
        }
        let qp: *mut Qp<'d, P, T> = core::ptr::from_mut(self).cast();
        // SAFETY: `Qp` is `repr(transparent)` over this, and of the type that it says. The new reference borrows `self`.
        Some(unsafe { &mut *qp })
    }

    /// The QP as one of this type; it comes back if it is of another.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn into_qp<T: QpType>(self) -> Result<Qp<'d, P, T>, Self> {
        if self.kind() == T::KIND {
            Ok(Qp::of(self))
        } else {
            Err(self)
        }
    }
}

impl<P: Platform, T: QpType> fmt::Debug for Qp<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Qp").field(&self.qp).finish()
    }
}
