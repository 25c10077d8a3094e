//! `cargo rig vfio`: this project's driver on real vfio-pci with a virtual IOMMU, in machines that QEMU emulates.
//!
//! The machines are those of the stock-driver rig, with Intel's IOMMU and interrupt remapping; what runs in them is the
//! programs of this repository, among Debian's. Every message of the kernel or the model at warning level or above is a
//! failure, unless it is explained. What goes between functions is shown to tshark.
//!
//! Logs are left in `target/rigs/vfio/log/KERNEL/SCENARIO/`.

mod in_c;
pub(crate) mod programs;
mod table;

use super::stock_driver::{self, Rig};
use crate::outcome::Outcome;
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str =
    "our driver on vfio-pci in QEMU guests, alone and against rdma-core (slow: boots machines)";

/// Runs all scenarios, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rig = Rig {
        name: "vfio",
        scenarios: table::ALL,
        programs: programs::build(&root)?,
        ours: PathBuf::new(),
    };
    stock_driver::run_rig(&rig, arguments)
}
