//! Changes to headers: lists of actions that entries name by a number.
//!
//! A field that a frame does not have stays as it is. The checksums that cover a changed field are brought up to date by the
//! difference (RFC 1624), so that one that was wrong stays wrong.

use super::direction::Direction;
use super::headers::{ETHERNET, Headers};
use crate::memory::pages::Place;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::flow::{AddActionIn, SetActionIn};
use bareverbs_firmware_cmds::values::{HeaderAction, HeaderField};
use zerocopy::FromBytes;

/// Length of an action in a command.
pub(crate) const EACH: usize = size_of::<SetActionIn>();

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The bits of the mask get those of the value.
    Set { mask: u32, value: u32 },
    /// The value is added, and what is beyond the field's width is lost.
    Add(u32),
}

/// A list of actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewrite {
    pub(crate) direction: Direction,
    actions: Vec<(HeaderField, Change)>,
    /// As the driver had them.
    pub(crate) bytes: Vec<u8>,
    pub(crate) place: Place,
    /// Entries that use it.
    pub(crate) users: u32,
}

/// Where a field is in a frame: a word of two or four bytes, at an even place of its header.
struct Spot {
    at: usize,
    bytes: usize,
    /// Bits below the field.
    shift: u32,
    /// It is part of version 4's header.
    in_ipv4: bool,
    /// TCP's and UDP's checksums cover it.
    in_transport: bool,
}

/// Bits of a field.
fn width(field: HeaderField) -> u32 {
    match field {
        HeaderField::Smac15_0
        | HeaderField::Ethertype
        | HeaderField::Dmac15_0
        | HeaderField::TcpSport
        | HeaderField::TcpDport
        | HeaderField::UdpSport
        | HeaderField::UdpDport => 16,
        HeaderField::IpDscp => 6,
        HeaderField::TcpFlags => 9,
        HeaderField::IpTtl | HeaderField::Ipv6HopLimit => 8,
        HeaderField::FirstVid => 12,
        _ => 32,
    }
}

/// Returns `true` if the invariant CRC of a RoCE packet covers a field (IBTA 7.8.1, Annex A17): all that may change on the
/// way is masked, and what is in front of the IP header is not in it.
fn is_invariant(field: HeaderField) -> bool {
    !matches!(
        field,
        HeaderField::Dmac47_16
            | HeaderField::Dmac15_0
            | HeaderField::Smac47_16
            | HeaderField::Smac15_0
            | HeaderField::Ethertype
            | HeaderField::FirstVid
            | HeaderField::IpDscp
            | HeaderField::IpTtl
            | HeaderField::Ipv6HopLimit
    )
}

/// As many ones from the lowest bit on.
fn ones(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

/// An action of a command.
fn action(bytes: &[u8]) -> Result<(HeaderField, Change), Syndrome> {
    let bad = Syndrome::RewriteAction;
    let set = SetActionIn::read_from_bytes(bytes).map_err(|_| bad)?;
    let field = HeaderField::from_number(set.field()).ok_or(Syndrome::RewriteField)?;
    let mut plain = SetActionIn::ZERO;
    plain
        .set_action_type(set.action_type())
        .set_field(set.field())
        .set_data(set.data());
    let whole = ones(width(field));
    let change = match HeaderAction::from_number(set.action_type()) {
        Some(HeaderAction::Set) => {
            plain.set_offset(set.offset()).set_length(set.length());
            // Zero means 32.
            let length = match set.length() {
                0 => 32,
                length => u32::from(length),
            };
            let offset = u32::from(set.offset());
            if offset + length > width(field) || set.data() & !ones(length) != 0 {
                return Err(Syndrome::RewriteRange);
            }
            Change::Set {
                mask: ones(length) << offset,
                value: set.data() << offset,
            }
        }
        Some(HeaderAction::Add) => {
            let add = AddActionIn::read_from_bytes(bytes).map_err(|_| bad)?;
            if add.data() & !whole != 0 {
                return Err(Syndrome::RewriteRange);
            }
            Change::Add(add.data())
        }
        _ => return Err(bad),
    };
    if set != plain {
        return Err(bad);
    }
    Ok((field, change))
}

impl Rewrite {
    /// A list from a command. Of RDMA's packets it may change what their invariant CRC does not cover: no source says whether
    /// a card computes it before or after its tables.
    pub(crate) fn new(direction: Direction, bytes: &[u8]) -> Result<Self, Syndrome> {
        let actions: Vec<_> = bytes.chunks(EACH).map(action).collect::<Result<_, _>>()?;
        if direction.is_rdma() && actions.iter().any(|&(field, _)| is_invariant(field)) {
            return Err(Syndrome::RewriteField);
        }
        Ok(Self {
            direction,
            actions,
            bytes: bytes.to_vec(),
            place: Place::default(),
            users: 0,
        })
    }

    /// Changes a frame with these headers.
    pub(crate) fn apply(&self, frame: &mut [u8], headers: &Headers) {
        for &(field, change) in &self.actions {
            if let Some(spot) = find(field, headers) {
                spot.change(frame, headers, width(field), change);
            }
        }
    }
}

/// Where a field is in a frame with these headers, if it has it.
fn find(field: HeaderField, headers: &Headers) -> Option<Spot> {
    let plain = |at, bytes| Spot {
        at,
        bytes,
        shift: 0,
        in_ipv4: false,
        in_transport: false,
    };
    let tags = headers.tags.iter().flatten().count();
    let address = |version: u8, at: usize| {
        let ip = headers.network.filter(|ip| ip.version == version)?;
        Some(Spot {
            in_ipv4: version == 4,
            in_transport: true,
            ..plain(ip.offset + at, 4)
        })
    };
    let port = |tcp: bool, at: usize| {
        let ip = headers.network?;
        headers.transport.filter(|transport| transport.tcp == tcp)?;
        Some(Spot {
            in_transport: true,
            ..plain(ip.payload + at, 2)
        })
    };
    let ip = |version: u8| headers.network.filter(|ip| ip.version == version);
    match field {
        HeaderField::Dmac47_16 => Some(plain(0, 4)),
        HeaderField::Dmac15_0 => Some(plain(4, 2)),
        HeaderField::Smac47_16 => Some(plain(6, 4)),
        HeaderField::Smac15_0 => Some(plain(10, 2)),
        HeaderField::Ethertype => Some(plain(ETHERNET - 2 + tags * 4, 2)),
        HeaderField::FirstVid => headers.tags[0].map(|_| plain(ETHERNET, 2)),
        HeaderField::IpDscp => headers.network.map(|ip| Spot {
            shift: if ip.version == 4 { 2 } else { 6 },
            in_ipv4: ip.version == 4,
            ..plain(ip.offset, 2)
        }),
        HeaderField::IpTtl => ip(4).map(|ip| Spot {
            shift: 8,
            in_ipv4: true,
            ..plain(ip.offset + 8, 2)
        }),
        HeaderField::Ipv6HopLimit => ip(6).map(|ip| plain(ip.offset + 6, 2)),
        HeaderField::Sipv4 => address(4, 12),
        HeaderField::Dipv4 => address(4, 16),
        HeaderField::Sipv6_127_96 => address(6, 8),
        HeaderField::Sipv6_95_64 => address(6, 12),
        HeaderField::Sipv6_63_32 => address(6, 16),
        HeaderField::Sipv6_31_0 => address(6, 20),
        HeaderField::Dipv6_127_96 => address(6, 24),
        HeaderField::Dipv6_95_64 => address(6, 28),
        HeaderField::Dipv6_63_32 => address(6, 32),
        HeaderField::Dipv6_31_0 => address(6, 36),
        HeaderField::TcpSport => port(true, 0),
        HeaderField::TcpDport => port(true, 2),
        HeaderField::TcpFlags => port(true, 12),
        HeaderField::UdpSport => port(false, 0),
        HeaderField::UdpDport => port(false, 2),
    }
}

impl Spot {
    fn change(&self, frame: &mut [u8], headers: &Headers, width: u32, change: Change) {
        let Some(bytes) = frame.get_mut(self.at..self.at + self.bytes) else {
            return;
        };
        let old = bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
        let field = old >> self.shift & ones(width);
        let field = match change {
            Change::Set { mask, value } => field & !mask | value,
            Change::Add(value) => field.wrapping_add(value) & ones(width),
        };
        let new = old & !(ones(width) << self.shift) | field << self.shift;
        bytes.copy_from_slice(&new.to_be_bytes()[4 - self.bytes..]);
        let Some(ip) = headers.network else {
            return;
        };
        if self.in_ipv4 {
            update(frame, ip.offset + 10, old, new);
        }
        let Some(transport) = headers.transport.filter(|_| self.in_transport) else {
            return;
        };
        let checksum = ip.payload + if transport.tcp { 16 } else { 6 };
        // Zero says that there is none in UDP.
        let absent = frame.get(checksum..checksum + 2) == Some(&[0, 0]);
        if transport.tcp || !absent {
            update(frame, checksum, old, new);
            if !transport.tcp && frame.get(checksum..checksum + 2) == Some(&[0, 0]) {
                frame[checksum..checksum + 2].fill(0xff);
            }
        }
    }
}

/// Brings a checksum up to date after a change of what it covers.
fn update(frame: &mut [u8], at: usize, old: u32, new: u32) {
    let Some(field) = frame.get_mut(at..at + 2) else {
        return;
    };
    let halves = |word: u32| (word >> 16) + (word & 0xffff);
    let before = u32::from(u16::from_be_bytes([field[0], field[1]]));
    // The complements of both halves of what was there, and what is there now.
    let mut sum = (!before & 0xffff) + halves(!old) + halves(new);
    while sum > 0xffff {
        sum = halves(sum);
    }
    field.copy_from_slice(&(!sum as u16).to_be_bytes());
}

#[cfg(test)]
mod tests;
