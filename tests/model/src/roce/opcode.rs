//! BTH opcodes (IBTA vol. 1, 9.2.1): three bits of transport service, five bits of operation.

/// Transport service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Unreliable datagram.
    Ud = 0x60,
    /// Congestion notification (opcode 0x81 only).
    Cnp = 0x80,
    /// Extended reliable connection (annex A14).
    Xrc = 0xa0,
    /// Dynamic connection.
    Dc = 0xc0,
}

/// Operation and position in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // the names are the specification's
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInv = 0x16,
    SendOnlyInv = 0x17,
}

use Operation as Op;

impl Operation {
    const fn from_bits(bits: u8) -> Option<Operation> {
        Some(match bits {
            0x00 => Op::SendFirst,
            0x01 => Op::SendMiddle,
            0x02 => Op::SendLast,
            0x03 => Op::SendLastImm,
            0x04 => Op::SendOnly,
            0x05 => Op::SendOnlyImm,
            0x06 => Op::WriteFirst,
            0x07 => Op::WriteMiddle,
            0x08 => Op::WriteLast,
            0x09 => Op::WriteLastImm,
            0x0a => Op::WriteOnly,
            0x0b => Op::WriteOnlyImm,
            0x0c => Op::ReadRequest,
            0x0d => Op::ReadResponseFirst,
            0x0e => Op::ReadResponseMiddle,
            0x0f => Op::ReadResponseLast,
            0x10 => Op::ReadResponseOnly,
            0x11 => Op::Acknowledge,
            0x12 => Op::AtomicAcknowledge,
            0x13 => Op::CompareSwap,
            0x14 => Op::FetchAdd,
            0x16 => Op::SendLastInv,
            0x17 => Op::SendOnlyInv,
            _ => return None,
        })
    }

    /// A packet that begins a message (or is all of it).
    pub fn begins(self) -> bool {
        !matches!(
            self,
            Op::SendMiddle
                | Op::SendLast
                | Op::SendLastImm
                | Op::SendLastInv
                | Op::WriteMiddle
                | Op::WriteLast
                | Op::WriteLastImm
                | Op::ReadResponseMiddle
                | Op::ReadResponseLast
        )
    }

    /// A packet that ends a message (or is all of it).
    pub fn ends(self) -> bool {
        !matches!(
            self,
            Op::SendFirst
                | Op::SendMiddle
                | Op::WriteFirst
                | Op::WriteMiddle
                | Op::ReadResponseFirst
                | Op::ReadResponseMiddle
        )
    }

    /// Part of a SEND.
    pub fn is_send(self) -> bool {
        matches!(
            self,
            Op::SendFirst
                | Op::SendMiddle
                | Op::SendLast
                | Op::SendLastImm
                | Op::SendLastInv
                | Op::SendOnly
                | Op::SendOnlyImm
                | Op::SendOnlyInv
        )
    }

    /// Part of an RDMA WRITE.
    pub fn is_write(self) -> bool {
        (Op::WriteFirst as u8..=Op::WriteOnlyImm as u8).contains(&(self as u8))
    }

    /// From the responder to the requester.
    pub const fn is_response(self) -> bool {
        self as u8 >= Op::ReadResponseFirst as u8 && self as u8 <= Op::AtomicAcknowledge as u8
    }

    /// Carries a RETH.
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            Op::WriteFirst | Op::WriteOnly | Op::WriteOnlyImm | Op::ReadRequest
        )
    }

    /// Carries an AtomicETH.
    pub const fn has_atomic(self) -> bool {
        matches!(self, Op::CompareSwap | Op::FetchAdd)
    }

    /// Carries an AETH.
    pub const fn has_aeth(self) -> bool {
        self.is_response() && self as u8 != Op::ReadResponseMiddle as u8
    }

    /// Carries immediate data.
    pub const fn has_imm(self) -> bool {
        matches!(
            self,
            Op::SendLastImm | Op::SendOnlyImm | Op::WriteLastImm | Op::WriteOnlyImm
        )
    }

    /// Carries an IETH.
    pub const fn has_ieth(self) -> bool {
        matches!(self, Op::SendLastInv | Op::SendOnlyInv)
    }

    /// May carry a payload.
    pub fn has_payload(self) -> bool {
        self.is_send()
            || self.is_write()
            || (Op::ReadResponseFirst as u8..=Op::ReadResponseOnly as u8).contains(&(self as u8))
    }
}

/// A BTH opcode that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opcode {
    /// Transport service.
    pub service: Service,
    /// Operation. For CNP it means nothing ([`Operation::SendMiddle`] by its bits).
    pub operation: Operation,
}

impl Opcode {
    /// Congestion notification packet.
    pub const CNP: Opcode = Opcode {
        service: Service::Cnp,
        operation: Op::SendMiddle,
    };

    /// Puts service and operation together.
    pub fn new(service: Service, operation: Operation) -> Opcode {
        Opcode { service, operation }
    }

    /// The opcode of a byte, if it is one of RC, UC, UD, XRC, DC or the CNP.
    pub fn from_byte(byte: u8) -> Option<Opcode> {
        OPCODES[usize::from(byte)].map(|(opcode, _)| opcode)
    }

    const fn decode(byte: u8) -> Option<Opcode> {
        let Some(operation) = Operation::from_bits(byte & 0x1f) else {
            return None;
        };
        let service = match byte & 0xe0 {
            0x00 => Service::Rc,
            0x20 if operation as u8 <= Op::WriteOnlyImm as u8 => Service::Uc,
            0x60 if matches!(operation, Op::SendOnly | Op::SendOnlyImm) => Service::Ud,
            0x80 if byte == 0x81 => Service::Cnp,
            0xa0 => Service::Xrc,
            0xc0 => Service::Dc,
            _ => return None,
        };
        Some(Opcode { service, operation })
    }

    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        self.service as u8 | self.operation as u8
    }

    /// Carries an XRCETH: every request of an XRC connection does, its responses do not.
    pub const fn has_xrceth(self) -> bool {
        self.service as u8 == Service::Xrc as u8 && !self.operation.is_response()
    }

    /// Carries the header of dynamic connections: every request of one does, its responses do not.
    pub const fn has_dceth(self) -> bool {
        self.service as u8 == Service::Dc as u8 && !self.operation.is_response()
    }

    /// Bytes of the extended headers behind the BTH.
    pub fn extended_len(self) -> usize {
        OPCODES[usize::from(self.byte())].map_or(0, |(_, len)| usize::from(len))
    }

    const fn count_extended(self) -> u8 {
        if self.service as u8 == Service::Cnp as u8 {
            return 0;
        }
        let op = self.operation;
        let headers = [
            (self.service as u8 == Service::Ud as u8, 8),
            (self.has_xrceth(), 4),
            (self.has_dceth(), 20),
            (op.has_reth(), 16),
            (op.has_atomic(), 28),
            (op.has_aeth(), 4),
            (op as u8 == Op::AtomicAcknowledge as u8, 8),
            (op.has_imm(), 4),
            (op.has_ieth(), 4),
        ];
        let (mut len, mut at) = (0, 0);
        while at < headers.len() {
            if headers[at].0 {
                len += headers[at].1;
            }
            at += 1;
        }
        len
    }
}

/// By its byte, every opcode that exists, and the bytes of its extended headers: each packet asks.
static OPCODES: [Option<(Opcode, u8)>; 256] = {
    let mut opcodes = [None; 256];
    let mut byte = 0;
    while byte < 256 {
        if let Some(opcode) = Opcode::decode(byte as u8) {
            opcodes[byte] = Some((opcode, opcode.count_extended()));
        }
        byte += 1;
    }
    opcodes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let known = (0..=255u8).filter_map(|b| Opcode::from_byte(b).map(|o| (b, o)));
        let mut count = 0;
        for (byte, opcode) in known {
            assert_eq!(opcode.byte(), byte);
            count += 1;
        }
        // 23 of RC, 12 of UC, 2 of UD, CNP, 23 of XRC, 23 of DC.
        assert_eq!(count, 23 + 12 + 2 + 1 + 23 + 23);
    }

    #[test]
    fn extended_lengths() {
        let len = |b| Opcode::from_byte(b).map(Opcode::extended_len);
        assert_eq!(len(0x04), Some(0));
        assert_eq!(len(0x0b), Some(20));
        assert_eq!(len(0x0c), Some(16));
        assert_eq!(len(0x0e), Some(0));
        assert_eq!(len(0x11), Some(4));
        assert_eq!(len(0x12), Some(12));
        assert_eq!(len(0x13), Some(28));
        assert_eq!(len(0x17), Some(4));
        assert_eq!(len(0x64), Some(8));
        assert_eq!(len(0x65), Some(12));
        assert_eq!(len(0x81), Some(0));
        assert_eq!(len(0x15), None);
        assert_eq!(len(0x2c), None);
        assert_eq!(len(0xa4), Some(4));
        assert_eq!(len(0xa1), Some(4));
        assert_eq!(len(0xab), Some(24));
        assert_eq!(len(0xac), Some(20));
        assert_eq!(len(0xae), Some(0));
        assert_eq!(len(0xb1), Some(4));
        assert_eq!(len(0xb3), Some(32));
        assert_eq!(len(0xb5), None);
        assert_eq!(len(0xc4), Some(20));
        assert_eq!(len(0xcc), Some(36));
        assert_eq!(len(0xd1), Some(4));
        assert_eq!(len(0xd5), None);
        assert_eq!(len(0xe4), None);
    }
}
