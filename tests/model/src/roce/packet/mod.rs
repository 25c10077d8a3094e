//! RoCE packets: checked view of a received frame, and the emitter.
//!
//! [`Packet::parse`] accepts a frame only when every length agrees, the opcode exists and the ICRC is right; what it accepts
//! and [`Repr::emit`] writes again is the same frame, byte for byte (reserved bits are zero in what a ConnectX sends).

use std::fmt;

use super::codes::Syndrome;
use super::env::{Encapsulation, GrhKind};
use super::headers::{Headers, Layout};
use super::opcode::{Opcode, Operation, Service};
use super::psn::Psn;

/// Bytes of a base transport header.
pub const BTH_LEN: usize = 12;
/// Bytes of the invariant CRC.
pub const ICRC_LEN: usize = 4;
/// Bytes in front of a datagram's payload in the receive buffer.
pub const GRH_LEN: usize = 40;
/// Largest payload of one packet.
pub const MAX_MTU: usize = 4096;
/// Longest frame that [`Repr::emit`] writes.
pub const MAX_FRAME: usize = super::headers::MAX_LEN + BTH_LEN + 28 + 8 + MAX_MTU + ICRC_LEN;
/// Bytes that a CNP has instead of a payload.
const CNP_LEN: usize = 16;

/// Why a frame is not a RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// Another protocol.
    NotRoce,
    /// Ends before its headers or its lengths do.
    Truncated,
    /// IP version, header length or fragment.
    IpHeader,
    /// IPv4 header checksum.
    IpChecksum,
    /// UDP checksum, where there is one.
    UdpChecksum,
    /// Lengths that contradict each other.
    Length,
    /// Transport header version.
    Version,
    /// No such opcode.
    Opcode(u8),
    /// Reserved AETH syndrome.
    AethSyndrome(u8),
    /// A payload where the opcode has none, or pad bytes without a payload.
    Payload,
    /// Invariant CRC.
    Icrc,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::NotRoce => f.write_str("not a RoCE frame"),
            ParseError::Truncated => f.write_str("frame ends too early"),
            ParseError::IpHeader => f.write_str("bad IP header"),
            ParseError::IpChecksum => f.write_str("wrong IPv4 checksum"),
            ParseError::UdpChecksum => f.write_str("wrong UDP checksum"),
            ParseError::Length => f.write_str("lengths contradict each other"),
            ParseError::Version => f.write_str("transport header version is not 0"),
            ParseError::Opcode(byte) => write!(f, "unknown opcode {byte:#04x}"),
            ParseError::AethSyndrome(byte) => write!(f, "reserved AETH syndrome {byte:#04x}"),
            ParseError::Payload => f.write_str("payload or padding where there can be none"),
            ParseError::Icrc => f.write_str("wrong ICRC"),
        }
    }
}

impl std::error::Error for ParseError {}

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
    /// What it says.
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
    /// What its headers say.
    pub repr: Repr,
    /// Its payload, without pad bytes.
    pub payload: &'a [u8],
    network: &'a [u8],
}

/// Writes big-endian fields one after the other.
struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.buf[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Reads big-endian fields one after the other; the caller has checked the length.
struct Reader<'a> {
    buf: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.buf[self.at..self.at + N]);
        self.at += N;
        out
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

/// Invariant CRC of a packet whose bytes from the IP header to the ICRC are `packet[layout.network..layout.end]`
/// (IBTA vol. 1, 7.8.1 and annex A17): what routers may change counts as ones.
fn icrc(frame: &[u8], layout: &Layout, encapsulation: &Encapsulation) -> [u8; 4] {
    // 8 bytes stand in for the LRH, then at most 40 + 8 bytes of IP and UDP, then the BTH.
    let mut masked = [0xffu8; 8 + 48 + BTH_LEN];
    let head = &frame[layout.network..layout.transport + BTH_LEN];
    let masked = &mut masked[..8 + head.len()];
    masked[8..].copy_from_slice(head);
    let ip = &mut masked[8..];
    match encapsulation {
        Encapsulation::V2Ipv4 { .. } => {
            ip[1] = 0xff;
            ip[8] = 0xff;
            ip[10..12].fill(0xff);
            ip[26..28].fill(0xff);
        }
        Encapsulation::V2Ipv6 { .. } => {
            ip[0] |= 0x0f;
            ip[1..4].fill(0xff);
            ip[7] = 0xff;
            ip[46..48].fill(0xff);
        }
        Encapsulation::V1 { .. } => {
            ip[0] |= 0x0f;
            ip[1..4].fill(0xff);
            ip[7] = 0xff;
        }
    }
    let bth = layout.transport - layout.network;
    ip[bth + 4] = 0xff;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(masked);
    hasher.update(&frame[layout.transport + BTH_LEN..layout.end - ICRC_LEN]);
    hasher.finalize().to_le_bytes()
}

/// Writes the right ICRC into a frame that was changed on purpose (tests, fault injection on headers). `false` when the
/// frame's lengths do not allow it.
pub fn reseal(frame: &mut [u8]) -> bool {
    let Ok((headers, layout)) = Headers::parse(frame) else {
        return false;
    };
    if layout.end - layout.transport < BTH_LEN + ICRC_LEN {
        return false;
    }
    let crc = icrc(frame, &layout, &headers.path.encapsulation);
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
        let pad = payload_len.wrapping_neg() & 3;
        let header_len = self.header_len();
        fill(&mut frame[header_len..header_len + payload_len])?;
        frame[header_len + payload_len..header_len + payload_len + pad].fill(0);

        let transport = header_len - self.headers.len() + payload_len + pad + ICRC_LEN;
        let layout = self.headers.emit(frame, transport);
        let bth = &self.bth;
        let bit = |set: bool, at: u32| u32::from(set) << at;
        let words = [
            u32::from(bth.opcode.byte()) << 24
                | bit(bth.solicited, 23)
                | bit(bth.migration, 22)
                | (pad as u32) << 20
                | u32::from(bth.pkey),
            bit(bth.fecn, 31) | bit(bth.becn, 30) | (bth.destination_qpn & 0xff_ffff),
            bit(bth.ack_request, 31) | bth.psn.get(),
        ];
        let mut w = Writer {
            buf: frame,
            at: layout.transport,
        };
        for word in words {
            w.put(&word.to_be_bytes());
        }
        self.emit_extended(&mut w);
        let crc = icrc(frame, &layout, &self.headers.path.encapsulation);
        frame[layout.end - ICRC_LEN..layout.end].copy_from_slice(&crc);
        Ok(layout.end)
    }

    fn emit_extended(&self, w: &mut Writer<'_>) {
        let Opcode { service, operation } = self.bth.opcode;
        let e = &self.extended;
        if service == Service::Cnp {
            return;
        }
        if service == Service::Ud {
            w.put(&e.deth.qkey.to_be_bytes());
            w.put(&(e.deth.source_qpn & 0xff_ffff).to_be_bytes());
        }
        if self.bth.opcode.has_xrceth() {
            w.put(&(e.xrc_srqn & 0xff_ffff).to_be_bytes());
        }
        if operation.has_reth() {
            w.put(&e.reth.addr.to_be_bytes());
            w.put(&e.reth.rkey.to_be_bytes());
            w.put(&e.reth.len.to_be_bytes());
        }
        if operation.has_atomic() {
            w.put(&e.atomic.addr.to_be_bytes());
            w.put(&e.atomic.rkey.to_be_bytes());
            w.put(&e.atomic.swap_or_add.to_be_bytes());
            w.put(&e.atomic.compare.to_be_bytes());
        }
        if operation.has_aeth() {
            let word = u32::from(e.aeth.syndrome.byte()) << 24 | (e.aeth.msn & 0xff_ffff);
            w.put(&word.to_be_bytes());
        }
        if operation == Operation::AtomicAcknowledge {
            w.put(&e.atomic_ack.to_be_bytes());
        }
        if operation.has_imm() {
            w.put(&e.imm.to_be_bytes());
        }
        if operation.has_ieth() {
            w.put(&e.invalidate.to_be_bytes());
        }
    }
}

impl<'a> Packet<'a> {
    /// Checks a frame and reads its headers.
    pub fn parse(frame: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (headers, layout) = Headers::parse(frame)?;
        let transport = &frame[layout.transport..layout.end];
        if transport.len() < BTH_LEN + ICRC_LEN {
            return Err(ParseError::Truncated);
        }
        // The checksum first: nothing of a damaged packet means anything.
        if transport[transport.len() - ICRC_LEN..]
            != icrc(frame, &layout, &headers.path.encapsulation)
        {
            return Err(ParseError::Icrc);
        }
        let mut r = Reader {
            buf: transport,
            at: 0,
        };
        let words = [r.u32(), r.u32(), r.u32()];
        let bit = |word: usize, at: u32| words[word] >> at & 1 != 0;
        let byte = (words[0] >> 24) as u8;
        let opcode = Opcode::from_byte(byte).ok_or(ParseError::Opcode(byte))?;
        if words[0] >> 16 & 0xf != 0 {
            return Err(ParseError::Version);
        }
        let pad = (words[0] >> 20 & 3) as usize;
        let bth = Bth {
            opcode,
            solicited: bit(0, 23),
            migration: bit(0, 22),
            pkey: words[0] as u16,
            fecn: bit(1, 31),
            becn: bit(1, 30),
            destination_qpn: words[1] & 0xff_ffff,
            ack_request: bit(2, 31),
            psn: Psn::new(words[2]),
        };
        let header_len = BTH_LEN + opcode.extended_len();
        let Some(body) = transport.len().checked_sub(header_len + ICRC_LEN) else {
            return Err(ParseError::Truncated);
        };
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
            payload: &transport[header_len..header_len + payload_len],
            network: &frame[layout.network..layout.transport],
        })
    }

    fn parse_extended(r: &mut Reader<'_>, opcode: Opcode) -> Result<Extended, ParseError> {
        let mut e = Extended::default();
        let Opcode { service, operation } = opcode;
        if service == Service::Cnp {
            return Ok(e);
        }
        if service == Service::Ud {
            e.deth = Deth {
                qkey: r.u32(),
                source_qpn: r.u32() & 0xff_ffff,
            };
        }
        if opcode.has_xrceth() {
            e.xrc_srqn = r.u32() & 0xff_ffff;
        }
        if operation.has_reth() {
            e.reth = Reth {
                addr: r.u64(),
                rkey: r.u32(),
                len: r.u32(),
            };
        }
        if operation.has_atomic() {
            e.atomic = AtomicEth {
                addr: r.u64(),
                rkey: r.u32(),
                swap_or_add: r.u64(),
                compare: r.u64(),
            };
        }
        if operation.has_aeth() {
            let word = r.u32();
            let byte = (word >> 24) as u8;
            e.aeth = Aeth {
                syndrome: Syndrome::from_byte(byte).ok_or(ParseError::AethSyndrome(byte))?,
                msn: word & 0xff_ffff,
            };
        }
        if operation == Operation::AtomicAcknowledge {
            e.atomic_ack = r.u64();
        }
        if operation.has_imm() {
            e.imm = r.u32();
        }
        if operation.has_ieth() {
            e.invalidate = r.u32();
        }
        Ok(e)
    }

    /// What a datagram's receive buffer holds in front of the payload: the IPv6 header or GRH, or 20 zeros and the IPv4
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

    /// Whether a router marked it "congestion experienced".
    pub fn congestion_experienced(&self) -> bool {
        self.repr.headers.path.traffic_class & 3 == 3
    }
}

#[cfg(test)]
mod tests;
