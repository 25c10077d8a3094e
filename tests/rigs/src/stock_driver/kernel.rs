//! A kernel with iommufd, which no kernel of Debian's is built with: Debian's sources, with little more in it than what
//! vfio-pci and a guest of the rigs need, so that it is built in minutes.
//!
//! It is built once, in `target/rigs/kernel/`, under a separate lock: a rig that needs it waits for it, and others go
//! on.

use super::provision::{Apt, copy, empty, run, unpack};
use crate::outcome::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ABOUT: &str = "builds the kernel with iommufd that the vfio rig boots (downloads 150 MB, compiles for minutes)";

/// The package of its sources, of Debian trixie.
const SOURCE: &str = "linux-source-6.12";
/// What is in it, beyond what `make tinyconfig` has.
const OPTIONS: &str = include_str!("guest/iommufd.config");
/// Changes when it has to be built again although the options are the same.
const RECIPE: &str = "1";
/// What its build says of the modules that are built in, so that modprobe finds them.
pub(super) const LISTS: [&str; 3] = [
    "modules.builtin",
    "modules.builtin.modinfo",
    "modules.order",
];

/// Source files that are not needed, which are most of them. What configures the kernel reads their `Kconfig`.
const UNUSED: [&str; 15] = [
    "*/Documentation/*.rst",
    "*/Documentation/*.yaml",
    "*/arch/[a-wyz]*/*.[chS]",
    "*/arch/[a-wyz]*/*.dts*",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/infiniband/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/net/*.[ch]",
    "*/drivers/scsi/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/drivers/usb/*.[ch]",
    "*/net/*.c",
    "*/sound/*.[ch]",
    "*/tools/perf/*",
    "*/tools/testing/*",
];

/// The kernel, once it is there.
pub(super) struct Built {
    /// The [`LISTS`] lie beside it.
    pub(super) image: PathBuf,
    pub(super) release: String,
    /// Changes when it is built again.
    pub(super) recipe: String,
}

/// Builds it, if that was not done before.
pub(crate) fn run_rig(arguments: &[String]) -> Result<Outcome, String> {
    if !arguments.is_empty() {
        return Err("no arguments are known".to_string());
    }
    let built = built()?;
    println!("{}: {}", built.release, built.image.display());
    let mut outcome = Outcome::default();
    outcome.check(built.image.is_file(), || "there is no kernel".to_string());
    Ok(outcome)
}

/// The kernel, built now if it was not before.
pub(super) fn built() -> Result<Built, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rigs/kernel");
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(fail)?;
    let directory = directory.canonicalize().map_err(fail)?;
    // Held to the end of this function.
    let lock = fs::File::create(directory.join("lock")).map_err(fail)?;
    lock.lock().map_err(fail)?;
    let part = directory.join("iommufd");
    let stamp = part.join("stamp");
    let recipe = format!("{RECIPE}\n{SOURCE}\n{UNUSED:?}\n{OPTIONS}\n");
    let found = fs::read_to_string(&stamp).unwrap_or_default();
    let release = match found.strip_prefix(&recipe) {
        Some(release) => release.trim().to_string(),
        None => {
            println!("building {}", part.display());
            empty(&part)?;
            let release = build(&directory, &part)?;
            // Only what is complete has a stamp.
            fs::write(&stamp, format!("{recipe}{release}\n")).map_err(fail)?;
            release
        }
    };
    Ok(Built {
        image: part.join("vmlinux"),
        recipe: format!("{RECIPE} {release}\n{OPTIONS}"),
        release,
    })
}

/// Fetches the sources, and builds the kernel into `part`. Its release.
fn build(directory: &Path, part: &Path) -> Result<String, String> {
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
    run(&mut tar)?;
    let tree = work.join(SOURCE);

    let options = tree.join("iommufd.config");
    fs::write(&options, OPTIONS).map_err(|error| error.to_string())?;
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
        run(&mut make)
    };
    make("tinyconfig")?;
    run(Command::new("scripts/kconfig/merge_config.sh")
        .current_dir(&tree)
        .args(["-m", ".config", "iommufd.config"]))?;
    make("olddefconfig")?;
    let read = |name: &str| {
        let path = tree.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let missing = missing(OPTIONS, &read(".config")?);
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
    fn the_kernel_has_what_it_is_built_for() {
        for option in ["IOMMUFD", "VFIO_DEVICE_CDEV", "VFIO_GROUP", "VFIO_PCI"] {
            let line = format!("CONFIG_{option}=y");
            assert!(OPTIONS.lines().any(|known| known == line), "{line}");
        }
    }
}
