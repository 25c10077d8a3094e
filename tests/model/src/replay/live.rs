//! Plays a recording to a driver.

use super::{Answer, Exchange, Recording, describes_the_card, word};
use bareverbs_firmware_cmds::dump::opcode_name;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::values::AccessRegister;
use std::collections::{HashMap, VecDeque};

/// The recorded answers that are left, by the [`selector`] of their command, in the order of the recording.
#[derive(Debug)]
pub(crate) struct Replay(HashMap<Vec<u8>, VecDeque<Answer>>);

/// The treatment of a command.
pub(crate) enum Verdict {
    /// It is not executed, as the card refused it, and this is the answer.
    Refuse(Vec<u8>),
    /// It is executed. The card executed it, too, and this is its answer.
    Execute(Vec<u8>),
    /// It is sent back unexecuted with this delivery status.
    Undelivered(u8),
    /// It is never answered.
    Lost,
}

impl Replay {
    pub(crate) fn new(recording: &Recording) -> Self {
        let mut left: HashMap<Vec<u8>, VecDeque<Answer>> = HashMap::new();
        for Exchange {
            opcode,
            input,
            answer,
            ..
        } in recording.exchanges()
        {
            left.entry(selector(*opcode, input))
                .or_default()
                .push_back(answer.clone());
        }
        Self(left)
    }

    /// The number of answers that are left.
    pub(crate) fn left(&self) -> usize {
        self.0.values().map(VecDeque::len).sum()
    }

    /// Puts an answer back that was not used.
    pub(crate) fn put_back(&mut self, opcode: u16, input: &[u8], card: Vec<u8>) {
        let left = self.0.entry(selector(opcode, input)).or_default();
        left.push_front(Answer::Bytes(card));
    }

    /// Takes the card's treatment of this command, if there is a record left.
    pub(crate) fn next(&mut self, opcode: u16, input: &[u8]) -> Option<Verdict> {
        let answer = self
            .0
            .get_mut(&selector(opcode, input))
            .and_then(VecDeque::pop_front)?;
        Some(match answer {
            Answer::None => Verdict::Lost,
            Answer::Undelivered(status) => Verdict::Undelivered(status),
            Answer::Bytes(bytes) if bytes.first() == Some(&0) => Verdict::Execute(bytes),
            Answer::Bytes(bytes) => Verdict::Refuse(bytes),
        })
    }
}

/// The bytes that a command must have in common with the recorded one: opcode and `op_mod`; all of the input, if the answer
/// describes the card and so depends on the question; the register's number, if a register is written.
fn selector(opcode: u16, input: &[u8]) -> Vec<u8> {
    let op_mod = word(input, 6);
    let mut key = [opcode.to_be_bytes(), op_mod.to_be_bytes()].concat();
    let register = Opcode::from_number(opcode) == Some(Opcode::AccessRegister);
    if register && op_mod == AccessRegister::Write.number() {
        key.extend(word(input, 10).to_be_bytes());
    } else if describes_the_card(opcode) {
        key.extend(input.get(8..).unwrap_or_default());
        // Drivers differ in how many reserved words they send at the end.
        let end = key.iter().rposition(|&byte| byte != 0);
        key.truncate(end.map_or(4, |end| end + 1).max(4));
    }
    key
}

/// Replaces the model's answer by the card's if it describes the card, and if the model did not execute the command. Any other
/// answer has the number of an object, which is the model's.
pub(crate) fn overlay(opcode: u16, card: &[u8], executed: bool, output: &mut [u8]) {
    let refused = output.first().is_some_and(|&status| status != 0);
    if executed && refused {
        let name = opcode_name(opcode);
        log::warn!("{name}({opcode:#x}): the model refuses what the card did");
    }
    if !executed || refused || describes_the_card(opcode) {
        for (to, from) in output.iter_mut().zip(card) {
            *to = *from;
        }
    }
}
