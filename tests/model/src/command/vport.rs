//! The virtual port: NIC context, InfiniBand context, GIDs, P_Keys, state.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::port::vport::{MAX_HW_MTU, MTU_OVERHEAD, PKEYS, Traffic};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::values::PortState;
use bareverbs_firmware_cmds::vport::{
    ModifyHcaVportContextIn, ModifyNicVportContextIn, QueryHcaVportContextIn, QueryHcaVportGidIn,
    QueryHcaVportPkeyIn, QueryNicVportContextIn, QueryVportCounterIn, QueryVportStateIn,
    TrafficCounter,
};

/// Asks for all GIDs or P_Keys.
const ALL: u16 = 0xffff;
/// Fields of the InfiniBand context that can be modified.
const SELECT_PORT_GUID: u32 = 1 << 0;
const SELECT_NODE_GUID: u32 = 1 << 1;
/// GID table of an InfiniBand port (`gid_table_size` code 0).
const GIDS: u16 = 8;

/// IsSM, IsCommunicationManagementSupported, IsDeviceManagementSupported and the like: what agents in software set.
const CAP_MASK1_SOFTWARE: u32 = 0x001f_0002;

fn own(other: bool, number: u16) -> core::result::Result<(), Syndrome> {
    if other || number != 0 {
        Err(Syndrome::VportNumber)
    } else {
        Ok(())
    }
}

pub(super) fn query_state(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryVportStateIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    // op_mod 0 the virtual port, 1 an e-switch port, 2 the uplink.
    if !matches!(call.input.op_mod(), 0 | 2) {
        return Err(Syndrome::VportOpMod.into());
    }
    call.output
        .set_admin_state(u8::from(device.vport.admin_up))
        .set_state(u8::from(device.vport.up()));
    Ok(())
}

pub(super) fn query_nic(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryNicVportContextIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    if !device.ethernet() {
        return Err(Syndrome::VportWrongLink.into());
    }
    let kind = call.input.allowed_list_type();
    let list = device
        .vport
        .lists
        .get(usize::from(kind))
        .ok_or(Syndrome::VportListType)?;
    let context = call.output.nic_vport_context_mut();
    *context = device.vport.context;
    context
        .set_allowed_list_type(kind)
        .set_allowed_list_size(list.len() as u16);
    // Most callers read the context only, and leave no space for the list.
    if !call.output_tail.is_empty() {
        // The answer says how many there are, and Linux reads as many.
        if call.output_tail.len() / 8 < list.len() {
            return Err(Syndrome::VportListOutput.into());
        }
        super::put_pages(call.output_tail, list);
    }
    Ok(())
}

/// Takes a list of addresses or VLANs over.
fn modify_list(
    device: &mut Device,
    kind: u8,
    size: u16,
    entries: &[u8],
) -> core::result::Result<(), Syndrome> {
    let caps = &device.caps.general;
    let log_max = match kind {
        0 => caps.log_max_current_uc_list(),
        1 => caps.log_max_current_mc_list(),
        2 => caps.log_max_vlan_list(),
        _ => return Err(Syndrome::VportListType),
    };
    if u32::from(size) > 1 << log_max {
        return Err(Syndrome::VportListSize);
    }
    let entries = entries.as_chunks::<8>().0;
    let entries = entries
        .get(..usize::from(size))
        .ok_or(Syndrome::VportListInput)?;
    let list = device
        .vport
        .lists
        .get_mut(usize::from(kind))
        .ok_or(Syndrome::VportListType)?;
    *list = entries
        .iter()
        .map(|&entry| u64::from_be_bytes(entry))
        .collect();
    Ok(())
}

pub(super) fn modify_nic(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, ModifyNicVportContextIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    if !device.ethernet() {
        return Err(Syndrome::VportWrongLink.into());
    }
    let select = call.input.field_select();
    let wanted = call.input.nic_vport_context();
    if select.affiliation() {
        return Err(Syndrome::VportFields.into());
    }
    // The function that manages virtual ports gives them their addresses (`mlx5_modify_nic_vport_node_guid` and its like
    // need `vport_group_manager`). A virtual function adds a MAC of its own choice to its list of allowed addresses.
    if device.config.is_virtual()
        && (select.permanent_address() || select.node_guid() || select.port_guid())
    {
        return Err(Syndrome::VportVirtual.into());
    }
    if select.mtu() && !(MTU_OVERHEAD + 68..=MAX_HW_MTU).contains(&wanted.mtu()) {
        return Err(Syndrome::VportMtu.into());
    }
    if select.addresses_list() {
        let (kind, size) = (wanted.allowed_list_type(), wanted.allowed_list_size());
        modify_list(device, kind, size, call.tail)?;
    }
    let context = &mut device.vport.context;
    if select.roce_en() {
        context.set_roce_en(wanted.roce_en());
    }
    if select.mtu() {
        context.set_mtu(wanted.mtu());
        if !device.config.is_virtual() {
            device.vport.mtu = wanted.mtu() - MTU_OVERHEAD;
        }
    }
    if select.permanent_address() {
        context.set_permanent_address(wanted.permanent_address() & 0xffff_ffff_ffff);
    }
    if select.node_guid() {
        context.set_node_guid(wanted.node_guid());
    }
    if select.port_guid() {
        context.set_port_guid(wanted.port_guid());
    }
    if select.promisc() {
        context
            .set_promisc_uc(wanted.promisc_uc())
            .set_promisc_mc(wanted.promisc_mc())
            .set_promisc_all(wanted.promisc_all());
    }
    if select.min_inline() {
        context.set_min_wqe_inline_mode(wanted.min_wqe_inline_mode());
    }
    if select.disable_uc_local_lb() {
        context.set_disable_uc_local_lb(wanted.disable_uc_local_lb());
    }
    if select.disable_mc_local_lb() {
        context.set_disable_mc_local_lb(wanted.disable_mc_local_lb());
    }
    if select.change_event() {
        context
            .set_arm_change_event(wanted.arm_change_event())
            .set_event_on_mtu(wanted.event_on_mtu());
    }
    Ok(())
}

pub(super) fn query_hca(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryHcaVportContextIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    if call.input.port_num() > 1 {
        return Err(Syndrome::VportPort.into());
    }
    let ethernet = device.ethernet();
    let up = device.vport.up();
    let state = if ethernet {
        if up {
            PortState::Active
        } else {
            PortState::Down
        }
    } else {
        device.vport.port_state()
    }
    .number();
    let subnet = &device.vport.subnet;
    let context = &device.vport.context;
    call.output
        .hca_vport_context_mut()
        // Subnet management is not for virtual functions.
        .set_has_smi(!ethernet && !device.config.is_virtual())
        .set_grh_required(!ethernet && device.config.grh_required)
        .set_port_physical_state(if up { 5 } else { 2 })
        .set_port_state(state)
        .set_vport_state(state)
        .set_system_image_guid(context.system_image_guid())
        .set_port_guid(context.port_guid())
        .set_node_guid(context.node_guid())
        .set_cap_mask1(device.vport.cap_mask1)
        // What software may set and clear.
        .set_cap_mask1_field_select(CAP_MASK1_SOFTWARE)
        .set_lid(subnet.lid)
        .set_lmc(subnet.lmc)
        .set_sm_lid(subnet.sm_lid)
        .set_sm_sl(subnet.sm_level)
        .set_subnet_timeout(subnet.timeout);
    Ok(())
}

/// Software says with it what it serves, and may give the port other GUIDs.
pub(super) fn modify_hca(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, ModifyHcaVportContextIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    if call.input.port_num() > 1 {
        return Err(Syndrome::VportPort.into());
    }
    let wanted = call.input.hca_vport_context();
    let (fields, bits) = (wanted.field_select(), wanted.cap_mask1_field_select());
    if device.config.is_virtual() && fields != 0 {
        return Err(Syndrome::VportVirtual.into());
    }
    if fields & !(SELECT_PORT_GUID | SELECT_NODE_GUID) != 0 || bits & !CAP_MASK1_SOFTWARE != 0 {
        return Err(Syndrome::VportHcaFields.into());
    }
    let vport = &mut device.vport;
    let before = vport.cap_mask1;
    vport.cap_mask1 = before & !bits | wanted.cap_mask1() & bits;
    if fields & SELECT_PORT_GUID != 0 {
        vport.context.set_port_guid(wanted.port_guid());
    }
    if fields & SELECT_NODE_GUID != 0 {
        vport.context.set_node_guid(wanted.node_guid());
    }
    if vport.cap_mask1 != before {
        device.trap_of_changes(io, false);
    }
    Ok(())
}

/// RDMA traffic counts as "InfiniBand" on either link layer, all else as Ethernet.
pub(super) fn query_counter(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryVportCounterIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    if call.input.port_num() > 1 {
        return Err(Syndrome::VportPort.into());
    }
    if call.input.op_mod() != 0 {
        return Err(Syndrome::VportCounterOpMod.into());
    }
    let traffic = &mut device.vport.traffic;
    let ethernet = &mut device.vport.ethernet;
    let put = |counter: &mut TrafficCounter, value: Traffic| {
        counter.set_packets(value.packets).set_octets(value.octets);
    };
    let out = call.output;
    put(out.received_ib_unicast_mut(), traffic.received);
    put(out.transmitted_ib_unicast_mut(), traffic.sent);
    put(out.received_ib_multicast_mut(), traffic.group_received);
    put(out.transmitted_ib_multicast_mut(), traffic.group_sent);
    let [unicast, multicast, broadcast] = ethernet.received;
    put(out.received_eth_unicast_mut(), unicast);
    put(out.received_eth_multicast_mut(), multicast);
    put(out.received_eth_broadcast_mut(), broadcast);
    let [unicast, multicast, broadcast] = ethernet.sent;
    put(out.transmitted_eth_unicast_mut(), unicast);
    put(out.transmitted_eth_multicast_mut(), multicast);
    put(out.transmitted_eth_broadcast_mut(), broadcast);
    if call.input.clear() {
        *traffic = Default::default();
        *ethernet = Default::default();
    }
    Ok(())
}

pub(super) fn query_gid(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryHcaVportGidIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    if device.ethernet() {
        return Err(Syndrome::VportWrongLink.into());
    }
    let index = call.input.gid_index();
    if index != ALL && index >= GIDS {
        return Err(Syndrome::VportGidIndex.into());
    }
    let (first, count) = if index == ALL { (0, GIDS) } else { (index, 1) };
    let list = call
        .output_tail
        .get_mut(..usize::from(count) * 16)
        .ok_or(Syndrome::VportGidOutput)?;
    for (at, gid) in (first..).zip(list.chunks_exact_mut(16)) {
        // Every entry has the subnet's prefix; those that are not used have no GUID behind it.
        gid.copy_from_slice(&device.vport.gid(usize::from(at)));
    }
    call.output.set_gids_num(count);
    Ok(())
}

pub(super) fn query_pkey(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryHcaVportPkeyIn>,
) -> Result {
    own(call.input.other_vport(), call.input.vport_number())?;
    let index = call.input.pkey_index();
    if index != ALL && index >= PKEYS {
        return Err(Syndrome::VportPkeyIndex.into());
    }
    let (first, count) = if index == ALL { (0, PKEYS) } else { (index, 1) };
    let list = call
        .output_tail
        .get_mut(..usize::from(count) * 4)
        .ok_or(Syndrome::VportPkeyOutput)?;
    let keys = &device.vport.tables.pkeys[usize::from(first)..];
    for (value, pkey) in keys.iter().zip(list.chunks_exact_mut(4)) {
        pkey.copy_from_slice(&u32::from(*value).to_be_bytes());
    }
    Ok(())
}
