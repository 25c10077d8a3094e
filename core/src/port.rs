//! The state and the attributes of the port.

use crate::gid::Mac;

/// Logical state of a port (`enum ibv_port_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// The link is up, the subnet manager has not configured it yet.
    Init,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// A number that the driver has no name for.
    Unknown(u8),
}

/// What the port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, with RoCE.
    Ethernet,
}

/// Path MTU: payload bytes of a packet (`enum ibv_mtu`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// The payload in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// From the number that the wire and the contexts use (1 to 5).
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            _ => return None,
        })
    }

    /// The number that the wire and the contexts use.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The largest that fits into this many bytes of payload.
    #[must_use]
    pub const fn that_fits(bytes: usize) -> Option<Self> {
        Some(match bytes {
            4096.. => Self::Mtu4096,
            2048.. => Self::Mtu2048,
            1024.. => Self::Mtu1024,
            512.. => Self::Mtu512,
            256.. => Self::Mtu256,
            _ => return None,
        })
    }
}

/// Attributes of a port (`struct ibv_port_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// What it speaks.
    pub link_layer: LinkLayer,
    /// The largest MTU that the port can be set to.
    pub max_mtu: Mtu,
    /// The MTU in force.
    pub active_mtu: Mtu,
    /// Longest message in bytes.
    pub max_msg_size: u64,
    /// Entries of the GID table.
    pub gid_table_len: usize,
    /// Entries of the P_Key table.
    pub pkey_table_len: usize,
    /// Local identifier (InfiniBand).
    pub lid: u16,
    /// Low bits of the LID that do not count (InfiniBand).
    pub lmc: u8,
    /// The subnet manager's LID (InfiniBand).
    pub sm_lid: u16,
    /// The subnet manager's service level (InfiniBand).
    pub sm_sl: u8,
    /// Timeout of the subnet, as 4.096 µs × 2^n.
    pub subnet_timeout: u8,
    /// Capability mask (InfiniBand).
    pub cap_mask: u32,
    /// Link rate in megabits per second, as far as the firmware tells; 0 otherwise.
    pub rate_mbps: u32,
    /// The port's Ethernet address (zero on InfiniBand).
    pub mac: Mac,
    /// GUID of the node.
    pub node_guid: u64,
    /// GUID of the port.
    pub port_guid: u64,
    /// GUID of the machine or card.
    pub system_image_guid: u64,
}
