//! The virtual port: link, MTU, addresses, counters of violations.

use super::settings::Settings;
use crate::config::Config;
use crate::subnet::port::SubnetPort;
use crate::subnet::tables::Tables;
use bareverbs_firmware_cmds::values::PortState;
use bareverbs_firmware_cmds::vport::NicVportContext;

/// Largest MTU that the port can be set to, headers included.
pub(crate) const MAX_HW_MTU: u16 = 10_240;
/// Bytes that the register's MTU counts beyond the payload: Ethernet header, VLAN tag, check sequence.
pub(crate) const MTU_OVERHEAD: u16 = 22;
/// P_Key table entries (`pkey_table_size` code 0).
pub(crate) const PKEYS: u16 = 128;

/// Packets and the bytes in them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

impl Traffic {
    pub(crate) fn count(&mut self, frame: &[u8]) {
        self.packets += 1;
        self.octets += frame.len() as u64;
    }
}

/// Traffic through the port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PortTraffic {
    pub(crate) received: Traffic,
    pub(crate) sent: Traffic,
    pub(crate) group_received: Traffic,
    pub(crate) group_sent: Traffic,
}

/// Where a frame goes, by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unicast,
    Multicast,
    Broadcast,
}

impl Kind {
    const COUNT: usize = 3;

    pub(crate) fn of(frame: &[u8]) -> Self {
        match frame.first_chunk::<6>() {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Self::Broadcast,
            Some([first, ..]) if first & 1 != 0 => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

/// The counts of the port's traffic to and from Ethernet queues, by [`Kind`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EthernetTraffic {
    pub(crate) received: [Traffic; Kind::COUNT],
    pub(crate) sent: [Traffic; Kind::COUNT],
}

/// The port.
#[derive(Debug, Clone)]
pub(crate) struct Vport {
    pub(crate) context: NicVportContext,
    pub(crate) link_up: bool,
    pub(crate) admin_up: bool,
    /// Ethernet payload that fits a frame.
    pub(crate) mtu: u16,
    pub(crate) traffic: PortTraffic,
    pub(crate) ethernet: EthernetTraffic,
    /// All that was on the cable, whether a queue received it or not.
    pub(crate) cable: EthernetTraffic,
    /// Addresses that the driver accepts, in the order of list types: unicast, multicast, VLANs.
    pub(crate) lists: [Vec<u64>; 3],
    /// The settings that drivers make.
    pub(crate) settings: Settings,
    /// InfiniBand's capability mask: traps, mapping of service levels, system image GUID and extended speeds, and what
    /// software adds.
    pub(crate) cap_mask1: u32,
    /// The settings that a subnet manager makes on an InfiniBand port.
    pub(crate) subnet: SubnetPort,
    pub(crate) tables: Tables,
    /// The GUIDs behind the port's own; 0 is none.
    pub(crate) guids: [u64; 7],
    /// `true` if the port is in the hands of a subnet manager: without one it is active with its link.
    pub(crate) managed: bool,
    /// Notices that were sent to it.
    pub(crate) traps: u64,
}

impl Vport {
    pub(crate) fn new(config: &Config) -> Self {
        let mut context = NicVportContext::ZERO;
        let mac = config
            .mac
            .iter()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
        context
            .set_min_wqe_inline_mode(config.min_wqe_inline_mode)
            .set_mtu(config.mtu.saturating_add(MTU_OVERHEAD))
            .set_system_image_guid(config.system_image_guid)
            .set_port_guid(config.port_guid)
            .set_node_guid(config.node_guid)
            .set_permanent_address(mac);
        let mut subnet = SubnetPort::new();
        if !config.subnet_managed {
            subnet.state = PortState::Active;
            subnet.lid = config.lid;
            subnet.sm_lid = config.sm_lid;
        }
        Self {
            context,
            link_up: config.link_up,
            admin_up: config.admin_up,
            mtu: config.mtu,
            traffic: PortTraffic::default(),
            ethernet: EthernetTraffic::default(),
            cable: EthernetTraffic::default(),
            lists: Default::default(),
            settings: Settings::new(),
            cap_mask1: 0x0000_4848,
            subnet,
            tables: Tables::new(PKEYS),
            guids: [0; 7],
            managed: config.subnet_managed,
            traps: 0,
        }
    }

    pub(crate) fn up(&self) -> bool {
        self.link_up && self.admin_up
    }

    /// An InfiniBand port's GID: the subnet's prefix, and behind it a GUID, or 0 where the table has none.
    pub(crate) fn gid(&self, index: usize) -> [u8; 16] {
        let guid = match index.checked_sub(1) {
            None => self.context.port_guid(),
            Some(at) => self.guids.get(at).copied().unwrap_or(0),
        };
        (u128::from(self.subnet.prefix) << 64 | u128::from(guid)).to_be_bytes()
    }

    /// The P_Key at an index of the table.
    pub(crate) fn pkey(&self, index: u16) -> u16 {
        let key = self.tables.pkeys.get(usize::from(index));
        key.copied().unwrap_or(0)
    }

    /// The state of an InfiniBand port.
    pub(crate) fn port_state(&self) -> PortState {
        if self.up() {
            self.subnet.state
        } else {
            PortState::Down
        }
    }

    pub(crate) fn mac(&self) -> [u8; 6] {
        let bytes = self.context.permanent_address().to_be_bytes();
        [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
    }

    /// Returns `true` if a unicast address is the port's own, or one that the driver accepts.
    pub(crate) fn accepts(&self, address: [u8; 6]) -> bool {
        let number = address
            .iter()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
        let [unicast, ..] = &self.lists;
        number == self.context.permanent_address() || unicast.contains(&number)
    }

    /// Longest frame of the port, with a tag and without check sequence.
    pub(crate) fn max_frame(&self) -> usize {
        usize::from(self.mtu) + 18
    }

    /// Largest path MTU whose packets fit the port's frames, as its code (1 for 256 to 5 for 4096).
    pub(crate) fn path_mtu_code(&self) -> u8 {
        // IPv6, UDP, BTH, the largest extended header, ICRC.
        let space = self.mtu.saturating_sub(40 + 8 + 12 + 28 + 4);
        (1..=5).rev().find(|code| 128 << code <= space).unwrap_or(1)
    }
}
