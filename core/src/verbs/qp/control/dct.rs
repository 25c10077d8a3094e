//! Targets of dynamic connections: `mlx5dv_create_qp` with `MLX5DV_DCTYPE_DCT`.
//!
//! A target receives from any number of initiators into an SRQ, and lets in who knows its access key. It has no queue of its
//! own and one state: it takes requests until it is destroyed.

use core::fmt;
use core::mem::ManuallyDrop;

use crate::device::Device;
use crate::memory::slots::{DRAINED, TARGET};
use crate::platform::Platform;
use crate::types::ah::{self, AhAttr, AhError};
use crate::types::error::{CommandError, CommandFailure, Millis};
use crate::types::gid::RoceVersion;
use crate::types::port::Mtu;
use crate::types::qp::QpKind;
use crate::types::sge::Access;
use crate::verbs::cq::Cq;
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::create::{Codes, CreateQpArgs, Parts};
use crate::verbs::qp::control::init_attr::CreateQpError;
use crate::verbs::qp::control::object::QpObject;
use crate::verbs::qp::queue::sizes::QpCap;
use crate::verbs::srq::Srq;
use bareverbs_firmware_cmds::dct::{ArmDctIn, CreateDctIn, DestroyDctIn, DrainDctIn, QueryDctIn};
use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::values::{AtomicMode, DctState};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// The attributes of a new target: those of `mlx5dv_create_qp` and of the transitions to INIT and RTR.
#[derive(Debug)]
pub struct DctInitAttr<'a, 'd, P: Platform> {
    /// The CQ for what arrives.
    pub cq: &'a Cq<'d, P>,
    /// SRQ that it receives into.
    pub srq: &'a Srq<'d, P>,
    /// Key that initiators have to name.
    pub access_key: u64,
    /// Rights of initiators.
    pub access: Access,
    /// Largest packets; those of initiators have to be the same.
    pub path_mtu: Mtu,
    /// Index of the GID table entry that it is reached by.
    pub sgid_index: u8,
    /// Hop limit of its answers.
    pub hop_limit: u8,
    /// Traffic class of its answers.
    pub traffic_class: u8,
    /// Flow label of its answers, 20 bits.
    pub flow_label: u32,
    /// Service level of its answers on Ethernet, where the low three bits are the priority. On InfiniBand they go back at that
    /// of the requests.
    pub sl: u8,
    /// Time that initiators wait while the SRQ is empty: the code of IBTA vol. 1, table 45.
    pub min_rnr_timer: u8,
    /// Index into the P_Key table.
    pub pkey_index: u16,
}

/// Why a target was not created, or not destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DctError {
    /// An error that the creation of a QP can have, too: another device's objects, no slot, no memory, no capability.
    Create(CreateQpError),
    /// The address cannot be used.
    Path(AhError),
    /// Atomics do not work on dynamic connections of this device.
    NoAtomics,
    /// The RNR timer is no code: it has five bits.
    RnrTimer(u8),
    /// It has not drained in time.
    NotDrained {
        /// Time that the driver waited for it.
        waited: Millis,
    },
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for DctError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(error) => error.fmt(f),
            Self::Path(error) => error.fmt(f),
            Self::NoAtomics => f.write_str("the device has no atomics on dynamic connections"),
            Self::RnrTimer(code) => write!(f, "min_rnr_timer = {code}, up to 31 is possible"),
            Self::NotDrained { waited } => {
                write!(f, "the target has not drained in {} ms", waited.0)
            }
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DctError {}

impl From<CreateQpError> for DctError {
    fn from(error: CreateQpError) -> Self {
        Self::Create(error)
    }
}

/// A target of dynamic connections. Destroyed when dropped.
pub struct Dct<'d, P: Platform> {
    /// Its entry for pollers: a QP without queues. It is never destroyed as one.
    object: ManuallyDrop<QpObject<'d, P>>,
    access_key: u64,
    /// It was told to drain.
    draining: bool,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates a target, which takes requests at once: `mlx5dv_create_qp` with `MLX5DV_DCTYPE_DCT`, and `ibv_modify_qp` to
    /// INIT and RTR, where Linux creates it.
    pub fn create_dct(&self, init: &DctInitAttr<'_, 'd, P>) -> Result<Dct<'d, P>, DctError> {
        self.create_dct_as(init, 0)
    }

    /// The same with this `cs_res`.
    pub(in crate::verbs::qp) fn create_dct_as(
        &self,
        init: &DctInitAttr<'_, 'd, P>,
        cs_res: u8,
    ) -> Result<Dct<'d, P>, DctError> {
        let sgid = Some(init.sgid_index.into());
        self.device.hold_gid(sgid);
        match self.create_dct_holding(init, cs_res) {
            Ok(mut dct) => {
                dct.object.sgid = sgid;
                Ok(dct)
            }
            Err(error) => {
                // After a command without an answer there may be a target.
                if !matches!(error, DctError::Command(error) if error.may_still_happen()) {
                    self.device.release_gid(sgid);
                }
                Err(error)
            }
        }
    }

    /// Creates the target once its entry of the GID table is reserved.
    fn create_dct_holding(
        &self,
        init: &DctInitAttr<'_, 'd, P>,
        cs_res: u8,
    ) -> Result<Dct<'d, P>, DctError> {
        let device = self.device;
        let mut cap = QpCap::default();
        let (cq, srq) = (init.cq.handle(), init.srq.handle());
        let args = CreateQpArgs {
            kind: QpKind::Dct,
            device,
            pdn: Some(self.pdn()),
            xrcdn: None,
            send_cq: None,
            recv_cq: Some(&cq),
            srq: Some(&srq),
            cap: &mut cap,
            sq_sig_all: false,
            scatter: Codes::NONE,
        };
        args.check()?;
        if init.min_rnr_timer > 31 {
            return Err(DctError::RnrTimer(init.min_rnr_timer));
        }
        let atomics = init.access.contains(Access::REMOTE_ATOMIC);
        if atomics && !device.capabilities().has_dc_atomics() {
            return Err(DctError::NoAtomics);
        }
        let encapsulation = device
            .encapsulation(init.sgid_index.into())
            .map_err(DctError::Path)?;
        let path = AhAttr {
            flow_label: init.flow_label,
            sl: init.sl,
            ..AhAttr::NONE
        };
        ah::check(&path, false).map_err(DctError::Path)?;
        let parts = Parts::new(args, None)?;
        if let Some(slot) = device.tables.qps.get(parts.index() as usize) {
            slot.flags.fetch_or(TARGET, Relaxed);
        }
        let mut command = CreateDctIn::new();
        let context = command.dct_context_entry_mut();
        context
            .set_pd(self.pdn().number())
            .set_cqn(cq.cqn.number())
            .set_srqn_xrqn(srq.srqn().number())
            .set_user_index(parts.index())
            .set_counter_set_id(device.queue_counter_set())
            .set_dc_access_key(init.access_key)
            .set_cs_res(cs_res)
            .set_rre(init.access.contains(Access::REMOTE_READ))
            .set_rwe(init.access.contains(Access::REMOTE_WRITE))
            .set_rae(atomics)
            .set_min_rnr_nak(init.min_rnr_timer)
            .set_mtu(init.path_mtu.number())
            .set_port(1)
            .set_pkey_index(init.pkey_index)
            .set_my_addr_index(init.sgid_index)
            .set_hop_limit(init.hop_limit)
            .set_tclass(init.traffic_class)
            .set_flow_label(init.flow_label);
        if let Some(version) = encapsulation {
            context.set_eth_prio(init.sl & 7);
            if version == RoceVersion::V2 {
                // Old firmware takes the traffic class, and new firmware this field.
                context.set_dscp(init.traffic_class >> 2);
            }
        }
        if atomics {
            context.set_atomic_mode(AtomicMode::IbSpec.number());
        }
        match device.execute(&command) {
            Ok(answer) => {
                let object = parts.into_object(device, Qpn::from_low_bits(answer.dctn()));
                Ok(Dct {
                    object: ManuallyDrop::new(object),
                    access_key: init.access_key,
                    draining: false,
                })
            }
            Err(error) => {
                parts.discard(device, error.may_still_happen());
                Err(DctError::Command(error))
            }
        }
    }
}

impl<'d, P: Platform> Dct<'d, P> {
    /// Its number.
    #[must_use]
    pub fn dctn(&self) -> Qpn {
        self.object.qpn
    }

    /// The key that initiators have to name.
    #[must_use]
    pub fn access_key(&self) -> u64 {
        self.access_key
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &'d Device<'d, P> {
        self.object.device
    }

    /// Asks the firmware for its state, and for how many requests had a wrong access key.
    pub fn query(&self) -> Result<(Option<DctState>, u32), CommandError> {
        let mut query = QueryDctIn::new();
        query.set_dctn(self.dctn().number());
        let answer = self.device().execute(&query)?;
        let context = answer.dct_context_entry();
        Ok((
            DctState::from_number(context.state()),
            context.dc_access_key_violation_count(),
        ))
    }

    /// Lets the next request with a wrong access key be reported, once
    /// ([`DctKeyViolation`](crate::AsyncEvent::DctKeyViolation)). [`query`](Self::query) counts them in any case. Neither
    /// Linux nor libibverbs has it.
    pub fn arm_key_violation(&self) -> Result<(), CommandError> {
        let mut arm = ArmDctIn::new();
        arm.set_dct_number(self.dctn().number());
        self.device().execute_no_output(&arm)
    }

    /// Destroys it: `ibv_destroy_qp`. It is drained first; who still sends to it runs into its retry limit. Completions that
    /// were not polled yet are gone with it. Gives it back if the firmware refuses.
    #[expect(clippy::result_large_err, reason = "the error gives the object back")]
    pub fn destroy(self) -> Result<(), (Self, DctError)> {
        let mut this = ManuallyDrop::new(self);
        match this.drain_and_destroy() {
            Ok(()) => {
                this.object.release(true);
                Ok(())
            }
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }

    fn drain_and_destroy(&mut self) -> Result<(), DctError> {
        let device = self.device();
        let number = self.dctn().number();
        // A drain that was begun before cannot be begun again.
        if !self.draining {
            let drain = device.execute_no_output(DrainDctIn::new().set_dctn(number));
            self.draining = drain.map_or_else(|error| error.may_still_happen(), |()| true);
            drain.map_err(DctError::Command)?;
        }
        let begun = device.platform().now();
        device.until(|| {
            // Linux's driver waits for the event only, and never asks by QUERY_DCT. Here the state counts as well.
            let flags = self.object.slot.flags.load(Acquire);
            match self.query() {
                _ if flags & DRAINED != 0 => return Some(Ok(())),
                Ok((Some(DctState::Drained), _)) => return Some(Ok(())),
                Ok(_) => {}
                Err(error) if matches!(error.failure, CommandFailure::Status { .. }) => {}
                Err(error) => return Some(Err(DctError::Command(error))),
            }
            let waited = device.platform().now().saturating_sub(begun);
            (waited >= device.config().command_timeout).then(|| {
                let waited = waited.into();
                Err(DctError::NotDrained { waited })
            })
        })?;
        device
            .execute_no_output(DestroyDctIn::new().set_dctn(number))
            .map_err(DctError::Command)
    }
}

impl<P: Platform> Drop for Dct<'_, P> {
    fn drop(&mut self) {
        let destroyed = self.drain_and_destroy();
        if let Err(error) = &destroyed {
            log::warn!("DCT {} stays with the device: {error}", self.dctn());
        }
        self.object.release(destroyed.is_ok());
    }
}

impl<P: Platform> fmt::Debug for Dct<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dct").field(&self.dctn()).finish()
    }
}
