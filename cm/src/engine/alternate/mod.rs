//! Alternate paths: in REQ and REP, and LAP and APR on an established connection (IBTA volume 1, chapter 12.8).
//! InfiniBand only; a caller that drives RoCE hands in no [`AlternateSlot`]s, and requests for it are refused. A build
//! without InfiniBand ignores LAP and APR.

pub(super) mod types;

use core::time::Duration;

use self::types::{AlternatePath, AlternateSlot, AnsweredLap, Failover, Table};
use super::error::{CmError, at_most, fits};
use super::machine::Engine;
use super::slot::{Answer, ev, own_transaction, tx};
use super::state::{LapState, State};
use super::types::{Address, ConnectionId, EventKind, Ignored, Outcome};
#[cfg(feature = "infiniband")]
use super::units::ack_timeout;
use super::units::{exponent, nanos};
use super::wheel::NIL;
use crate::mad::{Apr, AprStatus, Attribute, DATA, Lap, MAD_LEN, Mad, Req};

impl<'s> Engine<'s> {
    /// Slot of the connection's alternate path, if it has one.
    fn alternate(&self, index: usize) -> Option<&AlternateSlot> {
        if !cfg!(feature = "infiniband") {
            return None;
        }
        self.alternates.slots.get(self.slots[index].link as usize)
    }

    fn alternate_mut(&mut self, index: usize) -> Option<&mut AlternateSlot> {
        if !cfg!(feature = "infiniband") {
            return None;
        }
        self.alternates
            .slots
            .get_mut(self.slots[index].link as usize)
    }

    /// The connection's slot for its alternate path, which it gets now if it has none.
    fn take_alternate(&mut self, index: usize) -> Option<&mut AlternateSlot> {
        if cfg!(feature = "infiniband") && self.slots[index].link == NIL {
            let free = self.alternates.free;
            let slot = self.alternates.slots.get_mut(free as usize)?;
            self.alternates.free = slot.next_free;
            *slot = AlternateSlot::EMPTY;
            self.slots[index].link = free;
        }
        self.alternate_mut(index)
    }

    /// The connection is over, and with it any exchange about its paths.
    #[cold]
    pub(super) fn drop_alternate(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.pending_events &= !ev::ALTERNATE;
        slot.pending_tx &= !tx::ALTERNATE;
        let at = core::mem::replace(&mut slot.link, NIL);
        if let Some(alternate) = self.alternates.slots.get_mut(at as usize) {
            alternate.next_free = core::mem::replace(&mut self.alternates.free, at);
        }
    }

    /// Asks the other end to take a new alternate path: sends LAP. What follows is
    /// [`AlternateResponse`](EventKind::AlternateResponse); the connection goes on with any answer.
    pub fn load_alternate(
        &mut self,
        now: Duration,
        id: ConnectionId,
        path: &AlternatePath,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        fits(private_data.len(), Lap::PRIVATE_DATA_MAX)?;
        path.check()?;
        let index = self.in_state(id, "load_alternate", &[State::Established])?;
        let high = self.config.transaction_id_high;
        let base = own_transaction(high, &self.slots[index]);
        let capacity = self.alternates.slots.len();
        let alternate = self
            .take_alternate(index)
            .ok_or(CmError::NoAlternateSlots { capacity })?;
        if alternate.state != LapState::Idle {
            return Err(CmError::AlternatePathBusy {
                state: alternate.state,
            });
        }
        // Each LAP is a separate transaction.
        alternate.laps_sent = alternate.laps_sent.wrapping_add(1);
        alternate.transaction_id = base ^ u64::from(alternate.laps_sent) << 56;
        alternate.state = LapState::Sent;
        alternate.has_answer = false;
        alternate.path = *path;
        alternate.store_request(private_data);
        let interval = self.interval(index);
        self.slots[index].sent_before &= !tx::ALTERNATE;
        self.start(index, nanos(now), interval);
        self.send(index, tx::ALTERNATE);
        Ok(())
    }

    /// Answers the peer's request for an alternate path: sends APR. With [`AprStatus::SUCCESS`] the QP has the path by
    /// now; with another status `info` says what would have been acceptable.
    pub fn answer_alternate(
        &mut self,
        now: Duration,
        id: ConnectionId,
        status: AprStatus,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        fits(private_data.len(), Apr::PRIVATE_DATA_MAX)?;
        at_most(
            "length of the additional information",
            info.len() as u64,
            72,
        )?;
        let index = self.in_state(id, "answer_alternate", &[State::Established])?;
        // As long as the other end may repeat its LAP.
        let mut pace = self.interval(index);
        if self.lap_state_of(index) == LapState::MraSent {
            let slot = &self.slots[index];
            pace = pace.max(exponent(slot.service_timeout) + exponent(slot.ack_timeout));
        }
        let keep = pace.saturating_mul(17);
        let asked = |alternate: &&mut AlternateSlot| {
            matches!(alternate.state, LapState::Received | LapState::MraSent)
        };
        let alternate = self
            .alternate_mut(index)
            .filter(asked)
            .ok_or(CmError::NoAlternatePathAsked)?;
        alternate.state = LapState::Idle;
        alternate.status = Some(status.0);
        alternate.has_answer = true;
        alternate.answered.rotate_left(1);
        alternate.answered[3] = AnsweredLap {
            transaction_id: alternate.transaction_id,
            path: alternate.path,
            until: nanos(now).saturating_add(keep),
        };
        alternate.store(info, private_data);
        if status == AprStatus::SUCCESS {
            alternate.loaded = Some(alternate.path);
        }
        let slot = &mut self.slots[index];
        slot.pending_tx &= !tx::MRA;
        slot.pending_events &= !ev::ALTERNATE;
        slot.sent_before &= !tx::ALTERNATE;
        self.send(index, tx::ALTERNATE);
        Ok(())
    }

    /// Gives an engine without connections slots for alternate paths, in place of those of
    /// [`Storage`](super::Storage). False, and nothing changes, once there are connections.
    pub fn set_alternate_slots(&mut self, slots: &'s mut [AlternateSlot]) -> bool {
        let unused = self.in_use == 0;
        if unused {
            self.alternates = Table::new(slots);
        }
        unused
    }

    /// The QP has migrated to the alternate path, which messages of the connection take from now on (Linux's `ib_cm_notify`
    /// with `IB_EVENT_PATH_MIG`). False where both ends agreed on none. A LAP that comes on the alternate path waits for this:
    /// a QP that has not migrated yet would lose the path that its peer is on.
    pub fn path_migrated(&mut self, id: ConnectionId) -> Result<bool, CmError> {
        let index = self.get(id)?;
        let loaded = |alternate: &mut AlternateSlot| alternate.loaded.take();
        let Some(path) = self.alternate_mut(index).and_then(loaded) else {
            return Ok(false);
        };
        let slot = &mut self.slots[index];
        slot.address = path.address(&slot.address);
        slot.rate = path.rate;
        Ok(true)
    }

    /// Returns `true` if any connection can have an alternate path.
    #[cfg(feature = "infiniband")]
    #[inline]
    pub(crate) fn has_alternate_slots(&self) -> bool {
        !self.alternates.is_empty()
    }

    /// The path that the other end asks for, until it is answered.
    #[cfg(feature = "infiniband")]
    pub(crate) fn alternate_asked(&self, id: ConnectionId) -> Option<&AlternatePath> {
        let asked = |alternate: &&AlternateSlot| {
            matches!(alternate.state, LapState::Received | LapState::MraSent)
        };
        let alternate = self.alternate(self.get(id).ok()?).filter(asked)?;
        Some(&alternate.path)
    }

    /// Exponent of the ACK timeout of a path, by that of its packet lifetime.
    #[cfg(feature = "infiniband")]
    pub(crate) fn ack_timeout(&self, packet_life_time: u8) -> u8 {
        ack_timeout(self.config.ack_delay, packet_life_time)
    }

    /// The alternate path that both ends agreed on, in REQ and REP or in LAP and APR.
    pub fn alternate_path(&self, id: ConnectionId) -> Result<Option<AlternatePath>, CmError> {
        let index = self.get(id)?;
        Ok(self.alternate(index).and_then(|alternate| alternate.loaded))
    }

    /// The state of the exchange about an alternate path.
    pub fn lap_state(&self, id: ConnectionId) -> Result<LapState, CmError> {
        Ok(self.lap_state_of(self.get(id)?))
    }

    fn lap_state_of(&self, index: usize) -> LapState {
        self.alternate(index)
            .map_or(LapState::Idle, |alternate| alternate.state)
    }

    #[inline(never)]
    pub(super) fn alternate_event(&self, index: usize) -> EventKind<'_> {
        const NOTHING: AlternateSlot = AlternateSlot::EMPTY;
        let alternate = self.alternate(index).unwrap_or(&NOTHING);
        if matches!(alternate.state, LapState::Received | LapState::MraSent) {
            return EventKind::AlternatePath {
                path: &alternate.path,
                private_data: alternate.private(),
            };
        }
        let (info, private_data) = alternate.private().split_at_checked(72).unwrap_or_default();
        EventKind::AlternateResponse {
            status: alternate.status.map(AprStatus),
            info: info.get(..usize::from(alternate.info_len)).unwrap_or(info),
            private_data,
        }
    }

    /// The path that goes into this end's REQ.
    pub(super) fn offer_alternate(
        &mut self,
        index: usize,
        path: &AlternatePath,
    ) -> Result<(), CmError> {
        let capacity = self.alternates.slots.len();
        let alternate = self
            .take_alternate(index)
            .ok_or(CmError::NoAlternateSlots { capacity })?;
        alternate.path = *path;
        Ok(())
    }

    /// Adds that path to a REQ that has been written. Apart, so that the usual REQ does not pay for it.
    #[cold]
    pub(super) fn add_alternate(&self, index: usize, mad: &mut [u8; MAD_LEN]) {
        if let Some(alternate) = self.alternate(index)
            && let Some(fields) = mad[DATA + 96..].first_chunk_mut()
        {
            alternate.path.write(fields);
        }
    }

    /// The path that came with a REQ. Without a free slot the connection is established without it.
    #[cold]
    pub(super) fn store_alternate(&mut self, index: usize, mad: &Mad<'_>) {
        // Read again here: were the REQ handed over, all of it would have to be read for every connection.
        let req = &Req::read(mad.bytes());
        if let Some(alternate) = self.take_alternate(index) {
            alternate.path = AlternatePath::of_req(req);
            alternate.loaded = Some(alternate.path);
        } else {
            self.slots[index].failover_refused = true;
        }
    }

    /// The user's decision on that path.
    pub(super) fn settle_alternate(&mut self, index: usize, failover: Failover) {
        if let Some(alternate) = self.alternate_mut(index) {
            alternate.failover = failover;
            if failover != Failover::Accepted {
                alternate.loaded = None;
            }
        }
    }

    /// The value for it in a REP.
    #[cold]
    pub(super) fn failover(&self, index: usize) -> Failover {
        match self.alternate(index) {
            Some(alternate) => alternate.failover,
            None if cfg!(feature = "infiniband")
                && self.slots[index].failover_refused
                && self.alternates.is_empty() =>
            {
                Failover::NotSupported
            }
            None if self.slots[index].failover_refused => Failover::Rejected,
            None => Failover::Accepted,
        }
    }

    /// Takes the other end's answer, in its REP, to the path that was offered.
    pub(super) fn alternate_accepted(&mut self, index: usize, failover: u8) {
        if let Some(alternate) = self.alternate_mut(index) {
            alternate.loaded = (failover == 0).then_some(alternate.path);
        }
    }

    pub(super) fn on_lap(
        &mut self,
        now: u64,
        from: &Address,
        mad: &Mad<'_>,
        lap: &Lap<'_>,
    ) -> Outcome {
        let refuse = |status: AprStatus| Answer::Apr {
            local: lap.remote_comm_id,
            remote: lap.local_comm_id,
            status: status.0,
        };
        let Some(index) = self.find_pair(lap.remote_comm_id, lap.local_comm_id) else {
            return self.reply_to(from, mad, refuse(AprStatus::INVALID_COMM_ID));
        };
        let slot = &self.slots[index];
        if slot.state != State::Established || slot.zombie {
            return Err(Ignored::Unexpected(Attribute::Lap));
        }
        if lap.remote_qpn != slot.local_qpn {
            return self.reply_to(from, mad, refuse(AprStatus::INVALID_QPN));
        }
        if slot.pending_events & ev::ALTERNATE != 0 && self.lap_state_of(index) == LapState::Idle {
            // The answer to this end's last one was not fetched yet; the next repetition will find it free.
            return Err(Ignored::Unexpected(Attribute::Lap));
        }
        let (active, auto_mra) = (slot.active, slot.auto_mra);
        let lids = |address: &Address| (address.local_lid, address.remote_lid);
        let on_alternate = |alternate: &AlternateSlot| {
            alternate
                .loaded
                .is_some_and(|path| (path.local_lid, path.remote_lid) == lids(from))
        };
        if lids(from) != lids(&slot.address) && self.alternate(index).is_some_and(on_alternate) {
            // The peer has migrated, and this end's user does not know yet.
            return Err(Ignored::Unexpected(Attribute::Lap));
        }
        if self.alternates.is_empty() {
            return self.reply_to(from, mad, refuse(AprStatus::UNSUPPORTED));
        }
        let Some(alternate) = self.take_alternate(index) else {
            return self.reply_to(from, mad, refuse(AprStatus::REJECTED));
        };
        let path = AlternatePath::of_lap(lap);
        match alternate.state {
            LapState::Idle => {}
            LapState::Received => {
                if auto_mra != 0xff {
                    self.answer_later(index, auto_mra);
                }
                return Err(Ignored::Duplicate(Attribute::Lap));
            }
            LapState::MraSent => {
                self.send(index, tx::MRA);
                return Err(Ignored::Duplicate(Attribute::Lap));
            }
            // Both ends ask at once: the one that made the connection goes first, and the other's next try finds it done.
            LapState::Sent | LapState::MraReceived if active => {
                return self.reply_to(from, mad, refuse(AprStatus::REJECTED));
            }
            LapState::Sent | LapState::MraReceived => {
                return Err(Ignored::Unexpected(Attribute::Lap));
            }
        }
        let again = |answered: &AnsweredLap| {
            answered.transaction_id == mad.transaction_id()
                && answered.path == path
                && now < answered.until
        };
        if alternate.answered.iter().any(again) {
            if alternate.has_answer && again(&alternate.answered[3]) {
                self.send(index, tx::ALTERNATE);
            }
            return Err(Ignored::Duplicate(Attribute::Lap));
        }
        alternate.state = LapState::Received;
        alternate.path = path;
        alternate.has_answer = false;
        alternate.transaction_id = mad.transaction_id();
        alternate.store_request(lap.private_data);
        self.slots[index].pending_tx &= !tx::ALTERNATE;
        self.raise(index, ev::ALTERNATE);
        Ok(())
    }

    pub(super) fn on_apr(&mut self, mad: &Mad<'_>, apr: &Apr<'_>) -> Outcome {
        let Some(index) = self.find_pair(apr.remote_comm_id, apr.local_comm_id) else {
            return Err(Ignored::Unexpected(Attribute::Apr));
        };
        if self.slots[index].state != State::Established {
            return Err(Ignored::Unexpected(Attribute::Apr));
        }
        let Some(alternate) = self.alternate_mut(index) else {
            return Err(Ignored::Unexpected(Attribute::Apr));
        };
        // Here and for an MRA the transaction ID is compared, as nowhere else: a late answer to the last LAP has the
        // same communication IDs, and taking it for one to this LAP would leave the ends with different paths.
        if !matches!(alternate.state, LapState::Sent | LapState::MraReceived)
            || alternate.transaction_id != mad.transaction_id()
        {
            return Err(Ignored::Duplicate(Attribute::Apr));
        }
        alternate.store(&apr.info, apr.private_data);
        alternate.info_len = apr.info_len.min(72);
        self.lap_over(index, Some(apr.status));
        Ok(())
    }

    /// This end's LAP was answered, or given up.
    pub(super) fn lap_over(&mut self, index: usize, status: Option<u8>) {
        self.wheel.disarm(self.slots, index as u32);
        self.slots[index].pending_tx &= !tx::ALTERNATE;
        if let Some(alternate) = self.alternate_mut(index) {
            alternate.state = LapState::Idle;
            alternate.status = status;
            match status {
                Some(0) => alternate.loaded = Some(alternate.path),
                None => alternate.private_len = 0,
                Some(_) => {}
            }
        }
        self.raise(index, ev::ALTERNATE);
    }

    /// An MRA came for this end's LAP.
    pub(super) fn lap_delayed(&mut self, index: usize, transaction_id: u64) -> Outcome {
        match self
            .alternate_mut(index)
            .filter(|alternate| alternate.transaction_id == transaction_id)
        {
            Some(alternate) if alternate.state == LapState::Sent => {
                alternate.state = LapState::MraReceived;
                Ok(())
            }
            Some(alternate) if alternate.state == LapState::MraReceived => {
                Err(Ignored::Duplicate(Attribute::Mra))
            }
            _ => Err(Ignored::Unexpected(Attribute::Mra)),
        }
    }

    /// This end's MRA for the other's LAP. False when there is none to answer.
    pub(super) fn delay_lap(&mut self, index: usize) -> bool {
        match self.alternate_mut(index) {
            Some(alternate)
                if matches!(alternate.state, LapState::Received | LapState::MraSent) =>
            {
                alternate.state = LapState::MraSent;
                true
            }
            _ => false,
        }
    }

    pub(super) fn lap_transaction(&self, index: usize) -> u64 {
        self.alternate(index)
            .map_or(0, |alternate| alternate.transaction_id)
    }

    /// Writes the LAP that waits for its answer, or the APR.
    #[inline(never)]
    pub(super) fn write_alternate(
        &self,
        index: usize,
        mad: &mut [u8; MAD_LEN],
    ) -> Option<Attribute> {
        const NOTHING: AlternateSlot = AlternateSlot::EMPTY;
        if !cfg!(feature = "infiniband") {
            return None;
        }
        let slot = &self.slots[index];
        let alternate = self.alternate(index).unwrap_or(&NOTHING);
        if matches!(alternate.state, LapState::Sent | LapState::MraReceived) {
            let path = &alternate.path;
            Lap {
                local_comm_id: slot.local_comm_id,
                remote_comm_id: slot.remote_comm_id,
                remote_qpn: slot.remote_qpn,
                remote_cm_response_timeout: slot.remote_response.min(31),
                alternate_local_lid: path.local_lid,
                alternate_remote_lid: path.remote_lid,
                alternate_local_gid: path.local_gid,
                alternate_remote_gid: path.remote_gid,
                alternate_flow_label: path.flow_label,
                alternate_traffic_class: path.traffic_class,
                alternate_hop_limit: path.hop_limit,
                alternate_rate: path.rate,
                alternate_sl: path.service_level,
                alternate_subnet_local: path.subnet_local.into(),
                alternate_ack_timeout: path.ack_timeout,
                private_data: alternate.private(),
            }
            .emit(alternate.transaction_id, mad)
            .ok()?;
            return Some(Attribute::Lap);
        }
        let (info, private_data) = alternate.private().split_at_checked(72).unwrap_or_default();
        let mut apr = Apr {
            local_comm_id: slot.local_comm_id,
            remote_comm_id: slot.remote_comm_id,
            info_len: alternate.info_len,
            status: alternate.status.unwrap_or(AprStatus::REJECTED.0),
            private_data,
            ..Apr::ZERO
        };
        apr.info[..info.len()].copy_from_slice(info);
        apr.emit(alternate.transaction_id, mad).ok()?;
        Some(Attribute::Apr)
    }
}
