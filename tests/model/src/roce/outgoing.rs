//! Packets on their way out: what makes one differ from the next, and the buffer that it is built in. Also the numbers that
//! the transport itself puts into packets, and finds in them.

use super::env::{Counter, Env, PathMigration, QpConfig};
use super::opcode::Opcode;
use super::packet::{Bth, Extended, PacketParts};
use super::psn::Psn;
use super::template::Template;

/// Well-known QPN of the GSI.
pub const GSI_QPN: u32 = 1;
/// Well-known QPN of the SMI.
pub const SMI_QPN: u32 = 0;
/// Q_Key of the GSI.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// Destination QPN of multicast datagrams.
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// The buffer that frames are built in; one per device is enough.
#[derive(Default)]
pub struct Scratch {
    frame: Vec<u8>,
}

/// The fields that differ from one outgoing packet to the next.
pub(super) struct Outgoing {
    pub(super) opcode: Opcode,
    pub(super) psn: Psn,
    pub(super) destination_qpn: u32,
    pub(super) ack_request: bool,
    pub(super) solicited: bool,
    pub(super) extended: Extended,
    pub(super) payload_len: usize,
}

/// Builds a frame and sends it; `fill` puts the payload in place, and nothing is sent when it fails.
pub(super) fn transmit<E>(
    config: &QpConfig,
    template: &Template,
    env: &mut dyn Env,
    scratch: &mut Scratch,
    out: Outgoing,
    fill: impl FnOnce(&mut dyn Env, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let parts = PacketParts {
        template,
        bth: &Bth {
            opcode: out.opcode,
            solicited: out.solicited,
            migration: config.migration == PathMigration::Migrated,
            pkey: config.pkey,
            fecn: false,
            becn: false,
            destination_qpn: out.destination_qpn,
            ack_request: out.ack_request,
            psn: out.psn,
        },
        extended: &out.extended,
    };
    let frame = &mut scratch.frame;
    frame.resize(parts.len(out.payload_len), 0);
    parts.emit(frame, out.payload_len, |payload| fill(env, payload))?;
    env.count(Counter::PacketsSent);
    env.transmit(frame);
    Ok(())
}
