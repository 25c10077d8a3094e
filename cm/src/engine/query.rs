//! Querying a connection, and its options that can be set at any time.

use core::time::Duration;

use super::error::{CmError, at_most};
use super::machine::Engine;
use super::state::State;
use super::types::{ConnectionId, QpParams, Timers};
use super::units::exponent;
use crate::mad::Ece;

impl Engine<'_> {
    /// The time that a connection's numbers are not used again after its end (IBTA volume 1, chapter 12.9): for as long as a
    /// packet of it may be on its way.
    pub fn timewait_len(&self, id: ConnectionId) -> Result<Duration, CmError> {
        let slot = &self.slots[self.get(id)?];
        Ok(Duration::from_nanos(exponent(slot.ack_timeout)))
    }

    /// The state of a connection.
    pub fn state(&self, id: ConnectionId) -> Result<State, CmError> {
        Ok(self.slots[self.get(id)?].state)
    }

    /// The value that comes with the connection's events from now on.
    pub fn set_user(&mut self, id: ConnectionId, user: u64) -> Result<(), CmError> {
        let index = self.get(id)?;
        self.slots[index].user = user;
        Ok(())
    }

    /// The service that was asked for.
    pub fn service_id(&self, id: ConnectionId) -> Result<u64, CmError> {
        Ok(self.slots[self.get(id)?].service_id)
    }

    /// The parameters of the QP (IBTA volume 1, chapter 12.9.8). On the active side valid once REP is there, on the passive
    /// side from the request on.
    pub fn qp_params(&self, id: ConnectionId) -> Result<QpParams, CmError> {
        let slot = &self.slots[self.get(id)?];
        Ok(QpParams {
            address: slot.address,
            transport: slot.transport,
            dest_qpn: slot.remote_qpn,
            path_mtu: slot.path_mtu,
            rate: slot.rate,
            rq_psn: slot.local_psn,
            sq_psn: slot.remote_psn,
            // What the other end initiates is what this end has to respond to, and the other way round.
            max_dest_rd_atomic: slot.peer_initiator_depth,
            max_rd_atomic: slot.peer_responder_resources,
            retry_count: slot.retry_count,
            rnr_retry_count: slot.peer_rnr_retry_count,
            ack_timeout: slot.ack_timeout,
            peer_srq: slot.peer_srq,
            flow_control: slot.peer_flow_control,
        })
    }

    /// The vendor options that came with the other end's REQ or REP; [`Ece::NONE`] before that, and when it has none.
    pub fn remote_ece(&self, id: ConnectionId) -> Result<Ece, CmError> {
        Ok(self.slots[self.get(id)?].peer_ece)
    }

    /// Other timers for a connection. They count from its next message on; a message that waits for its answer keeps its
    /// pace. The values that the peer got in REQ stay valid.
    pub fn set_timers(&mut self, id: ConnectionId, timers: &Timers) -> Result<(), CmError> {
        timers.check()?;
        let index = self.get(id)?;
        self.slots[index].set_timers(timers);
        Ok(())
    }

    /// Sets the time to ask for, on this connection, when a REQ or REP comes again before the user answered it: 4.096 us times
    /// 2 to `service_timeout`. `None` sends no MRA. Connections begin with [`Config::auto_mra`](super::Config::auto_mra).
    pub fn set_auto_mra(
        &mut self,
        id: ConnectionId,
        service_timeout: Option<u8>,
    ) -> Result<(), CmError> {
        at_most("service timeout", service_timeout.unwrap_or(0).into(), 31)?;
        let index = self.get(id)?;
        self.slots[index].auto_mra = service_timeout.unwrap_or(0xff);
        Ok(())
    }
}
