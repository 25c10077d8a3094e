//! A wire out of the process: a datagram socket, with one raw Ethernet frame per datagram, as QEMU's `-netdev dgram` has
//! it.
//!
//! Each wire has a thread that reads and one that writes, with a bounded queue to and from the world that the models are in:
//! the world never waits for a socket, and what does not fit is lost, as on any wire. A peer that is not there loses frames and nothing else.

use super::queue::FrameQueue;
use super::stale::{self, Claim};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The longest frame; no card sends a longer Ethernet frame.
const LONGEST: usize = 10 * 1024;
/// Frames on their way in or out of one wire. perftest has 128 messages of 64 KiB under way, which are 2,048 frames of 4 KiB;
/// what is lost of so much is lost again and again when it is repeated.
const QUEUED: usize = 4096;
/// A count is logged when it begins, and then once per so many.
const LOG_EVERY: u64 = 1000;
/// A peer that takes nothing for so long loses the frame. (A local peer's queue holds ten datagrams, and what it cannot
/// hold waits here.)
const PATIENCE: Duration = Duration::from_secs(1);

/// `unix:LOCAL,REMOTE` or `udp:LOCAL,REMOTE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Paths of sockets.
    Unix {
        /// This end, which is bound.
        local: PathBuf,
        /// The other end, which frames are sent to.
        remote: PathBuf,
    },
    /// Hosts and ports, `HOST:PORT` or `[IPv6]:PORT`.
    Udp {
        /// This end, which is bound.
        local: String,
        /// The other end, which frames are sent to.
        remote: String,
    },
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (family, ends) = text.split_once(':').unwrap_or_default();
        let Some((local, remote)) = ends
            .split_once(',')
            .filter(|(local, remote)| !local.is_empty() && !remote.is_empty())
        else {
            return Err("neither unix:LOCAL,REMOTE nor udp:HOST:PORT,HOST:PORT".into());
        };
        match family {
            "unix" if local == remote => Err("both ends are the same path".into()),
            "unix" => Ok(Self::Unix {
                local: local.into(),
                remote: remote.into(),
            }),
            "udp" => Ok(Self::Udp {
                local: local.into(),
                remote: remote.into(),
            }),
            _ => Err(format!("{family:?} is neither unix nor udp")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { local, remote } => {
                write!(f, "unix:{},{}", local.display(), remote.display())
            }
            Self::Udp { local, remote } => write!(f, "udp:{local},{remote}"),
        }
    }
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram, PathBuf),
    Udp(UdpSocket, SocketAddr),
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
    closed: AtomicBool,
}

impl Wire {
    /// Binds the local end. `function` is for messages.
    ///
    /// # Errors
    /// The local end cannot be bound, or the ends are not of one kind.
    pub fn open(function: usize, address: &Address) -> io::Result<Self> {
        let (socket, claim) = match address {
            Address::Unix { local, remote } => {
                let ours = |error| at("local", &local.display(), &error);
                stale::remove(local).map_err(ours)?;
                let socket = UnixDatagram::bind(local).map_err(ours)?;
                socket.set_write_timeout(Some(PATIENCE)).map_err(ours)?;
                let claim = Claim::new(local).map_err(ours)?;
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
        };
        Ok(Self {
            name: format!("function {function}, {address}"),
            socket,
            claim,
            incoming: FrameQueue::new(QUEUED),
            outgoing: FrameQueue::new(QUEUED),
            // That the peer comes later, or has gone, is its business.
            unsent: Losses::new("not delivered", log::Level::Info),
            tx_dropped: Losses::new("to the wire dropped", log::Level::Warn),
            rx_dropped: Losses::new("from the wire dropped", log::Level::Warn),
            too_long: Losses::new("from the wire refused", log::Level::Warn),
            closed: AtomicBool::new(false),
        })
    }

    /// What to remove in the end.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        self.claim.clone()
    }

    /// Puts a frame on the wire.
    pub fn transmit(&self, frame: &[u8]) {
        if self.outgoing.push(frame).is_err() {
            self.tx_dropped.count(self, &"the peer is too slow");
        }
    }

    /// Takes the next frame that arrived, in exchange for the buffer in `frame`; `false` if there is none.
    pub fn receive(&self, frame: &mut Vec<u8>) -> bool {
        self.incoming.try_pop(frame)
    }

    /// Whether no frame is there to be taken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Lets [`read`](Self::read) and [`write`](Self::write) come to their end, the latter with what was to be sent before.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // A frame wakes each waiting thread. If a handle is unavailable, another thread is awake or none waits.
        let _ = self.outgoing.push(&[]);
        let _ = match &self.socket {
            Socket::Unix(socket, _) => match socket.local_addr() {
                Ok(here) => socket.send_to_addr(&[], &here),
                Err(error) => Err(error),
            },
            Socket::Udp(socket, _) => match socket.local_addr() {
                Ok(here) => socket.send_to(&[], here),
                Err(error) => Err(error),
            },
        };
    }

    /// Makes what arrives ready to be taken, and calls `wake` when something is and nothing was, until the wire is closed.
    ///
    /// # Errors
    /// Nothing more can arrive.
    pub fn read(&self, wake: impl Fn()) -> io::Result<()> {
        // One byte more, to detect frames that are too long.
        let mut buffer = vec![0; LONGEST + 1];
        loop {
            let received = match &self.socket {
                Socket::Unix(socket, _) => socket.recv(&mut buffer),
                Socket::Udp(socket, _) => socket.recv(&mut buffer),
            };
            if self.closed.load(Ordering::Acquire) {
                return Ok(());
            }
            match received {
                Ok(len) if len > LONGEST => self
                    .too_long
                    .count(self, &format_args!("longer than {LONGEST} bytes")),
                Ok(len) => match self.incoming.push(&buffer[..len]) {
                    Ok(true) => wake(),
                    Ok(false) => {}
                    Err(_) => self.rx_dropped.count(self, &"more than can be handled"),
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

    /// Sends what is to be transmitted, until the wire is closed.
    pub fn write(&self) {
        let mut frame = Vec::new();
        loop {
            self.outgoing.pop(&mut frame);
            if frame.is_empty() && self.closed.load(Ordering::Acquire) {
                return;
            }
            let sent = match &self.socket {
                Socket::Unix(socket, remote) => socket.send_to(&frame, remote),
                Socket::Udp(socket, remote) => socket.send_to(&frame, remote),
            };
            if let Err(error) = sent {
                self.unsent.count(self, &error);
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
    fn addresses() {
        let unix: Address = "unix:/run/a,/run/b".parse().unwrap();
        assert_eq!(
            unix,
            Address::Unix {
                local: "/run/a".into(),
                remote: "/run/b".into()
            }
        );
        for text in ["unix:/run/a,/run/b", "udp:[::1]:7000,[::1]:7001"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "unix",
            "unix:",
            "unix:/a",
            "unix:/a,",
            "unix:,/b",
            "unix:/a,/a",
            "tcp:a:1,b:2",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
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
            let writer = scope.spawn(|| here.write());
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
