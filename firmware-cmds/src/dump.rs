//! Commands as hexadecimal dumps, written and read in the form of the Linux driver, so that a trace of ours and one of
//! `mlx5_core` (with `dyndbg="module mlx5_core +p"`) can be compared line by line.
//!
//! ```text
//! cmd[0]: dump command QUERY_ISSI(0x10a) INPUT
//! cmd[0]: 000: 07000000 00000010 00000000 00000000
//! cmd[0]: 010: 010a0000 00000000 00000000 00000000
//! …
//! cmd[0]: command block:
//! cmd[0]: 040: …
//! ```
//!
//! The first 64 bytes are the queue entry, each block behind it is a whole mailbox block, and offsets count on. Kernels
//! before 5.9 leave out `cmd[0]: `. The form `dump command data …` holds the message alone, without entry and block
//! controls.

use crate::cmdq::{CommandQueueEntry, MailboxBlock};
use crate::opcode::Opcode;
use core::borrow::Borrow;
use core::fmt;

/// The half of a command that a dump shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The bytes that the driver sent.
    Input,
    /// The bytes that the device answered.
    Output,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "INPUT",
            Self::Output => "OUTPUT",
        })
    }
}

/// Name of an opcode as the kernel prints it.
#[must_use]
pub const fn opcode_name(opcode: u16) -> &'static str {
    // It need not be fast.
    let mut at = 0;
    while at < Opcode::ALL.len() {
        if Opcode::ALL[at].number() == opcode {
            return Opcode::ALL[at].name();
        }
        at += 1;
    }
    "unknown command opcode"
}

/// Hands the lines of a dump to `line`, one after the other and without line ends.
///
/// `blocks` are the mailbox blocks of the direction that is dumped, as many as the message needs.
pub fn write(
    slot: usize,
    opcode: u16,
    direction: Direction,
    entry: &CommandQueueEntry,
    blocks: impl Iterator<Item = impl Borrow<MailboxBlock>>,
    line: &mut dyn FnMut(fmt::Arguments<'_>),
) {
    let name = opcode_name(opcode);
    line(format_args!("cmd[{slot}]: start dump"));
    line(format_args!(
        "cmd[{slot}]: dump command {name}({opcode:#x}) {direction}"
    ));
    let mut offset = rows(slot, 0, &entry.0, line);
    for block in blocks {
        line(format_args!("cmd[{slot}]: command block:"));
        offset = rows(slot, offset, &block.borrow().0, line);
    }
    line(format_args!("cmd[{slot}]: end dump"));
}

/// Logs a dump at trace level under the target `mlx5_cmd`; costs a comparison when that is off.
pub fn log(
    slot: usize,
    opcode: u16,
    direction: Direction,
    entry: &CommandQueueEntry,
    blocks: impl Iterator<Item = impl Borrow<MailboxBlock>>,
) {
    if log_enabled() {
        write(slot, opcode, direction, entry, blocks, &mut |line| {
            log::trace!(target: LOG_TARGET, "{line}");
        });
    }
}

/// The target under which [`log()`] logs.
pub const LOG_TARGET: &str = "mlx5_cmd";

/// `true` if [`log()`] would log: a caller that must copy entry and blocks first can save itself the trouble.
#[must_use]
pub fn log_enabled() -> bool {
    log::log_enabled!(target: LOG_TARGET, log::Level::Trace)
}

fn rows(
    slot: usize,
    mut offset: usize,
    bytes: &[u8],
    line: &mut dyn FnMut(fmt::Arguments<'_>),
) -> usize {
    let (rows, _) = bytes.as_chunks::<16>();
    for row in rows {
        let (words, _) = row.as_chunks::<4>();
        line(format_args!(
            "cmd[{slot}]: {offset:03x}: {} {} {} {}",
            Word(words[0]),
            Word(words[1]),
            Word(words[2]),
            Word(words[3])
        ));
        offset += row.len();
    }
    offset
}

struct Word([u8; 4]);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// A line of a log, as far as it belongs to a dump. The slot is `None` where the kernel is too old to print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// `dump command NAME(0x104) INPUT`: a dump begins.
    Start {
        /// Entry of the command queue.
        slot: Option<u32>,
        /// Opcode.
        opcode: u16,
        /// Direction.
        direction: Direction,
        /// `dump command data`: the message without entry and block controls.
        data_only: bool,
    },
    /// `command block:`
    Block {
        /// Entry of the command queue.
        slot: Option<u32>,
    },
    /// `010: 01040000 00000000 00000000 00000000`
    Row {
        /// Entry of the command queue.
        slot: Option<u32>,
        /// Offset of the first byte.
        offset: u32,
        /// The bytes.
        bytes: [u8; 16],
    },
    /// `end dump`
    End {
        /// Entry of the command queue.
        slot: Option<u32>,
    },
    /// It looks like a part of a dump, but cannot be read.
    Malformed(&'static str),
    /// Something else.
    Other,
}

impl Line {
    /// Reads a line; what precedes the dump's own text (time stamps, device, function) does not matter.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        let line = line.trim_end();
        if let Some((before, header)) = line.split_once("dump command ") {
            return start(slot_at_end(before), header);
        }
        if let Some(before) = line.strip_suffix("command block:") {
            return Self::Block {
                slot: slot_at_end(before),
            };
        }
        if let Some(before) = line.strip_suffix("end dump") {
            return Self::End {
                slot: slot_at_end(before),
            };
        }
        row(line)
    }
}

fn start(slot: Option<u32>, header: &str) -> Line {
    let (data_only, header) = match header.strip_prefix("data ") {
        Some(header) => (true, header),
        None => (false, header),
    };
    let (header, direction) = if let Some(header) = header.strip_suffix(" INPUT") {
        (header, Direction::Input)
    } else if let Some(header) = header.strip_suffix(" OUTPUT") {
        (header, Direction::Output)
    } else {
        return Line::Malformed("neither INPUT nor OUTPUT at the end of `dump command`");
    };
    let opcode = header
        .strip_suffix(')')
        .and_then(|header| header.rsplit_once("(0x"))
        .and_then(|(_, digits)| hex(digits))
        .and_then(|opcode| u16::try_from(opcode).ok());
    match opcode {
        Some(opcode) => Line::Start {
            slot,
            opcode,
            direction,
            data_only,
        },
        None => Line::Malformed("no opcode in `dump command`"),
    }
}

/// `… cmd[3]: ` at the end of what precedes the text.
fn slot_at_end(before: &str) -> Option<u32> {
    slot(before.split_whitespace().next_back()?)
}

fn slot(word: &str) -> Option<u32> {
    word.strip_prefix("cmd[")?.strip_suffix("]:")?.parse().ok()
}

fn row(line: &str) -> Line {
    let mut words = line.split_whitespace().rev();
    let mut values = [None; 4];
    for value in values.iter_mut().rev() {
        let Some(word) = words.next() else {
            return Line::Other;
        };
        *value = if word.len() == 8 { hex(word) } else { None };
    }
    let offset = words.next().and_then(|word| word.strip_suffix(':'));
    let Some(offset) = offset.filter(|digits| digits.len() >= 3).and_then(hex) else {
        return Line::Other;
    };
    let mut bytes = [0; 16];
    let (chunks, _) = bytes.as_chunks_mut::<4>();
    for (chunk, value) in chunks.iter_mut().zip(values) {
        match value {
            Some(value) => *chunk = value.to_be_bytes(),
            // Any log may hold a number with a colon; with one good dword behind it, it was a row once.
            None if values.iter().any(Option::is_some) => {
                return Line::Malformed("a row needs four dwords of eight hexadecimal digits");
            }
            None => return Line::Other,
        }
    }
    Line::Row {
        slot: words.next().and_then(slot),
        offset,
        bytes,
    }
}

fn hex(digits: &str) -> Option<u32> {
    // from_str_radix takes a sign.
    if digits.starts_with('+') {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::{String, ToString};
    use std::vec::Vec;

    #[test]
    fn lines_are_those_of_the_kernel() {
        let mut entry = CommandQueueEntry::ZERO;
        entry
            .set_type(7)
            .set_input_length(0x18)
            .set_input_mailbox(0x7_ab0e_8000);
        entry.command_input_inline_data_mut()[..2].copy_from_slice(&[0x01, 0x08]);
        let mut block = MailboxBlock::ZERO;
        block.mailbox_data_mut()[7] = 0x42;
        let mut lines: Vec<String> = Vec::new();
        write(
            31,
            0x108,
            Direction::Input,
            &entry,
            core::iter::once(&block),
            &mut |line| {
                lines.push(line.to_string());
            },
        );
        assert_eq!(
            lines[..8],
            [
                "cmd[31]: start dump",
                "cmd[31]: dump command MANAGE_PAGES(0x108) INPUT",
                "cmd[31]: 000: 07000000 00000018 00000007 ab0e8000",
                "cmd[31]: 010: 01080000 00000000 00000000 00000000",
                "cmd[31]: 020: 00000000 00000000 00000000 00000000",
                "cmd[31]: 030: 00000000 00000000 00000000 00000000",
                "cmd[31]: command block:",
                "cmd[31]: 040: 00000000 00000042 00000000 00000000",
            ]
        );
        assert_eq!(lines.len(), 6 + 1 + 36 + 1);
        assert_eq!(
            lines[42],
            "cmd[31]: 270: 00000000 00000000 00000000 00000000"
        );
        assert_eq!(lines[43], "cmd[31]: end dump");
    }

    #[test]
    fn reads_lines_of_old_and_new_kernels() {
        let bytes = [1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0xef, 0x01];
        let cases = [
            (
                "[  +0.074963] mlx5_core 0000:02:00.0: 0000:02:00.0:dump_command:587:(pid 87): dump command MLX5_CMD_OP_ENABLE_HCA(0x104) INPUT",
                Line::Start {
                    slot: None,
                    opcode: 0x104,
                    direction: Direction::Input,
                    data_only: false,
                },
            ),
            (
                "[ 9.1] mlx5_core 0000:02:00.0: dump_command:867:(pid 9): cmd[3]: dump command unknown command opcode(0x10b) OUTPUT  ",
                Line::Start {
                    slot: Some(3),
                    opcode: 0x10b,
                    direction: Direction::Output,
                    data_only: false,
                },
            ),
            (
                "cmd[0]: dump command data QUERY_ISSI(0x10a) OUTPUT",
                Line::Start {
                    slot: Some(0),
                    opcode: 0x10a,
                    direction: Direction::Output,
                    data_only: true,
                },
            ),
            (
                "[  +0.000001] 010: 01040000 00000000 00000000 abcdef01",
                Line::Row {
                    slot: None,
                    offset: 0x10,
                    bytes,
                },
            ),
            (
                "cmd[31]: 1010: 01040000 00000000 00000000 abcdef01",
                Line::Row {
                    slot: Some(31),
                    offset: 0x1010,
                    bytes,
                },
            ),
            ("x: cmd[1]: command block:", Line::Block { slot: Some(1) }),
            ("(pid 87): command block:", Line::Block { slot: None }),
            ("cmd[1]: end dump", Line::End { slot: Some(1) }),
            ("", Line::Other),
            (
                "usb 1-1: new high-speed USB device number 123: a b c d",
                Line::Other,
            ),
            (
                "mlx5_core 0000:02:00.0: writing 0x1 to command doorbell",
                Line::Other,
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(Line::parse(line), expected, "{line}");
        }
    }

    #[test]
    fn says_what_is_malformed() {
        for line in [
            "dump command ENABLE_HCA(0x104)",
            "dump command ENABLE_HCA INPUT",
            "dump command ENABLE_HCA(0x10400) INPUT",
            "dump command ENABLE_HCA(0x+1) INPUT",
            "010: 01040000 0000000g 00000000 00000000",
            "010: 01040000 000000000 00000000 00000000",
        ] {
            assert!(matches!(Line::parse(line), Line::Malformed(_)), "{line}");
        }
    }
}
