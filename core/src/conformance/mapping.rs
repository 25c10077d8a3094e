//! The caller's memory, as the platform says that the device sees it.

// UNSAFETY: maps raw memory.
#![expect(unsafe_code)]

use super::limits::MEMORY_LEN;
use super::pattern::Region;
use super::violation::{ConformanceError, Violation};
use crate::platform::{DmaError, Mapping, Platform};

/// The number of times that a region is mapped and unmapped.
const ROUNDS: usize = 512;
/// The largest page that a memory key's translation table can be made of (`mkc.log_page_size`, 5 bits).
const LARGEST_SHIFT: u8 = 31;

/// Maps regions of all kinds. The page sizes that they had, a bit for each.
pub(super) fn check<P: Platform>(platform: &P, region: Region) -> Result<u64, ConformanceError> {
    let page = region.to_page();
    let mut sizes = 0;
    // By their distance from the first edge of a page.
    for (from, len) in [
        (0, 1),
        (0, 4096),
        (1, 4095),
        (1, 4096),
        (4095, 1),
        (4095, 2),
        (4095, 4098),
        (123, 100_001),
    ] {
        sizes |= judge(platform, region.part(page + from, len))?;
    }
    sizes |= judge(platform, region.part(0, MEMORY_LEN))?;
    sizes |= judge(platform, region.part(1, MEMORY_LEN - 2))?;
    for round in 0..ROUNDS {
        let part = region.part(round, 4096 + round);
        // SAFETY: the region is the platform's user's for ever, and there is no reference to it.
        let mapped = unsafe { platform.dma_map(part) };
        let mapping = mapped.map_err(|error| match round {
            0 => refused(part.len(), error),
            _ => Violation::UnmapKeeps { round, error }.into(),
        })?;
        // SAFETY: it was just mapped, and the device does not have its address.
        unsafe { platform.dma_unmap(mapping) };
    }
    Ok(sizes)
}

fn refused(len: usize, error: DmaError) -> ConformanceError {
    Violation::MapRefused { len, error }.into()
}

/// Maps a region, looks at what that gave, and unmaps it. A bit for its page size.
fn judge<P: Platform>(
    platform: &P,
    part: core::ptr::NonNull<[u8]>,
) -> Result<u64, ConformanceError> {
    // SAFETY: as above.
    let mapped = unsafe { platform.dma_map(part) };
    let mapping = mapped.map_err(|error| refused(part.len(), error))?;
    let judged = shape(platform, part, &mapping);
    // SAFETY: as above.
    unsafe { platform.dma_unmap(mapping) };
    judged.map_err(ConformanceError::from)
}

fn shape<P: Platform>(
    platform: &P,
    part: core::ptr::NonNull<[u8]>,
    mapping: &Mapping,
) -> Result<u64, Violation> {
    let address = part.cast::<u8>().as_ptr().addr();
    let len = part.len();
    if (mapping.ptr, mapping.len) != (part.cast(), len) {
        return Err(Violation::MappedOther {
            address,
            len,
            found: mapping.ptr.as_ptr().addr(),
            found_len: mapping.len,
        });
    }
    let shift = mapping.page_shift;
    if !(12..=LARGEST_SHIFT).contains(&shift) {
        return Err(Violation::PageShift { shift });
    }
    let expected = ((address + len - 1) >> shift) - (address >> shift) + 1;
    if mapping.pages != expected {
        return Err(Violation::Pages {
            address,
            len,
            shift,
            expected,
            found: mapping.pages,
        });
    }
    for index in 0..expected {
        let iova = platform.page_iova(mapping, index);
        let inside = iova & ((1 << shift) - 1);
        if inside != 0 || iova.checked_add((1 << shift) - 1).is_none() {
            return Err(Violation::PageIova { index, iova, shift });
        }
        if let Some(other) = (0..index).find(|&other| platform.page_iova(mapping, other) == iova) {
            return Err(Violation::PagesOverlap { index, other, iova });
        }
    }
    Ok(1 << shift)
}
