//! Queue counters: that what goes wrong is counted once, where it happened, in the set of the queue pair that it happened to.

use bareverbs_firmware_cmds::counter::{AllocQCounterIn, QueryQCounterIn, QueryQCounterOut};
use bareverbs_firmware_cmds::qp::Rts2rtsQpIn;
use zerocopy::IntoBytes;

use crate::common::Node;
use crate::common::queues::*;
use crate::{SEND, WRITE};

const READ: u8 = 0x10;
const UMR: u8 = 0x25;
const COUNTER_SET: u32 = 1 << 25;

/// Counters of the answer by their names, those that are not zero.
fn counted(answer: &QueryQCounterOut) -> Vec<(&'static str, u32)> {
    let rnr = u32::from_be_bytes(answer.as_bytes()[0x70..0x74].try_into().unwrap());
    [
        ("rx_write_requests", answer.rx_write_requests()),
        ("rx_read_requests", answer.rx_read_requests()),
        ("rx_atomic_requests", answer.rx_atomic_requests()),
        ("out_of_buffer", answer.out_of_buffer()),
        ("out_of_sequence", answer.out_of_sequence()),
        ("duplicate_request", answer.duplicate_request()),
        ("rnr_nak_retry_err", answer.rnr_nak_retry_err()),
        ("packet_seq_err", answer.packet_seq_err()),
        ("implied_nak_seq_err", answer.implied_nak_seq_err()),
        ("local_ack_timeout_err", answer.local_ack_timeout_err()),
        ("req_rnr_retries_exceeded", rnr),
        ("resp_local_length_error", answer.resp_local_length_error()),
        ("req_local_length_error", answer.req_local_length_error()),
        ("resp_local_qp_error", answer.resp_local_qp_error()),
        ("local_operation_error", answer.local_operation_error()),
        ("resp_local_protection", answer.resp_local_protection()),
        ("req_local_protection", answer.req_local_protection()),
        ("resp_cqe_error", answer.resp_cqe_error()),
        ("req_cqe_error", answer.req_cqe_error()),
        ("req_mw_binding", answer.req_mw_binding()),
        ("req_bad_response", answer.req_bad_response()),
        (
            "req_remote_invalid_request",
            answer.req_remote_invalid_request(),
        ),
        (
            "resp_remote_invalid_request",
            answer.resp_remote_invalid_request(),
        ),
        (
            "req_remote_access_errors",
            answer.req_remote_access_errors(),
        ),
        (
            "resp_remote_access_errors",
            answer.resp_remote_access_errors(),
        ),
        (
            "req_remote_operation_errors",
            answer.req_remote_operation_errors(),
        ),
        (
            "req_transport_retries_exceeded",
            answer.req_transport_retries_exceeded(),
        ),
        ("cq_overflow", answer.cq_overflow()),
        ("resp_cqe_flush_error", answer.resp_cqe_flush_error()),
        ("req_cqe_flush_error", answer.req_cqe_flush_error()),
    ]
    .into_iter()
    .filter(|&(_, count)| count != 0)
    .collect()
}

fn count_in_a_set(node: &mut Node, qp: &Qp) -> u8 {
    let set = node
        .command(&AllocQCounterIn::new())
        .unwrap()
        .counter_set_id();
    let mut modify = Rts2rtsQpIn::new();
    modify.set_qpn(qp.number).set_opt_param_mask(COUNTER_SET);
    modify
        .qpc_mut()
        .set_st(qp.st)
        .set_pm_state(3)
        .set_counter_set_id(set);
    node.command(&modify).unwrap();
    set
}

struct Scene {
    pair: Pair,
    a: Qp,
    b: Qp,
    cq_b: Cq,
    sets: [u8; 2],
    memory: u64,
    key: u32,
}

fn scene() -> Scene {
    let mut pair = Pair::new();
    let [(a, _), (b, cq_b)] = pair.connect(RC);
    let sets = [
        count_in_a_set(&mut pair.a, &a),
        count_in_a_set(&mut pair.b, &b),
    ];
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    Scene {
        pair,
        a,
        b,
        cq_b,
        sets,
        memory,
        key,
    }
}

impl Scene {
    fn post(&mut self, opcode: u8, segments: &[u8]) {
        let node = &mut self.pair.a;
        node.post_send(&mut self.a, opcode, SIGNALED, 0, segments);
    }

    fn ring(&mut self) {
        self.pair.a.ring_send(&self.a);
        self.pair.run();
    }

    /// Reads both sets of counters, and checks that a query which clears them leaves none.
    fn counts(&mut self) -> [Vec<(&'static str, u32)>; 2] {
        let sets = self.sets;
        [(&mut self.pair.a, sets[0]), (&mut self.pair.b, sets[1])].map(|(node, set)| {
            let mut query = QueryQCounterIn::new();
            query.set_counter_set_id(set);
            let looked = counted(&node.command(&query).unwrap());
            query.set_clear(true);
            assert_eq!(counted(&node.command(&query).unwrap()), looked);
            assert_eq!(counted(&node.command(&query).unwrap()), []);
            looked
        })
    }
}

fn small() -> Vec<u8> {
    inline_segment(&[1; 20])
}

#[test]
fn requests_are_counted_where_they_come_in() {
    let mut s = scene();
    let local = s.pair.a.host.alloc(4096, 4096);
    let lkey = s.pair.a.register(s.pair.pd[0], local, 0, 4096, ALL);
    for _ in 0..3 {
        s.post(WRITE, &[remote_segment(0, s.key), small()].concat());
    }
    let read = [remote_segment(0, s.key), data_segment((lkey, 0, 64))].concat();
    s.post(READ, &read);
    s.ring();
    assert_eq!(
        s.counts(),
        [
            vec![],
            vec![("rx_write_requests", 3), ("rx_read_requests", 1)]
        ]
    );
}

#[test]
fn a_queue_that_runs_dry_is_counted_until_it_is_filled() {
    let mut s = scene();
    s.post(SEND, &small());
    s.ring();
    s.pair.b.post_receive(&mut s.b, &[(s.key, 0, 64)]);
    let later = s.pair.a.now + std::time::Duration::from_secs(1);
    s.pair.a.now = later;
    s.pair.b.now = later;
    s.pair.run();
    let [at_a, at_b] = s.counts();
    let [("out_of_buffer", times)] = at_b[..] else {
        panic!("{at_b:?}");
    };
    assert!(times >= 1);
    // Each packet that finds no WQE is answered, and the answers count though retries are left.
    assert_eq!(at_a, [("rnr_nak_retry_err", times)]);
}

#[test]
fn lost_packets_are_counted_at_either_end() {
    let mut s = scene();
    s.pair.b.post_receive(&mut s.b, &[(s.key, 0, 64)]);
    s.pair.b.post_receive(&mut s.b, &[(s.key, 0, 64)]);
    s.post(SEND, &small());
    s.post(SEND, &small());
    s.pair.a.ring_send(&s.a);
    s.pair.a.advance();
    let first = s.pair.a.host.frames.remove(0);
    s.pair.run();
    assert_eq!(
        s.counts(),
        [vec![("packet_seq_err", 1)], vec![("out_of_sequence", 1)]]
    );
    // The first one comes after all.
    let node = &mut s.pair.b;
    node.model.receive(&mut node.host, &first);
    s.pair.run();
    assert_eq!(s.counts(), [vec![], vec![("duplicate_request", 1)]]);
}

#[test]
fn silence_is_counted_and_ends() {
    let mut s = scene();
    s.post(WRITE, &[remote_segment(0, s.key), small()].concat());
    s.post(WRITE, &[remote_segment(0, s.key), small()].concat());
    s.pair.a.ring_send(&s.a);
    // 4.096 µs · 2^14 each, and seven retries.
    for _ in 0..9 {
        s.pair.a.sleep(std::time::Duration::from_millis(70));
        s.pair.a.host.frames.clear();
    }
    assert_eq!(
        s.counts(),
        [
            vec![
                ("local_ack_timeout_err", 8),
                ("req_cqe_error", 1),
                ("req_transport_retries_exceeded", 1),
                ("req_cqe_flush_error", 1),
            ],
            vec![]
        ]
    );
}

#[test]
fn every_failure_has_its_counters() {
    type Case = (
        &'static str,
        fn(&mut Scene),
        [&'static [(&'static str, u32)]; 2],
    );
    let cases: [Case; 8] = [
        (
            "a wrong key",
            |s| s.post(WRITE, &[remote_segment(0, s.key + 1), small()].concat()),
            [
                &[("req_cqe_error", 1), ("req_remote_access_errors", 1)],
                &[("resp_remote_access_errors", 1)],
            ],
        ),
        (
            "a receive buffer too short",
            |s| {
                s.pair.b.post_receive(&mut s.b, &[(s.key, 0, 8)]);
                s.post(SEND, &small());
            },
            [
                &[("req_cqe_error", 1), ("req_remote_invalid_request", 1)],
                &[("resp_local_length_error", 1), ("resp_cqe_error", 1)],
            ],
        ),
        (
            "a receive buffer without its key",
            |s| {
                s.pair.b.post_receive(&mut s.b, &[(s.key + 1, 0, 64)]);
                s.post(SEND, &small());
            },
            [
                &[("req_cqe_error", 1), ("req_remote_operation_errors", 1)],
                &[("resp_local_protection", 1), ("resp_cqe_error", 1)],
            ],
        ),
        (
            "memory without its key",
            |s| s.post(SEND, &data_segment((0x1234, 0, 8))),
            [&[("req_local_protection", 1), ("req_cqe_error", 1)], &[]],
        ),
        (
            "an opcode that is none",
            |s| s.post(0x7e, &small()),
            [&[("local_operation_error", 1), ("req_cqe_error", 1)], &[]],
        ),
        (
            "a message too long",
            |s| {
                let pieces = data_segment((0, 0, 1 << 30));
                s.post(SEND, &[pieces.clone(), pieces].concat());
            },
            [&[("req_local_length_error", 1), ("req_cqe_error", 1)], &[]],
        ),
        (
            "a window that cannot be bound",
            |s| {
                let key = s.pair.a.host.alloc(4096, 4096);
                let key = s.pair.a.register(s.pair.pd[0], key, 0, 4096, ALL);
                let mut segments = vec![0; 48 + 64];
                segments[0] = 0x80;
                let node = &mut s.pair.a;
                node.post_send(&mut s.a, UMR, SIGNALED, key, &segments);
            },
            [&[("req_cqe_error", 1), ("req_mw_binding", 1)], &[]],
        ),
        (
            "an invalid request",
            |s| {
                s.pair.b.post_receive(&mut s.b, &[(s.key, 0, 64)]);
                s.post(SEND, &small());
                s.pair.a.ring_send(&s.a);
                s.pair.a.advance();
                // Half of the message: the frame says that more is to come, which a short packet cannot.
                let bth = 14 + 20 + 8;
                let mut frame = s.pair.a.host.frames.remove(0);
                frame[bth] = 0;
                assert!(connectx_model::roce::packet::reseal(&mut frame));
                let node = &mut s.pair.b;
                node.model.receive(&mut node.host, &frame);
            },
            [
                &[("req_cqe_error", 1), ("req_remote_invalid_request", 1)],
                // The receive was not begun.
                &[("resp_cqe_flush_error", 1)],
            ],
        ),
    ];
    for (name, break_it, expected) in cases {
        let mut s = scene();
        break_it(&mut s);
        s.ring();
        let found = s.counts();
        let expected = expected.map(<[_]>::to_vec);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn flushed_work_is_counted_and_more_as_it_comes() {
    let mut s = scene();
    for _ in 0..3 {
        s.pair.b.post_receive(&mut s.b, &[(s.key, 0, 64)]);
    }
    s.pair.b.make_error(&s.b);
    s.pair.a.make_error(&s.a);
    s.post(SEND, &small());
    s.ring();
    s.pair.b.sleep(std::time::Duration::from_millis(1));
    assert_eq!(
        s.counts(),
        [
            vec![("req_cqe_flush_error", 1)],
            vec![("resp_cqe_flush_error", 3)]
        ]
    );
    assert_eq!(s.pair.b.poll_all(&mut s.cq_b).len(), 3);
    assert_eq!(s.pair.b.host.bytes(s.memory, 4), [0; 4]);
}
