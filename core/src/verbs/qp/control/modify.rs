//! Modifying a QP: checks of the attributes, the commands of a transition, and what is recorded after it.
//!
//! Each transition command carries a fresh context in which only what the caller gave is set, beside the few fields that
//! every transition repeats. Optional attributes count only with their bit in `opt_param_mask`, and each transition
//! takes a certain set of bits.

use core::fmt;
use core::task::Waker;

use bareverbs_firmware_cmds::command::{Command, EmptyOut};
use bareverbs_firmware_cmds::qp::{Qp2ErrIn, Qp2RstIn, Rst2initQpIn};
use zerocopy::IntoBytes;

use crate::device::TailIn;
use crate::device::in_flight::{InFlight, SlotClass};
use crate::memory::slots::{DEAD, error_flags};
use crate::platform::Platform;
use crate::types::ah::AhError;
use crate::types::error::{CommandError, CommandFailure, Millis};
use crate::types::qp::{QpKind, QpState};
use crate::types::sge::Access;
use crate::verbs::cq::deferred_destroy;
use crate::verbs::qp::control::attr::{QpAttr, QueriedQp};
use crate::verbs::qp::control::dyn_qp::DynQp;
use crate::verbs::qp::control::object::{QpObject, Transit, UnderWay};
use crate::verbs::qp::control::states::{self, QpAttrMask, TransitionError};
use crate::verbs::qp::control::transition_commands::{
    given_bits, optional_bits, transition_command,
};
use crate::verbs::qp::queue::block::BlockLayout;

/// Why a QP was not modified. Its state is as before, unless a command went unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModifyError {
    /// The attributes do not make this transition.
    Transition(TransitionError),
    /// The caller believed the QP to be in another state (`CUR_STATE`).
    CurrentState {
        /// State that the caller named.
        said: QpState,
        /// State that the QP is in.
        is: QpState,
    },
    /// An attribute is out of range.
    Value {
        /// The attribute.
        attribute: QpAttrMask,
        /// Its value.
        value: u32,
        /// The largest (or only) possible value.
        limit: u32,
    },
    /// The path cannot be used.
    Path(AhError),
    /// The device (or this driver) does not have this attribute.
    Unsupported {
        /// The attribute.
        attribute: QpAttrMask,
    },
    /// The verbs have this transition, the device's command set does not (into SQD, and inside it).
    NoCommand {
        /// Current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// One of the queues was swapped with another QP's (`mem::swap`), which may use it meanwhile.
    QueuesSwapped,
    /// A transition is under way ([`DynQp::start_modify`]).
    UnderWay,
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transition(error) => error.fmt(f),
            Self::CurrentState { said, is } => write!(f, "the QP is in {is}, not in {said}"),
            Self::Value {
                attribute,
                value,
                limit,
            } => write!(f, "{attribute} = {value}, up to {limit} is possible"),
            Self::Path(error) => error.fmt(f),
            Self::Unsupported { attribute } => write!(f, "the device does not have {attribute}"),
            Self::NoCommand { from, to } => {
                write!(f, "the device has no command for {from} to {to}")
            }
            Self::QueuesSwapped => f.write_str("a queue was swapped with another QP's"),
            Self::UnderWay => f.write_str("a transition of the QP is under way"),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ModifyError {}

impl From<CommandError> for ModifyError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl<P: Platform> DynQp<'_, P> {
    /// Modifies attributes and state: `ibv_modify_qp`. Without `STATE` in `mask` the state stays. (A transition that was
    /// [started](Self::start_modify) is waited for first.)
    pub fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        let device = self.device();
        if self.object.is_modifying() {
            // Its outcome shows in the state.
            let _ = device.until(|| self.try_finish_modify());
        }
        let mut waiting = InFlight::Idle;
        device.until(|| {
            if !self.object.is_modifying() {
                match self.begin_modify(SlotClass::Ordinary, attr, mask) {
                    Ok(()) => {}
                    Err(ModifyError::Command(error)) => {
                        let refused = device.defer(&mut waiting, error).err()?;
                        return Some(Err(refused.into()));
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            self.try_finish_modify()
        })
    }

    /// Begins to modify attributes and state, and waits for nothing. Until [`try_finish_modify`](Self::try_finish_modify) says
    /// that it is over, the state is recorded as it was, and no other transition can be started.
    ///
    /// # Errors
    /// As [`modify`](Self::modify) as far as the host can see it, and [`ModifyError::UnderWay`]. With
    /// [`CommandFailure::QueueFull`] nothing was started: later.
    pub fn start_modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        self.begin_modify(SlotClass::Begun, attr, mask)
    }

    fn begin_modify(
        &mut self,
        class: SlotClass,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        self.check_queues();
        // RESET clears memory of the queues, which this QP does not have then.
        if self.object.queues_swapped {
            return Err(ModifyError::QueuesSwapped);
        }
        self.object.start_modify(class, attr, mask)
    }

    /// Returns the result of [`start_modify`](Self::start_modify), once it is over; `None` while the firmware has not
    /// answered. Meanwhile the device has to be [polled](crate::Device::poll).
    pub fn try_finish_modify(&mut self) -> Option<Result<(), ModifyError>> {
        self.finish_modify(None)
    }

    /// The same, for a task.
    pub(in crate::verbs::qp) fn finish_modify(
        &mut self,
        waker: Option<&Waker>,
    ) -> Option<Result<(), ModifyError>> {
        if !self.object.is_modifying() {
            return Some(Ok(()));
        }
        self.check_queues();
        if self.object.queues_swapped {
            // It can be finished once they are swapped back.
            return Some(Err(ModifyError::QueuesSwapped));
        }
        let modified = self.object.finish_modify(waker)?;
        if modified.is_ok() && self.object.state == QpState::Reset {
            (self.sq.cursor, self.sq.head) = (self.sq.cursor.start(), 0);
            self.rq.head = 0;
        }
        self.update_queues();
        Some(modified.map_err(ModifyError::Command))
    }

    /// Asks the firmware for the attributes: `ibv_query_qp`. The state is recorded, too, since the device may have
    /// changed it.
    pub fn query(&mut self) -> Result<QueriedQp, ModifyError> {
        let queried = self.object.query();
        self.check_queues();
        if !self.object.queues_swapped {
            self.update_queues();
        }
        queried
    }

    /// Opens the queues that the state allows to be posted to, and closes the others.
    fn update_queues(&mut self) {
        let cap = self.object.sizes.cap;
        let state = self.object.state;
        let receives = state != QpState::Reset;
        // In ERR posting is allowed; what is posted is flushed.
        let sends = !matches!(state, QpState::Reset | QpState::Init | QpState::Rtr);
        self.rq
            .set_capacity(if receives { cap.max_recv_wr } else { 0 });
        self.sq
            .set_capacity(if sends { cap.max_send_wr as u16 } else { 0 });
    }
}

impl<P: Platform> QpObject<'_, P> {
    pub(in crate::verbs::qp) fn start_modify(
        &mut self,
        class: SlotClass,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        if !matches!(self.under_way, UnderWay::None) {
            return Err(ModifyError::UnderWay);
        }
        let mut from = self.state;
        if mask.contains(QpAttrMask::CUR_STATE) {
            // The device moves a QP to SQE by itself, and the caller may have seen it in a completion.
            let plausible = attr.cur_qp_state == from
                || (from, attr.cur_qp_state) == (QpState::Rts, QpState::Sqe);
            if !plausible {
                return Err(ModifyError::CurrentState {
                    said: attr.cur_qp_state,
                    is: from,
                });
            }
            from = attr.cur_qp_state;
        }
        let to = if mask.contains(QpAttrMask::STATE) {
            attr.qp_state
        } else {
            from
        };
        states::check(self.kind, from, to, mask).map_err(ModifyError::Transition)?;
        self.check_values(attr, mask)?;
        let sgid = (mask.contains(QpAttrMask::AV) && !attr.ah_attr.force_loopback)
            .then_some(attr.ah_attr.sgid_index);
        self.device.hold_gid(sgid);
        let posted = self.post_transition(class, attr, mask, (from, to), sgid);
        let transit = posted.inspect_err(|_| self.device.release_gid(sgid))?;
        self.under_way = UnderWay::Modify(transit);
        Ok(())
    }

    /// Posts the command of a transition whose attributes were checked.
    fn post_transition(
        &self,
        class: SlotClass,
        attr: &QpAttr,
        mask: QpAttrMask,
        (from, to): (QpState, QpState),
        sgid: Option<u16>,
    ) -> Result<Transit, ModifyError> {
        let mut transit = Transit {
            flight: InFlight::Idle,
            to,
            port: self.port,
            access: self.access,
            responder_depth: self.responder_depth,
            sgid,
        };
        let qpn = self.qpn.number();
        let flight = &mut transit.flight;
        match to {
            QpState::Reset => {
                let mut command = Qp2RstIn::new();
                command.set_qpn(qpn);
                self.device.begin_no_output(flight, class, &command)?;
            }
            QpState::Err => {
                let mut command = Qp2ErrIn::new();
                command.set_qpn(qpn);
                self.device.begin_no_output(flight, class, &command)?;
            }
            _ => {
                let mut command = Rst2initQpIn::new();
                self.describe(command.qpc_mut(), attr, mask, from)?;
                let Some(opcode) = transition_command(from, to) else {
                    return Err(ModifyError::NoCommand { from, to });
                };
                let optional = given_bits(mask) & optional_bits(self.kind, from, to);
                command
                    .set_opcode(opcode.number())
                    .set_qpn(qpn)
                    .set_opt_param_mask(optional.bits());
                let fixed = command.as_bytes();
                let device = self.device;
                device.begin(flight, class, opcode, fixed, TailIn::None, EmptyOut::SIZE)?;
                if mask.contains(QpAttrMask::PORT) {
                    transit.port = attr.port_num;
                }
                if mask.contains(QpAttrMask::ACCESS_FLAGS) {
                    transit.access = attr.qp_access_flags;
                }
                if mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC) {
                    transit.responder_depth = attr.max_dest_rd_atomic;
                }
            }
        }
        if !transit.flight.is_posted() {
            // Who wants it knows the attributes, and asks again.
            return Err(ModifyError::Command(CommandError {
                opcode: match to {
                    QpState::Reset => Qp2RstIn::OPCODE,
                    _ => transition_command(from, to).unwrap_or(Qp2ErrIn::OPCODE),
                },
                op_mod: 0,
                failure: CommandFailure::QueueFull { waited: Millis(0) },
            }));
        }
        Ok(transit)
    }

    /// Records what the transition under way did, once it is over.
    pub(in crate::verbs::qp) fn finish_modify(
        &mut self,
        waker: Option<&Waker>,
    ) -> Option<Result<(), CommandError>> {
        let UnderWay::Modify(transit) = &self.under_way else {
            return Some(Ok(()));
        };
        let answer = self.device.look_no_output(&transit.flight, waker)?;
        let transit = *transit;
        self.under_way = UnderWay::None;
        self.settle_gid(transit.sgid, answer);
        if answer.is_err() {
            return Some(answer);
        }
        if transit.to == QpState::Reset {
            self.reset();
            return Some(Ok(()));
        }
        self.port = transit.port;
        self.access = transit.access;
        self.responder_depth = transit.responder_depth;
        self.enter(transit.to);
        Some(Ok(()))
    }

    /// A command that gives the QP the reserved GID table entry `new` is over: keeps what the context names now. Without an
    /// answer that may be either.
    pub(in crate::verbs::qp) fn settle_gid(
        &mut self,
        new: Option<u16>,
        answer: Result<(), CommandError>,
    ) {
        let released = match answer {
            Ok(()) if new.is_some() => core::mem::replace(&mut self.sgid, new),
            Err(error) if !error.may_still_happen() => new,
            _ => None,
        };
        self.device.release_gid(released);
    }

    /// Checks ranges before anything goes to the firmware.
    fn check_values(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        let caps = &self.device.capabilities().hca;
        let depth = |log: u8| 1_u32.checked_shl(log.into()).unwrap_or(u32::MAX).min(255);
        let ranges = [
            (QpAttrMask::RQ_PSN, attr.rq_psn, 0xff_ffff),
            (QpAttrMask::SQ_PSN, attr.sq_psn, 0xff_ffff),
            (QpAttrMask::RETRY_CNT, attr.retry_cnt.into(), 7),
            (QpAttrMask::RNR_RETRY, attr.rnr_retry.into(), 7),
            (QpAttrMask::TIMEOUT, attr.timeout.into(), 31),
            (QpAttrMask::MIN_RNR_TIMER, attr.min_rnr_timer.into(), 31),
            (
                QpAttrMask::PORT,
                attr.port_num.into(),
                caps.num_ports().max(1).into(),
            ),
            (
                QpAttrMask::MAX_QP_RD_ATOMIC,
                attr.max_rd_atomic.into(),
                depth(match self.kind {
                    QpKind::Dci => caps.log_max_ra_req_dc(),
                    _ => caps.log_max_ra_req_qp(),
                }),
            ),
            (
                QpAttrMask::MAX_DEST_RD_ATOMIC,
                attr.max_dest_rd_atomic.into(),
                depth(caps.log_max_ra_res_qp()),
            ),
        ];
        for (attribute, value, limit) in ranges {
            let below = attribute == QpAttrMask::PORT && value == 0;
            if mask.contains(attribute) && (value > limit || below) {
                return Err(ModifyError::Value {
                    attribute,
                    value,
                    limit,
                });
            }
        }
        let pkeys = pkey_table_len(caps.pkey_table_size());
        if mask.contains(QpAttrMask::PKEY_INDEX) {
            let limit = pkeys - 1;
            if u32::from(attr.pkey_index) > limit {
                return Err(ModifyError::Value {
                    attribute: QpAttrMask::PKEY_INDEX,
                    value: attr.pkey_index.into(),
                    limit,
                });
            }
        }
        self.check_alternate(attr, mask, pkeys)?;
        if mask.contains(QpAttrMask::AV) {
            let port = attr.ah_attr.port_num;
            let limit = u32::from(self.port);
            if port != 0 && u32::from(port) != limit {
                return Err(ModifyError::Value {
                    attribute: QpAttrMask::AV,
                    value: port.into(),
                    limit,
                });
            }
        }
        Ok(())
    }

    /// It is in RESET: drops everything outstanding, and with it the completions that were not polled yet.
    fn reset(&mut self) {
        let slot = self.slot;
        // Completions that lie in the CQs are stale from here on; their index distinguishes them from later ones.
        slot.qpn_tag
            .fetch_or(DEAD, core::sync::atomic::Ordering::AcqRel);
        self.state = QpState::Reset;
        deferred_destroy::mark_stale(self.device, self.index);
        self.clear_error_flags();
        slot.reset_counters();
        self.device.release_gid(self.sgid.take());
        let layout = BlockLayout::new(&self.sizes);
        layout.reset_wqe_heads(&self.block);
        self.block.write_be64(layout.record, 0);
        (self.access, self.responder_depth) = (Access::empty(), 0);
    }

    /// Records the new state.
    pub(in crate::verbs::qp) fn enter(&mut self, state: QpState) {
        if self.state == QpState::Reset && state == QpState::Init {
            self.slot
                .qpn_tag
                .store(self.qpn.number(), core::sync::atomic::Ordering::Release);
        }
        self.state = state;
        self.clear_error_flags();
    }

    /// Clears the errors that completions have reported in the state before.
    fn clear_error_flags(&self) {
        let errors = error_flags::FAILED | error_flags::SEND_FAILED;
        self.slot
            .flags
            .fetch_and(!errors, core::sync::atomic::Ordering::AcqRel);
    }
}

/// `pkey_table_size` counts in powers of two from 128.
const fn pkey_table_len(code: u16) -> u32 {
    if code > 5 { 128 } else { 128 << code }
}
