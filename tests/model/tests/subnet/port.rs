//! An adapter's port.

use crate::common::Node;
use crate::common::queues::QpPlan;
use crate::switch::{PERMISSIVE, frame};
use crate::*;
use bareverbs_firmware_cmds::mad::MadIfcIn;
use bareverbs_firmware_cmds::uar::AllocUarIn;
use bareverbs_firmware_cmds::vport::{
    QueryHcaVportContextIn, QueryHcaVportGidIn, QueryHcaVportPkeyIn,
};
use connectx_model::Config;
use std::time::Duration;

const PORT_CHANGE: u8 = 0x09;
/// Its sub-types (`enum` of `MLX5_PORT_CHANGE_SUBTYPE_*` in Linux).
const DOWN: u8 = 1;
const UP: u8 = 4;
const INITIALIZED: u8 = 5;
const LID: u8 = 6;
const PKEY: u8 = 7;
const GUID: u8 = 8;
const CLIENT_REREG: u8 = 9;

/// A port that awaits a manager, and its events.
fn managed() -> (Node, usize) {
    managed_as(false)
}

fn managed_as(subnet_agent: bool) -> (Node, usize) {
    let mut config = Config::new(5).infiniband();
    config.subnet_managed = true;
    config.subnet_agent = subnet_agent;
    let mut node = Node::new(config);
    node.initialize();
    let eq = node.create_eq(6, 1 << PORT_CHANGE, 0);
    (node, eq)
}

/// MAD_IFC, whose key counts or not; `None` if there is no answer.
fn ask(node: &mut Node, mad: &[u8; 256], keyed: bool) -> Option<[u8; 256]> {
    let mut command = MadIfcIn::new();
    command.set_port(1).set_op_mod(if keyed { 0 } else { 3 });
    command.mad_mut().copy_from_slice(mad);
    let answer = *node.command(&command).unwrap().response_mad_packet();
    (answer != [0; 256]).then_some(answer)
}

fn set(node: &mut Node, attribute: u16, modifier: u32, data: &[u8; 64]) -> u16 {
    let mut mad = datagram(LID_ROUTED, SET, attribute, modifier);
    mad[64..128].copy_from_slice(data);
    status(&ask(node, &mad, false).unwrap())
}

fn get(node: &mut Node, attribute: u16) -> [u8; 64] {
    let mad = datagram(LID_ROUTED, GET, attribute, 0);
    let answer = ask(node, &mad, false).unwrap();
    assert_eq!((answer[3], status(&answer)), (GET_RESPONSE, 0));
    answer[64..128].try_into().unwrap()
}

fn events(node: &mut Node, eq: usize) -> Vec<u8> {
    std::iter::from_fn(|| {
        let (kind, sub, data) = node.next_event(eq)?;
        assert_eq!((kind, data[8]), (PORT_CHANGE, 1 << 4));
        Some(sub)
    })
    .collect()
}

/// State, LID, LMC, manager's LID, as the driver sees them.
fn seen(node: &mut Node) -> (u8, u16, u8, u16) {
    let answer = node.command(&QueryHcaVportContextIn::new()).unwrap();
    let context = answer.hca_vport_context();
    (
        context.vport_state(),
        context.lid(),
        context.lmc(),
        context.sm_lid(),
    )
}

#[test]
fn a_port_is_brought_up_in_steps() {
    let (mut node, eq) = managed();
    assert_eq!(seen(&mut node), (INITIALIZE, 0, 0, 0));
    // Not before it is armed.
    assert_eq!(set(&mut node, PORT_INFO, 1, &port_info(9, 0, ACTIVE)), 0x1c);
    assert_eq!(seen(&mut node), (INITIALIZE, 0, 0, 0));
    assert_eq!(set(&mut node, PORT_INFO, 1, &port_info(8, 2, 0)), 0);
    assert_eq!(seen(&mut node), (INITIALIZE, 8, 2, 1));
    assert_eq!(set(&mut node, PORT_INFO, 1, &port_info(8, 2, ARMED)), 0);
    assert_eq!(events(&mut node, eq), [LID]);
    assert_eq!(set(&mut node, PORT_INFO, 1, &port_info(8, 2, ACTIVE)), 0);
    assert_eq!(seen(&mut node), (ACTIVE, 8, 2, 1));
    assert_eq!(events(&mut node, eq), [UP]);

    let mut info = port_info(8, 2, 0);
    info[51] |= 0x80;
    assert_eq!(set(&mut node, PORT_INFO, 1, &info), 0);
    assert_eq!(events(&mut node, eq), [CLIENT_REREG]);
    // Down leads back to the beginning, by way of the link.
    assert_eq!(set(&mut node, PORT_INFO, 1, &port_info(8, 2, 1)), 0);
    assert_eq!(events(&mut node, eq), [DOWN, INITIALIZED]);
    assert_eq!(seen(&mut node).0, INITIALIZE);
}

#[test]
fn the_cable_takes_the_state_along() {
    let (mut node, eq) = managed();
    for state in [ARMED, ACTIVE] {
        assert_eq!(set(&mut node, PORT_INFO, 1, &port_info(8, 0, state)), 0);
    }
    events(&mut node, eq);
    node.model.set_link(&mut node.host, false);
    assert_eq!(seen(&mut node).0, 1);
    // No state but Down without a link.
    assert_eq!(set(&mut node, PORT_INFO, 1, &port_info(8, 0, ARMED)), 0x1c);
    node.model.set_link(&mut node.host, true);
    assert_eq!(events(&mut node, eq), [DOWN, INITIALIZED]);
    assert_eq!(seen(&mut node), (INITIALIZE, 8, 0, 1));
}

#[test]
fn values_that_cannot_be_are_refused_whole() {
    let (mut node, eq) = managed();
    let good = port_info(8, 0, ARMED);
    for (at, value) in [
        // No identifier; one of a group; one that does not begin a range; a manager that is a group.
        (17, 0),
        (16, 0xc0),
        (34, 4),
        (18, 0xc1),
        // A state that there is not; a width, a speed and an MTU that the port does not have; lanes likewise.
        (32, 9),
        (29, 0x10),
        (35, 8),
        (36, 0x60),
        (43, 0x60),
    ] {
        let mut bad = good;
        bad[at] = value;
        assert_eq!(set(&mut node, PORT_INFO, 1, &bad), 0x1c, "byte {at}");
        assert_eq!(seen(&mut node), (INITIALIZE, 0, 0, 0), "byte {at}");
    }
    assert_eq!(set(&mut node, PORT_INFO, 2, &good), 0x1c);
    assert_eq!(set(&mut node, P_KEY_TABLE, 4, &[0; 64]), 0x1c);
    assert_eq!(set(&mut node, GUID_INFO, 1, &[0; 64]), 0x1c);
    assert_eq!(set(&mut node, NODE_INFO, 0, &[0; 64]), 0x0c);
    assert_eq!(events(&mut node, eq), []);
    assert_eq!(set(&mut node, PORT_INFO, 1, &good), 0);
}

#[test]
fn tables_are_set_and_the_driver_sees_them() {
    let (mut node, eq) = managed();
    let mut keys = [0; 64];
    keys[..6].copy_from_slice(&[0xff, 0xff, 0x80, 0x01, 0x00, 0x02]);
    assert_eq!(set(&mut node, P_KEY_TABLE, 0, &keys), 0);
    assert_eq!(events(&mut node, eq), [PKEY]);
    // The same again is no change.
    assert_eq!(set(&mut node, P_KEY_TABLE, 0, &keys), 0);
    assert_eq!(events(&mut node, eq), []);
    let mut query = QueryHcaVportPkeyIn::new();
    query.set_pkey_index(1);
    let (_, key) = node.command_with(&query, &[], 4).unwrap();
    assert_eq!(key, [0, 0, 0x80, 0x01]);

    let mut guids = [0; 64];
    guids[8..16].copy_from_slice(&0x0002_c903_1234_5678_u64.to_be_bytes());
    assert_eq!(set(&mut node, GUID_INFO, 0, &guids), 0);
    assert_eq!(events(&mut node, eq), [GUID]);
    let read = get(&mut node, GUID_INFO);
    assert_eq!(read[..8], node.model.config().port_guid.to_be_bytes());
    assert_eq!(read[8..], guids[8..]);
    let mut info = port_info(8, 0, 0);
    info[8..16].copy_from_slice(&0xfec0_0000_0000_0001_u64.to_be_bytes());
    assert_eq!(set(&mut node, PORT_INFO, 1, &info), 0);
    assert_eq!(events(&mut node, eq), [LID, GUID]);
    let mut query = QueryHcaVportGidIn::new();
    query.set_gid_index(1);
    let (_, gid) = node.command_with(&query, &[], 16).unwrap();
    assert_eq!(gid[..8], info[8..16]);
    assert_eq!(gid[8..], guids[8..16]);
}

/// Supported, enabled, in use: FDR10 is slower than what the link has.
#[test]
fn the_vendors_speed_is_offered_and_set() {
    let (mut node, _) = managed();
    let speeds = |node: &mut Node| {
        let info = get(node, MLNX_EXTENDED_PORT_INFO);
        let mut others = info.iter().enumerate();
        assert!(others.all(|(at, &byte)| byte == 0 || matches!(at, 7 | 11)));
        [info[7], info[11], info[15]]
    };
    assert_eq!(speeds(&mut node), [1, 1, 0]);
    let mut info = [0; 64];
    assert_eq!(set(&mut node, MLNX_EXTENDED_PORT_INFO, 1, &info), 0);
    assert_eq!(speeds(&mut node), [1, 0, 0]);
    info[11] = 2;
    assert_eq!(set(&mut node, MLNX_EXTENDED_PORT_INFO, 1, &info), 0x1c);
    info[11] = 1;
    assert_eq!(set(&mut node, MLNX_EXTENDED_PORT_INFO, 2, &info), 0x1c);
    assert_eq!(set(&mut node, MLNX_EXTENDED_PORT_INFO, 0, &info), 0);
    assert_eq!(speeds(&mut node), [1, 1, 0]);
}

#[test]
fn a_key_protects_the_port_until_its_lease_ends() {
    let (mut node, _) = managed();
    let mut info = port_info(8, 0, 0);
    info[..8].copy_from_slice(b"thekey!!");
    // A lease of 2 s; what has no key may read all but the key.
    info[26..28].copy_from_slice(&[0, 2]);
    info[34] = 1 << 6;
    assert_eq!(set(&mut node, PORT_INFO, 1, &info), 0);
    let read = datagram(LID_ROUTED, GET, PORT_INFO, 1);
    let mut with_key = read;
    with_key[24..32].copy_from_slice(b"thekey!!");
    let mut write = datagram(LID_ROUTED, SET, PORT_INFO, 1);
    write[64..128].copy_from_slice(&port_info(9, 0, 0));

    let answer = ask(&mut node, &read, true).unwrap();
    assert_eq!(answer[64..72], [0; 8]);
    let answer = ask(&mut node, &with_key, true).unwrap();
    assert_eq!(answer[64..72], *b"thekey!!");
    assert_eq!(ask(&mut node, &write, true), None);
    // Counted, and the lease has begun; the right key ends that.
    let answer = ask(&mut node, &with_key, true).unwrap();
    assert_eq!(answer[64 + 44..64 + 46], [0, 1]);
    node.sleep(Duration::from_secs(3));
    assert_eq!(ask(&mut node, &write, true), None);
    node.sleep(Duration::from_millis(1900));
    assert_eq!(ask(&mut node, &write, true), None);
    // 2 s after the first of these two: the key is shown, with which the port is set.
    node.sleep(Duration::from_millis(101));
    let answer = ask(&mut node, &read, true).unwrap();
    assert_eq!(answer[64..72], *b"thekey!!");
    write[24..32].copy_from_slice(b"thekey!!");
    assert_eq!(status(&ask(&mut node, &write, true).unwrap()), 0);
    assert_eq!(seen(&mut node).1, 9);
}

/// The agent answers beside QP0 where it is to, and what managers ask each other is for that QP all the same (`process_mad` of
/// Linux's driver).
#[test]
fn managers_ask_each_other_at_qp0() {
    const SM_INFO: u16 = 0x20;
    const QP0: u8 = 7;
    let (mut node, eq) = managed_as(true);
    node.uar = node.command(&AllocUarIn::new()).unwrap().uar();
    let pd = node.alloc_pd();
    let mut cq = node.create_cq(4, eq);
    let memory = node.host.alloc(4096, 4096);
    let key = node.register(pd, memory, memory, 4096, 1);
    let mut qp = node.create_qp(QpPlan {
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        st: QP0,
        user_index: 0,
    });
    node.make_init(&qp);
    node.make_rtr(&qp, 0, 0, None);
    node.make_rts(&qp, 0);
    for _ in 0..2 {
        node.post_receive(&mut qp, &[(key, memory, 512)]);
    }
    let mut ask = |attribute| {
        let mad = datagram(LID_ROUTED, GET, attribute, 0);
        let frame = frame(0, PERMISSIVE, 0, &mad);
        node.model.receive(&mut node.host, &frame);
        node.advance();
        let answers = std::mem::take(&mut node.host.frames).len();
        (answers, node.poll_all(&mut cq).len())
    };
    assert_eq!(ask(NODE_INFO), (1, 0));
    assert_eq!(ask(SM_INFO), (0, 1));
    assert_eq!(ask(PORT_INFO), (1, 0));
}
