//! Null memory regions: a source of zeros, and a sink for what is not wanted.

use core::fmt;
use core::marker::PhantomData;

use bareverbs_firmware_cmds::numbers::LKey;

use crate::platform::Platform;
use crate::types::sge::Sge;
use crate::verbs::mr::MrError;
use crate::verbs::pd::Pd;

/// A null memory region, as `ibv_alloc_null_mr` makes it: what is written to it is discarded, and zeros are read from it,
/// at every address. For local use: peers cannot reach it. There is nothing to free.
#[derive(Clone, Copy)]
pub struct NullMr<'d> {
    lkey: LKey,
    device: PhantomData<&'d ()>,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// A null memory region: `ibv_alloc_null_mr`. Its key is the device's key for dumping and filling
    /// (QUERY_SPECIAL_CONTEXTS), which is the same in every protection domain.
    ///
    /// # Errors
    /// [`MrError::Unsupported`], and the firmware's.
    pub fn alloc_null_mr(&self) -> Result<NullMr<'d>, MrError> {
        if !self.device.capabilities().has_null_mr() {
            return Err(MrError::Unsupported {
                what: "null regions (cmd_hca_cap.dump_fill_mkey)",
            });
        }
        let special = self.device.query_special_contexts();
        Ok(NullMr {
            lkey: LKey(special.map_err(MrError::Command)?.dump_fill_mkey()),
            device: PhantomData,
        })
    }
}

impl NullMr<'_> {
    /// The local key.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        self.lkey
    }

    /// `length` bytes for a work request, below 2^31.
    #[must_use]
    pub fn sge(&self, length: u32) -> Sge {
        Sge::new(0, length, self.lkey)
    }
}

impl fmt::Debug for NullMr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NullMr")
            .field("lkey", &self.lkey)
            .finish_non_exhaustive()
    }
}
