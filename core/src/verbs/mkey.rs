//! Indirect memory keys: keys whose memory is a list, or a strided pattern, of pieces of other keys' memory.
//!
//! A key is made with room for its list, and closed. A UMR work request ([`Batch::mr_list`](crate::qp::send::Batch::mr_list),
//! [`Batch::mr_interleaved`](crate::qp::send::Batch::mr_interleaved)) writes the list and opens it; from then on the key's
//! addresses are those from 0 on, through the pieces in their order. The pieces' keys may be indirect keys again, to the
//! depth of [`Capabilities::max_indirection`](crate::Capabilities::max_indirection).

use core::fmt;
use core::mem::ManuallyDrop;

use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, Mkc};
use bareverbs_firmware_cmds::numbers::{LKey, Qpn, RKey};
use bareverbs_firmware_cmds::values::MkeyAccessMode;
use bareverbs_firmware_cmds::wqe::data_segment;
use bareverbs_firmware_cmds::wqe::umr::{LIST_ALIGN, LIST_UNIT};

use crate::device::capabilities::Capabilities;
use crate::device::{Device, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::sge::{Access, Sge};
use crate::verbs::mr::{Buffer, Key, MrError, OutOfRange};
use crate::verbs::pd::Pd;

/// Bytes of a list's entry.
const ENTRY: usize = 16;

/// Of which entries an indirect key's list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MkeyEntries {
    /// Pieces of any length, and strided patterns (KLM).
    Klm,
    /// Pieces of `1 << log_size` bytes each (KSM). The device finds the place of an address without reading the list.
    Ksm {
        /// Binary logarithm of a piece's length: 12 to 30.
        log_size: u8,
    },
}

impl MkeyEntries {
    /// Bytes of an entry, if all have the same.
    pub(crate) fn fixed(self) -> Option<u32> {
        match self {
            Self::Klm => None,
            Self::Ksm { log_size } => Some(1 << log_size),
        }
    }

    const fn mode(self) -> MkeyAccessMode {
        match self {
            Self::Klm => MkeyAccessMode::Klms,
            Self::Ksm { .. } => MkeyAccessMode::Ksm,
        }
    }
}

/// The purpose of an indirect key: `struct mlx5dv_mkey_init_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MkeyInitAttr {
    /// Entries of the longest list. A strided pattern takes one more than it has pieces.
    pub max_entries: u32,
    /// Kind of the entries.
    pub entries: MkeyEntries,
    /// The other side may close the key by a send with invalidate (`MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE`).
    pub remote_invalidate: bool,
}

impl MkeyInitAttr {
    /// A key of up to so many pieces of any length.
    #[must_use]
    pub const fn klm(max_entries: u32) -> Self {
        Self {
            max_entries,
            entries: MkeyEntries::Klm,
            remote_invalidate: false,
        }
    }

    /// Why the device has no such key.
    fn check(&self, caps: &Capabilities) -> Result<(), MrError> {
        let no = |what| Err(MrError::Unsupported { what });
        if caps.max_klm_list_size() == 0 {
            return no("indirect keys (cmd_hca_cap.log_max_klm_list_size)");
        }
        if caps.hca.umr_indirect_mkey_disabled() {
            return no("indirect keys (cmd_hca_cap.umr_indirect_mkey_disabled)");
        }
        if let MkeyEntries::Ksm { log_size } = self.entries {
            if !caps.hca.fixed_buffer_size() {
                return no("keys of pieces of one size (cmd_hca_cap.fixed_buffer_size)");
            }
            if !(12..=30).contains(&log_size) {
                return Err(MrError::Size {
                    field: "log_size (12 or more)",
                    asked: log_size.into(),
                    limit: 30,
                });
            }
        }
        let limit = caps.max_klm_list_size();
        match self.max_entries.checked_next_multiple_of(LIST_UNIT as u32) {
            Some(1..) if self.max_entries <= limit => Ok(()),
            _ => Err(MrError::Size {
                field: "max_entries (1 or more)",
                asked: self.max_entries.into(),
                limit: limit.into(),
            }),
        }
    }
}

/// An indirect memory key: `struct mlx5dv_mkey`. Destroyed when dropped.
pub struct Mkey<'d, P: Platform> {
    device: &'d Device<'d, P>,
    key: Key,
    attr: MkeyInitAttr,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates an indirect key, which is closed: `mlx5dv_create_mkey`.
    ///
    /// # Errors
    /// [`MrError::Unsupported`], [`MrError::Size`], and the firmware's.
    pub fn create_mkey(&self, attr: MkeyInitAttr) -> Result<Mkey<'d, P>, MrError> {
        let device = self.device;
        attr.check(device.capabilities())?;
        let variant = Key::variant();
        let mut command = CreateMkeyIn::new();
        let mkc: &mut Mkc = command.memory_key_mkey_entry_mut();
        let mode = attr.entries.mode();
        mkc.set_free(true)
            .set_umr_en(true)
            .set_access_mode_1_0(mode.low())
            .set_access_mode_4_2(mode.high())
            .set_lr(true)
            .set_en_rinval(attr.remote_invalidate)
            .set_qpn(Qpn::ANY.number())
            .set_mkey_7_0(variant)
            .set_pd(self.pdn().number())
            .set_translations_octword_size(attr.max_entries.next_multiple_of(LIST_UNIT as u32));
        if let MkeyEntries::Ksm { log_size } = attr.entries {
            mkc.set_log_page_size(log_size);
        }
        let out = device
            .execute_with(&command, TailIn::Qwords(0, &mut |_| 0), &mut [])
            .map_err(MrError::Command)?;
        let key = Key::of_index(out.mkey_index(), variant);
        Ok(Mkey { device, key, attr })
    }

    /// Allocates memory for a list of up to so many pieces that work requests give to the device by its address, as long
    /// lists have to be.
    ///
    /// # Errors
    /// As [`alloc_buffer`](Self::alloc_buffer).
    pub fn alloc_mr_list(&self, max_entries: u32) -> Result<MrList<'d, P>, MrError> {
        let octowords = (max_entries as usize).next_multiple_of(LIST_UNIT);
        let memory = self.alloc_aligned(octowords * ENTRY, Access::empty(), LIST_ALIGN)?;
        Ok(MrList {
            memory,
            entries: 0,
            len: 0,
        })
    }
}

impl<P: Platform> Mkey<'_, P> {
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

    /// The purpose that it was made for.
    #[must_use]
    pub fn attr(&self) -> MkeyInitAttr {
        self.attr
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    /// `len` bytes from byte `offset` on for a work request.
    #[must_use]
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge::new(offset, len, self.lkey())
    }

    /// Destroys it, open or not: `mlx5dv_destroy_mkey`. Gives it back if the firmware refuses.
    pub fn destroy(self) -> Result<(), (Self, CommandError)> {
        let this = ManuallyDrop::new(self);
        match this.key.destroy(this.device) {
            Ok(()) => Ok(()),
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }
}

impl<P: Platform> Drop for Mkey<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.key.destroy(self.device) {
            log::warn!("{} stays: {error}", self.rkey());
        }
    }
}

impl<P: Platform> fmt::Debug for Mkey<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mkey")
            .field("lkey", &self.lkey())
            .field("attr", &self.attr)
            .finish_non_exhaustive()
    }
}

/// A list of pieces in memory that the device reads, for [`Batch::mr_list_in_memory`](crate::qp::send::Batch::mr_list_in_memory).
/// It stays as it is until the work request has completed.
#[derive(Debug)]
pub struct MrList<'d, P: Platform> {
    memory: Buffer<'d, P>,
    entries: u32,
    len: u64,
}

impl<P: Platform> MrList<'_, P> {
    /// Replaces the list.
    ///
    /// # Errors
    /// If it has more entries than there is memory for; the list is as it was then.
    pub fn set(&mut self, pieces: &[Sge]) -> Result<(), OutOfRange> {
        let space = self.memory.len();
        let octowords = pieces.len().next_multiple_of(LIST_UNIT);
        let len = octowords.saturating_mul(ENTRY);
        if len > space {
            return Err(OutOfRange {
                offset: 0,
                len,
                size: space,
            });
        }
        for (index, sge) in pieces.iter().enumerate() {
            let entry = data_segment(sge.length, sge.lkey, sge.addr);
            self.memory.copy_in(index * ENTRY, &entry)?;
        }
        let end = pieces.len() * ENTRY;
        self.memory.fill(end, len - end, 0)?;
        self.entries = pieces.len() as u32;
        self.len = pieces.iter().map(|sge| u64::from(sge.length)).sum();
        Ok(())
    }

    /// Its entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of all pieces together.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if there is no piece.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Where the device reads it.
    pub(crate) fn segment(&self) -> Sge {
        Sge::new(self.memory.addr(), 0, self.memory.lkey())
    }
}
