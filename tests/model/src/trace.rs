//! Commands in the log of a driver: from its lines to whole messages.
//!
//! The lines are those of [`dump`](bareverbs_firmware_cmds::dump), which Linux's driver writes, too.

use bareverbs_firmware_cmds::cmdq::{
    BLOCK_DATA_SIZE, CommandQueueEntry, DeliveryStatus, INLINE_SIZE, MailboxBlock, blocks_needed,
};
use bareverbs_firmware_cmds::dump::{Direction, Line};
use std::collections::HashMap;

/// One direction of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its length as the queue entry says.
    pub length: usize,
    /// As much of it as the trace has.
    pub bytes: Vec<u8>,
    /// The trace breaks off inside it. (Some kernels leave out whole blocks; that is no fault of the trace.)
    pub cut_off: bool,
    /// The entry's delivery status, of an output.
    pub delivery: Option<DeliveryStatus>,
}

/// Input and output that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Entry of the command queue; `None` where the kernel is too old to say.
    pub slot: Option<u32>,
    /// Opcode.
    pub opcode: u16,
    /// Line on which its first dump starts.
    pub line: usize,
    /// The driver's input.
    pub input: Option<Message>,
    /// The device's answer.
    pub output: Option<Message>,
}

/// All of a log.
#[derive(Debug, Default)]
pub struct Trace {
    /// In the order of their inputs.
    pub commands: Vec<Command>,
    /// The problems that were found.
    pub problems: Vec<String>,
}

/// A dump that is not complete yet.
struct Dump {
    line: usize,
    opcode: u16,
    direction: Direction,
    data_only: bool,
    bytes: Vec<u8>,
}

/// Reads a log. Commands of different slots may be interleaved if the lines say the slot.
pub fn read(text: &str) -> Trace {
    let mut trace = Trace::default();
    let mut open: HashMap<Option<u32>, Dump> = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        match Line::parse(line) {
            Line::Start {
                slot,
                opcode,
                direction,
                data_only,
            } => {
                if let Some(dump) = open.remove(&slot) {
                    trace.finish(slot, dump);
                }
                let bytes = Vec::new();
                let dump = Dump {
                    line: number,
                    opcode,
                    direction,
                    data_only,
                    bytes,
                };
                open.insert(slot, dump);
            }
            Line::Row {
                slot,
                offset,
                bytes,
            } => match open.get_mut(&slot) {
                Some(dump) if dump.bytes.len() == offset as usize => {
                    dump.bytes.extend_from_slice(&bytes);
                }
                Some(dump) => {
                    let expected = dump.bytes.len();
                    let problem = format!(
                        "line {number}: row {offset:03x} where {expected:03x} should follow"
                    );
                    trace.problems.push(problem);
                    // Rows behind a gap cannot be placed for certain.
                    if let Some(dump) = open.remove(&slot) {
                        trace.finish(slot, dump);
                    }
                }
                // The rest of a dump that was given up, or whose start the log has lost.
                None if offset == 0 => trace.problems.push(format!(
                    "line {number}: a row, but no `dump command` before it"
                )),
                None => {}
            },
            Line::Block { .. } | Line::Other => {}
            Line::End { slot } => {
                if let Some(dump) = open.remove(&slot) {
                    trace.finish(slot, dump);
                }
            }
            Line::Malformed(why) => trace.problems.push(format!("line {number}: {why}")),
        }
    }
    let mut rest: Vec<_> = open.into_iter().collect();
    rest.sort_by_key(|(_, dump)| dump.line);
    for (slot, dump) in rest {
        trace.finish(slot, dump);
    }
    trace.commands.sort_by_key(|command| command.line);
    trace
}

impl Trace {
    fn finish(&mut self, slot: Option<u32>, dump: Dump) {
        let (line, opcode, direction) = (dump.line, dump.opcode, dump.direction);
        let message = match dump.message() {
            Ok(message) => message,
            Err(why) => {
                self.problems.push(format!("line {line}: {why}"));
                return;
            }
        };
        if message.cut_off {
            let have = message.bytes.len();
            self.problems.push(format!(
                "line {line}: {direction} of {opcode:#x} breaks off after {have} of {} bytes",
                message.length
            ));
        }
        if direction == Direction::Output {
            let waiting = self.commands.iter_mut().rev().find(|command| {
                command.slot == slot && command.opcode == opcode && command.output.is_none()
            });
            if let Some(command) = waiting {
                command.output = Some(message);
                return;
            }
        }
        let mut command = Command {
            slot,
            opcode,
            line,
            input: None,
            output: None,
        };
        match direction {
            Direction::Input => command.input = Some(message),
            Direction::Output => command.output = Some(message),
        }
        self.commands.push(command);
    }
}

impl Dump {
    /// The message, out of entry and blocks.
    fn message(self) -> Result<Message, String> {
        if self.data_only {
            // Only the entry has the length; the last row may go beyond it.
            return Ok(Message {
                length: self.bytes.len(),
                bytes: self.bytes,
                cut_off: false,
                delivery: None,
            });
        }
        let Some((entry, blocks)) = self
            .bytes
            .split_first_chunk::<{ CommandQueueEntry::SIZE }>()
        else {
            let have = self.bytes.len();
            return Err(format!("only {have} of the 64 bytes of the queue entry"));
        };
        let entry = CommandQueueEntry(*entry);
        let (length, inline, delivery) = match self.direction {
            Direction::Input => (
                entry.input_length(),
                entry.command_input_inline_data(),
                None,
            ),
            Direction::Output => (
                entry.output_length(),
                entry.command_output_inline_data(),
                Some(entry.delivery_status()),
            ),
        };
        let length = length as usize;
        let mut bytes = inline[..length.min(INLINE_SIZE)].to_vec();
        let cut_off = blocks.len() % MailboxBlock::SIZE != 0;
        // A kernel dumps all blocks that it has allocated, so only those needed count.
        for block in blocks
            .chunks(MailboxBlock::SIZE)
            .take(blocks_needed(length))
        {
            let data = block.get(..BLOCK_DATA_SIZE).unwrap_or(block);
            let missing = length - bytes.len();
            bytes.extend_from_slice(&data[..missing.min(data.len())]);
            if block.len() < BLOCK_DATA_SIZE {
                break;
            }
        }
        Ok(Message {
            length,
            bytes,
            cut_off,
            delivery,
        })
    }
}
