//! Creating QPs in a protection domain: `ibv_create_qp`.

use crate::device::Device;
use crate::device::in_flight::SlotClass;
use crate::platform::Platform;
use crate::types::qp::QpKind;
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::create::{Codes, CreateQpArgs, CreatingObject};
use crate::verbs::qp::control::futures::CreatingQp;
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
        self.begin_qp_by_handles(SlotClass::Ordinary, init, Codes::NONE)?
            .wait()
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
        let mut handles = init.handles();
        let mut begun = self.begin_qp_by_handles(class, &mut handles, scatter);
        if let Err(CreateQpError::NoSlot { .. }) = begun {
            // Destroyed QPs may still wait until the poller of these CQs detaches them.
            init.send_cq.reap();
            init.recv_cq.reap();
            begun = self.begin_qp_by_handles(class, &mut handles, scatter);
        }
        init.cap = handles.cap;
        begun
    }

    /// [`start_create_qp`](Self::start_create_qp) on CQs and an SRQ that another caller owns.
    pub fn start_create_qp_by_handles<T: QpType>(
        &self,
        init: &mut QpInitHandles<'d, P>,
    ) -> Result<CreatingQp<'d, P, T>, CreateQpError> {
        self.begin_qp_by_handles(SlotClass::Begun, init, Codes::NONE)
    }

    fn begin_qp_by_handles<T: QpType>(
        &self,
        class: SlotClass,
        init: &mut QpInitHandles<'d, P>,
        scatter: Codes,
    ) -> Result<CreatingQp<'d, P, T>, CreateQpError> {
        const {
            assert!(
                !matches!(T::KIND, QpKind::XrcRecv),
                "an XRC target is made in its domain: `Xrcd::create_qp`"
            );
            assert!(
                !T::PACKET,
                "a raw packet QP is made in its domain: `EthernetDomain::create_raw_packet_qp`"
            );
        }
        let args = CreateQpArgs {
            kind: T::KIND,
            device: self.device,
            pdn: Some(self.pdn()),
            xrcdn: None,
            send_cq: Some(&init.send_cq),
            recv_cq: Some(&init.recv_cq).filter(|_| !T::XRC),
            srq: init.srq.as_ref(),
            cap: &mut init.cap,
            sq_sig_all: init.sq_sig_all,
            scatter,
        };
        CreatingObject::start(class, args).map(CreatingQp::of)
    }
}
