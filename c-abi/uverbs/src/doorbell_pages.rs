//! The files whose pages stand for the doorbell pages of a device model, by the descriptors of their contexts.

// UNSAFETY: a file without a name.
#![expect(unsafe_code)]

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use crate::attrs::Result;

/// Doorbell pages of a context.
const PAGES_OF_A_FILE: u64 = 256;
/// Descriptors with a number below this can be the device's.
pub(crate) const MOST: usize = 4096;
/// For each descriptor that is a context of the device, the file with its doorbell pages; 0 for others.
static PAGES: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// The table's entry of a descriptor.
pub(crate) fn pages(fd: c_int) -> Option<&'static AtomicI32> {
    PAGES.get(usize::try_from(fd).ok()?)
}

/// A descriptor is a context, whose doorbell pages this file has.
pub(crate) fn add(fd: c_int, file: OwnedFd) -> Result<()> {
    let pages = pages(fd).ok_or(libc::EMFILE)?;
    pages.store(file.into_raw_fd(), Ordering::Release);
    Ok(())
}

/// A new file.
pub(crate) fn create() -> Result<OwnedFd> {
    // SAFETY: the name is C's text.
    let file = unsafe { libc::memfd_create(c"doorbells".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(libc::EMFILE);
    }
    // SAFETY: the descriptor is the one that was made.
    let file = unsafe { File::from_raw_fd(file) };
    file.set_len(PAGES_OF_A_FILE * 4096)
        .map_err(|_| libc::ENOMEM)?;
    Ok(file.into())
}
