//! Services that a port offers or looks for (ServiceRecord; IBTA volume 1, chapter 15.2.5.14).

use core::time::Duration;

use super::{Ask, Client, Config, QuestionId, QuestionSlot, SaError, SaUser, Taken};
use crate::mad::sa::{
    SaAttribute, SaHeader, SaMad, SaMethod, SaRedirection, SaStatus, ServiceRecord,
};
use crate::mad::{MAD_LEN, MadError};

/// The time that a record is asked for before it has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The components that name a record.
const NAME: u64 = ServiceRecord::SERVICE_ID | ServiceRecord::SERVICE_GID | ServiceRecord::PKEY;

/// When to offer a service again: a refusal stays one.
fn again(error: SaError, now: Duration) -> Duration {
    match error {
        SaError::NoAnswer | SaError::Status(SaStatus::BUSY) => now.saturating_add(PATIENCE),
        _ => Duration::MAX,
    }
}

/// A question about a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceQuestion {
    /// `Get` looks for it, `Set` offers it, `Delete` takes it away.
    pub method: SaMethod,
    /// The service.
    pub wanted: ServiceRecord,
    /// Bits of what of it counts.
    pub components: u64,
}

impl Ask for ServiceQuestion {
    type Answer = ServiceRecord;

    const NONE: Self = Self {
        method: SaMethod::Get,
        wanted: ServiceRecord::ZERO,
        components: 0,
    };

    fn write(&self, transaction_id: u64, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError> {
        let header = SaHeader::request(self.method, transaction_id, self.components);
        self.wanted.emit(&header, mad)
    }

    fn is_answered_by(&self, mad: &SaMad<'_>) -> bool {
        mad.attribute() == SaAttribute::ServiceRecord
            && mad.header().method == self.method.response()
    }

    /// The record, which is about the service that was asked for.
    fn understand(&self, mad: &SaMad<'_>) -> Result<ServiceRecord, SaError> {
        let (record, wanted) = (mad.service_record().map_err(SaError::Mad)?, &self.wanted);
        let asked = |component| self.components & component != 0;
        let senseless = |field, value| Err(SaError::Senseless { field, value });
        if asked(ServiceRecord::SERVICE_ID) && record.service_id != wanted.service_id {
            return senseless("service_id", record.service_id);
        }
        if asked(ServiceRecord::SERVICE_GID) && record.service_gid != wanted.service_gid {
            let low = u128::from_be_bytes(record.service_gid) as u64;
            return senseless("service_gid", low);
        }
        if asked(ServiceRecord::NAME) && record.name != wanted.name {
            return senseless("name", record.name[0].into());
        }
        Ok(record)
    }
}

/// Where a service that is offered stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceStanding {
    /// Subnet administration has not answered yet.
    Asked,
    /// Subnet administration knows it, and its lease is renewed.
    Known,
    /// It does not. It is tried again when the subnet changes, and before that if it was no refusal.
    Failed(SaError),
    /// It is being taken away.
    Ending,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Free,
    Wanted,
    Asked(QuestionId, Duration),
    Known { renewal: Duration },
    Failed { error: SaError, again: Duration },
    Unwanted,
    Ending(QuestionId),
}

/// Storage for one service that is offered. Hand a slice of them to [`Services::new`].
#[derive(Debug, Clone, Copy)]
pub struct ServiceSlot {
    record: ServiceRecord,
    state: State,
}

impl ServiceSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        record: ServiceRecord::ZERO,
        state: State::Free,
    };

    fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    fn is(&self, record: &ServiceRecord) -> bool {
        let name = |record: &ServiceRecord| (record.service_id, record.service_gid, record.pkey);
        !self.is_free() && name(&self.record) == name(record)
    }

    fn begin(&mut self, client: &mut Client<'_, ServiceQuestion>, now: Duration) {
        let (method, components) = match self.state {
            State::Wanted => {
                let all = ServiceRecord::LEASE
                    | ServiceRecord::KEY
                    | ServiceRecord::NAME
                    | ServiceRecord::DATA;
                (SaMethod::Set, NAME | all)
            }
            State::Unwanted => (SaMethod::Delete, NAME | ServiceRecord::KEY),
            _ => return,
        };
        let question = ServiceQuestion {
            method,
            wanted: self.record,
            components,
        };
        // Without a slot for the question it stays as it is, until there is one.
        if let Ok(id) = client.ask(now, &question, now.saturating_add(PATIENCE)) {
            self.state = if method == SaMethod::Set {
                State::Asked(id, now)
            } else {
                State::Ending(id)
            };
        }
    }

    /// Half of the lease after it was asked for: an answer may be late, and the next question lost.
    fn renewal(&self, asked: Duration) -> Duration {
        match self.record.lease {
            ServiceRecord::FOREVER => Duration::MAX,
            seconds => asked.saturating_add(Duration::from_secs(seconds.into()) / 2),
        }
    }
}

impl Default for ServiceSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Offers services and looks for them.
///
/// A service that is offered stays until it is [withdrawn](Self::withdraw): its lease is renewed when half of it is over, and
/// it is offered again when subnet administration has forgotten it. When the port dies its lease runs out.
#[derive(Debug)]
pub struct Services<'s> {
    client: Client<'s, ServiceQuestion>,
    slots: &'s mut [ServiceSlot],
}

impl<'s> Services<'s> {
    /// None.
    pub fn new(
        config: Config,
        questions: &'s mut [QuestionSlot<ServiceQuestion>],
        slots: &'s mut [ServiceSlot],
    ) -> Self {
        slots.fill(ServiceSlot::EMPTY);
        Self {
            client: Client::new(config, questions),
            slots,
        }
    }

    /// Begins to offer a service, or changes what is said of it; [`standing`](Self::standing) has the result.
    ///
    /// # Errors
    /// If there is no slot for it, or if its lease is no time at all.
    pub fn offer(&mut self, now: Duration, record: &ServiceRecord) -> Result<(), SaError> {
        // It would be renewed without end.
        if record.lease < 2 {
            return Err(SaError::Senseless {
                field: "lease",
                value: record.lease.into(),
            });
        }
        let capacity = self.slots.len();
        let place = self.slots.iter().position(|slot| slot.is(record));
        let place = place.or_else(|| self.slots.iter().position(ServiceSlot::is_free));
        let slot = place.and_then(|place| self.slots.get_mut(place));
        let slot = slot.ok_or(SaError::NoSlots {
            what: "services",
            capacity,
        })?;
        if let State::Asked(question, _) | State::Ending(question) = slot.state {
            self.client.cancel(question);
        }
        slot.record = *record;
        slot.state = State::Wanted;
        slot.begin(&mut self.client, now);
        Ok(())
    }

    /// Takes a service away: the one with the record's service, GID and partition.
    pub fn withdraw(&mut self, now: Duration, record: &ServiceRecord) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.is(record)) else {
            return;
        };
        match slot.state {
            State::Unwanted | State::Ending(_) => return,
            State::Asked(question, _) => self.client.cancel(question),
            _ => {}
        }
        slot.state = State::Unwanted;
        slot.begin(&mut self.client, now);
    }

    /// Where a service that is offered stands; `None` if it is not, or not any more.
    pub fn standing(&self, record: &ServiceRecord) -> Option<ServiceStanding> {
        let slot = self.slots.iter().find(|slot| slot.is(record))?;
        Some(match slot.state {
            State::Free => return None,
            State::Wanted | State::Asked(..) => ServiceStanding::Asked,
            State::Known { .. } => ServiceStanding::Known,
            State::Failed { error, .. } => ServiceStanding::Failed(error),
            State::Unwanted | State::Ending(_) => ServiceStanding::Ending,
        })
    }

    /// Looks for a service; [`found`](Self::found) has the answer.
    ///
    /// # Errors
    /// If there is no slot for the question.
    pub fn find(
        &mut self,
        now: Duration,
        wanted: &ServiceRecord,
        components: u64,
        deadline: Duration,
    ) -> Result<QuestionId, SaError> {
        let question = ServiceQuestion {
            method: SaMethod::Get,
            wanted: *wanted,
            components,
        };
        self.client.ask(now, &question, deadline)
    }

    /// The service that was looked for; `None` while it is. Can be had once.
    pub fn found(&mut self, id: QuestionId) -> Option<Result<ServiceRecord, SaError>> {
        self.client.outcome(id)
    }

    fn advance(&mut self, now: Duration) {
        for slot in self.slots.iter_mut() {
            slot.state = match slot.state {
                State::Asked(question, asked) => match self.client.outcome(question) {
                    Some(Ok(_)) => State::Known {
                        renewal: slot.renewal(asked),
                    },
                    Some(Err(error)) => State::Failed {
                        error,
                        again: again(error, now),
                    },
                    None => continue,
                },
                State::Ending(question) if self.client.outcome(question).is_some() => State::Free,
                State::Known { renewal: due } | State::Failed { again: due, .. } if now >= due => {
                    State::Wanted
                }
                state => state,
            };
            slot.begin(&mut self.client, now);
        }
    }
}

impl SaUser for Services<'_> {
    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.advance(now);
        self.client.poll_transmit(now, mad)
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        self.client.redirection()
    }

    fn asks(&self, lid: u16) -> bool {
        self.client.asks(lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) -> Taken {
        let Ok(parsed) = SaMad::new(mad) else {
            return Taken::NotMine;
        };
        let mine = parsed.attribute() == SaAttribute::ServiceRecord;
        if !mine && parsed.redirection().is_none() {
            return Taken::NotMine;
        }
        match self.client.handle_mad(now, mad) {
            Ok(()) => self.advance(now),
            Err(_) if !mine => return Taken::NotMine,
            Err(ignored) => log::debug!("from subnet administration: {ignored}"),
        }
        Taken::Mine
    }

    fn subnet_changed(&mut self, now: Duration) {
        for slot in self.slots.iter_mut() {
            if matches!(slot.state, State::Known { .. } | State::Failed { .. }) {
                slot.state = State::Wanted;
            }
        }
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.client.handle_timeout(now);
        self.advance(now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        let renewals = self.slots.iter().filter_map(|slot| match slot.state {
            State::Known { renewal: due } | State::Failed { again: due, .. }
                if due < Duration::MAX =>
            {
                Some(due)
            }
            _ => None,
        });
        renewals.chain(self.client.next_deadline()).min()
    }
}
