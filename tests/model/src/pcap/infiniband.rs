//! InfiniBand's link layer as a real cable has it. Models send frames to each other that stand for packets of it (the module
//! `port::lid`); capture files for other programs have the packets themselves.

use crate::port::lid::{lid, without_global};
use crate::roce::packet::{ICRC_LEN, reseal};

/// Ethernet's header in front of a packet, and the global header behind that.
const NETWORK: usize = 14;
const GRH_LEN: usize = 40;
const TRANSPORT: usize = NETWORK + GRH_LEN;
const ETHERTYPE: [u8; 2] = [0x89, 0x15];
const LRH_LEN: usize = 8;
const BTH_LEN: usize = 12;
/// Link next header: a global header, or the transport's.
const GLOBAL: u8 = 3;
const LOCAL: u8 = 2;
/// The lane of subnet management, and that of everything else.
const MANAGEMENT_LANE: u8 = 15;
const LANE: u8 = 0;

/// The packet that a frame of an InfiniBand port stands for, from the local route header to the variant CRC (IBTA vol. 1, 7.7
/// and 7.8). `None` if it stands for none. If the frame's invariant CRC is wrong, the packet's is as well.
pub fn packet(frame: &[u8]) -> Option<Vec<u8>> {
    let header = frame.first_chunk::<TRANSPORT>()?;
    let mac = |at: usize| header[at..at + 6].try_into().ok().and_then(lid);
    let ((destination, service_level), (source, _)) = (mac(0)?, mac(6)?);
    let length = usize::from(u16::from_be_bytes([header[18], header[19]]));
    let transport = frame.get(TRANSPORT..TRANSPORT + length)?;
    if header[12..NETWORK] != ETHERTYPE
        || !length.is_multiple_of(4)
        || length < BTH_LEN + ICRC_LEN
        || service_level > 15
    {
        return None;
    }
    let difference = icrc_difference(&frame[..TRANSPORT + length])?;
    let local = without_global(header[22..38].first_chunk()?);
    let lane = match transport[5..8] {
        [0, 0, 0] => MANAGEMENT_LANE,
        _ => LANE,
    };

    let mut packet = Vec::with_capacity(LRH_LEN + GRH_LEN + length + 2);
    packet.extend([
        lane << 4,
        service_level << 4 | if local { LOCAL } else { GLOBAL },
    ]);
    packet.extend(destination.to_be_bytes());
    packet.extend([0; 2]);
    packet.extend(source.to_be_bytes());
    if !local {
        packet.extend(&header[NETWORK..]);
    }
    packet.extend(&transport[..length - ICRC_LEN]);
    // In words of four bytes, with the invariant CRC and without the variant one.
    let words = u16::try_from((packet.len() + ICRC_LEN) / 4).ok()?;
    packet[4..6].copy_from_slice(&words.to_be_bytes());
    let crc = u32::from_le_bytes(icrc(&packet, local)) ^ difference;
    packet.extend(crc.to_le_bytes());
    packet.extend(vcrc(&packet).to_le_bytes());
    Some(packet)
}

/// By which bits the frame's own invariant CRC is wrong.
fn icrc_difference(frame: &[u8]) -> Option<u32> {
    let mut right = frame.to_vec();
    if !reseal(&mut right) {
        return None;
    }
    let last = |frame: &[u8]| frame.last_chunk().copied().map(u32::from_le_bytes);
    Some(last(frame)? ^ last(&right)?)
}

/// The invariant CRC of a packet that ends in front of it: what switches and routers may change counts as ones (7.8.1).
fn icrc(packet: &[u8], local: bool) -> [u8; ICRC_LEN] {
    let mut masked = packet.to_vec();
    // The lane; and the byte of the base header that is reserved.
    masked[0] |= 0xf0;
    let mut base = LRH_LEN;
    if !local {
        // Traffic class, flow label and hop limit.
        masked[LRH_LEN] |= 0x0f;
        masked[LRH_LEN + 1..LRH_LEN + 4].fill(0xff);
        masked[LRH_LEN + 7] = 0xff;
        base += GRH_LEN;
    }
    masked[base + 4] = 0xff;
    crc32fast::hash(&masked).to_le_bytes()
}

/// The variant CRC: of all bytes, polynomial 0x100b, the lowest bit of each byte first (7.8.2).
fn vcrc(bytes: &[u8]) -> u16 {
    const REVERSED: u16 = 0x100b_u16.reverse_bits();
    let step = |crc: u16, _| (crc >> 1) ^ if crc & 1 == 1 { REVERSED } else { 0 };
    let add = |crc: u16, byte: &u8| (0..8).fold(crc ^ u16::from(*byte), step);
    !bytes.iter().fold(!0, add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Cable, Link};
    use crate::pcap::Capture;
    use std::time::Duration;

    /// A management datagram's first bytes on a directed route, without a global header.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; TRANSPORT + 20 + 256 + ICRC_LEN];
        frame[..14].copy_from_slice(&[2, 0x1b, 0, 3, 0x12, 0x34, 2, 0x1b, 0, 3, 0, 5, 0x89, 0x15]);
        frame[14] = 0x60;
        frame[18..20].copy_from_slice(&280_u16.to_be_bytes());
        frame[20..22].copy_from_slice(&[0x1b, 1]);
        frame[37] = 5;
        frame[52..54].copy_from_slice(&[0x12, 0x34]);
        frame[54..58].copy_from_slice(&[0x64, 0x40, 0xff, 0xff]);
        assert!(reseal(&mut frame));
        frame
    }

    #[test]
    fn a_local_packet_has_the_fields_of_its_frame() {
        let packet = packet(&frame()).unwrap();
        assert_eq!(packet.len(), 8 + 280 + 2);
        assert_eq!(packet[..8], [0xf0, 0x32, 0x12, 0x34, 0, 72, 0, 5]);
        assert_eq!(packet[8..12], [0x64, 0x40, 0xff, 0xff]);
    }

    #[test]
    fn a_global_packet_keeps_its_header() {
        let mut frame = frame();
        frame[22] = 0xfe;
        frame[61] = 1;
        assert!(reseal(&mut frame));
        let packet = packet(&frame).unwrap();
        assert_eq!(packet[..8], [0, 0x33, 0x12, 0x34, 0, 82, 0, 5]);
        assert_eq!(packet[8..48], frame[14..54]);
    }

    #[test]
    fn a_capture_has_packets_in_place_of_frames() {
        let mut link = Capture::infiniband(Cable::new(), Vec::new()).unwrap();
        link.send(0, &[1; 60], Duration::ZERO);
        link.send(0, &frame(), Duration::ZERO);
        let file = link.finish().unwrap();
        // Endace's extensible record format, LINKTYPE_ERF.
        assert_eq!(file[20..24], 197u32.to_le_bytes());
        assert_eq!(file[24 + 16 + 16..], packet(&frame()).unwrap());
    }

    #[test]
    fn what_is_wrong_stays_wrong_and_what_is_no_packet_is_refused() {
        let good = frame();
        let mut bad = good.clone();
        let last = bad.len() - 1;
        bad[last] ^= 0x80;
        let (good_packet, bad_packet) = (packet(&good).unwrap(), packet(&bad).unwrap());
        let at = good_packet.len() - 3;
        assert_eq!(good_packet[at] ^ bad_packet[at], 0x80);
        for length in 0..good.len() {
            assert_eq!(packet(&good[..length]), None, "{length} bytes");
        }
        for (at, value) in [(1, 0), (3, 16), (7, 0), (13, 0), (19, 9)] {
            let mut other = good.clone();
            other[at] = value;
            assert_eq!(packet(&other), None, "byte {at}");
        }
    }
}
