//! The verbs objects of ids: QPs, and the CQs that are made where the program brings none.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr;

use bareverbs_node::cm::rdma::Ece;
use bareverbs_node::verbs::QpState;

use crate::abi::cma::rdma_cm_id;
use crate::abi::numbers::*;
use crate::abi::objects::*;
use crate::process::failure::{Errno, Result, as_nothing, as_status, lock};
use crate::process::memory;
use crate::rdmacm::id::{id, manager_of, mover_of};
use crate::rdmacm::verbs_of::xrcd_of;
use crate::verbs::qp::{self, QpObject};
use crate::verbs::{channel, cq, create_qp, pd, srq, xrc};

/// The vendor of the options of mlx5's QPs: the PCI vendor.
const VENDOR: u32 = 0x15b3;

/// Makes an object, unless memory has run out.
fn made<T>(make: impl FnOnce() -> Result<*mut T>) -> Result<*mut T> {
    memory::check().and_then(|()| make())
}

/// Makes a CQ with a channel of its own.
///
/// # Safety
/// The id was created here and is bound to a device.
unsafe fn make_cq(
    id: *mut rdma_cm_id,
    entries: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq)> {
    // SAFETY: the caller promises that the id was created here and is bound to a device.
    unsafe {
        let channel = made(|| channel::create((*id).verbs))?;
        let entries = c_int::try_from(entries.max(1)).map_err(|_| Errno::EINVAL)?;
        let cq = made(|| cq::create_cq((*id).verbs, entries, id.cast::<c_void>(), channel, 0));
        match cq {
            Ok(cq) => Ok((channel, cq)),
            Err(errno) => {
                unless_busy("completion channel", channel::destroy(channel));
                Err(errno)
            }
        }
    }
}

/// Says that an object of an id is still in use by the program, and stays.
fn unless_busy(what: &str, destroyed: Result<()>) {
    if let Err(errno) = destroyed {
        log::debug!("a {what} of an id stays: errno {}", errno.0);
    }
}

/// Destroys the CQs that were made for an id, unless an SRQ for XRC still reports to them.
///
/// # Safety
/// The id was created here, and its QP is gone.
unsafe fn destroy_cqs(id: *mut rdma_cm_id) {
    // SAFETY: the caller promises that the id was created here, and its QP is gone.
    unsafe {
        let id = &mut *id;
        if id.qp_type == IBV_QPT_XRC_RECV && !id.srq.is_null() {
            return;
        }
        for (channel, cq) in [
            (&mut id.send_cq_channel, &mut id.send_cq),
            (&mut id.recv_cq_channel, &mut id.recv_cq),
        ] {
            let cq = std::mem::replace(cq, ptr::null_mut());
            if !cq.is_null() {
                unless_busy("CQ", cq::destroy_cq(cq));
            }
            let channel = std::mem::replace(channel, ptr::null_mut());
            if !channel.is_null() {
                unless_busy("completion channel", channel::destroy(channel));
            }
        }
    }
}

/// Moves the new QP of an id to INIT, or to work for datagrams.
///
/// # Safety
/// The id was created here.
pub(super) unsafe fn init(id: *mut rdma_cm_id, qp: &QpObject) -> Result<()> {
    // SAFETY: the caller promises that the id was created here.
    let ((hca, cm), qp_type) = unsafe { (manager_of(id)?, (*id).qp_type) };
    let states = match qp_type {
        IBV_QPT_UD => &[QpState::Init, QpState::Rtr, QpState::Rts][..],
        _ => &[QpState::Init],
    };
    for state in states {
        let (attr, mask) = hca.manager_quietly()?.init_qp_attr(cm, *state)?;
        qp.modify(&attr, mask)?;
    }
    Ok(())
}

/// Creates the QP of an id and moves it to INIT, or to work for datagrams.
///
/// # Safety
/// The id was created here, and so were the objects in `attr`.
pub(crate) unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<()> {
    // SAFETY: the caller promises that the id was created here, and so were the objects in `attr`.
    unsafe {
        self::id(id)?;
        if !(*id).qp.is_null() || (*id).verbs.is_null() {
            return Err(Errno::EINVAL);
        }
        mover_of(id)?;
        if attr.qp_type != IBV_QPT_XRC_RECV {
            if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
                attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
                attr.pd = (*id).pd;
            } else if pd::pd(attr.pd)?.c.context != (*id).verbs {
                return Err(Errno::EINVAL);
            }
        } else if attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
            attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
            attr.xrcd = xrcd_of(manager_of(id)?.0)?;
        }
        if attr.srq.is_null() && attr.qp_type != IBV_QPT_XRC_RECV {
            attr.srq = (*id).srq;
        }
        let created = (|| {
            if attr.send_cq.is_null() && attr.qp_type != IBV_QPT_XRC_RECV {
                ((*id).send_cq_channel, (*id).send_cq) = make_cq(id, attr.cap.max_send_wr)?;
                attr.send_cq = (*id).send_cq;
            }
            let receives = !matches!(attr.qp_type, IBV_QPT_XRC_RECV | IBV_QPT_XRC_SEND);
            if attr.recv_cq.is_null() && receives {
                ((*id).recv_cq_channel, (*id).recv_cq) = make_cq(id, attr.cap.max_recv_wr)?;
                attr.recv_cq = (*id).recv_cq;
            }
            (*id).qp = made(|| create_qp::create_extended((*id).verbs, attr))?;
            let object = qp::qp((*id).qp)?;
            init(id, object)?;
            match (*id).qp_type {
                IBV_QPT_UD => Ok(()),
                _ => object.attach(manager_of(id)?.1),
            }
        })();
        if let Err(errno) = created {
            destroy(id);
            return Err(errno);
        }
        if !attr.pd.is_null() {
            (*id).pd = attr.pd;
        }
        // As mlx5's library says it of a QP (`mlx5_query_ece`), whatever the program has said before.
        lock(&self::id(id)?.inner).ece = Ece {
            vendor_id: VENDOR,
            options: 0,
        };
        Ok(())
    }
}

/// Destroys the QP of an id, and the CQs that were made for it.
///
/// # Safety
/// The id was created here.
pub(crate) unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the caller promises that the id was created here.
    unsafe {
        let qp = std::mem::replace(&mut (*id).qp, ptr::null_mut());
        if !qp.is_null()
            && let Err(errno) = create_qp::destroy_qp(qp)
        {
            log::warn!("the QP of an id stays: errno {}", errno.0);
        }
        destroy_cqs(id);
    }
}

/// The attributes of `ibv_create_qp` as those of `ibv_create_qp_ex`.
pub(crate) fn extended(attr: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    // SAFETY: numbers and raw pointers may be zero.
    let zero: ibv_qp_init_attr_ex = unsafe { zeroed() };
    ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd,
        ..zero
    }
}

/// Creates the QP of an id: `rdma_create_qp`. What it can hold is in the attributes afterwards.
///
/// # Safety
/// The id was created here, and so were the objects in `attr`; the domain may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here, and so were the objects in `attr`; the domain may be NULL.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            let mut all = extended(attr, pd);
            create(id, &mut all)?;
            attr.cap = all.cap;
        }
        Ok(())
    })
}

/// Creates the QP of an id with extended attributes: `rdma_create_qp_ex`.
///
/// # Safety
/// As `rdma_create_qp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: the caller promises the same as for `rdma_create_qp`.
    as_status(|| unsafe { create(id, attr.as_mut().ok_or(Errno::EINVAL)?) })
}

/// Destroys the QP of an id: `rdma_destroy_qp`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    as_nothing(|| {
        // SAFETY: the caller promises that the id was created here.
        unsafe { destroy(id) };
        Ok(())
    });
}

/// Creates the SRQ of an id. One for XRC gets domain and CQ if the program brings none.
///
/// # Safety
/// The id was created here, and so were the objects in `attr`.
unsafe fn create_srq(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<()> {
    // SAFETY: the caller promises that the id was created here, and so were the objects in `attr`.
    unsafe {
        self::id(id)?;
        // A second one takes the place of the first, which stays the program's.
        if (*id).verbs.is_null() || attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
            return Err(Errno::EINVAL);
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
            attr.pd = (*id).pd;
        }
        let mut made_cq = false;
        if attr.srq_type == IBV_SRQT_XRC {
            if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
                attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
                attr.xrcd = xrcd_of(manager_of(id)?.0)?;
            }
            if attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null() {
                if (*id).recv_cq.is_null() {
                    ((*id).recv_cq_channel, (*id).recv_cq) = make_cq(id, attr.attr.max_wr)?;
                    made_cq = true;
                }
                attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
                attr.cq = (*id).recv_cq;
            }
        }
        match made(|| xrc::create_srq((*id).verbs, attr)) {
            Ok(srq) => (*id).srq = srq,
            Err(errno) => {
                if made_cq {
                    destroy_cqs(id);
                }
                return Err(errno);
            }
        }
        if (*id).pd.is_null() {
            (*id).pd = attr.pd;
        }
        Ok(())
    }
}

/// Creates the SRQ of an id with extended attributes: `rdma_create_srq_ex`.
///
/// # Safety
/// The id was created here, and so were the objects in `attr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    // SAFETY: the caller promises that the id was created here, and so were the objects in `attr`.
    as_status(|| unsafe { create_srq(id, attr.as_mut().ok_or(Errno::EINVAL)?) })
}

/// Creates the SRQ of an id: `rdma_create_srq`. On an id that receives by XRC it is one for XRC.
///
/// # Safety
/// The id was created here; the domain may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here; the domain may be NULL.
        unsafe {
            self::id(id)?;
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            let mut all: ibv_srq_init_attr_ex = zeroed();
            all.srq_context = attr.srq_context;
            all.attr = attr.attr;
            all.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
            all.srq_type = if (*id).qp_type == IBV_QPT_XRC_RECV {
                IBV_SRQT_XRC
            } else {
                IBV_SRQT_BASIC
            };
            all.pd = pd;
            create_srq(id, &mut all)?;
            attr.attr = all.attr;
        }
        Ok(())
    })
}

/// Destroys the SRQ of an id: `rdma_destroy_srq`.
///
/// # Safety
/// The id was created here, and its QP is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the caller promises the same here.
    as_nothing(|| unsafe { destroy_srq(id) });
}

/// `rdma_destroy_srq` for callers in Rust.
///
/// # Safety
/// As `rdma_destroy_srq`.
pub(crate) unsafe fn destroy_srq(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller promises the same as for `rdma_destroy_srq`.
    unsafe {
        let srq = std::mem::replace(&mut (*id).srq, ptr::null_mut());
        if !srq.is_null() {
            if let Err(errno) = srq::destroy_srq(srq) {
                log::warn!("the SRQ of an id stays: errno {}", errno.0);
            }
            if (*id).qp.is_null() {
                destroy_cqs(id);
            }
        }
    }
    Ok(())
}
