//! The file whose pages stand for the doorbell pages of a device model.

// UNSAFETY: a file without a name.
#![expect(unsafe_code)]

use libc::c_int;

use crate::attrs::Result;

/// Doorbell pages of a context.
const PAGES: i64 = 256;

/// A new file.
pub(crate) fn create() -> Result<c_int> {
    // SAFETY: the name is C's text, and the descriptor is the one that was made.
    unsafe {
        let file = libc::memfd_create(c"doorbells".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 || libc::ftruncate(file, PAGES * 4096) != 0 {
            return Err(libc::EMFILE);
        }
        Ok(file)
    }
}
