//! Frames: in from the cable, out to it, and round to the own address.

use crate::bus::io::Io;
use crate::device::{Device, Stage};
use crate::port::vport::Kind;
use crate::roce::env::{Encapsulation, QpKind};
use crate::roce::packet::{Packet, ParseError};
use crate::roce::transport::{GSI_QPN, SMI_QPN};
use crate::steering::Verdict;
use bareverbs_firmware_cmds::roce::RoceAddr;

/// Outcome of the RDMA part of the device for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RdmaOutcome {
    /// A QP has it.
    Delivered,
    /// It is RoCE for this port, but for no QP, or malformed.
    Dropped,
    /// It is not RoCE for this port.
    Foreign,
}

/// Where datagrams to a group are addressed.
const MULTICAST_QPN: u32 = 0xff_ffff;
/// Frames to the own address that may wait; a device drops what its buffer does not hold.
pub(crate) const LOOPBACK_DEPTH: usize = 1024;

fn mapped(address: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10] = 0xff;
    gid[11] = 0xff;
    gid[12..].copy_from_slice(&address);
    gid
}

/// The destination as a GID, and the version and type of the table entry that it has to match.
fn destination(encapsulation: &Encapsulation) -> ([u8; 16], u8, Option<u8>) {
    match encapsulation {
        Encapsulation::V1 { destination, .. } => (*destination, 0, None),
        Encapsulation::V2Ipv4 { destination, .. } => (mapped(destination.octets()), 2, Some(0)),
        Encapsulation::V2Ipv6 { destination, .. } => (destination.octets(), 2, Some(1)),
    }
}

fn multicast(gid: &[u8; 16]) -> bool {
    let ipv4 = gid[..12] == mapped([0; 4])[..12] && gid[12] >> 4 == 0xe;
    gid[0] == 0xff || ipv4
}

impl Device {
    /// Puts a frame on the cable, or into the own queue if it is for this port. The buffer may be another one afterwards.
    pub(crate) fn send_frame(&mut self, io: &mut Io<'_>, frame: &mut Vec<u8>) {
        let Some(&to) = frame.first_chunk::<6>() else {
            return;
        };
        let group = to[0] & 1 != 0;
        let own = self.is_own(to, frame);
        // The virtual port is down with its cable, and what it is given is discarded, also if it is for the port
        // itself.
        if !self.vport.up() || !self.may_send(frame) || (!own && self.too_long(frame)) {
            self.stats.frames_dropped += 1;
            return;
        }
        if (own || group) && self.loopback.len() < LOOPBACK_DEPTH {
            let copy = self.copy_of(frame);
            self.loopback.push_back(copy);
        }
        if !own {
            self.stats.frames_sent += 1;
            self.vport.cable.sent[Kind::of(frame) as usize].count(frame);
            let traffic = &mut self.vport.traffic;
            let counter = if group {
                &mut traffic.group_sent
            } else {
                &mut traffic.sent
            };
            counter.count(frame);
            io.hand_over(frame);
        }
    }

    pub(crate) fn copy_of(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.spare_frames.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        copy
    }

    /// Delivers frames that the device sent to itself.
    pub(crate) fn run_loopback(&mut self, io: &mut Io<'_>) -> bool {
        for _ in 0..self.loopback.len().min(64) {
            let Some(frame) = self.loopback.pop_front() else {
                break;
            };
            self.deliver(io, &frame, true);
            self.spare_frames.push(frame);
        }
        for _ in 0..self.forced.len().min(64) {
            let Some(frame) = self.forced.pop_front() else {
                break;
            };
            self.deliver_by_force(io, &frame);
            self.spare_frames.push(frame);
        }
        for _ in 0..self.looped.len().min(64) {
            let Some(looped) = self.looped.pop_front() else {
                break;
            };
            let frame = &looped.frame;
            let consumed =
                self.ethernet() && self.deliver_rdma(io, frame, true) != RdmaOutcome::Foreign;
            if !consumed && !self.deliver_ethernet(io, frame, Some(looped.transport_domain)) {
                self.stats.frames_dropped += 1;
            }
        }
        !self.loopback.is_empty() || !self.forced.is_empty() || !self.looped.is_empty()
    }

    /// A frame from the cable.
    pub(crate) fn receive_frame(&mut self, io: &mut Io<'_>, frame: &[u8]) {
        self.stats.frames_received += 1;
        self.vport.cable.received[Kind::of(frame) as usize].count(frame);
        if self.vport.up() && !self.too_long(frame) {
            self.deliver(io, frame, false);
        } else {
            self.stats.frames_dropped += 1;
        }
    }

    /// Returns true if a frame is longer than the port's MTU allows.
    fn too_long(&self, frame: &[u8]) -> bool {
        self.ethernet() && frame.len() > self.vport.max_frame()
    }

    fn deliver(&mut self, io: &mut Io<'_>, frame: &[u8], looped: bool) {
        let foreign = !looped
            && frame
                .first_chunk()
                .is_some_and(|&to| !self.is_for_this_function(to));
        let healthy = self.health.well();
        if self.stage != Stage::Initialized && !self.ethernet() && healthy && !looped {
            if !self.deliver_to_agents(io, frame) {
                self.stats.frames_dropped += 1;
            }
            return;
        }
        if self.stage != Stage::Initialized || !healthy || foreign {
            self.stats.frames_dropped += 1;
            return;
        }
        match self.deliver_rdma(io, frame, looped) {
            RdmaOutcome::Delivered if !looped => {
                let traffic = &mut self.vport.traffic;
                let counter = if frame[0] & 1 != 0 {
                    &mut traffic.group_received
                } else {
                    &mut traffic.received
                };
                counter.count(frame);
            }
            RdmaOutcome::Delivered => {}
            // What came round was sent by a QP, and is for QPs.
            RdmaOutcome::Foreign
                if self.ethernet() && !looped && self.deliver_received(io, frame) => {}
            RdmaOutcome::Foreign | RdmaOutcome::Dropped => self.stats.frames_dropped += 1,
        }
    }

    /// A frame from the cable that is for no QP.
    fn deliver_received(&mut self, io: &mut Io<'_>, frame: &[u8]) -> bool {
        let taken = self.deliver_ethernet(io, frame, None);
        if taken {
            self.vport.ethernet.received[Kind::of(frame) as usize].count(frame);
        }
        taken
    }

    fn deliver_rdma(&mut self, io: &mut Io<'_>, frame: &[u8], looped: bool) -> RdmaOutcome {
        if self.ethernet() && !self.vport.context.roce_en() {
            return RdmaOutcome::Foreign;
        }
        let packet = match Packet::parse(frame) {
            Ok(packet) => packet,
            Err(
                error @ (ParseError::Icrc
                | ParseError::Version
                | ParseError::Opcode(_)
                | ParseError::AethSyndrome(_)
                | ParseError::Payload),
            ) => {
                log::debug!("frame dropped: {error}");
                return RdmaOutcome::Dropped;
            }
            Err(_) => return RdmaOutcome::Foreign,
        };
        let to_rdma = |delivered| {
            if delivered {
                RdmaOutcome::Delivered
            } else {
                RdmaOutcome::Dropped
            }
        };
        if !self.ethernet() {
            return to_rdma(self.deliver_local(io, &packet, looped));
        }
        let path = &packet.repr.headers.path;
        let (gid, version, kind) = destination(&path.encapsulation);
        let qpn = packet.repr.bth.destination_qpn;
        if qpn == MULTICAST_QPN {
            if let Some(outcome) = self.steer_received(frame) {
                return outcome;
            }
            return if multicast(&gid) && self.deliver_group(io, &packet, &gid, looped) {
                RdmaOutcome::Delivered
            } else {
                RdmaOutcome::Foreign
            };
        }
        let vlan = path.vlan.map(|tag| tag & 0xfff).filter(|&id| id != 0);
        let mac = path.destination_mac;
        let known = self.gids_used.iter().any(|&index| {
            let entry = &self.gids[usize::from(index)];
            *entry.source_l3_address() == gid
                && entry.roce_version() == version
                && kind.is_none_or(|kind| kind == entry.roce_l3_type())
                && entry.vlan_valid().then(|| entry.vlan_id()) == vlan
                && (mac == self.vport.mac() || mac == entry_mac(entry))
        });
        if !known {
            return RdmaOutcome::Foreign;
        }
        if let Some(outcome) = self.steer_received(frame) {
            return outcome;
        }
        let qpn = if qpn == 1 {
            match self.gsi {
                Some(qpn) if self.vport.tables.admits(packet.repr.bth.pkey) => qpn,
                _ => return RdmaOutcome::Dropped,
            }
        } else {
            qpn
        };
        to_rdma(self.deliver_to(io, qpn, &packet))
    }

    /// Takes a packet through the tables of RDMA. `None` if it goes on to its QP.
    fn steer_received(&mut self, frame: &[u8]) -> Option<RdmaOutcome> {
        match self.steering.rdma_received(frame) {
            Verdict::Passed => None,
            Verdict::Dropped => Some(RdmaOutcome::Dropped),
            Verdict::Switched => Some(RdmaOutcome::Foreign),
        }
    }

    pub(crate) fn deliver_to(&mut self, io: &mut Io<'_>, qpn: u32, packet: &Packet<'_>) -> bool {
        let now = self.now;
        // QP0 and QP1 are reached by their numbers on the wire only.
        let reachable = self.qps.get(qpn).is_some_and(|qp| {
            qp.transport.is_some()
                && match qp.kind() {
                    Some(QpKind::Smi) => packet.repr.bth.destination_qpn == SMI_QPN,
                    Some(QpKind::Gsi) => packet.repr.bth.destination_qpn == GSI_QPN,
                    _ => true,
                }
        });
        if !reachable {
            return false;
        }
        self.with_transport(io, qpn, |transport, env| {
            transport.receive(packet, env, now);
        });
        self.make_ready(qpn);
        true
    }

    pub(crate) fn deliver_group(
        &mut self,
        io: &mut Io<'_>,
        packet: &Packet<'_>,
        gid: &[u8; 16],
        looped: bool,
    ) -> bool {
        let source = packet.repr.extended.deth.source_qpn;
        let mut delivered = false;
        for nth in 0..self.groups.len() {
            let Some(qpn) = self.groups.member(gid, nth) else {
                break;
            };
            // A sender that blocks multicast loopback does not get its own packets.
            let blocked = looped
                && source == qpn
                && self.qps.get(qpn).is_some_and(|qp| qp.context.block_lb_mc());
            if !blocked {
                delivered |= self.deliver_to(io, qpn, packet);
            }
        }
        delivered
    }
}

fn entry_mac(entry: &RoceAddr) -> [u8; 6] {
    let high = entry.source_mac_47_32().to_be_bytes();
    let low = entry.source_mac_31_0().to_be_bytes();
    [high[0], high[1], low[0], low[1], low[2], low[3]]
}
