//! Management datagrams for the port's own agents (MAD_IFC), field by field after the specification.

use bareverbs_firmware_cmds::mad::MadIfcIn;
use bareverbs_firmware_cmds::register::AccessRegisterIn;
use connectx_model::{Config, Syndrome};

use crate::common::{Failure, Node};
use crate::refused;

/// Classes, methods and attributes.
const LID_ROUTED: u8 = 0x01;
const DIRECTED: u8 = 0x81;
const PERFORMANCE: u8 = 0x04;
const GET: u8 = 1;
const SET: u8 = 2;
const GET_RESPONSE: u8 = 0x81;
const NODE_DESCRIPTION: u16 = 0x10;
const NODE_INFO: u16 = 0x11;
const GUID_INFO: u16 = 0x14;
const PORT_INFO: u16 = 0x15;
const P_KEY_TABLE: u16 = 0x16;
const SL_TO_VL: u16 = 0x17;
const PORT_COUNTERS: u16 = 0x12;
const PORT_COUNTERS_EXTENDED: u16 = 0x1d;
const CLASS_PORT_INFO: u16 = 0x01;

fn port() -> Node {
    let mut node = Node::new(Config::new(5).infiniband());
    node.initialize();
    node
}

fn datagram(class: u8, method: u8, attribute: u16, modifier: u32) -> [u8; 256] {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, class, 1, method]);
    mad[8..16].copy_from_slice(b"transact");
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    mad
}

fn ask(node: &mut Node, mad: &[u8; 256]) -> Result<[u8; 256], Failure> {
    let mut command = MadIfcIn::new();
    command.set_port(1).set_op_mod(3);
    command.mad_mut().copy_from_slice(mad);
    node.command(&command)
        .map(|answer| *answer.response_mad_packet())
}

/// The data of a subnet management answer that has to be a good one.
fn get(node: &mut Node, attribute: u16, modifier: u32) -> [u8; 64] {
    let mad = datagram(LID_ROUTED, GET, attribute, modifier);
    let answer = ask(node, &mad).unwrap();
    assert_eq!(answer[..4], [1, LID_ROUTED, 1, GET_RESPONSE]);
    assert_eq!(answer[4..6], [0, 0]);
    assert_eq!(answer[8..24], mad[8..24]);
    answer[64..128].try_into().unwrap()
}

fn status(node: &mut Node, mad: &[u8; 256]) -> u16 {
    let answer = ask(node, mad).unwrap();
    assert_eq!(answer[3], GET_RESPONSE);
    u16::from_be_bytes([answer[4], answer[5]])
}

#[test]
fn the_node_says_who_it_is() {
    let mut node = port();
    let info = get(&mut node, NODE_INFO, 0);
    let config = node.model.config();
    // Channel adapter with one port.
    assert_eq!(info[..4], [1, 1, 1, 1]);
    assert_eq!(info[4..12], config.system_image_guid.to_be_bytes());
    assert_eq!(info[12..20], config.node_guid.to_be_bytes());
    assert_eq!(info[20..28], config.port_guid.to_be_bytes());
    assert_eq!(info[28..30], 128u16.to_be_bytes());
    assert_eq!(info[30..32], config.device_id.to_be_bytes());
    assert_eq!(info[36..40], [1, 0, 0x02, 0xc9]);

    // What the driver called it.
    let mut text = [0; 64];
    text[..9].copy_from_slice(b"guest HCA");
    let mut write = AccessRegisterIn::new();
    write.set_register_id(0x6001);
    node.command_with(&write, &text, 64).unwrap();
    assert_eq!(get(&mut node, NODE_DESCRIPTION, 0), text);
}

#[test]
fn the_port_says_how_it_is() {
    let mut node = port();
    // By its number, or as the one that was asked.
    for modifier in [0, 1] {
        let info = get(&mut node, PORT_INFO, modifier);
        assert_eq!(info[8..16], 0xfe80_0000_0000_0000u64.to_be_bytes());
        assert_eq!(info[16..18], [0, 5]);
        assert_eq!(info[28], 1);
        // 4X of 1X and 4X; active, linked; 4096 bytes.
        assert_eq!(info[29..32], [3, 3, 2]);
        assert_eq!((info[32] & 0xf, info[33] >> 4), (4, 5));
        assert_eq!((info[36] >> 4, info[41] & 0xf), (5, 5));
        // EDR, reported with extended speeds.
        assert_ne!(info[22] & 0x40, 0);
        assert_eq!(info[62] >> 4, 2);
        assert_eq!(info[50], 8);
    }
    node.model.set_link(&mut node.host, false);
    let info = get(&mut node, PORT_INFO, 1);
    assert_eq!((info[32] & 0xf, info[33] >> 4), (1, 2));
}

#[test]
fn tables_come_in_blocks() {
    let mut node = port();
    let keys = get(&mut node, P_KEY_TABLE, 0);
    assert_eq!(keys[..4], [0xff, 0xff, 0, 0]);
    assert_eq!(get(&mut node, P_KEY_TABLE, 3), [0; 64]);
    let guids = get(&mut node, GUID_INFO, 0);
    assert_eq!(guids[..8], node.model.config().port_guid.to_be_bytes());
    assert_eq!(guids[8..], [0; 56]);
    let lanes = get(&mut node, SL_TO_VL, 0);
    assert_eq!(lanes[..8], [0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67]);
    for (attribute, modifier) in [(P_KEY_TABLE, 4), (GUID_INFO, 1), (PORT_INFO, 2)] {
        let mad = datagram(LID_ROUTED, GET, attribute, modifier);
        assert_eq!(status(&mut node, &mad), 0x1c);
    }
}

#[test]
fn unknown_attributes_are_reported_in_the_status() {
    let mut node = port();
    let mut ask =
        |class, method, attribute| status(&mut node, &datagram(class, method, attribute, 0));
    assert_eq!(ask(LID_ROUTED, GET, 0xff91), 0x0c);
    assert_eq!(ask(LID_ROUTED, SET, NODE_INFO), 0x0c);
    // It has no local identifier.
    assert_eq!(ask(LID_ROUTED, SET, PORT_INFO), 0x1c);
    assert_eq!(ask(LID_ROUTED, 5, PORT_INFO), 0x08);
    assert_eq!(ask(PERFORMANCE, GET, 0x1234), 0x0c);
    assert_eq!(ask(PERFORMANCE, SET, CLASS_PORT_INFO), 0x0c);
    // The bit that says which way a directed route goes stays what it was.
    let mut mad = datagram(DIRECTED, GET, NODE_INFO, 0);
    assert_eq!(status(&mut node, &mad), 0);
    mad[4] = 0x80;
    assert_eq!(status(&mut node, &mad), 0x8000);
    mad[17] = 0x99;
    assert_eq!(status(&mut node, &mad), 0x800c);
    mad = datagram(LID_ROUTED, GET, NODE_INFO, 0);
    mad[2] = 2;
    assert_eq!(status(&mut node, &mad), 0x04);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let mut node = port();
    let mad = datagram(LID_ROUTED, GET, NODE_INFO, 0);
    let mut command = MadIfcIn::new();
    command.set_port(1).mad_mut().copy_from_slice(&mad);
    command.set_op_mod(4);
    let outcome = node.command(&command).map(|_| ());
    assert_eq!(outcome, Err(refused(Syndrome::MadOpMod)));
    command.set_op_mod(0).set_port(2);
    let outcome = node.command(&command).map(|_| ());
    assert_eq!(outcome, Err(refused(Syndrome::MadPort)));
    let mad = datagram(0x21, GET, NODE_INFO, 0);
    assert_eq!(
        ask(&mut node, &mad).err(),
        Some(refused(Syndrome::MadClass))
    );
    // Nothing is said to one who asks for silence.
    let mad = datagram(LID_ROUTED, 7, NODE_INFO, 0);
    assert_eq!(ask(&mut node, &mad), Ok([0; 256]));

    let mut node = Node::new(Config::new(5));
    node.initialize();
    let mad = datagram(LID_ROUTED, GET, NODE_INFO, 0);
    assert_eq!(
        ask(&mut node, &mad).err(),
        Some(refused(Syndrome::MadUnsupported))
    );
}

#[test]
fn counters_are_shown_and_cleared() {
    let mut node = port();
    let mut mad = datagram(PERFORMANCE, GET, CLASS_PORT_INFO, 0);
    let answer = ask(&mut node, &mad).unwrap();
    assert_eq!(answer[64..68], [1, 1, 2, 0]);

    // There is no port 2; 255 is all of them.
    for (port, expected) in [(1, 0), (255, 0), (2, 0x1c)] {
        for attribute in [PORT_COUNTERS, PORT_COUNTERS_EXTENDED] {
            mad = datagram(PERFORMANCE, GET, attribute, 0);
            mad[65] = port;
            assert_eq!(status(&mut node, &mad), expected);
        }
    }
    // Everything that was selected is zero afterwards.
    mad = datagram(PERFORMANCE, SET, PORT_COUNTERS, 0);
    mad[65..68].copy_from_slice(&[1, 0xff, 0xff]);
    let answer = ask(&mut node, &mad).unwrap();
    assert_eq!(answer[65..68], [1, 0xff, 0xff]);
    assert_eq!(answer[68..128], [0; 60]);
}
