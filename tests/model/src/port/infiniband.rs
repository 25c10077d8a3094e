//! InfiniBand ports: local identifiers instead of MAC addresses, and a global header only where the sender asks for one.

use crate::bus::io::Io;
use crate::device::Device;
use crate::port::lid::without_global;
use crate::port::lid::{LocalDestination, LocalSource, PERMISSIVE_LID, group, lid, local, mac};
use crate::port::management;
use crate::roce::env::{Encapsulation, Path};
use crate::roce::headers::Headers;
use crate::roce::opcode::{Opcode, Operation, Service};
use crate::roce::packet::{Bth, Deth, Extended, ICRC_LEN, Packet, Repr};
use crate::roce::psn::Psn;
use crate::roce::transport::{GSI_QKEY, GSI_QPN, SMI_QPN};
use crate::subnet::datagram::{ATTRIBUTE, CLASS, Datagram, attribute, be16, class};
use crate::subnet::performance;
use bareverbs_firmware_cmds::values::PortState;

/// Where the number of the destination's QP is in a frame of an InfiniBand port.
const BTH_QPN: usize = 14 + 40 + 5;
/// Hops that a packet without a global header may take: it never leaves its subnet.
const SUBNET_HOPS: u8 = 1;

impl Device {
    /// The headers from this port to a destination.
    pub(crate) fn local_path(&self, to: &LocalDestination<'_>) -> Path {
        let subnet = &self.vport.subnet;
        let own = subnet.lid | u16::from(to.path_bits) & ((1 << subnet.lmc) - 1);
        // What goes to the permissive identifier comes from it (older cards' drivers ask for that by the bit SLR, newer
        // cards do it by themselves): tables need not lead back to the sender while a manager sets them up, and Linux
        // answers to the identifier that a request came from.
        let from = if to.lid == PERMISSIVE_LID {
            to.lid
        } else {
            own
        };
        let (source, destination) = match to.gid {
            Some(gid) => (self.vport.gid(0), *gid),
            None => (local(from), local(to.lid)),
        };
        let global = to.gid.is_some();
        Path {
            source_mac: mac(from, to.service_level),
            destination_mac: mac(to.lid, to.service_level),
            vlan: None,
            encapsulation: Encapsulation::V1 {
                source,
                destination,
            },
            traffic_class: if global { to.traffic_class } else { 0 },
            flow_label: if global { to.flow_label & 0xf_ffff } else { 0 },
            hop_limit: if global { to.hop_limit } else { SUBNET_HOPS },
            udp_source_port: 0,
        }
    }

    /// Delivers what came in at an InfiniBand port.
    pub(crate) fn deliver_local(
        &mut self,
        io: &mut Io<'_>,
        packet: &Packet<'_>,
        looped: bool,
    ) -> bool {
        let path = &packet.repr.headers.path;
        let (Some((to, _)), Some((from, service_level))) =
            (lid(path.destination_mac), lid(path.source_mac))
        else {
            return false;
        };
        let Encapsulation::V1 {
            source,
            destination,
        } = path.encapsulation
        else {
            return false;
        };
        let qpn = packet.repr.bth.destination_qpn;
        if qpn != SMI_QPN {
            match self.vport.subnet.state {
                // The neighbor is active already (IBTA vol. 1, 7.2.7).
                PortState::Armed => {
                    self.vport.subnet.state = PortState::Active;
                    self.port_event(io, PortState::Active.number());
                }
                PortState::Active => {}
                _ => return false,
            }
        }
        let named = destination == self.vport.gid(0) || destination[0] == 0xff;
        if self.config.grh_required && qpn != SMI_QPN && !named {
            return false;
        }
        // A port without an identifier sends as the permissive one.
        let from = if from == 0 { PERMISSIVE_LID } else { from };
        self.sender = Some(LocalSource {
            lid: from,
            service_level,
            global: !without_global(&source),
        });
        let delivered = if group(to) {
            destination[0] == 0xff && self.deliver_group(io, packet, &destination, looped)
        } else if self.vport.subnet.has(to) || to == PERMISSIVE_LID && qpn == SMI_QPN {
            self.answer(io, packet, from, service_level) || {
                let number = match qpn {
                    SMI_QPN => self.smi,
                    GSI_QPN if !self.vport.tables.admits(packet.repr.bth.pkey) => None,
                    GSI_QPN => self.gsi,
                    _ => Some(qpn),
                };
                number.is_some_and(|number| self.deliver_to(io, number, packet))
            }
        } else {
            false
        };
        self.sender = None;
        delivered
    }

    /// Returns `true` if a frame from this port is addressed to the port itself.
    pub(crate) fn is_own(&self, to: [u8; 6], frame: &[u8]) -> bool {
        if self.ethernet() {
            return to == self.vport.mac() || frame.get(6..12) == Some(&to);
        }
        lid(to).is_some_and(|(to, _)| self.vport.subnet.has(to))
    }

    /// Returns `true` if a port in its state sends a frame: all but subnet management waits for the state Active.
    pub(crate) fn may_send(&self, frame: &[u8]) -> bool {
        self.ethernet()
            || self.vport.subnet.state == PortState::Active
            || frame.get(BTH_QPN..BTH_QPN + 3) == Some(&[0; 3])
    }

    /// A frame that comes when there is no driver: the port has its agents all the same.
    pub(crate) fn deliver_to_agents(&mut self, io: &mut Io<'_>, frame: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(frame) else {
            return false;
        };
        let path = &packet.repr.headers.path;
        let (Some((to, _)), Some((from, service_level))) =
            (lid(path.destination_mac), lid(path.source_mac))
        else {
            return false;
        };
        let own = self.vport.subnet.has(to) || to == PERMISSIVE_LID;
        let from = if from == 0 { PERMISSIVE_LID } else { from };
        own && self.answer(io, &packet, from, service_level)
    }
}

impl Device {
    /// Answers a datagram for one of the port's agents, which are the firmware's: that for performance management, which
    /// drivers never see, and that for subnet management where no driver has QP0, or where it answers all the same
    /// ([`Config::subnet_agent`](crate::Config::subnet_agent)). Linux's answers, would it be asked, have no header.
    fn answer(
        &mut self,
        io: &mut Io<'_>,
        packet: &Packet<'_>,
        lid: u16,
        service_level: u8,
    ) -> bool {
        let Repr {
            headers,
            bth,
            extended,
        } = packet.repr;
        let Some(asked) = packet.payload.first_chunk::<256>() else {
            return false;
        };
        let qpn = bth.destination_qpn;
        let ours = match qpn {
            SMI_QPN => {
                // Managers ask each other, and the agent knows of none (`process_mad` of Linux's driver).
                let manager = be16(asked, ATTRIBUTE) == attribute::SM_INFO;
                let beside = self.config.subnet_agent && !manager;
                management::for_subnet_agent(asked) && (self.smi.is_none() || beside)
            }
            GSI_QPN => extended.deth.qkey == GSI_QKEY && performance::for_agent(asked),
            _ => false,
        };
        if !ours || packet.payload.len() != asked.len() || bth.opcode.service != Service::Ud {
            return false;
        }
        let Ok(answer) = self.manage(io, asked, true) else {
            return false;
        };
        // What has the wrong key is discarded.
        let Some(mut answer) = answer else {
            self.trap_of_key(io, asked, lid);
            return true;
        };
        let directed = asked[CLASS] == class::SUBNET_DIRECTED_ROUTE;
        if directed {
            management::turn_round(&mut answer);
        }
        let gid = match headers.path.encapsulation {
            Encapsulation::V1 { source, .. } if !without_global(&source) => Some(source),
            _ => None,
        };
        let path = self.local_path(&LocalDestination {
            lid: if directed { PERMISSIVE_LID } else { lid },
            path_bits: 0,
            service_level,
            gid: gid.as_ref(),
            traffic_class: headers.path.traffic_class,
            flow_label: headers.path.flow_label,
            hop_limit: headers.path.hop_limit,
        });
        let qkey = if qpn == GSI_QPN { GSI_QKEY } else { 0 };
        let to = extended.deth.source_qpn;
        self.send_datagram(io, path, (qpn, to), (bth.pkey, qkey), &answer);
        true
    }

    /// Sends what an agent of the port has to say, from its QP to another, with P_Key and Q_Key.
    pub(crate) fn send_datagram(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        (from, to): (u32, u32),
        (pkey, qkey): (u16, u32),
        datagram: &Datagram,
    ) {
        let repr = Repr {
            headers: Headers::new(path),
            bth: Bth {
                opcode: Opcode {
                    service: Service::Ud,
                    operation: Operation::SendOnly,
                },
                solicited: false,
                migration: true,
                fecn: false,
                becn: false,
                pkey,
                destination_qpn: to,
                ack_request: false,
                psn: Psn::new(0),
            },
            extended: Extended {
                deth: Deth {
                    qkey,
                    source_qpn: from,
                },
                ..Extended::default()
            },
        };
        let mut frame = vec![0; repr.header_len() + datagram.len() + ICRC_LEN];
        let filled = repr.emit(&mut frame, datagram.len(), |payload| {
            payload.copy_from_slice(datagram);
            Ok::<_, core::convert::Infallible>(())
        });
        if filled.is_ok() {
            self.send_frame(io, &mut frame);
        }
    }
}
