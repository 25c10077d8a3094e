//! What the firmware and the boot loader left in memory, as bytes, before the memory is anybody else's.

// UNSAFETY: makes slices of addresses.
#![expect(unsafe_code)]

/// The boot code maps so much of the address space to itself.
const MAPPED: u64 = 4 << 30;

/// `length` bytes at a physical address, if they are mapped at boot: below 4 GiB, and not at 0.
///
/// Only used until memory is given out, so that nobody writes there.
pub(crate) fn bytes(address: u64, length: usize) -> Option<&'static [u8]> {
    let end = address.checked_add(length as u64)?;
    if address == 0 || end > MAPPED {
        return None;
    }
    // SAFETY: the boot code mapped everything below 4 GiB. What is no memory there reads as something, and nobody writes
    // to what is: this image is the only program, and gives out no memory yet.
    Some(unsafe { core::slice::from_raw_parts(address as *const u8, length) })
}

/// A number in bytes, if it is there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// As [`u32_at`].
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}
