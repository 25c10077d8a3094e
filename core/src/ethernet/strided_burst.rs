//! Frames of a striding queue that are taken together.

use bareverbs_firmware_cmds::cqe::{Opcode, TailWord};

use crate::ethernet::error::EthernetReceiveError;
use crate::ethernet::strided::{StridedFrame, StridingReceive};
use crate::memory::cqe_ring::Cqe;
use crate::platform::Platform;
use crate::verbs::cq::CqEntries;

/// Frames of a striding queue, taken together: [`StridingReceive::burst`].
#[derive(Debug)]
pub struct StridedBurst<'q, 'd, P: Platform> {
    receive: &'q mut StridingReceive<'d, P>,
    /// Completions were taken.
    taken: bool,
    /// Completions taken that had no frame.
    without_frame: u32,
}

impl<'q, 'd, P: Platform> StridedBurst<'q, 'd, P> {
    #[inline(always)]
    pub(super) fn new(receive: &'q mut StridingReceive<'d, P>) -> Self {
        Self {
            taken: false,
            without_frame: 0,
            receive,
        }
    }

    /// The next frame, `None` if there is none.
    ///
    /// # Errors
    /// The errors are those of [`StridingReceive::receive`].
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<StridedFrame>, EthernetReceiveError> {
        loop {
            let Some((entry, tail)) = self.receive.cq.peek_entry() else {
                return self.nothing();
            };
            if matches!(self.receive.failure, Some(EthernetReceiveError::Strides(_))) {
                return self.nothing();
            }
            let frame = if tail.last().opcode() == Opcode::ResponderSend as u8 {
                self.receive.cq.advance_entry(entry);
                self.receive.complete(entry, tail)
            } else {
                match self.unusual(entry, tail) {
                    Some(frame) => frame,
                    None => return self.nothing(),
                }
            };
            self.taken = true;
            if let Some(frame) = frame {
                return Ok(Some(frame));
            }
            // No more than can be there at once, so that a broken device cannot block the caller.
            self.without_frame += 1;
            if self.without_frame > self.receive.cq.cqe() {
                return Ok(None);
            }
        }
    }

    /// Takes a completion in error or, of a CQ that compresses, any completion; `None` if there is none of the latter.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, entry: Cqe, tail: TailWord) -> Option<Option<StridedFrame>> {
        let cq = &mut self.receive.cq;
        let (entry, tail) = if cq.init().entries == CqEntries::PLAIN {
            cq.advance_entry(entry);
            (entry, tail)
        } else {
            cq.take_of_sessions()?
        };
        Some(self.receive.complete(entry, tail))
    }

    #[cold]
    #[inline(never)]
    fn nothing(&mut self) -> Result<Option<StridedFrame>, EthernetReceiveError> {
        match self.receive.failure {
            Some(failure) => Err(failure),
            None => {
                self.receive.cq.check().map_err(EthernetReceiveError::Cq)?;
                Ok(None)
            }
        }
    }
}

impl<P: Platform> Drop for StridedBurst<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.taken {
            self.receive.cq.publish_taken();
        }
    }
}
