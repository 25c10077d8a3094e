//! Force loopback: RC connections inside the device, with no address, no RoCE and no cable.

use bareverbs_firmware_cmds::qp::{Init2rtrQpIn, QueryQpIn};
use connectx_model::{Config, Syndrome};

use crate::common::queues::*;
use crate::common::{Failure, Node};
use crate::{SEND, WRITE, refused};

const READ: u8 = 0x10;
/// Several packets of 4096 bytes, and a bit.
const LEN: usize = 20_001;

/// A card with nothing but what its queues need: no address, and RoCE as it is after power-on, which is off.
fn bare(config: Config) -> Node {
    let mut node = Node::new(config);
    node.initialize();
    node.create_eq(7, ASYNC, 0);
    node.create_eq(7, 0, 1);
    node
}

fn queue_pair(node: &mut Node, pd: u32, st: u8) -> (Qp, Cq) {
    let cq = node.create_cq(6, 1);
    let plan = QpPlan {
        st,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 0x11,
    };
    let qp = node.create_qp(plan);
    node.make_init(&qp);
    (qp, cq)
}

/// To RTR by force, as Linux and SPDK do it: no path but `fl`, and packets of 4096 bytes, be the port's shorter.
fn force(node: &mut Node, qp: &Qp, peer: u32) -> Result<(), Failure> {
    let mut modify = Init2rtrQpIn::new();
    modify.set_qpn(qp.number).set_opt_param_mask(0xe);
    let qpc = modify.qpc_mut();
    qpc.set_st(qp.st)
        .set_pm_state(3)
        .set_mtu(5)
        .set_log_msg_max(30)
        .set_rre(true)
        .set_rwe(true)
        .set_remote_qpn(peer)
        .set_log_rra_max(2)
        .set_min_rnr_nak(1);
    qpc.primary_address_path_mut()
        .set_fl(true)
        .set_vhca_port_num(1);
    node.command(&modify).map(drop)
}

fn settle(node: &mut Node) {
    for _ in 0..200 {
        node.advance();
    }
}

/// SEND, WRITE and READ between two queue pairs of one card; `what` describes the case in failure messages.
fn goes_round(node: &mut Node, what: &str) {
    let pd = node.alloc_pd();
    let [mut a, mut b] = [(); 2].map(|()| queue_pair(node, pd, RC));
    force(node, &a.0, b.0.number).expect(what);
    force(node, &b.0, a.0.number).expect(what);
    node.make_rts(&a.0, 0);
    node.make_rts(&b.0, 0);
    let [from, to] = [(); 2].map(|()| node.host.alloc(LEN, 4096));
    let [own, peer] = [from, to].map(|at| node.register(pd, at, 0, LEN as u64, ALL));
    let whole = data_segment((own, 0, LEN as u32));
    let sent: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    for (opcode, one_sided) in [(SEND, false), (WRITE, true), (READ, true)] {
        // A READ goes the other way.
        let (source, sink) = if opcode == READ {
            (to, from)
        } else {
            (from, to)
        };
        node.host.put(source, &sent);
        node.host.put(sink, &vec![0; LEN]);
        let segments = if one_sided {
            [remote_segment(0, peer), whole.clone()].concat()
        } else {
            node.post_receive(&mut b.0, &[(peer, 0, LEN as u32)]);
            whole.clone()
        };
        node.post_send(&mut a.0, opcode, SIGNALED, 0, &segments);
        node.ring_send(&a.0);
        settle(node);
        let done = node.poll(&mut a.1).map(|cqe| (cqe.opcode, cqe.wqe_opcode));
        assert_eq!(done, Some((0, opcode)), "{what}");
        assert_eq!(node.poll(&mut b.1).is_some(), !one_sided, "{what}");
        assert!(node.host.bytes(sink, LEN) == sent, "{what}: {opcode:#x}");
    }
    let mut query = QueryQpIn::new();
    query.set_qpn(a.0.number);
    let queried = node.command(&query).expect(what);
    assert!(queried.qpc().primary_address_path().fl());
    assert!(node.host.frames.is_empty(), "{what}: on the cable");
    let stats = node.model.stats();
    assert_eq!((stats.frames_sent, stats.unknown_answers), (0, 0));
}

#[test]
fn packets_go_round_inside_the_device() {
    for up in [true, false] {
        let mut config = Config::new(1);
        config.link_up = up;
        // Too little for the path MTU.
        config.mtu = 1500;
        let mut node = bare(config.clone());
        goes_round(&mut node, "RoCE off");
        let mut node = bare(config);
        node.address(1);
        goes_round(&mut node, "RoCE on");
        let mut config = Config::new(1).infiniband();
        config.link_up = up;
        goes_round(&mut bare(config), "InfiniBand");
    }
}

#[test]
fn it_takes_the_capability_for_what_roce_is_and_an_rc_queue_pair() {
    let attempt = |change: &dyn Fn(&mut Config), roce: bool, st: u8| {
        let mut config = Config::new(1);
        change(&mut config);
        let mut node = bare(config);
        if roce {
            node.address(1);
        }
        let pd = node.alloc_pd();
        let (qp, _) = queue_pair(&mut node, pd, st);
        let answer = force(&mut node, &qp, qp.number);
        // The capabilities are RC's: what other types do is not known.
        assert_eq!(node.model.stats().unknown_answers, u64::from(st != RC));
        answer
    };
    let no = Err(refused(Syndrome::QpForceLoopback));
    for st in [UC, UD] {
        assert_eq!(attempt(&|_| {}, true, st), no);
    }
    let disabled = |config: &mut Config| {
        config.general.set_fl_rc_qp_when_roce_disabled(false);
        config.roce.set_fl_rc_qp_when_roce_disabled(false);
    };
    let enabled = |config: &mut Config| {
        config.roce.set_fl_rc_qp_when_roce_enabled(false);
    };
    assert_eq!(attempt(&disabled, false, RC), no);
    assert_eq!(attempt(&disabled, true, RC), Ok(()));
    assert_eq!(attempt(&enabled, false, RC), Ok(()));
    assert_eq!(attempt(&enabled, true, RC), no);
}

/// Connects two queue pairs of one card by the card's own address, one of them by force.
#[test]
fn an_end_without_force_loopback_receives_nothing() {
    let mut node = bare(Config::new(1));
    let gid = node.address(1);
    let mac = node.model.config().mac;
    let pd = node.alloc_pd();
    let [mut a, mut b] = [(); 2].map(|()| queue_pair(&mut node, pd, RC));
    force(&mut node, &a.0, b.0.number).unwrap();
    node.make_rtr(&b.0, a.0.number, 0, Some((gid, mac)));
    node.make_rts(&a.0, 0);
    let memory = node.host.alloc(4096, 4096);
    let key = node.register(pd, memory, 0, 4096, ALL);
    let write = [remote_segment(0, key), inline_segment(b"lost")].concat();
    node.post_send(&mut a.0, WRITE, SIGNALED, 0, &write);
    node.ring_send(&a.0);
    settle(&mut node);
    assert_eq!((node.poll(&mut a.1), node.poll(&mut b.1)), (None, None));
    assert_eq!(node.host.bytes(memory, 4), [0; 4]);
    assert!(node.model.stats().unknown_answers > 0);
}

/// The other way to reach oneself, by one's address, needs the link.
#[test]
fn the_own_address_is_out_of_reach_while_the_link_is_down() {
    let mut node = bare(Config::new(1));
    let gid = node.address(1);
    let mac = node.model.config().mac;
    let pd = node.alloc_pd();
    let [mut a, b] = [(); 2].map(|()| queue_pair(&mut node, pd, RC));
    node.make_rtr(&a.0, b.0.number, 0, Some((gid, mac)));
    node.make_rtr(&b.0, a.0.number, 0, Some((gid, mac)));
    node.make_rts(&a.0, 0);
    let memory = node.host.alloc(4096, 4096);
    let key = node.register(pd, memory, 0, 4096, ALL);
    let write = [remote_segment(0, key), inline_segment(b"late")].concat();
    node.model.set_link(&mut node.host, false);
    node.post_send(&mut a.0, WRITE, SIGNALED, 0, &write);
    node.ring_send(&a.0);
    settle(&mut node);
    assert_eq!(node.poll(&mut a.1), None);
    assert_eq!(node.host.bytes(memory, 4), [0; 4]);
    node.model.set_link(&mut node.host, true);
    // The requester sends again when its timer comes.
    node.now = node.model.next_deadline().expect("a timer runs");
    settle(&mut node);
    assert_eq!(node.poll(&mut a.1).map(|cqe| cqe.opcode), Some(0));
    assert_eq!(node.host.bytes(memory, 4), b"late");
}
