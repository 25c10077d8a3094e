//! BAR 0, as the bus reaches it.

use crate::bus::init_segment;
use crate::bus::io::Io;
use crate::bus::pci::{MSIX_PENDING, MSIX_TABLE, Pci};
use crate::device::Device;

const PAGE: u64 = 0x1000;

/// A read. All-ones is what the bus gives where nothing answers.
pub(crate) fn read(device: &mut Device, pci: &Pci, offset: u64, data: &mut [u8]) {
    if device.health.vanished || !matches!(data.len(), 1 | 2 | 4 | 8) {
        data.fill(0xff);
        return;
    }
    match offset {
        0..init_segment::END => {
            for (at, byte) in data.iter_mut().enumerate() {
                let at = offset + at as u64;
                *byte = device.init_word(at & !3).to_be_bytes()[(at & 3) as usize];
            }
        }
        MSIX_TABLE..MSIX_PENDING => pci.table_read((offset - MSIX_TABLE) as usize, data),
        at if (MSIX_PENDING..MSIX_PENDING + PAGE).contains(&at) => {
            pci.pending_read((offset - MSIX_PENDING) as usize, data);
        }
        at if device.memic.shows(at) => {
            let range = at..at + data.len() as u64;
            if !device.memic.is_allocated(&range) || !device.memic.read(at, data) {
                device.stats.bad_accesses += 1;
                data.fill(0xff);
            }
        }
        // Doorbells are write-only.
        at if at < device.config.bar_size => data.fill(0),
        _ => data.fill(0xff),
    }
}

/// A write to anything but the MSI-X table.
pub(crate) fn write(device: &mut Device, io: &mut Io<'_>, offset: u64, data: &[u8]) {
    if device.health.vanished {
        return;
    }
    if device.memic.shows(offset) {
        let range = offset..offset + data.len() as u64;
        if !device.memic.is_allocated(&range) || !device.memic.write(offset, data) {
            device.stats.bad_accesses += 1;
        }
        return;
    }
    if data.len() < 4
        || data.len() > 64
        || !data.len().is_multiple_of(4)
        || !offset.is_multiple_of(4)
    {
        device.stats.bad_accesses += 1;
        return;
    }
    if offset < init_segment::END {
        for (at, word) in data.chunks_exact(4).enumerate() {
            let value = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            device.init_write(offset + at as u64 * 4, value);
        }
        return;
    }
    let shift = device.uar_shift();
    let index = u32::try_from(offset >> shift).unwrap_or(u32::MAX);
    if !device.uar_write(io, index, offset & ((1 << shift) - 1), data) {
        device.stats.bad_accesses += 1;
    }
}

/// Returns `true` if an access belongs to the MSI-X table.
pub(crate) fn in_table(offset: u64) -> bool {
    (MSIX_TABLE..MSIX_PENDING).contains(&offset)
}
