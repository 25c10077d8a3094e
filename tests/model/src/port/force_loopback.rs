//! Force loopback (`fl` of the address path): RC queue pairs whose packets go round inside the device.
//!
//! Its behaviour is known from its users in Linux (`mlx5_core`'s software steering, `mlx5_vdpa`, the migration driver
//! and the self test of vfio) and in SPDK: INIT2RTR_QP carries `fl`, the port's number and nothing else of a path; the
//! path MTU is 4096, independent of the port's; the capabilities are for RC, one for each state that RoCE can be in;
//! InfiniBand ports are asked for none. What a card does with `fl` on other types of QP, or when only one end has it,
//! is not known: here the one is refused, and the packets of the other are dropped, as those of a connection to another
//! address ([`Device::answer_unknown`] counts both).

use crate::bus::io::Io;
use crate::device::{Device, Stage};
use crate::port::wire::LOOPBACK_DEPTH;
use crate::roce::env::{Encapsulation, Path};
use crate::roce::packet::Packet;

/// Packets that never leave the device need no addresses.
pub(crate) const PATH: Path = Path {
    source_mac: [0; 6],
    destination_mac: [0; 6],
    vlan: None,
    encapsulation: Encapsulation::V1 {
        source: [0; 16],
        destination: [0; 16],
    },
    traffic_class: 0,
    flow_label: 0,
    hop_limit: 0,
    udp_source_port: 0,
};

impl Device {
    /// Returns `true` if the capabilities allow it in the state that RoCE is in.
    pub(crate) fn forces_loopback(&self) -> bool {
        let (general, roce) = (&self.caps.general, &self.caps.roce);
        if !self.ethernet() {
            true
        } else if self.vport.context.roce_en() {
            roce.fl_rc_qp_when_roce_enabled()
        } else {
            general.fl_rc_qp_when_roce_disabled()
                || general.roce() && roce.fl_rc_qp_when_roce_disabled()
        }
    }

    pub(crate) fn loops_by_force(&self, qpn: u32) -> bool {
        self.qps
            .get(qpn)
            .is_some_and(|qp| qp.context.primary_address_path().fl())
    }

    /// Takes a packet of such a QP. The cable may be out, and nothing of it is seen or counted at the port.
    pub(crate) fn loop_by_force(&mut self, frame: &[u8]) {
        if self.forced.len() < LOOPBACK_DEPTH {
            let copy = self.copy_of(frame);
            self.forced.push_back(copy);
        }
    }

    pub(crate) fn deliver_by_force(&mut self, io: &mut Io<'_>, frame: &[u8]) {
        let works = self.stage == Stage::Initialized && self.health.well();
        let packet = Packet::parse(frame);
        if let Ok(packet) = &packet {
            let qpn = packet.repr.bth.destination_qpn;
            if self.qps.contains(qpn) && !self.loops_by_force(qpn) {
                self.answer_unknown(format_args!(
                    "a packet looped by force to QP {qpn:#x}, which does not loop"
                ));
            }
        }
        let delivered = match packet {
            Ok(packet) if works => self.deliver_to(io, packet.repr.bth.destination_qpn, &packet),
            _ => false,
        };
        if !delivered {
            self.stats.frames_dropped += 1;
        }
    }
}
