//! Receive-side scaling: which headers are hashed how, so that the frames of a flow come to one queue.
//!
//! Source: `mlx5_ifc.h`, `tirc` and `rx_hash_field_select`; `ibv_create_qp_ex(3)`, `ibv_rx_hash_conf`. The hash itself
//! is Microsoft's Toeplitz hash, over the selected fields in the order source address, destination address, source port,
//! destination port.

use core::fmt;

use bareverbs_firmware_cmds::tir::{RxHashFieldSelect, Tirc};
use bitflags::bitflags;

use crate::types::error::CommandError;

/// The packets that a target hashes. A packet of another kind has the hash of those of its headers that fit: of its
/// addresses if it is of the same IP version, of nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashedPackets {
    /// IPv4, whatever it carries.
    Ipv4,
    /// IPv6, whatever it carries.
    Ipv6,
    /// TCP over IPv4.
    TcpIpv4,
    /// TCP over IPv6.
    TcpIpv6,
    /// UDP over IPv4.
    UdpIpv4,
    /// UDP over IPv6.
    UdpIpv6,
}

bitflags! {
    /// The fields that go into a hash: verbs' `IBV_RX_HASH_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct HashFields: u8 {
        /// The source address.
        const SOURCE_ADDRESS = 1 << 0;
        /// The destination address.
        const DESTINATION_ADDRESS = 1 << 1;
        /// The source port.
        const SOURCE_PORT = 1 << 2;
        /// The destination port.
        const DESTINATION_PORT = 1 << 3;
    }
}

impl HashFields {
    /// Both addresses.
    pub const ADDRESSES: Self = Self::SOURCE_ADDRESS.union(Self::DESTINATION_ADDRESS);
    /// Both ports.
    pub const PORTS: Self = Self::SOURCE_PORT.union(Self::DESTINATION_PORT);
}

/// The function of the fields: `rx_hash_fn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HashFunction {
    /// All bytes exclusive-ored, and the result inverted: of 8 bits, so that tables have 256 entries at most. It has no key. No
    /// document says which entry a hash finds: Linux reverses the order of the index's bits.
    InvertedXor8 = 1,
    /// Toeplitz, as Microsoft has published it.
    #[default]
    Toeplitz = 2,
}

/// The hash of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RssHash {
    /// The packets that are hashed.
    pub packets: HashedPackets,
    /// The fields of theirs that are hashed.
    pub fields: HashFields,
    /// The function of the fields.
    pub function: HashFunction,
    /// The key of Toeplitz. Who can guess it can send everything to one queue.
    pub key: [u8; 40],
    /// Both directions of a flow get the same hash, if both addresses or both ports are taken.
    pub symmetric: bool,
}

impl RssHash {
    /// The key of Microsoft's examples, which everybody knows.
    pub const PUBLIC_KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Toeplitz of all fields that these packets have, with the public key.
    #[must_use]
    pub const fn all_of(packets: HashedPackets) -> Self {
        let fields = match packets {
            HashedPackets::Ipv4 | HashedPackets::Ipv6 => HashFields::ADDRESSES,
            _ => HashFields::all(),
        };
        Self {
            packets,
            fields,
            function: HashFunction::Toeplitz,
            key: Self::PUBLIC_KEY,
            symmetric: false,
        }
    }

    /// Refuses tables with entries that no hash finds.
    pub(super) fn check_table(&self, size: u32) -> Result<(), RssError> {
        /// `MLX5E_MAX_RQT_SIZE_ALLOWED_WITH_XOR8_HASH` of Linux.
        const XOR8: u32 = 256;
        if self.function == HashFunction::InvertedXor8 && size > XOR8 {
            return Err(RssError::TableSize {
                asked: size,
                limit: XOR8,
            });
        }
        Ok(())
    }

    /// Writes it to a TIR's context.
    pub(super) fn write(&self, context: &mut Tirc) -> Result<(), RssError> {
        use HashedPackets::*;
        let has_ports = !matches!(self.packets, Ipv4 | Ipv6);
        if !has_ports && self.fields.intersects(HashFields::PORTS) || self.fields.is_empty() {
            return Err(RssError::Fields {
                packets: self.packets,
            });
        }
        context
            .set_rx_hash_fn(self.function as u8)
            .set_rx_hash_symmetric(self.symmetric);
        if self.function == HashFunction::Toeplitz {
            *context.rx_hash_toeplitz_key_mut() = self.key;
        }
        let outer: &mut RxHashFieldSelect = context.rx_hash_field_selector_outer_mut();
        outer
            .set_l3_prot_type(matches!(self.packets, Ipv6 | TcpIpv6 | UdpIpv6))
            .set_l4_prot_type(matches!(self.packets, UdpIpv4 | UdpIpv6))
            .set_selected_fields(self.fields.bits().into());
        Ok(())
    }
}

/// A frame's hash, as its completion has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHash {
    /// The hash.
    pub value: u32,
    /// The fields that went into it, two bits each from the lowest on: source address (1 for IPv4, 2 for IPv6), destination
    /// address, source port (1 for TCP, 2 for UDP), destination port. 0 if nothing did.
    pub kind: u8,
}

/// Why frames cannot be spread as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RssError {
    /// The function has no indirection tables.
    Unsupported,
    /// Tables have a power of two of entries, up to a limit.
    TableSize {
        /// The entries that were asked for.
        asked: u32,
        /// The largest possible.
        limit: u32,
    },
    /// A table of no queue.
    NoQueue,
    /// No fields, or ports of packets that have none.
    Fields {
        /// The packets that were asked for.
        packets: HashedPackets,
    },
    /// The card does not look into tunnels (`tunnel_stateless_vxlan`, `tunnel_stateless_gre`).
    Tunnels,
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for RssError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the function does not have indirection tables"),
            Self::TableSize { asked, limit } => write!(
                f,
                "an indirection table of {asked} entries is no power of two in 1..={limit}"
            ),
            Self::NoQueue => f.write_str("an indirection table of no queue"),
            Self::Fields { packets } => {
                write!(f, "a hash of nothing, or of ports of {packets:?} packets")
            }
            Self::Tunnels => f.write_str("the card does not look into tunnels"),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RssError {}

impl From<CommandError> for RssError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}
