//! The data path of CQs: `ibv_poll_cq` and `ibv_req_notify_cq`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use bareverbs_node::verbs::{Completion, CompletionKind, Platform, WcOpcode};

use crate::abi::numbers::*;
use crate::abi::objects::ibv_cq;
use crate::abi::requests::ibv_wc;
use crate::cq::cq;
use crate::failure::{Errno, as_errno, guarded};

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
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// A completion as `struct ibv_wc`.
pub(crate) fn completion(found: &Completion<'_>) -> ibv_wc {
    let mut wc = EMPTY;
    // SAFETY: it can be written.
    unsafe { write(&raw mut wc, found) };
    wc
}

/// Writes a completion for C. Each kind by itself, since few of the fields are there for a send.
///
/// # Safety
/// `to` can be written.
#[inline(always)]
unsafe fn write(to: *mut ibv_wc, found: &Completion<'_>) {
    match found.kind() {
        // SAFETY: the caller's promise.
        CompletionKind::Send => unsafe {
            to.write(ibv_wc {
                wr_id: found.wr_id(),
                opcode: opcode(found.opcode()),
                qp_num: found.qp_num().number(),
                byte_len: found.byte_len(),
                ..EMPTY
            });
        },
        // SAFETY: the caller's promise.
        CompletionKind::Recv => unsafe {
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
        },
        // SAFETY: the caller's promise.
        CompletionKind::Error => unsafe { to.write(failure(*found)) },
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
fn immediate(found: &Completion<'_>) -> u32 {
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
    let polled = guarded(|| {
        // SAFETY: the caller's promise.
        let object = unsafe { self::cq(cq) }?;
        let mut taken = 0;
        {
            let mut inner = object.cq.lock();
            let inner = inner.as_mut().ok_or(Errno::EINVAL)?;
            // Not dropped: this function knows whether the consumer index has moved.
            let mut batch = ManuallyDrop::new(inner.batch()?);
            while taken < num_entries {
                let Some(found) = batch.next() else {
                    break;
                };
                // SAFETY: the caller's promise; `taken` is below `num_entries`.
                unsafe { write(wc.add(taken as usize), &found) };
                taken += 1;
            }
            if taken != 0 {
                ManuallyDrop::into_inner(batch).finish();
            }
        }
        if taken == 0 {
            // A program that polls in a loop leaves the processor to what it waits for.
            object.hca.device.platform().relax();
        }
        Ok(taken)
    });
    polled.unwrap_or_else(|errno| -errno.0)
}

/// Asks for an event at the next completion: `ibv_req_notify_cq`.
///
/// # Safety
/// The CQ was created here.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's promise.
    as_errno(|| unsafe { self::cq(cq) }?.arm(solicited_only != 0))
}

/// A completion of which nothing is known.
pub(crate) const EMPTY: ibv_wc = ibv_wc {
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
