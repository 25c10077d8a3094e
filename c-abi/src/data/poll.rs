//! The data path of CQs: `ibv_poll_cq` and `ibv_req_notify_cq`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::{self, ManuallyDrop};

use bareverbs_node::verbs::cq::{Batch, Unusual};
use bareverbs_node::verbs::{Completion, CompletionKind, Cq, WcOpcode};

use crate::abi::numbers::*;
use crate::abi::objects::ibv_cq;
use crate::abi::requests::ibv_wc;
use crate::process::data_lock::DataGuard;
use crate::process::failure::{Errno, as_errno, guarded};
use crate::process::hca::P;
use crate::verbs::cq::{CqObject, cq};

/// `enum ibv_wc_opcode`.
#[inline]
pub(crate) fn opcode(opcode: WcOpcode) -> c_int {
    match opcode {
        WcOpcode::Send | WcOpcode::Unknown => IBV_WC_SEND,
        WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::CompSwap => IBV_WC_COMP_SWAP,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::BindMw => IBV_WC_BIND_MW,
        WcOpcode::LocalInv => IBV_WC_LOCAL_INV,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// Writes a completion for C.
///
/// # Safety
/// `to` can be written.
unsafe fn write(to: *mut ibv_wc, found: &Completion<'_>) {
    // SAFETY: the caller promises that `to` can be written.
    unsafe {
        match found.kind() {
            CompletionKind::Send => write_send(to, found),
            CompletionKind::Recv => write_recv(to, found),
            CompletionKind::Error => to.write(failure(*found)),
        }
    }
}

/// Writes that of a send, of which few fields are there.
///
/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_send(to: *mut ibv_wc, found: &Completion<'_>) {
    // SAFETY: the caller promises the same as for `write`.
    unsafe {
        to.write(ibv_wc {
            wr_id: found.wr_id(),
            opcode: opcode(found.opcode()),
            qp_num: found.qp_num().number(),
            byte_len: found.byte_len(),
            ..EMPTY
        });
    }
}

/// Writes that of a receive.
///
/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_recv(to: *mut ibv_wc, found: &Completion<'_>) {
    // SAFETY: the caller promises the same as for `write`.
    unsafe {
        to.write(ibv_wc {
            wr_id: found.wr_id(),
            opcode: opcode(found.opcode()),
            qp_num: found.qp_num().number(),
            byte_len: found.byte_len(),
            imm_data: immediate(found),
            src_qp: found.src_qp().number(),
            wc_flags: found.flags().bits(),
            pkey_index: found.pkey_index(),
            slid: found.slid(),
            sl: found.sl(),
            ..EMPTY
        });
    }
}

/// A completion in error. It is given as a value, so that no memory is needed for it unless there is an error.
#[cold]
#[inline(never)]
fn failure(found: Completion<'_>) -> ibv_wc {
    ibv_wc {
        wr_id: found.wr_id(),
        status: found.status() as c_int,
        opcode: opcode(found.opcode()),
        qp_num: found.qp_num().number(),
        byte_len: found.byte_len(),
        vendor_err: found.vendor_err().into(),
        ..EMPTY
    }
}

/// `imm_data` of a receive, as it lies there: immediate data as the network has it, or a key as a number.
#[inline(always)]
pub(crate) fn immediate(found: &Completion<'_>) -> u32 {
    if let Some(immediate) = found.imm_data() {
        immediate.to_be()
    } else {
        found.invalidated().map_or(0, |key| key.0)
    }
}

/// Takes completions out of a CQ: `ibv_poll_cq`. Returns how many, or a negative errno.
///
/// # Safety
/// The CQ was created here, and `num_entries` entries can be written at `wc`.
pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: the caller's promise: it is the first field of a `CqObject`.
    let object = unsafe { &*cq.cast::<CqObject>() };
    // Each call of another function is the last thing that is done, so that no register has to be saved for it.
    match object.cq.try_lock() {
        // SAFETY: the caller promises that the CQ was created here, and `num_entries` entries can be written at `wc`.
        Some(held) => unsafe { poll_usual(cq, held, num_entries, wc) },
        // SAFETY: the same.
        None => unsafe { poll_later(cq, num_entries, wc) },
    }
}

/// The same where another thread has the CQ.
///
/// # Safety
/// As [`poll_cq`].
#[cold]
#[inline(never)]
unsafe extern "C" fn poll_later(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller promises the same as for `poll_cq`.
    unsafe {
        let held = (*cq.cast::<CqObject>()).cq.lock();
        poll_usual(cq, held, num_entries, wc)
    }
}

/// Takes the first completion if it is usual, in a straight line.
///
/// # Safety
/// As [`poll_cq`].
#[inline(always)]
unsafe fn poll_usual(
    cq: *mut ibv_cq,
    mut held: DataGuard<'_, Option<Cq<'static, P>>>,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    let Some(of) = held.as_mut() else {
        return -Errno::EINVAL.0;
    };
    let Some(batch) = of.usual_batch() else {
        mem::forget(held);
        // SAFETY: the caller's promise, and the lock is held.
        return unsafe { poll_rest(cq, num_entries, wc, 0) };
    };
    // Not dropped: this function knows whether the consumer index has moved.
    let mut batch = ManuallyDrop::new(batch);
    if num_entries <= 0 {
        return 0;
    }
    // SAFETY: the caller promises the same as for `poll_cq`.
    match unsafe { next(&mut batch, wc) } {
        Ok(()) if num_entries == 1 => {
            ManuallyDrop::into_inner(batch).finish();
            1
        }
        Ok(()) => {
            mem::forget(held);
            // SAFETY: the caller's promise, and the lock is held.
            unsafe { poll_more(cq, num_entries, wc) }
        }
        Err(Unusual::Nothing) => {
            drop(held);
            // SAFETY: the caller's promise: it is the first field of a `CqObject`.
            unsafe { &*cq.cast::<CqObject>() }.idle(0)
        }
        Err(Unusual::Something) => {
            mem::forget(held);
            // SAFETY: the caller's promise, and the lock is held.
            unsafe { poll_rest(cq, num_entries, wc, 0) }
        }
    }
}

/// Writes the next completion if it is usual.
///
/// # Safety
/// `to` can be written.
#[inline(always)]
unsafe fn next(
    batch: &mut Batch<'_, 'static, P>,
    to: *mut ibv_wc,
) -> std::result::Result<(), Unusual> {
    batch.next_usual(
        to,
        // SAFETY: the caller promises that `to` can be written.
        |to, found| unsafe { write_send(to, &found) },
        // SAFETY: the same.
        |to, found| unsafe { write_recv(to, &found) },
    )
}

/// Takes further completions that are usual, and gives the lock back.
///
/// # Safety
/// As [`poll_cq`], behind one completion. The calling thread holds the lock of the CQ.
#[inline(never)]
unsafe extern "C" fn poll_more(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise: it is the first field of a `CqObject`.
    let mut held = unsafe { (*cq.cast::<CqObject>()).cq.taken() };
    let Some(of) = held.as_mut() else {
        return -Errno::EINVAL.0;
    };
    let mut batch = ManuallyDrop::new(of.resume_batch());
    let mut taken = 1;
    while taken < num_entries {
        // SAFETY: the caller's promise; `taken` is below `num_entries`.
        match unsafe { next(&mut batch, wc.add(taken as usize)) } {
            Ok(()) => taken += 1,
            Err(Unusual::Nothing) => break,
            Err(Unusual::Something) => {
                mem::forget(held);
                // SAFETY: the caller's promise, and the lock is held.
                return unsafe { poll_rest(cq, num_entries, wc, taken) };
            }
        }
    }
    ManuallyDrop::into_inner(batch).finish();
    taken
}

/// Takes the rest of the completions, of any kind, and gives the lock back.
///
/// # Safety
/// As [`poll_cq`], behind `taken` completions. The calling thread holds the lock of the CQ.
#[cold]
#[inline(never)]
unsafe extern "C" fn poll_rest(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
    mut taken: c_int,
) -> c_int {
    // SAFETY: the caller's promise: it is the first field of a `CqObject`.
    let object = unsafe { &*cq.cast::<CqObject>() };
    let polled = guarded(|| {
        // SAFETY: the caller promises the same as for `poll_cq`, behind `taken` completions. The calling thread holds the lock
        // of the CQ.
        let mut held = unsafe { object.cq.taken() };
        let of = held.as_mut().ok_or(Errno::EINVAL)?;
        if let Err(error) = of.batch().map(mem::forget)
            && taken == 0
        {
            return Err(error.into());
        }
        // An error that came meanwhile is for the next poll to say.
        let mut batch = of.resume_batch();
        while taken < num_entries {
            let Some(found) = batch.next() else {
                break;
            };
            // SAFETY: the caller's promise; `taken` is below `num_entries`.
            unsafe { write(wc.add(taken as usize), &found) };
            taken += 1;
        }
        batch.finish();
        Ok(taken)
    });
    match polled {
        Ok(0) => object.idle(0),
        Ok(taken) => taken,
        Err(errno) => -errno.0,
    }
}

/// Asks for an event at the next completion: `ibv_req_notify_cq`.
///
/// # Safety
/// The CQ was created here.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller promises that the CQ was created here.
    as_errno(|| unsafe { self::cq(cq) }?.arm(solicited_only != 0))
}

/// A completion of which nothing is known.
const EMPTY: ibv_wc = ibv_wc {
    wr_id: 0,
    status: 0,
    opcode: 0,
    vendor_err: 0,
    byte_len: 0,
    imm_data: 0,
    qp_num: 0,
    src_qp: 0,
    wc_flags: 0,
    pkey_index: 0,
    slid: 0,
    sl: 0,
    dlid_path_bits: 0,
};
