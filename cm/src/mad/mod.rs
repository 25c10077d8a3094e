//! The language of the connection manager: MADs of class 7 (IBTA volume 1, chapters 12 and 13); in [`sa`] that of subnet
//! administration.
//!
//! [`Mad`] is a checked view of 256 bytes from the wire; [`Message`] is what it says. Each message is a plain struct
//! whose `parse` reads it and whose `emit` writes all 256 bytes of a MAD:
//!
//! ```
//! use bareverbs_cm::mad::{Dreq, Mad, Message};
//!
//! let mut mad = [0xa5; 256];
//! let dreq = Dreq { local_comm_id: 0xf5c2488f, remote_comm_id: 0x5a24583d, remote_qpn: 0x11, ..Dreq::ZERO };
//! dreq.emit(7, &mut mad)?;
//! match Mad::new(&mad)?.message()? {
//!     Message::Dreq(dreq) => assert_eq!(dreq.remote_qpn, 0x11),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), bareverbs_cm::mad::MadError>(())
//! ```

mod class_port_info;
mod cma_header;
mod connect;
mod disconnect;
mod ece;
mod fields;
mod path;
mod reject_info;
pub mod sa;
mod sidr;
mod status;

use core::fmt;

pub use class_port_info::ClassPortInfo;
pub use cma_header::CmaHeader;
pub use connect::{Mra, Rej, Rep, Req, Rtu};
pub use disconnect::{Drep, Dreq};
pub use ece::Ece;
pub use path::{Apr, Lap};
pub use reject_info::RejectInfo;
pub use sidr::{SidrRep, SidrReq};
pub use status::{AprStatus, RejectReason, SidrStatus};

/// Length of a MAD. On the wire it is never shorter or longer.
pub const MAD_LEN: usize = 256;
/// Length of the common header, and so the offset of the CM's data.
pub const DATA: usize = 24;
/// Length of the CM's data.
pub const DATA_LEN: usize = MAD_LEN - DATA;

/// Q_Key of QP1, the general services interface.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// QP number of the general services interface, at both ends.
pub const GSI_QPN: u32 = 1;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 7;
pub(crate) const CLASS_VERSION: u8 = 2;
const METHOD_GET: u8 = 0x01;
const METHOD_SEND: u8 = 0x03;
const METHOD_GET_RESP: u8 = 0x81;

/// The fault of a MAD, or of the values for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MadError {
    /// There are `len` bytes where `need` are needed.
    Truncated {
        /// Bytes that are there.
        len: usize,
        /// Bytes that are needed.
        need: usize,
    },
    /// The base version is not 1.
    BaseVersion(u8),
    /// The management class is another one.
    Class(u8),
    /// The class version is not 2.
    ClassVersion(u8),
    /// The method does not go with the attribute.
    Method {
        /// The method.
        method: u8,
        /// The attribute.
        attribute: u16,
    },
    /// No message of the class has this attribute.
    UnknownAttribute(u16),
    /// Another message than the one asked for.
    WrongMessage {
        /// The attribute that is there.
        found: u16,
        /// The attribute that was asked for.
        wanted: u16,
    },
    /// More additional information is announced than fits.
    InfoTooLong {
        /// The announced length.
        len: u8,
        /// The most that fits.
        max: u8,
    },
    /// More private data than the message carries.
    PrivateDataTooLong {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// A value does not fit into its field.
    FieldTooWide {
        /// The field.
        field: &'static str,
        /// Its width.
        bits: u8,
    },
    /// The RDMA CM's header has another version.
    CmaVersion(u8),
    /// The RDMA CM's header has another IP version than 4 and 6.
    IpVersion(u8),
    /// Source and destination are of different address families.
    MixedFamilies,
    /// The message spreads over several MADs.
    Segmented,
}

impl fmt::Display for MadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { len, need } => write!(f, "{len} bytes where {need} are needed"),
            Self::BaseVersion(version) => write!(f, "MAD base version {version}, not 1"),
            Self::Class(class) => write!(f, "management class {class:#04x} is another one"),
            Self::ClassVersion(version) => write!(f, "class version {version}, not 2"),
            Self::Method { method, attribute } => {
                write!(f, "method {method:#04x} with attribute {attribute:#06x}")
            }
            Self::UnknownAttribute(attribute) => {
                write!(f, "no message has attribute {attribute:#06x}")
            }
            Self::WrongMessage { found, wanted } => {
                write!(f, "attribute {found:#06x} where {wanted:#06x} was expected")
            }
            Self::InfoTooLong { len, max } => write!(
                f,
                "{len} bytes of additional information, at most {max} fit"
            ),
            Self::PrivateDataTooLong { len, max } => {
                write!(f, "{len} bytes of private data, at most {max} fit")
            }
            Self::FieldTooWide { field, bits } => {
                write!(f, "the value of {field} does not fit into {bits} bits")
            }
            Self::CmaVersion(version) => write!(f, "RDMA CM header version {version:#04x}, not 0"),
            Self::IpVersion(version) => write!(f, "IP version {version} in the RDMA CM header"),
            Self::MixedFamilies => {
                f.write_str("source and destination are of different address families")
            }
            Self::Segmented => f.write_str("the message spreads over several MADs"),
        }
    }
}

impl core::error::Error for MadError {}

/// Kinds of CM messages, by attribute ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Attribute {
    /// ClassPortInfo.
    ClassPortInfo = 0x0001,
    /// Connection request.
    Req = 0x0010,
    /// Message receipt acknowledgment.
    Mra = 0x0011,
    /// Reject.
    Rej = 0x0012,
    /// Reply.
    Rep = 0x0013,
    /// Ready to use.
    Rtu = 0x0014,
    /// Disconnection request.
    Dreq = 0x0015,
    /// Disconnection reply.
    Drep = 0x0016,
    /// Service ID resolution request.
    SidrReq = 0x0017,
    /// Service ID resolution reply.
    SidrRep = 0x0018,
    /// Load alternate path.
    Lap = 0x0019,
    /// Alternate path response.
    Apr = 0x001a,
}

impl Attribute {
    /// The kind of message that has this attribute ID.
    pub const fn from_id(id: u16) -> Option<Self> {
        Some(match id {
            0x0001 => Self::ClassPortInfo,
            0x0010 => Self::Req,
            0x0011 => Self::Mra,
            0x0012 => Self::Rej,
            0x0013 => Self::Rep,
            0x0014 => Self::Rtu,
            0x0015 => Self::Dreq,
            0x0016 => Self::Drep,
            0x0017 => Self::SidrReq,
            0x0018 => Self::SidrRep,
            0x0019 => Self::Lap,
            0x001a => Self::Apr,
            _ => return None,
        })
    }

    /// The message's name as the IBTA writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClassPortInfo => "ClassPortInfo",
            Self::Req => "REQ",
            Self::Mra => "MRA",
            Self::Rej => "REJ",
            Self::Rep => "REP",
            Self::Rtu => "RTU",
            Self::Dreq => "DREQ",
            Self::Drep => "DREP",
            Self::SidrReq => "SIDR_REQ",
            Self::SidrRep => "SIDR_REP",
            Self::Lap => "LAP",
            Self::Apr => "APR",
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The common header of a MAD, as far as it varies within the CM's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Get, Send or GetResp.
    pub method: u8,
    /// Status of an answer.
    pub status: u16,
    /// Class specific part of the status.
    pub class_specific: u16,
    /// Transaction ID. Informational: the CM matches by communication IDs.
    pub transaction_id: u64,
    /// The message.
    pub attribute: u16,
    /// 0, or the options of the enhanced connection establishment.
    pub modifier: u32,
}

impl Header {
    /// The header of a CM message.
    #[inline]
    pub const fn send(attribute: Attribute, transaction_id: u64) -> Self {
        Self {
            method: METHOD_SEND,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute: attribute as u16,
            modifier: 0,
        }
    }

    /// The header of the answer to a Get of ClassPortInfo.
    pub const fn get_resp(attribute: Attribute, transaction_id: u64) -> Self {
        Self {
            method: METHOD_GET_RESP,
            ..Self::send(attribute, transaction_id)
        }
    }

    /// Writes the header and zeroes the data after it: a MAD is always sent whole.
    #[inline]
    pub fn emit(&self, mad: &mut [u8; MAD_LEN]) {
        mad.fill(0);
        self.rewrite(mad);
    }

    /// Writes the header over the one that is there and leaves the data alone.
    #[inline]
    pub fn rewrite(&self, mad: &mut [u8; MAD_LEN]) {
        mad[0] = BASE_VERSION;
        mad[1] = CLASS_CM;
        mad[2] = CLASS_VERSION;
        mad[3] = self.method;
        mad[4..6].copy_from_slice(&self.status.to_be_bytes());
        mad[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        mad[8..16].copy_from_slice(&self.transaction_id.to_be_bytes());
        mad[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        mad[18..20].fill(0);
        mad[20..24].copy_from_slice(&self.modifier.to_be_bytes());
    }
}

/// A MAD of the CM's class, checked: right length, versions, class, and a method that goes with its attribute.
#[derive(Debug, Clone, Copy)]
pub struct Mad<'a> {
    bytes: &'a [u8; MAD_LEN],
    attribute: Attribute,
}

impl<'a> Mad<'a> {
    /// Checks what came from the wire. Bytes after the 256th are ignored.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, MadError> {
        let len = bytes.len();
        let Some(bytes) = bytes.first_chunk::<MAD_LEN>() else {
            return Err(MadError::Truncated { len, need: MAD_LEN });
        };
        if bytes[0] != BASE_VERSION {
            return Err(MadError::BaseVersion(bytes[0]));
        }
        if bytes[1] != CLASS_CM {
            return Err(MadError::Class(bytes[1]));
        }
        if bytes[2] != CLASS_VERSION {
            return Err(MadError::ClassVersion(bytes[2]));
        }
        let id = u16::from_be_bytes([bytes[16], bytes[17]]);
        let Some(attribute) = Attribute::from_id(id) else {
            return Err(MadError::UnknownAttribute(id));
        };
        let fits = match attribute {
            Attribute::ClassPortInfo => bytes[3] == METHOD_GET || bytes[3] == METHOD_GET_RESP,
            _ => bytes[3] == METHOD_SEND,
        };
        if !fits {
            return Err(MadError::Method {
                method: bytes[3],
                attribute: id,
            });
        }
        Ok(Self { bytes, attribute })
    }

    /// The whole MAD.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8; MAD_LEN] {
        self.bytes
    }

    /// The kind of message.
    #[inline]
    pub const fn attribute(&self) -> Attribute {
        self.attribute
    }

    /// The transaction ID.
    #[inline]
    pub const fn transaction_id(&self) -> u64 {
        fields::get::<64, 64>(self.bytes)
    }

    /// The attribute modifier: 0, or the options of the enhanced connection establishment.
    #[inline]
    pub const fn modifier(&self) -> u32 {
        fields::get::<160, 32>(self.bytes) as u32
    }

    /// Returns `true` if it is a question (ClassPortInfo) rather than an answer.
    #[inline]
    pub const fn is_get(&self) -> bool {
        self.bytes[3] == METHOD_GET
    }

    /// The common header.
    pub const fn header(&self) -> Header {
        Header {
            method: self.bytes[3],
            status: fields::get::<32, 16>(self.bytes) as u16,
            class_specific: fields::get::<48, 16>(self.bytes) as u16,
            transaction_id: self.transaction_id(),
            attribute: self.attribute as u16,
            modifier: self.modifier(),
        }
    }

    fn expect(&self, wanted: Attribute) -> Result<(), MadError> {
        if self.attribute == wanted {
            Ok(())
        } else {
            Err(MadError::WrongMessage {
                found: self.attribute as u16,
                wanted: wanted as u16,
            })
        }
    }

    /// The content of the MAD.
    #[inline]
    pub fn message(&self) -> Result<Message<'a>, MadError> {
        let mad = self.bytes;
        Ok(match self.attribute {
            Attribute::ClassPortInfo => Message::ClassPortInfo(ClassPortInfo::read(mad)),
            Attribute::Req => Message::Req(Req::read(mad)),
            Attribute::Mra => Message::Mra(Mra::read(mad)),
            Attribute::Rej => Message::Rej(bounded(Rej::read(mad), |rej| rej.info_len)?),
            Attribute::Rep => Message::Rep(Rep::read(mad)),
            Attribute::Rtu => Message::Rtu(Rtu::read(mad)),
            Attribute::Dreq => Message::Dreq(Dreq::read(mad)),
            Attribute::Drep => Message::Drep(Drep::read(mad)),
            Attribute::SidrReq => Message::SidrReq(SidrReq::read(mad)),
            Attribute::SidrRep => {
                Message::SidrRep(bounded(SidrRep::read(mad), |rep| rep.info_len)?)
            }
            Attribute::Lap => Message::Lap(Lap::read(mad)),
            Attribute::Apr => Message::Apr(bounded(Apr::read(mad), |apr| apr.info_len)?),
        })
    }
}

/// The sender's name for the connection in a REQ of another class version, which has it in the same place. Nothing else of
/// such a REQ can be understood, but its sender can be answered.
pub(crate) fn foreign_req(bytes: &[u8]) -> Option<(u32, u64)> {
    let mad = bytes.first_chunk::<MAD_LEN>()?;
    let is_req = mad[0] == BASE_VERSION
        && mad[1] == CLASS_CM
        && mad[2] != CLASS_VERSION
        && mad[3] == METHOD_SEND
        && mad[16..18] == (Attribute::Req as u16).to_be_bytes();
    is_req.then(|| {
        (
            fields::get::<{ DATA * 8 }, 32>(mad) as u32,
            fields::get::<64, 64>(mad),
        )
    })
}

/// The length fields of additional information can say more than the 72 bytes that are there.
pub(crate) fn bounded<T>(message: T, info_len: impl Fn(&T) -> u8) -> Result<T, MadError> {
    const MAX: u8 = 72;
    let len = info_len(&message);
    if len > MAX {
        Err(MadError::InfoTooLong { len, max: MAX })
    } else {
        Ok(message)
    }
}

/// Everything that a CM may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// ClassPortInfo.
    ClassPortInfo(ClassPortInfo<'a>),
    /// Connection request.
    Req(Req<'a>),
    /// Message receipt acknowledgment.
    Mra(Mra<'a>),
    /// Reject.
    Rej(Rej<'a>),
    /// Reply.
    Rep(Rep<'a>),
    /// Ready to use.
    Rtu(Rtu<'a>),
    /// Disconnection request.
    Dreq(Dreq<'a>),
    /// Disconnection reply.
    Drep(Drep<'a>),
    /// Service ID resolution request.
    SidrReq(SidrReq<'a>),
    /// Service ID resolution reply.
    SidrRep(SidrRep<'a>),
    /// Load alternate path.
    Lap(Lap<'a>),
    /// Alternate path response.
    Apr(Apr<'a>),
}

impl Message<'_> {
    /// The kind of message.
    pub const fn attribute(&self) -> Attribute {
        match self {
            Self::ClassPortInfo(_) => Attribute::ClassPortInfo,
            Self::Req(_) => Attribute::Req,
            Self::Mra(_) => Attribute::Mra,
            Self::Rej(_) => Attribute::Rej,
            Self::Rep(_) => Attribute::Rep,
            Self::Rtu(_) => Attribute::Rtu,
            Self::Dreq(_) => Attribute::Dreq,
            Self::Drep(_) => Attribute::Drep,
            Self::SidrReq(_) => Attribute::SidrReq,
            Self::SidrRep(_) => Attribute::SidrRep,
            Self::Lap(_) => Attribute::Lap,
            Self::Apr(_) => Attribute::Apr,
        }
    }

    /// Writes the whole MAD with a header of one's own.
    pub fn emit(&self, header: &Header, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError> {
        let tid = header.transaction_id;
        match self {
            Self::ClassPortInfo(message) => message.emit(tid, mad),
            Self::Req(message) => message.emit(tid, mad),
            Self::Mra(message) => message.emit(tid, mad),
            Self::Rej(message) => message.emit(tid, mad),
            Self::Rep(message) => message.emit(tid, mad),
            Self::Rtu(message) => message.emit(tid, mad),
            Self::Dreq(message) => message.emit(tid, mad),
            Self::Drep(message) => message.emit(tid, mad),
            Self::SidrReq(message) => message.emit(tid, mad),
            Self::SidrRep(message) => message.emit(tid, mad),
            Self::Lap(message) => message.emit(tid, mad),
            Self::Apr(message) => message.emit(tid, mad),
        }?;
        header.rewrite(mad);
        Ok(())
    }
}
