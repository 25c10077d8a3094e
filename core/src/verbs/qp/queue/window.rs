//! Binding and invalidating memory windows: UMR work requests.

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::types::sge::Access;
use crate::verbs::qp::queue::open_batch::OpenBatch;
use crate::verbs::qp::queue::payload::{Payload, sealed};
use crate::verbs::qp::queue::send::{Batch, SendQueue};
use crate::verbs::qp::queue::wr::{PostError, SendFlags};
use crate::verbs::qp::route::segments::{Closing, Message, UMR};
use crate::verbs::qp::route::service::{Connected, QpType};
use bareverbs_firmware_cmds::mkey::Mkc;
use bareverbs_firmware_cmds::numbers::{LKey, Qpn, RKey};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::{
    KlmAddressWord, KlmWord, SEGMENT_UNIT, UmrMaskWord, UmrWord, fence, umr,
};

/// Space for the list of a window's entries, in octowords: one entry, in the smallest unit.
pub(crate) const WINDOW_LIST: u32 = 4;
/// The longest piece of memory that an entry names.
const LONGEST: u64 = 1 << 31;
/// Behind the control segment: UMR control, the key's context, the list.
const UMR_CONTROL: usize = 48;
const CONTEXT: usize = 64;
/// Blocks of a work request that opens a window, and of one that closes it.
const BIND_BLOCKS: u32 = 3;
const CLOSE_BLOCKS: u32 = 2;
const ENTRIES: usize = WINDOW_LIST as usize * SEGMENT_UNIT;
/// Fence bits of each request behind one of these, in its control segment.
pub(in crate::verbs::qp) const FENCED: u64 = ((fence::SMALL_AND_FENCE as u64) << 32).to_be();

// What a program asks for is what a bind takes.
const _: () =
    assert!(SEGMENT_UNIT + UMR_CONTROL + CONTEXT + ENTRIES == 16 + 16 + 4 + MwBind::SPACE as usize);

/// The type of a memory window (IBTA volume 1, chapter 10.6.7.2.6): `enum ibv_mw_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MwType {
    /// Of the protection domain's QPs. Bound again at any time, with an empty piece to close it.
    Type1,
    /// Of the QP that has bound it (2B). It is bound while it is closed, and closed by invalidation, or by binding it to an
    /// empty piece.
    Type2,
}

/// Attributes of a bind: `struct ibv_mw_bind_info`, with the window and its new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MwBind {
    /// The window's type.
    pub kind: MwType,
    /// The window's key from now on: its old one with another low byte.
    pub rkey: RKey,
    /// The region that it leads into. It was registered by the QP's protection domain.
    pub lkey: LKey,
    /// First address, in the region; peers name it, or 0 with [`Access::ZERO_BASED`].
    pub addr: u64,
    /// Bytes; 0 closes the window.
    pub len: u64,
    /// Rights of peers.
    pub access: Access,
}

impl MwBind {
    /// The least [`QpCap::max_inline_data`](crate::qp::QpCap::max_inline_data) of a QP that binds windows: a bind takes as
    /// much of the send queue as a write with so much inline data.
    pub const SPACE: u32 = 156;

    /// Returns the bind of a window that it opens, `None` if it closes its window.
    fn piece(&self) -> Result<Option<&Self>, PostError> {
        match self.len {
            0 => Ok(None),
            1..=LONGEST => Ok(Some(self)),
            _ => Err(PostError::Unsupported),
        }
    }
}

/// A UMR request as its segments behind the control segment.
struct Umr {
    bytes: [u8; UMR_CONTROL + CONTEXT + ENTRIES],
    used: usize,
}

impl Umr {
    /// A bind by a QP, or without a piece the closing of a window.
    fn new(kind: MwType, rkey: RKey, qpn: Qpn, piece: Option<&MwBind>) -> Self {
        let mut control = UmrWord(0);
        control.set_inline(true);
        control.set_translation_offset(true);
        let mut fields = umr::mask::FREE | umr::mask::KEY;
        let mut mkc = Mkc::ZERO;
        mkc.set_mkey_7_0(rkey.0 as u8).set_free(piece.is_none());
        match kind {
            MwType::Type1 => {
                mkc.set_qpn(Qpn::ANY.number());
            }
            MwType::Type2 => {
                fields |= umr::mask::QPN;
                mkc.set_qpn(qpn.number());
                match piece {
                    Some(_) => control.set_check(umr::MUST_BE_FREE),
                    None => control.set_check_qpn(true),
                };
            }
        }
        let mut entry = [0; ENTRIES];
        if let Some(piece) = piece {
            fields |= umr::mask::LEN | umr::mask::START_ADDR;
            fields |= umr::mask::LR | umr::mask::LW | umr::mask::RR | umr::mask::RW | umr::mask::A;
            control.set_xlt_octowords(WINDOW_LIST as u16);
            let zero_based = piece.access.contains(Access::ZERO_BASED);
            mkc.set_start_addr(if zero_based { 0 } else { piece.addr })
                .set_len(piece.len)
                .set_lr(true)
                .set_lw(piece.access.contains(Access::LOCAL_WRITE))
                .set_rr(piece.access.contains(Access::REMOTE_READ))
                .set_rw(piece.access.contains(Access::REMOTE_WRITE))
                .set_a(piece.access.contains(Access::REMOTE_ATOMIC));
            let mut klm = KlmWord(0);
            klm.set_bcount(piece.len as u32);
            klm.set_key(piece.lkey.0);
            klm.write(&mut entry);
            KlmAddressWord(piece.addr).write(&mut entry);
        }
        let mut head = [0; UMR_CONTROL];
        control.write(&mut head);
        UmrMaskWord(fields).write(&mut head);
        let mut bytes = [0; UMR_CONTROL + CONTEXT + ENTRIES];
        let (first, rest) = bytes.split_at_mut(UMR_CONTROL);
        let (second, third) = rest.split_at_mut(CONTEXT);
        first.copy_from_slice(&head);
        second.copy_from_slice(&mkc.0);
        third.copy_from_slice(&entry);
        let used = match piece {
            Some(_) => bytes.len(),
            None => UMR_CONTROL + CONTEXT,
        };
        Self { bytes, used }
    }
}

impl sealed::Sealed for &Umr {}

impl Payload for &Umr {
    type Parts = Self;

    fn parts(self) -> Self {
        self
    }

    fn of(parts: Self) -> Self {
        parts
    }

    fn is_usual<T: QpType>(self, _: usize, _: u8, _: usize, _: Wqe<'_>) -> bool {
        false
    }

    fn write_usual(self, at: usize, wqe: Wqe<'_>) -> u32 {
        self.write(at, wqe)
    }

    fn check<T: QpType>(self, _: u8, _: u16) -> Result<(), PostError> {
        Ok(())
    }

    fn write(self, at: usize, wqe: Wqe<'_>) -> u32 {
        let (segments, _) = self.bytes[..self.used].as_chunks();
        for (index, segment) in segments.iter().enumerate() {
            wqe.put_segment(at + index * SEGMENT_UNIT, segment);
        }
        ((at + self.used) / SEGMENT_UNIT) as u32
    }
}

impl<P: Platform, T: QpType> SendQueue<'_, P, T> {
    /// The segments that open a window, or close it if there is no piece.
    fn window_request(
        &self,
        kind: MwType,
        rkey: RKey,
        piece: Option<&MwBind>,
    ) -> Result<Umr, PostError> {
        let qpn = Qpn::from_low_bits(self.cursor.qpn());
        // A queue whose entries have less room than this would overwrite others.
        let blocks = if piece.is_some() {
            BIND_BLOCKS
        } else {
            CLOSE_BLOCKS
        };
        if blocks * self.capacity() > self.ring.blocks() {
            return Err(PostError::Unsupported);
        }
        Ok(Umr::new(kind, rkey, qpn, piece))
    }
}

impl<P: Platform, T: Connected> Batch<'_, '_, P, T> {
    /// Opens a memory window, or with an empty piece closes one: `ibv_wr_bind_mw`. Each request behind it on this
    /// queue waits for those before it from now on, as with [`SendFlags::FENCE`]. The QP was created with space for binds
    /// ([`MwBind::SPACE`]); otherwise this is [`PostError::Unsupported`].
    #[cold]
    pub fn bind_mw(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        bind: &MwBind,
    ) -> Result<(), PostError> {
        let data = &self
            .queue
            .window_request(bind.kind, bind.rkey, bind.piece()?)?;
        self.build(wr_id, bind.rkey.0, flags, &data, Message::<UMR, _>(()))?;
        self.queue.always |= FENCED;
        Ok(())
    }

    /// Closes a window of type 2 that this QP has bound: `ibv_wr_local_inv`.
    #[cold]
    pub fn local_inv(&mut self, wr_id: u64, flags: SendFlags, rkey: RKey) -> Result<(), PostError> {
        let data = &self.queue.window_request(MwType::Type2, rkey, None)?;
        self.build(wr_id, rkey.0, flags, &data, Closing)?;
        self.queue.always |= FENCED;
        Ok(())
    }
}

impl<P: Platform, T: Connected> OpenBatch<'_, '_, P, T> {
    /// As [`Batch::bind_mw`]: `ibv_wr_bind_mw`.
    #[cold]
    pub fn bind_mw(&mut self, wr_id: u64, flags: SendFlags, bind: &MwBind) {
        let request = bind.piece();
        let request =
            request.and_then(|piece| self.queue.window_request(bind.kind, bind.rkey, piece));
        match request {
            Ok(umr) => {
                self.umr_of(wr_id, bind.rkey.0, flags, &umr, Message::<UMR, _>(()));
            }
            Err(error) => self.fail(error),
        }
    }

    /// As [`Batch::local_inv`]: `ibv_wr_local_inv`.
    #[cold]
    pub fn local_inv(&mut self, wr_id: u64, flags: SendFlags, rkey: RKey) {
        match self.queue.window_request(MwType::Type2, rkey, None) {
            Ok(umr) => {
                self.umr_of(wr_id, rkey.0, flags, &umr, Closing);
            }
            Err(error) => self.fail(error),
        }
    }
}
