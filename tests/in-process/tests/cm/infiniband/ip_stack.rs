//! smoltcp on an interface of IP over InfiniBand, with the addresses that the RDMA CM has there.

use std::net::IpAddr;
use std::time::Duration;

use bareverbs_cm::rdma::{Neighbours, PacketSlot};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, Medium, RxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint};

use super::ip::{Cm, Hosts, addresses};
use super::support::{MS, SECOND};
use crate::keep::keep;

/// MTU codes of the group of all interfaces.
const B2048: u8 = 4;
const B4096: u8 = 5;
const SLOTS: usize = 32;
const SERVICE: u16 = 7;

/// A stack with one TCP socket.
struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

fn slots(count: usize) -> &'static mut [PacketSlot] {
    keep(vec![PacketSlot::EMPTY; count]).as_mut_slice()
}

impl Stack {
    /// On an interface whose packets are so long, and which keeps so many for it.
    fn new(cm: &mut Cm, own: IpAddr, mtu: usize, inbox: usize) -> Self {
        let now = instant(cm.now());
        let link = cm.resolver_mut();
        assert!(link.port().is_none());
        link.share(slots(inbox), slots(SLOTS));
        let mut port = link.port().expect("it is up");
        let capabilities = port.capabilities();
        assert_eq!(capabilities.medium, Medium::Ip);
        assert_eq!(capabilities.max_transmission_unit, mtu);
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut port, now);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(own.into(), if own.is_ipv4() { 24 } else { 64 });
            addresses.push(own).expect("capacity");
        });
        let buffer = || tcp::SocketBuffer::new(keep([0_u8; 1 << 14]).as_mut_slice());
        let mut sockets = SocketSet::new(keep([SocketStorage::EMPTY]).as_mut_slice());
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

    fn connect(&mut self, to: IpAddr) {
        let socket: &mut tcp::Socket<'_> = self.sockets.get_mut(self.socket);
        let to = IpEndpoint::new(to.into(), SERVICE);
        let context = self.interface.context();
        socket.connect(context, to, 49_152).unwrap();
    }

    fn poll(&mut self, cm: &mut Cm) {
        let now = instant(cm.now());
        let mut port = cm.resolver_mut().port().expect("it is up");
        self.interface.poll(now, &mut port, &mut self.sockets);
    }
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(now.as_micros() as i64)
}

fn hosts(mtu: u8) -> Hosts {
    let hosts = Hosts::with_group(|all| all.record[38] = 2 << 6 | mtu);
    hosts.settle()
}

/// So many bytes each way, the server sending back what it receives; how many packets did not fit into the server's inbox.
fn echo(mtu: u8, family: usize, length: usize, inbox: usize) -> u64 {
    let mut hosts = hosts(mtu);
    let longest = (128 << mtu) - 4;
    let own = [0, 1].map(|node| addresses(node)[family]);
    let mut stacks = [(0, SLOTS), (1, inbox)]
        .map(|(node, inbox)| Stack::new(&mut hosts.cms[node], own[node], longest, inbox));
    stacks[1].socket().listen(SERVICE).unwrap();
    stacks[0].connect(own[1]);
    let data: Vec<u8> = (0..length).map(|at| (at ^ at >> 8) as u8).collect();
    let (mut sent, mut received, mut turns) = (0, Vec::new(), 0_u32);
    let mut there = Vec::new();
    while received.len() < length {
        let client = stacks[0].socket();
        if client.can_send() {
            sent += client.send_slice(&data[sent..]).unwrap();
        }
        if client.can_recv() {
            let got = client.recv(|bytes| (bytes.len(), bytes.to_vec()));
            received.extend(got.unwrap());
        }
        let server = stacks[1].socket();
        if server.can_recv() {
            let got = server.recv(|bytes| (bytes.len(), bytes.to_vec()));
            there.extend(got.unwrap());
        }
        if server.can_send() {
            let back = server.send_slice(&there).unwrap();
            there.drain(..back);
        }
        for (stack, cm) in stacks.iter_mut().zip(&mut hosts.cms) {
            cm.poll(cm.now()).unwrap();
            stack.poll(cm);
        }
        hosts.world.step();
        hosts.world.advance(MS / 10);
        turns += 1;
        assert!(turns < 1_000_000, "{} of {length} bytes", received.len());
    }
    assert!(received == data);
    for cm in &mut hosts.cms {
        assert_eq!(cm.resolver_mut().unsent(), 0);
    }
    assert_eq!(hosts.cms[0].resolver_mut().unread(), 0);
    hosts.cms[1].resolver_mut().unread()
}

#[test]
fn a_stream_in_packets_of_2044_bytes() {
    for family in [0, 1] {
        assert_eq!(echo(B2048, family, 60_000, SLOTS), 0);
    }
}

#[test]
fn a_stream_in_packets_of_4092_bytes() {
    for family in [0, 1] {
        assert_eq!(echo(B4096, family, 60_000, SLOTS), 0);
    }
}

/// A packet that does not fit is lost, as on any cable, and TCP sends it again.
#[test]
fn a_small_inbox_only_takes_longer() {
    assert!(echo(B2048, 0, 20_000, 2) > 0);
}

/// Segments have the whole MTU.
#[test]
fn packets_are_as_long_as_the_group_allows() {
    for (mtu, longest) in [(B2048, 2044), (B4096, 4092)] {
        let mut hosts = hosts(mtu);
        let own = [0, 1].map(|node| addresses(node)[0]);
        let mut stacks =
            [0, 1].map(|node| Stack::new(&mut hosts.cms[node], own[node], longest, SLOTS));
        stacks[1].socket().listen(SERVICE).unwrap();
        stacks[0].connect(own[1]);
        let mut seen = Vec::new();
        for _ in 0..1000 {
            let client = stacks[0].socket();
            if client.can_send() && seen.is_empty() {
                client.send_slice(&[1; 10_000]).unwrap();
            }
            for (node, (stack, cm)) in stacks.iter_mut().zip(&mut hosts.cms).enumerate() {
                cm.poll(cm.now()).unwrap();
                if node == 0 || stack.socket().state() != tcp::State::Established {
                    stack.poll(cm);
                    continue;
                }
                // Nothing is acknowledged from now on.
                let now = instant(cm.now());
                let mut port = cm.resolver_mut().port().unwrap();
                while let Some((packet, _)) = port.receive(now) {
                    seen.push(packet.consume(<[u8]>::len));
                }
            }
            hosts.world.step();
            hosts.world.advance(MS / 10);
        }
        assert_eq!(seen.iter().max(), Some(&longest), "{seen:?}");
    }
}

#[test]
fn packets_to_nobody_are_counted() {
    let mut hosts = hosts(B2048);
    let mut stack = Stack::new(&mut hosts.cms[0], addresses(0)[0], 2044, SLOTS);
    // No host on the link answers; to others there is no route.
    for (address, time) in [("10.0.0.77", 10 * SECOND), ("192.0.2.1", SECOND / 10)] {
        let before = hosts.cms[0].resolver_mut().unsent();
        stack.socket().abort();
        stack.connect(address.parse().unwrap());
        stack.poll(&mut hosts.cms[0]);
        let resolver = hosts.cms[0].resolver_mut();
        assert_eq!(resolver.next_deadline(), Some(Duration::ZERO));
        hosts.poll_for(time);
        assert!(hosts.cms[0].resolver_mut().unsent() > before, "{address}");
    }
}
