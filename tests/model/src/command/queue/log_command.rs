//! Commands in the log.

use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::decode::{self, Show};
use bareverbs_firmware_cmds::dump::{Direction, opcode_name};
use bareverbs_firmware_cmds::status::Status;
use log::Level;

/// Logs a command with how it ended at level "debug", and with all its fields that are not zero at level "trace".
pub(super) fn log_command(opcode: u16, op_mod: u16, input: &[u8], output: &[u8]) {
    if !log::log_enabled!(Level::Debug) {
        return;
    }
    let name = opcode_name(opcode);
    let number = |at: usize, len: usize| {
        let bytes = output.get(at..at + len).unwrap_or_default();
        bytes
            .iter()
            .fold(0, |all, &byte| all << 8 | u32::from(byte))
    };
    let (status, syndrome) = (number(0, 1), number(4, 4));
    if status == 0 {
        log::debug!("command {name}({opcode:#x}) op_mod {op_mod:#x}: OK");
    } else {
        let meaning = Status::from_number(status as u8).description();
        let text = Syndrome::from_code(syndrome).map_or("", Syndrome::text);
        log::debug!(
            "command {name}({opcode:#x}) op_mod {op_mod:#x}: status {status:#x} ({meaning}), syndrome {syndrome:#x} {text}"
        );
    }
    if !log::log_enabled!(Level::Trace) {
        return;
    }
    for (direction, bytes) in [(Direction::Input, input), (Direction::Output, output)] {
        decode::message(
            opcode,
            direction,
            bytes,
            input,
            Show::NonZero,
            &mut |item| {
                log::trace!("{name} {direction}: {item}");
            },
        );
    }
}
