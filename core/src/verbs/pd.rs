//! Protection domains.

use core::fmt;
use core::mem::ManuallyDrop;

use bareverbs_firmware_cmds::domain::{AllocPdIn, DeallocPdIn};

use crate::device::Device;
use crate::platform::Platform;
use crate::types::error::CommandError;
use bareverbs_firmware_cmds::numbers::Pdn;

/// A protection domain: memory regions, queue pairs and shared receive queues work together only inside one.
///
/// Deallocated when dropped. The objects made in it must be gone by then, or the firmware refuses, and the domain stays
/// until the device is closed; [`dealloc`](Self::dealloc) reports that.
pub struct Pd<'d, P: Platform> {
    pub(crate) device: &'d Device<'d, P>,
    pdn: Pdn,
    shared: bool,
}

impl<'d, P: Platform> Device<'d, P> {
    /// Allocates a protection domain: `ibv_alloc_pd`.
    pub fn alloc_pd(&'d self) -> Result<Pd<'d, P>, CommandError> {
        let pdn = self.execute(&AllocPdIn::new())?.pd();
        Ok(Pd {
            device: self,
            pdn: Pdn::from_low_bits(pdn),
            shared: false,
        })
    }

    /// Allocates a protection domain for the objects of a user context (CREATE_UCTX), whose own commands may name it.
    #[doc(hidden)]
    pub fn alloc_pd_of(&'d self, uid: u16) -> Result<Pd<'d, P>, CommandError> {
        let mut command = AllocPdIn::new();
        command.set_uid(uid);
        let pdn = self.execute(&command)?.pd();
        Ok(Pd {
            device: self,
            pdn: Pdn::from_low_bits(pdn),
            shared: false,
        })
    }

    /// The device's default protection domain, which all its users share; it is there as long as one of them is
    /// (librdmacm gives it to ids that are created without one).
    pub fn default_pd(&'d self) -> Result<Pd<'d, P>, CommandError> {
        let mut default = self.default_pd.lock();
        let pdn = match default.pdn {
            Some(pdn) => pdn,
            None => Pdn::from_low_bits(self.execute(&AllocPdIn::new())?.pd()),
        };
        default.pdn = Some(pdn);
        default.users += 1;
        Ok(Pd {
            device: self,
            pdn,
            shared: true,
        })
    }
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Its number.
    #[must_use]
    pub fn pdn(&self) -> Pdn {
        self.pdn
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> &'d Device<'d, P> {
        self.device
    }

    /// Deallocates it: `ibv_dealloc_pd`. Gives it back if the firmware refuses, as it does while it is in use.
    pub fn dealloc(self) -> Result<(), (Self, CommandError)> {
        let this = ManuallyDrop::new(self);
        match this.release() {
            Ok(()) => Ok(()),
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }

    fn release(&self) -> Result<(), CommandError> {
        let mut command = DeallocPdIn::new();
        command.set_pd(self.pdn.number());
        if !self.shared {
            return self.device.execute_no_output(&command);
        }
        let mut default = self.device.default_pd.lock();
        if default.users == 1 {
            self.device.execute_no_output(&command)?;
            default.pdn = None;
        }
        default.users = default.users.saturating_sub(1);
        Ok(())
    }
}

impl<P: Platform> Drop for Pd<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            log::warn!("{} stays allocated: {error}", self.pdn);
            if self.shared {
                // The next user starts afresh; this number is lost until the reset.
                let mut default = self.device.default_pd.lock();
                default.pdn = None;
                default.users = default.users.saturating_sub(1);
            }
        }
    }
}

impl<P: Platform> fmt::Debug for Pd<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd")
            .field("pdn", &self.pdn)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
