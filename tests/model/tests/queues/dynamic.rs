//! Dynamic connections on the device: initiators and targets as Linux makes them.

use bareverbs_firmware_cmds::dct::{
    ArmDctIn, CreateDctIn, Dctc, DestroyDctIn, DrainDctIn, QueryDctIn,
};
use bareverbs_firmware_cmds::qp::{DestroyQpIn, QueryQpIn};
use connectx_model::{Config, Syndrome};

use crate::common::queues::*;
use crate::common::{Failure, Node};
use crate::{SEND, SRQ_LAST_WQE, WRITE, events, refused};

const DCI: u8 = 5;
const READ: u8 = 0x10;
const FETCH_ADD: u8 = 0x12;
const SEND_IMM: u8 = 0x0b;
const KEY: u64 = 0x1122_3344_5566_7788;
const TARGET_INDEX: u32 = 0x33;
const DCT_DRAINED: u8 = 0x1c;
const KEY_VIOLATION: u8 = 0x1d;
/// Syndromes of completions.
const LENGTH: u8 = 0x01;
const FLUSHED: u8 = 0x05;
const INVALID_REQUEST: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
const RETRIES: u8 = 0x15;
const RNR_RETRIES: u8 = 0x16;

/// A shared queue of 16 linked WQEs of 64 bytes.
struct Srq {
    number: u32,
    ring: u64,
    record: u64,
    posted: u16,
}

/// Receive side of the targets: SRQ, CQ and memory.
struct Receiver {
    srq: Srq,
    cq: Cq,
    memory: u64,
    key: u32,
}

struct Scene {
    pair: Pair,
    sends: Cq,
    receiver: Receiver,
    own: u64,
    own_key: u32,
}

fn initiator(node: &mut Node, pd: u32, cq: &Cq, user_index: u32) -> Qp {
    let plan = QpPlan {
        st: DCI,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index,
    };
    let mut qp = node
        .try_create_qp(plan, |qpc| {
            qpc.set_rq_type(3).set_log_rq_size(0);
        })
        .unwrap();
    qp.log_rq = 0;
    node.make_init(&qp);
    node.make_rtr(&qp, 0, 0, None);
    node.make_rts(&qp, 100);
    qp
}

fn context(s: &Scene) -> Dctc {
    let mut context = Dctc::ZERO;
    context
        .set_user_index(TARGET_INDEX)
        .set_cqn(s.receiver.cq.number)
        .set_srqn_xrqn(s.receiver.srq.number)
        .set_pd(s.pair.pd[1])
        .set_rre(true)
        .set_rwe(true)
        .set_rae(true)
        .set_min_rnr_nak(1)
        .set_mtu(3)
        .set_port(1)
        .set_hop_limit(64)
        .set_dc_access_key(KEY);
    context
}

fn create(node: &mut Node, context: &Dctc) -> Result<u32, Failure> {
    let mut create = CreateDctIn::new();
    *create.dct_context_entry_mut() = *context;
    node.command(&create).map(|output| output.dctn())
}

fn query(node: &mut Node, number: u32) -> Dctc {
    let mut query = QueryDctIn::new();
    query.set_dctn(number);
    *node.command(&query).unwrap().dct_context_entry()
}

fn drain(node: &mut Node, number: u32) -> Result<(), Failure> {
    let mut drain = DrainDctIn::new();
    drain.set_dctn(number);
    node.command(&drain).map(|_| ())
}

fn destroy(node: &mut Node, number: u32) -> Result<(), Failure> {
    let mut destroy = DestroyDctIn::new();
    destroy.set_dctn(number);
    node.command(&destroy).map(|_| ())
}

fn scene() -> Scene {
    scene_of(Config::new)
}

fn scene_of(config: impl Fn(u8) -> Config) -> Scene {
    let mut pair = Pair::of([config(1), config(2)]);
    let sends = pair.a.create_cq(6, 1);
    let own = pair.a.host.alloc(8192, 4096);
    let own_key = pair.a.register(pair.pd[0], own, 0, 8192, ALL);
    let node = &mut pair.b;
    node.create_eq(7, 1 << DCT_DRAINED | 1 << KEY_VIOLATION, 2);
    let (number, ring, record) = crate::shared_receives::create_rmp(node, pair.pd[1]);
    let srq = Srq {
        number,
        ring,
        record,
        posted: 0,
    };
    let cq = node.create_cq(6, 1);
    let memory = node.host.alloc(8192, 4096);
    let key = node.register(pair.pd[1], memory, 0, 8192, ALL);
    Scene {
        pair,
        sends,
        receiver: Receiver {
            srq,
            cq,
            memory,
            key,
        },
        own,
        own_key,
    }
}

impl Scene {
    fn initiator(&mut self) -> Qp {
        initiator(&mut self.pair.a, self.pair.pd[0], &self.sends, 0x11)
    }

    fn target(&mut self) -> u32 {
        let context = context(self);
        create(&mut self.pair.b, &context).unwrap()
    }

    fn address(&self, number: u32, key: u64) -> Vec<u8> {
        let mac = self.pair.b.model.config().mac;
        let mut address = address_vector(number, 0, &gid(2), 0, mac);
        address[..8].copy_from_slice(&key.to_be_bytes());
        address
    }

    fn put(&mut self, qp: &mut Qp, opcode: u8, imm: u32, (number, key): (u32, u64), rest: &[u8]) {
        let mut segments = self.address(number, key);
        segments.extend(rest);
        let node = &mut self.pair.a;
        node.post_send(qp, opcode, SIGNALED, imm, &segments);
    }

    fn send(&mut self, qp: &mut Qp, opcode: u8, imm: u32, to: (u32, u64), rest: &[u8]) {
        self.put(qp, opcode, imm, to, rest);
        self.pair.a.ring_send(qp);
        self.pair.run();
    }

    fn receive(&mut self, at: u64, len: u32) -> u16 {
        let (node, srq) = (&mut self.pair.b, &mut self.receiver.srq);
        let index = srq.posted % 16;
        let wqe = srq.ring + u64::from(index) * 64;
        let piece = (self.receiver.key, at, len);
        node.host.put(wqe + 16, &data_segment(piece));
        node.host.put(wqe + 32, &data_segment((0x100, 0, 0)));
        srq.posted += 1;
        node.host.put32(srq.record, u32::from(srq.posted));
        index
    }

    fn sent(&mut self) -> Vec<u8> {
        let cqes = self.pair.a.poll_all(&mut self.sends);
        cqes.iter().map(|cqe| cqe.syndrome).collect()
    }

    fn local(&self, at: u64, len: u32) -> Vec<u8> {
        data_segment((self.own_key, at, len))
    }

    /// Lets so much time pass that retries end.
    fn wait(&mut self) {
        for _ in 0..2000 {
            for node in [&mut self.pair.a, &mut self.pair.b] {
                node.sleep(std::time::Duration::from_millis(1));
            }
            self.pair.run();
        }
    }
}

fn with(first: Vec<u8>, second: &[u8]) -> Vec<u8> {
    [&first[..], second].concat()
}

#[test]
fn one_initiator_has_several_targets() {
    let mut s = scene();
    let mut dci = s.initiator();
    let targets = [s.target(), s.target(), s.target()];
    assert_ne!(targets[0], targets[1]);
    // All in one doorbell, so that each has to wait for the last one's answers.
    let mut slots = Vec::new();
    for nth in 0..9u8 {
        slots.push(s.receive(u64::from(nth) * 64, 64));
        let to = (targets[usize::from(nth) % 3], KEY);
        s.put(
            &mut dci,
            SEND_IMM,
            nth.into(),
            to,
            &inline_segment(&[nth; 20]),
        );
    }
    s.pair.a.ring_send(&dci);
    s.pair.run();
    assert_eq!(s.sent(), [0; 9]);
    for nth in 0..9u8 {
        let cqe = s.pair.b.poll(&mut s.receiver.cq).unwrap();
        assert_eq!((cqe.opcode, cqe.byte_count), (3, 20));
        assert_eq!(
            (cqe.user_index, cqe.qpn),
            (TARGET_INDEX, targets[usize::from(nth) % 3])
        );
        assert_eq!(
            (cqe.immediate, cqe.counter),
            (nth.into(), slots[usize::from(nth)])
        );
        let at = s.receiver.memory + u64::from(nth) * 64;
        assert_eq!(s.pair.b.host.bytes(at, 20), [nth; 20]);
    }
    assert_eq!(s.pair.b.poll(&mut s.receiver.cq), None);
}

#[test]
fn one_target_has_several_initiators() {
    let mut s = scene();
    let target = s.target();
    let mut all: Vec<Qp> = (0..5).map(|_| s.initiator()).collect();
    s.pair.a.host.bytes(s.own, 8192).fill(9);
    for round in 0..3 {
        for qp in &mut all {
            s.receive(0, 4096);
            // Of four packets, which alternate with those of the others.
            let data = s.local(round * 8, 4000);
            s.put(qp, SEND, 0, (target, KEY), &data);
        }
        for qp in &all {
            s.pair.a.ring_send(qp);
        }
        s.pair.run();
    }
    assert_eq!(s.sent(), [0; 15]);
    let received = s.pair.b.poll_all(&mut s.receiver.cq);
    assert_eq!(received.len(), 15);
    assert!(
        received
            .iter()
            .all(|cqe| cqe.byte_count == 4000 && cqe.syndrome == 0)
    );
    assert!(s.pair.b.host.bytes(s.receiver.memory, 4000) == [9; 4000]);
}

#[test]
fn operations_reach_the_targets_memory() {
    let mut s = scene();
    let mut dci = s.initiator();
    let to = (s.target(), KEY);
    let remote = |s: &Scene, at| remote_segment(at, s.receiver.key);
    s.pair.a.host.bytes(s.own, 3000).fill(5);
    let rest = with(remote(&s, 100), &s.local(0, 3000));
    s.send(&mut dci, WRITE, 0, to, &rest);
    assert!(s.pair.b.host.bytes(s.receiver.memory + 100, 3000) == [5; 3000]);
    s.pair.b.host.bytes(s.receiver.memory + 4096, 2500).fill(6);
    let rest = with(remote(&s, 4096), &s.local(4096, 2500));
    s.send(&mut dci, READ, 0, to, &rest);
    assert!(s.pair.a.host.bytes(s.own + 4096, 2500) == [6; 2500]);
    let counter = s.receiver.memory + 8000;
    s.pair.b.host.put(counter, &atomic(41));
    let mut rest = remote(&s, 8000);
    rest.extend(1u64.to_be_bytes());
    rest.extend([0; 8]);
    rest.extend(s.local(0, 8));
    s.send(&mut dci, FETCH_ADD, 0, to, &rest);
    assert_eq!(s.sent(), [0, 0, 0]);
    assert_eq!(s.pair.b.host.bytes(counter, 8).to_vec(), atomic(42));
    assert_eq!(s.pair.a.host.bytes(s.own, 8).to_vec(), atomic(41));
}

/// An atomic's operand as the cards have it in memory before a driver chooses the host's order.
fn atomic(value: u64) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

#[test]
fn a_wrong_key_is_refused_and_reported_once_per_arming() {
    let mut s = scene();
    let target = s.target();
    s.receive(0, 64);
    let data = inline_segment(&[7; 20]);
    for (armed, count) in [(false, 1), (true, 2), (false, 3)] {
        let mut dci = s.initiator();
        if armed {
            let mut arm = ArmDctIn::new();
            arm.set_dct_number(target);
            s.pair.b.command(&arm).unwrap();
        }
        s.put(&mut dci, SEND, 0, (target, KEY ^ 1), &data);
        s.send(&mut dci, SEND, 0, (target, KEY), &data);
        assert_eq!(s.sent(), [REMOTE_ACCESS, FLUSHED]);
        let violations = dct_events(&mut s.pair.b);
        let expected: &[_] = if armed {
            &[(KEY_VIOLATION, target)]
        } else {
            &[]
        };
        assert_eq!(violations, expected);
        let context = query(&mut s.pair.b, target);
        assert_eq!(
            (context.state(), context.dc_access_key_violation_count()),
            (0, count)
        );
    }
    // The target goes on.
    let mut dci = s.initiator();
    s.send(&mut dci, SEND, 0, (target, KEY), &data);
    assert_eq!(s.sent(), [0]);
}

#[test]
fn what_is_refused_ends_the_initiator_and_not_the_target() {
    let mut s = scene();
    let target = s.target();
    let data = inline_segment(&[7; 20]);
    // A key that is not one, and a buffer too short.
    let mut dci = s.initiator();
    let rest = with(remote_segment(0, s.receiver.key ^ 0xff00), &data);
    s.send(&mut dci, WRITE, 0, (target, KEY), &rest);
    assert_eq!(s.sent(), [REMOTE_ACCESS]);
    let mut dci = s.initiator();
    s.receive(0, 8);
    s.send(&mut dci, SEND, 0, (target, KEY), &data);
    assert_eq!(s.sent(), [INVALID_REQUEST]);
    let cqe = s.pair.b.poll(&mut s.receiver.cq).unwrap();
    assert_eq!((cqe.opcode, cqe.syndrome), (0xe, LENGTH));
    // A target that does not let writes in.
    let mut closed = context(&s);
    closed.set_rwe(false);
    let closed = create(&mut s.pair.b, &closed).unwrap();
    let mut dci = s.initiator();
    let rest = with(remote_segment(0, s.receiver.key), &data);
    s.send(&mut dci, WRITE, 0, (closed, KEY), &rest);
    assert_eq!(s.sent(), [INVALID_REQUEST]);
    assert_eq!(dct_events(&mut s.pair.b), []);
    for number in [target, closed] {
        assert_eq!(query(&mut s.pair.b, number).state(), 0);
    }
    let mut dci = s.initiator();
    s.receive(0, 64);
    s.send(&mut dci, SEND, 0, (target, KEY), &data);
    assert_eq!(s.sent(), [0]);
}

#[test]
fn an_initiator_waits_for_receives() {
    let mut s = scene();
    let target = s.target();
    let mut dci = s.initiator();
    let data = inline_segment(&[7; 20]);
    s.send(&mut dci, SEND, 0, (target, KEY), &data);
    assert_eq!(s.sent(), []);
    s.receive(0, 64);
    s.wait();
    assert_eq!(s.sent(), [0]);
    let cqe = s.pair.b.poll(&mut s.receiver.cq).unwrap();
    assert_eq!((cqe.opcode, cqe.byte_count), (2, 20));
}

#[test]
fn a_target_drains_before_it_is_destroyed() {
    let mut s = scene();
    let target = s.target();
    let mut dci = s.initiator();
    s.receive(0, 64);
    let data = inline_segment(&[7; 20]);
    s.send(&mut dci, SEND, 0, (target, KEY), &data);
    assert_eq!(s.sent(), [0]);
    let node = &mut s.pair.b;
    assert_eq!(destroy(node, target), Err(refused(Syndrome::DctNotDrained)));
    drain(node, target).unwrap();
    node.advance();
    assert_eq!(dct_events(node), [(DCT_DRAINED, target)]);
    assert_eq!(query(node, target).state(), 2);
    assert_eq!(drain(node, target), Err(refused(Syndrome::DctNotActive)));
    s.send(&mut dci, SEND, 0, (target, KEY), &data);
    s.wait();
    assert_eq!(s.sent(), [RETRIES]);
    let node = &mut s.pair.b;
    let last = events(node, 0);
    assert!(
        !last.iter().any(|&(kind, _)| kind == SRQ_LAST_WQE),
        "{last:?}"
    );
    destroy(node, target).unwrap();
    assert_eq!(destroy(node, target), Err(refused(Syndrome::DctUnknown)));
    assert_eq!(drain(node, target), Err(refused(Syndrome::DctUnknown)));
}

#[test]
fn a_message_that_a_drained_target_had_begun_is_flushed() {
    let mut s = scene();
    let target = s.target();
    let mut dci = s.initiator();
    let slot = s.receive(0, 4096);
    let rest = s.local(0, 3000);
    s.put(&mut dci, SEND, 0, (target, KEY), &rest);
    s.pair.a.ring_send(&dci);
    s.pair.a.advance();
    let frames = std::mem::take(&mut s.pair.a.host.frames);
    assert_eq!(frames.len(), 3);
    let node = &mut s.pair.b;
    for frame in &frames[..2] {
        node.model.receive(&mut node.host, frame);
        node.advance();
    }
    drain(node, target).unwrap();
    node.advance();
    let cqe = node.poll(&mut s.receiver.cq).unwrap();
    assert_eq!(
        (cqe.opcode, cqe.syndrome, cqe.counter),
        (0xe, FLUSHED, slot)
    );
    destroy(node, target).unwrap();
}

#[test]
fn an_initiator_that_starts_over_is_not_taken_for_its_past() {
    let mut s = scene();
    let target = s.target();
    let mut dci = s.initiator();
    for round in 0..4u8 {
        s.receive(0, 64);
        s.send(
            &mut dci,
            SEND,
            0,
            (target, KEY),
            &inline_segment(&[round; 20]),
        );
        assert_eq!(s.sent(), [0], "{round}");
        assert_eq!(s.pair.b.host.bytes(s.receiver.memory, 20), [round; 20]);
        let node = &mut s.pair.a;
        node.make_reset(&mut dci);
        node.make_init(&dci);
        node.make_rtr(&dci, 0, 0, None);
        node.make_rts(&dci, 100);
    }
}

#[test]
fn refusals() {
    type Change = fn(&mut Dctc);
    let cases: [(Change, Syndrome); 13] = [
        (|c| _ = c.set_state(1), Syndrome::DctStateGiven),
        (|c| _ = c.set_ece(1), Syndrome::QpEce),
        (|c| _ = c.set_cs_res(1), Syndrome::DctScatter),
        (|c| _ = c.set_cs_res(2), Syndrome::DctScatter),
        (|c| _ = c.set_pd(0xabcd), Syndrome::DctPd),
        (|c| _ = c.set_cqn(0xabcd), Syndrome::DctCq),
        (|c| _ = c.set_srqn_xrqn(0xabcd), Syndrome::DctSrq),
        (|c| _ = c.set_counter_set_id(99), Syndrome::QpCounter),
        (|c| _ = c.set_port(2), Syndrome::QpPort),
        (|c| _ = c.set_pkey_index(0x7fff), Syndrome::QpPkey),
        (|c| _ = c.set_mtu(6), Syndrome::QpMtu),
        (|c| _ = c.set_my_addr_index(0xff), Syndrome::QpSourceAddress),
        (|c| _ = c.set_my_addr_index(7), Syndrome::QpNoAddress),
    ];
    let mut s = scene();
    for (nth, (change, syndrome)) in cases.into_iter().enumerate() {
        let mut context = context(&s);
        change(&mut context);
        let result = create(&mut s.pair.b, &context);
        assert_eq!(result, Err(refused(syndrome)), "{nth}");
    }
    // A target is no QP to the commands of QPs, nor a QP a target.
    let target = s.target();
    let node = &mut s.pair.b;
    let mut query = QueryQpIn::new();
    query.set_qpn(target);
    let result = node.command(&query).map(|_| ());
    assert_eq!(result, Err(refused(Syndrome::QpUnknown)));
    let mut destroy_qp = DestroyQpIn::new();
    destroy_qp.set_qpn(target);
    let result = node.command(&destroy_qp).map(|_| ());
    assert_eq!(result, Err(refused(Syndrome::QpUnknown)));
    let dci = s.initiator();
    let result = drain(&mut s.pair.a, dci.number);
    assert_eq!(result, Err(refused(Syndrome::DctUnknown)));
    // More streams than are offered.
    let plan = QpPlan {
        st: DCI,
        pd: s.pair.pd[0],
        send_cq: s.sends.number,
        receive_cq: s.sends.number,
        srq: None,
        user_index: 0,
    };
    let streams = s.pair.a.try_create_qp(plan, |qpc| {
        qpc.set_log_num_dci_stream_channels(6);
    });
    assert_eq!(streams.map(|_| ()), Err(refused(Syndrome::QpStreams)));
}

#[test]
fn a_card_without_them_refuses_both() {
    let mut s = scene_of(|unit| {
        let mut config = Config::new(unit);
        config.general_max.set_dct(false);
        config
    });
    let context = context(&s);
    let result = create(&mut s.pair.b, &context);
    assert_eq!(result, Err(refused(Syndrome::DctUnsupported)));
    let plan = QpPlan {
        st: DCI,
        pd: s.pair.pd[0],
        send_cq: s.sends.number,
        receive_cq: s.sends.number,
        srq: None,
        user_index: 0,
    };
    let result = s.pair.a.try_create_qp(plan, |_| {});
    assert_eq!(result.map(|_| ()), Err(refused(Syndrome::QpType)));
}

/// Events of targets, whose numbers are where those of QPs are.
fn dct_events(node: &mut Node) -> Vec<(u8, u32)> {
    let all = events(node, 2);
    all.into_iter()
        .filter(|&(kind, _)| matches!(kind, DCT_DRAINED | KEY_VIOLATION))
        .collect()
}

/// RNR retries that end, as [`RNR_RETRIES`] says.
#[test]
fn rnr_retries_end() {
    let mut s = scene();
    let target = s.target();
    let mut dci = s.initiator();
    let mut change = bareverbs_firmware_cmds::qp::Rts2rtsQpIn::new();
    change.set_qpn(dci.number).set_opt_param_mask(1 << 13);
    change.qpc_mut().set_rnr_retry(2).set_pm_state(3);
    s.pair.a.command(&change).unwrap();
    s.send(&mut dci, SEND, 0, (target, KEY), &inline_segment(&[7; 20]));
    s.wait();
    assert_eq!(s.sent(), [RNR_RETRIES]);
}

/// The extension of RTS2RTS_QP: cut off, without its flag, with an unknown field, of a sound stream, on a card without it.
#[test]
fn extensions_that_are_refused() {
    let mut s = scene();
    let dci = s.initiator();
    let ask = |node: &mut Node, flag, mask, tail: &[u8]| {
        let mut change = bareverbs_firmware_cmds::qp::Rts2rtsQpIn::new();
        change.set_qpn(dci.number).set_qpc_ext(flag);
        change.set_opt_param_mask_95_32(mask);
        node.command_with(&change, tail, 0).map(|_| ())
    };
    let whole = [0; 0xc0];
    let node = &mut s.pair.a;
    for (flag, mask, tail, syndrome) in [
        (true, 1, &whole[..0xbf], Syndrome::QpExtension),
        (false, 1, &whole[..], Syndrome::QpExtension),
        (true, 2, &whole[..], Syndrome::QpExtension),
        (true, 1, &whole[..], Syndrome::QpStreamSound),
    ] {
        assert_eq!(ask(node, flag, mask, tail), Err(refused(syndrome)));
    }
    // One that asks for nothing is none.
    assert_eq!(ask(node, true, 0, &whole), Ok(()));
    let mut s = scene_of(|unit| {
        let mut config = Config::new(unit);
        config.general.set_qpc_extension(false);
        config
    });
    assert_eq!(s.initiator().number, dci.number);
    let result = ask(&mut s.pair.a, true, 1, &whole);
    assert_eq!(result, Err(refused(Syndrome::QpExtension)));
}
