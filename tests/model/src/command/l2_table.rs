//! The table that distributes a port's frames to the physical functions on it (MPFS): SET_L2_TABLE_ENTRY and
//! DELETE_L2_TABLE_ENTRY.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::vport::{DeleteL2TableEntryIn, SetL2TableEntryIn};

impl Device {
    /// Returns `true` if other physical functions are on the port (`mlx5_mpfs_init` of the vendor's driver).
    fn has_l2_table(&self) -> bool {
        let caps = &self.caps.general;
        caps.eswitch_manager() && caps.log_max_l2_table() > 0 && self.ethernet()
    }

    /// Returns `true` if a frame from the cable to this address comes to this function, and not to another one on the port.
    pub(crate) fn is_for_this_function(&self, to: [u8; 6]) -> bool {
        to[0] & 1 != 0
            || !self.has_l2_table()
            || to == self.config.mac
            || self.l2_table.values().any(|&mac| mac == to)
    }

    fn check_l2_index(&self, index: u32) -> Result {
        if !self.has_l2_table() {
            return Err(Syndrome::L2TableUnsupported.into());
        }
        if index >> self.caps.general.log_max_l2_table() != 0 {
            return Err(Syndrome::L2TableIndex.into());
        }
        Ok(())
    }
}

pub(super) fn set(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, SetL2TableEntryIn>,
) -> Result {
    let index = call.input.table_index();
    device.check_l2_index(index)?;
    let [_, _, mac @ ..] = call.input.mac_address().to_be_bytes();
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(Syndrome::L2TableAddress.into());
    }
    device.l2_table.insert(index, mac);
    Ok(())
}

pub(super) fn delete(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, DeleteL2TableEntryIn>,
) -> Result {
    let index = call.input.table_index();
    device.check_l2_index(index)?;
    match device.l2_table.remove(&index) {
        Some(_) => Ok(()),
        None => Err(Syndrome::L2TableEmpty.into()),
    }
}
