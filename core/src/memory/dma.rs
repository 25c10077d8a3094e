//! Memory that the device reaches: how it is read and written, in which order, and when it may be given back.
//!
//! The device changes such memory at any time, so nothing here ever makes a reference to it: all access is by volatile
//! loads and stores of at most eight bytes.
//!
//! # Order
//!
//! Two [barriers](crate::barrier) exist, and every ownership hand-over in the driver uses one of them:
//!
//! * [`write_barrier`](crate::barrier::write_barrier) between filling a descriptor and the store that gives it to the device (an ownership bit or a
//!   doorbell record). The store to a doorbell *register* has its own barrier inside
//!   [`Platform::write_be32`]/[`write_be64`](Platform::write_be64).
//! * [`read_barrier`](crate::barrier::read_barrier) between finding that an entry belongs to the host and reading the rest of the entry.
//!
//! # Quarantine
//!
//! Memory that the device may still use is never given back to the platform: not after a command timed out, not after a
//! destroy command failed, not after the device died. `DmaBuffer::quarantine` keeps it until the function was torn
//! down; what is left after a failed teardown stays allocated until the platform, which alone can reset the function,
//! goes away.

// UNSAFETY: raw memory shared with a device; this module is where its access is confined.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use bareverbs_firmware_cmds::word::Word;
use volatile::VolatilePtr;
use zerocopy::FromBytes;

use crate::platform::{Dma, DmaError, Platform};

/// One piece of memory from [`Platform::dma_alloc`], with checked access. It does not free itself: its owner gives it
/// back with [`free`](Self::free), or keeps it when the device may still use it.
#[derive(Debug)]
pub(crate) struct DmaMemory(Dma);

// SAFETY: the platform handed out this memory exclusively, independent of any thread, and all access is volatile.
unsafe impl Send for DmaMemory {}
// SAFETY: as above; concurrent access through `&self` is by volatile operations on plain integers, and a caller that shares a
// piece between threads orders them (the control lock; one owner per ring).
unsafe impl Sync for DmaMemory {}

impl DmaMemory {
    /// No memory: the value to leave where memory was taken.
    pub(crate) const NONE: Self = Self(Dma {
        ptr: NonNull::dangling(),
        iova: 0,
        layout: Layout::new::<()>(),
    });

    /// Moves it out of an owner that is about to go, and leaves none there.
    pub(crate) const fn take(&mut self) -> Self {
        core::mem::replace(self, Self::NONE)
    }

    /// Zeroed memory; `layout`'s alignment holds for both addresses.
    pub(crate) fn alloc<P: Platform + ?Sized>(
        platform: &P,
        layout: Layout,
    ) -> Result<Self, DmaError> {
        platform.dma_alloc(layout).map(Self)
    }

    /// Zeroed memory of whole 4 KiB pages.
    pub(crate) fn alloc_pages<P: Platform + ?Sized>(
        platform: &P,
        len: usize,
    ) -> Result<Self, DmaError> {
        let rounded = len
            .max(1)
            .checked_next_multiple_of(4096)
            .ok_or(DmaError::OutOfMemory)?;
        let layout = Layout::from_size_align(rounded, 4096).map_err(|_| DmaError::OutOfMemory)?;
        Self::alloc(platform, layout)
    }

    /// Gives the memory back. The caller makes sure that the device no longer uses it.
    pub(crate) fn free<P: Platform + ?Sized>(self, platform: &P) {
        if self.len() == 0 {
            return;
        }
        // SAFETY: the memory came from this device's platform; the host's use ends here as `self` is consumed, and the
        // device's has ended by the rule in the module's documentation.
        unsafe { platform.dma_free(self.0) }
    }

    /// Takes it apart, for owners that keep it in atomics.
    pub(crate) fn into_raw(self) -> Dma {
        self.0
    }

    /// Puts it together again.
    ///
    /// # Safety
    /// `dma` came from [`into_raw`](Self::into_raw), once.
    pub(crate) unsafe fn from_raw(dma: Dma) -> Self {
        Self(dma)
    }

    /// Where the host sees it.
    #[inline]
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.0.ptr
    }

    /// Where the host sees what lies at `offset`, which is in the memory or just behind it.
    pub(crate) fn part<T>(&self, offset: usize) -> NonNull<T> {
        debug_assert!(offset <= self.len());
        // SAFETY: at most the end of the allocation.
        unsafe { self.0.ptr.add(offset.min(self.len())) }.cast()
    }

    /// Where the device sees it.
    #[inline]
    pub(crate) fn iova(&self) -> u64 {
        self.0.iova
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.layout.size()
    }

    /// A pointer to `len` bytes at `offset`, if they exist.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        debug_assert!(
            inside,
            "DMA access of {len} bytes at {offset} of {}",
            self.len()
        );
        // SAFETY: the offset lies inside the allocation.
        inside.then(|| unsafe { self.0.ptr.add(offset) })
    }

    /// The value at `offset`, if it is inside and aligned.
    #[inline]
    fn value<T: FromBytes>(&self, offset: usize) -> Option<VolatilePtr<'_, T>> {
        debug_assert!(offset.is_multiple_of(size_of::<T>()));
        let place = self.at(offset, size_of::<T>())?.cast::<T>();
        // SAFETY: inside the allocation, which lives as long as `self`, and aligned; any bytes are a `T`.
        place.is_aligned().then(|| unsafe { shared(place) })
    }

    /// Reads a byte.
    #[inline]
    pub(crate) fn read_u8(&self, offset: usize) -> u8 {
        self.value(offset).map_or(0, VolatilePtr::read)
    }

    /// Writes a byte.
    #[inline]
    pub(crate) fn write_u8(&self, offset: usize, value: u8) {
        if let Some(place) = self.value(offset) {
            place.write(value);
        }
    }

    /// Reads a big-endian dword at a multiple of 4.
    #[inline]
    pub(crate) fn read_be32(&self, offset: usize) -> u32 {
        self.value(offset)
            .map_or(0, |place| u32::from_be(place.read()))
    }

    /// Writes a big-endian dword at a multiple of 4.
    #[inline]
    pub(crate) fn write_be32(&self, offset: usize, value: u32) {
        if let Some(place) = self.value(offset) {
            place.write(value.to_be());
        }
    }

    /// Writes a big-endian qword at a multiple of 8.
    #[inline]
    pub(crate) fn write_be64(&self, offset: usize, value: u64) {
        if let Some(place) = self.value(offset) {
            place.write(value.to_be());
        }
    }

    /// Copies `data` in. The device may see it in any order.
    // Inlined, the compiler would take the caller's arrays apart byte by byte.
    #[inline(never)]
    pub(crate) fn write_bytes(&self, offset: usize, data: &[u8]) {
        let Some(mut p) = self.at(offset, data.len()) else {
            return;
        };
        let mut rest = data;
        if p.cast::<u64>().is_aligned() {
            let (lines, behind) = rest.as_chunks::<64>();
            for line in lines {
                for word in line.as_chunks::<8>().0 {
                    // SAFETY: inside the allocation by the check above, and aligned.
                    unsafe {
                        shared(p.cast()).write(u64::from_ne_bytes(*word));
                        p = p.add(8);
                    }
                }
            }
            rest = behind;
            while let Some((word, behind)) = rest.split_first_chunk::<8>() {
                // SAFETY: inside the allocation by the check above, and aligned.
                unsafe {
                    shared(p.cast()).write(u64::from_ne_bytes(*word));
                    p = p.add(8);
                }
                rest = behind;
            }
            if let Some((word, behind)) = rest.split_first_chunk::<4>() {
                // SAFETY: as above.
                unsafe {
                    shared(p.cast()).write(u32::from_ne_bytes(*word));
                    p = p.add(4);
                }
                rest = behind;
            }
        }
        for &byte in rest {
            // SAFETY: inside the allocation by the check above.
            unsafe {
                shared(p).write(byte);
                p = p.add(1);
            }
        }
    }

    /// Copies out to `data`. The device may change the memory meanwhile; use what was copied, never read twice.
    #[inline(never)]
    pub(crate) fn read_bytes(&self, offset: usize, data: &mut [u8]) {
        let Some(mut p) = self.at(offset, data.len()) else {
            data.fill(0);
            return;
        };
        let mut rest = data;
        if p.cast::<u64>().is_aligned() {
            let (words, behind) = rest.as_chunks_mut::<8>();
            for word in words {
                // SAFETY: inside the allocation by the check above, and aligned.
                unsafe {
                    *word = shared(p.cast::<u64>()).read().to_ne_bytes();
                    p = p.add(8);
                }
            }
            rest = behind;
        }
        for byte in rest {
            // SAFETY: inside the allocation by the check above.
            unsafe {
                *byte = shared(p).read();
                p = p.add(1);
            }
        }
    }

    /// Fills `len` bytes.
    pub(crate) fn fill(&self, offset: usize, len: usize, byte: u8) {
        let pattern = [byte; 64];
        let mut at = offset;
        let end = offset.saturating_add(len).min(self.len());
        while at < end {
            let n = pattern.len().min(end - at);
            self.write_bytes(at, &pattern[..n]);
            at += n;
        }
    }
}

/// A value in memory that is shared with the device, for one access.
///
/// `VolatilePtr::new` asks that no other thread uses the place meanwhile. The device is none, and each ring, record and
/// buffer has one owner; where threads share one (the arm word of a CQ), the access is a single load or store of a word,
/// which the processors that this crate is for do not tear.
///
/// # Safety
/// `place` is aligned, and lies in memory that is shared with the device and lives as long as `'a`.
#[inline(always)]
pub(crate) unsafe fn shared<'a, T>(place: NonNull<T>) -> VolatilePtr<'a, T> {
    // SAFETY: the caller's promise; for other threads see above.
    unsafe { VolatilePtr::new(place) }
}

/// Reads a word of a structure that the device writes.
///
/// # Safety
/// The structure lies in live memory that is shared with the device, aligned so that its words are.
#[inline(always)]
pub(crate) unsafe fn load<W: Word>(structure: NonNull<u8>) -> W {
    // SAFETY: the caller's promise.
    W::from_memory(unsafe { shared(structure.add(W::OFFSET).cast()) }.read())
}

/// Writes a word of a structure that the device reads.
///
/// # Safety
/// As [`load`], and the word is the host's.
#[inline(always)]
pub(crate) unsafe fn store<W: Word>(structure: NonNull<u8>, word: W) {
    // SAFETY: the caller's promise.
    unsafe { shared(structure.add(W::OFFSET).cast()) }.write(word.to_memory());
}
