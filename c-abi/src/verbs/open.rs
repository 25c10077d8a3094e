//! Opening devices: a context with the table of functions that `verbs.h` calls.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr;

use crate::abi::objects::{ibv_context, ibv_context_ops, ibv_device};
use crate::abi::ops::verbs_context;
use crate::data::{bind, cq_ex, poll, post, receive};
use crate::ethernet::rules::Frames;
use crate::ethernet::{counters, raw, work_queue};
use crate::process::descriptor::Events;
use crate::process::device::{self, DeviceObject};
use crate::process::failure::{Errno, Result, as_pointer, as_status};
use crate::verbs::context::{self, ContextObject};
use crate::verbs::{cq, create_qp, dm, mr, mw, pd, query, srq, xrc};

/// Opens a device once more.
pub(crate) fn open(device: &'static DeviceObject) -> Result<Box<ContextObject>> {
    let hca = device.hca()?;
    let events = Events::new()?;
    // SAFETY: numbers, raw pointers and functions in an `Option` may be zero, and so may a mutex of the C library.
    let mut verbs: verbs_context = unsafe { zeroed() };
    verbs.query_port = Some(query::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.query_rt_values = Some(query::query_rt_values);
    verbs.create_cq_ex = Some(cq_ex::create_cq_ex);
    verbs.create_qp_ex = Some(create_qp::create_qp_ex);
    verbs.create_srq_ex = Some(xrc::create_srq_ex);
    verbs.get_srq_num = Some(xrc::get_srq_num);
    verbs.open_xrcd = Some(xrc::open_xrcd);
    verbs.close_xrcd = Some(xrc::close_xrcd);
    verbs.alloc_td = Some(pd::alloc_td);
    verbs.dealloc_td = Some(pd::dealloc_td);
    verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
    verbs.alloc_dm = Some(dm::alloc_dm);
    verbs.free_dm = Some(dm::free_dm);
    verbs.reg_dm_mr = Some(dm::reg_dm_mr);
    verbs.alloc_null_mr = Some(mr::alloc_null_mr);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.ibv_create_flow = Some(raw::create_flow);
    verbs.ibv_destroy_flow = Some(raw::destroy_flow);
    verbs.create_counters = Some(counters::create_counters);
    verbs.destroy_counters = Some(counters::destroy_counters);
    verbs.attach_counters_point_flow = Some(counters::attach_counters_point_flow);
    verbs.read_counters = Some(counters::read_counters);
    verbs.create_wq = Some(work_queue::create_wq);
    verbs.modify_wq = Some(work_queue::modify_wq);
    verbs.destroy_wq = Some(work_queue::destroy_wq);
    verbs.create_rwq_ind_table = Some(work_queue::create_rwq_ind_table);
    verbs.destroy_rwq_ind_table = Some(work_queue::destroy_rwq_ind_table);
    verbs.sz = size_of::<verbs_context>();
    verbs.context = ibv_context {
        device: device.as_ptr(),
        ops: ibv_context_ops {
            alloc_mw: Some(mw::alloc_mw),
            bind_mw: Some(bind::bind_mw),
            dealloc_mw: Some(mw::dealloc_mw),
            poll_cq: Some(poll::poll_cq),
            req_notify_cq: Some(poll::req_notify_cq),
            post_srq_recv: Some(srq::post_srq_recv),
            post_send: Some(post::post_send),
            post_recv: Some(receive::post_recv),
            ..verbs.context.ops
        },
        cmd_fd: -1,
        async_fd: events.fd(),
        num_comp_vectors: 1,
        // `__VERBS_ABI_IS_EXTENDED`: the structure around this one is there.
        abi_compat: ptr::without_provenance_mut(usize::MAX),
        ..verbs.context
    };
    let context = Box::new(ContextObject {
        verbs,
        hca,
        events,
        frames: Frames::default(),
    });
    hca.registry.with(|objects| {
        objects
            .contexts
            .push((&raw const context.verbs.context).cast_mut())
    });
    Ok(context)
}

/// Opens a device: `ibv_open_device`. It is brought up when it is first opened.
///
/// # Safety
/// `device` is from the list of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    as_pointer(|| {
        // SAFETY: the caller promises that `device` is from the list of devices.
        let device = unsafe { device::device(device) }?;
        Ok(open(device)?.into_raw())
    })
}

/// Closes a device: `ibv_close_device`. It stays up until the process ends.
///
/// # Safety
/// The context was opened here, its objects are destroyed, and it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    as_status(|| {
        if context.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's promise: it was made by `into_raw`.
        let context = unsafe { Box::from_raw(context::object(context)) };
        context.hca.registry.with(|objects| {
            objects
                .contexts
                .retain(|other| !ptr::eq(*other, &raw const context.verbs.context));
        });
        Ok(())
    })
}
