//! The neighbours: queries, addresses and their states (RFC 4861 section 7.3; ARP's answers, which have
//! no states of their own, drive the same).

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use super::frame::multicast_mac;
use super::{Event, Host, Mac, is_unicast};

const NIL: u32 = u32::MAX;
/// The routers that packets of ours may cross before they are dropped.
const HOP_LIMIT: u8 = 64;
/// The time that an unknown host keeps its slot, if others need it: a host that is there answers within a millisecond.
const TURN: Duration = Duration::from_millis(50);

/// The way of a datagram to an address out of the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// MAC address of the next hop.
    pub mac: [u8; 6],
    /// VLAN of the route. The GID table needs an entry with it.
    pub vlan: Option<u16>,
    /// Hop limit to send with.
    pub hop_limit: u8,
}

impl Neighbour {
    /// A neighbour on the untagged link.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            vlan: None,
            hop_limit: 64,
        }
    }
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Known.
    Found(Neighbour),
    /// Asked for; ask again later.
    Pending,
    /// There is no route to that address (ENETUNREACH).
    NoRoute,
    /// There is a route, but no host answers there (EHOSTUNREACH).
    NoAnswer,
}

/// Memory of one neighbour of a [`Host`].
#[derive(Debug, Clone, Copy)]
pub struct NeighbourSlot {
    state: State,
    ip: IpAddr,
    vlan: Option<u16>,
    mac: Mac,
    due: Option<Duration>,
    /// Number of questions asked.
    asked: u8,
    /// Resolved because of a message that it may never have sent; no longer so once a message of the host itself came.
    unknown: bool,
    used: Duration,
    report: Option<Report>,
    /// It has another MAC address than before, for [`Host::next_moved`].
    moved: bool,
    /// Neighbours are found over a hash table of chains: this is the next one in the neighbour's chain,
    next: u32,
    /// and this the first one of the chain that has this slot's number, whichever neighbour is in the slot.
    head: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// A question for its address is under way.
    Incomplete,
    /// Its questions were not answered.
    Failed,
    /// Has answered lately.
    Reachable,
    /// Its address is known from a message of its own.
    Stale,
    /// Is used without having answered lately.
    Delay,
    /// Is asked again.
    Probe,
}

#[derive(Debug, Clone, Copy)]
enum Report {
    /// It was not known, or not any more. A slot that others need is not kept for this.
    Known,
    Changed,
    Lost,
}

/// The message that a neighbour's address came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeighbourMessage {
    /// A query to us: an unknown host is kept as well, as it will get an answer.
    Question,
    /// It said where it is, because we had asked or not.
    Answer {
        solicited: bool,
        /// It may say something else than what was known.
        instead: bool,
    },
}

impl NeighbourSlot {
    /// No neighbour.
    pub const EMPTY: Self = Self {
        state: State::Free,
        ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        vlan: None,
        mac: [0; 6],
        due: None,
        asked: 0,
        unknown: false,
        used: Duration::ZERO,
        report: None,
        moved: false,
        next: NIL,
        head: NIL,
    };

    /// Returns `true` if there is nothing to report of it that has to be.
    const fn can_go(&self) -> bool {
        matches!(self.report, None | Some(Report::Known))
    }

    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }
}

impl Host<'_> {
    /// The route to `destination` from the own address `source`: known, or asked for. In the latter case ask again
    /// after [`poll_transmit`](Self::poll_transmit) and [`receive`](Self::receive) had something to do.
    pub fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        self.resolve_for(now, source, destination, false)
    }

    /// The same for the answer to an unsolicited message, perhaps with a forged source: known addresses are used, but
    /// at least a quarter of the slots is not for resolving such hosts, and they replace at most one sixteenth of the
    /// known neighbours. [`Pending`](Resolution::Pending) also while there is no free slot.
    pub fn resolve_unknown_host(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Resolution {
        self.resolve_for(now, source, destination, true)
    }

    fn resolve_for(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
        unknown: bool,
    ) -> Resolution {
        let found = |mac, vlan| {
            Resolution::Found(Neighbour {
                mac,
                vlan,
                hop_limit: HOP_LIMIT,
            })
        };
        if destination.is_multicast() {
            let mut own = self.addresses();
            let Some((_, _, vlan)) = own.find(|(ip, ..)| *ip == source) else {
                return Resolution::NoRoute;
            };
            return found(multicast_mac(destination), vlan);
        }
        let Some(next_hop) = self.next_hop(Some(source), destination).filter(|next_hop| {
            is_unicast(next_hop.hop) && !self.is_broadcast_of_link(next_hop.hop)
        }) else {
            return Resolution::NoRoute;
        };
        let index = if unknown {
            self.unknown_host_slot(now, next_hop.hop, next_hop.vlan)
        } else {
            self.neighbour_slot(now, next_hop.hop, next_hop.vlan)
        };
        let Some(index) = index else {
            return if unknown && !self.neighbours.is_empty() {
                Resolution::Pending
            } else {
                Resolution::NoAnswer
            };
        };
        let delay = now.saturating_add(self.config.delay);
        let slot = &mut self.neighbours[index];
        if !unknown {
            // Now this host itself sends to it.
            slot.unknown = false;
        }
        if !slot.unknown {
            slot.used = now;
        }
        let (state, mac) = (slot.state, slot.mac);
        match state {
            State::Free => {
                slot.state = State::Incomplete;
                slot.asked = 0;
                self.neighbour_due(index, now);
                Resolution::Pending
            }
            State::Incomplete => Resolution::Pending,
            State::Failed => Resolution::NoAnswer,
            State::Stale => {
                slot.state = State::Delay;
                self.neighbour_due(index, delay);
                found(mac, next_hop.vlan)
            }
            State::Reachable | State::Delay | State::Probe => found(mac, next_hop.vlan),
        }
    }

    /// Returns `true` if there is a route to `destination` from the own address `source`. No question is sent.
    pub fn has_route(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.next_hop(Some(source), destination)
            .is_some_and(|next_hop| {
                is_unicast(next_hop.hop) && !self.is_broadcast_of_link(next_hop.hop)
            })
    }

    /// Drops a neighbour's address, so that it is resolved again when it is needed next.
    pub fn forget(&mut self, address: IpAddr, vlan: Option<u16>) {
        if let Some(index) = self.find_neighbour(address, vlan) {
            self.free_neighbour(index);
        }
    }

    /// The neighbours whose MAC addresses are known.
    pub fn neighbours(&self) -> impl Iterator<Item = (IpAddr, Option<u16>, Mac)> {
        let known = |slot: &&NeighbourSlot| {
            !matches!(slot.state, State::Free | State::Incomplete | State::Failed)
        };
        let known = self.neighbours.iter().filter(known);
        known.map(|slot| (slot.ip, slot.vlan, slot.mac))
    }

    /// A neighbour's message arrived.
    pub(super) fn on_neighbour_message(
        &mut self,
        now: Duration,
        ip: IpAddr,
        vlan: Option<u16>,
        mac: Mac,
        how: NeighbourMessage,
    ) {
        if !is_unicast(ip) || mac[0] & 1 != 0 || mac == [0; 6] || self.is_own(ip, vlan) {
            return;
        }
        let index = match how {
            NeighbourMessage::Question => self.neighbour_slot(now, ip, vlan),
            // A host that was not asked for and does not ask is not kept.
            NeighbourMessage::Answer { .. } => self.find_neighbour(ip, vlan),
        };
        let Some(index) = index else {
            return;
        };
        let reachable = self.config.reachable / 2 + self.up_to(self.config.reachable);
        let slot = &mut self.neighbours[index];
        let other = slot.mac != mac;
        let known = !matches!(slot.state, State::Free | State::Incomplete | State::Failed);
        // An answer proves something only while there is a question.
        let asked = matches!(slot.state, State::Incomplete | State::Delay | State::Probe);
        let (solicited, instead) = match how {
            NeighbourMessage::Question => (false, true),
            NeighbourMessage::Answer { solicited, instead } => (solicited && asked, instead),
        };
        if known && other && !instead {
            // Doubt, no more (RFC 4861 section 7.2.5).
            if slot.state == State::Reachable {
                slot.state = State::Stale;
                slot.due = None;
            }
            return;
        }
        if other {
            (slot.moved, self.moved) = (true, true);
            slot.report = Some(if known {
                Report::Changed
            } else {
                Report::Known
            });
        }
        slot.mac = mac;
        slot.unknown = false;
        if solicited {
            slot.state = State::Reachable;
            self.neighbour_due(index, now.saturating_add(reachable));
        } else if !known || other {
            slot.state = State::Stale;
            slot.due = None;
        }
    }

    /// Sends the question that is due, and moves the entries on whose time has come.
    pub(super) fn transmit_neighbour(&mut self, now: Duration, buffer: &mut [u8]) -> Option<usize> {
        for index in 0..self.neighbours.len() {
            let slot = &mut self.neighbours[index];
            if slot.due.is_none_or(|due| now < due) {
                continue;
            }
            slot.due = None;
            match slot.state {
                State::Free | State::Stale => continue,
                State::Reachable => {
                    slot.state = State::Stale;
                    continue;
                }
                State::Failed => {
                    self.free_neighbour(index);
                    continue;
                }
                State::Delay => {
                    slot.state = State::Probe;
                    slot.asked = 0;
                }
                State::Incomplete | State::Probe => {}
            }
            let (ip, vlan, mac, probe) = (slot.ip, slot.vlan, slot.mac, slot.state == State::Probe);
            if slot.asked >= self.config.solicitations {
                slot.state = State::Failed;
                if probe {
                    slot.report = Some(Report::Lost);
                }
                self.neighbour_due(index, now.saturating_add(self.config.failed));
                continue;
            }
            slot.asked += 1;
            self.neighbour_due(index, now.saturating_add(self.config.retransmit));
            let to = probe.then_some(mac);
            let sent = match ip {
                IpAddr::V4(ip) => self.arp_request(buffer, ip, vlan, to),
                IpAddr::V6(ip) => self.nd_solicitation(buffer, ip, vlan, to),
            };
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    pub(super) fn neighbour_event(&mut self) -> Option<Event> {
        let slot = self
            .neighbours
            .iter_mut()
            .find(|slot| slot.report.is_some())?;
        let (address, vlan, mac) = (slot.ip, slot.vlan, slot.mac);
        Some(match slot.report.take()? {
            Report::Known | Report::Changed => Event::NeighbourChanged { address, vlan, mac },
            Report::Lost => Event::NeighbourLost { address, vlan },
        })
    }

    /// A neighbour whose MAC address has changed, or become known, since the last call. This is beside the events, so that as many
    /// can change at once as there are slots.
    pub(crate) fn next_moved(&mut self) -> Option<(IpAddr, Option<u16>, Mac)> {
        if !self.moved {
            return None;
        }
        let Some(slot) = self.neighbours.iter_mut().find(|slot| slot.moved) else {
            self.moved = false;
            return None;
        };
        slot.moved = false;
        Some((slot.ip, slot.vlan, slot.mac))
    }

    fn neighbour_due(&mut self, index: usize, at: Duration) {
        self.neighbours[index].due = Some(at);
        self.remind(at);
    }

    fn bucket(&self, ip: IpAddr, vlan: Option<u16>) -> Option<usize> {
        let bits = match ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ ip.to_bits() as u64,
        };
        // Seeded, as the hosts on the link choose the addresses.
        let hash = (bits ^ u64::from(vlan.unwrap_or(0)) << 48 ^ self.config.seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(hash >> 32)
            .ok()?
            .checked_rem(self.neighbours.len())
    }

    fn find_neighbour(&self, ip: IpAddr, vlan: Option<u16>) -> Option<usize> {
        let mut at = self.neighbours[self.bucket(ip, vlan)?].head as usize;
        while let Some(slot) = self.neighbours.get(at) {
            if slot.ip == ip && slot.vlan == vlan {
                return Some(at);
            }
            at = slot.next as usize;
        }
        None
    }

    /// The slot of a neighbour, new or old; `None` if all are needed for others.
    fn neighbour_slot(&mut self, now: Duration, ip: IpAddr, vlan: Option<u16>) -> Option<usize> {
        if let Some(index) = self.find_neighbour(ip, vlan) {
            return Some(index);
        }
        let free = |slot: &NeighbourSlot| slot.state == State::Free;
        let index = match self.neighbours.iter().position(free) {
            Some(index) => index,
            None => self.evict()?,
        };
        self.take_slot(now, index, ip, vlan)
    }

    fn take_slot(
        &mut self,
        now: Duration,
        index: usize,
        ip: IpAddr,
        vlan: Option<u16>,
    ) -> Option<usize> {
        let bucket = self.bucket(ip, vlan)?;
        let next = core::mem::replace(&mut self.neighbours[bucket].head, index as u32);
        let slot = &mut self.neighbours[index];
        *slot = NeighbourSlot {
            ip,
            vlan,
            used: now,
            next,
            head: slot.head,
            ..NeighbourSlot::EMPTY
        };
        Some(index)
    }

    /// The slot of a host that sent an unsolicited message: a free one; or that of an unknown host whose time is over;
    /// or, while there are few unknown hosts, that of the neighbour that was not needed for longest.
    fn unknown_host_slot(&mut self, now: Duration, ip: IpAddr, vlan: Option<u16>) -> Option<usize> {
        if let Some(index) = self.find_neighbour(ip, vlan) {
            return Some(index);
        }
        let all = self.neighbours.len();
        let (mut unknown_hosts, mut free, mut over, mut known) = (0, None, None, None);
        let earlier = |than: Option<(Duration, usize)>, used: Duration| {
            than.is_none_or(|(other, _)| used < other)
        };
        for (index, slot) in self.neighbours.iter().enumerate() {
            match slot.state {
                State::Free => free = free.or(Some(index)),
                _ if slot.unknown => {
                    unknown_hosts += 1;
                    if now >= slot.used.saturating_add(TURN) && earlier(over, slot.used) {
                        over = Some((slot.used, index));
                    }
                }
                State::Incomplete => {}
                _ if slot.can_go() => {
                    let needed = !matches!(slot.state, State::Stale | State::Failed);
                    let rank = (needed, slot.used);
                    if known.is_none_or(|(other, _)| rank < other) {
                        known = Some((rank, index));
                    }
                }
                _ => {}
            }
        }
        let index = match (free, over, known) {
            (Some(free), ..) if unknown_hosts < all - all / 4 => free,
            (_, Some((_, over)), _) => over,
            (_, None, Some((_, known))) if unknown_hosts < (all / 16).max(1) => known,
            _ => return None,
        };
        if self.neighbours[index].state != State::Free {
            self.free_neighbour(index);
            self.stats.evicted += 1;
        }
        let index = self.take_slot(now, index, ip, vlan)?;
        self.neighbours[index].unknown = true;
        Some(index)
    }

    /// Frees a slot: unknown hosts go first, then hosts that are not needed, then those that are needed, in the order
    /// of their last use. A host that is being asked for stays, or a flood would keep every host from being found.
    fn evict(&mut self) -> Option<usize> {
        let needed = |slot: &NeighbourSlot| !matches!(slot.state, State::Stale | State::Failed);
        let candidates = self.neighbours.iter().enumerate().filter(|(_, slot)| {
            let asked_for = matches!(slot.state, State::Incomplete) && !slot.unknown;
            !asked_for && slot.can_go()
        });
        let rank = |slot: &NeighbourSlot| (!slot.unknown, needed(slot), slot.used);
        let (index, _) = candidates.min_by_key(|(_, slot)| rank(slot))?;
        self.free_neighbour(index);
        self.stats.evicted += 1;
        Some(index)
    }

    fn free_neighbour(&mut self, index: usize) {
        let (ip, vlan, next) = {
            let slot = &self.neighbours[index];
            (slot.ip, slot.vlan, slot.next)
        };
        let Some(bucket) = self.bucket(ip, vlan) else {
            return;
        };
        if self.neighbours[bucket].head == index as u32 {
            self.neighbours[bucket].head = next;
        } else {
            let mut at = self.neighbours[bucket].head as usize;
            while let Some(slot) = self.neighbours.get_mut(at) {
                if slot.next == index as u32 {
                    slot.next = next;
                    break;
                }
                at = slot.next as usize;
            }
        }
        let slot = &mut self.neighbours[index];
        *slot = NeighbourSlot {
            head: slot.head,
            ..NeighbourSlot::EMPTY
        };
    }
}
