//! The port: addresses of every kind, multicast, link, counters, page appetite, and the InfiniBand flavour.

use crate::common::queues::*;
use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::counter::{AllocQCounterIn, DeallocQCounterIn, QueryQCounterIn};
use bareverbs_firmware_cmds::domain::AllocPdIn;
use bareverbs_firmware_cmds::mad::{AttachToMcgIn, DetachFromMcgIn, MadIfcIn};
use bareverbs_firmware_cmds::mkey::QuerySpecialContextsIn;
use bareverbs_firmware_cmds::pages::ManagePagesIn;
use bareverbs_firmware_cmds::qp::{Init2rtrQpIn, QueryQpIn, Rst2initQpIn, Sqerr2rtsQpIn};
use bareverbs_firmware_cmds::roce::{QueryRoceAddressIn, SetRoceAddressIn};
use bareverbs_firmware_cmds::vport::{
    ModifyNicVportContextIn, QueryHcaVportContextIn, QueryHcaVportGidIn, QueryHcaVportPkeyIn,
    QueryNicVportContextIn, QueryVportCounterIn, QueryVportStateIn,
};
use connectx_model::{Config, Syndrome};
use zerocopy::IntoBytes;

const SEND: u8 = 0x0a;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

fn mac_words(mac: [u8; 6]) -> (u16, u32) {
    (
        u16::from_be_bytes([mac[0], mac[1]]),
        u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]),
    )
}

/// An address of a given version, type and VLAN.
fn address(
    node: &mut Node,
    index: u16,
    gid: [u8; 16],
    version: u8,
    l3: u8,
    vlan: Option<u16>,
) -> Result<(), Failure> {
    let (high, low) = mac_words(node.model.config().mac);
    let mut set = SetRoceAddressIn::new();
    set.set_roce_address_index(index);
    let entry = set.roce_address_mut();
    entry.source_l3_address_mut().copy_from_slice(&gid);
    entry
        .set_roce_version(version)
        .set_roce_l3_type(l3)
        .set_source_mac_47_32(high)
        .set_source_mac_31_0(low);
    if let Some(vlan) = vlan {
        entry.set_vlan_valid(true).set_vlan_id(vlan);
    }
    node.command(&set).map(|_| ())
}

fn link_local(unit: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[0] = 0xfe;
    gid[1] = 0x80;
    gid[15] = unit;
    gid
}

/// A UD QP in RTS with its completion queue.
fn datagram_qp(node: &mut Node, pd: u32) -> (Qp, Cq) {
    let cq = node.create_cq(6, 1);
    let qp = node.create_qp(QpPlan {
        st: UD,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 5,
    });
    node.make_init(&qp);
    node.make_rtr(&qp, 0, 0, None);
    node.make_rts(&qp, 1);
    (qp, cq)
}

#[test]
fn addresses_are_checked_and_read_back() {
    let mut pair = Pair::new();
    let node = &mut pair.a;
    assert_eq!(
        address(node, 128, gid(9), 2, 0, None),
        Err(refused(Syndrome::RoceIndex))
    );
    assert_eq!(
        address(node, 1, gid(9), 1, 0, None),
        Err(refused(Syndrome::RoceVersion))
    );
    assert_eq!(
        address(node, 1, gid(9), 2, 1, None),
        Err(refused(Syndrome::RoceType))
    );
    assert_eq!(
        address(node, 1, link_local(1), 2, 0, None),
        Err(refused(Syndrome::RoceType))
    );
    assert_eq!(
        address(node, 1, gid(9), 2, 0, Some(0xfff)),
        Err(refused(Syndrome::RoceVlan))
    );
    address(node, 1, gid(9), 2, 0, Some(7)).unwrap();
    let mut query = QueryRoceAddressIn::new();
    query.set_roce_address_index(1);
    let entry = *node.command(&query).unwrap().roce_address();
    assert_eq!(*entry.source_l3_address(), gid(9));
    assert_eq!((entry.vlan_valid(), entry.vlan_id()), (true, 7));
    // Zero is how drivers delete.
    let mut delete = SetRoceAddressIn::new();
    delete.set_roce_address_index(1);
    node.command(&delete).unwrap();
    let entry = *node.command(&query).unwrap().roce_address();
    assert_eq!(entry.as_bytes(), [0; 32]);
    // No address without RoCE.
    let mut off = ModifyNicVportContextIn::new();
    off.field_select_mut().set_roce_en(true);
    node.command(&off).unwrap();
    assert_eq!(
        address(node, 1, gid(9), 2, 0, None),
        Err(refused(Syndrome::RoceNotEnabled))
    );
}

#[test]
fn every_kind_of_address_carries_traffic() {
    // (GID of unit, version, l3 type, VLAN, offset of the BTH's Ethertype or of nothing)
    for (version, l3, vlan) in [
        (0, 0, None),
        (2, 1, None),
        (2, 1, Some(100)),
        (2, 0, Some(5)),
        (0, 0, Some(6)),
    ] {
        let mut pair = Pair::new();
        let make = |unit| {
            if version == 2 && l3 == 0 {
                gid(unit + 100)
            } else {
                link_local(unit)
            }
        };
        address(&mut pair.a, 3, make(1), version, l3, vlan).unwrap();
        address(&mut pair.b, 7, make(2), version, l3, vlan).unwrap();
        let (mut from, mut cq_from) = datagram_qp(&mut pair.a, pair.pd[0]);
        let (mut to, mut cq_to) = datagram_qp(&mut pair.b, pair.pd[1]);
        let memory = pair.b.host.alloc(4096, 4096);
        let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
        pair.b.post_receive(&mut to, &[(key, 0, 512)]);
        let mac = pair.b.model.config().mac;
        let av = address_vector(to.number, 0x1111_1111, &make(2), 3, mac);
        pair.a.post_send(
            &mut from,
            SEND,
            SIGNALED,
            0,
            &[av, inline_segment(b"hello")].concat(),
        );
        pair.a.ring_send(&from);
        pair.a.advance();
        let frame = pair.a.host.frames[0].clone();
        let tagged = frame[12..14] == [0x81, 0x00];
        assert_eq!(tagged, vlan.is_some());
        let at = if tagged { 16 } else { 12 };
        let ethertype = u16::from_be_bytes([frame[at], frame[at + 1]]);
        assert_eq!(
            ethertype,
            match (version, l3) {
                (0, _) => 0x8915,
                (_, 0) => 0x0800,
                _ => 0x86dd,
            }
        );
        pair.run();
        assert_eq!(pair.a.poll(&mut cq_from).map(|cqe| cqe.opcode), Some(0));
        let got = pair.b.poll(&mut cq_to).expect("the datagram arrives");
        assert_eq!(got.byte_count, 45);
        let kind = match (version, l3) {
            (0, _) => 0,
            (_, 0) => 2,
            _ => 1,
        };
        assert_eq!(got.flags_rqpn >> 24 & 3, kind);
        assert_eq!(pair.b.host.bytes(memory + 40, 5), b"hello");
    }
}

#[test]
fn frames_for_others_are_not_taken() {
    let mut pair = Pair::new();
    let (mut from, _) = datagram_qp(&mut pair.a, pair.pd[0]);
    let (mut to, mut cq_to) = datagram_qp(&mut pair.b, pair.pd[1]);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
    let mac = pair.b.model.config().mac;
    let mut unknown_mac = mac;
    unknown_mac[5] ^= 0x40;
    for (gid, mac, arrives) in [
        (gid(3), mac, false),
        (gid(2), unknown_mac, false),
        (gid(2), mac, true),
    ] {
        pair.b.post_receive(&mut to, &[(key, 0, 512)]);
        let av = address_vector(to.number, 0x1111_1111, &gid, 0, mac);
        pair.a.post_send(
            &mut from,
            SEND,
            0,
            0,
            &[av, inline_segment(b"hello")].concat(),
        );
        pair.a.ring_send(&from);
        pair.run();
        assert_eq!(pair.b.poll(&mut cq_to).is_some(), arrives);
    }
    assert_eq!(pair.b.model.stats().frames_dropped, 2);
    // A QP1 is only reached as number 1, and there is none here.
    let av = address_vector(1, 0x8001_0000, &gid(2), 0, mac);
    pair.a.post_send(
        &mut from,
        SEND,
        0,
        0,
        &[av, inline_segment(b"hello")].concat(),
    );
    pair.a.ring_send(&from);
    pair.run();
    assert_eq!(pair.b.model.stats().frames_dropped, 3);
}

#[test]
fn groups_reach_their_members_only() {
    let mut pair = Pair::new();
    let (mut from, mut cq_from) = datagram_qp(&mut pair.a, pair.pd[0]);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, LOCAL_WRITE);
    let mut members = Vec::new();
    for _ in 0..3 {
        let (mut qp, cq) = datagram_qp(&mut pair.b, pair.pd[1]);
        pair.b.post_receive(&mut qp, &[(key, 0, 512)]);
        members.push((qp, cq));
    }
    let mut group = gid(0);
    group[12..].copy_from_slice(&[239, 1, 2, 3]);
    let mut attach = AttachToMcgIn::new();
    attach.multicast_gid_mut().copy_from_slice(&gid(1));
    attach.set_qpn(members[0].0.number);
    assert_eq!(
        pair.b.command(&attach).err(),
        Some(refused(Syndrome::GroupAddress))
    );
    attach.multicast_gid_mut().copy_from_slice(&group);
    for (qp, _) in &members[..2] {
        attach.set_qpn(qp.number);
        pair.b.command(&attach).unwrap();
    }
    assert_eq!(
        pair.b.command(&attach).err(),
        Some(refused(Syndrome::GroupTwice))
    );
    let mac = [0x01, 0x00, 0x5e, 1, 2, 3];
    let av = address_vector(0xff_ffff, 0x1111_1111, &group, 0, mac);
    let segments = [av, inline_segment(b"to all")].concat();
    pair.a.post_send(&mut from, SEND, SIGNALED, 0, &segments);
    pair.a.ring_send(&from);
    pair.run();
    assert_eq!(pair.a.poll_all(&mut cq_from).len(), 1);
    let got: Vec<_> = members
        .iter_mut()
        .map(|(_, cq)| pair.b.poll_all(cq).len())
        .collect();
    assert_eq!(got, [1, 1, 0]);
    let mut detach = DetachFromMcgIn::new();
    detach.multicast_gid_mut().copy_from_slice(&group);
    detach.set_qpn(members[0].0.number);
    pair.b.command(&detach).unwrap();
    assert_eq!(
        pair.b.command(&detach).err(),
        Some(refused(Syndrome::GroupUnknown))
    );
}

#[test]
fn a_datagram_error_stops_only_the_send_queue() {
    let mut pair = Pair::new();
    let (mut qp, mut cq) = datagram_qp(&mut pair.a, pair.pd[0]);
    let mac = pair.b.model.config().mac;
    // Source address 9 is empty.
    let av = address_vector(5, 0x1111_1111, &gid(2), 9, mac);
    let bad = [av, inline_segment(b"?")].concat();
    pair.a.post_send(&mut qp, SEND, 0, 0, &bad);
    pair.a.post_send(&mut qp, SEND, 0, 0, &bad);
    pair.a.ring_send(&qp);
    pair.run();
    let done: Vec<_> = pair
        .a
        .poll_all(&mut cq)
        .iter()
        .map(|cqe| (cqe.opcode, cqe.syndrome))
        .collect();
    assert_eq!(done, [(0xd, 2), (0xd, 5)]);
    let mut query = QueryQpIn::new();
    query.set_qpn(qp.number);
    assert_eq!(pair.a.command(&query).unwrap().qpc().state(), 4);
    let mut back = Sqerr2rtsQpIn::new();
    back.set_qpn(qp.number);
    back.qpc_mut().set_st(UD).set_pm_state(3);
    pair.a.command(&back).unwrap();
    let av = address_vector(5, 0x1111_1111, &gid(2), 0, mac);
    pair.a.post_send(
        &mut qp,
        SEND,
        SIGNALED,
        0,
        &[av, inline_segment(b"!")].concat(),
    );
    pair.a.ring_send(&qp);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq).map(|cqe| cqe.opcode), Some(0));
}

#[test]
fn a_cable_that_is_out_loses_what_is_sent() {
    let mut pair = Pair::new();
    let [(mut qp, mut cq), _] = pair.connect(RC);
    pair.b.model.set_link(&mut pair.b.host, false);
    let mut state = QueryVportStateIn::new();
    assert_eq!(pair.b.command(&state).unwrap().state(), 0);
    state.set_op_mod(1);
    assert_eq!(
        pair.b.command(&state).err(),
        Some(refused(Syndrome::VportOpMod))
    );
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    let write = [remote_segment(0, key), inline_segment(b"late")].concat();
    pair.a.post_send(&mut qp, 8, SIGNALED, 0, &write);
    pair.a.ring_send(&qp);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq), None);
    pair.b.model.set_link(&mut pair.b.host, true);
    // The requester sends again when its timer comes.
    let at = pair.a.model.next_deadline().expect("a timer runs");
    pair.a.now = at;
    pair.b.now = at;
    pair.run();
    assert_eq!(pair.a.poll(&mut cq).map(|cqe| cqe.opcode), Some(0));
    assert_eq!(pair.b.host.bytes(memory, 4), b"late");
}

#[test]
fn counters_count_for_their_qps() {
    let mut pair = Pair::new();
    let set = pair
        .b
        .command(&AllocQCounterIn::new())
        .unwrap()
        .counter_set_id();
    let other = pair
        .b
        .command(&AllocQCounterIn::new())
        .unwrap()
        .counter_set_id();
    let cq = pair.b.create_cq(6, 1);
    let qp_b = pair.b.create_qp(QpPlan {
        st: RC,
        pd: pair.pd[1],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    });
    let mut modify = Rst2initQpIn::new();
    modify.set_qpn(qp_b.number);
    let qpc = modify.qpc_mut();
    qpc.set_pm_state(3).set_rwe(true).set_counter_set_id(0xee);
    qpc.primary_address_path_mut().set_vhca_port_num(1);
    assert_eq!(
        pair.b.command(&modify).err(),
        Some(refused(Syndrome::QpCounter))
    );
    modify.qpc_mut().set_counter_set_id(set);
    modify
        .qpc_mut()
        .primary_address_path_mut()
        .set_vhca_port_num(3);
    assert_eq!(
        pair.b.command(&modify).err(),
        Some(refused(Syndrome::QpPort))
    );
    modify
        .qpc_mut()
        .primary_address_path_mut()
        .set_vhca_port_num(1);
    pair.b.command(&modify).unwrap();
    let cq_a = pair.a.create_cq(6, 1);
    let mut qp_a = pair.a.create_qp(QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq_a.number,
        receive_cq: cq_a.number,
        srq: None,
        user_index: 1,
    });
    pair.a.make_init(&qp_a);
    let macs = [pair.a.model.config().mac, pair.b.model.config().mac];
    pair.b
        .make_rtr(&qp_b, qp_a.number, 1, Some((gid(1), macs[0])));
    pair.a
        .make_rtr(&qp_a, qp_b.number, 2, Some((gid(2), macs[1])));
    pair.a.make_rts(&qp_a, 1);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    let write = [remote_segment(0, key), inline_segment(b"1")].concat();
    for _ in 0..3 {
        pair.a.post_send(&mut qp_a, 8, SIGNALED, 0, &write);
    }
    pair.a.ring_send(&qp_a);
    pair.run();
    let mut query = QueryQCounterIn::new();
    query.set_counter_set_id(set).set_clear(true);
    assert_eq!(pair.b.command(&query).unwrap().rx_write_requests(), 3);
    assert_eq!(pair.b.command(&query).unwrap().rx_write_requests(), 0);
    query.set_counter_set_id(other);
    assert_eq!(pair.b.command(&query).unwrap().rx_write_requests(), 0);
    let mut dealloc = DeallocQCounterIn::new();
    dealloc.set_counter_set_id(set);
    assert_eq!(
        pair.b.command(&dealloc).err(),
        Some(refused(Syndrome::CounterBusy))
    );
    dealloc.set_counter_set_id(other);
    pair.b.command(&dealloc).unwrap();
}

#[test]
fn paths_are_checked_on_the_way_to_rtr() {
    let mut pair = Pair::new();
    let cq = pair.a.create_cq(6, 1);
    let qp = pair.a.create_qp(QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    });
    pair.a.make_init(&qp);
    let mut good = Init2rtrQpIn::new();
    good.set_qpn(qp.number);
    let qpc = good.qpc_mut();
    qpc.set_pm_state(3)
        .set_mtu(5)
        .set_log_msg_max(30)
        .set_remote_qpn(77);
    type Damage = fn(&mut Init2rtrQpIn);
    let cases: [(Damage, Syndrome); 7] = [
        (
            |input| {
                input.qpc_mut().set_mtu(6);
            },
            Syndrome::QpMtu,
        ),
        (
            |input| {
                input.qpc_mut().set_mtu(0);
            },
            Syndrome::QpMtu,
        ),
        (
            |input| {
                input.qpc_mut().set_log_msg_max(31);
            },
            Syndrome::QpMessageSize,
        ),
        (
            |input| {
                input.qpc_mut().set_log_rra_max(5);
            },
            Syndrome::QpReadAtomic,
        ),
        (
            |input| {
                input.qpc_mut().set_remote_qpn(1);
            },
            Syndrome::QpRemoteNumber,
        ),
        (
            |input| {
                input
                    .qpc_mut()
                    .primary_address_path_mut()
                    .set_src_addr_index(200);
            },
            Syndrome::QpSourceAddress,
        ),
        (
            |input| {
                input
                    .qpc_mut()
                    .primary_address_path_mut()
                    .set_src_addr_index(9);
            },
            Syndrome::QpNoAddress,
        ),
    ];
    for (damage, syndrome) in cases {
        let mut input = good;
        damage(&mut input);
        assert_eq!(pair.a.command(&input).err(), Some(refused(syndrome)));
    }
    pair.a.command(&good).unwrap();
}

#[test]
fn an_appetite_for_pages_is_fed_before_the_next_object() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let eq = node.create_eq(7, 1 << 0x0b, 0);
    node.model.set_page_appetite(40);
    node.post(0, AllocPdIn::new().as_bytes(), 16);
    node.ring(1);
    node.advance();
    let (_, _, data) = node.next_event(eq).unwrap();
    assert_eq!(i32::from_be_bytes(data[4..8].try_into().unwrap()), 40);
    // The host is slow: a part first, and the command goes on waiting.
    for count in [15, 25] {
        assert_eq!(node.answer(0, 16), Err(Failure::Silence));
        let mut give = ManagePagesIn::new();
        give.set_op_mod(1).set_input_num_entries(count);
        let mut input = give.as_bytes().to_vec();
        for _ in 0..count {
            input.extend(node.host.alloc(4096, 4096).to_be_bytes());
        }
        node.post(31, &input, 16);
        node.ring(1 << 31);
        node.advance();
        node.advance();
        assert!(node.answer(31, 16).is_ok());
    }
    assert!(node.answer(0, 16).is_ok());
}

#[test]
fn the_nic_context_can_be_changed_where_it_may() {
    let mut pair = Pair::new();
    let node = &mut pair.a;
    let query = QueryNicVportContextIn::new();
    let before = *node.command(&query).unwrap().nic_vport_context();
    assert!(before.roce_en());
    assert_eq!(
        before.permanent_address().to_be_bytes()[2..],
        node.model.config().mac
    );
    assert_eq!(before.node_guid(), node.model.config().node_guid);
    let mut modify = ModifyNicVportContextIn::new();
    modify.field_select_mut().set_mtu(true);
    modify
        .nic_vport_context_mut()
        .set_mtu(1522)
        .set_node_guid(5);
    node.command(&modify).unwrap();
    let after = *node.command(&query).unwrap().nic_vport_context();
    assert_eq!((after.mtu(), after.node_guid()), (1522, before.node_guid()));
    // 1500 bytes carry a path MTU of 1024, no more.
    let cq = node.create_cq(6, 1);
    let qp = node.create_qp(QpPlan {
        st: RC,
        pd: pair.pd[0],
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    });
    node.make_init(&qp);
    let mut input = Init2rtrQpIn::new();
    input.set_qpn(qp.number);
    input
        .qpc_mut()
        .set_pm_state(3)
        .set_mtu(4)
        .set_remote_qpn(77);
    assert_eq!(node.command(&input).err(), Some(refused(Syndrome::QpMtu)));
    input.qpc_mut().set_mtu(3);
    node.command(&input).unwrap();
    modify.nic_vport_context_mut().set_mtu(50);
    assert_eq!(
        node.command(&modify).err(),
        Some(refused(Syndrome::VportMtu))
    );
    let mut other = QueryNicVportContextIn::new();
    other.set_vport_number(1);
    assert_eq!(
        node.command(&other).err(),
        Some(refused(Syndrome::VportNumber))
    );
}

#[test]
fn an_infiniband_port_answers_for_its_subnet_manager() {
    let mut node = Node::new(Config::new(1).infiniband());
    node.initialize();
    let context = node.command(&QueryHcaVportContextIn::new()).unwrap();
    let context = context.hca_vport_context();
    assert_eq!(
        (context.vport_state(), context.port_physical_state()),
        (4, 5)
    );
    assert_ne!(context.lid(), 0);
    let (output, gids) = node
        .command_with(&QueryHcaVportGidIn::new(), &[], 16)
        .unwrap();
    assert_eq!(output.gids_num(), 1);
    assert_eq!(&gids[..2], &[0xfe, 0x80]);
    assert_eq!(gids[8..], node.model.config().port_guid.to_be_bytes());
    let mut query = QueryHcaVportPkeyIn::new();
    let (_, pkey) = node.command_with(&query, &[], 4).unwrap();
    assert_eq!(pkey, [0, 0, 0xff, 0xff]);
    query.set_pkey_index(0xffff);
    let (_, table) = node.command_with(&query, &[], 512).unwrap();
    assert_eq!(
        (&table[..4], &table[4..8]),
        (&[0, 0, 0xff, 0xff][..], &[0; 4][..])
    );
    query.set_pkey_index(128);
    assert_eq!(
        node.command_with(&query, &[], 4).err(),
        Some(refused(Syndrome::VportPkeyIndex))
    );
    assert_eq!(
        node.command(&QueryNicVportContextIn::new()).err(),
        Some(refused(Syndrome::VportWrongLink))
    );
    assert_eq!(
        address(&mut node, 0, gid(1), 2, 0, None),
        Err(refused(Syndrome::RoceDisabled))
    );
    let mut mad = MadIfcIn::new();
    mad.set_port(1);
    assert_eq!(node.command(&mad).err(), Some(refused(Syndrome::MadClass)));
    assert_ne!(
        node.command(&QuerySpecialContextsIn::new())
            .unwrap()
            .resd_lkey(),
        0
    );
}

#[test]
fn the_port_counts_what_passes() {
    let mut pair = Pair::new();
    let [(mut qp, _), _] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    let local = pair.a.host.alloc(4096, 4096);
    let local_key = pair.a.register(pair.pd[0], local, 0, 4096, ALL);
    // 3000 bytes are three packets of the path MTU of 1024.
    let write = [remote_segment(0, key), data_segment((local_key, 0, 3000))].concat();
    pair.a.post_send(&mut qp, 8, 0, 0, &write);
    pair.a.ring_send(&qp);
    pair.run();
    let mut query = QueryVportCounterIn::new();
    let sent = pair.a.command(&query).unwrap();
    assert_eq!(sent.transmitted_ib_unicast().packets(), 3);
    assert!(sent.transmitted_ib_unicast().octets() > 3000);
    query.set_clear(true);
    let got = pair.b.command(&query).unwrap();
    assert_eq!(got.received_ib_unicast(), sent.transmitted_ib_unicast());
    let cleared = pair.b.command(&query).unwrap();
    assert_eq!(cleared.received_ib_unicast().packets(), 0);
    query.set_op_mod(1);
    assert_eq!(
        pair.b.command(&query).err(),
        Some(refused(Syndrome::VportCounterOpMod))
    );
}
