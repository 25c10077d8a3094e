//! The two values that are read from ACPI's tables: where PCI Express's configuration space is, and the power
//! management timer.

use core::ops::RangeInclusive;

use crate::error::MachineError;
use crate::physical::{Memory, u32_at, u64_at};

const HEADER: usize = 36;
/// A longer table is none of those that are looked for.
const LONGEST: usize = 1 << 16;

/// Contents of the tables that the image uses.
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
    pub(crate) fn find(memory: &impl Memory, rsdp: u64) -> Result<Self, MachineError> {
        let mcfg = table(memory, rsdp, *b"MCFG")?;
        // The first segment's entry: there is no machine without.
        let long = u64_at(mcfg, HEADER + 8);
        let ecam = long.ok_or(MachineError::NoTable("MCFG"))?;
        let [first, last] = *mcfg
            .get(HEADER + 18..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(MachineError::NoTable("MCFG"))?;
        let fadt = table(memory, rsdp, *b"FACP")?;
        let timer = u32_at(fadt, 76).and_then(|port| u16::try_from(port).ok());
        let timer = timer.filter(|port| *port != 0);
        Ok(Self {
            ecam,
            buses: first..=last,
            timer: timer.ok_or(MachineError::NoTable("FACP"))?,
        })
    }
}

/// A table by its signature, checksum verified.
fn table<M: Memory>(memory: &M, rsdp: u64, signature: [u8; 4]) -> Result<&[u8], MachineError> {
    let root = memory.bytes(rsdp, 20).ok_or(MachineError::NoAcpi)?;
    if !root.starts_with(b"RSD PTR ") || sum(root) != 0 {
        return Err(MachineError::NoAcpi);
    }
    let extended = memory
        .bytes(rsdp, HEADER)
        .filter(|root| root[15] >= 2 && sum(root) == 0);
    let (list, width) = match extended.and_then(|root| u64_at(root, 24)) {
        Some(list) => (list, 8),
        None => (u64::from(u32_at(root, 16).ok_or(MachineError::NoAcpi)?), 4),
    };
    let list = whole(memory, list).ok_or(MachineError::NoAcpi)?;
    let addresses = list.get(HEADER..).unwrap_or_default().chunks_exact(width);
    let tables = addresses.filter_map(|entry| {
        let low = u64::from(u32_at(entry, 0)?);
        let high = u32_at(entry, 4).unwrap_or(0);
        whole(memory, low | u64::from(high) << 32)
    });
    let name = |table: &&[u8]| table.starts_with(&signature);
    let mut found = tables.filter(name);
    found.next().ok_or(match &signature {
        b"MCFG" => MachineError::NoTable("MCFG"),
        _ => MachineError::NoTable("FACP"),
    })
}

/// A table with its header, if its checksum is right.
fn whole<M: Memory>(memory: &M, address: u64) -> Option<&[u8]> {
    let header = memory.bytes(address, HEADER)?;
    let length = u32_at(header, 4)? as usize;
    let table = memory.bytes(address, length.clamp(HEADER, LONGEST))?;
    (length <= LONGEST && sum(table) == 0).then_some(table)
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::Fake;

    const ROOT: u64 = 0x100;
    const LIST: u64 = 0x200;
    const MCFG: u64 = 0x400;
    const FADT: u64 = 0x500;

    /// Sets the byte that makes the sum zero.
    fn sign(bytes: &mut [u8], checksum: usize) {
        bytes[checksum] = 0;
        bytes[checksum] = sum(bytes).wrapping_neg();
    }

    fn put_table(memory: &mut Fake, address: u64, signature: &[u8; 4], body: &[u8]) {
        let mut table = vec![0; HEADER];
        table[..4].copy_from_slice(signature);
        table[4..8].copy_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
        table.extend_from_slice(body);
        sign(&mut table, 9);
        memory.put(address, &table);
    }

    /// Tables as a firmware of today leaves them (`wide`), or one of ACPI 1.0.
    fn memory(wide: bool) -> Fake {
        let mut memory = Fake(vec![0; 0x1000]);
        let mut root = vec![0; HEADER];
        root[..8].copy_from_slice(b"RSD PTR ");
        root[16..20].copy_from_slice(&(LIST as u32).to_le_bytes());
        sign(&mut root[..20], 8);
        if wide {
            root[15] = 2;
            // The short list is not the one that counts.
            root[16..20].copy_from_slice(&0xdeadu32.to_le_bytes());
            root[24..32].copy_from_slice(&LIST.to_le_bytes());
            sign(&mut root[..20], 8);
            sign(&mut root, 32);
        }
        memory.put(ROOT, &root);
        let tables = [MCFG + 0x200, MCFG, FADT];
        let list: Vec<u8> = match wide {
            true => tables.iter().flat_map(|at| at.to_le_bytes()).collect(),
            false => tables
                .iter()
                .flat_map(|at| (*at as u32).to_le_bytes())
                .collect(),
        };
        put_table(
            &mut memory,
            LIST,
            if wide { b"XSDT" } else { b"RSDT" },
            &list,
        );
        put_table(&mut memory, MCFG + 0x200, b"HPET", &[1; 20]);
        let mut mcfg = [0; 24];
        mcfg[8..16].copy_from_slice(&0xb000_0000u64.to_le_bytes());
        mcfg[18..20].copy_from_slice(&[0, 0xff]);
        put_table(&mut memory, MCFG, b"MCFG", &mcfg);
        let mut fadt = [0; 80];
        fadt[76 - HEADER..][..4].copy_from_slice(&0x608u32.to_le_bytes());
        put_table(&mut memory, FADT, b"FACP", &fadt);
        memory
    }

    #[test]
    fn where_configuration_space_and_timer_are() {
        for wide in [false, true] {
            let found = Tables::find(&memory(wide), ROOT).unwrap();
            assert_eq!(
                (found.ecam, found.timer),
                (0xb000_0000, 0x608),
                "wide: {wide}"
            );
            assert_eq!(found.buses, 0..=255);
        }
    }

    #[test]
    fn a_root_pointer_that_is_none() {
        for nowhere in [0, 0x800, 0xff8, u64::MAX] {
            let found = Tables::find(&memory(true), nowhere);
            assert_eq!(found.unwrap_err(), MachineError::NoAcpi);
        }
    }

    #[test]
    fn no_byte_of_a_table_may_be_wrong() {
        for (at, error) in [
            (ROOT + 3, MachineError::NoAcpi),
            (LIST + 20, MachineError::NoAcpi),
            (MCFG + 40, MachineError::NoTable("MCFG")),
            (FADT + 78, MachineError::NoTable("FACP")),
        ] {
            let mut memory = memory(true);
            memory.0[at as usize] ^= 0x10;
            assert_eq!(Tables::find(&memory, ROOT).unwrap_err(), error, "{at:#x}");
        }
    }

    #[test]
    fn a_table_that_claims_to_be_too_long() {
        for length in [0, 35, 0xffff, u32::MAX] {
            let mut memory = memory(true);
            memory.put(MCFG + 4, &length.to_le_bytes());
            let found = Tables::find(&memory, ROOT);
            assert_eq!(
                found.unwrap_err(),
                MachineError::NoTable("MCFG"),
                "{length:#x}"
            );
        }
    }

    #[test]
    fn a_timer_that_is_no_port() {
        for port in [0u32, 0x1_0000] {
            let mut memory = memory(false);
            let mut fadt = [0; 80];
            fadt[76 - HEADER..][..4].copy_from_slice(&port.to_le_bytes());
            put_table(&mut memory, FADT, b"FACP", &fadt);
            let found = Tables::find(&memory, ROOT);
            assert_eq!(found.unwrap_err(), MachineError::NoTable("FACP"));
        }
    }
}
