//! What can be wrong with a frame.

use std::fmt;

/// Why a frame is not a RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// Another protocol.
    NotRoce,
    /// Ends before its headers or its lengths do.
    Truncated,
    /// IP version, header length or reserved flag.
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
