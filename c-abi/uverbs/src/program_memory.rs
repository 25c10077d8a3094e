//! Memory of the program, read and written where it says: what is not there is EFAULT, as for the kernel.
//!
//! `process_vm_readv(2)` and `process_vm_writev(2)` of the own process fail where a load or a store would raise a signal.

// UNSAFETY: system calls about the program's addresses.
#![expect(unsafe_code)]

use std::io::Error;
use std::sync::Once;

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
    if done == len as ssize_t {
        return Ok(());
    }
    match Error::last_os_error().raw_os_error() {
        // A filter of system calls, or a kernel without this one.
        Some(errno) if done < 0 && errno != libc::EFAULT => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                crate::start_log();
                let reason = Error::from_raw_os_error(errno);
                log::error!("process_vm_readv and process_vm_writev are needed: {reason}");
            });
            Err(errno)
        }
        _ => Err(libc::EFAULT),
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

/// Asks the kernel to have pages there, for reading or for writing. It changes nothing that is there already.
fn populate(address: u64, len: usize, advice: c_int) -> c_int {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let offset = address % page;
    let start = (address - offset) as *mut c_void;
    loop {
        // SAFETY: populating changes no memory, and fails where there is none.
        let done = unsafe { libc::madvise(start, len.saturating_add(offset as usize), advice) };
        match Error::last_os_error().raw_os_error() {
            _ if done == 0 => return 0,
            Some(libc::EINTR) => {}
            errno => return errno.unwrap_or(libc::EFAULT),
        }
    }
}

/// Checks that the program may read all of some memory, or write to it, as `ib_umem_get` of Linux's core/umem.c pins its pages.
/// A kernel before 5.14 cannot be asked, and all memory is good then.
pub(crate) fn check(address: u64, len: usize, writable: bool) -> Result<()> {
    let advice = match writable {
        true => libc::MADV_POPULATE_WRITE,
        false => libc::MADV_POPULATE_READ,
    };
    match populate(address, len, advice) {
        0 => Ok(()),
        // The wrong kind of memory; or of kernel, which says so of this variable as well.
        errno if populate(&raw const advice as u64, 1, libc::MADV_POPULATE_READ) == errno => Ok(()),
        _ => Err(libc::EFAULT),
    }
}
