//! The protocol by which a message spreads over several MADs: RMPP (IBTA volume 1, chapter 13.6).

use super::{RMPP_ACTIVE, RMPP_FLAGS, SA_DATA, SaAttribute, SaHeader, SaMad};
use crate::mad::{MAD_LEN, MadError};

const VERSION: usize = 24;
const TYPE: usize = 25;
const STATUS: usize = 27;
/// Number of a segment.
const FIRST_DWORD: usize = 28;
/// Length of what is in the message, or the end of the window.
const SECOND_DWORD: usize = 32;

const RMPP_VERSION: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// The bytes of the table in a segment.
pub const SEGMENT_DATA: usize = MAD_LEN - SA_DATA;

/// The kind of a MAD of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RmppType {
    /// A part of the message.
    Data = 1,
    /// The segments that have arrived, and those that may be sent.
    Ack = 2,
    /// The receiver has too little memory.
    Stop = 3,
    /// The transaction ends because of an error.
    Abort = 4,
}

/// Why a transfer ends early (IBTA volume 1, chapter 13.6.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RmppStatus(pub u8);

impl RmppStatus {
    /// It does not end early.
    pub const NORMAL: Self = Self(0);
    /// Too little memory.
    pub const NO_RESOURCES: Self = Self(1);
    /// It takes too long.
    pub const TOO_LONG: Self = Self(118);
    /// The last segment and the length do not agree.
    pub const BAD_LENGTH: Self = Self(119);
    /// The first segment and its number do not agree.
    pub const BAD_SEGMENT: Self = Self(120);
    /// No such type of MAD.
    pub const BAD_TYPE: Self = Self(121);
    /// A status where there should be none.
    pub const BAD_STATUS: Self = Self(124);
    /// Another version of the protocol.
    pub const VERSION: Self = Self(125);
}

/// A MAD of the protocol, checked as [`SaMad`] is.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a>(SaMad<'a>);

impl<'a> Segment<'a> {
    /// Checks what came from the wire.
    ///
    /// # Errors
    /// If it is no MAD of subnet administration that is known here.
    pub fn new(bytes: &'a [u8]) -> Result<Self, MadError> {
        SaMad::any(bytes).map(Self)
    }

    /// The kind of record in the message.
    pub const fn attribute(&self) -> SaAttribute {
        self.0.attribute()
    }

    /// The headers.
    pub const fn header(&self) -> SaHeader {
        self.0.header()
    }

    /// Returns `true` if the MAD uses RMPP.
    pub const fn is_active(&self) -> bool {
        self.0.bytes[RMPP_FLAGS] & RMPP_ACTIVE != 0
    }

    /// Version of the protocol: 1.
    pub const fn has_version(&self) -> bool {
        self.0.bytes[VERSION] == RMPP_VERSION
    }

    /// The kind of the MAD.
    pub const fn kind(&self) -> Option<RmppType> {
        Some(match self.0.bytes[TYPE] {
            1 => RmppType::Data,
            2 => RmppType::Ack,
            3 => RmppType::Stop,
            4 => RmppType::Abort,
            _ => return None,
        })
    }

    /// Why the transfer ends.
    pub const fn status(&self) -> RmppStatus {
        RmppStatus(self.0.bytes[STATUS])
    }

    /// Returns `true` if the message begins here.
    pub const fn is_first(&self) -> bool {
        self.0.bytes[RMPP_FLAGS] & FIRST != 0
    }

    /// Returns `true` if the message ends here.
    pub const fn is_last(&self) -> bool {
        self.0.bytes[RMPP_FLAGS] & LAST != 0
    }

    /// Its number, from 1.
    pub fn number(&self) -> u32 {
        self.dword(FIRST_DWORD)
    }

    /// Of the first segment, what the protocol counts of all, or 0; of the last, what it counts of it.
    pub fn length(&self) -> u32 {
        self.dword(SECOND_DWORD)
    }

    /// Its part of the message; of the last segment not all counts.
    pub fn data(&self) -> &'a [u8] {
        &self.0.bytes[SA_DATA..]
    }

    fn dword(&self, at: usize) -> u32 {
        let bytes = self.0.bytes[at..].first_chunk().copied();
        u32::from_be_bytes(bytes.unwrap_or_default())
    }

    /// Writes a MAD of the protocol that has no data: an acknowledgement of all up to segment `number`, by which those up
    /// to `window` may be sent, or the end of the transfer.
    pub fn emit(
        header: &SaHeader,
        attribute: SaAttribute,
        (kind, status): (RmppType, RmppStatus),
        (number, window): (u32, u32),
        mad: &mut [u8; MAD_LEN],
    ) {
        header.emit(attribute, mad);
        mad[VERSION] = RMPP_VERSION;
        mad[TYPE] = kind as u8;
        mad[RMPP_FLAGS] = RMPP_ACTIVE;
        mad[STATUS] = status.0;
        mad[FIRST_DWORD..FIRST_DWORD + 4].copy_from_slice(&number.to_be_bytes());
        mad[SECOND_DWORD..SECOND_DWORD + 4].copy_from_slice(&window.to_be_bytes());
    }
}
