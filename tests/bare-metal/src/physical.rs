//! Tables of the firmware and the boot loader, as bytes, before the memory is allocated.

// UNSAFETY: makes slices of addresses.
#![cfg_attr(target_os = "none", expect(unsafe_code))]

#[cfg(target_os = "none")]
use crate::arch::paging::AT_BOOT;

/// Memory by physical address.
pub(crate) trait Memory {
    /// `length` bytes at an address, if they are there.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
}

/// Memory that the boot code mapped. Only used until memory is given out, so that nothing writes there.
#[cfg(target_os = "none")]
pub(crate) struct AtBoot;

#[cfg(target_os = "none")]
impl Memory for AtBoot {
    fn bytes(&self, address: u64, length: usize) -> Option<&'static [u8]> {
        let end = address.checked_add(length as u64)?;
        if address < AT_BOOT.start || end > AT_BOOT.end {
            return None;
        }
        // SAFETY: the boot code mapped it. Addresses without memory read as some value, and memory is not written
        // meanwhile: this image is the only program, and gives out no memory yet.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, length) })
    }
}

/// A number in bytes, if it is there.
#[cfg(any(not(target_os = "none"), target_arch = "x86_64"))]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// As [`u32_at`].
#[cfg(any(not(target_os = "none"), target_arch = "x86_64"))]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Memory that tests write: zeros, wherever nothing else was put.
#[cfg(test)]
pub(crate) struct Fake(pub(crate) Vec<u8>);

#[cfg(test)]
impl Fake {
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        let start = address as usize;
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
impl Memory for Fake {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address).ok().filter(|&start| start != 0)?;
        self.0.get(start..start.checked_add(length)?)
    }
}
