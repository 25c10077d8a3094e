//! QPs of all types while they are created and destroyed. An id's decides which ([`IdQp`]).

use bareverbs_core::Platform;
use bareverbs_core::pd::Pd;
#[cfg(feature = "uc")]
use bareverbs_core::qp::Uc;
#[cfg(feature = "datagrams")]
use bareverbs_core::qp::Ud;
use bareverbs_core::qp::{
    CreateQpError, CreatingQp, DestroyingQp, Qp, QpInitHandles, QpKind, QpType, Rc,
};
#[cfg(feature = "xrc")]
use bareverbs_core::{
    qp::{XrcRecv, XrcSend},
    xrc::Xrcd,
};

use crate::rdma::verbs::objects::IdQp;

/// One that is being created.
#[derive(Debug)]
pub(crate) enum CreatingIdQp<'d, P: Platform> {
    Rc(CreatingQp<'d, P, Rc>),
    #[cfg(feature = "uc")]
    Uc(CreatingQp<'d, P, Uc>),
    #[cfg(feature = "datagrams")]
    Ud(CreatingQp<'d, P, Ud>),
    #[cfg(feature = "xrc")]
    XrcSend(CreatingQp<'d, P, XrcSend>),
    #[cfg(feature = "xrc")]
    XrcRecv(CreatingQp<'d, P, XrcRecv>),
}

impl<'d, P: Platform> CreatingIdQp<'d, P> {
    /// Begins to create one of this type, or of RC where the build has no other.
    pub(crate) fn start(
        kind: QpKind,
        pd: &Pd<'d, P>,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<Self, CreateQpError> {
        Ok(match kind {
            #[cfg(feature = "uc")]
            QpKind::Uc => Self::Uc(pd.start_create_qp_by_handles(init)?),
            #[cfg(feature = "datagrams")]
            QpKind::Ud => Self::Ud(pd.start_create_qp_by_handles(init)?),
            #[cfg(feature = "xrc")]
            QpKind::XrcSend => Self::XrcSend(pd.start_create_qp_by_handles(init)?),
            _ => Self::Rc(pd.start_create_qp_by_handles(init)?),
        })
    }

    /// Begins to create an XRC target.
    #[cfg(feature = "xrc")]
    pub(crate) fn start_target(xrcd: &Xrcd<'d, P>) -> Result<Self, CreateQpError> {
        xrcd.start_create_qp().map(Self::XrcRecv)
    }

    /// The QP once it is there.
    pub(crate) fn try_finish(&mut self) -> Option<Result<IdQp<'d, P>, CreateQpError>> {
        Some(match self {
            Self::Rc(qp) => qp.try_finish()?.map(IdQp::Rc),
            #[cfg(feature = "uc")]
            Self::Uc(qp) => qp.try_finish()?.map(IdQp::Uc),
            #[cfg(feature = "datagrams")]
            Self::Ud(qp) => qp.try_finish()?.map(IdQp::Ud),
            #[cfg(feature = "xrc")]
            Self::XrcSend(qp) => qp.try_finish()?.map(IdQp::XrcSend),
            #[cfg(feature = "xrc")]
            Self::XrcRecv(qp) => qp.try_finish()?.map(IdQp::XrcRecv),
        })
    }

    /// Returns `true` if the firmware has its command.
    pub(crate) fn is_posted(&self) -> bool {
        match self {
            Self::Rc(qp) => qp.is_posted(),
            #[cfg(feature = "uc")]
            Self::Uc(qp) => qp.is_posted(),
            #[cfg(feature = "datagrams")]
            Self::Ud(qp) => qp.is_posted(),
            #[cfg(feature = "xrc")]
            Self::XrcSend(qp) => qp.is_posted(),
            #[cfg(feature = "xrc")]
            Self::XrcRecv(qp) => qp.is_posted(),
        }
    }
}

/// One that is being destroyed.
#[derive(Debug)]
pub(crate) enum DestroyingIdQp<'d, P: Platform> {
    Rc(DestroyingQp<'d, P, Rc>),
    #[cfg(feature = "uc")]
    Uc(DestroyingQp<'d, P, Uc>),
    #[cfg(feature = "datagrams")]
    Ud(DestroyingQp<'d, P, Ud>),
    #[cfg(feature = "xrc")]
    XrcSend(DestroyingQp<'d, P, XrcSend>),
    #[cfg(feature = "xrc")]
    XrcRecv(DestroyingQp<'d, P, XrcRecv>),
}

impl<'d, P: Platform> DestroyingIdQp<'d, P> {
    /// Begins to destroy one; `None` if that failed, and it was waited for.
    pub(crate) fn start(qp: IdQp<'d, P>) -> Option<Self> {
        match qp {
            IdQp::Rc(qp) => begin(qp).map(Self::Rc),
            #[cfg(feature = "uc")]
            IdQp::Uc(qp) => begin(qp).map(Self::Uc),
            #[cfg(feature = "datagrams")]
            IdQp::Ud(qp) => begin(qp).map(Self::Ud),
            #[cfg(feature = "xrc")]
            IdQp::XrcSend(qp) => begin(qp).map(Self::XrcSend),
            #[cfg(feature = "xrc")]
            IdQp::XrcRecv(qp) => begin(qp).map(Self::XrcRecv),
            #[cfg(not(all(feature = "datagrams", feature = "uc", feature = "xrc")))]
            other => {
                drop(other);
                None
            }
        }
    }

    /// Whether it is gone. What the firmware refuses is tried once more, dropped, and says so.
    pub(crate) fn try_finish(&mut self) -> Option<()> {
        match self {
            Self::Rc(qp) => drop(qp.try_finish()?),
            #[cfg(feature = "uc")]
            Self::Uc(qp) => drop(qp.try_finish()?),
            #[cfg(feature = "datagrams")]
            Self::Ud(qp) => drop(qp.try_finish()?),
            #[cfg(feature = "xrc")]
            Self::XrcSend(qp) => drop(qp.try_finish()?),
            #[cfg(feature = "xrc")]
            Self::XrcRecv(qp) => drop(qp.try_finish()?),
        }
        Some(())
    }

    /// Returns `true` if the firmware has its command.
    pub(crate) fn is_posted(&self) -> bool {
        match self {
            Self::Rc(qp) => qp.is_posted(),
            #[cfg(feature = "uc")]
            Self::Uc(qp) => qp.is_posted(),
            #[cfg(feature = "datagrams")]
            Self::Ud(qp) => qp.is_posted(),
            #[cfg(feature = "xrc")]
            Self::XrcSend(qp) => qp.is_posted(),
            #[cfg(feature = "xrc")]
            Self::XrcRecv(qp) => qp.is_posted(),
        }
    }
}

fn begin<'d, P: Platform, T: QpType>(qp: Qp<'d, P, T>) -> Option<DestroyingQp<'d, P, T>> {
    qp.start_destroy().ok()
}
