//! Flow counters that were allocated many in a row.

use crate::lab::*;
use bareverbs_firmware_cmds::flow::{AllocFlowCounterIn, DeallocFlowCounterIn, QueryFlowCounterIn};
use connectx_model::Syndrome;

#[test]
fn counters_in_bulk() {
    let mut lab = Lab::new();
    let mut alloc = AllocFlowCounterIn::new();
    alloc.set_flow_counter_bulk(2);
    let first = lab.node.command(&alloc).unwrap().flow_counter_id();
    let single = lab.counter();
    assert!(first.is_multiple_of(4) && single >= first + 256);
    let (table, tir) = (lab.table(1, 4, 0), lab.tir());
    let group = lab.group(table, (0, 15), |set| {
        set.set_ethertype(0xffff);
    });
    for index in 0..3 {
        let rule = Rule::new(table, group, index, &[to_tir(tir)]).counted(first + 250 + index);
        let rule = rule.value(|set| {
            set.set_ethertype(0x900 + index as u16);
        });
        lab.set(&rule).unwrap();
    }
    for (kind, times) in [(0, 1), (1, 2), (2, 3)] {
        let mut frame = [0; 64];
        frame[12..14].copy_from_slice(&(0x900u16 + kind).to_be_bytes());
        (0..times).for_each(|_| lab.receive(&frame));
    }
    let mut query = QueryFlowCounterIn::new();
    query.set_flow_counter_id(first).set_num_of_counters(256);
    let packets = |lab: &mut Lab, query: &QueryFlowCounterIn| -> Vec<u64> {
        let (_, tail) = lab.node.command_with(query, &[], 256 * 16).unwrap();
        let each = tail.chunks_exact(16);
        each.map(|counter| u64::from_be_bytes(counter[..8].try_into().unwrap()))
            .collect()
    };
    let seen = packets(&mut lab, &query);
    assert_eq!(seen[250..253], [1, 2, 3]);
    assert_eq!(seen.iter().sum::<u64>(), 6);
    assert_eq!(lab.counted(first + 251), (2, 128));
    // Cleared as it is read.
    query.set_clear(true);
    assert_eq!(packets(&mut lab, &query), seen);
    assert!(
        packets(&mut lab, &query)
            .iter()
            .all(|&packets| packets == 0)
    );
    // All of a bulk go at once, and not before the last user is gone.
    let mut free = DeallocFlowCounterIn::new();
    free.set_flow_counter_id(first);
    for index in 0..3 {
        let busy = lab.node.command(&free).map(drop);
        assert_eq!(busy, Err(refused(Syndrome::FlowCounterBusy)));
        lab.delete(table, index).unwrap();
    }
    lab.node.command(&free).unwrap();
    assert!(lab.node.command_with(&query, &[], 256 * 16).is_err());
    assert_eq!(lab.counted(single), (0, 0));
}
