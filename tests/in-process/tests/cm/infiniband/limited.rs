//! Limited members of a partition do not reach each other (IBTA volume 1, 10.9.3), and are told so.

use bareverbs_cm::rdma::*;
use bareverbs_core::AsyncEvent;
use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_in_process::subnet::Fault;
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;

use super::support::*;

const LIMITED: u16 = 0x7fff;
const FULL: u16 = 0xffff;

/// Two ports with these entries for the default partition, and an id of the first that has its address resolved.
fn nodes(own: u16, theirs: u16) -> (Nodes, CmId) {
    let mut nodes = Nodes::new(2);
    for (node, pkey) in [own, theirs].into_iter().enumerate() {
        assert!(nodes.world.set_pkey(node, 0, pkey));
        nodes.cms[node].handle_async_event(&AsyncEvent::PkeyChange { port: 1 });
    }
    nodes.listener(1, PortSpace::Tcp);
    let id = nodes.id(0, PortSpace::Tcp);
    let there = address(1, PORT);
    nodes.cms[0].resolve_addr(id, None, there, SECOND).unwrap();
    nodes.expect(0, EventType::AddrResolved);
    nodes.cms[0].resolve_route(id, 3 * SECOND).unwrap();
    (nodes, id)
}

#[test]
fn a_limited_member_is_told_so_while_it_waits() {
    let (mut nodes, id) = nodes(LIMITED, LIMITED);
    nodes.expect(0, EventType::RouteResolved);
    nodes.cms[0].create_qp(id, None, &mut qp()).unwrap();
    nodes.cms[0].connect(id, None).unwrap();
    assert!(nodes.event_within(1, SECOND).is_none());
    let awaited = nodes.cms[0].awaited(id).unwrap().expect("no answer yet");
    let (roce, limited) = (None, Some(LIMITED));
    assert_eq!(awaited, Awaited::Answer { roce, limited });
}

#[test]
fn a_limited_member_reaches_a_full_one() {
    for (own, theirs) in [(LIMITED, FULL), (FULL, LIMITED)] {
        let (mut nodes, id) = nodes(own, theirs);
        nodes.expect(0, EventType::RouteResolved);
        nodes.cms[0].create_qp(id, None, &mut qp()).unwrap();
        nodes.connect(id);
        assert_eq!(nodes.cms[0].awaited(id), Ok(None));
    }
}

/// With `allow_both_pkeys` OpenSM writes both entries of a partition, the limited one first.
#[test]
fn the_entry_of_a_full_member_is_taken_before_a_limited_one() {
    let mut nodes = Nodes::new(2);
    for node in 0..2 {
        assert!(nodes.world.set_pkey(node, 0, LIMITED));
        assert!(nodes.world.set_pkey(node, 1, FULL));
        nodes.cms[node].handle_async_event(&AsyncEvent::PkeyChange { port: 1 });
    }
    nodes.listener(1, PortSpace::Tcp);
    let (ours, theirs) = nodes.connected();
    nodes.say((0, ours), (1, theirs), b"by index 1");
}

/// One command more than the port's attributes take, which say how long the table is, wherever the entry stands.
#[test]
fn a_partition_is_found_without_asking_for_each_entry() {
    let nodes = Nodes::new(1);
    let device = nodes.cms[0].device();
    let before = device.commands_executed();
    device.query_port().unwrap();
    let attributes = device.commands_executed() - before;
    for (at, own, found) in [
        (127, 0x1234, Some((127, 0x1234))),
        (126, 0x9234, Some((126, 0x9234))),
        (125, 0x0000, None),
    ] {
        assert!(nodes.world.set_pkey(0, at, own));
        let before = device.commands_executed();
        let wanted = if found.is_some() { 0x9234 } else { 0x4321 };
        assert_eq!(device.find_pkey(wanted), Ok(found));
        assert_eq!(device.commands_executed() - before, attributes + 1);
    }
}

/// As OpenSM does, which has no path where both are limited.
#[test]
fn a_limited_member_without_a_path_is_told_so() {
    for (own, error) in [
        (LIMITED, "limited member of partition 0x7fff"),
        (FULL, "no records"),
    ] {
        let mut nodes = Nodes::new(2);
        assert!(nodes.world.set_pkey(0, 0, own));
        nodes.cms[0].handle_async_event(&AsyncEvent::PkeyChange { port: 1 });
        let id = nodes.id(0, PortSpace::Tcp);
        let there = address(1, PORT);
        nodes.cms[0].resolve_addr(id, None, there, SECOND).unwrap();
        nodes.expect(0, EventType::AddrResolved);
        nodes
            .subnet
            .with(|state| state.faults.push_back(Fault::Status(0x0300)));
        nodes.cms[0].resolve_route(id, 3 * SECOND).unwrap();
        let event = nodes.event_within(0, 10 * SECOND).expect("an event");
        assert_eq!(event.event, EventType::RouteError);
        let text = nodes.cms[0].last_error(id).unwrap().unwrap().to_string();
        assert!(text.contains(error), "{text}");
    }
}

/// A function that does not take the index for all of the table is asked for each entry.
#[test]
fn a_partition_is_found_where_the_whole_table_is_refused() {
    let nodes = Nodes::new(1);
    assert!(nodes.world.set_pkey(0, 5, 0x9234));
    let fault = CommandFault::Fail {
        status: Status::BadIndex,
        syndrome: 0xabc,
    };
    nodes.world.with_model(0, |model| {
        let rules = &mut model.faults_mut().commands;
        rules.push(CommandRule::next(Opcode::QueryHcaVportPkey.number(), fault));
    });
    let found = nodes.cms[0].device().find_pkey(0x9234).unwrap();
    assert_eq!(found, Some((5, 0x9234)));
}
