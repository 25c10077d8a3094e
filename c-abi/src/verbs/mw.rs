//! Memory windows.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr;

use bareverbs_node::verbs::firmware_cmds::numbers::{LKey, RKey};
use bareverbs_node::verbs::{Access, Mw, MwBind, MwType};

use crate::abi::numbers::{IBV_ACCESS_MW_BIND, IBV_MW_TYPE_1, IBV_MW_TYPE_2};
use crate::abi::objects::{ibv_mw, ibv_pd};
use crate::abi::requests::ibv_mw_bind_info;
use crate::process::failure::{Errno, Result, as_errno, as_pointer};
use crate::process::hca::P;
use crate::verbs::mr;
use crate::verbs::pd::pd;

/// A memory window.
#[repr(C)]
struct MwObject {
    c: ibv_mw,
    mw: Mw<'static, P>,
}

fn kind(number: c_int) -> Result<MwType> {
    match number {
        IBV_MW_TYPE_1 => Ok(MwType::Type1),
        IBV_MW_TYPE_2 => Ok(MwType::Type2),
        _ => Err(Errno::EINVAL),
    }
}

/// `ibv_alloc_mw`, from the table of functions.
///
/// # Safety
/// The domain was allocated here.
pub(crate) unsafe extern "C" fn alloc_mw(domain: *mut ibv_pd, number: c_int) -> *mut ibv_mw {
    as_pointer(|| {
        // SAFETY: the caller promises that the domain was allocated here.
        let object = unsafe { pd(domain) }?;
        let mw = object.pd.alloc_mw(kind(number)?)?;
        let c = ibv_mw {
            context: object.c.context,
            pd: domain,
            rkey: mw.rkey().0,
            handle: mw.rkey().0 >> 8,
            mw_type: number,
        };
        Ok(Box::into_raw(Box::new(MwObject { c, mw })).cast())
    })
}

/// `ibv_dealloc_mw`, from the table of functions.
///
/// # Safety
/// It was allocated here, and is not used again after a success.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    as_errno(|| {
        if mw.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it is a `MwObject`. What is moved out is moved back if it stays.
        unsafe {
            let object = mw.cast::<MwObject>();
            let inner = ptr::read(&raw const (*object).mw);
            if let Err((inner, error)) = inner.dealloc() {
                ptr::write(&raw mut (*object).mw, inner);
                return Err(error.into());
            }
            drop(Box::from_raw(object.cast::<ManuallyDrop<MwObject>>()));
        }
        Ok(())
    })
}

/// A bind as the driver has it.
///
/// # Safety
/// The window was allocated here, and the region, which is NULL or was registered here, is there.
pub(crate) unsafe fn bind(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Result<MwBind> {
    // SAFETY: the caller promises that the window was allocated here, and the region, which is NULL or was registered here, is
    // there.
    let window = unsafe { mw.as_ref() }.ok_or(Errno::EINVAL)?;
    let mut bind = MwBind {
        kind: kind(window.mw_type)?,
        rkey: RKey(rkey),
        lkey: LKey(0),
        addr: info.addr,
        len: info.length,
        access: Access::from_bits_truncate(info.mw_access_flags),
    };
    // SAFETY: the caller promises that the window was allocated here, and the region, which is NULL or was registered here, is
    // there.
    match unsafe { info.mr.as_ref() } {
        Some(region) => {
            // SAFETY: the caller's promise; a parent domain has the handle of the one that it was made from.
            let (asked, same_domain) = unsafe {
                let same_domain = (*region.pd).handle == (*window.pd).handle;
                (mr::asked(info.mr), same_domain)
            };
            if asked & IBV_ACCESS_MW_BIND == 0 || !same_domain {
                return Err(Errno::EINVAL);
            }
            bind.lkey = LKey(region.lkey);
        }
        None if info.addr != 0 || info.length != 0 => return Err(Errno::EINVAL),
        None => {}
    }
    Ok(bind)
}
