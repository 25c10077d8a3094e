//! The files whose pages stand for the doorbell pages of a device model, by the descriptors of their contexts.

// UNSAFETY: a file without a name.
#![expect(unsafe_code)]

use std::fs::File;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::doorbell::UAR_SIZE;
use libc::c_int;

use crate::attrs::Result;

/// Doorbell pages of a context.
const PAGES_OF_A_FILE: u64 = 256;
const PAGE: u64 = 4096;
/// Descriptors with a number below this can be the device's.
pub(crate) const MOST: usize = 4096;
/// For each descriptor that is a context of the device, the file with its doorbell pages; 0 for others.
static PAGES: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// The table's entry of a descriptor.
pub(crate) fn pages(fd: c_int) -> Option<&'static AtomicI32> {
    PAGES.get(usize::try_from(fd).ok()?)
}

/// On a card, the place of the context's doorbell page in the file; 0 for files of models.
static PLACES: [AtomicI64; MOST] = [const { AtomicI64::new(0) }; MOST];

/// A descriptor is a context, whose doorbell pages this file has: all of them, or a card's, which is at this place of its.
pub(crate) fn add(fd: c_int, (file, place): (OwnedFd, i64)) -> Result<()> {
    let pages = pages(fd).ok_or(libc::EMFILE)?;
    if let Some(known) = PLACES.get(fd as usize) {
        known.store(place, Ordering::Release);
    }
    pages.store(file.into_raw_fd(), Ordering::Release);
    Ok(())
}

/// A descriptor is a copy of a context's, and has the same pages.
pub(crate) fn copy(from: c_int, to: c_int) -> Result<()> {
    let file = pages(from).map_or(0, |file| file.load(Ordering::Acquire));
    if file <= 0 {
        return Err(libc::EINVAL);
    }
    let place = usize::try_from(from).ok().and_then(|fd| PLACES.get(fd));
    let place = place.map_or(0, |place| place.load(Ordering::Acquire));
    // SAFETY: the context's file stays open while it is copied: its descriptor is the caller's.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    add(
        to,
        (file.try_clone_to_owned().map_err(|_| libc::EMFILE)?, place),
    )
}

/// The place in the file of the doorbell page with an index. On a card all queues of the context have one page.
pub(crate) fn place(fd: c_int, index: i64) -> i64 {
    let place = usize::try_from(fd).ok().and_then(|fd| PLACES.get(fd));
    match place.map_or(0, |place| place.load(Ordering::Acquire)) {
        0 => index * PAGE as i64,
        place => place,
    }
}

/// The file with the doorbell page of this number: the card's own, or a new one for a model.
pub(crate) fn of(platform: &P, uar: u32) -> Result<(OwnedFd, i64)> {
    if !platform.is_card() {
        return Ok((create()?, 0));
    }
    let start = uar as usize * UAR_SIZE;
    let found = platform.mappable_registers(&(start..start + UAR_SIZE));
    let (file, place) = found.ok_or(libc::ENODEV)?;
    let file = file.try_clone_to_owned().map_err(|_| libc::EMFILE)?;
    Ok((file, i64::try_from(place).map_err(|_| libc::ENODEV)?))
}

/// A new file.
fn create() -> Result<OwnedFd> {
    // SAFETY: the name is C's text.
    let file = unsafe { libc::memfd_create(c"doorbells".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(libc::EMFILE);
    }
    // SAFETY: the descriptor is the one that was made.
    let file = unsafe { File::from_raw_fd(file) };
    file.set_len(PAGES_OF_A_FILE * PAGE)
        .map_err(|_| libc::ENOMEM)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cards_context_has_one_page_and_a_models_has_many() {
        let [card, model] = [MOST - 2, MOST - 1].map(|fd| fd as c_int);
        add(card, (create().unwrap(), 7 * 4096)).unwrap();
        add(model, (create().unwrap(), 0)).unwrap();
        for index in [0, 1, 0x80] {
            assert_eq!(place(card, index), 7 * 4096);
            assert_eq!(place(model, index), index * 4096);
        }
        // A descriptor that was a card's and is a model's.
        add(card, (create().unwrap(), 0)).unwrap();
        assert_eq!(place(card, 3), 3 * 4096);
        let too_high = add(MOST as c_int, (create().unwrap(), 0));
        assert_eq!(too_high, Err(libc::EMFILE));
    }
}
