//! Prints the commands of a log.

use bareverbs_firmware_cmds::decode::{self, Show};
use bareverbs_firmware_cmds::dump::{Direction, opcode_name};
use connectx_model::trace::{self, Command, Message};
use std::io::{self, Write};

/// Prints the commands of a log to `out`, and the problems in it to `errors`. Returns true if there were no problems.
pub(crate) fn report(
    name: &str,
    log: &[u8],
    show: Show,
    out: impl Write,
    mut errors: impl Write,
) -> bool {
    let text = String::from_utf8_lossy(log);
    let trace = trace::read(&text);
    let _ = print(out, &trace.commands, show);
    for problem in &trace.problems {
        let _ = writeln!(errors, "decode: {name}: {problem}");
    }
    if trace.commands.is_empty() {
        let lines = text.lines().count();
        let _ = writeln!(
            errors,
            "decode: {name}: no mlx5 command in {lines} lines (`dump command NAME(0x104) INPUT` starts one)"
        );
    }
    !trace.commands.is_empty() && trace.problems.is_empty()
}

fn print(mut out: impl Write, commands: &[Command], show: Show) -> io::Result<()> {
    for (number, command) in commands.iter().enumerate() {
        let opcode = command.opcode;
        write!(out, "#{} {}({opcode:#x})", number + 1, opcode_name(opcode))?;
        match command.slot {
            Some(slot) => writeln!(out, " in slot {slot}, line {}", command.line)?,
            None => writeln!(out, ", line {}", command.line)?,
        }
        let input = command.input.as_ref();
        let left = column(command, Direction::Input, input, show);
        let right = column(command, Direction::Output, command.output.as_ref(), show);
        let width = left.iter().map(|line| line.chars().count()).max();
        let width = width.unwrap_or(0).clamp(30, 72);
        for row in 0..left.len().max(right.len()) {
            let [left, right] = [&left, &right].map(|column| column.get(row).map_or("", |l| l));
            writeln!(out, "  {}", format!("{left:width$} | {right}").trim_end())?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// One direction of a command, line by line.
fn column(
    command: &Command,
    direction: Direction,
    message: Option<&Message>,
    show: Show,
) -> Vec<String> {
    let Some(message) = message else {
        return vec![format!("{direction}: not in the trace")];
    };
    let mut lines = vec![format!("{direction}, {} bytes", message.length)];
    if let Some(delivery) = message.delivery.filter(|delivery| !delivery.is_ok()) {
        lines.push(format!("not delivered: {delivery}"));
    }
    if message.bytes.len() < message.length {
        let have = message.bytes.len();
        lines.push(format!("the trace has only {have} of them"));
    }
    let asked = command.input.as_ref().map_or(&[][..], |input| &input.bytes);
    decode::message(
        command.opcode,
        direction,
        &message.bytes,
        asked,
        show,
        &mut |item| lines.push(item.to_string()),
    );
    lines
}
