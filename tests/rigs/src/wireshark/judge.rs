//! A recording of what this project and somebody else said to each other.

use super::{EXPLAINED, difference, frames, remarks, tshark, wrong_icrcs};
use std::path::Path;

/// Has tshark dissect a capture in which there is RoCE among other things: the checks that were made, each with what was
/// wrong. Both ends' packets have to be whole, mean the same to tshark and to our decoders, and have the right ICRC.
/// Each filter in `shows` has to let some frame pass.
pub(crate) fn judge(
    file: &Path,
    shows: &[&str],
    work: &Path,
) -> Result<Vec<(String, Vec<String>)>, String> {
    tshark::need("tshark", "tshark", "--version")?;
    tshark::need("python3", "python3", "--version")?;
    let home = work.join("home");
    std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    let capture = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let raw = frames(&capture)?;
    let seen = tshark::dissect(file, &home)?;
    let mut explained = vec![0; EXPLAINED.len()];
    let (mut roce, mut remarked, mut differences) = (0, Vec::new(), Vec::new());
    for (raw, seen) in raw.iter().zip(&seen) {
        let Some((_, different)) = difference(raw, seen) else {
            continue;
        };
        roce += 1;
        remarked.extend(remarks(seen, &mut explained));
        let at = seen.summary();
        differences.extend(different.iter().map(|what| format!("{at}: {what}")));
    }
    let mut count = Vec::new();
    if seen.len() != raw.len() || roce == 0 {
        count.push(format!(
            "{} frames, {} to tshark, {roce} of them RoCE",
            raw.len(),
            seen.len()
        ));
    }
    let (_, wrong) = wrong_icrcs(file, &raw)?;
    let mut missing = Vec::new();
    for filter in shows {
        if !tshark::passes(file, filter, &home)? {
            missing.push((*filter).to_owned());
        }
    }
    let of = format!("{roce} RoCE packets, {}", file.display());
    Ok(vec![
        (format!("{of}: all are seen"), count),
        (format!("{of}: tshark has no remarks"), remarked),
        (
            format!("{of}: tshark reads what our decoders read"),
            differences,
        ),
        (format!("{of}: ICRCs"), wrong),
        (format!("{of}: what has to be among them"), missing),
    ])
}
