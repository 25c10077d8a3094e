//! CQs whose completions are read field by field: `ibv_create_cq_ex`, `ibv_start_poll`, `ibv_wc_read_*`.

// UNSAFETY: raw pointers of C, and a lock that is held between two calls.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint};

use bareverbs_node::verbs::{Completion, Cq, CqInit, Platform};

use crate::abi::numbers::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_STANDARD_FLAGS,
};
use crate::abi::objects::{ibv_context, ibv_cq_init_attr_ex};
use crate::abi::requests::{ibv_cq_ex, ibv_poll_cq_attr, ibv_wc};
use crate::context::context;
use crate::cq::{self, CqObject};
use crate::failure::{DataGuard, Errno, Result, as_errno, as_nothing, as_pointer, guarded};
use crate::hca::P;
use crate::poll;

/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` and `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
const SINGLE_THREADED: u32 = 1 << 0;
const IGNORE_OVERRUN: u32 = 1 << 1;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const MASK_FLAGS: u32 = 1 << 0;

/// The completion at hand between `start_poll` and `end_poll`, and the lock that is held meanwhile.
#[derive(Default)]
pub(crate) struct Reader {
    held: Option<DataGuard<'static, Option<Cq<'static, P>>>>,
    wc: Option<ibv_wc>,
    /// When it completed, on the device's clock.
    timestamp: u64,
}

impl Reader {
    /// Takes the next completion.
    fn next(&mut self) -> Result<bool> {
        let cq = self.held.as_mut().and_then(|held| held.as_mut());
        let found = cq.ok_or(Errno::EINVAL)?.poll()?;
        self.timestamp = found.as_ref().map_or(0, Completion::timestamp);
        self.wc = found.as_ref().map(poll::completion);
        Ok(self.wc.is_some())
    }
}

/// `ibv_create_cq_ex`, from the table of functions.
///
/// # Safety
/// The context is open, and `attr` is a structure of the headers, whose channel is NULL or was created here.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    as_pointer(|| {
        // SAFETY: the caller's promise.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::EINVAL)?;
        const TIMES: u64 =
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
        // SAFETY: the caller's promise.
        let hca = unsafe { self::context(context) }?.hca;
        let supported = match hca.device.clock_khz() {
            Some(_) => IBV_WC_STANDARD_FLAGS | TIMES,
            None => IBV_WC_STANDARD_FLAGS,
        };
        if attr.comp_mask & !MASK_FLAGS != 0 || attr.wc_flags & !supported != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let flags = match attr.comp_mask & MASK_FLAGS {
            0 => 0,
            _ => attr.flags,
        };
        if flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut init = CqInit::new(attr.cqe);
        init.comp_vector = cq::vector(c_int::try_from(attr.comp_vector).unwrap_or(-1))?;
        init.ignore_overrun = flags & IGNORE_OVERRUN != 0;
        // SAFETY: the caller's promise.
        let object = unsafe { CqObject::create(context, attr.channel, init, attr.cq_context) }?;
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
        ex.read_completion_ts = Some(read_completion_ts);
        ex.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
        Ok(object)
    })
}

/// The reader of a CQ.
///
/// # Safety
/// The CQ was created here, and no other thread is between `start_poll` and `end_poll` of it.
unsafe fn reader<'a>(cq: *mut ibv_cq_ex) -> &'a mut Reader {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*cq.cast::<CqObject>()).reader.get() }
}

/// The completion at hand.
///
/// # Safety
/// As [`reader`].
unsafe fn wc(cq: *mut ibv_cq_ex) -> ibv_wc {
    // SAFETY: the caller's promise.
    unsafe { reader(cq) }.wc.unwrap_or(poll::EMPTY)
}

/// Sets the fields of the structure that C reads by itself.
///
/// # Safety
/// As [`reader`].
unsafe fn show(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        let found = wc(cq);
        (*cq).wr_id = found.wr_id;
        (*cq).status = found.status;
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    as_errno(|| {
        // SAFETY: C's promise.
        if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: C's promise. The lock is part of the CQ, which is not destroyed before `end_poll`.
        let object: &'static CqObject = unsafe { cq::cq(cq.cast()) }?;
        let held = object.cq.lock();
        // SAFETY: the lock is held, so that no other thread is here.
        let reader = unsafe { reader(cq) };
        reader.held = Some(held);
        match reader.next() {
            Ok(true) => {
                // SAFETY: as above.
                unsafe { show(cq) };
                Ok(())
            }
            other => {
                reader.held = None;
                object.hca.device.platform().relax();
                other.and(Err(Errno(libc::ENOENT)))
            }
        }
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    as_errno(|| {
        // SAFETY: C's promise: after `start_poll`, whose lock is held.
        if !unsafe { reader(cq) }.next()? {
            return Err(Errno(libc::ENOENT));
        }
        // SAFETY: the same.
        unsafe { show(cq) };
        Ok(())
    })
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    as_nothing(|| {
        // SAFETY: C's promise: after `start_poll`, whose lock is held.
        let held = unsafe { reader(cq) }.held.take();
        drop(held);
        Ok(())
    });
}

unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: C's promise: between `start_poll` and `end_poll`.
    unsafe { reader(cq) }.timestamp
}

/// The time in nanoseconds since 1970. 0 if the device's clock cannot be read any more.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    let converted = guarded(|| {
        // SAFETY: C's promise: between `start_poll` and `end_poll`.
        let (object, reader) = unsafe { (cq::cq(cq.cast())?, reader(cq)) };
        let hca = object.hca;
        hca.clock.nanoseconds(hca.device, reader.timestamp)
    });
    converted.unwrap_or(0)
}

/// The functions that read a field of the completion at hand.
macro_rules! fields {
    ($($name:ident: $type:ty = $field:ident;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: C's promise: between `start_poll` and `end_poll`.
            unsafe { wc(cq) }.$field.into()
        }
    )*};
}

fields! {
    read_opcode: c_int = opcode;
    read_vendor_err: u32 = vendor_err;
    read_byte_len: u32 = byte_len;
    read_imm_data: u32 = imm_data;
    read_qp_num: u32 = qp_num;
    read_src_qp: u32 = src_qp;
    read_wc_flags: c_uint = wc_flags;
    read_slid: u32 = slid;
    read_sl: u8 = sl;
    read_dlid_path_bits: u8 = dlid_path_bits;
}
