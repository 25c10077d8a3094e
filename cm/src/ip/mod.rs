//! The IP side of an Ethernet port, where there is no kernel for it: it resolves the Ethernet addresses of other hosts
//! (ARP, IPv6 neighbour discovery), answers for its own, and answers echo requests.
//!
//! [`Host`] is sans-I/O, as the [engine](mod@crate::engine) is: [`receive`](Host::receive) takes a frame,
//! [`poll_transmit`](Host::poll_transmit) gives one, [`next_deadline`](Host::next_deadline) says when there is something
//! to do, and [`poll_event`](Host::poll_event) what has happened. Time goes in from outside. Nothing is allocated: how many
//! addresses, neighbours, routes and groups there can be depends on the [`Storage`].
//!
//! # What it does
//!
//! * **Addresses** (RFC 4862 section 5.4, RFC 5227): an address is probed for on the link before it is ours, if
//!   [`Config`] says so, and announced then. Another host that claims it later is reported, and the address is
//!   defended.
//! * **Neighbours** (RFC 826, RFC 4861 section 7.3): asked for when they are needed, kept as long as they answer. A
//!   neighbour that no longer answers, or answers from another MAC address, is reported. The same states serve both
//!   protocols.
//! * **Routes**: the prefixes of the addresses, and gateways.
//! * **Groups** (RFC 2236, RFC 3810): joined groups are reported to multicast routers and snooping switches, which drop
//!   what no host has reported.
//! * **Echo** (RFC 792, RFC 4443) to an address of ours is answered.
//!
//! # What it does not do
//!
//! No fragments, no options, no router discovery, no redirects (routes are configured, and no host can move them from
//! outside), no echo to broadcast and multicast addresses. Of the group protocols IGMPv2 and MLDv2 are spoken; routers with
//! IGMPv3 understand that, those with only MLDv1 do not.
//!
//! # Example
//!
//! ```
//! use bareverbs_cm::ip::{Addresses, Config, Event, Groups, Host, Neighbours, Resolution, Resources, Routes};
//! use core::time::Duration;
//!
//! let mut memory = Resources::<Addresses<2>, Neighbours<8>, Routes<1>, Groups<8>>::new();
//! let mut host = Host::new([2, 0, 0, 0, 0, 1], Config::new(42), memory.storage());
//! let now = Duration::ZERO;
//! host.add_address(now, "192.0.2.1".parse()?, 24, None)?;
//! assert!(matches!(host.poll_event(), Some(Event::AddressReady { .. })));
//!
//! let (own, peer) = ("192.0.2.1".parse()?, "192.0.2.2".parse()?);
//! assert_eq!(host.resolve(now, own, peer), Resolution::Pending);
//! let mut frame = [0; 1518];
//! while let Some(length) = host.poll_transmit(now, &mut frame) {
//!     // Onto the cable with it: an announcement, then a question.
//!     println!("{:02x?}", &frame[..length]);
//! }
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod address;
mod arp;
mod echo;
mod frame;
mod group;
mod ndisc;
mod neighbour;
mod route;

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

pub use address::AddressSlot;
pub(crate) use frame::multicast_mac;
pub use group::GroupSlot;
pub use neighbour::{Neighbour, NeighbourSlot, Resolution};
pub use route::Route;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The longest frame that a host sends by itself; answers to echo requests can be as long as their requests.
pub const FRAME_MIN: usize = 128;

/// Settings; the defaults are those of the RFCs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Seed of all random values. Has to differ between hosts.
    pub seed: u64,
    /// Probes before an IPv6 address is ours (DupAddrDetectTransmits); 0 takes it at once.
    pub ipv6_probes: u8,
    /// Probes before an IPv4 address is ours; 0, as Linux has it, takes it at once. RFC 5227 requires 3.
    pub ipv4_probes: u8,
    /// Addresses are ours while they are probed for, until another host is known to have them (RFC 4429).
    #[cfg(feature = "optimistic-addresses")]
    pub optimistic: bool,
    /// Announcements of an address that has become ours.
    pub announcements: u8,
    /// Questions to a neighbour without an answer before it is given up (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT).
    pub solicitations: u8,
    /// Time between two questions (RetransTimer).
    pub retransmit: Duration,
    /// The time that a neighbour's address is used without asking again (BaseReachableTime); half as long to half as long
    /// again.
    pub reachable: Duration,
    /// The time that a stale neighbour is used before it is asked (DELAY_FIRST_PROBE_TIME).
    pub delay: Duration,
    /// The time that a host is not asked again after it has not answered.
    pub failed: Duration,
}

impl Config {
    /// The default configuration with this seed.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            ipv6_probes: 1,
            ipv4_probes: 0,
            #[cfg(feature = "optimistic-addresses")]
            optimistic: false,
            announcements: 2,
            solicitations: 3,
            retransmit: Duration::from_secs(1),
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
            failed: Duration::from_secs(1),
        }
    }
}

/// Memory of a [`Host`].
#[derive(Debug, Default)]
pub struct Storage<'s> {
    /// One for each address.
    pub addresses: &'s mut [AddressSlot],
    /// One for each neighbour. If there are too few, the one that was not needed for longest is replaced.
    pub neighbours: &'s mut [NeighbourSlot],
    /// One for each route over a gateway.
    pub routes: &'s mut [Option<Route>],
    /// One for each group, those included that IPv6 addresses need: one each, and one for each VLAN with any.
    pub groups: &'s mut [GroupSlot],
}

/// `N` addresses, as [`Resources`] counts them.
pub type Addresses<const N: usize> = [AddressSlot; N];

/// `N` neighbours, as [`Resources`] counts them.
pub type Neighbours<const N: usize> = [NeighbourSlot; N];

/// `N` routes over a gateway, as [`Resources`] counts them.
pub type Routes<const N: usize> = [Option<Route>; N];

/// `N` multicast groups, as [`Resources`] counts them.
pub type Groups<const N: usize> = [GroupSlot; N];

/// Memory of a [`Host`] in arrays. The type says how many there are of what.
#[derive(Debug)]
pub struct Resources<A, N, R, G> {
    addresses: A,
    neighbours: N,
    routes: R,
    groups: G,
}

impl<const A: usize, const N: usize, const R: usize, const G: usize>
    Resources<Addresses<A>, Neighbours<N>, Routes<R>, Groups<G>>
{
    /// Storage without addresses, neighbours, routes and groups.
    pub const fn new() -> Self {
        Self {
            addresses: [AddressSlot::EMPTY; A],
            neighbours: [NeighbourSlot::EMPTY; N],
            routes: [None; R],
            groups: [GroupSlot::EMPTY; G],
        }
    }

    /// Lends the storage to a host.
    pub const fn storage(&mut self) -> Storage<'_> {
        Storage {
            addresses: &mut self.addresses,
            neighbours: &mut self.neighbours,
            routes: &mut self.routes,
            groups: &mut self.groups,
        }
    }
}

impl<const A: usize, const N: usize, const R: usize, const G: usize> Default
    for Resources<Addresses<A>, Neighbours<N>, Routes<R>, Groups<G>>
{
    fn default() -> Self {
        Self::new()
    }
}

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// Not an address that a host can have, or not a prefix of that length.
    NotAnAddress(IpAddr, u8),
    /// Not the address of a multicast group.
    NotAGroup(IpAddr),
    /// No VLAN has this number.
    NotAVlan(u16),
    /// The host has this address already.
    Exists(IpAddr),
    /// The host has no such address, route or group.
    Unknown(IpAddr),
    /// A gateway has to be on the link of one of the host's addresses.
    GatewayOutOfReach(IpAddr),
    /// The storage is full.
    Full {
        /// The kind of slots.
        what: &'static str,
        /// The number that it can hold.
        max: usize,
    },
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnAddress(address, prefix) => {
                write!(f, "{address}/{prefix} is no address that a host can have")
            }
            Self::NotAGroup(address) => write!(f, "{address} is no multicast address"),
            Self::NotAVlan(vlan) => write!(f, "VLAN {vlan}: there are 1 to 4094"),
            Self::Exists(address) => write!(f, "{address} is there already"),
            Self::Unknown(address) => write!(f, "there is no {address}"),
            Self::GatewayOutOfReach(address) => {
                write!(f, "the gateway {address} is on no link of this host")
            }
            Self::Full { what, max } => write!(f, "no storage for more than {max} {what}"),
        }
    }
}

impl core::error::Error for HostError {}

/// An event of an address or a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An address has become ours.
    AddressReady {
        /// The address.
        address: IpAddr,
        /// The VLAN that it is in.
        vlan: Option<u16>,
    },
    /// An address is another host's, and was dropped. If it was [ours](Self::AddressReady) already, its probing had not ended
    /// yet.
    AddressDuplicate {
        /// The address.
        address: IpAddr,
        /// The VLAN that it was for.
        vlan: Option<u16>,
        /// The MAC address of the host that has it.
        mac: Mac,
    },
    /// Another host claims an address that is ours. It stays ours.
    AddressConflict {
        /// The address.
        address: IpAddr,
        /// The VLAN that it is in.
        vlan: Option<u16>,
        /// The MAC address of the host that claims it.
        mac: Mac,
    },
    /// A neighbour has another Ethernet address than was known, or is known now and was not before.
    NeighbourChanged {
        /// The neighbour.
        address: IpAddr,
        /// The VLAN that it is in.
        vlan: Option<u16>,
        /// Where it is now.
        mac: Mac,
    },
    /// A neighbour that was there no longer answers.
    NeighbourLost {
        /// The neighbour.
        address: IpAddr,
        /// The VLAN that it was in.
        vlan: Option<u16>,
    },
}

/// Frames to a multicast address have to be let in, or not any more. Each `Join` has its `Leave`, also if several groups
/// share an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Frames to this address are to be received.
    Join(Mac),
    /// Frames to this address are not needed any longer.
    Leave(Mac),
}

/// The log's target for what explains why nothing comes of a connection, of which programs show the warnings where they show
/// no others.
pub const WAITING_LOG: &str = "rdma_cm_waiting";

/// The counts of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Frames that were given.
    pub received: u64,
    /// Of these, those that were of no concern, or malformed.
    pub ignored: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Neighbours that were replaced by others.
    pub evicted: u64,
}

/// An IP host on one Ethernet port.
#[derive(Debug)]
pub struct Host<'s> {
    mac: Mac,
    config: Config,
    addresses: &'s mut [AddressSlot],
    neighbours: &'s mut [NeighbourSlot],
    routes: &'s mut [Option<Route>],
    groups: &'s mut [GroupSlot],
    random: u64,
    /// Nothing is due before.
    due: Option<Duration>,
    stats: Stats,
    other_vlan: Option<u16>,
    /// That this host's address is asked for in another VLAN was said.
    asked_elsewhere: bool,
    /// Some neighbours may have moved ([`next_moved`](Self::next_moved)).
    moved: bool,
}

impl<'s> Host<'s> {
    /// A host without addresses, whose port has the address `mac`.
    pub fn new(mac: Mac, config: Config, storage: Storage<'s>) -> Self {
        let Storage {
            addresses,
            neighbours,
            routes,
            groups,
        } = storage;
        addresses.fill(AddressSlot::EMPTY);
        neighbours.fill(NeighbourSlot::EMPTY);
        routes.fill(None);
        groups.fill(GroupSlot::EMPTY);
        let tail = u64::from_be_bytes([0, 0, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]]);
        Self {
            mac,
            config,
            addresses,
            neighbours,
            routes,
            groups,
            random: config.seed ^ tail,
            due: None,
            stats: Stats::default(),
            other_vlan: None,
            asked_elsewhere: false,
            moved: false,
        }
    }

    /// The port's Ethernet address.
    pub const fn mac(&self) -> Mac {
        self.mac
    }

    /// The counts of packets.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Takes a frame. If it requires an answer at once, that is written to `reply`, and its length returned; an answer
    /// that is longer than `reply` is not given.
    pub fn receive(&mut self, now: Duration, frame: &[u8], reply: &mut [u8]) -> Option<usize> {
        self.stats.received += 1;
        let answer = self.take(now, frame, reply);
        match answer {
            Some(length) if length > 0 => {
                self.stats.sent += 1;
                Some(length)
            }
            Some(_) => None,
            None => {
                self.stats.ignored += 1;
                None
            }
        }
    }

    /// The length of the answer, 0 for none; `None` if the frame meant nothing.
    fn take(&mut self, now: Duration, frame: &[u8], reply: &mut [u8]) -> Option<usize> {
        let (header, payload) = frame::Header::parse(frame)?;
        let for_us = header.destination == self.mac || header.destination[0] & 1 != 0;
        // A multicast source is nonsense, and our own one is an echo of what we said.
        if !for_us || header.source[0] & 1 != 0 || header.source == self.mac {
            return None;
        }
        self.note_vlan(&header);
        match header.kind {
            frame::ARP => self.receive_arp(now, &header, payload, reply),
            frame::IPV4 => self.receive_ipv4(now, &header, payload, reply),
            frame::IPV6 => self.receive_ipv6(now, &header, payload, reply),
            _ => None,
        }
    }

    /// The VLAN of the last frame from a VLAN in which this host has no address; 0 for frames without a tag.
    pub const fn other_vlan(&self) -> Option<u16> {
        self.other_vlan
    }

    /// Remembers the VLAN of a frame that shows a host in another VLAN.
    fn note_vlan(&mut self, header: &frame::Header) {
        let asks = match header.kind {
            frame::ARP => true,
            // Neighbour discovery, by the groups of what is asked for.
            frame::IPV6 => header.destination.starts_with(&[0x33, 0x33, 0xff]),
            _ => false,
        };
        let is_here = |slot: &AddressSlot| slot.is_used() && slot.vlan == header.vlan;
        if asks && !self.addresses.iter().any(is_here) {
            self.other_vlan = Some(header.vlan.unwrap_or(0));
        }
    }

    /// Writes the next frame that is due, if there is one, and returns its length. `buffer` has to have [`FRAME_MIN`] bytes.
    pub fn poll_transmit(&mut self, now: Duration, buffer: &mut [u8]) -> Option<usize> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        let sent = self
            .transmit_address(now, buffer)
            .or_else(|| self.transmit_group(now, buffer))
            .or_else(|| self.transmit_neighbour(now, buffer));
        if sent.is_some() {
            self.stats.sent += 1;
            return sent;
        }
        let addresses = self.addresses.iter().filter_map(|slot| slot.due);
        let groups = self.groups.iter().filter_map(|slot| slot.due);
        let neighbours = self.neighbours.iter().filter_map(NeighbourSlot::due);
        self.due = addresses.chain(groups).chain(neighbours).min();
        None
    }

    /// When [`poll_transmit`](Self::poll_transmit) has to be called next, if nothing arrives before.
    pub const fn next_deadline(&self) -> Option<Duration> {
        self.due
    }

    /// News, of addresses before those of neighbours; of several about the same one the newest counts.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.address_event().or_else(|| self.neighbour_event())
    }

    /// Something will be due at `at`.
    fn remind(&mut self, at: Duration) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn random(&mut self) -> u64 {
        // SplitMix64: any seed will do.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Any time from nothing to `most`.
    fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.random() % (most + 1))
    }
}

/// The link-local address that an Ethernet address gives (RFC 4291 appendix A), which is also a port's default GID.
pub const fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from_bits(u128::from_be_bytes([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ]))
}

/// Returns `true` if both start with the same `length` bits.
#[inline(never)]
fn same_prefix(a: IpAddr, b: IpAddr, length: u8) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differ = a.to_bits() ^ b.to_bits();
            differ.leading_zeros() >= u32::from(length)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differ = a.to_bits() ^ b.to_bits();
            differ.leading_zeros() >= u32::from(length)
        }
        _ => false,
    }
}

/// Returns `true` if one machine can have this address: none of 0/8, 127/8, 224/4 and above, `::`, `::1`, ff00::/8 (and no
/// IPv4 address in an IPv6 header). Sources of these kinds are forged, and nothing is sent back to them.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let odd = match address {
        IpAddr::V4(address) => matches!(address.octets()[0], 0 | 224..),
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    !(odd || address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

fn check_vlan(vlan: Option<u16>) -> Result<(), HostError> {
    match vlan {
        Some(vlan) if !(1..=4094).contains(&vlan) => Err(HostError::NotAVlan(vlan)),
        _ => Ok(()),
    }
}
