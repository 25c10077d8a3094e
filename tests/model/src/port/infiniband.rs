//! InfiniBand ports: local identifiers instead of MAC addresses, and a global header only where the sender asks for one.

use crate::bus::io::Io;
use crate::device::Device;
use crate::port::lid::{LocalDestination, LocalSource, PERMISSIVE_LID, group, lid, local, mac};
use crate::port::management;
use crate::roce::env::{Encapsulation, Path};
use crate::roce::headers::Headers;
use crate::roce::opcode::Service;
use crate::roce::packet::{Bth, Deth, Extended, ICRC_LEN, Packet, Repr};
use crate::roce::transport::{GSI_QKEY, GSI_QPN, SMI_QPN};

/// Hops that a packet without a global header may take: it never leaves its subnet.
const SUBNET_HOPS: u8 = 1;

impl Device {
    /// The port's first GID: link-local, from its GUID.
    fn port_gid(&self) -> [u8; 16] {
        let guid = self.vport.context.port_guid();
        (0xfe80_u128 << 112 | u128::from(guid)).to_be_bytes()
    }

    /// The headers from this port to a destination.
    pub(crate) fn local_path(&self, to: &LocalDestination<'_>) -> Path {
        let own = self.config.lid;
        let (source, destination) = match to.gid {
            Some(gid) => (self.port_gid(), *gid),
            None => (local(own), local(to.lid)),
        };
        let global = to.gid.is_some();
        Path {
            source_mac: mac(own, to.service_level),
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
        self.sender = Some(LocalSource {
            lid: from,
            service_level,
            global: source != local(from),
        });
        let qpn = packet.repr.bth.destination_qpn;
        let delivered = if group(to) {
            destination[0] == 0xff && self.deliver_group(io, packet, &destination, looped)
        } else if to == self.config.lid || to == PERMISSIVE_LID && qpn == SMI_QPN {
            if qpn == GSI_QPN && self.answer(io, packet, from, service_level) {
                self.sender = None;
                return true;
            }
            let number = match qpn {
                SMI_QPN => self.smi,
                GSI_QPN => self.gsi,
                _ => Some(qpn),
            };
            number.is_some_and(|number| self.deliver_to(io, number, packet))
        } else {
            false
        };
        self.sender = None;
        delivered
    }
}

impl Device {
    /// Answers a datagram for the port's agent for performance management, which is the firmware's: drivers never see it.
    /// Linux' answers, would it be asked, have no header.
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
        let whole = packet.payload.len() == asked.len();
        let ours = bth.opcode.service == Service::Ud && extended.deth.qkey == GSI_QKEY;
        if !whole || !ours || !management::for_performance_agent(asked) {
            return false;
        }
        let Ok(Some(answer)) = self.manage(asked) else {
            return false;
        };
        let gid = match headers.path.encapsulation {
            Encapsulation::V1 { source, .. } if source != local(lid) => Some(source),
            _ => None,
        };
        let path = self.local_path(&LocalDestination {
            lid,
            service_level,
            gid: gid.as_ref(),
            traffic_class: headers.path.traffic_class,
            flow_label: headers.path.flow_label,
            hop_limit: headers.path.hop_limit,
        });
        let reply = Repr {
            headers: Headers::new(path),
            bth: Bth {
                solicited: false,
                fecn: false,
                becn: false,
                destination_qpn: extended.deth.source_qpn,
                ack_request: false,
                ..bth
            },
            extended: Extended {
                deth: Deth {
                    qkey: GSI_QKEY,
                    source_qpn: GSI_QPN,
                },
                ..Extended::default()
            },
        };
        let mut frame = vec![0; reply.header_len() + answer.len() + ICRC_LEN];
        let filled = reply.emit(&mut frame, answer.len(), |payload| {
            payload.copy_from_slice(&answer);
            Ok::<_, core::convert::Infallible>(())
        });
        if filled.is_ok() {
            self.send_frame(io, &mut frame);
        }
        true
    }
}
