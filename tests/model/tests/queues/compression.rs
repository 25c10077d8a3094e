//! Compressed completions: what a reader that follows Linux's mlx5e makes of them is what a queue without compression has
//! for the same traffic.

use std::time::Duration;

use connectx_model::{Config, Syndrome};

use crate::common::Node;
use crate::common::queues::*;
use crate::{COMP, SEND, WRITE, events, refused};

const HASH: u8 = 0;
const CHECKSUM: u8 = 1;
const STRIDE: u8 = 3;
const SEND_IMM: u8 = 0x0b;

/// Takes completions as `mlx5e_poll_rx_cq` of Linux 6.12 does (`en_rx.c`): title, arrays, owner bits of the entries that are
/// given back. A requester's mini CQEs as `struct mlx5_mini_cqe8` has them (`s_wqe_info`).
struct Reader {
    format: u8,
    title: [u8; 64],
    array: [u8; 64],
    in_array: usize,
    left: u32,
    counter: u16,
    sessions: Vec<u32>,
}

impl Reader {
    fn new(format: u8) -> Self {
        Self {
            format,
            title: [0; 64],
            array: [0; 64],
            in_array: 0,
            left: 0,
            counter: 0,
            sessions: Vec::new(),
        }
    }

    fn place(cq: &Cq, index: u32) -> u64 {
        let size = 1 << cq.log_size;
        cq.ring + u64::from(index & (size - 1)) * cq.stride + (cq.stride - 64)
    }

    fn next(&mut self, node: &mut Node, cq: &mut Cq) -> Option<Cqe> {
        let slot = |node: &mut Node, index: u32| -> [u8; 64] {
            node.host
                .bytes(Self::place(cq, index), 64)
                .try_into()
                .unwrap()
        };
        let parity = |index: u32| (index >> cq.log_size & 1) as u8;
        if self.left == 0 {
            let entry = slot(node, cq.consumer);
            if entry[63] >> 4 == 0xf || entry[63] & 1 != parity(cq.consumer) {
                return None;
            }
            if entry[63] >> 2 & 3 != 3 {
                let done = node.poll(cq).unwrap();
                return Some(done);
            }
            self.title = entry;
            self.left = u32::from_be_bytes(entry[0x2c..0x30].try_into().unwrap());
            self.counter = u16::from_be_bytes([entry[0x3c], entry[0x3d]]);
            self.sessions.push(self.left);
            self.array = slot(node, cq.consumer + 1);
            self.in_array = 0;
        } else if self.in_array == 8 {
            self.array = slot(node, cq.consumer);
            self.in_array = 0;
        }
        let mini = &self.array[self.in_array * 8..][..8];
        self.in_array += 1;
        let mut entry = self.title;
        entry[0x2c..0x30].copy_from_slice(&mini[4..]);
        entry[63] = entry[63] & 0xf0 | parity(cq.consumer);
        if entry[63] >> 4 == 0 {
            entry[0x3c..0x3e].copy_from_slice(&mini[..2]);
            entry[0x38] = mini[2];
        } else if self.format == STRIDE {
            entry[0x3c..0x3e].copy_from_slice(&mini[2..4]);
        } else {
            entry[0x3c..0x3e].copy_from_slice(&self.counter.to_be_bytes());
            self.counter = self.counter.wrapping_add(1);
        }
        // Given back with the owner bit of this pass.
        let at = Self::place(cq, cq.consumer) + 63;
        node.host.put(at, &[parity(cq.consumer)]);
        cq.consumer += 1;
        self.left -= 1;
        if self.left == 0 {
            node.host.put32(cq.record, cq.consumer & 0xff_ffff);
        }
        Some(Cqe::of(&entry))
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Drawn sends and writes from one end to the other, and what both ends find in their queues.
fn traffic(seed: u64, configs: [Config; 2], plan: CqPlan) -> ([Vec<Cqe>; 2], Vec<u32>) {
    let mut random = Random(seed);
    let mut pair = Pair::of(configs);
    let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect_as(RC, plan);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    let format = plan.compressed.unwrap_or(0);
    let mut readers = [Reader::new(format), Reader::new(format)];
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..40 {
        for _ in 0..random.below(11) {
            let len = random.below(33) as usize;
            let solicited = u8::from(random.below(20) == 0) * SOLICITED;
            let flags = SIGNALED | solicited;
            let data = inline_segment(&vec![7; len]);
            match random.below(8) {
                0 => {
                    let segments = [remote_segment(0, key), data].concat();
                    pair.a.post_send(&mut qp_a, WRITE, SIGNALED, 0, &segments);
                }
                1 => {
                    let imm = random.below(2) as u32;
                    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
                    pair.a.post_send(&mut qp_a, SEND_IMM, flags, imm, &data);
                }
                _ => {
                    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
                    pair.a.post_send(&mut qp_a, SEND, flags, 0, &data);
                }
            }
        }
        pair.a.ring_send(&qp_a);
        pair.run();
        let ends = [(&mut pair.a, &mut cq_a), (&mut pair.b, &mut cq_b)];
        for (end, (node, cq)) in ends.into_iter().enumerate() {
            // At times only a part, as with a NAPI budget.
            let most = [3, 8, 64][random.below(3) as usize];
            for _ in 0..most {
                found[end].extend(readers[end].next(node, cq));
            }
            let outstanding = random.below(2) == 0;
            if outstanding {
                cq.arm_number += 1;
                node.arm(cq, false);
            }
            events(node, 1);
            node.arm_eq(1);
        }
        pair.a.sleep(Duration::from_micros(3));
        pair.b.sleep(Duration::from_micros(3));
        // Every queue is empty before there can be more than it holds.
        for (end, (node, cq)) in [(&mut pair.a, &mut cq_a), (&mut pair.b, &mut cq_b)]
            .into_iter()
            .enumerate()
        {
            found[end].extend(std::iter::from_fn(|| readers[end].next(node, cq)));
        }
    }
    pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
    pair.b.make_error(&qp_b);
    pair.run();
    found[1].extend(std::iter::from_fn(|| {
        readers[1].next(&mut pair.b, &mut cq_b)
    }));
    let stats = [pair.a.model.stats(), pair.b.model.stats()];
    let sessions = readers.map(|reader| reader.sessions);
    for (stats, sessions) in stats.iter().zip(&sessions) {
        let completions: u64 = sessions.iter().map(|&n| u64::from(n)).sum();
        assert_eq!(stats.compressed_sessions, sessions.len() as u64);
        assert_eq!(stats.compressed, completions);
    }
    (found, sessions.concat())
}

#[test]
fn a_queue_with_compression_has_what_one_without_has() {
    let (mut longest, mut all) = (0, 0);
    for seed in 0..16 {
        let configs = || [1, 2].map(Config::new);
        let (expected, none) = traffic(seed, configs(), CqPlan::default());
        assert!(none.is_empty());
        assert_eq!(expected[1].last().unwrap().opcode, 0xe);
        for format in [HASH, CHECKSUM, STRIDE] {
            for cqe_sz in 0..3 {
                let plan = CqPlan {
                    cqe_sz,
                    compressed: Some(format),
                };
                let (found, sessions) = traffic(seed, configs(), plan);
                assert_eq!(found, expected, "seed {seed}, {plan:?}");
                longest = longest.max(sessions.iter().copied().max().unwrap_or(0));
                all += sessions.len();
            }
        }
    }
    assert!(longest > 8 && all > 500, "{longest} {all}");
}

#[test]
fn a_session_is_no_longer_than_the_card_allows() {
    for most in [16, 64] {
        let mut configs = [1, 2].map(Config::new);
        configs[0]
            .general
            .set_cqe_compression_max_num(most)
            .set_cqe_compression_timeout(8);
        let mut pair = Pair::of(configs);
        let plan = CqPlan {
            cqe_sz: 0,
            compressed: Some(HASH),
        };
        let mut cq = pair.a.try_create_cq_as(7, 1, plan).unwrap();
        let mut qp = pair.a.create_qp(QpPlan {
            st: RC,
            pd: pair.pd[0],
            send_cq: cq.number,
            receive_cq: cq.number,
            srq: None,
            user_index: 1,
        });
        let mac = pair.a.model.config().mac;
        pair.a.make_init(&qp);
        pair.a.make_rtr(&qp, qp.number, 5, Some((gid(1), mac)));
        pair.a.make_rts(&qp, 5);
        for _ in 0..5 {
            for _ in 0..16 {
                // NOPs complete without a peer.
                pair.a.post_send(&mut qp, 0, SIGNALED, 0, &[]);
            }
            pair.a.ring_send(&qp);
            pair.a.advance();
        }
        pair.a.sleep(Duration::from_micros(8));
        let mut reader = Reader::new(HASH);
        let counters: Vec<u16> = std::iter::from_fn(|| reader.next(&mut pair.a, &mut cq))
            .map(|done| done.counter)
            .collect();
        assert_eq!(counters, (0..80).collect::<Vec<u16>>());
        let whole = vec![u32::from(most); 80 / usize::from(most)];
        assert!(reader.sessions.starts_with(&whole), "{:?}", reader.sessions);
    }
}

/// DPDK's vectorized receive function (`rxq_cq_decompress_v`) reads and fills what belongs to a session as one piece of
/// memory: a session that went on at the beginning of the ring would have it write behind its buffers.
#[test]
fn a_session_ends_with_the_ring() {
    let mut pair = Pair::new();
    let plan = CqPlan {
        cqe_sz: 0,
        compressed: Some(HASH),
    };
    let mut cq = pair.a.try_create_cq_as(5, 1, plan).unwrap();
    let mut qp = pair.a.create_qp(QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    });
    let mac = pair.a.model.config().mac;
    pair.a.make_init(&qp);
    pair.a.make_rtr(&qp, qp.number, 5, Some((gid(1), mac)));
    pair.a.make_rts(&qp, 5);
    let mut reader = Reader::new(HASH);
    let mut counters = Vec::new();
    for _ in 0..8 {
        // Not a divisor of the ring's 32 entries.
        for _ in 0..12 {
            pair.a.post_send(&mut qp, 0, SIGNALED, 0, &[]);
        }
        pair.a.ring_send(&qp);
        pair.a.advance();
        pair.a.sleep(Duration::from_millis(1));
        let found = std::iter::from_fn(|| reader.next(&mut pair.a, &mut cq));
        counters.extend(found.map(|done| done.counter));
    }
    assert_eq!(counters, (0..96).collect::<Vec<u16>>());
    assert_eq!(reader.sessions, [12, 12, 8, 4, 12, 12, 4, 8, 12, 12]);
}

#[test]
fn an_armed_queue_reports_at_once() {
    let mut pair = Pair::new();
    let plan = CqPlan {
        cqe_sz: 0,
        compressed: Some(CHECKSUM),
    };
    let [(mut qp_a, _), (mut qp_b, mut cq)] = pair.connect_as(RC, plan);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    pair.b.arm(&mut cq, false);
    for _ in 0..3 {
        pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
        pair.a
            .post_send(&mut qp_a, SEND, 0, 0, &inline_segment(&[1]));
    }
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(events(&mut pair.b, 1), [(COMP, cq.number)]);
    // The first is there with its event, and the others when their time is over.
    pair.b.sleep(Duration::from_micros(3));
    let mut reader = Reader::new(CHECKSUM);
    let found = std::iter::from_fn(|| reader.next(&mut pair.b, &mut cq)).count();
    assert_eq!((found, reader.sessions), (3, vec![2]));
}

#[test]
fn what_is_not_offered_is_refused() {
    let mut node = Pair::new().a;
    let plan = |cqe_sz, format| CqPlan {
        cqe_sz,
        compressed: Some(format),
    };
    let format = refused(Syndrome::CqCompressionFormat);
    assert_eq!(node.try_create_cq_as(4, 1, plan(0, 2)).err(), Some(format));
    let mut old = [1, 2].map(Config::new);
    for config in &mut old {
        config
            .general
            .set_cqe_compression_128(false)
            .set_mini_cqe_resp_stride_index(false);
    }
    let mut node = Pair::of(old).a;
    assert!(node.try_create_cq_as(4, 1, plan(0, CHECKSUM)).is_ok());
    assert_eq!(
        node.try_create_cq_as(4, 1, plan(1, CHECKSUM)).err(),
        Some(refused(Syndrome::CqCompression))
    );
    assert_eq!(
        node.try_create_cq_as(4, 1, plan(0, STRIDE)).err(),
        Some(refused(Syndrome::CqCompressionFormat))
    );
    let mut without = [1, 2].map(Config::new);
    for config in &mut without {
        config.general.set_cqe_compression(false);
        config.general_max.set_cqe_compression(false);
    }
    let mut node = Pair::of(without).a;
    assert_eq!(
        node.try_create_cq_as(4, 1, plan(0, HASH)).err(),
        Some(refused(Syndrome::CqCompression))
    );
}
