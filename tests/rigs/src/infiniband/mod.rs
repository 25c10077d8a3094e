//! `cargo rig infiniband`: subnets of the model's InfiniBand ports and switches under OpenSM, with Linux's drivers, IPoIB
//! and RDMA CM at their ends.
//!
//! The machines are those of the stock-driver rig. The ports begin without local identifiers and in the state Initialize:
//! whatever runs on them afterwards shows that a subnet manager which was not written here has configured them.
//!
//! Logs are left in `target/rigs/infiniband/log/KERNEL/SCENARIO/`.

mod table;

use super::stock_driver::{self, Rig};
use super::vfio::programs;
use crate::outcome::Outcome;
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str =
    "subnets of the model under OpenSM, with Linux at the ends (slow: boots machines)";

/// Runs all scenarios, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rig = Rig {
        name: "infiniband",
        scenarios: table::ALL,
        programs: programs::libraries(&root)?,
        ours: PathBuf::new(),
    };
    stock_driver::run_rig(&rig, arguments)
}

#[cfg(test)]
mod tests {
    #[test]
    fn scripts_can_be_planned() {
        crate::stock_driver::check_plans(super::table::ALL);
    }
}
