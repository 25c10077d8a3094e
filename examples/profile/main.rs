//! Makes a model of a card from what was recorded of it, and plays that again.
//!
//! ```text
//! cargo run --example profile -- --from REPORT > mine.txt      the card's profile, for --card of every tool
//! cargo run --example profile -- --replay REPORT               the card's answers to the driver, the commands to the model
//! ```
//!
//! REPORT is what `devinfo --report` wrote, or its unpacked folder; or the log of Linux's driver with
//! `dyndbg="module mlx5_core +p"`, or of this one with `RUST_LOG=mlx5_cmd=trace`; or hex dumps of capabilities.

mod archive;
mod replay;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use bareverbs_command_line::{EMPTY, is_path};
use bareverbs_examples::program;
use bpaf::Bpaf;
use connectx_model::Card;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Makes a model of a card from what was recorded of it, and plays that again.
#[derive(Bpaf, Debug)]
#[bpaf(options)]
struct Arguments {
    #[bpaf(external)]
    action: Action,
    /// The built-in card from which comes what the report does not have; the one with the same PCI device, or with firmware
    /// of the same kind, if not given.
    #[bpaf(argument("NAME"), last, optional)]
    base: Option<Card>,
}

#[derive(Bpaf, Debug)]
enum Action {
    /// Prints the profile of the card that this is the report of.
    From(#[bpaf(long("from"), argument("REPORT"), last, guard(is_path, EMPTY))] PathBuf),
    /// Brings the driver up on a model that answers as the card did, as far as its record goes; and sends the recorded
    /// commands to a model without the record, and lists by field where its answers are not the card's.
    Replay(#[bpaf(long("replay"), argument("REPORT"), last, guard(is_path, EMPTY))] PathBuf),
}

fn main() -> ExitCode {
    program::main("profile", &arguments(), |arguments| {
        match &arguments.action {
            Action::From(path) => print!("{}", archive::read(path)?.profile(arguments.base)?),
            Action::Replay(path) => {
                print!("{}", replay::run(&archive::read(path)?, arguments.base)?)
            }
        }
        Ok(())
    })
}
