//! The neighbours of an interface, and what stands for them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rewrite::{self, ARP, ARP_LEN, ETHERNET_ARP_LEN, IPV4, IPV6};
use super::{HEADER_LEN, HardwareAddress, broadcast_group, group};
use crate::ip::{Mac, multicast_mac};

/// Of addresses that stand for others: locally administered, and InfiniBand's number as Ethernet knows it.
const STANDS_FOR: [u8; 2] = [0x02, 0x1b];
const ETHERNET_LEN: usize = 14;
/// The shortest frame that Ethernet carries, without its check sequence.
const SHORTEST: usize = 60;
const BROADCAST: Mac = [0xff; 6];

/// The sender of a packet, as its completion names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The QP.
    pub qpn: u32,
    /// The port's LID.
    pub lid: u16,
    /// The service level that it came at.
    pub service_level: u8,
    /// The port's GID, if the packet had a global header.
    pub gid: Option<[u8; 16]>,
}

/// A neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its hardware address. The GID is zero as long as it is not known.
    pub address: HardwareAddress,
    /// The LID that it sent from, to which the way back leads.
    pub lid: u16,
    /// The service level.
    pub service_level: u8,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// To one neighbour.
    Peer(Peer),
    /// To a group. If the port is not in it, to all: the group of all interfaces ([`broadcast_group`]).
    Group([u8; 16]),
}

/// Memory of one neighbour of a [`Link`].
#[derive(Debug, Clone, Copy)]
pub struct PeerSlot {
    peer: Option<Peer>,
    /// The number of hosts that had the slot, so that an address that stands for one of them stands for no other.
    generation: u16,
    used: u64,
}

impl PeerSlot {
    /// No neighbour.
    pub const EMPTY: Self = Self {
        peer: None,
        generation: 0,
        used: 0,
    };
}

impl Default for PeerSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// An interface in one partition. If there are too few slots, the neighbour that was not needed for longest makes way.
#[derive(Debug)]
pub struct Link<'s> {
    own: HardwareAddress,
    pkey: u16,
    peers: &'s mut [PeerSlot],
    uses: u64,
}

impl<'s> Link<'s> {
    /// An interface at this address without neighbours.
    pub fn new(own: HardwareAddress, pkey: u16, peers: &'s mut [PeerSlot]) -> Self {
        peers.fill(PeerSlot::EMPTY);
        Self {
            own,
            pkey,
            peers,
            uses: 0,
        }
    }

    /// The MAC address that stands for this interface.
    pub fn mac(&self) -> Mac {
        stands_for(0, 0)
    }

    /// Returns the interface's hardware address.
    pub const fn own(&self) -> HardwareAddress {
        self.own
    }

    /// The port has another GID.
    pub fn set_gid(&mut self, gid: [u8; 16]) {
        self.own.gid = gid;
    }

    /// The neighbour that an address stands for.
    pub fn peer(&self, mac: Mac) -> Option<Peer> {
        let [a, b, high, low, index @ ..] = mac;
        let place = usize::from(u16::from_be_bytes(index)).checked_sub(1)?;
        let slot = self.peers.get(place)?;
        let same = [a, b] == STANDS_FOR && u16::from_be_bytes([high, low]) == slot.generation;
        slot.peer.filter(|_| same)
    }

    /// A packet with its header, as it came from the QP, as an Ethernet frame; how long that is. `None` if it is none that
    /// an interface takes, or if the frame has no room for it.
    pub fn incoming(
        &mut self,
        packet: &[u8],
        from: &Sender,
        multicast: bool,
        frame: &mut [u8],
    ) -> Option<usize> {
        let (header, payload) = packet.split_first_chunk::<HEADER_LEN>()?;
        let kind = u16::from_be_bytes([header[0], header[1]]);
        let own = from.qpn == self.own.qpn && from.gid == Some(self.own.gid);
        if own || payload.is_empty() {
            return None;
        }
        let source = self.sender(from)?;
        let destination = match kind {
            _ if !multicast => self.mac(),
            ARP => BROADCAST,
            _ => destination(kind, payload).map_or(BROADCAST, link_address),
        };
        let (ends, rest) = frame.split_at_mut_checked(ETHERNET_LEN)?;
        ends[..6].copy_from_slice(&destination);
        ends[6..12].copy_from_slice(&source);
        ends[12..].copy_from_slice(&header[..2]);
        let length = match kind {
            ARP => {
                let arp = payload.first_chunk::<ARP_LEN>()?;
                let out = rest.first_chunk_mut::<ETHERNET_ARP_LEN>()?;
                rewrite::arp_to_ethernet(arp, out, |address| self.standing_for(address, from))?;
                ETHERNET_ARP_LEN
            }
            IPV4 => copy(payload.get(..ipv4_len(payload)?)?, rest)?,
            IPV6 => {
                let whole = payload.get(..ipv6_len(payload)?)?;
                match rewrite::neighbour_message(whole) {
                    true => rewrite::ndisc_to_ethernet(whole, rest, |address| {
                        self.standing_for(address, from)
                    })?,
                    false => copy(whole, rest)?,
                }
            }
            _ => return None,
        };
        let total = ETHERNET_LEN + length;
        let shortest = SHORTEST.max(total);
        frame.get_mut(total..shortest)?.fill(0);
        Some(shortest)
    }

    /// An Ethernet frame as a packet for the QP: where it goes, and how long it is. `None` if it goes nowhere, or if there is
    /// no room for it.
    pub fn outgoing(&mut self, frame: &[u8], packet: &mut [u8]) -> Option<(To, usize)> {
        let (ends, payload) = frame.split_at_checked(ETHERNET_LEN)?;
        let mac: Mac = *ends.first_chunk()?;
        let kind = u16::from_be_bytes([ends[12], ends[13]]);
        let to = match kind {
            _ if mac == BROADCAST => To::Group(broadcast_group(self.pkey)),
            IPV4 | IPV6 if mac[0] & 1 != 0 => {
                To::Group(group(destination(kind, payload)?, self.pkey))
            }
            _ => To::Peer(self.used(mac)?),
        };
        let (header, rest) = packet.split_first_chunk_mut::<HEADER_LEN>()?;
        *header = [ends[12], ends[13], 0, 0];
        let hardware = |mac: &Mac| match *mac {
            own if own == self.mac() => Some(self.own),
            mac => self.peer(mac).map(|peer| peer.address),
        };
        let length = match kind {
            ARP => {
                let arp = payload.first_chunk::<ETHERNET_ARP_LEN>()?;
                let out = rest.first_chunk_mut::<ARP_LEN>()?;
                rewrite::arp_from_ethernet(arp, out, hardware)?;
                ARP_LEN
            }
            IPV4 => copy(payload.get(..ipv4_len(payload)?)?, rest)?,
            IPV6 => {
                let whole = payload.get(..ipv6_len(payload)?)?;
                match rewrite::neighbour_message(whole) {
                    true => rewrite::ndisc_from_ethernet(whole, rest, hardware)?,
                    false => copy(whole, rest)?,
                }
            }
            _ => return None,
        };
        Some((to, HEADER_LEN + length))
    }

    /// The MAC address that stands for the sender of a packet.
    fn sender(&mut self, from: &Sender) -> Option<Mac> {
        let known = |peer: &Peer| match from.gid {
            Some(gid) => peer.address == HardwareAddress { qpn: from.qpn, gid },
            None => peer.address.qpn == from.qpn && peer.lid == from.lid,
        };
        if let Some(place) = self.place(known) {
            let slot = self.peers.get_mut(place)?;
            let peer = slot.peer.as_mut()?;
            (peer.lid, peer.service_level) = (from.lid, from.service_level);
            return self.mac_of(place);
        }
        let gid = from.gid.unwrap_or_default();
        let address = HardwareAddress { qpn: from.qpn, gid };
        self.enter(address, from)
    }

    /// The MAC address that stands for a hardware address which the sender of a packet gives as its own, or as the
    /// receiver's. Of others nothing is known but what they say themselves.
    fn standing_for(&mut self, address: &HardwareAddress, from: &Sender) -> Option<Mac> {
        if *address == self.own {
            return Some(self.mac());
        }
        let others = from.gid.is_some_and(|gid| gid != address.gid);
        if address.qpn != from.qpn || others || address.gid == [0; 16] {
            return None;
        }
        // What came without a global header before its sender was known is the same neighbour's.
        let nameless = |peer: &Peer| {
            peer.address.qpn == address.qpn && peer.lid == from.lid && peer.address.gid == [0; 16]
        };
        let known = self.place(|peer| peer.address == *address);
        match (known, self.place(nameless)) {
            (Some(place), _) => {
                let peer = self.peers.get_mut(place)?.peer.as_mut()?;
                (peer.lid, peer.service_level) = (from.lid, from.service_level);
                self.mac_of(place)
            }
            (None, Some(place)) => {
                self.peers.get_mut(place)?.peer.as_mut()?.address = *address;
                self.mac_of(place)
            }
            (None, None) => self.enter(*address, from),
        }
    }

    fn place(&self, wanted: impl Fn(&Peer) -> bool) -> Option<usize> {
        let mut peers = self.peers.iter();
        peers.position(|slot| slot.peer.as_ref().is_some_and(&wanted))
    }

    fn enter(&mut self, address: HardwareAddress, from: &Sender) -> Option<Mac> {
        let slots = self.peers.iter().enumerate();
        let (place, _) = slots.min_by_key(|(_, slot)| (slot.peer.is_some(), slot.used))?;
        let slot = self.peers.get_mut(place)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.peer = Some(Peer {
            address,
            lid: from.lid,
            service_level: from.service_level,
        });
        self.mac_of(place)
    }

    fn mac_of(&mut self, place: usize) -> Option<Mac> {
        self.uses += 1;
        let slot = self.peers.get_mut(place)?;
        slot.used = self.uses;
        Some(stands_for(slot.generation, u16::try_from(place + 1).ok()?))
    }

    fn used(&mut self, mac: Mac) -> Option<Peer> {
        let peer = self.peer(mac)?;
        let place = usize::from(u16::from_be_bytes([mac[4], mac[5]])) - 1;
        self.mac_of(place)?;
        Some(peer)
    }
}

fn stands_for(generation: u16, index: u16) -> Mac {
    let ([a, b], [c, d]) = (generation.to_be_bytes(), index.to_be_bytes());
    [STANDS_FOR[0], STANDS_FOR[1], a, b, c, d]
}

/// The address that a packet is for.
fn destination(kind: u16, packet: &[u8]) -> Option<IpAddr> {
    Some(match kind {
        IPV4 => Ipv4Addr::from_octets(*packet.get(16..)?.first_chunk()?).into(),
        IPV6 => Ipv6Addr::from_octets(*packet.get(24..)?.first_chunk()?).into(),
        _ => return None,
    })
}

/// The Ethernet address of what came by a group.
fn link_address(destination: IpAddr) -> Mac {
    if destination.is_multicast() {
        multicast_mac(destination)
    } else {
        BROADCAST
    }
}

fn ipv4_len(packet: &[u8]) -> Option<usize> {
    let bytes = packet.get(2..)?.first_chunk()?;
    Some(usize::from(u16::from_be_bytes(*bytes))).filter(|length| *length >= 20)
}

fn ipv6_len(packet: &[u8]) -> Option<usize> {
    let bytes = packet.get(4..)?.first_chunk()?;
    Some(usize::from(u16::from_be_bytes(*bytes)) + 40)
}

fn copy(from: &[u8], to: &mut [u8]) -> Option<usize> {
    to.get_mut(..from.len())?.copy_from_slice(from);
    Some(from.len())
}
