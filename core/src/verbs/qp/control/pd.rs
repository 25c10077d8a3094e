//! Creating QPs in a protection domain: `ibv_create_qp`.

use crate::device::Device;
use crate::device::in_flight::SlotClass;
use crate::platform::Platform;
use crate::types::qp::QpKind;
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::create::{Codes, CreateQpArgs, CreatingObject};
use crate::verbs::qp::control::dyn_qp::DynQp;
use crate::verbs::qp::control::futures::{Creating, CreatingDynQp, CreatingQp};
use crate::verbs::qp::control::init_attr::{CreateQpError, QpInitAttr, QpInitHandles};
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::queue::sizes::QueueLimits;
use crate::verbs::qp::route::service::QpType;

impl<'d, P: Platform> Device<'d, P> {
    /// The device's limits on queues, for [`queue_sizes`](crate::verbs::qp::queue::sizes::queue_sizes).
    #[must_use]
    pub fn queue_limits(&self) -> QueueLimits {
        let caps = &self.capabilities().hca;
        QueueLimits::new(
            caps.max_wqe_sz_sq(),
            caps.max_wqe_sz_rq(),
            caps.log_max_qp_sz(),
        )
    }
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates a QP in state RESET: `ibv_create_qp`. `init.cap` is updated to what was given, which is at least what
    /// was asked for. (An XRC target is made by [`Xrcd::create_qp`](crate::verbs::xrc::Xrcd::create_qp), and does not compile here.)
    pub fn create_qp<T: QpType>(
        &self,
        init: &mut QpInitAttr<'_, 'd, P>,
    ) -> Result<Qp<'d, P, T>, CreateQpError> {
        self.begin_qp(SlotClass::Ordinary, init, Codes::NONE)?
            .wait()
    }

    /// The same on CQs and an SRQ that another caller owns. (If all slots are in use, that of a destroyed QP may become
    /// free once its CQs are polled.)
    pub fn create_qp_by_handles<T: QpType>(
        &self,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<Qp<'d, P, T>, CreateQpError> {
        const { assert_made_in_pd::<T>() }
        self.create_dyn_qp_by_handles(T::KIND, init).map(Qp::of)
    }

    /// Begins to create a QP, and waits for nothing: `init.cap` is updated, what comes is the QP
    /// ([`CreatingQp::try_finish`]), and in a task it is awaited.
    pub fn start_create_qp<T: QpType>(
        &self,
        init: &mut QpInitAttr<'_, 'd, P>,
    ) -> Result<CreatingQp<'d, P, T>, CreateQpError> {
        self.begin_qp(SlotClass::Begun, init, Codes::NONE)
    }

    pub(crate) fn begin_qp<T: QpType>(
        &self,
        class: SlotClass,
        init: &mut QpInitAttr<'_, 'd, P>,
        scatter: Codes,
    ) -> Result<CreatingQp<'d, P, T>, CreateQpError> {
        const { assert_made_in_pd::<T>() }
        let mut handles = init.handles();
        let mut begun = self.begin_object(T::KIND, class, &mut handles, scatter);
        if let Err(CreateQpError::NoSlot { .. }) = begun {
            // Destroyed QPs may still wait until the poller of these CQs detaches them.
            init.send_cq.reap();
            init.recv_cq.reap();
            begun = self.begin_object(T::KIND, class, &mut handles, scatter);
        }
        init.cap = handles.cap;
        begun.map(Creating::of)
    }

    /// [`start_create_qp`](Self::start_create_qp) on CQs and an SRQ that another caller owns.
    pub fn start_create_qp_by_handles<T: QpType>(
        &self,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<CreatingQp<'d, P, T>, CreateQpError> {
        const { assert_made_in_pd::<T>() }
        self.begin_object(T::KIND, SlotClass::Begun, init, Codes::NONE)
            .map(Creating::of)
    }

    /// [`create_qp_by_handles`](Self::create_qp_by_handles) of a type that is a value.
    ///
    /// # Errors
    /// [`CreateQpError::OtherCall`] of types that are created by other calls.
    pub fn create_dyn_qp_by_handles(
        &self,
        kind: QpKind,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<DynQp<'d, P>, CreateQpError> {
        check_made_in_pd(kind)?;
        let begun = self.begin_object(kind, SlotClass::Ordinary, init, Codes::NONE)?;
        Creating::of(begun).wait()
    }

    /// [`start_create_qp_by_handles`](Self::start_create_qp_by_handles) of a type that is a value.
    ///
    /// # Errors
    /// [`CreateQpError::OtherCall`] of types that are created by other calls.
    pub fn start_create_dyn_qp_by_handles(
        &self,
        kind: QpKind,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<CreatingDynQp<'d, P>, CreateQpError> {
        check_made_in_pd(kind)?;
        self.begin_object(kind, SlotClass::Begun, init, Codes::NONE)
            .map(Creating::of)
    }

    fn begin_object(
        &self,
        kind: QpKind,
        class: SlotClass,
        init: &mut QpInitHandles<'d, P>,
        scatter: Codes,
    ) -> Result<CreatingObject<'d, P>, CreateQpError> {
        let args = CreateQpArgs {
            kind,
            device: self.device,
            pdn: Some(self.pdn()),
            xrcdn: None,
            send_cq: Some(&init.send_cq),
            recv_cq: Some(&init.recv_cq).filter(|_| !kind.is_xrc()),
            srq: init.srq.as_ref(),
            cap: &mut init.cap,
            sq_sig_all: init.sq_sig_all,
            scatter,
        };
        CreatingObject::start(class, args)
    }
}

/// Refuses the types that are not created in a protection domain.
const fn check_made_in_pd(kind: QpKind) -> Result<(), CreateQpError> {
    match kind {
        QpKind::XrcRecv | QpKind::Dct | QpKind::RawPacket => Err(CreateQpError::OtherCall { kind }),
        _ => Ok(()),
    }
}

const fn assert_made_in_pd<T: QpType>() {
    assert!(
        check_made_in_pd(T::KIND).is_ok(),
        "an XRC target is made by `Xrcd::create_qp`, a raw packet QP by `EthernetDomain::create_raw_packet_qp`"
    );
}
