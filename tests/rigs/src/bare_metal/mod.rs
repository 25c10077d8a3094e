//! `cargo rig bare-metal`: the unikernel of `tests/bare-metal` on the device model, in machines that QEMU emulates, x86-64
//! and aarch64: against our `rping` on Linux, against another unikernel, and against Linux's RDMA CM and its RoCE in software.
//!
//! The images are built here, without an allocator, and their parts are held against their budgets. Consoles and logs are left
//! in `target/rigs/bare-metal/log/`.

mod image;
pub(crate) mod porting;
mod program;
mod rxe;
mod scenarios;
mod setup;
mod sizes;

use crate::outcome::Outcome;
use setup::Setup;

pub(crate) const ABOUT: &str =
    "the unikernel on the model, with Linux and another one as its peers (boots machines)";

/// Runs all scenarios, or those that are named. `boot MACHINE WIRE WORD...` boots the unikernel alone, with its
/// port on a wire.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    if let Some(("boot", words)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return rxe::boot(words);
    }
    let known =
        |name: &String| name == rxe::NAME || scenarios::ALL.iter().any(|known| known.name == *name);
    if let Some(unknown) = arguments.iter().find(|name| !known(name)) {
        let names: Vec<&str> = scenarios::ALL.iter().map(|known| known.name).collect();
        return Err(format!(
            "no scenario {unknown:?}: {}, {}",
            names.join(", "),
            rxe::NAME
        ));
    }
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|known| known == name);

    let mut outcome = Outcome::default();
    let setup = Setup::new()?;
    for machine in image::Machine::ALL {
        image::judge(machine, &mut outcome)?;
    }
    for scenario in scenarios::ALL.iter().filter(|known| wanted(known.name)) {
        scenario.run(&setup, &mut outcome);
    }
    // It runs alone: it locks the machines itself.
    drop(setup);
    if wanted(rxe::NAME) {
        let Outcome { passed, failed } = rxe::run()?;
        outcome.passed += passed;
        outcome.failed += failed;
    }
    Ok(outcome)
}
