//! Rules in the shapes of `ibv_create_flow(3)`: a type, a priority, and specifications of headers with masks.
//!
//! | here | verbs |
//! |---|---|
//! | [`FlowAttr`] | `struct ibv_flow_attr` |
//! | [`FlowType`] | `enum ibv_flow_attr_type` |
//! | [`FlowSpec::Eth`], [`Ipv4`](FlowSpec::Ipv4), [`Ipv6`](FlowSpec::Ipv6), [`Tcp`](FlowSpec::Tcp), [`Udp`](FlowSpec::Udp) | `ibv_flow_spec_eth`, `_ipv4_ext` (and `_ipv4`), `_ipv6`, `_tcp_udp` |
//! | [`FlowSpec::ActionTag`], [`ActionDrop`](FlowSpec::ActionDrop), [`ActionCount`](FlowSpec::ActionCount) | `ibv_flow_spec_action_tag`, `_drop`, `ibv_flow_spec_counter_action` |
//! | [`FlowTable::create_flow`] | `ibv_create_flow` |
//! | [`FlowTable::remove`] | `ibv_destroy_flow` |
//!
//! How a specification becomes fields of the device's is what Linux's `parse_flow_attr` (`drivers/infiniband/hw/mlx5/fs.c`)
//! does: an IP specification asks for its version, a TCP or UDP one for its protocol, and a VLAN mask for a customer's tag.
//! Headers inside tunnels, and tunnels' own, are not among them.

use bareverbs_firmware_cmds::flow::FteMatchSetLyr24;
use bareverbs_firmware_cmds::numbers::Tirn;
use bitflags::bitflags;

use crate::ethernet::counter::FlowCounterId;
use crate::ethernet::flow::FlowMatch;
use crate::ethernet::flow_table::{Entry, FlowAction, FlowError, FlowRule, FlowTable};
use crate::platform::Platform;
use crate::types::gid::Mac;

/// Priorities of a table that the default types have for themselves, behind all others.
const DEFAULTS: u8 = 2;
/// Protocol numbers of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The frames that a rule looks at: `enum ibv_flow_attr_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlowType {
    /// Those that its specifications say.
    #[default]
    Normal,
    /// All that no other rule takes.
    AllDefault,
    /// All multicast ones that no normal rule takes.
    McDefault,
    /// A copy of everything, which this driver does not offer.
    Sniffer,
}

bitflags! {
    /// `enum ibv_flow_flags`, with its values. Neither is offered.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct FlowFlags: u32 {
        /// Rules behind this one get the frame as well.
        const DONT_TRAP = 1 << 1;
        /// The rule is for what is sent.
        const EGRESS = 1 << 2;
    }
}

/// Fields of an Ethernet header, in host order: `struct ibv_flow_eth_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EthFilter {
    /// Destination address.
    pub dst_mac: Mac,
    /// Source address.
    pub src_mac: Mac,
    /// EtherType, behind the VLAN tags.
    pub ether_type: u16,
    /// Priority, drop bit and VLAN of a customer's tag (0x8100). In a mask anything but 0 asks for a tag.
    pub vlan_tag: u16,
}

/// Fields of an IPv4 header: `struct ibv_flow_ipv4_ext_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ipv4Filter {
    /// Source address.
    pub src_ip: [u8; 4],
    /// Destination address.
    pub dst_ip: [u8; 4],
    /// Protocol.
    pub proto: u8,
    /// Code point and congestion bits.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Flags; no device matches them.
    pub flags: u8,
}

/// Fields of an IPv6 header: `struct ibv_flow_ipv6_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ipv6Filter {
    /// Source address.
    pub src_ip: [u8; 16],
    /// Destination address.
    pub dst_ip: [u8; 16],
    /// Flow label, 20 bits; not matched by this driver.
    pub flow_label: u32,
    /// Next header.
    pub next_hdr: u8,
    /// Code point and congestion bits.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

/// Ports of TCP or UDP, in host order: `struct ibv_flow_tcp_udp_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortFilter {
    /// Destination port.
    pub dst_port: u16,
    /// Source port.
    pub src_port: u16,
}

/// A header that frames have, or what is done to them: `struct ibv_flow_spec_*`. A bit of `value` counts where `mask` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowSpec {
    /// Ethernet.
    Eth {
        /// The values.
        value: EthFilter,
        /// The bits that count.
        mask: EthFilter,
    },
    /// IPv4.
    Ipv4 {
        /// The values.
        value: Ipv4Filter,
        /// The bits that count.
        mask: Ipv4Filter,
    },
    /// IPv6.
    Ipv6 {
        /// The values.
        value: Ipv6Filter,
        /// The bits that count.
        mask: Ipv6Filter,
    },
    /// TCP.
    Tcp {
        /// The values.
        value: PortFilter,
        /// The bits that count.
        mask: PortFilter,
    },
    /// UDP.
    Udp {
        /// The values.
        value: PortFilter,
        /// The bits that count.
        mask: PortFilter,
    },
    /// Gives frames this mark, 24 bits: [`Completion::flow_tag`](crate::cq::Completion::flow_tag).
    ActionTag(u32),
    /// Drops frames.
    ActionDrop,
    /// Counts frames: [`FlowCounter::id`](super::FlowCounter::id).
    ActionCount(FlowCounterId),
}

impl FlowSpec {
    /// Frames to this address.
    #[must_use]
    pub fn to_mac(mac: Mac) -> Self {
        Self::Eth {
            value: EthFilter {
                dst_mac: mac,
                ..EthFilter::default()
            },
            mask: EthFilter {
                dst_mac: [0xff; 6],
                ..EthFilter::default()
            },
        }
    }

    /// The fields of frames that have this header.
    fn matches(&self) -> Result<FlowMatch, FlowError> {
        let (mut v, mut m) = (FteMatchSetLyr24::ZERO, FteMatchSetLyr24::ZERO);
        match self {
            Self::Eth { value, mask } => {
                put_eth(&mut v, value);
                put_eth(&mut m, mask);
                if mask.vlan_tag != 0 {
                    v.set_cvlan_tag(true);
                    m.set_cvlan_tag(true);
                }
            }
            Self::Ipv4 { value, mask } => {
                if mask.flags != 0 {
                    return Err(FlowError::Field {
                        name: "IPv4's flags",
                    });
                }
                put_ipv4(&mut v, value);
                put_ipv4(&mut m, mask);
                v.set_ip_version(4);
                m.set_ip_version(0xf);
            }
            Self::Ipv6 { value, mask } => {
                if mask.flow_label != 0 {
                    return Err(FlowError::Field {
                        name: "IPv6's flow label",
                    });
                }
                put_ipv6(&mut v, value);
                put_ipv6(&mut m, mask);
                v.set_ip_version(6);
                m.set_ip_version(0xf);
            }
            Self::Tcp { value, mask } => {
                for (to, from) in [(&mut v, value), (&mut m, mask)] {
                    to.set_tcp_sport(from.src_port).set_tcp_dport(from.dst_port);
                }
                v.set_ip_protocol(TCP);
                m.set_ip_protocol(u8::MAX);
            }
            Self::Udp { value, mask } => {
                for (to, from) in [(&mut v, value), (&mut m, mask)] {
                    to.set_udp_sport(from.src_port).set_udp_dport(from.dst_port);
                }
                v.set_ip_protocol(UDP);
                m.set_ip_protocol(u8::MAX);
            }
            Self::ActionTag(_) | Self::ActionDrop | Self::ActionCount(_) => {}
        }
        Ok(FlowMatch::from_parts(v, m))
    }
}

fn put_eth(set: &mut FteMatchSetLyr24, from: &EthFilter) {
    let halves =
        |[a, b, c, d, e, f]: Mac| (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
    let (dst, src) = (halves(from.dst_mac), halves(from.src_mac));
    set.set_dmac_47_16(dst.0)
        .set_dmac_15_0(dst.1)
        .set_smac_47_16(src.0)
        .set_smac_15_0(src.1)
        .set_ethertype(from.ether_type)
        .set_first_prio((from.vlan_tag >> 13) as u8)
        .set_first_cfi(from.vlan_tag >> 12 & 1 != 0)
        .set_first_vid(from.vlan_tag & 0xfff);
}

fn put_traffic_class(set: &mut FteMatchSetLyr24, class: u8) {
    set.set_ip_dscp(class >> 2).set_ip_ecn(class & 3);
}

fn put_ipv4(set: &mut FteMatchSetLyr24, from: &Ipv4Filter) {
    // The device has IPv4 addresses in the last four of sixteen bytes.
    set.src_ipv4_src_ipv6_mut()[12..].copy_from_slice(&from.src_ip);
    set.dst_ipv4_dst_ipv6_mut()[12..].copy_from_slice(&from.dst_ip);
    set.set_ip_protocol(from.proto).set_ttl_hoplimit(from.ttl);
    put_traffic_class(set, from.tos);
}

fn put_ipv6(set: &mut FteMatchSetLyr24, from: &Ipv6Filter) {
    *set.src_ipv4_src_ipv6_mut() = from.src_ip;
    *set.dst_ipv4_dst_ipv6_mut() = from.dst_ip;
    set.set_ip_protocol(from.next_hdr)
        .set_ttl_hoplimit(from.hop_limit);
    put_traffic_class(set, from.traffic_class);
}

/// A rule to be: `struct ibv_flow_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowAttr<'a> {
    /// The frames that it looks at.
    pub kind: FlowType,
    /// The lowest is looked at first; up to [`FlowTable::max_flow_priority`]. The default types are behind all normal ones,
    /// whatever this says.
    pub priority: u16,
    /// Headers that frames have to have, all of them, and what is done to them.
    pub specs: &'a [FlowSpec],
    /// See [`FlowFlags`].
    pub flags: FlowFlags,
}

impl<'a> FlowAttr<'a> {
    /// A normal rule of the first priority.
    #[must_use]
    pub const fn normal(specs: &'a [FlowSpec]) -> Self {
        Self {
            kind: FlowType::Normal,
            priority: 0,
            specs,
            flags: FlowFlags::empty(),
        }
    }

    /// A rule of another type without specifications.
    #[must_use]
    pub const fn of(kind: FlowType) -> Self {
        Self {
            kind,
            ..Self::normal(&[])
        }
    }

    /// The entry of the table, but for its priority.
    fn entry(&self) -> Result<Entry, FlowError> {
        let mut entry = Entry::default();
        for spec in self.specs {
            match *spec {
                FlowSpec::ActionTag(tag) => entry.tag = tag,
                FlowSpec::ActionDrop => entry.drop = true,
                FlowSpec::ActionCount(id) => entry.counter = Some(id.0),
                _ => {
                    let both = entry.matches.and(&spec.matches()?);
                    entry.matches = both.ok_or(FlowError::Conflict)?;
                }
            }
        }
        Ok(entry)
    }
}

impl<P: Platform> FlowTable<'_, '_, P> {
    /// The largest [`FlowAttr::priority`], if the table has any that the default types leave.
    #[must_use]
    pub fn max_flow_priority(&self) -> Option<u16> {
        let left = self.priorities().checked_sub(DEFAULTS + 1)?;
        Some(left.into())
    }

    /// Adds a rule that sends frames to `target`: `ibv_create_flow` for the QP that has the
    /// [target](super::raw::RawPacketQp::target). [`remove`](Self::remove) is `ibv_destroy_flow`.
    ///
    /// # Errors
    /// [`FlowError`] says what does not go; then the table is as it was.
    pub fn create_flow(
        &mut self,
        target: Tirn,
        attr: &FlowAttr<'_>,
    ) -> Result<FlowRule, FlowError> {
        let refused = |what| Err(FlowError::Unsupported { what });
        if attr.flags.contains(FlowFlags::DONT_TRAP) {
            return refused("rules that pass frames on");
        }
        if !attr.flags.is_empty() {
            return refused("rules for what is sent");
        }
        let last = self.priorities() - 1;
        let mut entry = attr.entry()?;
        let priority = match attr.kind {
            FlowType::Normal => {
                let most = self.max_flow_priority();
                if most.is_none_or(|most| attr.priority > most) {
                    return Err(FlowError::Priority {
                        asked: attr.priority.min(u8::MAX.into()) as u8,
                        limit: most.map_or(0, |most| most as u8 + 1),
                    });
                }
                attr.priority as u8
            }
            FlowType::Sniffer => return refused("sniffer rules"),
            _ if entry.matches != FlowMatch::ANY => {
                return refused("headers in rules of a default type");
            }
            FlowType::McDefault => {
                entry.matches = FlowMatch::ANY.multicast();
                last.saturating_sub(1)
            }
            FlowType::AllDefault => last,
        };
        let to = [target];
        let action = match entry.drop {
            true => FlowAction::Drop,
            false => FlowAction::Forward(&to),
        };
        self.add_entry(&entry, action, priority)
    }
}
