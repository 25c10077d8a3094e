//! The files of sockets: removed when a former process left them behind, and when this one ends.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

const EPERM: i32 = 1;

/// Waits until no other process makes or removes sockets in the folder of `path`, and keeps them from it as long as the file is
/// open. The lock is the folder's, so that no file is left.
///
/// # Errors
/// There is no such folder.
pub fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let file = File::open(folder)?;
    file.lock()?;
    Ok(file)
}

/// Removes a socket that was left at `path`. One that a process has stays, and any other file, which may be a user's. The caller
/// has the [lock](lock_folder), until it has made its own: of two processes that find a dead socket one would else remove the
/// other's new one.
///
/// # Errors
/// A process has the socket ([`ErrorKind::AddrInUse`]), there is another file, or the socket cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => {}
        Ok(_) => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "there is a file that is no socket",
            ));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    // Nothing is sent. A socket that listens is not disturbed either: it has the wrong type for this (unix(7), EPROTOTYPE).
    match UnixDatagram::unbound()?.connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        // It is another user's. (EPERM says that the socket is connected to another one.)
        Err(error)
            if error.kind() == ErrorKind::PermissionDenied
                && error.raw_os_error() != Some(EPERM) =>
        {
            Err(error)
        }
        Ok(()) | Err(_) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "address in use: another process has the socket",
        )),
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
    use std::os::unix::net::UnixListener;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("connectx-stale-{}-{name}", std::process::id()))
    }

    #[test]
    fn only_sockets_go_that_no_process_has() {
        let path = path("who");
        remove(&path).unwrap();
        drop(UnixDatagram::bind(&path).unwrap());
        remove(&path).unwrap();
        assert!(!path.exists());

        let living = UnixDatagram::bind(&path).unwrap();
        assert_eq!(remove(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        // Nor one that takes datagrams from one other socket only.
        let other = self::path("other");
        let sender = UnixDatagram::bind(&other).unwrap();
        living.connect(&other).unwrap();
        assert_eq!(remove(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop((living, sender));
        remove(&path).unwrap();
        remove(&other).unwrap();

        let living = UnixListener::bind(&path).unwrap();
        assert_eq!(remove(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        // It was not connected to.
        living.set_nonblocking(true).unwrap();
        assert_eq!(living.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(living);
        remove(&path).unwrap();

        fs::write(&path, "precious").unwrap();
        assert_eq!(remove(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_claim_is_to_the_own_file_only() {
        let path = path("claim");
        let first = UnixDatagram::bind(&path).unwrap();
        let claim = Claim::new(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // The first one is still open, so the second one has another inode.
        let second = UnixDatagram::bind(&path).unwrap();
        claim.release();
        assert!(path.exists());
        Claim::new(&path).unwrap().release();
        assert!(!path.exists());
        drop((first, second));
    }
}
