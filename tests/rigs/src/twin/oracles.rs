//! The runner's machines: Linux's driver and rdma-core in several versions, and our libraries on vfio-pci.

use super::compare::Row;
use crate::apt::{Apt, unpack};
use crate::folder::empty;
use crate::process::quietly;
use crate::stock_driver::provision::usr_links;
use crate::stock_driver::{BOOT, Boot, Kernel, Program, SCENARIO, Scenario};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The step whose output is the runner's, and the scenario in which Linux's side is that of the table.
pub(super) const NAME: &str = "scripts";

/// The scenario with Linux's RoCE in software, and the file of its scripts.
pub(super) const RXE: &str = "rxe";

/// A scenario with time for many scripts.
pub(super) const LONG: &str = "drawn";

/// The scenario with the newest libraries, in which functions that are newer than the guests' can be called.
pub(super) const NEWEST: &str = "newest-libraries";

/// The script of a machine, with variables.
macro_rules! with {
    ($variables:literal) => {
        concat!(
            "provider=mlx5_ib scripts=together beside=alone\n",
            $variables,
            "\n",
            include_str!("guest.sh")
        )
    };
}

/// A machine with Linux's driver.
const LINUX: Boot = Boot {
    script: with!("libraries= seconds=900"),
    machines: &[&[0]],
    // The largest completion queue has 512.
    memory: 1024,
    prints: &[(NAME, "@ end")],
    driver_may_warn: &[
        (
            NAME,
            "Create QP type",
            "a queue pair that has to be refused",
        ),
        (NAME, ": invalid mtu", "a path MTU that has to be refused"),
        (
            NAME,
            "psn overflow, masking to 24 bits",
            "PSNs with more bits",
        ),
        (
            NAME,
            ": wrong entries number",
            "a size that has to be refused",
        ),
        (
            NAME,
            "cq_err_event_notifier",
            "a completion queue that has to overrun",
        ),
    ],
    driver_may_warn_times: usize::MAX,
    limit: 18,
    ..BOOT
};

const MODEL_MAY_WARN: &[(&str, &str)] = &[
    (
        "of type 0x1: opcode 0x10",
        "mlx5's library posts READ on UC, which has none",
    ),
    (
        "failed, status 0x9",
        "a completion queue that has to overrun",
    ),
];

const ON_LINUX: Scenario = Scenario {
    name: NAME,
    about: "scripts of calls",
    functions: 1,
    every_kernel: true,
    rounds: &[LINUX],
    model_may_warn: MODEL_MAY_WARN,
    ..SCENARIO
};

/// The scenarios.
pub(super) const SCENARIOS: &[Scenario] = &[
    ON_LINUX,
    Scenario {
        name: LONG,
        about: "many drawn scripts",
        rounds: &[Boot {
            script: with!("libraries= seconds=5400"),
            limit: 100,
            ..LINUX
        }],
        ..ON_LINUX
    },
    Scenario {
        name: "older-libraries",
        about: "the same, with Debian 12's rdma-core",
        kernel: Some(Kernel::Stable),
        rounds: &[Boot {
            script: with!("libraries=older seconds=900"),
            ..LINUX
        }],
        ..ON_LINUX
    },
    Scenario {
        name: NEWEST,
        about: "the same, with the newest rdma-core and kernel that Debian has",
        kernel: Some(Kernel::Backports),
        rounds: &[Boot {
            script: with!("libraries=newest scripts='together newer' seconds=900"),
            ..LINUX
        }],
        ..ON_LINUX
    },
    Scenario {
        name: RXE,
        about: "requests on Linux's RoCE over an ordinary network device",
        kernel: Some(Kernel::Stable),
        rounds: &[Boot {
            script: with!(
                "libraries= provider=rdma_rxe scripts=rxe beside= seconds=900\nexport PATIENCE=1000"
            ),
            driver_may_warn: &[
                (NAME, "rxe", "what has to be refused"),
                (NAME, "rdma0", "what has to be refused"),
                (NAME, "callbacks suppressed", "more of the same"),
            ],
            ..LINUX
        }],
        ..ON_LINUX
    },
    Scenario {
        name: "vfio",
        about: "the same on our libraries and vfio-pci",
        kernel: Some(Kernel::Stable),
        functions: 1,
        rounds: &[Boot {
            script: include_str!("ours.sh"),
            prints: &[(NAME, "@ end")],
            driver_may_warn: &[(NAME, "RLIMIT_MEMLOCK", "a limit that a script sets")],
            iommu: true,
            limit: 18,
            ..BOOT
        }],
        model_may_warn: MODEL_MAY_WARN,
        ..SCENARIO
    },
];

/// The options of the machines' rig for all oracles.
pub(super) const WHOLE: [&str; 7] = [
    "--stable",
    "--backports",
    NAME,
    "older-libraries",
    NEWEST,
    "vfio",
    RXE,
];

/// The scenarios that can run by themselves.
pub(super) const ALONE: [&str; 3] = ["older-libraries", "vfio", RXE];

/// A comparison beside that with Linux 6.12 and rdma-core 56.
pub(super) struct Oracle {
    /// The section of the page with what is so here only.
    pub(super) heading: &'static str,
    /// Other sections that hold here.
    pub(super) also: &'static [&'static str],
    /// The folder of its logs.
    pub(super) logs: &'static str,
    /// `true` if it is our side that is another one.
    pub(super) ours: bool,
    /// `true` if it runs the scripts that call newer functions.
    pub(super) newer: bool,
}

/// The section of the page with what is so where our libraries are not on vfio-pci.
pub(super) const WITHOUT_VFIO: &str = "Without vfio-pci";

pub(super) const ORACLES: [Oracle; 4] = [
    Oracle {
        heading: "On vfio-pci",
        also: &[],
        logs: "trixie/vfio",
        ours: true,
        newer: false,
    },
    Oracle {
        heading: "The newest kernel",
        also: &[WITHOUT_VFIO],
        logs: "trixie-backports/scripts",
        ours: false,
        newer: false,
    },
    Oracle {
        heading: "An older rdma-core",
        also: &[WITHOUT_VFIO],
        logs: "trixie/older-libraries",
        ours: false,
        newer: false,
    },
    Oracle {
        heading: "The newest rdma-core",
        also: &[WITHOUT_VFIO, "The newest kernel"],
        logs: "trixie-backports/newest-libraries",
        ours: false,
        newer: true,
    },
];

/// The table of the page, before its sections; and the rows of one of them, if it is there.
pub(super) fn rows<'a>(page: &'a str, heading: Option<&str>) -> Result<Vec<Row<'a>>, String> {
    let mut parts = page.split("\n## ");
    let first = parts.next().unwrap_or_default();
    let part = match heading {
        None => first,
        Some(heading) => parts
            .find(|part| part.lines().next() == Some(heading))
            .unwrap_or_default(),
    };
    Row::all(part)
}

/// Libraries for guests: the name of the archive, the release, and its names of the packages.
const LIBRARIES: [(&str, &str, &[&str]); 2] = [
    (
        "older",
        "bookworm",
        &[
            "ibverbs-providers",
            "libc6",
            "libibverbs1",
            "libnl-3-200",
            "libnl-route-3-200",
            "librdmacm1",
        ],
    ),
    (
        "newest",
        "forky",
        &[
            "ibverbs-providers",
            "libc6",
            "libibverbs1",
            "libnl-3-200",
            "libnl-route-3-200",
            "librdmacm1t64",
        ],
    ),
];
/// Files of these packages that the runner does not need.
const REFUSED: [&str; 2] = ["usr/share", "usr/lib/x86_64-linux-gnu/gconv"];

/// The archives of libraries, made below `directory` from Debian's packages.
pub(super) fn libraries(directory: &Path) -> Result<Vec<Program>, String> {
    let one = |&(name, release, packages): &(&'static str, &str, &[&str])| {
        let directory = directory.join(name);
        let tree = directory.join("root");
        let path = directory.join("archive");
        let stamp = directory.join("stamp");
        let recipe = format!("{release} {packages:?}");
        if fs::read_to_string(&stamp).unwrap_or_default() != recipe {
            empty(&tree)?;
            usr_links(&tree)?;
            let apt = Apt::of_suite(&directory, release)?;
            for deb in apt.fetch(&directory.join("debs"), packages)? {
                unpack(&deb, &tree)?;
            }
            for refused in REFUSED {
                let path = tree.join(refused);
                fs::remove_dir_all(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
            let mut tar = Command::new("tar");
            quietly(tar.arg("-C").arg(&tree).arg("-cf").arg(&path).arg("."))?;
            fs::write(&stamp, recipe).map_err(|error| format!("{}: {error}", stamp.display()))?;
        }
        Ok(Program { name, path })
    };
    LIBRARIES.iter().map(one).collect()
}
