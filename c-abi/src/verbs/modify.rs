//! `ibv_modify_qp` and `ibv_query_qp`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::mem::zeroed;

use bareverbs_node::verbs::{
    Access, AhAttr, LinkLayer, Mtu, PathMigState, QpAttr, QpAttrMask, QpState, Qpn,
};

use crate::abi::numbers::{IBV_QPT_RAW_PACKET, IBV_QPT_RC, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND};
use crate::abi::objects::{ibv_ah_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};
use crate::process::failure::{Errno, Result, as_errno};
use crate::verbs::create_qp;
use crate::verbs::qp::{self, QpObject};
use crate::verbs::{path, query};

/// The hop limit of routes (RFC 1700).
const HOP_LIMIT: u8 = 64;

/// `enum ibv_qp_state`.
pub(crate) fn state(number: c_int) -> Result<QpState> {
    let found = QpState::ALL
        .into_iter()
        .find(|state| *state as c_int == number);
    found.ok_or(Errno::EINVAL)
}

/// The attributes as C gives them, without the path. Of counts and codes that are too large, the device has room for the low
/// bits (`mlx5_ib_modify_qp`).
fn from_c(attr: &ibv_qp_attr, mask: QpAttrMask) -> Result<QpAttr> {
    let mut found = QpAttr {
        qkey: attr.qkey,
        rq_psn: attr.rq_psn & 0xff_ffff,
        sq_psn: attr.sq_psn & 0xff_ffff,
        dest_qp_num: Qpn::from_low_bits(attr.dest_qp_num),
        qp_access_flags: Access::from_bits_truncate(attr.qp_access_flags),
        pkey_index: attr.pkey_index,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer & 0x1f,
        port_num: attr.port_num,
        timeout: attr.timeout & 0x1f,
        retry_cnt: attr.retry_cnt & 7,
        rnr_retry: attr.rnr_retry & 7,
        alt_pkey_index: attr.alt_pkey_index,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout & 0x1f,
        ..QpAttr::DEFAULT
    };
    // What the mask does not name was not necessarily given.
    if mask.contains(QpAttrMask::STATE) {
        found.qp_state = state(attr.qp_state)?;
    }
    if mask.contains(QpAttrMask::CUR_STATE) {
        found.cur_qp_state = state(attr.cur_qp_state)?;
    }
    if mask.contains(QpAttrMask::PATH_MTU) {
        let number = u8::try_from(attr.path_mtu).map_err(|_| Errno::EINVAL)?;
        found.path_mtu = Mtu::from_number(number).ok_or(Errno::EINVAL)?;
    }
    if mask.contains(QpAttrMask::PATH_MIG_STATE) {
        let known = [
            PathMigState::Migrated,
            PathMigState::Rearm,
            PathMigState::Armed,
        ];
        let state = known
            .into_iter()
            .find(|state| *state as c_int == attr.path_mig_state);
        found.path_mig_state = state.ok_or(Errno::EINVAL)?;
    }
    Ok(found)
}

/// A path and the rest of the attributes as C has them.
pub(crate) fn to_c(attr: &QpAttr) -> ibv_qp_attr {
    // SAFETY: numbers may be zero.
    let mut found: ibv_qp_attr = unsafe { zeroed() };
    found.qp_state = attr.qp_state as c_int;
    found.cur_qp_state = attr.cur_qp_state as c_int;
    found.path_mtu = attr.path_mtu.number().into();
    found.qkey = attr.qkey;
    found.rq_psn = attr.rq_psn;
    found.sq_psn = attr.sq_psn;
    found.dest_qp_num = attr.dest_qp_num.number();
    found.qp_access_flags = attr.qp_access_flags.bits();
    found.ah_attr = path::to_c(&attr.ah_attr);
    found.pkey_index = attr.pkey_index;
    found.max_rd_atomic = attr.max_rd_atomic;
    found.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    found.min_rnr_timer = attr.min_rnr_timer;
    found.port_num = attr.port_num;
    found.timeout = attr.timeout;
    found.retry_cnt = attr.retry_cnt;
    found.rnr_retry = attr.rnr_retry;
    found.alt_ah_attr = path::to_c(&attr.alt_ah_attr);
    found.alt_pkey_index = attr.alt_pkey_index;
    found.alt_port_num = attr.alt_port_num;
    found.alt_timeout = attr.alt_timeout;
    found.path_mig_state = attr.path_mig_state as c_int;
    found
}

/// Attributes that one half of an XRC connection has no use for. Programs give both halves those of an RC QP, and Linux takes no
/// notice of them.
fn unused(qp_type: c_int) -> QpAttrMask {
    match qp_type {
        IBV_QPT_XRC_SEND => QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER,
        IBV_QPT_XRC_RECV => {
            QpAttrMask::MAX_QP_RD_ATOMIC | QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY
        }
        _ => QpAttrMask::empty(),
    }
}

/// Moves a QP or changes its attributes: `ibv_modify_qp`. Where the path leads over Ethernet, the next hop's MAC address is asked
/// for first, which may take a while.
///
/// # Safety
/// The QP was created here, and `attr` is a structure of the headers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the QP was created here, and `attr` is a structure of the headers.
        let (object, attr) = unsafe { (qp::qp(qp)?, attr.as_ref().ok_or(Errno::EINVAL)?) };
        let mask = QpAttrMask::from_bits(attr_mask as c_uint).ok_or(Errno::EOPNOTSUPP)?;
        let mask = mask.difference(unused(object.ex.qp_base.qp_type));
        let mut to = from_c(attr, mask)?;
        if mask.contains(QpAttrMask::AV) {
            to.ah_attr = path_of(object, &attr.ah_attr)?;
        }
        if mask.contains(QpAttrMask::ALT_PATH) {
            to.alt_ah_attr = path_of(object, &attr.alt_ah_attr)?;
        }
        object.modify(&to, mask)
    })
}

fn path_of(object: &QpObject, attr: &ibv_ah_attr) -> Result<AhAttr> {
    if attr.port_num != query::PORT {
        return Err(Errno::EINVAL);
    }
    let connection = object.ex.qp_base.qp_type == IBV_QPT_RC;
    let mut path = path::from_c(object.hca, attr, connection)?;
    if object.hca.device.capabilities().link_layer() == LinkLayer::Ethernet {
        // Linux takes the route's (`ib_resolve_unicast_gid_dmac`), and programs give 1 or 0.
        path.hop_limit = HOP_LIMIT;
    }
    Ok(path)
}

/// Asks the device for a QP's attributes: `ibv_query_qp`. All of them are there, whatever the mask.
///
/// # Safety
/// The QP was created here; `attr` and `init_attr` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    as_errno(|| {
        // SAFETY: the caller promises that the QP was created here; `attr` and `init_attr` can be written.
        let object = unsafe { qp::qp(qp) }?;
        let queried = object.query()?;
        let mut found = to_c(&queried.attr);
        found.path_mtu = queried.path_mtu.map_or(0, |mtu| mtu.number().into());
        found.cap = create_qp::to_cap(&queried.cap);
        found.sq_draining = queried.sq_draining.into();
        let base = &object.ex.qp_base;
        if base.qp_type == IBV_QPT_RAW_PACKET {
            // It has no paths.
            found.alt_port_num = 0;
        }
        let init = ibv_qp_init_attr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: found.cap,
            qp_type: base.qp_type,
            sq_sig_all: queried.sq_sig_all.into(),
        };
        // SAFETY: the caller promises that the QP was created here; `attr` and `init_attr` can be written.
        unsafe {
            attr.write(found);
            init_attr.write(init);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_codes_that_are_too_large_the_low_bits_count() {
        // SAFETY: numbers may be zero.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        (attr.min_rnr_timer, attr.timeout, attr.alt_timeout) = (255, 32, 33);
        (attr.retry_cnt, attr.rnr_retry) = (8, 15);
        let found = from_c(&attr, QpAttrMask::empty()).unwrap();
        let codes = (found.min_rnr_timer, found.timeout, found.alt_timeout);
        assert_eq!(codes, (31, 0, 1));
        assert_eq!((found.retry_cnt, found.rnr_retry), (0, 7));
    }
}
