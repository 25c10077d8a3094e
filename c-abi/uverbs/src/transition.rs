//! The attributes of a QP as the kernel's ABI has them, from and into those of the driver.

use bareverbs_node::verbs::qp::{PathMigState, QueriedQp};
use bareverbs_node::verbs::{
    Access, AhAttr, Gid, ModifyError, Mtu, QpAttr, QpAttrMask, QpState, Qpn, StaticRate,
};
use zerocopy::FromZeros;

use crate::abi::{Destination, ModifyQpIn, QueryQpOut};
use crate::attrs::{Result, refused};

/// Attributes that the core knows: a mask with others is EOPNOTSUPP.
pub(crate) fn mask(modify: &ModifyQpIn) -> Result<QpAttrMask> {
    QpAttrMask::from_bits(modify.attr_mask).ok_or(libc::EOPNOTSUPP)
}

fn state(number: u8) -> Result<QpState> {
    let known = QpState::ALL.get(usize::from(number));
    known.copied().ok_or(libc::EINVAL)
}

fn path(dest: &Destination, dmac: [u8; 6]) -> AhAttr {
    AhAttr {
        dgid: match dest.is_global {
            0 => Gid::ZERO,
            _ => Gid(dest.dgid),
        },
        sgid_index: dest.sgid_index.into(),
        hop_limit: dest.hop_limit,
        traffic_class: dest.traffic_class,
        flow_label: dest.flow_label & 0xf_ffff,
        sl: dest.sl,
        static_rate: StaticRate::from_number(dest.static_rate).unwrap_or_default(),
        dmac,
        dlid: dest.dlid,
        src_path_bits: dest.src_path_bits,
        port_num: dest.port_num,
        force_loopback: false,
    }
}

/// The attributes of a request. Those that the mask does not have are not looked at.
pub(crate) fn attributes(modify: &ModifyQpIn, mask: QpAttrMask, mac: [u8; 6]) -> Result<QpAttr> {
    let given = |bit| mask.contains(bit);
    let mut attr = QpAttr {
        qkey: modify.qkey,
        // Numbers that are too wide lose their upper bits, as `MLX5_SET` has it.
        rq_psn: modify.rq_psn & 0xff_ffff,
        sq_psn: modify.sq_psn & 0xff_ffff,
        dest_qp_num: Qpn::from_low_bits(modify.dest_qp_num),
        qp_access_flags: Access::from_bits_truncate(modify.qp_access_flags),
        ah_attr: path(&modify.dest, mac),
        pkey_index: modify.pkey_index,
        max_rd_atomic: modify.max_rd_atomic,
        max_dest_rd_atomic: modify.max_dest_rd_atomic,
        min_rnr_timer: modify.min_rnr_timer & 31,
        port_num: modify.port_num,
        timeout: modify.timeout & 31,
        retry_cnt: modify.retry_cnt & 7,
        rnr_retry: modify.rnr_retry & 7,
        alt_ah_attr: path(&modify.alt_dest, [0; 6]),
        alt_pkey_index: modify.alt_pkey_index,
        alt_port_num: modify.alt_port_num,
        alt_timeout: modify.alt_timeout,
        path_mig_state: match modify.path_mig_state {
            1 => PathMigState::Rearm,
            2 => PathMigState::Armed,
            _ => PathMigState::Migrated,
        },
        ..QpAttr::DEFAULT
    };
    if given(QpAttrMask::STATE) {
        attr.qp_state = state(modify.qp_state)?;
    }
    if given(QpAttrMask::CUR_STATE) {
        attr.cur_qp_state = state(modify.cur_qp_state)?;
    }
    if given(QpAttrMask::PATH_MTU) {
        attr.path_mtu = Mtu::from_number(modify.path_mtu).ok_or(libc::EINVAL)?;
    }
    Ok(attr)
}

/// An error number for a transition that was not made.
pub(crate) fn unmodified(error: ModifyError) -> i32 {
    match error {
        ModifyError::Command(error) => refused(error),
        error => {
            log::info!("{error}");
            libc::EINVAL
        }
    }
}

fn destination(ah: &AhAttr) -> Destination {
    Destination {
        dgid: ah.dgid.0,
        flow_label: ah.flow_label,
        dlid: ah.dlid,
        reserved: 0,
        sgid_index: ah.sgid_index as u8,
        hop_limit: ah.hop_limit,
        traffic_class: ah.traffic_class,
        sl: ah.sl,
        src_path_bits: ah.src_path_bits,
        static_rate: ah.static_rate.number(),
        is_global: 1,
        port_num: ah.port_num,
    }
}

/// The answer to a query, without the capacities.
pub(crate) fn answer(found: &QueriedQp) -> QueryQpOut {
    let attr = &found.attr;
    QueryQpOut {
        dest: destination(&attr.ah_attr),
        alt_dest: destination(&attr.alt_ah_attr),
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num.number(),
        qp_access_flags: attr.qp_access_flags.bits(),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        qp_state: attr.qp_state as u8,
        cur_qp_state: attr.cur_qp_state as u8,
        path_mtu: found.path_mtu.map_or(0, Mtu::number),
        path_mig_state: attr.path_mig_state as u8,
        sq_draining: found.sq_draining.into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        ..FromZeros::new_zeroed()
    }
}
