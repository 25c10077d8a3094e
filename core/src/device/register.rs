//! The registers that a function has, by its capabilities.

use core::fmt;

use bareverbs_firmware_cmds::register::{McamReg, PcamReg, QcamReg, in_mask};
use bareverbs_firmware_cmds::values::RegisterId;
use zerocopy::{Immutable, IntoBytes};

use crate::device::Device;
use crate::platform::Platform;
use crate::types::error::CommandError;

/// Why a setting or a measurement of the port or the device was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The function does not offer it.
    NotOffered {
        /// The capability that would: a field of the general group, or the register whose bit is missing in the mask of
        /// PCAM, MCAM or QCAM.
        capability: &'static str,
    },
    /// The argument is not one.
    Argument {
        /// The argument and its fault.
        what: &'static str,
    },
    /// The module did not answer: `status` of MCIA (1 no memory, 2 not supported, 3 not connected, 9 bus error).
    Module {
        /// The status.
        status: u8,
    },
    /// The command failed.
    Command(CommandError),
}

impl From<CommandError> for RegisterError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered { capability } => {
                write!(f, "the function does not offer {capability}")
            }
            Self::Argument { what } => write!(f, "{what}"),
            Self::Module { status } => {
                write!(f, "the module does not answer (MCIA status {status})")
            }
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RegisterError {}

impl<P: Platform> Device<'_, P> {
    /// Refuses a register that the function does not have, by the mask of its group.
    pub(super) fn offers(&self, id: RegisterId) -> Result<(), RegisterError> {
        let hca = &self.capabilities().hca;
        let missing = |capability| Err(RegisterError::NotOffered { capability });
        let found = match id {
            RegisterId::Qpts | RegisterId::Qpdpm => {
                if !hca.qcam_reg() {
                    return missing("qcam_reg");
                }
                let read =
                    self.read_register(RegisterId::Qcam, QcamReg::ZERO, QcamReg::as_mut_bytes);
                read?.is_some_and(|qcam| in_mask(qcam.qos_access_reg_cap_mask(), id))
            }
            RegisterId::Qtct | RegisterId::Qetcr => {
                if !hca.ets() {
                    return missing("ets");
                }
                true
            }
            RegisterId::Pplm => {
                if !hca.pcam_reg() {
                    return missing("pcam_reg");
                }
                let read =
                    self.read_register(RegisterId::Pcam, PcamReg::ZERO, PcamReg::as_mut_bytes);
                read?.is_some_and(|pcam| in_mask(pcam.port_access_reg_cap_mask(), id))
            }
            RegisterId::Mtcap | RegisterId::Mtmp | RegisterId::Mpcnt => {
                let mcam = self.mcam()?;
                in_mask(mcam.mng_access_reg_cap_mask(), id)
            }
            _ => true,
        };
        match found {
            true => Ok(()),
            false => missing(id.name()),
        }
    }

    pub(super) fn mcam(&self) -> Result<McamReg, RegisterError> {
        let missing = RegisterError::NotOffered {
            capability: "mcam_reg",
        };
        if !self.capabilities().hca.mcam_reg() {
            return Err(missing);
        }
        self.read_register(RegisterId::Mcam, McamReg::ZERO, McamReg::as_mut_bytes)?
            .ok_or(missing)
    }

    /// Reads a register that the function has to have.
    pub(super) fn read_offered<R: IntoBytes + Immutable + Copy>(
        &self,
        id: RegisterId,
        query: R,
        bytes: impl Fn(&mut R) -> &mut [u8],
    ) -> Result<R, RegisterError> {
        self.offers(id)?;
        self.read_register(id, query, bytes)?
            .ok_or(RegisterError::NotOffered {
                capability: id.name(),
            })
    }
}
