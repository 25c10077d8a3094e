//! Reads the recorded commands back from their text.

use std::time::Duration;

use bareverbs::verbs::firmware_cmds::cmdq::{
    BLOCK_DATA_SIZE, CommandQueueEntry, INLINE_SIZE, MailboxBlock, blocks_needed,
};
use bareverbs::verbs::firmware_cmds::dump::{Direction, Line};

/// One direction of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dump {
    /// The times at which its first and its last line were written.
    pub(crate) times: [Duration; 2],
    pub(crate) slot: Option<u32>,
    pub(crate) opcode: u16,
    pub(crate) direction: Direction,
    /// The queue entry and the blocks.
    bytes: Vec<u8>,
}

/// The time in front of a line.
fn stamp(line: &str) -> Option<Duration> {
    let (stamp, _) = line.strip_prefix('[')?.split_once("] ")?;
    let (seconds, nanoseconds) = stamp.split_once('.')?;
    Some(Duration::new(
        seconds.parse().ok()?,
        nanoseconds.parse().ok()?,
    ))
}

/// All dumps of a text, those at the end of it as far as they go.
pub(crate) fn read(text: &str) -> Vec<Dump> {
    let mut dumps: Vec<Dump> = Vec::new();
    for line in text.lines() {
        let now = stamp(line).unwrap_or_default();
        match Line::parse(line) {
            Line::Start {
                slot,
                opcode,
                direction,
                ..
            } => dumps.push(Dump {
                times: [now; 2],
                slot,
                opcode,
                direction,
                bytes: Vec::new(),
            }),
            Line::Row { bytes, .. } => {
                if let Some(dump) = dumps.last_mut() {
                    dump.times[1] = now;
                    dump.bytes.extend_from_slice(&bytes);
                }
            }
            _ => {}
        }
    }
    dumps
}

impl Dump {
    /// The message in it, as far as it is there.
    pub(crate) fn message(&self) -> Vec<u8> {
        let Some((entry, blocks)) = self
            .bytes
            .split_first_chunk::<{ CommandQueueEntry::SIZE }>()
        else {
            return Vec::new();
        };
        let entry = CommandQueueEntry(*entry);
        let (length, inline) = match self.direction {
            Direction::Input => (entry.input_length(), entry.command_input_inline_data()),
            Direction::Output => (entry.output_length(), entry.command_output_inline_data()),
        };
        let length = length as usize;
        let mut message = inline[..length.min(INLINE_SIZE)].to_vec();
        let blocks = blocks.chunks(MailboxBlock::SIZE);
        for block in blocks.take(blocks_needed(length)) {
            message.extend_from_slice(&block[..block.len().min(BLOCK_DATA_SIZE)]);
        }
        message.truncate(length);
        message
    }
}

/// Each command's input with its output, if it was answered.
pub(crate) fn pairs(dumps: &[Dump]) -> Vec<(&Dump, Option<&Dump>)> {
    let mut pairs: Vec<(&Dump, Option<&Dump>)> = Vec::new();
    for dump in dumps {
        match dump.direction {
            Direction::Input => pairs.push((dump, None)),
            Direction::Output => {
                let posted = pairs.iter_mut().rev().find(|(input, output)| {
                    (input.slot, input.opcode) == (dump.slot, dump.opcode) && output.is_none()
                });
                if let Some((_, output)) = posted {
                    *output = Some(dump);
                }
            }
        }
    }
    pairs
}
