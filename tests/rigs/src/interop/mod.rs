//! `cargo rig interop`: our driver, connection manager and model against Linux's RDMA CM and its RoCE in software.
//!
//! The machines of the stock-driver rig have no card here, but `rdma_rxe` on an ordinary network device, and Debian's
//! programs. At the other end of that device's cable is this computer, where our programs run on the model. What passes is
//! recorded by QEMU and shown to tshark.
//!
//! Logs and captures are left in `target/rigs/interop/log/KERNEL/SCENARIO/`.

mod programs;
mod table;

use super::stock_driver::{self, Rig};
use super::vfio::programs as examples;
use crate::outcome::Outcome;
use std::path::Path;

pub(crate) const ABOUT: &str = "our CM and RoCE against Linux's rdma_cm over rdma_rxe, with rdma-core's programs (boots machines)";

/// Runs all scenarios, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ours = examples::examples(
        &root,
        &[
            "rping",
            "ucmatose",
            "udaddy",
            "rdma_client",
            "rdma_server",
            "cmtime",
            "tcp_echo",
            "mckey",
        ],
    )?;
    let rig = Rig {
        name: "interop",
        scenarios: table::ALL,
        programs: programs::build(&root.join("target/rigs/interop/programs"), &ours)?,
        ours,
    };
    stock_driver::run_rig(&rig, arguments)
}
