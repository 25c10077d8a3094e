//! Changes to headers of the packets that queue pairs send.

use bareverbs_firmware_cmds::flow::*;
use bareverbs_firmware_cmds::values::{FlowTableType, HeaderField};
use connectx_model::{Config, Syndrome};
use zerocopy::IntoBytes;

use super::rdma_tables::{self, Rng, counted, counter, group, table};
use crate::common::queues::*;
use crate::common::{Failure, Node};
use crate::{WRITE, refused};

const RX: u8 = FlowTableType::RdmaReceive.number();
const TX: u8 = FlowTableType::RdmaTransmit.number();

const ALLOW: u16 = 1;
const FORWARD: u16 = 4;
const COUNT: u16 = 8;
const MODIFY_HEADER: u16 = 0x40;

/// Of `mlx5_ifc`'s `MLX5_ACTION_IN_FIELD_OUT_*`.
const SMAC_47_16: u16 = 1;
const SMAC_15_0: u16 = 2;
const DSCP: u16 = 6;
const TTL: u16 = 0xa;

fn config(unit: u8) -> Config {
    let mut config = rdma_tables::config(unit);
    let caps = &mut config.flow_table;
    caps.flow_table_properties_nic_receive_mut()
        .set_max_modify_header_actions(0);
    caps.flow_table_properties_nic_transmit_mut()
        .set_max_modify_header_actions(0);
    caps.flow_table_properties_nic_transmit_rdma_mut()
        .set_log_max_modify_header_context(1)
        .set_max_modify_header_actions(4);
    config
}

/// Sets so many bits of a field from the lowest on.
fn change(field: u16, length: u8, data: u32) -> SetActionIn {
    let mut set = SetActionIn::ZERO;
    set.set_action_type(1)
        .set_field(field)
        .set_length(length)
        .set_data(data);
    set
}

fn alloc(node: &mut Node, kind: u8, actions: &[SetActionIn]) -> Result<u32, Failure> {
    let mut alloc = AllocModifyHeaderContextIn::new();
    alloc
        .set_table_type(kind)
        .set_num_of_actions(actions.len() as u8);
    let tail: Vec<u8> = actions.iter().flat_map(|action| action.0).collect();
    let (output, _) = node.command_with(&alloc, &tail, 0)?;
    Ok(output.modify_header_id())
}

fn dealloc(node: &mut Node, number: u32) -> Result<(), Failure> {
    let mut dealloc = DeallocModifyHeaderContextIn::new();
    dealloc.set_modify_header_id(number);
    node.command(&dealloc).map(drop)
}

/// Sets the entry at index 0 of a table of packets that are sent.
fn set(
    node: &mut Node,
    (table, group): (u32, u32),
    action: u16,
    (to, counted_by, changes): (Option<u32>, Option<u32>, Option<u32>),
    value: impl FnOnce(&mut FteMatchParam),
) -> Result<(), Failure> {
    let mut set = SetFteIn::new();
    set.set_table_type(TX).set_table_id(table);
    let context = set.flow_context_mut();
    context
        .set_group_id(group)
        .set_action(action)
        .set_modify_header_id(changes.unwrap_or(0))
        .set_destination_list_size(to.is_some().into())
        .set_flow_counter_list_size(counted_by.is_some().into());
    value(context.match_value_mut());
    let mut tail = Vec::new();
    if let Some(to) = to {
        let mut format = DestFormat::ZERO;
        format.set_destination_type(1).set_destination_id(to);
        tail.extend(format.as_bytes());
    }
    if let Some(counter) = counted_by {
        let mut list = FlowCounterList::ZERO;
        list.set_flow_counter_id(counter);
        tail.extend(list.as_bytes());
    }
    node.command_with(&set, &tail, 0).map(drop)
}

fn delete(node: &mut Node, table: u32) {
    let mut delete = DeleteFteIn::new();
    delete.set_table_type(TX).set_table_id(table);
    node.command(&delete).unwrap();
}

/// Lets the pair come to rest, and returns the frames of each.
fn run(pair: &mut Pair) -> [Vec<Vec<u8>>; 2] {
    let mut seen = [Vec::new(), Vec::new()];
    loop {
        pair.a.advance();
        pair.b.advance();
        let to_b = std::mem::take(&mut pair.a.host.frames);
        let to_a = std::mem::take(&mut pair.b.host.frames);
        if to_a.is_empty() && to_b.is_empty() {
            return seen;
        }
        for frame in &to_b {
            pair.b.model.receive(&mut pair.b.host, frame);
        }
        for frame in &to_a {
            pair.a.model.receive(&mut pair.a.host, frame);
        }
        seen[0].extend(to_b);
        seen[1].extend(to_a);
    }
}

/// The sum that a right header of version 4 has (RFC 791).
fn sum(header: &[u8]) -> u32 {
    let sum = header.chunks(2).fold(0, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair[1]]))
    });
    (sum & 0xffff) + (sum >> 16)
}

/// Drawn writes of two queue pairs, of which one's packets are changed by one table and counted by the next, which looks for
/// what they have become. All arrive, and so the invariant CRC still holds; what the tables do not change is as it was.
#[test]
fn changed_packets_arrive() {
    for seed in 1..=8 {
        let mut rng = Rng(0x2545_f491_4f6c_dd1d_u64.wrapping_mul(seed));
        let mut pair = Pair::of([1, 2].map(config));
        let [(mut changed, mut cq), _] = pair.connect(RC);
        let [(mut other, mut other_cq), _] = pair.connect(RC);
        let memory = pair.b.host.alloc(16384, 4096);
        let key = pair.b.register(pair.pd[1], memory, 0, 16384, ALL);
        let from = pair.a.host.alloc(16384, 4096);
        let own = pair.a.register(pair.pd[0], from, 0, 16384, ALL);
        let (dscp, ttl) = (rng.below(64) as u8, rng.below(256) as u8);
        let source: [u8; 6] = std::array::from_fn(|_| rng.below(128) as u8 & !1);
        let high = u32::from_be_bytes([source[0], source[1], source[2], source[3]]);
        let low = u16::from_be_bytes([source[4], source[5]]);
        let actions = [
            change(DSCP, 6, dscp.into()),
            change(TTL, 8, ttl.into()),
            change(SMAC_47_16, 0, high),
            change(SMAC_15_0, 16, low.into()),
        ];
        let node = &mut pair.a;
        let changes = alloc(node, TX, &actions).unwrap();
        let last = table(node, TX, 3, 0).unwrap();
        let mut create = CreateFlowGroupIn::new();
        create
            .set_table_type(TX)
            .set_table_id(last)
            .set_match_criteria_enable(3);
        let mask = create.match_criteria_mut();
        mask.outer_headers_mut().set_ip_dscp(0x3f);
        mask.misc_parameters_mut().set_source_sqn(0xff_ffff);
        let of_last = node.command(&create).unwrap().group_id();
        let count = counter(node);
        let number = changed.number;
        set(
            node,
            (last, of_last),
            ALLOW | COUNT,
            (None, Some(count), None),
            |value| {
                value.outer_headers_mut().set_ip_dscp(dscp);
                value.misc_parameters_mut().set_source_sqn(number);
            },
        )
        .unwrap();
        let first = table(node, TX, 1, 0).unwrap();
        let of_first = group(node, TX, first, |misc| {
            misc.set_source_sqn(0xff_ffff);
        })
        .unwrap();
        set(
            node,
            (first, of_first),
            FORWARD | MODIFY_HEADER,
            (Some(last), None, Some(changes)),
            |value| {
                value.misc_parameters_mut().set_source_sqn(number);
            },
        )
        .unwrap();
        assert_eq!(
            dealloc(node, changes),
            Err(refused(Syndrome::RewriteBusy)),
            "seed {seed}"
        );
        let mac = node.model.config().mac;
        let mut packets = 0;
        for round in 0..12 {
            // The last rounds are without the entry.
            let with_entry = round < 8;
            if round == 8 {
                delete(&mut pair.a, first);
                assert_eq!(dealloc(&mut pair.a, changes), Ok(()), "seed {seed}");
            }
            let len = rng.below(5000) as usize + 1;
            let data: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            pair.a.host.put(from, &data);
            let is_changed = rng.below(2) == 0;
            let (qp, cq) = if is_changed {
                (&mut changed, &mut cq)
            } else {
                (&mut other, &mut other_cq)
            };
            let mut segments = remote_segment(0, key);
            segments.extend(data_segment((own, 0, len as u32)));
            pair.a.post_send(qp, WRITE, SIGNALED, 0, &segments);
            pair.a.ring_send(qp);
            let [sent, answers] = run(&mut pair);
            let done = pair.a.poll(cq).map(|done| done.opcode);
            assert_eq!(done, Some(0), "seed {seed}, round {round}");
            assert_eq!(*pair.b.host.bytes(memory, len), data, "seed {seed}");
            assert_eq!(sent.len(), len.div_ceil(1024), "seed {seed}, round {round}");
            let is_changed = is_changed && with_entry;
            packets += if is_changed { sent.len() as u64 } else { 0 };
            // The other side's are as those that no entry takes.
            let plain = (answers[0][15], answers[0][22]);
            let expected = if is_changed {
                (dscp << 2 | plain.0 & 3, ttl)
            } else {
                plain
            };
            for frame in &sent {
                assert_eq!(
                    (frame[15], frame[22]),
                    expected,
                    "seed {seed}, round {round}"
                );
                assert_eq!(frame[6..12], if is_changed { source } else { mac });
                assert_eq!(sum(&frame[14..34]), 0xffff, "seed {seed}, round {round}");
            }
        }
        assert_eq!(counted(&mut pair.a, count).0, packets, "seed {seed}");
    }
}

/// Of all fields those may be changed that the invariant CRC does not cover (IBTA 7.8.1, Annex A17), and only of packets that
/// are sent; lists for other tables are not lists for these.
#[test]
fn what_may_not_be_changed() {
    let mut node = Node::new(config(1));
    node.initialize();
    node.give(64);
    // MAC addresses, Ethernet's type, DSCP, TTL, hop limit and VLAN, in mlx5_ifc's numbers.
    let variant = [1, 2, 3, 4, 5, 6, 0xa, 0x17, 0x47];
    for field in 0..=0x100 {
        let actions = [change(DSCP, 6, 1), change(field, 1, 1)];
        let known = HeaderField::from_number(field).is_some();
        let result = alloc(&mut node, TX, &actions);
        if known && variant.contains(&field) {
            let number = result.unwrap();
            assert_eq!(dealloc(&mut node, number), Ok(()), "field {field:#x}");
        } else {
            assert_eq!(
                result,
                Err(refused(Syndrome::RewriteField)),
                "field {field:#x}"
            );
        }
        assert_eq!(
            alloc(&mut node, RX, &actions),
            Err(refused(Syndrome::RewriteUnsupported)),
            "field {field:#x}"
        );
    }
    // A list of the tables of Ethernet's frames.
    let mut config = config(1);
    config
        .flow_table
        .flow_table_properties_nic_transmit_mut()
        .set_ft_support(true)
        .set_log_max_modify_header_context(1)
        .set_max_modify_header_actions(1);
    let mut node = Node::new(config);
    node.initialize();
    node.give(64);
    let kind = FlowTableType::NicTransmit.number();
    let of_frames = alloc(&mut node, kind, &[change(DSCP, 6, 1)]).unwrap();
    let table = table(&mut node, TX, 1, 0).unwrap();
    let group = group(&mut node, TX, table, |_| ()).unwrap();
    assert_eq!(
        set(
            &mut node,
            (table, group),
            ALLOW | MODIFY_HEADER,
            (None, None, Some(of_frames)),
            |_| ()
        ),
        Err(refused(Syndrome::RewriteUnknown))
    );
}
