//! A lane whose receiving device compresses: what goes out is what the test expects of each completion of drawn sessions, right
//! ones and others, in requests that are compared byte by byte.

use bareverbs_core::{CompressedForwarder, ForwardInit, FrameCompression};

use crate::compressed::{put, random};
use crate::forwarding::{BURST, FRAMES, Ports, domain};
use crate::rig::cqe;
use crate::support::Fake;
use crate::words;

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 5], [2, 0, 0, 0, 0, 6]];
/// Bytes from one buffer to the next, for frames of 1522 bytes.
const STRIDE: u32 = 1536;

fn lane(
    addresses: Option<[[u8; 6]; 2]>,
    compression: FrameCompression,
    test: impl FnOnce(&mut CompressedForwarder<'_, &Fake>, &mut Script<'_, '_>),
) {
    domain(|domain, pd, ports| {
        let init = ForwardInit {
            frames: FRAMES,
            addresses,
            ..ForwardInit::default()
        };
        let lane = domain.create_compressed_forwarder(pd, (domain, pd), &init, compression);
        ports.look();
        let mut script = Script {
            ports,
            inline: addresses.map_or(0, |_| 12),
            seed: 0x1234_5678,
            tail: 0,
            frames: Vec::new(),
            dropped: 0,
            garbage: 0,
            base: None,
        };
        test(&mut lane.unwrap(), &mut script);
    });
}

/// Completions of the device, and the frames and counts that are due.
struct Script<'s, 'p> {
    ports: &'s mut Ports<'p>,
    inline: u32,
    seed: u64,
    /// The buffer that comes next, counted on.
    tail: u32,
    /// Buffer and length of all frames that have to go out.
    frames: Vec<(u32, u32)>,
    dropped: u64,
    garbage: u64,
    base: Option<u64>,
}

impl Script<'_, '_> {
    fn below(&mut self, end: u32) -> u32 {
        (random(&mut self.seed) % u64::from(end)) as u32
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    /// Notes what has to come of a completion.
    fn expect(&mut self, opcode: u8, ours: bool, counter: u16, length: u32) {
        let next = (u32::from(counter) ^ self.tail).is_multiple_of(FRAMES);
        match opcode {
            2 if ours && next && (15..=1522).contains(&length) => {
                self.frames.push((self.tail, length));
            }
            2 if ours && next => self.dropped += 1,
            0xe if ours => self.dropped += 1,
            _ => {
                self.garbage += 1;
                return;
            }
        }
        self.tail += 1;
    }

    /// Writes a session of `count` completions, or one completion alone.
    fn session(&mut self, count: u32, opcode: u8, ours: bool, counter: u32) {
        let (cqn, user) = self.ports.queues.receive;
        let mut title = cqe(user + u32::from(!ours), 0x77, opcode, counter as u16, 0);
        // A frame that is too long, as errors go: it costs its buffer only.
        title[0x37] = 1;
        let mut array = [0x5a; 64];
        let first = self.ports.rig.lock().cqs[&cqn].producer;
        for nth in 0..count {
            let wild = random(&mut self.seed) as u32;
            let length = self.pick(&[64, 64, 15, 1522, 700, 64, 65, 64, 14, 0, 1523, wild]);
            let mini = &mut array[nth as usize % 8 * 8..][..8];
            mini[..4].copy_from_slice(&wild.to_be_bytes());
            mini[4..].copy_from_slice(&length.to_be_bytes());
            // Requests have their counters in the array.
            let own = match opcode {
                0 if count > 1 => (wild >> 16) as u16,
                _ => (counter + nth) as u16,
            };
            self.expect(opcode, ours, own, length);
            if count == 1 {
                title[0x2c..0x30].copy_from_slice(&length.to_be_bytes());
            } else if nth % 8 == 7 || nth + 1 == count {
                let at = first + if nth < 8 { 1 } else { nth & !7 };
                put(self.ports.rig, self.ports.fake, cqn, at, &array);
            }
        }
        if count > 1 {
            self.title(title, count, count);
        } else {
            self.ports.rig.cqe(self.ports.fake, cqn, title);
        }
    }

    /// Writes a title that says `count`, of a session that has so many places.
    fn title(&mut self, mut title: [u8; 64], count: u32, places: u32) {
        let (cqn, _) = self.ports.queues.receive;
        title[0x2c..0x30].copy_from_slice(&count.to_be_bytes());
        title[0x3f] |= 3 << 2;
        self.ports.rig.cqe(self.ports.fake, cqn, title);
        self.ports.rig.lock().cqs.get_mut(&cqn).unwrap().producer += places - 1;
    }

    /// Compares the requests of the frames from `from` on.
    fn check(&mut self, from: usize) {
        let queues = self.ports.queues;
        let last = self.frames.len() - 1;
        for at in from..=last {
            let (buffer, length) = self.frames[at];
            let place = queues.ring + u64::from(at as u32 % FRAMES) * 64;
            let wqe = self.ports.fake.lock().dma_read(place, 64);
            let data = if self.inline == 0 { 32 } else { 48 };
            let head = words(&wqe[..16]);
            let units = data as u32 / 16 + 1;
            assert_eq!(head[0], (at as u32 & 0xffff) << 8 | 0x0a, "request {at}");
            assert_eq!(head[1], queues.sqn << 8 | units);
            assert_eq!(head[2], if at == last { 8 } else { 0 }, "request {at}");
            assert_eq!(wqe[0x1c..0x1e], [0, self.inline as u8]);
            if self.inline != 0 {
                assert_eq!(wqe[0x1e..0x2a], ADDRESSES.concat());
            }
            let data = &wqe[data..data + 16];
            assert_eq!(words(data)[0], length - self.inline, "request {at}");
            let addr = u64::from_be_bytes(data[8..].try_into().unwrap());
            let start = addr - u64::from(buffer % FRAMES * STRIDE + self.inline);
            assert_eq!(*self.base.get_or_insert(start), start, "request {at}");
        }
    }

    /// Forwards, and compares everything.
    fn forward(&mut self, lane: &mut CompressedForwarder<'_, &Fake>, from: usize) {
        let went = self.frames.len() - from;
        assert_eq!(lane.forward(), Ok(went as u32));
        if went > 0 {
            self.check(from);
        }
        let counters = lane.counters();
        assert_eq!(counters.sent, self.frames.len() as u64);
        assert_eq!(counters.dropped, self.dropped);
        assert_eq!(counters.received, counters.sent + counters.dropped);
        assert_eq!(counters.garbage_completions, self.garbage);
    }
}

/// Round all rings many times.
#[test]
fn sessions_go_out_as_the_test_expects() {
    for (addresses, compression) in [
        (Some(ADDRESSES), FrameCompression::HASH),
        (None, FrameCompression::CHECKSUM),
    ] {
        lane(addresses, compression, |lane, script| {
            for _ in 0..3000 {
                let from = script.frames.len();
                let mut left = BURST;
                while left > 0 && script.below(12) != 0 {
                    let count = 1 + script.below(left.min(20));
                    let opcode = script.pick(&[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 1, 0xe, 9]);
                    let ours = script.below(16) != 0;
                    let counter = match script.below(16) {
                        0 => script.tail + 1 + script.below(FRAMES - 1),
                        _ => script.tail,
                    };
                    if script.below(16) == 0 {
                        // A count that cannot be.
                        let (_, user) = script.ports.queues.receive;
                        let title = cqe(user, 0, 2, script.tail as u16, 0);
                        let count = script.pick(&[0, 1, 129, 130, 0x8000_0000, u32::MAX]);
                        script.title(title, count, 1);
                        script.garbage += 1;
                        left -= 1;
                        continue;
                    }
                    script.session(count, opcode, ours, counter);
                    left -= count;
                }
                script.forward(lane, from);
                if script.frames.len() > from {
                    script.ports.went(script.frames.len() as u32 - 1, 0);
                }
            }
            assert!(script.frames.len() > 10_000, "{}", script.frames.len());
            assert!(script.dropped > 2000 && script.garbage > 2000);
        });
    }
}

/// A session of more frames than there are buffers with the device: those that there are go out.
#[test]
fn sessions_end_where_no_buffer_is_left() {
    lane(Some(ADDRESSES), FrameCompression::HASH, |lane, script| {
        let (cqn, user) = script.ports.queues.receive;
        let mut array = [0; 64];
        for mini in array.as_chunks_mut::<8>().0 {
            mini[4..].copy_from_slice(&64_u32.to_be_bytes());
        }
        for count in [20_u32, 20, 20, 30] {
            let first = script.ports.rig.lock().cqs[&cqn].producer;
            for at in [1, 8, 16, 24].into_iter().filter(|&at| at < count) {
                put(script.ports.rig, script.ports.fake, cqn, first + at, &array);
            }
            let title = cqe(user, 0, 2, script.tail as u16, 0);
            script.title(title, count, count);
            for _ in 0..count.min(FRAMES - script.tail) {
                script.frames.push((script.tail, 64));
                script.tail += 1;
            }
        }
        // Whole sessions, until there is a burst at least.
        assert_eq!(lane.forward(), Ok(40));
        assert_eq!(lane.forward(), Ok(24));
        assert_eq!(lane.forward(), Ok(0));
        script.garbage = 26;
        script.forward(lane, script.frames.len());
        script.check(40);
        assert_eq!(lane.outstanding(), FRAMES);
        script.ports.went(FRAMES - 1, 0);
        let from = script.frames.len();
        script.session(9, 2, true, FRAMES);
        script.forward(lane, from);
    });
}
