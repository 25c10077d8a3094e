//! Completion queues.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bareverbs_node::verbs::{Completion, Cq, CqEvents, CqHandle, CqInit, Platform};

use crate::abi::numbers::IBV_CQ_ATTR_MODERATE;
use crate::abi::objects::{ibv_comp_channel, ibv_context, ibv_cq, ibv_modify_cq_attr};
use crate::abi::requests::ibv_cq_ex;
use crate::process::acks::Acks;
use crate::process::data_lock::DataLock;
use crate::process::failure::{Errno, Result, as_errno, as_pointer, lock};
use crate::process::hca::{Hca, P};
use crate::process::registry::take_out;
use crate::verbs::channel::{self, channel};
use crate::verbs::context::context;
use crate::verbs::subject::Subject;

/// `true` while a program has asked for an event that has not come. One thread answers; any may ask meanwhile.
#[derive(Debug, Default)]
struct Request(AtomicBool);

impl Request {
    fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns `true` if there is a request, and `take` finds an event for it.
    fn is_answered(&self, take: impl FnOnce() -> bool) -> bool {
        // Taken before the event: a request that is made from here on has its own event.
        if !self.0.swap(false, Ordering::AcqRel) {
            return false;
        }
        let answered = take();
        if !answered {
            self.0.store(true, Ordering::Release);
        }
        answered
    }
}

/// The completion at hand between `start_poll` and `end_poll`, whose entry the device gets back at the end.
#[derive(Default)]
pub(crate) struct Reader(pub(crate) Option<Completion<'static>>);

/// A completion queue. What is polled is behind its own lock.
#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) ex: ibv_cq_ex,
    /// Gone while it is being destroyed.
    pub(crate) cq: DataLock<Option<Cq<'static, P>>>,
    /// The completion that `ibv_cq_ex`'s functions read. Used with the lock held.
    pub(crate) reader: UnsafeCell<Reader>,
    platform: &'static P,
    pub(crate) hca: &'static Hca,
    /// The user of a parent domain.
    pub(crate) parent_domain: Option<Arc<()>>,
    request: Request,
    /// Of the thread that drives the device, which does not take the lock of those who poll.
    events: Mutex<CqEvents<'static>>,
    pub(crate) comp_acks: Acks,
    pub(crate) async_acks: Acks,
}

impl CqObject {
    /// Creates a CQ that is known to the device's events.
    ///
    /// # Safety
    /// The context is open, and the channel was created here if there is one.
    pub(crate) unsafe fn create(
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        init: CqInit,
        cq_context: *mut c_void,
    ) -> Result<Box<Self>> {
        // SAFETY: the caller promises that the context is open, and the channel was created here if there is one.
        let hca = unsafe { self::context(context) }?.hca;
        let cq = hca.device.create_cq(init)?;
        // SAFETY: numbers, raw pointers and functions in an `Option` may be zero, and so may what belongs to a mutex.
        let mut ex: ibv_cq_ex = unsafe { zeroed() };
        ex.context = context;
        ex.channel = channel;
        ex.cq_context = cq_context;
        ex.handle = cq.cqn().number();
        ex.cqe = c_int::try_from(cq.cqe()).unwrap_or(c_int::MAX);
        let number = cq.cqn().number();
        let object = Box::new(Self {
            ex,
            platform: hca.device.platform(),
            hca,
            parent_domain: None,
            events: Mutex::new(cq.events()),
            cq: DataLock::new(Some(cq)),
            request: Request::default(),
            comp_acks: Acks::default(),
            async_acks: Acks::default(),
            reader: UnsafeCell::new(Reader::default()),
        });
        if !channel.is_null() {
            // SAFETY: the caller promises that the context is open, and the channel was created here if there is one.
            unsafe { self::channel(channel) }?.count_user(true);
        }
        hca.registry
            .with(|objects| objects.cqs.insert(number, (&raw const *object).cast()));
        Ok(object)
    }

    /// Asks for an event.
    pub(crate) fn arm(&self, solicited_only: bool) -> Result<()> {
        let mut cq = self.cq.lock();
        let cq = cq.as_mut().ok_or(Errno::EINVAL)?;
        // Before the request: the event may come at once.
        self.request.ask();
        cq.arm(solicited_only);
        Ok(())
    }

    /// Forgets QPs that are destroyed, as each poll does. Who polls at the moment does it with the next one.
    pub(crate) fn forget_destroyed(&self) {
        if let Some(mut cq) = self.cq.try_lock()
            && let Some(cq) = cq.as_mut()
            && let Err(error) = cq.batch().map(drop)
        {
            // The CQ is in error, which its next poll says.
            log::debug!("{error}");
        }
    }

    /// Puts the CQ into its channel if the event that was asked for has come.
    pub(crate) fn deliver(&self) {
        if self.request.is_answered(|| lock(&self.events).take()) {
            // SAFETY: a channel is not destroyed before its CQs.
            if let Ok(channel) = unsafe { channel::channel(self.ex.channel) } {
                channel.push(std::ptr::from_ref(self).cast());
            }
        }
    }

    /// A program that polls in a loop leaves the processor to what it waits for. Returns what the call of C does.
    #[inline(always)]
    pub(crate) fn idle(&self, result: c_int) -> c_int {
        self.platform.relax();
        result
    }

    /// The handle with which QPs are created.
    pub(crate) fn handle(&self) -> Result<CqHandle<'static, P>> {
        let cq = self.cq.lock();
        Ok(cq.as_ref().ok_or(Errno::EINVAL)?.handle())
    }
}

/// The object behind a CQ of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
#[inline]
pub(crate) unsafe fn cq<'a>(cq: *mut ibv_cq) -> Result<&'a CqObject> {
    // SAFETY: the caller's promise: it is the first field of a `CqObject`.
    unsafe { cq.cast::<CqObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Creates a CQ: `ibv_create_cq`.
///
/// # Safety
/// The context is open; the channel is NULL or was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller promises the same here.
    as_pointer(|| unsafe { create_cq(context, cqe, cq_context, channel, comp_vector) })
}

/// `ibv_create_cq` for callers in Rust.
///
/// # Safety
/// As `ibv_create_cq`.
pub(crate) unsafe fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> Result<*mut ibv_cq> {
    let mut init = CqInit::new(u32::try_from(cqe).map_err(|_| Errno::EINVAL)?);
    init.comp_vector = vector(comp_vector)?;
    // SAFETY: the caller promises the same as for `ibv_create_cq`.
    let object = unsafe { CqObject::create(context, channel, init, cq_context) }?;
    Ok(Box::into_raw(object).cast())
}

/// A completion vector, of which there is one.
pub(crate) fn vector(comp_vector: c_int) -> Result<u16> {
    match comp_vector {
        0 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// Changes the size of a CQ: `ibv_resize_cq`.
///
/// # Safety
/// The CQ was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the CQ was created here.
        let object = unsafe { self::cq(cq) }?;
        let mut inner = object.cq.lock();
        let inner = inner.as_mut().ok_or(Errno::EINVAL)?;
        inner.resize(u32::try_from(cqe).map_err(|_| Errno::EINVAL)?)?;
        // SAFETY: the caller's promise; the field is only looked at by the program.
        unsafe { (*cq).cqe = c_int::try_from(inner.cqe()).unwrap_or(c_int::MAX) };
        Ok(())
    })
}

/// `ibv_modify_cq`, from the table of functions: how many completions, and for how many microseconds, an event waits.
///
/// # Safety
/// The CQ was created here, and `attr` is a structure of the headers.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the CQ was created here, and `attr` is a structure of the headers.
        let (object, attr) = unsafe { (self::cq(cq)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        if attr.attr_mask != IBV_CQ_ATTR_MODERATE {
            return Err(Errno::EINVAL);
        }
        let mut inner = object.cq.lock();
        let inner = inner.as_mut().ok_or(Errno::EINVAL)?;
        let moderate = attr.moderate;
        Ok(inner.modify(moderate.cq_count, moderate.cq_period)?)
    })
}

/// Destroys a CQ, after its events were acknowledged: `ibv_destroy_cq`. EBUSY while QPs use it.
///
/// # Safety
/// It was created here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller promises the same here.
    as_errno(|| unsafe { destroy_cq(cq) })
}

/// `ibv_destroy_cq` for callers in Rust.
///
/// # Safety
/// As `ibv_destroy_cq`.
pub(crate) unsafe fn destroy_cq(cq: *mut ibv_cq) -> Result<()> {
    // SAFETY: the caller promises the same as for `ibv_destroy_cq`.
    let object = unsafe { self::cq(cq) }?;
    let pointer: *const CqObject = object;
    let number;
    {
        let mut inner = object.cq.lock();
        let taken = inner.take().ok_or(Errno::EINVAL)?;
        number = taken.cqn().number();
        if let Err((kept, error)) = taken.destroy() {
            *inner = Some(kept);
            return Err(error.into());
        }
    }
    object
        .hca
        .registry
        .with(|objects| take_out(&mut objects.cqs, number, pointer));
    // SAFETY: channel and context are there longer than their CQs.
    unsafe {
        if let Ok(channel) = channel(object.ex.channel) {
            channel.forget(pointer.cast());
            channel.count_user(false);
        }
        let context = context(object.ex.context)?;
        context
            .events
            .remove(|event| event.subject == Subject::Cq(pointer.cast()));
    }
    object.comp_acks.wait();
    object.async_acks.wait();
    // SAFETY: the caller's promise: it was made by `CqObject::create`.
    drop(unsafe { Box::from_raw(pointer.cast_mut()) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_what_nobody_asked_for() {
        let request = Request::default();
        assert!(!request.is_answered(|| true));
        request.ask();
        assert!(!request.is_answered(|| false));
        assert!(request.is_answered(|| true));
        assert!(!request.is_answered(|| true));
    }

    #[test]
    fn a_request_made_while_another_one_is_answered_is_answered_too() {
        let request = Request::default();
        request.ask();
        let ask_again = || {
            // Another thread, just after the event was found.
            request.ask();
            true
        };
        assert!(request.is_answered(ask_again));
        assert!(request.is_answered(|| true));
    }

    #[test]
    fn a_request_made_while_no_event_is_found_stays() {
        let request = Request::default();
        request.ask();
        assert!(!request.is_answered(|| {
            request.ask();
            false
        }));
        assert!(request.is_answered(|| true));
    }
}
