//! The UDP ports whose datagrams are VXLAN's (RFC 7348), for inner checksums.

use bareverbs_firmware_cmds::caps::EthernetOffloadCaps;
use bareverbs_firmware_cmds::values::CapabilityGroup;
use bareverbs_firmware_cmds::vport::{AddVxlanUdpDportIn, DeleteVxlanUdpDportIn};

use crate::device::Device;
use crate::ethernet::error::EthernetError;
use crate::ethernet::limits::group;
use crate::platform::Platform;

/// The port that cards know without being told (IANA).
pub const VXLAN_PORT: u16 = 4789;

impl<P: Platform> Device<'_, P> {
    /// Tells the card of another UDP port that is VXLAN's, beside [`VXLAN_PORT`]: it finds inner headers behind no other
    /// (`ADD_VXLAN_UDP_DPORT`). The port is that of all queues of the function, until it is
    /// [removed](Self::remove_vxlan_port) or the device is closed.
    ///
    /// # Errors
    /// [`EthernetError::Unsupported`] on a card without such ports, [`EthernetError::Command`] if it keeps as many as it can.
    pub fn add_vxlan_port(&self, port: u16) -> Result<(), EthernetError> {
        let offloads: EthernetOffloadCaps = group(self, CapabilityGroup::EthernetOffloads)?;
        if offloads.max_vxlan_udp_ports() == 0 {
            return Err(EthernetError::Unsupported {
                what: "ports of VXLAN (max_vxlan_udp_ports)",
            });
        }
        let mut command = AddVxlanUdpDportIn::new();
        command.set_vxlan_udp_port(port);
        self.execute(&command)?;
        Ok(())
    }

    /// Takes a port back (`DELETE_VXLAN_UDP_DPORT`).
    ///
    /// # Errors
    /// [`EthernetError::Command`] if it is none of VXLAN's.
    pub fn remove_vxlan_port(&self, port: u16) -> Result<(), EthernetError> {
        let mut command = DeleteVxlanUdpDportIn::new();
        command.set_vxlan_udp_port(port);
        self.execute(&command)?;
        Ok(())
    }
}
