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
    // Say, hear, and take the news; see `mad::run`.
    let heard = frames.iter().filter_map(|frame| mad(frame));
    let heard: Vec<_> = heard.map(|mad| [&[0], mad, &[7, 0x87]].concat()).collect();
    for (at, step) in heard.iter().enumerate().step_by(4) {
        write(
            &corpus.join("mad"),
            &format!("{at:03}"),
            std::slice::from_ref(step),
            &[0, 1],
        )?;
    }
    // All of a life: ask, be answered, end; and be asked, answer, be left.
    let life = [
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
    write(&corpus.join("mad"), "active", &life, &[0x40, 1])?;
    let life = [
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
    write(&corpus.join("mad"), "passive", &life, &[0x40, 1])?;
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
    ports(&corpus.join("frame"))
}

/// Lives that a port can have.
fn ports(corpus: &Path) -> io::Result<()> {
    // Packets of each kind to the QP that they are for, with what they need; then reads and sends of its own.
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
    let arp = {
        let (us, them) = ([2, 0xc9, 0, 0, 0, 1], [2, 0xc9, 0, 0, 0, 2]);
        let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
        let frame = [
            &us[..],
            &them,
            &head,
            &them,
            &[10, 0, 0, 2],
            &us,
            &[10, 0, 0, 1],
        ]
        .concat();
        [&[0], &(frame.len() as u16).to_le_bytes()[..], &frame].concat()
    };
    // Ask: an id, the address, the answer to that, the route, REQ; REP, data, DREQ.
    let active = [
        [7, 9, 7, 1].to_vec(),
        arp.clone(),
        [5, 10, 6, 1, 7, 1, 6, 1, 7, 1, 5, 10].to_vec(),
        [3, 0, 1, 1, 0, 0, 6, 1, 5, 10].to_vec(),
        [3, 0, 5, 1, 0, 0, 6, 1, 5, 22].to_vec(),
    ];
    write(corpus, "active", &active, &[1])?;
    // Be asked, accept; RTU, DREQ.
    let passive = [
        arp,
        [3, 0, 0, 1, 0, 0, 6, 2, 5, 10].to_vec(),
        [3, 0, 2, 1, 0, 0, 6, 2, 5, 10].to_vec(),
        [3, 0, 5, 1, 0, 0, 6, 2, 5, 22].to_vec(),
    ];
    write(corpus, "passive", &passive, &[1])
}
