//! The unikernel against Linux's RDMA CM over `rdma_rxe` in a guest: a scenario of the machines that the interop rig has.

use super::super::stock_driver::{
    self, BOOT, Boot, Process, Rig, SCENARIO, Scenario, Server, spawn,
};
use super::image::Machine;
use super::setup::{UNIKERNEL, logs, qemu};
use crate::outcome::Outcome;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(super) const NAME: &str = "rxe";

const ALL: &[Scenario] = &[Scenario {
    name: NAME,
    about: "rdma-core's rping on rdma_rxe against the unikernel's, each as server and as client",
    functions: 0,
    rounds: &[Boot {
        machines: &[&[], &[]],
        processors: 1,
        here: Some(1),
        network: true,
        record: true,
        script: concat!(
            include_str!("../interop/scripts/begin.sh"),
            include_str!("scripts/rxe.sh")
        ),
        ..BOOT
    }],
    ..SCENARIO
}];

/// Runs the scenario. On this computer its script finds a program that boots the unikernel.
pub(super) fn run() -> Result<Outcome, String> {
    let ours = logs().join("bin");
    let program = ours.join("unikernel");
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let script = format!(
        "#!/bin/sh\nexec '{}' bare-metal boot \"$@\"\n",
        this.display()
    );
    fs::create_dir_all(&ours)
        .and_then(|()| fs::write(&program, script))
        .and_then(|()| fs::set_permissions(&program, Permissions::from_mode(0o755)))
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let rig = Rig {
        name: "bare-metal",
        scenarios: ALL,
        programs: Vec::new(),
        ours: ours.canonicalize().map_err(|error| error.to_string())?,
    };
    stock_driver::run_rig(&rig, &[])
}

/// Boots the image that there is, with the port of its card on a wire; its console is this program's standard output.
pub(super) fn boot(words: &[String]) -> Result<Outcome, String> {
    let usage = "boot MACHINE WIRE WORD...";
    let [machine, wire, words @ ..] = words else {
        return Err(usage.to_string());
    };
    let machine = Machine::by_name(machine).ok_or(usage)?;
    let directory = std::env::temp_dir().join(format!("unikernel-{}", std::process::id()));
    fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let ended = run_on(machine, wire, &words.join(" "), &directory);
    fs::remove_dir_all(&directory).map_err(|error| error.to_string())?;
    let status = ended?;
    let mut outcome = Outcome::default();
    outcome.check(status == Some(super::scenarios::GOOD), || {
        format!("QEMU's exit status is {status:?}")
    });
    Ok(outcome)
}

fn run_on(
    machine: Machine,
    wire: &str,
    words: &str,
    directory: &Path,
) -> Result<Option<i32>, String> {
    let model = Server::start(directory, directory, 1, &["--link", wire])?;
    let provisions = stock_driver::provisions()?;
    let mut command = qemu(machine, UNIKERNEL, &provisions, &model.sockets[0], words)?;
    let Process(child) = &mut spawn(&mut command)?;
    let status = child.wait().map_err(|error| error.to_string())?;
    for line in model.stop()? {
        if line.starts_with("[WARN") || line.starts_with("[ERROR") {
            println!("the model: {line}");
        }
    }
    Ok(status.code())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_script_can_be_planned() {
        super::super::super::stock_driver::check_plans(super::ALL);
    }
}
