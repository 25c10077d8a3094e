//! Messages that lie in the entries of their completions.

// UNSAFETY: says which entries have another half.
#![expect(unsafe_code)]

use core::fmt;
use core::ops::Deref;

use bareverbs_firmware_cmds::cqe::{Format, Opcode};

use crate::verbs::cq::Completion;

/// The most bytes that come in an entry of 128 bytes, in its first half.
const MOST: usize = 64;

/// The most that come in the CQE itself.
const MOST_IN_CQE: usize = 32;

/// A message that came in the entry of its completion
/// ([`CqeScatter`](crate::qp::CqeScatter)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlineData {
    bytes: [u8; MOST],
    len: usize,
}

impl Deref for InlineData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The device says that an entry has more of a message than there is space for, or has it where none was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlineDataError {
    /// Bytes of the message.
    pub len: u32,
}

impl fmt::Display for InlineDataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes cannot be in the entry of a completion",
            self.len
        )
    }
}

impl core::error::Error for InlineDataError {}

impl Completion<'_> {
    /// The message, if it is in the entry and not in the buffer of its work request: on QPs of
    /// [`Pd::create_qp_with_cqe_scatter`](crate::Pd::create_qp_with_cqe_scatter). Data in the CQE itself take the place of the
    /// GRH flag, the sender's QP, LID and service level, which mean nothing on connections. (Where libmlx5 looks:
    /// `MLX5_INLINE_SCATTER_32` and `MLX5_INLINE_SCATTER_64` in rdma-core's `providers/mlx5/cq.c`.)
    ///
    /// # Errors
    ///
    /// [`InlineDataError`] if the device says what cannot be.
    pub fn inline_data(&self) -> Result<Option<InlineData>, InlineDataError> {
        let last = self.0.tail.last();
        let len = self.byte_len();
        if last.opcode() >= Opcode::ResizeCq as u8 || last.format() == Format::NoInline as u8 {
            return Ok(None);
        }
        let (mut bytes, most) = if last.format() == Format::Inline32 as u8 {
            (self.0.cqe.to_bytes(), MOST_IN_CQE)
        } else if last.format() == Format::Inline64 as u8 && self.0.is_long {
            // SAFETY: the CQ has such entries, whatever the device says.
            (unsafe { self.0.cqe.first_half() }, MOST)
        } else {
            return Err(InlineDataError { len });
        };
        let message = len as usize;
        if message > most {
            return Err(InlineDataError { len });
        }
        bytes[message..].fill(0);
        Ok(Some(InlineData {
            bytes,
            len: message,
        }))
    }
}
