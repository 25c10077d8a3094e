//! The files of sockets: removed when a former process left them behind, and when this one ends.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Removes a socket that was left at `path`. Any other file there may be a user's, and stays.
///
/// # Errors
/// There is such a file, or the socket cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is a file that is no socket",
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// A socket's file that this process made.
#[derive(Debug, Clone)]
pub struct Claim {
    path: PathBuf,
    inode: (u64, u64),
}

impl Claim {
    /// Records the identity of the file at `path`.
    ///
    /// # Errors
    /// Nothing is there.
    pub fn new(path: &Path) -> io::Result<Self> {
        let about = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.into(),
            inode: (about.dev(), about.ino()),
        })
    }

    /// Removes the file, unless another process has put its own there.
    pub fn release(&self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|about| (about.dev(), about.ino()) == self.inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("{}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn only_sockets_go_and_only_ours() {
        let path = std::env::temp_dir().join(format!("connectx-stale-{}", std::process::id()));
        remove(&path).unwrap();
        let first = UnixDatagram::bind(&path).unwrap();
        let claim = Claim::new(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        // The first one is still open, so the second one has another inode.
        let second = UnixDatagram::bind(&path).unwrap();
        claim.release();
        assert!(path.exists());
        Claim::new(&path).unwrap().release();
        assert!(!path.exists());
        drop((first, second));

        fs::write(&path, "precious").unwrap();
        assert_eq!(remove(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
    }
}
