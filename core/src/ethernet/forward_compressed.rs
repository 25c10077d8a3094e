//! Forwarding where the receiving device compresses completions: of a session only the lengths are read, eight of them from
//! an entry, and all its frames go out together.

use core::fmt;
use core::ops::Deref;

use bareverbs_firmware_cmds::cqe::mini::PER_ARRAY;
use bareverbs_firmware_cmds::cqe::{
    ByteCountWord, Format, IndexWord, Opcode as CqeOpcode, TailWord,
};

use crate::ethernet::compression::FrameCompression;
use crate::ethernet::domain::EthernetDomain;
use crate::ethernet::error::EthernetError;
use crate::ethernet::forward::{BURST, DATA_AT, DATA_AT_ONCE, Forwarder};
use crate::ethernet::forward_types::{ForwardError, ForwardInit};
use crate::memory::cqe_ring::Cqe;
use crate::memory::session_ring::{Arrays, Session};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::verbs::pd::Pd;

/// A [`Forwarder`] whose receiving device compresses completions.
pub struct CompressedForwarder<'d, P: Platform>(Forwarder<'d, P>);

impl<'d, P: Platform> EthernetDomain<'d, P> {
    /// Creates a forwarder like [`create_forwarder`](Self::create_forwarder), with completions of what is received compressed.
    ///
    /// # Errors
    /// It fails for the same reasons, and with [`CqError::NotOffered`](crate::CqError::NotOffered) on cards that do not compress.
    pub fn create_compressed_forwarder(
        &self,
        pd: &Pd<'d, P>,
        to: (&Self, &Pd<'d, P>),
        init: &ForwardInit,
        compression: FrameCompression,
    ) -> Result<CompressedForwarder<'d, P>, EthernetError> {
        let lane = self.make_forwarder(pd, to, init, compression.entries())?;
        Ok(CompressedForwarder(lane))
    }
}

impl<P: Platform> CompressedForwarder<'_, P> {
    /// Forwards like [`Forwarder::forward`]; of a session that begins in the burst all frames are taken.
    ///
    /// # Errors
    /// It fails as [`Forwarder::forward`] does.
    #[inline]
    pub fn forward(&mut self) -> Result<u32, ForwardError> {
        let lane = &mut self.0;
        if let Some(failure) = lane.failure {
            return Err(failure);
        }
        lane.complete()?;
        let (first, sent) = (lane.rx_tail, lane.tx_head);
        let mut taken = 0;
        while taken < BURST as u32 {
            let count = if lane.inline == 0 {
                lane.forward_next::<DATA_AT_ONCE, 2>()
            } else {
                lane.forward_next::<DATA_AT, 4>()
            };
            if count == 0 {
                break;
            }
            taken += count;
        }
        lane.finish(first, sent)
    }

    /// Destroys the lane: [`Forwarder::destroy`].
    ///
    /// # Errors
    /// It fails as [`Forwarder::destroy`] does.
    pub fn destroy(self) -> Result<(), CommandError> {
        self.0.destroy()
    }
}

impl<P: Platform> Forwarder<'_, P> {
    /// Writes requests for the next session, or for what comes next else; how many completions that were.
    #[inline(always)]
    fn forward_next<const DATA_AT: usize, const N: usize>(&mut self) -> u32 {
        match self.rx.begin_session() {
            Some((session, arrays)) if self.awaits(&session) => {
                self.put_frames::<DATA_AT, N>(session.count, arrays);
                self.rx.end_session(&session);
                session.count
            }
            _ => self.forward_single::<DATA_AT, N>(),
        }
    }

    /// Returns `true` if a completion is of the buffer that comes next.
    #[inline(always)]
    fn is_next(&self, entry: Cqe, tail: TailWord) -> bool {
        tail.last().opcode() == CqeOpcode::ResponderSend as u8
            && entry.word::<IndexWord>().srqn_uidx() == self.rx.index
            && (u32::from(tail.wqe_counter()) ^ self.rx_tail) & self.mask == 0
    }

    /// Returns `true` if a session is of buffers that the device has, from the next one on.
    #[inline(always)]
    fn awaits(&self, session: &Session) -> bool {
        let posted = self.rx_head.wrapping_sub(self.rx_tail);
        self.is_next(session.title, session.tail) && session.count <= posted
    }

    /// Writes requests for the frames of a session.
    #[inline(always)]
    fn put_frames<const DATA_AT: usize, const N: usize>(&mut self, all: u32, arrays: Arrays) {
        let (least, lengths) = self.lengths();
        let mut done = 0;
        while done < all {
            let from = done;
            let count = self.rest().min(all - from);
            let mut array = arrays.of(from);
            let put = self.put::<DATA_AT, N>(count, |nth| {
                let at = from + nth;
                if at % PER_ARRAY == 0 {
                    array = arrays.of(at);
                }
                let length = array.mini(at).byte_cnt();
                (length.wrapping_sub(least) < lengths).then_some(length)
            });
            done += put;
            if put < count {
                self.drop_next();
                done += 1;
            }
        }
    }

    /// A completion that is in no session, or in one of others than the buffers that come next: its session is expanded.
    #[inline(never)]
    fn forward_single<const DATA_AT: usize, const N: usize>(&mut self) -> u32 {
        let Some((entry, tail)) = self.rx.take_of_sessions() else {
            return 0;
        };
        let (least, lengths) = self.lengths();
        let length = entry.word::<ByteCountWord>().byte_cnt();
        let usual = self.rx_head != self.rx_tail
            && self.is_next(entry, tail)
            && tail.last().format() == Format::NoInline as u8
            && length.wrapping_sub(least) < lengths;
        if usual {
            self.put::<DATA_AT, N>(1, |_| Some(length));
        } else {
            self.refuse(entry, tail);
        }
        1
    }
}

impl<'d, P: Platform> Deref for CompressedForwarder<'d, P> {
    type Target = Forwarder<'d, P>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<P: Platform> fmt::Debug for CompressedForwarder<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
