//! Protection domains and memory regions.

// UNSAFETY: hands pointers to objects of C out, takes them back, and registers memory of the program.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use bareverbs_node::verbs::{Access, Mr, Pd};

use crate::abi::objects::{ibv_context, ibv_mr, ibv_pd};
use crate::context::context;
use crate::failure::{Errno, Result, as_errno, as_pointer};
use crate::hca::{Hca, P};

/// `IBV_ACCESS_ZERO_BASED` and `IBV_ACCESS_ON_DEMAND`, which the driver does not have.
const ZERO_BASED: c_uint = 1 << 5;
const ON_DEMAND: c_uint = 1 << 6;
/// `IBV_ACCESS_OPTIONAL_RANGE`: what a device may leave undone.
const OPTIONAL: c_uint = 0x3ff0_0000;

/// A protection domain.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) c: ibv_pd,
    pub(crate) hca: &'static Hca,
    pub(crate) pd: Pd<'static, P>,
}

impl PdObject {
    /// Hands a protection domain to C.
    pub(crate) fn into_raw(
        context: *mut ibv_context,
        hca: &'static Hca,
        pd: Pd<'static, P>,
    ) -> *mut ibv_pd {
        let c = ibv_pd {
            context,
            handle: pd.pdn().number(),
        };
        Box::into_raw(Box::new(Self { c, hca, pd })).cast()
    }
}

/// A memory region.
#[repr(C)]
struct MrObject {
    c: ibv_mr,
    mr: Mr<'static, P>,
}

/// The object behind a protection domain of C.
///
/// # Safety
/// It was allocated here, and is not deallocated for as long as the result is used.
pub(crate) unsafe fn pd<'a>(pd: *mut ibv_pd) -> Result<&'a PdObject> {
    // SAFETY: the caller's promise: it is the first field of a `PdObject`.
    unsafe { pd.cast::<PdObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Allocates a protection domain: `ibv_alloc_pd`.
///
/// # Safety
/// The context is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    as_pointer(|| {
        // SAFETY: the caller's promise.
        let hca = unsafe { self::context(context) }?.hca;
        Ok(PdObject::into_raw(context, hca, hca.device.alloc_pd()?))
    })
}

/// Deallocates a protection domain: `ibv_dealloc_pd`. EBUSY while it is in use.
///
/// # Safety
/// It was allocated here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    as_errno(|| {
        if pd.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it is a `PdObject` of `into_raw`. What is moved out is moved back if it stays.
        unsafe {
            let object = pd.cast::<PdObject>();
            let inner = ptr::read(&raw const (*object).pd);
            if let Err((inner, error)) = inner.dealloc() {
                ptr::write(&raw mut (*object).pd, inner);
                log::debug!("{error}");
                return Err(Errno::EBUSY);
            }
            drop(Box::from_raw(
                object.cast::<std::mem::ManuallyDrop<PdObject>>(),
            ));
        }
        Ok(())
    })
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
    // SAFETY: the caller's promise.
    as_pointer(|| unsafe { register(pd, addr, length, addr as u64, access as c_uint) })
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
    // SAFETY: the caller's promise.
    as_pointer(|| unsafe { register(pd, addr, length, iova, access as c_uint) })
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
    // SAFETY: the caller's promise.
    as_pointer(|| unsafe { register(pd, addr, length, iova, access) })
}

unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr> {
    // SAFETY: the caller's promise.
    let object = unsafe { self::pd(pd) }?;
    if access & (ON_DEMAND | ZERO_BASED) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let start = NonNull::new(addr.cast::<u8>()).ok_or(Errno::EINVAL)?;
    let known = access & !OPTIONAL | access & Access::RELAXED_ORDERING.bits();
    let flags = Access::from_bits_truncate(known);
    let region = NonNull::slice_from_raw_parts(start, length);
    // SAFETY: the caller's promise, which is that of `ibv_reg_mr`: the memory stays, and the device may change it.
    let mr = unsafe { object.pd.reg_mr_iova(region, iova, flags) }?;
    let c = ibv_mr {
        context: object.c.context,
        pd,
        addr,
        length,
        handle: mr.lkey().0 >> 8,
        lkey: mr.lkey().0,
        rkey: mr.rkey().0,
    };
    Ok(Box::into_raw(Box::new(MrObject { c, mr })).cast())
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
        // SAFETY: the caller's promise: it is a `MrObject` of `register`. What is moved out is moved back if it stays.
        unsafe {
            let object = mr.cast::<MrObject>();
            let inner = ptr::read(&raw const (*object).mr);
            if let Err((inner, error)) = inner.dereg() {
                ptr::write(&raw mut (*object).mr, inner);
                return Err(error.into());
            }
            drop(Box::from_raw(
                object.cast::<std::mem::ManuallyDrop<MrObject>>(),
            ));
        }
        Ok(())
    })
}
