//! CQs whose completions are read field by field: `ibv_create_cq_ex`, `ibv_start_poll`, `ibv_wc_read_*`.

// UNSAFETY: raw pointers of C, and a lock that is held between two calls.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::mem::{self, ManuallyDrop};

use bareverbs_node::verbs::cq::{Batch, Unusual};
use bareverbs_node::verbs::{Completion, CompletionKind, Cq, CqInit};

use crate::abi::numbers::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_STANDARD_FLAGS,
};
use crate::abi::objects::{ibv_context, ibv_cq_init_attr_ex};
use crate::abi::requests::{ibv_cq_ex, ibv_poll_cq_attr};
use crate::data::poll;
use crate::process::data_lock::DataGuard;
use crate::process::failure::{Errno, as_errno, as_pointer, guarded};
use crate::process::hca::P;
use crate::verbs::context::context;
use crate::verbs::cq::{self, CqObject};
use crate::verbs::pd::parent;

/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` and `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
const SINGLE_THREADED: u32 = 1 << 0;
const IGNORE_OVERRUN: u32 = 1 << 1;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS` and `IBV_CQ_INIT_ATTR_MASK_PD`.
const MASK_FLAGS: u32 = 1 << 0;
const MASK_PD: u32 = 1 << 1;

/// `ibv_create_cq_ex`, from the table of functions.
///
/// # Safety
/// The context is open, and `attr` is a structure of the headers, whose channel is NULL or was created here; so is a parent domain
/// that it has.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and `attr` is a structure of the headers, whose channel is
        // NULL or was created here.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::EINVAL)?;
        const TIMES: u64 =
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
        const ALWAYS: u64 = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG;
        // SAFETY: the caller promises that the context is open, and `attr` is a structure of the headers, whose channel is
        // NULL or was created here.
        let hca = unsafe { self::context(context) }?.hca;
        let supported = match hca.device.clock_khz() {
            Some(_) => ALWAYS | TIMES,
            None => ALWAYS,
        };
        if attr.comp_mask & !(MASK_FLAGS | MASK_PD) != 0 {
            return Err(Errno::EINVAL);
        }
        if attr.wc_flags & !supported != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let flags = match attr.comp_mask & MASK_FLAGS {
            0 => 0,
            _ => attr.flags,
        };
        if flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 {
            return Err(Errno::EINVAL);
        }
        let domain = match attr.comp_mask & MASK_PD {
            0 => None,
            // SAFETY: the caller promises that the domain is NULL, or was allocated here.
            _ => Some(unsafe { parent(attr.parent_domain) }?),
        };
        let mut init = CqInit::new(attr.cqe);
        init.comp_vector = cq::vector(c_int::try_from(attr.comp_vector).unwrap_or(-1))?;
        init.ignore_overrun = flags & IGNORE_OVERRUN != 0;
        // SAFETY: the caller promises that the context is open, and `attr` is a structure of the headers, whose channel is
        // NULL or was created here.
        let mut object = unsafe { CqObject::create(context, attr.channel, init, attr.cq_context) }?;
        object.parent_domain = domain;
        let object = Box::into_raw(object).cast::<ibv_cq_ex>();
        // SAFETY: the first field of the object, which only this thread has.
        let ex = unsafe { &mut *object };
        ex.start_poll = Some(start_poll);
        ex.next_poll = Some(next_poll);
        ex.end_poll = Some(end_poll);
        ex.read_opcode = Some(read_opcode);
        ex.read_vendor_err = Some(read_vendor_err);
        ex.read_byte_len = Some(read_byte_len);
        ex.read_imm_data = Some(read_imm_data);
        ex.read_qp_num = Some(read_qp_num);
        ex.read_src_qp = Some(read_src_qp);
        ex.read_wc_flags = Some(read_wc_flags);
        ex.read_slid = Some(read_slid);
        ex.read_sl = Some(read_sl);
        ex.read_dlid_path_bits = Some(read_dlid_path_bits);
        ex.read_cvlan = Some(read_cvlan);
        ex.read_flow_tag = Some(read_flow_tag);
        ex.read_completion_ts = Some(read_completion_ts);
        ex.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
        Ok(object)
    })
}

/// The object behind a CQ of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
#[inline(always)]
unsafe fn object<'a>(cq: *mut ibv_cq_ex) -> &'a CqObject {
    // SAFETY: the caller's promise: it is the first field of a `CqObject`.
    unsafe { &*cq.cast::<CqObject>() }
}

/// Leaves a completion to the functions that read it, and sets the fields of the structure that C reads by itself.
///
/// # Safety
/// The CQ was created here, its lock is held, and the device gets the completion's entry back in `end_poll`.
#[inline(always)]
unsafe fn show(cq: *mut ibv_cq_ex, found: Completion<'_>) {
    // SAFETY: the caller's promise: the entry is the host's for as long as the completion is there, and no other thread is here.
    unsafe {
        let found: Completion<'static> = mem::transmute(found);
        (*cq).wr_id = found.wr_id();
        (*cq).status = found.status() as c_int;
        (*object(cq).reader.get()).0 = Some(found);
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: C's promise. The lock is part of the CQ, which is not destroyed before `end_poll`.
    unsafe {
        if attr.as_ref().is_some_and(|attr| attr.comp_mask != 0) {
            return Errno::EINVAL.0;
        }
        match object(cq).cq.try_lock() {
            Some(held) => start_usual(cq, held),
            None => start_later(cq),
        }
    }
}

/// The same where another thread has the CQ.
///
/// # Safety
/// As [`object`].
#[cold]
#[inline(never)]
unsafe extern "C" fn start_later(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller promises the same as for `object`.
    unsafe { start_usual(cq, object(cq).cq.lock()) }
}

/// Takes the first completion, if it is usual, in a straight line.
///
/// # Safety
/// As [`object`].
#[inline(always)]
unsafe fn start_usual(
    cq: *mut ibv_cq_ex,
    mut held: DataGuard<'_, Option<Cq<'static, P>>>,
) -> c_int {
    let Some(batch) = held.as_mut().and_then(Cq::usual_batch) else {
        mem::forget(held);
        // SAFETY: the caller's promise, and the lock is held.
        return unsafe { start_rest(cq) };
    };
    // Ended in `end_poll`.
    let mut batch = ManuallyDrop::new(batch);
    // SAFETY: the caller promises the same as for `object`.
    let show = |cq, found: Completion<'_>| unsafe { show(cq, found) };
    match batch.next_usual(cq, show, show) {
        Ok(()) => {
            mem::forget(held);
            0
        }
        Err(Unusual::Nothing) => {
            drop(held);
            // SAFETY: the caller promises the same as for `object`.
            unsafe { object(cq) }.idle(libc::ENOENT)
        }
        Err(Unusual::Something) => {
            mem::forget(held);
            // SAFETY: the caller's promise, and the lock is held.
            unsafe { start_rest(cq) }
        }
    }
}

/// Takes the first completion, of any kind. If there is none, it gives the lock back.
///
/// # Safety
/// As [`object`]. The calling thread holds the lock of the CQ.
#[cold]
#[inline(never)]
unsafe extern "C" fn start_rest(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller promises the same as for `object`. The calling thread holds the lock of the CQ.
    let object = unsafe { object(cq) };
    let found = guarded(|| {
        // SAFETY: the caller promises the same as for `object`. The calling thread holds the lock of the CQ.
        let mut held = unsafe { object.cq.taken() };
        let of = held.as_mut().ok_or(Errno::EINVAL)?;
        // SAFETY: the caller promises the same as for `object`. The calling thread holds the lock of the CQ.
        let found = unsafe { next_any(cq, &mut ManuallyDrop::new(of.batch()?)) };
        if found {
            mem::forget(held);
        }
        Ok(found)
    });
    match found {
        Ok(true) => 0,
        Ok(false) => object.idle(libc::ENOENT),
        Err(errno) => errno.0,
    }
}

/// Takes the next completion of any kind; whether there is one.
///
/// # Safety
/// As [`show`].
unsafe fn next_any(cq: *mut ibv_cq_ex, batch: &mut Batch<'_, 'static, P>) -> bool {
    match batch.next() {
        // SAFETY: the caller promises the same as for `show`.
        Some(found) => unsafe {
            show(cq, found);
            true
        },
        None => false,
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: C's promise: after `start_poll`, whose lock is held.
    let mut held = ManuallyDrop::new(unsafe { object(cq).cq.taken() });
    let Some(of) = held.as_mut() else {
        return Errno::EINVAL.0;
    };
    let mut batch = ManuallyDrop::new(of.resume_batch());
    // SAFETY: as above.
    let show = |cq, found: Completion<'_>| unsafe { show(cq, found) };
    match batch.next_usual(cq, show, show) {
        Ok(()) => 0,
        Err(Unusual::Nothing) => libc::ENOENT,
        // SAFETY: as above.
        Err(Unusual::Something) => unsafe { next_rest(cq) },
    }
}

/// Takes the next completion, of any kind.
///
/// # Safety
/// As [`object`]. The calling thread holds the lock of the CQ.
#[cold]
#[inline(never)]
unsafe extern "C" fn next_rest(cq: *mut ibv_cq_ex) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises the same as for `object`. The calling thread holds the lock of the CQ.
        let mut held = ManuallyDrop::new(unsafe { object(cq).cq.taken() });
        let of = held.as_mut().ok_or(Errno::EINVAL)?;
        // SAFETY: the caller promises the same as for `object`. The calling thread holds the lock of the CQ.
        match unsafe { next_any(cq, &mut ManuallyDrop::new(of.resume_batch())) } {
            true => Ok(()),
            false => Err(Errno(libc::ENOENT)),
        }
    })
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: C's promise: after `start_poll`, whose lock is held.
    unsafe {
        let object = object(cq);
        let mut held = object.cq.taken();
        (*object.reader.get()).0 = None;
        if let Some(of) = held.as_mut() {
            of.resume_batch().finish();
        }
    }
}

/// The completion at hand.
///
/// # Safety
/// As [`object`], and no other thread is between `start_poll` and `end_poll`.
#[inline(always)]
unsafe fn reader<'a>(cq: *mut ibv_cq_ex) -> &'a Option<Completion<'static>> {
    // SAFETY: the caller promises the same as for `object`, and no other thread is between `start_poll` and `end_poll`.
    unsafe { &(*object(cq).reader.get()).0 }
}

unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: C's promise: between `start_poll` and `end_poll`.
    unsafe { reader(cq) }
        .as_ref()
        .map_or(0, Completion::timestamp)
}

/// The time in nanoseconds since 1970. 0 if the device's clock cannot be read any more.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    let converted = guarded(|| {
        // SAFETY: C's promise: between `start_poll` and `end_poll`.
        let (hca, timestamp) = unsafe { (object(cq).hca, read_completion_ts(cq)) };
        hca.clock.nanoseconds(hca.device, timestamp)
    });
    converted.unwrap_or(0)
}

/// The functions that read a field of the completion at hand, 0 if there is none.
macro_rules! fields {
    ($($name:ident: $type:ty = |$found:ident| $field:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: C's promise: between `start_poll` and `end_poll`.
            match unsafe { reader(cq) } {
                Some($found) => $field,
                None => 0,
            }
        }
    )*};
}

/// A field that is there of a receive only.
#[inline(always)]
fn of_recv<T: Default>(found: &Completion<'_>, field: impl FnOnce() -> T) -> T {
    match found.kind() {
        CompletionKind::Recv => field(),
        CompletionKind::Send | CompletionKind::Error => T::default(),
    }
}

fields! {
    read_opcode: c_int = |found| poll::opcode(found.opcode());
    read_vendor_err: u32 = |found| found.vendor_err().into();
    read_byte_len: u32 = |found| found.byte_len();
    read_imm_data: u32 = |found| of_recv(found, || poll::immediate(found));
    read_qp_num: u32 = |found| found.qp_num().number();
    read_src_qp: u32 = |found| of_recv(found, || found.src_qp().number());
    read_wc_flags: c_uint = |found| of_recv(found, || found.flags().bits());
    read_slid: u32 = |found| of_recv(found, || found.slid().into());
    read_sl: u8 = |found| of_recv(found, || found.sl());
    read_cvlan: u16 = |found| of_recv(found, || found.vlan().unwrap_or(0));
    read_flow_tag: u32 = |found| of_recv(found, || found.flow_tag());
}

/// Low bits of the destination LID, of which completions say nothing.
unsafe extern "C" fn read_dlid_path_bits(_: *mut ibv_cq_ex) -> u8 {
    0
}
