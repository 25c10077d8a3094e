//! Posting by function calls: `ibv_wr_start`, an operation with its data for each request, `ibv_wr_complete`.
//!
//! The lock of the send queue is held from the first call to the last one, and each call writes into the ring
//! (`OpenBatch`), whose requests the device sees at the end. The functions are made for each type of QPs: the program calls
//! them through its QP.

// UNSAFETY: raw pointers of C, and a lock that is held between two calls.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::slice;

use bareverbs_node::verbs::{
    Destination, LKey, MwBind, PostError, Qpn, RKey, Rc, Remote, SendFlags, SendOp, SendQueue, Sge,
    Srqn, Uc, Ud, XrcSend, qp::RawPacket,
};

use crate::abi::numbers::*;
use crate::abi::objects::{ibv_ah, ibv_mw};
use crate::abi::requests::*;
use crate::data::lists;
use crate::data::opened::{Open, Opened};
use crate::data::post::{self, Sends};
use crate::process::data_lock::DataGuard;
use crate::process::failure::{Errno, as_errno, guarded};
use crate::process::hca::P;
use crate::verbs::mw;
use crate::verbs::qp::{QpObject, SendHalf};

/// Returns `true` if a type of QP can send these operations: bits of `enum ibv_qp_create_send_ops_flags`.
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
        IBV_QPT_RAW_PACKET => 1 << IBV_WR_SEND,
        _ => 0,
    };
    operations & !possible == 0
}

/// The types of QPs that have these functions.
trait Opens: Sends {
    /// The requests of a QP of this type.
    ///
    /// # Safety
    /// The QP is of this type.
    unsafe fn opened(opened: &mut Opened) -> &mut Option<Open<Self>>;

    /// Says where the request at hand goes, if it is a datagram.
    fn set_destination(open: &mut Open<Self>, _: Destination<'_>) {
        open.fail(PostError::Unsupported);
    }

    /// Says for which SRQ the request at hand is, if it is one of XRC.
    fn set_srqn(open: &mut Open<Self>, _: Srqn) {
        open.fail(PostError::Unsupported);
    }

    /// Opens a memory window.
    fn bind(open: &mut Open<Self>, _: u64, _: SendFlags, _: &MwBind) {
        open.fail(PostError::Unsupported);
    }

    /// Closes a memory window.
    fn unbind(open: &mut Open<Self>, _: u64, _: SendFlags, _: RKey) {
        open.fail(PostError::Unsupported);
    }
}

impl Opens for Rc {
    #[inline(always)]
    unsafe fn opened(opened: &mut Opened) -> &mut Option<Open<Self>> {
        // SAFETY: the caller's promise: a QP of this type has this field.
        unsafe { &mut opened.rc }
    }

    fn bind(open: &mut Open<Self>, wr_id: u64, flags: SendFlags, bind: &MwBind) {
        open.bind_mw(wr_id, flags, bind);
    }

    fn unbind(open: &mut Open<Self>, wr_id: u64, flags: SendFlags, rkey: RKey) {
        open.local_inv(wr_id, flags, rkey);
    }
}

impl Opens for Uc {
    #[inline(always)]
    unsafe fn opened(opened: &mut Opened) -> &mut Option<Open<Self>> {
        // SAFETY: the caller's promise: a QP of this type has this field.
        unsafe { &mut opened.uc }
    }
}

impl Opens for Ud {
    #[inline(always)]
    unsafe fn opened(opened: &mut Opened) -> &mut Option<Open<Self>> {
        // SAFETY: the caller's promise: a QP of this type has this field.
        unsafe { &mut opened.ud }
    }

    #[inline(always)]
    fn set_destination(open: &mut Open<Self>, to: Destination<'_>) {
        open.set_ud_addr(to);
    }
}

impl Opens for XrcSend {
    #[inline(always)]
    unsafe fn opened(opened: &mut Opened) -> &mut Option<Open<Self>> {
        // SAFETY: the caller's promise: a QP of this type has this field.
        unsafe { &mut opened.xrc }
    }

    #[inline(always)]
    fn set_srqn(open: &mut Open<Self>, srqn: Srqn) {
        open.set_xrc_srqn(srqn);
    }
}

impl Opens for RawPacket {
    #[inline(always)]
    unsafe fn opened(opened: &mut Opened) -> &mut Option<Open<Self>> {
        // SAFETY: the caller's promise: a QP of this type has this field.
        unsafe { &mut opened.raw }
    }
}

/// Sets the functions of a QP that is created for `ibv_wr_*`.
pub(crate) fn offer(ex: &mut ibv_qp_ex) {
    match ex.qp_base.qp_type {
        IBV_QPT_RC => offer_to::<Rc>(ex),
        IBV_QPT_UC => offer_to::<Uc>(ex),
        IBV_QPT_UD => offer_to::<Ud>(ex),
        IBV_QPT_XRC_SEND => offer_to::<XrcSend>(ex),
        IBV_QPT_RAW_PACKET => offer_to::<RawPacket>(ex),
        _ => {}
    }
}

fn offer_to<T: Opens>(ex: &mut ibv_qp_ex) {
    ex.wr_start = Some(start::<T>);
    ex.wr_complete = Some(complete::<T>);
    ex.wr_abort = Some(abort::<T>);
    ex.wr_send = Some(send::<T>);
    ex.wr_send_imm = Some(send_imm::<T>);
    ex.wr_send_inv = Some(send_inv::<T>);
    ex.wr_rdma_write = Some(rdma_write::<T>);
    ex.wr_rdma_write_imm = Some(rdma_write_imm::<T>);
    ex.wr_rdma_read = Some(rdma_read::<T>);
    ex.wr_atomic_cmp_swp = Some(atomic_cmp_swp::<T>);
    ex.wr_atomic_fetch_add = Some(atomic_fetch_add::<T>);
    ex.wr_bind_mw = Some(bind_mw::<T>);
    ex.wr_local_inv = Some(local_inv::<T>);
    ex.wr_set_sge = Some(set_sge::<T>);
    ex.wr_set_sge_list = Some(set_sge_list::<T>);
    ex.wr_set_inline_data = Some(set_inline_data::<T>);
    ex.wr_set_inline_data_list = Some(set_inline_data_list::<T>);
    ex.wr_set_ud_addr = Some(set_ud_addr::<T>);
    ex.wr_set_xrc_srqn = Some(set_xrc_srqn::<T>);
}

/// The QP behind one of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
#[inline(always)]
unsafe fn object<'a>(qp: *mut ibv_qp_ex) -> &'a QpObject {
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    unsafe { &*qp.cast::<QpObject>() }
}

/// The requests that the calling thread builds, `None` before `ibv_wr_start`.
///
/// # Safety
/// The QP was created here and is of this type. After `ibv_wr_start`, no other thread is here while the lock is held.
#[inline(always)]
unsafe fn opened<'a, T: Opens>(qp: *mut ibv_qp_ex) -> &'a mut Option<Open<T>> {
    // SAFETY: the caller promises that the QP was created here and is of this type. After `ibv_wr_start`, no other thread is
    // here while the lock is held.
    unsafe { T::opened(&mut *object(qp).opened.get()) }
}

/// A call without `ibv_wr_start`.
#[cold]
#[inline(never)]
extern "C" fn not_started() -> c_int {
    as_errno(|| {
        log::error!("ibv_wr_*: a call without ibv_wr_start");
        Err(Errno::EINVAL)
    })
}

/// Works on the requests.
///
/// # Safety
/// As [`opened`].
#[inline(always)]
unsafe fn with<T: Opens>(qp: *mut ibv_qp_ex, work: impl FnOnce(&mut Open<T>)) {
    // SAFETY: the caller promises the same as for `opened`.
    match unsafe { opened::<T>(qp) } {
        Some(open) => work(open),
        None => {
            not_started();
        }
    }
}

/// Begins a request, with the identifier and the flags that the program has set.
///
/// # Safety
/// As [`opened`].
#[inline(always)]
unsafe fn begin<T: Opens>(qp: *mut ibv_qp_ex, op: SendOp<'static>) {
    // SAFETY: the caller's promise; the QP's two fields are written by the same thread.
    unsafe {
        let (wr_id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        // No closure: it would be one function for all operations.
        let Some(open) = opened::<T>(qp) else {
            not_started();
            return;
        };
        if flags & IBV_SEND_IP_CSUM != 0 && !T::PACKET {
            return open.fail(PostError::Unsupported);
        }
        open.push(wr_id, SendFlags::from_bits_truncate(flags), op);
    }
}

unsafe extern "C" fn start<T: Opens>(qp: *mut ibv_qp_ex) {
    // SAFETY: C's promise.
    unsafe {
        match object(qp).send.try_lock() {
            Some(half) => start_with::<T>(qp, half),
            None => start_later::<T>(qp),
        }
    }
}

/// The same where another thread has the queue.
///
/// # Safety
/// As [`opened`].
#[cold]
#[inline(never)]
unsafe extern "C" fn start_later<T: Opens>(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller promises the same as for `opened`.
    unsafe { start_with::<T>(qp, object(qp).send.lock()) };
}

/// # Safety
/// As [`opened`], with the lock held.
#[inline(always)]
unsafe fn start_with<T: Opens>(qp: *mut ibv_qp_ex, half: DataGuard<'_, SendHalf>) {
    let Some(queue) = *half else {
        drop(half);
        // SAFETY: the caller promises the same as for `opened`.
        return unsafe { start_closed::<T>(qp) };
    };
    // SAFETY: it points into the QP, which is of this type. The lock is held until `end`, and meanwhile there is no other
    // reference to the queue. The QP is not destroyed before.
    unsafe {
        let queue: &'static mut SendQueue<'static, P, T> = queue.cast().as_mut();
        // What was there before is none: its lock was given back.
        ptr::write(opened::<T>(qp), Some(queue.open()));
    }
    mem::forget(half);
}

/// Begins requests on a QP without a send queue, which may have one once the connection manager has moved it.
///
/// # Safety
/// As [`opened`].
#[cold]
#[inline(never)]
unsafe extern "C" fn start_closed<T: Opens>(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller promises the same as for `opened`; a half that is handed out has a queue.
    unsafe {
        if let Ok(half) = object(qp).send_later() {
            start_with::<T>(qp, half);
        }
    }
}

/// Ends what `ibv_wr_start` began.
///
/// # Safety
/// As [`opened`], and something is open of which nothing is built.
#[inline(always)]
unsafe fn end<T: Opens>(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise: nothing is lost, and the lock was taken in `start`.
    unsafe {
        ptr::write(opened::<T>(qp), None);
        drop(object(qp).send.taken());
    }
}

unsafe extern "C" fn complete<T: Opens>(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: C's promise: after `ibv_wr_start`, whose lock is held.
    unsafe {
        let Some(open) = opened::<T>(qp) else {
            return not_started();
        };
        if open.refused().is_some() {
            return refuse::<T>(qp);
        }
        let completed = open.complete();
        end::<T>(qp);
        completed.map_or_else(errno, |()| 0)
    }
}

/// Ends what is refused. Returns why.
///
/// # Safety
/// As [`opened`], and something is open.
#[cold]
#[inline(never)]
unsafe extern "C" fn refuse<T: Opens>(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller promises the same as for `opened`, and something is open.
    unsafe {
        let refused = opened::<T>(qp).as_mut().and_then(|open| {
            let why = open.refused();
            open.abort();
            why
        });
        end::<T>(qp);
        refused.map_or(0, errno)
    }
}

/// The errno of a call that failed.
#[cold]
#[inline(never)]
fn errno(error: PostError) -> c_int {
    guarded(|| Ok(Errno::from(error))).unwrap_or(Errno::EIO).0
}

unsafe extern "C" fn abort<T: Opens>(qp: *mut ibv_qp_ex) {
    // SAFETY: C's promise: after `ibv_wr_start`, whose lock is held.
    unsafe {
        let Some(open) = opened::<T>(qp) else {
            not_started();
            return;
        };
        open.abort();
        end::<T>(qp);
    }
}

unsafe extern "C" fn send<T: Opens>(qp: *mut ibv_qp_ex) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, SendOp::Send) };
}

unsafe extern "C" fn send_imm<T: Opens>(qp: *mut ibv_qp_ex, imm_data: u32) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, SendOp::SendImm(u32::from_be(imm_data))) };
}

unsafe extern "C" fn send_inv<T: Opens>(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, SendOp::SendInv(RKey(rkey))) };
}

/// The peer's memory.
#[inline(always)]
const fn remote(rkey: u32, addr: u64) -> Remote {
    Remote {
        addr,
        rkey: RKey(rkey),
    }
}

unsafe extern "C" fn rdma_write<T: Opens>(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, SendOp::Write(remote(rkey, remote_addr))) };
}

unsafe extern "C" fn rdma_write_imm<T: Opens>(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    imm_data: u32,
) {
    let op = SendOp::WriteImm(remote(rkey, remote_addr), u32::from_be(imm_data));
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, op) };
}

unsafe extern "C" fn rdma_read<T: Opens>(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, SendOp::Read(remote(rkey, remote_addr))) };
}

unsafe extern "C" fn atomic_cmp_swp<T: Opens>(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    let op = SendOp::CompareSwap {
        remote: remote(rkey, remote_addr),
        compare,
        swap,
    };
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, op) };
}

unsafe extern "C" fn atomic_fetch_add<T: Opens>(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    add: u64,
) {
    let op = SendOp::FetchAdd {
        remote: remote(rkey, remote_addr),
        add,
    };
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe { begin::<T>(qp, op) };
}

unsafe extern "C" fn bind_mw<T: Opens>(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: C's promise: after `ibv_wr_start`, with a structure of the headers and objects that were created here.
    unsafe {
        let (wr_id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        let bind = guarded(|| mw::bind(mw, rkey, bind_info.as_ref().ok_or(Errno::EINVAL)?));
        with::<T>(qp, |open| match bind {
            Ok(bind) => T::bind(open, wr_id, SendFlags::from_bits_truncate(flags), &bind),
            // The only errno that there is.
            Err(_) => open.fail(PostError::Unsupported),
        });
    }
}

unsafe extern "C" fn local_inv<T: Opens>(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: C's promise: after `ibv_wr_start`.
    unsafe {
        let (wr_id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        let flags = SendFlags::from_bits_truncate(flags);
        with::<T>(qp, |open| T::unbind(open, wr_id, flags, RKey(rkey)));
    }
}

unsafe extern "C" fn set_ud_addr<T: Opens>(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: C's promise: after an operation, with an address handle that was created here.
    unsafe {
        with::<T>(qp, |open| match post::handle(ah) {
            Ok(ah) => {
                let to = Destination {
                    ah,
                    remote_qpn: Qpn::from_low_bits(remote_qpn),
                    remote_qkey,
                };
                T::set_destination(open, to);
            }
            Err(_) => open.fail(PostError::Unsupported),
        });
    }
}

unsafe extern "C" fn set_xrc_srqn<T: Opens>(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: C's promise: after an operation.
    unsafe {
        with::<T>(qp, |open| {
            T::set_srqn(open, Srqn::from_low_bits(remote_srqn))
        })
    };
}

unsafe extern "C" fn set_sge<T: Opens>(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge::new(addr, length, LKey(lkey));
    // SAFETY: C's promise: after an operation.
    unsafe { with::<T>(qp, |open| open.set_sge(sge)) };
}

unsafe extern "C" fn set_sge_list<T: Opens>(
    qp: *mut ibv_qp_ex,
    num_sge: usize,
    list: *const ibv_sge,
) {
    // SAFETY: C's promise: after an operation, with so many entries.
    unsafe {
        let count = c_int::try_from(num_sge).unwrap_or(-1);
        with::<T>(qp, |open| match lists::sges(list, count) {
            Ok(list) => open.set_sge_list(list),
            Err(_) => open.fail(PostError::Unsupported),
        });
    }
}

/// The bytes of a buffer.
///
/// # Safety
/// They can be read, and nothing changes them for as long as the result is used.
#[inline(always)]
unsafe fn bytes<'a>(addr: *mut c_void, length: usize) -> &'a [u8] {
    match length {
        0 => &[],
        // SAFETY: the caller promises that they can be read, and nothing changes them for as long as the result is used.
        _ => unsafe { slice::from_raw_parts(addr.cast::<u8>(), length) },
    }
}

unsafe extern "C" fn set_inline_data<T: Opens>(
    qp: *mut ibv_qp_ex,
    addr: *mut c_void,
    length: usize,
) {
    // SAFETY: C's promise: after an operation, with so many bytes.
    unsafe { with::<T>(qp, |open| open.set_inline_data(bytes(addr, length))) };
}

unsafe extern "C" fn set_inline_data_list<T: Opens>(
    qp: *mut ibv_qp_ex,
    num_buf: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: C's promise: after an operation, with so many buffers of so many bytes.
    unsafe {
        let buffers = match num_buf {
            0 => &[],
            _ => slice::from_raw_parts(list, num_buf),
        };
        let parts = buffers
            .iter()
            .map(|buffer| bytes(buffer.addr, buffer.length));
        with::<T>(qp, |open| open.set_inline_data_list(parts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (IBV_QPT_RAW_PACKET, send, true),
            (IBV_QPT_RAW_PACKET, send | write, false),
            (IBV_QPT_RC, 1 << 10, false),
        ] {
            let found = has_operations(qp_type, operations);
            assert_eq!(found, expected, "{qp_type} {operations:#x}");
        }
    }
}
