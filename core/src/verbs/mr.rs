//! Memory regions and buffers: memory that work requests name by key.

// UNSAFETY: registration takes raw memory of the caller, and buffers are raw DMA memory.
#![expect(unsafe_code)]

pub use crate::types::sge::{Access, Sge};
pub use crate::verbs::mr_error::{MrError, OutOfRange};

use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Bound, RangeBounds};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};

use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, DestroyMkeyIn, Mkc};
use bareverbs_firmware_cmds::values::MkeyAccessMode;

use crate::device::capabilities::Capabilities;
use crate::device::dma_buffer::DmaBuffer;
use crate::device::{Device, TailIn};
use crate::platform::{DmaError, Mapping, Platform};
use crate::types::error::CommandError;
use crate::verbs::pd::Pd;
use crate::verbs::qp::Remote;
use bareverbs_firmware_cmds::numbers::{LKey, RKey};

/// A memory key: the device's translation and permissions of one region.
///
/// The low byte of a key is its variant, chosen by the driver and different each time, so that a key kept beyond its
/// region's life does not open the next region that gets the same index.
#[derive(Debug)]
pub(crate) struct Key {
    key: u32,
}

static VARIANT: AtomicU8 = AtomicU8::new(1);

impl Key {
    /// The variant of the next key.
    pub(crate) fn variant() -> u8 {
        VARIANT.fetch_add(1, Ordering::Relaxed)
    }

    /// The key of a context that the device has made.
    pub(crate) fn of_index(index: u32, variant: u8) -> Self {
        Self {
            key: index << 8 | u32::from(variant),
        }
    }

    pub(crate) fn rkey(&self) -> RKey {
        RKey(self.key)
    }

    /// Creates a key for `len` bytes at `start` that lie in pages of `1 << page_shift` bytes.
    #[expect(clippy::too_many_arguments)]
    fn create<P: Platform>(
        device: &Device<'_, P>,
        pdn: u32,
        access: Access,
        start: u64,
        len: u64,
        page_shift: u8,
        pages: usize,
        page: &mut dyn FnMut(usize) -> u64,
    ) -> Result<Self, CommandError> {
        let caps = &device.capabilities().hca;
        let relaxed = access.contains(Access::RELAXED_ORDERING);
        let variant = Self::variant();
        let mut command = CreateMkeyIn::new();
        let octwords = pages.div_ceil(2);
        command.set_translations_octword_actual_size(octwords as u32);
        // The second bit is set where PCI Express has relaxed ordering enabled, and is the only one of older firmware.
        let relaxed_read = caps.relaxed_ordering_read() || caps.relaxed_ordering_read_pci_enabled();
        let mkc: &mut Mkc = command.memory_key_mkey_entry_mut();
        mkc.set_access_mode_1_0(MkeyAccessMode::Mtt.low())
            .set_umr_en(true)
            .set_lr(true)
            .set_lw(access.contains(Access::LOCAL_WRITE))
            .set_rr(access.contains(Access::REMOTE_READ))
            .set_rw(access.contains(Access::REMOTE_WRITE))
            .set_a(access.contains(Access::REMOTE_ATOMIC))
            .set_en_rinval(access.contains(Access::REMOTE_INVALIDATE))
            .set_relaxed_ordering_write(relaxed && caps.relaxed_ordering_write())
            .set_relaxed_ordering_read(relaxed && relaxed_read)
            .set_qpn(0xff_ffff)
            .set_mkey_7_0(variant)
            .set_pd(pdn)
            .set_start_addr(start)
            .set_len(len)
            .set_translations_octword_size(octwords as u32)
            .set_log_page_size(page_shift);
        // Two translations make an octword; the odd one out is filled up.
        let mut entry = |index: usize| if index < pages { page(index) } else { 0 };
        let out =
            device.execute_with(&command, TailIn::Qwords(octwords * 2, &mut entry), &mut [])?;
        Ok(Self::of_index(out.mkey_index(), variant))
    }

    pub(crate) fn destroy<P: Platform>(&self, device: &Device<'_, P>) -> Result<(), CommandError> {
        let mut command = DestroyMkeyIn::new();
        command.set_mkey_index(self.key >> 8);
        device.execute_no_output(&command)
    }
}

/// Binary logarithm of the smallest page of a mapping ([`Mapping::page_shift`](crate::platform::Mapping::page_shift)).
const SMALLEST_PAGE: u8 = 12;

/// The pages by which a key describes a region: those of its mapping, or smaller ones where the region's address and the one
/// that the device uses lie at the same offset in these only.
struct Pages {
    address: u64,
    /// Binary logarithm of the size.
    shift: u8,
    /// That of the mapping's pages.
    of_mapping: u8,
}

impl Pages {
    fn new(address: u64, iova: u64, of_mapping: u8) -> Self {
        let same = (address ^ iova).trailing_zeros() as u8;
        Self {
            address,
            shift: of_mapping.min(same),
            of_mapping,
        }
    }

    /// The number of those that `len` bytes touch, at least one.
    fn count(&self, len: u64) -> usize {
        let Self { address, shift, .. } = self;
        (((address + (len - 1)) >> shift) - (address >> shift) + 1) as usize
    }

    /// The mapping's page in which one lies, and the offset in it.
    fn place(&self, index: usize) -> (usize, u64) {
        let start = ((self.address >> self.shift) + index as u64) << self.shift;
        let before = (start >> self.of_mapping) - (self.address >> self.of_mapping);
        (before as usize, start & ((1 << self.of_mapping) - 1))
    }
}

fn check_region(caps: &Capabilities, len: usize, access: Access) -> Result<(), MrError> {
    check_access(access, caps.has_atomics())?;
    if access.contains(Access::ON_DEMAND) {
        let offered = caps.hca.pg();
        return Err(MrError::NoOnDemandPaging { offered });
    }
    if len == 0 {
        return Err(MrError::Empty);
    }
    let limit = caps.max_mr_size();
    if len as u64 > limit {
        return Err(MrError::TooLong { len, limit });
    }
    Ok(())
}

pub(crate) fn check_access(access: Access, atomics: bool) -> Result<(), MrError> {
    if access.contains(Access::REMOTE_ATOMIC) && !atomics {
        return Err(MrError::NoAtomics);
    }
    let remote = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if access.intersects(remote) && !access.contains(Access::LOCAL_WRITE) {
        return Err(MrError::NeedsLocalWrite { access });
    }
    Ok(())
}

/// A registered region of the caller's memory: `struct ibv_mr`. Deregistered when dropped.
pub struct Mr<'d, P: Platform> {
    device: &'d Device<'d, P>,
    mkey: Key,
    mapping: ManuallyDrop<Mapping>,
    iova: u64,
    access: Access,
}

// SAFETY: the mapping's pointer is only handed back to the platform; the memory is the caller's.
unsafe impl<P: Platform + Sync> Send for Mr<'_, P> {}
// SAFETY: as above; nothing is changed through `&self`.
unsafe impl<P: Platform + Sync> Sync for Mr<'_, P> {}

impl<'d, P: Platform> Pd<'d, P> {
    /// Checks what registering refuses before it looks at memory: rights, and a length of 0 or above the device's limit.
    ///
    /// # Errors
    ///
    /// It returns the errors that [`reg_mr`](Self::reg_mr) returns for the same arguments.
    pub fn check_region(&self, len: usize, access: Access) -> Result<(), MrError> {
        check_region(self.device.capabilities(), len, access)
    }

    /// Registers the caller's memory: `ibv_reg_mr`. Work requests, on this host and on the peer, name it by its
    /// address.
    ///
    /// # Safety
    ///
    /// Until the region is deregistered (dropped), `region` stays valid for reads and writes, and the caller accepts that
    /// the device reads and, as far as `access` allows, changes it at any time: no Rust reference to a byte that
    /// the device may change is held while a work request of either side may touch it. This promise covers all work
    /// requests that use the keys, and is why posting them is safe. Leaking the region (`core::mem::forget`) extends
    /// it for ever.
    pub unsafe fn reg_mr(
        &self,
        region: NonNull<[u8]>,
        access: Access,
    ) -> Result<Mr<'d, P>, MrError> {
        let iova = region.cast::<u8>().as_ptr() as u64;
        // SAFETY: the caller's promise.
        unsafe { self.reg_mr_iova(region, iova, access) }
    }

    /// Registers the caller's memory under another address: `ibv_reg_mr_iova`. `iova` lies at the same offset in its page
    /// of 4 KiB as the memory does. With [`Access::ZERO_BASED`] it is 0.
    ///
    /// # Safety
    ///
    /// As [`reg_mr`](Self::reg_mr).
    pub unsafe fn reg_mr_iova(
        &self,
        region: NonNull<[u8]>,
        iova: u64,
        access: Access,
    ) -> Result<Mr<'d, P>, MrError> {
        let len = region.len();
        check_region(self.device.capabilities(), len, access)?;
        let iova = match access.contains(Access::ZERO_BASED) {
            true => 0,
            false => iova,
        };
        if iova.checked_add(len as u64).is_none() {
            return Err(MrError::AddressWraps { iova, len });
        }
        let device = self.device;
        let platform = device.platform();
        // SAFETY: the caller's promise; it is unmapped only after the key is gone.
        let mapping = unsafe { platform.dma_map(region) }.map_err(MrError::Memory)?;
        let address = region.cast::<u8>().as_ptr() as u64;
        let pages = Pages::new(address, iova, mapping.page_shift);
        if pages.shift < SMALLEST_PAGE {
            // SAFETY: no key was made for it, so the device does not use it.
            unsafe { platform.dma_unmap(mapping) };
            let page_size = 1 << SMALLEST_PAGE;
            return Err(MrError::IovaOffset { iova, page_size });
        }
        let mut page = |index: usize| {
            let (index, offset) = pages.place(index);
            platform.page_iova(&mapping, index) + offset
        };
        let created = Key::create(
            device,
            self.pdn().number(),
            access,
            iova,
            len as u64,
            pages.shift,
            pages.count(len as u64),
            &mut page,
        );
        match created {
            Ok(mkey) => Ok(Mr {
                device,
                mkey,
                mapping: ManuallyDrop::new(mapping),
                iova,
                access,
            }),
            Err(error) => {
                if error.may_still_happen() {
                    device.quarantine_mapping(mapping);
                } else {
                    // SAFETY: the firmware made no key, so the device does not use the mapping.
                    unsafe { platform.dma_unmap(mapping) };
                }
                Err(MrError::Command(error))
            }
        }
    }

    /// Allocates memory that the device can reach: safe to share with it, because it is never seen as a Rust reference.
    pub fn alloc_buffer(&self, len: usize, access: Access) -> Result<Buffer<'d, P>, MrError> {
        self.alloc_aligned(len, access, 64)
    }

    /// Allocates memory at a multiple of `least` at least, a power of two of at most 4096.
    pub(crate) fn alloc_aligned(
        &self,
        len: usize,
        access: Access,
        least: usize,
    ) -> Result<Buffer<'d, P>, MrError> {
        check_region(self.device.capabilities(), len, access)?;
        let align = if len < 4096 { least } else { 4096 };
        let layout = len
            .checked_next_multiple_of(align)
            .and_then(|size| Layout::from_size_align(size, align).ok())
            .ok_or(MrError::Memory(DmaError::OutOfMemory))?;
        let memory = self.device.alloc_dma(layout).map_err(MrError::Memory)?;
        // Device addresses are contiguous and the region's addresses equal them, so the pages may be as large as the
        // region and one or two of them cover it.
        let iova = memory.iova();
        let page_shift = layout.size().next_power_of_two().ilog2().clamp(12, 30) as u8;
        let first = iova >> page_shift;
        let pages = ((iova + len as u64 - 1) >> page_shift) - first + 1;
        let mut page = |index: usize| (first + index as u64) << page_shift;
        let created = Key::create(
            self.device,
            self.pdn().number(),
            access,
            iova,
            len as u64,
            page_shift,
            pages as usize,
            &mut page,
        );
        match created {
            Ok(mkey) => Ok(Buffer {
                device: self.device,
                mkey,
                memory,
                len,
                access,
            }),
            Err(error) => {
                if error.may_still_happen() {
                    memory.quarantine();
                }
                Err(MrError::Command(error))
            }
        }
    }
}

impl<P: Platform> Mr<'_, P> {
    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    /// Notes what a work request has changed.
    pub(crate) fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// The local key.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        LKey(self.mkey.key)
    }

    /// The key for the peer.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.mkey.rkey()
    }

    /// First address, as work requests name it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.iova
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Returns `true` if it is empty, which it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The access rights.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// `len` bytes at `offset` for a work request, if they lie inside.
    #[must_use]
    pub fn sge(&self, offset: usize, len: usize) -> Option<Sge> {
        sge(self.iova, self.len(), self.lkey(), offset, len)
    }

    /// Deregisters it: `ibv_dereg_mr`. From the moment this returns the device does not touch the memory any more. Gives it
    /// back if the firmware refuses.
    pub fn dereg(self) -> Result<(), (Self, CommandError)> {
        let mut this = ManuallyDrop::new(self);
        match this.mkey.destroy(this.device) {
            Ok(()) => {
                // SAFETY: taken once, `this` is not dropped; the key is gone, so the device does not use it.
                unsafe {
                    let mapping = ManuallyDrop::take(&mut this.mapping);
                    this.device.platform().dma_unmap(mapping);
                }
                Ok(())
            }
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }
}

impl<P: Platform> Drop for Mr<'_, P> {
    fn drop(&mut self) {
        let destroyed = self.mkey.destroy(self.device);
        // SAFETY: taken once, here.
        let mapping = unsafe { ManuallyDrop::take(&mut self.mapping) };
        match destroyed {
            // SAFETY: the key is gone, so the device does not use the mapping.
            Ok(()) => unsafe { self.device.platform().dma_unmap(mapping) },
            Err(error) => {
                log::warn!("{} stays registered: {error}", self.lkey());
                self.device.quarantine_mapping(mapping);
            }
        }
    }
}

pub(crate) fn sge(addr: u64, size: usize, lkey: LKey, offset: usize, len: usize) -> Option<Sge> {
    let length = u32::try_from(len).ok()?;
    (offset.checked_add(len)? <= size && length < 1 << 31)
        .then(|| Sge::new(addr + offset as u64, length, lkey))
}

/// Memory for host and device, with a key: what a program without `unsafe` uses. Freed when dropped.
pub struct Buffer<'d, P: Platform> {
    device: &'d Device<'d, P>,
    mkey: Key,
    memory: DmaBuffer<'d, P>,
    len: usize,
    access: Access,
}

impl<P: Platform> Buffer<'_, P> {
    /// The local key.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        LKey(self.mkey.key)
    }

    /// The key for the peer.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.mkey.rkey()
    }

    /// First address, as work requests name it; not a pointer.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.memory.iova()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if it is empty, which it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The access rights.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// `len` bytes at `offset` for a work request, if they lie inside.
    #[must_use]
    pub fn sge(&self, offset: usize, len: usize) -> Option<Sge> {
        sge(self.addr(), self.len, self.lkey(), offset, len)
    }

    /// A piece for a work request, as in `buffer.slice(..16)`.
    ///
    /// # Errors
    ///
    /// If it does not lie inside, or has 2 GiB or more.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Sge, OutOfRange> {
        let after = |index: &usize| index.saturating_add(1);
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => after(start),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => after(end),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        let len = end.checked_sub(start);
        let piece = len.and_then(|len| self.sge(start, len));
        piece.ok_or(OutOfRange {
            offset: start,
            len: len.unwrap_or(0),
            size: self.len,
        })
    }

    /// Where the peer finds byte `offset`: with the key, what an RDMA READ or WRITE there takes.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            addr: self.addr().wrapping_add(offset as u64),
            rkey: self.rkey(),
        }
    }

    /// Where its memory starts. Only another device may read or write it through this.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.memory.ptr()
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), OutOfRange> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(OutOfRange {
                offset,
                len,
                size: self.len,
            }),
        }
    }

    /// Copies `data` in at `offset`. What a work request in flight sees of it is undefined (but not unsafe).
    pub fn copy_in(&self, offset: usize, data: &[u8]) -> Result<(), OutOfRange> {
        self.check(offset, data.len())?;
        self.memory.write_bytes(offset, data);
        Ok(())
    }

    /// Copies out from `offset`. While a work request writes there, old and new bytes may be mixed.
    pub fn copy_out(&self, offset: usize, data: &mut [u8]) -> Result<(), OutOfRange> {
        self.check(offset, data.len())?;
        self.memory.read_bytes(offset, data);
        Ok(())
    }

    /// Fills `len` bytes at `offset`.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        self.check(offset, len)?;
        self.memory.fill(offset, len, byte);
        Ok(())
    }
}

impl<P: Platform> Drop for Buffer<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.mkey.destroy(self.device) {
            log::warn!("{} stays registered: {error}", self.lkey());
            self.memory.take().quarantine();
        }
    }
}

impl<P: Platform> fmt::Debug for Mr<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("lkey", &self.lkey())
            .field("addr", &format_args!("{:#x}", self.iova))
            .field("len", &self.len())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for Buffer<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("lkey", &self.lkey())
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_access_needs_local_write() {
        for remote in [
            Access::REMOTE_WRITE,
            Access::REMOTE_ATOMIC,
            Access::REMOTE_WRITE | Access::REMOTE_READ,
        ] {
            assert_eq!(
                check_access(remote, true),
                Err(MrError::NeedsLocalWrite { access: remote })
            );
            assert_eq!(check_access(remote | Access::LOCAL_WRITE, true), Ok(()));
        }
        assert_eq!(check_access(Access::REMOTE_READ, false), Ok(()));
        assert_eq!(check_access(Access::empty(), false), Ok(()));
    }

    /// A mapping of the longest pages that cover a region, as VFIO's, at a device address with the same lower bits.
    #[test]
    fn pages_are_small_enough_for_both_addresses() {
        let (address, of_mapping, mapped_at) = (0x7f00_0001_3010_u64, 14, 0x10_0000_u64);
        let device = |at: u64| mapped_at + (at - (address >> of_mapping << of_mapping));
        for (iova, shift) in [
            (address, 14),
            (address ^ 1 << 14, 14),
            (address ^ 1 << 13, 13),
            (0x10, 12),
            (0, 4),
        ] {
            let pages = Pages::new(address, iova, of_mapping);
            assert_eq!(pages.shift, shift, "{iova:#x}");
            for len in [1, 0xff0, 0xff1, 0x2000, 0x9000] {
                let last = address + len - 1;
                let count = pages.count(len);
                assert_eq!(count as u64, (last >> shift) - (address >> shift) + 1);
                for index in 0..count {
                    let start = ((address >> shift) + index as u64) << shift;
                    let (page, offset) = pages.place(index);
                    let found = mapped_at + ((page as u64) << of_mapping) + offset;
                    assert_eq!(found, device(start), "{iova:#x}: page {index} of {len:#x}");
                }
            }
        }
    }

    #[test]
    fn pieces_lie_inside() {
        let key = LKey(5);
        assert_eq!(sge(0x1000, 64, key, 60, 4), Some(Sge::new(0x103c, 4, key)));
        assert_eq!(sge(0x1000, 64, key, 64, 0), Some(Sge::new(0x1040, 0, key)));
        assert_eq!(sge(0x1000, 64, key, 61, 4), None);
        assert_eq!(sge(0x1000, 64, key, usize::MAX, 2), None);
        assert_eq!(sge(0, usize::MAX, key, 0, 1 << 31), None);
    }
}
