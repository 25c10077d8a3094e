//! The platform, and memory that lives as long as the process.

use std::sync::Mutex;

use bareverbs_node::DevicePlatform;

use crate::process::failure::{Result, lock};
use crate::process::memory;

/// The platform: a card or a model.
pub(crate) type P = DevicePlatform;

/// Addresses of memory that lives as long as the process. Who borrows it may be gone before, at the end, and checkers of leaks
/// look for an address.
static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Keeps memory for ever.
pub(crate) fn keep<T: ?Sized>(memory: Box<T>) -> &'static mut T {
    let memory = Box::leak(memory);
    lock(&KEPT).push(std::ptr::from_ref(memory).addr());
    memory
}

/// Makes `count` empty slots, which stay for ever.
///
/// # Errors
/// ENOMEM.
pub(crate) fn slots<T>(count: usize, empty: impl Fn() -> T) -> Result<&'static mut [T]> {
    Ok(keep(memory::boxed(count, empty)?))
}
