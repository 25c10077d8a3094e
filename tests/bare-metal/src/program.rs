//! The program: reads its command line, and runs what it was built for (`rping`, if nothing else was said) on
//! the card until it has worked, or for good.

use bareverbs::verbs::Device;
use kernel::{Boot, Ecam, interrupts};

use crate::failure::Failure;
use crate::machine::Machine;
use crate::node;
use crate::options::Options;

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

/// Finds the card, resets it, and works with it.
fn drive(ecam: &Ecam, options: &Options) -> Result<(), Failure> {
    let card = ecam.find_card()?;
    let machine = Machine::new(card, ecam, options.interrupts)?;
    node::run(machine, options, |device| work(device, options))
}

/// Without a connection manager there is no more to do than was done to bring the card up.
#[cfg(not(feature = "cm"))]
fn work(_: &Device<'_, Machine>, _: &Options) -> Result<(), Failure> {
    Ok(())
}

#[cfg(feature = "cm")]
fn work(device: &Device<'_, Machine>, options: &Options) -> Result<(), Failure> {
    #[cfg(not(feature = "rping"))]
    use crate::connect::{call, serve};
    #[cfg(feature = "rping")]
    use crate::rping::ping as call;
    #[cfg(all(feature = "rping", not(feature = "tasks")))]
    use crate::rping::serve;
    #[cfg(feature = "tasks")]
    use crate::tasks::serve;
    crate::manager::run(device, options, |cm| match options.server {
        None => serve(cm, options),
        Some(server) => call(cm, options, server),
    })
}
