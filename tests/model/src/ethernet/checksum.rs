//! The Internet's checksum: filled in when sending, told about when receiving.

use super::frame::{Network, Parsed, Transport, Version};

/// The one's complement sum of bytes, not yet complemented.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    add(0, bytes)
}

/// Adds bytes to a sum. What was summed before must have had an even length.
fn add(start: u16, bytes: &[u8]) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut total = u64::from(start);
    for pair in pairs {
        total += u64::from(u16::from_be_bytes(*pair));
    }
    if let [last] = rest {
        total += u64::from(*last) << 8;
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sum of what TCP and UDP have in front of themselves for their checksum.
fn pseudo_header(frame: &[u8], network: &Network) -> u16 {
    let (source, destination) = network.addresses(frame);
    let length = network.end.saturating_sub(network.transport) as u32;
    let start = add(add(0, source), destination);
    let start = add(start, &length.to_be_bytes());
    add(start, &[0, network.protocol])
}

/// The sum over header and payload, with the pseudo header: 0xffff if the checksum in it is right.
fn transport_sum(frame: &[u8], network: &Network) -> u16 {
    let body = frame.get(network.transport..network.end).unwrap_or(&[]);
    add(pseudo_header(frame, network), body)
}

/// Fills in the checksums that a send asks for, as far as the frame has such headers. What stands there does not matter:
/// the card computes them from nothing.
pub(crate) fn fill(frame: &mut [u8], parsed: &Parsed, network: bool, transport: bool) {
    let Some(header) = &parsed.network else {
        return;
    };
    if network && header.version == Version::V4 && header.sound {
        let range = header.at..header.transport;
        let field = header.at + 10;
        frame[field..field + 2].fill(0);
        let value = !sum(&frame[range]);
        frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
    if let (true, Some(part)) = (transport, &parsed.transport) {
        let field = part.checksum_at();
        frame[field..field + 2].fill(0);
        let value = match (!transport_sum(frame, header), part) {
            // Zero says that there is none.
            (0, Transport::Udp { .. }) => 0xffff,
            (value, _) => value,
        };
        frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// What a receiver is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// Over the network header and what it says that follows; padding is not in it.
    pub(crate) complete: u16,
    pub(crate) network_ok: bool,
    pub(crate) transport_ok: bool,
}

/// Looks at the checksums of a received frame.
pub(crate) fn check(frame: &[u8], parsed: &Parsed) -> Verdict {
    let Some(network) = &parsed.network else {
        return Verdict::default();
    };
    let complete = sum(frame.get(network.at..network.end).unwrap_or(&[]));
    let network_ok = network.sound
        && match network.version {
            Version::V4 => sum(&frame[network.at..network.transport]) == 0xffff,
            Version::V6 => true,
        };
    let transport_ok = match parsed.transport {
        Some(Transport::Udp { at })
            if network.version == Version::V4 && frame[at + 6..at + 8] == [0, 0] =>
        {
            true
        }
        Some(_) => transport_sum(frame, network) == 0xffff,
        None => false,
    };
    Verdict {
        complete,
        network_ok,
        transport_ok: transport_ok && network_ok,
    }
}
