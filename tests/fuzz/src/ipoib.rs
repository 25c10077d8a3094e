//! Packets of IP over InfiniBand, in both directions.

use bareverbs_cm::ipoib::{HEADER_LEN, HardwareAddress, Link, PeerSlot, Sender, To};

use crate::input::{Input, STEPS};

const OWN: HardwareAddress = HardwareAddress {
    qpn: 0x55,
    gid: [1; 16],
};
/// The longest packet of an interface with connected mode's absence: datagrams of 2044 bytes.
const LONGEST: usize = 2044;

/// Runs an input.
///
/// # Panics
/// If anything comes of it that may not.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    // Few, so that neighbours make way.
    let mut slots = [PeerSlot::EMPTY; 3];
    let mut link = Link::new(OWN, 0xffff, &mut slots);
    let mut last = Vec::new();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let (step, space) = (input.byte(), usize::from(input.word()));
        let space = if step & 0x80 != 0 {
            space % 128
        } else {
            LONGEST + 14
        };
        let mut out = [0xa5; LONGEST + 14];
        let out = &mut out[..space];
        if step & 1 == 0 {
            let packet = packet(&mut input, step);
            let who = input.byte();
            let from = Sender {
                qpn: 0x55 + u32::from(who & 7),
                lid: u16::from(who >> 3 & 3),
                service_level: 0,
                gid: (who & 0x20 != 0).then_some([who >> 6; 16]),
            };
            if let Some(len) = link.incoming(&packet, &from, step & 2 != 0, out) {
                assert!((60..=space).contains(&len));
                let source = out[6..12].try_into().expect("six bytes");
                assert!(link.peer(source).is_some(), "who it came from is known");
                // Those that are answered.
                last = out[..len].to_vec();
                last.rotate_left(6);
                last[..12].rotate_right(6);
            }
        } else {
            let frame = match step & 2 {
                0 => last.clone(),
                _ => input.bytes(space).to_vec(),
            };
            if let Some((to, len)) = link.outgoing(&frame, out) {
                assert!((HEADER_LEN..=space).contains(&len));
                if let To::Group(gid) = to {
                    assert_eq!(gid[0], 0xff, "a group");
                }
            }
        }
    }
}

/// A packet whose header and lengths are right, if the step says so.
fn packet(input: &mut Input<'_>, step: u8) -> Vec<u8> {
    let len = usize::from(input.word()) % LONGEST;
    let mut packet = input.bytes(len).to_vec();
    let kind: [u8; 2] = match step >> 2 & 3 {
        0 => return packet,
        1 => [8, 0],
        2 => [8, 6],
        _ => [0x86, 0xdd],
    };
    packet.resize(packet.len().max(60), 0);
    packet[..4].copy_from_slice(&[kind[0], kind[1], 0, 0]);
    let payload = packet.len() - HEADER_LEN;
    match kind {
        [8, 0] => packet[6..8].copy_from_slice(&(payload as u16).to_be_bytes()),
        [0x86, 0xdd] => {
            packet[8..10].copy_from_slice(&(payload as u16 - 40).to_be_bytes());
            // Neighbour discovery, whose options are rewritten.
            if step & 0x10 != 0 {
                packet[10] = 58;
                packet[11] = 255;
                packet[44] = 133 + packet[44] % 5;
                packet[45] = 0;
            }
        }
        // ARP's fixed part: InfiniBand, IPv4, and the lengths of addresses.
        _ => packet[4..10].copy_from_slice(&[0, 32, 8, 0, 20, 4]),
    }
    packet
}
