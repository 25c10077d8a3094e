//! Moving a raw packet QP from state to state.
//!
//! Source: Linux, `modify_raw_packet_qp` and `query_raw_packet_qp_state` of `drivers/infiniband/hw/mlx5/qp.c`.

use core::sync::atomic::Ordering::{AcqRel, Release};

use bareverbs_firmware_cmds::rq::QueryRqIn;
use bareverbs_firmware_cmds::sq::QuerySqIn;

use crate::ethernet::error::EthernetError;
use crate::ethernet::objects::{move_rq, move_sq, state, strip_vlan};
use crate::ethernet::raw::RawPacketQp;
use crate::ethernet::raw::error::RawPacketError;
use crate::ethernet::raw::object::RawObject;
use crate::memory::slots::{DEAD, error_flags};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::qp::{QpKind, QpState};
use crate::verbs::cq::deferred_destroy;
use crate::verbs::qp::ModifyError;
use crate::verbs::qp::attr::{QpAttr, QueriedQp};
use crate::verbs::qp::state::{self as verbs, QpAttrMask};

impl<P: Platform> RawPacketQp<'_, P> {
    /// Modifies its state: `ibv_modify_qp`. INIT takes the port, and no state takes anything else.
    ///
    /// # Errors
    /// [`ModifyError`] as for other QPs; packet pacing (`RATE_LIMIT`) is refused.
    pub fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        if !self.has_own_queues() {
            return Err(ModifyError::QueuesSwapped);
        }
        let from = self.object.known_state();
        let to = match mask.contains(QpAttrMask::STATE) {
            true => attr.qp_state,
            false => from,
        };
        verbs::check(QpKind::RawPacket, from, to, mask).map_err(ModifyError::Transition)?;
        if mask.contains(QpAttrMask::RATE_LIMIT) {
            let attribute = QpAttrMask::RATE_LIMIT;
            return Err(ModifyError::Unsupported { attribute });
        }
        if mask.contains(QpAttrMask::PORT) {
            let limit = self.device().capabilities().hca.num_ports().max(1).into();
            let value = attr.port_num.into();
            if value == 0 || value > limit {
                return Err(ModifyError::Value {
                    attribute: QpAttrMask::PORT,
                    value,
                    limit,
                });
            }
            self.object.port = attr.port_num;
        }
        self.object.enter(from, to)?;
        if to == QpState::Reset {
            (self.sq.cursor, self.sq.head) = (self.sq.cursor.start(), 0);
            self.rq.head = 0;
        }
        self.update_queues();
        Ok(())
    }

    /// From RESET through INIT and RTR to RTS.
    ///
    /// # Errors
    /// The errors are those of [`modify`](Self::modify).
    pub fn bring_to_rts(&mut self) -> Result<(), ModifyError> {
        let steps = [
            (QpState::Init, QpAttrMask::PORT),
            (QpState::Rtr, QpAttrMask::empty()),
            (QpState::Rts, QpAttrMask::empty()),
        ];
        for (qp_state, mask) in steps {
            let attr = QpAttr {
                qp_state,
                ..QpAttr::DEFAULT
            };
            self.modify(&attr, mask | QpAttrMask::STATE)?;
        }
        Ok(())
    }

    /// Has the device take VLAN tags out of the frames that come from now on, or leave them in, as at first:
    /// `IBV_QP_CREATE_CVLAN_STRIPPING`, and `ibv_modify_wq` with `IBV_WQ_FLAGS_CVLAN_STRIPPING`. The tag is
    /// [with the completion](crate::cq::Completion::vlan) then. In RESET and ERR it is kept for when frames come again.
    ///
    /// # Errors
    /// [`RawPacketError::NoReceiveQueue`]; a card that cannot (`vlan_cap`); or if the firmware refuses.
    pub fn set_vlan_strip(&mut self, strip: bool) -> Result<(), RawPacketError> {
        if self.object.rq.is_none() {
            return Err(RawPacketError::NoReceiveQueue);
        }
        if strip && !self.object.vlan_cap {
            return Err(RawPacketError::Ethernet(EthernetError::Unsupported {
                what: "VLAN tags taken out (vlan_cap)",
            }));
        }
        let before = core::mem::replace(&mut self.object.strip_vlan, strip);
        if !matches!(self.object.known_state(), QpState::Reset | QpState::Err) {
            let set = self.object.set_vlan_strip(state::READY);
            if set.is_err() {
                self.object.strip_vlan = before;
            }
            set?;
        }
        Ok(())
    }

    /// Asks the firmware for the state of its queues: `ibv_query_qp`. The state is recorded, too.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn query(&mut self) -> Result<QueriedQp, ModifyError> {
        let qp_state = self.object.query_state()?;
        if self.has_own_queues() {
            self.update_queues();
        }
        Ok(QueriedQp {
            attr: QpAttr {
                qp_state,
                cur_qp_state: qp_state,
                port_num: self.object.port,
                ..QpAttr::DEFAULT
            },
            path_mtu: None,
            cap: self.object.cap,
            sq_sig_all: self.object.sq_sig_all,
            sq_draining: false,
        })
    }

    /// Opens the queues that the state allows to be posted to, and closes the others.
    fn update_queues(&mut self) {
        let (cap, state) = (self.object.cap, self.object.state);
        let receives = state != QpState::Reset;
        // In ERR posting is allowed; what is posted is flushed.
        let sends = !matches!(state, QpState::Reset | QpState::Init | QpState::Rtr);
        let open = |wanted: bool, count: u32| if wanted { count } else { 0 };
        self.rq.set_capacity(open(receives, cap.max_recv_wr));
        self.sq.set_capacity(open(sends, cap.max_send_wr) as u16);
    }
}

impl<P: Platform> RawObject<'_, P> {
    fn rq_state(&self) -> Result<Option<u8>, CommandError> {
        let Some(rq) = &self.rq else {
            return Ok(None);
        };
        let mut query = QueryRqIn::new();
        query.set_rqn(rq.number());
        Ok(Some(self.device.execute(&query)?.rq_context().state()))
    }

    fn sq_state(&self) -> Result<Option<u8>, CommandError> {
        let Some(sq) = &self.sq else {
            return Ok(None);
        };
        let mut query = QuerySqIn::new();
        query.set_sqn(sq.number());
        Ok(Some(self.device.execute(&query)?.sq_context().state()))
    }

    fn move_rq(&self, from: u8, to: u8) -> Result<(), CommandError> {
        match self.rq.as_ref().filter(|_| from != to) {
            Some(rq) => move_rq(self.device, rq.number(), from, to),
            None => Ok(()),
        }
    }

    /// Says to the receive queue, which gets ready from this state if it is not, what to do with tags.
    fn set_vlan_strip(&mut self, from: u8) -> Result<(), CommandError> {
        if let Some(rq) = self
            .rq
            .as_ref()
            .filter(|_| self.strip_vlan != self.strips_vlan)
        {
            strip_vlan(self.device, rq.number(), from, self.strip_vlan)?;
            self.strips_vlan = self.strip_vlan;
            return Ok(());
        }
        self.move_rq(from, state::READY)
    }

    fn move_sq(&self, from: u8, to: u8) -> Result<(), CommandError> {
        match self.sq.as_ref().filter(|_| from != to) {
            Some(sq) => move_sq(self.device, sq.number(), from, to),
            None => Ok(()),
        }
    }

    /// Moves the queues to where the QP's state has them, and records it.
    fn enter(&mut self, from: QpState, to: QpState) -> Result<(), CommandError> {
        match (from, to) {
            (QpState::Reset, QpState::Reset) => {}
            (_, QpState::Reset) => {
                self.stop(&[state::ERROR, state::RESET])?;
                self.reset();
            }
            (_, QpState::Err) => self.stop(&[state::ERROR])?,
            (QpState::Reset, QpState::Init) => {
                self.slot.qpn_tag.store(self.qpn.number(), Release);
                self.set_vlan_strip(state::RESET)?;
            }
            (QpState::Rtr, QpState::Rts) => self.move_sq(state::RESET, state::READY)?,
            _ => {}
        }
        self.state = to;
        if from != to {
            self.clear_error_flags();
        }
        Ok(())
    }

    /// Moves both queues, which the device may have stopped by itself, from state to state.
    fn stop(&self, through: &[u8]) -> Result<(), CommandError> {
        if let Some(mut now) = self.rq_state()? {
            for &next in through {
                self.move_rq(now, next)?;
                now = next;
            }
        }
        if let Some(mut now) = self.sq_state()? {
            for &next in through {
                self.move_sq(now, next)?;
                now = next;
            }
        }
        Ok(())
    }

    /// It is in RESET: drops everything outstanding, and with it the completions that were not polled yet.
    fn reset(&mut self) {
        let slot = self.slot;
        // Completions that lie in the CQs are stale from here on; their index distinguishes them from later ones.
        slot.qpn_tag.fetch_or(DEAD, AcqRel);
        self.state = QpState::Reset;
        deferred_destroy::mark_stale(self.device, self.index);
        slot.reset_counters();
        self.block
            .fill(self.heads, self.block.len() - self.heads, 0xff);
        for queue in [&self.sq, &self.rq].into_iter().flatten() {
            let memory = queue.memory();
            memory.buffer.write_be64(memory.record, 0);
        }
    }

    /// The state that follows from the queues' states.
    fn query_state(&mut self) -> Result<QpState, CommandError> {
        let (rq, sq) = (self.rq_state()?, self.sq_state()?);
        let state = match (rq, sq) {
            (Some(state::ERROR), _) | (None, Some(state::ERROR)) => QpState::Err,
            (Some(_), Some(state::ERROR)) => QpState::Sqe,
            _ => self.state,
        };
        if state != self.state && self.state != QpState::Reset {
            self.state = state;
            self.clear_error_flags();
        }
        Ok(self.state)
    }

    fn clear_error_flags(&self) {
        let errors = error_flags::FAILED | error_flags::SEND_FAILED;
        self.slot.flags.fetch_and(!errors, AcqRel);
    }
}
