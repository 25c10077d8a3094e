//! Opening, changing and closing indirect memory keys: UMR work requests with lists and strided patterns.
//!
//! ```text
//! control segment  UMR control segment  context of the key  list, padded to 64 bytes    or where the list lies
//! 16 bytes         48                   64                  16 for each entry           16
//! ```

use crate::device::capabilities::Capabilities;
use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::types::sge::{Access, Sge};
use crate::verbs::mkey::{Mkey, MkeyEntries, MkeyInitAttr, MrList};
use crate::verbs::mr::Mr;
use crate::verbs::qp::queue::payload::{Payload, sealed};
use crate::verbs::qp::queue::send::{Batch, SendQueue};
use crate::verbs::qp::queue::window::FENCED;
use crate::verbs::qp::queue::wr::{PostError, SendFlags, given};
use crate::verbs::qp::route::segments::{Message, UMR};
use crate::verbs::qp::route::service::{QpType, Reliable};
use bareverbs_firmware_cmds::mkey::Mkc;
use bareverbs_firmware_cmds::numbers::{LKey, Qpn, RKey};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::umr::{LIST_UNIT, REPEAT, mask};
use bareverbs_firmware_cmds::wqe::{
    RepeatAddressWord, RepeatBlockWord, RepeatCountWord, RepeatEntryWord, SEGMENT_UNIT,
    UmrMaskWord, UmrWord, data_segment,
};

/// The UMR control segment and the key's context, which follow the control segment.
const HEAD: usize = 48 + 64;
/// Bytes before the list.
const BEFORE: usize = SEGMENT_UNIT + HEAD;
/// Octowords of the longest list that a WQE of at most 63 segments holds.
const LONGEST: usize = (63 - BEFORE / SEGMENT_UNIT) / LIST_UNIT * LIST_UNIT;
/// The longest entry of a list.
const LONGEST_ENTRY: u32 = 1 << 31;

/// A piece of memory that a pattern takes again and again: `struct mlx5dv_mr_interleaved`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrInterleaved {
    /// Where the first one lies.
    pub addr: u64,
    /// Bytes of each.
    pub bytes_count: u16,
    /// Bytes that are left out behind each.
    pub bytes_skip: u16,
    /// The key of the memory.
    pub lkey: LKey,
}

impl MkeyInitAttr {
    /// The least [`QpCap::max_inline_data`](crate::qp::QpCap::max_inline_data) of a QP that posts lists of so many entries
    /// within its work requests. A strided pattern has one entry more than pieces; a list in memory takes as much as one
    /// entry.
    #[must_use]
    pub const fn space(entries: u32) -> u32 {
        // What lies before the inline data of a write is 36 bytes.
        BEFORE as u32 - 36 + entries.next_multiple_of(LIST_UNIT as u32) * SEGMENT_UNIT as u32
    }
}

/// The new translation of a key.
#[derive(Debug, Clone, Copy)]
enum Translation<'a> {
    /// Nothing: the key is closed.
    None,
    List(&'a [Sge]),
    Interleaved(u32, &'a [MrInterleaved]),
    /// A list that lies there.
    Pointer(Sge),
}

/// A UMR request as the segments behind the control segment.
struct Request<'a> {
    head: [u8; HEAD],
    translation: Translation<'a>,
}

impl sealed::Sealed for &Request<'_> {}

impl Payload for &Request<'_> {
    type Parts = Self;

    fn parts(self) -> Self {
        self
    }

    fn of(parts: Self) -> Self {
        parts
    }

    fn is_usual<T: QpType>(self, _: usize, _: u8, _: usize, _: Wqe<'_>) -> bool {
        true
    }

    fn write_usual(self, at: usize, wqe: Wqe<'_>) -> u32 {
        self.write(at, wqe)
    }

    fn check<T: QpType>(self, _: u8, _: u16) -> Result<(), PostError> {
        Ok(())
    }

    fn write(self, at: usize, wqe: Wqe<'_>) -> u32 {
        let mut at = at;
        let mut put = |segment: &[u8; SEGMENT_UNIT]| {
            wqe.put_segment(at, segment);
            at += SEGMENT_UNIT;
        };
        let (segments, _) = self.head.as_chunks();
        segments.iter().for_each(&mut put);
        let pad = |entries: usize| entries.next_multiple_of(LIST_UNIT) - entries;
        let padding = match self.translation {
            Translation::None => 0,
            Translation::List(pieces) => {
                for piece in pieces {
                    put(&data_segment(piece.length, piece.lkey, piece.addr));
                }
                pad(pieces.len())
            }
            Translation::Interleaved(repeat, pieces) => {
                put(&pattern(repeat, pieces));
                for piece in pieces {
                    put(&pattern_entry(piece));
                }
                pad(pieces.len() + 1)
            }
            Translation::Pointer(list) => {
                put(&data_segment(list.length, list.lkey, list.addr));
                0
            }
        };
        for _ in 0..padding {
            put(&[0; SEGMENT_UNIT]);
        }
        (at / SEGMENT_UNIT) as u32
    }
}

/// The head of a strided pattern.
fn pattern(repeat: u32, pieces: &[MrInterleaved]) -> [u8; SEGMENT_UNIT] {
    let mut segment = [0; SEGMENT_UNIT];
    let mut block = RepeatBlockWord(0);
    block.set_byte_count(round(pieces) as u32);
    block.set_op(REPEAT);
    block.write(&mut segment);
    let mut count = RepeatCountWord(0);
    count.set_repeat_count(repeat);
    count.set_num_ent(pieces.len() as u16);
    count.write(&mut segment);
    segment
}

fn pattern_entry(piece: &MrInterleaved) -> [u8; SEGMENT_UNIT] {
    let mut segment = [0; SEGMENT_UNIT];
    let mut entry = RepeatEntryWord(0);
    // Their sum was checked.
    entry.set_stride(piece.bytes_count.wrapping_add(piece.bytes_skip));
    entry.set_byte_count(piece.bytes_count);
    entry.set_memkey(piece.lkey.0);
    entry.write(&mut segment);
    RepeatAddressWord(piece.addr).write(&mut segment);
    segment
}

/// Bytes of one repetition.
fn round(pieces: &[MrInterleaved]) -> u64 {
    pieces
        .iter()
        .map(|piece| u64::from(piece.bytes_count))
        .sum()
}

impl<P: Platform> Mkey<'_, P> {
    /// Refuses what does not fit into the key's list.
    fn check_entries(&self, entries: usize) -> Result<(), PostError> {
        let limit = self.attr().max_entries;
        match entries as u64 <= u64::from(limit) {
            true => Ok(()),
            false => Err(PostError::TooManySges {
                given: given(entries),
                limit: limit.try_into().unwrap_or(u16::MAX),
            }),
        }
    }

    fn check_list(&self, pieces: &[Sge]) -> Result<u64, PostError> {
        self.check_entries(pieces.len())?;
        let fixed = self.attr().entries.fixed();
        for &Sge { length, .. } in pieces {
            match fixed {
                None if length <= LONGEST_ENTRY => {}
                Some(size) if length == size => {}
                _ => return Err(PostError::SgeTooLong { length }),
            }
        }
        Ok(pieces.iter().map(|piece| u64::from(piece.length)).sum())
    }

    /// The UMR control segment and the context that open the key for `len` bytes, in a list of so many octowords.
    fn open(
        &self,
        access: Access,
        len: u64,
        octowords: u32,
        inline: bool,
    ) -> Result<[u8; HEAD], PostError> {
        // What a key was made with at first is closed to atomics.
        let (fields, mut mkc) = rights(self.capabilities(), access, false)?;
        let fields = fields | mask::FREE | mask::LEN;
        mkc.set_len(len);
        // A list has 16 bits for its length.
        let octowords = u16::try_from(octowords).map_err(|_| PostError::Unsupported)?;
        Ok(head(self.rkey(), fields, mkc, octowords, inline))
    }
}

/// The fields of a key's context that say what may be done, as far as the device's UMRs change them. `atomics` is whether the
/// key allows atomics now.
fn rights(caps: &Capabilities, access: Access, atomics: bool) -> Result<(u64, Mkc), PostError> {
    let mut fields = mask::LW | mask::RR | mask::RW;
    let mut mkc = Mkc::ZERO;
    let asked = access.contains(Access::REMOTE_ATOMIC);
    if asked && !caps.has_atomics() {
        return Err(PostError::NoAtomics);
    }
    if !caps.hca.umr_modify_atomic_disabled() {
        fields |= mask::A;
    } else if asked != atomics {
        return Err(PostError::NoAtomics);
    }
    let relaxed = access.contains(Access::RELAXED_ORDERING);
    let write = caps.hca.relaxed_ordering_write_umr();
    let read = caps.hca.relaxed_ordering_read_umr();
    if write {
        fields |= mask::RELAXED_ORDERING_WRITE;
    }
    if read {
        fields |= mask::RELAXED_ORDERING_READ;
    }
    mkc.set_lr(true)
        .set_lw(access.contains(Access::LOCAL_WRITE))
        .set_rr(access.contains(Access::REMOTE_READ))
        .set_rw(access.contains(Access::REMOTE_WRITE))
        .set_a(asked)
        .set_relaxed_ordering_write(relaxed && write)
        .set_relaxed_ordering_read(relaxed && read);
    Ok((fields, mkc))
}

impl<P: Platform> Mr<'_, P> {
    /// The fields of the key's context for these rights.
    fn rights(&self, access: Access) -> Result<(u64, Mkc), PostError> {
        let remote = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(remote) && !access.contains(Access::LOCAL_WRITE) {
            return Err(PostError::Unsupported);
        }
        let atomics = self.access().contains(Access::REMOTE_ATOMIC);
        rights(self.capabilities(), access, atomics)
    }
}

/// The UMR control segment and the key's context.
fn head(key: RKey, fields: u64, mut mkc: Mkc, octowords: u16, inline: bool) -> [u8; HEAD] {
    mkc.set_qpn(Qpn::ANY.number()).set_mkey_7_0(key.0 as u8);
    let mut control = UmrWord(0);
    control.set_inline(inline);
    control.set_xlt_octowords(octowords);
    let mut head = [0; HEAD];
    if let Some((first, context)) = head.split_first_chunk_mut::<48>() {
        control.write(first);
        UmrMaskWord(fields).write(first);
        context.copy_from_slice(&mkc.0);
    }
    head
}

impl<P: Platform, T: QpType> SendQueue<'_, P, T> {
    /// Refuses a list of so many octowords that the queue's work requests have no room for.
    fn check_octowords(&self, octowords: usize) -> Result<(), PostError> {
        let blocks = match self.capacity() {
            0 => return Err(PostError::WrongState),
            capacity => self.ring.blocks() / capacity,
        };
        let limit =
            ((blocks as usize * LIST_UNIT).saturating_sub(BEFORE / SEGMENT_UNIT)).min(LONGEST);
        match octowords <= limit {
            true => Ok(()),
            false => Err(PostError::TooManySges {
                given: given(octowords),
                limit: limit as u16,
            }),
        }
    }
}

impl<P: Platform, T: Reliable> Batch<'_, '_, P, T> {
    /// Makes an indirect key lead through these pieces, and opens it: `mlx5dv_wr_mr_list`. Its addresses are those from 0 on.
    /// The QP was created with space for the list ([`MkeyInitAttr::space`]). Each request behind it on this queue waits for those
    /// before it from now on, as with [`SendFlags::FENCE`]. The completion is that of a bind.
    ///
    /// The pieces of a KSM key have the key's entry size each. `access` has [`Access::LOCAL_WRITE`],
    /// [`REMOTE_READ`](Access::REMOTE_READ), [`REMOTE_WRITE`](Access::REMOTE_WRITE),
    /// [`REMOTE_ATOMIC`](Access::REMOTE_ATOMIC) and [`RELAXED_ORDERING`](Access::RELAXED_ORDERING); what the key allows, the
    /// pieces' keys have to allow locally.
    ///
    /// # Errors
    /// [`PostError::TooManySges`] if the list has no room in the key or in the queue, [`PostError::SgeTooLong`] for a piece
    /// of more than 2 GiB or of another size than the key's, [`PostError::NoAtomics`] where the device's UMRs do not change
    /// that right.
    pub fn mr_list(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        mkey: &Mkey<'_, P>,
        access: Access,
        pieces: &[Sge],
    ) -> Result<(), PostError> {
        let len = mkey.check_list(pieces)?;
        let octowords = pieces.len().next_multiple_of(LIST_UNIT);
        self.queue.check_octowords(octowords)?;
        let head = mkey.open(access, len, octowords as u32, true)?;
        self.indirect(wr_id, flags, mkey, head, Translation::List(pieces))
    }

    /// The same with a list that lies in memory, and may be longer than what a work request holds: up to 65,532 entries.
    ///
    /// # Errors
    /// As [`mr_list`](Self::mr_list); a KSM key's pieces are not looked at.
    pub fn mr_list_in_memory(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        mkey: &Mkey<'_, P>,
        access: Access,
        list: &MrList<'_, P>,
    ) -> Result<(), PostError> {
        mkey.check_entries(list.entries() as usize)?;
        self.queue.check_octowords(LIST_UNIT)?;
        let octowords = list.entries().next_multiple_of(LIST_UNIT as u32);
        let head = mkey.open(access, list.len(), octowords, false)?;
        let mut segment = list.segment();
        segment.length = octowords * SEGMENT_UNIT as u32;
        self.indirect(wr_id, flags, mkey, head, Translation::Pointer(segment))
    }

    /// Makes a KLM key lead through a strided pattern, and opens it: `mlx5dv_wr_mr_interleaved`. One repetition takes each
    /// piece once; the next takes them `bytes_count + bytes_skip` further on. Otherwise as [`mr_list`](Self::mr_list).
    ///
    /// # Errors
    /// As [`mr_list`](Self::mr_list), [`PostError::SgeTooLong`] for a stride beyond 65,535 bytes, and
    /// [`PostError::Unsupported`] for a KSM key.
    pub fn mr_interleaved(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        mkey: &Mkey<'_, P>,
        access: Access,
        repeat_count: u32,
        pieces: &[MrInterleaved],
    ) -> Result<(), PostError> {
        if mkey.attr().entries != MkeyEntries::Klm {
            return Err(PostError::Unsupported);
        }
        let entries = pieces.len() + 1;
        mkey.check_entries(entries)?;
        for piece in pieces {
            if piece.bytes_count.checked_add(piece.bytes_skip).is_none() {
                let length = u32::from(piece.bytes_count) + u32::from(piece.bytes_skip);
                return Err(PostError::SgeTooLong { length });
            }
        }
        let octowords = entries.next_multiple_of(LIST_UNIT);
        self.queue.check_octowords(octowords)?;
        let len = round(pieces) * u64::from(repeat_count);
        let head = mkey.open(access, len, octowords as u32, true)?;
        let translation = Translation::Interleaved(repeat_count, pieces);
        self.indirect(wr_id, flags, mkey, head, translation)
    }

    /// Changes what may be done to a region, whose keys stay: `ibv_rereg_mr` with `IBV_REREG_MR_CHANGE_ACCESS`. The region is
    /// of the QP's protection domain. Each request behind it on this queue waits for those before it from now on.
    ///
    /// # Errors
    /// [`PostError::NoAtomics`] where the device's UMRs do not change that right and it would change, and
    /// [`PostError::Unsupported`] for remote writing or atomics without local writing.
    pub fn rereg_access(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        mr: &mut Mr<'_, P>,
        access: Access,
    ) -> Result<(), PostError> {
        self.queue.check_octowords(0)?;
        let (fields, mkc) = mr.rights(access)?;
        let head = head(mr.rkey(), fields, mkc, 0, true);
        let data = &Request {
            head,
            translation: Translation::None,
        };
        self.build(wr_id, mr.lkey().0, flags, &data, Message::<UMR, _>(()))?;
        self.queue.always |= FENCED;
        mr.set_access(access);
        Ok(())
    }

    /// Closes an indirect key: `ibv_wr_local_inv`. The next list opens it again.
    pub fn local_inv_mkey(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        mkey: &Mkey<'_, P>,
    ) -> Result<(), PostError> {
        self.queue.check_octowords(0)?;
        let mut mkc = Mkc::ZERO;
        mkc.set_free(true);
        let head = head(mkey.rkey(), mask::FREE, mkc, 0, true);
        self.indirect(wr_id, flags, mkey, head, Translation::None)
    }

    fn indirect(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        mkey: &Mkey<'_, P>,
        head: [u8; HEAD],
        translation: Translation<'_>,
    ) -> Result<(), PostError> {
        let data = &Request { head, translation };
        self.build(wr_id, mkey.lkey().0, flags, &data, Message::<UMR, _>(()))?;
        self.queue.always |= FENCED;
        Ok(())
    }
}
