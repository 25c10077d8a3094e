//! Keeping in step with the `cmtime` of rdma-core 52 to 58, whose two ends report their progress to each other over
//! TCP: before a round, when its connections are there, and when they are gone, the client sends a byte and gets it
//! back. This is TCP beside RDMA, on the same port of the card and with the same address.

use std::net::IpAddr;
use std::time::Duration;

use bareverbs::cm::rdma::{
    Inbox, IpOverInfiniband, NeighbourDiscovery, Neighbours, PacketSlot, SockAddr,
};
use bareverbs::verbs::Platform;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::storage::PacketMetadata;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, IpListenEndpoint};

use bareverbs_examples::Result;
use bareverbs_examples::program::seed;
use bareverbs_node::{Cm, Host, PortResolver};

/// The longest silence of the other end. It says nothing while all its connections are made.
const SILENCE: Duration = Duration::from_secs(120);
/// The time to wait for the end of the TCP connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A frame without VLAN tag.
const FRAME: usize = 1514;
/// Frames that wait until the stack looks at them, and the size of each.
const FRAMES: (usize, usize) = (64, 1536);

/// The error of ports without IP addresses, which the stack beside the connection manager needs.
const IP: &str = "--in-step: TCP beside RDMA needs IP addresses";
const DOWN: &str = "the port is not in the group of all interfaces";

/// The progress of a round, as rdma-core's program numbers its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Begin = 0,
    Connected = 12,
    Disconnected = 14,
}

/// The connections of each round: one to get warm, then as many as asked for, and as many that are to be without queue
/// pairs on the side of rdma-core's.
pub(crate) const fn rounds(connections: usize) -> [usize; 3] {
    [1, connections, connections]
}

/// The IP stack, and its one TCP connection.
pub(crate) struct InStep {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl InStep {
    /// A stack with this address.
    fn new<P: Platform>(cm: &mut Cm<'_, '_, P>, here: IpAddr) -> Result<Self> {
        let now = instant(cm.now());
        let resolver = cm.resolver_mut();
        let prefix = resolver
            .host()
            .ok_or(IP)?
            .addresses()
            .find_map(|(address, prefix, _)| (address == here).then_some(prefix))
            .ok_or("the port does not have this address")?;
        let mut interface = match resolver {
            PortResolver::Ethernet(neighbours) => with_frames(neighbours, now),
            PortResolver::IpOverInfiniband(link) => with_packets(link, now)?,
            PortResolver::Gids(_) => return Err(IP.into()),
        };
        let mut full = false;
        interface.update_ip_addrs(|addresses| {
            full = addresses.push(IpCidr::new(here.into(), prefix)).is_err();
        });
        if full {
            return Err("the IP stack has no room for an address".into());
        }
        let buffer = || SocketBuffer::new(vec![0; 64].leak());
        let mut socket = Socket::new(buffer(), buffer());
        // A byte is not worth waiting for another one.
        socket.set_nagle_enabled(false);
        let storage = vec![smoltcp::iface::SocketStorage::EMPTY].leak();
        let mut sockets = SocketSet::new(&mut *storage);
        let socket = sockets.add(socket);
        Ok(Self {
            interface,
            sockets,
            socket,
        })
    }

    /// The server's: a client may come.
    pub(crate) fn listen<P: Platform>(cm: &mut Cm<'_, '_, P>, here: SockAddr) -> Result<Self> {
        let SockAddr::Ip(here) = here else {
            return Err(IP.into());
        };
        let mut new = Self::new(cm, here.ip())?;
        let endpoint = IpListenEndpoint {
            addr: Some(here.ip().into()),
            port: here.port(),
        };
        new.socket().listen(endpoint)?;
        Ok(new)
    }

    /// The client's.
    pub(crate) fn connect<P: Platform>(
        cm: &mut Cm<'_, '_, P>,
        here: Host,
        server: SockAddr,
    ) -> Result<Self> {
        let (Host::Ip(here), SockAddr::Ip(server)) = (here, server) else {
            return Err(IP.into());
        };
        let mut new = Self::new(cm, here)?;
        // Another one than the last time, which the server may remember.
        let port = 49_152 + (seed() % 16_384) as u16;
        let socket: &mut Socket<'_> = new.sockets.get_mut(new.socket);
        socket.connect(new.interface.context(), server, port)?;
        Ok(new)
    }

    /// The client is so far, and waits until the server is.
    pub(crate) fn ask<P: Platform>(&mut self, cm: &mut Cm<'_, '_, P>, stage: Stage) -> Result<()> {
        self.send(cm, stage)?;
        self.receive(cm, stage)
    }

    /// The server is so far, and waits until the client is.
    pub(crate) fn answer<P: Platform>(
        &mut self,
        cm: &mut Cm<'_, '_, P>,
        stage: Stage,
    ) -> Result<()> {
        self.receive(cm, stage)?;
        self.send(cm, stage)
    }

    /// Ends the connection. The other end may be gone already.
    pub(crate) fn close<P: Platform>(mut self, cm: &mut Cm<'_, '_, P>) -> Result<()> {
        self.socket().close();
        let over = |socket: &mut Socket<'_>| {
            matches!(socket.state(), State::Closed | State::TimeWait).then_some(())
        };
        let _ = self.wait(cm, CLOSE_TIMEOUT, over)?;
        Ok(())
    }

    fn send<P: Platform>(&mut self, cm: &mut Cm<'_, '_, P>, stage: Stage) -> Result<()> {
        let send = |socket: &mut Socket<'_>| {
            let opening = matches!(socket.state(), State::SynSent | State::SynReceived);
            (!opening).then(|| socket.send_slice(&[stage as u8]))
        };
        let sent = self.wait(cm, SILENCE, send)?.ok_or("no answer over TCP")?;
        if sent? != 1 {
            return Err("TCP takes no more bytes".into());
        }
        self.turn(cm)
    }

    fn receive<P: Platform>(&mut self, cm: &mut Cm<'_, '_, P>, stage: Stage) -> Result<()> {
        let mut byte = [0];
        let receive = |socket: &mut Socket<'_>| {
            let more =
                matches!(socket.state(), State::Listen | State::SynReceived) || socket.may_recv();
            (socket.can_recv() || !more).then(|| socket.recv_slice(&mut byte))
        };
        let received = self.wait(cm, SILENCE, receive)?;
        let received = received.ok_or_else(|| format!("nothing received over TCP: {stage:?}"))?;
        received.map_err(|_| format!("the other end is gone: {stage:?}"))?;
        if byte != [stage as u8] {
            return Err(format!("the other end is at step {}, here is {stage:?}", byte[0]).into());
        }
        Ok(())
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    /// Works until there is something, or for so long.
    fn wait<P: Platform, T>(
        &mut self,
        cm: &mut Cm<'_, '_, P>,
        limit: Duration,
        mut look: impl FnMut(&mut Socket<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        let deadline = cm.now() + limit;
        loop {
            self.turn(cm)?;
            if let Some(found) = look(self.socket()) {
                return Ok(Some(found));
            }
            let now = cm.now();
            if now >= deadline {
                return Ok(None);
            }
            let next = self.interface.poll_delay(instant(now), &self.sockets);
            let next = next.map_or(deadline, |delay| now + delay.into());
            cm.wait(next.min(deadline))?;
        }
    }

    /// Takes what arrived, and sends what is due.
    fn turn<P: Platform>(&mut self, cm: &mut Cm<'_, '_, P>) -> Result<()> {
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
}

/// smoltcp's interface on Ethernet. What it keeps exists until the program ends.
fn with_frames<P: Platform>(
    neighbours: &mut NeighbourDiscovery<'_, '_, P>,
    now: Instant,
) -> Interface {
    let (frames, room) = FRAMES;
    let metadata = vec![PacketMetadata::EMPTY; frames].leak();
    neighbours.share(Inbox::new(metadata, vec![0; frames * room].leak()));
    let mut config = Config::new(EthernetAddress(neighbours.queue().mac()).into());
    config.random_seed = seed();
    let mut sent = [0; FRAME];
    Interface::new(config, &mut neighbours.port(&mut sent), now)
}

/// The same on InfiniBand.
fn with_packets<P: Platform>(
    link: &mut IpOverInfiniband<'_, '_, P>,
    now: Instant,
) -> Result<Interface> {
    let slots = || vec![PacketSlot::EMPTY; FRAMES.0].leak();
    link.share(slots(), slots());
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = seed();
    let mut port = link.port().ok_or(DOWN)?;
    Ok(Interface::new(config, &mut port, now))
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}
