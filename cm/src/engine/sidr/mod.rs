//! Resolving datagram services: SIDR_REQ and SIDR_REP (IBTA volume 1, chapter 12.11).
//!
//! It takes one message each way, and no state is left between the two ends. The answer is kept for a while all the same,
//! so that a repeated request gets the same one; it is dropped when its slot is needed, and the application is then
//! asked again.

pub(super) mod table;
mod types;

use core::time::Duration;

use table::SidrState;

use super::error::{CmError, at_most, fits};
use super::machine::Engine;
use super::retry::{Next, ticks};
use super::slot::Answer;
use super::types::{Address, Ignored, ListenerId, Outcome, Transmit};
use super::units::{exponent, nanos};
use crate::mad::{Attribute, MAD_LEN, Mad, MadError, SidrRep, SidrReq, SidrStatus};

pub use table::SidrSlot;
pub use types::{SidrEvent, SidrEventKind, SidrId, SidrParams, SidrReply};

impl Engine<'_> {
    /// Asks for the QP of a datagram service: sends SIDR_REQ. What follows is one event:
    /// [`Resolved`](SidrEventKind::Resolved), [`Refused`](SidrEventKind::Refused) or
    /// [`Unreachable`](SidrEventKind::Unreachable).
    pub fn sidr_request(
        &mut self,
        now: Duration,
        params: &SidrParams<'_>,
    ) -> Result<SidrId, CmError> {
        fits(params.private_data.len(), SidrReq::PRIVATE_DATA_MAX)?;
        params.timers.check()?;
        let now = nanos(now);
        self.sidr.wake(now);
        let capacity = self.sidr.slots.len();
        let index = self
            .sidr
            .allocate(SidrState::Asking, self.salt, self.hash_seed)
            .ok_or(CmError::NoSidrSlots { capacity })?;
        let random = self.random() as u32;
        let (high, jitter) = (self.config.transaction_id_high, self.config.jitter);
        let slot = &mut self.sidr.slots[index];
        slot.request_id = slot.name;
        slot.transaction_id = u64::from(high) << 32 | u64::from(slot.name.swap_bytes());
        slot.service_id = params.service_id;
        slot.address = params.address;
        slot.user = params.user;
        slot.early = params.timers.early.map_or(0, |early| ticks(nanos(early)));
        slot.store(params.private_data);
        let at = slot.retry.start(
            now,
            exponent(params.timers.remote_response),
            params.timers.max_retries,
            slot.early,
            jitter,
            random,
        );
        let id = SidrId(slot.name);
        self.sidr.wheel.arm(self.sidr.slots, index as u32, at);
        self.sidr.send(index);
        Ok(id)
    }

    /// Waits for requests for a datagram service. At most `backlog` of them stay unanswered at a time; further ones are
    /// refused with "no QP". A service may have a listener of this kind and one for connections.
    pub fn listen_sidr(
        &mut self,
        service_id: u64,
        backlog: u32,
        user: u64,
    ) -> Result<ListenerId, CmError> {
        self.add_listener(service_id, backlog, false, true, user)
    }

    /// Answers a request with the QP that serves: sends SIDR_REP. The request's ID ends here.
    pub fn sidr_reply(
        &mut self,
        now: Duration,
        id: SidrId,
        reply: &SidrReply<'_>,
    ) -> Result<(), CmError> {
        fits(reply.private_data.len(), SidrRep::PRIVATE_DATA_MAX)?;
        at_most("QP number", reply.qpn.into(), 0xff_ffff)?;
        at_most("vendor ID", reply.ece.vendor_id.into(), 0xff_ffff)?;
        self.sidr_answer(now, id, SidrStatus::SUCCESS, reply, &[])
    }

    /// Answers a request with a status other than success: sends SIDR_REP. The request's ID ends here. `info` goes with
    /// the status; with [`SidrStatus::REDIRECT`] it is the ClassPortInfo of the node that is to be asked instead.
    pub fn sidr_reject(
        &mut self,
        now: Duration,
        id: SidrId,
        status: SidrStatus,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        fits(private_data.len(), SidrRep::PRIVATE_DATA_MAX)?;
        at_most(
            "length of the additional information",
            info.len() as u64,
            72,
        )?;
        let reply = SidrReply {
            private_data,
            ..SidrReply::new(0, 0)
        };
        self.sidr_answer(now, id, status, &reply, info)
    }

    fn sidr_answer(
        &mut self,
        now: Duration,
        id: SidrId,
        status: SidrStatus,
        reply: &SidrReply<'_>,
        info: &[u8],
    ) -> Result<(), CmError> {
        let index = self
            .sidr
            .get(id, self.salt)
            .filter(|index| self.sidr.slots[*index].state == SidrState::Asked)
            .ok_or(CmError::UnknownRequest)?;
        self.sidr_settle_backlog(index);
        let slot = &mut self.sidr.slots[index];
        slot.status = Some(status.0);
        slot.qpn = reply.qpn;
        slot.qkey = reply.qkey;
        slot.ece = reply.ece;
        slot.store_answer(info, reply.private_data);
        self.sidr.keep(index);
        let at = nanos(now) + exponent(self.config.sidr_life);
        self.sidr.wheel.arm(self.sidr.slots, index as u32, at);
        self.sidr.send(index);
        Ok(())
    }

    /// The user is done with a request, whatever its state. No event follows. The peer that asked gets a refusal
    /// by the service ([`SidrStatus::REJECTED`]).
    pub fn sidr_release(&mut self, now: Duration, id: SidrId) -> Result<(), CmError> {
        let index = self
            .sidr
            .get(id, self.salt)
            .ok_or(CmError::UnknownRequest)?;
        if self.sidr.slots[index].state == SidrState::Asked {
            return self.sidr_reject(now, id, SidrStatus::REJECTED, &[], &[]);
        }
        self.sidr.release(index, self.hash_seed);
        Ok(())
    }

    /// Requests under way: this end's that were not answered, or whose answer was not fetched, and others' that the
    /// application has not answered. Kept answers do not count.
    pub fn sidr_in_use(&self) -> usize {
        self.sidr.in_use()
    }

    /// Takes the next event of a datagram service. Private data is only lent.
    pub fn poll_sidr_event(&mut self) -> Option<SidrEvent<'_>> {
        let index = self.sidr.next_event()?;
        let completed = self.sidr.slots[index].state == SidrState::Completed;
        if completed {
            // The bytes stay in place until the slot is allocated again.
            self.sidr.release(index, self.hash_seed);
        }
        let slot = &self.sidr.slots[index];
        let kind = if !completed {
            SidrEventKind::Request {
                listener: ListenerId {
                    index: slot.listener,
                    generation: slot.listener_generation,
                },
                listener_user: self
                    .listeners
                    .get(slot.listener as usize)
                    .map_or(0, |listener| listener.user),
                service_id: slot.service_id,
                address: slot.address,
                private_data: slot.private(),
            }
        } else {
            let (info, private_data) = slot.private().split_at_checked(72).unwrap_or_default();
            match slot.status.map(SidrStatus) {
                None => SidrEventKind::Unreachable,
                Some(SidrStatus::SUCCESS) => SidrEventKind::Resolved {
                    service_id: slot.service_id,
                    address: slot.address,
                    qpn: slot.qpn,
                    qkey: slot.qkey,
                    ece: slot.ece,
                    private_data,
                },
                Some(status) => SidrEventKind::Refused {
                    status,
                    info: info.get(..usize::from(slot.info_len)).unwrap_or(info),
                    private_data,
                },
            }
        };
        Some(SidrEvent {
            id: SidrId(slot.name),
            user: slot.user,
            kind,
        })
    }

    pub(super) fn on_sidr_req(
        &mut self,
        now: u64,
        from: &Address,
        mad: &Mad<'_>,
        req: &SidrReq<'_>,
    ) -> Outcome {
        let seed = self.hash_seed;
        let peer = &from.peer();
        if let Some(index) = self
            .sidr
            .find_asked(req.request_id, req.service_id, peer, seed)
        {
            let slot = &mut self.sidr.slots[index];
            if slot.state == SidrState::Answered {
                slot.transaction_id = mad.transaction_id();
                self.sidr.send(index);
            }
            return Err(Ignored::Duplicate(Attribute::SidrReq));
        }
        let refuse = |status: SidrStatus| Answer::SidrRep {
            request_id: req.request_id,
            service_id: req.service_id,
            status: status.0,
        };
        let Some(listener_index) = self.find_listener(req.service_id, true) else {
            return self.reply_to(from, mad, refuse(SidrStatus::UNSUPPORTED_SERVICE));
        };
        let listener = self.listeners[listener_index];
        let has_slot = self
            .sidr
            .in_use()
            .saturating_add(self.config.reserved as usize)
            < self.sidr.slots.len();
        self.sidr.wake(now);
        let index = if has_slot && listener.waiting < listener.backlog {
            self.sidr.allocate(SidrState::Asked, self.salt, seed)
        } else {
            None
        };
        let Some(index) = index else {
            if self.config.reject_overflow {
                return self.reply_to(from, mad, refuse(SidrStatus::NO_QP));
            }
            return Err(Ignored::Unexpected(Attribute::SidrReq));
        };
        self.listeners[listener_index].waiting += 1;
        let slot = &mut self.sidr.slots[index];
        slot.request_id = req.request_id;
        slot.transaction_id = mad.transaction_id();
        slot.service_id = req.service_id;
        slot.listener = listener_index as u32;
        slot.listener_generation = listener.generation;
        slot.address = Address {
            pkey: req.pkey,
            ..*from
        };
        slot.store(req.private_data);
        self.sidr.enter(index, seed);
        let at = now + exponent(self.config.sidr_life);
        self.sidr.wheel.arm(self.sidr.slots, index as u32, at);
        self.sidr.raise(index);
        Ok(())
    }

    pub(super) fn on_sidr_rep(
        &mut self,
        from: &Address,
        mad: &Mad<'_>,
        rep: &SidrRep<'_>,
    ) -> Outcome {
        let index = self
            .sidr
            .find(rep.request_id, self.salt)
            .filter(|index| self.sidr.slots[*index].address.peer() == from.peer());
        let Some(index) = index else {
            return Err(Ignored::Unexpected(Attribute::SidrRep));
        };
        match self.sidr.slots[index].state {
            SidrState::Asking => {}
            SidrState::Completed => return Err(Ignored::Duplicate(Attribute::SidrRep)),
            _ => return Err(Ignored::Unexpected(Attribute::SidrRep)),
        }
        let slot = &mut self.sidr.slots[index];
        slot.status = Some(rep.status);
        slot.qpn = rep.qpn;
        slot.qkey = rep.qkey;
        slot.ece = rep.ece(mad.modifier());
        slot.store_answer(&rep.info, rep.private_data);
        slot.info_len = rep.info_len.min(72);
        self.sidr_completed(index);
        Ok(())
    }

    fn sidr_completed(&mut self, index: usize) {
        self.sidr.wheel.disarm(self.sidr.slots, index as u32);
        let slot = &mut self.sidr.slots[index];
        slot.state = SidrState::Completed;
        slot.pending_tx = false;
        self.sidr.raise(index);
    }

    pub(super) fn sidr_timeouts(&mut self, now: u64) {
        let now = now.max(self.sidr.wheel.reached());
        while let Some(index) = self.sidr.wheel.expire(self.sidr.slots, now) {
            let index = index as usize;
            match self.sidr.slots[index].state {
                SidrState::Asking => {
                    let (random, jitter) = (self.random() as u32, self.config.jitter);
                    let slot = &mut self.sidr.slots[index];
                    let early = slot.early;
                    match slot.retry.expired(now, early, jitter, random) {
                        Next::Send(at) => {
                            self.sidr.wheel.arm(self.sidr.slots, index as u32, at);
                            self.sidr.send(index);
                        }
                        Next::Wait(at) => {
                            self.sidr.wheel.arm(self.sidr.slots, index as u32, at);
                        }
                        Next::GiveUp => self.sidr_completed(index),
                    }
                }
                SidrState::Asked => {
                    // The peer that asked has given up. The application may still answer: it will get an
                    // error, as the request does not exist any more.
                    self.sidr_settle_backlog(index);
                    self.sidr.release(index, self.hash_seed);
                }
                SidrState::Answered => self.sidr.release(index, self.hash_seed),
                SidrState::Free | SidrState::Completed => {}
            }
        }
    }

    fn sidr_settle_backlog(&mut self, index: usize) {
        let slot = &self.sidr.slots[index];
        if let Some(listener) = self.listeners.get_mut(slot.listener as usize)
            && listener.used
            && listener.generation == slot.listener_generation
        {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// Writes the next message of a datagram service.
    #[inline(never)]
    pub(super) fn sidr_transmit(&mut self, mad: &mut [u8; MAD_LEN]) -> Option<Transmit> {
        loop {
            let index = self.sidr.next_to_send()?;
            let slot = &mut self.sidr.slots[index];
            let repeated = core::mem::replace(&mut slot.sent_before, true);
            let written = write(slot, mad);
            if let Ok(attribute) = written {
                let address = slot.address;
                self.stats.sent += 1;
                self.stats.repeated += u64::from(repeated);
                return Some(Transmit {
                    address,
                    attribute,
                    connection: None,
                    repeated,
                });
            }
        }
    }
}

fn write(slot: &mut SidrSlot, mad: &mut [u8; MAD_LEN]) -> Result<Attribute, MadError> {
    if slot.state == SidrState::Asking {
        SidrReq {
            request_id: slot.request_id,
            pkey: slot.address.pkey,
            service_id: slot.service_id,
            private_data: slot.private(),
        }
        .emit(slot.transaction_id, mad)?;
        return Ok(Attribute::SidrReq);
    }
    let (info, private_data) = slot.private().split_at_checked(72).unwrap_or_default();
    let mut rep = SidrRep {
        request_id: slot.request_id,
        status: slot.status.unwrap_or(SidrStatus::REJECTED.0),
        info_len: slot.info_len,
        qpn: slot.qpn,
        service_id: slot.service_id,
        qkey: slot.qkey,
        vendor_id_high: (slot.ece.vendor_id >> 8) as u16,
        vendor_id_low: slot.ece.vendor_id as u8,
        private_data,
        ..SidrRep::ZERO
    };
    rep.info[..info.len()].copy_from_slice(info);
    rep.emit(slot.transaction_id, mad)?;
    slot.ece.write_options(mad);
    Ok(Attribute::SidrRep)
}
