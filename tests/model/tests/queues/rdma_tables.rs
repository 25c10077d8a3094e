//! Flow tables of RDMA's packets: what queue pairs send and receive is counted, dropped and passed on by opcode and queue pair.

use bareverbs_firmware_cmds::flow::*;
use bareverbs_firmware_cmds::values::FlowTableType;
use bareverbs_firmware_cmds::vport::TrafficCounter;
use connectx_model::{Config, Syndrome};
use zerocopy::{FromBytes, IntoBytes};

use crate::common::queues::*;
use crate::common::{Failure, Node};
use crate::{SEND, WRITE, refused};

const RX: u8 = FlowTableType::RdmaReceive.number();
const TX: u8 = FlowTableType::RdmaTransmit.number();

const ALLOW: u16 = 1;
const DROP: u16 = 2;
const FORWARD: u16 = 4;
const COUNT: u16 = 8;

/// Path MTU of the pairs.
const MTU: usize = 1024;
/// Bytes of a packet over IPv4 beside its payload: Ethernet, IP, UDP, base transport, ICRC.
const HEADERS: usize = 14 + 20 + 8 + 12 + 4;
/// Further ones of a packet that starts a write.
const RETH: usize = 16;

pub(super) fn config(unit: u8) -> Config {
    let mut config = Config::new(unit);
    for caps in [&mut config.general, &mut config.general_max] {
        caps.set_max_flow_counter_15_0(0x1000);
    }
    let caps = &mut config.flow_table;
    for receives in [true, false] {
        let properties = if receives {
            caps.flow_table_properties_nic_receive_rdma_mut()
        } else {
            caps.flow_table_properties_nic_transmit_rdma_mut()
        };
        properties
            .set_ft_support(true)
            .set_flow_counter(true)
            .set_flow_modify_en(true)
            .set_modify_root(true)
            .set_table_miss_action_domain(receives)
            .set_max_ft_level(8)
            .set_log_max_ft_size(8)
            .set_log_max_ft_num(4)
            .set_log_max_flow(8)
            .set_log_max_destination(1)
            .set_log_max_flow_counter(0)
            .set_max_modify_header_actions(0);
    }
    config
}

pub(super) fn table(node: &mut Node, kind: u8, level: u8, miss: u8) -> Result<u32, Failure> {
    let mut create = CreateFlowTableIn::new();
    create.set_table_type(kind);
    create
        .flow_table_context_mut()
        .set_level(level)
        .set_log_size(8)
        .set_table_miss_action(miss);
    node.command(&create).map(|output| output.table_id())
}

/// A group of the whole table.
pub(super) fn group(
    node: &mut Node,
    kind: u8,
    table: u32,
    mask: impl FnOnce(&mut FteMatchSetMisc),
) -> Result<u32, Failure> {
    let mut create = CreateFlowGroupIn::new();
    create
        .set_table_type(kind)
        .set_table_id(table)
        .set_end_flow_index(255)
        .set_match_criteria_enable(2);
    mask(create.match_criteria_mut().misc_parameters_mut());
    node.command(&create).map(|output| output.group_id())
}

struct Rule {
    kind: u8,
    table: u32,
    group: u32,
    index: u32,
    action: u16,
    to: Option<(u8, u32)>,
    counter: u32,
}

fn set(
    node: &mut Node,
    rule: &Rule,
    value: impl FnOnce(&mut FteMatchSetMisc),
) -> Result<(), Failure> {
    let mut set = SetFteIn::new();
    set.set_table_type(rule.kind)
        .set_table_id(rule.table)
        .set_flow_index(rule.index);
    let context = set.flow_context_mut();
    context
        .set_group_id(rule.group)
        .set_action(rule.action)
        .set_destination_list_size(rule.to.is_some().into())
        .set_flow_counter_list_size((rule.action & COUNT != 0).into());
    value(context.match_value_mut().misc_parameters_mut());
    let mut tail = Vec::new();
    if let Some((kind, number)) = rule.to {
        let mut to = DestFormat::ZERO;
        to.set_destination_type(kind).set_destination_id(number);
        tail.extend(to.as_bytes());
    }
    if rule.action & COUNT != 0 {
        let mut counter = FlowCounterList::ZERO;
        counter.set_flow_counter_id(rule.counter);
        tail.extend(counter.as_bytes());
    }
    node.command_with(&set, &tail, 0).map(drop)
}

fn delete(node: &mut Node, rule: &Rule) {
    let mut delete = DeleteFteIn::new();
    delete
        .set_table_type(rule.kind)
        .set_table_id(rule.table)
        .set_flow_index(rule.index);
    node.command(&delete).unwrap();
}

pub(super) fn counter(node: &mut Node) -> u32 {
    let output = node.command(&AllocFlowCounterIn::new()).unwrap();
    output.flow_counter_id()
}

/// (packets, octets) of a counter.
pub(super) fn counted(node: &mut Node, counter: u32) -> (u64, u64) {
    let mut query = QueryFlowCounterIn::new();
    query.set_flow_counter_id(counter);
    let (_, tail) = node.command_with(&query, &[], 16).unwrap();
    let traffic = TrafficCounter::read_from_bytes(&tail).unwrap();
    (traffic.packets(), traffic.octets())
}

pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Drawn messages: what each side counts by opcode is what IBTA 9.4 makes of their lengths. The receiver's first table sends
/// everything on to a second, half of the time by an entry, half of the time by the way of misses.
#[test]
fn packets_by_opcode() {
    for seed in 1..=6 {
        let mut rng = Rng(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut pair = Pair::of([1, 2].map(config));
        let [(mut qp_a, mut cq_a), (mut qp_b, _)] = pair.connect(RC);
        let (memory_a, memory_b) = (
            pair.a.host.alloc(16384, 4096),
            pair.b.host.alloc(16384, 4096),
        );
        let key_a = pair.a.register(pair.pd[0], memory_a, 0, 16384, ALL);
        let key_b = pair.b.register(pair.pd[1], memory_b, 0, 16384, ALL);
        // The sender's table looks at its own QP's number as well, the receiver's at the packet's.
        let (from, to) = (qp_a.number, qp_b.number);
        let mut counters = Vec::new();
        for (node, kind) in [(&mut pair.a, TX), (&mut pair.b, RX)] {
            let last = table(node, kind, 3, 0).unwrap();
            let of_last = group(node, kind, last, |misc| {
                misc.set_bth_opcode(0xff);
                if kind == TX {
                    misc.set_source_sqn(0xff_ffff);
                } else {
                    misc.set_bth_dst_qp(0xff_ffff);
                }
            })
            .unwrap();
            let own: Vec<u32> = (0..0x0c)
                .map(|opcode: u8| {
                    let counter = counter(node);
                    let rule = Rule {
                        kind,
                        table: last,
                        group: of_last,
                        index: opcode.into(),
                        action: ALLOW | COUNT,
                        to: None,
                        counter,
                    };
                    set(node, &rule, |misc| {
                        misc.set_bth_opcode(opcode);
                        if kind == TX {
                            misc.set_source_sqn(from);
                        } else {
                            misc.set_bth_dst_qp(to);
                        }
                    })
                    .unwrap();
                    counter
                })
                .collect();
            let first = table(node, kind, 1, 0).unwrap();
            if rng.below(2) == 0 {
                let of_first = group(node, kind, first, |_| ()).unwrap();
                let rule = Rule {
                    kind,
                    table: first,
                    group: of_first,
                    index: 0,
                    action: FORWARD,
                    to: Some((1, last)),
                    counter: 0,
                };
                set(node, &rule, |_| ()).unwrap();
            } else {
                let mut modify = ModifyFlowTableIn::new();
                modify
                    .set_table_type(kind)
                    .set_table_id(first)
                    .set_modify_field_select(1);
                modify
                    .flow_table_context_mut()
                    .set_table_miss_action(1)
                    .set_table_miss_id(last);
                node.command(&modify).unwrap();
            }
            counters.push(own);
        }
        let mut expected = [(0u64, 0u64); 0x0c];
        for round in 0..40 {
            let len = rng.below(5000) as usize + 1;
            let writes = rng.below(2) == 1;
            let (operation, base) = if writes { (WRITE, 6) } else { (SEND, 0) };
            let mut segments = Vec::new();
            if writes {
                segments.extend(remote_segment(0, key_b));
            } else {
                pair.b.post_receive(&mut qp_b, &[(key_b, 0, 8192)]);
            }
            segments.extend(data_segment((key_a, 0, len as u32)));
            pair.a
                .post_send(&mut qp_a, operation, SIGNALED, 0, &segments);
            pair.a.ring_send(&qp_a);
            pair.run();
            let done = pair.a.poll(&mut cq_a).map(|done| done.opcode);
            assert_eq!(done, Some(0), "seed {seed}, round {round}");
            let packets = len.div_ceil(MTU);
            for nth in 0..packets {
                // FIRST, MIDDLE, LAST and ONLY: those of SEND are 0, 1, 2 and 4, those of WRITE 6, 7, 8 and 10.
                let opcode = match (nth, nth + 1 == packets) {
                    (0, true) => 4,
                    (0, false) => 0,
                    (_, false) => 1,
                    (_, true) => 2,
                } + base;
                let payload = (len - nth * MTU).min(MTU).next_multiple_of(4);
                let reth = if writes && nth == 0 { RETH } else { 0 };
                let (packets, octets) = &mut expected[opcode];
                *packets += 1;
                *octets += (HEADERS + reth + payload) as u64;
            }
        }
        for (node, counters) in [&mut pair.a, &mut pair.b].into_iter().zip(&counters) {
            for (opcode, &counter) in counters.iter().enumerate() {
                let is = counted(node, counter);
                assert_eq!(is, expected[opcode], "seed {seed}, opcode {opcode:#x}");
            }
        }
    }
}

/// Writes that the receiver's tables, or the sender's, drop: they are tried again until the retries end, and then they end with
/// "transport retry counter exceeded". Sends, which no entry takes, arrive before.
#[test]
fn dropped_packets_end_a_connection() {
    for kind in [RX, TX] {
        let mut pair = Pair::of([1, 2].map(config));
        let [(mut qp_a, mut cq_a), (mut qp_b, mut cq_b)] = pair.connect(RC);
        let memory = pair.b.host.alloc(4096, 4096);
        let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
        let node = if kind == RX { &mut pair.b } else { &mut pair.a };
        let table = table(node, kind, 1, 0).unwrap();
        let group = group(node, kind, table, |misc| {
            misc.set_bth_opcode(0xff);
        })
        .unwrap();
        let counter = counter(node);
        let rule = Rule {
            kind,
            table,
            group,
            index: 7,
            action: DROP | COUNT,
            to: None,
            counter,
        };
        let write_only = |misc: &mut FteMatchSetMisc| {
            misc.set_bth_opcode(0x0a);
        };
        set(node, &rule, write_only).unwrap();
        pair.b.post_receive(&mut qp_b, &[(key, 0, 64)]);
        pair.a
            .post_send(&mut qp_a, SEND, SIGNALED, 0, &inline_segment(&[1; 16]));
        pair.a.ring_send(&qp_a);
        pair.run();
        assert_eq!(pair.a.poll(&mut cq_a).map(|done| done.opcode), Some(0));
        assert_eq!(pair.b.poll(&mut cq_b).map(|done| done.opcode), Some(2));
        let mut write = |pair: &mut Pair, byte: u8| {
            let mut segments = remote_segment(0, key);
            segments.extend(inline_segment(&[byte; 16]));
            pair.a.post_send(&mut qp_a, WRITE, SIGNALED, 0, &segments);
            pair.a.ring_send(&qp_a);
            pair.run();
        };
        // One is dropped, and arrives when it is tried again and the entry is gone.
        write(&mut pair, 2);
        assert_eq!(pair.a.poll(&mut cq_a), None);
        let node = if kind == RX { &mut pair.b } else { &mut pair.a };
        assert_eq!(counted(node, counter).0, 1);
        delete(node, &rule);
        pair.a.now = pair.a.model.next_deadline().unwrap();
        pair.run();
        assert_eq!(pair.a.poll(&mut cq_a).map(|done| done.opcode), Some(0));
        assert_eq!(pair.b.host.bytes(memory, 16), [2; 16]);
        // The next is dropped until there are no tries left: the first and seven more.
        let node = if kind == RX { &mut pair.b } else { &mut pair.a };
        set(node, &rule, write_only).unwrap();
        write(&mut pair, 3);
        let failed = loop {
            if let Some(done) = pair.a.poll(&mut cq_a) {
                break done;
            }
            pair.a.now = pair.a.model.next_deadline().unwrap();
            pair.run();
        };
        assert_eq!((failed.opcode, failed.syndrome), (0xd, 0x15));
        let node = if kind == RX { &mut pair.b } else { &mut pair.a };
        assert_eq!(counted(node, counter).0, 9);
        assert_eq!(pair.b.host.bytes(memory, 16), [2; 16]);
    }
}

/// A receiver's table whose misses go to Ethernet's tables: queue pairs get what an entry allows, and nothing else.
#[test]
fn misses_that_switch_the_domain() {
    let mut pair = Pair::of([1, 2].map(config));
    let [(mut qp_a, mut cq_a), (_, _)] = pair.connect(RC);
    let memory = pair.b.host.alloc(4096, 4096);
    let key = pair.b.register(pair.pd[1], memory, 0, 4096, ALL);
    let table = table(&mut pair.b, RX, 1, 2).unwrap();
    let mut write = |pair: &mut Pair| {
        let mut segments = remote_segment(0, key);
        segments.extend(inline_segment(&[4; 16]));
        pair.a.post_send(&mut qp_a, WRITE, SIGNALED, 0, &segments);
        pair.a.ring_send(&qp_a);
        pair.run();
    };
    write(&mut pair);
    assert_eq!(pair.b.host.bytes(memory, 16), [0; 16]);
    let group = group(&mut pair.b, RX, table, |_| ()).unwrap();
    let rule = Rule {
        kind: RX,
        table,
        group,
        index: 0,
        action: ALLOW,
        to: None,
        counter: 0,
    };
    set(&mut pair.b, &rule, |_| ()).unwrap();
    pair.a.now = pair.a.model.next_deadline().unwrap();
    pair.run();
    assert_eq!(pair.b.host.bytes(memory, 16), [4; 16]);
    assert_eq!(pair.a.poll(&mut cq_a).map(|done| done.opcode), Some(0));
}

/// Match fields and actions that these tables do not support are refused.
#[test]
fn what_they_cannot() {
    let mut node = Node::new(config(1));
    node.initialize();
    node.give(64);
    // What is sent has no other domain to go to.
    assert_eq!(
        table(&mut node, TX, 1, 2),
        Err(refused(Syndrome::FlowMissAction))
    );
    let (received, sent) = (
        table(&mut node, RX, 1, 0).unwrap(),
        table(&mut node, TX, 2, 0).unwrap(),
    );
    // The sender of a received packet is not known, nor is there anything inside of one.
    let result = group(&mut node, RX, received, |misc| {
        misc.set_source_sqn(1);
    });
    assert_eq!(result, Err(refused(Syndrome::FlowField)));
    let result = group(&mut node, TX, sent, |misc| {
        misc.set_vxlan_vni(1);
    });
    assert_eq!(result, Err(refused(Syndrome::FlowField)));
    let group = group(&mut node, RX, received, |_| ()).unwrap();
    let mut rule = Rule {
        kind: RX,
        table: received,
        group,
        index: 0,
        action: FORWARD,
        to: Some((1, sent)),
        counter: 0,
    };
    // Neither the other direction's tables nor TIRs.
    assert_eq!(
        set(&mut node, &rule, |_| ()),
        Err(refused(Syndrome::FteTable))
    );
    rule.to = Some((2, 0));
    assert_eq!(
        set(&mut node, &rule, |_| ()),
        Err(refused(Syndrome::FteTir))
    );
    (rule.action, rule.to) = (ALLOW | DROP, None);
    assert_eq!(
        set(&mut node, &rule, |_| ()),
        Err(refused(Syndrome::FteAction))
    );
    for kind in [RX, TX] {
        let mut alloc = AllocModifyHeaderContextIn::new();
        alloc.set_table_type(kind).set_num_of_actions(1);
        let result = node.command_with(&alloc, &[0; 8], 0).map(drop);
        assert_eq!(result, Err(refused(Syndrome::RewriteUnsupported)));
    }
    // A card without these tables.
    let mut config = Config::new(1);
    config
        .flow_table
        .flow_table_properties_nic_receive_rdma_mut()
        .set_ft_support(false);
    let mut node = Node::new(config);
    node.initialize();
    assert_eq!(
        table(&mut node, RX, 1, 0),
        Err(refused(Syndrome::FlowUnsupported))
    );
}
