//! Completions: what a CQE says, in the words of `struct ibv_wc`.

use core::fmt;

use bitflags::bitflags;

use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, ErrorWord, HeadersWord, ImmediateWord, L3Type, Opcode, PathWord, SlidWord,
    SourceWord, Syndrome, TailWord, TimestampWord, l3_header,
};
use bareverbs_firmware_cmds::numbers::{Qpn, RKey};
use bareverbs_firmware_cmds::word::Word;

/// Outcome of a work request: `enum ibv_wc_status`, with its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// The message does not fit the local scatter list (or the device's limit).
    LocLenErr = 1,
    /// The request is inconsistent with the QP (a READ on a UC QP, too many entries, ...).
    LocQpOpErr = 2,
    /// End-to-end context error (RD; never with mlx5).
    LocEecOpErr = 3,
    /// A local key does not allow the access, or is not valid.
    LocProtErr = 4,
    /// The QP went to error before this request was carried out.
    WrFlushErr = 5,
    /// A memory window could not be bound.
    MwBindErr = 6,
    /// The responder sent something unexpected.
    BadRespErr = 7,
    /// Protection error on a local buffer while receiving an RDMA write with immediate.
    LocAccessErr = 8,
    /// The responder found the request invalid.
    RemInvReqErr = 9,
    /// The remote key does not allow the access.
    RemAccessErr = 10,
    /// The responder could not carry it out.
    RemOpErr = 11,
    /// No answer after all retries.
    RetryExcErr = 12,
    /// The receiver was not ready, too many times.
    RnrRetryExcErr = 13,
    /// Local RD domain violation (never with mlx5).
    LocRddViolErr = 14,
    /// Remote RD request error (never with mlx5).
    RemInvRdReqErr = 15,
    /// The responder aborted the operation.
    RemAbortErr = 16,
    /// End-to-end context number not valid (never with mlx5).
    InvEecnErr = 17,
    /// End-to-end context state (never with mlx5).
    InvEecStateErr = 18,
    /// Fatal.
    FatalErr = 19,
    /// The response timed out.
    RespTimeoutErr = 20,
    /// Something else; see the vendor's syndrome.
    GeneralErr = 21,
}

impl WcStatus {
    /// From the `syndrome` byte of an error CQE.
    #[must_use]
    pub const fn from_syndrome(syndrome: u8) -> Self {
        match Syndrome::from_number(syndrome) {
            Syndrome::LocalLength => Self::LocLenErr,
            Syndrome::LocalQpOperation => Self::LocQpOpErr,
            Syndrome::LocalProtection => Self::LocProtErr,
            Syndrome::WrFlush => Self::WrFlushErr,
            Syndrome::MwBind => Self::MwBindErr,
            Syndrome::BadResponse => Self::BadRespErr,
            Syndrome::LocalAccess => Self::LocAccessErr,
            Syndrome::RemoteInvalidRequest => Self::RemInvReqErr,
            Syndrome::RemoteAccess => Self::RemAccessErr,
            Syndrome::RemoteOperation => Self::RemOpErr,
            Syndrome::TransportRetryExceeded => Self::RetryExcErr,
            Syndrome::RnrRetryExceeded => Self::RnrRetryExcErr,
            Syndrome::RemoteAborted => Self::RemAbortErr,
            Syndrome::Unknown(_) => Self::GeneralErr,
        }
    }

    /// In words: `ibv_wc_status_str`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocLenErr => "local length error",
            Self::LocQpOpErr => "local QP operation error",
            Self::LocEecOpErr => "local EE context operation error",
            Self::LocProtErr => "local protection error",
            Self::WrFlushErr => "work request flushed error",
            Self::MwBindErr => "memory bind operation error",
            Self::BadRespErr => "bad response error",
            Self::LocAccessErr => "local access error",
            Self::RemInvReqErr => "remote invalid request error",
            Self::RemAccessErr => "remote access error",
            Self::RemOpErr => "remote operation error",
            Self::RetryExcErr => "transport retry counter exceeded",
            Self::RnrRetryExcErr => "RNR retry counter exceeded",
            Self::LocRddViolErr => "local RDD violation error",
            Self::RemInvRdReqErr => "remote invalid RD request",
            Self::RemAbortErr => "aborted error",
            Self::InvEecnErr => "invalid EE context number",
            Self::InvEecStateErr => "invalid EE context state",
            Self::FatalErr => "fatal error",
            Self::RespTimeoutErr => "response timeout error",
            Self::GeneralErr => "general error",
        }
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for WcStatus {}

/// A completion with an error carries these fields: all that mean something in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WcError {
    /// The work request's identifier.
    pub wr_id: u64,
    /// The local QP.
    pub qp_num: Qpn,
    /// The status, which says why it failed.
    pub status: WcStatus,
    /// The vendor's syndrome.
    pub vendor_err: u8,
    /// The device's syndrome, from which `status` follows.
    pub syndrome: u8,
}

impl fmt::Display for WcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (vendor syndrome {:#04x}) of work request {} on QP {:#x}",
            self.status,
            self.vendor_err,
            self.wr_id,
            self.qp_num.number()
        )
    }
}

impl core::error::Error for WcError {}

/// The kind of work that completed: `enum ibv_wc_opcode`. Not valid in a completion with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// A send.
    Send,
    /// An RDMA write.
    RdmaWrite,
    /// An RDMA read.
    RdmaRead,
    /// A compare-and-swap.
    CompSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A memory window bind, or another change of a key (UMR).
    BindMw,
    /// A local invalidation of a memory window.
    LocalInv,
    /// A receive, of a send.
    Recv,
    /// A receive, of an RDMA write with immediate data.
    RecvRdmaWithImm,
    /// The device named an operation that this driver never posts.
    Unknown,
}

impl WcOpcode {
    /// By opcode of the CQE, other than a requester's success.
    const OF_CQE: [Self; 16] = {
        let mut table = [Self::Recv; 16];
        table[Opcode::ResponderWriteImmediate as usize] = Self::RecvRdmaWithImm;
        // Errors do not say; the direction is all there is.
        table[Opcode::RequesterError as usize] = Self::Send;
        table
    };

    /// By opcode of the WQE, which the CQE repeats: a table, because a poll that reads the field does so each time.
    const OF_WQE: [Self; 256] = {
        use bareverbs_firmware_cmds::wqe::Opcode as Wqe;
        let mut table = [Self::Unknown; 256];
        let mut opcode = 0;
        while opcode < table.len() {
            table[opcode] = match Wqe::from_number(opcode as u8) {
                Some(Wqe::Nop | Wqe::SendInvalidate | Wqe::Send | Wqe::SendImmediate) => Self::Send,
                Some(Wqe::RdmaWrite | Wqe::RdmaWriteImmediate) => Self::RdmaWrite,
                Some(Wqe::RdmaRead) => Self::RdmaRead,
                Some(Wqe::AtomicCompareSwap) => Self::CompSwap,
                Some(Wqe::AtomicFetchAdd) => Self::FetchAdd,
                Some(Wqe::Umr) => Self::BindMw,
                _ => Self::Unknown,
            };
            opcode += 1;
        }
        table[LOCAL_INV as usize] = Self::LocalInv;
        table
    };
}

bitflags! {
    /// `enum ibv_wc_flags`, with its values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct WcFlags: u32 {
        /// The first 40 bytes of the buffer hold the GRH (or the IPv4 header, in the last 20 of them).
        const GRH = 1 << 0;
        /// There is immediate data.
        const WITH_IMM = 1 << 1;
        /// A frame of IPv4 whose checksums, of the header and of TCP or UDP, the device found right.
        const IP_CSUM_OK = 1 << 2;
        /// A remote key of ours was invalidated.
        const WITH_INV = 1 << 3;
    }
}

impl WcFlags {
    /// The kinds of work by the opcode of a responder's completion.
    const OF_RESPONDER: [Self; 8] = [
        Self::empty(),
        Self::WITH_IMM,
        Self::empty(),
        Self::WITH_IMM,
        Self::WITH_INV,
        Self::empty(),
        Self::empty(),
        Self::empty(),
    ];
}

/// The encapsulation of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NetworkHeader {
    /// InfiniBand or RoCE v1: a GRH.
    Grh,
    /// RoCE v2 over IPv4.
    Ipv4,
    /// RoCE v2 over IPv6.
    Ipv6,
}

/// A completion with all fields decoded: `struct ibv_wc`.
#[must_use = "it says whether the work request succeeded"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wc {
    /// The work request's identifier.
    pub wr_id: u64,
    /// The status. Unless it is a success, only `wr_id`, `qp_num`, `vendor_err` and `syndrome` mean something.
    pub status: WcStatus,
    /// The work that completed.
    pub opcode: WcOpcode,
    /// Bytes received (with the 40 bytes of the GRH area on UD), read, or fetched.
    pub byte_len: u32,
    /// The local QP.
    pub qp_num: Qpn,
    /// The sending QP (UD).
    pub src_qp: Qpn,
    /// Immediate data (with [`WcFlags::WITH_IMM`]) in host order, or the invalidated key ([`WcFlags::WITH_INV`]).
    pub imm_data: u32,
    /// The optional fields that are valid.
    pub flags: WcFlags,
    /// P_Key index or, on the GSI, the P_Key of the packet.
    pub pkey_index: u16,
    /// Source LID (InfiniBand).
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the destination LID (InfiniBand).
    pub dlid_path_bits: u8,
    /// The vendor's syndrome of an error.
    pub vendor_err: u8,
    /// The device's syndrome of an error, from which `status` follows.
    pub syndrome: u8,
}

impl Wc {
    /// The completion of a success, or what it says of a failure.
    ///
    /// # Errors
    ///
    /// Every status but [`WcStatus::Success`].
    #[inline]
    pub const fn ok(self) -> Result<Self, WcError> {
        if matches!(self.status, WcStatus::Success) {
            return Ok(self);
        }
        Err(self.error())
    }

    /// The part that a failure fills in.
    #[cold]
    pub const fn error(&self) -> WcError {
        WcError {
            wr_id: self.wr_id,
            qp_num: self.qp_num,
            status: self.status,
            vendor_err: self.vendor_err,
            syndrome: self.syndrome,
        }
    }

    /// A completion that says nothing, to fill an array with for `Cq::poll_wcs`.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        status: WcStatus::Success,
        opcode: WcOpcode::Send,
        byte_len: 0,
        qp_num: Qpn::from_low_bits(0),
        src_qp: Qpn::from_low_bits(0),
        imm_data: 0,
        flags: WcFlags::empty(),
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
        vendor_err: 0,
        syndrome: 0,
    };
}

impl Default for Wc {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// In place of the opcode in the tail of a frame's completion, which a message's does not have. No device has it for
/// receives.
pub(crate) const FRAME: u8 = 6;

/// This stands in place of the operation in the completion of a local invalidation, for which the device has that of each UMR. It is
/// mlx5's number for an operation that cards do not report (`MLX5_OPCODE_LOCAL_INVAL`).
pub(crate) const LOCAL_INV: u8 = 0x1b;

/// Where the words of a CQE come from.
pub(crate) trait Entry: Copy {
    /// A word of it.
    fn word<W: Word>(self) -> W;
}

/// The fields of a CQE, decoded one by one from its words.
#[derive(Clone, Copy)]
pub(crate) struct Fields<E> {
    tail: TailWord,
    entry: E,
}

impl<E: Entry> Fields<E> {
    /// Of a CQE, whose tail was read before.
    #[inline(always)]
    pub(crate) const fn new(tail: TailWord, entry: E) -> Self {
        Self { tail, entry }
    }

    #[inline(always)]
    fn op(&self) -> u8 {
        self.tail.last().opcode()
    }

    #[inline(always)]
    pub(crate) fn status(&self) -> WcStatus {
        if self.is_error() {
            return WcStatus::from_syndrome(self.syndrome());
        }
        WcStatus::Success
    }

    #[inline(always)]
    pub(crate) fn is_error(&self) -> bool {
        self.op() >= Opcode::RequesterError as u8
    }

    #[inline(always)]
    pub(crate) fn is_send(&self) -> bool {
        self.op() == Opcode::Requester as u8
    }

    #[inline]
    pub(crate) fn syndrome(&self) -> u8 {
        if self.is_error() {
            self.entry.word::<ErrorWord>().syndrome()
        } else {
            0
        }
    }

    #[inline]
    pub(crate) fn vendor_err(&self) -> u8 {
        if self.is_error() {
            self.entry.word::<ErrorWord>().vendor_err_synd()
        } else {
            0
        }
    }

    #[inline(always)]
    pub(crate) fn opcode(&self) -> WcOpcode {
        if self.is_send() {
            return WcOpcode::OF_WQE[usize::from(self.tail.wqe_opcode())];
        }
        WcOpcode::OF_CQE[usize::from(self.op() & 0xf)]
    }

    #[inline]
    pub(crate) fn byte_len(&self) -> u32 {
        self.entry.word::<ByteCountWord>().byte_cnt()
    }

    #[inline]
    pub(crate) fn qp_num(&self) -> Qpn {
        Qpn::from_low_bits(self.tail.qpn())
    }

    #[inline]
    pub(crate) fn src_qp(&self) -> Qpn {
        Qpn::from_low_bits(self.entry.word::<SourceWord>().rqpn())
    }

    #[inline]
    pub(crate) fn imm_data(&self) -> u32 {
        self.entry.word::<ImmediateWord>().immediate()
    }

    #[inline]
    pub(crate) fn invalidated(&self) -> RKey {
        RKey(self.entry.word::<ImmediateWord>().inval_rkey())
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> WcFlags {
        const FIRST: u8 = Opcode::ResponderWriteImmediate as u8;
        const LAST: u8 = Opcode::ResponderSendInvalidate as u8;
        // One comparison for "not a responder's success".
        let op = self.op();
        if op.wrapping_sub(FIRST) > LAST - FIRST {
            return match op {
                FRAME => self.frame_flags(),
                _ => WcFlags::empty(),
            };
        }
        let mut flags = WcFlags::OF_RESPONDER[usize::from(op & 7)];
        if self.entry.word::<SourceWord>().has_grh() {
            flags |= WcFlags::GRH;
        }
        flags
    }

    #[cold]
    fn frame_flags(&self) -> WcFlags {
        let headers = self.entry.word::<HeadersWord>();
        let right = headers.l3_ok() && headers.l4_ok();
        match right && headers.l3_hdr_type() == l3_header::IPV4 {
            true => WcFlags::IP_CSUM_OK,
            false => WcFlags::empty(),
        }
    }

    pub(crate) fn flow_tag(&self) -> u32 {
        match self.op() {
            // The tail at hand has the QP's number there.
            FRAME => self.entry.word::<TailWord>().qpn(),
            _ => 0,
        }
    }

    pub(crate) fn vlan(&self) -> Option<u16> {
        let headers = self.entry.word::<HeadersWord>();
        (self.op() == FRAME && headers.vlan()).then(|| headers.vlan_info())
    }

    /// RoCE: which header came.
    #[inline]
    pub(crate) fn network_header(&self) -> NetworkHeader {
        match L3Type::from_number(self.entry.word::<SourceWord>().l3_type()) {
            Some(L3Type::Ipv6) => NetworkHeader::Ipv6,
            Some(L3Type::Ipv4) => NetworkHeader::Ipv4,
            _ => NetworkHeader::Grh,
        }
    }

    #[inline]
    pub(crate) fn pkey_index(&self) -> u16 {
        self.entry.word::<ImmediateWord>().pkey_index()
    }

    #[inline]
    pub(crate) fn slid(&self) -> u16 {
        self.entry.word::<SlidWord>().slid()
    }

    #[inline]
    pub(crate) fn sl(&self) -> u8 {
        self.entry.word::<SourceWord>().sl()
    }

    #[inline]
    pub(crate) fn dlid_path_bits(&self) -> u8 {
        self.entry.word::<PathWord>().dlid_path_bits()
    }

    #[inline]
    pub(crate) fn timestamp(&self) -> u64 {
        self.entry.word::<TimestampWord>().timestamp()
    }

    /// All of them that there are, written where they are to lie: of a send few, so that the rest is a constant.
    #[inline(always)]
    pub(crate) fn write_wc(self, wr_id: u64, to: &mut Wc) {
        if self.is_send() {
            *to = Wc {
                wr_id,
                opcode: WcOpcode::OF_WQE[usize::from(self.tail.wqe_opcode())],
                byte_len: self.byte_len(),
                qp_num: self.qp_num(),
                ..Wc::EMPTY
            };
            return;
        }
        if self.is_error() {
            return self.write_failed_wc(wr_id, to);
        }
        // Each word is read once.
        let source = self.entry.word::<SourceWord>();
        let immediate = self.entry.word::<ImmediateWord>();
        let grh = WcFlags::from_bits_retain(source.has_grh().into());
        *to = Wc {
            wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::OF_CQE[usize::from(self.op() & 0xf)],
            byte_len: self.byte_len(),
            qp_num: self.qp_num(),
            src_qp: Qpn::from_low_bits(source.rqpn()),
            imm_data: immediate.immediate(),
            flags: WcFlags::OF_RESPONDER[usize::from(self.op() & 7)] | grh,
            pkey_index: immediate.pkey_index(),
            slid: self.slid(),
            sl: source.sl(),
            dlid_path_bits: self.dlid_path_bits(),
            vendor_err: 0,
            syndrome: 0,
        };
    }

    /// All fields of a completion that may be of a frame, which does not take the straight way.
    #[inline]
    pub(crate) fn write_any_wc(self, wr_id: u64, to: &mut Wc) {
        match self.op() {
            FRAME => self.write_frame_wc(wr_id, to),
            _ => self.write_wc(wr_id, to),
        }
    }

    /// Those of a frame.
    #[cold]
    #[inline(never)]
    fn write_frame_wc(self, wr_id: u64, to: &mut Wc) {
        *to = Wc {
            wr_id,
            opcode: WcOpcode::Recv,
            byte_len: self.byte_len(),
            qp_num: self.qp_num(),
            flags: self.frame_flags(),
            ..Wc::EMPTY
        };
    }

    /// Those of a failure.
    #[cold]
    #[inline(never)]
    fn write_failed_wc(self, wr_id: u64, to: &mut Wc) {
        *to = Wc {
            wr_id,
            status: self.status(),
            opcode: self.opcode(),
            qp_num: self.qp_num(),
            vendor_err: self.vendor_err(),
            syndrome: self.syndrome(),
            ..Wc::EMPTY
        };
    }
}

const _: () = assert!(WcFlags::GRH.bits() == true as u32);

#[cfg(test)]
mod tests;
