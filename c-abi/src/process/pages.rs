//! The kernel's answer to the question if memory of the program can be registered, as it is given for a card when pages are pinned.

// UNSAFETY: asks the kernel about memory by its address.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use crate::process::failure::{Errno, Result};

/// The size of a page of memory.
fn page_size() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Asks the kernel to have the pages of a region there, for reading or for writing. It touches nothing that is there already.
fn populate(region: NonNull<[u8]>, advice: c_int) -> Result<()> {
    let start = region.cast::<u8>().as_ptr();
    let before = start.addr() & (page_size() - 1);
    let length = region.len().saturating_add(before);
    loop {
        // SAFETY: populating changes no memory, and fails where there is none.
        let done =
            unsafe { libc::madvise(start.wrapping_sub(before).cast::<c_void>(), length, advice) };
        match Errno::last() {
            _ if done == 0 => return Ok(()),
            // The kernel does not say how far it came (`madvise_populate` of mm/madvise.c). It passes over what is there.
            Errno(libc::EINTR) => {}
            errno => return Err(errno),
        }
    }
}

/// A region of the program's memory.
///
/// # Errors
/// EFAULT at the null pointer, where Linux finds no memory when it pins it.
pub(crate) fn region(start: *mut c_void, length: usize) -> Result<NonNull<[u8]>> {
    let start = NonNull::new(start.cast::<u8>()).ok_or(Errno(libc::EFAULT))?;
    Ok(NonNull::slice_from_raw_parts(start, length))
}

/// Checks that there are pages behind all of a region, which may be written to if it is registered for that, as `ib_umem_get` of
/// Linux's core/umem.c pins them. The kernel makes those that are not there yet. A kernel before 5.14 cannot be asked, and all
/// memory is good then; nor can one that a filter keeps from answering.
///
/// # Errors
/// EINVAL for what goes beyond the end of all addresses, in whole pages; otherwise EFAULT.
pub(crate) fn check(region: NonNull<[u8]>, writable: bool) -> Result<()> {
    let end = region.cast::<u8>().addr().get().checked_add(region.len());
    if end.is_none_or(|end| end.checked_next_multiple_of(page_size()).is_none()) {
        return Err(Errno::EINVAL);
    }
    let advice = match writable {
        true => libc::MADV_POPULATE_WRITE,
        false => libc::MADV_POPULATE_READ,
    };
    let here = NonNull::slice_from_raw_parts(NonNull::from(&advice).cast(), 1);
    match populate(region, advice) {
        Ok(()) => Ok(()),
        // The wrong kind of memory; or of kernel, which says so of this variable as well: one that is too old, or has a filter.
        Err(errno) if populate(here, libc::MADV_POPULATE_READ) == Err(errno) => Ok(()),
        Err(_) => Err(Errno(libc::EFAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::ptr;

    /// Three pages, of a file or anonymous.
    fn map(protection: c_int, file: Option<&std::fs::File>) -> NonNull<u8> {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a new mapping, anywhere.
        let found =
            unsafe { libc::mmap(ptr::null_mut(), 3 * page_size(), protection, flags, fd, 0) };
        assert_ne!(found, libc::MAP_FAILED);
        NonNull::new(found.cast()).unwrap()
    }

    fn part(start: NonNull<u8>, offset: usize, length: usize) -> NonNull<[u8]> {
        // SAFETY: inside the three pages.
        NonNull::slice_from_raw_parts(unsafe { start.add(offset) }, length)
    }

    #[test]
    fn memory_that_cannot_be_pinned_is_efault() {
        let page = page_size();
        let efault = Err(Errno(libc::EFAULT));
        let usable = map(libc::PROT_READ | libc::PROT_WRITE, None);
        let readable = map(libc::PROT_READ, None);
        let closed = map(libc::PROT_NONE, None);
        for writable in [false, true] {
            for (offset, length) in [(0, 3 * page), (1, 3 * page - 1), (page - 1, 2), (5, 1)] {
                assert_eq!(check(part(usable, offset, length), writable), Ok(()));
                assert_eq!(check(part(closed, offset, length), writable), efault);
                let found = check(part(readable, offset, length), writable);
                assert_eq!(found, if writable { efault } else { Ok(()) });
            }
            // Above all memory of programs.
            let beyond = NonNull::new(ptr::without_provenance_mut::<u8>(1 << 60)).unwrap();
            assert_eq!(
                check(NonNull::slice_from_raw_parts(beyond, 9), writable),
                efault
            );
            // Beyond the end of all addresses, and in the last page before it (`ib_umem_get`).
            for (start, length) in [(5, usize::MAX), (usize::MAX, 1), (usize::MAX - 9, 2)] {
                let start = NonNull::new(ptr::without_provenance_mut::<u8>(start)).unwrap();
                let beyond = NonNull::slice_from_raw_parts(start, length);
                assert_eq!(check(beyond, writable), Err(Errno::EINVAL));
            }
        }
        // A hole in the middle.
        // SAFETY: nothing uses this page.
        let unmapped = unsafe { libc::munmap(usable.add(page).as_ptr().cast(), page) };
        assert_eq!(unmapped, 0);
        for writable in [false, true] {
            assert_eq!(check(part(usable, 0, page), writable), Ok(()));
            assert_eq!(check(part(usable, 0, page + 1), writable), efault);
            assert_eq!(check(part(usable, page, page), writable), efault);
            assert_eq!(check(part(usable, page, 2 * page), writable), efault);
            assert_eq!(check(part(usable, 2 * page, page), writable), Ok(()));
        }
    }

    /// Behind the end of a file there are no pages, whatever is mapped.
    #[test]
    fn memory_behind_the_end_of_a_file_is_efault() {
        // SAFETY: a name, and no flags.
        let fd = unsafe { libc::memfd_create(c"short".as_ptr(), 0) };
        assert!(fd >= 0);
        // SAFETY: just made, and not used elsewhere.
        let mut file = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        let page = page_size();
        file.write_all(&vec![7; page + 1]).unwrap();
        let mapped = map(libc::PROT_READ | libc::PROT_WRITE, Some(&file));
        for writable in [false, true] {
            assert_eq!(check(part(mapped, 0, 2 * page), writable), Ok(()));
            let found = check(part(mapped, 0, 2 * page + 1), writable);
            assert_eq!(found, Err(Errno(libc::EFAULT)));
        }
        // SAFETY: the pages are there.
        assert_eq!(unsafe { mapped.add(page).read() }, 7, "nothing was written");
    }
}
