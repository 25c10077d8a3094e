//! A completion of a compressed session.

use core::marker::PhantomData;

use bareverbs_firmware_cmds::cqe::SourceWord;
use bareverbs_firmware_cmds::cqe::mini::{MiniCqe, MiniFormat};
use bareverbs_firmware_cmds::numbers::Qpn;

use crate::memory::session_ring::Session;
use crate::types::wc::{Fields, WcFlags, WcOpcode};

/// A completion of a compressed session, decoded field by field on demand: a success of a receive queue
/// ([`Batch::next_compressed`](super::Batch::next_compressed)). The time stamp of a session is that of its first completion,
/// and is not shown here.
#[derive(Debug, Clone, Copy)]
pub struct Compressed<'c> {
    wr_id: u64,
    mini: MiniCqe,
    session: Session,
    lifetime: PhantomData<&'c ()>,
}

impl Compressed<'_> {
    #[inline(always)]
    pub(crate) fn new(wr_id: u64, mini: MiniCqe, session: &Session) -> Self {
        Self {
            wr_id,
            mini,
            session: *session,
            lifetime: PhantomData,
        }
    }

    /// The work request's identifier.
    #[must_use]
    #[inline(always)]
    pub fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// Bytes received (with the 40 bytes of the GRH area on UD).
    #[must_use]
    #[inline(always)]
    pub fn byte_len(&self) -> u32 {
        self.mini.byte_cnt()
    }

    /// The hash of the packet's headers, if the CQ keeps hashes.
    #[must_use]
    #[inline(always)]
    pub fn hash(&self) -> Option<u32> {
        (self.session.format == MiniFormat::Hash).then(|| self.mini.rx_hash_result())
    }

    /// The checksum over the packet, if the CQ keeps checksums.
    #[must_use]
    #[inline(always)]
    pub fn checksum(&self) -> Option<u16> {
        (self.session.format != MiniFormat::Hash).then(|| self.mini.checksum())
    }

    /// The work that completed: the same for all of a session.
    #[must_use]
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        Fields::new(self.session.tail, self.session.title).opcode()
    }

    /// The local QP: the same for all of a session.
    #[must_use]
    #[inline]
    pub fn qp_num(&self) -> Qpn {
        Qpn::from_low_bits(self.session.tail.qpn())
    }

    /// The sending QP (UD): the same for all of a session.
    #[must_use]
    #[inline]
    pub fn src_qp(&self) -> Qpn {
        Qpn::from_low_bits(self.session.title.word::<SourceWord>().rqpn())
    }

    /// Immediate data in host order, if there is any: the same for all of a session.
    #[must_use]
    #[inline]
    pub fn imm_data(&self) -> Option<u32> {
        let fields = Fields::new(self.session.tail, self.session.title);
        fields
            .flags()
            .contains(WcFlags::WITH_IMM)
            .then(|| fields.imm_data())
    }

    /// The optional fields that are valid: the same for all of a session.
    #[must_use]
    #[inline]
    pub fn flags(&self) -> WcFlags {
        Fields::new(self.session.tail, self.session.title).flags()
    }
}
