//! Connecting and disconnecting, and the states of the QPs on the way.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::slice;

use bareverbs_node::cm::rdma::{CmId, ConnParam, DEVICE_MAX, Ece, IdState, RdmaError};
use bareverbs_node::verbs::{QpAttr, QpAttrMask, QpState};

use crate::abi::cma::{rdma_cm_id, rdma_conn_param};
use crate::abi::numbers::*;
use crate::abi::objects::{ibv_ece, ibv_qp_attr};
use crate::process::failure::{Errno, Result, as_status, guarded, lock};
use crate::process::hca::Cm;
use crate::rdmacm::channel::channel;
use crate::rdmacm::endpoint::rdma_get_src_port;
use crate::rdmacm::event::{acknowledge_last, completed};
use crate::rdmacm::id::{IdObject, id, manager_of, mover_of};
use crate::rdmacm::queues;
use crate::rdmacm::wildcard::listen_elsewhere;
use crate::verbs::{modify, qp};

/// Private data that C points to.
///
/// # Safety
/// `length` bytes at `data` can be read.
unsafe fn bytes<'a>(data: *const c_void, length: u8) -> &'a [u8] {
    if data.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller promises that `length` bytes at `data` can be read.
    unsafe { slice::from_raw_parts(data.cast(), length.into()) }
}

/// Parameters of C, with the QP of the id if it has one.
///
/// # Safety
/// The id was created here; `param` is NULL or a structure of the headers.
unsafe fn from_c<'a>(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<ConnParam<'a>> {
    // SAFETY: the caller promises that the id was created here; `param` is NULL or a structure of the headers.
    unsafe {
        let mut found = match param.as_ref() {
            Some(param) => ConnParam {
                private_data: bytes(param.private_data, param.private_data_len),
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                flow_control: param.flow_control != 0,
                retry_count: param.retry_count,
                rnr_retry_count: param.rnr_retry_count,
                srq: param.srq != 0,
                qp_num: param.qp_num,
            },
            None => ConnParam::default(),
        };
        match ((*id).qp.is_null(), (*id).qp_type) {
            (false, IBV_QPT_UD) => found.qp_num = (*(*id).qp).qp_num,
            (true, IBV_QPT_UD) => {}
            // The manager has it, unless the program has destroyed it.
            (false, _) => {
                let (hca, cm) = manager_of(id)?;
                let own = hca.manager_quietly()?.qp_num(cm)?;
                found.qp_num = own.ok_or(Errno::EINVAL)?.number();
            }
            // Which QP is not said anywhere.
            (true, _) if param.is_null() => return Err(Errno::EINVAL),
            (true, _) => {}
        }
        Ok(found)
    }
}

/// Remembers which QP an id's connection has.
///
/// # Safety
/// The id was created here.
unsafe fn note_qp(id: *mut rdma_cm_id, param: &ConnParam<'_>) -> Result<()> {
    // SAFETY: the caller promises that the id was created here.
    let object = unsafe { self::id(id) }?;
    let mut inner = lock(&object.inner);
    inner.disconnected = false;
    let (hca, cm) = (inner.hca, inner.cm);
    if inner.qpn.replace(param.qp_num) != Some(param.qp_num) {
        drop(inner);
        hca.registry
            .with(|objects| objects.cm_ids.insert(param.qp_num, cm));
    }
    Ok(())
}

/// Offers options to the other end. A message has room for the low 24 bits of the vendor.
fn offer(manager: &mut Cm, cm: CmId, ece: Ece) -> Result<()> {
    let vendor_id = ece.vendor_id & 0xff_ffff;
    if vendor_id != 0 {
        manager.set_local_ece(cm, Ece { vendor_id, ..ece })?;
    }
    Ok(())
}

/// Asks for a connection, or for a datagram service: `rdma_connect`.
///
/// # Safety
/// The id was created here; `conn_param` is NULL or a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let begun = guarded(|| {
        // SAFETY: the caller promises that the id was created here; `conn_param` is NULL or a structure of the headers.
        unsafe {
            let (hca, cm) = mover_of(id)?;
            let param = from_c(id, conn_param)?;
            note_qp(id, &param)?;
            let ece = lock(&self::id(id)?.inner).ece;
            let mut manager = hca.manager()?;
            offer(&mut manager, cm, ece)?;
            manager.connect(cm, Some(&param))?;
            Ok(true)
        }
    });
    // SAFETY: the caller promises that the id was created here; `conn_param` is NULL or a structure of the headers.
    unsafe { completed(id, begun) }
}

/// Waits for connections: `rdma_listen`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here.
        unsafe {
            let (hca, cm) = manager_of(id)?;
            let backlog = u32::try_from(backlog).unwrap_or(0);
            hca.manager()?.listen(cm, backlog)?;
            listen_elsewhere(self::id(id)?, channel((*id).channel)?, backlog)?;
            IdObject::show_addresses(id.cast())?;
            // Servers print nothing when they are ready; test harnesses wait for this.
            let port = u16::from_be(rdma_get_src_port(id));
            log::info!("rdma_listen: at port {port}");
            Ok(())
        }
    })
}

/// Accepts a connection, or tells of a datagram service: `rdma_accept`.
///
/// # Safety
/// The id is one of a request; `conn_param` is NULL or a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let begun = guarded(|| {
        // SAFETY: the caller promises that the id is one of a request; `conn_param` is NULL or a structure of the headers.
        unsafe {
            let (hca, cm) = mover_of(id)?;
            let param = from_c(id, conn_param)?;
            let caps = hca.device.capabilities();
            let too_many = |asked, most| asked != DEVICE_MAX && u32::from(asked) > most;
            if (*id).ps == RDMA_PS_TCP
                && (too_many(param.responder_resources, caps.max_responder_resources())
                    || too_many(param.initiator_depth, caps.max_initiator_depth()))
            {
                // `ucma_valid_param` of librdmacm, before it moves the QP.
                return Err(Errno::EINVAL);
            }
            note_qp(id, &param)?;
            if let Some(qp) = (*id).qp.as_ref()
                && (*id).qp_type != IBV_QPT_UD
                && (&raw const qp.state).read_volatile() == QpState::Reset as c_int
            {
                // librdmacm begins there (`ucma_modify_qp_rtr`), whatever the program has done with the QP.
                queues::init(id, qp::qp((*id).qp)?)?;
            }
            let ece = lock(&self::id(id)?.inner).ece;
            let mut manager = hca.manager()?;
            if (*id).qp_type != IBV_QPT_UD {
                // The answer has the other end's vendor (`ucma_copy_ece_param_to_kern_rep` of librdmacm).
                let vendor_id = manager.get_remote_ece(cm)?.vendor_id;
                offer(&mut manager, cm, Ece { vendor_id, ..ece })?;
            }
            let accepted = manager.accept(cm, Some(&param));
            drop(manager);
            if let Err(RdmaError::PrivateDataTooLong { .. }) = accepted {
                // The kernel finds it, and refuses the request (`rdma_accept` of core/cma.c). What is wrong with the depths
                // librdmacm finds for RDMA_PS_TCP, and leaves the request as it is.
                hca.manager()?.reject(cm, &[])?;
                to_error(id)?;
            }
            accepted?;
            let connects = (*id).qp_type != IBV_QPT_UD;
            if !connects {
                // Nothing is waited for, and the request is over (`rdma_accept` of librdmacm).
                acknowledge_last(id)?;
            }
            Ok(connects)
        }
    });
    // SAFETY: the caller promises that the id is one of a request; `conn_param` is NULL or a structure of the headers.
    unsafe { completed(id, begun) }
}

/// Refuses a connection: `rdma_reject`.
///
/// # Safety
/// The id is one of a request; so many bytes of private data can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller promises that the id is one of a request; so many bytes of private data can be read.
    unsafe { refuse(id, private_data, private_data_len, Cm::reject) }
}

/// Refuses a connection because of its options: `rdma_reject_ece`.
///
/// # Safety
/// As `rdma_reject`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller promises the same as for `rdma_reject`.
    unsafe { refuse(id, private_data, private_data_len, Cm::reject_ece) }
}

/// Refuses a connection in one of the two ways.
///
/// # Safety
/// As `rdma_reject`.
unsafe fn refuse(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
    reject: fn(&mut Cm, CmId, &[u8]) -> std::result::Result<(), RdmaError>,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises the same as for `rdma_reject`.
        unsafe {
            let (hca, cm) = manager_of(id)?;
            let data = bytes(private_data, private_data_len);
            Ok(reject(&mut *hca.manager()?, cm, data)?)
        }
    })
}

/// Confirms a connection whose QP the program has moved itself: `rdma_establish`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here.
        unsafe {
            if !(*id).qp.is_null() {
                return Err(Errno::EINVAL);
            }
            let (hca, cm) = mover_of(id)?;
            let mut manager = hca.manager()?;
            if (*id).qp_type == IBV_QPT_UD {
                // librdmacm accepts without parameters, which for the kernel is the answer with the QP that it knows: none.
                return Ok(manager.accept(cm, Some(&ConnParam::default()))?);
            }
            let established = manager.establish(cm);
            if established.is_err() {
                // For the kernel it is an answer without parameters: it refuses a request of which that is none (`rdma_accept` of
                // core/cma.c), and other ids stay as they are.
                let _ = manager.reject(cm, &[]);
            }
            Ok(established?)
        }
    })
}

/// Passes an event of the QP on: `rdma_notify`.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    as_status(|| {
        if event != IBV_EVENT_COMM_EST {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises that the id was created here.
        unsafe {
            let (hca, cm) = manager_of(id)?;
            hca.manager()?.notify(cm)?;
            channel((*id).channel)?.signal();
        }
        Ok(())
    })
}

/// Moves the QP of an id to ERR, if it has one.
///
/// # Safety
/// The id was created here.
unsafe fn to_error(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: the caller promises that the id was created here.
    let qp = unsafe { (*id).qp };
    if qp.is_null() {
        return Ok(());
    }
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::DEFAULT
    };
    // SAFETY: an id's QP was created here.
    unsafe { qp::qp(qp) }?.modify(&attr, QpAttrMask::STATE)
}

/// Ends a connection: `rdma_disconnect`. An id without a connection, a listener or one for datagrams, has its QP in ERR afterwards.
///
/// # Safety
/// The id was created here.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let begun = guarded(|| {
        // SAFETY: the caller promises that the id was created here.
        unsafe {
            if (*id).verbs.is_null() {
                return Err(Errno::EINVAL);
            }
            let (hca, cm) = mover_of(id)?;
            let state = hca.manager()?.state(cm)?;
            let connected = matches!(state, IdState::Connect | IdState::Disconnect);
            if !connected || (*id).qp_type == IBV_QPT_UD {
                // librdmacm stops the QP before it asks the kernel (`ucma_shutdown`), and there is no other end to tell.
                to_error(id)?;
                if !connected && state != IdState::Listen {
                    return Err(Errno::EINVAL);
                }
                return Ok(false);
            }
            // The other end has heard of what was accepted before.
            hca.settle(cm, None);
            hca.manager()?.disconnect(cm)?;
            // The QP is in ERR when this returns.
            hca.settle(cm, None);
            // An end that was reported before is not reported again.
            Ok(!lock(&self::id(id)?.inner).disconnected)
        }
    });
    // SAFETY: the caller promises that the id was created here.
    unsafe { completed(id, begun) }
}

/// The attributes that take a QP of the program's to a state: `rdma_init_qp_attr`.
///
/// # Safety
/// The id was created here; `qp_attr` has the state, and both can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here; `qp_attr` has the state, and both can be written.
        unsafe {
            let state = modify::state((*qp_attr).qp_state)?;
            let (hca, cm) = manager_of(id)?;
            let manager = hca.manager()?;
            // As the kernel has it (`rdma_init_qp_attr` of core/cma.c): what a state other than INIT needs comes with the
            // connection, and never for datagrams.
            let connected = matches!(manager.state(cm)?, IdState::Connect | IdState::Disconnect)
                && (*id).qp_type != IBV_QPT_UD;
            let asked = if connected { state } else { QpState::Init };
            let (mut attr, mut mask) = manager.init_qp_attr(cm, asked)?;
            attr.qp_state = state;
            if asked == QpState::Rtr {
                // The QP has them from INIT.
                mask.remove(QpAttrMask::ACCESS_FLAGS);
            }
            drop(manager);
            qp_attr.write(modify::to_c(&attr));
            qp_attr_mask.write(mask.bits() as c_int);
        }
        Ok(())
    })
}

/// Sets the options of this end's QP: `rdma_set_local_ece`.
///
/// # Safety
/// The id was created here, and `ece` is a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here, and `ece` is a structure of the headers.
        unsafe {
            let ece = ece.as_ref().ok_or(Errno::EINVAL)?;
            if !(*id).qp.is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
                return Err(Errno::EINVAL);
            }
            lock(&self::id(id)?.inner).ece = Ece {
                vendor_id: ece.vendor_id,
                options: ece.options,
            };
            Ok(())
        }
    })
}

/// The options of the other end's QP: `rdma_get_remote_ece`.
///
/// # Safety
/// The id was created here, and `ece` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    as_status(|| {
        // SAFETY: the caller promises that the id was created here, and `ece` can be written.
        unsafe {
            if !(*id).qp.is_null() {
                return Err(Errno::EINVAL);
            }
            let (hca, cm) = manager_of(id)?;
            let found = hca.manager()?.get_remote_ece(cm)?;
            ece.write(ibv_ece {
                vendor_id: found.vendor_id,
                options: found.options,
                comp_mask: 0,
            });
        }
        Ok(())
    })
}
