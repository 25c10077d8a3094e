//! Physical and virtual functions: what the driver has to distinguish.
//!
//! A virtual function has its own objects and its own virtual port. What belongs to the card is the physical function's:
//! its driver lends the firmware the pages for both, sets the host's byte order, and gives the virtual port its addresses.
//!
//! BlueField has embedded processors, which see physical functions of theirs (ECPF, embedded CPU physical function).
//! Firmware numbers the functions on either side from 0, and distinguishes them by a bit in the commands and events
//! that name one: function 0 without it is the host's. The init segment says on which side this driver runs. It does
//! nothing for functions of the other side but lend pages that the firmware asks for.
//!
//! In particular it does not enable the host's physical function. Linux's driver for an ECPF sends ENABLE_HCA for
//! function 0 without `embedded_cpu_function`: while it loads (`mlx5_ec_init`) if the ECPF does not manage the e-switch,
//! otherwise once the e-switch is set up (`mlx5_eswitch_enable_pf_vf_vports`). The command clears `initializing` in the
//! init segment of the host's function, so that the host's driver goes on. Nothing that Linux does for the ECPF's own
//! queues waits for it, and this driver does not need it either. Without it a driver on the host waits in
//! `initializing`. For both sides to work, run Linux's driver on the card's processors, and this one on a virtual
//! function there.

use bareverbs_firmware_cmds::values::AllowedList;
use bareverbs_firmware_cmds::vport::{
    DeleteL2TableEntryIn, ModifyNicVportContextIn, SetL2TableEntryIn,
};
use core::sync::atomic::Ordering::Relaxed;

use crate::device::Device;
use crate::firmware::mailbox::TailIn;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::Mac;

/// The kind of a function on its card.
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
    /// The kind of function: a physical or a virtual one, as far as the platform can detect.
    pub fn function_kind(&self) -> FunctionKind {
        match self.platform.device_id() {
            Some(id) => FunctionKind::of(id),
            None => FunctionKind::Physical,
        }
    }

    /// Returns `true` if the function is one of the card's own processors (ECPF), on which this driver then runs.
    #[must_use]
    pub fn is_embedded_cpu_function(&self) -> bool {
        self.embedded_cpu
    }

    /// Sets the MAC address that [`mac`](Self::mac) gives from then on, and has the port accept it: before anything is
    /// made that uses it, such as GIDs and Ethernet queues, for these keep what they have. It is for virtual functions
    /// to which no address was given.
    ///
    /// The card's switch may refuse to deliver to an address that the function chose by itself; then only the
    /// administrator of the host can give it one (`ip link set DEVICE vf NUMBER mac ADDRESS`).
    ///
    /// Where several physical functions share a port, an L2 table (MPFS, multi physical function switch) says which of
    /// them a frame is for. The address is entered there; [`close`](Device::close) takes it out.
    ///
    /// # Errors
    /// The firmware's refusal. The address is the former one then.
    pub fn set_mac(&self, mac: Mac) -> Result<(), CommandError> {
        let mut chosen = self.chosen_mac.lock();
        let index = self.l2_index.load(Relaxed);
        if self.has_l2_table() {
            let [a, b, c, d, e, f] = mac;
            let mut set = SetL2TableEntryIn::new();
            set.set_table_index(u32::from(!index))
                .set_mac_address(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
            self.execute_no_output(&set)?;
        }
        let modified = self.modify_mac(mac);
        // The one of the two entries that is no longer, or not, in force goes.
        if self.has_l2_table() && (chosen.is_some() || modified.is_err()) {
            let old = if modified.is_ok() { index } else { !index };
            let deleted = self.delete_l2_entry(old);
            modified.and(deleted)?;
        }
        modified?;
        self.l2_index.store(!index, Relaxed);
        *chosen = Some(mac);
        Ok(())
    }

    /// Returns `true` if the port's frames are distributed to several physical functions by a table that they keep
    /// (`mlx5_mpfs_init` of Linux).
    fn has_l2_table(&self) -> bool {
        let caps = &self.capabilities().hca;
        caps.eswitch_manager() && caps.log_max_l2_table() > 0
    }

    fn delete_l2_entry(&self, index: bool) -> Result<(), CommandError> {
        let mut delete = DeleteL2TableEntryIn::new();
        delete.set_table_index(index.into());
        self.execute_no_output(&delete)
    }

    /// Takes the address out of the port's L2 table, if it is there.
    pub(crate) fn leave_l2_table(&self) -> Result<(), CommandError> {
        match self.chosen_mac.lock().take() {
            Some(_) if self.has_l2_table() => self.delete_l2_entry(self.l2_index.load(Relaxed)),
            _ => Ok(()),
        }
    }

    fn modify_mac(&self, mac: Mac) -> Result<(), CommandError> {
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_addresses_list(true);
        modify
            .nic_vport_context_mut()
            .set_allowed_list_type(AllowedList::CurrentUc.number())
            .set_allowed_list_size(1);
        // Entries are 8 bytes long, with the address at their end.
        let mut entry = [0; 8];
        entry[2..].copy_from_slice(&mac);
        self.execute_with(&modify, TailIn::Bytes(&entry), &mut [])
            .map(drop)
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
