//! Faults as data: when this happens, do that.

pub mod setting;

use crate::syndrome::Status;
use core::time::Duration;

/// The fault of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// It is not executed, and answered with this status.
    Fail {
        /// Status.
        status: Status,
        /// Syndrome.
        syndrome: u32,
    },
    /// It is not executed, and the entry comes back with this delivery status.
    Delivery(u8),
    /// It is executed this much later.
    Delay(Duration),
    /// It is never executed and never answered.
    Drop,
    /// It is executed and never answered.
    DropAnswer,
    /// It is executed, and then the answer's byte `at` is exclusive-ored with `with`.
    Corrupt {
        /// Offset in the answer.
        at: usize,
        /// Mask.
        with: u8,
    },
    /// It is executed, and only the first half of the answer, in whole words, is written.
    Half,
    /// It is executed and answered, but the event queue entry is lost.
    LoseEvent,
    /// The firmware stops with this health syndrome, and neither executes nor answers it.
    Health(u8),
    /// The card falls off the bus, and neither executes nor answers it.
    Vanish,
}

/// When a command fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandRule {
    /// Only this opcode; any if `None`.
    pub opcode: Option<u16>,
    /// Only this `op_mod`; any if `None`.
    pub op_mod: Option<u16>,
    /// The number of matching commands that pass first.
    pub skip: u32,
    /// The number of commands that it strikes after that; then the rule is used up.
    pub times: u32,
    /// The fault.
    pub fault: CommandFault,
}

impl CommandRule {
    /// Strikes the next command with this opcode, once.
    #[must_use]
    pub fn next(opcode: u16, fault: CommandFault) -> Self {
        Self {
            opcode: Some(opcode),
            op_mod: None,
            skip: 0,
            times: 1,
            fault,
        }
    }

    /// Applies to the command number `nth` from now (counted from 0), of any opcode, once.
    #[must_use]
    pub fn nth(nth: u32, fault: CommandFault) -> Self {
        Self {
            opcode: None,
            op_mod: None,
            skip: nth,
            times: 1,
            fault,
        }
    }
}

/// The faults that are to happen.
#[derive(Debug, Default)]
pub struct Faults {
    /// Command faults; the first rule that strikes is the one that counts.
    pub commands: Vec<CommandRule>,
    /// The opcodes that were struck, with what happened to them.
    pub struck: Vec<(u16, CommandFault)>,
    /// Pages that QUERY_PAGES asks for beyond what the card is configured with.
    pub extra_boot_pages: u32,
    /// The same for the second stage.
    pub extra_init_pages: u32,
    /// Interrupts are not raised (entries are still written).
    pub lose_interrupts: bool,
    /// The `initializing` bit never clears.
    pub never_boots: bool,
}

impl Faults {
    /// Takes the fault that applies to the driver's next command with this header, if one is set.
    pub(crate) fn strike(&mut self, opcode: u16, op_mod: u16) -> Option<CommandFault> {
        if self.commands.is_empty() {
            return None;
        }
        let mut struck = None;
        for rule in &mut self.commands {
            let matches = rule.opcode.is_none_or(|wanted| wanted == opcode)
                && rule.op_mod.is_none_or(|wanted| wanted == op_mod)
                && rule.times > 0;
            if !matches {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if struck.is_none() {
                rule.times -= 1;
                struck = Some(rule.fault);
            }
        }
        self.commands.retain(|rule| rule.times > 0);
        self.struck.extend(struck.map(|fault| (opcode, fault)));
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_skip_strike_and_end() {
        let mut faults = Faults::default();
        faults.commands.push(CommandRule {
            skip: 1,
            times: 2,
            ..CommandRule::next(0x500, CommandFault::Drop)
        });
        let struck: Vec<_> = [0x500, 0x501, 0x500, 0x500, 0x500]
            .map(|opcode| faults.strike(opcode, 0).is_some())
            .into();
        assert_eq!(struck, [false, false, true, true, false]);
        assert!(faults.commands.is_empty());
        assert_eq!(faults.struck, [(0x500, CommandFault::Drop); 2]);
    }
}
