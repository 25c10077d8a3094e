//! From frames to buffers and completions.

use crate::common::page_list;
use crate::common::queues::data_segment;
use crate::lab::*;
use bareverbs_firmware_cmds::rq::ModifyRqIn;
use bareverbs_firmware_cmds::srq::CreateRmpIn;
use bareverbs_firmware_cmds::tir::{ModifyRqtIn, ModifyTirIn};
use connectx_model::{Config, Syndrome};

#[test]
fn a_frame_is_written_to_its_buffer_and_completed() {
    let mut lab = Lab::new();
    lab.fill(2);
    let mut frame = good_udp_frame(OWN, OTHER, (1, 2), &[9; 101]);
    lab.receive(&frame);
    let done = lab.received().unwrap();
    assert_eq!((done.opcode(), done.counter()), (RECEIVED, 0));
    assert_eq!(done.length(), frame.len() as u32);
    assert_eq!(done.word(0x20), 0x22);
    // The flow's tag, which Linux makes the packet's mark.
    assert_eq!(done.word(0x38), 0);
    assert_eq!(done.half(0x14), sum(&frame[14..]));
    // Layers 2 to 4 are right; UDP over IPv4.
    assert_eq!((done.0[0x1c], done.0[0x1d]), (0b111, 2 << 4 | 2 << 2));
    let at = lab.buffer(0);
    assert_eq!(lab.node.host.bytes(at, frame.len()), frame);

    // The same with a broken payload: the sum is of what came, the verdict another.
    frame[90] ^= 0x40;
    lab.receive(&frame);
    let done = lab.received().unwrap();
    assert_eq!(done.half(0x14), sum(&frame[14..]));
    assert_eq!(done.0[0x1c], 0b011);
    assert_eq!(done.counter(), 1);
}

#[test]
fn padding_is_received_and_not_summed() {
    let mut lab = Lab::new();
    lab.fill(1);
    let mut frame = good_udp_frame(OWN, OTHER, (1, 2), b"x");
    let end = frame.len();
    frame.resize(60, 0x5a);
    lab.receive(&frame);
    let done = lab.received().unwrap();
    assert_eq!(done.length(), 60);
    assert_eq!(done.half(0x14), sum(&frame[14..end]));
}

#[test]
fn tags_are_stripped_unless_the_queue_keeps_them() {
    let mut lab = Lab::new();
    lab.fill(4);
    let plain = good_udp_frame(OWN, OTHER, (1, 2), &[9; 101]);
    let mut tagged = plain.clone();
    tagged.splice(12..12, [0x81, 0x00, 0xa0, 0x05]);
    lab.receive(&tagged);
    let done = lab.received().unwrap();
    assert_eq!(done.length(), plain.len() as u32);
    assert_eq!(done.half(0x1e), 0xa005);
    assert_eq!(done.0[0x1d] & 1, 1);
    assert_eq!(done.half(0x14), sum(&plain[14..]));
    let at = lab.buffer(0);
    assert_eq!(lab.node.host.bytes(at, plain.len()), plain);

    // A service tag stays.
    let mut service = plain.clone();
    service.splice(12..12, [0x88, 0xa8, 0x00, 0x05]);
    lab.receive(&service);
    let done = lab.received().unwrap();
    assert_eq!((done.length(), done.0[0x1d] & 1), (service.len() as u32, 0));

    let mut modify = ModifyRqIn::new();
    modify
        .set_rqn(lab.rq.number)
        .set_rq_state(RDY)
        .set_modify_bitmask(1 << 1);
    modify.ctx_mut().set_state(RDY).set_vsd(true);
    lab.node.command(&modify).unwrap();
    lab.receive(&tagged);
    let done = lab.received().unwrap();
    assert_eq!((done.length(), done.0[0x1d] & 1), (tagged.len() as u32, 0));
    // The sum starts behind the tag all the same.
    assert_eq!(done.half(0x14), sum(&tagged[18..]));
    let at = lab.buffer(2);
    assert_eq!(lab.node.host.bytes(at, tagged.len()), tagged);
}

#[test]
fn frames_are_scattered_and_the_padding_bit_is_no_length() {
    let mut lab = Lab::new();
    let frame = good_udp_frame(OWN, OTHER, (1, 2), &[9; 500]);
    let (a, b) = (lab.memory + 0x5003, lab.memory + 0x9001);
    // Linux sets the highest bit, which asks for padding in front.
    lab.post_buffer(&[(lab.key, a, 1 << 31 | 100), (lab.key, b, 1 << 31 | 1000)]);
    lab.receive(&frame);
    assert_eq!(lab.received().unwrap().length(), frame.len() as u32);
    assert_eq!(lab.node.host.bytes(a, 100), &frame[..100]);
    assert_eq!(lab.node.host.bytes(b, frame.len() - 100), &frame[100..]);
}

#[test]
fn without_a_buffer_a_frame_is_dropped_and_counted() {
    let mut lab = Lab::new();
    let frame = good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]);
    lab.receive(&frame);
    lab.receive(&frame);
    assert!(lab.received().is_none());
    assert_eq!(lab.out_of_buffer(), 2);
    lab.fill(1);
    lab.receive(&frame);
    assert_eq!(lab.received().unwrap().counter(), 0);
    assert_eq!(lab.out_of_buffer(), 2);
}

#[test]
fn a_frame_beyond_its_buffer_costs_one_wqe() {
    let mut lab = Lab::new();
    let at = lab.memory;
    lab.post_buffer(&[(lab.key, at, 64)]);
    lab.fill(1);
    let frame = good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]);
    lab.receive(&frame);
    let failed = lab.received().unwrap();
    assert_eq!(
        (failed.opcode(), failed.syndrome()),
        (RECEIVE_FAILED, LENGTH)
    );
    assert_eq!(failed.counter(), 0);
    lab.receive(&frame);
    assert_eq!(lab.received().unwrap().opcode(), RECEIVED);
    assert_eq!(lab.rq_context().state(), RDY);
}

#[test]
fn a_buffer_out_of_reach_stops_the_queue_which_flushes() {
    let mut lab = Lab::new();
    let at = lab.memory;
    lab.post_buffer(&[(lab.key ^ 1, at, 2048)]);
    lab.fill(2);
    let frame = good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]);
    lab.receive(&frame);
    let codes: Vec<_> = std::iter::from_fn(|| lab.received())
        .map(|entry| (entry.opcode(), entry.syndrome(), entry.counter()))
        .collect();
    let flushed = |counter| (RECEIVE_FAILED, FLUSHED, counter);
    assert_eq!(
        codes,
        [(RECEIVE_FAILED, PROTECTION, 0), flushed(1), flushed(2)]
    );
    assert_eq!(lab.rq_context().state(), ERR);
    // Nothing rings for what is posted now; it is found nevertheless.
    lab.fill(1);
    lab.node.sleep(std::time::Duration::from_millis(1));
    assert_eq!(lab.received().unwrap().counter(), 3);
    lab.receive(&frame);
    assert!(lab.received().is_none());

    lab.move_rq(ERR, RST).unwrap();
    lab.rq.posted = 0;
    lab.node.host.put32(lab.rq.record, 0);
    lab.move_rq(RST, RDY).unwrap();
    lab.fill(1);
    lab.receive(&frame);
    assert_eq!(lab.received().unwrap().counter(), 0);
}

#[test]
fn a_queue_that_is_not_ready_receives_nothing() {
    let mut lab = Lab::new();
    lab.fill(1);
    let frame = good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]);
    lab.move_rq(RDY, ERR).unwrap();
    assert_eq!(lab.received().unwrap().syndrome(), FLUSHED);
    lab.receive(&frame);
    assert!(lab.received().is_none());
    assert_eq!(lab.out_of_buffer(), 0);
}

#[test]
fn the_tag_of_the_flow_is_in_the_completion() {
    let mut lab = Lab::new();
    lab.fill(1);
    let tir = lab.tir;
    lab.steer(tir, 0x0abcde);
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]));
    assert_eq!(lab.received().unwrap().word(0x38), 0x0abcde);
}

#[test]
fn a_queue_of_tunnels_gets_the_verdicts_of_inner_headers() {
    let mut lab = Lab::new();
    lab.fill(6);
    let queue = lab.rq.number;
    let tir = lab.try_tir(|context| {
        context.set_inline_rqn(queue).set_tunneled_offload_en(true);
    });
    let (plain, tunnels) = (lab.tir, tir.unwrap());
    let inner = good_udp_frame(OTHER, OWN, (3, 4), &[7; 33]);
    let inside = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat();
    let frame = good_udp_frame(OWN, OTHER, (1, 4789), &inside);
    let inner_at = frame.len() - inner.len();
    let mut take = |tir: u32, frame: &[u8]| {
        lab.steer(tir, 0);
        lab.receive(frame);
        let done = lab.received().unwrap();
        // The sum is that of the whole packet, whatever is in it.
        assert_eq!(done.half(0x14), sum(&frame[14..]));
        (done.0[0] & 3, done.0[0x1c])
    };
    assert_eq!(take(plain, &frame), (0, 0b111));
    assert_eq!(take(tunnels, &frame), (1, 0b111));
    assert_eq!(take(tunnels, &inner), (0, 0b111));
    // What is wrong inside only is so for a queue of tunnels, and what is wrong outside for both.
    let mut within = frame.clone();
    *within.last_mut().unwrap() ^= 1;
    within[40..42].fill(0);
    assert_eq!(take(plain, &within), (0, 0b111));
    assert_eq!(take(tunnels, &within), (1, 0b011));
    let mut around = frame.clone();
    around[inner_at] ^= 1;
    assert_eq!(take(tunnels, &around), (1, 0b011));

    let mut config = Config::new(1);
    config
        .ethernet
        .set_tunnel_stateless_vxlan(false)
        .set_tunnel_stateless_gre(false);
    let refusal = Lab::with(config).try_tir(|context| {
        context.set_tunneled_offload_en(true);
    });
    assert_eq!(refusal, Err(refused(Syndrome::TirFeature)));
}

/// An indirect TIR with a hash over addresses and ports of UDP.
fn spread(lab: &mut Lab, table: u32) -> u32 {
    lab.try_tir(|context| {
        context
            .set_disp_type(1)
            .set_indirect_table(table)
            .set_rx_hash_fn(2);
        for (at, byte) in context.rx_hash_toeplitz_key_mut().iter_mut().enumerate() {
            *byte = (at * 37 + 11) as u8;
        }
        context
            .rx_hash_field_selector_outer_mut()
            .set_l4_prot_type(true)
            .set_selected_fields(0xf);
    })
    .unwrap()
}

#[test]
fn flows_are_spread_over_the_table_and_the_table_can_change() {
    let mut lab = Lab::new();
    let first = core::mem::replace(&mut lab.rq, lab_rq(&mut Lab::new()));
    let second = lab
        .try_rq(|context| {
            context.set_user_index(0x33);
        })
        .unwrap();
    lab.modify_rq(second.number, RST, RDY).unwrap();
    let numbers = [first.number, second.number];
    let table = lab.try_rqt(&numbers, 64).unwrap();
    let tir = spread(&mut lab, table);
    lab.steer(tir, 0);
    for queue in [first, second] {
        lab.rq = queue;
        lab.fill(16);
    }
    let mut seen = [0; 2];
    for port in 0..16 {
        let frame = good_udp_frame(OWN, OTHER, (port, 2), &[9; 100]);
        lab.receive(&frame);
        let done = lab.received().unwrap();
        assert_eq!(done.0[0x10], 0b1010_0101);
        let hash = done.word(0x0c);
        let queue = usize::from(done.word(0x20) == 0x33);
        assert_eq!(hash as usize % 2, queue);
        seen[queue] += 1;
    }
    assert!(seen[0] > 2 && seen[1] > 2, "{seen:?}");

    let mut modify = ModifyRqtIn::new();
    modify.set_rqtn(table).bitmask_mut().set_rqn_list(true);
    modify.ctx_mut().set_rqt_actual_size(1);
    lab.node
        .command_with(&modify, &numbers[1].to_be_bytes(), 0)
        .unwrap();
    let before = seen[1];
    for port in 0..(16 - before) {
        lab.receive(&good_udp_frame(OWN, OTHER, (port, 2), &[9; 100]));
        assert_eq!(lab.received().unwrap().word(0x20), 0x33);
    }
}

fn lab_rq(other: &mut Lab) -> Queue {
    other.try_rq(|_| {}).unwrap()
}

#[test]
fn a_linked_list_is_followed() {
    let mut lab = Lab::new();
    let queue = lab
        .try_rq(|context| {
            context.wq_mut().set_wq_type(0);
        })
        .unwrap();
    lab.modify_rq(queue.number, RST, RDY).unwrap();
    let number = queue.number;
    let tir = lab
        .try_tir(|context| {
            context.set_inline_rqn(number);
        })
        .unwrap();
    lab.steer(tir, 0);
    // 0, then 5, then 2.
    for (index, next) in [(0u64, 5u16), (5, 2), (2, 0)] {
        let mut wqe = vec![0; 16];
        wqe[2..4].copy_from_slice(&next.to_be_bytes());
        wqe.extend(data_segment((lab.key, lab.buffer(index as u16), 2048)));
        lab.node.host.put(queue.ring + index * 32, &wqe);
    }
    lab.node.host.put32(queue.record, 3);
    for index in [0, 5, 2] {
        let frame = good_udp_frame(OWN, OTHER, (1, index), &[9; 100]);
        lab.receive(&frame);
        assert_eq!(lab.received().unwrap().counter(), index);
        let at = lab.buffer(index);
        assert_eq!(lab.node.host.bytes(at, frame.len()), frame);
    }
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]));
    assert!(lab.received().is_none());
    assert_eq!(lab.out_of_buffer(), 1);
}

#[test]
fn buffers_may_come_from_a_pool() {
    // With the link in front of an entry, as UCX has them, and without, as DPDK has them.
    for basic in [false, true] {
        buffers_come_from_a_pool(basic);
    }
}

fn buffers_come_from_a_pool(basic: bool) {
    let mut lab = Lab::new();
    let ring = lab.node.host.alloc(4096, 4096);
    let record = lab.node.host.alloc(8, 64);
    let mut create = CreateRmpIn::new();
    create.ctx_mut().set_state(1);
    create.ctx_mut().set_basic_cyclic_rcv_wqe(basic);
    create
        .ctx_mut()
        .wq_mut()
        .set_wq_type(1)
        .set_pd(lab.pd)
        .set_dbr_addr(record)
        .set_log_wq_stride(if basic { 4 } else { 5 })
        .set_log_wq_sz(4);
    let pages = page_list(ring, 4096);
    let (output, _) = lab.node.command_with(&create, &pages, 0).unwrap();
    let pool = output.rmpn();
    let queue = lab
        .try_rq(|context| {
            context.set_mem_rq_type(1).set_rmpn(pool);
        })
        .unwrap();
    lab.modify_rq(queue.number, RST, RDY).unwrap();
    let number = queue.number;
    let tir = lab
        .try_tir(|context| {
            context.set_inline_rqn(number);
        })
        .unwrap();
    lab.steer(tir, 0);
    let mut wqe = vec![0; if basic { 0 } else { 16 }];
    wqe.extend(data_segment((lab.key, lab.buffer(0), 2048)));
    lab.node.host.put(ring, &wqe);
    lab.node.host.put32(record, 1);
    let frame = good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]);
    lab.receive(&frame);
    assert_eq!(lab.received().unwrap().opcode(), RECEIVED);
    let at = lab.buffer(0);
    assert_eq!(lab.node.host.bytes(at, frame.len()), frame);
}

/// `self_lb_block` is what both of the vendor's drivers set to let a queue receive frames of its own domain.
#[test]
fn own_frames_come_round_only_where_the_tir_lets_them() {
    let mut lab = Lab::new();
    lab.fill(8);
    let unicast = good_udp_frame(OWN, OWN, (1, 2), &[9; 100]);
    let group = good_udp_frame([0xff; 6], OWN, (1, 2), &[9; 100]);
    let set = |lab: &mut Lab, bits: u8| {
        let mut modify = ModifyTirIn::new();
        modify.set_tirn(lab.tir).bitmask_mut().set_self_lb_en(true);
        modify.ctx_mut().set_self_lb_block(bits);
        lab.node.command(&modify).unwrap();
    };
    for (bits, received) in [(0, [false, false]), (1, [true, false]), (2, [false, true])] {
        set(&mut lab, bits);
        // Frames to oneself do not go out, broadcast frames do.
        assert_eq!(lab.send(0, &unicast).len(), 0);
        assert_eq!(lab.received().is_some(), received[0], "{bits}");
        assert_eq!(lab.send(0, &group).len(), 1);
        assert_eq!(lab.received().is_some(), received[1], "{bits}");
    }
    // An address that the driver added is the port's own as well.
    set(&mut lab, 1);
    let added = [2, 0xaa, 0, 0, 0, 1];
    let frame = good_udp_frame(added, OWN, (1, 2), &[9; 100]);
    assert_eq!(lab.send(0, &frame).len(), 1);
    assert!(lab.received().is_none());
    let mut modify = bareverbs_firmware_cmds::vport::ModifyNicVportContextIn::new();
    modify.field_select_mut().set_addresses_list(true);
    modify.nic_vport_context_mut().set_allowed_list_size(1);
    let entry = [&[0; 2][..], &added].concat();
    lab.node.command_with(&modify, &entry, 0).unwrap();
    assert_eq!(lab.send(0, &frame).len(), 0);
    assert!(lab.received().is_some());
    // Another transport domain receives them in any case.
    let domain = lab
        .node
        .command(&bareverbs_firmware_cmds::domain::AllocTransportDomainIn::new())
        .unwrap()
        .transport_domain();
    let rq = lab.rq.number;
    let tir = lab
        .try_tir(|context| {
            context.set_transport_domain(domain).set_inline_rqn(rq);
        })
        .unwrap();
    lab.steer(tir, 0);
    lab.send(0, &group);
    assert!(lab.received().is_some());
    // Unless the whole port does not loop.
    let mut modify = bareverbs_firmware_cmds::vport::ModifyNicVportContextIn::new();
    modify
        .field_select_mut()
        .set_disable_mc_local_lb(true)
        .set_disable_uc_local_lb(true);
    modify
        .nic_vport_context_mut()
        .set_disable_mc_local_lb(true)
        .set_disable_uc_local_lb(true);
    lab.node.command(&modify).unwrap();
    assert_eq!(lab.send(0, &group).len(), 1);
    assert!(lab.received().is_none());
    // Then frames to oneself are left to the switch.
    assert_eq!(lab.send(0, &unicast).len(), 1);
    assert!(lab.received().is_none());
}

#[test]
fn frames_beyond_the_mtu_and_frames_of_a_down_port_are_dropped() {
    let mut lab = Lab::new();
    let mtu = usize::from(lab.node.model.config().mtu);
    let (at, key) = (lab.memory, lab.key);
    lab.post_buffer(&[(key, at, 0x4000)]);
    lab.post_buffer(&[(key, at, 0x4000)]);
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &vec![9; mtu - 28 + 5]));
    assert!(lab.received().is_none());
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &vec![9; mtu - 28]));
    assert!(lab.received().is_some());
    lab.node.model.set_link(&mut lab.node.host, false);
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]));
    assert!(lab.received().is_none());
}
