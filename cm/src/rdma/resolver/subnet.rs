//! The resolver of InfiniBand ports: queries subnet administration for paths and groups, and keeps the answers.

use core::net::IpAddr;
use core::time::Duration;

use crate::mad::MAD_LEN;
use crate::mad::sa::{JoinState, McMemberRecord, PathRecord, SaMethod, SaRedirection};
use crate::rdma::resolver::{Attempt, Membership, Neighbours, PathQuery, Resolution, Subnet};
use crate::rdma::types::error::RdmaError;
use crate::sa::{Answer, Client, Config, Question, QuestionId, QuestionSlot, SaError};

/// The time that a path is used without asking again.
const PATH_LIFE: Duration = Duration::from_secs(60);
/// The time that an answer is kept for the id that asked.
const KEPT: Duration = Duration::from_secs(1);
/// The time for attempts to leave a group. No caller waits for it.
const LEAVING: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy)]
enum PathState {
    Unknown,
    Asked(QuestionId),
    Known { path: PathRecord, at: Duration },
    Failed { error: SaError, at: Duration },
}

/// Storage for one path. Hand a slice of them to [`SubnetAdministration::new`].
#[derive(Debug, Clone, Copy)]
pub struct PathSlot {
    query: PathQuery,
    state: PathState,
    /// The last attempt that this answers.
    seq: u64,
    /// Until when it stays for the id that asked, if it was not fetched.
    kept_until: Duration,
}

impl PathSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        query: PathQuery {
            sgid: [0; 16],
            dgid: [0; 16],
            pkey: 0,
            service_id: 0,
            traffic_class: 0,
        },
        state: PathState::Unknown,
        seq: 0,
        kept_until: Duration::ZERO,
    };

    /// When it was resolved; `None` if it is still needed.
    fn age(&self, now: Duration) -> Option<Duration> {
        match self.state {
            PathState::Unknown => Some(Duration::ZERO),
            PathState::Known { at, .. } | PathState::Failed { at, .. }
                if now >= self.kept_until =>
            {
                Some(at)
            }
            _ => None,
        }
    }
}

impl Default for PathSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

#[derive(Debug, Clone, Copy)]
enum MemberState {
    Free,
    Joining(QuestionId),
    In(McMemberRecord),
    Failed(SaError),
    /// To be left, as soon as there is a slot for the question.
    Unwanted,
    Leaving(QuestionId),
}

/// Storage for one group that the port is in. Hand a slice of them to [`SubnetAdministration::new`].
#[derive(Debug, Clone, Copy)]
pub struct MemberSlot {
    membership: Membership,
    state: MemberState,
    /// The ids that join the group, and until when the last of them waits.
    users: u32,
    until: Duration,
}

impl MemberSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        membership: Membership {
            mgid: [0; 16],
            port_gid: [0; 16],
            pkey: 0,
            qkey: 0,
            traffic_class: 0,
            join_state: JoinState::FullMember,
        },
        state: MemberState::Free,
        users: 0,
        until: Duration::ZERO,
    };

    fn is_free(&self) -> bool {
        matches!(self.state, MemberState::Free)
    }

    fn join(&mut self, client: &mut Client<'_>, now: Duration) {
        self.state = match client.ask(now, &joining(&self.membership), self.until) {
            Ok(question) => MemberState::Joining(question),
            Err(error) => MemberState::Failed(error),
        };
    }

    /// Where the port is no member, or may be one after a lost answer, the leave is sent to subnet administration.
    fn leave(&mut self, client: &mut Client<'_>, now: Duration) {
        let registered = match self.state {
            MemberState::Joining(question) => {
                client.cancel(question);
                true
            }
            MemberState::In(_) => true,
            MemberState::Failed(error) => error == SaError::NoAnswer,
            MemberState::Free | MemberState::Unwanted | MemberState::Leaving(_) => return,
        };
        self.state = if registered {
            MemberState::Unwanted
        } else {
            MemberState::Free
        };
        self.advance(client, now);
    }

    fn advance(&mut self, client: &mut Client<'_>, now: Duration) {
        match self.state {
            MemberState::Joining(question) => match client.outcome(question) {
                Some(Ok(Answer::Member(record))) => self.state = MemberState::In(record),
                Some(Err(error)) => self.state = MemberState::Failed(error),
                _ => {}
            },
            MemberState::Unwanted => {
                let until = now.saturating_add(LEAVING);
                if let Ok(question) = client.ask(now, &leaving(&self.membership), until) {
                    self.state = MemberState::Leaving(question);
                }
            }
            MemberState::Leaving(question) if client.outcome(question).is_some() => {
                self.state = MemberState::Free;
                if self.users > 0 {
                    self.join(client, now);
                }
            }
            _ => {}
        }
    }
}

impl Default for MemberSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// All the memory of a [`SubnetAdministration`].
#[derive(Debug)]
pub struct SubnetStorage<'s> {
    /// One slot per question that may be under way at once.
    pub questions: &'s mut [QuestionSlot],
    /// One slot per path that is kept. When they are all in use the oldest is replaced.
    pub paths: &'s mut [PathSlot],
    /// One slot per group that the port is in.
    pub members: &'s mut [MemberSlot],
}

/// `N` queries that may be under way at once, as [`SubnetResources`] counts them.
pub type Questions<const N: usize> = [QuestionSlot; N];

/// `N` paths that are kept, as [`SubnetResources`] counts them.
pub type Paths<const N: usize> = [PathSlot; N];

/// `N` groups that the port is in, as [`SubnetResources`] counts them.
pub type Members<const N: usize> = [MemberSlot; N];

/// Storage as one value, for arrays and statics. The type says how many there are of what.
#[derive(Debug)]
pub struct SubnetResources<Q, P, M> {
    questions: Q,
    paths: P,
    members: M,
}

impl<const Q: usize, const P: usize, const M: usize>
    SubnetResources<Questions<Q>, Paths<P>, Members<M>>
{
    /// Empty storage.
    pub const fn new() -> Self {
        Self {
            questions: [QuestionSlot::EMPTY; Q],
            paths: [PathSlot::EMPTY; P],
            members: [MemberSlot::EMPTY; M],
        }
    }

    /// The storage.
    pub const fn storage(&mut self) -> SubnetStorage<'_> {
        SubnetStorage {
            questions: &mut self.questions,
            paths: &mut self.paths,
            members: &mut self.members,
        }
    }
}

impl<const Q: usize, const P: usize, const M: usize> Default
    for SubnetResources<Questions<Q>, Paths<P>, Members<M>>
{
    fn default() -> Self {
        Self::new()
    }
}

/// Finds paths and joins groups by asking subnet administration. Its MADs go through the manager's QP1 to the LID that the
/// port has for the subnet manager.
///
/// Ids that need the same path at the same time share a query, and a path is kept for a minute; the port is in a group
/// as long as one id is.
#[derive(Debug)]
pub struct SubnetAdministration<'s> {
    client: Client<'s>,
    paths: &'s mut [PathSlot],
    members: &'s mut [MemberSlot],
}

impl<'s> SubnetAdministration<'s> {
    /// Empty.
    pub fn new(config: Config, storage: SubnetStorage<'s>) -> Self {
        storage.paths.fill(PathSlot::EMPTY);
        storage.members.fill(MemberSlot::EMPTY);
        Self {
            client: Client::new(config, storage.questions),
            paths: storage.paths,
            members: storage.members,
        }
    }

    /// The questions that are under way.
    pub const fn client(&self) -> &Client<'s> {
        &self.client
    }

    /// Groups that the port is in, or about to join or leave.
    pub fn groups(&self) -> usize {
        self.members.iter().filter(|slot| !slot.is_free()).count()
    }

    /// Fetches answers.
    fn advance(&mut self, now: Duration) {
        for slot in self.paths.iter_mut() {
            let PathState::Asked(question) = slot.state else {
                continue;
            };
            slot.state = match self.client.outcome(question) {
                Some(Ok(Answer::Path(path))) => PathState::Known { path, at: now },
                Some(Err(error)) => PathState::Failed { error, at: now },
                _ => continue,
            };
            slot.kept_until = now.saturating_add(KEPT);
        }
        for slot in self.members.iter_mut() {
            slot.advance(&mut self.client, now);
        }
    }

    /// The slot of a path, or the one that is best replaced.
    fn path_slot(&mut self, now: Duration, query: &PathQuery) -> Option<&mut PathSlot> {
        let known =
            |slot: &PathSlot| slot.query == *query && !matches!(slot.state, PathState::Unknown);
        let place = self.paths.iter().position(known).or_else(|| {
            let ages = self.paths.iter().enumerate();
            ages.filter_map(|(place, slot)| Some((slot.age(now)?, place)))
                .min()
                .map(|(_, place)| place)
        })?;
        self.paths.get_mut(place)
    }
}

/// The same fields as Linux's RDMA CM asks for.
fn path_question(query: &PathQuery) -> Question {
    Question::Path {
        wanted: PathRecord {
            service_id: query.service_id,
            dgid: query.dgid,
            sgid: query.sgid,
            pkey: query.pkey,
            traffic_class: query.traffic_class,
            reversible: 1,
            numb_path: 1,
            ..PathRecord::ZERO
        },
        components: PathRecord::SERVICE_ID
            | PathRecord::DGID
            | PathRecord::SGID
            | PathRecord::PKEY
            | PathRecord::TRAFFIC_CLASS
            | PathRecord::REVERSIBLE
            | PathRecord::NUMB_PATH,
    }
}

/// With what a group needs that does not exist yet; without a Q_Key, for one that does.
fn joining(membership: &Membership) -> Question {
    let made = McMemberRecord::QKEY
        | McMemberRecord::SL
        | McMemberRecord::FLOW_LABEL
        | McMemberRecord::TRAFFIC_CLASS;
    let made = if membership.qkey == 0 { 0 } else { made };
    Question::Member {
        method: SaMethod::Set,
        wanted: McMemberRecord {
            mgid: membership.mgid,
            port_gid: membership.port_gid,
            pkey: membership.pkey,
            qkey: membership.qkey,
            traffic_class: membership.traffic_class,
            // OpenSM keeps what a new group's first member says here, though it does not count.
            scope: membership.mgid[1] & 0xf,
            join_state: membership.join_state as u8,
            ..McMemberRecord::ZERO
        },
        components: McMemberRecord::MGID
            | McMemberRecord::PORT_GID
            | McMemberRecord::PKEY
            | McMemberRecord::JOIN_STATE
            | made,
    }
}

fn leaving(membership: &Membership) -> Question {
    Question::Member {
        method: SaMethod::Delete,
        wanted: McMemberRecord {
            mgid: membership.mgid,
            port_gid: membership.port_gid,
            join_state: membership.join_state as u8,
            ..McMemberRecord::ZERO
        },
        components: McMemberRecord::MGID | McMemberRecord::PORT_GID | McMemberRecord::JOIN_STATE,
    }
}

impl Neighbours for SubnetAdministration<'_> {
    /// IP addresses cannot be reached.
    fn resolve(&mut self, _now: Duration, _source: IpAddr, _destination: IpAddr) -> Resolution {
        Resolution::NoRoute
    }
}

impl Subnet for SubnetAdministration<'_> {
    fn find_path(
        &mut self,
        now: Duration,
        query: &PathQuery,
        attempt: Attempt,
    ) -> Result<Option<PathRecord>, RdmaError> {
        self.client.handle_timeout(now);
        self.advance(now);
        // If all slots are busy, the caller asks again until its time is over.
        let Some(slot) = self.path_slot(now, query) else {
            return Ok(None);
        };
        let (same, state, known_seq) = (slot.query == *query, slot.state, slot.seq);
        match state {
            PathState::Known { path, at } if same && now < at.saturating_add(PATH_LIFE) => {
                slot.kept_until = Duration::ZERO;
                return Ok(Some(path));
            }
            PathState::Failed { error, .. } if same && attempt.seq <= known_seq => {
                slot.kept_until = Duration::ZERO;
                return Err(error.into());
            }
            PathState::Asked(question) => {
                slot.seq = known_seq.max(attempt.seq);
                self.client.extend(question, attempt.until);
                return Ok(None);
            }
            _ => {}
        }
        slot.query = *query;
        slot.state = PathState::Unknown;
        let asked = self.client.ask(now, &path_question(query), attempt.until);
        let Ok(question) = asked else {
            return Ok(None);
        };
        let free = |slot: &&mut PathSlot| slot.query == *query;
        if let Some(slot) = self.paths.iter_mut().find(free) {
            slot.state = PathState::Asked(question);
            slot.seq = attempt.seq;
        }
        Ok(None)
    }

    fn join(
        &mut self,
        now: Duration,
        membership: &Membership,
        until: Duration,
    ) -> Result<(), RdmaError> {
        let capacity = self.members.len();
        let mine = |slot: &MemberSlot| !slot.is_free() && slot.membership.is(membership);
        let place = self.members.iter().position(mine);
        let place = place.or_else(|| self.members.iter().position(MemberSlot::is_free));
        let slot = place.and_then(|place| self.members.get_mut(place));
        let slot = slot.ok_or(SaError::NoSlots {
            what: "groups",
            capacity,
        })?;
        slot.users += 1;
        if slot.users == 1 {
            // Perhaps it is still being left.
            slot.membership = *membership;
        }
        slot.until = slot.until.max(until);
        match slot.state {
            MemberState::Free | MemberState::Failed(_) => {
                slot.membership = *membership;
                slot.until = until;
                slot.join(&mut self.client, now);
            }
            MemberState::Joining(question) => self.client.extend(question, until),
            MemberState::In(_) | MemberState::Unwanted | MemberState::Leaving(_) => {}
        }
        Ok(())
    }

    fn membership(
        &mut self,
        now: Duration,
        membership: &Membership,
    ) -> Result<Option<McMemberRecord>, RdmaError> {
        self.client.handle_timeout(now);
        self.advance(now);
        let mine = |slot: &&MemberSlot| !slot.is_free() && slot.membership.is(membership);
        match self.members.iter().find(mine).map(|slot| slot.state) {
            Some(MemberState::In(record)) => Ok(Some(record)),
            Some(MemberState::Failed(error)) => Err(error.into()),
            _ => Ok(None),
        }
    }

    fn leave(&mut self, now: Duration, membership: &Membership) {
        let mine = |slot: &&mut MemberSlot| !slot.is_free() && slot.membership.is(membership);
        if let Some(slot) = self.members.iter_mut().find(mine) {
            slot.users = slot.users.saturating_sub(1);
            if slot.users == 0 {
                slot.leave(&mut self.client, now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.client.poll_transmit(now, mad)
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        self.client.redirection()
    }

    fn asks(&self, lid: u16) -> bool {
        self.client.asks(lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) {
        match self.client.handle_mad(now, mad) {
            Ok(()) => self.advance(now),
            Err(ignored) => log::debug!("from subnet administration: {ignored}"),
        }
    }

    fn subnet_changed(&mut self, now: Duration) {
        for slot in self.paths.iter_mut() {
            if matches!(slot.state, PathState::Known { .. }) {
                *slot = PathSlot::EMPTY;
            }
        }
        for slot in self.members.iter_mut() {
            if matches!(slot.state, MemberState::In(_)) {
                slot.until = now.saturating_add(LEAVING);
                slot.join(&mut self.client, now);
            }
        }
    }

    fn gid_gone(&mut self, gid: [u8; 16]) {
        for slot in self.paths.iter_mut() {
            if slot.query.dgid == gid && matches!(slot.state, PathState::Known { .. }) {
                *slot = PathSlot::EMPTY;
            }
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.client.handle_timeout(now);
        self.advance(now);
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.client.next_deadline()
    }
}
