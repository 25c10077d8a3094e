//! Ports that are wired to a datagram socket.

use crate::card::Card;
use crate::lab::{Side, bring_up, connect, connect_with, memory, ping};
use crate::support::{Directory, LONG, Server, in_time};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Connects two functions, and sends something.
fn ping_across(sockets: [PathBuf; 2]) {
    let (mut first, mut second) = (memory(), memory());
    let devices = [
        bring_up(&sockets[0], 0, first.storage()),
        bring_up(&sockets[1], 1, second.storage()),
    ];
    let sides = [Side::new(&devices[0], 0), Side::new(&devices[1], 1)];
    let mut ends = connect([&sides[0], &sides[1]]);
    for (seed, len) in (0..).zip([1, 1500, 60_000]) {
        ping(&mut ends, seed, len);
    }
}

/// Two servers with a function each, wired together.
fn pair(links: [&str; 2]) -> [Server; 2] {
    let directories = [0, 1].map(|_| Arc::new(Directory::new()));
    let both = directories[0].path("");
    let links = links.map(|link| link.replace("{both}/", both.to_str().unwrap()));
    let [first, second] = directories;
    // The addresses of their cards have to differ.
    [
        Server::start_in(first, &[&["--link", &links[0]]], &[]),
        Server::start_in(second, &[&["--link", &links[1]]], &["--first-unit", "2"]),
    ]
}

#[test]
fn two_servers_by_unix_sockets() {
    let servers = pair(["unix:{both}/p,{both}/q", "unix:{both}/q,{both}/p"]);
    in_time("the wire", || {
        ping_across([servers[0].socket(0), servers[1].socket(0)])
    });
}

/// Two unused ports.
fn ports(host: &str) -> Option<[String; 2]> {
    let sockets = [0, 1].map(|_| UdpSocket::bind(format!("{host}:0")));
    let addresses = sockets.each_ref().map(|socket| {
        let address = socket.as_ref().ok()?.local_addr().ok()?;
        Some(address.to_string())
    });
    match addresses {
        [Some(a), Some(b)] => Some([a, b]),
        _ => None,
    }
}

#[test]
fn two_servers_by_udp() {
    // Not every machine has IPv6; every one has IPv4.
    let mut tried = 0;
    for host in ["127.0.0.1", "[::1]"] {
        let Some([a, b]) = ports(host) else {
            println!("no {host} here");
            continue;
        };
        let servers = pair([&format!("udp:{a},{b}"), &format!("udp:{b},{a}")]);
        in_time(host, || {
            ping_across([servers[0].socket(0), servers[1].socket(0)])
        });
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn the_rest_is_cabled() {
    // Of four functions two have wires, to each other; the other two have the cable.
    let server = Server::start_with(
        &[
            &["--link", "unix:{dir}/p,{dir}/q"],
            &[],
            &["--link", "unix:{dir}/q,{dir}/p"],
            &[],
        ],
        &[],
    );
    in_time("the wires", || {
        ping_across([server.socket(0), server.socket(2)])
    });
    in_time("the cable", || {
        ping_across([server.socket(1), server.socket(3)])
    });
}

/// An ARP request from somewhere, as QEMU would pass one on.
fn arp() -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x77]);
    frame[12..22].copy_from_slice(&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame
}

#[test]
fn a_peer_that_comes_late_or_goes_loses_frames_only() {
    let directory = Arc::new(Directory::new());
    // An earlier process left a socket at the path of the wire's end.
    drop(UnixDatagram::bind(directory.path("local")).unwrap());
    let server = Server::start_in(
        directory,
        &[&["--link", "unix:{dir}/local,{dir}/remote"], &[]],
        &[],
    );
    // Function 0 and one that is elsewhere: what they say to each other has nowhere to go.
    let (mut first, mut second) = (memory(), memory());
    let device = bring_up(&server.socket(0), 0, first.storage());
    let other = bring_up(&server.socket(1), 1, second.storage());
    let sides = [Side::new(&device, 0), Side::new(&other, 1)];
    let [mut a, b] = connect_with([&sides[0], &sides[1]], 10);
    let failed = a.write(&b, 100, 1).unwrap();
    assert_eq!(failed, bareverbs_core::WcStatus::RetryExcErr);
    server.expect_log(&["INFO", "1 frames not delivered"]);

    // Now there is a peer, which gets whole frames: RoCE version 2 from one card to the other.
    let peer = UnixDatagram::bind(server.directory.path("remote")).unwrap();
    peer.set_read_timeout(Some(LONG)).unwrap();
    let [mut a, b] = connect_with([&sides[0], &sides[1]], 10);
    assert_ne!(
        a.write(&b, 100, 2).unwrap(),
        bareverbs_core::WcStatus::Success
    );
    let mut frame = [0; 2048];
    let len = peer.recv(&mut frame).unwrap();
    assert_eq!(frame[..6], other.mac().unwrap());
    assert_eq!(frame[6..12], device.mac().unwrap());
    assert_eq!(frame[12..14], [0x08, 0x00]);
    // Ethernet, IPv4, UDP, BTH, RETH, 100 bytes, ICRC.
    assert_eq!(len, 14 + 20 + 8 + 12 + 16 + 100 + 4);

    // The peer goes, without an error.
    drop(peer);
    let [mut a, b] = connect_with([&sides[0], &sides[1]], 10);
    assert_ne!(
        a.write(&b, 100, 3).unwrap(),
        bareverbs_core::WcStatus::Success
    );
    device.poll().unwrap();
}

#[test]
fn a_peer_that_does_not_read_loses_frames_only() {
    let directory = Arc::new(Directory::new());
    let peer = UnixDatagram::bind(directory.path("remote")).unwrap();
    let server = Server::start_in(
        directory,
        &[&["--link", "unix:{dir}/local,{dir}/remote"], &[]],
        &[],
    );
    let (mut first, mut second) = (memory(), memory());
    let device = bring_up(&server.socket(0), 0, first.storage());
    let other = bring_up(&server.socket(1), 1, second.storage());
    let sides = [Side::new(&device, 0), Side::new(&other, 1)];
    let [mut a, b] = connect_with([&sides[0], &sides[1]], 10);
    // More packets than the peer's queue holds, and than those that wait for it before the model pauses, again and again.
    let failed = a.write(&b, 1 << 20, 1).unwrap();
    assert_eq!(failed, bareverbs_core::WcStatus::RetryExcErr);
    server.expect_log(&["INFO", "1 frames not delivered"]);
    // The other function does not wait for that peer.
    other.query_port().unwrap();
    device.poll().unwrap();
    // What it gets to see in the end is whole all the same.
    let mut frame = [0; 2048];
    assert_eq!(
        peer.recv(&mut frame).unwrap(),
        14 + 20 + 8 + 12 + 16 + 1024 + 4
    );
}

#[test]
fn what_is_no_frame_is_refused() {
    let server = Server::start_with(
        &[&["--link", "unix:{dir}/local,{dir}/remote"]],
        &["--log", "trace"],
    );
    let peer = UnixDatagram::unbound().unwrap();
    let local = server.directory.path("local");
    for len in [0, 1, 13, 14, 10 * 1024] {
        peer.send_to(&vec![0xff; len], &local).unwrap();
    }
    server.expect_log(&["frame from port 1", "10240 bytes"]);
    for len in [10 * 1024 + 1, 60_000] {
        peer.send_to(&vec![0xff; len], &local).unwrap();
    }
    server.expect_log(&["WARN", "1 frames from the wire refused"]);
    peer.send_to(&arp(), &local).unwrap();
    server.expect_log(&["frame from port 1", "ethertype 0806, 60 bytes"]);
    server.assert_serves();
}

#[test]
fn a_flood_does_not_starve_the_guest() {
    let [a, b] = ports("127.0.0.1").unwrap();
    let link = format!("udp:{a},{b}");
    let server = Server::start_with(&[&["--link", &link], &[]], &[]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !stop.load(Ordering::Relaxed) {
                // What does not fit is lost.
                let _ = peer.send_to(&arp(), &a);
            }
        });
        in_time("registers during a flood", || {
            for function in [0, 1] {
                let card = Card::open(&server.socket(function));
                for _ in 0..2000 {
                    assert_eq!(card.register(0).unwrap(), 35 << 16 | 16);
                }
            }
            let mut memory = memory();
            let device = bring_up(&server.socket(0), 0, memory.storage());
            device.close().unwrap();
        });
        stop.store(true, Ordering::Relaxed);
    });
}
