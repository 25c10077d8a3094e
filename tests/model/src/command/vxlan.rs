//! The ports of UDP that are VXLAN's: ADD_VXLAN_UDP_DPORT and DELETE_VXLAN_UDP_DPORT.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::vport::{AddVxlanUdpDportIn, DeleteVxlanUdpDportIn};

impl Device {
    /// The number of ports that the card keeps.
    fn vxlan_ports(&self) -> core::result::Result<usize, Syndrome> {
        match self.caps.ethernet.max_vxlan_udp_ports() {
            0 => Err(Syndrome::VxlanUnsupported),
            most => Ok(usize::from(most)),
        }
    }
}

pub(super) fn add(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, AddVxlanUdpDportIn>,
) -> Result {
    let most = device.vxlan_ports()?;
    if !device.nic.tunnels.add(call.input.vxlan_udp_port(), most) {
        return Err(Syndrome::VxlanFull.into());
    }
    Ok(())
}

pub(super) fn delete(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, DeleteVxlanUdpDportIn>,
) -> Result {
    device.vxlan_ports()?;
    if !device.nic.tunnels.remove(call.input.vxlan_udp_port()) {
        return Err(Syndrome::VxlanUnknown.into());
    }
    Ok(())
}
