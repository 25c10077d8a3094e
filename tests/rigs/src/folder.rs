//! Folders of a rig's.

use std::fs;
use std::path::{Path, PathBuf};

/// Makes an empty folder; earlier content is deleted.
pub(crate) fn empty(directory: &Path) -> Result<(), String> {
    let gone = match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    gone.and_then(|()| fs::create_dir_all(directory))
        .map_err(|error| format!("{}: {error}", directory.display()))
}

/// Finds all files below a folder.
pub(crate) fn walk(at: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(at)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}
