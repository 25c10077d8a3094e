//! Commands of the connection manager's file, as librdmacm writes them.

// UNSAFETY: descriptors are opened and asked about.
#![expect(unsafe_code)]

use std::mem::offset_of;
use std::time::{Duration, Instant};

use bareverbs_node::cm::rdma::EventType;
use libc::{c_int, c_void};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::cm_abi::*;
use crate::thread;

/// The port space for datagrams, `RDMA_PS_UDP`, and the one for connections, `RDMA_PS_TCP`.
const UDP: u16 = 0x0111;
const TCP: u16 = 0x0106;
/// Offset of the answer's address in commands that begin with it.
const FIRST: usize = 0;

fn open() -> c_int {
    // SAFETY: text of C's.
    let fd = unsafe { libc::open(c"/dev/full".as_ptr(), libc::O_RDWR) };
    assert_eq!(thread::opened_cm(fd), 0);
    fd
}

/// Writes a command, of which `answer` is where the answer's address goes.
fn ask<T: FromBytes + IntoBytes>(
    fd: c_int,
    command: u32,
    input: &(impl IntoBytes + Immutable),
    answer: usize,
) -> Result<T, c_int> {
    let mut out = T::new_zeroed();
    let room = size_of::<T>();
    let mut bytes = header(command, size_of_val(input), room);
    bytes.extend(input.as_bytes());
    let at = (out.as_mut_bytes().as_mut_ptr() as u64).to_ne_bytes();
    bytes[size_of::<CmHeader>() + answer..][..8].copy_from_slice(&at);
    write(fd, &bytes).map(|()| out)
}

fn header(command: u32, len: usize, out: usize) -> Vec<u8> {
    let header = CmHeader {
        command,
        len: len as u16,
        out: out as u16,
    };
    header.as_bytes().to_vec()
}

/// Writes a command that has no answer.
fn tell(fd: c_int, command: u32, input: &(impl IntoBytes + Immutable)) -> Result<(), c_int> {
    let mut bytes = header(command, size_of_val(input), 0);
    bytes.extend(input.as_bytes());
    write(fd, &bytes)
}

fn write(fd: c_int, bytes: &[u8]) -> Result<(), c_int> {
    match thread::written(fd, bytes.as_ptr().cast::<c_void>(), bytes.len()) {
        0 => Ok(()),
        errno => Err(errno),
    }
}

fn create(fd: c_int, port_space: u16, uid: u64) -> Result<u32, c_int> {
    let asked = CreateIdIn {
        uid,
        port_space,
        ..FromZeros::new_zeroed()
    };
    let made = ask::<CmIdOnly>(
        fd,
        cm_command::CREATE_ID,
        &asked,
        offset_of!(CreateIdIn, response),
    );
    made.map(|made| made.id)
}

/// Destroys an id or leaves a group: the events that the program has had of it.
fn end(fd: c_int, command: u32, id: u32) -> Result<u32, c_int> {
    let asked = DestroyIdIn {
        id,
        ..FromZeros::new_zeroed()
    };
    ask(fd, command, &asked, FIRST)
}

fn ipv4(address: [u8; 4], port: u16) -> Sockaddr {
    Sockaddr {
        family: libc::AF_INET as u16,
        port: port.to_be_bytes(),
        flow_info: address,
        ..FromZeros::new_zeroed()
    }
}

fn bind(fd: c_int, id: u32, port: u16) -> Result<(), c_int> {
    let asked = BindIpIn {
        address: ipv4([10, 0, 0, 1], port),
        id,
        ..FromZeros::new_zeroed()
    };
    tell(fd, cm_command::BIND_IP, &asked)
}

/// Takes the next event, which has to come.
fn event(fd: c_int) -> CmEventOut {
    let asked = GetEventIn { response: 0 };
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match ask(fd, cm_command::GET_EVENT, &asked, FIRST) {
            Ok(event) => return event,
            Err(errno) => assert_eq!(errno, libc::EAGAIN),
        }
        assert!(Instant::now() < end, "no event");
        std::thread::yield_now();
    }
}

fn no_event(fd: c_int) {
    let asked = GetEventIn { response: 0 };
    let event = ask::<CmEventOut>(fd, cm_command::GET_EVENT, &asked, FIRST);
    assert_eq!(event.err(), Some(libc::EAGAIN));
}

fn about<T: FromBytes + KnownLayout + Immutable>(event: &CmEventOut) -> T {
    T::read_from_bytes(&event.param[..size_of::<T>()]).unwrap()
}

fn join(fd: c_int, id: u32, uid: u64, group: [u8; 4]) -> Result<u32, c_int> {
    let asked = JoinIpMcastIn {
        uid,
        address: ipv4(group, 0),
        id,
        response: 0,
    };
    ask::<CmIdOnly>(fd, cm_command::JOIN_IP_MCAST, &asked, FIRST).map(|joined| joined.id)
}

/// An id joins a group by both commands, moves to another file with its event, and leaves: order of checks, errors and
/// counts of events as in Linux's `core/ucma.c`.
#[test]
fn groups_move_with_their_ids() {
    let (file, other) = (open(), open());
    let id = create(file, UDP, 7).unwrap();
    // Too small a room counts first, then the id, which is not there or another file's.
    let short = ask::<u16>(file, cm_command::CREATE_ID, &[0_u64; 3], 8);
    assert_eq!(short.err(), Some(libc::ENOSPC));
    let short = ask::<[u8; 320]>(file, cm_command::GET_EVENT, &0_u64, FIRST);
    assert_eq!(short.err(), Some(libc::ENOSPC));
    assert_eq!(bind(file, id + 1000, 0), Err(libc::ENOENT));
    assert_eq!(bind(other, id, 0), Err(libc::EINVAL));
    assert_eq!(end(other, cm_command::DESTROY_ID, id), Err(libc::EINVAL));
    assert_eq!(create(file, 0x0107, 7), Err(libc::EINVAL));

    // Without an address, and without datagrams, there are no groups.
    assert_eq!(join(file, id, 8, [239, 0, 0, 1]), Err(libc::EINVAL));
    bind(file, id, 0).unwrap();
    let connected = create(file, TCP, 1).unwrap();
    bind(file, connected, 0).unwrap();
    assert_eq!(join(file, connected, 8, [239, 0, 0, 1]), Err(libc::EINVAL));
    let group = join(file, id, 8, [239, 0, 0, 1]).unwrap();

    // What is not taken goes with the id; the file that it came from has it no more.
    let migrate = |to, from: c_int, id| {
        let asked = MigrateIdIn {
            response: 0,
            id,
            fd: from as u32,
        };
        ask::<u32>(to, cm_command::MIGRATE_ID, &asked, FIRST)
    };
    assert_eq!(migrate(other, 9999, id), Err(libc::ENOENT));
    assert_eq!(migrate(other, 2, id), Err(libc::EINVAL));
    assert_eq!(migrate(other, file, id + 1000), Err(libc::ENOENT));
    assert_eq!(migrate(other, file, id), Ok(0));
    assert_eq!(migrate(other, file, id), Err(libc::EINVAL));
    no_event(file);
    let joined = event(other);
    assert_eq!((joined.uid, joined.id), (8, group));
    assert_eq!(joined.event, EventType::MulticastJoin as u32);
    let to: UdParam = about(&joined);
    assert_eq!((to.qp_num, to.qkey), (0xff_ffff, 0x0123_4567));
    assert_eq!((to.ah_attr.is_global, to.ah_attr.port_num), (1, 1));
    assert_eq!(to.ah_attr.dgid[12..], [239, 0, 0, 1]);

    // The other command has the address's size and flags.
    let wanted = JoinMcastIn {
        uid: 9,
        id,
        address_size: 16,
        flags: 1,
        address: ipv4([239, 0, 0, 2], 0),
        ..FromZeros::new_zeroed()
    };
    let join = |wanted: &JoinMcastIn| {
        ask::<CmIdOnly>(other, cm_command::JOIN_MCAST, wanted, FIRST).map(|joined| joined.id)
    };
    let refused = |change: fn(&mut JoinMcastIn)| {
        let mut wanted = wanted;
        change(&mut wanted);
        join(&wanted).err()
    };
    assert_eq!(refused(|it| it.address_size = 28), Some(libc::EINVAL));
    assert_eq!(refused(|it| it.flags = 2), Some(libc::EINVAL));
    assert_eq!(refused(|it| it.address.family = 99), Some(libc::EINVAL));
    assert_eq!(refused(|it| it.id += 1000), Some(libc::ENOENT));
    let second = join(&wanted).unwrap();
    assert_eq!(event(other).id, second);

    // Leaving says how many events the program has had of the group, and drops those that it has not.
    assert_eq!(end(file, cm_command::LEAVE_MCAST, group), Err(libc::EINVAL));
    assert_eq!(end(other, cm_command::LEAVE_MCAST, group), Ok(1));
    assert_eq!(
        end(other, cm_command::LEAVE_MCAST, group),
        Err(libc::ENOENT)
    );
    let third = join(&JoinMcastIn {
        address: ipv4([239, 0, 0, 3], 0),
        ..wanted
    });
    assert_eq!(end(other, cm_command::LEAVE_MCAST, third.unwrap()), Ok(0));
    no_event(other);
    // An id that goes takes its groups along.
    assert_eq!(end(other, cm_command::DESTROY_ID, id), Ok(2));
    assert_eq!(
        end(other, cm_command::LEAVE_MCAST, second),
        Err(libc::ENOENT)
    );
    thread::closed(file, true);
    thread::closed(other, true);
}

/// A request for datagrams is an id of its own, of which nothing is heard before it is accepted; its parameters, and those
/// of the answer, are those of datagrams.
#[test]
fn requests_for_datagrams_are_ids() {
    let file = open();
    let listener = create(file, UDP, 1).unwrap();
    bind(file, listener, 7171).unwrap();
    let listen = ListenIn {
        id: listener,
        backlog: 4,
    };
    tell(file, cm_command::LISTEN, &listen).unwrap();
    let client = create(file, UDP, 2).unwrap();
    let resolve = ResolveIpIn {
        destination: ipv4([10, 0, 0, 1], 7171),
        id: client,
        timeout_ms: 2000,
        ..FromZeros::new_zeroed()
    };
    tell(file, cm_command::RESOLVE_IP, &resolve).unwrap();
    let resolved = event(file);
    assert_eq!(
        (resolved.uid, resolved.event),
        (2, EventType::AddrResolved as u32)
    );
    assert_eq!(resolved.param, [0; 304]);
    let paths = || {
        let asked = QueryRouteIn {
            id: client,
            ..FromZeros::new_zeroed()
        };
        let found = ask::<QueryRouteOut>(file, cm_command::QUERY_ROUTE, &asked, FIRST).unwrap();
        (
            found.num_paths,
            found.paths[0].mtu,
            found.paths[0].mtu_selector,
        )
    };
    assert_eq!(paths(), (0, 0, 0));
    let route = ResolveRouteIn {
        id: client,
        timeout_ms: 2000,
    };
    tell(file, cm_command::RESOLVE_ROUTE, &route).unwrap();
    assert_eq!(event(file).event, EventType::RouteResolved as u32);
    assert!(matches!(paths(), (1, 1..=5, 2)));

    let mut connect = ConnectIn {
        id: client,
        ..FromZeros::new_zeroed()
    };
    connect.param.private_data[..5].copy_from_slice(b"hello");
    connect.param.private_data_len = 5;
    assert_eq!(tell(file, cm_command::CONNECT, &connect), Err(libc::EINVAL));
    connect.param.valid = 1;
    let short = &connect.as_bytes()[..size_of::<Param>()];
    let mut bytes = header(cm_command::CONNECT, short.len(), 0);
    bytes.extend(short);
    assert_eq!(write(file, &bytes), Err(libc::EINVAL));
    tell(file, cm_command::CONNECT, &connect).unwrap();
    let request = event(file);
    assert_eq!(
        (request.uid, request.event),
        (1, EventType::ConnectRequest as u32)
    );
    assert!(request.id != listener && request.id != client);
    let asked: UdParam = about(&request);
    assert_eq!(asked.private_data[..5], *b"hello");
    assert_eq!((asked.ah_attr.is_global, asked.ah_attr.port_num), (0, 0));

    let mut accept = AcceptIn {
        uid: 3,
        id: request.id,
        ..FromZeros::new_zeroed()
    };
    accept.param.valid = 1;
    accept.param.qp_num = 0xab00_1234;
    tell(file, cm_command::ACCEPT, &accept).unwrap();
    let answer = event(file);
    assert_eq!((answer.uid, answer.id), (2, client));
    assert_eq!(answer.event, EventType::Established as u32);
    let to: UdParam = about(&answer);
    assert_eq!((to.qp_num, to.qkey), (0x1234, 0x0123_4567));
    assert_eq!((to.ah_attr.is_global, to.ah_attr.port_num), (1, 1));

    // Options: the value is read first, then the option, then its length.
    let byte = [0x20_u8];
    let set = |id, level, option, value: u64, len| {
        let asked = SetOptionIn {
            value,
            id,
            level,
            option,
            len,
        };
        tell(file, cm_command::SET_OPTION, &asked)
    };
    let at = byte.as_ptr() as u64;
    assert_eq!(set(client, 0, option::TOS, at, 1), Ok(()));
    assert_eq!(set(client, 0, option::TOS, at, 5 << 20), Err(libc::EINVAL));
    assert_eq!(set(client + 99, 0, option::TOS, 4096, 1), Err(libc::ENOENT));
    assert_eq!(set(client, 9, 9, 4096, 1), Err(libc::EFAULT));
    assert_eq!(set(client, 9, 9, at, 1), Err(libc::ENOSYS));
    assert_eq!(set(client, 0, 4, at, 1), Err(libc::ENOSYS));
    assert_eq!(set(client, 0, option::REUSEADDR, at, 1), Err(libc::EINVAL));
    assert_eq!(
        set(client, 0, option::ACK_TIMEOUT, at, 1),
        Err(libc::EINVAL)
    );
    assert_eq!(set(listener, 1, option::IB_PATH, at, 1), Err(libc::EINVAL));

    // One request more, whose event is not fetched, is destroyed with the listener.
    let late = create(file, UDP, 4).unwrap();
    tell(
        file,
        cm_command::RESOLVE_IP,
        &ResolveIpIn {
            id: late,
            ..resolve
        },
    )
    .unwrap();
    assert_eq!(event(file).uid, 4);
    tell(
        file,
        cm_command::RESOLVE_ROUTE,
        &ResolveRouteIn { id: late, ..route },
    )
    .unwrap();
    assert_eq!(event(file).uid, 4);
    connect.id = late;
    tell(file, cm_command::CONNECT, &connect).unwrap();
    let reject = RejectIn {
        id: request.id,
        reason: 9,
        ..FromZeros::new_zeroed()
    };
    assert_eq!(tell(file, cm_command::REJECT, &reject), Err(libc::EINVAL));
    let wait = libc::POLLIN;
    let mut asked = libc::pollfd {
        fd: file,
        events: wait,
        revents: 0,
    };
    // SAFETY: one structure, which can be written.
    assert_eq!(unsafe { libc::poll(&raw mut asked, 1, 10_000) }, 1);
    assert_eq!(end(file, cm_command::DESTROY_ID, listener), Ok(1));
    let refused = event(file);
    assert_eq!(refused.uid, 4);
    assert_ne!(refused.status, 0);
    thread::closed(file, true);
}
