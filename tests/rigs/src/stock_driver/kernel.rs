//! Kernels with options that no kernel of Debian's is built with: Debian's sources, with little more in them than what
//! their purpose and a guest of the rigs need, so that they are built in minutes.
//!
//! Each is built once, in `target/rigs/kernel/`, under a separate lock: a rig that needs it waits for it, and others go
//! on.

use super::provision::copy;
use crate::apt::{Apt, unpack};
use crate::folder::empty;
use crate::outcome::Outcome;
use crate::process::quietly;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ABOUT: &str = "builds the kernels that Debian has not: iommufd for the vfio rig, flow-offload for tc (downloads 150 MB, compiles for minutes); none named: both";

/// The package of their sources, of Debian trixie.
const SOURCE: &str = "linux-source-6.12";
/// The configuration of each, beyond that of `make tinyconfig`.
const MACHINE: &str = include_str!("guest/machine.config");
/// Changes when they have to be built again although the options are the same.
const RECIPE: &str = "1";
/// The lists of modules that are built in, so that modprobe finds them.
pub(super) const LISTS: [&str; 3] = [
    "modules.builtin",
    "modules.builtin.modinfo",
    "modules.order",
];

/// Source files that no purpose needs, which are most of them. What configures the kernel reads their `Kconfig`.
const UNUSED: [&str; 12] = [
    "*/Documentation/*.rst",
    "*/Documentation/*.yaml",
    "*/arch/[a-wyz]*/*.[chS]",
    "*/arch/[a-wyz]*/*.dts*",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/infiniband/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/net/wireless/*.[ch]",
    "*/drivers/scsi/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/drivers/usb/*.[ch]",
    "*/sound/*.[ch]",
];

/// The purpose of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// vfio-pci with both of its interfaces.
    Iommufd,
    /// mlx5_core that puts the rules of `tc` into the card.
    FlowOffload,
}

impl Purpose {
    const ALL: [Self; 2] = [Self::Iommufd, Self::FlowOffload];

    /// Also that of its directory.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Iommufd => "iommufd",
            Self::FlowOffload => "flow-offload",
        }
    }

    fn options(self) -> String {
        let own = match self {
            Self::Iommufd => include_str!("guest/iommufd.config"),
            Self::FlowOffload => include_str!("guest/flow-offload.config"),
        };
        format!("{MACHINE}\n{own}")
    }
}

/// The kernel, once it is there.
pub(super) struct Built {
    /// The [`LISTS`] lie beside it.
    pub(super) image: PathBuf,
    pub(super) release: String,
    /// Changes when it is built again.
    pub(super) recipe: String,
}

/// Builds them, if that was not done before.
pub(crate) fn run_rig(arguments: &[String]) -> Result<Outcome, String> {
    let known = |name: &String| Purpose::ALL.iter().any(|purpose| purpose.name() == name);
    if let Some(unknown) = arguments.iter().find(|name| !known(name)) {
        let names = Purpose::ALL.map(Purpose::name).join(", ");
        return Err(format!("no kernel {unknown:?}: {names}"));
    }
    let mut outcome = Outcome::default();
    for purpose in Purpose::ALL {
        let name = purpose.name();
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            let built = built(purpose)?;
            println!("{name}: {}: {}", built.release, built.image.display());
            outcome.check(built.image.is_file(), || format!("{name}: no kernel"));
        }
    }
    Ok(outcome)
}

/// A kernel, built now if it was not before.
pub(super) fn built(purpose: Purpose) -> Result<Built, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rigs/kernel");
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(fail)?;
    let directory = directory.canonicalize().map_err(fail)?;
    // Held to the end of this function.
    let lock = fs::File::create(directory.join("lock")).map_err(fail)?;
    lock.lock().map_err(fail)?;
    let part = directory.join(purpose.name());
    let options = purpose.options();
    let stamp = part.join("stamp");
    let recipe = format!("{RECIPE}\n{SOURCE}\n{UNUSED:?}\n{options}\n");
    let found = fs::read_to_string(&stamp).unwrap_or_default();
    let release = match found.strip_prefix(&recipe) {
        Some(release) => release.trim().to_string(),
        None => {
            println!("building {}", part.display());
            empty(&part)?;
            let release = build(&directory, &part, &options)?;
            // Only what is complete has a stamp.
            fs::write(&stamp, format!("{recipe}{release}\n")).map_err(fail)?;
            release
        }
    };
    Ok(Built {
        image: part.join("vmlinux"),
        recipe: format!("{RECIPE} {release}\n{options}"),
        release,
    })
}

/// Fetches the sources, and builds the kernel into `part`. Its release.
fn build(directory: &Path, part: &Path, options: &str) -> Result<String, String> {
    let work = directory.join("work");
    empty(&work)?;
    for deb in Apt::new(directory)?.fetch(&work.join("debs"), &[SOURCE])? {
        unpack(&deb, &work)?;
    }
    let sources = work.join(format!("usr/src/{SOURCE}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&work).arg("-xf").arg(&sources);
    for unused in UNUSED {
        tar.arg(format!("--exclude={unused}"));
    }
    quietly(&mut tar)?;
    let tree = work.join(SOURCE);

    fs::write(tree.join("wanted.config"), options).map_err(|error| error.to_string())?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let make = |target: &str| {
        // At low priority: steps that need the kernel wait for its lock, and others go on.
        let mut make = Command::new("nice");
        make.args(["-n", "15", "make", "--silent", "-C"]).arg(&tree);
        make.arg(format!("-j{processors}")).arg(target);
        // The same sources make the same kernel.
        make.env("KBUILD_BUILD_TIMESTAMP", "2026-01-01")
            .env("KBUILD_BUILD_USER", "rig")
            .env("KBUILD_BUILD_HOST", "rig");
        quietly(&mut make)
    };
    make("tinyconfig")?;
    quietly(
        Command::new("scripts/kconfig/merge_config.sh")
            .current_dir(&tree)
            .args(["-m", ".config", "wanted.config"]),
    )?;
    make("olddefconfig")?;
    let read = |name: &str| {
        let path = tree.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let missing = missing(options, &read(".config")?);
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!(
            "these options do not get into the kernel: {missing}"
        ));
    }
    make("vmlinux")?;
    for name in LISTS.iter().chain(&["vmlinux"]) {
        let from = tree.join(name);
        // A kernel that cannot load modules has no order of them.
        if from.exists() {
            copy(&from, &part.join(name))?;
        } else {
            fs::write(part.join(name), "").map_err(|error| error.to_string())?;
        }
    }
    let release = read("include/config/kernel.release")?.trim().to_string();
    fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    Ok(release)
}

/// The options that should be in a configuration and are not.
fn missing<'o>(options: &'o str, config: &str) -> Vec<&'o str> {
    let wanted = options.lines().filter(|line| line.starts_with("CONFIG_"));
    wanted
        .filter(|option| !config.lines().any(|line| line == *option))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_did_not_get_into_the_kernel_are_named() {
        let options = "# Why.\nCONFIG_A=y\nCONFIG_B=y\n# CONFIG_C is not set\n";
        assert_eq!(
            missing(options, "CONFIG_B=y\nCONFIG_AA=y\n"),
            ["CONFIG_A=y"]
        );
        assert_eq!(missing(options, "CONFIG_A=y\nCONFIG_B=y\n"), [""; 0]);
    }

    #[test]
    fn a_kernel_has_what_it_is_built_for() {
        let needed: [(_, &[&str]); 2] = [
            (
                Purpose::Iommufd,
                &["IOMMUFD", "VFIO_DEVICE_CDEV", "VFIO_GROUP", "VFIO_PCI"],
            ),
            (
                Purpose::FlowOffload,
                &["MLX5_CLS_ACT", "NET_CLS_FLOWER", "NET_ACT_PEDIT"],
            ),
        ];
        for (purpose, options) in needed {
            for option in options {
                let line = format!("CONFIG_{option}=y");
                let known = purpose.options();
                assert!(known.lines().any(|known| known == line), "{line}");
            }
        }
    }
}
