//! Memory of the program, registered as a region.

// UNSAFETY: registers memory of the program's.
#![expect(unsafe_code)]

use std::ptr::NonNull;

use bareverbs_node::verbs::{Access, Mr, MrError, Pd};

use crate::abi::RegMrIn;
use crate::attrs::Result;
use crate::server::P;

/// Registers memory.
pub(crate) fn register<'d>(pd: &Pd<'d, P>, asked: &RegMrIn, access: Access) -> Result<Mr<'d, P>> {
    let start = NonNull::new(asked.start as *mut u8).ok_or(libc::EFAULT)?;
    let len = usize::try_from(asked.length).map_err(|_| libc::EINVAL)?;
    let region = NonNull::slice_from_raw_parts(start, len);
    // SAFETY: the program says that this is its memory, for the device to use until it deregisters it.
    let registered = unsafe { pd.reg_mr_iova(region, asked.hca_va, access) };
    registered.map_err(|error| {
        log::warn!("{error}");
        match error {
            MrError::Memory(_) => libc::ENOMEM,
            _ => libc::EINVAL,
        }
    })
}
