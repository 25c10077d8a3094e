//! The ring of a CQ whose entries are compressed, or 128 bytes long, as its consumer uses it.
//!
//! **Sessions.** `firmware-cmds` says how a session of compressed completions lies in the ring ([`mini`]). Here it is taken in one of
//! two ways. [`peek`](SessionRing::peek) *expands* it: each of its entries becomes the CQE that an uncompressed queue would have,
//! so that whatever reads or marks completions one by one need not know of sessions. [`begin`](SessionRing::begin) hands out
//! the mini CQEs themselves, which is the fast way.
//!
//! **Other threads** look how far the device has written ([`SharedRing`](crate::memory::cqe_ring::SharedRing)), and count a
//! session by its title. So the title is expanded last, when all entries behind it have their owner bits, and its `op_own`
//! is written before its byte count.
//!
//! **Ownership.** An array has no owner bit, and what the device does not write has that of an earlier pass. All entries of
//! a session get the owner bit of this pass before they are given back, so that on the next one they are the device's.
//!
//! **Trust.** The count of a session is the device's: one that is less than 2 or more than the ring holds is no session,
//! and its title is reported as a completion with an opcode that fits nothing.

// UNSAFETY: rings are raw memory shared with the device.
#![expect(unsafe_code)]

use core::ptr::NonNull;

use bareverbs_firmware_cmds::cqe::mini::{self, MiniCqe, MiniFormat};
use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, Format, OpOwn, Opcode, PathWord, RssHashWord, SIZE, SlidWord, TailWord,
};
use bareverbs_firmware_cmds::word::Word;

use crate::barrier::{read_barrier, write_barrier};
use crate::memory::cqe_ring::{Cqe, Entries};
use crate::memory::dma::load;
use crate::memory::slots::Receives;

/// Bytes that [`write_decoy`] writes.
pub(crate) const DECOY_LEN: usize = SIZE;

/// Not an opcode of the device: that of a title whose count cannot be.
const NO_SESSION: u8 = 0x8;

/// A CQ's ring with sessions.
#[derive(Debug)]
pub(crate) struct SessionRing {
    entries: Entries,
    /// [`find`](Self::find), through which what expands sessions is only in programs that make such rings.
    look: fn(&Self, u32, u32) -> Option<(Cqe, TailWord)>,
}

// SAFETY: the pointers are to memory that the ring's owner has to itself (and the device).
unsafe impl Send for SessionRing {}

/// A session that is taken as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    /// Its title.
    pub(crate) title: Cqe,
    /// The title's tail, read once.
    pub(crate) tail: TailWord,
    /// Completions in it, at least 2.
    pub(crate) count: u32,
    /// The format of its mini CQEs.
    pub(crate) format: MiniFormat,
}

/// Where the mini CQEs of a session lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrays {
    entries: Entries,
    /// The title's index.
    first: u32,
}

/// Mini CQEs of a session that lie in one entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array(Cqe);

impl Arrays {
    /// The array that has the mini CQE of this completion.
    #[inline(always)]
    pub(crate) fn of(self, completion: u32) -> Array {
        let ahead = mini::array_of(completion);
        Array(self.entries.at(self.first.wrapping_add(ahead)))
    }
}

impl Array {
    /// The mini CQE of this completion.
    #[inline(always)]
    pub(crate) fn mini(self, completion: u32) -> MiniCqe {
        let at = (completion % mini::PER_ARRAY) as usize * size_of::<MiniCqe>();
        // SAFETY: inside the entry, which is in the ring.
        unsafe { load(self.0.base().add(at)) }
    }
}

impl SessionRing {
    /// A ring of `size` CQEs (a power of two) of `1 << log_stride` bytes at `base` that was not used yet.
    ///
    /// # Safety
    /// As [`CqeRing::new`](crate::memory::cqe_ring::CqeRing::new).
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        size: u32,
        log_stride: u8,
        format: Option<MiniFormat>,
    ) -> Self {
        Self {
            entries: Entries {
                base,
                size,
                log_stride,
                format,
            },
            look: Self::find,
        }
    }

    /// Where the CQEs are.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The CQE with this index (less than the ring's size ahead of the next one's, `ci`, and not inside of a session) and its
    /// tail, if it is the host's. A session that begins there is expanded first.
    pub(crate) fn owned(&mut self, ci: u32, index: u32) -> Option<(Cqe, TailWord)> {
        (self.look)(self, ci, index)
    }

    fn find(&self, ci: u32, index: u32) -> Option<(Cqe, TailWord)> {
        let entry = self.entries.at(index);
        let tail = entry.word::<TailWord>();
        if !tail.last().is_ready(self.entries.parity(index)) {
            return None;
        }
        read_barrier();
        let Some(format) = self.entries.format else {
            return Some((entry, tail));
        };
        if tail.last().format() != Format::Compressed as u8 {
            return Some((entry, tail));
        }
        let tail = match self.count_of(ci, index, entry) {
            Some(count) => self.expand(index, entry, tail, count, format),
            None => no_session(entry, tail),
        };
        Some((entry, tail))
    }

    /// The completions of the session with this title, if they can be that many.
    fn count_of(&self, ci: u32, index: u32, title: Cqe) -> Option<u32> {
        let count = title.word::<ByteCountWord>().byte_cnt();
        let room = self.entries.size - index.wrapping_sub(ci);
        (2..=room).contains(&count).then_some(count)
    }

    /// Makes CQEs of a session, and returns the tail of the first.
    #[inline(never)]
    fn expand(
        &self,
        first: u32,
        title: Cqe,
        tail: TailWord,
        count: u32,
        format: MiniFormat,
    ) -> TailWord {
        let bytes = title.to_bytes();
        let mut first_tail = tail;
        // From the end on, since the first array lies where the second CQE will be; each array is read before it is
        // overwritten.
        let mut left = count;
        while left > 0 {
            let from = (left - 1) & !(mini::PER_ARRAY - 1);
            let array = self.entries.at(first.wrapping_add(mini::array_of(from)));
            let minis = array.to_bytes();
            for (nth, bits) in minis
                .as_chunks::<{ MiniCqe::SIZE }>()
                .0
                .iter()
                .enumerate()
                .rev()
            {
                let at = from + nth as u32;
                if at >= left {
                    continue;
                }
                let mini = MiniCqe::read(bits);
                let index = first.wrapping_add(at);
                let mut copy = bytes;
                let done = expanded(
                    &mut copy,
                    tail,
                    mini,
                    format,
                    at as u16,
                    self.entries.parity(index),
                );
                if at > 0 {
                    self.entries.at(index).set_bytes(&copy);
                } else {
                    first_tail = done;
                    write_barrier();
                    title.set_word(done);
                    write_barrier();
                    title.set_bytes(&copy);
                }
            }
            left = from;
        }
        first_tail
    }

    /// The next CQE, with the index `ci`, if it is the title of a session: that is taken as it is, from
    /// [`minis`](Self::minis), and ended with [`end`](Self::end).
    #[inline(always)]
    pub(crate) fn begin(&self, ci: u32) -> Option<Session> {
        let title = self.entries.at(ci);
        let tail = title.word::<TailWord>();
        let last = tail.last();
        if !last.is_ready(self.entries.parity(ci)) || last.format() != Format::Compressed as u8 {
            return None;
        }
        read_barrier();
        let format = self.entries.format?;
        let count = self.count_of(ci, ci, title)?;
        Some(Session {
            title,
            tail,
            count,
            format,
        })
    }

    /// Where the mini CQEs of the session lie that begins at `ci`.
    #[inline(always)]
    pub(crate) fn arrays(&self, ci: u32) -> Arrays {
        Arrays {
            entries: self.entries,
            first: ci,
        }
    }

    /// Hands the mini CQEs of a session to `each` in order, with the identifiers that come next.
    #[inline(always)]
    pub(crate) fn minis(
        &self,
        ci: u32,
        session: &Session,
        mut ids: Receives<'_>,
        mut each: impl FnMut(u64, MiniCqe),
    ) {
        const ALL: usize = mini::PER_ARRAY as usize;
        let mut from = 0;
        while from < session.count {
            let array = self.entries.at(ci.wrapping_add(mini::array_of(from)));
            // SAFETY: fewer than an array has, whose entry is in the ring.
            let mini = |nth: usize| unsafe { load(array.base().add(nth * size_of::<MiniCqe>())) };
            let left = session.count - from;
            // Most arrays are full and no end of a ring is between their identifiers: then all places are known when the code
            // is compiled.
            let all =
                left >= mini::PER_ARRAY && ids.next_ids::<ALL>(|nth, wr_id| each(wr_id, mini(nth)));
            if !all {
                for nth in 0..left.min(mini::PER_ARRAY) as usize {
                    each(ids.next_id(), mini(nth));
                }
            }
            from += mini::PER_ARRAY;
        }
    }

    /// Marks the entries of a session; the index behind it.
    #[inline(always)]
    pub(crate) fn end(&mut self, ci: u32, session: &Session) -> u32 {
        let mask = self.entries.size - 1;
        let first = ci.wrapping_add(1);
        // Those up to the ring's end, and the rest of the next pass.
        let rest = session.count - 1;
        let before = rest.min(self.entries.size - (first & mask));
        for (from, count) in [(first, before), (first.wrapping_add(before), rest - before)] {
            let owner = OpOwn(self.entries.parity(from));
            let entry = self.entries.at(from).base();
            // SAFETY: so many entries lie there before the ring's end, at this distance.
            unsafe {
                match self.entries.log_stride {
                    6 => mark::<64>(entry, count, owner),
                    _ => mark::<128>(entry, count, owner),
                }
            }
        }
        ci.wrapping_add(session.count)
    }
}

/// Writes an entry that is always there and names no QP: of a ring that has only this one, what polls in a straight line
/// goes on to look elsewhere.
///
/// # Safety
/// There are [`DECOY_LEN`] bytes of memory, shared with the device, aligned to 8.
pub(crate) unsafe fn write_decoy(at: NonNull<u8>) {
    let mut bytes = [0xff; SIZE];
    bytes[SIZE - 1] = OpOwn::new(Opcode::Requester).0;
    Cqe::at(at).set_bytes(&bytes);
}

/// Writes the last byte of so many entries.
///
/// # Safety
/// The entries lie in a ring, `STRIDE` bytes apart, the first one here.
#[inline(always)]
unsafe fn mark<const STRIDE: usize>(first: NonNull<u8>, count: u32, owner: OpOwn) {
    const TOGETHER: usize = 8;
    let count = count as usize;
    let whole = count & !(TOGETHER - 1);
    let mut nth = 0;
    while nth < whole {
        for next in 0..TOGETHER {
            // SAFETY: less than the count.
            Cqe::at(unsafe { first.byte_add((nth + next) * STRIDE) }).set_word(owner);
        }
        nth += TOGETHER;
    }
    while nth < count {
        // SAFETY: as above.
        Cqe::at(unsafe { first.byte_add(nth * STRIDE) }).set_word(owner);
        nth += 1;
    }
}

/// Makes the title of what is no session a completion that fits nothing.
#[cold]
fn no_session(title: Cqe, mut tail: TailWord) -> TailWord {
    let mut last = OpOwn(0);
    last.set_opcode(NO_SESSION);
    last.set_owner(tail.last().owner());
    tail.set_op_own(last.0);
    title.set_word(tail);
    tail
}

/// Makes of a title's bytes the CQE of one completion of its session, and returns its tail.
fn expanded(
    entry: &mut [u8; SIZE],
    title: TailWord,
    mini: MiniCqe,
    format: MiniFormat,
    nth: u16,
    owner: u8,
) -> TailWord {
    let mut tail = title;
    let mut last = title.last();
    last.set_format(Format::NoInline as u8);
    last.set_owner(owner);
    tail.set_op_own(last.0);
    ByteCountWord(mini.byte_cnt()).write(entry);
    if last.opcode() == Opcode::Requester as u8 {
        tail.set_wqe_counter(mini.wqe_counter());
        tail.set_wqe_opcode(mini.s_wqe_opcode());
    } else {
        match format {
            MiniFormat::Hash => RssHashWord(mini.rx_hash_result()).write(entry),
            MiniFormat::Checksum | MiniFormat::ChecksumStride => {
                let mut sum = SlidWord::read(entry);
                sum.set_check_sum(mini.checksum());
                sum.write(entry);
                // Only the first one's is known.
                RssHashWord(0).write(entry);
                let mut hashed = PathWord::read(entry);
                hashed.set_rss_hash_type(0);
                hashed.write(entry);
            }
        }
        tail.set_wqe_counter(match format {
            MiniFormat::ChecksumStride => mini.stridx(),
            _ => title.wqe_counter().wrapping_add(nth),
        });
    }
    tail.write(entry);
    tail
}
