//! What the program does: reads its command line, and runs `rping` on the card until it has worked, or for good.

use kernel::{Boot, Ecam, interrupts};

use crate::failure::Failure;
use crate::machine::Machine;
use crate::options::Options;
use crate::{node, rping};

kernel::entry!(main);

fn main(boot: &Boot) -> Result<(), Failure> {
    let options = Options::parse(boot.command_line)?;
    log::set_max_level(options.log);
    if options.interrupts {
        interrupts::enable()?;
    }
    let mut attempt = 1;
    loop {
        let done = drive(&boot.ecam, &options);
        match done {
            Err(failure) if attempt < options.attempts => {
                log::error!("attempt {attempt} failed: {failure}");
                attempt += 1;
            }
            done => return done,
        }
    }
}

/// Finds the card, resets it, and runs `rping` on it.
fn drive(ecam: &Ecam, options: &Options) -> Result<(), Failure> {
    let card = ecam.find_card()?;
    let machine = Machine::new(card, ecam, options.interrupts)?;
    node::run(machine, options, |cm| match options.server {
        None => rping::serve(cm, options),
        Some(server) => rping::ping(cm, options, server),
    })
}
