//! BAR 0: the init segment, and what lies around it.

// UNSAFETY: gives DMA memory back.
#![expect(unsafe_code)]

use core::alloc::Layout;

use bareverbs_firmware_cmds::cmdq::COMMAND_INTERFACE_REVISION;
use bareverbs_firmware_cmds::init_segment::{
    CMDIF_REV_FW_SUB, CMDQ_ADDR_H, CMDQ_ADDR_L_SZ, CommandQueueRegister, FW_REV, SIZE, VANISHED,
    command_interface_revision,
};

use super::violation::{ConformanceError, Violation};
use crate::platform::{Dma, DmaError, Platform};

/// The init segment's pages, and one page of doorbells at least.
const LEAST: usize = SIZE.next_multiple_of(4096) + 4096;
/// The number of reads of a register that does not change.
const READS: usize = 100;
/// Another queue's address, which no register may ever hold: above it the interface's state, "full", is 0.
const FOREIGN_HIGH: u32 = 0x00c0_ffee;
const FOREIGN_LOW: u32 = 0x5a5a_5000;

/// Checks all that can be seen by reading. Returns the BAR's length.
pub(super) fn read<P: Platform>(platform: &P) -> Result<usize, ConformanceError> {
    let len = platform.bar_len();
    if len < LEAST {
        let needed = LEAST;
        return Err(Violation::BarTooShort { len, needed }.into());
    }
    for offset in [FW_REV, CMDIF_REV_FW_SUB] {
        let first = platform.read_be32(offset);
        if first == VANISHED {
            return Err(Violation::NoDevice { offset }.into());
        }
        for _ in 0..READS {
            let then = platform.read_be32(offset);
            if then != first {
                return Err(Violation::RegisterChanges {
                    offset,
                    first,
                    then,
                }
                .into());
            }
        }
    }
    let offset = CMDIF_REV_FW_SUB;
    let value = platform.read_be32(offset);
    let is_known = |value| command_interface_revision(value) == COMMAND_INTERFACE_REVISION;
    if !is_known(value) && is_known(value.swap_bytes()) {
        return Err(Violation::ReadOrder { offset, value }.into());
    }
    let last = usize::MAX & !3;
    for offset in [len, len + FW_REV + 4, len + CMDQ_ADDR_L_SZ, last - 4, last] {
        let value = platform.read_be32(offset);
        if value != u32::MAX {
            return Err(Violation::ReadOutside { offset, value }.into());
        }
    }
    for offset in [FW_REV + 1, FW_REV + 2, CMDIF_REV_FW_SUB + 3, len - 2] {
        let value = platform.read_be32(offset);
        if value != u32::MAX {
            return Err(Violation::ReadUnaligned { offset, value }.into());
        }
    }
    Ok(len)
}

/// A page whose address was written to the device.
pub(super) struct WrittenPage(Dma);

impl WrittenPage {
    /// Once another address was written to the device.
    pub(super) fn free<P: Platform>(self, platform: &P) {
        // SAFETY: the page is this platform's, it was not used, and the device has another one by now.
        unsafe { platform.dma_free(self.0) };
    }
}

/// A page, if possible at an address that, the wrong way round, asks for the interface state "full" as well.
fn page<P: Platform>(platform: &P) -> Result<Dma, Violation> {
    let size = 4096;
    let alloc = |align| {
        let layout = Layout::from_size_align(size, align).map_err(|_| DmaError::OutOfMemory);
        let page = layout.and_then(|layout| platform.dma_alloc(layout));
        page.map_err(|error| Violation::AllocRefused { size, align, error })
    };
    alloc(1 << 19).or_else(|_| alloc(size))
}

/// Writes the address of the command queue, as bring-up does, and reads it back. No command follows, so that the device looks at
/// nothing. Returns `true` if it reads back what was written; if not, nothing is seen.
pub(super) fn write<P: Platform>(platform: &P) -> Result<(bool, WrittenPage), ConformanceError> {
    let page = page(platform)?;
    let (high, low) = ((page.iova >> 32) as u32, page.iova as u32);
    let address = || {
        let low = CommandQueueRegister(platform.read_be32(CMDQ_ADDR_L_SZ)).address_low();
        u64::from(platform.read_be32(CMDQ_ADDR_H)) << 32 | u64::from(low)
    };
    platform.write_be32(CMDQ_ADDR_H, high);
    platform.write_be32(CMDQ_ADDR_L_SZ, low);
    let written = page.iova;
    let found = address();
    let written_page = WrittenPage(page);
    if found == 0 {
        return Ok((false, written_page));
    }
    if found != written {
        return Err(Violation::WriteOrder { written, found }.into());
    }
    let len = platform.bar_len();
    let both = u64::from(FOREIGN_HIGH) << 32 | u64::from(FOREIGN_LOW);
    let behind = len + CMDQ_ADDR_H;
    let unaligned = CMDQ_ADDR_H + 2;
    type Write<'a> = &'a dyn Fn();
    let writes: [(usize, usize, Write<'_>); 4] = [
        (behind, 4, &|| {
            platform.write_be32(behind, FOREIGN_HIGH);
            platform.write_be32(behind + 4, FOREIGN_LOW);
        }),
        (behind, 8, &|| platform.write_be64(behind, both)),
        (unaligned, 4, &|| {
            platform.write_be32(unaligned, FOREIGN_HIGH);
            platform.write_be32(unaligned + 4, FOREIGN_LOW);
        }),
        // The register behind the address rings for commands, and 0 is for none.
        (CMDQ_ADDR_L_SZ, 8, &|| {
            platform.write_be64(CMDQ_ADDR_L_SZ, u64::from(FOREIGN_LOW) << 32);
        }),
    ];
    for (offset, size, write) in writes {
        write();
        let found = address();
        if found != written {
            return Err(Violation::WriteNotIgnored {
                offset,
                size,
                written,
                found,
            }
            .into());
        }
    }
    Ok((true, written_page))
}
