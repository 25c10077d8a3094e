//! The live objects of a device: its QPs and CQs, each with the firmware's view of it at this moment.
//!
//! Firmware does not list what it has. The numbers are those in this driver's slots, so objects of other functions, of
//! other programs, and those that the driver has without a slot (Ethernet queues, what XRC QPs name) are not among them.
//! Nothing is changed by asking.
//!
//! Objects may come and go between two of the iterator's steps. What has gone is left out.

use core::fmt;
use core::sync::atomic::Ordering::Acquire;

use bareverbs_firmware_cmds::cq::QueryCqIn;
use bareverbs_firmware_cmds::dct::QueryDctIn;
use bareverbs_firmware_cmds::numbers::{Cqn, Pdn, Qpn, Srqn};
use bareverbs_firmware_cmds::qp::{Qpc, QueryQpIn};
use bareverbs_firmware_cmds::rq::QueryRqIn;
use bareverbs_firmware_cmds::sq::QuerySqIn;
use bareverbs_firmware_cmds::status::Status;
use bareverbs_firmware_cmds::values::{DctState, QpServiceType, QueueState, RqType};

use crate::device::Device;
use crate::memory::slots::{DEAD, NONE, PACKETS, QpSlot, TARGET, XRC_SRQ, detach};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::Gid;
use crate::types::port::Mtu;
use crate::types::qp::{QpKind, QpState};

/// State of a [`QpResource`], in the terms of what it is to the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceState {
    /// Of a QP.
    Qp(QpState),
    /// Of a target of dynamic connections.
    Target(DctState),
    /// Of a raw packet QP: that of its send queue or, if it has none, of its receive queue. RESET, INIT and RTR are one
    /// state of the send queue.
    Queue(QueueState),
    /// No state that there should be.
    Unknown(u8),
}

impl fmt::Display for ResourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qp(state) => state.fmt(f),
            Self::Target(state) => state.fmt(f),
            Self::Queue(state) => state.fmt(f),
            Self::Unknown(state) => write!(f, "{state:#x}"),
        }
    }
}

/// A QP that is alive, as the firmware has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpResource {
    /// Its type; `None` if the firmware names one that the driver does not make.
    pub kind: Option<QpKind>,
    /// Its number; of a raw packet QP that of its send queue or, if it has none, of its receive queue.
    pub qpn: Qpn,
    /// Its state.
    pub state: ResourceState,
    /// Its protection domain; `None` for raw packet QPs, whose queues have none.
    pub pdn: Option<Pdn>,
    /// The SRQ that it receives into, if it has one.
    pub srqn: Option<Srqn>,
    /// The packets' headers and results; `None` for raw packet QPs and targets of dynamic connections.
    pub transport: Option<QpTransport>,
    /// Requests with a wrong access key, of a target of dynamic connections.
    pub key_violations: Option<u32>,
}

/// Of [`QpResource`]: the parts of the firmware's context that change, and the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpTransport {
    /// The peer and the way to it; `None` if work requests name it.
    pub peer: Option<QpPeer>,
    /// Number of the next packet that is sent.
    pub sq_psn: u32,
    /// The CQ of its sends.
    pub send_cqn: Cqn,
    /// The CQ of its receives.
    pub recv_cqn: Cqn,
    /// Blocks of the send queue, of 64 bytes, up to which a doorbell was rung, and up to which they were executed. Both
    /// counters go round.
    pub sq: (u16, u16),
    /// The same of receives.
    pub rq: (u32, u32),
}

/// Of [`QpTransport`]: what a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpPeer {
    /// The other end's number.
    pub qpn: Qpn,
    /// Number of the packet that is expected next.
    pub rq_psn: u32,
    /// The last one that the other end acknowledged.
    pub acked_psn: u32,
    /// The path's MTU; `None` before RTR.
    pub path_mtu: Option<Mtu>,
    /// Its GID, all zero if there is no network header.
    pub dgid: Gid,
    /// Its LID, on InfiniBand.
    pub dlid: u16,
    /// The GID table's entry that is sent from.
    pub sgid_index: u8,
    /// Repetitions without an answer that are allowed, and the firmware's counter of them.
    pub retries: (u8, u8),
    /// The same for answers that the other end is not ready.
    pub rnr_retries: (u8, u8),
}

/// A CQ that is alive, as the firmware has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqResource {
    /// Its number.
    pub cqn: Cqn,
    /// Its entries.
    pub entries: u32,
    /// The number of this driver's queues that use it: a QP's two count twice.
    pub users: u32,
    /// Entries taken out, as far as the firmware was told: 24 bits, which go round.
    pub consumer: u32,
    /// Entries put in. Cards may let it lag behind.
    pub producer: u32,
    /// Its event queue.
    pub eqn: u8,
    /// `true` if it was overrun, or failed otherwise (`cqc.status` is not 0).
    pub failed: bool,
}

/// The type as `rdma resource show qp` writes it; an initiator and a target of dynamic connections, which it calls
/// DRIVER, by their names.
const fn name(kind: Option<QpKind>) -> &'static str {
    match kind {
        Some(QpKind::Rc) => "RC",
        Some(QpKind::Uc) => "UC",
        Some(QpKind::Ud) => "UD",
        Some(QpKind::Gsi) => "GSI",
        Some(QpKind::XrcSend) => "XRC_INI",
        Some(QpKind::XrcRecv) => "XRC_TGT",
        Some(QpKind::Dci) => "DCI",
        Some(QpKind::Dct) => "DCT",
        Some(QpKind::RawPacket) => "RAW_PACKET",
        None => "UNKNOWN",
    }
}

impl QpResource {
    /// Its type as `rdma resource show qp` writes it; DCI and DCT for what that calls DRIVER.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        name(self.kind)
    }
}

/// A line in the form of `rdma resource show qp`, without the link, and with more behind it.
impl fmt::Display for QpResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lqpn {}", self.qpn.number())?;
        if let Some(pdn) = self.pdn {
            write!(f, " pdn {}", pdn.number())?;
        }
        let peer = self.transport.and_then(|transport| transport.peer);
        if let Some(peer) = peer {
            write!(f, " rqpn {}", peer.qpn.number())?;
        }
        write!(f, " type {} state {}", self.type_name(), self.state)?;
        if let Some(peer) = peer {
            write!(f, " rq-psn {}", peer.rq_psn)?;
        }
        if let Some(transport) = &self.transport {
            write!(f, " sq-psn {}", transport.sq_psn)?;
        }
        if let Some(peer) = peer {
            let ((retry, cur), (rnr, cur_rnr)) = (peer.retries, peer.rnr_retries);
            write!(f, " acked-psn {} retry {cur}/{retry}", peer.acked_psn)?;
            write!(f, " rnr-retry {cur_rnr}/{rnr}")?;
            if let Some(mtu) = peer.path_mtu {
                write!(f, " mtu {}", mtu.bytes())?;
            }
            write!(f, " dgid {} dlid {}", peer.dgid, peer.dlid)?;
        }
        if let Some(transport) = &self.transport {
            let (cqns, sq, rq) = (
                (transport.send_cqn.number(), transport.recv_cqn.number()),
                transport.sq,
                transport.rq,
            );
            write!(f, " scqn {} rcqn {}", cqns.0, cqns.1)?;
            write!(f, " sq {}/{} rq {}/{}", sq.1, sq.0, rq.1, rq.0)?;
        }
        if let Some(srqn) = self.srqn {
            write!(f, " srqn {}", srqn.number())?;
        }
        if let Some(violations) = self.key_violations {
            write!(f, " key-violations {violations}")?;
        }
        Ok(())
    }
}

/// A line in the form of `rdma resource show cq`, without the link, and with more behind it. What that calls `cqe` is the
/// number of entries less one.
impl fmt::Display for CqResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cqn {} cqe {} users {} consumer {} producer {} eqn {}",
            self.cqn.number(),
            self.entries.saturating_sub(1),
            self.users,
            self.consumer,
            self.producer,
            self.eqn
        )?;
        f.write_str(if self.failed { " failed" } else { "" })
    }
}

impl<P: Platform> Device<'_, P> {
    /// The QPs of this device's that are alive, one command each: what `rdma resource show qp` is on Linux. An error is of
    /// one QP, and others may follow.
    pub fn live_qps(&self) -> impl Iterator<Item = Result<QpResource, CommandError>> + '_ {
        let slots = self.tables.qps.iter().enumerate();
        slots.filter_map(|(index, slot)| self.live_qp(index as u32, slot).transpose())
    }

    /// The CQs of this device's that are alive, one command each: what `rdma resource show cq` is on Linux. An error is of
    /// one CQ, and others may follow.
    pub fn live_cqs(&self) -> impl Iterator<Item = Result<CqResource, CommandError>> + '_ {
        self.tables.cqs.iter().filter_map(|slot| {
            let number = || slot.cqn.load(Acquire);
            let cqn = Some(number()).filter(|&cqn| cqn != NONE)?;
            let mut query = QueryCqIn::new();
            query.set_cqn(cqn);
            let answer = self.execute(&query);
            if number() != cqn {
                return None;
            }
            Some(answer.map(|answer| {
                let cqc = answer.cq_context();
                CqResource {
                    cqn: Cqn::from_low_bits(cqn),
                    entries: 1 << cqc.log_cq_size(),
                    users: slot.users.load(Acquire),
                    consumer: cqc.consumer_counter(),
                    producer: cqc.producer_counter(),
                    eqn: cqc.c_eqn_or_apu_element() as u8,
                    failed: cqc.status() != 0,
                }
            }))
        })
    }

    fn live_qp(&self, index: u32, slot: &QpSlot) -> Result<Option<QpResource>, CommandError> {
        const NUMBER: u32 = 0xff_ffff;
        let tag = slot.qpn_tag.load(Acquire);
        let flags = slot.flags.load(Acquire);
        let destroyed = |flags: u32| flags & (detach::PENDING | detach::PENDING << 1) != 0;
        // A QP that was reset keeps its number in a slot that matches no completion; a free slot has none.
        if tag & XRC_SRQ != 0 || tag & NUMBER == 0 || destroyed(flags) {
            return Ok(None);
        }
        let number = tag & NUMBER;
        let found = if flags & PACKETS != 0 {
            self.live_queue(number, index)
        } else if flags & TARGET != 0 {
            self.live_target(number, index)
        } else {
            self.live_context(number, index)
        };
        let gone =
            slot.qpn_tag.load(Acquire) & NUMBER != number || destroyed(slot.flags.load(Acquire));
        match found {
            _ if gone => Ok(None),
            // Between its last CQ and the free list a destroyed QP looks like one that was reset.
            Err(error) if tag & DEAD != 0 && error.is_status(Status::BadResource) => Ok(None),
            found => found,
        }
    }

    fn live_context(&self, number: u32, index: u32) -> Result<Option<QpResource>, CommandError> {
        let mut query = QueryQpIn::new();
        query.set_qpn(number);
        let answer = self.execute(&query)?;
        let qpc = answer.qpc();
        let kind = kind(qpc);
        // The number may have become another QP's. An XRC target has no index.
        if kind != Some(QpKind::XrcRecv) && qpc.user_index() != index {
            return Ok(None);
        }
        let own_srq = qpc.rq_type() == RqType::Srq.number() && !kind.is_some_and(QpKind::is_xrc);
        Ok(Some(QpResource {
            kind,
            qpn: Qpn::from_low_bits(number),
            state: match QpState::from_qpc(qpc.state()) {
                Some(state) => ResourceState::Qp(state),
                None => ResourceState::Unknown(qpc.state()),
            },
            pdn: Some(Pdn::from_low_bits(qpc.pd())),
            srqn: own_srq.then(|| Srqn::from_low_bits(qpc.srqn_rmpn_xrqn())),
            transport: Some(transport(qpc, kind)),
            key_violations: None,
        }))
    }

    fn live_target(&self, number: u32, index: u32) -> Result<Option<QpResource>, CommandError> {
        let mut query = QueryDctIn::new();
        query.set_dctn(number);
        let answer = self.execute(&query)?;
        let dctc = answer.dct_context_entry();
        if dctc.user_index() != index {
            return Ok(None);
        }
        Ok(Some(QpResource {
            kind: Some(QpKind::Dct),
            qpn: Qpn::from_low_bits(number),
            state: match DctState::from_number(dctc.state()) {
                Some(state) => ResourceState::Target(state),
                None => ResourceState::Unknown(dctc.state()),
            },
            pdn: Some(Pdn::from_low_bits(dctc.pd())),
            srqn: Some(Srqn::from_low_bits(dctc.srqn_xrqn())),
            transport: None,
            key_violations: Some(dctc.dc_access_key_violation_count()),
        }))
    }

    /// The number is the send queue's, or the receive queue's of a QP without one. Queues of the two kinds may have the same.
    fn live_queue(&self, number: u32, index: u32) -> Result<Option<QpResource>, CommandError> {
        let mut query = QuerySqIn::new();
        query.set_sqn(number);
        let state = match self.execute(&query) {
            Ok(answer) if answer.sq_context().user_index() == index => answer.sq_context().state(),
            Err(error) if !error.is_status(Status::BadResource) => return Err(error),
            _ => {
                let mut query = QueryRqIn::new();
                query.set_rqn(number);
                let answer = self.execute(&query)?;
                if answer.rq_context().user_index() != index {
                    return Ok(None);
                }
                answer.rq_context().state()
            }
        };
        Ok(Some(QpResource {
            kind: Some(QpKind::RawPacket),
            qpn: Qpn::from_low_bits(number),
            state: match QueueState::from_number(state) {
                Some(state) => ResourceState::Queue(state),
                None => ResourceState::Unknown(state),
            },
            pdn: None,
            srqn: None,
            transport: None,
            key_violations: None,
        }))
    }
}

/// The type that a context is of.
fn kind(qpc: &Qpc) -> Option<QpKind> {
    Some(match QpServiceType::from_number(qpc.st())? {
        QpServiceType::Rc => QpKind::Rc,
        QpServiceType::Uc => QpKind::Uc,
        QpServiceType::Ud => QpKind::Ud,
        QpServiceType::Qp1 => QpKind::Gsi,
        QpServiceType::Xrc if qpc.no_sq() => QpKind::XrcRecv,
        QpServiceType::Xrc => QpKind::XrcSend,
        QpServiceType::Dci => QpKind::Dci,
        _ => return None,
    })
}

fn transport(qpc: &Qpc, kind: Option<QpKind>) -> QpTransport {
    let path = qpc.primary_address_path();
    let connected = matches!(
        kind,
        Some(QpKind::Rc | QpKind::Uc | QpKind::XrcSend | QpKind::XrcRecv)
    );
    QpTransport {
        peer: connected.then(|| QpPeer {
            qpn: Qpn::from_low_bits(qpc.remote_qpn()),
            rq_psn: qpc.next_rcv_psn(),
            acked_psn: qpc.last_acked_psn(),
            path_mtu: Mtu::from_number(qpc.mtu()),
            dgid: Gid(*path.rgid_rip()),
            dlid: path.rlid(),
            sgid_index: path.src_addr_index(),
            retries: (qpc.retry_count(), qpc.cur_retry_count()),
            rnr_retries: (qpc.rnr_retry(), qpc.cur_rnr_retry()),
        }),
        sq_psn: qpc.next_send_psn(),
        send_cqn: Cqn::from_low_bits(qpc.cqn_snd()),
        recv_cqn: Cqn::from_low_bits(qpc.cqn_rcv()),
        sq: (qpc.sw_sq_wqebb_counter(), qpc.hw_sq_wqebb_counter()),
        rq: (qpc.sw_rq_counter(), qpc.hw_rq_counter()),
    }
}
