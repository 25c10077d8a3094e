//! Bytes computed from their offset, and the caller's memory, which is seen through raw pointers only: the device
//! changes it.

// UNSAFETY: memory that a device changes must not be seen as a Rust reference.
#![expect(unsafe_code)]

use core::ptr::NonNull;

use super::limits::MEMORY_LEN;
use crate::memory::dma::shared;

/// The byte that fills memory where nothing may be written.
pub(super) const UNTOUCHED: u8 = 0xee;

/// The byte at a place of pattern `seed`.
pub(super) fn byte(seed: u64, at: usize) -> u8 {
    let mixed = (at as u64 ^ seed.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// A byte that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Differs {
    pub(super) at: usize,
    pub(super) expected: u8,
    pub(super) found: u8,
}

/// `len` bytes to which there is no reference.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    ptr: NonNull<u8>,
    len: usize,
}

impl Bytes {
    /// # Safety
    /// The memory is valid for `len` bytes as long as the value is used, and there is no reference to it.
    pub(super) unsafe fn new(ptr: NonNull<u8>, len: usize) -> Self {
        Self { ptr, len }
    }

    /// Writes what `byte` says for each place.
    pub(super) fn fill(self, byte: impl Fn(usize) -> u8) {
        for at in 0..self.len {
            // SAFETY: inside the memory, by the promise of `new`.
            unsafe { shared(self.ptr.add(at)) }.write(byte(at));
        }
    }

    /// The first byte that is not what `byte` says.
    pub(super) fn find(self, byte: impl Fn(usize) -> u8) -> Result<(), Differs> {
        for at in 0..self.len {
            let expected = byte(at);
            // SAFETY: as above.
            let found = unsafe { shared(self.ptr.add(at)) }.read();
            if found != expected {
                return Err(Differs {
                    at,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}

/// The caller's memory.
#[derive(Clone, Copy)]
pub(super) struct Region {
    start: NonNull<u8>,
}

impl Region {
    /// The memory is never given back.
    pub(super) fn new(memory: &'static mut [u8; MEMORY_LEN]) -> Self {
        Self {
            start: NonNull::from(memory).cast(),
        }
    }

    /// Its bytes.
    pub(super) fn bytes(self) -> Bytes {
        // SAFETY: the reference that it was made of is gone, and was for ever.
        unsafe { Bytes::new(self.start, MEMORY_LEN) }
    }

    /// `len` bytes at `offset`, which lie inside; what does not is cut off.
    pub(super) fn part(self, offset: usize, len: usize) -> NonNull<[u8]> {
        let offset = offset.min(MEMORY_LEN);
        let len = len.min(MEMORY_LEN - offset);
        // SAFETY: the offset lies inside the memory, or just behind it.
        NonNull::slice_from_raw_parts(unsafe { self.start.add(offset) }, len)
    }

    /// Bytes up to the first edge of a page of 4 KiB.
    pub(super) fn to_page(self) -> usize {
        self.start.as_ptr().addr().wrapping_neg() % 4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_seeds_differ() {
        let same = |one: &dyn Fn(usize) -> u8, other: &dyn Fn(usize) -> u8| {
            (0..4096).filter(|&at| one(at) == other(at)).count()
        };
        assert!(same(&|at| byte(1, at), &|at| byte(1, at + 4096)) < 100);
        assert!(same(&|at| byte(1, at), &|at| byte(1, at + 1)) < 100);
        assert!(same(&|at| byte(1, at), &|at| byte(2, at)) < 100);
    }
}
