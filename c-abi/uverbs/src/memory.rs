//! Memory of the program, registered as a region.

// UNSAFETY: registers memory of the program's.
#![expect(unsafe_code)]

use std::ptr::NonNull;

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::{Access, Mr, MrError, Pd};

use crate::abi::RegMrIn;
use crate::attrs::Result;

/// Memory where the program says. An error if addresses do not go so far.
pub(crate) fn region(address: u64, len: u64) -> Result<NonNull<[u8]>> {
    let start = NonNull::new(address as *mut u8).ok_or(libc::EFAULT)?;
    let len = isize::try_from(len)
        .map_err(|_| libc::EINVAL)?
        .unsigned_abs();
    address.checked_add(len as u64).ok_or(libc::EINVAL)?;
    Ok(NonNull::slice_from_raw_parts(start, len))
}

/// Registers memory.
pub(crate) fn register<'d>(pd: &Pd<'d, P>, asked: &RegMrIn, access: Access) -> Result<Mr<'d, P>> {
    let region = region(asked.start, asked.length)?;
    // SAFETY: the program says that this is its memory, for the device to use until it deregisters it.
    let registered = unsafe { pd.reg_mr_iova(region, asked.hca_va, access) };
    registered.map_err(unregistered)
}

/// An error number for a region or window that was not made.
pub(crate) fn unregistered(error: MrError) -> i32 {
    log::warn!("{error}");
    match error {
        MrError::Memory(_) => libc::ENOMEM,
        MrError::Command(error) => error.errno().abs(),
        MrError::Unsupported { .. } => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }
}
