//! Packets on their way out: what makes one differ from the next, and the buffer that it is built in. Also the numbers that
//! the transport itself puts into packets, and finds in them.

use super::env::{Counter, Env, Path};
use super::headers::Headers;
use super::opcode::Opcode;
use super::packet::{Bth, Extended, MAX_FRAME, Repr};
use super::psn::Psn;

/// Well-known QPN of the GSI.
pub const GSI_QPN: u32 = 1;
/// Well-known QPN of the SMI.
pub const SMI_QPN: u32 = 0;
/// Q_Key of the GSI.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// Destination QPN of multicast datagrams.
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// The buffer that frames are built in; one per device is enough.
pub struct Scratch {
    pub(super) frame: Box<[u8; MAX_FRAME]>,
}

impl Scratch {
    /// A buffer for the longest frame.
    pub fn new() -> Scratch {
        Scratch {
            frame: Box::new([0; MAX_FRAME]),
        }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

/// What differs from one outgoing packet to the next.
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
    pkey: u16,
    path: &Path,
    env: &mut dyn Env,
    scratch: &mut Scratch,
    out: Outgoing,
    fill: impl FnOnce(&mut dyn Env, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let repr = Repr {
        headers: Headers::new(*path),
        bth: Bth {
            opcode: out.opcode,
            solicited: out.solicited,
            // Path migration is never armed here; "migrated" is what both ends start in.
            migration: true,
            pkey,
            fecn: false,
            becn: false,
            destination_qpn: out.destination_qpn,
            ack_request: out.ack_request,
            psn: out.psn,
        },
        extended: out.extended,
    };
    let frame = &mut scratch.frame[..];
    let len = repr.emit(frame, out.payload_len, |payload| fill(env, payload))?;
    env.count(Counter::PacketsSent);
    env.transmit(&frame[..len]);
    Ok(())
}
