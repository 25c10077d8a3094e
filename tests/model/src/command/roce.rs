//! The RoCE address table.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::roce::{QueryRoceAddressIn, RoceAddr, SetRoceAddressIn};

const V1: u8 = 0;
const V2: u8 = 2;
const IPV4: u8 = 0;
const IPV6: u8 = 1;

fn index(device: &Device, index: u16, port: u8) -> core::result::Result<usize, Syndrome> {
    if !device.ethernet() {
        return Err(Syndrome::RoceDisabled);
    }
    // Without ports of virtual HCAs the field is not there, which drivers leave 0 then.
    let has_ports = device.caps.general.num_vhca_ports() > 0;
    if port > device.caps.general.num_ports() || has_ports && port == 0 && device.config.strict {
        return Err(Syndrome::RocePort);
    }
    let index = usize::from(index);
    if index >= device.gids.len() {
        return Err(Syndrome::RoceIndex);
    }
    Ok(index)
}

pub(super) fn query(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryRoceAddressIn>,
) -> Result {
    let at = index(
        device,
        call.input.roce_address_index(),
        call.input.vhca_port_num(),
    )?;
    *call.output.roce_address_mut() = device.gids[at];
    Ok(())
}

pub(super) fn set(device: &mut Device, _: &mut Io<'_>, call: Call<'_, SetRoceAddressIn>) -> Result {
    let at = index(
        device,
        call.input.roce_address_index(),
        call.input.vhca_port_num(),
    )?;
    let entry = *call.input.roce_address();
    // An entry with address zero is empty, independent of its other fields.
    if *entry.source_l3_address() == [0; 16] {
        device.set_gid(at, RoceAddr::ZERO);
        return Ok(());
    }
    if !device.vport.context.roce_en() {
        return Err(Syndrome::RoceNotEnabled.into());
    }
    if !matches!(entry.roce_version(), V1 | V2)
        || device.caps.roce.roce_version() >> entry.roce_version() & 1 == 0
    {
        return Err(Syndrome::RoceVersion.into());
    }
    let gid = entry.source_l3_address();
    let ipv4 = gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    match (entry.roce_version(), entry.roce_l3_type()) {
        (V1, 0) => {}
        (V1, _) if !device.config.strict => {}
        (V2, IPV4) if ipv4 => {}
        (V2, IPV6) if !ipv4 => {}
        _ => return Err(Syndrome::RoceType.into()),
    }
    if entry.vlan_valid() && entry.vlan_id() > 0xffe || !entry.vlan_valid() && entry.vlan_id() != 0
    {
        return Err(Syndrome::RoceVlan.into());
    }
    // QPs keep the headers that they have until they are modified again, as on a card.
    device.set_gid(at, entry);
    Ok(())
}
