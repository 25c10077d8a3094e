//! The meaning of the small codes of AETH and QPC: delays, timeouts, credits.

use std::time::Duration;

/// Delay of an RNR NAK timer code, in units of 10 µs (IBTA vol. 1, table 45).
const RNR_DELAY_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Credits of an AETH credit code (IBTA vol. 1, table 46).
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// The waiting time of an RNR NAK's timer code.
pub fn rnr_delay(code: u8) -> Duration {
    Duration::from_micros(10) * RNR_DELAY_10US[usize::from(code & 31)]
}

/// 4.096 µs · 2^code; `None` (never) for code 0.
pub fn ack_timeout(code: u8) -> Option<Duration> {
    let code = code & 31;
    (code != 0).then(|| Duration::from_nanos(4096 << code))
}

/// The AETH credit code for so many free receive WQEs, rounded down; 31 says "not limited".
pub fn credit_code(credits: Option<u32>) -> u8 {
    match credits {
        None => 31,
        // The table ascends from 0, so at least one entry is not above.
        Some(n) => (CREDITS.partition_point(|&c| c <= n) - 1) as u8,
    }
}

/// The credits of a code; `None` when not limited.
pub fn credits(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code & 31)).copied()
}

/// The meaning of an AETH (IBTA vol. 1, 9.7.5.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// Acknowledged; credit code.
    Ack(u8),
    /// Receiver not ready; timer code.
    Rnr(u8),
    /// Refused.
    Nak(Nak),
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Nak {
    /// A packet is missing.
    Sequence = 0,
    /// The request is invalid or is not allowed.
    InvalidRequest = 1,
    /// Wrong key, range or right.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperation = 3,
}

impl Syndrome {
    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits & 31,
            Syndrome::Rnr(timer) => 0x20 | (timer & 31),
            Syndrome::Nak(nak) => 0x60 | nak as u8,
        }
    }

    /// The meaning of a byte; `None` for reserved ones.
    pub fn from_byte(byte: u8) -> Option<Syndrome> {
        Some(match (byte >> 5, byte & 31) {
            (0, credits) => Syndrome::Ack(credits),
            (1, timer) => Syndrome::Rnr(timer),
            (3, 0) => Syndrome::Nak(Nak::Sequence),
            (3, 1) => Syndrome::Nak(Nak::InvalidRequest),
            (3, 2) => Syndrome::Nak(Nak::RemoteAccess),
            (3, 3) => Syndrome::Nak(Nak::RemoteOperation),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays() {
        assert_eq!(rnr_delay(0), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(1), Duration::from_micros(10));
        assert_eq!(rnr_delay(14), Duration::from_micros(1280));
        assert_eq!(rnr_delay(31), Duration::from_micros(491_520));
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(4096 << 31)));
    }

    #[test]
    fn credit_codes_round_down() {
        for (n, code) in [
            (0, 0),
            (1, 1),
            (5, 4),
            (6, 5),
            (1000, 19),
            (32768, 30),
            (u32::MAX, 30),
        ] {
            assert_eq!(credit_code(Some(n)), code, "{n}");
        }
        assert_eq!(credit_code(None), 31);
        assert_eq!(credits(31), None);
        assert_eq!(credits(30), Some(32768));
    }

    #[test]
    fn syndromes_round_trip() {
        for byte in 0..=255u8 {
            if let Some(s) = Syndrome::from_byte(byte) {
                assert_eq!(s.byte(), byte);
            }
        }
        assert_eq!(Syndrome::from_byte(0x64), None);
        assert_eq!(Syndrome::from_byte(0x80), None);
    }
}
