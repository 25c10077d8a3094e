//! Packets of IP, drawn and written by the test, and what the published description makes of them.

use crate::support::Random;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// Neither of both.
pub(crate) const OTHER: u8 = 47;

/// A packet, as the test knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) to: [u8; 6],
    pub(crate) vlan: Option<u16>,
    pub(crate) v6: bool,
    /// Four bytes count for IPv4.
    pub(crate) addresses: [[u8; 16]; 2],
    pub(crate) protocol: u8,
    pub(crate) ports: [u16; 2],
    pub(crate) payload: usize,
}

impl Packet {
    /// Draws one of few addresses and ports, so that rules meet it.
    pub(crate) fn draw(random: &mut Random, to: [u8; 6]) -> Self {
        let mut address = [0; 16];
        let mut addresses = [(); 2].map(|()| {
            address[0] = random.pick(&[10, 172, 0xfd]);
            address[1] = random.below(2) as u8;
            address[3] = random.below(200) as u8;
            address[15] = random.below(250) as u8;
            address
        });
        if random.below(20) == 0 {
            addresses[1] = addresses[0];
        }
        Self {
            to,
            vlan: (random.below(4) == 0).then(|| random.pick(&[5, 6])),
            v6: random.below(2) == 0,
            addresses,
            protocol: random.pick(&[TCP, TCP, UDP, UDP, OTHER]),
            ports: [(); 2].map(|()| random.pick(&[9, 53, 80, 443, 1000 + random.0 as u16 % 5000])),
            payload: random.below(120),
        }
    }

    pub(crate) fn address(&self, which: usize) -> &[u8] {
        let length = if self.v6 { 16 } else { 4 };
        &self.addresses[which][..length]
    }

    pub(crate) fn has_ports(&self) -> bool {
        self.protocol != OTHER
    }

    /// The frame, from the destination address on.
    pub(crate) fn frame(&self, from: [u8; 6]) -> Vec<u8> {
        let mut frame = [self.to, from].concat();
        if let Some(vlan) = self.vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(vlan.to_be_bytes());
        }
        let header = match self.protocol {
            TCP => 20,
            UDP => 8,
            _ => 4,
        };
        let length = (header + self.payload) as u16;
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([self.protocol, 64]);
        } else {
            frame.extend([0x08, 0x00]);
            let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, self.protocol, 0, 0];
            ip[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            let words = [&ip[..], self.address(0), self.address(1)].concat();
            let sum = words.chunks(2).fold(0, |sum: u32, word| {
                sum + u32::from(u16::from_be_bytes([word[0], word[1]]))
            });
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            ip[10..].copy_from_slice(&sum.to_be_bytes());
            frame.extend(ip);
        }
        frame.extend(self.address(0));
        frame.extend(self.address(1));
        let mut transport = vec![0; usize::from(length)];
        if self.has_ports() {
            transport[..2].copy_from_slice(&self.ports[0].to_be_bytes());
            transport[2..4].copy_from_slice(&self.ports[1].to_be_bytes());
        }
        match self.protocol {
            TCP => transport[12..14].copy_from_slice(&[0x50, 0x10]),
            UDP => transport[4..6].copy_from_slice(&length.to_be_bytes()),
            _ => {}
        }
        frame.extend(transport);
        frame
    }

    /// The concatenation in Microsoft's description: source address, destination address, source port, destination port.
    pub(crate) fn hash_input(&self, ports: bool) -> Vec<u8> {
        let mut input = [self.address(0), self.address(1)].concat();
        if ports {
            input.extend(self.ports[0].to_be_bytes());
            input.extend(self.ports[1].to_be_bytes());
        }
        input
    }
}

/// "For each bit b in input[] from left to right: if b == 1, Result ^= (left-most 32 bits of K); shift K left 1 bit
/// position": RSS hashing functions, Microsoft.
pub(crate) fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut key = *key;
    let mut result = [0; 4];
    for byte in input {
        for bit in 0..8 {
            if byte << bit & 0x80 != 0 {
                for (result, key) in result.iter_mut().zip(&key) {
                    *result ^= key;
                }
            }
            for at in 0..40 {
                let next = key.get(at + 1).map_or(0, |next| next >> 7);
                key[at] = key[at] << 1 | next;
            }
        }
    }
    u32::from_be_bytes(result)
}

/// Destination, its port, source, its port, the hash of the addresses, the hash with ports: "Verifying the RSS hash
/// calculation", Microsoft.
pub(crate) type Vector = (&'static str, u16, &'static str, u16, u32, u32);

#[rustfmt::skip]
pub(crate) const VECTORS: [Vector; 8] = [
    ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
    ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
    ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
    ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
    ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
    ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251,
     0x4b61_e985, 0x02d1_feef),
];
