//! The file whose pages stand for the doorbell pages of a device model.

// UNSAFETY: a file without a name.
#![expect(unsafe_code)]

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::attrs::Result;

/// Doorbell pages of a context.
const PAGES: u64 = 256;

/// A new file.
pub(crate) fn create() -> Result<OwnedFd> {
    // SAFETY: the name is C's text.
    let file = unsafe { libc::memfd_create(c"doorbells".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(libc::EMFILE);
    }
    // SAFETY: the descriptor is the one that was made.
    let file = unsafe { File::from_raw_fd(file) };
    file.set_len(PAGES * 4096).map_err(|_| libc::ENOMEM)?;
    Ok(file.into())
}
