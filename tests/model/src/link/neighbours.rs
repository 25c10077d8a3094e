//! The [rings](super::ring) to and from the processes that a wire leads to, on the same machine.
//!
//! Frames go through a socket until the sender has a ring to the receiver, and again when the ring has ended: a ring is never
//! needed. Each process listens at a name of its own (an abstract one, unix(7), which ends with the process). The sender
//! connects there, and passes memory through the connection; the receiver answers with a byte when it has it. From then on
//! a byte that comes out of the connection is a wake-up, and the connection's end that of the ring: so who dies is noticed.
//!
//! Frames keep their order: the sender's last frame through the socket is a mark, and the receiver takes nothing out of the ring
//! before it has come, or was waited for as long as for anything.
//!
//! One thread (`Neighbours::run`) waits at all of the connections. What needs the operating system beyond what is safe to call
//! from here is behind [`Sharing`].

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::queue::{LONGEST, PATIENCE};
use super::ring::{Broken, Pop, Push, Reader, Words, Writer};

/// The name of a process among those that share a network: a number that it draws.
pub(super) type Name = [u8; 6];
/// A station's address.
pub(super) type StationAddress = [u8; 6];

/// The most rings from others and to others, each of which holds 2 MiB, and connections that have not said yet what they want.
const MOST: usize = 256;
const MOST_GREETINGS: usize = 64;
/// The flags of `send`, the same for all of Linux's architectures: that it does not wait, and that no signal comes of it.
const NOT_WAITING: i32 = 0x40 | 0x4000;
/// The type of marks: one for experiments (IEEE 802, local experimental ethertype 1), and where the ring's number is.
const MARK_TYPE: [u8; 2] = [0x88, 0xb5];
const MARK: usize = 60;
/// A group address, which no switch learns.
const MARK_SOURCE: [u8; 6] = [3, 0, 0, 0, 0, 1];

/// The operating system's part.
pub trait Sharing {
    /// Makes memory of [`RING_WORDS`](super::ring::RING_WORDS), all zeros, and passes it to the process at the other end of a
    /// connection, with a number.
    ///
    /// # Errors
    /// There is no memory, or the process is gone or another user's.
    fn give(&self, to: &UnixStream, number: u64) -> io::Result<Box<dyn Words>>;

    /// Takes such memory and its number from a connection, without waiting.
    ///
    /// # Errors
    /// It is not there, or anything else is: [`ErrorKind::WouldBlock`] if it may come. Its other owner could take it away.
    /// The process is another user's.
    fn take(&self, from: &UnixStream) -> io::Result<(Box<dyn Words>, u64)>;

    /// Waits until one of these can be read or has ended, or for the time: which.
    ///
    /// # Errors
    /// It is not possible.
    fn wait(&self, ends: &[BorrowedFd<'_>], time: Option<Duration>) -> io::Result<Vec<bool>>;
}

/// Wakes the process at the other end.
fn wake(stream: &UnixStream) {
    // If the socket is full of wake-ups, it wakes up; if the process is gone, that is noticed where the connection is read.
    let _ = SockRef::from(stream).send_with_flags(&[1], NOT_WAITING);
}

/// Draws a number.
fn draw() -> u64 {
    RandomState::new().hash_one(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The abstract name of a process's socket.
fn socket_name(name: &str) -> String {
    format!("bareverbs {name}")
}

/// The name of the ring of a process on a switch.
pub(super) fn on_switch(name: Name) -> String {
    format!("station {name:x?}")
}

/// The frame behind which those in a ring come.
fn mark(number: u64, to: StationAddress) -> [u8; MARK] {
    let mut frame = [0; MARK];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&MARK_SOURCE);
    frame[12..14].copy_from_slice(&MARK_TYPE);
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Returns `true` if a frame is the mark of any ring.
pub(super) fn is_a_mark(frame: &[u8]) -> bool {
    marked(frame).is_some()
}

fn marked(frame: &[u8]) -> Option<u64> {
    let frame: &[u8; MARK] = frame.try_into().ok()?;
    let is_mark = frame[6..12] == MARK_SOURCE && frame[12..14] == MARK_TYPE;
    let number = frame[14..].first_chunk()?;
    is_mark.then_some(u64::from_be_bytes(*number))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The receiver has not answered.
    Offered,
    /// The mark is on its way through the socket.
    Marked,
    Open,
}

/// A ring to a process.
#[derive(Debug)]
struct Outgoing {
    stream: Arc<UnixStream>,
    ring: Writer,
    number: u64,
    wanted: Wanted,
    phase: Phase,
    /// The number of words that the reader has read, and since when no more or since when it has much to read.
    read: u64,
    since: Instant,
}

impl Outgoing {
    /// The time that the reader has taken nothing.
    fn stalled(&mut self) -> Result<Duration, Broken> {
        let read = self.ring.head()?;
        if read != self.read {
            (self.read, self.since) = (read, Instant::now());
        }
        Ok(self.since.elapsed())
    }

    fn push(&mut self, frame: &[u8]) -> Result<bool, Broken> {
        let was_congested = self.ring.was_congested();
        let pushed = self.ring.push(frame)?;
        if self.ring.was_congested() && !was_congested {
            self.since = Instant::now();
        }
        if pushed == Push::Wake {
            wake(&self.stream);
        }
        Ok(pushed != Push::Full)
    }

    fn is_congested(&mut self, patience: Duration) -> Result<bool, Broken> {
        Ok(self.ring.is_congested()? && self.stalled()? < patience)
    }
}

/// The rings to others.
#[derive(Debug, Default)]
struct Others(Vec<Outgoing>);

impl Others {
    /// The ring to where a frame goes. (What the receiver would take for nonsense it has to refuse where it refuses others'.)
    fn index(&self, frame: &[u8]) -> Option<usize> {
        let leads = |ring: &Outgoing| {
            let address = ring.wanted.address;
            ring.phase == Phase::Open && address.is_none_or(|address| frame.starts_with(&address))
        };
        let index = self.0.iter().position(leads)?;
        (1..=LONGEST).contains(&frame.len()).then_some(index)
    }

    fn end(&mut self, index: usize, why: &dyn fmt::Display) {
        let ring = self.0.swap_remove(index);
        log::debug!("the ring to {} has ended: {why}", ring.wanted.name);
    }
}

/// A ring from a process.
#[derive(Debug)]
struct Incoming {
    stream: Arc<UnixStream>,
    ring: Reader,
    number: u64,
    /// Until when its mark is waited for.
    held: Option<Instant>,
    /// The connection has ended: what is in the ring still counts.
    ended: bool,
}

impl Incoming {
    fn has_more(&self) -> bool {
        self.held.is_none() && self.ring.has_more()
    }
}

#[derive(Debug, Default)]
struct Arrivals {
    rings: Vec<Incoming>,
    /// The ring whose turn it is.
    next: usize,
}

/// A ring that is wanted: to a process, for an address or for all frames.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    address: Option<StationAddress>,
}

/// The result of [`Neighbours::carry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carried {
    /// No ring leads to where the frame goes.
    Not,
    InRing,
    /// The receiver has taken nothing for too long.
    Late,
}

/// The rings of a wire.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// Until [`run`](Neighbours::run) has it.
    listener: Mutex<Option<UnixListener>>,
    /// Two ends: a byte that is written to the first wakes the thread, which reads the second.
    bell: [UnixStream; 2],
    wanted: Mutex<Vec<Wanted>>,
    others: Mutex<Others>,
    /// The time that a reader may take nothing, and a mark may need.
    patience: Duration,
    /// A ring has room, or has ended.
    room: Condvar,
    congested: AtomicBool,
    arrivals: Mutex<Arrivals>,
    closed: AtomicBool,
}

impl Neighbours {
    /// Draws a name on a switch, and listens there.
    pub(super) fn on_switch() -> io::Result<(Name, Self)> {
        let [_, _, name @ ..] = draw().to_be_bytes();
        Ok((name, Self::new(&on_switch(name))?))
    }

    /// Listens at a name.
    pub(super) fn new(name: &str) -> io::Result<Self> {
        let listener =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(socket_name(name))?)?;
        listener.set_nonblocking(true)?;
        let (near, far) = UnixStream::pair()?;
        far.set_nonblocking(true)?;
        Ok(Self {
            listener: Mutex::new(Some(listener)),
            bell: [near, far],
            wanted: Mutex::default(),
            others: Mutex::default(),
            patience: PATIENCE,
            room: Condvar::new(),
            congested: AtomicBool::new(false),
            arrivals: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Waits so long, rather than for [`PATIENCE`].
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Asks for a ring to the process of this name, for an address, or for all frames.
    pub(super) fn connect(&self, name: String, address: Option<StationAddress>) {
        let mut wanted = lock(&self.wanted);
        wanted.retain(|other| other.address != address);
        if wanted.len() < MOST {
            wanted.push(Wanted { name, address });
            wake(&self.bell[0]);
        }
    }

    /// Puts a frame into the ring to where it goes, if there is one with room.
    pub(super) fn pass(&self, frame: &[u8]) -> bool {
        let mut others = lock(&self.others);
        let Some(index) = others.index(frame) else {
            return false;
        };
        match others.0[index].push(frame) {
            Ok(true) => {
                if others.0[index].ring.was_congested() {
                    self.congested.store(true, Ordering::Relaxed);
                }
                true
            }
            Ok(false) => {
                self.congested.store(true, Ordering::Relaxed);
                false
            }
            Err(why) => {
                self.cut(&mut others, index, why);
                false
            }
        }
    }

    /// Puts a frame into the ring to where it goes, and waits for room.
    pub(super) fn carry(&self, frame: &[u8]) -> Carried {
        let mut others = lock(&self.others);
        while let Some(index) = others.index(frame) {
            let ring = &mut others.0[index];
            let stalled = match ring.push(frame) {
                Ok(true) => return Carried::InRing,
                Ok(false) => ring.stalled(),
                Err(why) => Err(why),
            };
            let left = match stalled {
                Ok(stalled) => self.patience.saturating_sub(stalled),
                Err(why) => {
                    self.cut(&mut others, index, why);
                    continue;
                }
            };
            if left.is_zero() {
                return Carried::Late;
            }
            others = self
                .room
                .wait_timeout(others, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Carried::Not
    }

    /// Ends a ring that its reader breaks.
    fn cut(&self, others: &mut Others, index: usize, why: Broken) {
        log::warn!("another process breaks a ring, which ends: {why}");
        others.end(index, &why);
        // The thread has the connection in its list.
        wake(&self.bell[0]);
    }

    /// Returns `true` if a ring leads to where the frame goes.
    pub(super) fn leads(&self, frame: &[u8]) -> bool {
        lock(&self.others).index(frame).is_some()
    }

    /// Returns `true` if there is a ring to another process, even if nothing goes through it yet.
    pub(super) fn has_ring(&self) -> bool {
        !lock(&self.others).0.is_empty()
    }

    /// The rings to others that frames go through.
    pub(super) fn open_rings(&self) -> usize {
        let is_open = |ring: &&Outgoing| ring.phase == Phase::Open;
        lock(&self.others).0.iter().filter(is_open).count()
    }

    /// After a frame has left through the socket, or was lost: if it was a mark, what comes later goes through the ring, or there
    /// is none.
    pub(super) fn left(&self, frame: &[u8], sent: bool) {
        let Some(number) = marked(frame) else {
            return;
        };
        let mut others = lock(&self.others);
        let is_marked = |ring: &Outgoing| ring.number == number && ring.phase == Phase::Marked;
        let Some(index) = others.0.iter().position(is_marked) else {
            return;
        };
        if !sent {
            others.end(index, &"its mark was lost");
            // The thread has the connection in its list.
            return wake(&self.bell[0]);
        }
        let ring = &mut others.0[index];
        ring.phase = Phase::Open;
        ring.since = Instant::now();
        log::debug!("a ring leads to {}", ring.wanted.name);
    }

    /// Returns `true` if the frame, which has come through the socket, is a mark: what is in the ring is next.
    pub(super) fn is_mark(&self, frame: &[u8]) -> bool {
        let Some(number) = marked(frame) else {
            return false;
        };
        for ring in &mut lock(&self.arrivals).rings {
            if ring.number == number {
                ring.held = None;
                return true;
            }
        }
        false
    }

    /// Takes the next frame out of a ring, which replaces what is in `frame`, unless `before` has one: what has come through the
    /// socket comes before what is behind its mark.
    pub(super) fn receive(
        &self,
        frame: &mut Vec<u8>,
        before: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        // A mark is not seen between the look at the one and at the other.
        let mut arrivals = lock(&self.arrivals);
        if before(frame) {
            return true;
        }
        let Arrivals { rings, next } = &mut *arrivals;
        let mut looks = rings.len();
        while looks > 0 {
            looks -= 1;
            *next = if *next < rings.len() { *next } else { 0 };
            let ring = &mut rings[*next];
            let popped = match ring.held {
                None => ring.ring.pop(frame),
                Some(_) => Ok(Pop::Empty),
            };
            match popped {
                Ok(Pop::Frame { wake: woken }) => {
                    if woken {
                        wake(&ring.stream);
                    }
                    *next += 1;
                    return true;
                }
                Ok(Pop::Empty) if ring.held.is_some() || !ring.ended => *next += 1,
                Ok(Pop::Empty) => drop(rings.swap_remove(*next)),
                Err(why) => {
                    log::warn!("another process breaks its ring, which ends: {why}");
                    rings.swap_remove(*next);
                    // The thread has the connection in its list.
                    wake(&self.bell[0]);
                }
            }
        }
        false
    }

    /// Returns `true` if there is nothing to [`receive`](Self::receive).
    pub(super) fn is_idle(&self) -> bool {
        !lock(&self.arrivals).rings.iter().any(Incoming::has_more)
    }

    /// Returns `true` if there is nothing to [`receive`](Self::receive); from now on a frame wakes the thread.
    pub(super) fn doze(&self) -> bool {
        let arrivals = lock(&self.arrivals);
        arrivals.rings.iter().for_each(|ring| ring.ring.doze());
        !arrivals.rings.iter().any(Incoming::has_more)
    }

    /// Returns `true` if so much waits in a ring that the models shall pause.
    pub(super) fn is_congested(&self) -> bool {
        if !self.congested.load(Ordering::Relaxed) {
            return false;
        }
        let mut others = lock(&self.others);
        // One that has broken ends where it is written to next.
        let congested = others
            .0
            .iter_mut()
            .any(|ring| ring.is_congested(self.patience) == Ok(true));
        self.congested.store(congested, Ordering::Relaxed);
        congested
    }

    /// Lets [`run`](Self::run) come to its end.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        wake(&self.bell[0]);
    }

    /// Makes rings as they are asked for, until the end. Calls `stir` when a frame has come or there is room again, and `send`
    /// with frames that have to go through the socket.
    pub(super) fn run(&self, sharing: &dyn Sharing, send: impl Fn(&[u8]), stir: impl Fn()) {
        let mut listener = lock(&self.listener).take();
        let mut greetings: Vec<UnixStream> = Vec::new();
        while !self.closed.load(Ordering::Acquire) {
            for wanted in std::mem::take(&mut *lock(&self.wanted)) {
                let name = wanted.name.clone();
                if let Err(error) = self.offer(sharing, wanted) {
                    log::debug!("no ring leads to {name}: {error}");
                }
            }
            let (incoming, held) = self.incoming();
            let outgoing: Vec<(u64, Arc<UnixStream>)> = lock(&self.others)
                .0
                .iter()
                .map(|ring| (ring.number, ring.stream.clone()))
                .collect();
            let ends: Vec<BorrowedFd<'_>> = [self.bell[1].as_fd()]
                .into_iter()
                .chain(greetings.iter().map(AsFd::as_fd))
                .chain(incoming.iter().map(|(_, stream)| stream.as_fd()))
                .chain(outgoing.iter().map(|(_, stream)| stream.as_fd()))
                .chain(listener.as_ref().map(AsFd::as_fd))
                .collect();
            let ready = match sharing.wait(&ends, held) {
                Ok(ready) => ready,
                Err(error) => {
                    log::error!("rings can no longer be waited for: {error}");
                    break;
                }
            };
            let mut ready = ready.into_iter();
            if ready.next() == Some(true) && !rung(&self.bell[1]) {
                log::warn!("the program has closed descriptors that are not its own: rings end");
                break;
            }
            let mut stirs = self.release_late();
            let greeted: Vec<bool> = ready.by_ref().take(greetings.len()).collect();
            let mut greeted = greeted.into_iter();
            greetings.retain(|stream| {
                greeted.next() != Some(true) || self.greet(sharing, stream).is_none()
            });
            for (number, stream) in incoming {
                if ready.next() == Some(true) {
                    stirs = true;
                    if !rung(&stream) {
                        self.end_incoming(number);
                    }
                }
            }
            for (number, stream) in outgoing {
                if ready.next() == Some(true) {
                    stirs = true;
                    self.answered(number, rung(&stream), &send);
                }
            }
            if ready.next() == Some(true) {
                listener = listener.filter(|listener| accept(listener, &mut greetings));
            }
            if stirs {
                self.room.notify_all();
                stir();
            }
        }
        // The others find out.
        lock(&self.others).0.clear();
        lock(&self.arrivals).rings.clear();
    }

    /// The connections of rings from others, and for how long one's mark is waited for.
    fn incoming(&self) -> (Vec<(u64, Arc<UnixStream>)>, Option<Duration>) {
        let mut arrivals = lock(&self.arrivals);
        let is_over = |ring: &Incoming| ring.ended && ring.held.is_none() && !ring.ring.has_more();
        arrivals.rings.retain(|ring| !is_over(ring));
        let streams = arrivals
            .rings
            .iter()
            .filter(|ring| !ring.ended)
            .map(|ring| (ring.number, ring.stream.clone()))
            .collect();
        let held = arrivals.rings.iter().filter_map(|ring| ring.held).min();
        let held = held.map(|until| until.saturating_duration_since(Instant::now()));
        (streams, held)
    }

    /// Lets go on without their marks those that have waited for long; whether there are any.
    fn release_late(&self) -> bool {
        let now = Instant::now();
        let mut any = false;
        for ring in &mut lock(&self.arrivals).rings {
            if ring.held.is_some_and(|until| until <= now) {
                ring.held = None;
                any = true;
            }
        }
        any
    }

    /// Takes the ring that comes through a connection; `None` if it is still to come.
    fn greet(&self, sharing: &dyn Sharing, stream: &UnixStream) -> Option<()> {
        let taken = match sharing.take(stream) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            taken => taken.and_then(|ring| Ok((ring, stream.try_clone()?))),
        };
        let ((memory, number), stream) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                log::warn!("a ring is refused: {error}");
                return Some(());
            }
        };
        let mut arrivals = lock(&self.arrivals);
        if arrivals.rings.len() < MOST && arrivals.rings.iter().all(|ring| ring.number != number) {
            let ring = Reader::new(memory);
            // Frames wake the thread until the world looks.
            ring.doze();
            wake(&stream);
            arrivals.rings.push(Incoming {
                stream: Arc::new(stream),
                ring,
                number,
                held: Some(Instant::now() + self.patience),
                ended: false,
            });
        }
        Some(())
    }

    fn end_incoming(&self, number: u64) {
        for ring in &mut lock(&self.arrivals).rings {
            ring.ended |= ring.number == number;
        }
    }

    /// A ring's reader has said that it has the ring, or that there is room; or it has ended.
    fn answered(&self, number: u64, goes_on: bool, send: &impl Fn(&[u8])) {
        let mut others = lock(&self.others);
        let Some(index) = others.0.iter().position(|ring| ring.number == number) else {
            return;
        };
        if !goes_on {
            return others.end(index, &"the other process has closed it");
        }
        if others.0[index].phase == Phase::Offered {
            others.0[index].phase = Phase::Marked;
            let to = others.0[index].wanted.address;
            drop(others);
            send(&mark(number, to.unwrap_or_default()));
        }
    }

    /// Offers a ring to a process, unless there is one, in the place of another process's for the same frames.
    fn offer(&self, sharing: &dyn Sharing, wanted: Wanted) -> io::Result<()> {
        let mut others = lock(&self.others);
        if others.0.iter().any(|ring| ring.wanted == wanted) {
            return Ok(());
        }
        others
            .0
            .retain(|ring| ring.wanted.address != wanted.address);
        let is_full = others.0.len() >= MOST;
        drop(others);
        self.room.notify_all();
        if is_full {
            return Err(io::Error::other("there are as many rings as there may be"));
        }
        // Without waiting, if more connect to the process than it accepts.
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(format!("\0{}", socket_name(&wanted.name)))?)?;
        let stream = UnixStream::from(socket);
        let number = draw();
        let memory = sharing.give(&stream, number)?;
        lock(&self.others).0.push(Outgoing {
            stream: Arc::new(stream),
            ring: Writer::new(memory),
            number,
            wanted,
            phase: Phase::Offered,
            read: 0,
            since: Instant::now(),
        });
        Ok(())
    }
}

/// Takes connections, without waiting; `false` if that is not possible any more. (It would be tried all the time.)
fn accept(listener: &UnixListener, greetings: &mut Vec<UnixStream>) -> bool {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if greetings.len() < MOST_GREETINGS && stream.set_nonblocking(true).is_ok() {
                    greetings.push(stream);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                log::warn!("no more rings come from others: {error}");
                return false;
            }
        }
    }
}

/// Reads wake-ups; `false` if the connection has ended.
fn rung(mut stream: &UnixStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(len) => len > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}
