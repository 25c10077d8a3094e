//! Queue pairs: queues in the host's memory, states, doorbells, and what the transport has to know of them.

use crate::blue_flame::Written;
use crate::device::Device;
use crate::force_loopback;
use crate::infiniband::LocalDestination;
use crate::io::Io;
use crate::mkey::Accessor;
use crate::pages::Place;
use crate::ring::Ring;
use crate::roce::env::{Encapsulation, Path, QpConfig, QpKind, QpState, RemoteAccess};
use crate::roce::transport::Transport;
use bareverbs_firmware_cmds::doorbell::{ReceiveRecord, SendRecord};
use bareverbs_firmware_cmds::qp::{Ads, Qpc};
use bareverbs_firmware_cmds::roce::RoceAddr;
use bareverbs_firmware_cmds::word::Word;
use core::time::Duration;
use std::net::{Ipv4Addr, Ipv6Addr};

/// `st` of the QPC.
pub(crate) mod service {
    use bareverbs_firmware_cmds::values::QpServiceType;

    pub(crate) const RC: u8 = QpServiceType::Rc.number();
    pub(crate) const UC: u8 = QpServiceType::Uc.number();
    pub(crate) const UD: u8 = QpServiceType::Ud.number();
    pub(crate) const XRC: u8 = QpServiceType::Xrc.number();
    pub(crate) const QP0: u8 = QpServiceType::Qp0.number();
    pub(crate) const QP1: u8 = QpServiceType::Qp1.number();
    pub(crate) const REG_UMR: u8 = QpServiceType::RegUmr.number();
}

/// `rq_type` of the QPC.
pub(crate) mod receive {
    use bareverbs_firmware_cmds::values::RqType;

    pub(crate) const OWN: u8 = RqType::Regular.number();
    pub(crate) const SHARED: u8 = RqType::Srq.number();
    pub(crate) const NONE: u8 = RqType::ZeroSize.number();
}

/// Resource types in asynchronous events.
pub(crate) const EVENT_QP: u8 = 0;
pub(crate) const EVENT_SRQ: u8 = 3;

/// A send queue basic block.
pub(crate) const BLOCK: u64 = 64;

/// A queue pair.
pub(crate) struct Qp {
    /// As it lies in the host's pages.
    pub(crate) context: Qpc,
    pub(crate) state: QpState,
    pub(crate) ring: Ring,
    /// Where the send queue starts; the receive queue is at 0.
    pub(crate) sq_start: u64,
    /// Next block to fetch, and where the posted ones end.
    pub(crate) sq_next: u16,
    pub(crate) sq_posted: u16,
    /// The next one, if it came through a register.
    pub(crate) written: Option<Box<Written>>,
    pub(crate) rq_next: u16,
    pub(crate) rq_posted: u16,
    pub(crate) place: Place,
    pub(crate) transport: Option<Box<Transport>>,
    /// In the ready list.
    pub(crate) queued: bool,
    pub(crate) deadline: Option<Duration>,
    /// A completion could not be written: the QP has to fail.
    pub(crate) broken: bool,
    /// The last-WQE event of a shared receive queue is due.
    pub(crate) last_wqe_due: bool,
}

impl core::fmt::Debug for Qp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Qp")
            .field("context", &self.context)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Qp {
    /// Send queue size in blocks.
    pub(crate) fn sq_blocks(&self) -> u32 {
        if self.context.no_sq() {
            0
        } else {
            1 << self.context.log_sq_size()
        }
    }

    /// Receive queue size in WQEs.
    pub(crate) fn rq_entries(&self) -> u32 {
        if self.context.rq_type() == receive::OWN {
            1 << self.context.log_rq_size()
        } else {
            0
        }
    }

    pub(crate) fn rq_stride(&self) -> u64 {
        16 << self.context.log_rq_stride()
    }

    pub(crate) fn shared_queue(&self) -> Option<u32> {
        // Drivers put some queue into the contexts of XRC QPs, which has nothing to do with what they receive into.
        (self.context.rq_type() == receive::SHARED && self.context.st() != service::XRC)
            .then(|| self.context.srqn_rmpn_xrqn())
    }

    pub(crate) fn kind(&self) -> Option<QpKind> {
        kind(&self.context)
    }

    pub(crate) fn accessor(&self, qpn: u32) -> Accessor {
        Accessor {
            pd: self.context.pd(),
            qpn,
            reserved_key: self.context.rlky(),
        }
    }

    /// Reads from the send queue, wrapping at its end.
    pub(crate) fn read_sq(
        &self,
        io: &mut Io<'_>,
        block: u16,
        data: &mut [u8],
    ) -> Result<(), crate::host::IommuFault> {
        let blocks = u64::from(self.sq_blocks());
        let at = u64::from(block) % blocks.max(1) * BLOCK;
        let first = ((blocks * BLOCK - at) as usize).min(data.len());
        let (head, tail) = data.split_at_mut(first);
        self.ring.read(io, self.sq_start + at, head)?;
        if !tail.is_empty() {
            self.ring.read(io, self.sq_start, tail)?;
        }
        Ok(())
    }

    /// The state as the QPC codes it.
    pub(crate) fn state_code(&self) -> u8 {
        match self.state {
            QpState::Reset => 0,
            QpState::Init => 1,
            QpState::Rtr => 2,
            QpState::Rts => 3,
            QpState::Sqe => 4,
            QpState::Sqd => 5,
            QpState::Err => 6,
        }
    }
}

/// What the transport calls the type of a QP; `None` for those that never reach the wire.
pub(crate) fn kind(context: &Qpc) -> Option<QpKind> {
    Some(match context.st() {
        service::RC => QpKind::Rc,
        service::UC => QpKind::Uc,
        service::UD => QpKind::Ud,
        // Only initiators have a send queue.
        service::XRC if context.no_sq() => QpKind::XrcTarget,
        service::XRC => QpKind::XrcInitiator,
        service::QP1 => QpKind::Gsi,
        service::QP0 => QpKind::Smi,
        _ => return None,
    })
}

fn last4(gid: &[u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(gid[12], gid[13], gid[14], gid[15])
}

/// A way to a peer: what the address vector says beyond the source address.
pub(crate) struct Destination<'a> {
    pub(crate) mac: [u8; 6],
    pub(crate) gid: &'a [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) udp_source_port: u16,
    pub(crate) priority: u8,
}

impl Device {
    /// The headers from a source address to a destination.
    pub(crate) fn path(&self, source: &RoceAddr, to: &Destination<'_>) -> Path {
        let gid = source.source_l3_address();
        let source_mac = match u64::from(source.source_mac_47_32()) << 32
            | u64::from(source.source_mac_31_0())
        {
            0 => self.vport.mac(),
            mac => {
                let bytes = mac.to_be_bytes();
                [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
            }
        };
        let encapsulation = match (source.roce_version(), source.roce_l3_type()) {
            (0, _) => Encapsulation::V1 {
                source: *gid,
                destination: *to.gid,
            },
            (_, 0) => Encapsulation::V2Ipv4 {
                source: last4(gid),
                destination: last4(to.gid),
            },
            _ => Encapsulation::V2Ipv6 {
                source: Ipv6Addr::from(*gid),
                destination: Ipv6Addr::from(*to.gid),
            },
        };
        Path {
            source_mac,
            destination_mac: to.mac,
            vlan: source
                .vlan_valid()
                .then(|| u16::from(to.priority & 7) << 13 | source.vlan_id()),
            encapsulation,
            traffic_class: to.traffic_class,
            flow_label: to.flow_label & 0xf_ffff,
            hop_limit: to.hop_limit,
            // A driver that has not said that it chooses the ports gets the device's choice.
            udp_source_port: match to.udp_source_port {
                port if port != 0 && self.caps.roce.sw_r_roce_src_udp_port() => port,
                _ => self.caps.roce.r_roce_min_src_udp_port(),
            },
        }
    }

    fn connected_path(&self, path: &Ads) -> Option<Path> {
        if path.fl() {
            return Some(force_loopback::PATH);
        }
        if !self.ethernet() {
            return Some(self.local_path(&LocalDestination {
                lid: path.rlid(),
                service_level: path.sl(),
                gid: path.grh().then_some(path.rgid_rip()),
                traffic_class: path.tclass(),
                flow_label: path.flow_label(),
                hop_limit: path.hop_limit(),
            }));
        }
        let source = self.gids.get(usize::from(path.src_addr_index()))?;
        if *source == RoceAddr::ZERO {
            return None;
        }
        let high = path.rmac_47_32().to_be_bytes();
        let low = path.rmac_31_0().to_be_bytes();
        // RoCE v2 takes the DSCP field, v1 the traffic class of the GRH; drivers fill the one that counts.
        let traffic_class = match path.dscp() << 2 | path.ecn() {
            0 => path.tclass(),
            class => class,
        };
        Some(self.path(
            source,
            &Destination {
                mac: [high[0], high[1], low[0], low[1], low[2], low[3]],
                gid: path.rgid_rip(),
                traffic_class,
                flow_label: path.flow_label(),
                hop_limit: path.hop_limit(),
                udp_source_port: path.udp_sport(),
                priority: path.eth_prio(),
            },
        ))
    }

    /// What the transport of a QP has to know now.
    pub(crate) fn transport_config(&self, qpn: u32) -> Option<QpConfig> {
        let qp = self.qps.get(qpn)?;
        let kind = qp.kind()?;
        let context = &qp.context;
        let primary = context.primary_address_path();
        let port_mtu = self.vport.path_mtu_code();
        let mtu = match context.mtu() {
            0 => port_mtu,
            mtu if kind.connected() => mtu.min(5),
            mtu => mtu.min(port_mtu),
        };
        Some(QpConfig {
            kind,
            qpn,
            source_qpn: match (kind, context.deth_sqpn()) {
                (QpKind::Gsi, _) => 1,
                (QpKind::Smi, _) => 0,
                (_, 0) => qpn,
                (_, number) => number,
            },
            state: qp.state,
            mtu: 128 << mtu,
            max_message: 1u32 << context.log_msg_max().min(31),
            remote_qpn: context.remote_qpn(),
            send_psn: context.next_send_psn(),
            recv_psn: context.next_rcv_psn(),
            ack_timeout: primary.ack_timeout(),
            retry_count: context.retry_count(),
            rnr_retry: context.rnr_retry(),
            min_rnr_timer: context.min_rnr_nak(),
            max_rd_atomic: 1 << context.log_sra_max().min(7),
            max_dest_rd_atomic: 1 << context.log_rra_max().min(7),
            log_ack_req_freq: context.log_ack_req_freq(),
            access: RemoteAccess {
                read: context.rre(),
                write: context.rwe(),
                atomic: context.rae(),
            },
            pkey: if primary.pkey_index() == 0 {
                crate::vport::DEFAULT_PKEY
            } else {
                0
            },
            qkey: context.q_key(),
            path: if kind.connected() && !matches!(qp.state, QpState::Reset | QpState::Init) {
                self.connected_path(primary)
            } else {
                None
            },
            advertise_credits: false,
            atomics_big_endian: self.caps.atomic.atomic_req_8B_endianness_mode() == 0,
        })
    }

    /// Tells the transport what changed.
    pub(crate) fn configure(&mut self, io: &mut Io<'_>, qpn: u32) {
        let now = self.now;
        if let Some(config) = self.transport_config(qpn) {
            self.with_transport(io, qpn, |transport, env| {
                transport.configure(config, env, now);
            });
        }
        self.make_ready(qpn);
    }

    /// Moves a QP into a state and lets the transport know.
    pub(crate) fn enter_state(&mut self, io: &mut Io<'_>, qpn: u32, state: QpState) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        let before = qp.state;
        qp.state = state;
        qp.context.set_state(qp.state_code());
        if state == QpState::Err && before != QpState::Err {
            qp.last_wqe_due = qp.shared_queue().is_some();
        }
        self.configure(io, qpn);
        self.drain_list(qpn);
    }

    /// Whoever is in error and has a receive queue is looked at again and again.
    pub(crate) fn drain_list(&mut self, qpn: u32) {
        let wanted = self
            .qps
            .get(qpn)
            .is_some_and(|qp| qp.state == QpState::Err && qp.rq_entries() != 0);
        if wanted {
            if self.draining.is_empty() {
                self.drain_at = self.now;
            }
            self.draining.insert(qpn);
        } else {
            self.draining.remove(&qpn);
        }
    }

    /// The send doorbell.
    pub(crate) fn sq_doorbell(&mut self, io: &mut Io<'_>, uar: u32, qpn: u32) {
        self.stats.doorbells += 1;
        let Some(qp) = self.qps.get_mut(qpn) else {
            log::warn!("doorbell of QP {qpn:#x}, which does not exist");
            self.stats.bad_doorbells += 1;
            return;
        };
        if qp.context.uar_page() != uar {
            log::warn!("doorbell of QP {qpn:#x} through UAR {uar:#x}");
            self.stats.bad_doorbells += 1;
            return;
        }
        // The doorbell only wakes; how much was posted is in the record.
        if !self.read_send_record(io, qpn) {
            return;
        }
        self.make_ready(qpn);
    }

    /// Reads how far sends were posted.
    fn read_send_record(&mut self, io: &mut Io<'_>, qpn: u32) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return false;
        };
        let at = qp
            .context
            .dbr_addr()
            .wrapping_add(SendRecord::OFFSET as u64);
        let Ok(record) = io.read_be32(at) else {
            return false;
        };
        qp.sq_posted = SendRecord(record).counter();
        true
    }

    /// Reads how far receives were posted.
    pub(crate) fn read_receive_record(&mut self, io: &mut Io<'_>, qpn: u32) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return false;
        };
        let Ok(record) = io.read_be32(qp.context.dbr_addr()) else {
            return false;
        };
        qp.rq_posted = ReceiveRecord(record).counter();
        true
    }
}
