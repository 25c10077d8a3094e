//! Shows the firmware commands in a kernel log, or in a trace of this library, field by field.
//!
//! ```text
//! cargo run -p connectx-model --example decode -- [--all] [FILE]
//! ```
//!
//! Without FILE it reads standard input. For the log of a Linux machine, boot with
//! `dyndbg="module mlx5_core +p"` and `log_buf_len=100M`, then save what `dmesg` shows. `--all` prints fields that are
//! zero, too. The exit status is 1 if anything in the input could not be read.

mod report;

use bareverbs_command_line::{end_at_a_closed_pipe, parse};
use bareverbs_firmware_cmds::decode::Show;
use bpaf::Bpaf;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows the mlx5 commands in a kernel log, or in a trace of this library, field by field.
#[derive(Bpaf)]
#[bpaf(options)]
struct Options {
    /// Show fields that are zero, too.
    #[bpaf(switch, last)]
    all: bool,
    /// The log; standard input if not given.
    #[bpaf(positional("FILE"), optional)]
    file: Option<PathBuf>,
}

fn main() -> ExitCode {
    end_at_a_closed_pipe();
    let Options { all, file } = match parse("decode", &options()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let show = if all { Show::All } else { Show::NonZero };
    let (name, bytes) = match file {
        Some(file) => (file.display().to_string(), std::fs::read(file)),
        None => {
            let mut bytes = Vec::new();
            let result = io::stdin().read_to_end(&mut bytes).map(|_| bytes);
            ("standard input".to_owned(), result)
        }
    };
    let log = match bytes {
        Ok(log) => log,
        Err(why) => {
            eprintln!("decode: {name}: {why}");
            return ExitCode::FAILURE;
        }
    };
    let good = report::report(&name, &log, show, io::stdout().lock(), io::stderr());
    ExitCode::from(u8::from(!good))
}
