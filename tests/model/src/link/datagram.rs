//! A wire out of the process: a datagram socket, with one raw Ethernet frame per datagram, as QEMU's `-netdev dgram` has
//! it, or a connection to a [virtual switch](super::vswitch).
//!
//! Each wire has a thread that reads and one that writes, with a bounded queue to and from the world that the models are in:
//! the world never waits for a socket. A peer that is not there loses frames and nothing else. Between processes that
//! [share memory](Wire::share), frames go through that, from world to world, and the threads and the socket have the rest: what
//! comes before, and what the memory has no room for.
//!
//! # Pause
//!
//! A peer on the same machine that is slow holds the sender up instead of losing frames, as priority flow control does on the
//! networks that RDMA usually runs on: a reader waits until the world has taken what came before, so that the socket fills up and
//! the peer's writer waits as well, and when much has gathered there, the peer's world [pauses](crate::Model::pause) its models
//! ([`Wire::is_congested`]). Worlds take frames in whatever they wait for themselves, so that this cannot go round in a circle.
//! Who takes nothing for a second is not waited for any more, until it does. UDP has no such thing, and loses what is too much.

pub use super::address::Address;
use super::neighbours::{self, Carried, Neighbours, Sharing};
use super::queue::{FrameQueue, LONGEST, PATIENCE};
use super::stale::{self, Claim};
use super::stream::{self, Connection, Wish};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Frames on their way in of one wire. perftest has 128 messages of 64 KiB under way, which are 2,048 frames of 4 KiB;
/// what is lost of so much is lost again and again when it is repeated.
const QUEUED: usize = 4096;
/// Frames on their way out before the models pause, and at most: what they had begun may still come.
const PAUSE_AT: usize = 1024;
const QUEUED_OUT: usize = 32 * 1024;
/// A count is logged when it begins, and then once per so many.
const LOG_EVERY: u64 = 1000;
/// A peer that has taken nothing for [`PATIENCE`] loses frames after this time, until it takes something.
const IMPATIENCE: Duration = Duration::from_millis(1);

/// The name of the process that has the socket at a path: that of the file, whose number may have been another one's before.
fn at_socket(path: &Path) -> io::Result<String> {
    let about = std::fs::symlink_metadata(path)?;
    let made = (about.mtime(), about.mtime_nsec());
    Ok(format!(
        "socket {:x} {:x} {made:x?}",
        about.dev(),
        about.ino()
    ))
}

/// Rings that are not possible are left out: the sockets do.
fn or_none<T>(neighbours: io::Result<T>) -> Option<T> {
    neighbours
        .inspect_err(|error| log::debug!("no memory is shared: {error}"))
        .ok()
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram, PathBuf),
    Udp(UdpSocket, SocketAddr),
    Switch(UnixStream),
}

/// Frames that were lost in one way.
#[derive(Debug)]
struct Losses {
    how: &'static str,
    level: log::Level,
    count: AtomicU64,
}

impl Losses {
    fn new(how: &'static str, level: log::Level) -> Self {
        Self {
            how,
            level,
            count: AtomicU64::new(0),
        }
    }

    fn count(&self, wire: &Wire, why: &dyn fmt::Display) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == 1 || count.is_multiple_of(LOG_EVERY) {
            let (name, how) = (&wire.name, self.how);
            log::log!(self.level, "{name}: {count} frames {how}, now: {why}");
        }
    }
}

/// Names the end that an error is about.
fn at(which: &str, end: &dyn fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the {which} end {end}: {error}"))
}

/// One end of such a wire.
#[derive(Debug)]
pub struct Wire {
    name: String,
    socket: Socket,
    /// The file of the local end, if it is one.
    claim: Option<Claim>,
    /// From the socket to the world.
    incoming: FrameQueue,
    /// From the world to the socket.
    outgoing: FrameQueue,
    unsent: Losses,
    tx_dropped: Losses,
    rx_dropped: Losses,
    too_long: Losses,
    /// The rings to and from others, and the frames that were sent since there was one: at some numbers one is asked for.
    neighbours: Option<Neighbours>,
    sent: AtomicU64,
    patience: Duration,
    closed: AtomicBool,
}

impl Wire {
    /// Binds the local end. `function` is for messages.
    ///
    /// # Errors
    /// The local end cannot be bound, another process has it ([`ErrorKind::AddrInUse`]), or the ends are not of one kind.
    pub fn open(function: usize, address: &Address) -> io::Result<Self> {
        let mut neighbours = None;
        let (socket, claim) = match address {
            Address::Unix { local, remote } => {
                let ours = |error| at("local", &local.display(), &error);
                let _lock = stale::lock_folder(local).map_err(ours)?;
                stale::remove(local).map_err(ours)?;
                let socket = UnixDatagram::bind(local).map_err(ours)?;
                socket.set_write_timeout(Some(PATIENCE)).map_err(ours)?;
                let claim = Claim::new(local).map_err(ours)?;
                neighbours = or_none(at_socket(local).and_then(|name| Neighbours::new(&name)));
                (Socket::Unix(socket, remote.clone()), Some(claim))
            }
            Address::Udp { local, remote } => {
                let ours = |error| at("local", local, &error);
                let socket = UdpSocket::bind(local).map_err(ours)?;
                socket.set_write_timeout(Some(PATIENCE)).map_err(ours)?;
                let here = socket.local_addr().map_err(ours)?;
                let there = remote
                    .to_socket_addrs()
                    .map_err(|error| at("remote", remote, &error))?
                    .find(|there| there.is_ipv4() == here.is_ipv4())
                    .ok_or_else(|| {
                        let what = format!("{remote} has no address of the kind that {here} is");
                        io::Error::new(ErrorKind::InvalidInput, what)
                    })?;
                (Socket::Udp(socket, there), None)
            }
            Address::Switch(path) => {
                let connection = Connection::open(path, Wish::None)?;
                return Self::on_switch(function, connection);
            }
        };
        let name = format!("function {function}, {address}");
        Ok(Self::new(name, socket, claim, neighbours))
    }

    /// A wire to a switch.
    ///
    /// # Errors
    /// The switch is gone.
    pub fn on_switch(function: usize, connection: Connection) -> io::Result<Self> {
        let (station, neighbours) = or_none(Neighbours::on_switch()).unzip();
        connection.begin(station)?;
        let name = format!("function {function}, switch");
        let socket = Socket::Switch(connection.into_stream());
        Ok(Self::new(name, socket, None, neighbours))
    }

    fn new(
        name: String,
        socket: Socket,
        claim: Option<Claim>,
        neighbours: Option<Neighbours>,
    ) -> Self {
        Self {
            name,
            socket,
            claim,
            incoming: FrameQueue::new(QUEUED, QUEUED),
            outgoing: FrameQueue::new(QUEUED_OUT, PAUSE_AT),
            // That the peer comes later, or has gone, is its business.
            unsent: Losses::new("not delivered", log::Level::Info),
            tx_dropped: Losses::new("to the wire dropped", log::Level::Warn),
            rx_dropped: Losses::new("from the wire dropped", log::Level::Warn),
            too_long: Losses::new("from the wire refused", log::Level::Warn),
            neighbours,
            sent: AtomicU64::new(0),
            patience: PATIENCE,
            closed: AtomicBool::new(false),
        }
    }

    /// Waits so long for a peer that takes nothing, rather than a second: for tests that lose no frame on a machine that is slow.
    ///
    /// # Errors
    /// The socket does not take it.
    pub fn with_patience(mut self, patience: Duration) -> io::Result<Self> {
        self.patience = patience;
        self.set_write_timeout(patience)?;
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.set_patience(patience);
        }
        Ok(self)
    }

    fn set_write_timeout(&self, time: Duration) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(socket, _) => socket.set_write_timeout(Some(time)),
            Socket::Udp(socket, _) => socket.set_write_timeout(Some(time)),
            Socket::Switch(_) => Ok(()),
        }
    }

    /// The path to remove in the end.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        self.claim.clone()
    }

    /// Puts a frame on the wire.
    pub fn transmit(&self, frame: &[u8]) {
        let pass = |frame: &[u8]| self.neighbours.as_ref().is_some_and(|it| it.pass(frame));
        if self.outgoing.pass_or_push(frame, pass).is_err() {
            self.tx_dropped.count(self, &"the peer is too slow");
            self.left(frame, false);
        }
    }

    /// Takes the next frame that arrived, in exchange for the buffer in `frame`; `false` if there is none.
    pub fn receive(&self, frame: &mut Vec<u8>) -> bool {
        let through_socket = |frame: &mut Vec<u8>| self.incoming.try_pop(frame);
        match &self.neighbours {
            Some(neighbours) => neighbours.receive(frame, through_socket),
            None => through_socket(frame),
        }
    }

    /// Returns `true` if no frame is there to be taken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.incoming.is_empty() && self.neighbours.as_ref().is_none_or(Neighbours::is_idle)
    }

    /// Returns `true` if no frame is there to be taken, before a sleep: from now on the threads wake the sleeper when one comes.
    #[must_use]
    pub fn doze(&self) -> bool {
        self.incoming.is_empty() && self.neighbours.as_ref().is_none_or(Neighbours::doze)
    }

    /// Returns `true` if so much waits for the peer that the models shall pause.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.outgoing.is_congested()
            || self
                .neighbours
                .as_ref()
                .is_some_and(Neighbours::is_congested)
    }

    /// Shares memory with the processes that the wire leads to, until [`stop_sharing`](Self::stop_sharing). Calls `stir` when
    /// something has come through it while it was [dozed](Self::doze), or something can leave again.
    pub fn share(&self, sharing: &dyn Sharing, stir: impl Fn()) {
        if let Some(neighbours) = &self.neighbours {
            let send = |frame: &[u8]| self.transmit(frame);
            neighbours.run(sharing, send, stir);
        }
    }

    /// The number of ways to other processes that frames go through memory on.
    #[must_use]
    pub fn ways_through_memory(&self) -> usize {
        self.neighbours.as_ref().map_or(0, Neighbours::open_rings)
    }

    /// Lets [`share`](Self::share) come to its end: after [`write`](Self::write) has.
    pub fn stop_sharing(&self) {
        if let Some(neighbours) = &self.neighbours {
            neighbours.close();
        }
    }

    /// Returns `true` if a frame from the socket is none of the models', but is about rings.
    fn is_about_rings(&self, frame: &[u8], wake: &impl Fn()) -> bool {
        let Some(neighbours) = &self.neighbours else {
            return false;
        };
        if neighbours.is_mark(frame) {
            wake();
            return true;
        }
        if matches!(self.socket, Socket::Switch(_))
            && let Some((address, name)) = stream::noticed(frame)
        {
            neighbours.connect(neighbours::on_switch(name), Some(address));
            return true;
        }
        false
    }

    /// After a frame has left through the socket, or was lost.
    fn left(&self, frame: &[u8], sent: bool) {
        let Some(neighbours) = &self.neighbours else {
            return;
        };
        neighbours.left(frame, sent);
        if let Socket::Unix(_, remote) = &self.socket
            && sent
        {
            if neighbours.has_ring() {
                self.sent.store(0, Ordering::Relaxed);
            } else if (self.sent.fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two()
                && let Ok(name) = at_socket(remote)
            {
                neighbours.connect(name, None);
            }
        }
    }

    /// Lets [`read`](Self::read) and [`write`](Self::write) come to their end, the latter with what was to be sent before.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.outgoing.close();
        self.incoming.close();
        // A frame wakes the thread that reads. If it is not taken, the thread is awake.
        let _ = match &self.socket {
            Socket::Unix(socket, _) => match socket.local_addr() {
                Ok(here) => socket.send_to_addr(&[], &here),
                Err(error) => Err(error),
            },
            Socket::Udp(socket, _) => match socket.local_addr() {
                Ok(here) => socket.send_to(&[], here),
                Err(error) => Err(error),
            },
            Socket::Switch(stream) => stream.shutdown(Shutdown::Read).map(|()| 0),
        };
    }

    /// Makes what arrives ready to be taken, and calls `wake` when something is and nothing was, until the wire is closed.
    ///
    /// # Errors
    /// Nothing more can arrive.
    pub fn read(&self, wake: impl Fn()) -> io::Result<()> {
        let mut buffer = match &self.socket {
            Socket::Switch(stream) => return self.read_stream(stream, wake),
            // One byte more, to detect frames that are too long.
            Socket::Unix(..) | Socket::Udp(..) => vec![0; LONGEST + 1],
        };
        loop {
            let received = match &self.socket {
                Socket::Unix(socket, _) => socket.recv(&mut buffer),
                Socket::Udp(socket, _) => socket.recv(&mut buffer),
                Socket::Switch(_) => return Ok(()),
            };
            if self.closed.load(Ordering::Acquire) {
                return Ok(());
            }
            match received {
                Ok(len) if len > LONGEST => self
                    .too_long
                    .count(self, &format_args!("longer than {LONGEST} bytes")),
                Ok(len) if matches!(self.socket, Socket::Udp(..)) => {
                    match self.incoming.push(&buffer[..len]) {
                        Ok(true) => wake(),
                        Ok(false) => {}
                        Err(_) => self.rx_dropped.count(self, &"more than can be handled"),
                    }
                }
                Ok(len) if self.is_about_rings(&buffer[..len], &wake) => {}
                Ok(len) => match self.incoming.push_waiting(&buffer[..len]) {
                    Ok(true) => wake(),
                    Ok(false) => {}
                    Err(_) => return Ok(()),
                },
                // What became of a datagram that was sent before.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted
                            | ErrorKind::ConnectionRefused
                            | ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn carry(&self, frame: &[u8]) -> Carried {
        self.neighbours
            .as_ref()
            .map_or(Carried::Not, |neighbours| neighbours.carry(frame))
    }

    fn leads(&self, frame: &[u8]) -> bool {
        self.neighbours
            .as_ref()
            .is_some_and(|neighbours| neighbours.leads(frame))
    }

    fn read_stream(&self, stream: &UnixStream, wake: impl Fn()) -> io::Result<()> {
        let mut frames = stream::Reader::new(stream);
        loop {
            let frame = frames.next();
            if self.closed.load(Ordering::Acquire) {
                return Ok(());
            }
            let frame = frame?;
            if frame.is_empty() {
                // It has begun.
                continue;
            }
            if self.is_about_rings(frame, &wake) {
                continue;
            }
            match self.incoming.push_waiting(frame) {
                Ok(true) => wake(),
                Ok(false) => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Sends what is to be transmitted, until the wire is closed. Calls `resume` when the wire is no longer
    /// [congested](Self::is_congested).
    pub fn write(&self, resume: impl Fn()) {
        let resume_if = |resumed: bool| {
            if resumed {
                resume();
            }
        };
        let mut frame = Vec::new();
        let mut batch = Vec::new();
        let mut stalled = false;
        // A frame that was taken and has not left.
        let mut has_frame = false;
        while has_frame
            || self
                .outgoing
                .pop(&mut frame)
                .inspect(|resumed| resume_if(*resumed))
                .is_some()
        {
            has_frame = false;
            match self.carry(&frame) {
                Carried::Not => {}
                Carried::InRing => continue,
                Carried::Late => {
                    self.unsent.count(self, &"the peer takes nothing");
                    continue;
                }
            }
            let sent = match &self.socket {
                Socket::Unix(socket, remote) => socket.send_to(&frame, remote),
                Socket::Udp(socket, remote) => socket.send_to(&frame, remote),
                Socket::Switch(stream) => {
                    batch.clear();
                    stream::append(&mut batch, &frame);
                    // What is behind a mark goes another way.
                    while batch.len() < stream::BATCH
                        && !neighbours::is_a_mark(&frame)
                        && let Some(resumed) = self.outgoing.pop_more(&mut frame)
                    {
                        resume_if(resumed);
                        if self.leads(&frame) {
                            has_frame = true;
                            break;
                        }
                        stream::append(&mut batch, &frame);
                    }
                    let mut stream = stream;
                    stream.write_all(&batch).map(|()| batch.len())
                }
            };
            if !has_frame {
                self.left(&frame, sent.is_ok());
            }
            let is_late = matches!(&sent, Err(error) if stream::is_timeout(error));
            if let Err(error) = sent {
                self.unsent.count(self, &error);
            }
            if is_late != stalled {
                stalled = is_late;
                let patience = if stalled { IMPATIENCE } else { self.patience };
                let set = match &self.socket {
                    // Part of a frame was sent: what follows would not be understood.
                    Socket::Switch(stream) => stream.shutdown(Shutdown::Both),
                    Socket::Unix(..) | Socket::Udp(..) => self.set_write_timeout(patience),
                };
                if let Err(error) = set {
                    log::debug!("{}: {error}", self.name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_cannot_be_is_named() {
        for (text, expected) in [
            (
                "unix:/nonexistent/a,/run/b",
                "the local end /nonexistent/a: ",
            ),
            (
                "udp:127.0.0.1:99999,127.0.0.1:2",
                "the local end 127.0.0.1:99999: ",
            ),
            (
                "udp:127.0.0.1:0,127.0.0.1:99999",
                "the remote end 127.0.0.1:99999: ",
            ),
        ] {
            let error = Wire::open(0, &text.parse().unwrap())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn ends_of_different_kinds_are_refused() {
        let address = "udp:127.0.0.1:0,[::1]:7000".parse().unwrap();
        let Err(error) = Wire::open(0, &address) else {
            panic!("it was opened");
        };
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_living_end_is_not_taken_and_a_dead_one_is_replaced() {
        let name = format!("connectx-wire-{}-twice", std::process::id());
        let local = std::env::temp_dir().join(name);
        let address = Address::Unix {
            local: local.clone(),
            remote: "/nonexistent/peer".into(),
        };
        let first = Wire::open(0, &address).unwrap();
        let error = Wire::open(0, &address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let path = local.display().to_string();
        assert!(error.to_string().contains(&path), "{error}");
        // The first one still has it.
        let peer = UnixDatagram::unbound().unwrap();
        peer.send_to(&[7; 60], &local).unwrap();
        let (woken, wakes) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| first.read(|| woken.send(()).unwrap()));
            wakes.recv().unwrap();
            first.close();
        });
        // As a process leaves it that was killed.
        drop(first);
        assert!(local.exists());
        // Of those that come at once one gets it.
        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = || Wire::open(0, &address);
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let ours: Vec<_> = opened.iter().flatten().collect();
        assert_eq!(ours.len(), 1);
        ours[0].claim().unwrap().release();
        assert!(!local.exists());
    }

    #[test]
    fn what_was_sent_before_the_end_arrives() {
        let path = |end: &str| {
            let name = format!("connectx-wire-{}-{end}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let wire = |local: &str, remote: &str| {
            let (local, remote) = (path(local), path(remote));
            Wire::open(0, &Address::Unix { local, remote }).unwrap()
        };
        let (here, there) = (wire("here", "there"), wire("there", "here"));
        let (woken, wakes) = std::sync::mpsc::channel();
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| there.read(|| woken.send(()).unwrap()));
            // More than the socket holds.
            for number in 0..100 {
                here.transmit(&[number; 60]);
            }
            let writer = scope.spawn(|| here.write(|| ()));
            here.close();
            writer.join().unwrap();
            let mut frame = Vec::new();
            while received.len() < 100 {
                // A reader that found no frame is woken by the next one.
                if there.receive(&mut frame) {
                    received.push(frame.clone());
                } else {
                    wakes.recv().unwrap();
                }
            }
            assert!(there.is_idle());
            there.close();
            reader.join().unwrap().unwrap();
        });
        for (number, frame) in (0..).zip(&received) {
            assert_eq!(*frame, [number; 60]);
        }
        for wire in [here, there] {
            let claim = wire.claim().unwrap();
            drop(wire);
            claim.release();
        }
        assert!(!path("here").exists() && !path("there").exists());
    }
}
