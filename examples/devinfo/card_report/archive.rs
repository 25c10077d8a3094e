//! A tar of the report's folder, compressed by zstd.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// The folder in the archive.
pub(crate) const FOLDER: &str = "bareverbs-report";

/// Writes the files, in this order.
pub(crate) fn write(files: &[(&str, String)], mut to: impl Write) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(now.as_ref().map_or(0, |since| since.as_secs()));
        tar.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
    }
    let tar = tar.into_inner()?;
    // The compressor panics when a write fails, so that it writes into memory.
    to.write_all(&compress_to_vec(&tar[..], CompressionLevel::Fastest))?;
    to.flush()
}

#[cfg(test)]
pub(crate) fn read(compressed: &[u8]) -> std::collections::BTreeMap<String, String> {
    use std::io::Read;
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(compressed).unwrap();
    let mut tar = Vec::new();
    decoder.read_to_end(&mut tar).unwrap();
    let mut archive = tar::Archive::new(&tar[..]);
    let mut files = std::collections::BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let name = path.strip_prefix(FOLDER).unwrap().trim_start_matches('/');
        files.insert(name.to_owned(), text);
    }
    files
}
