//! Counters of what rules see: `ibv_create_counters`.
//!
//! As with rdma-core's library for mlx5, what is counted is attached before the counters are bound to a rule, which
//! `ibv_create_flow` does with [`IBV_FLOW_SPEC_ACTION_COUNT`].

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::slice;
use std::sync::Mutex;

use bareverbs_node::verbs::{FlowCounter, FlowCounterId};

use crate::abi::flow::{ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr, ibv_flow};
use crate::abi::numbers::*;
use crate::abi::objects::ibv_context;
use crate::process::failure::{Errno, Result, as_errno, as_pointer, lock};
use crate::process::hca::P;
use crate::verbs::context::context;

/// Counters, of one counter of the device, which counts both frames and bytes.
#[repr(C)]
pub(crate) struct CountersObject {
    c: ibv_counters,
    counter: FlowCounter<'static, P>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The things that are counted, and the places at which they are read.
    attached: Vec<(c_int, u32)>,
    /// Rules that count with it.
    rules: u32,
}

impl CountersObject {
    /// Lets one more rule count.
    ///
    /// # Errors
    /// EINVAL if nothing is attached.
    pub(crate) fn bind(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if state.attached.is_empty() {
            return Err(Errno::EINVAL);
        }
        state.rules += 1;
        Ok(())
    }

    /// A rule that counted is gone.
    pub(crate) fn unbind(&self) {
        lock(&self.state).rules -= 1;
    }

    pub(crate) fn id(&self) -> FlowCounterId {
        self.counter.id()
    }
}

/// The object behind counters of C.
///
/// # Safety
/// They were created here, and are not destroyed for as long as the result is used.
pub(crate) unsafe fn counters<'a>(counters: *mut ibv_counters) -> Result<&'a CountersObject> {
    // SAFETY: the caller's promise: it is the first field of a `CountersObject`.
    unsafe { counters.cast::<CountersObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// `ibv_create_counters`, from the table of functions.
///
/// # Safety
/// The context is open, and `init` is a structure of the headers.
pub(crate) unsafe extern "C" fn create_counters(
    of: *mut ibv_context,
    init: *mut ibv_counters_init_attr,
) -> *mut ibv_counters {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and `init` is a structure of the headers.
        let (context, init) = unsafe { (context(of)?, init.as_ref().ok_or(Errno::EINVAL)?) };
        if init.comp_mask != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let domain = context.frames.domain(context.hca.device)?;
        let object = CountersObject {
            c: ibv_counters { context: of },
            counter: domain.alloc_flow_counter()?,
            state: Mutex::default(),
        };
        Ok(Box::into_raw(Box::new(object)).cast())
    })
}

/// `ibv_destroy_counters`, from the table of functions. EBUSY while rules count with them.
///
/// # Safety
/// They were created here, and are not used again after a success.
pub(crate) unsafe extern "C" fn destroy_counters(of: *mut ibv_counters) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that they were created here, and are not used again after a success.
        let object = unsafe { counters(of) }?;
        if lock(&object.state).rules != 0 {
            return Err(Errno::EBUSY);
        }
        // SAFETY: the caller's promise: they were made by `create_counters`.
        let object = unsafe { Box::from_raw(of.cast::<CountersObject>()) };
        // What the firmware does not give up stays with the device.
        if let Err(error) = object.counter.destroy() {
            log::error!("counters: {error}");
        }
        Ok(())
    })
}

/// `ibv_attach_counters_point_flow`, from the table of functions.
///
/// # Safety
/// The counters were created here, and `attr` is a structure of the headers.
pub(crate) unsafe extern "C" fn attach_counters_point_flow(
    of: *mut ibv_counters,
    attr: *mut ibv_counter_attach_attr,
    flow: *mut ibv_flow,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the counters were created here, and `attr` is a structure of the headers.
        let (object, attr) = unsafe { (counters(of)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        let known = [IBV_COUNTER_PACKETS, IBV_COUNTER_BYTES].contains(&attr.counter_desc);
        if !flow.is_null() || attr.comp_mask != 0 || !known {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut state = lock(&object.state);
        if state.rules != 0 {
            return Err(Errno::EBUSY);
        }
        state.attached.push((attr.counter_desc, attr.index));
        Ok(())
    })
}

/// `ibv_read_counters`, from the table of functions. Values that are attached to one place are added up there; those of places
/// with nothing are 0.
///
/// # Safety
/// The counters were created here, and `count` values can be written.
pub(crate) unsafe extern "C" fn read_counters(
    of: *mut ibv_counters,
    values: *mut u64,
    count: u32,
    flags: u32,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the counters were created here, and `count` values can be written.
        let object = unsafe { counters(of) }?;
        let state = lock(&object.state);
        // No value is kept that could be preferred.
        let known = flags & !IBV_READ_COUNTERS_ATTR_PREFER_CACHED == 0;
        let fit = state.attached.iter().all(|(_, index)| *index < count);
        if !known || state.rules == 0 || !fit || values.is_null() {
            return Err(Errno::EINVAL);
        }
        let traffic = object.counter.query()?;
        // SAFETY: the caller promises that the counters were created here, and `count` values can be written.
        let values = unsafe { slice::from_raw_parts_mut(values, count as usize) };
        values.fill(0);
        for (kind, index) in &state.attached {
            let value = match *kind {
                IBV_COUNTER_PACKETS => traffic.packets,
                _ => traffic.octets,
            };
            if let Some(to) = values.get_mut(*index as usize) {
                *to = to.wrapping_add(value);
            }
        }
        Ok(())
    })
}
