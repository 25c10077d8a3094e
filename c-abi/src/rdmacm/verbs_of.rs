//! The context and the protection domain of each device that ids have before a program brings its own.

// UNSAFETY: hands pointers to objects of C out.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use crate::abi::objects::{ibv_context, ibv_pd, ibv_xrcd};
use crate::process::device::{DeviceObject, devices};
use crate::process::failure::{Errno, Result, as_nothing, as_pointer, lock};
use crate::process::hca::Hca;
use crate::verbs::open;
use crate::verbs::pd::PdObject;
use crate::verbs::xrc::XrcdObject;

/// The part that ids on a device have in common.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) hca: &'static Hca,
    pub(crate) verbs: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    /// Made when it is first asked for.
    xrcd: *mut ibv_xrcd,
}

// SAFETY: pointers to objects that are never freed.
unsafe impl Send for Shared {}

static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// The part that ids on a device have in common. It is made once, and kept until the process ends.
pub(crate) fn shared(device: &'static DeviceObject) -> Result<Shared> {
    let hca = device.hca()?;
    let mut all = lock(&SHARED);
    if let Some(found) = all.iter().find(|shared| ptr::eq(shared.hca, hca)) {
        return Ok(*found);
    }
    let context = open::open(device)?;
    let pd = hca.device.alloc_pd()?;
    let verbs = context.into_raw();
    let found = Shared {
        hca,
        verbs,
        pd: PdObject::into_raw(verbs, hca, pd),
        xrcd: ptr::null_mut(),
    };
    all.push(found);
    Ok(found)
}

/// The same of a device that is up.
pub(crate) fn shared_of(hca: &'static Hca) -> Result<Shared> {
    let is = |device: &&DeviceObject| {
        let up = device.hca_if_up();
        up.is_some_and(|up| ptr::eq(up, hca))
    };
    shared(devices()?.iter().find(is).ok_or(Errno::ENODEV)?)
}

/// The XRC domain of ids on a device for which the program brings none.
pub(crate) fn xrcd_of(hca: &'static Hca) -> Result<*mut ibv_xrcd> {
    shared_of(hca)?;
    let mut all = lock(&SHARED);
    let of_hca = all.iter_mut().find(|shared| ptr::eq(shared.hca, hca));
    let found = of_hca.ok_or(Errno::ENODEV)?;
    if found.xrcd.is_null() {
        found.xrcd = XrcdObject::into_raw(found.verbs, hca.device.open_xrcd()?.into());
    }
    Ok(found.xrcd)
}

/// The contexts of all devices, which are open: `rdma_get_devices`. To be freed with `rdma_free_devices`.
///
/// # Safety
/// `num_devices` is NULL or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    as_pointer(|| {
        let mut list = Vec::new();
        for device in devices()? {
            list.push(shared(device)?.verbs);
        }
        // SAFETY: the caller promises that `num_devices` is NULL or points to a number.
        if let Some(number) = unsafe { num_devices.as_mut() } {
            *number = list.len() as c_int;
        }
        list.push(ptr::null_mut());
        Ok(Box::leak(list.into_boxed_slice()).as_mut_ptr())
    })
}

/// Frees a list of devices, which stay open: `rdma_free_devices`.
///
/// # Safety
/// `list` is from `rdma_get_devices`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    as_nothing(|| {
        if !list.is_null() {
            let entries = devices()?.len() + 1;
            // SAFETY: the caller's promise; the list has an entry for each device, and NULL.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, entries)) });
        }
        Ok(())
    });
}
