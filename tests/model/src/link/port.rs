//! Where a [switch](super::vswitch) sends frames: to a process, or over UDP to the switch of another machine.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::datagram::{IMPATIENCE, PATIENCE};
use super::stream;

/// Losses of a port are logged when they begin, and then once per so many.
const LOG_EVERY: u64 = 1000;

/// The way to a process, or to another switch.
#[derive(Debug)]
pub(super) struct Port {
    /// No other port of the switch has it.
    pub(super) number: usize,
    way: Way,
    lost: AtomicU64,
}

#[derive(Debug)]
enum Way {
    Process(Mutex<Out>),
    /// Connected to the other switch's socket.
    Uplink(UdpSocket),
}

#[derive(Debug)]
struct Out {
    stream: UnixStream,
    /// The rest of a frame of which a part was sent.
    rest: Vec<u8>,
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
    pub(super) fn process(number: usize, stream: UnixStream) -> Self {
        let way = Way::Process(Mutex::new(Out {
            stream,
            rest: Vec::new(),
            stalled: false,
            gone: false,
        }));
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
        }
    }

    /// Whether another switch is there.
    pub(super) fn is_uplink(&self) -> bool {
        matches!(self.way, Way::Uplink(_))
    }

    /// Sends whole frames, waits if need be, and drops what is not taken.
    pub(super) fn send(&self, batch: &[u8]) {
        match &self.way {
            Way::Process(out) => self.write(out, batch),
            Way::Uplink(socket) => {
                for frame in frames(batch) {
                    self.send_datagram(socket, frame);
                }
            }
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

    fn write(&self, out: &Mutex<Out>, batch: &[u8]) {
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = std::mem::take(&mut out.rest);
        let sent = out.write(&rest);
        if sent < rest.len() {
            out.rest = rest[sent..].to_vec();
            return self.lose_all(batch);
        }
        let sent = out.write(batch);
        if sent == batch.len() {
            return;
        }
        let (begun, end) = unfinished(batch, sent);
        if begun {
            out.rest = batch[sent..end].to_vec();
        }
        self.lose_all(&batch[end..]);
    }

    fn lose_all(&self, batch: &[u8]) {
        self.lose(frames(batch).count() as u64, &"nothing is taken");
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
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_frame_is_found() {
        let mut batch = Vec::new();
        stream::append(&mut batch, &[1; 10]);
        stream::append(&mut batch, &[2; 20]);
        for (sent, expected) in [
            (0, (false, 0)),
            (1, (true, 12)),
            (11, (true, 12)),
            (12, (false, 12)),
            (13, (true, 34)),
        ] {
            assert_eq!(unfinished(&batch, sent), expected, "{sent}");
        }
    }
}
