//! A stack of smoltcp's on each of two queues of one port: the hash of the headers says which has which connection, and the
//! other side's stack, which knows nothing of that, has all of them.

use bareverbs_core::ethernet::phy::Phy;
use bareverbs_core::{
    EthernetInit, FlowAction, FlowMatch, FlowRuleInit, FlowSlot, HashedPackets, RssHash,
};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpEndpoint, Ipv4Address};

use crate::lab::{Lab, MS, lab, pattern};
use crate::packets::{TCP, toeplitz};
use crate::seam::Seam;
use crate::spread::{numbers, pairs};
use crate::support::INIT;

const CLIENT: Ipv4Address = Ipv4Address::new(192, 0, 2, 1);
const SERVER: Ipv4Address = Ipv4Address::new(192, 0, 2, 2);
const PORT: u16 = 7;
const LEN: usize = 20_000;
const FIRST_PORT: u16 = 50_000;
const CONNECTIONS: usize = 12;

fn now(lab: &Lab<'_>) -> Instant {
    Instant::from_micros(lab.world.now().as_micros() as i64)
}

/// The queue of a connection, by the published hash of addresses and ports.
fn queue_of(port: u16) -> usize {
    let mut input = [CLIENT.octets(), SERVER.octets()].concat();
    input.extend(port.to_be_bytes());
    input.extend(PORT.to_be_bytes());
    toeplitz(&RssHash::PUBLIC_KEY, &input) as usize % 2
}

/// Sockets and their buffers.
type Storage<'s> = (&'s mut [SocketStorage<'s>; CONNECTIONS], &'s mut [u8]);
const BUFFER: usize = 8192;

struct Stack<'s> {
    interface: Interface,
    sockets: SocketSet<'s>,
    handles: Vec<SocketHandle>,
}

impl<'s> Stack<'s> {
    fn new(
        phy: &mut Phy<'_, '_, Seam>,
        mac: [u8; 6],
        own: Ipv4Address,
        at: Instant,
        storage: Storage<'s>,
    ) -> Self {
        let config = Config::new(EthernetAddress(mac).into());
        let mut interface = Interface::new(config, phy, at);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddress::Ipv4(own), 24);
            addresses.push(own).expect("place");
        });
        let mut sockets = SocketSet::new(&mut storage.0[..]);
        let mut buffers = storage.1.chunks_mut(BUFFER);
        let handles = (0..CONNECTIONS)
            .map(|_| {
                let mut buffer = || tcp::SocketBuffer::new(buffers.next().expect("enough"));
                sockets.add(tcp::Socket::new(buffer(), buffer()))
            })
            .collect();
        Self {
            interface,
            sockets,
            handles,
        }
    }

    fn socket(&mut self, nth: usize) -> &mut tcp::Socket<'s> {
        self.sockets.get_mut(self.handles[nth])
    }
}

#[test]
fn each_connection_lives_in_the_stack_of_its_queue() {
    lab(|lab| {
        let deep = EthernetInit {
            send_frames: 64,
            recv_frames: 64,
            ..INIT
        };
        let mut a = lab.queue(0, deep);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let mut queues = pairs(lab, &domain, 2);
        let table = domain
            .create_indirection_table(&numbers(&queues), 2)
            .unwrap();
        let hash = RssHash::all_of(HashedPackets::TcpIpv4);
        let hashed = domain.create_hashed_target(&table, &hash).unwrap();
        // ARP is for both, as each stack has neighbours of its own.
        let [first, second] = [0, 1].map(|nth| {
            let number = queues[nth].1.number();
            domain.create_target(number).unwrap()
        });
        let mut slots = [FlowSlot::new(); 16];
        let mut flows = domain.create_flow_table(&mut slots, 2).unwrap();
        let mine = FlowMatch::ANY.destination(domain.mac());
        let to = [hashed.number()];
        let rule = FlowRuleInit::new(mine.ipv4().ip_protocol(TCP), FlowAction::Forward(&to));
        let _tcp = flows.add(&rule).unwrap();
        let both = [first.number(), second.number()];
        let arp = FlowMatch::ANY.ethertype(0x0806);
        let rule = FlowRuleInit::new(arp, FlowAction::Forward(&both)).priority(1);
        let _arp = flows.add(&rule).unwrap();

        let mut memory = vec![0; 3 * 2 * CONNECTIONS * BUFFER];
        let mut places = [const { [const { SocketStorage::EMPTY }; CONNECTIONS] }; 3];
        let buffers = memory.chunks_mut(2 * CONNECTIONS * BUFFER);
        let mut storage = places.iter_mut().zip(buffers);
        let mac = a.mac();
        let (mut received, mut sent) = (vec![0; 1518], vec![0; 1518]);
        let mut client = Stack::new(
            &mut Phy::new(&mut a, &mut received, &mut sent),
            mac,
            CLIENT,
            now(lab),
            storage.next().unwrap(),
        );
        let mut servers: Vec<Stack<'_>> = queues
            .iter_mut()
            .map(|(send, receive)| {
                let mut phy = Phy::of_halves(send, receive, &mut received, &mut sent);
                let mut stack = Stack::new(
                    &mut phy,
                    domain.mac(),
                    SERVER,
                    now(lab),
                    storage.next().unwrap(),
                );
                for nth in 0..CONNECTIONS {
                    stack.socket(nth).listen(PORT).unwrap();
                }
                stack
            })
            .collect();
        let ports: Vec<u16> = (FIRST_PORT..).take(CONNECTIONS).collect();
        for (nth, &port) in ports.iter().enumerate() {
            let handle = client.handles[nth];
            let socket = client.sockets.get_mut::<tcp::Socket<'_>>(handle);
            let to = IpEndpoint::new(SERVER.into(), PORT);
            socket
                .connect(client.interface.context(), to, port)
                .unwrap();
        }
        let data: Vec<Vec<u8>> = (0..CONNECTIONS as u64)
            .map(|seed| pattern(LEN, seed))
            .collect();
        let mut progress = vec![(0_usize, Vec::<u8>::new()); CONNECTIONS];
        // By the client's port: the queue that the connection came to.
        let mut came = [None; CONNECTIONS];
        for turn in 0.. {
            assert!(turn < 20_000, "no end");
            let mut phy = Phy::new(&mut a, &mut received, &mut sent).with_checksums();
            client
                .interface
                .poll(now(lab), &mut phy, &mut client.sockets);
            for (nth, (done, back)) in progress.iter_mut().enumerate() {
                let socket = client.socket(nth);
                if socket.can_send() {
                    *done += socket.send_slice(&data[nth][*done..]).unwrap();
                }
                if socket.can_recv() {
                    let mut bytes = [0; 4096];
                    let length = socket.recv_slice(&mut bytes).unwrap();
                    back.extend(&bytes[..length]);
                }
            }
            // Each server sends back what comes, as long as it can.
            for (queue, (stack, (send, receive))) in servers.iter_mut().zip(&mut queues).enumerate()
            {
                let mut phy = Phy::of_halves(send, receive, &mut received, &mut sent);
                stack.interface.poll(now(lab), &mut phy, &mut stack.sockets);
                assert_eq!(phy.take_error(), None);
                for nth in 0..CONNECTIONS {
                    let socket = stack.socket(nth);
                    if let Some(remote) = socket.remote_endpoint() {
                        came[usize::from(remote.port - FIRST_PORT)] = Some(queue);
                    }
                    let space = socket.send_capacity() - socket.send_queue();
                    if socket.can_recv() && space != 0 {
                        let mut bytes = vec![0; space.min(4096)];
                        let length = socket.recv_slice(&mut bytes).unwrap();
                        socket.send_slice(&bytes[..length]).unwrap();
                    }
                }
            }
            lab.pause(MS);
            if progress.iter().all(|(_, back)| back.len() == LEN) {
                break;
            }
        }
        for (nth, (_, back)) in progress.iter().enumerate() {
            assert_eq!(*back, data[nth]);
            assert_eq!(came[nth], Some(queue_of(ports[nth])), "{}", ports[nth]);
        }
        assert!(came.contains(&Some(0)) && came.contains(&Some(1)));
    });
}
