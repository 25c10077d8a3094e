//! Extended reliable connections on the device: initiators and targets as Linux makes them, shared queues with a completion
//! queue of their own, XRC domains.

use bareverbs_firmware_cmds::domain::{AllocXrcdIn, DeallocXrcdIn};
use bareverbs_firmware_cmds::qp::{CreateQpIn, DestroyQpIn, QueryQpIn};
use bareverbs_firmware_cmds::srq::{CreateXrcSrqIn, DestroyXrcSrqIn};
use connectx_model::Syndrome;

use crate::common::queues::*;
use crate::common::{Node, page_list};
use crate::{COMM_EST, SEND, SRQ_LAST_WQE, WQ_ACCESS, WRITE, events, refused};

const XRC: u8 = 3;
const READ: u8 = 0x10;
const FETCH_ADD: u8 = 0x12;
const SEND_IMM: u8 = 0x0b;
const WRITE_IMM: u8 = 0x09;
const USER_INDEX: u32 = 0x77;
const NO_USER_INDEX: u32 = 0xff_ffff;
/// Syndromes of completions.
const FLUSHED: u8 = 0x05;
const REMOTE_ACCESS: u8 = 0x13;

/// A shared queue of linked WQEs of 64 bytes.
struct Srq {
    number: u32,
    ring: u64,
    record: u64,
    posted: u16,
}

fn alloc_xrcd(node: &mut Node) -> u32 {
    node.command(&AllocXrcdIn::new()).unwrap().xrcd()
}

fn create_srq(node: &mut Node, pd: u32, xrcd: u32, cq: &Cq, user_index: u32) -> Srq {
    let ring = node.host.alloc(4096, 4096);
    let record = node.host.alloc(8, 64);
    for index in 0..16u16 {
        let next = (index + 1) % 16;
        node.host
            .put(ring + u64::from(index) * 64 + 2, &next.to_be_bytes());
    }
    let mut create = CreateXrcSrqIn::new();
    create
        .xrc_srq_context_entry_mut()
        .set_log_xrc_srq_size(4)
        .set_log_rq_stride(2)
        .set_xrcd(xrcd)
        .set_cqn(cq.number)
        .set_pd(pd)
        .set_user_index(user_index)
        .set_db_record_addr_h((record >> 32) as u32)
        .set_db_record_addr_l((record as u32) >> 2);
    let (output, _) = node
        .command_with(&create, &page_list(ring, 1024), 0)
        .unwrap();
    Srq {
        number: output.xrc_srqn(),
        ring,
        record,
        posted: 0,
    }
}

fn post(node: &mut Node, srq: &mut Srq, piece: Piece) -> u16 {
    let index = srq.posted % 16;
    let at = srq.ring + u64::from(index) * 64;
    node.host.put(at + 16, &data_segment(piece));
    node.host.put(at + 32, &data_segment((0x100, 0, 0)));
    srq.posted += 1;
    node.host.put32(srq.record, u32::from(srq.posted));
    index
}

/// A target: no queues, no pages; protection domain, CQ and shared queue are some that the kernel has, of no meaning.
fn create_target(node: &mut Node, pd: u32, cq: &Cq, srq: &Srq, xrcd: u32) -> Qp {
    let mut create = CreateQpIn::new();
    create
        .qpc_mut()
        .set_st(XRC)
        .set_pm_state(3)
        .set_pd(pd)
        .set_rq_type(1)
        .set_no_sq(true)
        .set_cqn_rcv(cq.number)
        .set_cqn_snd(cq.number)
        .set_srqn_rmpn_xrqn(srq.number)
        .set_xrcd(xrcd)
        .set_user_index(NO_USER_INDEX);
    let number = node.command(&create).unwrap().qpn();
    Qp {
        number,
        st: XRC,
        pd,
        ring: 0,
        record: 0,
        uar: 0,
        log_rq: 0,
        log_sq: 0,
        sq: 0,
        rq: 0,
    }
}

/// Initiators on `a`, target and shared queues on `b`.
struct Scene {
    pair: Pair,
    initiator: Qp,
    sends: Cq,
    target: Qp,
    /// The kernel's.
    kernel_cq: Cq,
    xrcd: u32,
    srq: Srq,
    receives: Cq,
    memory: u64,
    key: u32,
}

fn scene() -> Scene {
    scene_with(USER_INDEX)
}

fn scene_with(user_index: u32) -> Scene {
    let mut pair = Pair::new();
    let macs = [pair.a.model.config().mac, pair.b.model.config().mac];

    let node = &mut pair.a;
    let sends = node.create_cq(6, 1);
    let (some_xrcd, kernel_xrcd) = (alloc_xrcd(node), alloc_xrcd(node));
    let some_srq = create_srq(node, pair.pd[0], some_xrcd, &sends, NO_USER_INDEX);
    let plan = QpPlan {
        st: XRC,
        pd: pair.pd[0],
        send_cq: sends.number,
        receive_cq: sends.number,
        srq: Some(some_srq.number),
        user_index: 0x11,
    };
    let initiator = node
        .try_create_qp(plan, |qpc| {
            qpc.set_xrcd(kernel_xrcd);
        })
        .unwrap();

    let node = &mut pair.b;
    let kernel_pd = node.alloc_pd();
    let kernel_cq = node.create_cq(3, 1);
    let kernel_xrcd = alloc_xrcd(node);
    let kernel_srq = create_srq(node, kernel_pd, kernel_xrcd, &kernel_cq, NO_USER_INDEX);
    let receives = node.create_cq(6, 1);
    let xrcd = alloc_xrcd(node);
    let srq = create_srq(node, pair.pd[1], xrcd, &receives, user_index);
    let target = create_target(node, kernel_pd, &kernel_cq, &kernel_srq, xrcd);
    let memory = node.host.alloc(4096, 4096);
    let key = node.register(pair.pd[1], memory, 0, 4096, ALL);

    pair.a.make_init(&initiator);
    pair.b.make_init(&target);
    pair.a
        .make_rtr(&initiator, target.number, 200, Some((gid(2), macs[1])));
    pair.b
        .make_rtr(&target, initiator.number, 100, Some((gid(1), macs[0])));
    pair.a.make_rts(&initiator, 100);
    Scene {
        pair,
        initiator,
        sends,
        target,
        kernel_cq,
        xrcd,
        srq,
        receives,
        memory,
        key,
    }
}

impl Scene {
    fn send(&mut self, opcode: u8, imm: u32, srqn: u32, segments: &[u8]) {
        let mut all = srqn.to_be_bytes().to_vec();
        all.resize(16, 0);
        all.extend(segments);
        let node = &mut self.pair.a;
        node.post_send(&mut self.initiator, opcode, SIGNALED, imm, &all);
        node.ring_send(&self.initiator);
        self.pair.run();
    }

    fn post(&mut self, at: u64, len: u32) -> u16 {
        post(&mut self.pair.b, &mut self.srq, (self.key, at, len))
    }
}

#[test]
fn receives_complete_where_the_shared_queue_says() {
    // By user index, or by number where the queue was made without one.
    for (given, shown) in [(USER_INDEX, Some(USER_INDEX)), (NO_USER_INDEX, None)] {
        let mut s = scene_with(given);
        let srqn = s.srq.number;
        let shown = shown.unwrap_or(srqn);
        let first = s.post(0, 64);
        s.send(SEND, 0, srqn, &inline_segment(&[7; 20]));
        let second = s.post(64, 64);
        s.send(SEND_IMM, 0x1234, srqn, &inline_segment(&[8; 30]));
        assert_eq!(s.pair.b.host.bytes(s.memory, 20), [7; 20]);
        assert_eq!(s.pair.b.host.bytes(s.memory + 64, 30), [8; 30]);
        for (opcode, index, len) in [(2, first, 20), (3, second, 30)] {
            let cqe = s.pair.b.poll(&mut s.receives).unwrap();
            assert_eq!((cqe.opcode, cqe.syndrome), (opcode, 0));
            assert_eq!((cqe.counter, cqe.byte_count), (index, len));
            assert_eq!((cqe.user_index, cqe.qpn), (shown, s.target.number));
            let sent = s.pair.a.poll(&mut s.sends).unwrap();
            assert_eq!((sent.syndrome, sent.user_index), (0, 0x11));
        }
        // Nothing of it is the target's own.
        assert_eq!(s.pair.b.poll(&mut s.kernel_cq), None);
        assert_eq!(events(&mut s.pair.b, 0), [(COMM_EST, s.target.number)]);
    }
}

#[test]
fn remote_memory_is_that_of_the_shared_queues_protection_domain() {
    let mut s = scene();
    let (srqn, key) = (s.srq.number, s.key);
    let own = s.pair.a.host.alloc(4096, 4096);
    let own_key = s.pair.a.register(s.pair.pd[0], own, 0, 4096, ALL);
    let local = |at: u64, len: u32| data_segment((own_key, at, len));
    let with = |remote: Vec<u8>, rest: Vec<u8>| [remote, rest].concat();

    s.pair.a.host.bytes(own, 100).fill(0x5c);
    s.send(WRITE, 0, srqn, &with(remote_segment(8, key), local(0, 100)));
    assert_eq!(s.pair.b.host.bytes(s.memory + 8, 100), [0x5c; 100]);

    let index = s.post(0, 64);
    s.send(
        WRITE_IMM,
        0x99,
        srqn,
        &with(remote_segment(200, key), local(0, 50)),
    );
    let cqe = s.pair.b.poll(&mut s.receives).unwrap();
    assert_eq!((cqe.opcode, cqe.immediate), (1, 0x99));
    assert_eq!((cqe.counter, cqe.byte_count), (index, 50));
    assert_eq!(cqe.user_index, USER_INDEX);

    s.pair.b.host.bytes(s.memory + 1000, 3000).fill(0xa7);
    s.send(
        READ,
        0,
        srqn,
        &with(remote_segment(1000, key), local(1024, 3000)),
    );
    assert_eq!(s.pair.a.host.bytes(own + 1024, 3000), [0xa7; 3000]);

    s.pair.b.host.put(s.memory + 512, &41u64.to_be_bytes());
    let operand = [1u64.to_be_bytes(), [0; 8]].concat();
    s.send(
        FETCH_ADD,
        0,
        srqn,
        &[remote_segment(512, key), operand, local(512, 8)].concat(),
    );
    assert_eq!(s.pair.b.host.bytes(s.memory + 512, 8), 42u64.to_be_bytes());
    assert_eq!(s.pair.a.host.bytes(own + 512, 8), 41u64.to_be_bytes());
    let sent = s.pair.a.poll_all(&mut s.sends);
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|cqe| cqe.syndrome == 0));

    // The target's own protection domain counts for nothing.
    let theirs = s.pair.b.register(s.target.pd, s.memory, 0, 4096, ALL);
    s.send(
        WRITE,
        0,
        srqn,
        &with(remote_segment(8, theirs), local(0, 100)),
    );
    let failed = s.pair.a.poll(&mut s.sends).unwrap();
    assert_eq!(failed.syndrome, REMOTE_ACCESS);
}

#[test]
fn queues_outside_the_domain_are_refused() {
    enum Which {
        OtherDomain,
        NoXrc,
        Missing,
    }
    for which in [Which::OtherDomain, Which::NoXrc, Which::Missing] {
        let mut s = scene();
        s.post(0, 64);
        let node = &mut s.pair.b;
        let srqn = match which {
            Which::OtherDomain => {
                let xrcd = alloc_xrcd(node);
                create_srq(node, s.pair.pd[1], xrcd, &s.receives, 0x88).number
            }
            Which::NoXrc => crate::shared_receives::create_rmp(node, s.pair.pd[1]).0,
            Which::Missing => 0xabcde,
        };
        s.send(SEND, 0, srqn, &inline_segment(&[7; 20]));
        // Also what comes behind it.
        s.send(SEND, 0, s.srq.number, &inline_segment(&[7; 20]));
        let syndromes: Vec<u8> = s
            .pair
            .a
            .poll_all(&mut s.sends)
            .iter()
            .map(|cqe| cqe.syndrome)
            .collect();
        assert_eq!(syndromes, [REMOTE_ACCESS, FLUSHED]);
        assert_eq!(s.pair.b.poll(&mut s.receives), None);
        // A target has no last WQE event.
        let events = events(&mut s.pair.b, 0);
        assert!(events.contains(&(WQ_ACCESS, s.target.number)));
        assert!(!events.iter().any(|&(kind, _)| kind == SRQ_LAST_WQE));
        let mut query = QueryQpIn::new();
        query.set_qpn(s.target.number);
        let answer = s.pair.b.command(&query).unwrap();
        assert_eq!(answer.qpc().state(), 6);
    }
}

#[test]
fn what_a_failed_target_holds_is_flushed_to_the_shared_queue() {
    let mut s = scene();
    let index = s.post(0, 4096);
    // The first two packets of three.
    let own = s.pair.a.host.alloc(4096, 4096);
    let own_key = s.pair.a.register(s.pair.pd[0], own, 0, 4096, ALL);
    let mut segments = s.srq.number.to_be_bytes().to_vec();
    segments.resize(16, 0);
    segments.extend(data_segment((own_key, 0, 3000)));
    let node = &mut s.pair.a;
    node.post_send(&mut s.initiator, SEND, SIGNALED, 0, &segments);
    node.ring_send(&s.initiator);
    node.advance();
    let frames = std::mem::take(&mut node.host.frames);
    assert_eq!(frames.len(), 3);
    for frame in &frames[..2] {
        let node = &mut s.pair.b;
        node.model.receive(&mut node.host, frame);
        node.advance();
    }
    s.pair.b.make_error(&s.target);
    s.pair.b.advance();
    let cqe = s.pair.b.poll(&mut s.receives).unwrap();
    assert_eq!((cqe.opcode, cqe.syndrome), (0xe, FLUSHED));
    assert_eq!((cqe.counter, cqe.user_index), (index, USER_INDEX));
}

#[test]
fn a_queue_may_be_destroyed_before_its_target() {
    let mut s = scene();
    let mut dealloc = DeallocXrcdIn::new();
    dealloc.set_xrcd(s.xrcd);
    let refusal = s.pair.b.command(&dealloc).map(|_| ());
    assert_eq!(refusal, Err(refused(Syndrome::XrcdBusy)));
    let mut destroy = DestroyXrcSrqIn::new();
    destroy.set_xrc_srqn(s.srq.number);
    s.pair.b.command(&destroy).unwrap();
    s.send(SEND, 0, s.srq.number, &inline_segment(&[7; 20]));
    let failed = s.pair.a.poll(&mut s.sends).unwrap();
    assert_eq!(failed.syndrome, REMOTE_ACCESS);
    let mut destroy = DestroyQpIn::new();
    destroy.set_qpn(s.target.number);
    s.pair.b.command(&destroy).unwrap();
    s.pair.b.command(&dealloc).unwrap();
}

#[test]
fn an_initiator_flushes_in_error() {
    let mut s = scene();
    s.pair.a.make_error(&s.initiator);
    s.send(SEND, 0, s.srq.number, &inline_segment(&[7; 20]));
    let flushed = s.pair.a.poll(&mut s.sends).unwrap();
    assert_eq!((flushed.opcode, flushed.syndrome), (0xd, FLUSHED));
    assert_eq!(events(&mut s.pair.a, 0), []);
}
