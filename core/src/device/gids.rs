//! The GID table of the port.

use crate::device::Device;
use crate::gid::*;
use crate::platform::Platform;
use crate::types::port::LinkLayer;
use bareverbs_firmware_cmds::roce::{QueryRoceAddressIn, RoceAddr, SetRoceAddressIn};

impl<P: Platform> Device<'_, P> {
    /// Entries that the GID table has; 0 on InfiniBand, where the subnet manager keeps it.
    pub fn gid_table_len(&self) -> usize {
        self.slot.gids.lock().len
    }

    /// An entry of the GID table; `None` if it is empty or does not exist.
    pub fn port_gid(&self, index: u16) -> Option<GidEntry> {
        let table = self.slot.gids.lock();
        *table.entries.get(..table.len)?.get(usize::from(index))?
    }

    /// All entries of the GID table that are in use.
    pub fn gid_table(&self) -> impl Iterator<Item = (u16, GidEntry)> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let (index, entry) = self
                .slot
                .gids
                .lock()
                .next(from)
                .map(|(index, e)| (index, *e))?;
            from = index + 1;
            Some((index, entry))
        })
    }

    /// The first entry with this GID, encapsulation and VLAN.
    pub fn find_gid(&self, gid: &Gid, version: RoceVersion, vlan: Option<u16>) -> Option<u16> {
        let table = self.slot.gids.lock();
        let mut used = table.used();
        let found = used
            .find(|(_, entry)| entry.gid == *gid && entry.version == version && entry.vlan == vlan);
        found.map(|(index, _)| index)
    }

    /// The first entry that is not in use, and that no QP and no DCT was given. A QP whose entry was emptied would send
    /// from the next address that is written there.
    ///
    /// A QP has the entry of its address vector until it is reset or destroyed. If its destruction fails, or a command that
    /// gives it an entry has no answer, the entry is reserved until the device is closed. An
    /// [`AddressHandle`](crate::AddressHandle) is a value, and reserves nothing.
    pub fn free_gid_index(&self) -> Option<u16> {
        self.slot.gids.lock().first_free()
    }

    /// Reserves the entry that a QP or DCT is about to be given. Once this was called the entry is looked up, and not before:
    /// another thread may empty it, and [`free_gid_index`](Self::free_gid_index) does not offer it from here on.
    pub(crate) fn hold_gid(&self, index: Option<u16>) {
        if let Some(index) = index {
            self.slot.gids.lock().count_holder(index, 1);
        }
    }

    /// Gives a reservation back. One whose QP or DCT may still be with the device is never given back.
    pub(crate) fn release_gid(&self, index: Option<u16>) {
        if let Some(index) = index {
            self.slot.gids.lock().count_holder(index, -1);
        }
    }

    /// Writes an entry of the GID table (SET_ROCE_ADDRESS): packets are sent from it and accepted for it from now on.
    pub fn set_gid(&self, index: u16, entry: GidEntry) -> Result<(), GidError> {
        if entry.gid.is_zero() || entry.vlan.is_some_and(|vlan| vlan > 0xfff) {
            return Err(GidError::Entry(entry));
        }
        if entry.mac == [0; 6] {
            return Err(GidError::NoMac);
        }
        self.roce_table()?;
        let supported = self.capabilities().roce_versions();
        if !supported.contains(&Some(entry.version)) {
            return Err(GidError::Version(entry.version));
        }
        self.write_gid(index, Some(entry))
    }

    /// Empties an entry of the GID table. QPs that have it send nothing any more.
    pub fn del_gid(&self, index: u16) -> Result<(), GidError> {
        self.write_gid(index, None)
    }

    fn write_gid(&self, index: u16, entry: Option<GidEntry>) -> Result<(), GidError> {
        let len = self.roce_table()?;
        if usize::from(index) >= len {
            return Err(GidError::Index { index, len });
        }
        let _writer = self.gid_writer.lock();
        let mut set = SetRoceAddressIn::new();
        set.set_roce_address_index(index)
            .set_vhca_port_num(self.vhca_port_num());
        // Deleting is writing zeros.
        *set.roce_address_mut() = entry.map_or(RoceAddr::ZERO, GidEntry::to_firmware);
        self.execute_no_output(&set).map_err(GidError::Command)?;
        self.slot.gids.lock().set(index, entry);
        Ok(())
    }

    /// The length of the table, on ports that have one.
    fn roce_table(&self) -> Result<usize, GidError> {
        let caps = self.capabilities();
        match (caps.link_layer(), caps.roce) {
            (LinkLayer::InfiniBand, _) => Err(GidError::NotRoce),
            (LinkLayer::Ethernet, None) => Err(GidError::NoRoce),
            (LinkLayer::Ethernet, Some(_)) => Ok(self.gid_table_len()),
        }
    }

    /// The port whose table it is, which is to be said where a function can have several.
    fn vhca_port_num(&self) -> u8 {
        u8::from(self.capabilities().hca.num_vhca_ports() > 0)
    }

    /// Asks the firmware for an entry of its table (QUERY_ROCE_ADDRESS), past the driver's own copy.
    pub fn query_gid(&self, index: u16) -> Result<Option<GidEntry>, GidError> {
        let len = self.roce_table()?;
        if usize::from(index) >= len {
            return Err(GidError::Index { index, len });
        }
        let mut query = QueryRoceAddressIn::new();
        query
            .set_roce_address_index(index)
            .set_vhca_port_num(self.vhca_port_num());
        let answer = self.execute(&query).map_err(GidError::Command)?;
        Ok(GidEntry::from_firmware(answer.roce_address()))
    }
}
