//! Frames that are malformed, mistimed or nearly right: into the IP host alone, and into a port with everything behind it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bareverbs_cm::ip::{
    Addresses, Config, Groups, Host, Mac, Neighbours, Resources, Route, Routes,
};

use crate::input::{Input, STEPS};
use crate::port;

/// The Ethernet address of this end, whichever runs.
pub(crate) const OURS: Mac = [2, 0xc9, 0, 0, 0, 1];
/// That of the end that the input plays.
pub(crate) const THEIRS: Mac = [2, 0xc9, 0, 0, 0, 2];

/// Runs an input: the first byte says into what.
///
/// # Panics
/// If anything comes of it that may not.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() & 1 == 0 {
        host(&mut input);
    } else {
        port::run(&mut input);
    }
}

/// A frame of the input's; sent to this end if it says so.
pub(crate) fn frame(input: &mut Input<'_>, to_us: bool) -> Vec<u8> {
    let len = usize::from(input.word()) % 2048;
    let mut frame = input.bytes(len).to_vec();
    if to_us && let Some(to) = frame.first_chunk_mut() {
        *to = OURS;
    }
    frame
}

/// Addresses of both families, ours and others'.
fn address(kind: u8) -> IpAddr {
    let last = u16::from(kind >> 2 & 7);
    match kind & 3 {
        0 => Ipv4Addr::new(10, 0, 0, last as u8).into(),
        1 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last).into(),
        2 => Ipv4Addr::new(224, 1, 2, last as u8).into(),
        _ => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, last).into(),
    }
}

fn host(input: &mut Input<'_>) {
    let mut memory = Resources::<Addresses<4>, Neighbours<4>, Routes<2>, Groups<8>>::new();
    let mut config = Config::new(input.byte().into());
    config.ipv4_probes = input.byte() % 4;
    let mut host = Host::new(OURS, config, memory.storage());
    let mut now = Duration::from_secs(1);
    let _ = host.add_address(now, address(1 << 2), 24, None);
    let _ = host.add_address(now, address(1 << 2 | 1), 64, None);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let step = input.byte();
        let kind = step >> 4;
        match step % 8 {
            0..=2 => {
                let frame = frame(input, kind & 1 != 0);
                // Answers are as long as their requests, and the buffer may be too small.
                let mut reply = [0xa5; 2048];
                let space = if kind & 2 != 0 { 64 } else { reply.len() };
                if let Some(len) = host.receive(now, &frame, &mut reply[..space]) {
                    sane(&reply[..len], space);
                }
            }
            3 => {
                let micros = 1_u64 << (input.byte() % 36);
                now += Duration::from_micros(micros);
            }
            4 => {
                let source = address(input.byte());
                let _ = host.resolve(now, source, address(input.byte()));
            }
            5 => {
                let (which, vlan) = (address(input.byte()), input.byte());
                let vlan = (vlan & 1 != 0).then_some(u16::from(vlan) << 3);
                let _ = match kind % 6 {
                    0 => host.add_address(now, which, 24, vlan),
                    1 => host.remove_address(now, which, vlan),
                    2 => host.join_group(now, which, vlan),
                    3 => host.leave_group(now, which, vlan),
                    4 => host.add_route(Route::default_over(which)),
                    _ => host.remove_route(Route::default_over(which)),
                };
            }
            6 => {
                while host.poll_event().is_some() {}
                while host.poll_filter().is_some() {}
            }
            _ => transmit_all(&mut host, now),
        }
    }
    for _ in 0..8 {
        now += Duration::from_secs(10);
        transmit_all(&mut host, now);
    }
}

fn transmit_all(host: &mut Host<'_>, now: Duration) {
    let mut frame = [0xa5; 128];
    let mut turns = 0;
    while let Some(len) = host.poll_transmit(now, &mut frame) {
        sane(&frame[..len], frame.len());
        turns += 1;
        assert!(turns < 1000, "the host does not stop");
    }
    assert!(host.next_deadline().is_none_or(|at| at > now));
}

/// What is sent is a frame of ours.
fn sane(frame: &[u8], space: usize) {
    assert!((14..=space).contains(&frame.len()));
    assert_eq!(frame[6..12], OURS);
}
