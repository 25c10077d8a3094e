//! Expectations of DPDK's driver for Linux (`librte_net_mlx5`) towards a card, and the kernel's part of them.

use crate::common::queues::*;
use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::counter::AllocQCounterIn;
use bareverbs_firmware_cmds::cq::QueryCqIn;
use connectx_model::{Config, Syndrome};
use zerocopy::{FromBytes, IntoBytes};

/// `MLX5_SHARED_RESOURCE_UID`: the kernel makes event queues and counters for all users.
const SHARED: u16 = 0xffff;

fn status_of_cq(node: &mut Node, cqn: u32) -> u8 {
    let mut query = QueryCqIn::new();
    query.set_cqn(cqn);
    node.command(&query).unwrap().cq_context().status()
}

/// Its send queues' consumer index is a `uint16_t`, which it writes into the record of 24 bits
/// (`mlx5_tx_handle_completion`): after 65536 completions it begins at 0.
#[test]
fn a_consumer_that_counts_in_sixteen_bits_does_not_overrun() {
    let mut pair = Pair::new();
    let mut cq = pair.a.create_cq(3, 1);
    let plan = QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    };
    let mut qp = pair.a.create_qp(plan);
    let mac = pair.a.model.config().mac;
    pair.a.make_init(&qp);
    pair.a.make_rtr(&qp, qp.number, 5, Some((gid(1), mac)));
    pair.a.make_rts(&qp, 5);
    let mut completed = 0;
    while completed < (1 << 16) + 100 {
        for _ in 0..8 {
            // NOPs complete without a peer.
            pair.a.post_send(&mut qp, 0, SIGNALED, 0, &[]);
        }
        pair.a.ring_send(&qp);
        pair.run();
        completed += pair.a.poll_all(&mut cq).len();
        pair.a.host.put32(cq.record, cq.consumer & 0xffff);
    }
    assert_eq!(status_of_cq(&mut pair.a, cq.number), 0);
    assert_eq!(pair.a.model.stats().cq_overruns, 0);
    // A queue that is full is still found to be.
    for _ in 0..9 {
        pair.a.post_send(&mut qp, 0, SIGNALED, 0, &[]);
    }
    pair.a.ring_send(&qp);
    pair.run();
    assert_eq!(status_of_cq(&mut pair.a, cq.number), 9);
    assert_eq!(pair.a.model.stats().cq_overruns, 1);
}

fn counter_of(node: &mut Node, uid: u16) -> Result<u8, Failure> {
    let mut bytes = AllocQCounterIn::new().as_bytes().to_vec();
    bytes[2..4].copy_from_slice(&uid.to_be_bytes());
    let alloc = AllocQCounterIn::read_from_bytes(&bytes).unwrap();
    node.command(&alloc).map(|output| output.counter_set_id())
}

#[test]
fn the_kernel_makes_what_all_users_share_under_a_number_of_its_own() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let shared = counter_of(&mut node, SHARED).unwrap();
    assert_ne!(counter_of(&mut node, 0).unwrap(), shared);
    let unknown = Failure::Status(
        Syndrome::UidNotZero.status() as u8,
        Syndrome::UidNotZero.code(),
    );
    assert_eq!(counter_of(&mut node, SHARED - 1), Err(unknown));
    // A card without user contexts has no such number.
    let mut config = Config::new(1);
    config.general.set_log_max_uctx(0);
    let mut node = Node::new(config);
    node.initialize();
    assert_eq!(counter_of(&mut node, SHARED), Err(unknown));
}
