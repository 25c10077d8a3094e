//! Shared receive queues of either interface level: links, limits, life times.

use bareverbs_firmware_cmds::srq::{
    ArmXrcSrqIn, CreateRmpIn, DestroyRmpIn, ModifyRmpIn, QueryRmpIn,
};
use connectx_model::{Config, Syndrome};

use crate::common::queues::*;
use crate::common::{Node, page_list};
use crate::{COMM_EST, SEND, SRQ_LAST_WQE, SRQ_LIMIT, events, refused};

/// A shared receive queue of linked WQEs of 64 bytes.
pub(crate) fn create_rmp(node: &mut Node, pd: u32) -> (u32, u64, u64) {
    let ring = node.host.alloc(4096, 4096);
    let record = node.host.alloc(8, 64);
    for index in 0..16u16 {
        let next = (index + 1) % 16;
        node.host
            .put(ring + u64::from(index) * 64 + 2, &next.to_be_bytes());
    }
    let mut create = CreateRmpIn::new();
    let context = create.ctx_mut();
    context.set_state(1);
    context
        .wq_mut()
        .set_pd(pd)
        .set_log_wq_stride(6)
        .set_log_wq_sz(4)
        .set_dbr_addr(record);
    let (output, _) = node
        .command_with(&create, &page_list(ring, 1024), 0)
        .unwrap();
    (output.rmpn(), ring, record)
}

#[test]
fn a_shared_queue_follows_its_links_and_reports_its_limit() {
    let mut pair = Pair::new();
    let pd = pair.pd[1];
    let (srq, ring, record) = create_rmp(&mut pair.b, pd);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pd, memory, 0, 4096, ALL);
    let mut cq = pair.b.create_cq(6, 1);
    let plan = QpPlan {
        st: RC,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: Some(srq),
        user_index: 0x33,
    };
    let qp_b = pair.b.create_qp(plan);
    pair.b.make_init(&qp_b);
    let mut cq_a = pair.a.create_cq(6, 1);
    let mut qp_a = pair.a.create_qp(QpPlan {
        pd: pair.pd[0],
        send_cq: cq_a.number,
        receive_cq: cq_a.number,
        srq: None,
        ..plan
    });
    pair.a.make_init(&qp_a);
    let macs = [pair.a.model.config().mac, pair.b.model.config().mac];
    pair.a
        .make_rtr(&qp_a, qp_b.number, 9, Some((gid(2), macs[1])));
    pair.b
        .make_rtr(&qp_b, qp_a.number, 8, Some((gid(1), macs[0])));
    pair.a.make_rts(&qp_a, 8);

    // The list goes 0 → 5 → 2.
    for (index, next) in [(0u16, 5u16), (5, 2), (2, 7)] {
        let at = ring + u64::from(index) * 64;
        pair.b.host.put(at + 2, &next.to_be_bytes());
        pair.b
            .host
            .put(at + 16, &data_segment((key, u64::from(index) * 100, 64)));
        pair.b.host.put(at + 32, &data_segment((0x100, 0, 0)));
    }
    pair.b.host.put32(record, 3);
    let mut modify = ModifyRmpIn::new();
    modify.set_rmp_state(1).set_rmpn(srq);
    modify.bitmask_mut().set_lwm(true);
    modify.ctx_mut().set_state(1);
    modify.ctx_mut().wq_mut().set_lwm(2);
    pair.b.command(&modify).unwrap();
    assert_eq!(events(&mut pair.b, 0), []);
    let mut one = |pair: &mut Pair, round: u8| {
        pair.a
            .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[round; 10]));
        pair.a.ring_send(&qp_a);
        pair.run();
    };
    one(&mut pair, 1);
    // The QP was not in RTS when the first packet came. Two are left, which is not below the limit.
    assert_eq!(events(&mut pair.b, 0), [(COMM_EST, qp_b.number)]);
    // What was posted since counts: again two are left.
    pair.b.host.put32(record, 4);
    one(&mut pair, 2);
    assert_eq!(events(&mut pair.b, 0), []);
    one(&mut pair, 3);
    assert_eq!(events(&mut pair.b, 0), [(SRQ_LIMIT, srq)]);
    let got: Vec<_> = pair
        .b
        .poll_all(&mut cq)
        .iter()
        .map(|cqe| (cqe.counter, cqe.user_index))
        .collect();
    assert_eq!(got, [(0, 0x33), (5, 0x33), (2, 0x33)]);
    assert_eq!(pair.b.host.bytes(memory + 500, 10), [2; 10]);
    // It is reported once.
    assert_eq!(events(&mut pair.b, 0), []);
    let mut query = QueryRmpIn::new();
    query.set_rmpn(srq);
    assert_eq!(pair.b.command(&query).unwrap().rmp_context().wq().lwm(), 0);

    let mut destroy = DestroyRmpIn::new();
    destroy.set_rmpn(srq);
    assert_eq!(
        pair.b.command(&destroy).err(),
        Some(refused(Syndrome::SrqBusy))
    );
    let mut arm = ArmXrcSrqIn::new();
    arm.set_xrc_srqn(srq);
    assert_eq!(pair.b.command(&arm).err(), Some(refused(Syndrome::SrqKind)));
    pair.b.make_error(&qp_b);
    pair.run();
    assert_eq!(events(&mut pair.b, 0), [(SRQ_LAST_WQE, qp_b.number)]);
    assert!(pair.a.poll(&mut cq_a).is_some());
}

#[test]
fn level_zero_has_its_own_shared_queues() {
    use bareverbs_firmware_cmds::srq::{ArmRqIn, CreateSrqIn, DestroySrqIn, QuerySrqIn};
    let mut node = Node::new(Config {
        supported_issi: 0b01,
        ..Config::new(1)
    });
    node.initialize();
    let pd = node.alloc_pd();
    let ring = node.host.alloc(4096, 4096);
    let record = node.host.alloc(8, 64);
    let mut create = CreateSrqIn::new();
    create
        .srq_context_entry_mut()
        .set_log_srq_size(4)
        .set_log_rq_stride(2)
        .set_pd(pd)
        .set_dbr_addr(record);
    let list = page_list(ring, 1024);
    let (output, _) = node.command_with(&create, &list, 0).unwrap();
    let mut arm = ArmRqIn::new();
    arm.set_op_mod(1).set_srq_number(output.srqn()).set_lwm(17);
    assert_eq!(node.command(&arm).err(), Some(refused(Syndrome::SrqLimit)));
    arm.set_lwm(3);
    node.host.put32(record, 10);
    node.command(&arm).unwrap();
    let mut query = QuerySrqIn::new();
    query.set_srqn(output.srqn());
    let shown = node.command(&query).unwrap();
    assert_eq!(shown.srq_context_entry().lwm(), 3);
    assert_eq!(shown.srq_context_entry().wqe_cnt(), 10);
    let mut destroy = DestroySrqIn::new();
    destroy.set_srqn(output.srqn());
    node.command(&destroy).unwrap();
    let mut rmp = CreateRmpIn::new();
    rmp.ctx_mut().set_state(1);
    assert_eq!(
        node.command_with(&rmp, &list, 0).err(),
        Some(refused(Syndrome::SrqLevel))
    );
}
