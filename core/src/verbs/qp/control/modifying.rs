//! A transition in a task.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::platform::Platform;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::control::states::QpAttrMask;
use crate::verbs::qp::route::service::QpType;

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
