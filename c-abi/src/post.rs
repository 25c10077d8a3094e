//! The data path of QPs: `ibv_post_send` and `ibv_post_recv`.

// UNSAFETY: raw pointers of C, and queues behind their locks.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::slice;

use bareverbs_node::verbs::qp::send::Batch;
use bareverbs_node::verbs::{
    AddressHandle, Destination, QpType, Qpn, RKey, Rc, Remote, SendData, SendFlags, SendOp,
    SendQueue, SendWr, Sge, Srqn, Uc, Ud, XrcSend,
};

use crate::abi::numbers::*;
use crate::abi::objects::ibv_qp;
use crate::abi::requests::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use crate::ah::AhObject;
use crate::failure::{Errno, Result, as_errno, lock};
use crate::hca::P;
use crate::qp::{QpObject, SendHalf, qp};

/// Inline bytes that are gathered from several places at once; the device's WQEs have fewer.
const INLINE: usize = 1024;

const _: () = {
    // `sges` lends entries of C as the driver's.
    assert!(size_of::<ibv_sge>() == size_of::<Sge>());
    assert!(align_of::<ibv_sge>() == align_of::<Sge>());
    assert!(std::mem::offset_of!(ibv_sge, length) == std::mem::offset_of!(Sge, length));
    assert!(std::mem::offset_of!(ibv_sge, lkey) == std::mem::offset_of!(Sge, lkey));
};

/// A list of scatter/gather entries.
///
/// # Safety
/// The list has as many entries as it says.
#[inline]
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge]> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    let list = NonNull::new(list.cast_mut()).ok_or(Errno::EINVAL)?;
    // SAFETY: the caller's promise; both structures lie in memory in the same way.
    Ok(unsafe { slice::from_raw_parts(list.cast::<Sge>().as_ptr(), count) })
}

/// A work request in the driver's words, but for the data.
///
/// # Safety
/// The request is one of the headers', with the part of the union that its opcode and the QP's type say.
unsafe fn operation<'a, T: QpType>(wr: &'a ibv_send_wr) -> Result<SendOp<'a>> {
    // SAFETY: the caller's promise.
    unsafe {
        let remote = || Remote {
            addr: wr.wr.rdma.remote_addr,
            rkey: RKey(wr.wr.rdma.rkey),
        };
        let at = || Remote {
            addr: wr.wr.atomic.remote_addr,
            rkey: RKey(wr.wr.atomic.rkey),
        };
        let immediate = u32::from_be(wr.imm_data);
        Ok(match wr.opcode {
            IBV_WR_SEND if !T::CONNECTED => SendOp::SendTo(destination(wr)?),
            IBV_WR_SEND_WITH_IMM if !T::CONNECTED => SendOp::SendToImm(destination(wr)?, immediate),
            IBV_WR_SEND => SendOp::Send,
            IBV_WR_SEND_WITH_IMM => SendOp::SendImm(immediate),
            IBV_WR_SEND_WITH_INV => SendOp::SendInv(RKey(wr.imm_data)),
            IBV_WR_RDMA_WRITE => SendOp::Write(remote()),
            IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm(remote(), immediate),
            IBV_WR_RDMA_READ => SendOp::Read(remote()),
            IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
                remote: at(),
                compare: wr.wr.atomic.compare_add,
                swap: wr.wr.atomic.swap,
            },
            IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
                remote: at(),
                add: wr.wr.atomic.compare_add,
            },
            _ => return Err(Errno::EINVAL),
        })
    }
}

/// Where a datagram goes.
///
/// # Safety
/// The request is one for datagrams.
unsafe fn destination(wr: &ibv_send_wr) -> Result<Destination<'_>> {
    // SAFETY: the caller's promise: the handle was created here.
    unsafe {
        let ud = wr.wr.ud;
        Ok(Destination {
            ah: handle(ud.ah)?,
            remote_qpn: Qpn::from_low_bits(ud.remote_qpn),
            remote_qkey: ud.remote_qkey,
        })
    }
}

/// The address handle behind one of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
pub(crate) unsafe fn handle<'a>(ah: *mut crate::abi::objects::ibv_ah) -> Result<&'a AddressHandle> {
    // SAFETY: the caller's promise: it is the first field of an `AhObject`.
    let object = unsafe { ah.cast::<AhObject>().as_ref() }.ok_or(Errno::EINVAL)?;
    Ok(&object.handle)
}

/// Posts one request.
///
/// # Safety
/// As [`operation`]; what is inline can be read.
unsafe fn push<T: QpType>(
    wr: &ibv_send_wr,
    post: impl FnOnce(&SendWr<'_>) -> std::result::Result<(), bareverbs_node::verbs::PostError>,
) -> Result<()> {
    if wr.send_flags & IBV_SEND_IP_CSUM != 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (op, list) = unsafe { (operation::<T>(wr)?, sges(wr.sg_list, wr.num_sge)?) };
    let flags = SendFlags::from_bits_truncate(wr.send_flags as u8);
    let request = |data| SendWr {
        wr_id: wr.wr_id,
        op,
        flags,
        data,
    };
    if wr.send_flags & IBV_SEND_INLINE == 0 {
        return Ok(post(&request(SendData::Sges(list)))?);
    }
    // SAFETY: the caller's promise: the bytes can be read, and nothing changes them during the call.
    let bytes = |sge: &Sge| unsafe {
        match sge.length {
            0 => &[][..],
            length => slice::from_raw_parts(sge.addr as *const u8, length as usize),
        }
    };
    if let [only] = list {
        return Ok(post(&request(SendData::Inline(bytes(only))))?);
    }
    let mut gathered = [0; INLINE];
    let mut length = 0;
    for sge in list {
        let bytes = bytes(sge);
        let to = gathered
            .get_mut(length..length + bytes.len())
            .ok_or(Errno::EINVAL)?;
        to.copy_from_slice(bytes);
        length += bytes.len();
    }
    Ok(post(&request(SendData::Inline(&gathered[..length])))?)
}

/// Posts a list, and says where it stopped.
///
/// # Safety
/// The list is one of the headers'.
unsafe fn list(
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    mut post: impl FnMut(&ibv_send_wr) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    while let Some(request) = unsafe { wr.as_ref() } {
        if let Err(errno) = post(request) {
            // SAFETY: the caller's promise.
            if let Some(bad) = unsafe { bad.as_mut() } {
                *bad = wr;
            }
            return Err(errno);
        }
        wr = request.next;
    }
    Ok(())
}

/// Posts a list to the send queue of a QP of one type, all of it or nothing if its length is given.
///
/// # Safety
/// As [`list`]; the queue's lock is held.
unsafe fn send<T: QpType>(
    mut queue: NonNull<SendQueue<'static, P, T>>,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    whole: Option<usize>,
    push: impl Fn(&mut Batch<'_, '_, P, T>, &ibv_send_wr) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller's promise: it points into the QP, and no other reference does.
    let queue = unsafe { queue.as_mut() };
    if whole.is_some_and(|count| count > queue.free() as usize) {
        return Err(Errno::ENOMEM);
    }
    let mut batch = queue.batch();
    // SAFETY: the caller's promise.
    unsafe { list(wr, bad, |wr| push(&mut batch, wr)) }
}

/// Posts a list to the send queue, all of it or nothing if its length is given.
///
/// # Safety
/// The list is one of the headers', with objects that were created here; `bad` is NULL or can be written.
#[inline]
unsafe fn send_list(
    object: &QpObject,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    whole: Option<usize>,
) -> Result<()> {
    let half = lock(&object.send);
    // SAFETY: the caller's promise, and the lock is held.
    unsafe {
        match *half {
            SendHalf::Rc(queue) => send(queue, wr, bad, whole, |batch, wr| {
                push::<Rc>(wr, |wr| batch.push(wr))
            }),
            SendHalf::Uc(queue) => send(queue, wr, bad, whole, |batch, wr| {
                push::<Uc>(wr, |wr| batch.push(wr))
            }),
            SendHalf::Ud(queue) => send(queue, wr, bad, whole, |batch, wr| {
                push::<Ud>(wr, |wr| batch.push(wr))
            }),
            SendHalf::XrcSend(queue) => send(queue, wr, bad, whole, |batch, wr| {
                let srqn = Srqn::from_low_bits(wr.qp_type);
                push::<XrcSend>(wr, |wr| batch.push_xrc(srqn, wr))
            }),
            SendHalf::None => Err(Errno::EINVAL),
        }
    }
}

/// Posts a list of so many requests to the send queue, or nothing if there is no room for all.
///
/// # Safety
/// The list is one of the headers', with objects that were created here.
pub(crate) unsafe fn send_all(object: &QpObject, wr: *mut ibv_send_wr, count: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { send_list(object, wr, std::ptr::null_mut(), Some(count)) }
}

/// Posts a list of requests to the send queue: `ibv_post_send`.
///
/// # Safety
/// The QP was created here; the list is one of the headers', with objects that were created here; `bad_wr` can be written.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    as_errno(|| unsafe { send_list(self::qp(qp)?, wr, bad_wr, None) })
}

/// Posts a list of receives, and says where it stopped.
///
/// # Safety
/// The list is one of the headers'; `bad` is NULL or can be written.
pub(crate) unsafe fn receives(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(u64, &[Sge]) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: the caller's promise.
        let list = unsafe { sges(request.sg_list, request.num_sge) };
        if let Err(errno) = list.and_then(|list| post(request.wr_id, list)) {
            // SAFETY: the caller's promise.
            if let Some(bad) = unsafe { bad.as_mut() } {
                *bad = wr;
            }
            return Err(errno);
        }
        wr = request.next;
    }
    Ok(())
}

/// Posts a list of requests to the receive queue: `ibv_post_recv`.
///
/// # Safety
/// The QP was created here; the list is one of the headers'; `bad_wr` can be written.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller's promise.
        let object = unsafe { self::qp(qp) }?;
        let half = lock(&object.recv);
        let mut queue = half.ok_or(Errno::EINVAL)?;
        // SAFETY: it points into the QP, and the lock is held.
        let mut batch = unsafe { queue.as_mut() }.batch();
        // SAFETY: the caller's promise.
        unsafe { receives(wr, bad_wr, |wr_id, list| Ok(batch.post(wr_id, list)?)) }
    })
}
