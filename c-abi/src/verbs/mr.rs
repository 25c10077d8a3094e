//! Memory regions.

// UNSAFETY: hands pointers to objects of C out, takes them back, and registers memory of the program.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use bareverbs_node::verbs::{Access, CommandError, Mr, MrError};

use crate::abi::numbers::*;
use crate::abi::objects::{ibv_mr, ibv_pd};
use crate::process::failure::{Errno, Result, as_errno, as_pointer, guarded};
use crate::process::hca::P;
use crate::process::pages;
use crate::verbs::dm::DmRegion;
use crate::verbs::pd::pd;
use crate::verbs::rereg;

/// Rights with which the device writes to a region, or lets a window do so (`ib_access_writable` of Linux).
const WRITABLE: c_uint = Access::LOCAL_WRITE.bits()
    | Access::REMOTE_WRITE.bits()
    | Access::REMOTE_ATOMIC.bits()
    | IBV_ACCESS_MW_BIND;

/// The rights that a region has only together with `IBV_ACCESS_LOCAL_WRITE`.
const REMOTE_WRITABLE: c_uint = Access::REMOTE_WRITE.bits() | Access::REMOTE_ATOMIC.bits();

/// `IBV_ACCESS_OPTIONAL_RANGE`: what a device may leave undone.
const OPTIONAL: c_uint = 0x3ff0_0000;

/// `IB_ACCESS_SUPPORTED` of Linux without the optional flags, of which the last are `IBV_ACCESS_FLUSH_GLOBAL` and
/// `IBV_ACCESS_FLUSH_PERSISTENT`: for devices with persistent memory, which this is not.
const KNOWN: c_uint = (1 << 10) - 1;
const FLUSH: c_uint = 1 << 8 | 1 << 9;

/// The memory of a region.
enum Region {
    /// Memory of the program.
    Memory(Mr<'static, P>),
    /// Memory on the device.
    Device(DmRegion),
    /// The null region, without memory.
    Null,
}

impl Region {
    fn dereg(self) -> std::result::Result<(), (Self, CommandError)> {
        match self {
            Self::Memory(mr) => mr.dereg().map_err(|(mr, error)| (Self::Memory(mr), error)),
            Self::Device(mr) => mr.dereg().map_err(|(mr, error)| (Self::Device(mr), error)),
            Self::Null => Ok(()),
        }
    }
}

/// A memory region.
#[repr(C)]
struct MrObject {
    c: ibv_mr,
    region: Region,
    /// The rights that were asked for.
    asked: c_uint,
    /// The memory was registered for writing, and stays so whatever rights are taken.
    writable: bool,
}

/// Registers memory: `ibv_reg_mr`.
///
/// # Safety
/// The domain is allocated, and the memory stays until it is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller promises that the domain is allocated, and the memory stays until it is deregistered.
    as_pointer(|| unsafe { create(pd, addr, length, addr as u64, access as c_uint) })
}

/// Registers memory under another address: `ibv_reg_mr_iova`.
///
/// # Safety
/// As `ibv_reg_mr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller promises the same as for `ibv_reg_mr`.
    as_pointer(|| unsafe { create(pd, addr, length, iova, access as c_uint) })
}

/// The same with flags that a device may leave undone: `ibv_reg_mr_iova2`.
///
/// # Safety
/// As `ibv_reg_mr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller promises the same as for `ibv_reg_mr`.
    as_pointer(|| unsafe { create(pd, addr, length, iova, access) })
}

/// Registers memory, and hands the region to C.
///
/// # Safety
/// The domain is allocated, and the memory stays until it is deregistered.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr> {
    // SAFETY: the caller promises that the domain is allocated, and that the memory stays until it is deregistered.
    let made = unsafe { register(pd, addr, length, iova, access) }?;
    Ok(Box::into_raw(Box::new(made)).cast())
}

/// Registers memory.
///
/// # Safety
/// The domain is allocated, and the memory stays until it is deregistered.
unsafe fn register(
    domain: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<MrObject> {
    // SAFETY: the caller promises that the domain is allocated, and that the memory stays until it is deregistered.
    let object = unsafe { pd(domain) }?;
    refuse(access)?;
    let flags = Access::from_bits_truncate(required(access));
    // Memory is made to be there only for what can be registered.
    object.pd.check_region(length, flags)?;
    let region = pages::region(addr, length)?;
    pages::check(region, access & WRITABLE != 0)?;
    // SAFETY: the caller's promise, which is that of `ibv_reg_mr`: the memory stays, and the device may change it.
    let mr = match unsafe { object.pd.reg_mr_iova(region, iova, flags) } {
        Err(MrError::Memory(_)) => return Err(Errno::ENOMEM),
        made => made?,
    };
    let c = ibv_mr {
        context: object.c.context,
        pd: domain,
        addr,
        length,
        handle: mr.lkey().0 >> 8,
        lkey: mr.lkey().0,
        rkey: mr.rkey().0,
    };
    Ok(MrObject {
        c,
        region: Region::Memory(mr),
        asked: access,
        writable: access & WRITABLE != 0,
    })
}

/// Refuses flags as Linux's `ib_check_mr_access` does, and in its order: for the peer only what is for this end as well, those
/// that it does not know, and those that this device has not.
fn refuse(access: c_uint) -> Result<()> {
    let local = access & Access::LOCAL_WRITE.bits() != 0;
    match access {
        _ if access & REMOTE_WRITABLE != 0 && !local => Err(Errno::EINVAL),
        _ if access & !(KNOWN | OPTIONAL) != 0 => Err(Errno::EINVAL),
        _ if access & FLUSH != 0 => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

/// Flags that a device may not leave undone, and those of the others that the driver has.
pub(crate) fn required(access: c_uint) -> c_uint {
    access & !OPTIONAL | access & Access::RELAXED_ORDERING.bits()
}

/// A region of device memory.
pub(crate) fn device_memory(c: ibv_mr, region: DmRegion, asked: c_uint) -> *mut ibv_mr {
    let region = Region::Device(region);
    Box::into_raw(Box::new(MrObject {
        c,
        region,
        asked,
        writable: true,
    }))
    .cast()
}

/// `ibv_alloc_null_mr`, from the table of functions.
///
/// # Safety
/// The domain is allocated.
pub(crate) unsafe extern "C" fn alloc_null_mr(domain: *mut ibv_pd) -> *mut ibv_mr {
    as_pointer(|| {
        // SAFETY: the caller promises that the domain is allocated.
        let object = unsafe { pd(domain) }?;
        let lkey = object.pd.alloc_null_mr()?.lkey().0;
        let made = MrObject {
            c: ibv_mr {
                context: object.c.context,
                pd: domain,
                addr: ptr::null_mut(),
                length: usize::MAX,
                handle: 0,
                lkey,
                rkey: 0,
            },
            region: Region::Null,
            asked: Access::LOCAL_WRITE.bits(),
            writable: true,
        };
        Ok(Box::into_raw(Box::new(made)).cast())
    })
}

/// The rights that a region was registered for.
///
/// # Safety
/// It was registered here.
pub(crate) unsafe fn asked(mr: *const ibv_mr) -> c_uint {
    // SAFETY: the caller's promise: it is a `MrObject` of `create`.
    unsafe { (*mr.cast::<MrObject>()).asked }
}

/// Deregisters memory: `ibv_dereg_mr`.
///
/// # Safety
/// It was registered here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    as_errno(|| {
        if mr.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it is a `MrObject` of `create`. What is moved out is moved back if it stays.
        unsafe {
            let object = mr.cast::<MrObject>();
            let inner = ptr::read(&raw const (*object).region);
            if let Err((inner, error)) = inner.dereg() {
                ptr::write(&raw mut (*object).region, inner);
                return Err(error.into());
            }
            drop(Box::from_raw(object.cast::<ManuallyDrop<MrObject>>()));
        }
        Ok(())
    })
}

/// Gives a region other rights; false if its keys cannot stay.
///
/// # Safety
/// Its domain is allocated.
unsafe fn keeps_keys(object: &mut MrObject, access: c_uint) -> Result<bool> {
    // SAFETY: the caller promises that its domain is allocated.
    let pd = unsafe { pd(object.c.pd) }?;
    let Region::Memory(mr) = &mut object.region else {
        return Ok(false);
    };
    let to = Access::from_bits_truncate(required(access));
    match rereg::change_access(pd, mr, to) {
        Ok(()) => {
            object.asked = access;
            Ok(true)
        }
        Err(errno) => {
            log::debug!("a region gets other keys: {errno:?}");
            Ok(false)
        }
    }
}

/// Changes a region: `ibv_rereg_mr`. Where only its rights change, its keys stay if the device can do that. Else the new one is
/// registered before the old one is deregistered, so that a failure leaves the old one as it was; its keys are others
/// afterwards.
///
/// # Safety
/// The region was registered here; what `flags` name is as for `ibv_reg_mr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    const KNOWN: c_int =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let changed = guarded(|| {
        let has = |flag: c_int| flags & flag != 0;
        if flags & !KNOWN != 0 || flags == 0 || mr.is_null() {
            return Err(Errno::EINVAL);
        }
        // `ibv_rereg_mr` of rdma-core has this answer for the null region, whatever is asked for.
        // SAFETY: the caller's promise: it is a `MrObject` of `create`.
        if matches!(unsafe { &(*mr.cast::<MrObject>()).region }, Region::Null) {
            return Err(Errno::EINVAL);
        }
        // `ibv_rereg_mr` of rdma-core, then `ib_uverbs_rereg_mr` of Linux: before the region is looked at.
        if has(IBV_REREG_MR_CHANGE_TRANSLATION) && (addr.is_null() || length == 0) {
            return Err(Errno::EINVAL);
        }
        if has(IBV_REREG_MR_CHANGE_ACCESS) {
            refuse(access as c_uint)?;
        } else if access != 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it is a `MrObject` of `create`. What is moved out is replaced.
        unsafe {
            let object = mr.cast::<MrObject>();
            let domain = if has(IBV_REREG_MR_CHANGE_PD) {
                pd
            } else {
                (*object).c.pd
            };
            // `ib_uverbs_rereg_mr` looks for the domain before the driver is asked.
            if crate::verbs::pd::pd(domain)?.c.context != (*object).c.context {
                return Err(Errno::EINVAL);
            }
            // Linux's `ib_umem_check_rereg`: memory that was registered for reading stays so, whether it can be written or not.
            let writes = has(IBV_REREG_MR_CHANGE_ACCESS) && access as c_uint & WRITABLE != 0;
            let same = !has(IBV_REREG_MR_CHANGE_TRANSLATION);
            let memory = matches!((*object).region, Region::Memory(_));
            if writes && same && memory && !(*object).writable {
                return Err(Errno(libc::EACCES));
            }
            if flags == IBV_REREG_MR_CHANGE_ACCESS && keeps_keys(&mut *object, access as c_uint)? {
                return Ok(());
            }
            let old = &(*object).c;
            // Linux has this answer for memory on the device.
            let Region::Memory(mr) = &(*object).region else {
                return Err(Errno::EINVAL);
            };
            let (addr, length, iova) = if has(IBV_REREG_MR_CHANGE_TRANSLATION) {
                (addr, length, addr as u64)
            } else {
                (old.addr, old.length, mr.addr())
            };
            let access = if has(IBV_REREG_MR_CHANGE_ACCESS) {
                access as c_uint
            } else {
                (*object).asked
            };
            let mut made = register(domain, addr, length, iova, access)?;
            if !has(IBV_REREG_MR_CHANGE_TRANSLATION) {
                made.writable |= (*object).writable;
            }
            match ptr::read(&raw const (*object).region).dereg() {
                Ok(()) => {
                    ptr::write(object, made);
                    Ok(())
                }
                Err((kept, error)) => {
                    ptr::write(&raw mut (*object).region, kept);
                    Err(error.into())
                }
            }
        }
    });
    match changed {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            // The region is as it was.
            IBV_REREG_MR_ERR_INPUT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Linux's `ib_check_mr_access` (include/rdma/ib_verbs.h), and mlx5, which has no FLUSH.
    #[test]
    fn flags_that_linux_refuses_are_refused() {
        for known in [0, 0x1, 0xf, 1 << 5, 1 << 7, 1 << 20, 1 << 23, 1 << 29] {
            assert_eq!(refuse(known), Ok(()), "{known:#x}");
        }
        for flush in [1 << 8, 1 << 9, 1 << 8 | 1, 1 << 8 | 3] {
            assert_eq!(refuse(flush), Err(Errno::EOPNOTSUPP), "{flush:#x}");
        }
        // FLUSH flags beside them change nothing of that.
        for remote in [2, 8, 2 | 1 << 8, 8 | 1 << 9] {
            assert_eq!(refuse(remote), Err(Errno::EINVAL), "{remote:#x}");
        }
        for unknown in [1 << 10, 1 << 11, 1 << 19, 1 << 30, 1 << 31 | 1 << 8] {
            assert_eq!(refuse(unknown), Err(Errno::EINVAL), "{unknown:#x}");
        }
    }
}
