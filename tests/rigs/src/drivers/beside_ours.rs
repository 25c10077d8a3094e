//! DPDK's driver opposite our own: testpmd in one guest sends frames through our forwarder on vfio-pci in another.

use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario};
use crate::vfio::programs::{examples, stripped};
use std::path::Path;

const EXAMPLES: [&str; 2] = ["devinfo", "l2fwd"];

pub(super) const SCENARIO: Scenario = Scenario {
    name: "dpdk-and-ours",
    about: "DPDK's testpmd in one guest sends through our forwarder in another: both count the same packets",
    functions: 4,
    roce: false,
    rounds: &[Boot {
        machines: &[&[0, 1], &[2, 3]],
        iommu: true,
        script: concat!(
            include_str!("scripts/testpmd.sh"),
            include_str!("scripts/dpdk-and-ours.sh")
        ),
        limit: 4,
        ..BOOT
    }],
    ..DEFAULT
};

/// Our programs. DPDK's are [those](super::dpdk::programs) of the other scenario.
pub(super) fn programs(_: &Path) -> Result<Vec<Program>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = examples(&root, &EXAMPLES)?;
    stripped(&built, EXAMPLES.map(|name| (name, built.join(name))))
}
