//! Messages that lie in the entries of their completions.

use core::fmt;
use core::ops::Deref;

use bareverbs_firmware_cmds::cqe::{Format, Opcode};

use crate::verbs::cq::Completion;

/// The most bytes that come in an entry.
const MOST: usize = 32;

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
    /// [`Pd::create_qp_with_cqe_scatter`](crate::Pd::create_qp_with_cqe_scatter). The data take the place of the GRH flag, the
    /// sender's QP, LID and service level, which mean nothing on connections.
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
        if last.format() != Format::Inline32 as u8 || len as usize > MOST {
            return Err(InlineDataError { len });
        }
        let entry = self.0.cqe.to_bytes();
        let mut data = InlineData {
            bytes: [0; MOST],
            len: len as usize,
        };
        data.bytes.copy_from_slice(&entry[..MOST]);
        Ok(Some(data))
    }
}
