//! Sources of Debian's packages.

use crate::apt::Apt;
use std::fs;
use std::path::{Path, PathBuf};

/// Changes when sources have to be fetched again although the package is the same.
const RECIPE: &str = "1";

/// Unpacked upstream sources.
pub(crate) struct Source {
    pub(crate) folder: PathBuf,
    /// The package's version.
    pub(crate) version: String,
}

/// Those of a release's package, fetched if they are not there yet.
pub(crate) fn fetch(directory: &Path, package: &str, suite: &str) -> Result<Source, String> {
    let folder = directory.join(package);
    let stamp = directory.join(format!("{package}.stamp"));
    let recipe = format!("{RECIPE} {suite}\n");
    let found = fs::read_to_string(&stamp).unwrap_or_default();
    let version = match found.strip_prefix(&recipe) {
        Some(version) => version.trim().to_string(),
        None => {
            let apt = Apt::of_sources(&directory.join("packages"), suite)?;
            let version = apt.fetch_source(package, &folder)?;
            // Only what is complete has a stamp.
            fs::write(&stamp, format!("{recipe}{version}\n"))
                .map_err(|error| format!("{}: {error}", stamp.display()))?;
            version
        }
    };
    Ok(Source { folder, version })
}
