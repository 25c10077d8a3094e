//! A switch between processes on one machine: they connect to a Unix socket, and no root is needed.
//!
//! A thread for each connection takes frames from it and writes them to where they go. Where a process does not take its frames,
//! those who send to it wait ([pause](super::datagram#pause)), for a second; then its frames are lost until it takes some, so that
//! a process that was stopped does not stop the others. A process that ends, in whatever way, closes its connection with that.
//!
//! The switch hands out the unit numbers of models, which their addresses end in: [`Wish`].

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::datagram::{IMPATIENCE, PATIENCE};
use super::stale::{self, Claim};
use super::stream::{self, Answer, BATCH, Reader, Wish};
use super::switch::{Addresses, Route};

/// How long a client may take to say what it wants.
const GREETING: Duration = Duration::from_secs(5);
/// How long a switch waits for its first connection.
const FIRST: Duration = Duration::from_secs(10);
/// When accepting is tried again after it failed.
const RETRY: Duration = Duration::from_millis(100);
/// Losses of a port are logged when they begin, and then once per so many.
const LOG_EVERY: u64 = 1000;

/// Waits until no other process starts or ends a switch in the folder of `path`, and keeps them from it as long as the file is
/// open. The lock is the folder's, so that no file is left.
///
/// # Errors
/// There is no such folder.
pub fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let file = File::open(folder)?;
    file.lock()?;
    Ok(file)
}

/// A switch at a path.
#[derive(Debug)]
pub struct VirtualSwitch {
    path: PathBuf,
    listener: UnixListener,
    claim: Claim,
}

impl VirtualSwitch {
    /// Binds the socket; what a process left there that is gone is removed. The caller has the [lock](lock_folder).
    ///
    /// # Errors
    /// The socket cannot be bound, or another switch has it.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match UnixStream::connect(path) {
            Ok(_) => {
                let what = "another process listens there";
                return Err(io::Error::new(ErrorKind::AddrInUse, what));
            }
            Err(_) => stale::remove(path)?,
        }
        let listener = UnixListener::bind(path)?;
        Ok(Self {
            path: path.into(),
            listener,
            claim: Claim::new(path)?,
        })
    }

    /// Joins who connects, until the last connection is closed; if none comes, for ten seconds. The socket is removed.
    ///
    /// # Errors
    /// The folder of the socket is gone.
    pub fn serve(self) -> io::Result<()> {
        let Self {
            path,
            listener,
            claim,
        } = self;
        let shared = Arc::new(Shared::default());
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
                drop(ports);
                // Wakes the thread that accepts, which ends.
                let _woken = UnixStream::connect(&path);
                claim.release();
                break;
            }
        }
        // A panic of the thread was printed when it happened.
        let _ = accepting.join();
        Ok(())
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

/// Which connection has which unit number, from 1 to 254.
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
        let port = Arc::new(Port::new(number, stream.try_clone()?));
        let mut ports = self.lock();
        let Some(first) = ports.units.take(wish, number) else {
            drop(ports);
            return stream.write_all(&Answer::Taken.bytes());
        };
        drop(ports);
        stream.write_all(&Answer::Granted(first).bytes())?;
        match self.forward(&port, &stream) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            result => result,
        }
    }

    /// Takes frames and sends them to where they go, until the connection ends.
    fn forward(&self, port: &Arc<Port>, stream: &UnixStream) -> io::Result<()> {
        let number = port.number;
        let mut frames = Reader::new(stream);
        if !frames.next()?.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "no beginning"));
        }
        self.lock().ports.push(port.clone());
        port.send(&[0, 0]);
        let mut batch = Vec::new();
        let mut way = Way::Nowhere;
        loop {
            let frame = frames.next()?;
            let next = self.way(number, frame);
            if next != way {
                way.send(&mut batch);
                way = next;
            }
            stream::append(&mut batch, frame);
            if batch.len() >= BATCH || !frames.is_ready() {
                way.send(&mut batch);
            }
        }
    }

    fn way(&self, number: usize, frame: &[u8]) -> Way {
        let mut ports = self.lock();
        match ports.addresses.route(number, frame) {
            Route::Nowhere => Way::Nowhere,
            Route::Port(to) => ports
                .ports
                .iter()
                .find(|port| port.number == to)
                .map_or(Way::Nowhere, |port| Way::To(port.clone())),
            Route::Others => {
                let others = ports.ports.iter().filter(|port| port.number != number);
                Way::All(others.cloned().collect())
            }
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
    /// Sends what is in the batch, and empties it.
    fn send(&self, batch: &mut Vec<u8>) {
        match self {
            Self::Nowhere => {}
            Self::To(port) => port.send(batch),
            Self::All(ports) => ports.iter().for_each(|port| port.send(batch)),
        }
        batch.clear();
    }
}

/// The way to a process.
#[derive(Debug)]
struct Port {
    number: usize,
    out: Mutex<Out>,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Out {
    stream: UnixStream,
    /// The rest of a frame of which a part was sent.
    rest: Vec<u8>,
    /// It took nothing for so long that nobody waits for it.
    stalled: bool,
    gone: bool,
}

impl PartialEq for Port {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Port {}

impl Port {
    fn new(number: usize, stream: UnixStream) -> Self {
        Self {
            number,
            out: Mutex::new(Out {
                stream,
                rest: Vec::new(),
                stalled: false,
                gone: false,
            }),
            lost: AtomicU64::new(0),
        }
    }

    /// Writes whole frames, waits if need be, and drops what is not taken.
    fn send(&self, batch: &[u8]) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = std::mem::take(&mut out.rest);
        let sent = out.write(&rest);
        if sent < rest.len() {
            out.rest = rest[sent..].to_vec();
            return self.lose(batch);
        }
        let sent = out.write(batch);
        if sent == batch.len() {
            return;
        }
        let (begun, end) = unfinished(batch, sent);
        if begun {
            out.rest = batch[sent..end].to_vec();
        }
        self.lose(&batch[end..]);
    }

    /// Counts the frames of a batch that are lost.
    fn lose(&self, batch: &[u8]) {
        let mut frames = 0;
        let mut left = batch;
        while let Some((len, rest)) = left.split_first_chunk::<2>() {
            frames += 1;
            left = rest
                .get(usize::from(u16::from_be_bytes(*len))..)
                .unwrap_or_default();
        }
        let before = self.lost.fetch_add(frames, Ordering::Relaxed);
        if frames > 0 && (before == 0 || before / LOG_EVERY != (before + frames) / LOG_EVERY) {
            let (number, lost) = (self.number, before + frames);
            log::warn!("port {number}: {lost} frames lost, as nothing is taken");
        }
    }
}

/// Where in a batch the frame ends of which byte `sent` is, and whether a part of it was sent.
fn unfinished(batch: &[u8], sent: usize) -> (bool, usize) {
    let mut start = 0;
    while start < sent {
        let len = batch[start..]
            .first_chunk::<2>()
            .map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
        start += 2 + len;
    }
    (start > sent, start.min(batch.len()))
}

impl Out {
    /// How much was written.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() && !self.gone {
            match self.stream.write(&bytes[sent..]) {
                Ok(0) => self.gone = true,
                Ok(len) => {
                    sent += len;
                    self.set_stalled(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if stream::is_timeout(&error) => {
                    self.set_stalled(true);
                    break;
                }
                Err(_) => self.gone = true,
            }
        }
        // To who is gone everything was sent.
        if self.gone { bytes.len() } else { sent }
    }

    fn set_stalled(&mut self, stalled: bool) {
        if self.stalled == stalled {
            return;
        }
        self.stalled = stalled;
        let patience = if stalled { IMPATIENCE } else { PATIENCE };
        self.gone |= self.stream.set_write_timeout(Some(patience)).is_err();
    }
}

#[cfg(test)]
#[path = "vswitch_tests.rs"]
mod tests;
