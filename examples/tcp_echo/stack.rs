//! smoltcp with some sockets, on the port that the connection manager finds its neighbours on: with frames on Ethernet, with IP
//! packets on InfiniBand.

use std::net::SocketAddr;
use std::time::Duration;

use bareverbs::cm::rdma::{Inbox, IpOverInfiniband, NeighbourDiscovery, Neighbours, PacketSlot};
use bareverbs::verbs::Platform;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::tcp;
use smoltcp::storage::PacketMetadata;
use smoltcp::time::{self, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

use crate::iperf3::{Connections, Life};
use bareverbs_examples::Result;
use bareverbs_node::{Cm, Host, PortResolver};

/// Frames that may wait to be read, on InfiniBand also to be sent.
const FRAMES: usize = 64;
const FRAME: usize = 1518;
/// Bytes that the socket keeps, each way.
const WINDOW: usize = 1 << 16;
/// The time without an answer after which a peer counts as gone, and the interval at which a silent one is asked.
const GONE: time::Duration = time::Duration::from_secs(30);
const KEEP_ALIVE: time::Duration = time::Duration::from_secs(10);
/// Where the client's connections begin.
const EPHEMERAL: u16 = 49_152;

pub(crate) struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    /// At least one.
    handles: Vec<SocketHandle>,
    /// The peer has said its last.
    ended: bool,
}

/// The byte at this place of what the client sends.
fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// A socket that notices when its peer is there no more (RFC 9293, 3.8.3 and 3.8.4).
pub(crate) fn socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0_u8; WINDOW].leak());
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_timeout(Some(GONE));
    socket.set_keep_alive(Some(KEEP_ALIVE));
    socket
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(now.as_micros() as i64)
}

/// The error of ports without IP addresses, which the stack needs.
const IP: &str = "TCP beside RDMA needs IP addresses";

/// smoltcp's interface on Ethernet. The inbox stays with the port, so that its memory is given away.
fn with_frames<P: Platform>(
    neighbours: &mut NeighbourDiscovery<'_, '_, P>,
    now: Instant,
) -> Interface {
    let metadata = vec![PacketMetadata::EMPTY; FRAMES].leak();
    neighbours.share(Inbox::new(metadata, vec![0; FRAMES * FRAME].leak()));
    let config = Config::new(EthernetAddress(neighbours.queue().mac()).into());
    let mut sent = [0; FRAME];
    Interface::new(config, &mut neighbours.port(&mut sent), now)
}

/// The same on InfiniBand.
fn with_packets<P: Platform>(
    link: &mut IpOverInfiniband<'_, '_, P>,
    now: Instant,
) -> Result<Interface> {
    let slots = || vec![PacketSlot::EMPTY; FRAMES].leak();
    link.share(slots(), slots());
    let config = Config::new(HardwareAddress::Ip);
    let mut port = link.port().ok_or(DOWN)?;
    Ok(Interface::new(config, &mut port, now))
}

const DOWN: &str = "the port is not in the group of all interfaces";

impl Stack {
    /// At an address that the port has, with so many sockets, of which there has to be one.
    pub(crate) fn new<P: Platform>(
        cm: &mut Cm<'_, '_, P>,
        address: Host,
        count: usize,
    ) -> Result<Self> {
        let address = address.ip().ok_or(IP)?;
        let now = instant(cm.now());
        let mut interface = match cm.resolver_mut() {
            PortResolver::Ethernet(neighbours) => with_frames(neighbours, now),
            PortResolver::IpOverInfiniband(link) => with_packets(link, now)?,
            PortResolver::Gids(_) => return Err(IP.into()),
        };
        let prefix = if address.is_ipv4() { 24 } else { 64 };
        let mut full = false;
        interface.update_ip_addrs(|addresses| {
            full = addresses.push(IpCidr::new(address.into(), prefix)).is_err();
        });
        if full {
            return Err("the stack cannot hold another address".into());
        }
        let storage: Vec<_> = (0..count).map(|_| SocketStorage::EMPTY).collect();
        let mut sockets = SocketSet::new(storage.leak());
        let handles = (0..count).map(|_| sockets.add(socket())).collect();
        Ok(Self {
            interface,
            sockets,
            handles,
            ended: false,
        })
    }

    /// All sockets, on this port.
    pub(crate) fn listeners(&mut self, port: u16) -> Listeners<'_> {
        Listeners { stack: self, port }
    }

    pub(crate) fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handles[0])
    }

    pub(crate) fn connect(&mut self, server: Host, port: u16) -> Result<()> {
        let server = SocketAddr::new(server.ip().ok_or(IP)?, port);
        let socket: &mut tcp::Socket<'_> = self.sockets.get_mut(self.handles[0]);
        let context = self.interface.context();
        Ok(socket.connect(context, server, EPHEMERAL)?)
    }

    /// Takes what the port has received, and sends what is to be sent.
    pub(crate) fn poll<P: Platform>(&mut self, cm: &mut Cm<'_, '_, P>) -> Result<()> {
        let time = cm.now();
        let now = instant(time);
        match cm.resolver_mut() {
            PortResolver::Ethernet(neighbours) => {
                let mut sent = [0; FRAME];
                let mut port = neighbours.port(&mut sent);
                self.interface.poll(now, &mut port, &mut self.sockets);
                port.take_error().map_or(Ok(()), |error| Err(error.into()))
            }
            PortResolver::IpOverInfiniband(link) => {
                // While the port is not up, nothing is received and what is to be sent waits.
                if let Some(mut port) = link.port() {
                    self.interface.poll(now, &mut port, &mut self.sockets);
                }
                // It goes out now: the last acknowledgement is followed by no wait.
                Ok(link.poll(time)?)
            }
            PortResolver::Gids(_) => Err(IP.into()),
        }
    }

    /// When to poll again if nothing arrives, at the latest after this time.
    pub(crate) fn next_deadline<P: Platform>(
        &mut self,
        cm: &Cm<'_, '_, P>,
        latest: Duration,
    ) -> Duration {
        let now = cm.now();
        let delay = self.interface.poll_delay(instant(now), &self.sockets);
        now + delay.map_or(latest, |delay| Duration::from(delay).min(latest))
    }

    /// `true` if a peer was here, and has gone.
    pub(crate) fn is_over(&mut self) -> bool {
        matches!(
            self.socket().state(),
            tcp::State::Closed | tcp::State::TimeWait
        )
    }

    /// Sends back what was received, and goes when the peer goes. How many bytes that were.
    pub(crate) fn echo(&mut self) -> Result<usize> {
        if self.socket().state() == tcp::State::Closed && !self.ended {
            return Err("the TCP client is gone without a goodbye".into());
        }
        let socket = self.socket();
        let mut bytes = [0; 4096];
        let mut echoed = 0;
        while socket.can_recv() {
            let space = socket.send_capacity() - socket.send_queue();
            let length = socket.recv_slice(&mut bytes[..space.min(4096)])?;
            if length == 0 || socket.send_slice(&bytes[..length])? < length {
                break;
            }
            echoed += length;
        }
        if socket.state() == tcp::State::CloseWait && !socket.can_recv() {
            socket.close();
            self.ended = true;
        }
        Ok(echoed)
    }

    /// Sends on from this byte of so many, as far as there is space.
    pub(crate) fn send(&mut self, from: usize, all: usize) -> Result<usize> {
        let socket = self.socket();
        if from == all || !socket.can_send() {
            return Ok(0);
        }
        Ok(socket.send(|space| {
            let length = space.len().min(all - from);
            for (at, place) in space[..length].iter_mut().enumerate() {
                *place = byte(from + at);
            }
            (length, length)
        })?)
    }

    /// Reads what came back, from this byte on. How many bytes that were.
    pub(crate) fn compare(&mut self, from: usize) -> Result<usize> {
        let socket = self.socket();
        if !socket.is_open() {
            return Err("the server closed the TCP connection".into());
        }
        if !socket.can_recv() {
            return Ok(0);
        }
        let (length, same) = socket.recv(|received| {
            let same = received
                .iter()
                .enumerate()
                .all(|(at, received)| *received == byte(from + at));
            (received.len(), (received.len(), same))
        })?;
        if same {
            Ok(length)
        } else {
            Err(format!("what came back after {from} bytes is not what was sent").into())
        }
    }

    /// Says good-bye, and waits until the server does.
    pub(crate) fn close<P: Platform>(
        &mut self,
        cm: &mut Cm<'_, '_, P>,
        until: Duration,
    ) -> Result<()> {
        self.socket().close();
        loop {
            self.poll(cm)?;
            if self.is_over() {
                return Ok(());
            }
            if cm.now() >= until {
                return Err("the server does not close its TCP connection".into());
            }
            let deadline = self.next_deadline(cm, until - cm.now());
            cm.wait(deadline)?;
        }
    }
}

/// All sockets of a stack, on one TCP port.
pub(crate) struct Listeners<'s> {
    stack: &'s mut Stack,
    port: u16,
}

impl Listeners<'_> {
    fn socket(&mut self, at: usize) -> &mut tcp::Socket<'static> {
        self.stack.sockets.get_mut(self.stack.handles[at])
    }
}

impl Connections for Listeners<'_> {
    fn life(&self, at: usize) -> Life {
        let socket: &tcp::Socket<'_> = self.stack.sockets.get(self.stack.handles[at]);
        match socket.state() {
            tcp::State::Listen | tcp::State::SynSent => Life::Listening,
            // It occupies its place, though it may never come about.
            tcp::State::SynReceived => Life::Open,
            tcp::State::Closed | tcp::State::TimeWait => Life::Over,
            _ if socket.may_recv() || socket.can_recv() => Life::Open,
            _ => Life::Ended,
        }
    }

    fn read(&mut self, at: usize, space: &mut [u8]) -> usize {
        // What cannot be read any more, its state tells.
        self.socket(at).recv_slice(space).unwrap_or(0)
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> usize {
        self.socket(at).send_slice(bytes).unwrap_or(0)
    }

    fn close(&mut self, at: usize) {
        self.socket(at).close();
    }

    fn abort(&mut self, at: usize) {
        self.socket(at).abort();
    }

    fn listen(&mut self, at: usize) -> Result<()> {
        let port = self.port;
        let socket = self.socket(at);
        // From the state of waiting for stray segments as well.
        socket.abort();
        Ok(socket.listen(port)?)
    }
}
