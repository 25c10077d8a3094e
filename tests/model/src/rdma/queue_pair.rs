//! Queue pairs: paths to their peers, changes of state, doorbells, and the configuration of their transports.

use crate::bus::io::Io;
use crate::device::Device;
use crate::port::force_loopback;
use crate::port::lid::LocalDestination;
use crate::roce::env::{
    Alternate, CqeScatter, Encapsulation, Path, PathMigration, QpConfig, QpKind, QpState,
    RemoteAccess,
};
use bareverbs_firmware_cmds::doorbell::{ReceiveRecord, SendRecord};
use bareverbs_firmware_cmds::qp::{Ads, scatter};
use bareverbs_firmware_cmds::roce::RoceAddr;
use bareverbs_firmware_cmds::word::Word;
use std::net::{Ipv4Addr, Ipv6Addr};

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
                path_bits: path.mlid(),
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
        // RoCE v2 takes the DSCP field, v1 the traffic class of the GRH. (Old firmware takes that for v2 as well, as a remark
        // in UCX's `uct_dc_mlx5_iface_devx_create_dct` says.)
        let traffic_class = match source.roce_version() {
            0 => path.tclass(),
            _ => path.dscp() << 2 | path.ecn(),
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

    /// The present configuration of a QP's transport.
    pub(crate) fn transport_config(&self, qpn: u32) -> Option<QpConfig> {
        let qp = self.qps.get(qpn)?;
        let kind = qp.kind()?;
        let context = &qp.context;
        let primary = context.primary_address_path();
        let migration = PathMigration::from_number(context.pm_state())
            .filter(|_| self.migrates() && kind.connected() && !kind.dynamic())
            .unwrap_or(PathMigration::Migrated);
        let secondary = context.secondary_address_path();
        let alternate = (migration != PathMigration::Migrated && secondary.rlid() != 0)
            .then(|| self.connected_path(secondary))
            .flatten()
            .map(|path| Alternate {
                path,
                pkey: self.vport.pkey(secondary.pkey_index()),
            });
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
            pkey: self.vport.pkey(primary.pkey_index()),
            qkey: context.q_key(),
            dc_key: context.dc_access_key(),
            errored_streams: 1 << context.log_num_dci_errored_streams(),
            path: if kind.connected()
                && kind != QpKind::Dci
                && !matches!(qp.state, QpState::Reset | QpState::Init)
            {
                self.connected_path(primary)
            } else {
                None
            },
            migration: alternate.map_or(PathMigration::Migrated, |_| migration),
            alternate,
            advertise_credits: false,
            cqe_scatter: CqeScatter {
                receives: match context.cs_res() {
                    scatter::RECEIVES_32 => 32,
                    scatter::RECEIVES_64 => 64,
                    _ => 0,
                },
                responses: match context.cs_req() {
                    scatter::RESPONSES_32 => 32,
                    scatter::RESPONSES_64 => 64,
                    _ => 0,
                },
            },
            atomics_big_endian: self.caps.atomic.atomic_req_8B_endianness_mode() == 0,
        })
    }

    /// Passes the changed configuration to the transport.
    pub(crate) fn configure(&mut self, io: &mut Io<'_>, qpn: u32) {
        let now = self.now;
        if let Some(config) = self.transport_config(qpn) {
            self.with_transport(io, qpn, |transport, env| {
                transport.configure(config, env, now);
            });
        }
        self.make_ready(qpn);
    }

    /// Passes what counts for every QP to their transports.
    pub(crate) fn configure_all(&mut self, io: &mut Io<'_>) {
        let all: Vec<u32> = self.qps.iter().map(|(number, _)| number).collect();
        for qpn in all {
            self.configure(io, qpn);
        }
    }

    /// Moves a QP into a state and updates the transport.
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

    /// A QP in error with a receive queue is polled for posted WQEs, to flush them.
    pub(crate) fn drain_list(&mut self, qpn: u32) {
        let wanted = self
            .qps
            .get(qpn)
            .is_some_and(|qp| qp.state == QpState::Err && qp.rq_entries() != 0);
        if wanted {
            self.begin_draining(qpn);
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
        let at = qp.ring.record().wrapping_add(SendRecord::OFFSET as u64);
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
        let Ok(record) = io.read_be32(qp.ring.record()) else {
            return false;
        };
        qp.rq_posted = ReceiveRecord(record).counter();
        true
    }
}
