//! The criteria of rules: fields of layers 2 to 4, each with a mask.

use bareverbs_firmware_cmds::flow::FteMatchSetLyr24;

use crate::types::gid::Mac;

/// Protocol numbers of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The frames that a rule is for: those that have all the fields that were named. Each method names one more, and with it
/// what a frame needs to have that field: IPv4 for an IPv4 address, TCP for a port of TCP.
///
/// Source: `mlx5_ifc.h`, `fte_match_set_lyr_2_4`; verbs' `ibv_flow_spec_eth`, `_ipv4_ext`, `_ipv6`, `_tcp_udp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowMatch {
    pub(super) value: FteMatchSetLyr24,
    pub(super) mask: FteMatchSetLyr24,
}

impl FlowMatch {
    /// Every frame.
    pub const ANY: Self = Self {
        value: FteMatchSetLyr24::ZERO,
        mask: FteMatchSetLyr24::ZERO,
    };

    /// Fields as the device has them: `value` counts where `mask` is set.
    #[must_use]
    pub fn from_parts(mut value: FteMatchSetLyr24, mask: FteMatchSetLyr24) -> Self {
        for (byte, mask) in value.0.iter_mut().zip(mask.0) {
            *byte &= mask;
        }
        Self { value, mask }
    }

    /// Frames that both are for; `None` if they ask for different values of one field, which no frame has.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        let mut all = *self;
        for at in 0..all.mask.0.len() {
            let both = self.mask.0[at] & other.mask.0[at];
            if both & (self.value.0[at] ^ other.value.0[at]) != 0 {
                return None;
            }
            all.mask.0[at] |= other.mask.0[at];
            all.value.0[at] |= other.value.0[at];
        }
        Some(all)
    }

    /// Sets the same field in value and mask.
    fn with<T>(
        mut self,
        value: T,
        mask: T,
        put: impl Fn(&mut FteMatchSetLyr24, T) -> &mut FteMatchSetLyr24,
    ) -> Self {
        put(&mut self.value, value);
        put(&mut self.mask, mask);
        self
    }

    /// To this address.
    #[must_use]
    pub fn destination(self, mac: Mac) -> Self {
        self.destination_masked(mac, [0xff; 6])
    }

    /// To an address that has these bits of `mac`.
    #[must_use]
    pub fn destination_masked(self, mac: Mac, mask: Mac) -> Self {
        self.with(both(mac, mask), mask, |set, mac| {
            let (high, low) = halves(mac);
            set.set_dmac_47_16(high).set_dmac_15_0(low)
        })
    }

    /// To any multicast address, broadcast included.
    #[must_use]
    pub fn multicast(self) -> Self {
        const BIT: Mac = [1, 0, 0, 0, 0, 0];
        self.destination_masked(BIT, BIT)
    }

    /// From this address.
    #[must_use]
    pub fn source(self, mac: Mac) -> Self {
        self.with(mac, [0xff; 6], |set, mac| {
            let (high, low) = halves(mac);
            set.set_smac_47_16(high).set_smac_15_0(low)
        })
    }

    /// Of this EtherType, behind the VLAN tags.
    #[must_use]
    pub fn ethertype(self, ethertype: u16) -> Self {
        self.with(ethertype, u16::MAX, FteMatchSetLyr24::set_ethertype)
    }

    /// Without a VLAN tag.
    #[must_use]
    pub fn untagged(self) -> Self {
        self.with(false, true, FteMatchSetLyr24::set_cvlan_tag)
    }

    /// With a customer's VLAN tag (0x8100) of this VLAN, 0 to 4095.
    #[must_use]
    pub fn vlan(self, vid: u16) -> Self {
        self.with(true, true, FteMatchSetLyr24::set_cvlan_tag).with(
            vid & 0xfff,
            0xfff,
            FteMatchSetLyr24::set_first_vid,
        )
    }

    /// With a customer's VLAN tag of this priority, 0 to 7.
    #[must_use]
    pub fn vlan_priority(self, priority: u8) -> Self {
        self.with(true, true, FteMatchSetLyr24::set_cvlan_tag).with(
            priority & 7,
            7,
            FteMatchSetLyr24::set_first_prio,
        )
    }

    /// IPv4.
    #[must_use]
    pub fn ipv4(self) -> Self {
        self.with(4, 0xf, FteMatchSetLyr24::set_ip_version)
    }

    /// IPv6.
    #[must_use]
    pub fn ipv6(self) -> Self {
        self.with(6, 0xf, FteMatchSetLyr24::set_ip_version)
    }

    /// From an IPv4 address that begins with `prefix` bits (up to 32) of this one.
    #[must_use]
    pub fn ipv4_source(self, address: [u8; 4], prefix: u8) -> Self {
        let (address, mask) = ipv4(address, prefix);
        self.ipv4().with(address, mask, put_source)
    }

    /// To an IPv4 address that begins with `prefix` bits (up to 32) of this one.
    #[must_use]
    pub fn ipv4_destination(self, address: [u8; 4], prefix: u8) -> Self {
        let (address, mask) = ipv4(address, prefix);
        self.ipv4().with(address, mask, put_destination)
    }

    /// From an IPv6 address that begins with `prefix` bits (up to 128) of this one.
    #[must_use]
    pub fn ipv6_source(self, address: [u8; 16], prefix: u8) -> Self {
        let mask = bits(prefix);
        self.ipv6().with(both(address, mask), mask, put_source)
    }

    /// To an IPv6 address that begins with `prefix` bits (up to 128) of this one.
    #[must_use]
    pub fn ipv6_destination(self, address: [u8; 16], prefix: u8) -> Self {
        let mask = bits(prefix);
        self.ipv6().with(both(address, mask), mask, put_destination)
    }

    /// With this protocol in IPv4, or as IPv6's next header.
    #[must_use]
    pub fn ip_protocol(self, protocol: u8) -> Self {
        self.with(protocol, u8::MAX, FteMatchSetLyr24::set_ip_protocol)
    }

    /// With this differentiated services code point, 0 to 63.
    #[must_use]
    pub fn dscp(self, dscp: u8) -> Self {
        self.with(dscp & 0x3f, 0x3f, FteMatchSetLyr24::set_ip_dscp)
    }

    /// A fragment of an IP packet, or none.
    #[must_use]
    pub fn fragment(self, fragment: bool) -> Self {
        self.with(fragment, true, FteMatchSetLyr24::set_frag)
    }

    /// From this port of TCP.
    #[must_use]
    pub fn tcp_source(self, port: u16) -> Self {
        self.ip_protocol(TCP)
            .with(port, u16::MAX, FteMatchSetLyr24::set_tcp_sport)
    }

    /// To this port of TCP.
    #[must_use]
    pub fn tcp_destination(self, port: u16) -> Self {
        self.ip_protocol(TCP)
            .with(port, u16::MAX, FteMatchSetLyr24::set_tcp_dport)
    }

    /// From this port of UDP.
    #[must_use]
    pub fn udp_source(self, port: u16) -> Self {
        self.ip_protocol(UDP)
            .with(port, u16::MAX, FteMatchSetLyr24::set_udp_sport)
    }

    /// To this port of UDP.
    #[must_use]
    pub fn udp_destination(self, port: u16) -> Self {
        self.ip_protocol(UDP)
            .with(port, u16::MAX, FteMatchSetLyr24::set_udp_dport)
    }

    /// The same for a card that cannot match the version of IP: by the EtherType, if that is free.
    pub(super) fn version_by_ethertype(mut self) -> Self {
        let ethertype = match (self.mask.ip_version(), self.value.ip_version()) {
            (0xf, 4) => 0x0800,
            (0xf, 6) => 0x86dd,
            _ => return self,
        };
        if self.mask.ethertype() != 0 && self.value.ethertype() != ethertype {
            return self;
        }
        self.value.set_ip_version(0);
        self.mask.set_ip_version(0);
        self.ethertype(ethertype)
    }
}

fn halves(mac: Mac) -> (u32, u16) {
    let [a, b, c, d, e, f] = mac;
    (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]))
}

fn both<const N: usize>(value: [u8; N], mask: [u8; N]) -> [u8; N] {
    core::array::from_fn(|at| value[at] & mask[at])
}

/// The uppermost bits.
fn bits(prefix: u8) -> [u8; 16] {
    let low = 128 - u32::from(prefix.min(128));
    u128::MAX.checked_shl(low).unwrap_or(0).to_be_bytes()
}

/// Address and mask where the device has IPv4: in the last four of sixteen bytes.
fn ipv4(address: [u8; 4], prefix: u8) -> ([u8; 16], [u8; 16]) {
    let low = 32 - u32::from(prefix.min(32));
    let mask = u32::MAX.checked_shl(low).unwrap_or(0);
    let wide = |number: u32| u128::from(number).to_be_bytes();
    (wide(u32::from_be_bytes(address) & mask), wide(mask))
}

fn put_source(set: &mut FteMatchSetLyr24, address: [u8; 16]) -> &mut FteMatchSetLyr24 {
    *set.src_ipv4_src_ipv6_mut() = address;
    set
}

fn put_destination(set: &mut FteMatchSetLyr24, address: [u8; 16]) -> &mut FteMatchSetLyr24 {
    *set.dst_ipv4_dst_ipv6_mut() = address;
    set
}

/// Puts all ones into the fields that one bit of [`FIELDS`] stands for.
type Fill = fn(&mut FteMatchSetLyr24);

/// Fields by the bits of `flow_table_fields_supported` that stand for them.
const FIELDS: [(&str, u8, Fill); 19] = [
    ("the destination address", 0, |s| {
        s.set_dmac_47_16(u32::MAX).set_dmac_15_0(u16::MAX);
    }),
    ("the source address", 1, |s| {
        s.set_smac_47_16(u32::MAX).set_smac_15_0(u16::MAX);
    }),
    ("the EtherType", 2, |s| {
        s.set_ethertype(u16::MAX);
    }),
    ("the version of IP", VERSION, |s| {
        s.set_ip_version(0xf);
    }),
    ("the VLAN tag's priority", 4, |s| {
        s.set_first_prio(7);
    }),
    ("the VLAN tag's drop bit", 5, |s| {
        s.set_first_cfi(true);
    }),
    ("the VLAN", 6, |s| {
        s.set_first_vid(0xfff);
    }),
    ("IP's time to live", 7, |s| {
        s.set_ttl_hoplimit(u8::MAX);
    }),
    ("IP's source address", 12, |s| {
        put_source(s, [0xff; 16]);
    }),
    ("IP's destination address", 13, |s| {
        put_destination(s, [0xff; 16]);
    }),
    ("fragments", 14, |s| {
        s.set_frag(true);
    }),
    ("IP's protocol", 15, |s| {
        s.set_ip_protocol(u8::MAX);
    }),
    ("IP's congestion bits", 16, |s| {
        s.set_ip_ecn(3);
    }),
    ("IP's code point", 17, |s| {
        s.set_ip_dscp(0x3f);
    }),
    ("UDP's source port", 18, |s| {
        s.set_udp_sport(u16::MAX);
    }),
    ("UDP's destination port", 19, |s| {
        s.set_udp_dport(u16::MAX);
    }),
    ("TCP's source port", 20, |s| {
        s.set_tcp_sport(u16::MAX);
    }),
    ("TCP's destination port", 21, |s| {
        s.set_tcp_dport(u16::MAX);
    }),
    ("TCP's flags", 22, |s| {
        s.set_tcp_flags(0x1ff);
    }),
];

/// The bit of the version of IP.
pub(super) const VERSION: u8 = 3;

/// Returns `true` if `flow_table_fields_supported` has a bit.
pub(super) fn supports(supported: [u8; 16], bit: u8) -> bool {
    supported[usize::from(bit / 8)] & 0x80 >> (bit % 8) != 0
}

/// A field of a mask that the card cannot match.
pub(super) fn unsupported(mask: &FteMatchSetLyr24, supported: [u8; 16]) -> Option<&'static str> {
    let mut known = FteMatchSetLyr24::ZERO;
    // Which tags there are has no bit, and goes with the first tag's VLAN.
    known.set_cvlan_tag(true).set_svlan_tag(true);
    for (name, bit, fill) in FIELDS {
        let mut field = FteMatchSetLyr24::ZERO;
        fill(&mut field);
        let asked = field
            .0
            .iter()
            .zip(mask.0)
            .any(|(bits, mask)| bits & mask != 0);
        if asked && !supports(supported, bit) {
            return Some(name);
        }
        for (known, bits) in known.0.iter_mut().zip(field.0) {
            *known |= bits;
        }
    }
    let rest = mask
        .0
        .iter()
        .zip(known.0)
        .any(|(mask, known)| mask & !known != 0);
    rest.then_some("a field without a name")
}
