//! Programs of the rigs in C, which run in the guests: built against headers and libraries of Debian's packages.

use crate::process::{C_HEADERS, output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program.
pub(crate) struct InC<'a> {
    pub(crate) name: &'static str,
    pub(crate) text: &'a str,
    /// Options for the linker.
    pub(crate) libraries: &'a [&'a str],
}

impl InC<'_> {
    /// Builds it in a directory, against packages that were unpacked below `tree`. Headers in `others` stand for those that
    /// neither the packages nor this computer have.
    pub(crate) fn build(
        &self,
        directory: &Path,
        tree: &Path,
        others: Option<&Path>,
    ) -> Result<PathBuf, String> {
        let path = directory.join(self.name);
        let source = path.with_extension("c");
        fs::write(&source, self.text).map_err(|error| format!("{}: {error}", source.display()))?;
        let mut cc = Command::new("cc");
        cc.args([
            "-std=gnu17",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-s",
            C_HEADERS,
        ])
        .arg("-isystem")
        .arg(tree.join("usr/include"));
        if let Some(others) = others {
            cc.arg("-idirafter").arg(others);
        }
        cc.arg("-o")
            .arg(&path)
            .arg(&source)
            // The guests' C library is newer than this computer's.
            .arg("-Wl,--allow-shlib-undefined")
            .arg("-L")
            .arg(tree.join("usr/lib/x86_64-linux-gnu"))
            .args(self.libraries);
        output(&mut cc)?;
        Ok(path)
    }
}
