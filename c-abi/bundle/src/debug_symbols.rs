//! Debug symbols in files of their own, by build id, where debuggers look for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run;

/// Debuggers look here for the symbols of a file, by its build id.
const SYMBOLS: &str = "usr/lib/debug/.build-id";

/// Moves the debug symbols of each object into a file below `tree`. Returns the objects' build ids.
pub(crate) fn split(objects: &[PathBuf], tree: &Path) -> Result<Vec<String>, String> {
    let mut ids = Vec::new();
    for object in objects {
        let id = build_id(object)?;
        // Hexadecimal digits: `build_id` takes nothing else.
        let (start, rest) = id.split_at(2);
        let folder = tree.join(SYMBOLS).join(start);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let symbols = folder.join(format!("{rest}.debug"));
        run(Command::new("objcopy")
            .args(["--only-keep-debug", "--compress-debug-sections"])
            .args([object, &symbols]))?;
        run(Command::new("strip").arg("--strip-unneeded").arg(object))?;
        run(Command::new("objcopy")
            .arg(format!("--add-gnu-debuglink={}", symbols.display()))
            .arg(object))?;
        ids.push(id);
    }
    ids.sort();
    Ok(ids)
}

/// The number that the linker gave a file.
fn build_id(object: &Path) -> Result<String, String> {
    let notes = run(Command::new("readelf")
        .args(["--notes", "--wide"])
        .arg(object))?;
    let id = notes
        .split_once("Build ID: ")
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .filter(|id| id.len() > 2 && id.bytes().all(|digit| digit.is_ascii_hexdigit()));
    id.map(str::to_owned)
        .ok_or_else(|| format!("{}: has no build id", object.display()))
}
