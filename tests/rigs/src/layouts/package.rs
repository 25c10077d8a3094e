//! Debian's kernel headers and those of libibverbs, fetched by apt and unpacked beside the build: no root, nothing
//! installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::quiet_output;

/// The unpacked package.
pub(super) struct Package {
    /// Name and version.
    pub(super) version: String,
    /// Its `include` directory.
    pub(super) include: PathBuf,
}

/// Finds the package with the architecture-independent headers behind `linux-headers-amd64`, and unpacks it.
pub(super) fn fetch_kernel(into: &Path) -> Result<Package, String> {
    std::fs::create_dir_all(into).map_err(|e| format!("{}: {e}", into.display()))?;
    let name = common_package().or_else(|_| {
        // Fresh machines have no package lists. Without root this fails, and then so does the second attempt, with the
        // reason that counts.
        let _ = quiet_output(Command::new("apt-get").args(["-qq", "update"]));
        common_package()
    })?;
    unpack(into, &name, &format!("usr/src/{name}/include"))
}

/// Unpacks `libibverbs-dev`. Behind [`fetch_kernel`], which has seen to the package lists.
pub(super) fn fetch_verbs(into: &Path) -> Result<Package, String> {
    unpack(into, "libibverbs-dev", "usr/include")
}

fn unpack(into: &Path, name: &str, include: &str) -> Result<Package, String> {
    let version = policy_version(name)?;
    let unpacked = into.join(format!("{name}_{version}"));
    let include = unpacked.join(include);
    if !include.is_dir() {
        quiet_output(
            Command::new("apt-get")
                .args(["-qq", "download", name])
                .current_dir(into),
        )?;
        let archive = newest_archive(into, name)?;
        quiet_output(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(&archive)
                .arg(&unpacked),
        )?;
        let _ = std::fs::remove_file(&archive);
    }
    if !include.is_dir() {
        return Err(format!("{name} has no {}", include.display()));
    }
    Ok(Package {
        version: format!("{name} {version}"),
        include,
    })
}

/// `linux-headers-amd64` depends on `linux-headers-VERSION-amd64`, and that on `linux-headers-VERSION-common`.
fn common_package() -> Result<String, String> {
    let flavour = dependency("linux-headers-amd64", |name| name.ends_with("-amd64"))?;
    dependency(&flavour, |name| name.ends_with("-common"))
}

fn dependency(package: &str, wanted: impl Fn(&str) -> bool) -> Result<String, String> {
    let text = quiet_output(Command::new("apt-cache").args(["depends", package]))?;
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-headers-") && wanted(name))
        .map(str::to_owned)
        .ok_or_else(|| format!("apt-cache depends {package}: no such dependency in {text:?}"))
}

fn policy_version(package: &str) -> Result<String, String> {
    let text = quiet_output(Command::new("apt-cache").args(["policy", package]))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .map(str::to_owned)
        .ok_or_else(|| format!("apt-cache policy {package}: no candidate"))
}

fn newest_archive(directory: &Path, package: &str) -> Result<PathBuf, String> {
    let prefix = format!("{package}_");
    std::fs::read_dir(directory)
        .map_err(|e| format!("{}: {e}", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            name.starts_with(&prefix) && name.ends_with(".deb")
        })
        .ok_or_else(|| format!("apt-get download left no {prefix}*.deb"))
}
