//! `cargo rig drivers`: drivers of the card that others wrote, on the model, beside Linux's own (`cargo rig stock-driver`).
//!
//! The machines are those of the stock-driver rig. Each driver is a module here, with its scenarios, and with what it needs
//! in the guests, which is fetched and built only when one of its scenarios is to run.
//!
//! Logs are left in `target/rigs/drivers/log/KERNEL/SCENARIO/`.

mod archive;
mod beside_ours;
mod dpdk;
mod ipxe;
mod rdma_core_tests;
mod rdma_core_vfio;
mod rdma_flows;
mod served;

use super::stock_driver::{self, Program, Rig, Scenario};
use crate::outcome::Outcome;
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str = "DPDK's, iPXE's and rdma-core's drivers, and rdma-core's tests on Linux's, on the model, in QEMU guests (slow: boots machines; downloads once)";

/// The scenarios of all drivers, by the driver's name.
const SCENARIOS: &[Scenario] = &[
    dpdk::SCENARIO,
    dpdk::VERBS,
    dpdk::SEND,
    dpdk::COUNT,
    beside_ours::SCENARIO,
    rdma_core_vfio::SCENARIO,
    ipxe::SCENARIO,
    rdma_core_tests::SCENARIO,
    rdma_flows::SCENARIO,
    served::SCENARIO,
];

/// The function that builds the programs of a scenario, below a directory of its own.
type Build = fn(&Path) -> Result<Vec<Program>, String>;

/// The builders by scenario.
const PROGRAMS: &[(&str, Build)] = &[
    (dpdk::SCENARIO.name, dpdk::programs),
    (beside_ours::SCENARIO.name, beside_ours::programs),
    (rdma_core_vfio::SCENARIO.name, rdma_core_vfio::programs),
    (ipxe::SCENARIO.name, ipxe::programs),
    (rdma_core_tests::SCENARIO.name, rdma_core_tests::programs),
    (rdma_flows::SCENARIO.name, rdma_flows::programs),
    (served::SCENARIO.name, served::programs),
];

/// Runs all scenarios, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rigs/drivers");
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !SCENARIOS.iter().any(|scenario| named(scenario.name));
    // DPDK's programs are for six scenarios.
    let with_dpdk = [
        dpdk::VERBS.name,
        dpdk::SEND.name,
        dpdk::COUNT.name,
        beside_ours::SCENARIO.name,
        served::SCENARIO.name,
    ];
    let needed = |name: &str| {
        named(name) || name == dpdk::SCENARIO.name && with_dpdk.iter().any(|other| named(other))
    };
    let mut programs = Vec::new();
    for (name, build) in PROGRAMS {
        if all || needed(name) {
            programs.extend(build(&root.join(name))?);
        }
    }
    let rig = Rig {
        name: "drivers",
        scenarios: SCENARIOS,
        programs,
        ours: PathBuf::new(),
    };
    stock_driver::run_rig(&rig, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_can_be_planned_and_has_what_is_expected_of_it() {
        stock_driver::check_plans(SCENARIOS);
    }

    #[test]
    fn every_driver_has_scenarios() {
        for (name, _) in PROGRAMS {
            assert!(SCENARIOS.iter().any(|known| known.name == *name), "{name}");
        }
    }
}
