//! Many short waits: each message is sent when the one before has come back.

use std::net::SocketAddrV4;
use std::panic;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, MSG_WAITALL, POLLIN};

use crate::calls::{CLIENT, Random, SERVER, Socket, free_port, poll, seeds, setup};

/// Messages of each kind, unless the environment says more.
const ROUNDS: usize = 200;
/// The time that a round may take: very much longer than it does.
const STUCK: Duration = Duration::from_secs(20);

fn rounds() -> usize {
    let asked = std::env::var("BAREVERBS_TEST_ROUNDS").ok();
    asked.map_or(ROUNDS, |text| text.parse().unwrap())
}

/// The way in which an end waits.
#[derive(Debug, Clone, Copy)]
enum Way {
    Blocking,
    Polling,
}

/// Receives so many bytes.
fn receive(socket: &Socket, bytes: &mut [u8], way: Way) {
    match way {
        Way::Blocking => assert_eq!(socket.recv(bytes, MSG_WAITALL), Ok(bytes.len())),
        Way::Polling => {
            let mut at = 0;
            while at < bytes.len() {
                assert_eq!(poll(&[(socket.0, POLLIN)], -1), [POLLIN]);
                match socket.recv(&mut bytes[at..], MSG_DONTWAIT) {
                    Ok(received) => at += received,
                    Err(libc::EAGAIN) => {}
                    Err(errno) => panic!("errno {errno}"),
                }
            }
        }
    }
}

/// The work of an end; it calls the function that it is given at the end of each round.
type Work = Box<dyn FnOnce(&dyn Fn()) + Send>;

/// Runs both ends on threads of their own, of which one reports its rounds.
fn run(name: &str, ends: [Work; 2]) {
    let (stepped, steps) = channel();
    let threads = ends.map(|end| {
        let stepped = stepped.clone();
        thread::spawn(move || end(&|| stepped.send(()).unwrap()))
    });
    drop(stepped);
    let (begun, mut last, mut longest, mut count) =
        (Instant::now(), Instant::now(), Duration::ZERO, 0);
    loop {
        match steps.recv_timeout(STUCK) {
            Ok(()) => {
                longest = longest.max(last.elapsed());
                last = Instant::now();
                count += 1;
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                panic!("{name}: round {count} waits for ever")
            }
        }
    }
    for thread in threads {
        thread
            .join()
            .unwrap_or_else(|why| panic::resume_unwind(why));
    }
    let all = begun.elapsed();
    println!("{name}: {count} rounds in {all:?}, the longest {longest:?}");
    assert_eq!(count, rounds());
}

/// Bytes of a round.
fn message(round: usize, random: &mut Random) -> Vec<u8> {
    let limit = [8, 300, 20_000][random.below(3)];
    vec![round as u8; 1 + random.below(limit)]
}

fn streams(ways: [Way; 2]) {
    setup();
    for seed in seeds(1) {
        println!("BAREVERBS_TEST_SEED={seed}");
        let port = free_port();
        let listener = Socket::listener(port);
        let client = Socket::client(port);
        let server = listener.accept().unwrap();
        let [client_way, server_way] = ways;
        let there = move |step: &dyn Fn()| {
            let random = &mut Random(seed | 1);
            for round in 0..rounds() {
                let bytes = message(round, random);
                assert_eq!(client.send(&bytes, 0), Ok(bytes.len()));
                let mut back = vec![0; bytes.len()];
                receive(&client, &mut back, client_way);
                assert_eq!(back, bytes);
                step();
            }
        };
        let back = move |_: &dyn Fn()| {
            let random = &mut Random(seed | 1);
            for round in 0..rounds() {
                let expected = message(round, random);
                let mut bytes = vec![0; expected.len()];
                receive(&server, &mut bytes, server_way);
                assert_eq!(bytes, expected);
                assert_eq!(server.send(&bytes, 0), Ok(bytes.len()));
            }
        };
        run(&format!("{ways:?}"), [Box::new(there), Box::new(back)]);
    }
}

#[test]
fn every_message_wakes_calls_that_block() {
    streams([Way::Blocking, Way::Blocking]);
}

#[test]
fn every_message_wakes_polls() {
    streams([Way::Polling, Way::Polling]);
}

#[test]
fn every_message_wakes_a_poll_here_and_a_call_there() {
    streams([Way::Polling, Way::Blocking]);
}

#[test]
fn every_datagram_wakes_calls_that_block() {
    setup();
    let port = free_port();
    let [client, server] = [CLIENT, SERVER].map(|ip| {
        let socket = Socket::datagrams();
        socket.bind(ip, port).unwrap();
        socket
    });
    let to = SocketAddrV4::new(SERVER, port);
    let there = move |step: &dyn Fn()| {
        for round in 0..rounds() {
            let bytes = round.to_ne_bytes();
            assert_eq!(client.send_to(&bytes, to), Ok(8));
            let mut back = [0; 8];
            assert_eq!(client.recv_from(&mut back, 0), Ok((8, to)));
            assert_eq!(back, bytes);
            step();
        }
    };
    let back = move |_: &dyn Fn()| {
        for _ in 0..rounds() {
            let mut bytes = [0; 8];
            let (length, from) = server.recv_from(&mut bytes, 0).unwrap();
            assert_eq!(server.send_to(&bytes[..length], from), Ok(length));
        }
    };
    run("datagrams", [Box::new(there), Box::new(back)]);
}
