//! The attributes with which the QPs of ids are moved through their states.

use bareverbs_core::ah::AhAttr;
use bareverbs_core::mr::Access;
use bareverbs_core::qp::{QpAttr, QpAttrMask, QpState};
use bareverbs_core::{Mtu, Platform, Qpn};

use crate::engine::QpParams;
use crate::rdma::id::slot::IdSlot;
use crate::rdma::types::param::Depths;
use crate::rdma::types::{IdType, UDP_QKEY};
use crate::rdma::verbs::hca::Hca;

impl<'d, P: Platform> Hca<'d, P> {
    pub(crate) fn access(&self, id_type: IdType, responder_resources: u8) -> Access {
        // Unreliable connections have neither READs nor atomics.
        let responder_resources = match id_type {
            IdType::Uc => 0,
            _ => responder_resources,
        };
        let mut access = Access::REMOTE_WRITE;
        access.set(Access::REMOTE_READ, responder_resources > 0);
        let atomics = responder_resources > 0 && self.device.capabilities().has_atomics();
        access.set(Access::REMOTE_ATOMIC, atomics);
        access
    }

    /// To INIT.
    pub(crate) fn init_attr(&self, slot: &IdSlot<'d, P>) -> (QpAttr, QpAttrMask) {
        if slot.id_type.is_datagram() {
            let attr = QpAttr {
                qp_state: QpState::Init,
                qkey: UDP_QKEY,
                pkey_index: slot.route.pkey_index,
                port_num: 1,
                ..QpAttr::DEFAULT
            };
            let mask =
                QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
            return (attr, mask);
        }
        // Before there is a connection no remote access is granted; RTR grants it.
        let access = match slot.conn.id {
            Some(_) => self.access(slot.id_type, slot.conn.responder_resources),
            None => Access::empty(),
        };
        let attr = QpAttr {
            qp_state: QpState::Init,
            qp_access_flags: access,
            pkey_index: slot.route.pkey_index,
            port_num: 1,
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::STATE
            | QpAttrMask::PKEY_INDEX
            | QpAttrMask::PORT
            | QpAttrMask::ACCESS_FLAGS;
        (attr, mask)
    }

    /// To RTR, on the path `ah_attr`.
    pub(crate) fn rtr_attr(
        &self,
        slot: &IdSlot<'d, P>,
        params: &QpParams,
        ah_attr: AhAttr,
        depths: Option<Depths>,
    ) -> (QpAttr, QpAttrMask) {
        let resources = depths.map_or(params.max_dest_rd_atomic, |depths| {
            depths.responder_resources
        });
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            // Of a request that asks for none, none is answered, whatever the answer says (`cm_init_qp_init_attr`).
            qp_access_flags: self.access(slot.id_type, resources.min(params.max_dest_rd_atomic)),
            ah_attr,
            path_mtu: Mtu::from_number(params.path_mtu).unwrap_or(Mtu::B256),
            dest_qp_num: Qpn::from_low_bits(params.dest_qpn),
            rq_psn: params.rq_psn,
            max_dest_rd_atomic: resources.min(self.max_responder_resources),
            min_rnr_timer: slot.options.min_rnr_timer,
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::STATE
            | QpAttrMask::ACCESS_FLAGS
            | QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN;
        // An initiator has no requests to answer, and an unreliable connection none with an answer.
        let mask = match slot.id_type {
            IdType::Uc | IdType::XrcSend => mask,
            _ => mask | QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER,
        };
        (attr, mask)
    }

    /// To RTS.
    pub(crate) fn rts_attr(
        &self,
        slot: &IdSlot<'d, P>,
        params: &QpParams,
        depths: Option<Depths>,
    ) -> (QpAttr, QpAttrMask) {
        let depth = depths.map_or(params.max_rd_atomic, |depths| depths.initiator_depth);
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: params.sq_psn,
            max_rd_atomic: depth.min(self.max_initiator_depth),
            retry_cnt: params.retry_count,
            rnr_retry: params.rnr_retry_count,
            timeout: slot.options.ack_timeout.unwrap_or(params.ack_timeout),
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::STATE | QpAttrMask::SQ_PSN;
        // A target makes no requests, and for those of an unreliable connection there is no answer.
        let mask = match slot.id_type {
            IdType::Uc => mask,
            IdType::XrcRecv => mask | QpAttrMask::TIMEOUT,
            _ => {
                mask | QpAttrMask::TIMEOUT
                    | QpAttrMask::MAX_QP_RD_ATOMIC
                    | QpAttrMask::RETRY_CNT
                    | QpAttrMask::RNR_RETRY
            }
        };
        (attr, mask)
    }
}

/// To INIT, for a QP that waits for a connection: no remote access is granted before RTR, which sets it in any case.
pub(crate) fn idle_attr(pkey_index: u16) -> (QpAttr, QpAttrMask) {
    let attr = QpAttr {
        qp_state: QpState::Init,
        qp_access_flags: Access::empty(),
        pkey_index,
        port_num: 1,
        ..QpAttr::DEFAULT
    };
    let mask =
        QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
    (attr, mask)
}

/// Attributes of a UD QP's transition to RTR or RTS.
pub(crate) fn datagram_attr(state: QpState) -> (QpAttr, QpAttrMask) {
    let mask = if state == QpState::Rts {
        QpAttrMask::STATE | QpAttrMask::SQ_PSN
    } else {
        QpAttrMask::STATE
    };
    let attr = QpAttr {
        qp_state: state,
        ..QpAttr::DEFAULT
    };
    (attr, mask)
}
