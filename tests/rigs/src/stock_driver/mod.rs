//! `cargo rig stock-driver`: the vendor's own driver, unmodified from Debian's stock kernel, on the device model.
//!
//! The model serves vfio-user; QEMU (software emulation, no KVM needed) plugs it into a machine, whose kernel loads
//! `mlx5_core` and `mlx5_ib` and runs rdma-core's programs. Whatever the driver says at warning level or above, and
//! whatever the model logs at warning level or above, is a failure, unless it is in the list here that explains it.
//!
//! Console, QEMU's and the model's logs are left in `target/rigs/stock-driver/log/`.

mod cpio;
mod guest;
mod provision;
mod scenario;

use super::Outcome;
use provision::Kernel;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(crate) const ABOUT: &str =
    "Linux's own mlx5 driver in a QEMU guest, on the model (slow: boots machines; downloads once)";

/// Runs all scenarios, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let started = Instant::now();
    let (options, arguments): (Vec<_>, Vec<_>) =
        arguments.iter().partition(|name| name.starts_with("--"));
    let kernel = match options[..] {
        [] => Kernel::Stable,
        [option] if option == "--bookworm" => Kernel::Old,
        [option] if option == "--backports" => Kernel::Backports,
        _ => {
            return Err(format!(
                "unknown options {options:?}: --bookworm boots an older kernel, --backports the newest"
            ));
        }
    };
    for name in &arguments {
        if !scenario::ALL.iter().any(|scenario| scenario.name == *name) {
            let names: Vec<_> = scenario::ALL.iter().map(|scenario| scenario.name).collect();
            return Err(format!("no scenario {name:?}: {}", names.join(", ")));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("target/rigs/stock-driver");
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let directory = directory
        .canonicalize()
        .map_err(|error| error.to_string())?;
    // Two at a time would meet at the sockets, and be too slow for their time limits.
    let lock = directory.join("lock");
    let lock = std::fs::File::create(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("{}: {error}", lock.display()))?;
    let logs = directory.join("log");
    std::fs::create_dir_all(&logs).map_err(|error| error.to_string())?;

    let provisions = provision::provision(&directory, kernel)?;
    println!("{}", provisions.about);
    build_server(&root)?;
    println!("ready after {} s", started.elapsed().as_secs());

    let mut outcome = Outcome::default();
    for scenario in scenario::ALL {
        if arguments.is_empty() || arguments.iter().any(|name| *name == scenario.name) {
            let begun = Instant::now();
            println!("{}: {}", scenario.name, scenario.about);
            scenario.run(&provisions, &logs, &mut outcome)?;
            println!("{}: {} s", scenario.name, begun.elapsed().as_secs());
        }
    }
    drop(lock);
    Ok(outcome)
}

/// The model's server, beside this program.
fn build_server(root: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["build", "--quiet", "--package", "connectx-model-server"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}
