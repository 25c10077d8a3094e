//! Extended reliable connections (XRC): many SRQs behind one QP.
//!
//! A process of another host that connects once, from an [`XrcSend`](crate::verbs::qp::XrcSend) QP (the initiator) to an
//! [`XrcRecv`] one (the target), reaches every XRC SRQ of the target's domain: each of its work requests names the one that
//! it is for. What it sends completes in the CQ of that SRQ, and its remote keys are those of the SRQ's protection domain;
//! the target itself has neither queues nor a CQ nor a protection domain.
//!
//! ```
//! use bareverbs_core::*;
//!
//! /// Both ends of it: what `ibv_open_xrcd`, `ibv_create_srq_ex` and `ibv_create_qp_ex` make.
//! fn ends<'d, P: Platform>(
//!     device: &'d Device<'d, P>,
//!     pd: &Pd<'d, P>,
//!     cq: &Cq<'d, P>,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let domain = device.open_xrcd()?;
//!     let mut size = SrqAttr { max_wr: 64, max_sge: 1, srq_limit: 0 };
//!     let srq = pd.create_xrc_srq(&domain, cq, &mut size)?;
//!     let target: Qp<'_, P, XrcRecv> = domain.create_qp()?;
//!
//!     let cap = QpCap { max_send_wr: 16, max_send_sge: 1, ..QpCap::default() };
//!     let mut init = QpInitAttr { send_cq: cq, recv_cq: cq, srq: None, cap, sq_sig_all: true };
//!     let mut initiator: Qp<'_, P, XrcSend> = pd.create_qp(&mut init)?;
//!     // Once the two are connected:
//!     initiator.send_queue().batch().send(1, SendFlags::SIGNALED, srq.srqn(), Inline(b"hello"))?;
//!     Ok(())
//! }
//! ```

mod base;

use core::fmt;
use core::mem::ManuallyDrop;

use bareverbs_firmware_cmds::domain::{AllocXrcdIn, DeallocXrcdIn};

use crate::device::Device;
use crate::device::in_flight::SlotClass;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::verbs::cq::Cq;
use crate::verbs::pd::Pd;
use crate::verbs::qp::{Codes, CreateQpArgs, CreatingObject};
use crate::verbs::qp::{
    CreateQpError, Creating, CreatingDynQp, CreatingQp, Qp, QpCap, QpKind, XrcRecv,
};
use crate::verbs::srq::{Srq, SrqAttr, SrqError};
use bareverbs_firmware_cmds::numbers::Xrcdn;

/// An XRC domain: `struct ibv_xrcd`. It belongs to the process; there are no files to share it by.
///
/// Deallocated when dropped. The objects made in it must be gone by then, or the firmware refuses, and the domain stays
/// until the device is closed; [`close`](Self::close) reports that.
pub struct Xrcd<'d, P: Platform> {
    pub(crate) device: &'d Device<'d, P>,
    xrcdn: Xrcdn,
    shared: bool,
}

impl<'d, P: Platform> Device<'d, P> {
    /// Allocates an XRC domain: `ibv_open_xrcd`.
    pub fn open_xrcd(&'d self) -> Result<Xrcd<'d, P>, CommandError> {
        let xrcdn = self.execute(&AllocXrcdIn::new())?.xrcd();
        Ok(Xrcd {
            device: self,
            xrcdn: Xrcdn::from_low_bits(xrcdn),
            shared: false,
        })
    }

    /// The device's default XRC domain, which all its users share; it is there as long as one of them is (librdmacm gives it
    /// to ids that are created without one).
    pub fn default_xrcd(&'d self) -> Result<Xrcd<'d, P>, CommandError> {
        let mut default = self.default_xrcd.lock();
        let xrcdn = match default.xrcdn {
            Some(xrcdn) => xrcdn,
            None => Xrcdn::from_low_bits(self.execute(&AllocXrcdIn::new())?.xrcd()),
        };
        default.xrcdn = Some(xrcdn);
        default.users += 1;
        Ok(Xrcd {
            device: self,
            xrcdn,
            shared: true,
        })
    }
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates an SRQ that XRC targets of the domain receive into: `ibv_create_srq_ex` with `IBV_SRQT_XRC`. What arrives
    /// completes in `cq`. `attr` is updated to what was given; its limit is ignored.
    ///
    /// Beside its own it takes a slot of those for QPs.
    pub fn create_xrc_srq(
        &self,
        xrcd: &Xrcd<'d, P>,
        cq: &Cq<'d, P>,
        attr: &mut SrqAttr,
    ) -> Result<Srq<'d, P>, SrqError> {
        if !core::ptr::eq(self.device, xrcd.device) || !core::ptr::eq(self.device, cq.device) {
            return Err(SrqError::OtherDevice);
        }
        self.create_srq_in(Some((xrcd.xrcdn, cq)), attr)
    }
}

impl<'d, P: Platform> Xrcd<'d, P> {
    /// Its number.
    #[must_use]
    pub fn xrcdn(&self) -> Xrcdn {
        self.xrcdn
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &'d Device<'d, P> {
        self.device
    }

    /// Creates a target in state RESET: `ibv_create_qp_ex` with `IBV_QPT_XRC_RECV`.
    pub fn create_qp(&self) -> Result<Qp<'d, P, XrcRecv>, CreateQpError> {
        Creating::of(self.begin_qp(SlotClass::Ordinary)?).wait()
    }

    /// Begins to create a target, as [`Pd::start_create_qp`] does other QPs.
    pub fn start_create_qp(&self) -> Result<CreatingQp<'d, P, XrcRecv>, CreateQpError> {
        self.begin_qp(SlotClass::Begun).map(Creating::of)
    }

    /// Begins to create one whose type is a value, and waits for nothing.
    pub fn start_create_dyn_qp(&self) -> Result<CreatingDynQp<'d, P>, CreateQpError> {
        self.begin_qp(SlotClass::Begun).map(Creating::of)
    }

    fn begin_qp(&self, class: SlotClass) -> Result<CreatingObject<'d, P>, CreateQpError> {
        let mut cap = QpCap::default();
        let args = CreateQpArgs {
            kind: QpKind::XrcRecv,
            device: self.device,
            pdn: None,
            xrcdn: Some(self.xrcdn),
            send_cq: None,
            recv_cq: None,
            srq: None,
            cap: &mut cap,
            sq_sig_all: false,
            scatter: Codes::NONE,
        };
        CreatingObject::start(class, args)
    }

    /// Deallocates it: `ibv_close_xrcd`. Gives it back if the firmware refuses, as it does while it is in use.
    pub fn close(self) -> Result<(), (Self, CommandError)> {
        let this = ManuallyDrop::new(self);
        match this.release() {
            Ok(()) => Ok(()),
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }

    fn release(&self) -> Result<(), CommandError> {
        let mut command = DeallocXrcdIn::new();
        command.set_xrcd(self.xrcdn.number());
        if !self.shared {
            return self.device.execute_no_output(&command);
        }
        let mut default = self.device.default_xrcd.lock();
        if default.users == 1 {
            self.device.execute_no_output(&command)?;
            default.xrcdn = None;
        }
        default.users = default.users.saturating_sub(1);
        Ok(())
    }
}

impl<P: Platform> Drop for Xrcd<'_, P> {
    fn drop(&mut self) {
        // Without XRC there is none.
        if cfg!(feature = "xrc")
            && let Err(error) = self.release()
        {
            log::warn!("{} stays allocated: {error}", self.xrcdn);
            if self.shared {
                // The next user starts afresh; this number is lost until the reset.
                let mut default = self.device.default_xrcd.lock();
                default.xrcdn = None;
                default.users = default.users.saturating_sub(1);
            }
        }
    }
}

impl<P: Platform> fmt::Debug for Xrcd<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Xrcd").field(&self.xrcdn).finish()
    }
}
