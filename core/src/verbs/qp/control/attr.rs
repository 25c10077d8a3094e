//! The attributes of a QP: `struct ibv_qp_attr`.

use crate::types::ah::AhAttr;
use crate::types::port::Mtu;
use crate::types::qp::QpState;
use crate::types::sge::Access;
use crate::verbs::qp::queue::sizes::QpCap;
use bareverbs_firmware_cmds::numbers::Qpn;

/// State of a connection's migration to its alternate path: `enum ibv_mig_state` (IBTA volume 1, 17.2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum PathMigState {
    /// On its path, with no other one; or it has gone over to the alternate path. Set while it is armed, it goes over.
    #[default]
    Migrated = 0,
    /// An alternate path is loaded; armed once the peer has one as well, which its next packet says.
    Rearm = 1,
    /// Goes over to the alternate path when the path fails, or the peer does. The device sets it.
    Armed = 2,
}

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
    /// Rights of the peer (`ACCESS_FLAGS`).
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
    /// Path to the peer that the connection migrates to (`ALT_PATH`, with the three that follow). InfiniBand only.
    pub alt_ah_attr: AhAttr,
    /// Index into the P_Key table on the alternate path.
    pub alt_pkey_index: u16,
    /// Port number of the alternate path, from 1.
    pub alt_port_num: u8,
    /// Local ACK timeout on the alternate path, as `timeout`.
    pub alt_timeout: u8,
    /// Path migration state (`PATH_MIG_STATE`); the device alone sets [`Armed`](PathMigState::Armed).
    pub path_mig_state: PathMigState,
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
        ah_attr: AhAttr::NONE,
        pkey_index: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
        port_num: 1,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        alt_ah_attr: AhAttr::NONE,
        alt_pkey_index: 0,
        alt_port_num: 1,
        alt_timeout: 0,
        path_mig_state: PathMigState::Migrated,
    };
}

impl Default for QpAttr {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Answer to a query of a QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueriedQp {
    /// The attributes, from the firmware. READ and atomic depths are powers of two, as the device keeps them.
    pub attr: QpAttr,
    /// The path MTU in the QP's context: of a connection from RTR on, of datagrams from INIT on, 4096 bytes (256 of a GSI QP). While
    /// there is none, `attr.path_mtu` is 256 bytes.
    pub path_mtu: Option<Mtu>,
    /// Capacities of the queues.
    pub cap: QpCap,
    /// `true` if every send makes a completion.
    pub sq_sig_all: bool,
    /// `true` if the send queue is still draining on its way to SQD.
    pub sq_draining: bool,
}
