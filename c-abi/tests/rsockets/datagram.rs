//! Datagrams.

use std::net::{Ipv4Addr, SocketAddrV4};

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, SOL_SOCKET};

use crate::calls::{CLIENT, Random, SERVER, Socket, free_port, poll, seeds, setup};

/// The most data of a datagram: the models' MTU without the header.
const MOST: usize = 4096 - 8;

fn bound(ip: Ipv4Addr, port: u16) -> Socket {
    let socket = Socket::datagrams();
    socket.bind(ip, port).unwrap();
    socket
}

#[test]
fn datagrams_arrive_whole_with_their_sender() {
    setup();
    let port = free_port();
    let server = bound(SERVER, port);
    let client = bound(CLIENT, port);
    let to = SocketAddrV4::new(SERVER, port);
    let mut buffer = [0; 5000];
    for seed in seeds(4) {
        println!("BAREVERBS_TEST_SEED={seed}");
        let random = &mut Random(seed | 1);
        for _ in 0..50 {
            let length = random.below(MOST + 1);
            let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            assert_eq!(client.send_to(&bytes, to), Ok(length));
            let received = server.recv_from(&mut buffer, 0);
            assert_eq!(received, Ok((length, SocketAddrV4::new(CLIENT, port))));
            assert_eq!(buffer[..length], bytes);
            // And back, by the address that was said.
            let (_, from) = received.unwrap();
            assert_eq!(server.send_to(&bytes, from), Ok(length));
            assert_eq!(client.recv_from(&mut buffer, 0), Ok((length, to)));
            assert_eq!(buffer[..length], bytes);
        }
    }
}

#[test]
fn the_rest_of_a_datagram_is_lost() {
    setup();
    let port = free_port();
    let server = bound(SERVER, port);
    let client = Socket::datagrams();
    client.bind(CLIENT, 0).unwrap();
    client.connect(port).unwrap();
    client.send(b"abcdef", 0).unwrap();
    client.send(b"gh", 0).unwrap();
    assert_eq!(poll(&[(server.0, libc::POLLIN)], -1), [libc::POLLIN]);
    let mut buffer = [0; 3];
    assert_eq!(server.recv(&mut buffer, MSG_PEEK | MSG_TRUNC), Ok(6));
    assert_eq!(server.recv(&mut buffer, 0), Ok(3));
    assert_eq!(&buffer, b"abc");
    assert_eq!(server.recv(&mut buffer, 0), Ok(2));
    assert_eq!(server.recv(&mut buffer, MSG_DONTWAIT), Err(libc::EAGAIN));
    assert_eq!(client.send(&[0; MOST + 1], 0), Err(libc::EMSGSIZE));
    assert_eq!(client.listen(), Err(libc::EOPNOTSUPP));
}

#[test]
fn where_nobody_is_bound_a_connected_one_hears_of_it() {
    setup();
    let client = Socket::datagrams();
    client.bind(CLIENT, 0).unwrap();
    assert_eq!(client.send(b"x", 0), Err(libc::EDESTADDRREQ));
    client.connect(free_port()).unwrap();
    assert_eq!(client.send(b"x", 0), Ok(1));
    let refused = client.recv(&mut [0; 8], 0);
    assert_eq!(refused, Err(libc::ECONNREFUSED));
    assert_eq!(client.get(SOL_SOCKET, libc::SO_ERROR), Ok(0));
}
