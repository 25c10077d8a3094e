//! The platform seam: everything the driver needs of the world around it, and nothing else.
//!
//! Three implementations exist from the start: Linux VFIO (`bareverbs-vfio`), the in-process device model (for tests and
//! examples), and bare metal. The driver is generic over [`Platform`] and monomorphised: on VFIO and on bare metal a
//! doorbell is one volatile store.
//!
//! An implementation for another machine lets [`conformance`](crate::conformance) judge it.

// UNSAFETY: the trait is the promise that device memory and registers behave; its methods pass raw memory on.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;

/// Memory that the host and the device both see, coherent for both.
///
/// The pointer and the device's address ([`iova`](Self::iova)) are never assumed to be equal.
#[derive(Debug)]
pub struct Dma {
    /// Where the host sees it. Valid for `len` bytes until [`Platform::dma_free`].
    pub ptr: NonNull<u8>,
    /// Where the device sees it: one contiguous run of `len` bytes.
    pub iova: u64,
    /// The layout that was asked for.
    pub layout: Layout,
}

/// The caller's memory made visible to the device ([`Platform::dma_map`]).
///
/// The region starts at `ptr` and lies in `pages` pages of `1 << page_shift` bytes, each of which the device sees at the
/// address that [`Platform::page_iova`] gives. `ptr` lies in page 0, at the same offset in the page for host and device.
#[derive(Debug)]
pub struct Mapping {
    /// Start of the region for the host.
    pub ptr: NonNull<u8>,
    /// Length of the region in bytes.
    pub len: usize,
    /// Binary logarithm of the page size, at least 12.
    pub page_shift: u8,
    /// Number of pages that the region touches.
    pub pages: usize,
    /// For the platform: what it needs to answer [`Platform::page_iova`] and to undo the mapping.
    pub token: u64,
}

/// Why the platform could not provide memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DmaError {
    /// No memory left, or none that is contiguous for the device and this long.
    OutOfMemory,
    /// No device addresses left.
    OutOfAddresses,
    /// The limit on locked memory (`RLIMIT_MEMLOCK`) stands in the way. Both in KiB, as `ulimit -l` counts.
    LockedMemoryLimit {
        /// The limit in force.
        limit: u32,
        /// The memory that is needed in all.
        needed: u32,
    },
    /// The IOMMU driver takes no more mappings.
    TooManyMappings,
    /// The operating system refused, with this error number.
    Os(i32),
}

impl fmt::Display for DmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("out of DMA memory"),
            Self::OutOfAddresses => f.write_str("out of device addresses"),
            Self::LockedMemoryLimit { limit, needed } => {
                write!(
                    f,
                    "the limit on locked memory is {limit} KiB, {needed} are needed \
                     (raise RLIMIT_MEMLOCK: `ulimit -l {needed}` or more)"
                )
            }
            Self::TooManyMappings => {
                f.write_str("the IOMMU takes no more mappings (vfio_iommu_type1's dma_entry_limit)")
            }
            Self::Os(errno) => write!(
                f,
                "the operating system refused the mapping (errno {errno})"
            ),
        }
    }
}

impl core::error::Error for DmaError {}

/// Some of a function's MSI-X vectors. The driver uses no more than the first 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VectorSet(u64);

impl VectorSet {
    /// All vectors.
    pub const ALL: Self = Self(u64::MAX);

    /// A set of one vector.
    #[must_use]
    pub const fn one(vector: u16) -> Self {
        match 1u64.checked_shl(vector as u32) {
            Some(bit) => Self(bit),
            None => Self(0),
        }
    }

    /// The vectors of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns `true` if `vector` is one of them.
    #[must_use]
    pub const fn contains(self, vector: u16) -> bool {
        self.0 & Self::one(vector).0 != 0
    }
}

/// The machine and the PCI function, as the driver needs them.
///
/// One value belongs to one function. The function's memory decoding and bus mastering are on, and no other driver uses it.
///
/// # Safety
///
/// Each method has a requirement of the implementer. In short: addresses handed out stay valid and exclusive until they are
/// given back, and register accesses reach the device at once and in program order.
pub unsafe trait Platform {
    /// Length of BAR 0 in bytes, as far as the driver may touch it.
    fn bar_len(&self) -> usize;

    /// Reads the big-endian 32-bit register at `offset` (a multiple of 4) of BAR 0. A device that is gone reads all ones.
    ///
    /// # Implementation safety
    /// One 32-bit bus access, not merged, repeated or moved relative to other register accesses. An `offset` outside
    /// the BAR, or one that is not aligned, must not touch memory; it reads all ones.
    fn read_be32(&self, offset: usize) -> u32;

    /// Writes the big-endian 32-bit register at `offset` (a multiple of 4) of BAR 0.
    ///
    /// # Implementation safety
    /// As [`read_be32`](Self::read_be32); and all earlier writes to DMA memory are visible to the device before it
    /// sees this write. An `offset` outside the BAR, or one that is not aligned, is ignored.
    fn write_be32(&self, offset: usize, value: u32);

    /// Writes the big-endian 64-bit register at `offset` (a multiple of 8) of BAR 0: the data path's doorbell.
    ///
    /// # Implementation safety
    /// As [`write_be32`](Self::write_be32). One 64-bit access where the machine has one, otherwise the high half first.
    fn write_be64(&self, offset: usize, value: u64);

    /// `true` if doorbell pages can be mapped write-combining, for BlueFlame. Where it is `false`, nothing of it is compiled.
    ///
    /// vfio-pci maps BARs uncached, prefetchable ones as well, so there it stays `false`. Who maps the BAR itself sets it,
    /// and implements [`set_write_combining`](Self::set_write_combining) and [`write_combining`](Self::write_combining).
    const WRITE_COMBINING: bool = false;

    /// Maps the page of 4 KiB at `offset` of BAR 0 write-combining (`true`), or uncached again, as all of the BAR was at
    /// first (`false`). Returns whether it is write-combining now; the driver does without where it cannot be.
    ///
    /// # Implementation safety
    /// The page is mapped once: no other mapping of it, with another memory type, is used as long as this one is. The
    /// driver does not touch the page during the call, and nothing but
    /// [`write_combining`](Self::write_combining) as long as the answer was `true`.
    fn set_write_combining(&self, offset: usize, on: bool) -> bool {
        let _ = (offset, on);
        false
    }

    /// Writes `words` to the write-combining page that has `offset`: one word, which is a doorbell, or a WQE of several
    /// times 64 bytes at a multiple of 64. The words have their bytes in the order in which they are to arrive.
    ///
    /// # Implementation safety
    /// In this order: all earlier writes to DMA memory are visible to the device before it sees this write, as with
    /// [`write_be64`](Self::write_be64) (x86-64: `sfence`; aarch64: `dmb oshst`); each word is one aligned 64-bit store, or
    /// part of a larger aligned one, the lowest address first; everything is on its way to the device when the call
    /// returns, so that nothing that is written later arrives before it or is combined with it (x86-64: `sfence`; aarch64:
    /// `dsb st`). A burst may arrive in pieces all the same: the device then fetches the WQE. So it may with eight stores on
    /// some aarch64 cores, for which Linux and rdma-core store the 64 bytes by one instruction (`st1` or `st4` of four vector
    /// registers). What lies outside the BAR is ignored.
    ///
    /// The driver never has two calls for the same 64 bytes under way at once, but for single words.
    fn write_combining(&self, offset: usize, words: &[u64]) {
        let _ = (offset, words);
    }

    /// Allocates memory for host and device, zeroed. `layout`'s alignment holds for both addresses.
    ///
    /// # Implementation safety
    /// The memory belongs to the caller alone, and the device reaches all of it at the returned address, until
    /// [`dma_free`](Self::dma_free), or until the platform itself goes away (with its last copy, if it has copies): a
    /// driver keeps what a device may still use, and a platform that has stopped the device frees it then.
    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError>;

    /// Gives memory back. Where there is an IOMMU, the device loses sight of it now, or when the larger block that the
    /// platform cut it from is empty.
    ///
    /// # Safety
    /// `dma` came from this platform's [`dma_alloc`](Self::dma_alloc), and neither host nor device uses it any more.
    unsafe fn dma_free(&self, dma: Dma);

    /// Makes the caller's memory visible to the device.
    ///
    /// # Implementation safety
    /// Until [`dma_unmap`](Self::dma_unmap) the device reaches exactly the pages that hold the region.
    ///
    /// # Safety
    /// The region is valid for reads and writes until it is unmapped, and the caller accepts that the device changes
    /// it at any time.
    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError>;

    /// The device's address of page `index` (below `mapping.pages`) of a mapping.
    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64;

    /// Undoes [`dma_map`](Self::dma_map).
    ///
    /// # Safety
    /// `mapping` came from this platform, and the device no longer uses it.
    unsafe fn dma_unmap(&self, mapping: Mapping);

    /// Time since an arbitrary fixed start; never goes back.
    fn now(&self) -> Duration;

    /// Called in each turn of a loop that waits for the device: spin hint, yield, or (in the stepped model) the place
    /// where the device gets to run.
    fn relax(&self);

    /// The function's PCI device ID. By it the driver recognizes a virtual function, which must leave alone what
    /// belongs to the card ([`FunctionKind::of`](crate::FunctionKind::of)); without it, it takes the function for a
    /// physical one.
    fn device_id(&self) -> Option<u16> {
        None
    }

    /// The number of MSI-X vectors that the driver may use; 0 if it has to poll.
    fn interrupt_vectors(&self) -> u16 {
        0
    }

    /// Waits until one of these vectors was raised since this thread last waited for it, or until `deadline`
    /// ([`now`](Self::now)'s clock). Returns whether one was; a wait that returns `true` for no reason does no harm. The
    /// default polls: it relaxes once and says that one was.
    ///
    /// # Implementation safety
    /// Not a question of safety, but of sleeping for ever: an interrupt that is raised between two waits of a thread ends
    /// the second one at once, and an interrupt ends the waits of all threads that wait for it. None takes it from
    /// another: the events that it announces may be for any of them.
    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        let _ = (vectors, deadline);
        self.relax();
        true
    }

    /// Ends the waits of all threads in [`wait_interrupt`](Self::wait_interrupt), whichever vectors they wait for, as an
    /// interrupt of every vector would: those that last, and the next one of each other thread. Any thread may call it, at any
    /// time. Returns whether the platform can; the default cannot.
    fn wake(&self) -> bool {
        false
    }
}

// SAFETY: every requirement is passed on to the platform behind the reference.
unsafe impl<P: Platform + ?Sized> Platform for &P {
    #[inline]
    fn bar_len(&self) -> usize {
        (**self).bar_len()
    }
    #[inline]
    fn read_be32(&self, offset: usize) -> u32 {
        (**self).read_be32(offset)
    }
    #[inline]
    fn write_be32(&self, offset: usize, value: u32) {
        (**self).write_be32(offset, value);
    }
    #[inline]
    fn write_be64(&self, offset: usize, value: u64) {
        (**self).write_be64(offset, value);
    }
    const WRITE_COMBINING: bool = P::WRITE_COMBINING;
    fn set_write_combining(&self, offset: usize, on: bool) -> bool {
        (**self).set_write_combining(offset, on)
    }
    #[inline]
    fn write_combining(&self, offset: usize, words: &[u64]) {
        (**self).write_combining(offset, words);
    }
    fn dma_alloc(&self, layout: Layout) -> Result<Dma, DmaError> {
        (**self).dma_alloc(layout)
    }
    unsafe fn dma_free(&self, dma: Dma) {
        // SAFETY: the caller's promise.
        unsafe { (**self).dma_free(dma) }
    }
    unsafe fn dma_map(&self, region: NonNull<[u8]>) -> Result<Mapping, DmaError> {
        // SAFETY: the caller's promise.
        unsafe { (**self).dma_map(region) }
    }
    fn page_iova(&self, mapping: &Mapping, index: usize) -> u64 {
        (**self).page_iova(mapping, index)
    }
    unsafe fn dma_unmap(&self, mapping: Mapping) {
        // SAFETY: the caller's promise.
        unsafe { (**self).dma_unmap(mapping) }
    }
    fn now(&self) -> Duration {
        (**self).now()
    }
    fn relax(&self) {
        (**self).relax();
    }
    fn device_id(&self) -> Option<u16> {
        (**self).device_id()
    }
    fn interrupt_vectors(&self) -> u16 {
        (**self).interrupt_vectors()
    }
    fn wait_interrupt(&self, vectors: VectorSet, deadline: Duration) -> bool {
        (**self).wait_interrupt(vectors, deadline)
    }
    fn wake(&self) -> bool {
        (**self).wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_vectors_that_were_put_into_it() {
        let set = VectorSet::one(0).union(VectorSet::one(63));
        let inside = (0..=u16::MAX).filter(|&vector| set.contains(vector));
        assert!(inside.eq([0, 63]));
        assert_eq!(VectorSet::one(64), VectorSet::default());
        assert!((0..64).all(|vector| VectorSet::ALL.contains(vector)));
    }
}
