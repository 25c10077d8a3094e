//! The context that a transition carries to the firmware.

use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::qp::{Ads, Qpc};
use bareverbs_firmware_cmds::values::{AtomicMode, Mtu, PathMigration};

use crate::platform::Platform;
use crate::types::ah::{self, AhAttr, AhError, connection_udp_sport};
use crate::types::gid::{Gid, RoceVersion};
use crate::types::qp::{QpKind, QpState};
use crate::types::sge::Access;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::object::QpObject;
use crate::verbs::qp::control::states::QpAttrMask;
#[cfg(not(feature = "foreign-qps"))]
use crate::verbs::qp::queue::block::BlockLayout;

/// The logarithm of a depth, rounded up: the device keeps powers of two.
const fn log_depth(depth: u8) -> u8 {
    match depth {
        0 => 0,
        n => n.next_power_of_two().ilog2() as u8,
    }
}

impl<P: Platform> QpObject<'_, P> {
    /// Fills in the context that a transition carries.
    pub(in crate::verbs::qp) fn describe(
        &self,
        qpc: &mut Qpc,
        attr: &QpAttr,
        mask: QpAttrMask,
        from: QpState,
    ) -> Result<(), ModifyError> {
        let caps = &self.device.capabilities().hca;
        qpc.set_st(self.kind.service())
            .set_pm_state(PathMigration::Migrated.number())
            .set_pd(self.pdn.number())
            .set_cqn_snd(self.cqns[0])
            .set_cqn_rcv(self.cqns[1])
            .set_log_ack_req_freq(8);
        match self.kind {
            QpKind::Gsi => qpc.set_mtu(Mtu::B256.number()).set_log_msg_max(8),
            QpKind::Ud => qpc.set_mtu(Mtu::B4096.number()).set_log_msg_max(12),
            _ if mask.contains(QpAttrMask::PATH_MTU) => qpc
                .set_mtu(attr.path_mtu.number())
                .set_log_msg_max(caps.log_max_msg()),
            _ => &mut *qpc,
        };
        if from == QpState::Reset {
            qpc.set_counter_set_id(self.device.queue_counter_set());
        }
        if from == QpState::Reset && self.kind != QpKind::XrcRecv {
            #[cfg(feature = "foreign-qps")]
            let record = self.record;
            #[cfg(not(feature = "foreign-qps"))]
            let record = self.block.iova() + BlockLayout::new(&self.sizes).record as u64;
            qpc.set_dbr_addr(record);
            if self.kind == QpKind::Gsi {
                qpc.primary_address_path_mut().set_vhca_port_num(1);
            }
        }
        if mask.contains(QpAttrMask::PKEY_INDEX) {
            qpc.primary_address_path_mut()
                .set_pkey_index(attr.pkey_index);
        }
        if mask.contains(QpAttrMask::PORT) {
            qpc.primary_address_path_mut()
                .set_vhca_port_num(attr.port_num);
        }
        if mask.contains(QpAttrMask::QKEY) {
            qpc.set_q_key(attr.qkey);
        }
        if mask.contains(QpAttrMask::AV) {
            self.path(
                qpc.primary_address_path_mut(),
                &attr.ah_attr,
                attr.dest_qp_num,
            )
            .map_err(ModifyError::Path)?;
        }
        if mask.contains(QpAttrMask::DEST_QPN) {
            qpc.set_remote_qpn(attr.dest_qp_num.number());
        }
        if mask.contains(QpAttrMask::RQ_PSN) {
            qpc.set_next_rcv_psn(attr.rq_psn);
        }
        if mask.contains(QpAttrMask::SQ_PSN) {
            qpc.set_next_send_psn(attr.sq_psn);
        }
        if mask.contains(QpAttrMask::TIMEOUT) {
            qpc.primary_address_path_mut().set_ack_timeout(attr.timeout);
        }
        if mask.contains(QpAttrMask::RETRY_CNT) {
            qpc.set_retry_count(attr.retry_cnt);
        }
        if mask.contains(QpAttrMask::RNR_RETRY) {
            qpc.set_rnr_retry(attr.rnr_retry);
        }
        if mask.contains(QpAttrMask::MIN_RNR_TIMER) {
            qpc.set_min_rnr_nak(attr.min_rnr_timer);
        }
        if mask.contains(QpAttrMask::MAX_QP_RD_ATOMIC) {
            qpc.set_log_sra_max(log_depth(attr.max_rd_atomic));
        }
        if mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            qpc.set_log_rra_max(log_depth(attr.max_dest_rd_atomic));
        }
        if mask.intersects(QpAttrMask::ACCESS_FLAGS | QpAttrMask::MAX_DEST_RD_ATOMIC) {
            self.access(qpc, attr, mask)?;
        }
        self.describe_alternate(qpc, attr, mask)
    }

    /// The peer's access. Reads and atomics need responder resources, so they are off until their number is known
    /// (at INIT → RTR), whatever was asked for before.
    fn access(&self, qpc: &mut Qpc, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        let asked = if mask.contains(QpAttrMask::ACCESS_FLAGS) {
            attr.qp_access_flags
        } else {
            self.access
        };
        let depth = if mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            attr.max_dest_rd_atomic
        } else {
            self.responder_depth
        };
        let allowed = if depth == 0 {
            asked & Access::REMOTE_WRITE
        } else {
            asked
        };
        qpc.set_rwe(allowed.contains(Access::REMOTE_WRITE))
            .set_rre(allowed.contains(Access::REMOTE_READ));
        if allowed.contains(Access::REMOTE_ATOMIC) {
            if !self.device.capabilities().has_atomics() {
                return Err(ModifyError::Unsupported {
                    attribute: QpAttrMask::ACCESS_FLAGS,
                });
            }
            qpc.set_rae(true)
                .set_atomic_mode(AtomicMode::IbSpec.number());
        }
        Ok(())
    }

    /// The path of a connection. On RoCE the GID table entry decides the encapsulation, and the fields that only an
    /// InfiniBand link has stay 0.
    pub(in crate::verbs::qp) fn path(
        &self,
        path: &mut Ads,
        ah: &AhAttr,
        dest_qpn: Qpn,
    ) -> Result<(), AhError> {
        if ah.force_loopback {
            if self.kind != QpKind::Rc {
                return Err(AhError::ForceLoopbackNotRc);
            }
            if !self.device.capabilities().has_force_loopback() {
                return Err(AhError::NoForceLoopback);
            }
            // No source address either: the GID table may be empty.
            path.set_fl(true).set_vhca_port_num(self.port);
            return Ok(());
        }
        let encapsulation = self.device.encapsulation(ah.sgid_index)?;
        // An initiator's work requests say where they go; its own path is for the priority of what it sends.
        let to_peer = self.kind != QpKind::Dci;
        ah::check(ah, to_peer && encapsulation.is_some())?;
        let rates = self.device.capabilities().hca.stat_rate_support();
        path.set_vhca_port_num(self.port)
            .set_stat_rate(ah.static_rate.to_device(rates));
        path.set_src_addr_index(ah.sgid_index as u8)
            .set_hop_limit(ah.hop_limit)
            .set_tclass(ah.traffic_class)
            .set_flow_label(ah.flow_label);
        *path.rgid_rip_mut() = ah.dgid.0;
        let Some(version) = encapsulation else {
            path.set_rlid(ah.dlid)
                .set_mlid(ah.src_path_bits & 0x7f)
                .set_sl(ah.sl);
            path.set_grh(ah.dgid != Gid::ZERO);
            return Ok(());
        };
        let m = ah.dmac;
        path.set_rmac_47_32(u16::from_be_bytes([m[0], m[1]]))
            .set_rmac_31_0(u32::from_be_bytes([m[2], m[3], m[4], m[5]]))
            .set_eth_prio(ah.sl & 7);
        if version == RoceVersion::V2 {
            path.set_dscp(ah.traffic_class >> 2);
            if to_peer {
                let ends = (self.qpn.number(), dest_qpn.number());
                path.set_udp_sport(connection_udp_sport(ah.flow_label, ends.0, ends.1));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_round_up() {
        for (depth, log) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 2),
            (5, 3),
            (16, 4),
            (17, 5),
            (128, 7),
        ] {
            assert_eq!(log_depth(depth), log, "{depth}");
        }
    }
}
