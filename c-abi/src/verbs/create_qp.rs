//! Creating and destroying queue pairs, and the multicast groups that they receive.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::Mutex;

use bareverbs_node::verbs::{Gid, MwBind, QpCap, QpInitHandles, QpKind, Ud};

use crate::abi::numbers::*;
use crate::abi::objects::{
    ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::abi::requests::ibv_qp_ex;
use crate::data::{opened, post, wr};
use crate::ethernet::raw_qp::RawQp;
use crate::ethernet::rss::RssQp;
use crate::process::acks::Acks;
use crate::process::data_lock::DataLock;
use crate::process::failure::{Errno, Result, as_errno, as_pointer, lock};
use crate::process::hca::Hca;
use crate::process::registry::take_out;
use crate::verbs::context::{ContextObject, context};
use crate::verbs::cq::cq;
use crate::verbs::moved::Moved;
use crate::verbs::pd::pd;
use crate::verbs::qp::{AnyQp, QpObject, qp};
use crate::verbs::srq::srq;
use crate::verbs::subject::Subject;
use crate::verbs::xrc::xrcd;

/// The attributes that a QP is made from, whichever call makes it.
pub(crate) struct Recipe {
    pub(crate) context: *mut ibv_context,
    pub(crate) attr: ibv_qp_init_attr,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) xrcd: *mut crate::abi::objects::ibv_xrcd,
    pub(crate) send_ops: Option<u64>,
    /// VLAN tags are taken out of the frames that a raw packet QP receives.
    pub(crate) strip_vlan: bool,
}

/// Creates a QP that is known to the device's events, and says in `attr.cap` what it can hold.
///
/// # Safety
/// All of the recipe's pointers are NULL or objects that were created here.
unsafe fn create(recipe: &mut Recipe) -> Result<Box<QpObject>> {
    let attr = &mut recipe.attr;
    // SAFETY: the caller promises that all of the recipe's pointers are NULL or objects that were created here.
    let context = unsafe { context(recipe.context) }?;
    let hca = context.hca;
    let mut cap = from_cap(&attr.cap);
    if matches!(attr.qp_type, IBV_QPT_RC | IBV_QPT_UC)
        && hca.device.capabilities().has_memory_windows()
    {
        // Any of them may bind windows, and none says so here.
        cap.max_inline_data = cap.max_inline_data.max(MwBind::SPACE);
    }
    // SAFETY: the caller promises that all of the recipe's pointers are NULL or objects that were created here.
    let qp = unsafe {
        any_qp(
            context,
            recipe.pd,
            recipe.xrcd,
            attr,
            &mut cap,
            recipe.strip_vlan,
        )
    }?;
    attr.cap = to_cap(&cap);
    Ok(object_of(hca, qp, recipe))
}

/// The object of a QP, which is known to the device's events from here on.
fn object_of(hca: &'static Hca, qp: AnyQp, recipe: &Recipe) -> Box<QpObject> {
    let attr = &recipe.attr;
    // SAFETY: numbers, raw pointers and functions in an `Option` may be zero, and so may what belongs to a mutex.
    let mut ex: ibv_qp_ex = unsafe { zeroed() };
    ex.qp_base = ibv_qp {
        context: recipe.context,
        qp_context: attr.qp_context,
        pd: recipe.pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: qp.qpn().number(),
        qp_num: qp.qpn().number(),
        state: 0,
        qp_type: attr.qp_type,
        ..ex.qp_base
    };
    let opened = opened::none(attr.qp_type);
    if recipe.send_ops.is_some() {
        wr::offer(&mut ex);
    }
    let number = qp.qpn().number();
    let receiving = match &qp {
        AnyQp::Raw(raw) => raw.qp.receive_number().ok(),
        _ => None,
    };
    let object = Box::new(QpObject {
        ex,
        post_send: post::of_type(attr.qp_type),
        send: DataLock::new(None),
        recv: DataLock::new(None),
        opened: UnsafeCell::new(opened),
        hca,
        qp: Box::new(UnsafeCell::new(Some(qp))),
        control: Mutex::new(()),
        acks: Acks::default(),
        path: Mutex::default(),
        groups: Mutex::default(),
        moved: Moved::default(),
    });
    // Its queues become known to those who post.
    let _ = object.with(|_| Ok(()));
    // Those that hash have no number, and nothing happens to them.
    if number != 0 {
        hca.registry.with(|objects| {
            objects.qps.insert(number, (&raw const *object).cast());
            if let Some(queue) = receiving {
                objects
                    .receiving
                    .insert(queue.number(), (&raw const *object).cast());
            }
        });
    }
    object
}

/// Creates the QP of the type that C names.
///
/// # Safety
/// All pointers are NULL or objects that were created here.
unsafe fn any_qp(
    context: &ContextObject,
    pd: *mut ibv_pd,
    xrcd: *mut crate::abi::objects::ibv_xrcd,
    attr: &ibv_qp_init_attr,
    cap: &mut QpCap,
    strip_vlan: bool,
) -> Result<AnyQp> {
    if attr.qp_type == IBV_QPT_XRC_RECV {
        // SAFETY: the caller promises that all pointers are NULL or objects that were created here.
        let xrcd = unsafe { self::xrcd(xrcd) }?;
        context.check_owner(xrcd.c.context)?;
        *cap = QpCap::default();
        return Ok(AnyQp::Verbs(xrcd.xrcd.create_qp()?.into_dyn()));
    }
    // SAFETY: the caller promises that all pointers are NULL or objects that were created here.
    let pd = unsafe { self::pd(pd) }?;
    context.check_owner(pd.c.context)?;
    let of_cq = |of: *mut ibv_cq| {
        // SAFETY: the caller promises that all pointers are NULL or objects that were created here.
        let cq = unsafe { cq(of) }?;
        context.check_owner(cq.ex.context)?;
        cq.handle()
    };
    let send_cq = of_cq(attr.send_cq)?;
    let recv_cq = if attr.qp_type == IBV_QPT_XRC_SEND {
        send_cq.clone()
    } else {
        of_cq(attr.recv_cq)?
    };
    let srq = if attr.srq.is_null() {
        None
    } else {
        // SAFETY: the caller promises that all pointers are NULL or objects that were created here.
        let srq = unsafe { srq(attr.srq) }?;
        context.check_owner(srq.c.context)?;
        Some(srq.handle()?)
    };
    let mut init = QpInitHandles {
        send_cq,
        recv_cq,
        srq,
        cap: *cap,
        sq_sig_all: attr.sq_sig_all != 0,
    };
    let qp = match attr.qp_type {
        IBV_QPT_RAW_PACKET => {
            let domain = context.frames.domain(context.hca.device)?;
            let mut qp = RawQp::create(pd, domain, &mut init)?;
            if strip_vlan && init.cap.max_recv_wr != 0 {
                qp.qp.set_vlan_strip(true)?;
            }
            AnyQp::Raw(qp)
        }
        of_type => {
            let kind = match of_type {
                IBV_QPT_RC => QpKind::Rc,
                IBV_QPT_UC => QpKind::Uc,
                IBV_QPT_UD => QpKind::Ud,
                IBV_QPT_XRC_SEND => QpKind::XrcSend,
                IBV_QPT_DRIVER => return Err(Errno::EOPNOTSUPP),
                _ => return Err(Errno::EINVAL),
            };
            AnyQp::Verbs(pd.pd.create_dyn_qp_by_handles(kind, &mut init)?)
        }
    };
    *cap = init.cap;
    Ok(qp)
}

fn from_cap(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// The objects that a QP holds, as C has them.
pub(crate) fn to_cap(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Creates a QP: `ibv_create_qp`.
///
/// # Safety
/// The domain and the objects in `attr` were created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    as_pointer(|| {
        // SAFETY: the caller promises that the domain and the objects in `attr` were created here.
        let attr = unsafe { attr.as_mut() }.ok_or(Errno::EINVAL)?;
        let mut recipe = Recipe {
            // SAFETY: the caller promises that the domain and the objects in `attr` were created here.
            context: unsafe { self::pd(pd) }?.c.context,
            attr: *attr,
            pd,
            xrcd: std::ptr::null_mut(),
            send_ops: None,
            strip_vlan: false,
        };
        // SAFETY: the caller promises that the domain and the objects in `attr` were created here.
        let object = unsafe { create(&mut recipe) }?;
        attr.cap = recipe.attr.cap;
        Ok(Box::into_raw(object).cast())
    })
}

/// `ibv_create_qp_ex`, from the table of functions.
///
/// # Safety
/// The context is open, and the objects in `attr` were created here.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller promises the same here.
    as_pointer(|| unsafe { create_extended(context, attr) })
}

/// `create_qp_ex` for callers in Rust.
///
/// # Safety
/// As `create_qp_ex`.
pub(crate) unsafe fn create_extended(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    const KNOWN: u32 = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_IND_TABLE
        | IBV_QP_INIT_ATTR_RX_HASH
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    // SAFETY: the caller promises the same as for `create_qp_ex`.
    let attr = unsafe { attr.as_mut() }.ok_or(Errno::EINVAL)?;
    let has = |flag: u32| attr.comp_mask & flag != 0;
    if attr.comp_mask & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let flags = match has(IBV_QP_INIT_ATTR_CREATE_FLAGS) {
        true => attr.create_flags,
        false => 0,
    };
    let hashes = has(IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE);
    // Frames that a raw packet QP sends to a group never come back to it (`raw`). Of QPs that hash, the receive queues have
    // the flag for tags.
    let known = match attr.qp_type == IBV_QPT_RAW_PACKET && !hashes {
        true => IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_CVLAN_STRIPPING,
        false => 0,
    };
    // As the kernel's `check_creation_flags`, and then its driver.
    let wrong = match attr.qp_type {
        IBV_QPT_RAW_PACKET => 0,
        IBV_QPT_UD => IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING,
        _ => !0,
    };
    if flags & wrong != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let strip_vlan = flags & IBV_QP_CREATE_CVLAN_STRIPPING != 0;
    let send_ops = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags);
    if send_ops.is_some_and(|ops| !wr::has_operations(attr.qp_type, ops)) {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut recipe = Recipe {
        context,
        attr: ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        },
        pd: if has(IBV_QP_INIT_ATTR_PD) {
            attr.pd
        } else {
            std::ptr::null_mut()
        },
        xrcd: if has(IBV_QP_INIT_ATTR_XRCD) {
            attr.xrcd
        } else {
            std::ptr::null_mut()
        },
        send_ops,
        strip_vlan,
    };
    if hashes {
        // It has no queue to post to.
        recipe.send_ops = None;
        // SAFETY: the caller promises the same as for `create_qp_ex`.
        let context = unsafe { self::context(context) }?;
        // SAFETY: the same.
        let rss = unsafe { RssQp::create(context, attr) }?;
        let object = object_of(context.hca, AnyQp::Rss(rss), &recipe);
        return Ok(Box::into_raw(object).cast());
    }
    // SAFETY: the caller promises the same as for `create_qp_ex`.
    let object = unsafe { create(&mut recipe) }?;
    attr.cap = recipe.attr.cap;
    Ok(Box::into_raw(object).cast())
}

/// The QP with the functions of `ibv_wr_*`, NULL if it was created without: `ibv_qp_to_qp_ex`.
///
/// # Safety
/// The QP was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let ex = qp.cast::<ibv_qp_ex>();
    // SAFETY: the caller's promise: it is the first field of a `QpObject`.
    match unsafe { ex.as_ref() } {
        Some(found) if found.wr_start.is_some() => ex,
        _ => std::ptr::null_mut(),
    }
}

/// Says if the data of an operation arrives in memory in its order: `ibv_query_qp_data_in_order`. No device promises that here.
///
/// # Safety
/// The QP was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(_: *mut ibv_qp, _: c_int, _: u32) -> c_int {
    0
}

/// Destroys a QP, after its events were acknowledged: `ibv_destroy_qp`. EBUSY while it is in multicast groups.
///
/// # Safety
/// It was created here, and is not used again after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller promises the same here.
    as_errno(|| unsafe { destroy_qp(qp) })
}

/// `ibv_destroy_qp` for callers in Rust.
///
/// # Safety
/// As `ibv_destroy_qp`.
pub(crate) unsafe fn destroy_qp(qp: *mut ibv_qp) -> Result<()> {
    // SAFETY: the caller promises the same as for `ibv_destroy_qp`.
    let object = unsafe { self::qp(qp) }?;
    let pointer: *const QpObject = object;
    object.detach();
    object.destroy()?;
    let number = object.ex.qp_base.qp_num;
    object.hca.registry.with(|objects| {
        take_out(&mut objects.qps, number, pointer);
        if object.ex.qp_base.qp_type == IBV_QPT_RAW_PACKET {
            let gone = pointer.cast::<ibv_qp>();
            objects.receiving.retain(|_, other| *other != gone);
        }
    });
    // What its CQs remember of it is in the way of the next QP, and they may never be polled.
    for cq in [object.ex.qp_base.send_cq, object.ex.qp_base.recv_cq] {
        // SAFETY: the caller's promise: its CQs are there longer than the QP.
        if let Ok(cq) = unsafe { self::cq(cq) } {
            cq.forget_destroyed();
        }
    }
    // SAFETY: the context is there longer than its QPs.
    let context = unsafe { context(object.ex.qp_base.context) }?;
    context
        .events
        .remove(|event| event.subject == Subject::Qp(pointer.cast()));
    object.acks.wait();
    // SAFETY: the caller's promise: it was made by `create`.
    drop(unsafe { Box::from_raw(pointer.cast_mut()) });
    Ok(())
}

/// Lets a UD QP receive what is sent to a group: `ibv_attach_mcast`.
///
/// # Safety
/// The QP was created here, and `gid` points to a GID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller promises that the QP was created here, and `gid` points to a GID.
    as_errno(|| unsafe { attach(qp, gid, lid, true) })
}

/// The opposite: `ibv_detach_mcast`.
///
/// # Safety
/// As `ibv_attach_mcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller promises the same as for `ibv_attach_mcast`.
    as_errno(|| unsafe { attach(qp, gid, lid, false) })
}

/// Lets a UD QP receive what is sent to a group, or no longer. As the kernel does it (`ib_uverbs_attach_mcast`), attaching
/// again is a success that the device does not hear of, and what is not attached is not detached. A group is what has this GID and
/// this LID, although the device looks at the GID only.
///
/// # Safety
/// The QP was created here, and `gid` points to a GID.
pub(crate) unsafe fn attach(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
    attach: bool,
) -> Result<()> {
    // SAFETY: the caller promises that the QP was created here, and `gid` points to a GID.
    let (object, gid) = unsafe { (self::qp(qp)?, gid.as_ref().ok_or(Errno::EINVAL)?) };
    let gid = Gid(gid.raw);
    let mut groups = lock(&object.groups);
    let attached = groups.iter().position(|group| *group == (gid, lid));
    object.with(|qp| {
        let AnyQp::Verbs(qp) = qp else {
            return Err(Errno::EINVAL);
        };
        let qp = qp.as_qp_mut::<Ud>().ok_or(Errno::EINVAL)?;
        match (attach, attached) {
            (true, Some(_)) => {}
            (true, None) => {
                qp.attach_mcast(gid)?;
                groups.push((gid, lid));
            }
            (false, Some(at)) => {
                qp.detach_mcast(gid)?;
                groups.swap_remove(at);
            }
            (false, None) => return Err(Errno::EINVAL),
        }
        Ok(())
    })
}
