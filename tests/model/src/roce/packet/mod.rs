//! RoCE packets: checked view of a received frame, and the emitter.
//!
//! [`Packet::parse`] accepts a frame only when every length agrees, the opcode exists and the ICRC is right; what it accepts
//! and [`Repr::emit`] writes again is the same frame, byte for byte (reserved bits are zero in what a ConnectX sends).

use std::sync::LazyLock;

use super::codes::Syndrome;
use super::env::{Encapsulation, GrhKind};
use super::headers::{Carrier, Headers, Layout};
use super::opcode::{Opcode, Operation, Service};
pub use super::parse_error::ParseError;
use super::psn::Psn;
use super::template::Template;
use super::wire::{self, Reader, Writer};
use zerocopy::{Immutable, IntoBytes};

/// Bytes of a base transport header.
pub const BTH_LEN: usize = 12;
/// Bytes of the invariant CRC.
pub const ICRC_LEN: usize = 4;
/// Bytes in front of a datagram's payload in the receive buffer.
pub const GRH_LEN: usize = 40;
/// Largest payload of one packet.
pub const MAX_MTU: usize = 4096;
/// Longest frame that [`Repr::emit`] writes.
pub const MAX_FRAME: usize = super::headers::MAX_LEN + BTH_LEN + 28 + 20 + MAX_MTU + ICRC_LEN;
/// Bytes that a CNP has instead of a payload.
const CNP_LEN: usize = 16;

/// Base transport header, without the pad count (it follows from the payload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Opcode.
    pub opcode: Opcode,
    /// Solicited event asked for.
    pub solicited: bool,
    /// Migration state.
    pub migration: bool,
    /// P_Key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination QPN.
    pub destination_qpn: u32,
    /// Acknowledgement asked for.
    pub ack_request: bool,
    /// Sequence number.
    pub psn: Psn,
}

/// RDMA extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reth {
    /// Virtual address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole operation.
    pub len: u32,
}

/// Datagram extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deth {
    /// Q_Key.
    pub qkey: u32,
    /// Source QPN.
    pub source_qpn: u32,
}

/// Header of dynamic connections, in a form that is the models' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dceth {
    /// Access key of the target.
    pub key: u64,
    /// Number of the connection: those of one initiator rise.
    pub connection: u32,
    /// PSN of the connection's first request.
    pub first: u32,
    /// QPN of the initiator.
    pub source_qpn: u32,
}

/// Atomic extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AtomicEth {
    /// Virtual address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in or to add.
    pub swap_or_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Acknowledge extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// The meaning of the syndrome field.
    pub syndrome: Syndrome,
    /// Message sequence number.
    pub msn: u32,
}

/// Extended headers; the opcode says which of them count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extended {
    /// UD.
    pub deth: Deth,
    /// XRC requests: the shared receive queue that the request is for.
    pub xrc_srqn: u32,
    /// DC requests.
    pub dc: Dceth,
    /// WRITE and READ requests.
    pub reth: Reth,
    /// Atomic requests.
    pub atomic: AtomicEth,
    /// Responses.
    pub aeth: Aeth,
    /// Original value in an atomic response.
    pub atomic_ack: u64,
    /// Immediate data.
    pub imm: u32,
    /// Rkey to invalidate.
    pub invalidate: u32,
}

impl Default for Extended {
    fn default() -> Extended {
        Extended {
            deth: Deth::default(),
            xrc_srqn: 0,
            dc: Dceth::default(),
            reth: Reth::default(),
            atomic: AtomicEth::default(),
            aeth: Aeth {
                syndrome: Syndrome::Ack(0),
                msn: 0,
            },
            atomic_ack: 0,
            imm: 0,
            invalidate: 0,
        }
    }
}

/// Everything of a packet but its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Headers in front of the BTH.
    pub headers: Headers,
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers.
    pub extended: Extended,
}

/// A received packet whose checks all passed.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// The content of its headers.
    pub repr: Repr,
    /// Its payload, without pad bytes.
    pub payload: &'a [u8],
    network: &'a [u8],
}

/// Invariant CRC of a packet whose bytes from the IP header to the ICRC are `packet[layout.network..layout.end]`
/// (IBTA vol. 1, 7.8.1 and annex A17): what routers may change counts as ones.
fn icrc(frame: &[u8], layout: &Layout) -> [u8; 4] {
    let rest = &frame[layout.transport + BTH_LEN..layout.end - ICRC_LEN];
    let frame = &frame[layout.network..];
    match layout.carrier {
        Carrier::V2Ipv4 => {
            let mut head = Masked::<{ 20 + 8 + BTH_LEN }>::new(frame);
            head.bytes[1] = 0xff;
            head.bytes[8] = 0xff;
            head.bytes[10..12].fill(0xff);
            head.bytes[26..28].fill(0xff);
            head.crc(rest)
        }
        Carrier::V2Ipv6 => {
            let mut head = Masked::<{ 40 + 8 + BTH_LEN }>::new(frame);
            head.mask_ipv6();
            head.bytes[46..48].fill(0xff);
            head.crc(rest)
        }
        Carrier::V1 => {
            let mut head = Masked::<{ 40 + BTH_LEN }>::new(frame);
            head.mask_ipv6();
            head.crc(rest)
        }
    }
}

/// The bytes that the ICRC covers up to the BTH's end.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Masked<const N: usize> {
    /// Stands in for the LRH.
    lrh: [u8; 8],
    bytes: [u8; N],
}

impl<const N: usize> Masked<N> {
    fn new(network: &[u8]) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&network[..N]);
        // The BTH's reserved byte.
        bytes[N - BTH_LEN + 4] = 0xff;
        Self {
            lrh: [0xff; 8],
            bytes,
        }
    }

    /// Traffic class, flow label, hop limit.
    fn mask_ipv6(&mut self) {
        self.bytes[0] |= 0x0f;
        self.bytes[1..4].fill(0xff);
        self.bytes[7] = 0xff;
    }

    fn crc(&self, rest: &[u8]) -> [u8; 4] {
        // What the processor can do is found out once.
        static START: LazyLock<crc32fast::Hasher> = LazyLock::new(crc32fast::Hasher::new);
        let mut hasher = START.clone();
        hasher.update(self.as_bytes());
        hasher.update(rest);
        hasher.finalize().to_le_bytes()
    }
}

/// Writes the right ICRC into a frame that was changed on purpose (tests, fault injection on headers). `false` when the
/// frame's lengths do not allow it.
pub fn reseal(frame: &mut [u8]) -> bool {
    let Ok((_, layout)) = Headers::parse(frame) else {
        return false;
    };
    if layout.end - layout.transport < BTH_LEN + ICRC_LEN {
        return false;
    }
    let crc = icrc(frame, &layout);
    frame[layout.end - ICRC_LEN..layout.end].copy_from_slice(&crc);
    true
}

impl Repr {
    /// Bytes in front of the payload.
    pub fn header_len(&self) -> usize {
        self.headers.len() + BTH_LEN + self.bth.opcode.extended_len()
    }

    /// Writes the packet to the beginning of `frame` ([`MAX_FRAME`] bytes are always enough); `fill` puts the payload in
    /// place. Returns the frame's length.
    pub fn emit<E>(
        &self,
        frame: &mut [u8],
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let parts = PacketParts {
            template: &Template::new(&self.headers),
            bth: &self.bth,
            extended: &self.extended,
        };
        parts.emit(frame, payload_len, fill)
    }
}

/// The parts of a packet that is to be sent.
pub(super) struct PacketParts<'a> {
    pub(super) template: &'a Template,
    pub(super) bth: &'a Bth,
    pub(super) extended: &'a Extended,
}

impl PacketParts<'_> {
    /// Bytes in front of the payload.
    fn header_len(&self) -> usize {
        self.template.len() + BTH_LEN + self.bth.opcode.extended_len()
    }

    /// Bytes of the frame.
    pub(super) fn len(&self, payload_len: usize) -> usize {
        self.header_len() + payload_len.next_multiple_of(4) + ICRC_LEN
    }

    /// As [`Repr::emit`].
    #[inline]
    pub(super) fn emit<E>(
        &self,
        frame: &mut [u8],
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let pad = payload_len.wrapping_neg() & 3;
        let header_len = self.header_len();
        let (payload, behind) = frame[header_len..].split_at_mut(payload_len);
        fill(payload)?;
        behind[..pad].fill(0);

        let transport = header_len - self.template.len() + payload_len + pad + ICRC_LEN;
        let layout = self.template.emit(frame, transport);
        let mut w = Writer {
            frame,
            at: layout.transport,
        };
        let bth = self.bth;
        w.put(wire::Bth {
            opcode: bth.opcode.byte(),
            flags: u8::from(bth.solicited) << 7 | u8::from(bth.migration) << 6 | (pad as u8) << 4,
            pkey: bth.pkey.into(),
            destination: (bit(bth.fecn, 31) | bit(bth.becn, 30) | qpn(bth.destination_qpn)).into(),
            sequence: (bit(bth.ack_request, 31) | bth.psn.get()).into(),
        });
        self.emit_extended(&mut w);
        let crc = icrc(frame, &layout);
        frame[layout.end - ICRC_LEN..layout.end].copy_from_slice(&crc);
        Ok(layout.end)
    }

    fn emit_extended(&self, w: &mut Writer<'_>) {
        let opcode = self.bth.opcode;
        let e = self.extended;
        if opcode.service == Service::Cnp {
            return;
        }
        if opcode.service == Service::Ud {
            w.put(wire::Deth {
                qkey: e.deth.qkey.into(),
                source_qpn: qpn(e.deth.source_qpn).into(),
            });
        }
        if opcode.has_xrceth() {
            w.word(qpn(e.xrc_srqn));
        }
        if opcode.has_dceth() {
            w.put(wire::Dceth {
                key: e.dc.key.into(),
                connection: e.dc.connection.into(),
                first: qpn(e.dc.first).into(),
                source_qpn: qpn(e.dc.source_qpn).into(),
            });
        }
        let operation = opcode.operation;
        if operation.has_reth() {
            w.put(wire::Reth {
                addr: e.reth.addr.into(),
                rkey: e.reth.rkey.into(),
                len: e.reth.len.into(),
            });
        }
        if operation.has_atomic() {
            w.put(wire::AtomicEth {
                addr: e.atomic.addr.into(),
                rkey: e.atomic.rkey.into(),
                swap_or_add: e.atomic.swap_or_add.into(),
                compare: e.atomic.compare.into(),
            });
        }
        if operation.has_aeth() {
            w.word(u32::from(e.aeth.syndrome.byte()) << 24 | e.aeth.msn & 0xff_ffff);
        }
        if operation == Operation::AtomicAcknowledge {
            w.put(wire::AtomicAck {
                value: e.atomic_ack.into(),
            });
        }
        if operation.has_imm() {
            w.word(e.imm);
        }
        if operation.has_ieth() {
            w.word(e.invalidate);
        }
    }
}

/// The 24 bits of a queue's number.
fn qpn(number: u32) -> u32 {
    number & 0xff_ffff
}

/// A bit of a word.
fn bit(set: bool, at: u32) -> u32 {
    u32::from(set) << at
}

impl<'a> Packet<'a> {
    /// Checks a frame and reads its headers.
    #[inline(always)]
    pub fn parse(frame: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (headers, layout) = Headers::parse(frame)?;
        let transport = &frame[layout.transport..layout.end];
        if transport.len() < BTH_LEN + ICRC_LEN {
            return Err(ParseError::Truncated);
        }
        // The checksum first: nothing of a damaged packet means anything.
        if transport[transport.len() - ICRC_LEN..] != icrc(frame, &layout) {
            return Err(ParseError::Icrc);
        }
        let mut r = Reader {
            rest: &transport[..transport.len() - ICRC_LEN],
        };
        let header: &wire::Bth = r.take().ok_or(ParseError::Truncated)?;
        let opcode = Opcode::from_byte(header.opcode).ok_or(ParseError::Opcode(header.opcode))?;
        if header.flags & 0xf != 0 {
            return Err(ParseError::Version);
        }
        let (destination, sequence) = (header.destination.get(), header.sequence.get());
        let bit = |word: u32, at: u32| word >> at & 1 != 0;
        let bth = Bth {
            opcode,
            solicited: header.flags & 0x80 != 0,
            migration: header.flags & 0x40 != 0,
            pkey: header.pkey.get(),
            fecn: bit(destination, 31),
            becn: bit(destination, 30),
            destination_qpn: qpn(destination),
            ack_request: bit(sequence, 31),
            psn: Psn::new(sequence),
        };
        let pad = usize::from(header.flags >> 4 & 3);
        let body = r.rest.len().checked_sub(opcode.extended_len());
        let body = body.ok_or(ParseError::Truncated)?;
        if body % 4 != 0 {
            return Err(ParseError::Length);
        }
        let payload_len = body.checked_sub(pad).ok_or(ParseError::Payload)?;
        let cnp = opcode.service == Service::Cnp;
        if (cnp && (payload_len != CNP_LEN || pad != 0))
            || (!cnp && body != 0 && !opcode.operation.has_payload())
        {
            return Err(ParseError::Payload);
        }
        let extended = Self::parse_extended(&mut r, opcode)?;
        Ok(Packet {
            repr: Repr {
                headers,
                bth,
                extended,
            },
            payload: r.rest.get(..payload_len).ok_or(ParseError::Truncated)?,
            network: &frame[layout.network..layout.transport],
        })
    }

    #[inline(always)]
    fn parse_extended(r: &mut Reader<'_>, opcode: Opcode) -> Result<Extended, ParseError> {
        let mut e = Extended::default();
        if opcode.service == Service::Cnp {
            return Ok(e);
        }
        let short = ParseError::Truncated;
        if opcode.service == Service::Ud {
            let header: &wire::Deth = r.take().ok_or(short)?;
            e.deth = Deth {
                qkey: header.qkey.get(),
                source_qpn: qpn(header.source_qpn.get()),
            };
        }
        if opcode.has_xrceth() {
            e.xrc_srqn = qpn(r.word().ok_or(short)?);
        }
        if opcode.has_dceth() {
            let header: &wire::Dceth = r.take().ok_or(short)?;
            e.dc = Dceth {
                key: header.key.get(),
                connection: header.connection.get(),
                first: qpn(header.first.get()),
                source_qpn: qpn(header.source_qpn.get()),
            };
        }
        let operation = opcode.operation;
        if operation.has_reth() {
            let header: &wire::Reth = r.take().ok_or(short)?;
            e.reth = Reth {
                addr: header.addr.get(),
                rkey: header.rkey.get(),
                len: header.len.get(),
            };
        }
        if operation.has_atomic() {
            let header: &wire::AtomicEth = r.take().ok_or(short)?;
            e.atomic = AtomicEth {
                addr: header.addr.get(),
                rkey: header.rkey.get(),
                swap_or_add: header.swap_or_add.get(),
                compare: header.compare.get(),
            };
        }
        if operation.has_aeth() {
            let word = r.word().ok_or(short)?;
            let byte = (word >> 24) as u8;
            e.aeth = Aeth {
                syndrome: Syndrome::from_byte(byte).ok_or(ParseError::AethSyndrome(byte))?,
                msn: word & 0xff_ffff,
            };
        }
        if operation == Operation::AtomicAcknowledge {
            e.atomic_ack = r.take::<wire::AtomicAck>().ok_or(short)?.value.get();
        }
        if operation.has_imm() {
            e.imm = r.word().ok_or(short)?;
        }
        if operation.has_ieth() {
            e.invalidate = r.word().ok_or(short)?;
        }
        Ok(e)
    }

    /// The bytes in front of the payload in a datagram's receive buffer: the IPv6 header or GRH, or 20 zeros and the IPv4
    /// header.
    pub fn grh(&self) -> ([u8; GRH_LEN], GrhKind) {
        let mut area = [0; GRH_LEN];
        let kind = match self.repr.headers.path.encapsulation {
            Encapsulation::V2Ipv4 { .. } => {
                area[20..].copy_from_slice(&self.network[..20]);
                return (area, GrhKind::Ipv4);
            }
            Encapsulation::V2Ipv6 { .. } => GrhKind::Ipv6,
            Encapsulation::V1 { .. } => GrhKind::Grh,
        };
        area.copy_from_slice(&self.network[..40]);
        (area, kind)
    }

    /// Returns `true` if a router marked it "congestion experienced".
    pub fn congestion_experienced(&self) -> bool {
        self.repr.headers.path.traffic_class & 3 == 3
    }
}

#[cfg(test)]
mod tests;
