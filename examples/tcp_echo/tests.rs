//! Both ends on two device models.

use std::collections::VecDeque;

use bareverbs_command_line::parse_line;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::stack::socket;
use crate::{Echoed, options};

fn run(line: &str) -> Option<Echoed> {
    let options = parse_line(&options(), line).expect(line);
    options.addresses.run(&options).expect("an echo")
}

#[test]
fn the_command_line_is_sound() {
    options().check_invariants(true);
}

#[test]
fn what_is_out_of_range_is_refused() {
    for line in [
        "-p 0",
        "-t 0",
        "-S -1",
        "-C 4294967296",
        // Both ends run here, or the client.
        "--iperf3 1",
        "--iperf3 1 -s 10.0.0.1 -b 10.0.0.2 --link unix:/a,/b",
    ] {
        parse_line(&options(), line).expect_err(line);
    }
}

#[test]
fn both_come_back() {
    for (line, bytes, messages) in [
        ("-S 100000 -C 3", 100_000, 3),
        ("-S 1 -C 1 -s fd00::1 --interrupts", 1, 1),
        ("-S 50000 -C 0", 50_000, 0),
        ("-S 100000 -C 3 --model-port infiniband", 100_000, 3),
        (
            "-S 1000 -C 1 -s fd00::1 --model-port infiniband --interrupts",
            1000,
            1,
        ),
    ] {
        assert_eq!(run(line), Some(Echoed { bytes, messages }), "{line}");
    }
}

/// One end of a cable.
struct End<'a> {
    received: &'a mut VecDeque<Vec<u8>>,
    sent: &'a mut VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Sent<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut packet = vec![0; length];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for End<'_> {
    type RxToken<'t>
        = Received
    where
        Self: 't;
    type TxToken<'t>
        = Sent<'t>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let packet = self.received.pop_front()?;
        Some((Received(packet), Sent(self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        Some(Sent(self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

/// Two hosts on a cable, each with a socket of the stack's.
struct Hosts {
    interfaces: [Interface; 2],
    sockets: [SocketSet<'static>; 2],
    handles: [SocketHandle; 2],
    /// The frames on the way to each.
    cable: [VecDeque<Vec<u8>>; 2],
    now: Instant,
}

impl Hosts {
    fn new() -> Self {
        let mut cable = [VecDeque::new(), VecDeque::new()];
        let now = Instant::from_secs(1);
        let interfaces = [1, 2].map(|number| {
            let [received, sent] = &mut cable;
            let config = Config::new(HardwareAddress::Ip);
            let mut interface = Interface::new(config, &mut End { received, sent }, now);
            interface.update_ip_addrs(|addresses| {
                let address = IpCidr::new(IpAddress::v4(10, 0, 0, number), 24);
                addresses.push(address).expect("space");
            });
            interface
        });
        let mut handles = [SocketHandle::default(); 2];
        let sockets = [0, 1].map(|host: usize| {
            let mut sockets = SocketSet::new(vec![SocketStorage::EMPTY].leak());
            handles[host] = sockets.add(socket());
            sockets
        });
        Self {
            interfaces,
            sockets,
            handles,
            cable,
            now,
        }
    }

    fn socket(&mut self, host: usize) -> &mut Socket<'static> {
        self.sockets[host].get_mut(self.handles[host])
    }

    /// Lets this time pass, in steps; the second host is there, or is not.
    fn pass(&mut self, seconds: u64, both: bool) {
        for _ in 0..seconds * 10 {
            self.now += Duration::from_millis(100);
            for host in 0..=usize::from(both) {
                let [first, second] = &mut self.cable;
                let (received, sent) = if host == 0 {
                    (first, second)
                } else {
                    (second, first)
                };
                let mut end = End { received, sent };
                self.interfaces[host].poll(self.now, &mut end, &mut self.sockets[host]);
            }
        }
    }
}

/// A client that is idle and there is not given up; one that is gone is, whether it was idle or has been sent something.
#[test]
fn a_vanished_client_is_given_up() {
    for says in [false, true] {
        let mut hosts = Hosts::new();
        hosts.socket(0).listen(7).expect("a port");
        let client: &mut Socket<'_> = hosts.sockets[1].get_mut(hosts.handles[1]);
        let context = hosts.interfaces[1].context();
        let server = (IpAddress::v4(10, 0, 0, 1), 7);
        client.connect(context, server, 50_000).expect("an address");
        hosts.pass(120, true);
        assert_eq!(hosts.socket(0).state(), State::Established, "{says}");
        if says {
            hosts
                .socket(0)
                .send_slice(b"where are you?")
                .expect("space");
        }
        hosts.pass(15, false);
        assert_eq!(hosts.socket(0).state(), State::Established, "{says}");
        hosts.pass(30, false);
        assert_eq!(hosts.socket(0).state(), State::Closed, "{says}");
    }
}
