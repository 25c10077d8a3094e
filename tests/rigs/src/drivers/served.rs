//! UCX's `rc_mlx5` and `dc_mlx5`, DPDK's mlx5 PMD and iproute2's `rdma` without Linux's driver of the card: `bareverbs-uverbs`
//! serves the kernel's verbs ABI, and RDMA's family of netlink, on functions of vfio-pci.

use super::archive::Contents;
use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario};
use crate::vfio::programs::{bundled, examples, stripped};
use std::path::Path;

/// The program, and the parts that it loads by name.
const UCX: Contents = Contents {
    packages: &["libucx0", "ucx-utils"],
    roots: &[
        "usr/bin/ucx_perftest",
        "usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0",
        "usr/lib/x86_64-linux-gnu/ucx/libuct_ib_mlx5.so.0",
    ],
    folder: "ucx",
};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "served",
    about: "UCX, DPDK's testpmd and rdma on functions of vfio-pci, by the kernel's verbs ABI as it is served in the process",
    functions: 2,
    rounds: &[Boot {
        machines: &[&[0], &[1]],
        iommu: true,
        network: true,
        script: concat!(
            include_str!("scripts/served-begin.sh"),
            include_str!("scripts/testpmd.sh"),
            include_str!("scripts/testpmd-pair.sh"),
            include_str!("scripts/served.sh")
        ),
        prints: &[
            ("rdma", "0: mlx5_0: node_type ca"),
            ("rdma", "link mlx5_0/1 state ACTIVE physical_state LINK_UP"),
            ("rdma", "netns shared"),
        ],
        ..BOOT
    }],
    ..DEFAULT
};

/// UCX and our programs. DPDK's are [those](super::dpdk::programs) of another scenario.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = examples(&root, &["devinfo"])?;
    let devinfo = [("devinfo", built.join("devinfo"))];
    let mut programs = stripped(&built, devinfo.into_iter().chain(bundled(&root)?))?;
    let (name, path) = ("ucx.tar", UCX.archive(directory)?);
    programs.push(Program { name, path });
    Ok(programs)
}
