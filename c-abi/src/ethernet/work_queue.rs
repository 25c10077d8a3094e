//! Receive queues by themselves, and tables of them that a hash of a frame's headers is an index of: `ibv_create_wq` and
//! `ibv_create_rwq_ind_table`.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::zeroed;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use bareverbs_node::verbs::{
    IndirectionTable, QpAttr, QpAttrMask, QpCap, QpInitHandles, QpState, RawPacketQp, Rqn, RssError,
};

use crate::abi::numbers::*;
use crate::abi::objects::ibv_context;
use crate::abi::requests::*;

use crate::data::lists::receives;
use crate::process::acks::Acks;
use crate::process::data_lock::DataLock;
use crate::process::failure::{Errno, Result, as_errno, as_pointer};
use crate::process::hca::P;
use crate::process::registry::take_out;
use crate::verbs::context::context;
use crate::verbs::cq::cq;
use crate::verbs::pd::pd;
use crate::verbs::subject::Subject;

/// The largest table that the system's interface takes: `IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE`.
const MAX_LOG_TABLE: u32 = 0x0d;

impl From<RssError> for Errno {
    fn from(error: RssError) -> Self {
        log::debug!("{error}");
        match error {
            RssError::Unsupported => Self::EOPNOTSUPP,
            RssError::Command(error) => error.into(),
            _ => Self::EINVAL,
        }
    }
}

/// Objects that name another one, which cannot go before them.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// # Errors
    /// EBUSY if there are any.
    pub(crate) fn none(&self) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Errno::EBUSY),
        }
    }
}

/// A receive queue. Posting takes its lock, and so does everything else.
#[repr(C)]
pub(crate) struct WqObject {
    pub(crate) c: ibv_wq,
    /// `None` once it is destroyed.
    queue: DataLock<Option<RawPacketQp<'static, P>>>,
    /// Tables that name it.
    users: Users,
    /// Asynchronous events that were handed out.
    pub(crate) acks: Acks,
}

/// The object behind a receive queue of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
unsafe fn wq<'a>(wq: *mut ibv_wq) -> Result<&'a WqObject> {
    // SAFETY: the caller's promise: it is the first field of a `WqObject`.
    unsafe { wq.cast::<WqObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Returns `true` if these flags are known, and ask for VLAN tags to be taken out.
fn strips(flags: u32) -> Result<bool> {
    match flags & !IBV_WQ_FLAGS_CVLAN_STRIPPING {
        0 => Ok(flags != 0),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// `ibv_create_wq`, from the table of functions. Of the flags, that for VLAN tags is known.
///
/// # Safety
/// The context is open, and the objects in `init` were created here.
pub(crate) unsafe extern "C" fn create_wq(
    of: *mut ibv_context,
    init: *mut ibv_wq_init_attr,
) -> *mut ibv_wq {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and the objects in `init` were created here.
        let (context, attr) = unsafe { (context(of)?, init.as_mut().ok_or(Errno::EINVAL)?) };
        if attr.wq_type != IBV_WQT_RQ
            || attr.comp_mask & !IBV_WQ_INIT_ATTR_FLAGS != 0
            || attr.max_wr == 0
        {
            return Err(Errno::EINVAL);
        }
        let strip_vlan = match attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS {
            0 => false,
            _ => strips(attr.create_flags)?,
        };
        // SAFETY: the caller promises that the context is open, and the objects in `init` were created here.
        let (pd, cq) = unsafe { (pd(attr.pd)?, cq(attr.cq)?) };
        context.check_owner(pd.c.context)?;
        context.check_owner(cq.ex.context)?;
        let cq = cq.handle()?;
        let mut handles = QpInitHandles {
            send_cq: cq.clone(),
            recv_cq: cq,
            srq: None,
            cap: QpCap {
                max_recv_wr: attr.max_wr,
                max_recv_sge: attr.max_sge,
                ..QpCap::default()
            },
            sq_sig_all: false,
        };
        let domain = context.frames.domain(context.hca.device)?;
        let mut queue = domain.create_work_queue_by_handles(&pd.pd, &mut handles)?;
        queue.set_vlan_strip(strip_vlan)?;
        let number = queue.receive_number()?.number();
        (attr.max_wr, attr.max_sge) = (handles.cap.max_recv_wr, handles.cap.max_recv_sge);
        // SAFETY: numbers, raw pointers and functions in an `Option` may be zero, and so may what belongs to a mutex.
        let c = ibv_wq {
            context: of,
            wq_context: attr.wq_context,
            pd: attr.pd,
            cq: attr.cq,
            wq_num: number,
            handle: number,
            state: IBV_WQS_RESET,
            wq_type: attr.wq_type,
            post_recv: Some(post_wq_recv),
            ..unsafe { zeroed() }
        };
        let object = WqObject {
            c,
            queue: DataLock::new(Some(queue)),
            users: Users::default(),
            acks: Acks::default(),
        };
        let pointer = Box::into_raw(Box::new(object));
        context
            .hca
            .registry
            .with(|objects| objects.wqs.insert(number, pointer.cast_const().cast()));
        Ok(pointer.cast())
    })
}

/// A state in the words of QPs: a receive queue of a QP runs from INIT on.
fn state(number: c_int) -> Result<QpState> {
    match number {
        IBV_WQS_RESET => Ok(QpState::Reset),
        IBV_WQS_RDY => Ok(QpState::Init),
        IBV_WQS_ERR => Ok(QpState::Err),
        _ => Err(Errno::EINVAL),
    }
}

/// `ibv_modify_wq`, from the table of functions.
///
/// # Safety
/// It was created here, and `attr` is a structure of the headers.
pub(crate) unsafe extern "C" fn modify_wq(of: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int {
    as_errno(|| {
        const KNOWN: u32 = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
        // SAFETY: the caller promises that it was created here, and `attr` is a structure of the headers.
        let (object, attr) = unsafe { (wq(of)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        let has = |flag: u32| attr.attr_mask & flag != 0;
        if attr.attr_mask == 0 || attr.attr_mask & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let strip_vlan = match has(IBV_WQ_ATTR_FLAGS) && strips(attr.flags_mask)? {
            true => Some(strips(attr.flags & attr.flags_mask)?),
            false => None,
        };
        let mut queue = object.queue.lock();
        let queue = queue.as_mut().ok_or(Errno::EINVAL)?;
        let now = queue.state();
        if has(IBV_WQ_ATTR_CURR_STATE) && state(attr.curr_wq_state)? != now {
            return Err(Errno::EINVAL);
        }
        let to = match has(IBV_WQ_ATTR_STATE) {
            true => state(attr.wq_state)?,
            false => now,
        };
        if matches!(
            (now, to),
            (QpState::Err, QpState::Init) | (QpState::Reset, QpState::Err)
        ) {
            // Only RESET leads to RDY, and RDY to ERR.
            return Err(Errno::EINVAL);
        }
        if let Some(strip) = strip_vlan {
            queue.set_vlan_strip(strip)?;
        }
        if to != now {
            let mut mask = QpAttrMask::STATE;
            if to == QpState::Init {
                mask |= QpAttrMask::PORT;
            }
            let attr = QpAttr {
                qp_state: to,
                ..QpAttr::DEFAULT
            };
            queue.modify(&attr, mask)?;
        }
        if has(IBV_WQ_ATTR_STATE) {
            // SAFETY: the field is for the program's eyes, which looks without a lock as it does with libibverbs.
            unsafe { (&raw mut (*of).state).write_volatile(attr.wq_state) };
        }
        Ok(())
    })
}

/// `ibv_destroy_wq`, from the table of functions. EBUSY while tables name it.
///
/// # Safety
/// It was created here, and is not used again after a success.
pub(crate) unsafe extern "C" fn destroy_wq(of: *mut ibv_wq) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that it was created here, and is not used again after a success.
        let object = unsafe { wq(of) }?;
        object.users.none()?;
        let queue = object.queue.lock().take().ok_or(Errno::EINVAL)?;
        // SAFETY: the context is there longer than its queues.
        let context = unsafe { context(object.c.context) }?;
        let pointer: *const WqObject = object;
        // The queue has its number for as long as it is here.
        context
            .hca
            .registry
            .with(|objects| take_out(&mut objects.wqs, object.c.wq_num, pointer));
        // What the firmware does not give up stays with the device.
        if let Err(error) = queue.destroy() {
            log::error!("a receive queue: {error}");
        }
        // What its CQ remembers of it is in the way of the next one.
        // SAFETY: the caller's promise: its CQ is there longer.
        if let Ok(cq) = unsafe { cq(object.c.cq) } {
            cq.forget_destroyed();
        }
        context
            .events
            .remove(|event| event.subject == Subject::Wq(pointer.cast()));
        object.acks.wait();
        // SAFETY: the caller's promise: it was made by `create_wq`.
        drop(unsafe { Box::from_raw(of.cast::<WqObject>()) });
        Ok(())
    })
}

/// `ibv_post_wq_recv`, from the queue itself.
///
/// # Safety
/// It was created here; the list is one of the headers'; `bad` can be written.
unsafe extern "C" fn post_wq_recv(
    of: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that it was created here; the list is one of the headers'; `bad` can be written.
        let object = unsafe { wq(of) }?;
        let mut queue = object.queue.lock();
        let queue = queue.as_mut().ok_or(Errno::EINVAL)?;
        let mut batch = queue.recv_queue().batch();
        // SAFETY: the caller promises that it was created here; the list is one of the headers'; `bad` can be written.
        unsafe { receives(wr, bad, |wr_id, list| Ok(batch.post(wr_id, list)?)) }
    })
}

/// A table of receive queues.
#[repr(C)]
pub(crate) struct TableObject {
    pub(crate) c: ibv_rwq_ind_table,
    pub(crate) table: IndirectionTable<'static, P>,
    /// The first of its queues.
    pub(crate) first: Rqn,
    /// Those that it names, each as often as it does.
    queues: Vec<*mut ibv_wq>,
    /// QPs that hash into it.
    pub(crate) users: Users,
}

/// The object behind a table of C.
///
/// # Safety
/// It was created here, and is not destroyed for as long as the result is used.
pub(crate) unsafe fn table<'a>(table: *mut ibv_rwq_ind_table) -> Result<&'a TableObject> {
    // SAFETY: the caller's promise: it is the first field of a `TableObject`.
    unsafe { table.cast::<TableObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// `ibv_create_rwq_ind_table`, from the table of functions.
///
/// # Safety
/// The context is open, and `init` names as many queues, which were created here, as it says.
pub(crate) unsafe extern "C" fn create_rwq_ind_table(
    of: *mut ibv_context,
    init: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    as_pointer(|| {
        // SAFETY: the caller promises that the context is open, and `init` names as many queues, which were created here, as
        // it says.
        let (context, init) = unsafe { (context(of)?, init.as_ref().ok_or(Errno::EINVAL)?) };
        if init.comp_mask != 0 || init.log_ind_tbl_size > MAX_LOG_TABLE || init.ind_tbl.is_null() {
            return Err(Errno::EINVAL);
        }
        let size = 1_usize << init.log_ind_tbl_size;
        // SAFETY: the caller promises that the context is open, and `init` names as many queues, which were created here, as
        // it says.
        let queues = unsafe { slice::from_raw_parts(init.ind_tbl, size) };
        let number = |&queue: &*mut ibv_wq| {
            // SAFETY: the caller promises that the context is open, and `init` names as many queues, which were created here,
            // as it says.
            let queue = unsafe { wq(queue) }?;
            context.check_owner(queue.c.context)?;
            let queue = queue.queue.lock();
            Ok(queue.as_ref().ok_or(Errno::EINVAL)?.receive_number()?)
        };
        let numbers: Vec<Rqn> = queues.iter().map(number).collect::<Result<_>>()?;
        let domain = context.frames.domain(context.hca.device)?;
        let table = domain.create_indirection_table(&numbers, size as u32)?;
        for &queue in queues {
            // SAFETY: the caller promises that the context is open, and `init` names as many queues, which were created here,
            // as it says.
            unsafe { wq(queue) }?.users.add();
        }
        let number = table.number() as c_int;
        let object = TableObject {
            c: ibv_rwq_ind_table {
                context: of,
                ind_tbl_handle: number,
                ind_tbl_num: number,
                comp_mask: 0,
            },
            table,
            first: numbers[0],
            queues: queues.to_vec(),
            users: Users::default(),
        };
        Ok(Box::into_raw(Box::new(object)).cast())
    })
}

/// `ibv_destroy_rwq_ind_table`, from the table of functions. EBUSY while QPs hash into it.
///
/// # Safety
/// It was created here, and is not used again after a success.
pub(crate) unsafe extern "C" fn destroy_rwq_ind_table(of: *mut ibv_rwq_ind_table) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that it was created here, and is not used again after a success.
        unsafe { table(of) }?.users.none()?;
        // SAFETY: the caller's promise: it was made by `create_rwq_ind_table`.
        let object = unsafe { Box::from_raw(of.cast::<TableObject>()) };
        // What the firmware does not give up stays with the device, and its queues with it.
        object.table.destroy().map_or_else(
            |error| log::error!("an indirection table: {error}"),
            |()| {
                for &queue in &object.queues {
                    // SAFETY: a queue cannot be destroyed while a table names it.
                    if let Ok(queue) = unsafe { wq(queue) } {
                        queue.users.remove();
                    }
                }
            },
        );
        Ok(())
    })
}
