//! Counters of the port, and the lists that it keeps for a network driver.

use crate::common::Failure;
use crate::lab::*;
use bareverbs_firmware_cmds::register::{AccessRegisterIn, Eth8023Counters, PpcntReg};
use bareverbs_firmware_cmds::vport::{
    ModifyNicVportContextIn, QueryNicVportContextIn, QueryVportCounterIn,
};
use connectx_model::Syndrome;
use zerocopy::{FromBytes, IntoBytes};

fn read(lab: &mut Lab, id: u16, data: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut access = AccessRegisterIn::new();
    access.set_op_mod(1).set_register_id(id);
    let (_, answer) = lab.node.command_with(&access, data, data.len())?;
    Ok(answer)
}

fn ppcnt(lab: &mut Lab, group: u8) -> PpcntReg {
    let mut register = PpcntReg::ZERO;
    register.set_local_port(1).set_grp(group);
    let answer = read(lab, 0x5008, register.as_bytes()).unwrap();
    PpcntReg::read_from_bytes(&answer).unwrap()
}

#[test]
fn frames_are_counted_by_their_address() {
    let mut lab = Lab::new();
    lab.fill(8);
    let multicast = [0x33, 0x33, 0, 0, 0, 1];
    let unicast = good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]);
    lab.receive(&unicast);
    lab.receive(&good_udp_frame(multicast, OTHER, (1, 2), &[9; 100]));
    lab.receive(&good_udp_frame([0xff; 6], OTHER, (1, 2), &[9; 100]));
    lab.receive(&good_udp_frame([0xff; 6], OTHER, (1, 2), &[9; 100]));
    lab.send(0, &good_udp_frame(OTHER, OWN, (1, 2), &[9; 50]));
    lab.send(0, &good_udp_frame(OTHER, OWN, (1, 2), &[9; 50]));
    lab.send(0, &good_udp_frame(multicast, OWN, (1, 2), &[9; 50]));
    let mut query = QueryVportCounterIn::new();
    query.set_clear(true);
    let counters = lab.node.command(&query).unwrap();
    let received = [
        counters.received_eth_unicast(),
        counters.received_eth_multicast(),
        counters.received_eth_broadcast(),
    ]
    .map(|counter| (counter.packets(), counter.octets()));
    assert_eq!(received, [(1, 142), (1, 142), (2, 284)]);
    let sent = [
        counters.transmitted_eth_unicast(),
        counters.transmitted_eth_multicast(),
        counters.transmitted_eth_broadcast(),
    ]
    .map(|counter| (counter.packets(), counter.octets()));
    assert_eq!(sent, [(2, 184), (1, 92), (0, 0)]);
    assert_eq!(counters.received_ib_unicast().packets(), 0);
    let again = lab.node.command(&query).unwrap();
    assert_eq!(again.received_eth_unicast().packets(), 0);
}

#[test]
fn groups_of_port_counters_differ() {
    let mut lab = Lab::new();
    lab.fill(8);
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]));
    lab.receive(&good_udp_frame([0xff; 6], OTHER, (1, 2), &[9; 100]));
    lab.send(0, &good_udp_frame(OTHER, OWN, (1, 2), &[9; 50]));
    let register = ppcnt(&mut lab, 0);
    let group = Eth8023Counters::read_from_bytes(register.counter_set()).unwrap();
    assert_eq!(group.a_frames_transmitted_ok_low(), 1);
    assert_eq!(group.a_frames_received_ok_low(), 2);
    // With check sequences.
    assert_eq!(group.a_octets_transmitted_ok_low(), 96);
    assert_eq!(group.a_octets_received_ok_low(), 2 * 146);
    assert_eq!(group.a_broadcast_frames_received_ok_low(), 1);
    let register = ppcnt(&mut lab, 1);
    let octets = u64::from_be_bytes(register.counter_set()[..8].try_into().unwrap());
    assert_eq!(octets, 2 * 146);
    // A cable without errors.
    for group in [2, 3, 5, 0x10, 0x11, 0x12] {
        let register = ppcnt(&mut lab, group);
        assert!(register.counter_set().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn frames_that_no_queue_takes_are_counted_by_the_port() {
    let mut lab = Lab::new();
    // Too long for the port, and for a queue that has no buffer.
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &[9; 20_000]));
    lab.receive(&good_udp_frame(OWN, OTHER, (1, 2), &[9; 100]));
    let register = ppcnt(&mut lab, 0);
    let group = Eth8023Counters::read_from_bytes(register.counter_set()).unwrap();
    assert_eq!(group.a_frames_received_ok_low(), 2);
    assert_eq!(group.a_octets_received_ok_low(), 20_046 + 146);
    // What is steered to a queue came through the port, even if the queue drops it.
    let counters = lab.node.command(&QueryVportCounterIn::new()).unwrap();
    let unicast = counters.received_eth_unicast();
    assert_eq!((unicast.packets(), unicast.octets()), (1, 142));
    assert_eq!(lab.out_of_buffer(), 1);
}

fn set_list(lab: &mut Lab, kind: u8, entries: &[u64]) -> Result<(), Failure> {
    let mut modify = ModifyNicVportContextIn::new();
    modify.field_select_mut().set_addresses_list(true);
    modify
        .nic_vport_context_mut()
        .set_allowed_list_type(kind)
        .set_allowed_list_size(entries.len() as u16);
    let list: Vec<u8> = entries
        .iter()
        .flat_map(|entry| entry.to_be_bytes())
        .collect();
    lab.node.command_with(&modify, &list, 0).map(drop)
}

#[test]
fn lists_of_addresses_are_kept_by_type() {
    let mut lab = Lab::new();
    let lists: [&[u64]; 3] = [
        &[0x02c9_0000_0001],
        &[0x3333_0000_0001, 0x0100_5e00_0001],
        &[5, 6],
    ];
    for (kind, list) in (0..).zip(lists) {
        set_list(&mut lab, kind, list).unwrap();
    }
    for (kind, list) in (0..).zip(lists) {
        let mut query = QueryNicVportContextIn::new();
        query.set_allowed_list_type(kind);
        let (output, tail) = lab.node.command_with(&query, &[], list.len() * 8).unwrap();
        assert_eq!(
            output.nic_vport_context().allowed_list_size(),
            list.len() as u16
        );
        let entries: Vec<u64> = tail
            .chunks(8)
            .map(|entry| u64::from_be_bytes(entry.try_into().unwrap()))
            .collect();
        assert_eq!(entries, list);
        if list.len() > 1 {
            let short = lab.node.command_with(&query, &[], 8).map(drop);
            assert_eq!(short, Err(refused(Syndrome::VportListOutput)));
        }
    }
    set_list(&mut lab, 1, &[]).unwrap();
    let no = |syndrome| Err(refused(syndrome));
    assert_eq!(set_list(&mut lab, 3, &[1]), no(Syndrome::VportListType));
    assert_eq!(
        set_list(&mut lab, 0, &[1; 129]),
        no(Syndrome::VportListSize)
    );
    let mut modify = ModifyNicVportContextIn::new();
    modify.field_select_mut().set_addresses_list(true);
    modify.nic_vport_context_mut().set_allowed_list_size(2);
    assert_eq!(
        lab.node.command_with(&modify, &[0; 8], 0).map(drop),
        no(Syndrome::VportListInput)
    );
}

#[test]
fn registers_that_tools_read() {
    let mut lab = Lab::new();
    // PFCC: what is set comes back.
    let mut pauses = [0; 32];
    pauses[1] = 1;
    // All priorities are meant, as by Linux (`mlx5_set_port_pfc`).
    pauses[5] = 0xff;
    pauses[7] = 0xff;
    pauses[8] = 0x80;
    pauses[13] = 0x0f;
    let mut access = AccessRegisterIn::new();
    access.set_op_mod(0).set_register_id(0x5007);
    lab.node.command_with(&access, &pauses, 32).unwrap();
    let mut empty = [0; 32];
    empty[1] = 1;
    assert_eq!(read(&mut lab, 0x5007, &empty).unwrap(), pauses);
    // PMLP: four lanes of module 0. MCIA: its memory is at I2C address 0x50, where SFF-8024's identifier is the first
    // byte (0x11: QSFP28), and nothing is at address 0.
    let mut lanes = [0; 64];
    lanes[1] = 1;
    assert_eq!(read(&mut lab, 0x5002, &lanes).unwrap()[3], 4);
    let mut memory = [0; 144];
    assert_eq!(read(&mut lab, 0x9014, &memory).unwrap()[3], 9);
    memory[4] = 0x50;
    memory[11] = 4;
    let first = read(&mut lab, 0x9014, &memory).unwrap();
    assert_eq!((first[3], first[16]), (0, 0x11));
    // What there is not is refused at once.
    for id in [0x5031, 0x500a, 0x7802, 0x9053, 0xffff] {
        assert_eq!(
            read(&mut lab, id, &[0; 64]),
            Err(refused(Syndrome::RegisterUnknown))
        );
    }
}
