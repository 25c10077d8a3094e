//! Receive-side scaling: the hash over a packet's addresses and ports that spreads flows over queues.

use super::frame::{Parsed, Transport, Version};
use bareverbs_firmware_cmds::tir::{RxHashFieldSelect, Tirc};

/// `rx_hash_fn` of a TIR.
pub(crate) mod function {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const INVERTED_XOR8: u8 = 1;
    pub(crate) const TOEPLITZ: u8 = 2;
}

/// Fields that can be selected.
pub(crate) mod select {
    pub(crate) const SOURCE_IP: u32 = 1 << 0;
    pub(crate) const DESTINATION_IP: u32 = 1 << 1;
    pub(crate) const SOURCE_PORT: u32 = 1 << 2;
    pub(crate) const DESTINATION_PORT: u32 = 1 << 3;
    pub(crate) const SPI: u32 = 1 << 4;
    pub(crate) const ALL: u32 = SOURCE_IP | DESTINATION_IP | SOURCE_PORT | DESTINATION_PORT | SPI;
}

/// What came of hashing: the number, and what went into it, as the completion codes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hash {
    pub(crate) value: u32,
    pub(crate) kind: u8,
}

/// Microsoft's Toeplitz hash: for every bit of the input that is set, the 32 bits of the key that start there.
pub(crate) fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        let next = key.get(at + 4).copied().unwrap_or(0);
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

/// Longest input: two IPv6 addresses, two ports.
const MAX_INPUT: usize = 36;

/// Hashes a packet as a TIR says.
pub(crate) fn hash(context: &Tirc, frame: &[u8], parsed: &Parsed) -> Hash {
    let fields: &RxHashFieldSelect = context.rx_hash_field_selector_outer();
    let mut input = Vec::with_capacity(MAX_INPUT);
    let mut kind = 0;
    let selected = fields.selected_fields();
    let symmetric = context.rx_hash_symmetric();
    let mut take = |source: &[u8], destination: &[u8], bits: (u32, u32)| {
        let both = bits.0 | bits.1;
        // Symmetric: both directions of a flow put in the same.
        let (first, second) = if symmetric && selected & both == both && destination < source {
            (destination, source)
        } else {
            (source, destination)
        };
        if selected & bits.0 != 0 {
            input.extend_from_slice(first);
        }
        if selected & bits.1 != 0 {
            input.extend_from_slice(second);
        }
    };
    if let Some(network) = parsed.network.as_ref().filter(|network| {
        network.sound && (network.version == Version::V6) == fields.l3_prot_type()
    }) {
        let (source, destination) = network.addresses(frame);
        take(
            source,
            destination,
            (select::SOURCE_IP, select::DESTINATION_IP),
        );
        let code = if network.version == Version::V4 { 1 } else { 2 };
        if selected & select::SOURCE_IP != 0 {
            kind |= code;
        }
        if selected & select::DESTINATION_IP != 0 {
            kind |= code << 2;
        }
        let code = match parsed.transport {
            Some(Transport::Tcp { .. }) if !fields.l4_prot_type() => 1,
            Some(Transport::Udp { .. }) if fields.l4_prot_type() => 2,
            _ => 0,
        };
        if let (Some(transport), true) = (&parsed.transport, code != 0) {
            let at = transport.at();
            take(
                &frame[at..at + 2],
                &frame[at + 2..at + 4],
                (select::SOURCE_PORT, select::DESTINATION_PORT),
            );
            if selected & select::SOURCE_PORT != 0 {
                kind |= code << 4;
            }
            if selected & select::DESTINATION_PORT != 0 {
                kind |= code << 6;
            }
        }
    }
    let value = match context.rx_hash_fn() {
        function::TOEPLITZ => toeplitz(context.rx_hash_toeplitz_key(), &input),
        function::INVERTED_XOR8 => u32::from(!input.iter().fold(0, |all, byte| all ^ byte)),
        _ => 0,
    };
    Hash { value, kind }
}
