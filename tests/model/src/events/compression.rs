//! CQE compression: completions that wait for others like them, and the sessions that become of them.
//!
//! **What is collected.** Completions that differ only in what mini CQEs hold, in the order in which they come. A session
//! ends with a completion that differs in more, that is in error or solicited; when it is as long as the card allows
//! (`cqe_compression_max_num`); where the ring begins again (DPDK's driver reads a session as one piece of memory); after
//! `cqe_compression_timeout`; and with the event of the queue, its arming, and every command, so that none of these waits
//! for it. One completion alone is written as it is.
//!
//! **What is lost**, as on cards: the time stamps of all but the first completion, the hash where the checksum is kept, and the
//! reverse.

use crate::bus::io::Io;
use crate::device::Device;
use crate::events::completion_queue::CqDead;
use crate::objects::cq::{Cq, INDEX};
use bareverbs_firmware_cmds::cq::Cqc;
use bareverbs_firmware_cmds::cqe::mini::{MiniCqe, MiniFormat, PER_ARRAY, array_of};
use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, Format, OpOwn, Opcode, RssHashWord, SIZE, SlidWord, TailWord, TimestampWord,
};
use bareverbs_firmware_cmds::word::Word;
use core::time::Duration;

/// The longest session of cards that do not say.
const MOST: usize = 64;

/// The time that a session stays open on cards that do not say.
const OPEN: Duration = Duration::from_micros(16);

/// Returns `true` if a completion may be part of a compression session.
fn compressible(entry: &[u8; SIZE], solicited: bool) -> bool {
    let last = OpOwn::read(entry);
    let plain = Opcode::from_number(last.opcode())
        .is_some_and(|opcode| !opcode.is_error() && (opcode as u8) < Opcode::ResizeCq as u8);
    plain && !solicited && last.format() == Format::NoInline as u8
}

/// An entry without what its mini CQE has and what is lost.
fn shared(entry: &[u8; SIZE], format: MiniFormat) -> [u8; SIZE] {
    let mut shared = *entry;
    ByteCountWord(0).write(&mut shared);
    TimestampWord(0).write(&mut shared);
    RssHashWord(0).write(&mut shared);
    let mut sum = SlidWord::read(&shared);
    sum.set_check_sum(0);
    sum.write(&mut shared);
    let mut tail = TailWord::read(&shared);
    tail.set_wqe_counter(0);
    let mut last = tail.last();
    last.set_owner(0);
    tail.set_op_own(last.0);
    if last.opcode() == Opcode::Requester as u8 {
        tail.set_wqe_opcode(0);
    }
    tail.write(&mut shared);
    // What was hashed goes with the hash.
    if format != MiniFormat::Hash {
        shared[0x10] = 0;
    }
    shared
}

/// Returns `true` if `next` can follow `last` in a session.
fn follows(last: &[u8; SIZE], next: &[u8; SIZE], format: MiniFormat, strides: bool) -> bool {
    if shared(last, format) != shared(next, format) {
        return false;
    }
    let requester = OpOwn::read(next).opcode() == Opcode::Requester as u8;
    if requester || format == MiniFormat::ChecksumStride {
        return true;
    }
    // Both sides count.
    let [last_at, next_at] = [last, next].map(|entry| TailWord::read(entry).wqe_counter());
    let step = if strides {
        (ByteCountWord::read(last).byte_cnt() >> 16 & 0x7fff) as u16
    } else {
        1
    };
    last_at.wrapping_add(step) == next_at
}

fn mini(entry: &[u8; SIZE], format: MiniFormat) -> MiniCqe {
    let tail = TailWord::read(entry);
    let mut mini = MiniCqe(0);
    mini.set_byte_cnt(ByteCountWord::read(entry).byte_cnt());
    if tail.last().opcode() == Opcode::Requester as u8 {
        mini.set_wqe_counter(tail.wqe_counter());
        mini.set_s_wqe_opcode(tail.wqe_opcode());
        return mini;
    }
    match format {
        MiniFormat::Hash => mini.set_rx_hash_result(RssHashWord::read(entry).rss_hash_result()),
        MiniFormat::Checksum => mini.set_checksum(SlidWord::read(entry).check_sum()),
        MiniFormat::ChecksumStride => {
            mini.set_checksum(SlidWord::read(entry).check_sum());
            mini.set_stridx(tail.wqe_counter());
        }
    }
    mini
}

fn format(context: &Cqc) -> MiniFormat {
    // Others are refused when the queue is created.
    MiniFormat::from_number(context.mini_cqe_res_format()).unwrap_or(MiniFormat::Hash)
}

impl Device {
    /// Takes a completion of a queue that compresses: `true` if it is to be written by this time, `false` if the caller
    /// has to write it.
    pub(crate) fn collect(
        &mut self,
        io: &mut Io<'_>,
        cqn: u32,
        entry: &[u8; SIZE],
        solicited: bool,
    ) -> Result<bool, CqDead> {
        let most = match self.caps.general.cqe_compression_max_num() {
            0 | 1 => MOST,
            most => usize::from(most),
        };
        let open = match self.caps.general.cqe_compression_timeout() {
            0 => OPEN,
            micros => Duration::from_micros(micros.into()),
        };
        let until = self.now + open;
        let Some(cq) = self.cqs.get(cqn) else {
            return Err(CqDead);
        };
        let format = format(&cq.context);
        let fits = compressible(entry, solicited);
        let last = cq.session.entries.last();
        if last.is_some_and(|last| !fits || !follows(last, entry, format, cq.strides)) {
            self.close_session(io, cqn)?;
        }
        if !fits {
            return Ok(false);
        }
        let cq = self.cqs.get_mut(cqn).ok_or(CqDead)?;
        if cq.session.entries.is_empty() {
            cq.session.until = until;
            self.sessions.insert((until, cqn));
        }
        cq.session.entries.push(*entry);
        let collected = cq.session.entries.len();
        let end = (cq.producer + collected as u32) & (cq.size() - 1) == 0;
        if collected >= most || end {
            self.close_session(io, cqn)?;
        }
        Ok(true)
    }

    /// Writes what a queue has collected.
    pub(crate) fn close_session(&mut self, io: &mut Io<'_>, cqn: u32) -> Result<(), CqDead> {
        let cq = self.cqs.get_mut(cqn).ok_or(CqDead)?;
        if cq.session.entries.is_empty() {
            return Ok(());
        }
        let entries = core::mem::take(&mut cq.session.entries);
        self.sessions.remove(&(cq.session.until, cqn));
        let format = format(&cq.context);
        let first = cq.producer;
        let mut written = Ok(());
        if entries.len() > 1 {
            for (array, minis) in entries.chunks(PER_ARRAY as usize).enumerate() {
                let mut slot = [0; SIZE];
                for (place, entry) in slot.as_chunks_mut::<8>().0.iter_mut().zip(minis) {
                    mini(entry, format).write(place);
                }
                let at = first.wrapping_add(array_of(array as u32 * PER_ARRAY));
                written = written.and_then(|()| put(cq, io, at, &slot));
            }
        }
        let mut title = entries[0];
        let mut last = OpOwn::read(&title);
        last.set_owner(u8::from(first & cq.size() != 0));
        if entries.len() > 1 {
            last.set_format(Format::Compressed as u8);
            ByteCountWord(entries.len() as u32).write(&mut title);
            self.stats.compressed_sessions += 1;
            self.stats.compressed += entries.len() as u64;
        }
        last.write(&mut title);
        // The title makes the session the host's, so it is written last.
        if written.and_then(|()| put(cq, io, first, &title)).is_err() {
            self.fail_write(io, cqn);
            return Err(CqDead);
        }
        cq.producer = first.wrapping_add(entries.len() as u32) & INDEX;
        self.stats.completions += entries.len() as u64;
        Ok(())
    }

    /// Writes what all queues have collected.
    pub(crate) fn close_sessions(&mut self, io: &mut Io<'_>) {
        while let Some(&(at, cqn)) = self.sessions.first() {
            if self.close_session(io, cqn).is_err() {
                self.sessions.remove(&(at, cqn));
            }
        }
    }

    /// Writes what has been collected for long enough.
    pub(crate) fn close_late_sessions(&mut self, io: &mut Io<'_>) {
        while let Some(&(at, cqn)) = self.sessions.first()
            && at <= self.now
        {
            if self.close_session(io, cqn).is_err() {
                self.sessions.remove(&(at, cqn));
            }
        }
    }
}

/// Writes an entry at its place.
fn put(cq: &mut Cq, io: &mut Io<'_>, index: u32, entry: &[u8; SIZE]) -> Result<(), ()> {
    let stride = Cq::stride(cq.context.cqe_sz());
    // Of 128 bytes, the second half is the completion, or the array.
    let at = u64::from(index & (cq.size() - 1)) * stride + (stride - 64);
    cq.ring.write(io, at, entry).map_err(|_| ())
}
