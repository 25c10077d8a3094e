//! Management datagrams: where their fields are, and the numbers in them (IBTA vol. 1, 13.4 and 14.2).

/// A management datagram.
pub(crate) type Datagram = [u8; 256];

/// Management classes.
pub(crate) mod class {
    pub(crate) const SUBNET_LID_ROUTED: u8 = 0x01;
    pub(crate) const SUBNET_DIRECTED_ROUTE: u8 = 0x81;
    pub(crate) const ADMINISTRATION: u8 = 0x03;
    pub(crate) const PERFORMANCE: u8 = 0x04;
}

pub(crate) mod method {
    pub(crate) const GET: u8 = 0x01;
    pub(crate) const SET: u8 = 0x02;
    pub(crate) const TRAP: u8 = 0x05;
    pub(crate) const TRAP_REPRESS: u8 = 0x07;
    pub(crate) const GET_RESPONSE: u8 = 0x81;
}

/// Attributes of subnet management.
pub(crate) mod attribute {
    pub(crate) const NOTICE: u16 = 0x02;
    pub(crate) const NODE_DESCRIPTION: u16 = 0x10;
    pub(crate) const NODE_INFO: u16 = 0x11;
    pub(crate) const SWITCH_INFO: u16 = 0x12;
    pub(crate) const GUID_INFO: u16 = 0x14;
    pub(crate) const PORT_INFO: u16 = 0x15;
    pub(crate) const P_KEY_TABLE: u16 = 0x16;
    pub(crate) const SL_TO_VL: u16 = 0x17;
    pub(crate) const VL_ARBITRATION: u16 = 0x18;
    pub(crate) const LINEAR_FORWARDING: u16 = 0x19;
    pub(crate) const MULTICAST_FORWARDING: u16 = 0x1b;
    pub(crate) const SM_INFO: u16 = 0x20;
    /// The vendor's own: what PortInfo has no field for.
    pub(crate) const EXTENDED_PORT_INFO: u16 = 0xff90;
}

/// The meaning of an answer's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Status {
    BadVersion = 0x04,
    MethodUnsupported = 0x08,
    AttributeUnsupported = 0x0c,
    InvalidValue = 0x1c,
}

/// Where the fields of a datagram are.
pub(crate) const CLASS: usize = 1;
pub(crate) const CLASS_VERSION: usize = 2;
pub(crate) const METHOD: usize = 3;
pub(crate) const STATUS: usize = 4;
pub(crate) const HOP_POINTER: usize = 6;
pub(crate) const HOP_COUNT: usize = 7;
pub(crate) const ATTRIBUTE: usize = 16;
pub(crate) const MODIFIER: usize = 20;
/// In subnet management only.
pub(crate) const M_KEY: usize = 24;
/// The data of subnet management, and of performance management.
pub(crate) const DATA: usize = 64;
/// Length of the data of subnet management.
pub(crate) const SUBNET_DATA: usize = 64;
pub(crate) const INITIAL_PATH: usize = 128;
pub(crate) const RETURN_PATH: usize = 192;
/// Entries of a path.
pub(crate) const MOST_HOPS: usize = 64;

/// A datagram with a directed route has one bit of the status for its direction: set on the way back.
pub(crate) const DIRECTION: u16 = 0x8000;

/// Longest time until an answer: 4.096 µs · 2^16.
pub(crate) const RESPONSE_TIME: u8 = 16;

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// Puts big-endian fields into an answer's data.
pub(crate) struct Fields<'a>(pub(crate) &'a mut [u8]);

impl Fields<'_> {
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn byte(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, &[value])
    }

    /// Two fields of four bits.
    pub(crate) fn halves(&mut self, at: usize, high: u8, low: u8) -> &mut Self {
        self.byte(at, high << 4 | low & 0xf)
    }
}
