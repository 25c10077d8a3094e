//! `cargo rig infiniband`: subnets of the model's InfiniBand ports and switches under OpenSM, with Linux's drivers, IPoIB
//! and RDMA CM at their ends.
//!
//! The machines are those of the stock-driver rig. The ports begin without local identifiers and in the state Initialize:
//! whatever runs on them afterwards shows that a subnet manager which was not written here has configured them.
//!
//! Logs are left in `target/rigs/infiniband/log/KERNEL/SCENARIO/`.

mod table;

use super::stock_driver::{self, InC, Program, Rig, provision};
use super::vfio::programs;
use crate::outcome::Outcome;
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str =
    "subnets of the model under OpenSM, with Linux at the ends (slow: boots machines)";

const PROGRAM: InC = InC {
    name: "alternate_paths",
    text: include_str!("programs/alternate_paths.c"),
    libraries: &["-libverbs"],
};
const PACKAGES: &[&str] = &["ibverbs-providers", "libibverbs-dev", "libibverbs1"];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

/// A simulated subnet, the peer of the model's.
const SIMULATOR: &[&str] = &["ibsim-utils", "libumad2sim0"];
/// Its files, by their names in the guests.
const SIMULATED: [(&str, &str); 2] = [
    ("ibsim", "usr/bin/ibsim"),
    (
        "libumad2sim.so",
        "usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so",
    ),
];

/// Runs all scenarios, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rig = Rig {
        name: "infiniband",
        scenarios: table::ALL,
        programs: all_programs(&root)?,
        ours: PathBuf::new(),
    };
    stock_driver::run_rig(&rig, arguments)
}

fn all_programs(root: &Path) -> Result<Vec<Program>, String> {
    let directory = root.join("target/rigs/infiniband/in-c");
    let tree = provision::guest_packages(&directory, PACKAGES, RECIPE)?;
    let path = PROGRAM.build(&directory, &tree, None)?;
    let name = PROGRAM.name;
    let mut all = programs::libraries(root)?;
    all.push(Program { name, path });
    let directory = root.join("target/rigs/infiniband/ibsim");
    let tree = provision::guest_packages(&directory, SIMULATOR, RECIPE)?;
    let simulator = SIMULATED.map(|(name, path)| Program {
        name,
        path: tree.join(path),
    });
    all.extend(simulator);
    Ok(all)
}

#[cfg(test)]
mod tests {
    #[test]
    fn scripts_can_be_planned() {
        crate::stock_driver::check_plans(super::table::ALL);
    }
}
