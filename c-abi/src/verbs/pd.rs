//! Protection domains, and parent domains: a protection domain together with a thread domain.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bareverbs_node::verbs::Pd;

use crate::abi::objects::{
    ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};
use crate::process::failure::{Errno, Result, as_errno, as_pointer};
use crate::process::hca::{Hca, P};
use crate::verbs::context::context;

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`.
const ALLOCATORS: u32 = 1 << 0;
const PD_CONTEXT: u32 = 1 << 1;

/// A protection domain.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) c: ibv_pd,
    pub(crate) hca: &'static Hca,
    /// Parent domains have it in common with the domain that they were made from.
    pub(crate) pd: Arc<Pd<'static, P>>,
    /// The thread domain of a parent domain; NULL for one without, and for a protection domain.
    td: *mut ibv_td,
    /// Of a parent domain alone. CQs that name it have it as well.
    users: Option<Arc<()>>,
}

/// A thread domain: the program's promise that objects are used by one thread at a time. Queues have a lock each, which a
/// single thread never waits for, so that nothing is different for them.
#[repr(C)]
struct TdObject {
    c: ibv_td,
    /// Parent domains that have it.
    users: AtomicUsize,
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
        Box::into_raw(Box::new(Self {
            c,
            hca,
            pd: Arc::new(pd),
            td: ptr::null_mut(),
            users: None,
        }))
        .cast()
    }
}

/// The object behind a protection domain of C.
///
/// # Safety
/// It was allocated here, and is not deallocated for as long as the result is used.
pub(crate) unsafe fn pd<'a>(pd: *mut ibv_pd) -> Result<&'a PdObject> {
    // SAFETY: the caller's promise: it is the first field of a `PdObject`.
    unsafe { pd.cast::<PdObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// A parent domain for a CQ, which keeps the domain from being deallocated. EINVAL for other domains.
///
/// # Safety
/// It is NULL, or was allocated here.
pub(crate) unsafe fn parent(pd: *mut ibv_pd) -> Result<Arc<()>> {
    // SAFETY: the caller promises that it was allocated here.
    let object = unsafe { self::pd(pd) }?;
    object.users.clone().ok_or(Errno::EINVAL)
}

/// Allocates a protection domain: `ibv_alloc_pd`.
///
/// # Safety
/// The context is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open.
        let hca = unsafe { self::context(context) }?.hca;
        Ok(PdObject::into_raw(context, hca, hca.device.alloc_pd()?))
    })
}

/// Deallocates a protection domain, or a parent domain: `ibv_dealloc_pd`. EBUSY while it is in use.
///
/// # Safety
/// It was allocated here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    as_errno(|| {
        if pd.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it is a `PdObject`. What is moved out is moved back if it stays.
        unsafe {
            let object = pd.cast::<PdObject>();
            if let Some(users) = &(*object).users {
                if Arc::strong_count(users) > 1 {
                    return Err(Errno::EBUSY);
                }
                if let Some(td) = (*object).td.cast::<TdObject>().as_ref() {
                    td.users.fetch_sub(1, Ordering::AcqRel);
                }
                drop(Box::from_raw(object));
                return Ok(());
            }
            let kept = match Arc::try_unwrap(ptr::read(&raw const (*object).pd)) {
                Ok(last) => match last.dealloc() {
                    Ok(()) => {
                        drop(Box::from_raw(object.cast::<ManuallyDrop<PdObject>>()));
                        return Ok(());
                    }
                    Err((kept, error)) => {
                        log::debug!("{error}");
                        Arc::new(kept)
                    }
                },
                // There are parent domains, or address handles.
                Err(shared) => shared,
            };
            ptr::write(&raw mut (*object).pd, kept);
            Err(Errno::EBUSY)
        }
    })
}

/// `ibv_alloc_td`, from the table of functions.
///
/// # Safety
/// The context is open, and `attr` is a structure of the headers.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and `attr` is a structure of the headers.
        let attr = unsafe {
            self::context(context)?;
            attr.as_ref().ok_or(Errno::EINVAL)?
        };
        if attr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let object = TdObject {
            c: ibv_td { context },
            users: AtomicUsize::new(0),
        };
        Ok(Box::into_raw(Box::new(object)).cast())
    })
}

/// `ibv_dealloc_td`, from the table of functions. EBUSY while a parent domain has it.
///
/// # Safety
/// It was allocated here, and is not used again after a success.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    as_errno(|| {
        let object = td.cast::<TdObject>();
        // SAFETY: the caller's promise: it was made by `alloc_td`.
        unsafe {
            let users = &object.as_ref().ok_or(Errno::EINVAL)?.users;
            if users.load(Ordering::Acquire) != 0 {
                return Err(Errno::EBUSY);
            }
            drop(Box::from_raw(object));
        }
        Ok(())
    })
}

/// `ibv_alloc_parent_domain`, from the table of functions. Allocators of the program's are not called: rings are memory that the
/// device reaches, which the platform allocates.
///
/// # Safety
/// The context is open, and the domains in `attr` were allocated here.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and the domains in `attr` were allocated here.
        unsafe {
            let hca = self::context(context)?.hca;
            let attr = attr.as_ref().ok_or(Errno::EINVAL)?;
            let of = self::pd(attr.pd)?;
            if of.users.is_some() || !ptr::eq(of.hca, hca) {
                return Err(Errno::EINVAL);
            }
            if attr.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
                return Err(Errno::EINVAL);
            }
            // A context without allocators is ignored.
            if attr.comp_mask & ALLOCATORS != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            if let Some(td) = attr.td.cast::<TdObject>().as_ref() {
                td.users.fetch_add(1, Ordering::AcqRel);
            }
            let object = PdObject {
                c: ibv_pd {
                    context,
                    handle: of.c.handle,
                },
                hca,
                pd: of.pd.clone(),
                td: attr.td,
                users: Some(Arc::default()),
            };
            Ok(Box::into_raw(Box::new(object)).cast())
        }
    })
}
