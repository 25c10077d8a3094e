//! Completion queue entries.
//!
//! A CQE of 64 bytes, or the second half of one of 128, ends with the byte `op_own`: opcode, format, solicited bit and
//! owner. An entry belongs to the consumer when its opcode is not [`Opcode::Invalid`] and its owner bit is the parity of
//! the pass ([`crate::event::owner_of_pass`]).

use crate::numbered::numbered;
use core::fmt;

pub mod mini;
mod words;

pub use words::*;

/// Size of an entry, or of the second half of one of 128 bytes.
pub const SIZE: usize = 64;

/// Opcode of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// A send work request is done.
    Requester = 0x0,
    /// An RDMA WRITE with immediate arrived.
    ResponderWriteImmediate = 0x1,
    /// A SEND arrived.
    ResponderSend = 0x2,
    /// A SEND with immediate arrived.
    ResponderSendImmediate = 0x3,
    /// A SEND with invalidate arrived.
    ResponderSendInvalidate = 0x4,
    /// The last entry of a CQ that was resized: the rest is in the new buffer.
    ResizeCq = 0x5,
    /// No packet behind a compressed session.
    NoPacket = 0x6,
    /// Signature error.
    SignatureError = 0xc,
    /// A send work request failed.
    RequesterError = 0xd,
    /// A receive work request failed.
    ResponderError = 0xe,
    /// Not written yet.
    Invalid = 0xf,
}

impl Opcode {
    /// Every opcode.
    pub const ALL: &'static [Self] = &[
        Self::Requester,
        Self::ResponderWriteImmediate,
        Self::ResponderSend,
        Self::ResponderSendImmediate,
        Self::ResponderSendInvalidate,
        Self::ResizeCq,
        Self::NoPacket,
        Self::SignatureError,
        Self::RequesterError,
        Self::ResponderError,
        Self::Invalid,
    ];

    /// From the upper 4 bits of `op_own`.
    #[must_use]
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x0 => Self::Requester,
            0x1 => Self::ResponderWriteImmediate,
            0x2 => Self::ResponderSend,
            0x3 => Self::ResponderSendImmediate,
            0x4 => Self::ResponderSendInvalidate,
            0x5 => Self::ResizeCq,
            0x6 => Self::NoPacket,
            0xc => Self::SignatureError,
            0xd => Self::RequesterError,
            0xe => Self::ResponderError,
            0xf => Self::Invalid,
            _ => return None,
        })
    }

    /// It is one of the errors.
    #[must_use]
    #[inline]
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Self::SignatureError | Self::RequesterError | Self::ResponderError
        )
    }
}

/// Where the data of a small receive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Format {
    /// Where the work request said.
    NoInline = 0,
    /// In the first 32 bytes of the entry.
    Inline32 = 1,
    /// In the 64 bytes in front of the entry (128-byte entries).
    Inline64 = 2,
    /// The entry heads a compressed session.
    Compressed = 3,
}

/// Kind of network header of a received RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum L3Type {
    /// RoCE v1: a GRH.
    Grh = 0,
    /// RoCE v2 over IPv6.
    Ipv6 = 1,
    /// RoCE v2 over IPv4: the header fills the last 20 of the 40 bytes.
    Ipv4 = 2,
}

/// Kinds of transport header in a completion of an Ethernet queue: [`HeadersWord::l4_hdr_type`].
pub mod l4_header {
    /// TCP without acknowledgement.
    pub const TCP_NO_ACK: u8 = 1;
    /// UDP.
    pub const UDP: u8 = 2;
    /// TCP with acknowledgement, without data.
    pub const TCP_ACK_NO_DATA: u8 = 3;
    /// TCP with acknowledgement and data.
    pub const TCP_ACK_AND_DATA: u8 = 4;
}

/// Kinds of network header in a completion of an Ethernet queue: [`HeadersWord::l3_hdr_type`].
pub mod l3_header {
    /// IPv6.
    pub const IPV6: u8 = 1;
    /// IPv4.
    pub const IPV4: u8 = 2;
}

impl L3Type {
    /// The kind with this number.
    #[must_use]
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Grh,
            1 => Self::Ipv6,
            2 => Self::Ipv4,
            _ => return None,
        })
    }
}

numbered! {
    /// Why a work request failed.
    pub enum Syndrome: u8, words {
        LocalLength = 0x01, "local length error";
        LocalQpOperation = 0x02, "local QP operation error";
        LocalProtection = 0x04, "local protection error";
        WrFlush = 0x05, "work request flushed";
        MwBind = 0x06, "memory window bind error";
        BadResponse = 0x10, "bad response";
        LocalAccess = 0x11, "local access error";
        RemoteInvalidRequest = 0x12, "remote invalid request";
        RemoteAccess = 0x13, "remote access error";
        RemoteOperation = 0x14, "remote operation error";
        TransportRetryExceeded = 0x15, "transport retry counter exceeded";
        RnrRetryExceeded = 0x16, "RNR retry counter exceeded";
        RemoteAborted = 0x22, "remote aborted";
        _ = Unknown, "error without a name";
    }
    /// Every syndrome that has a name.
    const ALL;
    /// The syndrome with this number.
    fn from_number;
    /// Its meaning, in words.
    fn description;
    /// The number in the entry.
    fn number;
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#04x})", self.description(), self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::Word;

    /// A completion of a datagram, and one in error, as rdma-core and Linux take them apart in their pollers.
    #[test]
    fn known_answers() {
        let mut bytes = [0u8; SIZE];
        bytes[0x11..0x18].copy_from_slice(&[0x83, 0, 0, 0x55, 0x66, 0x11, 0x22]);
        bytes[0x18..0x1c].copy_from_slice(&[0x12, 0, 0, 0x42]);
        bytes[0x1c..0x20].copy_from_slice(&[0x06, 0x49, 0x60, 0x0a]);
        bytes[0x20..0x28].copy_from_slice(&[0, 0x0a, 0xbc, 0xde, 0xde, 0xad, 0xbe, 0xef]);
        bytes[0x2c..0x38].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        bytes[0x38..0x40].copy_from_slice(&[0x0a, 0, 1, 0x23, 0xff, 0xfe, 0, 0x33]);
        let path = PathWord::read(&bytes);
        assert_eq!((path.ml_path(), path.dlid_path_bits()), (0x83, 3));
        let sum = SlidWord::read(&bytes);
        assert_eq!((sum.check_sum(), sum.slid()), (0x5566, 0x1122));
        let source = SourceWord::read(&bytes);
        assert_eq!((source.sl(), source.rqpn()), (2, 0x42));
        assert!(source.has_grh());
        assert_eq!(L3Type::from_number(source.l3_type()), Some(L3Type::Ipv4));
        let headers = HeadersWord::read(&bytes);
        assert!(headers.l3_ok() && headers.l4_ok() && !headers.l2_ok());
        assert_eq!(headers.l4_hdr_type(), l4_header::TCP_ACK_AND_DATA);
        assert_eq!(headers.l3_hdr_type(), l3_header::IPV4);
        assert!(headers.vlan() && !headers.ip_frag());
        assert_eq!(headers.vlan_info(), 0x600a);
        assert_eq!(IndexWord::read(&bytes).srqn_uidx(), 0x0a_bcde);
        let immediate = ImmediateWord::read(&bytes);
        assert_eq!(immediate.immediate(), 0xdead_beef);
        assert_eq!(immediate.pkey_index(), 0xbeef);
        assert_eq!(ByteCountWord::read(&bytes).byte_cnt(), 0x1000);
        assert_eq!(TimestampWord::read(&bytes).timestamp(), 0x1_0000_0002);
        let tail = TailWord::read(&bytes);
        assert_eq!((tail.wqe_opcode(), tail.qpn()), (0x0a, 0x123));
        assert_eq!(tail.wqe_counter(), 0xfffe);
        let last = OpOwn::read(&bytes);
        assert_eq!(last, tail.last());
        assert_eq!(last.opcode(), Opcode::ResponderSendImmediate as u8);
        assert!(last.solicited() && last.is_ready(1) && !last.is_ready(0));
        assert_eq!(last.format(), Format::NoInline as u8);

        bytes[0x36..0x38].copy_from_slice(&[0x93, 0x13]);
        let error = ErrorWord::read(&bytes);
        assert_eq!(error.vendor_err_synd(), 0x93);
        let syndrome = Syndrome::from_number(error.syndrome());
        assert_eq!(syndrome, Syndrome::RemoteAccess);
    }

    #[test]
    fn numbers_round_trip() {
        for number in 0..=255u8 {
            assert_eq!(Syndrome::from_number(number).number(), number);
            if let Some(opcode) = Opcode::from_number(number) {
                assert_eq!(opcode as u8, number);
            }
            if let Some(kind) = L3Type::from_number(number) {
                assert_eq!(kind as u8, number);
            }
        }
        assert_eq!(Syndrome::ALL.len(), 13);
        assert_eq!(Opcode::ALL.len(), 11);
    }
}
