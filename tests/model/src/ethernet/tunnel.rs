//! Frames inside of others: VXLAN (RFC 7348), whose inner headers the card finds behind UDP to a known port.

use super::frame::{self, Parsed, Transport, be16};
use std::collections::BTreeSet;

/// The port that a card knows without being told (IANA; `mlx5_vxlan_create` of Linux: "Hardware adds 4789 by default").
const IANA_PORT: u16 = 4789;
const UDP_HEADER: usize = 8;
const VXLAN_HEADER: usize = 8;
/// In its first byte: the network's number is valid.
const VALID: u8 = 1 << 3;

/// The ports whose datagrams are VXLAN's.
#[derive(Debug)]
pub(crate) struct Tunnels {
    ports: BTreeSet<u16>,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self {
            ports: BTreeSet::from([IANA_PORT]),
        }
    }
}

impl Tunnels {
    /// Adds a port; `false` if there are so many already.
    pub(crate) fn add(&mut self, port: u16, most: usize) -> bool {
        if !self.ports.contains(&port) && self.ports.len() >= most {
            return false;
        }
        self.ports.insert(port);
        true
    }

    /// Removes a port; `false` if it is not there.
    pub(crate) fn remove(&mut self, port: u16) -> bool {
        self.ports.remove(&port)
    }

    /// Where the frame inside of a frame begins.
    pub(crate) fn inner(&self, frame: &[u8], parsed: &Parsed) -> Option<usize> {
        let Some(Transport::Udp { at }) = parsed.transport else {
            return None;
        };
        if !self.ports.contains(&be16(frame, at + 2)?) {
            return None;
        }
        let header = at + UDP_HEADER;
        let inner = header + VXLAN_HEADER;
        let valid = frame.get(header)? & VALID != 0;
        (valid && frame.len() >= inner + frame::HEADER).then_some(inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::frame::parse;
    use super::super::frame::protocol::{TCP, UDP};
    use super::super::frame::tests::{A4, A6, B4, B6, ipv4, ipv6, tcp, udp};
    use super::*;

    /// A frame in VXLAN over IPv4.
    pub(in super::super) fn vxlan(port: u16, inner: &[u8]) -> Vec<u8> {
        let header = [VALID, 0, 0, 0, 0, 0, 42, 0];
        ipv4(A4, B4, UDP, &udp(7, port, &[&header[..], inner].concat()))
    }

    #[test]
    fn the_inner_frame_is_found_behind_known_ports_only() {
        let inner = ipv6(A6, B6, TCP, &tcp(1, 2, 0x10, b"x"));
        let mut tunnels = Tunnels::default();
        let frame = vxlan(4789, &inner);
        assert_eq!(tunnels.inner(&frame, &parse(&frame)), Some(14 + 20 + 8 + 8));
        let other = vxlan(8472, &inner);
        assert_eq!(tunnels.inner(&other, &parse(&other)), None);
        assert!(tunnels.add(8472, 2) && !tunnels.add(8473, 2) && tunnels.add(4789, 2));
        assert_eq!(tunnels.inner(&other, &parse(&other)), Some(50));
        assert!(tunnels.remove(8472) && !tunnels.remove(8472));
        assert_eq!(tunnels.inner(&other, &parse(&other)), None);
        // Without a valid number, too short, or no UDP.
        let mut invalid = frame.clone();
        invalid[42] = 0;
        assert_eq!(tunnels.inner(&invalid, &parse(&invalid)), None);
        let short = vxlan(4789, &inner[..13]);
        assert_eq!(tunnels.inner(&short, &parse(&short)), None);
        assert_eq!(tunnels.inner(&inner, &parse(&inner)), None);
    }
}
