//! Completion queue entries.
//!
//! A CQE of 64 bytes, or the second half of one of 128, ends with the byte `op_own`: opcode, format, solicited bit and
//! owner. An entry belongs to the consumer when its opcode is not [`Opcode::Invalid`] and its owner bit is the parity of
//! the pass ([`crate::event::owner_of_pass`]).

use crate::numbered::numbered;
use crate::numbers::{Qpn, RKey, Srqn};
use crate::wire::wire;
use core::fmt;

mod words;

pub use words::*;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// Size of an entry, or of the second half of one of 128 bytes.
pub const SIZE: usize = 64;
/// Byte of a 64-byte CQE that says whether it is there.
pub const OP_OWN_OFFSET: usize = 0x3f;
/// `op_own` of an entry that has not been written: opcode 0xf.
pub const OP_OWN_INIT: u8 = 0xf0;
/// Owner bit of `op_own`.
pub const OWNER: u8 = 1;
/// Solicited bit of `op_own`.
pub const SOLICITED: u8 = 2;

wire! {
    /// A completion that is not an error.
    pub struct Cqe64: "mlx5_cqe64", 64 {
        /// Encapsulation and TLS state.
        tls_outer_l3_tunneled: u8,
        /// Padding.
        reserved0: u8,
        /// Index of the WQE (striding receive queues).
        wqe_id: U16,
        /// Large receive offload, or header split.
        lro: [u8; 8],
        /// Hash of the packet's header.
        rss_hash_result: U32,
        /// What was hashed.
        rss_hash_type: u8,
        /// Path bits of the local identifier; for Ethernet, bit 7 is congestion experienced.
        ml_path: u8,
        /// Padding.
        reserved1: [u8; 2],
        /// Checksum over the packet (Ethernet).
        check_sum: U16,
        /// Source local identifier (InfiniBand UD).
        slid: U16,
        /// GRH in 29:28, service level in 27:24 (for RoCE, L3 type in 25:24), remote QPN in 23:0.
        flags_rqpn: U32,
        /// Header checks.
        hds_ip_ext: u8,
        /// Header types.
        l4_l3_hdr_type: u8,
        /// VLAN tag.
        vlan_info: U16,
        /// SRQ number or, with CQE version 1, user index, in 23:0.
        srqn_uidx = srqn: U32,
        /// Immediate data, invalidated key, or P_Key (QP1).
        immediate: U32,
        /// Padding.
        reserved2: [u8; 4],
        /// Bytes received, read or swapped.
        byte_cnt: U32,
        /// Upper half of the time stamp.
        timestamp_h: U32,
        /// Lower half of the time stamp.
        timestamp_l: U32,
        /// Opcode of the completed send WQE in 31:24, local QPN in 23:0.
        sop_drop_qpn: U32,
        /// Index of the completed WQE.
        wqe_counter: U16,
        /// Signature, or the pass counter of enhanced compression.
        signature: u8,
        /// Opcode in 7:4, format in 3:2, solicited in 1, owner in 0.
        op_own: u8,
    }
}

wire! {
    /// A completion in error, [`Opcode::RequesterError`] or [`Opcode::ResponderError`].
    pub struct ErrorCqe: "mlx5_err_cqe", 64 {
        /// Padding.
        reserved0: [u8; 32],
        /// SRQ number or, with CQE version 1, user index, in 23:0.
        srqn_uidx = srqn: U32,
        /// Padding.
        reserved1: [u8; 18],
        /// The vendor's own error code.
        vendor_err_synd: u8,
        /// What went wrong: [`Syndrome`].
        syndrome: u8,
        /// Opcode of the failed send WQE in 31:24, local QPN in 23:0.
        s_wqe_opcode_qpn: U32,
        /// Index of the failed WQE.
        wqe_counter: U16,
        /// Signature.
        signature: u8,
        /// As in [`Cqe64`].
        op_own: u8,
    }
}

wire! {
    /// A signature error, [`Opcode::SignatureError`].
    pub struct SignatureErrorCqe: "mlx5_sig_err_cqe", 64 {
        /// Padding.
        reserved0: [u8; 16],
        /// Expected transaction signature.
        expected_trans_sig: U32,
        /// Actual transaction signature.
        actual_trans_sig: U32,
        /// Expected reference tag.
        expected_reftag: U32,
        /// Actual reference tag.
        actual_reftag: U32,
        /// Which check failed.
        syndrome: U16,
        /// Padding.
        reserved1: [u8; 2],
        /// Memory key.
        mkey: U32,
        /// Offset of the error.
        err_offset: U64,
        /// Padding.
        reserved2: [u8; 8],
        /// Local QPN.
        qpn: U32,
        /// Padding.
        reserved3: [u8; 2],
        /// Signature.
        signature: u8,
        /// As in [`Cqe64`].
        op_own: u8,
    }
}

wire! {
    /// A completion of 128 bytes: inline data in front, the entry proper behind.
    pub struct Cqe128: "mlx5_cqe128", 128 {
        /// Inline scattered data, or the GRH.
        inline_data = inl_grh: [u8; 64],
        /// The entry.
        cqe64: Cqe64,
    }
}

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

    /// `op_own` of an entry with this opcode.
    #[must_use]
    #[inline]
    pub const fn op_own(self, solicited: bool, owner: u8) -> u8 {
        (self as u8) << 4 | if solicited { SOLICITED } else { 0 } | owner & OWNER
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

impl Cqe64 {
    /// Its opcode; `None` for numbers that mean nothing.
    #[must_use]
    #[inline]
    pub const fn opcode(&self) -> Option<Opcode> {
        Opcode::from_number(self.op_own >> 4)
    }

    /// Whether the device has written this entry on the pass with this owner bit.
    #[must_use]
    #[inline]
    pub const fn is_ready(op_own: u8, owner: u8) -> bool {
        op_own >> 4 != Opcode::Invalid as u8 && op_own & OWNER == owner
    }

    /// Where the data is.
    #[must_use]
    #[inline]
    pub const fn format(&self) -> Format {
        match self.op_own >> 2 & 3 {
            0 => Format::NoInline,
            1 => Format::Inline32,
            2 => Format::Inline64,
            _ => Format::Compressed,
        }
    }

    /// The sender asked for an event.
    #[must_use]
    #[inline]
    pub const fn solicited(&self) -> bool {
        self.op_own & SOLICITED != 0
    }

    /// Local queue pair.
    #[must_use]
    #[inline]
    pub fn qpn(&self) -> Qpn {
        Qpn::from_low_bits(self.sop_drop_qpn.get())
    }

    /// Opcode of the completed send WQE.
    #[must_use]
    #[inline]
    pub fn send_opcode(&self) -> u8 {
        (self.sop_drop_qpn.get() >> 24) as u8
    }

    /// The queue pair at the other end (UD).
    #[must_use]
    #[inline]
    pub fn remote_qpn(&self) -> Qpn {
        Qpn::from_low_bits(self.flags_rqpn.get())
    }

    /// A GRH, or its RoCE v2 equivalent, precedes the payload (UD).
    #[must_use]
    #[inline]
    pub fn has_grh(&self) -> bool {
        self.flags_rqpn.get() >> 28 & 3 != 0
    }

    /// Service level (InfiniBand).
    #[must_use]
    #[inline]
    pub fn service_level(&self) -> u8 {
        (self.flags_rqpn.get() >> 24 & 0xf) as u8
    }

    /// Kind of network header (RoCE).
    #[must_use]
    #[inline]
    pub fn l3_type(&self) -> Option<L3Type> {
        match self.flags_rqpn.get() >> 24 & 3 {
            0 => Some(L3Type::Grh),
            1 => Some(L3Type::Ipv6),
            2 => Some(L3Type::Ipv4),
            _ => None,
        }
    }

    /// User index of the queue (CQE version 1).
    #[must_use]
    #[inline]
    pub fn user_index(&self) -> u32 {
        self.srqn_uidx.get() & 0x00ff_ffff
    }

    /// Number of the shared receive queue (CQE version 0).
    #[must_use]
    #[inline]
    pub fn srqn(&self) -> Srqn {
        Srqn::from_low_bits(self.srqn_uidx.get())
    }

    /// The key that a SEND with invalidate invalidated.
    #[must_use]
    #[inline]
    pub fn invalidated_rkey(&self) -> RKey {
        RKey(self.immediate.get())
    }

    /// Time stamp, in units of the device's clock.
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> u64 {
        u64::from(self.timestamp_h.get()) << 32 | u64::from(self.timestamp_l.get())
    }

    /// The same entry read as an error.
    #[must_use]
    #[inline]
    pub fn as_error(&self) -> &ErrorCqe {
        zerocopy::transmute_ref!(self)
    }
}

impl ErrorCqe {
    /// Local queue pair.
    #[must_use]
    #[inline]
    pub fn qpn(&self) -> Qpn {
        Qpn::from_low_bits(self.s_wqe_opcode_qpn.get())
    }

    /// User index of the queue (CQE version 1).
    #[must_use]
    #[inline]
    pub fn user_index(&self) -> u32 {
        self.srqn_uidx.get() & 0x00ff_ffff
    }

    /// What went wrong.
    #[must_use]
    #[inline]
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome::from_number(self.syndrome)
    }

    /// The same entry, not as an error.
    #[must_use]
    #[inline]
    pub fn as_cqe(&self) -> &Cqe64 {
        zerocopy::transmute_ref!(self)
    }
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
    /// What it means, in words.
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
    use zerocopy::IntoBytes;

    #[test]
    fn golden_receive() {
        let mut cqe = Cqe64 {
            srqn_uidx: 0x0a_bcde.into(),
            immediate: 0xdead_beef.into(),
            byte_cnt: 0x1000.into(),
            timestamp_h: 1.into(),
            timestamp_l: 2.into(),
            sop_drop_qpn: 0x0000_0123.into(),
            wqe_counter: 0xfffe.into(),
            op_own: Opcode::ResponderSendImmediate.op_own(true, 1),
            ..Default::default()
        };
        cqe.flags_rqpn = 0x1200_0042.into();
        cqe.slid = 0x1122.into();
        let mut expected = [0u8; 64];
        expected[0x16..0x18].copy_from_slice(&[0x11, 0x22]);
        expected[0x18..0x1c].copy_from_slice(&[0x12, 0, 0, 0x42]);
        expected[0x20..0x28].copy_from_slice(&[0, 0x0a, 0xbc, 0xde, 0xde, 0xad, 0xbe, 0xef]);
        expected[0x2c..0x38].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        expected[0x38..0x40].copy_from_slice(&[0, 0, 1, 0x23, 0xff, 0xfe, 0, 0x33]);
        assert_eq!(cqe.as_bytes(), expected);
        assert_eq!(cqe.opcode(), Some(Opcode::ResponderSendImmediate));
        assert!(cqe.solicited() && cqe.has_grh());
        assert_eq!(cqe.format(), Format::NoInline);
        assert_eq!(cqe.remote_qpn().number(), 0x42);
        assert_eq!(cqe.l3_type(), Some(L3Type::Ipv4));
        assert_eq!(cqe.qpn().number(), 0x123);
        assert_eq!(cqe.user_index(), 0x0a_bcde);
        assert_eq!(cqe.timestamp(), 0x1_0000_0002);
    }

    #[test]
    fn golden_error() {
        let error = ErrorCqe {
            srqn_uidx: 7.into(),
            vendor_err_synd: 0x93,
            syndrome: Syndrome::RemoteAccess.number(),
            s_wqe_opcode_qpn: 0x0800_0123.into(),
            wqe_counter: 0x10.into(),
            op_own: Opcode::RequesterError.op_own(false, 0),
            ..Default::default()
        };
        let mut expected = [0u8; 64];
        expected[0x23] = 7;
        expected[0x36..].copy_from_slice(&[0x93, 0x13, 0x08, 0, 1, 0x23, 0, 0x10, 0, 0xd0]);
        assert_eq!(error.as_bytes(), expected);
        assert_eq!(error.as_cqe().as_error().syndrome(), Syndrome::RemoteAccess);
        assert_eq!(error.as_cqe().opcode(), Some(Opcode::RequesterError));
        assert_eq!(error.as_cqe().send_opcode(), 8);
    }

    #[test]
    fn the_entry_proper_of_128_bytes_is_the_second_half() {
        let mut long = Cqe128::default();
        long.cqe64.op_own = OP_OWN_INIT;
        assert_eq!(long.as_bytes()[127], OP_OWN_INIT);
        assert!(long.as_bytes()[..127].iter().all(|&b| b == 0));
    }

    #[test]
    fn fresh_entries_are_not_ready() {
        assert!(!Cqe64::is_ready(OP_OWN_INIT, 0));
        assert!(!Cqe64::is_ready(OP_OWN_INIT | 1, 1));
        assert!(Cqe64::is_ready(0x21, 1) && !Cqe64::is_ready(0x21, 0));
    }

    #[test]
    fn numbers_round_trip() {
        for number in 0..=255u8 {
            assert_eq!(Syndrome::from_number(number).number(), number);
            if let Some(opcode) = Opcode::from_number(number) {
                assert_eq!(opcode as u8, number);
            }
        }
        assert_eq!(Syndrome::ALL.len(), 13);
        assert_eq!(Opcode::ALL.len(), 11);
    }
}
