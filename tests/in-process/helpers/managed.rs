//! The settings that a subnet manager makes by directed routes, in frames of the port that it has.

use connectx_model::roce::packet::reseal;

/// Where the datagram is in a frame.
pub(crate) const PAYLOAD: usize = 74;

pub(crate) const PORT_INFO: u16 = 0x15;
pub(crate) const LINEAR_FORWARDING: u16 = 0x19;

/// A SubnSet with a directed route.
pub(crate) fn set(attribute: u16, modifier: u32, path: &[u8], data: &[u8; 64]) -> Vec<u8> {
    let mut mad = [0; 256];
    mad[..8].copy_from_slice(&[1, 0x81, 1, 2, 0, 0, 1, path.len() as u8]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    mad[32..36].fill(0xff);
    mad[64..128].copy_from_slice(data);
    mad[129..129 + path.len()].copy_from_slice(path);
    let mut frame = vec![0; PAYLOAD + mad.len() + 4];
    frame[..15].copy_from_slice(&[
        2, 0x1b, 0, 0, 0xff, 0xff, 2, 0x1b, 0, 0, 0, 0, 0x89, 0x15, 0x60,
    ]);
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20..22].copy_from_slice(&[0x1b, 1]);
    frame[52..58].copy_from_slice(&[0xff, 0xff, 0x64, 0x40, 0xff, 0xff]);
    frame[PAYLOAD..PAYLOAD + 256].copy_from_slice(&mad);
    assert!(reseal(&mut frame));
    frame
}

/// Takes what comes to the manager until one is the answer, which has to say that it was done.
pub(crate) fn done(mut receive: impl FnMut(&mut Vec<u8>) -> bool) {
    let mut answer = Vec::new();
    // Traps that the manager does not ask for come as well.
    while receive(&mut answer) {
        if answer[PAYLOAD + 3] == 0x81 {
            assert_eq!(answer[PAYLOAD + 4..PAYLOAD + 6], [0x80, 0], "refused");
            return;
        }
    }
    panic!("no answer");
}

pub(crate) fn port_info(lid: u16, lmc: u8, state: u8) -> [u8; 64] {
    let mut info = [0; 64];
    info[8..16].copy_from_slice(&0xfe80_0000_0000_0000_u64.to_be_bytes());
    info[16..18].copy_from_slice(&lid.to_be_bytes());
    info[18..20].copy_from_slice(&1u16.to_be_bytes());
    info[32] = state;
    info[34] = lmc;
    info[51] = 18;
    info
}
