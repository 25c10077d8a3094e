//! The sources of Rust's library, for what cargo builds with `-Z build-std`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;

/// The version or the machine of this compiler, as it prints them.
pub(crate) fn rustc(field: &str) -> Result<String, String> {
    let said = output(Command::new("rustc").args(["--version", "--verbose"]))?;
    let line = said.lines().find_map(|line| line.strip_prefix(field));
    let value = line.and_then(|rest| rest.strip_prefix(": "));
    Ok(value
        .ok_or_else(|| format!("rustc has no {field}"))?
        .to_string())
}

/// Where they are. Debian's package of exactly this compiler is fetched if it is not there yet.
pub(crate) fn library() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let version = rustc("release")?;
    let library = root.join(format!(
        "target/ci/rust-src/usr/src/rustc-{version}/library"
    ));
    if !library.join("core/src/lib.rs").exists() {
        let mut fetch = Command::new("bash");
        output(fetch.current_dir(&root).args([".ci/run", "rust_src"]))?;
    }
    // Cargo takes another way to the same sources for others, and builds them again.
    let canonical = library.canonicalize();
    canonical.map_err(|error| format!("{}: {error}", library.display()))
}
