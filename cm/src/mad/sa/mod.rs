//! The language of subnet administration: MADs of class 3 (IBTA volume 1, chapter 15). Tables spread over several MADs
//! ([`Segment`]).
//!
//! A question names what it asks about by the components of a record that count, as bits of a mask; the answer is the record.
//!
//! ```
//! use bareverbs_cm::mad::MAD_LEN;
//! use bareverbs_cm::mad::sa::{PathRecord, SaHeader, SaMad, SaMethod};
//!
//! let asked = PathRecord { dgid: [2; 16], sgid: [1; 16], ..PathRecord::ZERO };
//! let mut mad = [0xa5; MAD_LEN];
//! asked.emit(&SaHeader::request(SaMethod::Get, 7, PathRecord::DGID | PathRecord::SGID), &mut mad)?;
//! assert_eq!(SaMad::new(&mad)?.path_record()?, asked);
//! # Ok::<(), bareverbs_cm::mad::MadError>(())
//! ```

mod inform_info;
mod mc_member_record;
mod node_record;
mod notice;
mod path_record;
mod port_info;
mod redirection;
mod rmpp;
mod service_record;
mod status;

pub use inform_info::{InformInfo, InformInfoRecord};
pub use mc_member_record::{JoinState, McMemberRecord};
pub use node_record::NodeRecord;
pub use notice::{Notice, Trap};
pub use path_record::PathRecord;
pub use port_info::SaPortInfo;
pub use redirection::SaRedirection;
pub use rmpp::{RmppStatus, RmppType, SEGMENT_DATA, Segment};
pub use service_record::ServiceRecord;
pub use status::SaStatus;

use super::{BASE_VERSION, MAD_LEN, MadError, fields};

/// Management class of subnet administration.
pub const SA_CLASS: u8 = 3;
const SA_CLASS_VERSION: u8 = 2;
/// Length of the headers of a MAD, of RMPP and of subnet administration, and so the offset of the record.
pub const SA_DATA: usize = 56;

const RMPP_FLAGS: usize = 26;
/// The message spreads over several MADs, or is part of the protocol that does so.
const RMPP_ACTIVE: u8 = 1;

/// The question, or the kind of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SaMethod {
    /// Asks for one record.
    Get = 0x01,
    /// Makes or changes a record.
    Set = 0x02,
    /// Tells of what has happened.
    Report = 0x06,
    /// Asks for all records that fit; on acknowledgements of the answer too.
    GetTable = 0x12,
    /// Takes a record away.
    Delete = 0x15,
    /// Answer to `Get` and `Set`.
    GetResp = 0x81,
    /// Answer to `Report`.
    ReportResp = 0x86,
    /// Answer to `GetTable`, in segments.
    GetTableResp = 0x92,
    /// Answer to `Delete`.
    DeleteResp = 0x95,
}

impl SaMethod {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x01 => Self::Get,
            0x02 => Self::Set,
            0x06 => Self::Report,
            0x12 => Self::GetTable,
            0x15 => Self::Delete,
            0x81 => Self::GetResp,
            0x86 => Self::ReportResp,
            0x92 => Self::GetTableResp,
            0x95 => Self::DeleteResp,
            _ => return None,
        })
    }

    /// The method of the answer; an answer's is its own.
    #[must_use]
    pub const fn response(self) -> Self {
        match self {
            Self::Get | Self::Set | Self::GetResp => Self::GetResp,
            Self::Report | Self::ReportResp => Self::ReportResp,
            Self::GetTable | Self::GetTableResp => Self::GetTableResp,
            Self::Delete | Self::DeleteResp => Self::DeleteResp,
        }
    }
}

/// Kinds of records, by attribute ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum SaAttribute {
    /// ClassPortInfo.
    ClassPortInfo = 0x0001,
    /// An event.
    Notice = 0x0002,
    /// A subscription to notices.
    InformInfo = 0x0003,
    /// A node of the subnet, by one of its ports.
    NodeRecord = 0x0011,
    /// A service that a port offers.
    ServiceRecord = 0x0031,
    /// A path between two ports.
    PathRecord = 0x0035,
    /// A port's membership of a multicast group.
    McMemberRecord = 0x0038,
    /// A subscription and whose it is.
    InformInfoRecord = 0x00f3,
}

impl SaAttribute {
    const fn from_id(id: u16) -> Option<Self> {
        Some(match id {
            0x0001 => Self::ClassPortInfo,
            0x0002 => Self::Notice,
            0x0003 => Self::InformInfo,
            0x0011 => Self::NodeRecord,
            0x0031 => Self::ServiceRecord,
            0x0035 => Self::PathRecord,
            0x0038 => Self::McMemberRecord,
            0x00f3 => Self::InformInfoRecord,
            _ => return None,
        })
    }
}

/// The headers of a MAD for subnet administration, as far as they vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaHeader {
    /// The question, or the kind of answer.
    pub method: SaMethod,
    /// Of an answer: how it went.
    pub status: SaStatus,
    /// Comes back with the answer.
    pub transaction_id: u64,
    /// 0; trusted requests have the subnet manager's key.
    pub sm_key: u64,
    /// Distance of records in units of 8 bytes, where an answer may have several.
    pub attribute_offset: u16,
    /// The components of the record that count, one bit each.
    pub component_mask: u64,
}

impl SaHeader {
    /// The header of a question in which these components of the record count.
    pub const fn request(method: SaMethod, transaction_id: u64, component_mask: u64) -> Self {
        Self {
            method,
            status: SaStatus::SUCCESS,
            transaction_id,
            sm_key: 0,
            attribute_offset: 0,
            component_mask,
        }
    }

    /// Writes the headers and zeroes what follows: a MAD is always sent whole.
    pub fn emit(&self, attribute: SaAttribute, mad: &mut [u8; MAD_LEN]) {
        mad.fill(0);
        mad[0] = BASE_VERSION;
        mad[1] = SA_CLASS;
        mad[2] = SA_CLASS_VERSION;
        mad[3] = self.method as u8;
        mad[4..6].copy_from_slice(&self.status.0.to_be_bytes());
        mad[8..16].copy_from_slice(&self.transaction_id.to_be_bytes());
        mad[16..18].copy_from_slice(&(attribute as u16).to_be_bytes());
        mad[36..44].copy_from_slice(&self.sm_key.to_be_bytes());
        mad[44..46].copy_from_slice(&self.attribute_offset.to_be_bytes());
        mad[48..56].copy_from_slice(&self.component_mask.to_be_bytes());
    }
}

/// A MAD for subnet administration, checked: right length, versions, class, a method and an attribute that are known here, and
/// nothing of it in other MADs.
#[derive(Debug, Clone, Copy)]
pub struct SaMad<'a> {
    bytes: &'a [u8; MAD_LEN],
    method: SaMethod,
    attribute: SaAttribute,
}

impl<'a> SaMad<'a> {
    /// Checks what came from the wire. Bytes after the 256th are ignored.
    pub fn new(bytes: &'a [u8]) -> Result<Self, MadError> {
        let mad = Self::any(bytes)?;
        if mad.bytes[RMPP_FLAGS] & RMPP_ACTIVE != 0 {
            return Err(MadError::Segmented);
        }
        Ok(mad)
    }

    /// The same, whether the message is in other MADs too or not.
    #[inline(always)]
    fn any(bytes: &'a [u8]) -> Result<Self, MadError> {
        let len = bytes.len();
        let Some(bytes) = bytes.first_chunk::<MAD_LEN>() else {
            return Err(MadError::Truncated { len, need: MAD_LEN });
        };
        if bytes[0] != BASE_VERSION {
            return Err(MadError::BaseVersion(bytes[0]));
        }
        if bytes[1] != SA_CLASS {
            return Err(MadError::Class(bytes[1]));
        }
        if bytes[2] != SA_CLASS_VERSION {
            return Err(MadError::ClassVersion(bytes[2]));
        }
        let id = u16::from_be_bytes([bytes[16], bytes[17]]);
        let attribute = SaAttribute::from_id(id).ok_or(MadError::UnknownAttribute(id))?;
        let method = SaMethod::from_number(bytes[3]).ok_or(MadError::Method {
            method: bytes[3],
            attribute: id,
        })?;
        Ok(Self {
            bytes,
            method,
            attribute,
        })
    }

    /// The kind of record that it is about.
    pub const fn attribute(&self) -> SaAttribute {
        self.attribute
    }

    /// The headers.
    pub const fn header(&self) -> SaHeader {
        SaHeader {
            method: self.method,
            status: SaStatus(fields::get::<32, 16>(self.bytes) as u16),
            transaction_id: fields::get::<64, 64>(self.bytes),
            sm_key: fields::get::<{ 36 * 8 }, 64>(self.bytes),
            attribute_offset: fields::get::<{ 44 * 8 }, 16>(self.bytes) as u16,
            component_mask: fields::get::<{ 48 * 8 }, 64>(self.bytes),
        }
    }

    /// The path that it is about.
    pub fn path_record(&self) -> Result<PathRecord, MadError> {
        self.expect(SaAttribute::PathRecord)?;
        Ok(PathRecord::read(self.bytes))
    }

    /// The membership that it is about.
    pub fn mc_member_record(&self) -> Result<McMemberRecord, MadError> {
        self.expect(SaAttribute::McMemberRecord)?;
        Ok(McMemberRecord::read(self.bytes))
    }

    /// The data of subnet administration itself.
    pub fn port_info(&self) -> Result<SaPortInfo, MadError> {
        self.expect(SaAttribute::ClassPortInfo)?;
        Ok(SaPortInfo::read(self.bytes))
    }

    /// Where to ask instead, of an answer whose status says so: its data are those of ClassPortInfo, whatever was asked.
    pub fn redirection(&self) -> Option<SaRedirection> {
        let redirected = self.header().status == SaStatus::REDIRECT;
        redirected.then(|| SaRedirection::read(self.bytes))
    }

    /// The subscription that it is about.
    pub fn inform_info(&self) -> Result<InformInfo, MadError> {
        self.expect(SaAttribute::InformInfo)?;
        Ok(InformInfo::read(self.bytes))
    }

    /// The event that it tells of.
    pub fn notice(&self) -> Result<Notice, MadError> {
        self.expect(SaAttribute::Notice)?;
        Ok(Notice::read(self.bytes))
    }

    /// The service that it is about.
    pub fn service_record(&self) -> Result<ServiceRecord, MadError> {
        self.expect(SaAttribute::ServiceRecord)?;
        Ok(ServiceRecord::read(self.bytes))
    }

    fn expect(&self, wanted: SaAttribute) -> Result<(), MadError> {
        if self.attribute == wanted {
            Ok(())
        } else {
            Err(MadError::WrongMessage {
                found: self.attribute as u16,
                wanted: wanted as u16,
            })
        }
    }
}

/// Declares a record: its bit fields, its GIDs, and the bits of its components in the mask. Offsets are those of the IBTA's
/// tables: a byte of the record, a bit in it from the most significant one, a width.
macro_rules! record {
    (
        $(#[$doc:meta])*
        $name:ident,
        bits { $( $(#[$fdoc:meta])* $field:ident: $ty:ty = $byte:literal, $bit:literal, $width:literal; )* }
        gids { $( $(#[$gdoc:meta])* $gid:ident = $at:literal; )* }
        $( bytes { $( $(#[$adoc:meta])* $array:ident: $len:literal = $start:literal; )* } )?
        components { $( $(#[$cdoc:meta])* $component:ident = $mask:expr; )* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$fdoc])* pub $field: $ty, )*
            $( $(#[$gdoc])* pub $gid: [u8; 16], )*
            $( $( $(#[$adoc])* pub $array: [u8; $len], )* )?
        }

        impl $name {
            /// The record with all fields zero.
            pub const ZERO: Self = Self { $( $field: 0, )* $( $gid: [0; 16], )* $( $( $array: [0; $len], )* )? };

            $( $(#[$cdoc])* pub const $component: u64 = $mask; )*

            pub(crate) fn read(mad: &[u8; $crate::mad::MAD_LEN]) -> Self {
                Self {
                    $( $field: $crate::mad::fields::get::<{ ($crate::mad::sa::SA_DATA + $byte) * 8 + $bit }, $width>(mad) as $ty, )*
                    $( $gid: $crate::mad::fields::bytes::<{ $crate::mad::sa::SA_DATA - $crate::mad::DATA + $at }, 16>(mad), )*
                    $( $( $array: $crate::mad::fields::bytes::<{ $crate::mad::sa::SA_DATA - $crate::mad::DATA + $start }, $len>(mad), )* )?
                }
            }

            /// Writes the whole MAD, headers and padding included.
            pub fn emit(
                &self,
                header: &$crate::mad::sa::SaHeader,
                mad: &mut [u8; $crate::mad::MAD_LEN],
            ) -> Result<(), $crate::mad::MadError> {
                header.emit($crate::mad::sa::SaAttribute::$name, mad);
                $(
                    if !$crate::mad::fields::put::<{ ($crate::mad::sa::SA_DATA + $byte) * 8 + $bit }, $width>(mad, u64::from(self.$field)) {
                        return Err($crate::mad::MadError::FieldTooWide { field: stringify!($field), bits: $width });
                    }
                )*
                $( mad[$crate::mad::sa::SA_DATA + $at..$crate::mad::sa::SA_DATA + $at + 16].copy_from_slice(&self.$gid); )*
                $( $( mad[$crate::mad::sa::SA_DATA + $start..$crate::mad::sa::SA_DATA + $start + $len].copy_from_slice(&self.$array); )* )?
                Ok(())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ZERO
            }
        }
    };
}
use record;
