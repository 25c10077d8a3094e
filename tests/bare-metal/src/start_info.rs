//! What the boot loader tells: the memory, the command line, and where ACPI's tables begin (`hvm_start_info` of Xen's PVH
//! protocol).

use core::ops::Range;

use crate::error::MachineError;
use crate::physical;

const MAGIC: u32 = 0x336e_c578;
/// Of version 1, the first with a memory map.
const LENGTH: usize = 56;
const MAP_ENTRY: usize = 24;
/// More of the map is not looked at.
const MAP_ENTRIES: usize = 128;
const RAM: u32 = 1;
/// A longer command line is cut.
const COMMAND_LINE: usize = 2048;

/// The start information.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartInfo {
    /// Where ACPI's root pointer is.
    pub(crate) rsdp: u64,
    command_line: u64,
    map: u64,
    map_entries: usize,
}

impl StartInfo {
    /// Reads it at the address that the boot loader left.
    pub(crate) fn read(address: u64) -> Result<Self, MachineError> {
        let bytes = physical::bytes(address, LENGTH).ok_or(MachineError::NoStartInfo)?;
        let word = |at| physical::u32_at(bytes, at).ok_or(MachineError::NoStartInfo);
        let long = |at| physical::u64_at(bytes, at).ok_or(MachineError::NoStartInfo);
        if word(0)? != MAGIC || word(4)? < 1 {
            return Err(MachineError::NoStartInfo);
        }
        Ok(Self {
            command_line: long(24)?,
            rsdp: long(32)?,
            map: long(40)?,
            map_entries: (word(48)? as usize).min(MAP_ENTRIES),
        })
    }

    /// The memory that there is.
    pub(crate) fn ram(&self) -> impl Iterator<Item = Range<u64>> {
        let entries = physical::bytes(self.map, self.map_entries * MAP_ENTRY).unwrap_or_default();
        entries.chunks_exact(MAP_ENTRY).filter_map(|entry| {
            let start = physical::u64_at(entry, 0)?;
            let end = start.checked_add(physical::u64_at(entry, 8)?)?;
            (physical::u32_at(entry, 16)? == RAM && start < end).then_some(start..end)
        })
    }

    /// The command line; empty if there is none, or if it is no text.
    pub(crate) fn command_line(&self) -> &'static str {
        let bytes = physical::bytes(self.command_line, COMMAND_LINE).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0);
        let bytes = bytes.get(..end.unwrap_or(0)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}
