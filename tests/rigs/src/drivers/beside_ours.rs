//! DPDK's driver opposite our own: testpmd in one guest sends frames through our forwarder on vfio-pci in another.

use crate::process::output;
use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario};
use crate::vfio::programs::examples;
use std::fs;
use std::path::Path;
use std::process::Command;

const EXAMPLES: [&str; 2] = ["devinfo", "l2fwd"];

pub(super) const SCENARIO: Scenario = Scenario {
    name: "dpdk-and-ours",
    about: "DPDK's testpmd in one guest sends through our forwarder in another: both count the same packets",
    functions: 4,
    roce: false,
    rounds: &[Boot {
        machines: &[&[0, 1], &[2, 3]],
        iommu: true,
        script: include_str!("scripts/dpdk-and-ours.sh"),
        limit: 4,
        ..BOOT
    }],
    ..DEFAULT
};

/// Our programs, without what only a debugger reads. DPDK's are [those](super::dpdk::programs) of the other scenario.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = examples(&root, &EXAMPLES)?;
    let stripped = EXAMPLES.iter().map(|name| {
        let path = directory.join(name);
        output(
            Command::new("strip")
                .arg("-o")
                .arg(&path)
                .arg(built.join(name)),
        )?;
        Ok(Program { name, path })
    });
    stripped.collect()
}
