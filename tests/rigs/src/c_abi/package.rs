//! The Debian package, unpacked into an empty folder, from which Debian's `rping` runs.

use super::run::Place;
use super::table;
use crate::outcome::Outcome;
use crate::process::quiet_output;
use bareverbs_bundle::{Bundle, INSTALLED, package};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const NAME: &str = "package";
/// The scenario that runs with it.
const SCENARIO: &str = "rping";

pub(super) fn run(place: &Place<'_>, directory: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    match unpacked(place, directory) {
        Ok(root) => {
            let bundle = Bundle {
                folder: root.join(INSTALLED),
                defined: BTreeSet::new(),
            };
            let place = Place {
                bundle: &bundle,
                ..*place
            };
            let scenario = table::all().find(|scenario| scenario.name == SCENARIO);
            match scenario {
                Some(scenario) => outcome.add(place.run(scenario)),
                None => outcome.check(false, || format!("{NAME}: no scenario {SCENARIO}")),
            }
        }
        Err(why) => outcome.check(false, || format!("{NAME}: {why}")),
    }
    outcome
}

/// Makes the package, looks at what it says of itself, and unpacks it as `dpkg` would.
fn unpacked(place: &Place<'_>, directory: &Path) -> Result<PathBuf, String> {
    let package = package(place.bundle)?.programs;
    let field = |name: &str| -> Result<String, String> {
        let text = quiet_output(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(&package)
                .arg(name),
        )?;
        Ok(text.trim().to_owned())
    };
    let (name, depends) = (field("Package")?, field("Depends")?);
    println!("{NAME}: {}, depends on {depends}", package.display());
    if name != "bareverbs" || !depends.contains("libc6 (>= ") {
        return Err(format!("{name:?} depends on {depends:?}"));
    }
    let root = directory.join("unpacked");
    let fail = |error: std::io::Error| format!("{}: {error}", root.display());
    if root.exists() {
        fs::remove_dir_all(&root).map_err(fail)?;
    }
    quiet_output(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&package)
            .arg(&root),
    )?;
    // What the shell finds is the program beside the libraries.
    let found = fs::canonicalize(root.join("usr/bin/bareverbs-run")).map_err(fail)?;
    let wanted = fs::canonicalize(root.join(INSTALLED)).map_err(fail)?;
    match found.parent() == Some(wanted.as_path()) {
        true => Ok(root),
        false => Err(format!("bareverbs-run is {}", found.display())),
    }
}
