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

/// The result of hashing: the number, and the fields that went into it, as the completion codes them.
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

/// Hashes a packet as a TIR says: by the inner headers if it has some and the TIR selects fields of them.
pub(crate) fn hash(context: &Tirc, frame: &[u8], outer: &Parsed, inner: Option<&Parsed>) -> Hash {
    let of_inner: &RxHashFieldSelect = context.rx_hash_field_selector_inner();
    let (fields, parsed) = match inner {
        Some(inner) if of_inner.selected_fields() != 0 => (of_inner, inner),
        _ => (context.rx_hash_field_selector_outer(), outer),
    };
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

#[cfg(test)]
mod tests {
    use super::super::frame::parse;
    use super::super::frame::tests::{ipv4, ipv6, tcp};
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// The key of Microsoft's verification suite.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn context(selected: u32, v6: bool) -> Tirc {
        let mut context = Tirc::ZERO;
        context.set_rx_hash_fn(function::TOEPLITZ);
        *context.rx_hash_toeplitz_key_mut() = KEY;
        context
            .rx_hash_field_selector_outer_mut()
            .set_selected_fields(selected)
            .set_l3_prot_type(v6);
        context
    }

    const IPS: u32 = select::SOURCE_IP | select::DESTINATION_IP;
    const PORTS: u32 = select::SOURCE_PORT | select::DESTINATION_PORT;

    fn both(frame: &[u8], v6: bool) -> (Hash, Hash) {
        let parsed = parse(frame);
        (
            hash(&context(IPS, v6), frame, &parsed, None),
            hash(&context(IPS | PORTS, v6), frame, &parsed, None),
        )
    }

    #[test]
    fn microsofts_vectors_for_ipv4() {
        // Destination, source, without and with ports.
        let vectors = [
            (
                "161.142.100.80",
                1766,
                "66.9.149.187",
                2794,
                0x323e_8fc2,
                0x51cc_c178,
            ),
            (
                "65.69.140.83",
                4739,
                "199.92.111.2",
                14230,
                0xd718_262a,
                0xc626_b0ea,
            ),
            (
                "12.22.207.184",
                38024,
                "24.19.198.95",
                12898,
                0xd2d0_a5de,
                0x5c2b_394a,
            ),
            (
                "209.142.163.6",
                2217,
                "38.27.205.30",
                48228,
                0x8298_9176,
                0xafc7_327f,
            ),
            (
                "202.188.127.2",
                1303,
                "153.39.163.191",
                44251,
                0x5d18_09c5,
                0x10e8_28a2,
            ),
        ];
        for (to, to_port, from, from_port, addresses, ports) in vectors {
            let [to, from]: [Ipv4Addr; 2] = [to, from].map(|text| text.parse().unwrap());
            let frame = ipv4(from, to, 6, &tcp(from_port, to_port, 0x10, b"x"));
            let (without, with) = both(&frame, false);
            assert_eq!(
                without,
                Hash {
                    value: addresses,
                    kind: 0b0000_0101
                }
            );
            assert_eq!(
                with,
                Hash {
                    value: ports,
                    kind: 0b0101_0101
                }
            );
        }
    }

    #[test]
    fn microsofts_vectors_for_ipv6() {
        let vectors = [
            (
                "3ffe:2501:200:3::1",
                1766,
                "3ffe:2501:200:1fff::7",
                2794,
                0x2cc1_8cd5,
                0x4020_7d3d,
            ),
            (
                "ff02::1",
                4739,
                "3ffe:501:8::260:97ff:fe40:efab",
                14230,
                0x0f0c_461c,
                0xdde5_1bbf,
            ),
            (
                "fe80::200:f8ff:fe21:67cf",
                38024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (to, to_port, from, from_port, addresses, ports) in vectors {
            let [to, from]: [Ipv6Addr; 2] = [to, from].map(|text| text.parse().unwrap());
            let frame = ipv6(from, to, 6, &tcp(from_port, to_port, 0x10, b"x"));
            let (without, with) = both(&frame, true);
            assert_eq!(
                without,
                Hash {
                    value: addresses,
                    kind: 0b0000_1010
                }
            );
            assert_eq!(
                with,
                Hash {
                    value: ports,
                    kind: 0b0101_1010
                }
            );
        }
    }

    #[test]
    fn symmetric_hashes_are_those_of_both_directions() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let there = ipv4(a, b, 6, &tcp(1000, 2000, 0x10, b""));
        let back = ipv4(b, a, 6, &tcp(2000, 1000, 0x10, b""));
        let mut context = context(IPS | PORTS, false);
        let of = |context: &Tirc, frame: &[u8]| hash(context, frame, &parse(frame), None).value;
        assert_ne!(of(&context, &there), of(&context, &back));
        context.set_rx_hash_symmetric(true);
        assert_eq!(of(&context, &there), of(&context, &back));
        assert_ne!(of(&context, &there), 0);
    }

    #[test]
    fn only_what_is_selected_and_there_is_hashed() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = ipv4(a, b, 6, &tcp(0x0102, 0x0304, 0x10, b""));
        let parsed = parse(&frame);
        // A hash of UDP's ports finds none in TCP, and one of IPv6 nothing in IPv4.
        let mut udp = context(IPS | PORTS, false);
        udp.rx_hash_field_selector_outer_mut()
            .set_l4_prot_type(true);
        let addresses = hash(&context(IPS, false), &frame, &parsed, None);
        assert_eq!(hash(&udp, &frame, &parsed, None), addresses);
        assert_eq!(
            hash(&context(IPS, true), &frame, &parsed, None),
            Hash::default()
        );
        let mut xor = context(IPS | PORTS, false);
        xor.set_rx_hash_fn(function::INVERTED_XOR8);
        let bytes = [10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4];
        let expected = !bytes.iter().fold(0u8, |all, byte| all ^ byte);
        assert_eq!(hash(&xor, &frame, &parsed, None).value, u32::from(expected));
        xor.rx_hash_field_selector_outer_mut()
            .set_selected_fields(select::DESTINATION_PORT);
        let one = hash(&xor, &frame, &parsed, None);
        assert_eq!(
            one,
            Hash {
                value: u32::from(!(3 ^ 4u8)),
                kind: 0b0100_0000
            }
        );
    }
}
