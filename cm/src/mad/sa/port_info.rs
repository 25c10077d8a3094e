//! ClassPortInfo of subnet administration (IBTA volume 1, chapter 13.4.8.1), as far as it is of use to who asks.

use super::{SA_DATA, SaAttribute, SaHeader};
use crate::mad::{MAD_LEN, MadError, fields};

/// Bit of [`SaPortInfo::capability_mask2`]: ports may be send-only full members of multicast groups.
const SEND_ONLY_FULL_MEMBERS: u32 = 1 << 12;

/// The data of subnet administration itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SaPortInfo {
    /// Base version of the MADs, 1.
    pub base_version: u8,
    /// Version of the class, 2.
    pub class_version: u8,
    /// Capabilities.
    pub capability_mask: u16,
    /// More capabilities, 27 bits.
    pub capability_mask2: u32,
    /// Exponent of the longest time (4.096 us times 2 to it) to an answer.
    pub response_time: u8,
}

impl SaPortInfo {
    pub(crate) fn read(mad: &[u8; MAD_LEN]) -> Self {
        Self {
            base_version: mad[SA_DATA],
            class_version: mad[SA_DATA + 1],
            capability_mask: fields::get::<{ (SA_DATA + 2) * 8 }, 16>(mad) as u16,
            capability_mask2: fields::get::<{ (SA_DATA + 4) * 8 }, 27>(mad) as u32,
            response_time: fields::get::<{ (SA_DATA + 7) * 8 + 3 }, 5>(mad) as u8,
        }
    }

    /// Writes the whole MAD, headers and padding included; where to be redirected to, and where traps go, is zero.
    pub fn emit(&self, header: &SaHeader, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError> {
        header.emit(SaAttribute::ClassPortInfo, mad);
        mad[SA_DATA] = self.base_version;
        mad[SA_DATA + 1] = self.class_version;
        mad[SA_DATA + 2..SA_DATA + 4].copy_from_slice(&self.capability_mask.to_be_bytes());
        let fits = fields::put::<{ (SA_DATA + 4) * 8 }, 27>(mad, self.capability_mask2.into());
        if !fits {
            return Err(MadError::FieldTooWide {
                field: "capability_mask2",
                bits: 27,
            });
        }
        if !fields::put::<{ (SA_DATA + 7) * 8 + 3 }, 5>(mad, self.response_time.into()) {
            return Err(MadError::FieldTooWide {
                field: "response_time",
                bits: 5,
            });
        }
        Ok(())
    }

    /// Returns `true` if ports may be [send-only full members](super::JoinState::SendOnlyFullMember) of multicast groups.
    pub const fn has_send_only_full_members(&self) -> bool {
        self.capability_mask2 & SEND_ONLY_FULL_MEMBERS != 0
    }
}
