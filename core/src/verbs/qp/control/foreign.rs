//! A QP over rings and a doorbell record that the driver does not write: those of a program that writes work requests itself.
//!
//! The caller gives the context with which the firmware creates it; transitions, queries and destruction are those of all QPs.

use core::fmt;

use bareverbs_firmware_cmds::numbers::{Pdn, Qpn};
use bareverbs_firmware_cmds::qp::CreateQpIn;
use bareverbs_firmware_cmds::values::{PathMigration, RqType};

use crate::device::in_flight::{InFlight, SlotClass};
use crate::device::{Device, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::qp::{QpKind, QpState};
use crate::verbs::qp::control::attr::{QpAttr, QueriedQp};
use crate::verbs::qp::control::create::{Parts, release_singles};
use crate::verbs::qp::control::init_attr::CreateQpError;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::object::QpObject;
use crate::verbs::qp::control::states::QpAttrMask;

/// A QP without queues of the driver's. It cannot be posted to, and its completions are for the owner of its CQs.
pub struct ForeignQp<'d, P: Platform> {
    object: QpObject<'d, P>,
}

impl<'d, P: Platform> ForeignQp<'d, P> {
    /// Creates a QP. `command` has its context: everything but the service type and, of XRC, the numbers of objects that an end
    /// has no use for (PD, CQs, SRQ and domain where they are 0). `tail` has the pages of its rings.
    ///
    /// # Errors
    /// [`CreateQpError::NoXrc`] and [`CreateQpError::NoDc`] on devices without; [`CreateQpError::GsiTaken`], as the QP of
    /// management datagrams is the driver's; the firmware's refusal; [`CreateQpError::NoSlot`].
    pub fn create(
        device: &'d Device<'d, P>,
        kind: QpKind,
        command: &mut CreateQpIn,
        tail: TailIn<'_>,
    ) -> Result<Self, CreateQpError> {
        let caps = device.capabilities();
        if kind == QpKind::Dci && !caps.hca.dct() {
            return Err(CreateQpError::NoDc);
        }
        if kind == QpKind::Gsi {
            return Err(CreateQpError::GsiTaken);
        }
        let base = match kind {
            QpKind::XrcSend | QpKind::XrcRecv if !caps.has_xrc() || !kind.is_xrc() => {
                return Err(CreateQpError::NoXrc);
            }
            QpKind::XrcSend | QpKind::XrcRecv => Some(device.acquire_xrc_base()?),
            _ => None,
        };
        let context = command.qpc_mut();
        context
            .set_st(kind.service())
            .set_pm_state(PathMigration::Migrated.number());
        if let Some(base) = base {
            let or = |number, unused| if number == 0 { unused } else { number };
            let given = *context;
            context
                .set_pd(or(given.pd(), base.pdn))
                .set_cqn_snd(or(given.cqn_snd(), base.cqn))
                .set_cqn_rcv(or(given.cqn_rcv(), base.cqn))
                .set_xrcd(or(given.xrcd(), base.xrcdn))
                .set_rq_type(RqType::Srq.number())
                .set_srqn_rmpn_xrqn(or(given.srqn_rmpn_xrqn(), base.srqn));
        }
        let (pdn, record) = (Pdn::from_low_bits(context.pd()), context.dbr_addr());
        let cqns = [context.cqn_snd(), context.cqn_rcv()];
        let parts = Parts::foreign(device, kind, base, pdn)
            .inspect_err(|_| release_singles(device, kind))?;
        match device.execute_with(command, tail, &mut []) {
            Ok(created) => {
                let qpn = Qpn::from_low_bits(created.qpn());
                let mut object = parts.into_object(device, qpn);
                (object.record, object.cqns) = (record, cqns);
                Ok(Self { object })
            }
            Err(error) => {
                parts.discard(device, error.may_still_happen());
                release_singles(device, kind);
                Err(CreateQpError::Command(error))
            }
        }
    }

    /// Returns its number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.object.qpn
    }

    /// Returns its type.
    #[must_use]
    pub fn kind(&self) -> QpKind {
        self.object.kind
    }

    /// Returns the state of the last [`modify`](Self::modify) or [`query`](Self::query).
    #[must_use]
    pub fn state(&self) -> QpState {
        self.object.state
    }

    /// Modifies attributes and state: as [`DynQp::modify`](crate::DynQp::modify).
    ///
    /// # Errors
    /// The errors of [`DynQp::modify`](crate::DynQp::modify), without those of swapped queues.
    pub fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        let (device, object) = (self.object.device, &mut self.object);
        let mut waiting = InFlight::Idle;
        device.until(|| {
            if !object.is_modifying() {
                match object.start_modify(SlotClass::Ordinary, attr, mask) {
                    Ok(()) => {}
                    Err(ModifyError::Command(error)) => {
                        let refused = device.defer(&mut waiting, error).err()?;
                        return Some(Err(refused.into()));
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            let modified = object.finish_modify(None)?;
            Some(modified.map_err(ModifyError::Command))
        })
    }

    /// Asks the firmware for the attributes: `ibv_query_qp`. The capacities are not known here, and 0.
    ///
    /// # Errors
    /// The firmware's refusal, and a state that there is not.
    pub fn query(&mut self) -> Result<QueriedQp, ModifyError> {
        self.object.query()
    }

    /// Destroys it. After a failure it is as before, and may still use its rings.
    ///
    /// # Errors
    /// The firmware's refusal.
    pub fn destroy(&mut self) -> Result<(), CommandError> {
        let (device, object) = (self.object.device, &mut self.object);
        if object.is_gone() {
            return Ok(());
        }
        device.until(|| object.try_destroy(SlotClass::Ordinary, None))
    }
}

impl<P: Platform> fmt::Debug for ForeignQp<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignQp")
            .field("kind", &self.object.kind)
            .field("qpn", &self.object.qpn)
            .field("state", &self.object.state)
            .finish_non_exhaustive()
    }
}
