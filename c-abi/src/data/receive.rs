//! The data path of receive queues: `ibv_post_recv`.

// UNSAFETY: raw pointers of C, and queues behind their locks.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;

use bareverbs_node::verbs::{RecvQueue, Sge};

use crate::abi::objects::ibv_qp;
use crate::abi::requests::ibv_recv_wr;
use crate::data::lists::receives;
use crate::process::data_lock::DataGuard;
use crate::process::failure::{Errno, as_errno};
use crate::verbs::qp::QpObject;

/// Posts a list of requests to the receive queue: `ibv_post_recv`.
///
/// # Safety
/// The QP was created here; the list is one of the headers'; `bad_wr` can be written.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    let object = unsafe { &*qp.cast::<QpObject>() };
    match object.recv.try_lock() {
        // SAFETY: the caller promises that the QP was created here; the list is one of the headers'; `bad_wr` can be written.
        Some(half) => unsafe { receive_usual(qp, half, wr, bad_wr) },
        // SAFETY: the same.
        None => unsafe { receive_later(qp, wr, bad_wr) },
    }
}

/// The same where another thread has the queue.
///
/// # Safety
/// As [`post_recv`].
#[cold]
#[inline(never)]
unsafe extern "C" fn receive_later(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller promises the same as for `post_recv`.
    unsafe {
        let half = (*qp.cast::<QpObject>()).recv.lock();
        receive_usual(qp, half, wr, bad)
    }
}

/// The entry of a receive that has one.
///
/// # Safety
/// The request is one of the headers'.
#[inline(always)]
unsafe fn only_entry(request: &ibv_recv_wr) -> Option<&Sge> {
    match request.num_sge {
        // SAFETY: the caller's promise; `ibv_sge` and `Sge` lie in memory in the same way.
        1 => unsafe { request.sg_list.cast::<Sge>().as_ref() },
        _ => None,
    }
}

/// Posts a receive that is alone and has one entry, straight from C's structure.
///
/// # Safety
/// As [`post_recv`].
#[inline(always)]
unsafe fn receive_usual(
    qp: *mut ibv_qp,
    half: DataGuard<'_, Option<NonNull<RecvQueue<'static>>>>,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller promises the same as for `post_recv`.
    let only = unsafe { wr.as_ref() }.filter(|request| request.next.is_null());
    let (Some(mut queue), Some(request)) = (*half, only) else {
        mem::forget(half);
        // SAFETY: the caller's promise, and the lock is held.
        return unsafe { receive_list(qp, wr, bad) };
    };
    // SAFETY: it points into the QP, and with the lock held there is no other reference.
    let mut batch = ManuallyDrop::new(unsafe { queue.as_mut() }.batch());
    // SAFETY: the caller's promise. Without a call, so that no register has to be saved for one.
    if !unsafe { only_entry(request) }.is_some_and(|sge| batch.post_usual(request.wr_id, sge)) {
        mem::forget(half);
        // SAFETY: the same, and the lock is held.
        return unsafe { receive_rest(qp, wr, bad) };
    }
    batch.ring();
    0
}

/// Posts the first receives of a list that have one entry each, and gives the lock back.
///
/// # Safety
/// As [`post_recv`]. The calling thread holds the lock of the receive queue.
#[inline(never)]
unsafe extern "C" fn receive_list(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    let half = unsafe { (*qp.cast::<QpObject>()).recv.taken() };
    let Some(mut queue) = *half else {
        return Errno::EINVAL.0;
    };
    // SAFETY: it points into the QP, and with the lock held there is no other reference.
    let mut batch = ManuallyDrop::new(unsafe { queue.as_mut() }.batch());
    // SAFETY: the caller's promise, for the list and each of its requests.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: the same.
        if !unsafe { only_entry(request) }.is_some_and(|sge| batch.post_usual(request.wr_id, sge)) {
            batch.ring();
            mem::forget(half);
            // SAFETY: the same, and the lock is held.
            return unsafe { receive_rest(qp, wr, bad) };
        }
        wr = request.next;
    }
    batch.ring();
    0
}

/// Posts the rest of a list of receives, of which the first one is not usual, and gives the lock back.
///
/// # Safety
/// As [`post_recv`]. The calling thread holds the lock of the receive queue.
#[cold]
#[inline(never)]
unsafe extern "C" fn receive_rest(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller's promise: it is the first field of a `QpObject`.
        let half = unsafe { (*qp.cast::<QpObject>()).recv.taken() };
        let mut queue = half.ok_or(Errno::EINVAL)?;
        // SAFETY: it points into the QP, and with the lock held there is no other reference.
        let mut batch = unsafe { queue.as_mut() }.batch();
        // SAFETY: the caller promises the same as for `post_recv`. The calling thread holds the lock of the receive queue.
        unsafe { receives(wr, bad, |wr_id, list| Ok(batch.post(wr_id, list)?)) }
    })
}
