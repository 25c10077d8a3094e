//! A completion that is decoded on demand.

use core::marker::PhantomData;

use bareverbs_firmware_cmds::numbers::{Qpn, RKey};
use bareverbs_firmware_cmds::word::Word;

use crate::memory::cqe_ring::Cqe;
use crate::types::wc::{Entry, Fields, NetworkHeader, Wc, WcFlags, WcOpcode, WcStatus};
use crate::verbs::cq::ring::Current;

/// The source of a completion, hence which fields of it mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A success of the send queue.
    Send,
    /// A success of a receive queue.
    Recv,
    /// A failure.
    Error,
}

/// A completion, decoded field by field on demand (`ibv_wc_read_*`), valid until the next poll.
#[derive(Debug, Clone, Copy)]
pub struct Completion<'c>(pub(super) Current, PhantomData<&'c ()>);

impl Entry for Cqe {
    #[inline(always)]
    fn word<W: Word>(self) -> W {
        // The ring's consumer index has not passed it.
        Cqe::word(self)
    }
}

impl<'c> Completion<'c> {
    /// For a CQE that stays the host's for this lifetime.
    #[inline(always)]
    pub(crate) fn new(current: Current) -> Self {
        Self(current, PhantomData)
    }
}

impl Completion<'_> {
    #[inline(always)]
    fn fields(&self) -> Fields<Cqe> {
        Fields::new(self.0.tail, self.0.cqe)
    }

    /// The work request's identifier.
    #[must_use]
    #[inline(always)]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    /// The status. Unless it is a success, only this, `wr_id`, `qp_num`, `vendor_err` and `syndrome` mean something.
    #[must_use]
    #[inline(always)]
    pub fn status(&self) -> WcStatus {
        self.fields().status()
    }

    /// The source of the completion. A caller that reads many fields asks this first: where the completion comes from
    /// [`Batch::next_with`](crate::cq::Batch::next_with), the answer is known when the code is compiled.
    #[must_use]
    #[inline(always)]
    pub fn kind(&self) -> CompletionKind {
        let fields = self.fields();
        if fields.is_error() {
            CompletionKind::Error
        } else if fields.is_send() {
            CompletionKind::Send
        } else {
            CompletionKind::Recv
        }
    }

    /// The work that completed.
    #[must_use]
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        self.fields().opcode()
    }

    /// Bytes received (with the 40 bytes of the GRH area on UD), read, or fetched.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.fields().byte_len()
    }

    /// The local QP.
    #[must_use]
    #[inline]
    pub fn qp_num(&self) -> Qpn {
        self.fields().qp_num()
    }

    /// The sending QP (UD).
    #[must_use]
    #[inline]
    pub fn src_qp(&self) -> Qpn {
        self.fields().src_qp()
    }

    /// Immediate data, in host order, if there is any.
    #[must_use]
    #[inline]
    pub fn imm_data(&self) -> Option<u32> {
        let fields = self.fields();
        fields
            .flags()
            .contains(WcFlags::WITH_IMM)
            .then(|| fields.imm_data())
    }

    /// The remote key of ours that the sender invalidated, if it did.
    #[must_use]
    #[inline]
    pub fn invalidated(&self) -> Option<RKey> {
        let fields = self.fields();
        fields
            .flags()
            .contains(WcFlags::WITH_INV)
            .then(|| fields.invalidated())
    }

    /// The optional fields that are valid, and other flags.
    #[must_use]
    #[inline]
    pub fn flags(&self) -> WcFlags {
        self.fields().flags()
    }

    /// P_Key index or, on the GSI, the packet's P_Key. Means something only without immediate data.
    #[must_use]
    #[inline]
    pub fn pkey_index(&self) -> u16 {
        self.fields().pkey_index()
    }

    /// The encapsulation of a datagram on RoCE, hence how its GRH area reads.
    #[must_use]
    #[inline]
    pub fn network_header(&self) -> NetworkHeader {
        self.fields().network_header()
    }

    /// The mark of the rule that brought a frame here: `ibv_wc_read_flow_tag`. 0 for what is not a frame.
    #[must_use]
    pub fn flow_tag(&self) -> u32 {
        self.fields().flow_tag()
    }

    /// The VLAN tag (its TCI) that the device has taken out of a frame,
    /// [if it was asked to](crate::RawPacketQp::set_vlan_strip): `ibv_wc_read_cvlan`.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        self.fields().vlan()
    }

    /// Source LID (InfiniBand).
    #[must_use]
    #[inline]
    pub fn slid(&self) -> u16 {
        self.fields().slid()
    }

    /// Service level (InfiniBand).
    #[must_use]
    #[inline]
    pub fn sl(&self) -> u8 {
        self.fields().sl()
    }

    /// The device's free-running clock when it completed.
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> u64 {
        self.fields().timestamp()
    }

    /// The device's syndrome of an error, from which the status follows.
    #[must_use]
    #[inline]
    pub fn syndrome(&self) -> u8 {
        self.fields().syndrome()
    }

    /// The vendor's syndrome of an error.
    #[must_use]
    #[inline]
    pub fn vendor_err(&self) -> u8 {
        self.fields().vendor_err()
    }

    /// All fields at once; those that mean nothing are 0.
    #[inline]
    pub fn to_wc(&self) -> Wc {
        let mut wc = Wc::EMPTY;
        self.write_any_wc(&mut wc);
        wc
    }

    /// The same, where they are to lie.
    #[inline]
    pub(crate) fn write_any_wc(&self, to: &mut Wc) {
        self.fields().write_any_wc(self.wr_id(), to);
    }

    /// The same for what is no frame.
    #[inline(always)]
    pub(crate) fn write_wc(&self, to: &mut Wc) {
        self.fields().write_wc(self.wr_id(), to);
    }
}
