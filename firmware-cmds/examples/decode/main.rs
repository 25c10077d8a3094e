//! Shows the firmware commands in a kernel log, or in a trace of this library, field by field.
//!
//! ```text
//! cargo run -p bareverbs-firmware-cmds --example decode -- [--all] [FILE]
//! ```
//!
//! Without FILE it reads standard input. For the log of a Linux machine, boot with
//! `dyndbg="module mlx5_core +p"` and `log_buf_len=100M`, then save what `dmesg` shows. `--all` prints fields that are
//! zero, too. The exit status is 1 if anything in the input could not be read.

mod assemble;
mod report;

use bareverbs_firmware_cmds::decode::Show;
use std::io::{self, Read};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut show = Show::NonZero;
    let mut file = None;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--all" => show = Show::All,
            "--help" | "-h" => {
                println!("decode [--all] [FILE]: shows the mlx5 commands in a kernel log");
                return ExitCode::SUCCESS;
            }
            option if option.starts_with("--") => {
                eprintln!("decode: unknown option {option}");
                return ExitCode::from(2);
            }
            _ if file.is_some() => {
                eprintln!("decode: more than one file");
                return ExitCode::from(2);
            }
            _ => file = Some(argument),
        }
    }
    let (name, bytes) = match file {
        Some(file) => (file.clone(), std::fs::read(&file)),
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
