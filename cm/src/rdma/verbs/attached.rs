//! QPs of ids that belong to the application, and that the manager moves.

#[cfg(feature = "attached-qps")]
use core::fmt;

#[cfg(feature = "attached-qps")]
use bareverbs_core::Qpn;
#[cfg(feature = "attached-qps")]
use bareverbs_core::qp::{ModifyError, QpAttr, QpAttrMask, QpState};

/// A QP that belongs to the application, which posts to it and destroys it, while the manager moves it through its states as it
/// moves those that it creates (`RdmaCm::attach_qp`, with the feature `attached-qps`).
///
/// The manager calls these functions from its own calls, and none of them waits: an application that locks its QP must not wait
/// for the manager with the lock held, and a function that finds the QP locked answers later
/// ([`try_finish_modify`](Self::try_finish_modify)).
#[cfg(feature = "attached-qps")]
pub trait AttachedQp: fmt::Debug + Sync {
    /// Its number.
    fn qpn(&self) -> Qpn;

    /// Returns `true` if it receives from an SRQ.
    fn has_srq(&self) -> bool;

    /// Its state, as far as the application knows it.
    fn state(&self) -> QpState;

    /// Begins a transition: [`DynQp::start_modify`](bareverbs_core::qp::DynQp::start_modify).
    ///
    /// # Errors
    /// The errors are the same as there. With [`CommandFailure::QueueFull`](bareverbs_core::CommandFailure::QueueFull) it is begun later.
    fn start_modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError>;

    /// Returns the result of the transition once it is over:
    /// [`DynQp::try_finish_modify`](bareverbs_core::qp::DynQp::try_finish_modify).
    fn try_finish_modify(&self) -> Option<Result<(), ModifyError>>;
}

/// The handle of such a QP.
#[cfg(feature = "attached-qps")]
pub(crate) type Attached<'d> = &'d dyn AttachedQp;

/// Without the feature there is no such QP.
#[cfg(not(feature = "attached-qps"))]
pub(crate) type Attached<'d> = never::Never<'d>;

#[cfg(not(feature = "attached-qps"))]
mod never {
    use core::convert::Infallible;
    use core::marker::PhantomData;

    use bareverbs_core::Qpn;
    use bareverbs_core::qp::{ModifyError, QpAttr, QpAttrMask, QpState};

    /// A QP that does not exist.
    #[derive(Debug)]
    pub(crate) struct Never<'d>(Infallible, PhantomData<&'d ()>);

    impl Never<'_> {
        pub(crate) fn qpn(&self) -> Qpn {
            match self.0 {}
        }

        pub(crate) fn has_srq(&self) -> bool {
            match self.0 {}
        }

        pub(crate) fn state(&self) -> QpState {
            match self.0 {}
        }

        pub(crate) fn start_modify(&self, _: &QpAttr, _: QpAttrMask) -> Result<(), ModifyError> {
            match self.0 {}
        }

        pub(crate) fn try_finish_modify(&self) -> Option<Result<(), ModifyError>> {
            match self.0 {}
        }
    }
}
