//! The two things that ACPI's tables have to tell: where PCI Express's configuration space is, and the power management
//! timer.

use core::ops::RangeInclusive;

use crate::error::MachineError;
use crate::physical;

const HEADER: usize = 36;
/// A longer table is none of those that are looked for.
const LONGEST: usize = 1 << 16;

/// What was found.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    /// Where the configuration space of bus 0 would be.
    pub(crate) ecam: u64,
    /// The buses that it has.
    pub(crate) buses: RangeInclusive<u8>,
    /// The I/O port of the power management timer.
    pub(crate) timer: u16,
}

impl Tables {
    /// Looks for them, from the root pointer on.
    pub(crate) fn find(rsdp: u64) -> Result<Self, MachineError> {
        let mcfg = table(rsdp, *b"MCFG")?;
        // The first segment's entry: there is no machine without.
        let long = physical::u64_at(mcfg, HEADER + 8);
        let ecam = long.ok_or(MachineError::NoTable("MCFG"))?;
        let [first, last] = *mcfg
            .get(HEADER + 18..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(MachineError::NoTable("MCFG"))?;
        let fadt = table(rsdp, *b"FACP")?;
        let timer = physical::u32_at(fadt, 76).and_then(|port| u16::try_from(port).ok());
        let timer = timer.filter(|port| *port != 0);
        Ok(Self {
            ecam,
            buses: first..=last,
            timer: timer.ok_or(MachineError::NoTable("FACP"))?,
        })
    }
}

/// A table by its signature, checksum verified.
fn table(rsdp: u64, signature: [u8; 4]) -> Result<&'static [u8], MachineError> {
    let root = physical::bytes(rsdp, 20).ok_or(MachineError::NoAcpi)?;
    if !root.starts_with(b"RSD PTR ") || sum(root) != 0 {
        return Err(MachineError::NoAcpi);
    }
    let extended = physical::bytes(rsdp, HEADER).filter(|root| root[15] >= 2 && sum(root) == 0);
    let (list, width) = match extended.and_then(|root| physical::u64_at(root, 24)) {
        Some(list) => (list, 8),
        None => (
            u64::from(physical::u32_at(root, 16).ok_or(MachineError::NoAcpi)?),
            4,
        ),
    };
    let list = whole(list).ok_or(MachineError::NoAcpi)?;
    let addresses = list.get(HEADER..).unwrap_or_default().chunks_exact(width);
    let tables = addresses.filter_map(|entry| {
        let low = u64::from(physical::u32_at(entry, 0)?);
        let high = physical::u32_at(entry, 4).unwrap_or(0);
        whole(low | u64::from(high) << 32)
    });
    let name = |table: &&[u8]| table.starts_with(&signature);
    let mut found = tables.filter(name);
    found.next().ok_or(match &signature {
        b"MCFG" => MachineError::NoTable("MCFG"),
        _ => MachineError::NoTable("FACP"),
    })
}

/// A table with its header, if its checksum is right.
fn whole(address: u64) -> Option<&'static [u8]> {
    let header = physical::bytes(address, HEADER)?;
    let length = physical::u32_at(header, 4)? as usize;
    let table = physical::bytes(address, length.clamp(HEADER, LONGEST))?;
    (length <= LONGEST && sum(table) == 0).then_some(table)
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}
