//! Switches, without adapters: datagrams go in at the ports where adapters would be.

use crate::*;
use connectx_model::link::Link;
use connectx_model::link::rng::Rng;
use connectx_model::link::subnet::{Subnet, Topology};
use connectx_model::roce::packet::reseal;
use std::time::Duration;

pub(crate) const PERMISSIVE: u16 = 0xffff;
/// Where the datagram is in a frame.
pub(crate) const PAYLOAD: usize = 74;

/// Two adapters, two switches, two cables between these.
fn two_paths() -> Subnet {
    let text = "switch a 4\nswitch b 4\nadapter 0 a:1\nadapter 1 b:1\ncable a:3 b:3\ncable a:4 b:4";
    Subnet::new(&text.parse::<Topology>().unwrap())
}

/// A UD SEND from QP0 to QP0, or between other QPs.
pub(crate) fn frame(from: u16, to: u16, qpn: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; PAYLOAD + payload.len() + 4];
    let mac = |lid: u16| {
        let [high, low] = lid.to_be_bytes();
        let group = u8::from((0xc000..0xffff).contains(&lid));
        [2 | group, 0x1b, 0, 0, high, low]
    };
    frame[..6].copy_from_slice(&mac(to));
    frame[6..12].copy_from_slice(&mac(from));
    frame[12..15].copy_from_slice(&[0x89, 0x15, 0x60]);
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20..22].copy_from_slice(&[0x1b, 1]);
    frame[36..38].copy_from_slice(&from.to_be_bytes());
    frame[52..54].copy_from_slice(&to.to_be_bytes());
    frame[54..58].copy_from_slice(&[0x64, 0x40, 0xff, 0xff]);
    frame[59..62].copy_from_slice(&qpn.to_be_bytes()[1..]);
    frame[71..74].copy_from_slice(&qpn.to_be_bytes()[1..]);
    frame[PAYLOAD..PAYLOAD + payload.len()].copy_from_slice(payload);
    assert!(reseal(&mut frame));
    frame
}

/// A datagram with a directed route out of these ports, the first being the sender's own.
pub(crate) fn directed(method: u8, attribute: u16, modifier: u32, path: &[u8]) -> [u8; 256] {
    let mut mad = datagram(DIRECTED, method, attribute, modifier);
    mad[6] = 1;
    mad[7] = path.len() as u8;
    mad[129..129 + path.len()].copy_from_slice(path);
    mad
}

fn arrived(subnet: &mut Subnet, port: usize) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    subnet
        .receive(port, Duration::ZERO, &mut frame)
        .then_some(frame)
}

fn ask(subnet: &mut Subnet, mad: &[u8; 256]) -> Option<[u8; 256]> {
    subnet.send(0, &frame(0, PERMISSIVE, 0, mad), Duration::ZERO);
    let answer = arrived(subnet, 0)?;
    Some(answer[PAYLOAD..PAYLOAD + 256].try_into().unwrap())
}

fn set(subnet: &mut Subnet, attribute: u16, modifier: u32, path: &[u8], data: &[u8; 64]) {
    let mut mad = directed(SET, attribute, modifier, path);
    mad[64..128].copy_from_slice(data);
    let answer = ask(subnet, &mad).unwrap();
    assert_eq!((answer[3], status(&answer)), (GET_RESPONSE, 0));
}

/// Both switches as a manager would have them: identifiers 10 and 20 at the adapters, 2 and 3 at the switches, a group.
fn configured() -> Subnet {
    let mut subnet = two_paths();
    for (path, own, ports) in [(&[1_u8][..], 2_u16, [1_u8, 3]), (&[1, 3], 3, [3, 1])] {
        set(&mut subnet, PORT_INFO, 0, path, &port_info(own, 0, 0));
        let mut table = [0xff; 64];
        table[10] = ports[0];
        table[20] = ports[1];
        // Switch 2 is reached from 3 by port 3, and the other way round.
        table[5 - usize::from(own)] = 3;
        table[usize::from(own)] = 0;
        set(&mut subnet, LINEAR_FORWARDING, 0, path, &table);
        let mut group = [0; 64];
        group[..2].copy_from_slice(&[0, 1 << 1 | 1 << 3]);
        set(&mut subnet, MULTICAST_FORWARDING, 0, path, &group);
        for state in [ARMED, ACTIVE] {
            for port in [1, 3] {
                set(&mut subnet, PORT_INFO, port, path, &port_info(0, 0, state));
            }
        }
    }
    subnet
}

#[test]
fn a_directed_route_leads_to_a_switch_and_back() {
    let mut subnet = two_paths();
    for (path, guid, ingress) in [
        (&[1_u8][..], 0x0002_c902_0000_0100_u64, 1),
        (&[1, 3], 0x0002_c902_0000_0200, 3),
        (&[1, 4], 0x0002_c902_0000_0200, 4),
        (&[1, 4, 3], 0x0002_c902_0000_0100, 3),
    ] {
        let answer = ask(&mut subnet, &directed(GET, NODE_INFO, 0, path)).unwrap();
        assert_eq!((answer[3], answer[4], answer[6]), (GET_RESPONSE, 0x80, 1));
        // A switch with four ports, and the port at which the request came in.
        assert_eq!(answer[64..68], [1, 1, 2, 4]);
        assert_eq!(answer[76..84], guid.to_be_bytes());
        assert_eq!(answer[100], ingress);
        // It sends traps, is not asked for a manager's SMInfo, and port 0 says for all that there are extended speeds, of which
        // EDR is in use (IBTA vol. 1, 14.2.5.6: bits 3, 1 and 14, LinkSpeedExtActive).
        for (port, capabilities) in [(0, 0x4008_u32), (1, 0)] {
            let answer = ask(&mut subnet, &directed(GET, PORT_INFO, port, path)).unwrap();
            assert_eq!(answer[84..88], capabilities.to_be_bytes());
            assert_eq!(answer[126] >> 4, 2);
        }
    }
    // To the other adapter, which would answer by the way back.
    let mad = directed(GET, NODE_INFO, 0, &[1, 3, 1]);
    assert_eq!(ask(&mut subnet, &mad), None);
    let mut answer = arrived(&mut subnet, 1).unwrap();
    assert_eq!(answer[PAYLOAD + 6], 3);
    answer[PAYLOAD + 4] = 0x80;
    reseal(&mut answer);
    subnet.send(1, &answer, Duration::ZERO);
    let back = arrived(&mut subnet, 0).unwrap();
    assert_eq!(back[PAYLOAD + 6], 1);
    // Nothing is behind port 2; there is no port 9; a route that is not at its end, or beyond it, goes nowhere.
    for path in [&[1, 2, 1][..], &[1, 9, 1]] {
        assert_eq!(ask(&mut subnet, &directed(GET, NODE_INFO, 0, path)), None);
    }
    for pointer in [0, 3, 64, 255] {
        let mut mad = directed(GET, NODE_INFO, 0, &[1, 3]);
        mad[6] = pointer;
        assert_eq!(ask(&mut subnet, &mad), None);
    }
}

/// Linux's answer to a datagram whose directed route ends at one of its ports (`smi_handle_dr_smp_recv`,
/// `smi_handle_dr_smp_send`, `agent_send_response`): it notes the port, moves the pointer beyond the end and, with the
/// answer, back, and sends that to the identifier which the request came from.
fn answer_of_linux(request: &[u8]) -> Vec<u8> {
    let mut mad: [u8; 256] = request[PAYLOAD..PAYLOAD + 256].try_into().unwrap();
    let (pointer, count) = (usize::from(mad[6]), mad[7]);
    assert_eq!(mad[6], count, "the route ends here");
    mad[192 + pointer] = 1;
    mad[3] = GET_RESPONSE;
    mad[4] |= 0x80;
    let source = u16::from_be_bytes([request[10], request[11]]);
    frame(20, source, 0, &mad)
}

/// A manager that has its identifier already, while the switches' tables are empty.
#[test]
fn answers_need_no_tables() {
    for path in [&[1_u8, 3, 1][..], &[1, 4, 1], &[1, 4, 3, 4, 1]] {
        let mut subnet = two_paths();
        let mad = directed(GET, NODE_INFO, 0, path);
        subnet.send(0, &frame(10, PERMISSIVE, 0, &mad), Duration::ZERO);
        let request = arrived(&mut subnet, 1).unwrap();
        subnet.send(1, &answer_of_linux(&request), Duration::ZERO);
        let answer = arrived(&mut subnet, 0).unwrap();
        let mad = &answer[PAYLOAD..];
        assert_eq!((mad[3], mad[4], mad[6]), (GET_RESPONSE, 0x80, 1));
    }
}

#[test]
fn data_goes_where_the_tables_lead() {
    let mut subnet = two_paths();
    let data = frame(10, 20, 0x99, &[7; 32]);
    subnet.send(0, &data, Duration::ZERO);
    assert_eq!(arrived(&mut subnet, 1), None, "no port is active");
    let mut subnet = configured();
    subnet.send(0, &data, Duration::ZERO);
    assert_eq!(arrived(&mut subnet, 1), Some(data.clone()));
    subnet.send(1, &frame(20, 10, 0x99, &[8; 32]), Duration::ZERO);
    assert!(arrived(&mut subnet, 0).is_some());
    for unknown in [11, 0xbfff, 0xc001, 0xfffe, PERMISSIVE] {
        subnet.send(0, &frame(10, unknown, 0x99, &[7; 32]), Duration::ZERO);
        assert_eq!(subnet.next_arrival(), None, "{unknown:#x}");
    }
    // A group's frames leave at its ports but the one at which they came in.
    subnet.send(0, &frame(10, 0xc000, 0x99, &[7; 32]), Duration::ZERO);
    assert!(arrived(&mut subnet, 1).is_some());
    assert_eq!(arrived(&mut subnet, 0), None);

    subnet.set_cable(0, 3, false);
    subnet.send(0, &data, Duration::ZERO);
    assert_eq!(arrived(&mut subnet, 1), None);
    // The manager, at identifier 1, is in no table: the trap goes nowhere.
    assert_eq!(arrived(&mut subnet, 0), None);
}

#[test]
fn a_switch_notices_cables_and_tells_the_manager() {
    let mut subnet = configured();
    let mut table = [0xff; 64];
    table[1] = 1;
    table[10] = 1;
    set(&mut subnet, LINEAR_FORWARDING, 0, &[1], &table);
    // It noticed its cables when it began, before there was a manager, and that is cleared first.
    subnet.set_cable(0, 4, false);
    assert_eq!(arrived(&mut subnet, 0), None);
    subnet.set_cable(0, 4, true);
    let answer = ask(&mut subnet, &directed(GET, 0x12, 0, &[1])).unwrap();
    set(
        &mut subnet,
        0x12,
        0,
        &[1],
        answer[64..].first_chunk().unwrap(),
    );
    subnet.set_cable(0, 4, false);
    let trap = arrived(&mut subnet, 0).unwrap();
    let mad = &trap[PAYLOAD..];
    assert_eq!(mad[..4], [1, LID_ROUTED, 1, 5]);
    // Trap 128 of switch 2.
    assert_eq!(mad[64..72], [0x81, 0, 0, 2, 0, 128, 0, 2]);
    // Until it is cleared, there is no other.
    subnet.set_cable(0, 4, true);
    assert_eq!(arrived(&mut subnet, 0), None);
    let answer = ask(&mut subnet, &directed(GET, 0x12, 0, &[1])).unwrap();
    assert_eq!(answer[64 + 11] & 4, 4);
    let mut info: [u8; 64] = answer[64..128].try_into().unwrap();
    set(&mut subnet, 0x12, 0, &[1], &info);
    info[11] &= !4;
    let answer = ask(&mut subnet, &directed(GET, 0x12, 0, &[1])).unwrap();
    assert_eq!(answer[64..128], info);
}

#[test]
fn tables_that_lead_in_a_circle_end() {
    let mut subnet = configured();
    let mut table = [0xff; 64];
    table[20] = 3;
    set(&mut subnet, LINEAR_FORWARDING, 0, &[1], &table);
    set(&mut subnet, LINEAR_FORWARDING, 0, &[1, 3], &table);
    subnet.send(0, &frame(10, 20, 0x99, &[7; 32]), Duration::ZERO);
    assert_eq!(subnet.next_arrival(), None);
}

#[test]
fn any_frame_is_borne() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut subnet = configured();
        for _ in 0..100 {
            let mut mad = [0; 256];
            for byte in &mut mad {
                *byte = rng.below(256) as u8;
            }
            // Most of the way to something that a switch looks at.
            if rng.below(4) != 0 {
                let class = [DIRECTED, LID_ROUTED, 4][rng.below(3) as usize];
                mad[..4].copy_from_slice(&[1, class, 1, 1 + rng.below(2) as u8]);
                mad[16..20].fill(0);
                mad[17] = 0x10 + rng.below(14) as u8;
                mad[4..6].fill(0);
                mad[6] = 1 + rng.below(3) as u8;
                mad[7] = 1 + rng.below(3) as u8;
                for hop in 0..4 {
                    mad[128 + hop] = rng.below(6) as u8;
                    mad[192 + hop] = rng.below(6) as u8;
                }
            }
            let to = [PERMISSIVE, 2, 3, 10, 20, 0xc000][rng.below(6) as usize];
            let qpn = rng.below(3);
            let mut bytes = frame(10, to, qpn, &mad);
            if rng.below(8) == 0 {
                bytes.truncate(rng.below(bytes.len() as u32) as usize);
            }
            subnet.send(rng.below(2) as usize, &bytes, Duration::ZERO);
            for port in 0..2 {
                while arrived(&mut subnet, port).is_some() {}
            }
        }
    }
}

/// Questions to subnet administration, of which some are answered in its place (IBTA vol. 1, 13.4.7); nothing else is.
#[test]
fn a_busy_subnet_administration_answers_so_many_questions() {
    let mut subnet = configured();
    let mut question = [0; 256];
    question[..4].copy_from_slice(&[1, 3, 2, GET]);
    question[8..16].copy_from_slice(&7_u64.to_be_bytes());
    subnet.set_busy(2);
    for (method, answer) in [(GET, 0x81), (0x12, 0x92)] {
        question[3] = method;
        subnet.send(0, &frame(10, 20, 1, &question), Duration::ZERO);
        let mut expected = question;
        expected[3] = answer;
        expected[5] = 1;
        assert_eq!(
            arrived(&mut subnet, 0),
            Some(frame_of_gsi(20, 10, &expected))
        );
        assert_eq!(arrived(&mut subnet, 1), None);
    }
    assert_eq!(subnet.busy(), 0);
    subnet.send(0, &frame(10, 20, 1, &question), Duration::ZERO);
    assert!(arrived(&mut subnet, 1).is_some());
    // Answers, acknowledgements of RMPP's, other classes and other QPs pass.
    subnet.set_busy(1);
    for (at, value, qpn) in [(3, 0x81, 1), (26, 1, 1), (1, 7, 1), (3, GET, 5)] {
        let mut other = question;
        other[at] = value;
        subnet.send(0, &frame(10, 20, qpn, &other), Duration::ZERO);
        assert!(arrived(&mut subnet, 1).is_some(), "{at} {value} {qpn}");
    }
    assert_eq!(subnet.busy(), 1);
}

/// The same frame, with the Q_Key of QP1.
fn frame_of_gsi(from: u16, to: u16, mad: &[u8; 256]) -> Vec<u8> {
    let mut frame = frame(from, to, 1, mad);
    frame[66..70].copy_from_slice(&0x8001_0000_u32.to_be_bytes());
    assert!(reseal(&mut frame));
    frame
}
