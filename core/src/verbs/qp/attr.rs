//! The attributes of a QP: `struct ibv_qp_attr`.

use crate::types::ah::AhAttr;
use crate::types::port::Mtu;
use crate::types::sge::Access;
use crate::verbs::qp::caps::QpCap;
use crate::verbs::qp::state::QpState;
use bareverbs_firmware_cmds::numbers::Qpn;

/// Attributes of a QP. Which of them count is said by a [`QpAttrMask`](crate::verbs::qp::QpAttrMask).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpAttr {
    /// The state to move to (`STATE`); without it the state stays.
    pub qp_state: QpState,
    /// The state believed to be current (`CUR_STATE`).
    pub cur_qp_state: QpState,
    /// Path MTU (`PATH_MTU`).
    pub path_mtu: Mtu,
    /// Q_Key (`QKEY`).
    pub qkey: u32,
    /// First packet sequence number expected (`RQ_PSN`).
    pub rq_psn: u32,
    /// First packet sequence number sent (`SQ_PSN`).
    pub sq_psn: u32,
    /// QP number of the peer (`DEST_QPN`).
    pub dest_qp_num: Qpn,
    /// What the peer may do (`ACCESS_FLAGS`).
    pub qp_access_flags: Access,
    /// Path to the peer (`AV`).
    pub ah_attr: AhAttr,
    /// Index into the P_Key table (`PKEY_INDEX`).
    pub pkey_index: u16,
    /// READs and atomics outstanding as requester (`MAX_QP_RD_ATOMIC`).
    pub max_rd_atomic: u8,
    /// READs and atomics outstanding as responder (`MAX_DEST_RD_ATOMIC`).
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer that this side sends, as the IBTA encodes it (`MIN_RNR_TIMER`).
    pub min_rnr_timer: u8,
    /// Port number, from 1 (`PORT`).
    pub port_num: u8,
    /// Local ACK timeout, 4.096 µs × 2^n, 0 for none (`TIMEOUT`).
    pub timeout: u8,
    /// Retries after a timeout or a sequence error, at most 7 (`RETRY_CNT`).
    pub retry_cnt: u8,
    /// Retries after an RNR NAK, 7 for ever (`RNR_RETRY`).
    pub rnr_retry: u8,
}

impl QpAttr {
    /// All attributes at their lowest.
    pub const DEFAULT: Self = Self {
        qp_state: QpState::Reset,
        cur_qp_state: QpState::Reset,
        path_mtu: Mtu::B256,
        qkey: 0,
        rq_psn: 0,
        sq_psn: 0,
        dest_qp_num: Qpn::from_low_bits(0),
        qp_access_flags: Access::empty(),
        ah_attr: AhAttr {
            dgid: crate::types::gid::Gid::ZERO,
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
            sl: 0,
            static_rate: 0,
            dmac: [0; 6],
            dlid: 0,
            src_path_bits: 0,
            port_num: 0,
            force_loopback: false,
        },
        pkey_index: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
        port_num: 1,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
    };
}

impl Default for QpAttr {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a query of a QP answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueriedQp {
    /// The attributes, from the firmware. READ and atomic depths are powers of two, as the device keeps them.
    pub attr: QpAttr,
    /// What the queues hold.
    pub cap: QpCap,
    /// Whether every send makes a completion.
    pub sq_sig_all: bool,
    /// Whether the send queue is still draining on its way to SQD.
    pub sq_draining: bool,
}
