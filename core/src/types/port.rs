//! Ports: attributes, states, link layers.

use core::fmt;

pub use bareverbs_firmware_cmds::values::Mtu;
use bareverbs_firmware_cmds::values::{self, VportState};

use crate::types::gid::Mac;

/// The function's only port. Both ports of a card are functions of their own.
pub const PORT: u8 = 1;

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
    /// Active, but the link has problems for the moment.
    ActiveDefer,
    /// A number that the driver has no name for.
    Unknown(u8),
}

impl PortState {
    pub(crate) fn from_infiniband(number: u8) -> Self {
        match values::PortState::from_number(number) {
            Some(values::PortState::Down) => Self::Down,
            Some(values::PortState::Initialize) => Self::Init,
            Some(values::PortState::Armed) => Self::Armed,
            Some(values::PortState::Active) => Self::Active,
            Some(values::PortState::ActiveDefer) => Self::ActiveDefer,
            Some(values::PortState::NoChange) | None => Self::Unknown(number),
        }
    }

    pub(crate) fn from_ethernet(number: u8) -> Self {
        match VportState::from_number(number) {
            Some(VportState::Down) => Self::Down,
            Some(VportState::Up) => Self::Active,
            Some(VportState::Follow) | None => Self::Unknown(number),
        }
    }
}

/// The state of the link, and the reason if it is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkStatus {
    /// There is a link.
    Up,
    /// The port's administrative state is down (PAOS, `admin_status`): another driver left it so, or firmware waits for a
    /// driver. [`Device::set_link`](crate::Device::set_link) raises it.
    AdminDown,
    /// The function is virtual, and the administrative state of its port is down (QUERY_VPORT_STATE, `admin_state`); only
    /// the driver of the physical function changes it.
    VportAdminDown,
    /// The port is up by administration and has no link: no cable, or nothing at its other end.
    NoCarrier,
    /// There is a link, and the InfiniBand port waits for a subnet manager to give it an identifier and to make it active
    /// ([`PortState::Init`], [`PortState::Armed`]).
    AwaitsManager,
}

impl fmt::Display for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::AdminDown => "down by administration (PAOS)",
            Self::VportAdminDown => {
                "down by administration of the host's physical function: ip link set DEVICE vf NUMBER state auto"
            }
            Self::NoCarrier => "down without a carrier: is the cable plugged in, and the other end up?",
            Self::AwaitsManager => "up, but no subnet manager has made the port active: does one run, such as OpenSM?",
        })
    }
}

/// The port's link layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, with RoCE.
    Ethernet,
}

/// Attributes of a port (`struct ibv_port_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// The link layer.
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
    /// Paths need a global route header (InfiniBand): a function that shares its LID with others is found by its GID only.
    pub grh_required: bool,
    /// Link rate in megabits per second, if the firmware reports it; 0 otherwise.
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

/// The largest path MTU that fits into this many bytes of payload.
#[must_use]
pub const fn mtu_that_fits(bytes: usize) -> Option<Mtu> {
    Some(match bytes {
        4096.. => Mtu::B4096,
        2048.. => Mtu::B2048,
        1024.. => Mtu::B1024,
        512.. => Mtu::B512,
        256.. => Mtu::B256,
        _ => return None,
    })
}

/// The bytes of an Ethernet frame that the hardware's MTU counts beside the payload: header, VLAN tag, check sequence.
pub(crate) const ETHERNET_OVERHEAD: usize = 14 + 4 + 4;

/// The most bytes around a RoCE v2 packet's payload: IPv6, UDP, BTH, XRC, AtomicETH, ICRC (as the kernel counts).
pub(crate) const ROCE_OVERHEAD: usize = 40 + 8 + 12 + 4 + 28 + 4;
