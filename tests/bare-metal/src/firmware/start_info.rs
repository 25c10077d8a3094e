//! The boot loader's information: the memory, the command line, and where ACPI's tables begin (`hvm_start_info` of
//! Xen's PVH protocol).

use core::ops::Range;

use crate::error::MachineError;
use crate::physical::{Memory, u32_at, u64_at};

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
pub(crate) struct StartInfo<'m, M> {
    memory: &'m M,
    /// Where ACPI's root pointer is.
    pub(crate) rsdp: u64,
    command_line: u64,
    map: u64,
    map_entries: usize,
}

impl<'m, M: Memory> StartInfo<'m, M> {
    /// Reads it at the address that the boot loader left.
    pub(crate) fn read(memory: &'m M, address: u64) -> Result<Self, MachineError> {
        let bytes = memory
            .bytes(address, LENGTH)
            .ok_or(MachineError::NoStartInfo)?;
        let word = |at| u32_at(bytes, at).ok_or(MachineError::NoStartInfo);
        let long = |at| u64_at(bytes, at).ok_or(MachineError::NoStartInfo);
        if word(0)? != MAGIC || word(4)? < 1 {
            return Err(MachineError::NoStartInfo);
        }
        Ok(Self {
            memory,
            command_line: long(24)?,
            rsdp: long(32)?,
            map: long(40)?,
            map_entries: (word(48)? as usize).min(MAP_ENTRIES),
        })
    }

    /// The memory that there is.
    pub(crate) fn ram(&self) -> impl Iterator<Item = Range<u64>> + 'm {
        let entries = self
            .memory
            .bytes(self.map, self.map_entries * MAP_ENTRY)
            .unwrap_or_default();
        entries.chunks_exact(MAP_ENTRY).filter_map(|entry| {
            let start = u64_at(entry, 0)?;
            let end = start.checked_add(u64_at(entry, 8)?)?;
            (u32_at(entry, 16)? == RAM && start < end).then_some(start..end)
        })
    }

    /// The command line; empty if there is none, or if it is no text.
    pub(crate) fn command_line(&self) -> &'m str {
        let bytes = self
            .memory
            .bytes(self.command_line, COMMAND_LINE)
            .unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0);
        let bytes = bytes.get(..end.unwrap_or(0)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::Fake;

    /// Start information at 0x100, a command line at 0x200, a map of two runs at 0x300.
    fn memory() -> Fake {
        let mut memory = Fake(vec![0; 0x1000]);
        memory.put(0x100, &MAGIC.to_le_bytes());
        memory.put(0x104, &1u32.to_le_bytes());
        for (at, value) in [(24, 0x200u64), (32, 0xe_0000), (40, 0x300)] {
            memory.put(0x100 + at, &value.to_le_bytes());
        }
        memory.put(0x100 + 48, &3u32.to_le_bytes());
        memory.put(0x200, b"server address=10.0.0.2\0");
        let runs = [
            (0x1000u64, 0x9000u64, RAM),
            (0xa000, 0x1000, 2),
            (u64::MAX, 2, RAM),
        ];
        for (index, (start, length, kind)) in (0..).zip(runs) {
            let entry = 0x300 + index * MAP_ENTRY as u64;
            memory.put(entry, &start.to_le_bytes());
            memory.put(entry + 8, &length.to_le_bytes());
            memory.put(entry + 16, &kind.to_le_bytes());
        }
        memory
    }

    #[test]
    fn the_start_information_is_read() {
        let memory = memory();
        let info = StartInfo::read(&memory, 0x100).unwrap();
        assert_eq!(info.rsdp, 0xe_0000);
        assert_eq!(info.command_line(), "server address=10.0.0.2");
        // Reserved memory is none, and neither is a run that goes round the end of the address space.
        let ram: Vec<_> = info.ram().map(|run| (run.start, run.end)).collect();
        assert_eq!(ram, [(0x1000, 0xa000)]);
    }

    #[test]
    fn no_start_information() {
        let mut memory = memory();
        let read = |memory: &Fake, at| StartInfo::read(memory, at).map(|info| info.rsdp);
        for nowhere in [0, 0xff0, 0x1000, u64::MAX] {
            assert_eq!(read(&memory, nowhere), Err(MachineError::NoStartInfo));
        }
        memory.put(0x104, &0u32.to_le_bytes());
        assert_eq!(
            read(&memory, 0x100),
            Err(MachineError::NoStartInfo),
            "no map"
        );
        memory.put(0x104, &1u32.to_le_bytes());
        memory.put(0x100, &[0]);
        assert_eq!(
            read(&memory, 0x100),
            Err(MachineError::NoStartInfo),
            "magic"
        );
    }

    #[test]
    fn pointers_that_lead_nowhere() {
        let mut memory = memory();
        memory.put(0x100 + 24, &u64::MAX.to_le_bytes());
        memory.put(0x100 + 40, &u64::MAX.to_le_bytes());
        memory.put(0x100 + 48, &u32::MAX.to_le_bytes());
        let info = StartInfo::read(&memory, 0x100).unwrap();
        assert_eq!(info.command_line(), "");
        assert_eq!(info.ram().count(), 0);
    }

    #[test]
    fn a_command_line_that_is_no_text_or_has_no_end() {
        let mut memory = memory();
        memory.put(0x200, &[0xff, 0xfe, 0]);
        assert_eq!(StartInfo::read(&memory, 0x100).unwrap().command_line(), "");
        memory.put(0x200, &[b'a'; COMMAND_LINE]);
        assert_eq!(StartInfo::read(&memory, 0x100).unwrap().command_line(), "");
    }
}
