//! The errors of frames.

/// Why a frame is not a RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Another protocol.
    #[error("not a RoCE frame")]
    NotRoce,
    /// Ends before its headers or its lengths do.
    #[error("frame ends too early")]
    Truncated,
    /// IP version, header length or reserved flag.
    #[error("bad IP header")]
    IpHeader,
    /// IPv4 header checksum.
    #[error("wrong IPv4 checksum")]
    IpChecksum,
    /// UDP checksum, where there is one.
    #[error("wrong UDP checksum")]
    UdpChecksum,
    /// Lengths that contradict each other.
    #[error("lengths contradict each other")]
    Length,
    /// Transport header version.
    #[error("transport header version is not 0")]
    Version,
    /// No such opcode.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// Reserved AETH syndrome.
    #[error("reserved AETH syndrome {0:#04x}")]
    AethSyndrome(u8),
    /// A payload where the opcode has none, or pad bytes without a payload.
    #[error("payload or padding where there can be none")]
    Payload,
    /// Invariant CRC.
    #[error("wrong ICRC")]
    Icrc,
}
