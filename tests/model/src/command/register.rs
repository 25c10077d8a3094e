//! ACCESS_REG: the registers that drivers touch.

use super::register_bytes::{input, output, port};
use super::{Call, Result, settings, sync_reset};
use crate::bus::io::Io;
use crate::device::Device;
use crate::port::settings::IB_SPEEDS;
use crate::port::vport::{MAX_HW_MTU, MTU_OVERHEAD, Traffic};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::register::{
    AccessRegisterIn, PaosReg, PmtuReg, PpcntReg, PtysReg, PvlcReg,
};
use bareverbs_firmware_cmds::values::{AccessRegister, PortAdminState, RegisterId};

/// PTYS: 100GBASE-CR4, and for InfiniBand 4X EDR.
const ETH_100G_CR4: u32 = 1 << 20;
const IB_WIDTH_4X: u16 = 1 << 2;
const IB_SPEED_EDR: u16 = 1 << 5;
/// Size of the registers that have no structure here.
const NODE_DESC_LEN: usize = 64;
const PCAP_LEN: usize = 20;
const ENDIANNESS_LEN: usize = 16;
const PMLP_LEN: usize = 64;
/// Lanes of the port.
const LANES: u8 = 4;

pub(super) fn access(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AccessRegisterIn>,
) -> Result {
    let access = AccessRegister::from_number(call.input.op_mod()).ok_or(Syndrome::RegisterOpMod)?;
    let write = access == AccessRegister::Write;
    let number = call.input.register_id();
    read_or_write(device, io, number, write, call.tail, call.output_tail)
}

/// An access that came by command or through the [mailbox](super::internal) of internal ones.
pub(super) fn read_or_write(
    device: &mut Device,
    io: &mut Io<'_>,
    number: u16,
    write: bool,
    tail: &[u8],
    out: &mut [u8],
) -> Result {
    let register = RegisterId::from_number(number).ok_or_else(|| {
        log::debug!("ACCESS_REG of register {number:#x}");
        Syndrome::RegisterUnknown
    })?;
    if !device.has_register(register) {
        log::debug!("ACCESS_REG of {register}, which this card does not have");
        return Err(Syndrome::RegisterUnknown.into());
    }
    if device.config.is_virtual() && write {
        match register {
            // What the vendor's driver sets for a physical function only (`set_hca_ctrl`), or for the one that manages the
            // virtual ports (`mlx5e_ethtool_set_pauseparam`).
            RegisterId::HostEndianness | RegisterId::Pfcc => {
                return Err(Syndrome::RegisterVirtual.into());
            }
            _ => {}
        }
    }
    match (register, write) {
        (RegisterId::HostEndianness, _) => {
            tail.get(..ENDIANNESS_LEN).ok_or(Syndrome::RegisterShort)?;
            Ok(())
        }
        (RegisterId::NodeDescription, true) => {
            let text = tail.get(..NODE_DESC_LEN).ok_or(Syndrome::RegisterShort)?;
            device.node_description.copy_from_slice(text);
            device.trap_of_changes(io, true);
            Ok(())
        }
        (RegisterId::NodeDescription, false) => Ok(output(out, &device.node_description)?),
        (RegisterId::Pmtu, _) => pmtu(device, tail, out, write),
        (RegisterId::Ptys, _) => ptys(device, tail, out, write),
        (RegisterId::Paos, _) => paos(device, io, tail, out, write),
        (RegisterId::Pvlc, false) => {
            let mut register: PvlcReg = input(tail)?;
            port(register.local_port())?;
            register
                .set_vl_hw_cap(4)
                .set_vl_admin(4)
                .set_vl_operational(4);
            Ok(output(out, &register)?)
        }
        (RegisterId::Pcap, false) => {
            let register: [u8; PCAP_LEN] = input(tail)?;
            port(register[1])?;
            Ok(output(out, &register)?)
        }
        (RegisterId::Pmlp, false) => {
            let mut register: [u8; PMLP_LEN] = input(tail)?;
            port(register[1])?;
            register[3] = LANES;
            for lane in 0..LANES {
                // The same lane in both directions, of module 0.
                register[usize::from(lane) * 4 + 4..][..2].copy_from_slice(&[lane, lane]);
            }
            Ok(output(out, &register)?)
        }
        (RegisterId::Mcia, false) => settings::mcia(device, tail, out),
        (RegisterId::Qcam, false) => settings::qcam(device, tail, out),
        (RegisterId::Pcam, false) => settings::pcam(device, tail, out),
        (RegisterId::Mcam, false) => settings::mcam(device, tail, out),
        (RegisterId::Qpts, _) => settings::qpts(device, tail, out, write),
        (RegisterId::Qpdpm, _) => settings::qpdpm(device, tail, out, write),
        (RegisterId::Qtct, _) => settings::qtct(device, tail, out, write),
        (RegisterId::Qetcr, _) => settings::qetc(device, tail, out, write),
        (RegisterId::Pplm, _) => settings::pplm(device, tail, out, write),
        (RegisterId::Mtcap, false) => settings::mtcap(device, tail, out),
        (RegisterId::Mtmp, _) => settings::mtmp(device, tail, out, write),
        (RegisterId::Mfrl, _) => sync_reset::access(device, tail, out, write),
        (RegisterId::Mpcnt, false) => settings::mpcnt(tail, out),
        (RegisterId::Pfcc, _) => settings::pfcc(device, tail, out, write),
        (RegisterId::Ppcnt, false) => ppcnt(device, tail, out),
        (
            RegisterId::Pvlc
            | RegisterId::Pcap
            | RegisterId::Ppcnt
            | RegisterId::Pmlp
            | RegisterId::Mcia
            | RegisterId::Qcam
            | RegisterId::Pcam
            | RegisterId::Mcam
            | RegisterId::Mtcap
            | RegisterId::Mpcnt,
            true,
        ) => Err(Syndrome::RegisterReadOnly.into()),
        _ => {
            log::debug!("ACCESS_REG of {register}");
            Err(Syndrome::RegisterUnknown.into())
        }
    }
}

fn pmtu(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: PmtuReg = input(tail)?;
    port(register.local_port())?;
    if write {
        let wanted = register.admin_mtu();
        if device.ethernet() {
            if !(MTU_OVERHEAD + 68..=MAX_HW_MTU).contains(&wanted) {
                return Err(Syndrome::RegisterMtu.into());
            }
            // A virtual function that asks for an MTU is not refused, but the port keeps its own: the driver writes the
            // register all the same, and goes by its virtual port's MTU (`mlx5e_set_mtu`).
            if !device.config.is_virtual() {
                device.vport.mtu = wanted - MTU_OVERHEAD;
            }
        }
    }
    let (max, current) = if device.ethernet() {
        (MAX_HW_MTU, device.vport.mtu + MTU_OVERHEAD)
    } else {
        (4096, 4096)
    };
    register
        .set_max_mtu(max)
        .set_admin_mtu(current)
        .set_oper_mtu(current);
    Ok(output(out, &register)?)
}

fn ptys(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: PtysReg = input(tail)?;
    port(register.local_port())?;
    if write {
        // iPXE restricts an InfiniBand port to SDR before it brings the function up (`golan_set_link_speed`). The speed that a
        // link came up with stays, and all of the model's come up with one.
        if device.ethernet() || device.config.is_virtual() {
            return Err(Syndrome::RegisterReadOnly.into());
        }
        let (speeds, widths) = (register.ib_proto_admin(), register.ib_link_width_admin());
        if speeds == 0 || speeds & !IB_SPEEDS != 0 || widths != IB_WIDTH_4X {
            return Err(Syndrome::RegisterValue.into());
        }
        device.vport.settings.ib_speeds = speeds;
    }
    if device.ethernet() {
        register
            .set_eth_proto_capability(ETH_100G_CR4)
            .set_eth_proto_admin(ETH_100G_CR4)
            .set_eth_proto_oper(if device.vport.up() { ETH_100G_CR4 } else { 0 });
    } else {
        register
            .set_ib_link_width_capability(IB_WIDTH_4X)
            .set_ib_proto_capability(IB_SPEEDS)
            .set_ib_link_width_admin(IB_WIDTH_4X)
            .set_ib_proto_admin(device.vport.settings.ib_speeds)
            .set_ib_link_width_oper(IB_WIDTH_4X)
            .set_ib_proto_oper(IB_SPEED_EDR);
    }
    Ok(output(out, &register)?)
}

fn paos(device: &mut Device, io: &mut Io<'_>, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: PaosReg = input(tail)?;
    port(register.local_port())?;
    // The administrative state is written only with its enable bit. A virtual function does not switch off the port that
    // all share, but its driver tries whenever its network device goes up or down (`mlx5e_modify_admin_state`).
    if write && register.ase() && !device.config.is_virtual() {
        let before = device.vport.up();
        device.vport.admin_up = register.admin_status() == PortAdminState::Up.number();
        device.link_changed(io, before);
    }
    let state = |up: bool| match up {
        true => PortAdminState::Up.number(),
        false => PortAdminState::Down.number(),
    };
    register
        .set_admin_status(state(device.vport.admin_up))
        .set_oper_status(state(device.vport.up()));
    Ok(output(out, &register)?)
}

/// Groups of PPCNT.
mod group {
    pub(super) const IEEE_802_3: u8 = 0x0;
    pub(super) const RFC_2863: u8 = 0x1;
}

/// Length of the check sequence, which octets on the cable count.
const FCS: u64 = 4;

fn ppcnt(device: &Device, tail: &[u8], out: &mut [u8]) -> Result {
    let mut register: PpcntReg = input(tail)?;
    port(register.local_port())?;
    let group = register.grp();
    let counters = register.counter_set_mut();
    counters.fill(0);
    let mut put = |at: usize, value: u64| {
        counters[at..at + 8].copy_from_slice(&value.to_be_bytes());
    };
    let cable = &device.vport.cable;
    let octets = |kinds: &[Traffic]| {
        let all = kinds.iter();
        all.map(|one| one.octets + one.packets * FCS).sum::<u64>()
    };
    let (received, sent) = (octets(&cable.received), octets(&cable.sent));
    let [received_unicast, received_multicast, received_broadcast] =
        cable.received.map(|traffic| traffic.packets);
    let [sent_unicast, sent_multicast, sent_broadcast] = cable.sent.map(|traffic| traffic.packets);
    match group {
        group::IEEE_802_3 => {
            put(0x00, sent_unicast + sent_multicast + sent_broadcast);
            put(
                0x08,
                received_unicast + received_multicast + received_broadcast,
            );
            put(0x20, sent);
            put(0x28, received);
            put(0x30, sent_multicast);
            put(0x38, sent_broadcast);
            put(0x40, received_multicast);
            put(0x48, received_broadcast);
        }
        group::RFC_2863 => {
            put(0x00, received);
            put(0x08, received_unicast);
            put(0x10, device.stats.frames_dropped);
            put(0x28, sent);
            put(0x30, sent_unicast);
            put(0x48, received_multicast);
            put(0x50, received_broadcast);
            put(0x58, sent_multicast);
            put(0x60, sent_broadcast);
        }
        // What goes wrong on real cables does not on this one.
        _ => {}
    }
    Ok(output(out, &register)?)
}
