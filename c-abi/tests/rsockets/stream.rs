//! Streams between two ends that keep to the rules.

use std::sync::Barrier;
use std::thread;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, SHUT_WR, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET};

use crate::calls::{CLIENT, Random, Socket, free_port, poll, seeds, setup};

const SOL_RDMA: i32 = 0x10000;
const RDMA_SQSIZE: i32 = 0;
const RDMA_RQSIZE: i32 = 1;
const RDMA_INLINE: i32 = 2;

/// The byte at a place of a stream.
fn byte(at: usize, seed: u64) -> u8 {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).to_be_bytes()[1]
}

fn choose_sizes(socket: &Socket, random: &mut Random) {
    for (level, name, limit) in [
        (SOL_SOCKET, SO_RCVBUF, 40_000),
        (SOL_SOCKET, SO_SNDBUF, 40_000),
        (SOL_RDMA, RDMA_SQSIZE, 60),
        (SOL_RDMA, RDMA_RQSIZE, 60),
        (SOL_RDMA, RDMA_INLINE, 100),
    ] {
        socket.set(level, name, random.below(limit) as i32).unwrap();
    }
}

/// Sends so many bytes in pieces of random sizes, by different calls.
fn send_all(socket: &Socket, total: usize, seed: u64) {
    let random = &mut Random(seed | 1);
    let mut at = 0;
    while at < total {
        let limit = [50, 3000, 100_000][random.below(3)];
        let length = (1 + random.below(limit)).min(total - at);
        let bytes: Vec<u8> = (at..at + length).map(|at| byte(at, seed)).collect();
        let sent = match random.below(3) {
            0 => socket.send(&bytes, MSG_DONTWAIT),
            1 => {
                let (first, second) = bytes.split_at(random.below(length));
                socket.send_two(first, second)
            }
            _ => socket.send(&bytes, 0),
        };
        match sent {
            Ok(sent) => at += sent,
            Err(libc::EAGAIN) => {
                poll(&[(socket.0, libc::POLLOUT)], -1);
            }
            Err(errno) => panic!("sending at {at}: errno {errno}"),
        }
    }
    socket.shutdown(SHUT_WR).unwrap();
}

/// Receives until the end in the same way, and compares each byte.
fn receive_all(socket: &Socket, total: usize, seed: u64) {
    let random = &mut Random(!seed | 1);
    let mut at = 0;
    loop {
        let limit = [50, 3000, 100_000][random.below(3)];
        let mut bytes = vec![0; 1 + random.below(limit)];
        let flags = [0, MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL][random.below(4)];
        match socket.recv(&mut bytes, flags) {
            Ok(0) => break,
            Ok(received) => {
                for (index, found) in bytes[..received].iter().enumerate() {
                    assert_eq!(*found, byte(at + index, seed), "byte {}", at + index);
                }
                if flags & MSG_WAITALL != 0 {
                    assert!(received == bytes.len() || at + received == total);
                }
                if flags & MSG_PEEK == 0 {
                    at += received;
                }
            }
            Err(libc::EAGAIN) => {
                poll(&[(socket.0, libc::POLLIN)], -1);
            }
            Err(errno) => panic!("receiving at {at}: errno {errno}"),
        }
    }
    assert_eq!(at, total);
}

#[test]
fn every_byte_arrives_once_in_both_directions() {
    setup();
    for seed in seeds(6) {
        println!("BAREVERBS_TEST_SEED={seed}");
        let random = &mut Random(seed | 1);
        let port = free_port();
        let listener = Socket::new();
        choose_sizes(&listener, random);
        listener.bind(crate::calls::SERVER, port).unwrap();
        listener.listen().unwrap();
        let client = Socket::new();
        choose_sizes(&client, random);
        client.bind(CLIENT, 0).unwrap();
        client.connect(port).unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(*server.peer_name().unwrap().ip(), CLIENT);
        let totals = [random.below(1_000_000), random.below(1_000_000)];
        thread::scope(|scope| {
            scope.spawn(|| send_all(&client, totals[0], seed));
            scope.spawn(|| receive_all(&server, totals[0], seed));
            scope.spawn(|| send_all(&server, totals[1], !seed));
            scope.spawn(|| receive_all(&client, totals[1], !seed));
        });
        client.close().unwrap();
        server.close().unwrap();
    }
}

/// Both ends say at the same time that they send no more: each gets the other's message, in whichever order the two go.
#[test]
fn both_ends_may_end_at_once() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    for round in 0..200 {
        let client = Socket::client(port);
        let server = listener.accept().unwrap();
        let together = Barrier::new(2);
        let end = |socket: Socket| {
            together.wait();
            socket.send(b"last", 0).unwrap();
            socket.shutdown(SHUT_WR).unwrap();
            let mut bytes = [0; 20];
            assert_eq!(socket.recv(&mut bytes, MSG_WAITALL), Ok(4), "round {round}");
            assert_eq!(socket.recv(&mut bytes, 0), Ok(0));
            socket.close().unwrap();
        };
        thread::scope(|scope| {
            scope.spawn(|| end(client));
            scope.spawn(|| end(server));
        });
    }
}

#[test]
fn what_was_sent_before_closing_arrives() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let client = Socket::client(port);
    let server = listener.accept().unwrap();
    client.send(b"farewell", 0).unwrap();
    client.close().unwrap();
    let mut bytes = [0; 20];
    assert_eq!(server.recv(&mut bytes, 0), Ok(8));
    assert_eq!(&bytes[..8], b"farewell");
    assert_eq!(server.recv(&mut bytes, 0), Ok(0));
    assert_eq!(server.recv(&mut bytes, 0), Ok(0));
    assert_eq!(server.send(b"too late", 0), Err(libc::ECONNRESET));
}

/// More messages than the other end has receives: what counts is their bytes.
#[test]
fn small_messages_do_not_wait_for_the_other_end_to_receive() {
    const COUNT: usize = 5000;
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let client = Socket::client(port);
    let server = listener.accept().unwrap();
    let bytes = Vec::from_iter((0..COUNT).map(|at| at as u8));
    for byte in &bytes {
        // The peer's card may be late, but its program need not do anything: POLLOUT comes within the time.
        while client.send(&[*byte], libc::MSG_DONTWAIT) != Ok(1) {
            let events = poll(&[(client.0, libc::POLLOUT)], 30_000);
            assert_eq!(events, [libc::POLLOUT]);
        }
    }
    // The end comes behind them.
    thread::scope(|scope| {
        scope.spawn(|| client.close().unwrap());
        let mut received = vec![0; COUNT + 1];
        assert_eq!(server.recv(&mut received, MSG_WAITALL), Ok(COUNT));
        assert_eq!(received[..COUNT], bytes);
    });
}

#[test]
fn many_pieces_are_one_message() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let client = Socket::client(port);
    let server = listener.accept().unwrap();
    let bytes = Vec::from_iter((0..7 * 1024).map(|at| (at * at / 7) as u8));
    for length in [1, 7] {
        let pieces: Vec<&[u8]> = bytes[..length * 1024].chunks(length).collect();
        // A list as long as can be, twice over what the other end has receives for.
        assert_eq!(
            client.send_pieces(&pieces, libc::MSG_DONTWAIT),
            Ok(length * 1024)
        );
        let mut received = vec![0; length * 1024];
        assert_eq!(server.recv(&mut received, MSG_WAITALL), Ok(received.len()));
        assert_eq!(received, bytes[..length * 1024]);
    }
}

#[test]
fn polling_mixes_rsockets_and_descriptors() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let mut pipe = [0; 2];
    // SAFETY: writes two numbers.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let both = [(listener.0, libc::POLLIN), (pipe[0], libc::POLLIN)];
    assert_eq!(poll(&both, 10), [0, 0]);

    let client = Socket::new();
    client.set_nonblocking();
    client.bind(CLIENT, 0).unwrap();
    // The connection may be there at once, on a machine whose other threads were faster.
    let connected = client.connect(port);
    assert!(
        matches!(connected, Ok(()) | Err(libc::EINPROGRESS)),
        "{connected:?}"
    );
    assert_eq!(poll(&both, -1), [libc::POLLIN, 0]);
    assert_eq!(poll(&[(client.0, libc::POLLOUT)], -1), [libc::POLLOUT]);
    assert_eq!(client.get(SOL_SOCKET, libc::SO_ERROR), Ok(0));
    let server = listener.accept().unwrap();

    thread::scope(|scope| {
        let waiter = scope.spawn(|| poll(&[(server.0, libc::POLLIN), both[1]], -1));
        // SAFETY: reads one byte.
        assert_eq!(unsafe { libc::write(pipe[1], c"x".as_ptr().cast(), 1) }, 1);
        assert_eq!(waiter.join().unwrap(), [0, libc::POLLIN]);
        let waiter = scope.spawn(|| poll(&[(server.0, libc::POLLIN)], -1));
        client.send(b"x", 0).unwrap();
        assert_eq!(waiter.join().unwrap(), [libc::POLLIN]);
    });
    // SAFETY: descriptors of this test.
    unsafe {
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}
