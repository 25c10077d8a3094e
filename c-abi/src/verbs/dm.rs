//! Device memory.

// UNSAFETY: hands pointers to objects of C out, takes them back, and copies from and to memory of the program.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bareverbs_node::verbs::{Access, AllocDmAttr, CommandError, Dm, DmMr};

use crate::abi::objects::{ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::process::failure::{Errno, Result, as_errno, as_pointer};
use crate::process::hca::P;
use crate::verbs::context::context;
use crate::verbs::mr;
use crate::verbs::pd::pd;

/// Device memory.
#[repr(C)]
struct DmObject {
    c: ibv_dm,
    dm: Dm<'static, P>,
    /// Regions in it.
    regions: AtomicUsize,
}

/// A region in device memory.
pub(crate) struct DmRegion {
    mr: DmMr<'static, 'static, P>,
    of: &'static AtomicUsize,
}

impl DmRegion {
    pub(crate) fn dereg(self) -> std::result::Result<(), (Self, CommandError)> {
        let Self { mr, of } = self;
        match mr.dereg() {
            Ok(()) => {
                of.fetch_sub(1, Ordering::Release);
                Ok(())
            }
            Err((mr, error)) => Err((Self { mr, of }, error)),
        }
    }
}

/// `ibv_alloc_dm`, from the table of functions.
///
/// # Safety
/// The context is open, and `attr` a structure of the headers.
pub(crate) unsafe extern "C" fn alloc_dm(
    of: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and `attr` a structure of the headers.
        let (context, attr) = unsafe { (context(of)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        if attr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let dm = context.hca.device.alloc_dm(AllocDmAttr {
            length: attr.length,
            log_align_req: attr.log_align_req.try_into().map_err(|_| Errno::EINVAL)?,
        })?;
        let c = ibv_dm {
            context: of,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: 0,
            handle: 0,
        };
        let regions = AtomicUsize::new(0);
        Ok(Box::into_raw(Box::new(DmObject { c, dm, regions })).cast())
    })
}

/// `ibv_free_dm`, from the table of functions.
///
/// # Safety
/// It was allocated here, and is not used again after a success.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    as_errno(|| {
        let object = dm.cast::<DmObject>();
        // SAFETY: the caller's promise: it is a `DmObject`. What is moved out is moved back if it stays.
        unsafe {
            let known = object.as_ref().ok_or(Errno::EINVAL)?;
            if known.regions.load(Ordering::Acquire) != 0 {
                return Err(Errno::EBUSY);
            }
            let inner = ptr::read(&raw const (*object).dm);
            if let Err((inner, error)) = inner.free() {
                ptr::write(&raw mut (*object).dm, inner);
                return Err(error.into());
            }
            drop(Box::from_raw(object.cast::<ManuallyDrop<DmObject>>()));
        }
        Ok(())
    })
}

/// `ibv_reg_dm_mr`, from the table of functions.
///
/// # Safety
/// The domain and the memory were allocated here.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    domain: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    as_pointer(|| {
        // SAFETY: the caller's promise; the memory is not freed while there are regions in it (`free_dm`).
        let (domain_object, object) = unsafe {
            let object: Option<&'static DmObject> = dm.cast::<DmObject>().as_ref();
            (pd(domain)?, object.ok_or(Errno::EINVAL)?)
        };
        let offset = offset.try_into().map_err(|_| Errno::EINVAL)?;
        let flags = Access::from_bits(mr::required(access)).ok_or(Errno::EINVAL)?;
        let made = domain_object
            .pd
            .reg_dm_mr(&object.dm, offset, length, flags)?;
        let of = &object.regions;
        of.fetch_add(1, Ordering::Acquire);
        let c = ibv_mr {
            context: domain_object.c.context,
            pd: domain,
            addr: ptr::null_mut(),
            length,
            handle: made.lkey().0 >> 8,
            lkey: made.lkey().0,
            rkey: made.rkey().0,
        };
        Ok(mr::device_memory(c, DmRegion { mr: made, of }, access))
    })
}

/// The copy behind `ibv_memcpy_to_dm`.
///
/// # Safety
/// The memory was allocated here; `length` bytes at `host` can be read.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    host: *const c_void,
    length: usize,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the memory was allocated here; `length` bytes at `host` can be read.
        unsafe {
            let object = dm.cast::<DmObject>().as_ref().ok_or(Errno::EINVAL)?;
            let data = slice(host, length)?;
            let offset = offset.try_into().map_err(|_| Errno(libc::EFAULT))?;
            object.dm.copy_in(offset, data)
        }
        .map_err(|_| Errno(libc::EFAULT))
    })
}

/// The copy behind `ibv_memcpy_from_dm`.
///
/// # Safety
/// The memory was allocated here; `length` bytes at `host` can be written.
unsafe extern "C" fn memcpy_from_dm(
    host: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    as_errno(|| {
        if length == 0 {
            return Ok(());
        }
        if host.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises that the memory was allocated here; `length` bytes at `host` can be written.
        unsafe {
            let object = dm.cast::<DmObject>().as_ref().ok_or(Errno::EINVAL)?;
            let data = std::slice::from_raw_parts_mut(host.cast::<u8>(), length);
            let offset = offset.try_into().map_err(|_| Errno(libc::EFAULT))?;
            object.dm.copy_out(offset, data)
        }
        .map_err(|_| Errno(libc::EFAULT))
    })
}

/// Memory of the program.
///
/// # Safety
/// `length` bytes can be read there.
unsafe fn slice<'a>(host: *const c_void, length: usize) -> Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if host.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises that `length` bytes can be read there.
    Ok(unsafe { std::slice::from_raw_parts(host.cast(), length) })
}
