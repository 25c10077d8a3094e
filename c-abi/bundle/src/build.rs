//! Cargo's part.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::copyright::PACKAGES;
use crate::library::{Bundle, Sources, bundle};
use crate::{RUNNER, symbols};

/// The purpose of a build, which says what it keeps of the debug symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Optimized code, without debug symbols.
    Code,
    /// Optimized code with the lines of the sources, for a package.
    Lines,
    /// Code without optimization.
    Debug,
}

/// Builds `bareverbs-c` and the runner with Cargo, and makes a bundle of them in `folder`, or in `bundle` below
/// Cargo's target folder.
pub fn build(folder: Option<&Path>, kept: Kept) -> Result<Bundle, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root
        .canonicalize()
        .map_err(|error| format!("{}: {error}", root.display()))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&root)
        .args(["build", "--quiet", "--locked", "--lib", "--bin", RUNNER]);
    // The last one is not linked: with its features, the libraries share what the workspace's other programs have compiled.
    for package in PACKAGES.iter().chain(&["bareverbs-unified"]) {
        cargo.args(["--package", package]);
    }
    if kept != Kept::Debug {
        cargo.arg("--release");
    }
    if kept == Kept::Lines {
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    }
    let status = cargo
        .status()
        .map_err(|error| format!("{cargo:?}: {error}"))?;
    if !status.success() {
        return Err(format!("{cargo:?}: {status}"));
    }
    let built = target.join(if kept == Kept::Debug {
        "debug"
    } else {
        "release"
    });
    let sources = Sources {
        archive: &built.join("libbareverbs_c.a"),
        paths: Some(&built.join("libbareverbs_paths.a")),
        sockets: Some(&built.join("libbareverbs_sockets.a")),
        uverbs: Some(&built.join("libbareverbs_uverbs.a")),
        runner: &built.join(RUNNER),
        keeps_symbols: kept == Kept::Lines,
        symbols: &symbols()?,
    };
    bundle(
        &sources,
        &folder.map_or_else(|| target.join("bundle"), Path::to_owned),
    )
}
