//! Calls that fail, and calls that end while another one waits.

use std::thread;

use libc::{MSG_DONTWAIT, SHUT_RDWR, SOL_SOCKET};

use crate::calls::{CLIENT, SERVER, Socket, free_port, poll, setup};

#[test]
fn calls_in_the_wrong_state_say_so() {
    setup();
    let port = free_port();
    let socket = Socket::new();
    let mut byte = [0];
    assert_eq!(socket.recv(&mut byte, 0), Err(libc::ENOTCONN));
    assert_eq!(socket.send(&byte, 0), Err(libc::ENOTCONN));
    assert_eq!(socket.shutdown(SHUT_RDWR), Err(libc::ENOTCONN));
    assert_eq!(socket.peer_name(), Err(libc::ENOTCONN));
    assert_eq!(socket.accept().map(drop), Err(libc::EINVAL));
    let elsewhere = [192, 0, 2, 1].into();
    assert_eq!(socket.bind(elsewhere, port), Err(libc::EADDRNOTAVAIL));
    socket.bind(SERVER, port).unwrap();
    assert_eq!(socket.bind(SERVER, port), Err(libc::EINVAL));
    assert_eq!(Socket::new().bind(SERVER, port), Err(libc::EADDRINUSE));
    socket.listen().unwrap();
    assert_eq!(socket.connect(port), Err(libc::EINVAL));
    assert_eq!(socket.set(SOL_SOCKET, 9999, 1), Err(libc::EOPNOTSUPP));

    let number = socket.0;
    socket.close().unwrap();
    let gone = std::mem::ManuallyDrop::new(Socket(number));
    assert_eq!(gone.listen(), Err(libc::EBADF));
    assert_eq!(gone.recv(&mut byte, 0), Err(libc::EBADF));
}

/// The kernel's socket has the address of datagrams on Linux, which is of one family.
#[test]
fn datagrams_have_addresses_of_their_family() {
    setup();
    let port = free_port();
    let socket = Socket::datagrams();
    assert_eq!(socket.bind_v6(port), Err(libc::EAFNOSUPPORT));
    assert_eq!(socket.connect_v6(port), Err(libc::EAFNOSUPPORT));
    socket.bind(SERVER, port).unwrap();
    assert_eq!(socket.connect_v6(port), Err(libc::EAFNOSUPPORT));
    let six = Socket::of(libc::AF_INET6, libc::SOCK_DGRAM);
    // The length is looked at before the family.
    assert_eq!(six.bind(SERVER, port), Err(libc::EINVAL));
}

#[test]
fn where_nobody_listens_connections_are_refused() {
    setup();
    let port = free_port();
    let client = Socket::new();
    client.bind(CLIENT, 0).unwrap();
    assert_eq!(client.connect(port), Err(libc::ECONNREFUSED));

    let client = Socket::new();
    client.set_nonblocking();
    client.bind(CLIENT, 0).unwrap();
    match client.connect(port) {
        Err(libc::EINPROGRESS) => {
            let events = poll(&[(client.0, libc::POLLOUT)], -1);
            assert_eq!(events[0] & libc::POLLERR, libc::POLLERR);
            let error = client.get(SOL_SOCKET, libc::SO_ERROR);
            assert_eq!(error, Ok(libc::ECONNREFUSED));
        }
        // The answer was there before the call returned.
        at_once => assert_eq!(at_once, Err(libc::ECONNREFUSED)),
    }
    assert_eq!(client.get(SOL_SOCKET, libc::SO_ERROR), Ok(0));
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let client = Socket::client(port);
    let server = listener.accept().unwrap();
    let bytes = vec![7; 100_000];
    let mut sent = 0;
    loop {
        match client.send(&bytes, MSG_DONTWAIT) {
            Ok(more) => sent += more,
            // What was sent may still be on its way, and free room as it arrives.
            Err(libc::EAGAIN) if sent >= 128 << 10 => break,
            Err(libc::EAGAIN) => {}
            Err(errno) => panic!("errno {errno}"),
        }
    }
    assert_eq!(sent, 128 << 10, "the receive ring");
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while received < sent {
        received += server.recv(&mut buffer, 0).unwrap();
    }
    assert_eq!(poll(&[(client.0, libc::POLLOUT)], -1), [libc::POLLOUT]);
}

#[test]
fn shutting_down_ends_a_call_that_waits() {
    setup();
    let port = free_port();
    let listener = Socket::listener(port);
    let client = Socket::client(port);
    let server = listener.accept().unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| server.recv(&mut [0; 8], 0));
        let other = scope.spawn(|| client.recv(&mut [0; 8], 0));
        server.shutdown(SHUT_RDWR).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(0));
        assert_eq!(other.join().unwrap(), Ok(0));
    });
    assert_eq!(server.send(b"x", 0), Err(libc::EPIPE));
}
