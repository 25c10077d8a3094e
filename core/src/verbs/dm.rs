//! Device memory (MEMIC): memory on the card, which work requests reach without the host's bus, and the host through BAR 0.

use core::fmt;
use core::mem::ManuallyDrop;

use bareverbs_firmware_cmds::caps::{DeviceMemCap, QueryHcaCapIn};
use bareverbs_firmware_cmds::memic::{AllocMemicIn, DeallocMemicIn, LOG_UNIT};
use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, Mkc};
use bareverbs_firmware_cmds::numbers::{LKey, Qpn, RKey};
use bareverbs_firmware_cmds::status::Status;
use bareverbs_firmware_cmds::values::{CapabilityGroup, CapabilityMode, MkeyAccessMode};
use zerocopy::IntoBytes;

use crate::device::dm_pages::{DM_PAGE, DM_PAGES, Pages};
use crate::device::{Device, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::sge::{Access, Sge};
use crate::verbs::mr::{Key, MrError, OutOfRange, check_access, sge};
use crate::verbs::pd::Pd;

/// The unit in which the host reaches device memory: offsets and lengths of copies are multiples of it.
pub const DM_WORD: usize = 4;

/// The device memory to allocate: `struct ibv_alloc_dm_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocDmAttr {
    /// Bytes. The device gives multiples of 64.
    pub length: usize,
    /// Binary logarithm of the alignment of the memory's place on the device; 0 if it does not matter.
    pub log_align_req: u8,
}

/// Device memory: `struct ibv_dm`. Freed when dropped.
pub struct Dm<'d, P: Platform> {
    device: &'d Device<'d, P>,
    /// Where it lies in BAR 0, which is also where the device has it.
    start: u64,
    len: usize,
    /// The bytes that the device has allocated for it.
    size: u32,
    /// The pages that it takes.
    pages: Pages,
}

impl<'d, P: Platform> Device<'d, P> {
    /// Asks what device memory there is (QUERY_HCA_CAP); `None` where there is none (`cmd_hca_cap.device_memory`,
    /// `device_mem_cap.memic`). [`DeviceMemCap::max_memic_size`] is `ibv_device_attr_ex.max_dm_size`.
    pub fn query_device_memory(&self) -> Result<Option<DeviceMemCap>, CommandError> {
        if !self.capabilities().hca.device_memory() {
            return Ok(None);
        }
        let mut query = QueryHcaCapIn::new();
        query.set_op_mod(CapabilityGroup::DeviceMemory.query(CapabilityMode::Current));
        let mut caps = DeviceMemCap::ZERO;
        self.execute_with(&query, TailIn::None, caps.as_mut_bytes())?;
        Ok(caps.memic().then_some(caps))
    }

    /// Allocates device memory: `ibv_alloc_dm`. Its contents are not defined.
    ///
    /// # Errors
    /// [`MrError::Unsupported`], [`MrError::Empty`], [`MrError::TooLong`], [`MrError::Size`] of `log_align_req`,
    /// [`MrError::DmOutsideBar`], [`MrError::DmExhausted`], and the firmware's.
    pub fn alloc_dm(&'d self, attr: AllocDmAttr) -> Result<Dm<'d, P>, MrError> {
        let caps = self.query_device_memory().map_err(MrError::Command)?;
        let caps = caps.ok_or(MrError::Unsupported {
            what: "memory for programs (cmd_hca_cap.device_memory, device_mem_cap.memic)",
        })?;
        let AllocDmAttr {
            length: len,
            log_align_req,
        } = attr;
        if len == 0 {
            return Err(MrError::Empty);
        }
        let limit = u64::from(caps.max_memic_size());
        let unit = (1_usize << LOG_UNIT).max(1 << caps.log_min_memic_alloc_size());
        let size = len
            .checked_next_multiple_of(unit)
            .filter(|&size| size as u64 <= limit)
            .ok_or(MrError::TooLong { len, limit })?;
        // The device counts from its smallest alignment on.
        let log_align = log_align_req.saturating_sub(LOG_UNIT);
        let most = caps.log_max_memic_addr_alignment();
        if log_align > most {
            return Err(MrError::Size {
                field: "log_align_req",
                asked: log_align_req.into(),
                limit: u64::from(most) + u64::from(LOG_UNIT),
            });
        }
        let outside = |start| MrError::DmOutsideBar { start };
        let (first, window) = (caps.memic_bar_start_addr(), caps.memic_bar_size());
        self.in_bar(first, window as usize).ok_or(outside(first))?;
        let count = size.div_ceil(DM_PAGE);
        let mut command = AllocMemicIn::new();
        command
            .set_log_memic_addr_alignment(log_align)
            .set_range_size((count * DM_PAGE) as u32)
            .set_memic_size(size as u32);
        // The driver picks the place, as `mlx5_cmd_alloc_memic` does. Where the firmware has something there already (all
        // functions of a card share the memory), it says so, and the next place is tried.
        let mut refused = MrError::DmExhausted;
        let end = (window as usize / DM_PAGE).min(DM_PAGES);
        for page in 0..(end + 1).saturating_sub(count) {
            let Some(pages) = self.dm_pages.take(page, count) else {
                continue;
            };
            let range = first + (page * DM_PAGE) as u64;
            command.set_range_start_addr(range);
            let answer = match self.execute(&command) {
                Ok(answer) => answer,
                Err(error) => {
                    if !error.may_still_happen() {
                        self.dm_pages.give_back(pages);
                    }
                    refused = MrError::Command(error);
                    match error.is_status(Status::NoResources) {
                        true => continue,
                        false => break,
                    }
                }
            };
            let start = answer.memic_start_addr();
            let dm = Dm {
                device: self,
                start,
                len,
                size: size as u32,
                pages,
            };
            // The device's answer is checked, so that the host reaches no other part of the BAR through it.
            let last = range + (count * DM_PAGE - size) as u64;
            return match start.is_multiple_of(DM_WORD as u64) && (range..=last).contains(&start) {
                true => Ok(dm),
                false => Err(outside(start)),
            };
        }
        Err(refused)
    }

    /// Where these bytes lie in BAR 0, if the platform reaches them there.
    fn in_bar(&self, start: u64, len: usize) -> Option<usize> {
        let start = usize::try_from(start).ok()?;
        (start.checked_add(len)? <= self.platform().bar_len()).then_some(start)
    }
}

impl<'d, P: Platform> Dm<'d, P> {
    /// Length in bytes, as asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if it is empty, which it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its place in BAR 0, which is also its address in keys of the device.
    #[must_use]
    pub const fn place(&self) -> u64 {
        self.start
    }

    /// The word in BAR 0 with byte `offset`.
    fn check(&self, offset: usize, len: usize) -> Result<usize, OutOfRange> {
        let error = OutOfRange {
            offset,
            len,
            size: self.len,
        };
        let end = offset.checked_add(len).ok_or(error)?;
        let words = offset.is_multiple_of(DM_WORD) && len.is_multiple_of(DM_WORD);
        match end <= self.len && words {
            // It lies inside the BAR, as `alloc_dm` has checked.
            true => Ok(self.start as usize + offset),
            false => Err(error),
        }
    }

    /// Copies `data` in at `offset`: `ibv_memcpy_to_dm`. Offset and length are multiples of [`DM_WORD`].
    ///
    /// # Errors
    /// If it does not lie inside, or not on words.
    pub fn copy_in(&self, offset: usize, data: &[u8]) -> Result<(), OutOfRange> {
        let mut at = self.check(offset, data.len())?;
        let platform = self.device.platform();
        let (words, _) = data.as_chunks::<DM_WORD>();
        for word in words {
            platform.write_be32(at, u32::from_be_bytes(*word));
            at += DM_WORD;
        }
        Ok(())
    }

    /// Copies out from `offset`: `ibv_memcpy_from_dm`. A device that is gone gives all ones.
    ///
    /// # Errors
    /// As [`copy_in`](Self::copy_in).
    pub fn copy_out(&self, offset: usize, data: &mut [u8]) -> Result<(), OutOfRange> {
        let mut at = self.check(offset, data.len())?;
        let platform = self.device.platform();
        let (words, _) = data.as_chunks_mut::<DM_WORD>();
        for word in words {
            *word = platform.read_be32(at).to_be_bytes();
            at += DM_WORD;
        }
        Ok(())
    }

    fn dealloc(&self) -> Result<(), CommandError> {
        let mut command = DeallocMemicIn::new();
        command
            .set_memic_start_addr(self.start)
            .set_memic_size(self.size);
        self.device.execute_no_output(&command)?;
        self.device.dm_pages.give_back(self.pages);
        Ok(())
    }

    /// Frees it: `ibv_free_dm`. Gives it back if the firmware refuses.
    pub fn free(self) -> Result<(), (Self, CommandError)> {
        let this = ManuallyDrop::new(self);
        match this.dealloc() {
            Ok(()) => Ok(()),
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }
}

impl<P: Platform> Drop for Dm<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.dealloc() {
            log::warn!("device memory at {:#x} stays: {error}", self.start);
        }
    }
}

impl<P: Platform> fmt::Debug for Dm<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dm")
            .field("start", &format_args!("{:#x}", self.start))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// A registered part of device memory: the `struct ibv_mr` of `ibv_reg_dm_mr`. Its addresses are those from 0 on.
/// Deregistered when dropped; a borrow of the memory keeps that allocated until then.
pub struct DmMr<'m, 'd, P: Platform> {
    dm: &'m Dm<'d, P>,
    key: Key,
    len: usize,
    access: Access,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Registers `len` bytes of device memory from `offset` on, as few as none: `ibv_reg_dm_mr`. `access` has [`Access::ZERO_BASED`], as
    /// there.
    ///
    /// # Errors
    /// [`MrError::NotZeroBased`], [`MrError::OutsideDm`], those of access rights, and the firmware's.
    pub fn reg_dm_mr<'m>(
        &self,
        dm: &'m Dm<'d, P>,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<DmMr<'m, 'd, P>, MrError> {
        check_access(access, self.device.capabilities().has_atomics())?;
        if !access.contains(Access::ZERO_BASED) {
            return Err(MrError::NotZeroBased);
        }
        let outside = MrError::OutsideDm(OutOfRange {
            offset,
            len,
            size: dm.len,
        });
        match offset.checked_add(len) {
            Some(end) if end <= dm.len => {}
            _ => return Err(outside),
        }
        let variant = Key::variant();
        let mut command = CreateMkeyIn::new();
        let mkc: &mut Mkc = command.memory_key_mkey_entry_mut();
        mkc.set_access_mode_1_0(MkeyAccessMode::Memic.low())
            .set_access_mode_4_2(MkeyAccessMode::Memic.high())
            .set_lr(true)
            .set_lw(access.contains(Access::LOCAL_WRITE))
            .set_rr(access.contains(Access::REMOTE_READ))
            .set_rw(access.contains(Access::REMOTE_WRITE))
            .set_a(access.contains(Access::REMOTE_ATOMIC))
            .set_qpn(Qpn::ANY.number())
            .set_mkey_7_0(variant)
            .set_pd(self.pdn().number())
            .set_start_addr(dm.start + offset as u64)
            .set_len(len as u64);
        let out = self
            .device
            .execute_with(&command, TailIn::Qwords(0, &mut |_| 0), &mut [])
            .map_err(MrError::Command)?;
        Ok(DmMr {
            dm,
            key: Key::of_index(out.mkey_index(), variant),
            len,
            access,
        })
    }
}

impl<P: Platform> DmMr<'_, '_, P> {
    /// The local key.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        LKey(self.key.rkey().0)
    }

    /// The key for the peer.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.key.rkey()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if it is empty.
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
        sge(0, self.len, self.lkey(), offset, len)
    }

    /// Deregisters it: `ibv_dereg_mr`. Gives it back if the firmware refuses.
    pub fn dereg(self) -> Result<(), (Self, CommandError)> {
        let this = ManuallyDrop::new(self);
        match this.key.destroy(this.dm.device) {
            Ok(()) => Ok(()),
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }
}

impl<P: Platform> Drop for DmMr<'_, '_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.key.destroy(self.dm.device) {
            log::warn!("{} stays registered: {error}", self.lkey());
        }
    }
}

impl<P: Platform> fmt::Debug for DmMr<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmMr")
            .field("lkey", &self.lkey())
            .field("dm", &self.dm)
            .field("len", &self.len)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
