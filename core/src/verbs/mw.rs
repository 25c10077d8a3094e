//! Memory windows: keys for a part of a region, which work requests open and close.
//!
//! A window is an indirect memory key of one entry, which a bind lets point into a region. What goes through the window
//! has to be allowed by its key and by the region's, which stays the region's: a window whose region was deregistered lets
//! nothing through.

use core::fmt;
use core::mem::ManuallyDrop;

use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, Mkc};
use bareverbs_firmware_cmds::numbers::{Qpn, RKey};
use bareverbs_firmware_cmds::values::MkeyAccessMode;

use crate::device::{Device, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::verbs::mr::{Key, MrError};
use crate::verbs::pd::Pd;
use crate::verbs::qp::{MwType, WINDOW_LIST};

/// A memory window: `struct ibv_mw`. Deallocated when dropped.
pub struct Mw<'d, P: Platform> {
    device: &'d Device<'d, P>,
    mkey: Key,
    kind: MwType,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Allocates a memory window, which is closed: `ibv_alloc_mw`.
    ///
    /// # Errors
    /// [`MrError::Unsupported`], and the firmware's.
    pub fn alloc_mw(&self, kind: MwType) -> Result<Mw<'d, P>, MrError> {
        let device = self.device;
        if !device.capabilities().has_memory_windows() {
            return Err(MrError::Unsupported {
                what: "memory windows",
            });
        }
        let variant = Key::variant();
        let mut command = CreateMkeyIn::new();
        command.set_translations_octword_actual_size(0);
        let mkc: &mut Mkc = command.memory_key_mkey_entry_mut();
        mkc.set_free(true)
            .set_umr_en(true)
            .set_access_mode_1_0(MkeyAccessMode::Klms.low())
            .set_lr(true)
            .set_en_rinval(kind == MwType::Type2)
            .set_qpn(Qpn::ANY.number())
            .set_mkey_7_0(variant)
            .set_pd(self.pdn().number())
            .set_translations_octword_size(WINDOW_LIST);
        let out = device
            .execute_with(&command, TailIn::Qwords(0, &mut |_| 0), &mut [])
            .map_err(MrError::Command)?;
        Ok(Mw {
            device,
            mkey: Key::of_index(out.mkey_index(), variant),
            kind,
        })
    }
}

impl<P: Platform> Mw<'_, P> {
    /// The key that it was allocated with. A bind gives it another low byte.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.mkey.rkey()
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> MwType {
        self.kind
    }

    /// Deallocates it, bound or not: `ibv_dealloc_mw`. Gives it back if the firmware refuses.
    pub fn dealloc(self) -> Result<(), (Self, CommandError)> {
        let this = ManuallyDrop::new(self);
        match this.mkey.destroy(this.device) {
            Ok(()) => Ok(()),
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }
}

impl<P: Platform> Drop for Mw<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.mkey.destroy(self.device) {
            log::warn!("{} stays: {error}", self.rkey());
        }
    }
}

impl<P: Platform> fmt::Debug for Mw<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mw")
            .field("rkey", &self.rkey())
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
