//! Initial RAM disks: archives in cpio's "newc" form, which the kernel unpacks one behind the other.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Writes one archive; everything in it belongs to root.
pub(super) struct Archive<W: Write> {
    out: W,
    written: usize,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            written: 0,
            inode: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 4][..missing])
    }

    fn entry(&mut self, name: &[u8], mode: u32, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.inode += 1;
        // inode, mode, uid, gid, links, mtime, size, device, special device, name with its NUL, checksum
        let fields = [
            self.inode,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.put(b"070701")?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(name)?;
        self.put(&[0])?;
        self.pad()?;
        self.put(data)?;
        self.pad()
    }

    /// A file of the given content.
    pub(super) fn file(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.entry(name.as_bytes(), FILE | mode, data)
    }

    /// An empty directory.
    pub(super) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name.as_bytes(), DIRECTORY | 0o755, &[])
    }

    /// Everything below `root`, which becomes the archive's top.
    pub(super) fn tree(&mut self, root: &Path) -> io::Result<()> {
        self.level(root, root)
    }

    fn level(&mut self, root: &Path, at: &Path) -> io::Result<()> {
        let mut paths = fs::read_dir(at)?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            let about = path.symlink_metadata()?;
            let name = path.strip_prefix(root).map_err(io::Error::other)?;
            let name = name.as_os_str().as_bytes();
            let mode = about.permissions().mode() & 0o777;
            if about.is_symlink() {
                let target = fs::read_link(&path)?;
                self.entry(name, LINK | 0o777, target.as_os_str().as_bytes())?;
            } else if about.is_dir() {
                self.entry(name, DIRECTORY | mode, &[])?;
                self.level(root, &path)?;
            } else {
                self.entry(name, FILE | mode, &fs::read(&path)?)?;
            }
        }
        Ok(())
    }

    /// The end mark.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry(b"TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_end_in_a_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("proc").unwrap();
        archive.file("script", 0o644, b"echo\n").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        // Header of 110 bytes, "proc" and its NUL, padded to 116.
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[14..22], b"000041ed");
        assert_eq!(&bytes[94..102], b"00000005");
        assert_eq!(&bytes[110..116], b"proc\0\0");
        // 110 + 7 is 117, padded to 120; then the content, padded to 8.
        assert_eq!(&bytes[116..122], b"070701");
        assert_eq!(&bytes[116 + 54..116 + 62], b"00000005");
        assert_eq!(&bytes[116 + 120..116 + 128], b"echo\n\0\0\0");
        assert_eq!(&bytes[bytes.len() - 14..], b"TRAILER!!!\0\0\0\0");
    }
}
