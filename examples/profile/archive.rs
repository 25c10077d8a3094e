//! Reads the files of a report: those of its archive, of a folder, or a single one.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use connectx_model::Report;
use ruzstd::decoding::StreamingDecoder;

use crate::Result;

/// The number of unpacked bytes that are read of an archive: small compressed files can unpack without end.
const LONGEST: u64 = 256 << 20;

/// Reads what `devinfo --report` wrote, or its unpacked folder, or the log of a driver, or a file of dumps.
pub(crate) fn read(path: &Path) -> Result<Report> {
    match path.extension().is_some_and(|end| end == "zst") {
        true => archive(path).map_err(|error| format!("{}: {error}", path.display()).into()),
        false => Ok(Report::read(path)?),
    }
}

fn archive(path: &Path) -> Result<Report> {
    let decoder = StreamingDecoder::new(BufReader::new(File::open(path)?))?;
    let mut archive = tar::Archive::new(decoder.take(LONGEST));
    let mut files = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry
            .path()?
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name.filter(|name| name.ends_with(".txt")) else {
            continue;
        };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.push((name, String::from_utf8_lossy(&bytes).into_owned()));
    }
    let files = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    Ok(Report::new(path.display().to_string(), files)?)
}
