//! The questions that are under way.

use core::time::Duration;

use super::pace::Pace;
use super::{Answer, Ask, Config, Ignored, Question, QuestionId, SaError, SaUser, Taken};
use crate::mad::sa::{
    McMemberRecord, PathRecord, SaAttribute, SaHeader, SaMad, SaMethod, SaPortInfo, SaRedirection,
    SaStatus,
};
use crate::mad::{MAD_LEN, MadError};

/// LIDs of ports, and of groups.
pub(crate) const PORT_LIDS: core::ops::Range<u16> = 1..0xc000;
const GROUP_LIDS: core::ops::Range<u16> = 0xc000..0xffff;
/// Membership of a partition apart from how.
const PKEY_BASE: u16 = 0x7fff;
/// Queue pairs that take such MADs: not that of subnet management, nor the one that stands for groups.
const QPNS: core::ops::Range<u32> = 1..0xff_ffff;
/// A transaction ID is another one where the question was redirected to, so that answers from before do not count.
pub(super) const ELSEWHERE: u64 = 1 << 63;
/// Exponents of times have five bits everywhere else.
const LONGEST_LIFE: u8 = 31;

/// The prefix of GIDs in a subnet that has not been given one (IBTA 4.1.1).
const LINK_LOCAL: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];

/// Where a question stands.
#[derive(Debug, Clone, Copy)]
enum QuestionState<A> {
    Free,
    Asked,
    Answered(Result<A, SaError>),
}

/// Storage for one query. Hand a slice of them to [`Client::new`].
#[derive(Debug, Clone, Copy)]
pub struct QuestionSlot<Q: Ask = Question> {
    state: QuestionState<Q::Answer>,
    question: Q,
    transaction_id: u64,
    pace: Pace,
    deadline: Duration,
    /// Where it is asked, if subnet administration has said so.
    redirection: Option<SaRedirection>,
    /// The last answer was that subnet administration is busy.
    busy: bool,
}

impl<Q: Ask> QuestionSlot<Q> {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        state: QuestionState::Free,
        question: Q::NONE,
        transaction_id: 0,
        pace: Pace::NONE,
        deadline: Duration::ZERO,
        redirection: None,
        busy: false,
    };

    fn is_asked(&self) -> bool {
        matches!(self.state, QuestionState::Asked)
    }

    /// The transaction ID on the wire.
    fn transaction(&self) -> u64 {
        match self.redirection {
            Some(_) => self.transaction_id ^ ELSEWHERE,
            None => self.transaction_id,
        }
    }

    /// Returns `true` if a MAD of the transaction is the answer, or says where there is one.
    fn is_answered_by(&self, mad: &SaMad<'_>) -> bool {
        let info = (mad.attribute(), mad.header().method)
            == (SaAttribute::ClassPortInfo, SaMethod::GetResp);
        info && mad.header().status == SaStatus::REDIRECT || self.question.is_answered_by(mad)
    }
}

impl<Q: Ask> Default for QuestionSlot<Q> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Asks subnet administration. All calls look at every slot: give as many as there are to be questions at once, not more.
#[derive(Debug)]
pub struct Client<'s, Q: Ask = Question> {
    config: Config,
    slots: &'s mut [QuestionSlot<Q>],
    asked: u64,
    /// Where the MAD that was written last goes.
    written: Option<SaRedirection>,
}

impl<'s, Q: Ask> Client<'s, Q> {
    /// A client that has asked nothing.
    pub fn new(config: Config, slots: &'s mut [QuestionSlot<Q>]) -> Self {
        slots.fill(QuestionSlot::EMPTY);
        Self {
            config,
            slots,
            asked: 0,
            written: None,
        }
    }

    /// Asks until `deadline`.
    ///
    /// # Errors
    /// If there is no slot for it.
    pub fn ask(
        &mut self,
        now: Duration,
        question: &Q,
        deadline: Duration,
    ) -> Result<QuestionId, SaError> {
        let capacity = self.slots.len();
        let free = |slot: &&mut QuestionSlot<Q>| matches!(slot.state, QuestionState::Free);
        let slot = self.slots.iter_mut().find(free).ok_or(SaError::NoSlots {
            what: "questions",
            capacity,
        })?;
        self.asked += 1;
        *slot = QuestionSlot {
            state: QuestionState::Asked,
            question: *question,
            // An odd multiplier: no name comes again.
            transaction_id: self
                .config
                .seed
                .wrapping_add(self.asked.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            pace: Pace::begin(&self.config, now),
            deadline,
            redirection: None,
            busy: false,
        };
        Ok(QuestionId(slot.transaction_id))
    }

    /// Lets a question that is under way have more time, if `deadline` is later than what it has.
    pub fn extend(&mut self, id: QuestionId, deadline: Duration) {
        if let Some(slot) = self.find(id.0) {
            slot.deadline = slot.deadline.max(deadline);
        }
    }

    /// The outcome of a question; `None` while it is under way. Can be had once.
    pub fn outcome(&mut self, id: QuestionId) -> Option<Result<Q::Answer, SaError>> {
        let slot = self.find(id.0)?;
        let QuestionState::Answered(outcome) = slot.state else {
            return None;
        };
        slot.state = QuestionState::Free;
        Some(outcome)
    }

    /// The answer is not wanted any more.
    pub fn cancel(&mut self, id: QuestionId) {
        if let Some(slot) = self.find(id.0) {
            slot.state = QuestionState::Free;
        }
    }

    /// Questions that are under way, or answered and not fetched.
    pub fn in_use(&self) -> usize {
        let used = |slot: &&QuestionSlot<Q>| !matches!(slot.state, QuestionState::Free);
        self.slots.iter().filter(used).count()
    }

    fn find(&mut self, transaction_id: u64) -> Option<&mut QuestionSlot<Q>> {
        let named = |slot: &&mut QuestionSlot<Q>| {
            slot.transaction_id == transaction_id && !matches!(slot.state, QuestionState::Free)
        };
        self.slots.iter_mut().find(named)
    }

    /// Gives up what has taken too long.
    pub fn handle_timeout(&mut self, now: Duration) {
        for slot in self.slots.iter_mut() {
            if slot.is_asked() && now >= slot.deadline {
                let error = if slot.busy {
                    SaError::Status(SaStatus::BUSY)
                } else {
                    SaError::NoAnswer
                };
                slot.state = QuestionState::Answered(Err(error));
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll_transmit`](Self::poll_transmit) have to be called at the
    /// latest.
    pub fn next_deadline(&self) -> Option<Duration> {
        let asked = self.slots.iter().filter(|slot| slot.is_asked());
        asked.map(|slot| slot.pace.next.min(slot.deadline)).min()
    }

    /// Writes the next MAD that is due, for QP1 of subnet administration or to where [`redirection`](Self::redirection) says.
    /// False if there is none.
    pub fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.handle_timeout(now);
        for slot in self.slots.iter_mut() {
            if !slot.is_asked() || now < slot.pace.next {
                continue;
            }
            slot.pace.sent(&self.config, now, slot.transaction_id);
            match slot.question.write(slot.transaction(), mad) {
                Ok(()) => {
                    self.written = slot.redirection;
                    return true;
                }
                Err(error) => slot.state = QuestionState::Answered(Err(SaError::Mad(error))),
            }
        }
        false
    }

    /// Where the MAD that [`poll_transmit`](Self::poll_transmit) has just written goes, if not to subnet administration. Can be
    /// had once.
    pub fn redirection(&mut self) -> Option<SaRedirection> {
        self.written.take()
    }

    /// Returns `true` if a question is under way to the port with this LID, to which it was redirected.
    pub fn asks(&self, lid: u16) -> bool {
        let there = |slot: &QuestionSlot<Q>| slot.redirection.is_some_and(|to| to.lid == lid);
        self.slots.iter().any(|slot| slot.is_asked() && there(slot))
    }

    /// Takes a MAD of class 3 that came to QP1 from subnet administration, or from a port that it [asks](Self::asks).
    ///
    /// The error is for the curious: nothing needs to be done about a MAD that was ignored.
    pub fn handle_mad(&mut self, now: Duration, mad: &[u8]) -> Result<(), Ignored> {
        let mad = SaMad::new(mad).map_err(Ignored::Malformed)?;
        let header = mad.header();
        let transaction_id = header.transaction_id;
        let asked = |slot: &&mut QuestionSlot<Q>| {
            slot.is_asked() && slot.transaction() == transaction_id && slot.is_answered_by(&mad)
        };
        let slot = self.slots.iter_mut().find(asked);
        let slot = slot.ok_or(Ignored::Unexpected { transaction_id })?;
        if header.status.is_busy() {
            slot.busy = true;
            slot.pace.busy(&self.config, now, slot.transaction_id);
            return Ok(());
        }
        if let Some(to) = mad.redirection() {
            let outcome = match slot.redirection {
                Some(from) => Err(SaError::RedirectedAgain(from.lid)),
                None => check_redirection(&to),
            };
            match outcome {
                Ok(()) => {
                    slot.redirection = Some(to);
                    slot.pace = Pace::begin(&self.config, now);
                    slot.busy = false;
                }
                Err(error) => slot.state = QuestionState::Answered(Err(error)),
            }
            return Ok(());
        }
        slot.state = QuestionState::Answered(if header.status.is_success() {
            slot.question.understand(&mad)
        } else {
            Err(SaError::Status(header.status))
        });
        Ok(())
    }
}

impl<Q: Ask> SaUser for Client<'_, Q> {
    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        Self::poll_transmit(self, now, mad)
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        Self::redirection(self)
    }

    fn asks(&self, lid: u16) -> bool {
        Self::asks(self, lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) -> Taken {
        match Self::handle_mad(self, now, mad) {
            Ok(()) => Taken::Mine,
            Err(_) => Taken::NotMine,
        }
    }

    /// Questions are not answered otherwise by it.
    fn subnet_changed(&mut self, _now: Duration) {}

    fn handle_timeout(&mut self, now: Duration) {
        Self::handle_timeout(self, now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        Self::next_deadline(self)
    }
}

impl Question {
    fn method(&self) -> SaMethod {
        match *self {
            Question::PortInfo | Question::Path { .. } => SaMethod::Get,
            Question::Member { method, .. } => method,
        }
    }
}

impl Ask for Question {
    type Answer = Answer;

    const NONE: Self = Self::PortInfo;

    fn write(&self, transaction_id: u64, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError> {
        let header = |components| SaHeader::request(self.method(), transaction_id, components);
        match self {
            Question::PortInfo => SaPortInfo::default().emit(&header(0), mad),
            Question::Path { wanted, components } => wanted.emit(&header(*components), mad),
            Question::Member {
                wanted, components, ..
            } => wanted.emit(&header(*components), mad),
        }
    }

    fn is_answered_by(&self, mad: &SaMad<'_>) -> bool {
        let attribute = match self {
            Question::PortInfo => SaAttribute::ClassPortInfo,
            Question::Path { .. } => SaAttribute::PathRecord,
            Question::Member { .. } => SaAttribute::McMemberRecord,
        };
        mad.attribute() == attribute && mad.header().method == self.method().response()
    }

    /// The answer, if it makes sense.
    fn understand(&self, mad: &SaMad<'_>) -> Result<Answer, SaError> {
        Ok(match self {
            Question::PortInfo => Answer::PortInfo(mad.port_info().map_err(SaError::Mad)?),
            Question::Path { wanted, components } => {
                let path = mad.path_record().map_err(SaError::Mad)?;
                check_path(&path, wanted, *components)?;
                Answer::Path(path)
            }
            Question::Member { method, wanted, .. } => {
                let member = mad.mc_member_record().map_err(SaError::Mad)?;
                check_member(&member, wanted, *method)?;
                Answer::Member(member)
            }
        })
    }
}

fn sensible(field: &'static str, good: bool, value: impl Into<u64>) -> Result<(), SaError> {
    if good {
        Ok(())
    } else {
        Err(SaError::Senseless {
            field,
            value: value.into(),
        })
    }
}

/// Checks whether a MAD can be sent there: by its LID, from QP1, which is in the default partition.
pub(super) fn check_redirection(to: &SaRedirection) -> Result<(), SaError> {
    sensible("redirect_lid", PORT_LIDS.contains(&to.lid), to.lid)?;
    sensible("redirect_qpn", QPNS.contains(&to.qpn), to.qpn)?;
    sensible("redirect_pkey", to.pkey & PKEY_BASE == PKEY_BASE, to.pkey)
}

fn same_gid(
    field: &'static str,
    asked: bool,
    wanted: &[u8; 16],
    found: &[u8; 16],
) -> Result<(), SaError> {
    let low = u128::from_be_bytes(*found) as u64;
    sensible(field, !asked || wanted == found, low)
}

/// The found GID, with the link-local prefix if the question had that one: it stands for the subnet's own prefix, and OpenSM
/// (3.3.23) answers with the latter.
fn with_prefix_asked(wanted: &[u8; 16], mut found: [u8; 16]) -> [u8; 16] {
    if wanted[..8] == LINK_LOCAL {
        found[..8].copy_from_slice(&LINK_LOCAL);
    }
    found
}

fn same_partition(asked: bool, wanted: u16, found: u16) -> Result<(), SaError> {
    let same = !asked || (wanted ^ found) & PKEY_BASE == 0;
    sensible("pkey", same, found)
}

fn check_path(path: &PathRecord, wanted: &PathRecord, components: u64) -> Result<(), SaError> {
    let asked = |component| components & component != 0;
    let dgid = with_prefix_asked(&wanted.dgid, path.dgid);
    let sgid = with_prefix_asked(&wanted.sgid, path.sgid);
    same_gid("dgid", asked(PathRecord::DGID), &wanted.dgid, &dgid)?;
    same_gid("sgid", asked(PathRecord::SGID), &wanted.sgid, &sgid)?;
    same_partition(asked(PathRecord::PKEY), wanted.pkey, path.pkey)?;
    check_path_fields(path)
}

/// Checks whether the path is valid.
pub(crate) fn check_path_fields(path: &PathRecord) -> Result<(), SaError> {
    sensible("dlid", PORT_LIDS.contains(&path.dlid), path.dlid)?;
    sensible("slid", PORT_LIDS.contains(&path.slid), path.slid)?;
    sensible("raw_traffic", path.raw_traffic == 0, path.raw_traffic)?;
    check_quality(path.mtu, path.packet_life_time)
}

fn check_quality(mtu: u8, life: u8) -> Result<(), SaError> {
    sensible("mtu", (1..=5).contains(&mtu), mtu)?;
    sensible("packet_life_time", life <= LONGEST_LIFE, life)
}

fn check_member(
    member: &McMemberRecord,
    wanted: &McMemberRecord,
    method: SaMethod,
) -> Result<(), SaError> {
    same_gid("mgid", true, &wanted.mgid, &member.mgid)?;
    if method == SaMethod::Delete {
        // Any other answer ends the query.
        return Ok(());
    }
    same_gid(
        "port_gid",
        method == SaMethod::Set,
        &wanted.port_gid,
        &member.port_gid,
    )?;
    sensible("mlid", GROUP_LIDS.contains(&member.mlid), member.mlid)?;
    same_partition(wanted.pkey != 0, wanted.pkey, member.pkey)?;
    check_quality(member.mtu, member.packet_life_time)
}
