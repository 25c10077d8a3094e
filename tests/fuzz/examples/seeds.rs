//! Writes the first inputs of a target's corpus: `cargo run --example seeds -- CAPTURE.pcap CORPUS`.
//!
//! They are the messages and frames of a capture, one input each, and one with all of them.

use std::path::Path;
use std::{env, fs, io};

use bareverbs_cm::mad::MAD_LEN;

/// The frames of a capture.
fn frames(pcap: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = pcap.get(24..).unwrap_or(&[]);
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, behind)) = behind.split_at_checked(len) else {
            break;
        };
        frames.push(frame);
        rest = behind;
    }
    frames
}

/// The MAD in a frame, if it is a RoCE v2 one to QP 1.
fn mad(frame: &[u8]) -> Option<&[u8]> {
    let udp = if frame.get(12..14)? == [8, 0] { 34 } else { 54 };
    let bth = frame.get(udp + 8..)?;
    let to_gsi =
        frame.get(udp + 2..udp + 4)? == 4791_u16.to_be_bytes() && bth.first() == Some(&0x64);
    if to_gsi {
        bth.get(20..20 + MAD_LEN)
    } else {
        None
    }
}

fn write(folder: &Path, name: &str, steps: &[Vec<u8>], head: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(name), [head, &steps.concat()].concat())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().collect();
    let [_, capture, corpus] = &arguments[..] else {
        return Err(io::Error::other("seeds CAPTURE.pcap CORPUS"));
    };
    let (pcap, corpus) = (fs::read(capture)?, Path::new(corpus));
    let frames = frames(&pcap);
    // Send, receive, and take the events; see `mad::run`.
    let received = frames.iter().filter_map(|frame| mad(frame));
    let received: Vec<_> = received
        .map(|mad| [&[0], mad, &[7, 0x87]].concat())
        .collect();
    for (at, step) in received.iter().enumerate().step_by(4) {
        write(
            &corpus.join("mad"),
            &format!("{at:03}"),
            std::slice::from_ref(step),
            &[0, 1],
        )?;
    }
    // Whole connections: request, get the answer, disconnect; and get the request, answer, get the disconnect.
    let connection = [
        [5, 0, 0, 0].to_vec(),
        [0x87].to_vec(),
        [2, 0, 0, 1, 1, 0, 0].to_vec(),
        [7].to_vec(),
        [5, 1, 0, 0].to_vec(),
        [0x87].to_vec(),
        [2, 0, 0, 9, 1, 2, 0].to_vec(),
        [5, 6, 0, 0].to_vec(),
        [0x87].to_vec(),
        [2, 0, 0, 5, 1, 0, 0].to_vec(),
        [0x87, 7, 4, 22].to_vec(),
    ];
    write(&corpus.join("mad"), "active", &connection, &[0x40, 1])?;
    let connection = [
        [2, 0, 0, 0, 1, 0, 0].to_vec(),
        [7].to_vec(),
        [5, 0, 0, 0].to_vec(),
        [0x87].to_vec(),
        [2, 0, 0, 2, 1, 0, 0].to_vec(),
        [7].to_vec(),
        [5, 4, 0, 0].to_vec(),
        [0x87].to_vec(),
        [2, 0, 0, 6, 1, 0, 0].to_vec(),
        [7, 4, 22, 0x84, 22, 7].to_vec(),
    ];
    write(&corpus.join("mad"), "passive", &connection, &[0x40, 1])?;
    // To the host alone and to the port; see `frame::run`.
    for (at, frame) in frames.iter().enumerate().step_by(5) {
        let len = (frame.len() as u16).to_le_bytes();
        let step = [&[0x10], &len[..], frame].concat();
        for (mode, name) in [(0, "host"), (1, "port")] {
            let name = format!("{name}-{at:03}");
            write(
                &corpus.join("frame"),
                &name,
                std::slice::from_ref(&step),
                &[mode],
            )?;
        }
    }
    addresses(&corpus.join("frame"), &frames)?;
    ports(&corpus.join("frame"))
}

/// Requests with addresses that are no host's, each from a host whose address the port has. A local GID of 0 ended
/// servers with debug assertions, and messages went to directed broadcast addresses.
fn addresses(corpus: &Path, frames: &[&[u8]]) -> io::Result<()> {
    /// Where a MAD has the last bytes of addresses: the REQ's primary local GID, and the source in the RDMA CM's header.
    const GID: u8 = 24 + 56 + 12;
    const HEADER: u8 = 24 + 140 + 4 + 12;
    let zero = [GID - 2, 0, GID - 1, 0, GID, 0, GID + 3, 0];
    // Say a REQ with so many bytes changed, accept it, let an answer be sent, and hang up.
    let req = |changed: &[u8]| {
        let mut step = vec![3, 0, 0, 1, 0, changed.len() as u8 / 2];
        step.extend(changed);
        step.extend([6, 2, 5, 22, 6, 0x82, 5, 22]);
        step
    };
    for (name, changed) in [
        ("req-gid-zero", &zero[..]),
        ("req-gid-any", &[GID, 0, GID + 3, 0]),
        ("req-gid-directed-broadcast", &[GID + 3, 255]),
        ("req-gid-group", &[GID, 224]),
        ("req-gid-loopback", &[GID, 127]),
        ("req-header-directed-broadcast", &[HEADER + 3, 255]),
        ("req-header-group", &[HEADER, 224]),
    ] {
        write(corpus, name, &[arp(1, [10, 0, 0, 2]), req(changed)], &[1])?;
    }
    // The same in the frame: Linux's first REQ over IPv4 that the port can be the destination of.
    let first = frames.iter().find(|frame| {
        let to_gsi = mad(frame).is_some_and(|mad| mad[16..18] == [0, 0x10]);
        to_gsi && frame.get(30..34) == Some(&[10, 0, 0, 1])
    });
    let first = first.ok_or_else(|| io::Error::other("no REQ to 10.0.0.1 in the capture"))?;
    for (name, source) in [
        ("req-from-directed-broadcast", [10, 0, 0, 255]),
        ("req-from-any", [0, 0, 0, 0]),
        ("req-from-group", [224, 0, 0, 1]),
    ] {
        let mut frame = first.to_vec();
        frame[26..30].copy_from_slice(&source);
        frame[24..26].fill(0);
        let sum = frame[14..34].chunks(2).fold(0, |sum, word| {
            sum + u32::from(word[0]) * 256 + u32::from(word[1])
        });
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        // To this end, with the ICRC made right.
        let len = (frame.len() as u16).to_le_bytes();
        let step = [&[0x30], &len[..], &frame, &[6, 2, 5, 22, 6, 0x82, 5, 22]].concat();
        write(corpus, name, &[arp(1, source), step], &[1])?;
    }
    Ok(())
}

/// The other end's answer to ARP (2), or its question for this end (1), with this address.
fn arp(operation: u8, from: [u8; 4]) -> Vec<u8> {
    let (us, them) = ([2, 0xc9, 0, 0, 0, 1], [2, 0xc9, 0, 0, 0, 2]);
    let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, operation];
    let frame = [&us[..], &them, &head, &them, &from, &us, &[10, 0, 0, 1]].concat();
    [&[0], &(frame.len() as u16).to_le_bytes()[..], &frame].concat()
}

/// Sequences of packets for a port.
fn ports(corpus: &Path) -> io::Result<()> {
    // Packets of each kind to the QP that they are for, with what they need; then reads and sends by the port.
    for (which, opcodes) in [(0, 0..0x18), (1, 0x20..0x2c), (2, 0x64..0x66)] {
        for opcode in opcodes {
            let extended = match opcode & 0x1f {
                _ if which == 2 => 2,
                6 | 0xa | 0xb | 0xc | 0x13 | 0x14 => 1,
                _ => 0,
            };
            let mut packet = vec![1 | (8 | extended) << 4, opcode, 0, which, 0];
            if extended == 1 {
                packet.extend([0, 0, 16, 0]);
            }
            packet.extend([16]);
            packet.extend([0x1f; 16]);
            let after = [4, 0b1000, 64, 0, 4, 0, 64, 0, 5, 12];
            let name = format!("packet-{opcode:02x}");
            write(
                corpus,
                &name,
                &[after.to_vec(), packet, after.to_vec()],
                &[1],
            )?;
        }
    }
    let answer = arp(2, [10, 0, 0, 2]);
    // Ask: an id, the address, the answer to that, the route, REQ; REP, data, DREQ.
    let active = [
        [7, 9, 7, 1].to_vec(),
        answer,
        [5, 10, 6, 1, 7, 1, 6, 1, 7, 1, 5, 10].to_vec(),
        [3, 0, 1, 1, 0, 0, 6, 1, 5, 10].to_vec(),
        [3, 0, 5, 1, 0, 0, 6, 1, 5, 22].to_vec(),
    ];
    write(corpus, "active", &active, &[1])?;
    // A query for this end's address, from which it gets the peer's; a REQ, accept; RTU, DREQ.
    let passive = [
        arp(1, [10, 0, 0, 2]),
        [3, 0, 0, 1, 0, 0, 6, 2, 5, 10].to_vec(),
        [3, 0, 2, 1, 0, 0, 6, 2, 5, 10].to_vec(),
        [3, 0, 5, 1, 0, 0, 6, 2, 5, 22].to_vec(),
    ];
    write(corpus, "passive", &passive, &[1])
}
