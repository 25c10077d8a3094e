//! Extended reliable connections: domains, and the SRQs in them.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::{ManuallyDrop, zeroed};
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use bareverbs_node::verbs::Xrcd;

use crate::abi::numbers::*;
use crate::abi::objects::{
    ibv_context, ibv_srq, ibv_srq_init_attr_ex, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::process::failure::{Errno, Result, as_errno, as_pointer, lock};
use crate::process::hca::{Hca, P};
use crate::verbs::context::context;
use crate::verbs::cq::cq;
use crate::verbs::pd::pd;
use crate::verbs::srq::{self, SrqObject};

/// An XRC domain.
#[repr(C)]
pub(crate) struct XrcdObject {
    pub(crate) c: ibv_xrcd,
    pub(crate) xrcd: Arc<Xrcd<'static, P>>,
}

impl XrcdObject {
    /// Hands a domain to C.
    pub(crate) fn into_raw(
        context: *mut ibv_context,
        xrcd: Arc<Xrcd<'static, P>>,
    ) -> *mut ibv_xrcd {
        let c = ibv_xrcd { context };
        Box::into_raw(Box::new(Self { c, xrcd })).cast()
    }
}

/// The domains that a file stands for, by device and file.
static OF_FILES: Mutex<Vec<(FileKey, Weak<Xrcd<'static, P>>)>> = Mutex::new(Vec::new());

/// A device's number in the list of those that are up, and the file's device and number.
type FileKey = (usize, u64, u64);

/// The object behind an XRC domain of C.
///
/// # Safety
/// It was opened here, and is not closed for as long as the result is used.
pub(crate) unsafe fn xrcd<'a>(xrcd: *mut ibv_xrcd) -> Result<&'a XrcdObject> {
    // SAFETY: the caller's promise: it is the first field of an `XrcdObject`.
    unsafe { xrcd.cast::<XrcdObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// The domain that a file stands for, or a new one.
fn of_file(hca: &'static Hca, fd: c_int) -> Result<Arc<Xrcd<'static, P>>> {
    // SAFETY: numbers may be zero; the call writes the structure.
    let file = unsafe {
        let mut file: libc::stat = zeroed();
        if libc::fstat(fd, &mut file) != 0 {
            return Err(Errno::last());
        }
        file
    };
    let key = (ptr::from_ref(hca) as usize, file.st_dev, file.st_ino);
    let mut of_files = lock(&OF_FILES);
    of_files.retain(|(_, xrcd)| xrcd.strong_count() > 0);
    let known = of_files.iter().find(|(other, _)| *other == key);
    if let Some(xrcd) = known.and_then(|(_, xrcd)| xrcd.upgrade()) {
        return Ok(xrcd);
    }
    let xrcd = Arc::new(hca.device.open_xrcd()?);
    of_files.push((key, Arc::downgrade(&xrcd)));
    Ok(xrcd)
}

/// `ibv_open_xrcd`, from the table of functions. A file stands for a domain of this process: a device is one process's.
///
/// # Safety
/// The context is open, and `attr` is a structure of the headers.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and `attr` is a structure of the headers.
        let (object, attr) =
            unsafe { (self::context(context)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        let known = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & !known != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.comp_mask != known {
            return Err(Errno::EINVAL);
        }
        let xrcd = match attr.fd {
            -1 => Arc::new(object.hca.device.open_xrcd()?),
            fd => of_file(object.hca, fd)?,
        };
        Ok(XrcdObject::into_raw(context, xrcd))
    })
}

/// `ibv_close_xrcd`, from the table of functions. EBUSY while it is in use.
///
/// # Safety
/// It was opened here, and is not used again after a success.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    as_errno(|| {
        if xrcd.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it was made by `open_xrcd`. What is moved out is moved back if it stays.
        unsafe {
            let object = xrcd.cast::<XrcdObject>();
            let inner = ptr::read(&raw const (*object).xrcd);
            // Locked, so that it is not opened by its file meanwhile. Another one of its file may still be open.
            let of_files = lock(&OF_FILES);
            if let Ok(last) = Arc::try_unwrap(inner)
                && let Err((kept, error)) = last.close()
            {
                ptr::write(&raw mut (*object).xrcd, Arc::new(kept));
                log::debug!("{error}");
                return Err(Errno::EBUSY);
            }
            drop(of_files);
            drop(Box::from_raw(object.cast::<ManuallyDrop<XrcdObject>>()));
        }
        Ok(())
    })
}

/// `ibv_create_srq_ex`, from the table of functions.
///
/// # Safety
/// The context is open, and the objects in `init` were created here.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller promises the same here.
    as_pointer(|| unsafe { create_srq(context, init) })
}

/// `create_srq_ex` for callers in Rust.
///
/// # Safety
/// As `create_srq_ex`.
pub(crate) unsafe fn create_srq(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq> {
    const KNOWN: u32 = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_PD
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    // SAFETY: the caller promises the same as for `create_srq_ex`.
    let init = unsafe { init.as_mut() }.ok_or(Errno::EINVAL)?;
    if init.comp_mask & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let has = |flag: u32| init.comp_mask & flag != 0;
    if !has(IBV_SRQ_INIT_ATTR_PD) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises the same as for `create_srq_ex`.
    let (of, pd) = unsafe { (self::context(context)?, self::pd(init.pd)?) };
    of.check_owner(pd.c.context)?;
    let mut attr = srq::sizes(&init.attr);
    let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) {
        init.srq_type
    } else {
        IBV_SRQT_BASIC
    };
    let made = match kind {
        IBV_SRQT_BASIC => pd.pd.create_srq(&mut attr)?,
        IBV_SRQT_XRC if has(IBV_SRQ_INIT_ATTR_XRCD) && has(IBV_SRQ_INIT_ATTR_CQ) => {
            // SAFETY: the caller promises the same as for `create_srq_ex`.
            let (xrcd, cq) = unsafe { (self::xrcd(init.xrcd)?, self::cq(init.cq)?) };
            of.check_owner(xrcd.c.context)?;
            of.check_owner(cq.ex.context)?;
            let cq = cq.cq.lock();
            let cq = cq.as_ref().ok_or(Errno::EINVAL)?;
            pd.pd.create_xrc_srq(&xrcd.xrcd, cq, &mut attr)?
        }
        _ => return Err(Errno::EINVAL),
    };
    init.attr.max_wr = attr.max_wr;
    init.attr.max_sge = attr.max_sge;
    Ok(SrqObject::into_raw(
        context,
        init.pd,
        init.srq_context,
        pd.hca,
        made,
    ))
}

/// `ibv_get_srq_num`, from the table of functions.
///
/// # Safety
/// The SRQ was created here, and `number` can be written.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the SRQ was created here, and `number` can be written.
        let object = unsafe { srq::srq(srq) }?;
        let inner = object.srq.lock();
        let found = inner.as_ref().ok_or(Errno::EINVAL)?.srqn().number();
        // SAFETY: the caller promises that the SRQ was created here, and `number` can be written.
        unsafe { number.write(found) };
        Ok(())
    })
}
