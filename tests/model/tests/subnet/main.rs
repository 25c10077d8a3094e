//! Effects of a subnet manager on ports and switches, as the specification has them; OpenSM does the same in
//! `cargo rig infiniband`.

#[path = "../common/mod.rs"]
mod common;

mod fat_tree;
mod port;
mod switch;

/// Classes, methods and attributes.
const LID_ROUTED: u8 = 0x01;
const DIRECTED: u8 = 0x81;
const GET: u8 = 1;
const SET: u8 = 2;
const GET_RESPONSE: u8 = 0x81;
const NODE_INFO: u16 = 0x11;
const GUID_INFO: u16 = 0x14;
const PORT_INFO: u16 = 0x15;
const P_KEY_TABLE: u16 = 0x16;
const LINEAR_FORWARDING: u16 = 0x19;
const MULTICAST_FORWARDING: u16 = 0x1b;
const MLNX_EXTENDED_PORT_INFO: u16 = 0xff90;

/// States of a port.
const INITIALIZE: u8 = 2;
const ARMED: u8 = 3;
const ACTIVE: u8 = 4;

fn datagram(class: u8, method: u8, attribute: u16, modifier: u32) -> [u8; 256] {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, class, 1, method]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    // Permissive identifiers at both ends of a directed route.
    mad[32..36].fill(0xff);
    mad
}

fn status(answer: &[u8; 256]) -> u16 {
    u16::from_be_bytes([answer[4] & 0x7f, answer[5]])
}

/// PortInfo with an identifier, its manager's, a state, and nothing else changed.
fn port_info(lid: u16, lmc: u8, state: u8) -> [u8; 64] {
    let mut info = [0; 64];
    info[8..16].copy_from_slice(&0xfe80_0000_0000_0000_u64.to_be_bytes());
    info[16..18].copy_from_slice(&lid.to_be_bytes());
    info[18..20].copy_from_slice(&1u16.to_be_bytes());
    info[32] = state;
    info[34] = lmc;
    info[51] = 18;
    info
}
