//! A switch between processes on one machine: they connect to a Unix socket, and no root is needed.
//!
//! A thread for each connection takes frames from it and writes them to where they go. What the socket of a process does not hold
//! waits for it in a queue, which another thread writes. Where that is full as well, those who send to this process alone wait
//! ([pause](super::datagram#pause)), until it has taken nothing for a second; from then on its frames are lost until it takes
//! some. Frames for all, and those from uplinks, do not wait: the process that does not keep up loses them, and the others get
//! them at once. A process that ends, in whatever way, closes its connection with that.
//!
//! An address is that process's which used it first, as long as it is connected: frames that another one sends from it, such as
//! a recording of an earlier session, go where they are sent to, but do not lead those for the address astray. (InfiniBand's
//! switches learn nothing from frames at all; those of Ethernet have it as an option, port security.)
//!
//! The switch hands out the unit numbers of models, which their addresses end in: [`Wish`]. It also tells a process whose frames
//! go to another one that one's name, so that from then on frames between the two go through [memory](super::neighbours) rather than
//! through the switch.
//!
//! # Uplinks
//!
//! An [uplink](VirtualSwitch::uplink) leads to the switch of another machine over UDP, with one frame per datagram. What came in at
//! one uplink does not leave at another: any number of switches, each pair of which has an uplink, are one network without a loop.
//! UDP holds no sender up: what the other machine does not take in time is lost, and its sender has to repeat it.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::neighbours::Name;
use super::port::{Limits, Port};
use super::queue::{FrameQueue, LONGEST, PATIENCE};
use super::stale::{self, Claim, lock_folder};
use super::stream::{self, Answer, BATCH, Reader, Wish};
use super::switch::{Addresses, Route};

/// The time that a client may take to say what it wants.
const GREETING: Duration = Duration::from_secs(5);
/// The time that a switch waits for its first connection.
const FIRST: Duration = Duration::from_secs(10);
/// When accepting is tried again after it failed.
const RETRY: Duration = Duration::from_millis(100);
/// Frames from an uplink that wait for the processes that they are for, as many as a process itself would hold.
const QUEUED: usize = 4096;
/// The interval at which the thread that reads an uplink checks for the end of the switch.
const LOOK: Duration = Duration::from_millis(50);

/// A switch at a path.
#[derive(Debug)]
pub struct VirtualSwitch {
    path: PathBuf,
    listener: UnixListener,
    claim: Claim,
    uplinks: Vec<UdpSocket>,
    limits: Limits,
}

impl VirtualSwitch {
    /// Binds the socket; what a process left there that is gone is removed. The caller has the [lock](lock_folder).
    ///
    /// # Errors
    /// The socket cannot be bound, or another switch has it.
    pub fn bind(path: &Path) -> io::Result<Self> {
        stale::remove(path)?;
        let listener = UnixListener::bind(path)?;
        Ok(Self {
            path: path.into(),
            listener,
            claim: Claim::new(path)?,
            uplinks: Vec::new(),
            limits: Limits::default(),
        })
    }

    /// Adds an uplink: a socket that is connected to that of the other machine's switch, so that it takes nothing from others.
    ///
    /// # Errors
    /// The socket refuses to be set.
    pub fn uplink(&mut self, socket: UdpSocket) -> io::Result<()> {
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        self.uplinks.push(socket);
        Ok(())
    }

    /// Joins who connects, until the last connection is closed; if none comes, for ten seconds. The socket is removed.
    ///
    /// # Errors
    /// The folder of the socket is gone, or there can be no thread.
    pub fn serve(self) -> io::Result<()> {
        let Self {
            path,
            listener,
            claim,
            uplinks,
            limits,
        } = self;
        let shared = Arc::new(Shared {
            limits,
            ..Shared::default()
        });
        let mut threads = Vec::new();
        // Connections count upwards.
        for (number, socket) in (0..usize::MAX).rev().zip(uplinks) {
            threads.extend(shared.start_uplink(number, socket)?);
        }
        let accepting = thread::spawn({
            let shared = shared.clone();
            move || accept(&shared, &listener)
        });
        let mut patience = Some(FIRST);
        loop {
            shared.wait_until_unused(patience.take());
            let _lock = lock_folder(&path)?;
            let mut ports = shared.lock();
            if ports.connections == 0 {
                ports.ended = true;
                ports.ports.clear();
                drop(ports);
                // Wakes the thread that accepts, which ends. If the path was removed, it sleeps on.
                let woken = UnixStream::connect(&path).is_ok();
                // Who starts the next switch wants the same sockets. A panic of a thread was printed when it happened.
                for thread in threads {
                    let _ = thread.join();
                }
                claim.release();
                if woken {
                    let _ = accepting.join();
                }
                return Ok(());
            }
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &UnixListener) {
    loop {
        let accepted = listener.accept();
        let mut ports = shared.lock();
        if ports.ended {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                drop(ports);
                // For example no descriptor is left: one may be later.
                log::error!("a connection could not be accepted: {error}");
                thread::sleep(RETRY);
                continue;
            }
        };
        ports.connections += 1;
        ports.next += 1;
        let number = ports.next;
        drop(ports);
        let of_thread = shared.clone();
        let begun = thread::Builder::new().spawn(move || {
            if let Err(error) = of_thread.connection(number, stream) {
                log::debug!("port {number}: {error}");
            }
            of_thread.leave(number);
        });
        if let Err(error) = begun {
            log::error!("port {number}: {error}");
            shared.leave(number);
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    limits: Limits,
    ports: Mutex<Ports>,
    /// The last connection was closed.
    unused: Condvar,
}

#[derive(Debug, Default)]
struct Ports {
    connections: usize,
    /// The number of the newest connection.
    next: usize,
    ended: bool,
    ports: Vec<Arc<Port>>,
    addresses: Addresses,
    /// The connections that have the units.
    units: Units,
}

/// The connections by unit number, from 1 to 254.
#[derive(Debug)]
struct Units([usize; 255]);

impl Default for Units {
    fn default() -> Self {
        Self([0; 255])
    }
}

impl Units {
    fn take(&mut self, wish: Wish, owner: usize) -> Option<u8> {
        let (wanted, count, exactly) = match wish {
            Wish::None | Wish::Hold => return Some(0),
            Wish::Exactly { first, count } => (first, count, true),
            Wish::Preferably { first, count } => (first, count, false),
        };
        let others = (1..=254).filter(|_| !exactly);
        let wanted = (wanted != 0).then_some(wanted);
        let first = wanted
            .into_iter()
            .chain(others)
            .find(|first| self.are_free(*first, count))?;
        let first_index = usize::from(first);
        self.0[first_index..first_index + usize::from(count)].fill(owner);
        Some(first)
    }

    fn are_free(&self, first: u8, count: u8) -> bool {
        let first = usize::from(first);
        self.0
            .get(first..first + usize::from(count))
            .is_some_and(|units| first > 0 && units.iter().all(|owner| *owner == 0))
    }

    fn release(&mut self, owner: usize) {
        for unit in &mut self.0 {
            if *unit == owner {
                *unit = 0;
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the last connection is closed, and before that for so long until there is one.
    fn wait_until_unused(&self, first: Option<Duration>) {
        let mut ports = self.lock();
        if let Some(first) = first {
            let none = |ports: &mut Ports| ports.next == 0;
            ports = self
                .unused
                .wait_timeout_while(ports, first, none)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let used = |ports: &mut Ports| ports.connections > 0;
        let _ports = self
            .unused
            .wait_while(ports, used)
            .unwrap_or_else(PoisonError::into_inner);
    }

    fn leave(&self, number: usize) {
        let mut ports = self.lock();
        ports.ports.retain(|port| port.number != number);
        ports.addresses.forget(number);
        ports.units.release(number);
        ports.connections -= 1;
        drop(ports);
        self.unused.notify_all();
    }

    /// A connection from its beginning to its end.
    fn connection(&self, number: usize, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(GREETING))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut wish = [0; 8];
        stream.read_exact(&mut wish)?;
        let Some(wish) = Wish::parse(wish) else {
            return stream.write_all(&Answer::NotUnderstood.bytes());
        };
        stream.set_read_timeout(None)?;
        self.unused.notify_all();
        let port = Arc::new(Port::process(number, stream.try_clone()?, self.limits));
        let mut ports = self.lock();
        let Some(first) = ports.units.take(wish, number) else {
            drop(ports);
            return stream.write_all(&Answer::Taken.bytes());
        };
        drop(ports);
        stream.write_all(&Answer::Granted(first).bytes())?;
        stream.set_write_timeout(None)?;
        let result = thread::scope(|scope| {
            let result = thread::Builder::new()
                .spawn_scoped(scope, || port.write())
                .and_then(|_| self.forward(&port, &stream));
            port.close();
            result
        });
        match result {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            result => result,
        }
    }

    /// Takes frames and sends them to where they go, until the connection ends.
    fn forward(&self, port: &Arc<Port>, stream: &UnixStream) -> io::Result<()> {
        let number = port.number;
        let mut frames = Reader::new(stream);
        match frames.next()? {
            [] => {}
            beginning => match Name::try_from(beginning) {
                // It is set once.
                Ok(name) => drop(port.name.set(name)),
                Err(_) => return Err(io::Error::new(ErrorKind::InvalidData, "no beginning")),
            },
        }
        self.lock().ports.push(port.clone());
        port.send(&[0, 0], true);
        let mut batch = Vec::new();
        let mut way = Way::Nowhere;
        let mut told = HashMap::new();
        loop {
            let frame = frames.next()?;
            let next = self.way(number, false, frame);
            if let (Way::To(to), Some(address), Some(_)) =
                (&next, frame.first_chunk(), port.name.get())
                && let Some(&name) = to.name.get()
                && told.insert(*address, name) != Some(name)
            {
                let mut notice = Vec::new();
                stream::append(&mut notice, &stream::notice(*address, name));
                port.send(&notice, false);
            }
            if next != way {
                way.send(&mut batch, true);
                way = next;
            }
            stream::append(&mut batch, frame);
            if batch.len() >= BATCH || !frames.is_ready() {
                way.send(&mut batch, true);
            }
        }
    }

    /// The way of a frame from a port, which may be an uplink.
    fn way(&self, number: usize, from_uplink: bool, frame: &[u8]) -> Way {
        let mut ports = self.lock();
        let route = ports.addresses.route(number, !from_uplink, frame);
        let mut others = ports
            .ports
            .iter()
            .filter(|port| port.number != number && !(from_uplink && port.is_uplink()));
        match route {
            Route::Nowhere => Way::Nowhere,
            Route::Port(to) => others
                .find(|port| port.number == to)
                .map_or(Way::Nowhere, |port| Way::To(port.clone())),
            Route::Others => Way::All(others.cloned().collect()),
        }
    }

    /// Starts the threads of an uplink: one takes frames from the socket, and does not wait for any process; one passes them on.
    fn start_uplink(
        self: &Arc<Self>,
        number: usize,
        socket: UdpSocket,
    ) -> io::Result<[thread::JoinHandle<()>; 2]> {
        let port = Arc::new(Port::uplink(number, socket.try_clone()?));
        self.lock().ports.push(port.clone());
        let queue = Arc::new(FrameQueue::new(QUEUED, QUEUED));
        let (reader, of_reader) = (self.clone(), queue.clone());
        let reader = thread::Builder::new().spawn(move || {
            reader.read_uplink(&port, &socket, &of_reader);
            of_reader.close();
        })?;
        let passes_on = self.clone();
        let passes_on = thread::Builder::new().spawn(move || passes_on.pass_on(number, &queue))?;
        Ok([reader, passes_on])
    }

    fn read_uplink(&self, port: &Port, socket: &UdpSocket, queue: &FrameQueue) {
        // One byte more, to detect frames that are too long.
        let mut buffer = vec![0; LONGEST + 1];
        loop {
            match socket.recv(&mut buffer) {
                Ok(len @ 1..=LONGEST) => {
                    if queue.push(&buffer[..len]).is_err() {
                        port.lose(1, &"more come than are taken");
                    }
                }
                Ok(_) => port.lose(1, &"no frame has this length"),
                Err(error) if stream::is_timeout(&error) => {
                    if self.lock().ended {
                        return;
                    }
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted
                            | ErrorKind::ConnectionRefused
                            | ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => {
                    // The network may be back later; it is not asked all the time.
                    log::warn!("uplink: {error}");
                    thread::sleep(RETRY);
                    if self.lock().ended {
                        return;
                    }
                }
            }
        }
    }

    /// Sends frames from an uplink to where they go, until its queue is closed.
    fn pass_on(&self, number: usize, queue: &FrameQueue) {
        let mut frame = Vec::new();
        let mut batch = Vec::new();
        let mut way = Way::Nowhere;
        while queue.pop(&mut frame).is_some() {
            loop {
                let next = self.way(number, true, &frame);
                if next != way {
                    way.send(&mut batch, false);
                    way = next;
                }
                stream::append(&mut batch, &frame);
                if batch.len() >= BATCH {
                    way.send(&mut batch, false);
                }
                if !queue.try_pop(&mut frame) {
                    break;
                }
            }
            way.send(&mut batch, false);
        }
    }
}

/// Where frames go.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Nowhere,
    To(Arc<Port>),
    All(Vec<Arc<Port>>),
}

impl Way {
    /// Sends what is in the batch, and empties it. What goes to one port may have its sender wait.
    fn send(&self, batch: &mut Vec<u8>, waits: bool) {
        match self {
            Self::Nowhere => {}
            Self::To(port) => port.send(batch, waits),
            Self::All(ports) => ports.iter().for_each(|port| port.send(batch, false)),
        }
        batch.clear();
    }
}

#[cfg(test)]
#[path = "vswitch_tests.rs"]
mod tests;
