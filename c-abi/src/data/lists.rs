//! Lists of C in work requests: scatter/gather entries, receives, and the request at which a list stopped.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem;
use std::ptr::NonNull;
use std::slice;

use bareverbs_node::verbs::Sge;

use crate::abi::requests::{ibv_recv_wr, ibv_sge};
use crate::process::failure::{Errno, Result};

const _: () = {
    // `sges` lends entries of C as the driver's.
    assert!(size_of::<ibv_sge>() == size_of::<Sge>());
    assert!(align_of::<ibv_sge>() == align_of::<Sge>());
    assert!(mem::offset_of!(ibv_sge, length) == mem::offset_of!(Sge, length));
    assert!(mem::offset_of!(ibv_sge, lkey) == mem::offset_of!(Sge, lkey));
};

/// A list of scatter/gather entries.
///
/// # Safety
/// The list has as many entries as it says.
#[inline]
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge]> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    let list = NonNull::new(list.cast_mut()).ok_or(Errno::EINVAL)?;
    // SAFETY: the caller's promise; both structures lie in memory in the same way.
    Ok(unsafe { slice::from_raw_parts(list.cast::<Sge>().as_ptr(), count) })
}

/// Says in `bad` which request was refused.
///
/// # Safety
/// `bad` is NULL or can be written.
#[inline]
pub(crate) unsafe fn stopped<W>(errno: Errno, wr: *mut W, bad: *mut *mut W) -> Errno {
    // SAFETY: the caller promises that `bad` is NULL or can be written.
    if let Some(bad) = unsafe { bad.as_mut() } {
        *bad = wr;
    }
    errno
}

/// Posts a list of receives, and says where it stopped.
///
/// # Safety
/// The list is one of the headers'; `bad` is NULL or can be written.
pub(crate) unsafe fn receives(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(u64, &[Sge]) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller promises that the list is one of the headers'; `bad` is NULL or can be written.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: the caller promises that the list is one of the headers'; `bad` is NULL or can be written.
        let list = unsafe { sges(request.sg_list, request.num_sge) };
        if let Err(errno) = list.and_then(|list| post(request.wr_id, list)) {
            // SAFETY: the caller promises that the list is one of the headers'; `bad` is NULL or can be written.
            return Err(unsafe { stopped(errno, wr, bad) });
        }
        wr = request.next;
    }
    Ok(())
}
