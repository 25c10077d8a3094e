//! Additional reject information: what would have been acceptable, in the form that the reason asks for (IBTA volume 1,
//! table 109).

use super::RejectReason;

/// The additional information of a REJ beside its reason. Numbers lie in the fewest bytes that hold them, big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectInfo<'a> {
    /// There is no additional information.
    None,
    /// With 4, timeout: the node whose request this was, since its receiver may have no other identifier of it.
    CaGuid(u64),
    /// With 12, 18 and 25: a GID that would do.
    Gid([u8; 16]),
    /// With 13 and 19: a LID that would do.
    Lid(u16),
    /// With 14 and 20: a service level.
    ServiceLevel(u8),
    /// With 15 and 21: a traffic class.
    TrafficClass(u8),
    /// With 16 and 22: a hop limit.
    HopLimit(u8),
    /// With 17 and 23: a rate.
    Rate(u8),
    /// With 24: where to go instead, a ClassPortInfo.
    Redirect(&'a [u8]),
    /// With 26: the greatest path MTU, 1 to 5.
    Mtu(u8),
    /// With 31: the class version that is understood.
    ClassVersion(u8),
    /// With 32 and 33: a flow label.
    FlowLabel(u32),
    /// With 28, what the consumer says; with any other reason, what is not in the table.
    Other(&'a [u8]),
}

impl<'a> RejectInfo<'a> {
    /// Reads the information of a reason. What is too short for its reason is [`Other`](Self::Other): it is the other end's
    /// word, and may be anything.
    pub fn parse(reason: RejectReason, info: &'a [u8]) -> Self {
        let other = if info.is_empty() {
            Self::None
        } else {
            Self::Other(info)
        };
        match reason.0 {
            4 => info
                .first_chunk()
                .map_or(other, |guid| Self::CaGuid(u64::from_be_bytes(*guid))),
            12 | 18 | 25 => info.first_chunk().map_or(other, |gid| Self::Gid(*gid)),
            13 | 19 => info
                .first_chunk()
                .map_or(other, |lid| Self::Lid(u16::from_be_bytes(*lid))),
            24 if info.len() >= 72 => Self::Redirect(info),
            32 | 33 => info.first_chunk().map_or(other, |&[high, middle, low]| {
                Self::FlowLabel(u32::from_be_bytes([0, high, middle, low]) & 0xf_ffff)
            }),
            14..=17 | 20..=23 | 26 | 31 => info.first().map_or(other, |&byte| match reason.0 {
                14 | 20 => Self::ServiceLevel(byte),
                15 | 21 => Self::TrafficClass(byte),
                16 | 22 => Self::HopLimit(byte),
                17 | 23 => Self::Rate(byte),
                26 => Self::Mtu(byte),
                _ => Self::ClassVersion(byte),
            }),
            _ => other,
        }
    }

    /// Writes it; returns how many bytes it takes, at most 72. For [`Engine::reject`](crate::engine::Engine::reject).
    pub fn emit(&self, out: &mut [u8; 72]) -> usize {
        let mut put = |bytes: &[u8]| {
            let len = bytes.len().min(out.len());
            out[..len].copy_from_slice(&bytes[..len]);
            len
        };
        match *self {
            Self::None => 0,
            Self::CaGuid(guid) => put(&guid.to_be_bytes()),
            Self::Gid(gid) => put(&gid),
            Self::Lid(lid) => put(&lid.to_be_bytes()),
            Self::FlowLabel(label) => put(&label.to_be_bytes()[1..]),
            Self::ServiceLevel(byte)
            | Self::TrafficClass(byte)
            | Self::HopLimit(byte)
            | Self::Rate(byte)
            | Self::Mtu(byte)
            | Self::ClassVersion(byte) => put(&[byte]),
            Self::Redirect(bytes) | Self::Other(bytes) => put(bytes),
        }
    }
}

impl super::Rej<'_> {
    /// The additional information, as its reason says it is to be read.
    pub fn reject_info(&self) -> RejectInfo<'_> {
        RejectInfo::parse(self.reason(), self.additional_info())
    }
}
