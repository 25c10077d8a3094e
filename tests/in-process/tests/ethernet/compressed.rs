//! Queues whose completions the device compresses: the same frames come as without, with what a session keeps of them; and
//! sessions that a broken device writes.

// UNSAFETY: writes where the device would.
#![expect(unsafe_code)]

use std::sync::atomic::Ordering;

use bareverbs_core::cq::CqError;
use bareverbs_core::{
    EthernetError, EthernetInit, EthernetQueue, EthernetReceive, FlowAction, FlowMatch, FlowSlot,
    FrameCompression, HashedPackets, RssHash,
};
use connectx_model::Config as Card;

use crate::forged::{Forger, with_forger};
use crate::lab::{MS, lab, lab_with};
use crate::packets::{Packet, UDP, toeplitz};
use crate::seam::Seam;
use crate::spread::Rule;
use crate::support::{INIT, Random, padded, send, take};

const KINDS: [FrameCompression; 3] = [
    FrameCompression::OFF,
    FrameCompression::HASH,
    FrameCompression::CHECKSUM,
];

/// A frame as a queue got it.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    bytes: Vec<u8>,
    hash: Option<u32>,
    checksum: Option<u16>,
    vlan: Option<u16>,
    sound: [bool; 2],
    tag: u32,
}

/// Takes all that is there.
fn take_all(receive: &mut EthernetReceive<'_, Seam>, timed: bool) -> Vec<Got> {
    let mut all = Vec::new();
    while let Some(frame) = receive.receive().expect("the queue works") {
        let mut bytes = vec![0xa5; frame.len()];
        assert_eq!(frame.copy_to(&mut bytes), bytes.len());
        assert_eq!(frame.timestamp().is_some(), timed);
        all.push(Got {
            bytes,
            hash: frame.hash().map(|hash| hash.value),
            checksum: frame.checksum(),
            vlan: frame.vlan(),
            sound: [frame.l3_ok(), frame.l4_ok()],
            tag: frame.flow_tag(),
        });
    }
    all
}

/// The sum of RFC 1071, section 1, over an IP packet, without its inversion.
pub(crate) fn sum(packet: &[u8]) -> u16 {
    let sum = packet.chunks(2).fold(0, |sum: u32, word| {
        sum + u32::from(word[0]) * 256 + u32::from(word.get(1).copied().unwrap_or(0))
    });
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Drawn packets of IP in bursts of one kind and of several, to a queue with a hash; what came, and how many completions were
/// in sessions.
fn traffic(seed: u64, compression: FrameCompression) -> (Vec<Got>, u64) {
    let mut found = Vec::new();
    let mut sessions = 0;
    lab(|lab| {
        let mut random = Random(seed);
        let strip_vlan = seed.is_multiple_of(2);
        let init = EthernetInit {
            recv_frames: 32,
            send_frames: 32,
            strip_vlan,
            compression,
            ..INIT
        };
        let mut a = lab.queue(
            0,
            EthernetInit {
                send_frames: 32,
                ..INIT
            },
        );
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let (_send, mut receive) = domain.create_queues(&lab.sides[1].pd, &init).unwrap();
        let table = domain
            .create_indirection_table(&[receive.number()], 1)
            .unwrap();
        let mut hash = RssHash::all_of(HashedPackets::UdpIpv4);
        for byte in &mut hash.key {
            *byte = random.below(256) as u8;
        }
        let target = domain.create_hashed_target(&table, &hash).unwrap();
        let plain = domain.create_target(receive.number()).unwrap();
        let mut slots = [FlowSlot::new(); 8];
        let mut flows = domain.create_flow_table(&mut slots, 2).unwrap();
        let to = [target.number()];
        let mine = FlowMatch::ANY.destination(domain.mac());
        let hashed = mine.ipv4().ip_protocol(UDP);
        let _hashed = flows
            .add(&Rule::new(hashed, FlowAction::Forward(&to)).tag(0x77))
            .unwrap();
        let others = [plain.number()];
        let rest = Rule::new(mine, FlowAction::Forward(&others));
        let _rest = flows.add(&rest.priority(1).tag(0x78)).unwrap();
        let timed = compression == FrameCompression::OFF;
        let mut kind = Packet::draw(&mut random, domain.mac());
        for round in 0..150 {
            let mut sent = Vec::new();
            for _ in 0..random.below(33) {
                if random.below(12) == 0 {
                    kind = Packet::draw(&mut random, domain.mac());
                }
                let packet = Packet {
                    ports: [random.below(9000) as u16, kind.ports[1]],
                    payload: random.below(700),
                    ..kind
                };
                send(&mut a, &packet.frame(lab.sides[0].mac));
                sent.push(packet);
            }
            if random.below(2) == 0 {
                receive.arm();
            }
            lab.pause(MS);
            let got = take_all(&mut receive, timed);
            assert_eq!(got.len(), sent.len(), "seed {seed}, round {round}");
            for (packet, got) in sent.iter().zip(&got) {
                let whole = packet.frame(lab.sides[0].mac);
                let start = if packet.vlan.is_some() { 18 } else { 14 };
                let sum = sum(&whole[start..]);
                let mut bytes = padded(whole);
                let taken = packet.vlan.filter(|_| strip_vlan);
                if taken.is_some() {
                    bytes.drain(12..16);
                }
                assert_eq!(got.bytes, bytes, "seed {seed}, round {round}");
                assert_eq!(got.vlan, taken);
                let udp = !packet.v6 && packet.protocol == UDP;
                assert_eq!(got.tag, if udp { 0x77 } else { 0x78 });
                let hash = udp.then(|| toeplitz(&hash.key, &packet.hash_input(true)));
                let kept = compression != FrameCompression::CHECKSUM;
                assert_eq!(got.hash, kept.then_some(hash.unwrap_or(0)));
                let kept = compression != FrameCompression::HASH;
                assert_eq!(got.checksum, kept.then_some(sum));
            }
            found.extend(got);
        }
        let counters = receive.counters();
        assert_eq!(counters.received, found.len() as u64);
        let lost = [counters.too_long, counters.malformed];
        assert_eq!((lost, counters.garbage_completions), ([0; 2], 0));
        sessions = lab.world.with_model(1, |model| model.stats().compressed);
    });
    (found, sessions)
}

#[test]
fn the_same_frames_come_compressed() {
    for seed in 0..4 {
        let (expected, none) = traffic(seed, FrameCompression::OFF);
        assert_eq!(none, 0);
        for compression in [FrameCompression::HASH, FrameCompression::CHECKSUM] {
            let (found, compressed) = traffic(seed, compression);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                let kept = Got {
                    hash: found.hash.and(expected.hash),
                    checksum: found.checksum.and(expected.checksum),
                    bytes: expected.bytes.clone(),
                    ..*expected
                };
                assert_eq!(*found, kept, "seed {seed}, {compression:?}");
            }
            assert!(
                compressed > 500,
                "seed {seed}: {compressed} of {}",
                found.len()
            );
        }
    }
}

/// A frame that is too long ends a session, and costs its buffer only; a queue that is set going again has forgotten what was
/// left of a session.
#[test]
fn errors_and_recovery_between_sessions() {
    for compression in KINDS {
        lab(|lab| {
            let long = EthernetInit {
                frame_len: Some(1522),
                ..INIT
            };
            let mut a = lab.queue(0, long);
            let mut b = lab.queue(
                1,
                EthernetInit {
                    compression,
                    ..INIT
                },
            );
            for round in 0..40 {
                let frames: Vec<_> = [60, 61, 1522, 62, 63, 64]
                    .iter()
                    .enumerate()
                    .map(|(nth, &len)| lab.frame(0, len, 10 * round + nth as u64))
                    .collect();
                for frame in &frames {
                    send(&mut a, frame);
                }
                lab.pause(MS);
                if round % 5 == 4 {
                    assert_eq!(take(&mut b).as_ref(), frames.first());
                    b.receive_half().recover().unwrap();
                    lab.nothing(&mut b);
                    continue;
                }
                for frame in frames.into_iter().filter(|frame| frame.len() < 1522) {
                    assert_eq!(take(&mut b), Some(frame));
                }
                assert_eq!(take(&mut b), None);
            }
            let counters = b.receive_half().counters();
            assert_eq!((counters.received, counters.too_long), (32 * 5 + 8, 32));
            assert_eq!((counters.malformed, counters.garbage_completions), (0, 0));
        });
    }
}

#[test]
fn a_card_without_compression_is_refused_by_name() {
    let without = |mut card: Card| {
        for caps in [&mut card.general, &mut card.general_max] {
            caps.set_cqe_compression(false);
        }
        card
    };
    lab_with(without, |lab| {
        for compression in KINDS {
            let init = EthernetInit {
                compression,
                ..INIT
            };
            let made = lab.sides[0].pd.create_ethernet_queue(&init).err();
            let capability = "cqe_compression";
            let refused = EthernetError::Cq(CqError::NotOffered { capability });
            let wanted = (compression != FrameCompression::OFF).then_some(refused);
            assert_eq!(made, wanted, "{compression:?}");
        }
    });
}

/// Entries of the receive queue's CQ, buffers, and bytes from one buffer to the next with [`INIT`].
const ENTRIES: u32 = 16;
const BUFFERS: u16 = 8;
const STRIDE: usize = 1536;

/// The receive CQ, as the device writes it, and what has to come of that.
struct Liar {
    random: Random,
    ring: usize,
    /// Index of the next entry.
    at: u32,
    /// The buffer that comes next.
    tail: u16,
    /// The counts that are due: received, too long, malformed, garbage.
    counts: [u64; 4],
    /// The frames that are due: the buffer, and the length.
    frames: Vec<(u16, u32)>,
}

impl Liar {
    fn put(&self, ahead: u32, bytes: &[u8; 64]) {
        let at = self.ring + (self.at.wrapping_add(ahead) % ENTRIES) as usize * 64;
        // SAFETY: inside the ring, which exists as long as the queue, and which the driver does not read now.
        unsafe { (at as *mut [u8; 64]).write_volatile(*bytes) };
    }

    fn length(&mut self) -> u32 {
        let any = self.random.below(1 << 20) as u32;
        self.random.pick(&[60, 900, 1518, 14, 13, 1519, 0, any])
    }

    /// One completion, compressed or not, with what is wrong about it: the opcode, the queue, the buffer.
    fn expect(&mut self, opcode: u8, ours: bool, counter: u16, len: u32) {
        let right = ours && (counter ^ self.tail).is_multiple_of(BUFFERS);
        let what = match opcode {
            0xe if ours => 1,
            2 if right && (14..=1518).contains(&len) => {
                self.frames.push((self.tail % BUFFERS, len));
                0
            }
            2 if right => 2,
            _ => 3,
        };
        self.counts[what] += 1;
        self.tail = self.tail.wrapping_add(u16::from(what != 3));
    }

    /// Writes an entry, or a session with its arrays, and notes what has to come of it.
    fn lie(&mut self) {
        let mut title = [0; 64];
        for byte in &mut title {
            *byte = self.random.below(256) as u8;
        }
        let opcode = self.random.pick(&[2, 2, 2, 2, 2, 2, 0, 0xe, 3, 5, 0xb]);
        let ours = self.random.below(8) != 0;
        let wrong = self.random.below(0x1_0000) as u16;
        let tail = self.tail;
        let counter = self.random.pick(&[tail, tail, tail, tail, wrong]);
        // Of its own capability: tags that were not asked for are malformed.
        title[0x1d] &= !1;
        title[0x20..0x24].copy_from_slice(&if ours { [0, 0, 0, 1] } else { [0, 0, 1, 1] });
        // What costs the buffer only.
        title[0x37] = 0x01;
        title[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
        let owner = u8::from(self.at & ENTRIES != 0);
        let any = self.random.below(1 << 31) as u32;
        let real = 2 + self.random.below(15) as u32;
        let few = 2 + self.random.below(4) as u32;
        let count = self
            .random
            .pick(&[0, 1, 17, any, real, real, few, few, few]);
        let compressed = self.random.below(4) != 0;
        let entries = if !compressed {
            let len = self.length();
            title[0x2c..0x30].copy_from_slice(&len.to_be_bytes());
            title[0x3f] = opcode << 4 | owner;
            self.expect(opcode, ours, counter, len);
            1
        } else if !(2..=ENTRIES).contains(&count) {
            title[0x2c..0x30].copy_from_slice(&count.to_be_bytes());
            title[0x3f] = opcode << 4 | 3 << 2 | owner;
            self.counts[3] += 1;
            1
        } else {
            title[0x2c..0x30].copy_from_slice(&count.to_be_bytes());
            title[0x3f] = opcode << 4 | 3 << 2 | owner;
            let mut array = [0; 64];
            for nth in 0..count {
                let place = nth as usize % 8 * 8;
                let len = self.length();
                let hash = self.random.below(1 << 31) as u32;
                array[place..place + 4].copy_from_slice(&hash.to_be_bytes());
                array[place + 4..place + 8].copy_from_slice(&len.to_be_bytes());
                let counter = if opcode == 0 {
                    (hash >> 16) as u16
                } else {
                    counter.wrapping_add(nth as u16)
                };
                self.expect(opcode, ours, counter, len);
                if nth % 8 == 7 || nth + 1 == count {
                    self.put(if nth < 8 { 1 } else { nth & !7 }, &array);
                }
            }
            count
        };
        self.put(0, &title);
        self.at = self.at.wrapping_add(entries);
    }
}

/// Titles with counts that cannot be, of other queues, of other opcodes, with buffers out of order and lengths out of bounds:
/// each frame that is handed out lies in the buffer that came next, and all else is counted.
#[test]
fn sessions_that_lie() {
    const SEED: u64 = 0x11e5;
    println!("seed {SEED:#x}");
    with_forger(|forger, device| {
        let pd = device.alloc_pd().unwrap();
        let mut totals = [0; 4];
        for round in 0..40 {
            let compression = KINDS[1 + round % 2];
            forger.rings.lock().unwrap().clear();
            forger.memory.lock().unwrap().clear();
            let init = EthernetInit {
                compression,
                ..INIT
            };
            let mut queue: EthernetQueue<'_, &Forger> = pd.create_ethernet_queue(&init).unwrap();
            let [_, ring] = forger.rings.lock().unwrap()[..] else {
                panic!("two completion queues");
            };
            let memory = forger.memory.lock().unwrap().clone();
            // What comes last of this size are the buffers of what is received.
            let size = usize::from(BUFFERS) * STRIDE;
            let &(buffers, _) = memory
                .iter()
                .rfind(|(_, len)| *len == size)
                .expect("buffers");
            forger.deaf.store(true, Ordering::Relaxed);
            for buffer in 0..BUFFERS {
                let at = buffers + usize::from(buffer) * STRIDE;
                // SAFETY: inside the buffers, which exist as long as the queue.
                unsafe { (at as *mut u8).write_bytes(buffer as u8, STRIDE) };
            }
            let mut liar = Liar {
                random: Random(SEED + round as u64),
                ring,
                at: 0,
                tail: 0,
                counts: [0; 4],
                frames: Vec::new(),
            };
            for _ in 0..200 {
                liar.frames.clear();
                liar.lie();
                let mut found = Vec::new();
                let receive = queue.receive_half();
                // Each call ends, and passes over as much as the queue holds.
                for _ in 0..4 {
                    while let Some(frame) = receive.receive().expect("it works") {
                        let mut bytes = [0xff; STRIDE];
                        let len = frame.copy_to(&mut bytes);
                        assert!(bytes[..len].iter().all(|&byte| byte == bytes[0]));
                        found.push((bytes[0].into(), len as u32));
                    }
                }
                assert_eq!(found, liar.frames, "round {round}");
                let counters = receive.counters();
                let counts = [
                    counters.received,
                    counters.too_long,
                    counters.malformed,
                    counters.garbage_completions,
                ];
                assert_eq!(counts, liar.counts, "round {round}");
            }
            for (total, more) in totals.iter_mut().zip(liar.counts) {
                *total += more;
            }
            forger.deaf.store(false, Ordering::Relaxed);
            queue.destroy().unwrap();
        }
        println!("{totals:?}");
        assert!(totals.iter().all(|&total| total > 500), "{totals:?}");
    });
}
