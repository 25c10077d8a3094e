//! When there is no memory (`ulimit -v`), calls that make something fail with ENOMEM, and others go on.
//!
//! Large memory (rings of queues, what a device has room for) is asked for where its absence is an error. Small memory is asked for
//! everywhere, and Rust ends the process where there is none. So some is kept in reserve, which small memory is taken from when
//! the C library has none: from then on nothing new is made until there is a reserve again ([`check`]). A process that uses it
//! up ends with "memory allocation of … bytes failed".

// UNSAFETY: the allocator of this library's Rust, and mappings of the kernel's.
#![expect(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::process::failure::{Errno, Result};

/// Bytes of the reserve. They are addresses only: the kernel gives no pages for them.
const RESERVE: usize = 4 << 20;
/// Larger memory does not count as small.
const SMALL: usize = RESERVE / 4;

/// Addresses that are given up for small memory.
struct Reserve(AtomicPtr<c_void>);

static KEPT: Reserve = Reserve(AtomicPtr::new(null_mut()));

impl Reserve {
    /// Makes the reserve if there is none.
    fn fill(&self) -> Result<()> {
        if !self.0.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let made = map(RESERVE).ok_or(Errno::ENOMEM)?;
        let empty = null_mut();
        let kept = self
            .0
            .compare_exchange(empty, made, Ordering::AcqRel, Ordering::Relaxed);
        if kept.is_err() {
            // SAFETY: another thread was faster.
            unsafe { unmap(made, RESERVE) };
        }
        Ok(())
    }

    /// Gives the reserve up for memory of this size; whether there was one, and the size is a small one.
    #[cold]
    fn spend(&self, size: usize) -> bool {
        if size > SMALL {
            return false;
        }
        let kept = self.0.swap(null_mut(), Ordering::AcqRel);
        if kept.is_null() {
            return false;
        }
        // SAFETY: it was kept until now.
        unsafe { unmap(kept, RESERVE) };
        true
    }
}

/// Addresses without memory; `None` if the process may have no more.
fn map(length: usize) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, anywhere.
    let found = unsafe { libc::mmap(null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    (found != libc::MAP_FAILED).then_some(found)
}

/// # Safety
/// It is from [`map`], and is not used.
unsafe fn unmap(mapping: *mut c_void, length: usize) {
    // SAFETY: the caller promises that it is from [`map`], and is not used.
    unsafe { libc::munmap(mapping, length) };
}

/// Checks that there is memory for something new, and makes the reserve if there is none.
///
/// # Errors
/// ENOMEM.
pub(crate) fn check() -> Result<()> {
    KEPT.fill()
}

/// Checks that the process may have so many bytes more.
///
/// # Errors
/// ENOMEM.
pub(crate) fn room_for(bytes: usize) -> Result<()> {
    let made = map(bytes).ok_or(Errno::ENOMEM)?;
    // SAFETY: just made.
    unsafe { unmap(made, bytes) };
    Ok(())
}

/// Makes `count` values, if there is memory for them.
///
/// # Errors
/// ENOMEM.
pub(crate) fn boxed<T>(count: usize, value: impl Fn() -> T) -> Result<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    all.extend(std::iter::repeat_with(value).take(count));
    Ok(all.into_boxed_slice())
}

/// The C library's memory, and the reserve.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: all memory is the C library's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises that the size of `layout` is not zero.
        unsafe {
            let found = System.alloc(layout);
            match found.is_null() && KEPT.spend(layout.size()) {
                true => System.alloc(layout),
                false => found,
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises that the size of `layout` is not zero.
        unsafe {
            let found = System.alloc_zeroed(layout);
            match found.is_null() && KEPT.spend(layout.size()) {
                true => System.alloc_zeroed(layout),
                false => found,
            }
        }
    }

    unsafe fn realloc(&self, before: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `before` was allocated here with this `layout`, and that `size` is not zero. What was
        // there stays if there is no memory.
        unsafe {
            let found = System.realloc(before, layout, size);
            match found.is_null() && KEPT.spend(size) {
                true => System.realloc(before, layout, size),
                false => found,
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that `memory` was allocated here with this `layout`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_for_small_memory_and_comes_back() {
        let reserve = Reserve(AtomicPtr::new(null_mut()));
        assert!(!reserve.spend(1), "there is none");
        reserve.fill().unwrap();
        reserve.fill().unwrap();
        assert!(!reserve.spend(SMALL + 1));
        assert!(reserve.spend(SMALL));
        assert!(!reserve.spend(1), "it is gone");
        reserve.fill().unwrap();
        assert!(reserve.spend(1));
    }

    #[test]
    fn what_is_too_large_is_an_error() {
        assert_eq!(room_for(1 << 20), Ok(()));
        assert_eq!(room_for(usize::MAX / 2), Err(Errno::ENOMEM));
        assert!(boxed(usize::MAX / 16, || 0_u64).is_err());
        assert_eq!(*boxed(3, || 7).unwrap(), [7, 7, 7]);
    }
}
