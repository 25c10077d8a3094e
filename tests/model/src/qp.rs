//! Queue pairs: queues in the host's memory, states, doorbells, flushing, and the running of their transports.

use crate::device::Device;
use crate::eq::event;
use crate::io::Io;
use crate::mkey::Accessor;
use crate::pages::Place;
use crate::ring::Ring;
use crate::roce::env::{
    Encapsulation, Path, QpConfig, QpKind, QpState, RecvCompletion, RecvOp, RemoteAccess,
    SendCompletion, Syndrome,
};
use crate::roce::transport::Transport;
use crate::view::View;
use bareverbs_firmware_cmds::eq::QpEvents;
use bareverbs_firmware_cmds::qp::{Ads, Qpc};
use bareverbs_firmware_cmds::roce::RoceAddr;
use core::time::Duration;
use std::net::{Ipv4Addr, Ipv6Addr};

/// `st` of the QPC.
pub(crate) mod service {
    pub(crate) const RC: u8 = 0x0;
    pub(crate) const UC: u8 = 0x1;
    pub(crate) const UD: u8 = 0x2;
    pub(crate) const XRC: u8 = 0x3;
    pub(crate) const QP0: u8 = 0x7;
    pub(crate) const QP1: u8 = 0x8;
    pub(crate) const REG_UMR: u8 = 0xc;
}

/// `rq_type` of the QPC.
pub(crate) mod receive {
    pub(crate) const OWN: u8 = 0;
    pub(crate) const SHARED: u8 = 1;
    pub(crate) const NONE: u8 = 3;
}

/// Resource types in asynchronous events.
pub(crate) const EVENT_QP: u8 = 0;
pub(crate) const EVENT_SRQ: u8 = 3;

/// How often the receive queues of QPs in error are looked at, as nothing rings for them.
const DRAIN_PERIOD: Duration = Duration::from_micros(100);
/// Packets a QP may send before the next one has its turn.
const RUN_BUDGET: usize = 64;

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
        (self.context.rq_type() == receive::SHARED).then(|| self.context.srqn_rmpn_xrqn())
    }

    pub(crate) fn kind(&self) -> Option<QpKind> {
        kind(self.context.st())
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

/// What the transport calls a service type; `None` for those that never reach the wire.
pub(crate) fn kind(st: u8) -> Option<QpKind> {
    Some(match st {
        service::RC => QpKind::Rc,
        service::UC => QpKind::Uc,
        service::UD => QpKind::Ud,
        service::QP1 => QpKind::Gsi,
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
            udp_source_port: match to.udp_source_port {
                0 => self.caps.roce.r_roce_min_src_udp_port(),
                port => port,
            },
        }
    }

    fn connected_path(&self, path: &Ads) -> Option<Path> {
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

    /// Lends a QP's transport out together with the device around it.
    pub(crate) fn with_transport(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        f: impl FnOnce(&mut Transport, &mut View<'_, '_>),
    ) {
        let Some(mut transport) = self.qps.get_mut(qpn).and_then(|qp| qp.transport.take()) else {
            return;
        };
        f(
            &mut transport,
            &mut View {
                device: self,
                io,
                qpn,
            },
        );
        let deadline = transport.next_deadline();
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        qp.transport = Some(transport);
        // Every acknowledgement moves the timer on. A timer that is set too early only looks again when it comes, which is
        // cheaper than to set it anew for every packet.
        let Some(new) = deadline else {
            return;
        };
        if qp.deadline.is_none_or(|old| new < old) {
            if let Some(old) = qp.deadline {
                self.timers.remove(&(old, qpn));
            }
            qp.deadline = Some(new);
            self.timers.insert((new, qpn));
        }
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

    pub(crate) fn make_ready(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && !qp.queued
        {
            qp.queued = true;
            self.ready.push_back(qpn);
        }
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
        let listed = self.draining.contains(&qpn);
        if wanted && !listed {
            if self.draining.is_empty() {
                self.drain_at = self.now;
            }
            self.draining.push(qpn);
        } else if listed && !wanted {
            self.draining.retain(|&other| other != qpn);
        }
    }

    /// Forgets that a QP was ever scheduled.
    pub(crate) fn unschedule(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && let Some(deadline) = qp.deadline.take()
        {
            self.timers.remove(&(deadline, qpn));
        }
        self.ready.retain(|&other| other != qpn);
        self.draining.retain(|&other| other != qpn);
    }

    /// The send doorbell: the first two words of the last WQE posted.
    pub(crate) fn sq_doorbell(&mut self, io: &mut Io<'_>, uar: u32, _first: u32, second: u32) {
        let qpn = second >> 8;
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
        let Ok(record) = io.read_be32(qp.context.dbr_addr().wrapping_add(4)) else {
            return false;
        };
        qp.sq_posted = record as u16;
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
        qp.rq_posted = record as u16;
        true
    }

    /// Gives every QP that has something to do its turn. Returns whether something is left.
    pub(crate) fn run_queues(&mut self, io: &mut Io<'_>) -> bool {
        for _ in 0..self.ready.len() {
            let Some(qpn) = self.ready.pop_front() else {
                break;
            };
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.queued = false;
                self.run_qp(io, qpn);
            }
        }
        !self.ready.is_empty()
    }

    fn run_qp(&mut self, io: &mut Io<'_>, qpn: u32) {
        let now = self.now;
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        if core::mem::take(&mut qp.broken) && qp.state != QpState::Err {
            self.qp_event(io, qpn, event::WQ_CATAS);
            self.enter_state(io, qpn, QpState::Err);
        }
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        match qp.state {
            QpState::Reset | QpState::Init => {}
            QpState::Err | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {
                let local = qp.transport.is_none();
                if qp.state == QpState::Err {
                    self.flush(io, qpn);
                } else if local {
                    self.run_local(io, qpn);
                }
                if local {
                    return;
                }
                // Also in error: the peer has still to be told why.
                let mut scratch = self.scratch.take().unwrap_or_default();
                let mut more = false;
                self.with_transport(io, qpn, |transport, env| {
                    more = transport.run(env, &mut scratch, now, RUN_BUDGET);
                });
                self.scratch = Some(scratch);
                if more {
                    self.make_ready(qpn);
                }
                if self.qps.get(qpn).is_some_and(|qp| qp.state == QpState::Sqe) {
                    self.flush_sends(io, qpn);
                }
            }
        }
    }

    /// Completes what is still posted in error: the transport has flushed only what it had fetched.
    fn flush(&mut self, io: &mut Io<'_>, qpn: u32) {
        self.flush_sends(io, qpn);
        self.flush_receives(io, qpn);
        if let Some(qp) = self.qps.get_mut(qpn)
            && core::mem::take(&mut qp.last_wqe_due)
        {
            self.qp_event(io, qpn, event::SRQ_LAST_WQE);
        }
    }

    fn flush_sends(&mut self, io: &mut Io<'_>, qpn: u32) {
        loop {
            let Some(qp) = self.qps.get(qpn) else {
                return;
            };
            let left = qp.sq_posted.wrapping_sub(qp.sq_next);
            if left == 0 || u32::from(left) > qp.sq_blocks() {
                return;
            }
            let mut control = [0; 16];
            if qp.read_sq(io, qp.sq_next, &mut control).is_err() {
                return;
            }
            let index = qp.sq_next;
            let blocks = u16::from(control[7] & 0x3f).div_ceil(4).clamp(1, left);
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.sq_next = index.wrapping_add(blocks);
            }
            self.send_completed(
                io,
                qpn,
                &SendCompletion {
                    index,
                    wqe_opcode: control[3],
                    signaled: true,
                    byte_len: 0,
                    result: Err(Syndrome::WorkRequestFlushed),
                },
            );
        }
    }

    fn flush_receives(&mut self, io: &mut Io<'_>, qpn: u32) {
        if self.qps.get(qpn).is_none_or(|qp| qp.rq_entries() == 0)
            || !self.read_receive_record(io, qpn)
        {
            return;
        }
        loop {
            let Some(qp) = self.qps.get_mut(qpn) else {
                return;
            };
            let left = qp.rq_posted.wrapping_sub(qp.rq_next);
            if left == 0 || u32::from(left) > qp.rq_entries() {
                return;
            }
            let index = qp.rq_next;
            qp.rq_next = index.wrapping_add(1);
            self.receive_completed(
                io,
                qpn,
                &RecvCompletion {
                    index,
                    op: RecvOp::Send,
                    byte_len: 0,
                    solicited: false,
                    source: None,
                    result: Err(Syndrome::WorkRequestFlushed),
                },
            );
        }
    }

    /// QPs that never reach the wire only execute what is local.
    fn run_local(&mut self, io: &mut Io<'_>, qpn: u32) {
        while self.qps.get(qpn).is_some_and(|qp| qp.state == QpState::Rts) {
            let mut work = crate::roce::env::SendWork::default();
            let fetched = self.fetch_send(io, qpn, &mut work);
            let result = match fetched {
                Ok(false) => return,
                Ok(true) => self.execute_local(io, qpn, &work),
                Err(bad) => Err(bad.0),
            };
            self.send_completed(
                io,
                qpn,
                &SendCompletion {
                    index: work.index,
                    wqe_opcode: work.wqe_opcode,
                    signaled: work.signaled,
                    byte_len: 0,
                    result,
                },
            );
            if result.is_err() {
                self.enter_state(io, qpn, QpState::Err);
            }
        }
    }

    /// An asynchronous event that names a QP.
    pub(crate) fn qp_event(&mut self, io: &mut Io<'_>, qpn: u32, kind: u8) {
        let mut data = QpEvents::ZERO;
        data.set_type(EVENT_QP).set_qpn_rqn_sqn(qpn);
        self.event(io, kind, 0, &data.0);
    }

    /// Timers that have come, and receive queues to be drained.
    pub(crate) fn run_timers(&mut self, io: &mut Io<'_>) {
        let now = self.now;
        while let Some(&(deadline, qpn)) = self.timers.first() {
            if deadline > now {
                break;
            }
            self.timers.pop_first();
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.deadline = None;
            }
            let mut came = false;
            self.with_transport(io, qpn, |transport, env| {
                came = transport.next_deadline().is_some_and(|at| at <= now);
                if came {
                    transport.on_timer(env, now);
                }
            });
            if came {
                self.make_ready(qpn);
            }
            // A transport whose deadline does not move would never let go.
            if self.timers.first() == Some(&(deadline, qpn)) {
                break;
            }
        }
        if !self.draining.is_empty() && self.drain_at <= now {
            self.drain_at = now + DRAIN_PERIOD;
            for at in 0..self.draining.len() {
                if let Some(&qpn) = self.draining.get(at) {
                    self.flush_receives(io, qpn);
                }
            }
        }
    }
}
