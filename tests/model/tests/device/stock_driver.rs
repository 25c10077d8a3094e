//! Mistakes of the model that the vendor's own driver for Linux has shown: one test for each, which needs no guest.

use crate::common::queues::*;
use crate::common::{Failure, Node, page_list};
use bareverbs_firmware_cmds::caps::{EthernetOffloadCaps, QueryHcaCapIn};
use bareverbs_firmware_cmds::congestion::QueryCongStatisticsIn;
use bareverbs_firmware_cmds::cq::{ModifyCqIn, QueryCqIn};
use bareverbs_firmware_cmds::flow::{
    AllocFlowCounterIn, CreateFlowTableIn, DestroyFlowTableIn, QueryFlowCounterIn,
    SetFlowTableRootIn,
};
use bareverbs_firmware_cmds::hca::{DisableHcaIn, EnableHcaIn};
use bareverbs_firmware_cmds::mad::MadIfcIn;
use bareverbs_firmware_cmds::qp::Init2rtrQpIn;
use bareverbs_firmware_cmds::register::AccessRegisterIn;
use bareverbs_firmware_cmds::rq::{CreateRqIn, ModifyRqIn};
use bareverbs_firmware_cmds::vport::{
    ModifyHcaVportContextIn, QueryHcaVportContextIn, QueryVportCounterIn,
};
use connectx_model::{Config, Syndrome};
use zerocopy::{FromBytes, IntoBytes};

/// Its ENABLE_HCA and DISABLE_HCA have space for 12 bytes of answer: the reserved words at the end are not all there.
#[test]
fn answers_may_lack_trailing_reserved_words() {
    let mut node = Node::new(Config::new(1));
    let answer = node.raw(EnableHcaIn::new().as_bytes(), 12).unwrap();
    assert_eq!(answer, [0; 12]);
    let answer = node.raw(DisableHcaIn::new().as_bytes(), 12).unwrap();
    assert_eq!(answer, [0; 12]);
    // A failure is reported in the first eight bytes, which are all that is needed.
    let again = node.raw(DisableHcaIn::new().as_bytes(), 8);
    let Err(Failure::Status(_, syndrome)) = again else {
        panic!("DISABLE_HCA twice: {again:x?}");
    };
    assert_eq!(syndrome, Syndrome::NotEnabled.code());
}

/// Its connection manager sets IsCommunicationManagementSupported on an InfiniBand port, after a look at what may be set.
#[test]
fn software_sets_its_bits_of_the_capability_mask() {
    const COMMUNICATION_MANAGEMENT: u32 = 1 << 16;
    let mut node = Node::new(Config::new(1).infiniband());
    node.initialize();
    let query = QueryHcaVportContextIn::new();
    let before = *node.command(&query).unwrap().hca_vport_context();
    assert_ne!(
        before.cap_mask1_field_select() & COMMUNICATION_MANAGEMENT,
        0
    );
    assert_eq!(before.cap_mask1() & COMMUNICATION_MANAGEMENT, 0);

    let mut modify = ModifyHcaVportContextIn::new();
    modify
        .hca_vport_context_mut()
        .set_cap_mask1(COMMUNICATION_MANAGEMENT)
        .set_cap_mask1_field_select(COMMUNICATION_MANAGEMENT);
    node.command(&modify).unwrap();
    let after = node
        .command(&query)
        .unwrap()
        .hca_vport_context()
        .cap_mask1();
    assert_eq!(after, before.cap_mask1() | COMMUNICATION_MANAGEMENT);

    // The firmware's own bits are not software's.
    modify
        .hca_vport_context_mut()
        .set_cap_mask1_field_select(1 << 11);
    assert!(matches!(
        node.command(&modify),
        Err(Failure::Status(_, syndrome)) if syndrome == Syndrome::VportHcaFields.code()
    ));
}

/// Performance management is asked of the virtual port, on RoCE as well; without, the driver sends management datagrams to a
/// firmware agent that this model does not have, and complains.
#[test]
fn the_port_counts_for_performance_management() {
    let mut node = Node::new(Config::new(1));
    assert!(node.model.config().general.vport_counters());
    node.initialize();
    let mut query = QueryVportCounterIn::new();
    query.set_clear(true);
    let first = node.command(&query).unwrap();
    assert_eq!(first.received_ib_unicast().packets(), 0);
    assert_eq!(first.transmitted_ib_unicast().packets(), 0);
}

/// Its network driver has a receive queue that only drops, which traffic goes to while the device is down: one WQE, and no
/// protection domain.
#[test]
fn a_receive_queue_may_be_without_protection_domain() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let eq = node.create_eq(7, 0, 1);
    let cq = node.create_cq(6, eq);
    let ring = node.host.alloc(4096, 4096);
    let record = node.host.alloc(8, 64);
    let mut create = CreateRqIn::new();
    create.ctx_mut().set_cqn(cq.number);
    create
        .ctx_mut()
        .wq_mut()
        .set_wq_type(1)
        .set_log_wq_stride(4)
        .set_dbr_addr(record);
    let (output, _) = node
        .command_with(&create, &page_list(ring, 4096), 0)
        .unwrap();
    let mut modify = ModifyRqIn::new();
    modify.set_rqn(output.rqn()).ctx_mut().set_state(1);
    node.command(&modify).unwrap();
}

/// It complains of cards whose queues cannot block self loopback.
#[test]
fn self_loopback_can_be_modified() {
    let config = Config::new(1);
    assert!(config.ethernet.self_lb_en_modifiable());
    let mut node = Node::new(config);
    node.initialize();
    let mut query = QueryHcaCapIn::new();
    query.set_op_mod(1 << 1 | 1);
    let (_, image) = node.command_with(&query, &[], 0x1000).unwrap();
    let (group, _) = EthernetOffloadCaps::read_from_prefix(&image).unwrap();
    assert!(group.self_lb_en_modifiable());
}

/// Without leave to change the mode of moderation it does not moderate at all, nor lets ethtool do so.
#[test]
fn the_mode_of_moderation_can_be_modified() {
    let mut config = Config::new(1);
    // It asks for the mode that counts from the last completion where the card has it.
    config.general.set_cq_period_start_from_cqe(true);
    config.general_max.set_cq_period_start_from_cqe(true);
    let mut node = Node::new(config);
    node.initialize();
    let mut query = QueryHcaCapIn::new();
    query.set_op_mod(1);
    let (_, image) = node.command_with(&query, &[], 0x1000).unwrap();
    // cq_moderation and cq_period_mode_modify.
    assert_eq!(image[0x44] & 0x30, 0x30);
    let eq = node.create_eq(7, 0, 1);
    let cq = node.create_cq(6, eq);
    let mut modify = ModifyCqIn::new();
    modify
        .set_cqn(cq.number)
        .set_modify_field_select_resize_field_select(1 | 1 << 1 | 1 << 4);
    modify
        .cq_context_mut()
        .set_cq_period(16)
        .set_cq_max_count(32)
        .set_cq_period_mode(1);
    node.command(&modify).unwrap();
    let mut query = QueryCqIn::new();
    query.set_cqn(cq.number);
    let context = *node.command(&query).unwrap().cq_context();
    assert_eq!(
        (
            context.cq_period(),
            context.cq_max_count(),
            context.cq_period_mode()
        ),
        (16, 32, 1)
    );
}

/// ethtool shows link modes and statistics only with the flow control register, and asks for the module; each missing
/// one is an error in the kernel's log.
#[test]
fn tools_find_flow_control_and_module() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let mut read = |id: u16, len: usize| {
        let mut access = AccessRegisterIn::new();
        access.set_op_mod(1).set_register_id(id);
        let mut register = vec![0; len];
        register[1] = 1;
        node.command_with(&access, &register, len).unwrap().1
    };
    let pauses = read(0x5007, 32);
    assert_eq!((pauses[8] & 0x80, pauses[12] & 0x80), (0, 0));
    assert_eq!(read(0x5002, 64)[3], 4);
    // A byte of the module's memory. Linux 6.1 leaves less space for data than later ones.
    for len in [64, 144] {
        let mut access = AccessRegisterIn::new();
        access.set_op_mod(1).set_register_id(0x9014);
        let mut asked = vec![0; len];
        asked[4] = 0x50;
        asked[11] = 1;
        let (_, module) = node.command_with(&access, &asked, len).unwrap();
        assert_eq!((module[3], module[16]), (0, 0x11));
    }
}

/// Its `do_get_hw_stats` asks wherever `cc_query_allowed` is set, whatever the port is, and the device is not registered if that
/// is refused.
#[test]
fn congestion_is_counted_on_infiniband_ports_too() {
    for config in [Config::new(1), Config::new(1).infiniband()] {
        let mut node = Node::new(config);
        node.initialize();
        let counted = node.command(&QueryCongStatisticsIn::new()).unwrap();
        assert_eq!(
            (counted.rp_cnp_handled_low(), counted.np_cnp_sent_low()),
            (0, 0)
        );
    }
}

const SEND: u8 = 0x0a;

/// Two cards with InfiniBand ports.
fn subnet() -> Pair {
    let make = |unit| {
        let mut node = Node::new(Config::new(unit).infiniband());
        node.initialize();
        node.create_eq(7, ASYNC, 0);
        node.create_eq(7, 0, 1);
        let pd = node.alloc_pd();
        (node, pd)
    };
    let ((a, pd_a), (b, pd_b)) = (make(1), make(2));
    Pair {
        a,
        b,
        pd: [pd_a, pd_b],
    }
}

/// A QP in INIT with a CQ for both its queues.
fn endpoint(node: &mut Node, pd: u32, st: u8) -> (Qp, Cq) {
    let cq = node.create_cq(6, 1);
    let qp = node.create_qp(QpPlan {
        st,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 0x33,
    });
    node.make_init(&qp);
    (qp, cq)
}

fn lid(node: &mut Node) -> u16 {
    let query = QueryHcaVportContextIn::new();
    node.command(&query).unwrap().hca_vport_context().lid()
}

/// Its connections on an InfiniBand port name the peer by local identifier; there is no source address, no MAC address, and
/// no GID unless a global header is asked for.
#[test]
fn connections_by_local_identifier() {
    let mut pair = subnet();
    let lids = [lid(&mut pair.a), lid(&mut pair.b)];
    assert_ne!(lids[0], lids[1]);
    let (mut qp_a, mut cq_a) = endpoint(&mut pair.a, pair.pd[0], RC);
    let (mut qp_b, mut cq_b) = endpoint(&mut pair.b, pair.pd[1], RC);
    let connect = |node: &mut Node, qp: &Qp, remote: &Qp, lid: u16| {
        let mut modify = Init2rtrQpIn::new();
        modify.set_qpn(qp.number).set_opt_param_mask(0xe);
        let qpc = modify.qpc_mut();
        qpc.set_st(RC)
            .set_pm_state(3)
            .set_pd(qp.pd)
            .set_mtu(5)
            .set_log_msg_max(30)
            .set_remote_qpn(remote.number)
            .set_min_rnr_nak(1);
        qpc.primary_address_path_mut()
            .set_rlid(lid)
            .set_vhca_port_num(1);
        node.command(&modify).unwrap();
        node.make_rts(qp, 0);
    };
    connect(&mut pair.a, &qp_a, &qp_b, lids[1]);
    connect(&mut pair.b, &qp_b, &qp_a, lids[0]);

    let memory_a = pair.a.host.alloc(4096, 4096);
    let memory_b = pair.b.host.alloc(4096, 4096);
    let key_a = pair.a.register(pair.pd[0], memory_a, memory_a, 4096, ALL);
    let key_b = pair.b.register(pair.pd[1], memory_b, memory_b, 4096, ALL);
    pair.a.host.bytes(memory_a, 4096).fill(0x77);
    pair.b.post_receive(&mut qp_b, &[(key_b, memory_b, 4096)]);
    let segment = data_segment((key_a, memory_a, 4096));
    pair.a.post_send(&mut qp_a, SEND, SIGNALED, 0, &segment);
    pair.a.ring_send(&qp_a);
    pair.run();
    assert_eq!(pair.a.poll(&mut cq_a).unwrap().syndrome, 0);
    let received = pair.b.poll(&mut cq_b).unwrap();
    assert_eq!((received.syndrome, received.byte_count), (0, 4096));
    assert_eq!(pair.b.host.bytes(memory_b, 4096), [0x77; 4096]);
}

/// The completion of a datagram has the sender's local identifier and service level, and has a global header only if
/// the sender asked for one.
#[test]
fn datagrams_by_local_identifier() {
    const QKEY: u32 = 0x1111_1111;
    const LOCAL_HEADER: u32 = 40;
    let mut pair = subnet();
    let lids = [lid(&mut pair.a), lid(&mut pair.b)];
    let (mut qp_a, mut cq_a) = endpoint(&mut pair.a, pair.pd[0], UD);
    let (mut qp_b, mut cq_b) = endpoint(&mut pair.b, pair.pd[1], UD);
    for (node, qp) in [(&mut pair.a, &qp_a), (&mut pair.b, &qp_b)] {
        node.make_rtr(qp, 0, 0, None);
        node.make_rts(qp, 0);
    }
    let memory_a = pair.a.host.alloc(4096, 4096);
    let memory_b = pair.b.host.alloc(4096, 4096);
    let key_a = pair.a.register(pair.pd[0], memory_a, memory_a, 4096, ALL);
    let key_b = pair.b.register(pair.pd[1], memory_b, memory_b, 4096, ALL);
    pair.a.host.bytes(memory_a, 64).fill(0x55);

    let gid = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0x02, 0x01,
    ];
    for global in [false, true] {
        pair.b
            .post_receive(&mut qp_b, &[(key_b, memory_b, LOCAL_HEADER + 64)]);
        let mut segments = address_vector(qp_b.number, QKEY, &gid, 0, [0; 6]);
        // Service level 6.
        segments[0x0c] = 6;
        segments[0x0e..0x10].copy_from_slice(&lids[1].to_be_bytes());
        if !global {
            segments[0x1b..0x30].fill(0);
        }
        segments.extend(data_segment((key_a, memory_a, 64)));
        pair.a.post_send(&mut qp_a, SEND, SIGNALED, 0, &segments);
        pair.a.ring_send(&qp_a);
        pair.run();
        assert_eq!(pair.a.poll(&mut cq_a).unwrap().syndrome, 0);
        let at = cq_b.ring + u64::from(cq_b.consumer) * 64;
        let source = pair.b.host.get32(at + 0x14) as u16;
        let received = pair.b.poll(&mut cq_b).unwrap();
        assert_eq!(received.syndrome, 0);
        assert_eq!(received.byte_count, LOCAL_HEADER + 64);
        assert_eq!(source, lids[0]);
        assert_eq!(
            received.flags_rqpn,
            u32::from(global) << 28 | 6 << 24 | qp_a.number
        );
        let payload = memory_b + u64::from(LOCAL_HEADER);
        assert_eq!(pair.b.host.bytes(payload, 64), [0x55; 64]);
    }
}

/// With what real cards can, it registers memory through its own queue pair and a cache of keys, in the protection domain of
/// that; without, it would show neither.
#[test]
fn keys_may_be_changed_from_a_queue() {
    let caps = Config::new(1).general;
    assert!(!caps.umr_modify_entity_size_disabled());
    assert!(!caps.umr_modify_atomic_disabled());
    assert!(!caps.umr_indirect_mkey_disabled());
    // It offers memory windows, and fast registration to the kernel's protocols, for this.
    assert!(caps.imaicl());
}

/// With all that a table can do offered, it lays namespaces one after the other: the last table is on level 68.
#[test]
fn flow_tables_are_deep_enough() {
    let mut node = Node::new(Config::new(1));
    node.initialize();
    let mut create = CreateFlowTableIn::new();
    create.flow_table_context_mut().set_level(68);
    let anchor = node.command(&create).unwrap().table_id();
    let mut root = SetFlowTableRootIn::new();
    root.set_table_id(anchor);
    node.command(&root).unwrap();
    // The last table goes as the root, without another one in its place.
    let mut destroy = DestroyFlowTableIn::new();
    destroy.set_table_id(anchor);
    node.command(&destroy).unwrap();
}

/// It asks for every size of flow counter bulks at once, and takes the sum of them for what it got.
#[test]
fn flow_counters_in_all_bulk_sizes_at_once() {
    let config = Config::new(1);
    let sizes = config.general.flow_counter_bulk_alloc();
    let count = 128 * u16::from(sizes);
    let mut node = Node::new(config);
    node.initialize();
    let mut alloc = AllocFlowCounterIn::new();
    alloc.set_flow_counter_bulk(sizes);
    let first = node.command(&alloc).unwrap().flow_counter_id();
    let mut query = QueryFlowCounterIn::new();
    query.set_flow_counter_id(first + u32::from(count) - 1);
    assert!(node.command_with(&query, &[], 16).is_ok());
    query.set_flow_counter_id(first + u32::from(count));
    assert!(node.command_with(&query, &[], 16).is_err());
}

const QP0: u8 = 7;
/// A subnet management datagram with a directed route: Get(NodeInfo) over one hop.
fn node_info_of_the_neighbour() -> [u8; 256] {
    let mut smp = [0; 256];
    smp[..4].copy_from_slice(&[1, 0x81, 1, 1]);
    smp[17] = 0x11;
    smp
}

/// With has_smi it makes a QP0, whose datagrams find the other end of the cable without knowing its local identifier.
#[test]
fn management_datagrams_reach_the_neighbour() {
    let mut pair = subnet();
    let query = QueryHcaVportContextIn::new();
    assert!(
        pair.a
            .command(&query)
            .unwrap()
            .hca_vport_context()
            .has_smi()
    );
    let lids = [lid(&mut pair.a), lid(&mut pair.b)];
    let (mut qp_a, mut cq_a) = endpoint(&mut pair.a, pair.pd[0], QP0);
    let (mut qp_b, mut cq_b) = endpoint(&mut pair.b, pair.pd[1], QP0);
    for (node, qp) in [(&mut pair.a, &qp_a), (&mut pair.b, &qp_b)] {
        node.make_rtr(qp, 0, 0, None);
        node.make_rts(qp, 0);
    }
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, memory, 4096, ALL);
    let own = pair.a.host.alloc(4096, 4096);
    let own_key = pair.a.register(pair.pd[0], own, own, 4096, ALL);
    pair.a.host.put(own, &node_info_of_the_neighbour());
    // By the permissive identifier, and by its own.
    for to in [0xffff, lids[1]] {
        pair.a
            .post_receive(&mut qp_a, &[(own_key, own + 1024, 512)]);
        pair.b.post_receive(&mut qp_b, &[(key, memory, 512)]);
        let mut segments = address_vector(0, 0, &[0; 16], 0, [0; 6]);
        segments[0x0e..0x10].copy_from_slice(&to.to_be_bytes());
        segments[0x1b..0x30].fill(0);
        segments.extend(data_segment((own_key, own, 256)));
        pair.a.post_send(&mut qp_a, SEND, SIGNALED, 0, &segments);
        pair.a.ring_send(&qp_a);
        pair.run();
        // Not one's own echo.
        assert_eq!(pair.a.poll_all(&mut cq_a).len(), 1);
        let at = cq_b.ring + u64::from(cq_b.consumer) * 64;
        // It answers to the source: of a directed route that is the permissive identifier, although the port has its own.
        let source = if to == 0xffff { to } else { lids[0] };
        assert_eq!(pair.b.host.get32(at + 0x14) as u16, source);
        let received = pair.b.poll(&mut cq_b).unwrap();
        assert_eq!((received.syndrome, received.byte_count), (0, 40 + 256));
        assert_eq!(received.flags_rqpn & 0xff_ffff, 0);
        assert_eq!(
            pair.b.host.bytes(memory + 40, 256),
            node_info_of_the_neighbour()
        );
    }
}

/// Its answers to queries of performance counters have no header when they come through QP1: cards' firmware answers them.
#[test]
fn performance_queries_never_reach_the_driver() {
    let mut pair = subnet();
    let lids = [lid(&mut pair.a), lid(&mut pair.b)];
    let (mut qp_a, mut cq_a) = endpoint(&mut pair.a, pair.pd[0], QP1);
    let (mut qp_b, mut cq_b) = endpoint(&mut pair.b, pair.pd[1], QP1);
    for (node, qp) in [(&mut pair.a, &qp_a), (&mut pair.b, &qp_b)] {
        node.make_rtr(qp, 0, 0, None);
        node.make_rts(qp, 0);
    }
    let own = pair.a.host.alloc(4096, 4096);
    let own_key = pair.a.register(pair.pd[0], own, own, 4096, ALL);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, memory, 4096, ALL);
    pair.b.post_receive(&mut qp_b, &[(key, memory, 512)]);
    // Get(PortCountersExtended) of port 1, then something that is an answer.
    for (method, answered) in [(0x01, true), (0x81, false)] {
        let mut query = [0; 256];
        query[..4].copy_from_slice(&[1, 4, 1, method]);
        query[8..16].copy_from_slice(b"transact");
        query[17] = 0x1d;
        query[65] = 1;
        pair.a.host.put(own, &query);
        pair.a
            .post_receive(&mut qp_a, &[(own_key, own + 1024, 512)]);
        let mut segments = address_vector(1, 0x8001_0000, &[0; 16], 0, [0; 6]);
        segments[0x0e..0x10].copy_from_slice(&lids[1].to_be_bytes());
        segments[0x1b..0x30].fill(0);
        segments.extend(data_segment((own_key, own, 256)));
        pair.a.post_send(&mut qp_a, SEND, SIGNALED, 0, &segments);
        pair.a.ring_send(&qp_a);
        pair.run();
        let done = pair.a.poll_all(&mut cq_a);
        assert!(done.iter().all(|cqe| cqe.syndrome == 0));
        assert_eq!(done.len(), 1 + usize::from(answered));
        assert_eq!(pair.b.poll(&mut cq_b).is_some(), !answered);
        if answered {
            let answer = pair.a.host.bytes(own + 1024 + 40, 256).to_vec();
            assert_eq!(answer[..4], [1, 4, 1, 0x81]);
            assert_eq!(answer[4..6], [0, 0]);
            assert_eq!(answer[8..16], *b"transact");
            // Neither was counted when it was filled.
            let packets = |at: usize| u64::from_be_bytes(answer[at..at + 8].try_into().unwrap());
            assert_eq!((packets(64 + 24), packets(64 + 32)), (0, 0));
        }
    }
    // One answer went out; the query and what came behind it came in. Looked at from the inside, then cleared.
    let mut mad = MadIfcIn::new();
    mad.set_port(1).set_op_mod(3);
    for (method, expected) in [(0x01, (1, 2)), (0x02, (0, 0)), (0x01, (0, 0))] {
        let query = mad.mad_mut();
        query[..4].copy_from_slice(&[1, 4, 1, method]);
        query[17] = 0x1d;
        // Everything of port 1.
        query[65..68].copy_from_slice(&[1, 0xff, 0xff]);
        let answer = pair.b.command(&mad).unwrap();
        let data = &answer.response_mad_packet()[64..];
        let packets = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
        assert_eq!((packets(24), packets(32)), expected);
    }
}

/// mlx5_core brings a card back whose firmware has stopped: it checks that a reset is possible, asks for one beside the
/// queue's address, waits until the interface is disabled, and starts from the beginning.
#[test]
fn stopped_firmware_comes_back_by_software_reset() {
    const DISABLED: u32 = 1;
    const RESET: u32 = 7;
    let mut node = Node::new(Config::new(1));
    node.initialize();
    node.model.fail_health(1, 0);
    node.advance();
    assert_eq!(node.read32(0x238) >> 31, 1, "a reset is required");
    assert_eq!(node.read32(0x1fc) >> 30 & 1, 1, "and possible");
    let queue = node.read32(0x14);
    node.write32(0x14, queue & !0x700 | RESET << 8);
    assert_eq!(node.read32(0x14) >> 8 & 7, DISABLED);
    assert_eq!(node.read32(0x23c), 0, "no syndrome is left");
    node.given.clear();
    node.program_queue();
    assert_eq!(node.read32(0x14) >> 8 & 7, 0);
    node.initialize();
    assert_eq!(node.model.leaks(), []);
}
