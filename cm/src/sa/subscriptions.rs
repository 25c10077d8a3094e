//! Subscriptions to notices (InformInfo), and the reports that follow (IBTA volume 1, chapters 13.4.11 and 15.4.3).

use core::time::Duration;

use super::{Ask, Client, Config, Ignored, QuestionId, QuestionSlot, SaError, SaUser, Taken};
use crate::mad::sa::{
    InformInfo, Notice, SaAttribute, SaHeader, SaMad, SaMethod, SaRedirection, SaStatus, Trap,
};
use crate::mad::{MAD_LEN, MadError};

/// The time that a subscription is asked for before it has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Exponent of the time that subnet administration is to wait for the answer to a report: 2.1 s.
const RESPONSE_TIME: u8 = 19;
const QP1: u32 = 1;
const ANY_PRODUCER: u32 = 0xff_ffff;

/// A subscription, or the end of one, as a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InformQuestion {
    trap: u16,
    subscribe: bool,
}

impl Ask for InformQuestion {
    type Answer = ();

    const NONE: Self = Self {
        trap: 0,
        subscribe: false,
    };

    fn write(&self, transaction_id: u64, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError> {
        let info = InformInfo {
            lid_range_begin: InformInfo::ALL_LIDS,
            is_generic: 1,
            subscribe: self.subscribe.into(),
            kind: u16::MAX,
            trap: self.trap,
            // Counts where a subscription ends only: subnet administration takes the sender's.
            qpn: QP1,
            response_time: RESPONSE_TIME,
            producer: ANY_PRODUCER,
            ..InformInfo::ZERO
        };
        info.emit(&SaHeader::request(SaMethod::Set, transaction_id, 0), mad)
    }

    fn is_answered_by(&self, mad: &SaMad<'_>) -> bool {
        mad.attribute() == SaAttribute::InformInfo && mad.header().method == SaMethod::GetResp
    }

    fn understand(&self, mad: &SaMad<'_>) -> Result<(), SaError> {
        let info = mad.inform_info().map_err(SaError::Mad)?;
        let senseless = |field, value: u16| {
            Err(SaError::Senseless {
                field,
                value: value.into(),
            })
        };
        if info.trap != self.trap {
            return senseless("trap", info.trap);
        }
        // A refusal may have success for status, and this bit at 0.
        if self.subscribe && info.subscribe != 1 {
            return senseless("subscribe", info.subscribe.into());
        }
        Ok(())
    }
}

/// Where a subscription stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Subnet administration has not answered yet.
    Asked,
    /// There will be reports.
    Active,
    /// There will be none. It is tried again when the subnet changes.
    Failed(SaError),
    /// The subscription is being ended.
    Ending,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Free,
    Wanted,
    Asked(QuestionId),
    Active,
    Failed(SaError),
    Unwanted,
    Ending(QuestionId),
}

/// Storage for one subscription. Hand a slice of them to [`Subscriptions::new`].
#[derive(Debug, Clone, Copy)]
pub struct SubscriptionSlot {
    trap: u16,
    state: State,
}

impl SubscriptionSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        trap: 0,
        state: State::Free,
    };

    fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    fn begin(&mut self, client: &mut Client<'_, InformQuestion>, now: Duration) {
        let subscribe = match self.state {
            State::Wanted => true,
            State::Unwanted => false,
            _ => return,
        };
        let question = InformQuestion {
            trap: self.trap,
            subscribe,
        };
        // Without a slot for the question it stays as it is, until there is one.
        if let Ok(id) = client.ask(now, &question, now.saturating_add(PATIENCE)) {
            self.state = if subscribe {
                State::Asked(id)
            } else {
                State::Ending(id)
            };
        }
    }
}

impl Default for SubscriptionSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Storage for one report. Hand a slice of them to [`Subscriptions::new`].
#[derive(Debug, Clone, Copy)]
pub struct ReportSlot {
    transaction_id: u64,
    notice: Notice,
    /// Its place among all; 0 if there was none.
    seq: u64,
    unread: bool,
    unanswered: bool,
}

impl ReportSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        transaction_id: 0,
        notice: Notice::ZERO,
        seq: 0,
        unread: false,
        unanswered: false,
    };
}

impl Default for ReportSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Subscribes to notices and takes their reports.
///
/// A report is answered when there is a slot for it, and comes again otherwise. One that comes twice is answered twice and
/// can be had once. What is subscribed to is subscribed to again when subnet administration has forgotten it.
#[derive(Debug)]
pub struct Subscriptions<'s> {
    client: Client<'s, InformQuestion>,
    slots: &'s mut [SubscriptionSlot],
    reports: &'s mut [ReportSlot],
    seq: u64,
}

impl<'s> Subscriptions<'s> {
    /// None.
    pub fn new(
        config: Config,
        questions: &'s mut [QuestionSlot<InformQuestion>],
        slots: &'s mut [SubscriptionSlot],
        reports: &'s mut [ReportSlot],
    ) -> Self {
        slots.fill(SubscriptionSlot::EMPTY);
        reports.fill(ReportSlot::EMPTY);
        Self {
            client: Client::new(config, questions),
            slots,
            reports,
            seq: 0,
        }
    }

    /// Begins to subscribe to a notice; [`standing`](Self::standing) has the result.
    ///
    /// # Errors
    /// If there is no slot for it.
    pub fn subscribe(&mut self, now: Duration, trap: Trap) -> Result<(), SaError> {
        let trap = trap as u16;
        let capacity = self.slots.len();
        let mine = |slot: &SubscriptionSlot| !slot.is_free() && slot.trap == trap;
        let place = self.slots.iter().position(mine);
        let place = place.or_else(|| self.slots.iter().position(SubscriptionSlot::is_free));
        let slot = place.and_then(|place| self.slots.get_mut(place));
        let slot = slot.ok_or(SaError::NoSlots {
            what: "subscriptions",
            capacity,
        })?;
        match slot.state {
            State::Wanted | State::Asked(_) | State::Active => return Ok(()),
            State::Ending(question) => self.client.cancel(question),
            State::Free | State::Failed(_) | State::Unwanted => {}
        }
        slot.trap = trap;
        slot.state = State::Wanted;
        slot.begin(&mut self.client, now);
        Ok(())
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, now: Duration, trap: Trap) {
        let Some(slot) = self.find(trap as u16) else {
            return;
        };
        let known = match slot.state {
            State::Ending(_) | State::Unwanted => return,
            // Its answer may be lost.
            State::Asked(_) | State::Active | State::Failed(SaError::NoAnswer) => true,
            State::Free | State::Wanted | State::Failed(_) => false,
        };
        let state = core::mem::replace(
            &mut slot.state,
            if known { State::Unwanted } else { State::Free },
        );
        if let State::Asked(question) = state {
            self.client.cancel(question);
        }
        self.advance(now);
    }

    /// Where a subscription stands; `None` if there is none.
    pub fn standing(&self, trap: Trap) -> Option<Standing> {
        let mine = |slot: &&SubscriptionSlot| slot.trap == trap as u16;
        Some(match self.slots.iter().find(mine)?.state {
            State::Free => return None,
            State::Wanted | State::Asked(_) => Standing::Asked,
            State::Active => Standing::Active,
            State::Failed(error) => Standing::Failed(error),
            State::Unwanted | State::Ending(_) => Standing::Ending,
        })
    }

    /// The next report, oldest first.
    pub fn next_report(&mut self) -> Option<Notice> {
        let unread = self.reports.iter_mut().filter(|slot| slot.unread);
        let slot = unread.min_by_key(|slot| slot.seq)?;
        slot.unread = false;
        Some(slot.notice)
    }

    fn find(&mut self, trap: u16) -> Option<&mut SubscriptionSlot> {
        let mine = |slot: &&mut SubscriptionSlot| !slot.is_free() && slot.trap == trap;
        self.slots.iter_mut().find(mine)
    }

    fn advance(&mut self, now: Duration) {
        for slot in self.slots.iter_mut() {
            slot.state = match slot.state {
                State::Asked(question) => match self.client.outcome(question) {
                    Some(Ok(())) => State::Active,
                    Some(Err(error)) => State::Failed(error),
                    None => continue,
                },
                // Also where it is refused: there is nothing to end then.
                State::Ending(question) if self.client.outcome(question).is_some() => State::Free,
                _ => {
                    slot.begin(&mut self.client, now);
                    continue;
                }
            };
        }
    }

    fn report(&mut self, mad: &SaMad<'_>) -> Result<Notice, Ignored> {
        let notice = mad.notice().map_err(Ignored::Malformed)?;
        let transaction_id = mad.header().transaction_id;
        if notice.is_generic != 1 || self.find(notice.trap).is_none() {
            return Err(Ignored::NotSubscribed { trap: notice.trap });
        }
        let same = |slot: &ReportSlot| {
            slot.seq != 0 && slot.transaction_id == transaction_id && slot.notice == notice
        };
        if let Some(slot) = self.reports.iter_mut().find(|slot| same(slot)) {
            slot.unanswered = true;
            return Ok(notice);
        }
        let done = self
            .reports
            .iter_mut()
            .filter(|slot| !slot.unread && !slot.unanswered);
        let slot = done.min_by_key(|slot| slot.seq).ok_or(Ignored::NoRoom)?;
        self.seq += 1;
        *slot = ReportSlot {
            transaction_id,
            notice,
            seq: self.seq,
            unread: true,
            unanswered: true,
        };
        Ok(notice)
    }
}

impl SaUser for Subscriptions<'_> {
    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        if let Some(slot) = self.reports.iter_mut().find(|slot| slot.unanswered) {
            slot.unanswered = false;
            let header = SaHeader::request(SaMethod::ReportResp, slot.transaction_id, 0);
            // Its values came out of such a MAD.
            return slot.notice.emit(&header, mad).is_ok();
        }
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
        match (parsed.attribute(), parsed.header().method) {
            (SaAttribute::Notice, SaMethod::Report)
                if parsed.header().status == SaStatus::SUCCESS =>
            {
                match self.report(&parsed) {
                    Ok(notice) if notice.is(Trap::GidOutOfService) => {
                        return Taken::GidGone(notice.gid);
                    }
                    Ok(_) => {}
                    Err(ignored) => log::debug!("from subnet administration: {ignored}"),
                }
            }
            (SaAttribute::InformInfo, _) => match self.client.handle_mad(now, mad) {
                Ok(()) => self.advance(now),
                Err(ignored) => log::debug!("from subnet administration: {ignored}"),
            },
            _ if parsed.redirection().is_some() => match self.client.handle_mad(now, mad) {
                Ok(()) => self.advance(now),
                Err(_) => return Taken::NotMine,
            },
            _ => return Taken::NotMine,
        }
        Taken::Mine
    }

    fn subnet_changed(&mut self, now: Duration) {
        for slot in self.slots.iter_mut() {
            if matches!(slot.state, State::Active | State::Failed(_)) {
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
        if self.reports.iter().any(|slot| slot.unanswered) {
            return Some(Duration::ZERO);
        }
        self.client.next_deadline()
    }
}
