//! The host's own addresses: probing, announcing and defending them.

use core::net::IpAddr;
use core::time::Duration;

use super::{Event, Host, HostError, Mac, WAITING_LOG, check_vlan, is_unicast};

/// Time between the probes for an IPv4 address, and from the last one until it is ours (RFC 5227: PROBE_MIN to PROBE_MAX,
/// ANNOUNCE_WAIT).
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_SPREAD: Duration = Duration::from_secs(1);
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
/// The first probe comes at a random time, as many hosts may be switched on together (PROBE_WAIT,
/// MAX_RTR_SOLICITATION_DELAY).
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// Time between announcements (ANNOUNCE_INTERVAL).
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// An address is defended at most this often (DEFEND_INTERVAL).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// Memory of one address of a [`Host`].
#[derive(Debug, Clone, Copy)]
pub struct AddressSlot {
    state: State,
    pub(super) ip: IpAddr,
    pub(super) prefix: u8,
    pub(super) vlan: Option<u16>,
    /// Probes or announcements still to be sent.
    left: u8,
    pub(super) due: Option<Duration>,
    defended: Option<Duration>,
    report: Option<Report>,
    /// The device has refused its entry, which was told.
    refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Being probed for: not to be used or answered for yet.
    Tentative,
    /// Being probed for, and used all the same.
    #[cfg(feature = "optimistic-addresses")]
    Optimistic,
    Ready,
    /// Another host's; kept until that was reported.
    Lost,
}

impl State {
    /// Returns `true` if the address is being probed for, and used all the same.
    const fn is_optimistic(self) -> bool {
        #[cfg(feature = "optimistic-addresses")]
        return matches!(self, Self::Optimistic);
        #[cfg(not(feature = "optimistic-addresses"))]
        false
    }

    /// Returns `true` if the address is ours.
    const fn is_ours(self) -> bool {
        matches!(self, Self::Ready) || self.is_optimistic()
    }

    /// Returns `true` if the address is being probed for.
    const fn is_probed(self) -> bool {
        matches!(self, Self::Tentative) || self.is_optimistic()
    }
}

#[derive(Debug, Clone, Copy)]
enum Report {
    Ready,
    Duplicate(Mac),
    Conflict(Mac),
}

impl AddressSlot {
    /// No address.
    pub const EMPTY: Self = Self {
        state: State::Free,
        ip: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
        prefix: 0,
        vlan: None,
        left: 0,
        due: None,
        defended: None,
        report: None,
        refused: false,
    };

    pub(super) const fn is_used(&self) -> bool {
        self.state.is_probed() || self.state.is_ours()
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.state.is_ours()
    }
}

impl Host<'_> {
    /// Takes an address, whose first `prefix` bits all hosts on the link share, in a VLAN or outside any. It is ours from
    /// [`Event::AddressReady`] on.
    ///
    /// # Errors
    /// If it is no address of a host, if it is there already, or if the storage is full.
    pub fn add_address(
        &mut self,
        now: Duration,
        address: IpAddr,
        prefix: u8,
        vlan: Option<u16>,
    ) -> Result<(), HostError> {
        check_vlan(vlan)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if !is_unicast(address) || prefix > longest {
            return Err(HostError::NotAnAddress(address, prefix));
        }
        if self.address(address, vlan).is_some() {
            return Err(HostError::Exists(address));
        }
        let max = self.addresses.len();
        let free = |slot: &AddressSlot| slot.state == State::Free;
        let Some(index) = self.addresses.iter().position(free) else {
            let what = "addresses";
            return Err(HostError::Full { what, max });
        };
        self.enter_groups_of(now, address, vlan)?;
        let probes = match address {
            IpAddr::V4(_) => self.config.ipv4_probes,
            IpAddr::V6(_) => self.config.ipv6_probes,
        };
        let wait = self.up_to(PROBE_WAIT);
        self.addresses[index] = AddressSlot {
            state: State::Tentative,
            ip: address,
            prefix,
            vlan,
            left: probes,
            ..AddressSlot::EMPTY
        };
        if probes == 0 {
            self.make_ready(now, index);
        } else {
            #[cfg(feature = "optimistic-addresses")]
            if self.config.optimistic {
                let slot = &mut self.addresses[index];
                (slot.state, slot.report) = (State::Optimistic, Some(Report::Ready));
            }
            self.address_due(index, now.saturating_add(wait));
        }
        Ok(())
    }

    /// Gives an address up, with the routes that are over it.
    ///
    /// # Errors
    /// If it is not there.
    pub fn remove_address(
        &mut self,
        now: Duration,
        address: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), HostError> {
        let index = self
            .address(address, vlan)
            .ok_or(HostError::Unknown(address))?;
        self.addresses[index] = AddressSlot::EMPTY;
        self.leave_groups_of(now, address, vlan);
        self.drop_unreachable_routes();
        Ok(())
    }

    /// The addresses that are ours, with the lengths of their prefixes and their VLANs.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8, Option<u16>)> {
        let ready = self.addresses.iter().filter(|slot| slot.is_ready());
        ready.map(|slot| (slot.ip, slot.prefix, slot.vlan))
    }

    /// The device has refused the entry of an address that is ours.
    pub(crate) fn refuse(&mut self, address: IpAddr, vlan: Option<u16>) {
        let index = self.address(address, vlan);
        if let Some(slot) = index.and_then(|index| self.addresses.get_mut(index)) {
            slot.refused = true;
        }
    }

    /// The addresses that are ours and were not [refused](Self::refuse).
    pub(crate) fn accepted(&self) -> impl Iterator<Item = (IpAddr, Option<u16>)> {
        let accepted = |slot: &&AddressSlot| slot.is_ready() && !slot.refused;
        let accepted = self.addresses.iter().filter(accepted);
        accepted.map(|slot| (slot.ip, slot.vlan))
    }

    /// Returns `true` if each address that was added is known to be this host's or another's.
    pub fn is_settled(&self) -> bool {
        self.probing() == 0
    }

    /// The steps of probing that are left: the probes of each address, and the wait after the last one.
    pub(crate) fn probing(&self) -> u32 {
        let tentative = |slot: &&AddressSlot| slot.state == State::Tentative;
        let probed = self.addresses.iter().filter(tentative);
        probed.map(|slot| u32::from(slot.left) + 1).sum()
    }

    /// The slot of an address, whether it is ours yet or not.
    pub(super) fn address(&self, address: IpAddr, vlan: Option<u16>) -> Option<usize> {
        let is = |slot: &AddressSlot| slot.is_used() && slot.ip == address && slot.vlan == vlan;
        self.addresses.iter().position(is)
    }

    /// Returns `true` if an address is ours.
    pub(super) fn is_own(&self, address: IpAddr, vlan: Option<u16>) -> bool {
        let index = self.address(address, vlan);
        index.is_some_and(|index| self.addresses[index].is_ready())
    }

    /// Says once that an address which is ours is asked for in another VLAN.
    pub(super) fn say_if_own_elsewhere(&mut self, address: IpAddr, vlan: Option<u16>) {
        let own = |slot: &AddressSlot| slot.is_ready() && slot.ip == address;
        if self.asked_elsewhere || !self.addresses.iter().any(own) {
            return;
        }
        self.asked_elsewhere = true;
        match vlan {
            Some(vlan) => log::warn!(
                target: WAITING_LOG,
                "{address} is asked for in VLAN {vlan}, where this port does not have it"
            ),
            None => log::warn!(
                target: WAITING_LOG,
                "{address} is asked for without a VLAN tag, and this port has it in a VLAN only"
            ),
        }
    }

    /// Returns `true` if an address is being probed for.
    pub(super) fn is_tentative(&self, address: IpAddr, vlan: Option<u16>) -> bool {
        let index = self.address(address, vlan);
        index.is_some_and(|index| self.addresses[index].state == State::Tentative)
    }

    fn address_due(&mut self, index: usize, at: Duration) {
        self.addresses[index].due = Some(at);
        self.remind(at);
    }

    fn make_ready(&mut self, now: Duration, index: usize) {
        let announcements = self.config.announcements;
        let slot = &mut self.addresses[index];
        // An optimistic address was reported when it was added.
        if !slot.state.is_optimistic() {
            slot.report = Some(Report::Ready);
        }
        slot.state = State::Ready;
        slot.left = announcements;
        slot.due = None;
        if announcements > 0 {
            self.address_due(index, now);
        }
    }

    /// Another host has, or probes for, an address of ours.
    pub(super) fn claimed(&mut self, now: Duration, address: IpAddr, vlan: Option<u16>, mac: Mac) {
        let Some(index) = self.address(address, vlan) else {
            return;
        };
        let slot = &mut self.addresses[index];
        if slot.state.is_probed() {
            slot.state = State::Lost;
            slot.report = Some(Report::Duplicate(mac));
            slot.due = None;
            self.leave_groups_of(now, address, vlan);
            return;
        }
        slot.report = Some(Report::Conflict(mac));
        let rest = slot
            .defended
            .is_some_and(|at| now < at.saturating_add(DEFEND_INTERVAL));
        if !rest {
            slot.defended = Some(now);
            slot.left = slot.left.max(1);
            self.address_due(index, now);
        }
    }

    /// Sends the probe or announcement that is due.
    pub(super) fn transmit_address(&mut self, now: Duration, buffer: &mut [u8]) -> Option<usize> {
        loop {
            let is_due = |slot: &AddressSlot| slot.due.is_some_and(|due| due <= now);
            let index = self.addresses.iter().position(is_due)?;
            let slot = &mut self.addresses[index];
            let (ip, vlan, probe) = (slot.ip, slot.vlan, slot.state.is_probed());
            slot.due = None;
            if slot.left == 0 {
                if probe {
                    self.make_ready(now, index);
                }
                continue;
            }
            slot.left -= 1;
            let left = slot.left;
            let next = match (probe, ip) {
                (false, _) if left == 0 => None,
                (false, _) => Some(ANNOUNCE_INTERVAL),
                (true, IpAddr::V6(_)) => Some(self.config.retransmit),
                (true, IpAddr::V4(_)) if left == 0 => Some(ANNOUNCE_WAIT),
                (true, IpAddr::V4(_)) => Some(PROBE_MIN + self.up_to(PROBE_SPREAD)),
            };
            if let Some(next) = next {
                self.address_due(index, now.saturating_add(next));
            }
            return match (ip, probe) {
                (IpAddr::V4(ip), true) => self.arp_probe(buffer, ip, vlan),
                (IpAddr::V4(ip), false) => self.arp_announcement(buffer, ip, vlan),
                (IpAddr::V6(ip), true) => self.nd_probe(buffer, ip, vlan),
                (IpAddr::V6(ip), false) => self.nd_announcement(buffer, ip, vlan),
            };
        }
    }

    pub(super) fn address_event(&mut self) -> Option<Event> {
        let slot = self
            .addresses
            .iter_mut()
            .find(|slot| slot.report.is_some())?;
        let (address, vlan) = (slot.ip, slot.vlan);
        let event = match slot.report.take()? {
            Report::Ready => Event::AddressReady { address, vlan },
            Report::Conflict(mac) => Event::AddressConflict { address, vlan, mac },
            Report::Duplicate(mac) => {
                *slot = AddressSlot::EMPTY;
                #[cfg(feature = "optimistic-addresses")]
                self.drop_unreachable_routes();
                Event::AddressDuplicate { address, vlan, mac }
            }
        };
        Some(event)
    }
}
