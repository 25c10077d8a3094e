//! Striding queues whose completions the device compresses: packets come whole with their sums, and sessions that a broken
//! device writes are held against what the test expects of each completion.

// UNSAFETY: writes where the device would.
#![expect(unsafe_code)]

use std::sync::atomic::Ordering;

use bareverbs_core::cq::CqError;
use bareverbs_core::{
    EthernetError, EthernetInit, EthernetReceiveError, FlowAction, FlowMatch, FlowSlot,
    StrideCompression, StridingInit,
};
use connectx_model::Config as Card;

use crate::compressed::sum;
use crate::forged::with_forger;
use crate::lab::{MS, lab, lab_with};
use crate::packets::Packet;
use crate::spread::Rule;
use crate::strides::{STRIDES, receiver};
use crate::support::{INIT, Random, padded, send};

const COMPRESSED: StridingInit = StridingInit {
    compression: StrideCompression::CHECKSUM,
    ..STRIDES
};

#[test]
fn packets_come_with_their_sums() {
    const SEED: u64 = 0x5c5;
    println!("seed {SEED:#x}");
    for compression in [StrideCompression::OFF, StrideCompression::CHECKSUM] {
        lab(|lab| {
            let mut random = Random(SEED);
            let mut a = lab.queue(
                0,
                EthernetInit {
                    send_frames: 32,
                    ..INIT
                },
            );
            let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
            let init = StridingInit {
                compression,
                strip_vlan: true,
                ..STRIDES
            };
            let (mut receive, target) = receiver(lab, &domain, &init);
            let mut slots = [FlowSlot::new(); 4];
            let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
            let to = [target.number()];
            let mine = FlowMatch::ANY.destination(domain.mac());
            let _rule = flows
                .add(&Rule::new(mine, FlowAction::Forward(&to)).tag(0x99))
                .unwrap();
            let mut kind = Packet::draw(&mut random, domain.mac());
            for round in 0..200 {
                let mut sent = Vec::new();
                for _ in 0..random.below(13) {
                    if random.below(12) == 0 {
                        kind = Packet::draw(&mut random, domain.mac());
                    }
                    let packet = Packet {
                        payload: random.below(900),
                        ..kind
                    };
                    send(&mut a, &packet.frame(lab.sides[0].mac));
                    sent.push(packet);
                }
                lab.pause(MS);
                for packet in sent {
                    let frame = receive.receive().unwrap().expect("a frame");
                    let whole = packet.frame(lab.sides[0].mac);
                    let start = if packet.vlan.is_some() { 18 } else { 14 };
                    assert_eq!(frame.checksum(), sum(&whole[start..]), "round {round}");
                    assert_eq!((frame.vlan(), frame.flow_tag()), (packet.vlan, 0x99));
                    let mut wanted = padded(whole);
                    if packet.vlan.is_some() {
                        wanted.drain(12..16);
                    }
                    let mut bytes = vec![0xa5; frame.len()];
                    assert_eq!(receive.copy_to(&frame, &mut bytes), bytes.len());
                    assert_eq!(bytes, wanted, "round {round}");
                    receive.give_back(frame).unwrap();
                }
                assert!(receive.receive().unwrap().is_none());
            }
            let counters = receive.counters();
            assert_eq!((counters.malformed, counters.garbage_completions), (0, 0));
            let compressed = lab.world.with_model(1, |model| model.stats().compressed);
            assert_eq!(compression != StrideCompression::OFF, compressed > 300);
        });
    }
}

#[test]
fn a_card_that_lacks_something_is_refused_by_name() {
    for capability in ["cqe_compression", "mini_cqe_resp_stride_index"] {
        let without = |mut card: Card| {
            for caps in [&mut card.general, &mut card.general_max] {
                match capability {
                    "cqe_compression" => caps.set_cqe_compression(false),
                    _ => caps.set_mini_cqe_resp_stride_index(false),
                };
            }
            card
        };
        lab_with(without, |lab| {
            let domain = lab.sides[0].device.alloc_ethernet_domain().unwrap();
            let pd = &lab.sides[0].pd;
            let made = domain.create_striding_receive(pd, &COMPRESSED).err();
            let refused = EthernetError::Cq(CqError::NotOffered { capability });
            assert_eq!(made, Some(refused));
            assert!(domain.create_striding_receive(pd, &STRIDES).is_ok());
        });
    }
}

/// Entries of the CQ; strides of the one request, and their size.
const ENTRIES: u32 = 16;
const COUNT: u32 = 8;
const STRIDE: u32 = 256;

/// The CQ, as the device writes it, and what has to come of that.
struct Liar {
    random: Random,
    ring: usize,
    /// Index of the next entry.
    at: u32,
    /// Strides that are used up.
    used: u32,
    /// The counts that are due: too long, malformed, unused, garbage.
    counts: [u64; 4],
    /// The frames that are due: the stride, and the length.
    frames: Vec<(u32, u32)>,
    /// It has said what cannot be.
    fault: bool,
}

impl Liar {
    fn put(&self, ahead: u32, bytes: &[u8; 64]) {
        let at = self.ring + (self.at.wrapping_add(ahead) % ENTRIES) as usize * 64;
        // SAFETY: inside the ring, which exists as long as the queue, and which the driver does not read now.
        unsafe { (at as *mut [u8; 64]).write_volatile(*bytes) };
    }

    /// Draws stride and byte count of a completion, most often what fits, and notes what has to come of it.
    fn draw(&mut self, opcode: u8, ours: bool) -> (u16, u32) {
        let any = self.random.below(1 << 15) as u32;
        let used = self.used;
        let first = match self.random.below(40) {
            0 => any,
            _ => used,
        };
        let left = COUNT - used;
        let fits = 1 + self.random.below(left.min(3) as usize) as u32;
        let strides = match self.random.below(40) {
            0 => self.random.pick(&[0, left + 1, any]),
            _ => fits,
        };
        let length = self
            .random
            .pick(&[60, 200, 256, 500, 13, 1519, any & 0x7ff]);
        let filler = self.random.below(9) == 0;
        let count = u32::from(filler) << 31 | strides << 16 | length;
        if self.fault {
            return (first as u16, count);
        }
        if opcode == 0xe && ours {
            self.counts[0] += 1;
            self.used = 0;
        } else if opcode != 2 || !ours {
            self.counts[3] += 1;
        } else if first != used || strides == 0 || strides > left {
            self.fault = true;
        } else {
            self.used = (used + strides) % COUNT;
            if filler {
                self.counts[2] += u64::from(strides);
            } else if !(14..=1518).contains(&length) || length > strides * STRIDE {
                self.counts[1] += 1;
            } else {
                self.frames.push((first, length));
            }
        }
        (first as u16, count)
    }

    /// Writes an entry, or a session with its arrays.
    fn lie(&mut self) {
        let mut title = [0; 64];
        for byte in &mut title {
            *byte = self.random.below(256) as u8;
        }
        let opcode = self.random.pick(&[2, 2, 2, 2, 2, 2, 2, 2, 0, 0xe, 3, 5]);
        let ours = self.random.below(12) != 0;
        // Tags that were not asked for are another matter.
        title[0x1d] &= !1;
        title[0x20..0x24].copy_from_slice(&[0, 0, 0, u8::from(!ours)]);
        // What costs the rest of the request.
        title[0x37] = 0x01;
        let owner = u8::from(self.at & ENTRIES != 0);
        let real = 2 + self.random.below(15) as u32;
        let any = self.random.below(1 << 31) as u32;
        let count = self.random.pick(&[0, 1, 17, any, real, real, 2, 3, 4, 5]);
        let entries = if self.random.below(4) == 0 {
            let (first, bytes) = self.draw(opcode, ours);
            title[0x3c..0x3e].copy_from_slice(&first.to_be_bytes());
            title[0x2c..0x30].copy_from_slice(&bytes.to_be_bytes());
            title[0x3f] = opcode << 4 | owner;
            1
        } else {
            title[0x2c..0x30].copy_from_slice(&count.to_be_bytes());
            title[0x3f] = opcode << 4 | 3 << 2 | owner;
            if (2..=ENTRIES).contains(&count) {
                let mut array = [0; 64];
                for nth in 0..count {
                    let (first, bytes) = self.draw(opcode, ours);
                    let mini = &mut array[nth as usize % 8 * 8..][..8];
                    mini[2..4].copy_from_slice(&first.to_be_bytes());
                    mini[4..].copy_from_slice(&bytes.to_be_bytes());
                    if nth % 8 == 7 || nth + 1 == count {
                        self.put(if nth < 8 { 1 } else { nth & !7 }, &array);
                    }
                }
                count
            } else {
                self.counts[3] += 1;
                1
            }
        };
        self.put(0, &title);
        self.at = self.at.wrapping_add(entries);
    }
}

/// Counts that cannot be, strides out of order and beyond the request, fillers, errors: what is handed out lies where the
/// test says, and after what cannot be nothing is.
#[test]
fn sessions_that_lie_about_strides() {
    const SEED: u64 = 0x57a1;
    println!("seed {SEED:#x}");
    with_forger(|forger, device| {
        let pd = device.alloc_pd().unwrap();
        let domain = device.alloc_ethernet_domain().unwrap();
        let init = StridingInit {
            requests: 1,
            strides: COUNT,
            stride_len: STRIDE,
            ..COMPRESSED
        };
        let (mut frames, mut faults, mut totals) = (0, 0, [0; 4]);
        for seed in SEED..SEED + 600 {
            forger.rings.lock().unwrap().clear();
            let mut queue = domain.create_striding_receive(&pd, &init).unwrap();
            let [ring] = forger.rings.lock().unwrap()[..] else {
                panic!("one completion queue");
            };
            let mut liar = Liar {
                random: Random(seed),
                ring,
                at: 0,
                used: 0,
                counts: [0; 4],
                frames: Vec::new(),
                fault: false,
            };
            forger.deaf.store(true, Ordering::Relaxed);
            let mut base = None;
            for _ in 0..60 {
                liar.frames.clear();
                liar.lie();
                let mut found = Vec::new();
                // Each call ends, and passes over as much as the queue holds.
                let mut fault = false;
                for _ in 0..4 {
                    loop {
                        match queue.receive() {
                            Ok(Some(frame)) => {
                                let sge = queue.sge(&frame).unwrap();
                                let (stride, _) = liar.frames[found.len()];
                                let start = sge.addr - u64::from(stride * STRIDE);
                                assert_eq!(*base.get_or_insert(start), start, "seed {seed:#x}");
                                found.push((stride, frame.len() as u32));
                                queue.give_back(frame).unwrap();
                            }
                            Ok(None) => break,
                            Err(EthernetReceiveError::Strides(_)) => {
                                fault = true;
                                break;
                            }
                            Err(error) => panic!("seed {seed:#x}: {error:?}"),
                        }
                    }
                }
                assert_eq!((&found, fault), (&liar.frames, liar.fault), "{seed:#x}");
                frames += found.len();
                let counters = queue.counters();
                let counts = [
                    counters.too_long,
                    counters.malformed,
                    counters.unused_strides,
                    counters.garbage_completions,
                ];
                assert_eq!(counts, liar.counts, "seed {seed:#x}");
                if fault {
                    faults += 1;
                    break;
                }
            }
            for (total, more) in totals.iter_mut().zip(liar.counts) {
                *total += more;
            }
            forger.deaf.store(false, Ordering::Relaxed);
            queue.destroy().unwrap();
        }
        println!("{frames} frames, {faults} faults, {totals:?}");
        assert!(frames > 3000 && faults > 300 && totals.iter().all(|&total| total > 300));
        domain.destroy().unwrap();
    });
}
