//! The cable in and out, and the events that report it to the driver.

use crate::bus::io::Io;
use crate::config::PortType;
use crate::device::Device;
use crate::objects::eq::event;
use bareverbs_firmware_cmds::values::PortState;

/// PORT_CHANGE sub-types.
const PORT_DOWN: u8 = PortState::Down.number();
const PORT_ACTIVE: u8 = PortState::Active.number();
/// The link of an InfiniBand port is up, and a subnet manager has to configure it.
pub(crate) const INITIALIZED: u8 = 5;
/// The event after a subnet manager has set LIDs, P_Keys or GUIDs, or had clients register anew what they registered.
pub(crate) const LID_CHANGED: u8 = 6;
pub(crate) const PKEYS_CHANGED: u8 = 7;
pub(crate) const GUIDS_CHANGED: u8 = 8;
pub(crate) const REREGISTER: u8 = 9;

impl Device {
    /// Returns `true` if RoCE is enabled on the port.
    pub(crate) fn ethernet(&self) -> bool {
        self.config.port_type == PortType::Ethernet
    }

    /// Plugs the cable in or out.
    pub(crate) fn set_link(&mut self, io: &mut Io<'_>, up: bool) {
        let before = self.vport.up();
        self.vport.link_up = up;
        self.link_changed(io, before);
    }

    /// Notifies the driver if the port went up or down.
    pub(crate) fn link_changed(&mut self, io: &mut Io<'_>, before: bool) {
        let up = self.vport.up();
        if up == before {
            return;
        }
        if self.vport.managed {
            self.vport.subnet.state = PortState::Initialize;
        }
        self.port_event(
            io,
            match (up, self.vport.managed) {
                (false, _) => PORT_DOWN,
                (true, true) => INITIALIZED,
                (true, false) => PORT_ACTIVE,
            },
        );
    }

    /// Tells the driver of something about the port.
    pub(crate) fn port_event(&mut self, io: &mut Io<'_>, sub: u8) {
        let mut data = [0; 28];
        // The port's number, in the upper half of the byte at 0x28 of the entry.
        data[8] = 1 << 4;
        self.event(io, event::PORT_CHANGE, sub, &data);
    }
}
