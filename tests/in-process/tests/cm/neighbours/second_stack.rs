//! smoltcp on the port that the RDMA CM finds its neighbours on, with the same address.

use std::net::Ipv4Addr;
use std::time::Duration;

use bareverbs_cm::rdma::{EventType, Inbox, SendFlags};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::Device as _;
use smoltcp::socket::tcp;
use smoltcp::storage::PacketMetadata;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, IpEndpoint};

use super::{Cm, Pair};

use crate::keep::keep;

const OWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const MTU: usize = 1514;

/// A stack with one TCP socket.
struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Stack {
    /// On a port that keeps so many frames for it.
    fn new(cm: &mut Cm, own: Ipv4Addr, frames: usize) -> Self {
        let metadata = keep(vec![PacketMetadata::EMPTY; frames]).as_mut_slice();
        let inbox = Inbox::new(metadata, keep(vec![0; frames * 1536]).as_mut_slice());
        let now = Instant::from_micros(cm.now().as_micros() as i64);
        let neighbours = cm.resolver_mut();
        neighbours.share(inbox);
        let config = Config::new(EthernetAddress(neighbours.queue().mac()).into());
        let mut sent = [0; MTU];
        let mut port = neighbours.port(&mut sent);
        assert_eq!(port.capabilities().max_transmission_unit, MTU);
        let mut interface = Interface::new(config, &mut port, now);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(own.into(), 24);
            addresses.push(own).expect("capacity");
        });
        let buffer = || tcp::SocketBuffer::new(keep([0_u8; 1 << 14]).as_mut_slice());
        let mut sockets =
            SocketSet::new(keep([smoltcp::iface::SocketStorage::EMPTY]).as_mut_slice());
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self {
            interface,
            sockets,
            socket,
        }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn poll(&mut self, cm: &mut Cm) {
        let now = Instant::from_micros(cm.now().as_micros() as i64);
        let mut sent = [0; MTU];
        let mut port = cm.resolver_mut().port(&mut sent);
        self.interface.poll(now, &mut port, &mut self.sockets);
        assert_eq!(port.take_error(), None);
    }
}

/// So many bytes over TCP, and messages over RDMA meanwhile, with an inbox of so many frames. How many messages, and how
/// many frames did not fit.
fn both_at_once(length: usize, frames: usize) -> (u32, u64) {
    let mut pair = Pair::new([&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]]);
    let mut stacks = [0, 1].map(|node| Stack::new(&mut pair.cms[node], OWN[node], frames));
    stacks[1].socket().listen(7).unwrap();
    let to = IpEndpoint::new(OWN[1].into(), 7);
    let Stack {
        interface,
        sockets,
        socket,
    } = &mut stacks[0];
    let client: &mut tcp::Socket<'_> = sockets.get_mut(*socket);
    client.connect(interface.context(), to, 49_152).unwrap();

    let ids = pair.connect("192.0.2.2");
    let there = pair.cms[1].reg_msgs(ids[1], 64).unwrap();
    let here = pair.cms[0].reg_msgs(ids[0], 64).unwrap();
    pair.cms[1]
        .post_recv(ids[1], 0, there.slice(..64).unwrap())
        .unwrap();
    let data: Vec<u8> = (0..length).map(|at| (at / 3) as u8).collect();
    let (mut sent, mut received, mut messages) = (0, Vec::new(), 0_u32);
    let mut turn = 0_u32;
    while received.len() < length {
        if turn.is_multiple_of(8) {
            here.copy_in(0, &turn.to_be_bytes()).unwrap();
            pair.cms[0]
                .post_send(ids[0], 0, here.slice(..4).unwrap(), SendFlags::SIGNALED)
                .unwrap();
        }
        let client = stacks[0].socket();
        if client.can_send() {
            sent += client.send_slice(&data[sent..]).unwrap();
        }
        for (stack, cm) in stacks.iter_mut().zip(&mut pair.cms) {
            cm.poll(cm.now()).unwrap();
            stack.poll(cm);
        }
        let server = stacks[1].socket();
        if server.can_recv() {
            let got = server.recv(|bytes| (bytes.len(), bytes.to_vec()));
            received.extend(got.unwrap());
        }
        let _ = pair.cms[0].try_get_send_comp(ids[0]).unwrap();
        if pair.cms[1].try_get_recv_comp(ids[1]).unwrap().is_some() {
            let mut message = [0; 4];
            there.copy_out(0, &mut message).unwrap();
            assert_eq!(u32::from_be_bytes(message), messages * 8);
            messages += 1;
            pair.cms[1]
                .post_recv(ids[1], 0, there.slice(..64).unwrap())
                .unwrap();
        }
        pair.world.advance(Duration::from_micros(100));
        turn += 1;
        assert!(turn < 1_000_000, "{} of {length} bytes", received.len());
    }
    assert!(received == data);
    pair.cms[0].disconnect(ids[0]).unwrap();
    pair.expect(1, EventType::Disconnected);
    (messages, pair.cms[1].resolver_mut().unread())
}

#[test]
fn tcp_beside_rdma() {
    let (messages, unread) = both_at_once(100_000, 64);
    println!("{messages} messages beside TCP");
    assert!(messages > 0);
    assert_eq!(unread, 0);
}

/// A frame that does not fit is lost, as on any cable, and TCP retransmits it.
#[test]
fn a_small_inbox_only_takes_longer() {
    let (messages, unread) = both_at_once(20_000, 4);
    assert!(messages > 0 && unread > 0, "{messages}, {unread}");
}
