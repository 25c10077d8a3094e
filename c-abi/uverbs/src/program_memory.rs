//! Memory of the program, read and written where it says: what is not there is EFAULT, as for the kernel.
//!
//! `process_vm_readv(2)` and `process_vm_writev(2)` of the own process fail where a load or a store would raise a signal.

// UNSAFETY: system calls about the program's addresses.
#![expect(unsafe_code)]

use libc::{c_int, c_ulong, c_void, iovec, pid_t, ssize_t};

use crate::attrs::Result;

type Transfer =
    unsafe extern "C" fn(pid_t, *const iovec, c_ulong, *const iovec, c_ulong, c_ulong) -> ssize_t;

/// Moves bytes between the library's memory and the program's.
///
/// # Safety
/// `own` can be read and written, as `call` does.
unsafe fn transfer(call: Transfer, own: *mut u8, address: u64, len: usize) -> Result<()> {
    let part = |at: *mut c_void| iovec {
        iov_base: at,
        iov_len: len,
    };
    let (own, theirs) = (part(own.cast()), part(address as *mut c_void));
    // SAFETY: the caller's promise for one side, and the other is checked by the kernel.
    let done = unsafe { call(libc::getpid(), &raw const own, 1, &raw const theirs, 1, 0) };
    match done == len as ssize_t {
        true => Ok(()),
        false => Err(libc::EFAULT),
    }
}

/// Reads what stands at an address.
pub(crate) fn read(address: u64, bytes: &mut [u8]) -> Result<()> {
    let own = bytes.as_mut_ptr();
    // SAFETY: it is written, as long as it is.
    unsafe { transfer(libc::process_vm_readv, own, address, bytes.len()) }
}

/// Writes to an address.
pub(crate) fn write(address: u64, bytes: &[u8]) -> Result<()> {
    let own = bytes.as_ptr().cast_mut();
    // SAFETY: it is read alone, as long as it is.
    unsafe { transfer(libc::process_vm_writev, own, address, bytes.len()) }
}

/// Returns `true` if something is mapped at all of these addresses.
pub(crate) fn is_mapped(address: u64, len: usize) -> bool {
    let offset = address % 4096;
    let start = (address - offset) as *mut c_void;
    // SAFETY: nothing is done to memory; the kernel looks whether it is there.
    let done: c_int = unsafe { libc::msync(start, len + offset as usize, libc::MS_ASYNC) };
    done == 0
}
