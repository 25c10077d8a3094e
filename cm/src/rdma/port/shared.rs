//! The port's Ethernet queue for a second IP stack, beside the one that finds neighbours: a device of [smoltcp]'s.
//!
//! ```no_run
//! use bareverbs_cm::rdma::NeighbourDiscovery;
//! use bareverbs_core::Platform;
//! use smoltcp::iface::{Config, Interface, SocketSet};
//! use smoltcp::time::Instant;
//! use smoltcp::wire::EthernetAddress;
//!
//! fn interface<P: Platform>(neighbours: &mut NeighbourDiscovery<'_, '_, P>) -> Interface {
//!     let config = Config::new(EthernetAddress(neighbours.queue().mac()).into());
//!     let mut sent = [0; 1514];
//!     Interface::new(config, &mut neighbours.port(&mut sent), Instant::ZERO)
//! }
//!
//! /// After each poll of the RDMA CM, or of `neighbours` if there is none.
//! fn work<P: Platform>(
//!     interface: &mut Interface,
//!     sockets: &mut SocketSet<'_>,
//!     neighbours: &mut NeighbourDiscovery<'_, '_, P>,
//!     now: core::time::Duration,
//! ) {
//!     let mut sent = [0; 1514];
//!     let now = Instant::from_micros(now.as_micros() as i64);
//!     interface.poll(now, &mut neighbours.port(&mut sent), sockets);
//! }
//! ```
//!
//! [smoltcp]: https://docs.rs/smoltcp

use core::fmt;

use bareverbs_core::ethernet::phy::{PhyError, RxToken, TxToken, can_transmit};
use bareverbs_core::ethernet::{FRAME_OVERHEAD, HEADER_LEN};
use bareverbs_core::{EthernetQueue, EthernetSendFlags, Platform};
use smoltcp::phy::{Device, DeviceCapabilities, Medium};
use smoltcp::storage::PacketBuffer;
use smoltcp::time::Instant;

/// Frames that wait for the other stack.
pub type Inbox<'s> = PacketBuffer<'s, ()>;

/// A port for another IP stack, from [`NeighbourDiscovery::port`](crate::rdma::NeighbourDiscovery::port).
///
/// Frames arrive when `NeighbourDiscovery` is polled. A send queue that the device stops is set going again when smoltcp
/// looks for space there.
pub struct SharedPort<'a, 's, 'd, P: Platform> {
    queue: &'a mut EthernetQueue<'d, P>,
    inbox: Option<&'a mut Inbox<'s>>,
    sent: &'a mut [u8],
    error: Option<PhyError>,
}

impl<'a, 's, 'd, P: Platform> SharedPort<'a, 's, 'd, P> {
    pub(crate) fn new(
        queue: &'a mut EthernetQueue<'d, P>,
        inbox: Option<&'a mut Inbox<'s>>,
        sent: &'a mut [u8],
    ) -> Self {
        Self {
            queue,
            inbox,
            sent,
            error: None,
        }
    }

    /// The last error since the last call, which smoltcp cannot report.
    pub fn take_error(&mut self) -> Option<PhyError> {
        self.error.take()
    }
}

impl<'d, P: Platform> Device for SharedPort<'_, '_, 'd, P> {
    type RxToken<'t>
        = RxToken<'t>
    where
        Self: 't;
    type TxToken<'t>
        = TxToken<'t, 'd, P>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_, 'd, P>)> {
        // What is received may have to be answered at once; as long as it cannot, it waits.
        if !can_transmit(self.queue, &mut self.error) {
            return None;
        }
        let ((), frame) = self.inbox.as_deref_mut()?.dequeue().ok()?;
        let none = EthernetSendFlags::empty();
        let send = self.queue.send_half();
        let answer = TxToken::new(send, self.sent, none, &mut self.error);
        Some((RxToken::new(frame), answer))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_, 'd, P>> {
        can_transmit(self.queue, &mut self.error).then(|| {
            let none = EthernetSendFlags::empty();
            TxToken::new(self.queue.send_half(), self.sent, none, &mut self.error)
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        // smoltcp writes no VLAN tags, so none has to fit.
        let frame = self.queue.frame_len() - (FRAME_OVERHEAD - HEADER_LEN);
        capabilities.max_transmission_unit = frame.min(self.sent.len());
        capabilities
    }
}

impl<P: Platform> fmt::Debug for SharedPort<'_, '_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPort")
            .field("queue", &self.queue)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
