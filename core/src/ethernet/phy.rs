//! The Ethernet queue as a device of [smoltcp]'s: TCP/IP beside RDMA on the same port.
//!
//! smoltcp works on slices, and Rust must hold no slice of memory that the device can write, so frames are copied through
//! two buffers of the caller's.
//!
//! ```no_run
//! use bareverbs_core::ethernet::phy::Phy;
//! use bareverbs_core::{EthernetQueue, Platform};
//! use smoltcp::iface::{Config, Interface};
//! use smoltcp::time::Instant;
//! use smoltcp::wire::EthernetAddress;
//!
//! fn interface<P: Platform>(queue: &mut EthernetQueue<'_, P>) -> Interface {
//!     let config = Config::new(EthernetAddress(queue.mac()).into());
//!     let (mut received, mut sent) = ([0; 1518], [0; 1518]);
//!     let mut phy = Phy::new(queue, &mut received, &mut sent);
//!     Interface::new(config, &mut phy, Instant::ZERO)
//! }
//! ```

use core::fmt;

use ::smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use ::smoltcp::time::Instant;

use crate::ethernet::error::{EthernetError, EthernetReceiveError, EthernetSendError};
use crate::ethernet::offload::EthernetSendFlags;
use crate::ethernet::queue::EthernetQueue;
use crate::ethernet::recv::EthernetReceive;
use crate::ethernet::send::EthernetSend;
use crate::platform::Platform;

/// The failure while smoltcp was at work, which has no way to say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhyError {
    /// A frame was not sent.
    Send(EthernetSendError),
    /// Nothing can be received.
    Receive(EthernetReceiveError),
    /// A queue that the device had stopped could not be set going again.
    Recover(EthernetError),
}

impl fmt::Display for PhyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(error) => error.fmt(f),
            Self::Receive(error) => error.fmt(f),
            Self::Recover(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PhyError {}

/// Polls the send half, and recovers the queue if the device has stopped it. Returns whether a frame can be sent.
pub fn can_transmit<P: Platform>(
    queue: &mut EthernetQueue<'_, P>,
    error: &mut Option<PhyError>,
) -> bool {
    let (send, receive) = queue.split();
    halves_can_transmit(send, receive, error)
}

fn halves_can_transmit<P: Platform>(
    send: &mut EthernetSend<'_, P>,
    receive: &mut EthernetReceive<'_, P>,
    error: &mut Option<PhyError>,
) -> bool {
    if let Err(failed) = send.poll() {
        *error = Some(PhyError::Send(failed));
        return false;
    }
    let mut recovered = Ok(());
    if send.failure().is_some() {
        recovered = send.recover();
    }
    if recovered.is_ok() && receive.failure().is_some() {
        recovered = receive.recover();
    }
    if let Err(failed) = recovered {
        *error = Some(PhyError::Recover(failed));
        return false;
    }
    send.free() > 0
}

/// An [`EthernetQueue`], or one pair of queues of an [`EthernetDomain`](super::EthernetDomain), for an `Interface` of
/// smoltcp's. With several pairs, each has an interface and a stack of its own, on a thread of its own if wanted; all have the
/// same addresses, and rules and hash say which flows come to which.
///
/// A queue that the device stops is recovered, once for each time that it is polled; see
/// [`take_error`](Self::take_error).
pub struct Phy<'q, 'd, P: Platform> {
    send: &'q mut EthernetSend<'d, P>,
    receive: &'q mut EthernetReceive<'d, P>,
    received: &'q mut [u8],
    sent: &'q mut [u8],
    flags: EthernetSendFlags,
    error: Option<PhyError>,
    truncated: u64,
}

impl<'q, 'd, P: Platform> Phy<'q, 'd, P> {
    /// The queue, and memory for one frame in each direction. The shorter of the two and the queue's frames limits the
    /// MTU.
    pub fn new(
        queue: &'q mut EthernetQueue<'d, P>,
        received: &'q mut [u8],
        sent: &'q mut [u8],
    ) -> Self {
        let (send, receive) = queue.split();
        Self::of_halves(send, receive, received, sent)
    }

    /// Creates it like [`new`](Self::new), with one pair of several.
    pub fn of_halves(
        send: &'q mut EthernetSend<'d, P>,
        receive: &'q mut EthernetReceive<'d, P>,
        received: &'q mut [u8],
        sent: &'q mut [u8],
    ) -> Self {
        Self {
            send,
            receive,
            received,
            sent,
            flags: EthernetSendFlags::empty(),
            error: None,
            truncated: 0,
        }
    }

    /// Lets the device fill in the checksums of IPv4, TCP and UDP that smoltcp would, if it can.
    #[must_use]
    pub fn with_checksums(mut self) -> Self {
        if self.send.has_checksums() {
            self.flags = EthernetSendFlags::OUTER;
        }
        self
    }

    /// The halves of the queue.
    pub fn halves(&mut self) -> (&mut EthernetSend<'d, P>, &mut EthernetReceive<'d, P>) {
        (self.send, self.receive)
    }

    /// The last error since the last call.
    pub fn take_error(&mut self) -> Option<PhyError> {
        self.error.take()
    }

    /// Frames that were longer than their buffer, and dropped.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Copies the next frame to the buffer for it, and returns its length.
    fn take_frame(&mut self) -> Option<usize> {
        loop {
            match self.receive.receive() {
                Ok(None) => return None,
                Ok(Some(frame)) if frame.len() <= self.received.len() => {
                    return Some(frame.copy_to(self.received));
                }
                Ok(Some(_)) => self.truncated += 1,
                Err(error) => {
                    self.error = Some(PhyError::Receive(error));
                    return None;
                }
            }
        }
    }
}

impl<'d, P: Platform> phy::Device for Phy<'_, 'd, P> {
    type RxToken<'a>
        = RxToken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = TxToken<'a, 'd, P>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_, 'd, P>)> {
        // What is received may have to be answered at once; as long as it cannot, it waits in the queue.
        if !halves_can_transmit(self.send, self.receive, &mut self.error) {
            return None;
        }
        let length = self.take_frame()?;
        let received = RxToken(&self.received[..length]);
        let answer = TxToken {
            send: self.send,
            buffer: self.sent,
            flags: self.flags,
            error: &mut self.error,
        };
        Some((received, answer))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_, 'd, P>> {
        halves_can_transmit(self.send, self.receive, &mut self.error).then_some(TxToken {
            send: self.send,
            buffer: self.sent,
            flags: self.flags,
            error: &mut self.error,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        // smoltcp writes no VLAN tags, so none has to fit.
        let frame = self.send.frame_len() - (super::FRAME_OVERHEAD - super::HEADER_LEN);
        capabilities.max_transmission_unit = frame.min(self.received.len()).min(self.sent.len());
        let mut checksums = ChecksumCapabilities::default();
        if !self.flags.is_empty() {
            checksums.ipv4 = Checksum::Rx;
            checksums.tcp = Checksum::Rx;
            checksums.udp = Checksum::Rx;
        }
        capabilities.checksum = checksums;
        capabilities
    }
}

/// A frame that was received.
pub struct RxToken<'a>(&'a [u8]);

impl<'a> RxToken<'a> {
    /// A frame that another stack has fetched.
    #[must_use]
    pub const fn new(frame: &'a [u8]) -> Self {
        Self(frame)
    }
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// The buffer for a frame to send.
pub struct TxToken<'a, 'd, P: Platform> {
    send: &'a mut EthernetSend<'d, P>,
    buffer: &'a mut [u8],
    flags: EthernetSendFlags,
    error: &'a mut Option<PhyError>,
}

impl<'a, 'd, P: Platform> TxToken<'a, 'd, P> {
    /// The buffer for a frame, and for the error when it is sent.
    pub const fn new(
        send: &'a mut EthernetSend<'d, P>,
        buffer: &'a mut [u8],
        flags: EthernetSendFlags,
        error: &'a mut Option<PhyError>,
    ) -> Self {
        Self {
            send,
            buffer,
            flags,
            error,
        }
    }
}

impl<P: Platform> phy::TxToken for TxToken<'_, '_, P> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        // Never longer than the capabilities say, which is how long the buffer is at least.
        let length = length.min(self.buffer.len());
        let frame = &mut self.buffer[..length];
        // Bytes that are not written must not be another frame's.
        frame.fill(0);
        let result = f(frame);
        if let Err(error) = self.send.send(frame, self.flags) {
            *self.error = Some(PhyError::Send(error));
        }
        result
    }
}

impl<P: Platform> fmt::Debug for Phy<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phy")
            .field("send", &self.send)
            .field("receive", &self.receive)
            .field("flags", &self.flags)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RxToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RxToken({} bytes)", self.0.len())
    }
}

impl<P: Platform> fmt::Debug for TxToken<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxToken").finish_non_exhaustive()
    }
}
