//! Where a [switch](super::vswitch) sends frames: to a process, or over UDP to the switch of another machine.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::neighbours::Name;
use super::queue::PATIENCE;
use super::stream::BATCH;

/// Losses of a port are logged when they begin, and then once per so many.
const LOG_EVERY: u64 = 1000;
/// Flags of `send`, the same for all of Linux's architectures: that it does not wait, and that no signal comes of it.
const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;

/// A process may be late within these limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes that wait for it here, behind those that its socket holds.
    pub(super) held: usize,
    /// A sender to it alone waits for this long since it took something.
    pub(super) patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            held: 4 << 20,
            patience: PATIENCE,
        }
    }
}

/// The way to a process, or to another switch.
#[derive(Debug)]
pub(super) struct Port {
    /// No other port of the switch has it.
    pub(super) number: usize,
    way: Way,
    lost: AtomicU64,
    /// The name by which others offer [rings](super::neighbours) to the process.
    pub(super) name: OnceLock<Name>,
}

#[derive(Debug)]
enum Way {
    Process(Process),
    /// Connected to the other switch's socket.
    Uplink(UdpSocket),
}

#[derive(Debug)]
struct Process {
    stream: UnixStream,
    limits: Limits,
    out: Mutex<Out>,
    /// There is something to write, or the process is gone.
    filled: Condvar,
    /// There is room again, or the process is gone.
    drained: Condvar,
}

#[derive(Debug)]
struct Out {
    /// Its socket did not hold these bytes: frames, of the first one perhaps only the rest.
    waiting: Vec<u8>,
    /// The thread that writes has something.
    writing: bool,
    /// When the process took something, or something began to wait.
    since: Instant,
    /// It took nothing for so long that senders wait for it no more.
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
    /// The way to a process, by its connection.
    pub(super) fn process(number: usize, stream: UnixStream, limits: Limits) -> Self {
        let way = Way::Process(Process {
            stream,
            limits,
            out: Mutex::new(Out {
                waiting: Vec::new(),
                writing: false,
                since: Instant::now(),
                stalled: false,
                gone: false,
            }),
            filled: Condvar::new(),
            drained: Condvar::new(),
        });
        Self::new(number, way)
    }

    /// The way to another switch, by a socket that is connected to it.
    pub(super) fn uplink(number: usize, socket: UdpSocket) -> Self {
        Self::new(number, Way::Uplink(socket))
    }

    fn new(number: usize, way: Way) -> Self {
        Self {
            number,
            way,
            lost: AtomicU64::new(0),
            name: OnceLock::new(),
        }
    }

    /// Returns `true` if another switch is there.
    pub(super) fn is_uplink(&self) -> bool {
        matches!(self.way, Way::Uplink(_))
    }

    /// Sends whole frames, and drops those for which there is no room. A sender that `waits` does so before, as long as the
    /// process is not stopped.
    pub(super) fn send(&self, batch: &[u8], waits: bool) {
        match &self.way {
            Way::Process(process) => self.queue(process, batch, waits),
            Way::Uplink(socket) => {
                for frame in frames(batch) {
                    self.send_datagram(socket, frame);
                }
            }
        }
    }

    /// Writes what waits for the process, until it is [gone](Self::close).
    pub(super) fn write(&self) {
        if let Way::Process(process) = &self.way {
            process.write();
        }
    }

    /// Nothing goes there any more.
    pub(super) fn close(&self) {
        if let Way::Process(process) = &self.way {
            process.leave(&mut process.lock());
            // It is written to at the moment, perhaps. It may have closed the connection itself.
            let _ = process.stream.shutdown(Shutdown::Both);
        }
    }

    fn send_datagram(&self, socket: &UdpSocket, frame: &[u8]) {
        let mut sent = socket.send(frame);
        if matches!(&sent, Err(error) if error.kind() == ErrorKind::ConnectionRefused) {
            // That was said of a datagram before this one: the other switch was not there yet.
            sent = socket.send(frame);
        }
        if let Err(error) = sent {
            self.lose(1, &error);
        }
    }

    fn queue(&self, process: &Process, mut batch: &[u8], waits: bool) {
        let mut out = process.lock();
        if out.waiting.is_empty() && !out.writing {
            batch = &batch[process.try_write(&mut out, batch)..];
            if batch.is_empty() || out.gone {
                return;
            }
            // The rest, of a frame that was begun, too.
            (out.since, out.stalled) = (Instant::now(), false);
            out.waiting.extend_from_slice(batch);
            process.filled.notify_one();
            return;
        }
        while !out.gone {
            let room = process.limits.held.saturating_sub(out.waiting.len());
            let (now, later) = batch.split_at(that_fit(batch, room));
            out.waiting.extend_from_slice(now);
            batch = later;
            if batch.is_empty() {
                return;
            }
            let left = process.limits.patience.saturating_sub(out.since.elapsed());
            out.stalled |= left.is_zero();
            if !waits || out.stalled {
                drop(out);
                return self.lose_all(batch);
            }
            out = process
                .drained
                .wait_timeout(out, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lose_all(&self, batch: &[u8]) {
        self.lose(frames(batch).count() as u64, &"too much waits there");
    }

    /// Counts frames that are lost.
    pub(super) fn lose(&self, frames: u64, why: &dyn fmt::Display) {
        let before = self.lost.fetch_add(frames, Ordering::Relaxed);
        if frames > 0 && (before == 0 || before / LOG_EVERY != (before + frames) / LOG_EVERY) {
            let lost = before + frames;
            match self.way {
                Way::Process(_) => {
                    log::warn!("port {}: {lost} frames lost: {why}", self.number);
                }
                Way::Uplink(_) => log::warn!("uplink: {lost} frames lost: {why}"),
            }
        }
    }
}

/// The frames of a batch.
fn frames(batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = batch;
    std::iter::from_fn(move || {
        let (len, rest) = left.split_first_chunk::<2>()?;
        let (frame, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        left = rest;
        Some(frame)
    })
}

/// Returns how many bytes of a batch are frames that fit into so much room.
fn that_fit(batch: &[u8], room: usize) -> usize {
    let ends = frames(batch).scan(0, |end, frame| {
        *end += 2 + frame.len();
        Some(*end)
    });
    ends.take_while(|end| *end <= room).last().unwrap_or(0)
}

impl Process {
    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what the socket holds, without waiting: how much.
    fn try_write(&self, out: &mut Out, batch: &[u8]) -> usize {
        let socket = SockRef::from(&self.stream);
        let mut sent = 0;
        while sent < batch.len() {
            match socket.send_with_flags(&batch[sent..], MSG_DONTWAIT | MSG_NOSIGNAL) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.leave(out);
                    break;
                }
            }
        }
        sent
    }

    fn write(&self) {
        let mut bytes = Vec::new();
        let mut out = self.lock();
        loop {
            out.writing = false;
            while out.waiting.is_empty() && !out.gone {
                out = self
                    .filled
                    .wait(out)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if out.gone {
                return;
            }
            bytes.clear();
            std::mem::swap(&mut bytes, &mut out.waiting);
            out.writing = true;
            self.drained.notify_all();
            for part in bytes.chunks(BATCH) {
                drop(out);
                let written = (&self.stream).write_all(part);
                out = self.lock();
                (out.since, out.stalled) = (Instant::now(), false);
                if written.is_err() {
                    return self.leave(&mut out);
                }
            }
        }
    }

    fn leave(&self, out: &mut Out) {
        out.gone = true;
        out.waiting = Vec::new();
        self.filled.notify_all();
        self.drained.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream;
    use super::*;

    #[test]
    fn only_whole_frames_fit() {
        let mut batch = Vec::new();
        stream::append(&mut batch, &[1; 10]);
        stream::append(&mut batch, &[2; 20]);
        for (room, expected) in [(0, 0), (11, 0), (12, 12), (33, 12), (34, 34), (99, 34)] {
            assert_eq!(that_fit(&batch, room), expected, "{room}");
        }
    }
}
