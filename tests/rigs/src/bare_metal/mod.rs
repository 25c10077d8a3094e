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

/// The argument that builds the images and judges them, and boots none.
const IMAGES: &str = "images";

/// Runs all scenarios, or those that are named. `images` builds and judges the images alone. `boot MACHINE WIRE WORD...` boots
/// the unikernel alone, with its port on a wire.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    if let Some(("boot", words)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return rxe::boot(words);
    }
    if arguments == [IMAGES] {
        image::build(&image::Machine::ALL)?;
        return judged();
    }
    let names: Vec<&str> = scenarios::names().chain([rxe::NAME]).collect();
    if let Some(unknown) = arguments
        .iter()
        .find(|name| !names.contains(&name.as_str()))
    {
        let names = names.join(", ");
        return Err(format!(
            "no scenario {unknown:?}: {names}; or {IMAGES} alone"
        ));
    }
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|known| known == name);

    let setup = Setup::new()?;
    let mut outcome = judged()?;
    outcome.add(scenarios::run(&setup, wanted)?);
    // It runs alone: it locks the machines itself.
    drop(setup);
    if wanted(rxe::NAME) {
        outcome.add(rxe::run()?);
    }
    Ok(outcome)
}

/// Holds the images that were built against their budgets.
fn judged() -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for machine in image::Machine::ALL {
        image::judge(machine, &mut outcome)?;
    }
    Ok(outcome)
}
