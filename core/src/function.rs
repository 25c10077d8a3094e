//! Physical and virtual functions: what the driver has to know apart.
//!
//! A virtual function has its own objects and its own virtual port. What belongs to the card is the physical function's:
//! its driver lends the firmware the pages for both, sets the host's byte order, and gives the virtual port its addresses.
//!
//! BlueField has processors of its own, which see physical functions of theirs (ECPF, embedded CPU physical function).
//! Firmware numbers the functions on either side from 0, and tells them apart by a bit in the commands and events that
//! name one: function 0 without it is the host's. The init segment says on which side this driver runs. It does nothing
//! for functions of the other side but lend pages that the firmware asks for.

use bareverbs_firmware_cmds::values::AllowedList;
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;

use crate::command_queue::TailIn;
use crate::device::Device;
use crate::error::CommandError;
use crate::gid::Mac;
use crate::platform::Platform;

/// What a function is to its card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// The card itself, or one of its ports.
    Physical,
    /// One of those that SR-IOV makes of a physical one.
    Virtual,
}

/// The virtual functions among the devices (`MLX5_PCI_DEV_IS_VF` in the kernel's `mlx5_core_pci_table`): of Connect-IB,
/// ConnectX-4, 4 Lx, 5, 5 Ex and 6, of everything since, and of BlueField.
const VIRTUAL: [u16; 8] = [
    0x1012, 0x1014, 0x1016, 0x1018, 0x101a, 0x101c, 0x101e, 0xa2d3,
];

impl FunctionKind {
    /// The kind of function that has this PCI device ID.
    #[must_use]
    pub const fn of(device_id: u16) -> Self {
        let mut at = 0;
        while at < VIRTUAL.len() {
            if VIRTUAL[at] == device_id {
                return Self::Virtual;
            }
            at += 1;
        }
        Self::Physical
    }
}

impl<P: Platform> Device<'_, P> {
    /// Whether this is a physical or a virtual function, as far as the platform knows.
    pub fn function_kind(&self) -> FunctionKind {
        match self.platform.device_id() {
            Some(id) => FunctionKind::of(id),
            None => FunctionKind::Physical,
        }
    }

    /// Whether the function is one of the card's own processors (ECPF), on which this driver then runs.
    #[must_use]
    pub fn is_embedded_cpu_function(&self) -> bool {
        self.embedded_cpu
    }

    /// Sets the MAC address that [`mac`](Self::mac) gives from then on, and has the port hear it: before anything is made
    /// that uses it, such as GIDs and Ethernet queues, for these keep what they have. It is for virtual functions to which
    /// nobody has given an address.
    ///
    /// The card's switch may refuse to deliver to an address that the function chose by itself; then only the
    /// administrator of the host can give it one (`ip link set DEVICE vf NUMBER mac ADDRESS`).
    ///
    /// # Errors
    /// The firmware's refusal.
    pub fn set_mac(&self, mac: Mac) -> Result<(), CommandError> {
        let mut chosen = self.chosen_mac.lock();
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_addresses_list(true);
        modify
            .nic_vport_context_mut()
            .set_allowed_list_type(AllowedList::CurrentUc.number())
            .set_allowed_list_size(1);
        // Entries are 8 bytes long, with the address at their end.
        let mut entry = [0; 8];
        entry[2..].copy_from_slice(&mac);
        self.execute_with(&modify, TailIn::Bytes(&entry), &mut [])?;
        *chosen = Some(mac);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_functions_are_known_by_their_ids() {
        for physical in [
            0x1011, 0x1013, 0x1017, 0x101b, 0x101d, 0x101f, 0x1021, 0xa2d2, 0xa2dc,
        ] {
            assert_eq!(FunctionKind::of(physical), FunctionKind::Physical);
        }
        for id in VIRTUAL {
            assert_eq!(FunctionKind::of(id), FunctionKind::Virtual);
        }
    }
}
