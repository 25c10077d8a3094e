//! Address handles: where a datagram goes, and the path of a connection.

use core::fmt;

use crate::device::Device;
use crate::gid::{Gid, Mac, RoceVersion};
use crate::platform::Platform;

/// A path to a port: `struct ibv_ah_attr` with its global route, plus what RoCE needs of the link layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AhAttr {
    /// Where to.
    pub dgid: Gid,
    /// Index of the GID table entry to send from; it decides encapsulation, source address and VLAN.
    pub sgid_index: u16,
    /// Hop limit (time to live).
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits; with RoCE v2 the UDP source port follows from it.
    pub flow_label: u32,
    /// Service level; on Ethernet its low three bits are the priority.
    pub sl: u8,
    /// Static rate, as the device numbers it; 0 is the port's.
    pub static_rate: u8,
    /// MAC of the next hop. Address resolution is not the device's business.
    pub dmac: Mac,
    /// Destination LID (InfiniBand).
    pub dlid: u16,
    /// Low bits of the source LID (InfiniBand).
    pub src_path_bits: u8,
    /// Port number, from 1; 0 stands for port 1.
    pub port_num: u8,
    /// Force loopback: the device hands the connection's packets to its own queue pairs, and nothing of them reaches the
    /// cable. It needs no address (every field but `port_num` is ignored), no link, and may have any path MTU. For RC
    /// queue pairs, both ends of them, of a device that
    /// [has it](crate::Capabilities::has_force_loopback). Verbs have no such thing; it is `fl` of the address path (`ads`).
    pub force_loopback: bool,
}

/// A path that the device cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AhError {
    /// The GID table has no entry there.
    NoSuchSgid {
        /// What was asked for.
        index: u16,
    },
    /// A field is out of range.
    Value {
        /// Which one.
        field: &'static str,
        /// What it is.
        value: u32,
        /// The largest possible.
        limit: u32,
    },
    /// No MAC: RoCE needs the next hop's.
    NoDestinationMac,
    /// The device has no force loopback.
    NoForceLoopback,
    /// Force loopback is for RC queue pairs.
    ForceLoopbackNotRc,
}

impl fmt::Display for AhError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchSgid { index } => write!(f, "the GID table has no entry {index}"),
            Self::Value {
                field,
                value,
                limit,
            } => write!(f, "{field} = {value:#x} is above {limit:#x}"),
            Self::NoDestinationMac => f.write_str("RoCE needs the MAC of the next hop"),
            Self::NoForceLoopback => f.write_str(
                "the device has no force loopback (fl_rc_qp_when_roce_enabled, _disabled)",
            ),
            Self::ForceLoopbackNotRc => f.write_str("force loopback is for RC queue pairs"),
        }
    }
}

impl core::error::Error for AhError {}

/// The UDP source port of a RoCE v2 flow: `rdma_flow_label_to_udp_sport`.
#[must_use]
pub const fn flow_label_to_udp_sport(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3fff) ^ (flow_label >> 14 & 0x3f);
    0xc000 | folded as u16
}

/// The UDP source port of a connection: from its flow label or, when that is 0, from both QP numbers
/// (`rdma_get_udp_sport`).
#[must_use]
pub const fn connection_udp_sport(flow_label: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
    if flow_label != 0 {
        return flow_label_to_udp_sport(flow_label & 0xf_ffff);
    }
    let mut label = local_qpn as u64 * remote_qpn as u64;
    label ^= label >> 20;
    label ^= label >> 40;
    flow_label_to_udp_sport((label & 0xf_ffff) as u32)
}

/// The path of a datagram, in the form in which a WQE carries it. A plain value: nothing in the device stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressHandle {
    /// The address vector from byte 0xc on (rate and SL), as it lies in memory; see [`vector`](Self::vector).
    pub(crate) rate_to_sport: u32,
    pub(crate) rest: [u64; 4],
}

impl AddressHandle {
    /// Encodes a path; `encapsulation` is that of the GID table entry `sgid_index`, `None` on InfiniBand.
    ///
    /// `default_sport` is the UDP source port of flows without a label (the RoCE capabilities name the first one that the
    /// device may use).
    pub fn encode(
        attr: &AhAttr,
        encapsulation: Option<RoceVersion>,
        default_sport: u16,
    ) -> Result<Self, AhError> {
        if attr.force_loopback {
            return Err(AhError::ForceLoopbackNotRc);
        }
        check(attr, encapsulation.is_some())?;
        let (sl, last) = match encapsulation {
            None => (attr.sl & 0xf, attr.dlid),
            // Ethernet priority, one bit up: `mlx5_ib`'s create_ib_ah.
            Some(RoceVersion::V1) => ((attr.sl & 7) << 1, 0),
            Some(RoceVersion::V2) if attr.flow_label == 0 => ((attr.sl & 7) << 1, default_sport),
            Some(RoceVersion::V2) => ((attr.sl & 7) << 1, flow_label_to_udp_sport(attr.flow_label)),
        };
        let rate_sl = attr.static_rate << 4 | sl;
        let path =
            u32::from(rate_sl) << 24 | u32::from(attr.src_path_bits & 0x7f) << 16 | u32::from(last);
        let m = attr.dmac;
        // Inside an InfiniBand subnet there need not be a global route.
        let global = encapsulation.is_some() || attr.dgid != Gid::ZERO;
        let grh = u32::from(global) << 30 | u32::from(attr.sgid_index) << 20 | attr.flow_label;
        let (high, low) = attr.dgid.0.split_at(8);
        let gid = |half: &[u8]| {
            half.iter()
                .fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        Ok(Self {
            rate_to_sport: path.to_be(),
            rest: [
                // 0x10: reserved, then the first four bytes of the MAC.
                u64::from_be_bytes([0, 0, 0, 0, m[0], m[1], m[2], m[3]]).to_be(),
                // 0x18: its last two, traffic class, hop limit, and the GRH dword.
                (u64::from_be_bytes([m[4], m[5], attr.traffic_class, attr.hop_limit, 0, 0, 0, 0])
                    | u64::from(grh))
                .to_be(),
                gid(high).to_be(),
                gid(low).to_be(),
            ],
        })
    }

    /// The whole 48-byte address vector (`struct mlx5_wqe_av`) for a destination.
    #[must_use]
    pub fn vector(&self, remote_qpn: u32, remote_qkey: u32) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..4].copy_from_slice(&remote_qkey.to_be_bytes());
        bytes[8..12].copy_from_slice(&(remote_qpn | EXTENDED).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.rate_to_sport.to_ne_bytes());
        for (chunk, word) in bytes[16..].chunks_exact_mut(8).zip(self.rest) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// In the destination QP dword: the address vector is the long form, with MAC and GRH.
pub(crate) const EXTENDED: u32 = 1 << 31;

/// Checks the ranges of a path.
pub(crate) fn check(attr: &AhAttr, roce: bool) -> Result<(), AhError> {
    let range = |field, value: u32, limit: u32| {
        if value > limit {
            Err(AhError::Value {
                field,
                value,
                limit,
            })
        } else {
            Ok(())
        }
    };
    range("flow_label", attr.flow_label, 0xf_ffff)?;
    range("static_rate", attr.static_rate.into(), 15)?;
    range("sl", attr.sl.into(), 15)?;
    range("sgid_index", attr.sgid_index.into(), 255)?;
    if roce && attr.dmac == [0; 6] {
        return Err(AhError::NoDestinationMac);
    }
    Ok(())
}

impl<P: Platform> Device<'_, P> {
    /// Makes an address handle: `ibv_create_ah`. The GID table entry has to exist at this time.
    pub fn create_ah(&self, attr: &AhAttr) -> Result<AddressHandle, AhError> {
        let encapsulation = self.encapsulation(attr.sgid_index)?;
        let default = self
            .capabilities()
            .roce
            .map_or(0, |caps| caps.r_roce_min_src_udp_port());
        AddressHandle::encode(
            attr,
            encapsulation,
            if default == 0 { 0xc000 } else { default },
        )
    }

    /// What packets from this GID table entry travel in; `None` on InfiniBand.
    pub(crate) fn encapsulation(&self, sgid_index: u16) -> Result<Option<RoceVersion>, AhError> {
        match self.capabilities().link_layer() {
            crate::port::LinkLayer::InfiniBand => Ok(None),
            crate::port::LinkLayer::Ethernet => match self.port_gid(sgid_index) {
                Some(entry) => Ok(Some(entry.version)),
                None => Err(AhError::NoSuchSgid { index: sgid_index }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address vector that rdma-core's helpers produce.
    #[test]
    fn known_address_vector() {
        let attr = AhAttr {
            dgid: Gid::from_ipv4([192, 168, 1, 2].into()),
            sgid_index: 3,
            hop_limit: 64,
            traffic_class: 0x10,
            flow_label: 0x12345,
            dmac: [2, 0, 0, 0, 0, 9],
            ..AhAttr::default()
        };
        let mut ah = AddressHandle::encode(&attr, Some(RoceVersion::V2), 0xc000).unwrap();
        // The vector of the reference was made with this port.
        ah.rate_to_sport = 0x0000_c123_u32.to_be();
        let mut expected = [0; 48];
        expected[..4].copy_from_slice(&[0x11, 0x22, 0x33, 0x44]);
        let words: [u32; 10] = [
            0x8000_0042,
            0x0000_c123,
            0x0000_0000,
            0x0200_0000,
            0x0009_1040,
            0x4031_2345,
            0,
            0,
            0x0000_ffff,
            0xc0a8_0102,
        ];
        for (chunk, word) in expected[8..].chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        assert_eq!(ah.vector(0x42, 0x1122_3344), expected);
    }

    /// Source ports that the stock kernel's driver was seen to use for these labels.
    #[test]
    fn source_ports() {
        for (label, port) in [
            (0x69818, 55298),
            (0x97392, 62391),
            (0x06f48, 61257),
            (0x0a402, 58368),
            (0x7e9f2, 59885),
            (0x12345, 58177),
        ] {
            assert_eq!(connection_udp_sport(label, 5, 6), port, "{label:#x}");
        }
        assert!(connection_udp_sport(0, 0x12345, 0x54321) >= 0xc000);
        assert_eq!(connection_udp_sport(0, 7, 9), connection_udp_sport(0, 9, 7));
    }

    #[test]
    fn service_level_and_port_of_each_encapsulation() {
        let attr = AhAttr {
            sl: 5,
            dmac: [2; 6],
            static_rate: 3,
            dlid: 0x77,
            ..AhAttr::default()
        };
        let path = |version| {
            u32::from_be(
                AddressHandle::encode(&attr, version, 0xd000)
                    .unwrap()
                    .rate_to_sport,
            )
        };
        assert_eq!(path(None), 0x3500_0077);
        assert_eq!(path(Some(RoceVersion::V1)), 0x3a00_0000);
        assert_eq!(path(Some(RoceVersion::V2)), 0x3a00_d000);
    }

    #[test]
    fn impossible_paths() {
        let good = AhAttr {
            dmac: [2; 6],
            ..AhAttr::default()
        };
        let refused =
            |attr: AhAttr| AddressHandle::encode(&attr, Some(RoceVersion::V2), 0xc000).is_err();
        assert!(!refused(good));
        assert!(refused(AhAttr {
            flow_label: 1 << 20,
            ..good
        }));
        assert!(refused(AhAttr {
            static_rate: 16,
            ..good
        }));
        assert!(refused(AhAttr { sl: 16, ..good }));
        assert!(refused(AhAttr {
            sgid_index: 256,
            ..good
        }));
        assert!(refused(AhAttr {
            dmac: [0; 6],
            ..good
        }));
        assert!(refused(AhAttr {
            force_loopback: true,
            ..good
        }));
    }
}
