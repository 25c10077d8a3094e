//! The state and the attributes of the port.

use bareverbs_firmware_cmds::register::{AccessRegisterIn, PaosReg, PmtuReg, PtysReg};
use bareverbs_firmware_cmds::status::Status;

use bareverbs_firmware_cmds::values::{AccessRegister, PortAdminState, RegisterId, VportState};
use bareverbs_firmware_cmds::vport::{
    HcaVportContext, NicVportContext, Pkey, QueryHcaVportContextIn, QueryHcaVportGidIn,
    QueryHcaVportPkeyIn, QueryNicVportContextIn, QueryVportStateIn,
};
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::device::function::FunctionKind;
use crate::firmware::mailbox::TailIn;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::{Gid, Mac};
use crate::types::port::{
    ETHERNET_OVERHEAD, LinkLayer, LinkStatus, Mtu, PORT, PortAttr, PortState, ROCE_OVERHEAD,
    mtu_that_fits,
};

/// The partition that every port is a full member of.
const DEFAULT_PKEY: u16 = 0xffff;
/// A P_Key's bits that name the partition; the other one says full member.
const PKEY_BASE: u16 = 0x7fff;
/// Bytes of the longest register that is written, [`QpdpmReg`](bareverbs_firmware_cmds::register::QpdpmReg).
const LONGEST_WRITTEN: usize = 0x84;
/// PTYS: the Ethernet part.
const PTYS_ETHERNET: u8 = 1 << 2;
/// PTYS: the InfiniBand part.
const PTYS_INFINIBAND: u8 = 1 << 0;

/// The path MTU that fits into an Ethernet port's MTU, from the MTU in its registers.
fn roce_mtu(hardware_mtu: u16) -> Mtu {
    let payload = usize::from(hardware_mtu).saturating_sub(ETHERNET_OVERHEAD + ROCE_OVERHEAD);
    mtu_that_fits(payload).unwrap_or(Mtu::B256)
}

/// The path MTU that an InfiniBand port's register gives in bytes.
fn ib_mtu(bytes: u16) -> Mtu {
    mtu_that_fits(usize::from(bytes)).unwrap_or(Mtu::B256)
}

impl<P: Platform> Device<'_, P> {
    /// Asks for the port's state and attributes.
    pub fn query_port(&self) -> Result<PortAttr, CommandError> {
        match self.capabilities().link_layer() {
            LinkLayer::Ethernet => self.query_ethernet_port(),
            LinkLayer::InfiniBand => self.query_infiniband_port(),
        }
    }

    /// The port's Ethernet address, which a link-local GID is made of; zero for a virtual function that was given none,
    /// until it sets one ([`set_mac`](Self::set_mac)).
    pub fn mac(&self) -> Result<Mac, CommandError> {
        let chosen = *self.chosen_mac.lock();
        match chosen {
            Some(mac) => Ok(mac),
            None => self.nic_vport().map(|context| mac_of(&context)),
        }
    }

    /// A GID of an InfiniBand port, which the subnet manager has given it.
    pub fn query_infiniband_gid(&self, index: u16) -> Result<Gid, CommandError> {
        let mut query = QueryHcaVportGidIn::new();
        query.set_port_num(PORT).set_gid_index(index);
        let mut gid = Gid::ZERO;
        self.execute_with(&query, TailIn::None, &mut gid.0)?;
        Ok(gid)
    }

    /// An entry of the P_Key table. An Ethernet port has one, the default partition's.
    pub fn query_pkey(&self, index: u16) -> Result<u16, CommandError> {
        if self.capabilities().link_layer() == LinkLayer::Ethernet && index == 0 {
            return Ok(DEFAULT_PKEY);
        }
        let mut query = QueryHcaVportPkeyIn::new();
        query.set_port_num(PORT).set_pkey_index(index);
        let mut pkey = Pkey::ZERO;
        self.execute_with(&query, TailIn::None, &mut pkey.0)?;
        Ok(pkey.pkey())
    }

    /// Returns where a partition stands in the P_Key table, and the entry there; `None` if the port is not in it. A port may be
    /// a limited and a full member at once, in either order: the full one is returned, as by Linux's `ib_find_cached_pkey`.
    ///
    /// A table of usual length takes one command, with the index that means all of it (`mlx5_query_hca_vport_pkey` of Linux's
    /// vport.c). Where that is refused, each entry is asked for.
    pub fn find_pkey(&self, pkey: u16) -> Result<Option<(u16, u16)>, CommandError> {
        const ALL: u16 = 0xffff;
        const USUAL: usize = 128;
        let len = self.query_port()?.pkey_table_len as u16;
        let mut table = [0; USUAL * Pkey::SIZE];
        let mut table = match usize::from(len) {
            len @ 2..=USUAL => &mut table[..len * Pkey::SIZE],
            _ => &mut [],
        };
        if !table.is_empty() {
            let mut query = QueryHcaVportPkeyIn::new();
            query.set_port_num(PORT).set_pkey_index(ALL);
            if self.execute_with(&query, TailIn::None, table).is_err() {
                table = &mut [];
            }
        }
        let (table, _) = table.as_chunks();
        let mut limited = None;
        for index in 0..len {
            let entry = match table.get(usize::from(index)) {
                Some(entry) => Pkey(*entry).pkey(),
                None => self.query_pkey(index)?,
            };
            if entry & PKEY_BASE == 0 || (entry ^ pkey) & PKEY_BASE != 0 {
                continue;
            }
            if entry & !PKEY_BASE != 0 {
                return Ok(Some((index, entry)));
            }
            limited = Some((index, entry));
        }
        Ok(limited)
    }

    /// Asks whether there is a link and, if not, what keeps it down: the port's administration (PAOS; for a virtual function
    /// QUERY_VPORT_STATE), or that nothing is at its other end. On InfiniBand a link is of no use before a subnet manager has
    /// configured the port. For saying why [`query_port`](Self::query_port) does not find the port active.
    pub fn query_link(&self) -> Result<LinkStatus, CommandError> {
        match self.query_port()?.state {
            PortState::Down => {}
            PortState::Init | PortState::Armed => return Ok(LinkStatus::AwaitsManager),
            _ => return Ok(LinkStatus::Up),
        }
        if self.function_kind() == FunctionKind::Virtual {
            if self.capabilities().link_layer() == LinkLayer::Ethernet {
                let vport = self.execute(&QueryVportStateIn::new())?;
                if vport.admin_state() == VportState::Down.number() {
                    return Ok(LinkStatus::VportAdminDown);
                }
            }
            return Ok(LinkStatus::NoCarrier);
        }
        let mut paos = PaosReg::ZERO;
        paos.set_local_port(PORT);
        let paos = self.read_register(RegisterId::Paos, paos, PaosReg::as_mut_bytes)?;
        let admin = paos.and_then(|paos| PortAdminState::from_number(paos.admin_status()));
        Ok(match admin {
            Some(PortAdminState::Down | PortAdminState::Disabled) => LinkStatus::AdminDown,
            Some(PortAdminState::Up | PortAdminState::UpOnce) | None => LinkStatus::NoCarrier,
        })
    }

    /// Brings the link up or takes it down (PAOS). An InfiniBand port whose firmware waits for a driver needs it. A virtual
    /// function may ask, but the link is not its own.
    pub fn set_link(&self, up: bool) -> Result<(), CommandError> {
        let mut paos = PaosReg::ZERO;
        let admin = if up {
            PortAdminState::Up
        } else {
            PortAdminState::Down
        };
        paos.set_local_port(PORT)
            .set_admin_status(admin.number())
            .set_ase(true);
        self.write_register(RegisterId::Paos, &paos.0)
    }

    pub(crate) fn nic_vport(&self) -> Result<NicVportContext, CommandError> {
        let answer = self.execute(&QueryNicVportContextIn::new())?;
        Ok(*answer.nic_vport_context())
    }

    fn query_ethernet_port(&self) -> Result<PortAttr, CommandError> {
        let state = self.execute(&QueryVportStateIn::new())?;
        let context = self.nic_vport()?;
        let pmtu = self.read_pmtu()?;
        let (active, max) = match &pmtu {
            Some(pmtu) => (pmtu.oper_mtu(), pmtu.max_mtu()),
            None => (context.mtu(), context.mtu()),
        };
        let ptys = self.read_ptys(PTYS_ETHERNET)?;
        Ok(PortAttr {
            state: PortState::from_ethernet(state.state()),
            link_layer: LinkLayer::Ethernet,
            max_mtu: roce_mtu(max),
            active_mtu: roce_mtu(active),
            rate_mbps: ptys.map_or(0, |ptys| ethernet_rate(&ptys)),
            gid_table_len: self.gid_table_len(),
            mac: self.chosen_mac.lock().unwrap_or(mac_of(&context)),
            node_guid: context.node_guid(),
            port_guid: context.port_guid(),
            system_image_guid: context.system_image_guid(),
            ..self.common_attributes()
        })
    }

    fn query_infiniband_port(&self) -> Result<PortAttr, CommandError> {
        let mut query = QueryHcaVportContextIn::new();
        query.set_port_num(PORT);
        let answer = self.execute(&query)?;
        let context: &HcaVportContext = answer.hca_vport_context();
        let pmtu = self.read_pmtu()?;
        let (active, max) = pmtu.map_or((4096, 4096), |pmtu| (pmtu.oper_mtu(), pmtu.max_mtu()));
        let ptys = self.read_ptys(PTYS_INFINIBAND)?;
        // The general group counts GIDs in steps: 8, 16, 32, 64, 128.
        let gid_steps = self.capabilities().hca.gid_table_size().min(4);
        Ok(PortAttr {
            state: PortState::from_infiniband(context.vport_state()),
            link_layer: LinkLayer::InfiniBand,
            max_mtu: ib_mtu(max),
            active_mtu: ib_mtu(active),
            rate_mbps: ptys.map_or(0, |ptys| infiniband_rate(&ptys)),
            gid_table_len: 8 << gid_steps,
            lid: context.lid(),
            lmc: context.lmc(),
            sm_lid: context.sm_lid(),
            sm_sl: context.sm_sl(),
            subnet_timeout: context.subnet_timeout(),
            cap_mask: context.cap_mask1(),
            grh_required: context.grh_required(),
            node_guid: context.node_guid(),
            port_guid: context.port_guid(),
            system_image_guid: context.system_image_guid(),
            ..self.common_attributes()
        })
    }

    /// The attributes that both link layers share, and zeros.
    fn common_attributes(&self) -> PortAttr {
        let caps = self.capabilities();
        PortAttr {
            state: PortState::Down,
            link_layer: caps.link_layer(),
            max_mtu: Mtu::B4096,
            active_mtu: Mtu::B256,
            max_msg_size: 1 << caps.hca.log_max_msg(),
            gid_table_len: 0,
            pkey_table_len: caps.pkey_table_len(),
            lid: 0,
            lmc: 0,
            sm_lid: 0,
            sm_sl: 0,
            subnet_timeout: 0,
            cap_mask: 0,
            grh_required: false,
            rate_mbps: 0,
            mac: [0; 6],
            node_guid: 0,
            port_guid: 0,
            system_image_guid: 0,
        }
    }

    pub(crate) fn read_pmtu(&self) -> Result<Option<PmtuReg>, CommandError> {
        let mut pmtu = PmtuReg::ZERO;
        pmtu.set_local_port(PORT);
        self.read_register(RegisterId::Pmtu, pmtu, PmtuReg::as_mut_bytes)
    }

    fn read_ptys(&self, proto_mask: u8) -> Result<Option<PtysReg>, CommandError> {
        let mut ptys = PtysReg::ZERO;
        ptys.set_local_port(PORT).set_proto_mask(proto_mask);
        self.read_register(RegisterId::Ptys, ptys, PtysReg::as_mut_bytes)
    }

    /// Writes a register.
    pub(super) fn write_register(
        &self,
        id: RegisterId,
        register: &[u8],
    ) -> Result<(), CommandError> {
        let mut write = AccessRegisterIn::new();
        write
            .set_op_mod(AccessRegister::Write.number())
            .set_register_id(id.number());
        // Firmware writes the register back, and some refuses an answer without room for it.
        let mut answer = [0; LONGEST_WRITTEN];
        let answer = answer.get_mut(..register.len()).unwrap_or_default();
        self.execute_with(&write, TailIn::Bytes(register), answer)
            .map(drop)
    }

    /// Reads a register; `None` if this function does not have it (a virtual function has few).
    pub(super) fn read_register<R: IntoBytes + zerocopy::Immutable + Copy>(
        &self,
        id: RegisterId,
        query: R,
        bytes: impl Fn(&mut R) -> &mut [u8],
    ) -> Result<Option<R>, CommandError> {
        let mut read = AccessRegisterIn::new();
        read.set_op_mod(AccessRegister::Read.number())
            .set_register_id(id.number());
        let mut answer = query;
        match self.execute_with(&read, TailIn::Bytes(query.as_bytes()), bytes(&mut answer)) {
            Ok(_) => Ok(Some(answer)),
            Err(error)
                if error.is_status(Status::BadOperation)
                    || error.is_status(Status::BadParameter)
                    || error.is_status(Status::BadResource) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn mac_of(context: &NicVportContext) -> Mac {
    let [_, _, mac @ ..] = context.permanent_address().to_be_bytes();
    mac
}

/// Megabits per second of the Ethernet link modes in force (bits of `eth_proto_oper` and `ext_eth_proto_oper`).
fn ethernet_rate(ptys: &PtysReg) -> u32 {
    const G: u32 = 1000;
    let legacy = match ptys.eth_proto_oper().checked_ilog2() {
        Some(24) => 100,
        Some(0 | 1 | 25) => G,
        Some(2..=4 | 12..=14 | 26) => 10 * G,
        Some(5) => 20 * G,
        Some(27..=29) => 25 * G,
        Some(6 | 7 | 15 | 16) => 40 * G,
        Some(18 | 30 | 31) => 50 * G,
        Some(8) => 56 * G,
        Some(20..=23) => 100 * G,
        _ => 0,
    };
    let extended = match ptys.ext_eth_proto_oper().checked_ilog2() {
        Some(0) => 100,
        Some(1) => G,
        Some(3) => 5 * G,
        Some(4) => 10 * G,
        Some(6) => 25 * G,
        Some(5) => 40 * G,
        Some(7 | 8) => 50 * G,
        Some(9..=11) => 100 * G,
        Some(12..=14) => 200 * G,
        Some(15..=17) => 400 * G,
        Some(19 | 20) => 800 * G,
        Some(23) => 1600 * G,
        _ => 0,
    };
    legacy.max(extended)
}

/// Megabits per second of the InfiniBand link in force: lanes times rate per lane.
fn infiniband_rate(ptys: &PtysReg) -> u32 {
    let lanes = match ptys.ib_link_width_oper().checked_ilog2() {
        Some(0) => 1,
        Some(1) => 2,
        Some(2) => 4,
        Some(3) => 8,
        Some(4) => 12,
        _ => 0,
    };
    let per_lane = match ptys.ib_proto_oper().checked_ilog2() {
        Some(0) => 2_500,
        Some(1) => 5_000,
        Some(2 | 3) => 10_000,
        Some(4) => 14_000,
        Some(5) => 25_000,
        Some(6) => 50_000,
        Some(7) => 100_000,
        Some(8) => 200_000,
        _ => 0,
    };
    lanes * per_lane
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtu_leaves_room_for_the_headers() {
        assert_eq!(roce_mtu(1522), Mtu::B1024);
        assert_eq!(roce_mtu(9022), Mtu::B4096);
        assert_eq!(roce_mtu(4096 + 96 + 22), Mtu::B4096);
        assert_eq!(roce_mtu(4096 + 96 + 21), Mtu::B2048);
        assert_eq!(roce_mtu(0), Mtu::B256);
        assert_eq!(ib_mtu(4096), Mtu::B4096);
        assert_eq!(ib_mtu(2048), Mtu::B2048);
    }

    #[test]
    fn rates_are_those_of_the_highest_mode() {
        let mut ptys = PtysReg::ZERO;
        assert_eq!(ethernet_rate(&ptys), 0);
        ptys.set_eth_proto_oper(1 << 20);
        assert_eq!(ethernet_rate(&ptys), 100_000);
        ptys.set_eth_proto_oper(0).set_ext_eth_proto_oper(1 << 12);
        assert_eq!(ethernet_rate(&ptys), 200_000);
        ptys.set_ib_link_width_oper(1 << 2)
            .set_ib_proto_oper(1 << 5);
        assert_eq!(infiniband_rate(&ptys), 100_000);
    }

    /// Bits of newer modes, from `enum mlx5e_ext_link_mode` and `enum ib_port_speed` of Linux.
    #[test]
    fn newer_modes_have_their_rates() {
        let mut ptys = PtysReg::ZERO;
        for (bit, gbps) in [(14, 200), (17, 400), (19, 800), (20, 800), (23, 1600)] {
            ptys.set_ext_eth_proto_oper(1 << bit);
            assert_eq!(ethernet_rate(&ptys), gbps * 1000);
        }
        const XDR: u16 = 1 << 8;
        ptys.set_ib_link_width_oper(1 << 2).set_ib_proto_oper(XDR);
        assert_eq!(infiniband_rate(&ptys), 800_000);
    }
}
