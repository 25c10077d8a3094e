//! An interface of IP over InfiniBand for a second IP stack, beside the host that finds neighbours: a device of [smoltcp]'s for
//! IP packets.
//!
//! ```no_run
//! use bareverbs_cm::rdma::{IpOverInfiniband, PacketSlot, RdmaError, Neighbours};
//! use bareverbs_core::Platform;
//! use smoltcp::iface::{Config, Interface, SocketSet};
//! use smoltcp::time::Instant;
//! use smoltcp::wire::HardwareAddress;
//!
//! /// Once `link` is up, which says how long packets may be.
//! fn interface<'s, P: Platform>(
//!     link: &mut IpOverInfiniband<'s, '_, P>,
//!     inbox: &'s mut [PacketSlot],
//!     outbox: &'s mut [PacketSlot],
//! ) -> Option<Interface> {
//!     link.share(inbox, outbox);
//!     let config = Config::new(HardwareAddress::Ip);
//!     Some(Interface::new(config, &mut link.port()?, Instant::ZERO))
//! }
//!
//! /// After each poll of the RDMA CM. What the stack writes leaves with the next poll, so that `link` is polled once more.
//! fn work<P: Platform>(
//!     interface: &mut Interface,
//!     sockets: &mut SocketSet<'_>,
//!     link: &mut IpOverInfiniband<'_, '_, P>,
//!     now: core::time::Duration,
//! ) -> Result<(), RdmaError> {
//!     if let Some(mut port) = link.port() {
//!         let now = Instant::from_micros(now.as_micros() as i64);
//!         interface.poll(now, &mut port, sockets);
//!     }
//!     link.poll(now)
//! }
//! ```
//!
//! [smoltcp]: https://docs.rs/smoltcp

use core::fmt;

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::storage::RingBuffer;
use smoltcp::time::Instant;

use crate::ipoib::HEADER_LEN;
use crate::ipoib::interface::PACKET;

/// The longest IP packet.
const LONGEST: usize = PACKET - HEADER_LEN;

/// Memory of one IP packet on its way to or from another stack.
#[derive(Clone)]
pub struct PacketSlot {
    length: usize,
    bytes: [u8; LONGEST],
}

impl PacketSlot {
    /// No packet.
    pub const EMPTY: Self = Self {
        length: 0,
        bytes: [0; LONGEST],
    };

    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The room for a packet of this length, up to that which a packet may have.
    fn resize(&mut self, length: usize) -> &mut [u8] {
        self.length = length.min(LONGEST);
        &mut self.bytes[..self.length]
    }
}

impl Default for PacketSlot {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for PacketSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketSlot({} bytes)", self.length)
    }
}

/// The part of another stack on an interface.
#[derive(Debug)]
pub(crate) struct Stack<'s> {
    inbox: RingBuffer<'s, PacketSlot>,
    outbox: RingBuffer<'s, PacketSlot>,
    /// Something was written since the outbox was last looked at.
    pub(crate) written: bool,
    pub(crate) unread: u64,
    pub(crate) unsent: u64,
}

impl<'s> Stack<'s> {
    pub(crate) fn new(inbox: &'s mut [PacketSlot], outbox: &'s mut [PacketSlot]) -> Self {
        Self {
            inbox: RingBuffer::new(inbox),
            outbox: RingBuffer::new(outbox),
            written: false,
            unread: 0,
            unsent: 0,
        }
    }

    /// Keeps a packet that was received.
    pub(crate) fn pass_on(&mut self, packet: &[u8]) {
        if packet.len() > LONGEST || !push(&mut self.inbox, packet) {
            self.unread += 1;
        }
    }

    /// Packets that are to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Takes the oldest of them, to the front of `packet`. Its length.
    pub(crate) fn take(&mut self, packet: &mut [u8]) -> Option<usize> {
        let slot = self.outbox.dequeue_one().ok()?;
        packet
            .get_mut(..slot.length)?
            .copy_from_slice(slot.packet());
        Some(slot.length)
    }

    /// Puts one back, behind the others: as long as all that were taken are put back, in their order.
    pub(crate) fn put_back(&mut self, packet: &[u8]) {
        push(&mut self.outbox, packet);
    }
}

/// Adds a packet that a slot has room for. Whether there is a slot.
fn push(packets: &mut RingBuffer<'_, PacketSlot>, packet: &[u8]) -> bool {
    let Ok(slot) = packets.enqueue_one() else {
        return false;
    };
    for (to, from) in slot.resize(packet.len()).iter_mut().zip(packet) {
        *to = *from;
    }
    true
}

/// The port that [`IpOverInfiniband::port`](crate::rdma::IpOverInfiniband::port) gives.
///
/// Packets arrive and leave when `IpOverInfiniband` is polled.
#[derive(Debug)]
pub struct IpPort<'a, 's> {
    stack: &'a mut Stack<'s>,
    mtu: usize,
}

impl<'a, 's> IpPort<'a, 's> {
    pub(crate) const fn new(stack: &'a mut Stack<'s>, mtu: usize) -> Self {
        Self { stack, mtu }
    }
}

impl<'s> phy::Device for IpPort<'_, 's> {
    type RxToken<'t>
        = IpRxToken<'t>
    where
        Self: 't;
    type TxToken<'t>
        = IpTxToken<'t, 's>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(IpRxToken<'_>, IpTxToken<'_, 's>)> {
        // What is received may have to be answered at once; as long as it cannot, it waits.
        if self.stack.outbox.is_full() {
            return None;
        }
        let slot = self.stack.inbox.dequeue_one().ok()?;
        let answer = IpTxToken {
            outbox: &mut self.stack.outbox,
            written: &mut self.stack.written,
        };
        Some((IpRxToken(slot.packet()), answer))
    }

    fn transmit(&mut self, _: Instant) -> Option<IpTxToken<'_, 's>> {
        (!self.stack.outbox.is_full()).then_some(IpTxToken {
            outbox: &mut self.stack.outbox,
            written: &mut self.stack.written,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

/// A packet that was received.
pub struct IpRxToken<'t>(&'t [u8]);

impl phy::RxToken for IpRxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl fmt::Debug for IpRxToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpRxToken({} bytes)", self.0.len())
    }
}

/// The memory for a packet to send.
#[derive(Debug)]
pub struct IpTxToken<'t, 's> {
    outbox: &'t mut RingBuffer<'s, PacketSlot>,
    written: &'t mut bool,
}

impl phy::TxToken for IpTxToken<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let Ok(slot) = self.outbox.enqueue_one() else {
            // There is no token while it is full.
            return f(&mut []);
        };
        *self.written = true;
        // Never longer than the capabilities say.
        let packet = slot.resize(length);
        // Bytes that are not written must not be another packet's.
        packet.fill(0);
        f(packet)
    }
}
