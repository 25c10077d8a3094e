//! Shared receive queues.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::zeroed;

use bareverbs_node::verbs::{RecvWr, Srq, SrqAttr, SrqHandle};

use crate::abi::numbers::{IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR};
use crate::abi::objects::{ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use crate::abi::requests::ibv_recv_wr;
use crate::data::lists::receives;
use crate::process::acks::Acks;
use crate::process::data_lock::DataLock;
use crate::process::failure::{Errno, Result, as_errno, as_pointer};
use crate::process::hca::{Hca, P};
use crate::process::registry::take_out;
use crate::verbs::context::context;
use crate::verbs::pd::pd;
use crate::verbs::subject::Subject;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SrqObject {
    pub(crate) c: ibv_srq,
    hca: &'static Hca,
    /// Gone while it is being destroyed.
    pub(crate) srq: DataLock<Option<Srq<'static, P>>>,
    pub(crate) acks: Acks,
}

impl SrqObject {
    /// Hands an SRQ to C, known to the device's events.
    pub(crate) fn into_raw(
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        srq_context: *mut c_void,
        hca: &'static Hca,
        srq: Srq<'static, P>,
    ) -> *mut ibv_srq {
        let number = srq.srqn().number();
        // SAFETY: numbers and raw pointers may be zero, and so may what belongs to a mutex.
        let mut c: ibv_srq = unsafe { zeroed() };
        c.context = context;
        c.srq_context = srq_context;
        c.pd = pd;
        c.handle = number;
        let object = Box::into_raw(Box::new(Self {
            c,
            hca,
            srq: DataLock::new(Some(srq)),
            acks: Acks::default(),
        }));
        hca.registry
            .with(|objects| objects.srqs.insert(number, object.cast_const().cast()));
        object.cast()
    }

    /// The handle with which QPs are created.
    pub(crate) fn handle(&self) -> Result<SrqHandle<'static, P>> {
        let srq = self.srq.lock();
        Ok(srq.as_ref().ok_or(Errno::EINVAL)?.handle())
    }
}

/// The object behind an SRQ of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
#[inline]
pub(crate) unsafe fn srq<'a>(srq: *mut ibv_srq) -> Result<&'a SrqObject> {
    // SAFETY: the caller's promise: it is the first field of a `SrqObject`.
    unsafe { srq.cast::<SrqObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Sizes of a new SRQ in the driver's words. None at all gives the smallest, as Linux does.
pub(crate) fn sizes(attr: &ibv_srq_attr) -> SrqAttr {
    SrqAttr {
        max_wr: attr.max_wr.max(1),
        max_sge: attr.max_sge,
        srq_limit: 0,
    }
}

/// The same in C's.
pub(crate) fn to_c(attr: &SrqAttr) -> ibv_srq_attr {
    ibv_srq_attr {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        srq_limit: attr.srq_limit,
    }
}

/// Creates an SRQ: `ibv_create_srq`.
///
/// # Safety
/// The domain was allocated here, and `init` is a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    as_pointer(|| {
        // SAFETY: the caller promises that the domain was allocated here, and `init` is a structure of the headers.
        let (object, init) = unsafe { (self::pd(pd)?, init.as_mut().ok_or(Errno::EINVAL)?) };
        let mut attr = sizes(&init.attr);
        let srq = object.pd.create_srq(&mut attr)?;
        init.attr.max_wr = attr.max_wr;
        init.attr.max_sge = attr.max_sge;
        let context = object.c.context;
        Ok(SrqObject::into_raw(
            context,
            pd,
            init.srq_context,
            object.hca,
            srq,
        ))
    })
}

/// Asks for an event when few receives are left: `ibv_modify_srq`. The size cannot be changed.
///
/// # Safety
/// The SRQ was created here, and `attr` is a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the SRQ was created here, and `attr` is a structure of the headers.
        let (object, attr) = unsafe { (self::srq(srq)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        // As `mlx5_ib_modify_srq`, which takes no notice of what it does not know.
        if mask & IBV_SRQ_MAX_WR != 0 {
            return Err(Errno::EINVAL);
        }
        let mut inner = object.srq.lock();
        let inner = inner.as_mut().ok_or(Errno::EINVAL)?;
        if mask & IBV_SRQ_LIMIT != 0 {
            inner.arm_limit(attr.srq_limit)?;
        }
        Ok(())
    })
}

/// Asks the device for an SRQ's attributes: `ibv_query_srq`.
///
/// # Safety
/// The SRQ was created here, and `attr` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the SRQ was created here, and `attr` can be written.
        let object = unsafe { self::srq(srq) }?;
        let inner = object.srq.lock();
        let found = inner.as_ref().ok_or(Errno::EINVAL)?.query()?;
        // SAFETY: the caller promises that the SRQ was created here, and `attr` can be written.
        unsafe { attr.write(to_c(&found)) };
        Ok(())
    })
}

/// Destroys an SRQ, after its events were acknowledged: `ibv_destroy_srq`. EBUSY while QPs use it.
///
/// # Safety
/// It was created here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller promises the same here.
    as_errno(|| unsafe { destroy_srq(srq) })
}

/// `ibv_destroy_srq` for callers in Rust.
///
/// # Safety
/// As `ibv_destroy_srq`.
pub(crate) unsafe fn destroy_srq(srq: *mut ibv_srq) -> Result<()> {
    // SAFETY: the caller promises the same as for `ibv_destroy_srq`.
    let object = unsafe { self::srq(srq) }?;
    let pointer: *const SrqObject = object;
    let number;
    {
        let mut inner = object.srq.lock();
        let taken = inner.take().ok_or(Errno::EINVAL)?;
        number = taken.srqn().number();
        if let Err((kept, error)) = taken.destroy() {
            *inner = Some(kept);
            return Err(error.into());
        }
    }
    object
        .hca
        .registry
        .with(|objects| take_out(&mut objects.srqs, number, pointer));
    // SAFETY: the context is there longer than its SRQs.
    let context = unsafe { context(object.c.context) }?;
    context
        .events
        .remove(|event| event.subject == Subject::Srq(pointer.cast()));
    object.acks.wait();
    // SAFETY: the caller's promise: it was made by `SrqObject::into_raw`.
    drop(unsafe { Box::from_raw(pointer.cast_mut()) });
    Ok(())
}

/// Posts a list of receives: `ibv_post_srq_recv`.
///
/// # Safety
/// The SRQ was created here; the list is one of the headers'; `bad_wr` can be written.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the SRQ was created here; the list is one of the headers'; `bad_wr` can be written.
        let object = unsafe { self::srq(srq) }?;
        let mut inner = object.srq.lock();
        let inner = inner.as_mut().ok_or(Errno::EINVAL)?;
        // SAFETY: the caller promises that the SRQ was created here; the list is one of the headers'; `bad_wr` can be written.
        unsafe {
            receives(wr, bad_wr, |wr_id, sges| {
                Ok(inner.post_list(&[RecvWr { wr_id, sges }])?)
            })
        }
    })
}
