//! smoltcp on both ends.

use bareverbs_core::ethernet::phy::Phy;
use smoltcp::iface::{Config, Interface, SocketSet, SocketStorage};
use smoltcp::phy::{ChecksumCapabilities, Device as _};
use smoltcp::socket::{icmp, tcp};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, Icmpv4Packet, Icmpv4Repr, IpAddress, IpCidr, IpEndpoint, Ipv4Address,
};

use crate::lab::{Lab, MS, lab};
use crate::support::{INIT, Queue};

const ADDRESSES: [Ipv4Address; 2] = [
    Ipv4Address::new(192, 0, 2, 1),
    Ipv4Address::new(192, 0, 2, 2),
];

fn now(lab: &Lab<'_>) -> Instant {
    Instant::from_micros(lab.world.now().as_micros() as i64)
}

/// An interface with its buffers.
struct Host {
    interface: Interface,
    received: Vec<u8>,
    sent: Vec<u8>,
    checksums: bool,
}

impl Host {
    fn new(lab: &Lab<'_>, node: usize, queue: &mut Queue<'_>, checksums: bool) -> Self {
        let (mut received, mut sent) = (vec![0xa5; 1518], vec![0xa5; 1518]);
        let config = Config::new(EthernetAddress(queue.mac()).into());
        let mut phy = Phy::new(queue, &mut received, &mut sent);
        assert_eq!(phy.capabilities().max_transmission_unit, 1514);
        let mut interface = Interface::new(config, &mut phy, now(lab));
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddress::Ipv4(ADDRESSES[node]), 24);
            addresses.push(own).expect("payload");
        });
        Self {
            interface,
            received,
            sent,
            checksums,
        }
    }

    fn poll(&mut self, lab: &Lab<'_>, queue: &mut Queue<'_>, sockets: &mut SocketSet<'_>) {
        let mut phy = Phy::new(queue, &mut self.received, &mut self.sent);
        if self.checksums {
            phy = phy.with_checksums();
        }
        self.interface.poll(now(lab), &mut phy, sockets);
        assert_eq!(phy.take_error(), None);
        assert_eq!(phy.truncated(), 0);
    }
}

/// Echo requests, with the ARP before the first one, answered by the other side's stack.
#[test]
fn ping() {
    lab(|lab| {
        let mut queues = lab.queues();
        let mut hosts = [0, 1].map(|node| Host::new(lab, node, &mut queues[node], false));
        let mut metadata = [[icmp::PacketMetadata::EMPTY; 4]; 2];
        let mut payload = [[0; 4096]; 2];
        let [receive, send] = &mut metadata;
        let [received, sent] = &mut payload;
        let receive = icmp::PacketBuffer::new(&mut receive[..], &mut received[..]);
        let send = icmp::PacketBuffer::new(&mut send[..], &mut sent[..]);
        let mut storage = [SocketStorage::EMPTY];
        let mut sockets = SocketSet::new(&mut storage[..]);
        let handle = sockets.add(icmp::Socket::new(receive, send));
        sockets
            .get_mut::<icmp::Socket<'_>>(handle)
            .bind(icmp::Endpoint::Ident(0x1234))
            .unwrap();
        let mut no_sockets = SocketSet::new(&mut [][..]);
        let to = IpAddress::Ipv4(ADDRESSES[1]);
        for seq_no in 0..20_u16 {
            let data = crate::lab::pattern(1 + usize::from(seq_no) * 70, seq_no.into());
            let request = Icmpv4Repr::EchoRequest {
                ident: 0x1234,
                seq_no,
                data: &data,
            };
            let socket = sockets.get_mut::<icmp::Socket<'_>>(handle);
            let payload = socket.send(request.buffer_len(), to).unwrap();
            request.emit(
                &mut Icmpv4Packet::new_unchecked(payload),
                &ChecksumCapabilities::default(),
            );
            let mut turns = 0;
            while !sockets.get_mut::<icmp::Socket<'_>>(handle).can_recv() {
                hosts[0].poll(lab, &mut queues[0], &mut sockets);
                hosts[1].poll(lab, &mut queues[1], &mut no_sockets);
                lab.pause(MS);
                turns += 1;
                assert!(turns < 3000, "no answer to {seq_no}");
            }
            let socket = sockets.get_mut::<icmp::Socket<'_>>(handle);
            let (answer, from) = socket.recv().unwrap();
            assert_eq!(from, to);
            let packet = Icmpv4Packet::new_checked(answer).unwrap();
            let answer = Icmpv4Repr::parse(&packet, &ChecksumCapabilities::default()).unwrap();
            let expected = Icmpv4Repr::EchoReply {
                ident: 0x1234,
                seq_no,
                data: &data,
            };
            assert_eq!(answer, expected);
        }
    });
}

/// A megabyte over TCP, checksums by the stack on one round and by the device on the other.
#[test]
fn a_stream() {
    const LEN: usize = 1 << 20;
    for checksums in [false, true] {
        lab(|lab| {
            let mut queues = [0, 1].map(|node| {
                let mut init = INIT;
                init.recv_frames = 64;
                init.send_frames = 64;
                lab.queue(node, init)
            });
            let mut hosts = [0, 1].map(|node| Host::new(lab, node, &mut queues[node], checksums));
            let mut storage = [[SocketStorage::EMPTY], [SocketStorage::EMPTY]];
            let mut sets = storage.each_mut().map(|one| SocketSet::new(&mut one[..]));
            let mut buffers = vec![0; 4 << 15];
            let mut buffers = buffers.chunks_mut(1 << 15).map(tcp::SocketBuffer::new);
            let handles = sets.each_mut().map(|set| {
                let mut buffer = || buffers.next().expect("four");
                set.add(tcp::Socket::new(buffer(), buffer()))
            });
            sets[1]
                .get_mut::<tcp::Socket<'_>>(handles[1])
                .listen(7)
                .unwrap();
            let to = IpEndpoint::new(IpAddress::Ipv4(ADDRESSES[1]), 7);
            sets[0]
                .get_mut::<tcp::Socket<'_>>(handles[0])
                .connect(hosts[0].interface.context(), to, 49_152)
                .unwrap();
            let data = crate::lab::pattern(LEN, 1);
            let (mut sent, mut received) = (0, Vec::new());
            let mut turns = 0;
            while received.len() < LEN {
                let client = sets[0].get_mut::<tcp::Socket<'_>>(handles[0]);
                if client.can_send() {
                    sent += client.send_slice(&data[sent..]).unwrap();
                }
                for node in [0, 1] {
                    hosts[node].poll(lab, &mut queues[node], &mut sets[node]);
                }
                let server = sets[1].get_mut::<tcp::Socket<'_>>(handles[1]);
                if server.can_recv() {
                    let got = server.recv(|bytes| (bytes.len(), bytes.to_vec()));
                    received.extend(got.unwrap());
                }
                lab.pause(MS / 10);
                turns += 1;
                assert!(turns < 100_000, "{} of {LEN} bytes", received.len());
            }
            assert!(received == data);
        });
    }
}
