//! The data path of send queues: `ibv_post_send`.

// UNSAFETY: raw pointers of C, and queues behind their locks.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::{self, ManuallyDrop};
use std::slice;

use bareverbs_node::verbs::qp::send::Batch;
use bareverbs_node::verbs::qp::{Inline, Payload, RouteOf};
use bareverbs_node::verbs::{
    AddressHandle, Destination, PostError, QpType, Qpn, RKey, Rc, Remote, SendData, SendFlags,
    SendOp, SendQueue, SendWr, Sge, Srqn, Uc, Ud, XrcSend, qp::RawPacket,
};

use crate::abi::numbers::*;
use crate::abi::objects::ibv_qp;
use crate::abi::requests::ibv_send_wr;
use crate::data::lists::{sges, stopped};
use crate::process::data_lock::DataGuard;
use crate::process::failure::{Errno, Result, as_errno};
use crate::process::hca::P;
use crate::verbs::ah::AhObject;
use crate::verbs::mw;
use crate::verbs::qp::{PostSend, QpObject, SendHalf};

/// Inline bytes that are gathered from several places at once; the device's WQEs have fewer.
const INLINE: usize = 1024;

/// A work request's operation in the driver's words. The queue refuses those that its type does not have.
///
/// # Safety
/// The request is one of the headers', with the part of the union that its opcode and the QP's type say.
unsafe fn operation(wr: &ibv_send_wr) -> Result<SendOp<'static>> {
    // SAFETY: the caller promises that the request is one of the headers', with the part of the union that its opcode and the
    // QP's type say.
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

/// The address handle behind one of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
pub(crate) unsafe fn handle<'a>(ah: *mut crate::abi::objects::ibv_ah) -> Result<&'a AddressHandle> {
    // SAFETY: the caller's promise: it is the first field of an `AhObject`.
    let object = unsafe { ah.cast::<AhObject>().as_ref() }.ok_or(Errno::EINVAL)?;
    Ok(&object.handle)
}

/// The types of QPs that have a send queue.
pub(crate) trait Sends: QpType + Sized {
    /// The part of a request that names its receiver.
    type Route<'a>: RouteOf<Self>;

    /// That of a request.
    ///
    /// # Safety
    /// As [`operation`].
    unsafe fn route(wr: &ibv_send_wr) -> Result<Self::Route<'_>>;

    /// Posts a request of any kind.
    ///
    /// # Safety
    /// As [`operation`].
    unsafe fn push_any(
        batch: &mut Batch<'_, 'static, P, Self>,
        wr: &ibv_send_wr,
        request: &SendWr<'_>,
    ) -> Result<()> {
        // SAFETY: the caller promises the same as for `operation`.
        let route = unsafe { Self::route(wr) }?;
        Ok(batch.push_to(route, request)?)
    }

    /// Posts a request that opens or closes a memory window.
    ///
    /// # Safety
    /// As [`operation`].
    unsafe fn push_window(_: &mut Batch<'_, 'static, P, Self>, _: &ibv_send_wr) -> Result<()> {
        Err(Errno::EINVAL)
    }
}

/// The driver's flags of a request. That for inline data is not among them.
#[inline(always)]
fn flags(wr: &ibv_send_wr) -> SendFlags {
    SendFlags::from_bits_truncate(wr.send_flags)
}

/// The peer's memory of a request for RDMA.
///
/// # Safety
/// The request is one.
#[inline(always)]
unsafe fn remote(wr: &ibv_send_wr) -> Remote {
    // SAFETY: the caller promises that the request is one.
    let rdma = unsafe { wr.wr.rdma };
    Remote {
        addr: rdma.remote_addr,
        rkey: RKey(rdma.rkey),
    }
}

/// Posts a request of one of the usual kinds, straight from C's structure. Returns `false` if it is none of them, or is refused;
/// then nothing is posted.
///
/// # Safety
/// As [`operation`].
#[inline(always)]
unsafe fn push_usual<T: Sends, D: Payload>(
    batch: &mut Batch<'_, 'static, P, T>,
    wr: &ibv_send_wr,
    data: D,
) -> bool {
    let (flags, immediate) = (flags(wr), u32::from_be(wr.imm_data));
    // SAFETY: the caller promises the same as for `operation`.
    let (remote, Ok(route)) = (|| unsafe { remote(wr) }, unsafe { T::route(wr) }) else {
        return false;
    };
    match wr.opcode {
        IBV_WR_SEND => batch.push_usual(wr.wr_id, flags, SendOp::Send, route, data),
        IBV_WR_SEND_WITH_IMM => {
            batch.push_usual(wr.wr_id, flags, SendOp::SendImm(immediate), route, data)
        }
        IBV_WR_RDMA_WRITE if T::CONNECTED => {
            batch.push_usual(wr.wr_id, flags, SendOp::Write(remote()), route, data)
        }
        IBV_WR_RDMA_WRITE_WITH_IMM if T::CONNECTED => batch.push_usual(
            wr.wr_id,
            flags,
            SendOp::WriteImm(remote(), immediate),
            route,
            data,
        ),
        IBV_WR_RDMA_READ if T::RELIABLE && !D::INLINE => {
            batch.push_usual(wr.wr_id, flags, SendOp::Read(remote()), route, data)
        }
        _ => false,
    }
}

impl Sends for Rc {
    type Route<'a> = ();

    unsafe fn route(_: &ibv_send_wr) -> Result<()> {
        Ok(())
    }

    unsafe fn push_window(batch: &mut Batch<'_, 'static, P, Self>, wr: &ibv_send_wr) -> Result<()> {
        if wr.opcode == IBV_WR_LOCAL_INV {
            return Ok(batch.local_inv(wr.wr_id, flags(wr), RKey(wr.imm_data))?);
        }
        let bind_mw = &wr.bind_mw;
        // SAFETY: the caller promises that the request has the part of the union that its opcode and the QP's type say.
        let bind = unsafe { mw::bind(bind_mw.mw, bind_mw.rkey, &bind_mw.bind_info) }?;
        Ok(batch.bind_mw(wr.wr_id, flags(wr), &bind)?)
    }
}

impl Sends for Uc {
    type Route<'a> = ();

    unsafe fn route(_: &ibv_send_wr) -> Result<()> {
        Ok(())
    }
}

impl Sends for Ud {
    type Route<'a> = Destination<'a>;

    #[inline(always)]
    unsafe fn route(wr: &ibv_send_wr) -> Result<Destination<'_>> {
        // Of any other operation, which is refused, the union has no address handle.
        if !matches!(wr.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises that the request is one of a UD QP, whose address handle was created here.
        let ud = unsafe { wr.wr.ud };
        Ok(Destination {
            // SAFETY: the same.
            ah: unsafe { handle(ud.ah) }?,
            remote_qpn: Qpn::from_low_bits(ud.remote_qpn),
            remote_qkey: ud.remote_qkey,
        })
    }
}

impl Sends for XrcSend {
    type Route<'a> = Srqn;

    #[inline(always)]
    unsafe fn route(wr: &ibv_send_wr) -> Result<Srqn> {
        Ok(Srqn::from_low_bits(wr.qp_type))
    }
}

impl Sends for RawPacket {
    type Route<'a> = ();

    unsafe fn route(_: &ibv_send_wr) -> Result<()> {
        Ok(())
    }

    unsafe fn push_any(
        batch: &mut Batch<'_, 'static, P, Self>,
        wr: &ibv_send_wr,
        request: &SendWr<'_>,
    ) -> Result<()> {
        match (batch.push(request), request.data) {
            // Some cards want the headers in the request. The program has them where its entries say, as the addresses of
            // its regions are its own.
            (Err(PostError::HeadersNotInline { needed }), SendData::Sges(list)) => {
                // SAFETY: C's promise: what the entries name can be read.
                let (headers, rest) = unsafe { take_headers(list, needed.into()) };
                let rest = SendData::Sges(&rest);
                Ok(batch.send_packet_with(wr.wr_id, request.flags, &headers, rest)?)
            }
            (posted, _) => Ok(posted?),
        }
    }
}

/// Divides a frame: its first bytes, and entries for the rest.
///
/// # Safety
/// What the entries name can be read.
unsafe fn take_headers(list: &[Sge], needed: usize) -> (Vec<u8>, Vec<Sge>) {
    let (mut headers, mut rest) = (Vec::with_capacity(needed), Vec::new());
    for sge in list {
        let length = sge.length.min((needed - headers.len()) as u32);
        let start = Sge { length, ..*sge };
        // SAFETY: the caller promises that what the entries name can be read.
        headers.extend_from_slice(unsafe { bytes(&start) });
        if length < sge.length {
            rest.push(Sge::new(
                sge.addr + u64::from(length),
                sge.length - length,
                sge.lkey,
            ));
        }
    }
    (headers, rest)
}

/// Posts a request with one entry, straight from C's structure, if it is one of the usual kinds: returns `true` then.
///
/// # Safety
/// As [`operation`]; what is inline can be read.
#[inline(always)]
unsafe fn push_one<T: Sends>(batch: &mut Batch<'_, 'static, P, T>, wr: &ibv_send_wr) -> bool {
    if wr.num_sge != 1 || wr.send_flags & IBV_SEND_IP_CSUM != 0 && !T::PACKET {
        return false;
    }
    // SAFETY: the caller's promise; `ibv_sge` and `Sge` lie in memory in the same way.
    unsafe {
        let Some(&sge) = wr.sg_list.cast::<Sge>().as_ref() else {
            return false;
        };
        if wr.send_flags & IBV_SEND_INLINE == 0 {
            push_usual(batch, wr, sge)
        } else {
            push_usual(batch, wr, Inline(bytes(&sge)))
        }
    }
}

/// The bytes of an entry whose data is inline.
///
/// # Safety
/// They can be read, and nothing changes them for as long as the result is used.
#[inline(always)]
unsafe fn bytes<'a>(sge: &Sge) -> &'a [u8] {
    match sge.length {
        0 => &[],
        // SAFETY: the caller promises that they can be read, and nothing changes them for as long as the result is used.
        length => unsafe { slice::from_raw_parts(sge.addr as *const u8, length as usize) },
    }
}

/// Makes a request of C's one of the driver's, and posts it.
///
/// # Safety
/// As [`push_one`].
unsafe fn with_data<T: QpType>(
    wr: &ibv_send_wr,
    post: impl FnOnce(&SendWr<'_>) -> Result<()>,
) -> Result<()> {
    if wr.send_flags & IBV_SEND_IP_CSUM != 0 && !T::PACKET {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises the same as for `push_one`.
    let (op, list) = unsafe { (operation(wr)?, sges(wr.sg_list, wr.num_sge)?) };
    let request = |data| SendWr {
        wr_id: wr.wr_id,
        op,
        flags: flags(wr),
        data,
    };
    if wr.send_flags & IBV_SEND_INLINE == 0 {
        return post(&request(SendData::Sges(list)));
    }
    if let [only] = list {
        // SAFETY: the caller promises the same as for `push_one`.
        return post(&request(SendData::Inline(unsafe { bytes(only) })));
    }
    let mut gathered = [0; INLINE];
    let mut length = 0;
    for sge in list {
        // SAFETY: the caller promises the same as for `push_one`.
        let bytes = unsafe { bytes(sge) };
        let to = gathered
            .get_mut(length..length + bytes.len())
            .ok_or(Errno::EINVAL)?;
        to.copy_from_slice(bytes);
        length += bytes.len();
    }
    post(&request(SendData::Inline(&gathered[..length])))
}

/// That of a type of QPs.
pub(crate) fn of_type(qp_type: c_int) -> PostSend {
    match qp_type {
        IBV_QPT_RC => send::<Rc>,
        IBV_QPT_UC => send::<Uc>,
        IBV_QPT_UD => send::<Ud>,
        IBV_QPT_XRC_SEND => send::<XrcSend>,
        IBV_QPT_RAW_PACKET => send::<RawPacket>,
        _ => no_send,
    }
}

/// That of a type that has no send queue.
///
/// # Safety
/// As [`post_send`].
unsafe extern "C" fn no_send(
    _: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller promises the same as for `post_send`.
    unsafe { stopped(Errno::EINVAL, wr, bad) }.0
}

/// Posts a list to the send queue of a QP of one type, and says where it stopped.
///
/// # Safety
/// As [`post_send`], of a QP of this type.
unsafe extern "C" fn send<T: Sends>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    let object = unsafe { &*qp.cast::<QpObject>() };
    // Each call of another function is the last thing that is done, so that no register has to be saved for it.
    match object.send.try_lock() {
        // SAFETY: the caller promises the same as for `post_send`, of a QP of this type.
        Some(half) => unsafe { send_usual::<T>(qp, half, wr, bad) },
        // SAFETY: the same.
        None => unsafe { send_later::<T>(qp, wr, bad) },
    }
}

/// The same where another thread has the queue.
///
/// # Safety
/// As [`send`].
#[cold]
#[inline(never)]
unsafe extern "C" fn send_later<T: Sends>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller promises the same as for `send`.
    unsafe {
        let half = (*qp.cast::<QpObject>()).send.lock();
        send_usual::<T>(qp, half, wr, bad)
    }
}

/// Posts a request that is alone and of one of the usual kinds, in a straight line.
///
/// # Safety
/// As [`send`].
#[inline(always)]
unsafe fn send_usual<T: Sends>(
    qp: *mut ibv_qp,
    half: DataGuard<'_, SendHalf>,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller promises the same as for `send`.
    let only = unsafe { wr.as_ref() }.filter(|request| request.next.is_null());
    let (Some(queue), Some(request)) = (*half, only) else {
        mem::forget(half);
        // SAFETY: the caller's promise, and the lock is held.
        return unsafe { send_list::<T>(qp, wr, bad) };
    };
    // SAFETY: it points into the QP, which is of this type; with the lock held there is no other reference.
    let queue = unsafe { queue.cast::<SendQueue<'static, P, T>>().as_mut() };
    // Nothing takes the batch by reference, not even what drops it, so that it is in registers.
    let mut batch = ManuallyDrop::new(queue.batch());
    // SAFETY: the caller promises the same as for `send`.
    if !unsafe { push_one(&mut batch, request) } {
        mem::forget(half);
        // SAFETY: the same, and the lock is held.
        return unsafe { send_rest::<T>(qp, wr, bad) };
    }
    batch.ring();
    0
}

/// Posts the first requests of a list that are of the usual kinds, and gives the lock back.
///
/// # Safety
/// As [`send`]. The calling thread holds the lock of the send queue.
#[inline(never)]
unsafe extern "C" fn send_list<T: Sends>(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    let half = unsafe { (*qp.cast::<QpObject>()).send.taken() };
    let Some(queue) = *half else {
        drop(half);
        // SAFETY: the caller promises the same as for `send`.
        return unsafe { send_closed::<T>(qp, wr, bad) };
    };
    // SAFETY: it points into the QP, which is of this type; with the lock held there is no other reference.
    let queue = unsafe { queue.cast::<SendQueue<'static, P, T>>().as_mut() };
    // As above.
    let mut batch = ManuallyDrop::new(queue.batch());
    // SAFETY: the caller's promise, for the list and for each request.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: the same.
        if !unsafe { push_one(&mut batch, request) } {
            batch.ring();
            mem::forget(half);
            // SAFETY: the same, and the lock is held.
            return unsafe { send_rest::<T>(qp, wr, bad) };
        }
        wr = request.next;
    }
    batch.ring();
    0
}

/// Posts a list to a QP without a send queue, which may have one once the connection manager has moved it.
///
/// # Safety
/// As [`send`].
#[cold]
#[inline(never)]
unsafe extern "C" fn send_closed<T: Sends>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller's promise: it is the first field of a `QpObject`.
        let later = unsafe { (*qp.cast::<QpObject>()).send_later() };
        // SAFETY: the caller promises the same as for `send`.
        let half = later.map_err(|errno| unsafe { stopped(errno, wr, bad) })?;
        let queue = half.ok_or(Errno::EINVAL)?;
        // SAFETY: it points into the QP, which is of this type; with the lock held there is no other reference.
        let queue = unsafe { queue.cast::<SendQueue<'static, P, T>>().as_mut() };
        // SAFETY: the caller promises the same as for `send`. The calling thread holds the lock of the send queue.
        unsafe { send_any(queue, wr, bad) }
    })
}

/// Posts the rest of a list, whose first request is not one of the usual kinds, and gives the lock back.
///
/// # Safety
/// As [`send`]. The calling thread holds the lock of the send queue.
#[cold]
#[inline(never)]
unsafe extern "C" fn send_rest<T: Sends>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller's promise: it is the first field of a `QpObject`.
        let half = unsafe { (*qp.cast::<QpObject>()).send.taken() };
        let queue = half.ok_or(Errno::EINVAL)?;
        // SAFETY: it points into the QP, which is of this type; with the lock held there is no other reference.
        let queue = unsafe { queue.cast::<SendQueue<'static, P, T>>().as_mut() };
        // SAFETY: the caller promises the same as for `send`. The calling thread holds the lock of the send queue.
        unsafe { send_any(queue, wr, bad) }
    })
}

/// Posts a list of requests of any kind.
///
/// # Safety
/// The list is one of the headers', with objects that were created here; `bad` is NULL or can be written.
unsafe fn send_any<T: Sends>(
    queue: &mut SendQueue<'static, P, T>,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> Result<()> {
    let mut batch = queue.batch();
    // SAFETY: the caller promises that the list is one of the headers', with objects that were created here; `bad` is NULL or
    // can be written.
    while let Some(request) = unsafe { wr.as_ref() } {
        if matches!(request.opcode, IBV_WR_BIND_MW | IBV_WR_LOCAL_INV) {
            // SAFETY: the caller promises that the list is one of the headers', with objects that were created here; `bad` is
            // NULL or can be written.
            unsafe {
                if let Err(errno) = T::push_window(&mut batch, request) {
                    return Err(stopped(errno, wr, bad));
                }
            }
            wr = request.next;
            continue;
        }
        // SAFETY: the same.
        let push = |converted: &SendWr<'_>| unsafe { T::push_any(&mut batch, request, converted) };
        // SAFETY: the caller promises that the list is one of the headers', with objects that were created here; `bad` is NULL
        // or can be written.
        unsafe {
            if let Err(errno) = with_data::<T>(request, push) {
                return Err(stopped(errno, wr, bad));
            }
        }
        wr = request.next;
    }
    Ok(())
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
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    unsafe {
        let post_send = (*qp.cast::<QpObject>()).post_send;
        post_send(qp, wr, bad_wr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_node::verbs::LKey;

    #[test]
    fn headers_of_a_frame_in_pieces() {
        let frame: Vec<u8> = (0..60).collect();
        let key = LKey(7);
        for cuts in [[0, 60], [3, 40], [14, 14], [18, 60], [20, 20]] {
            let pieces = [0..cuts[0], cuts[0]..cuts[1], cuts[1]..60];
            let list = pieces.map(|piece| {
                let bytes = &frame[piece];
                Sge::new(
                    bytes.as_ptr().expose_provenance() as u64,
                    bytes.len() as u32,
                    key,
                )
            });
            for needed in [0, 14, 18, 60, 138] {
                // SAFETY: the entries name parts of the frame.
                let (headers, rest) = unsafe { take_headers(&list, needed) };
                assert_eq!(headers, frame[..needed.min(60)], "{cuts:?}");
                // SAFETY: the same.
                let rest = rest.iter().flat_map(|sge| unsafe { bytes(sge) });
                assert_eq!(
                    Vec::from_iter(rest),
                    Vec::from_iter(&frame[needed.min(60)..])
                );
            }
        }
    }
}
