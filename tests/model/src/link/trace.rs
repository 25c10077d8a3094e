//! One line per frame, for people.

use std::fmt;
use std::time::Duration;

use super::Link;
use crate::roce::packet::{Packet, ParseError};

/// Shows a frame in one line: RoCE packets in words, everything else by Ethertype and length.
#[derive(Debug, Clone, Copy)]
pub struct Summary<'a>(pub &'a [u8]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Packet::parse(self.0) {
            Ok(packet) => {
                let bth = &packet.repr.bth;
                let e = &packet.repr.extended;
                let op = bth.opcode.operation;
                write!(
                    f,
                    "{:?} {op:?} qpn={:#x} psn={:?} len={}",
                    bth.opcode.service,
                    bth.destination_qpn,
                    bth.psn,
                    packet.payload.len()
                )?;
                if bth.ack_request {
                    f.write_str(" ack?")?;
                }
                if op.has_reth() {
                    let r = &e.reth;
                    write!(f, " va={:#x} rkey={:#x} dma={}", r.addr, r.rkey, r.len)?;
                }
                if op.has_aeth() {
                    write!(f, " {:?} msn={}", e.aeth.syndrome, e.aeth.msn)?;
                }
                if op.has_imm() {
                    write!(f, " imm={:#x}", e.imm)?;
                }
                Ok(())
            }
            Err(ParseError::NotRoce) => match self.0 {
                [_, _, _, _, _, _, _, _, _, _, _, _, a, b, ..] => {
                    write!(f, "ethertype {a:02x}{b:02x}, {} bytes", self.0.len())
                }
                short => write!(f, "runt of {} bytes", short.len()),
            },
            Err(error) => write!(f, "{error}, {} bytes", self.0.len()),
        }
    }
}

/// Passes every frame on and reports it.
pub struct Tracer<L, F> {
    inner: L,
    sink: F,
}

/// The function that a tracer calls with time, port and frame.
pub type Sink = fn(Duration, usize, &[u8]);

impl<L: Link> Tracer<L, Sink> {
    /// Writes to the log, at level "trace".
    pub fn to_log(inner: L) -> Tracer<L, Sink> {
        Tracer {
            inner,
            sink: |now, from, frame| log::trace!("{now:?} port {from}: {}", Summary(frame)),
        }
    }
}

impl<L: Link, F: FnMut(Duration, usize, &[u8]) + Send> Tracer<L, F> {
    /// Calls `sink` with time, port and frame for every frame sent.
    pub fn new(inner: L, sink: F) -> Tracer<L, F> {
        Tracer { inner, sink }
    }

    /// The link inside.
    pub fn inner_mut(&mut self) -> &mut L {
        &mut self.inner
    }
}

impl<L: Link, F: FnMut(Duration, usize, &[u8]) + Send> Link for Tracer<L, F> {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        (self.sink)(now, from, frame);
        self.inner.send(from, frame, now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.inner.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.inner.next_arrival()
    }
}
