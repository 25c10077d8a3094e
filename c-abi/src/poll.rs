//! The data path of CQs: `ibv_poll_cq` and `ibv_req_notify_cq`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::zeroed;

use bareverbs_node::verbs::{Completion, Platform, WcFlags, WcOpcode};

use crate::abi::numbers::*;
use crate::abi::objects::ibv_cq;
use crate::abi::requests::ibv_wc;
use crate::cq::cq;
use crate::failure::{Errno, as_errno, guarded, lock};

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

/// A completion as `struct ibv_wc`. Always inlined: in the loop that polls, a call costs 32 instructions for each completion, and
/// whether the compiler makes one depends on code elsewhere.
#[inline(always)]
pub(crate) fn completion(found: &Completion<'_>) -> ibv_wc {
    let flags = found.flags();
    let immediate = if flags.contains(WcFlags::WITH_IMM) {
        found.imm_data().unwrap_or(0).to_be()
    } else if flags.contains(WcFlags::WITH_INV) {
        found.invalidated().map_or(0, |key| key.0)
    } else {
        0
    };
    ibv_wc {
        wr_id: found.wr_id(),
        status: found.status() as c_int,
        opcode: opcode(found.opcode()),
        vendor_err: found.vendor_err().into(),
        byte_len: found.byte_len(),
        imm_data: immediate,
        qp_num: found.qp_num().number(),
        src_qp: found.src_qp().number(),
        wc_flags: flags.bits(),
        pkey_index: found.pkey_index(),
        slid: found.slid(),
        sl: found.sl(),
        dlid_path_bits: 0,
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
            let mut inner = lock(&object.cq);
            let inner = inner.as_mut().ok_or(Errno::EINVAL)?;
            let mut batch = inner.batch()?;
            while taken < num_entries {
                let Some(found) = batch.next() else {
                    break;
                };
                // SAFETY: the caller's promise; `taken` is below `num_entries`.
                unsafe { wc.add(taken as usize).write(completion(&found)) };
                taken += 1;
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
pub(crate) fn empty() -> ibv_wc {
    // SAFETY: numbers may be zero.
    unsafe { zeroed() }
}
