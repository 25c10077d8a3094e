//! Posting by function calls: `ibv_wr_start`, an operation with its data for each request, `ibv_wr_complete`.
//!
//! C gives the operation first and the data later, so that the requests are collected, and posted together at the end.

// UNSAFETY: raw pointers of C, and a lock that is held between two calls.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr;
use std::slice;
use std::sync::{Mutex, MutexGuard};

use crate::abi::numbers::*;
use crate::abi::objects::{ibv_ah, ibv_mw, ibv_qp};
use crate::abi::requests::*;
use crate::failure::{Errno, Result, as_errno, as_nothing, guarded, lock};
use crate::post;
use crate::qp::{self, QpObject};

/// Requests between `ibv_wr_start` and `ibv_wr_complete` or `ibv_wr_abort`, and the lock that is held meanwhile.
#[derive(Default)]
pub(crate) struct Builder {
    requests: Mutex<Requests>,
    held: UnsafeCell<Option<MutexGuard<'static, Requests>>>,
}

/// Requests in the order of their calls.
#[derive(Default)]
struct Requests {
    list: Vec<Request>,
    sges: Vec<ibv_sge>,
    bytes: Vec<u8>,
    failed: Option<Errno>,
}

/// A request, and where its data begins.
struct Request {
    wr: ibv_send_wr,
    data: Data,
}

#[derive(Clone, Copy)]
enum Data {
    None,
    Sges { first: usize, count: usize },
    Bytes { first: usize, count: usize },
}

impl Requests {
    fn clear(&mut self) {
        self.list.clear();
        self.sges.clear();
        self.bytes.clear();
        self.failed = None;
    }

    /// Makes the requests a list of C's, which points into this.
    fn link(&mut self) -> *mut ibv_send_wr {
        // Bytes that are inline are an entry each.
        for request in &mut self.list {
            if let Data::Bytes { first, count } = request.data {
                let bytes = &self.bytes[first..first + count];
                request.wr.send_flags |= IBV_SEND_INLINE;
                request.data = Data::Sges {
                    first: self.sges.len(),
                    count: 1,
                };
                self.sges.push(ibv_sge {
                    addr: bytes.as_ptr() as u64,
                    length: count as u32,
                    lkey: 0,
                });
            }
        }
        let mut next = ptr::null_mut();
        for request in self.list.iter_mut().rev() {
            if let Data::Sges { first, count } = request.data {
                request.wr.sg_list = self.sges[first..first + count].as_mut_ptr();
                request.wr.num_sge = count as c_int;
            }
            request.wr.next = next;
            next = &raw mut request.wr;
        }
        next
    }
}

/// What each type of QP can send: bits of `enum ibv_qp_create_send_ops_flags`.
pub(crate) fn has_operations(qp_type: c_int, operations: u64) -> bool {
    const DATAGRAM: u64 = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM;
    const UNRELIABLE: u64 = DATAGRAM | 1 << IBV_WR_RDMA_WRITE | 1 << IBV_WR_RDMA_WRITE_WITH_IMM;
    const RELIABLE: u64 = UNRELIABLE
        | 1 << IBV_WR_RDMA_READ
        | 1 << IBV_WR_ATOMIC_CMP_AND_SWP
        | 1 << IBV_WR_ATOMIC_FETCH_AND_ADD
        | 1 << IBV_WR_SEND_WITH_INV;
    const WINDOWS: u64 = 1 << IBV_WR_BIND_MW | 1 << IBV_WR_LOCAL_INV;
    let possible = match qp_type {
        IBV_QPT_UD => DATAGRAM,
        IBV_QPT_UC => UNRELIABLE,
        IBV_QPT_RC => RELIABLE | WINDOWS,
        IBV_QPT_XRC_SEND => RELIABLE,
        _ => 0,
    };
    operations & !possible == 0
}

/// Sets the functions of a QP that is created for `ibv_wr_*`.
pub(crate) fn offer(ex: &mut ibv_qp_ex) {
    ex.wr_start = Some(start);
    ex.wr_complete = Some(complete);
    ex.wr_abort = Some(abort);
    ex.wr_send = Some(send);
    ex.wr_send_imm = Some(send_imm);
    ex.wr_send_inv = Some(send_inv);
    ex.wr_rdma_write = Some(rdma_write);
    ex.wr_rdma_write_imm = Some(rdma_write_imm);
    ex.wr_rdma_read = Some(rdma_read);
    ex.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    ex.wr_atomic_fetch_add = Some(atomic_fetch_add);
    ex.wr_bind_mw = Some(bind_mw);
    ex.wr_local_inv = Some(local_inv);
    ex.wr_set_sge = Some(set_sge);
    ex.wr_set_sge_list = Some(set_sge_list);
    ex.wr_set_inline_data = Some(set_inline_data);
    ex.wr_set_inline_data_list = Some(set_inline_data_list);
    ex.wr_set_ud_addr = Some(set_ud_addr);
    ex.wr_set_xrc_srqn = Some(set_xrc_srqn);
}

/// The requests that the calling thread collects.
///
/// # Safety
/// After `ibv_wr_start`, in the thread that called it.
unsafe fn requests<'a>(qp: *mut ibv_qp_ex) -> Result<&'a mut Requests> {
    // SAFETY: the caller's promise: the QP was created here, and no other thread is here while the lock is held.
    let held = unsafe { &mut *(*qp.cast::<QpObject>()).builder.held.get() };
    held.as_deref_mut().ok_or(Errno::EINVAL)
}

/// Works on the requests, and remembers a failure for `ibv_wr_complete`.
///
/// # Safety
/// As [`requests`].
unsafe fn note(qp: *mut ibv_qp_ex, work: impl FnOnce(&mut Requests) -> Result<()>) {
    let noted = guarded(|| {
        // SAFETY: the caller's promise.
        let requests = unsafe { requests(qp) }?;
        let worked = work(requests);
        if let Err(errno) = worked {
            requests.failed.get_or_insert(errno);
        }
        Ok(())
    });
    if noted.is_err() {
        log::error!("ibv_wr_*: a call without ibv_wr_start");
    }
}

/// Begins a request.
///
/// # Safety
/// As [`requests`].
unsafe fn begin(qp: *mut ibv_qp_ex, opcode: c_int, set: impl FnOnce(&mut ibv_send_wr)) {
    // SAFETY: the caller's promise; the QP's two fields are written by the same thread.
    unsafe {
        let (wr_id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        note(qp, |requests| {
            let mut wr: ibv_send_wr = zeroed();
            wr.wr_id = wr_id;
            wr.opcode = opcode;
            wr.send_flags = flags & !IBV_SEND_INLINE;
            set(&mut wr);
            requests.list.push(Request {
                wr,
                data: Data::None,
            });
            Ok(())
        });
    }
}

/// Changes the request that was begun last.
///
/// # Safety
/// As [`requests`].
unsafe fn last(qp: *mut ibv_qp_ex, set: impl FnOnce(&mut ibv_send_wr, &mut Data)) {
    // SAFETY: the caller's promise.
    unsafe {
        note(qp, |requests| {
            let request = requests.list.last_mut().ok_or(Errno::EINVAL)?;
            set(&mut request.wr, &mut request.data);
            Ok(())
        });
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    as_nothing(|| {
        // SAFETY: C's promise. The lock is part of the QP, which is not destroyed before `ibv_wr_complete`.
        let object: &'static QpObject = unsafe { qp::qp(qp.cast::<ibv_qp>()) }?;
        let mut held = lock(&object.builder.requests);
        held.clear();
        // SAFETY: the lock is held, so that no other thread is here.
        unsafe { *object.builder.held.get() = Some(held) };
        Ok(())
    });
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    as_errno(|| {
        // SAFETY: C's promise: after `ibv_wr_start`, whose lock is held.
        let object = unsafe { qp::qp(qp.cast::<ibv_qp>()) }?;
        // SAFETY: the same.
        let held = unsafe { &mut *object.builder.held.get() }.take();
        let mut held = held.ok_or(Errno::EINVAL)?;
        if let Some(errno) = held.failed {
            return Err(errno);
        }
        let count = held.list.len();
        let first = held.link();
        // SAFETY: the list lies in what is locked; its objects are C's promise.
        unsafe { post::send_all(object, first, count) }
    })
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    as_nothing(|| {
        // SAFETY: C's promise: after `ibv_wr_start`, whose lock is held.
        let object = unsafe { qp::qp(qp.cast::<ibv_qp>()) }?;
        // SAFETY: the same.
        drop(unsafe { &mut *object.builder.held.get() }.take());
        Ok(())
    });
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_SEND, |_| {}) };
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_SEND_WITH_IMM, |wr| wr.imm_data = imm_data) };
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_SEND_WITH_INV, |wr| wr.imm_data = rkey) };
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: C's promise: after `ibv_wr_start`, with a structure of the headers.
    unsafe {
        let bind_info = *bind_info;
        begin(qp, IBV_WR_BIND_MW, |wr| {
            wr.bind_mw = bind_operation {
                mw,
                rkey,
                bind_info,
            };
        });
    }
}

unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_LOCAL_INV, |wr| wr.imm_data = rkey) };
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    let rdma = rdma_operation { remote_addr, rkey };
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_RDMA_WRITE, |wr| wr.wr.rdma = rdma) };
}

unsafe extern "C" fn rdma_write_imm(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    imm_data: u32,
) {
    let rdma = rdma_operation { remote_addr, rkey };
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe {
        begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM, |wr| {
            wr.wr.rdma = rdma;
            wr.imm_data = imm_data;
        });
    }
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    let rdma = rdma_operation { remote_addr, rkey };
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_RDMA_READ, |wr| wr.wr.rdma = rdma) };
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    let atomic = atomic_operation {
        remote_addr,
        compare_add: compare,
        swap,
        rkey,
    };
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP, |wr| wr.wr.atomic = atomic) };
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) {
    let atomic = atomic_operation {
        remote_addr,
        compare_add: add,
        swap: 0,
        rkey,
    };
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, |wr| wr.wr.atomic = atomic) };
}

unsafe extern "C" fn set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    let ud = ud_destination {
        ah,
        remote_qpn,
        remote_qkey,
    };
    // SAFETY: C's promise: after an operation.
    unsafe { last(qp, |wr, _| wr.wr.ud = ud) };
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: C's promise: after an operation.
    unsafe { last(qp, |wr, _| wr.qp_type = remote_srqn) };
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = ibv_sge { addr, length, lkey };
    // SAFETY: C's promise: after an operation.
    unsafe { set_sge_list(qp, 1, &sge) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, list: *const ibv_sge) {
    // SAFETY: C's promise: after an operation, with so many entries.
    unsafe {
        note(qp, |requests| {
            let first = requests.sges.len();
            if num_sge > 0 {
                requests
                    .sges
                    .extend_from_slice(slice::from_raw_parts(list, num_sge));
            }
            let request = requests.list.last_mut().ok_or(Errno::EINVAL)?;
            request.data = Data::Sges {
                first,
                count: num_sge,
            };
            Ok(())
        });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: C's promise: after an operation, with so many bytes.
    unsafe { set_inline_data_list(qp, 1, &buffer) };
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    num_buf: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: C's promise: after an operation, with so many buffers of so many bytes.
    unsafe {
        note(qp, |requests| {
            let first = requests.bytes.len();
            for index in 0..num_buf {
                let ibv_data_buf { addr, length } = *list.add(index);
                if length > 0 {
                    requests
                        .bytes
                        .extend_from_slice(slice::from_raw_parts(addr.cast::<u8>(), length));
                }
            }
            let count = requests.bytes.len() - first;
            let request = requests.list.last_mut().ok_or(Errno::EINVAL)?;
            request.data = Data::Bytes { first, count };
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(data: Data) -> Request {
        Request {
            // SAFETY: numbers and raw pointers may be zero.
            wr: unsafe { zeroed() },
            data,
        }
    }

    #[test]
    fn requests_become_a_list_in_their_order() {
        let entry = |addr| ibv_sge {
            addr,
            length: 8,
            lkey: 1,
        };
        let mut requests = Requests {
            list: vec![
                request(Data::Sges { first: 0, count: 2 }),
                request(Data::Bytes { first: 1, count: 3 }),
                request(Data::None),
            ],
            sges: vec![entry(0x100), entry(0x200)],
            bytes: vec![9, 1, 2, 3],
            failed: None,
        };
        for (number, request) in requests.list.iter_mut().enumerate() {
            request.wr.wr_id = number as u64;
        }
        let mut found = Vec::new();
        let mut next = requests.link();
        // SAFETY: the list lies in `requests`.
        while let Some(wr) = unsafe { next.as_ref() } {
            let first = if wr.num_sge > 0 {
                // SAFETY: the entry lies in `requests`.
                let sge = unsafe { *wr.sg_list };
                // SAFETY: what is inline lies in `requests`, too.
                let inline = (wr.send_flags & IBV_SEND_INLINE != 0)
                    .then(|| unsafe { slice::from_raw_parts(sge.addr as *const u8, 3) }.to_vec());
                Some((sge.length, inline))
            } else {
                None
            };
            found.push((wr.wr_id, wr.num_sge, first));
            next = wr.next;
        }
        assert_eq!(
            found,
            [
                (0, 2, Some((8, None))),
                (1, 1, Some((3, Some(vec![1, 2, 3])))),
                (2, 0, None)
            ]
        );
    }

    #[test]
    fn types_have_the_operations_of_their_transport() {
        let send = 1 << IBV_WR_SEND;
        let read = 1 << IBV_WR_RDMA_READ;
        let write = 1 << IBV_WR_RDMA_WRITE;
        for (qp_type, operations, expected) in [
            (IBV_QPT_RC, send | read | write, true),
            (IBV_QPT_UC, send | write, true),
            (IBV_QPT_UC, read, false),
            (IBV_QPT_UD, send, true),
            (IBV_QPT_UD, write, false),
            (IBV_QPT_RC, 1 << IBV_WR_BIND_MW, true),
            (IBV_QPT_UC, 1 << IBV_WR_LOCAL_INV, false),
            (IBV_QPT_RC, 1 << 10, false),
        ] {
            let found = has_operations(qp_type, operations);
            assert_eq!(found, expected, "{qp_type} {operations:#x}");
        }
    }
}
