//! Address handles: where a datagram goes, and the path of a connection.

use core::fmt;

use crate::types::gid::{Gid, Mac, RoceVersion};
use crate::types::rate::StaticRate;
use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    DestinationWord, GrhWord, QKeyWord, RemoteGidHighWord, RemoteGidLowWord, RemoteMacWord,
};

/// A path to a port: `struct ibv_ah_attr` with its global route, plus what RoCE needs of the link layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AhAttr {
    /// Destination GID.
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
    /// The most that the path carries.
    pub static_rate: StaticRate,
    /// MAC of the next hop. Address resolution is not the device's business.
    pub dmac: Mac,
    /// Destination LID (InfiniBand).
    pub dlid: u16,
    /// Low bits of the source LID (InfiniBand).
    pub src_path_bits: u8,
    /// Port number, from 1; 0 means port 1.
    pub port_num: u8,
    /// Force loopback: the device hands the connection's packets to its own queue pairs, and nothing of them reaches the
    /// cable. It needs no address (every field but `port_num` is ignored), no link, and may have any path MTU. For RC
    /// queue pairs, both ends of them, of a device that
    /// [has it](crate::Capabilities::has_force_loopback). Verbs do not have it; it is `fl` of the address path (`ads`).
    pub force_loopback: bool,
}

impl AhAttr {
    /// No path.
    pub const NONE: Self = Self {
        dgid: Gid::ZERO,
        sgid_index: 0,
        hop_limit: 0,
        traffic_class: 0,
        flow_label: 0,
        sl: 0,
        static_rate: StaticRate::PORT,
        dmac: [0; 6],
        dlid: 0,
        src_path_bits: 0,
        port_num: 0,
        force_loopback: false,
    };
}

/// A path that the device cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AhError {
    /// The GID table has no entry there.
    NoSuchSgid {
        /// The index that was asked for.
        index: u16,
    },
    /// A field is out of range.
    Value {
        /// The field's name.
        field: &'static str,
        /// Its value.
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
    /// The second quadword of the address vector, without a destination QP.
    pub(crate) path: DestinationWord,
    /// The four that follow, as they lie in memory.
    pub(crate) rest: [u64; 4],
}

impl AddressHandle {
    /// Encodes a path; `encapsulation` is that of the GID table entry `sgid_index`, `None` on InfiniBand.
    ///
    /// `default_sport` is the UDP source port of flows without a label (the RoCE capabilities name the first one that the
    /// device may use). `rates` are the static rates that it has (`stat_rate_support`).
    pub fn encode(
        attr: &AhAttr,
        encapsulation: Option<RoceVersion>,
        default_sport: u16,
        rates: u16,
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
        let mut path = DestinationWord(0);
        path.set_stat_rate(attr.static_rate.to_device(rates));
        path.set_sl(sl);
        path.set_mlid(attr.src_path_bits);
        path.set_rlid(last);
        // Inside an InfiniBand subnet there need not be a global route. RoCE always has one, and the bit is reserved there.
        let global = encapsulation.is_none() && attr.dgid != Gid::ZERO;
        let [m0, m1, m2, m3, m4, m5] = attr.dmac;
        let mut mac = RemoteMacWord(0);
        mac.set_rmac_47_16(u32::from_be_bytes([m0, m1, m2, m3]));
        let mut grh = GrhWord(0);
        grh.set_rmac_15_0(u16::from_be_bytes([m4, m5]));
        grh.set_tclass(attr.traffic_class);
        grh.set_hop_limit(attr.hop_limit);
        grh.set_grh(global);
        grh.set_sgid_index(attr.sgid_index as u8);
        grh.set_flow_label(attr.flow_label);
        let gid = u128::from_be_bytes(attr.dgid.0);
        Ok(Self {
            path,
            rest: [
                mac.to_memory(),
                grh.to_memory(),
                RemoteGidHighWord((gid >> 64) as u64).to_memory(),
                RemoteGidLowWord(gid as u64).to_memory(),
            ],
        })
    }

    /// The whole 48-byte address vector (`struct mlx5_wqe_av`) for a destination.
    #[must_use]
    pub fn vector(&self, remote_qpn: u32, remote_qkey: u32) -> [u8; 48] {
        let mut bytes = [0; 48];
        QKeyWord::new(remote_qkey).write(&mut bytes);
        self.path
            .to(Qpn::from_low_bits(remote_qpn))
            .write(&mut bytes);
        for (chunk, word) in bytes[16..].chunks_exact_mut(8).zip(self.rest) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

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
    range("sl", attr.sl.into(), 15)?;
    range("sgid_index", attr.sgid_index.into(), 255)?;
    if roce && attr.dmac == [0; 6] {
        return Err(AhError::NoDestinationMac);
    }
    Ok(())
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
        let mut ah = AddressHandle::encode(&attr, Some(RoceVersion::V2), 0xc000, 0).unwrap();
        // The vector of the reference was made with this port.
        ah.path.set_udp_sport(0xc123);
        let mut expected = [0; 48];
        expected[..4].copy_from_slice(&[0x11, 0x22, 0x33, 0x44]);
        let words: [u32; 10] = [
            0x8000_0042,
            0x0000_c123,
            0x0000_0000,
            0x0200_0000,
            0x0009_1040,
            0x0031_2345,
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
            static_rate: StaticRate::from_number(16).unwrap(),
            dlid: 0x77,
            ..AhAttr::default()
        };
        let path = |version| {
            AddressHandle::encode(&attr, version, 0xd000, u16::MAX)
                .unwrap()
                .path
                .0
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
            |attr: AhAttr| AddressHandle::encode(&attr, Some(RoceVersion::V2), 0xc000, 0).is_err();
        assert!(!refused(good));
        assert!(refused(AhAttr {
            flow_label: 1 << 20,
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
