//! Mailboxes: what of a command does not fit its queue entry, in chains of 512-byte blocks.

use crate::bus::io::Io;
use bareverbs_firmware_cmds::cmdq::xor;

const DATA: usize = 0x200;
const BLOCK: usize = 0x240;
const NEXT: usize = 0x230;
const NUMBER: usize = 0x238;
const TOKEN: usize = 0x23d;
const CONTROL_SIGNATURE: usize = 0x23e;
const SIGNATURE: usize = 0x23f;

/// Longest command or answer: a memory region of 4 KiB pages of 16 GiB.
pub(crate) const LONGEST: usize = 64 << 20;

/// Delivery status: what the transport of the command itself found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Delivery {
    Signature = 0x1,
    Token = 0x2,
    BlockNumber = 0x3,
    OutputPointer = 0x4,
    InputPointer = 0x5,
    InputLength = 0x7,
    OutputLength = 0x8,
    BadType = 0x10,
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .fold(0, |all, &byte| all << 8 | u64::from(byte))
}

fn aligned(pointer: u64) -> bool {
    pointer != 0 && pointer & (DATA as u64 - 1) == 0
}

/// Reads a command's input: 16 bytes from the entry, the rest from its chain. The length decides where the chain ends, as
/// drivers keep chains that are longer than needed and leave old tokens in the rest.
pub(crate) fn fetch(
    io: &mut Io<'_>,
    entry: &[u8; 64],
    checked: bool,
    input: &mut Vec<u8>,
) -> Result<(), Delivery> {
    let len = u32::from_be_bytes([entry[4], entry[5], entry[6], entry[7]]) as usize;
    if !(8..=LONGEST).contains(&len) {
        return Err(Delivery::InputLength);
    }
    input.clear();
    input.extend_from_slice(&entry[0x10..0x10 + len.min(16)]);
    let mut at = be64(entry, 0x08);
    let mut number = 0u32;
    while input.len() < len {
        let mut block = [0; BLOCK];
        if !aligned(at) || io.read(at, &mut block).is_err() {
            return Err(Delivery::InputPointer);
        }
        check_block(&block, number, entry[0x3c])?;
        if checked && (xor(&block) != 0xff || xor(&block[DATA..SIGNATURE]) != 0xff) {
            return Err(Delivery::Signature);
        }
        let run = (len - input.len()).min(DATA);
        input.extend_from_slice(&block[..run]);
        at = be64(&block, NEXT);
        number += 1;
    }
    Ok(())
}

fn check_block(block: &[u8; BLOCK], number: u32, token: u8) -> Result<(), Delivery> {
    if u32::from_be_bytes([
        block[NUMBER],
        block[NUMBER + 1],
        block[NUMBER + 2],
        block[NUMBER + 3],
    ]) != number
    {
        return Err(Delivery::BlockNumber);
    }
    if block[TOKEN] != token {
        return Err(Delivery::Token);
    }
    Ok(())
}

/// Checks that there are blocks for the whole answer; a command must not be executed whose answer has no place.
pub(crate) fn check_output(io: &mut Io<'_>, entry: &[u8; 64], len: usize) -> Result<(), Delivery> {
    let mut at = be64(entry, 0x30);
    let blocks = len.saturating_sub(16).div_ceil(DATA);
    for number in 0..blocks {
        let mut block = [0; BLOCK];
        if !aligned(at) || io.read(at + NEXT as u64, &mut block[NEXT..]).is_err() {
            return Err(Delivery::OutputPointer);
        }
        check_block(&block, number as u32, entry[0x3c])?;
        at = be64(&block, NEXT);
    }
    Ok(())
}

/// Writes what does not fit the entry. Signatures are always filled in; bytes behind the answer stay as they are.
pub(crate) fn store(io: &mut Io<'_>, entry: &[u8; 64], output: &[u8]) -> Result<(), Delivery> {
    let mut at = be64(entry, 0x30);
    for part in output.chunks(DATA) {
        let mut block = [0; BLOCK];
        if !aligned(at) || io.read(at, &mut block).is_err() {
            return Err(Delivery::OutputPointer);
        }
        block[..part.len()].copy_from_slice(part);
        block[CONTROL_SIGNATURE] = 0;
        block[CONTROL_SIGNATURE] = !xor(&block[DATA..SIGNATURE]);
        block[SIGNATURE] = 0;
        block[SIGNATURE] = !xor(&block);
        let written = io.write(at, part).and_then(|()| {
            let tail = CONTROL_SIGNATURE;
            io.write(at + tail as u64, &block[tail..])
        });
        if written.is_err() {
            return Err(Delivery::OutputPointer);
        }
        at = be64(&block, NEXT);
    }
    Ok(())
}
