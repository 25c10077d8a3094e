//! The queue as a whole: made, changed, taken down.

use core::fmt;
use core::time::Duration;

use crate::device::Device;
use crate::ethernet::FRAME_OVERHEAD;
use crate::ethernet::compression::FrameCompression;
use crate::ethernet::error::EthernetError;
use crate::ethernet::limits::Limits;
use crate::ethernet::objects::Object;
use crate::ethernet::recv::EthernetReceive;
use crate::ethernet::send::EthernetSend;
use crate::ethernet::steering::{Root, Steering};
use crate::platform::Platform;
use crate::types::error::{CommandError, DeviceError};
use crate::types::gid::Mac;
use crate::verbs::pd::Pd;

/// More than the largest frame of a port.
const MAX_FRAME: usize = 1 << 14;

/// The attributes of a new Ethernet queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetInit {
    /// Frames that can be under way to the cable; rounded up to a power of two.
    pub send_frames: u32,
    /// Frames that can wait to be received; rounded up to a power of two. What comes beyond them is dropped.
    pub recv_frames: u32,
    /// Bytes of the longest frame, with header and VLAN tags and without check sequence; what the port's MTU makes of
    /// it if `None`.
    pub frame_len: Option<usize>,
    /// Multicast addresses that can be joined at a time. Of no meaning for the queues of an
    /// [`EthernetDomain`](super::EthernetDomain), where a [`FlowTable`](super::FlowTable) says what comes to them.
    pub max_groups: u32,
    /// Takes a VLAN tag (0x8100) out of each frame that is received: [`ReceivedFrame::vlan`](super::ReceivedFrame::vlan).
    /// Needs `vlan_cap`.
    pub strip_vlan: bool,
    /// The completion vector (hence interrupt) that the events use, modulo their number.
    pub comp_vector: u16,
    /// The compression of receive completions by the device: less traffic on PCIe for bursts of frames.
    pub compression: FrameCompression,
}

impl Default for EthernetInit {
    fn default() -> Self {
        Self {
            send_frames: 64,
            recv_frames: 256,
            frame_len: None,
            max_groups: 64,
            strip_vlan: false,
            comp_vector: 0,
            compression: FrameCompression::OFF,
        }
    }
}

impl EthernetInit {
    /// Bytes of the longest frame.
    pub(super) fn longest_frame<P: Platform>(
        &self,
        device: &Device<'_, P>,
    ) -> Result<usize, EthernetError> {
        frame_len(device, self.frame_len)
    }
}

/// Bytes of the longest frame: as asked for, or what the port's MTU makes of it.
pub(super) fn frame_len<P: Platform>(
    device: &Device<'_, P>,
    asked: Option<usize>,
) -> Result<usize, EthernetError> {
    let frame_len = match asked {
        Some(length) => length,
        None => usize::from(device.ethernet_mtu()?.current) + FRAME_OVERHEAD,
    };
    if !(FRAME_OVERHEAD..=MAX_FRAME).contains(&frame_len) {
        return Err(EthernetError::Size {
            field: "frame_len",
            asked: frame_len as u64,
            limit: MAX_FRAME as u64,
        });
    }
    Ok(frame_len)
}

/// A send queue and a receive queue of whole frames. Destroyed when dropped.
///
/// It needs no [`Pd`] to outlive it as far as the compiler is concerned; a domain that is dropped before stays with the
/// device until that is closed.
pub struct EthernetQueue<'d, P: Platform> {
    // In the order in which they have to go: references before their targets.
    steering: Steering<'d, P>,
    tir: Object<'d, P>,
    receive: EthernetReceive<'d, P>,
    send: EthernetSend<'d, P>,
    domain: Object<'d, P>,
    mac: Mac,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates the function's Ethernet queue, which receives from then on.
    ///
    /// # Errors
    /// [`EthernetError`] says what the port lacks, which size does not go, or what the firmware refused; nothing is
    /// left of the attempt then.
    pub fn create_ethernet_queue(
        &self,
        init: &EthernetInit,
    ) -> Result<EthernetQueue<'d, P>, EthernetError> {
        let device = self.device();
        let limits = Limits::query(device)?;
        let root = Root::take(device)?;
        let frame_len = init.longest_frame(device)?;
        let mac = device.mac()?;
        if mac == [0; 6] {
            return Err(EthernetError::NoMac);
        }
        let vector = init.comp_vector;
        let domain = Object::transport_domain(device)?;
        let send =
            EthernetSend::create(self, &limits, &domain, init.send_frames, frame_len, vector)?;
        let receive = EthernetReceive::create(self, &limits, init, frame_len)?;
        let tir = Object::tir(device, domain.number(), receive.rqn())?;
        let steering = Steering::create(root, &limits, tir.number(), mac, init.max_groups)?;
        Ok(EthernetQueue {
            steering,
            tir,
            receive,
            send,
            domain,
            mac,
        })
    }
}

impl<'d, P: Platform> EthernetQueue<'d, P> {
    /// The port's address, which the queue receives for and frames should come from.
    #[must_use]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Bytes of the longest frame, with header and VLAN tags and without check sequence.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.send.frame_len()
    }

    /// The send half.
    pub fn send_half(&mut self) -> &mut EthernetSend<'d, P> {
        &mut self.send
    }

    /// The receive half.
    pub fn receive_half(&mut self) -> &mut EthernetReceive<'d, P> {
        &mut self.receive
    }

    /// Both halves, for two threads or to answer what was received.
    pub fn split(&mut self) -> (&mut EthernetSend<'d, P>, &mut EthernetReceive<'d, P>) {
        (&mut self.send, &mut self.receive)
    }

    /// Receives frames to a multicast address, too. What is joined twice has to be left twice.
    ///
    /// # Errors
    /// If it is no multicast address, if there are as many as the queue was created for, or if the firmware refuses.
    pub fn join(&mut self, group: Mac) -> Result<(), EthernetError> {
        self.steering.join(group)
    }

    /// Undoes one [`join`](Self::join).
    ///
    /// # Errors
    /// If it was not joined, or if the firmware refuses.
    pub fn leave(&mut self, group: Mac) -> Result<(), EthernetError> {
        self.steering.leave(group)
    }

    /// Receives all multicast frames, or only those that were joined.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn set_all_multicast(&mut self, on: bool) -> Result<(), EthernetError> {
        self.steering.set_all_multicast(on)
    }

    /// Receives all frames that come to the port, except for RoCE.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<(), EthernetError> {
        self.steering.set_promiscuous(on)
    }

    /// Sets both halves going again after the device has stopped one of them. Frames under way are lost.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn recover(&mut self) -> Result<(), EthernetError> {
        if self.send.failure().is_some() {
            self.send.recover()?;
        }
        if self.receive.failure().is_some() {
            self.receive.recover()?;
        }
        Ok(())
    }

    /// Waits for a frame: [`EthernetReceive::wait`].
    ///
    /// # Errors
    /// If the device no longer works.
    pub fn wait(&mut self, deadline: Duration) -> Result<bool, DeviceError> {
        self.receive.wait(deadline)
    }

    /// Destroys it, as dropping does, and returns the first refusal of the firmware. What it has refused stays with it
    /// until the device is closed, together with the memory that it may use.
    ///
    /// # Errors
    /// The firmware's first refusal.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        // Each goes on where the one before was refused.
        let steering = self.steering.destroy();
        let tir = self.tir.destroy();
        let receive = self.receive.destroy();
        let send = self.send.destroy();
        let domain = self.domain.destroy();
        steering.and(tir).and(receive).and(send).and(domain)
    }
}

impl<P: Platform> fmt::Debug for EthernetQueue<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetQueue")
            .field("mac", &self.mac)
            .field("send", &self.send)
            .field("receive", &self.receive)
            .finish_non_exhaustive()
    }
}
