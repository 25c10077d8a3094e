//! The port's own resolver: an IP [host](crate::ip) on the port's Ethernet queue, and the GID table kept up to date
//! with its addresses.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::ethernet::FRAME_OVERHEAD;
use bareverbs_core::ethernet::phy::can_transmit;
use bareverbs_core::pd::Pd;
use bareverbs_core::{
    Device, EthernetInit, EthernetQueue, EthernetReceiveError, EthernetSendError,
    EthernetSendFlags, Gid, GidEntry, Platform, RoceVersion,
};

use crate::ip::{self, Event, Filter, Host};
use crate::rdma::port::shared::{Inbox, SharedPort};
use crate::rdma::resolver::{AddressChange, Neighbours, Resolution, Subnet};
use crate::rdma::types::error::RdmaError;

/// The size of a frame: all of the IP host's own messages, and echo requests of ordinary Ethernet.
const FRAME: usize = 1536;
/// Frames that one poll takes at most, so that a flood cannot block the caller.
const BURST: usize = 64;
/// Events that wait to be fetched.
const EVENTS: usize = 16;
/// Time between two looks for room in the GID table.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// Events of a poll for its owner.
type Events = heapless::Deque<Event, EVENTS>;

/// Finds neighbours by ARP and neighbour discovery over the port's Ethernet queue, and answers for the addresses that the
/// port is given.
///
/// An address that is [added](Self::add_address) gets its entry in the GID table as soon as no other host is known to
/// have it, and connections can be made from it and to it then. [`RdmaCm::poll`](crate::rdma::RdmaCm::poll) drives this as well;
/// without a manager, [`poll`](Neighbours::poll) does.
///
/// The queue takes the root of the function's receive steering and two of its CQ slots.
pub struct NeighbourDiscovery<'s, 'd, P: Platform> {
    host: Host<'s>,
    queue: EthernetQueue<'d, P>,
    device: &'d Device<'d, P>,
    roce_version: RoceVersion,
    armed: bool,
    /// When it looks for room for addresses that found the GID table full.
    room_at: Option<Duration>,
    events: Events,
    /// Frames for another stack, which the host does not use.
    inbox: Option<Inbox<'s>>,
    unread: u64,
}

impl<'s, 'd, P: Platform> NeighbourDiscovery<'s, 'd, P> {
    /// Starts to receive and answer. This sets the frame length; the rest of `init` is the caller's, where
    /// `max_groups` should allow one address for each group in `storage`.
    ///
    /// # Errors
    /// If the port is no Ethernet port, lacks what is needed, or has an Ethernet queue already.
    #[inline(never)]
    pub fn new(
        device: &'d Device<'d, P>,
        pd: &Pd<'d, P>,
        init: EthernetInit,
        config: ip::Config,
        storage: ip::Storage<'s>,
    ) -> Result<Self, RdmaError> {
        let mtu = usize::from(device.ethernet_mtu()?.current);
        let init = EthernetInit {
            frame_len: Some((mtu + FRAME_OVERHEAD).min(FRAME)),
            ..init
        };
        let queue = pd.create_ethernet_queue(&init)?;
        let host = Host::new(queue.mac(), config, storage);
        Ok(Self {
            host,
            queue,
            device,
            roce_version: RoceVersion::V2,
            armed: false,
            room_at: None,
            events: Events::new(),
            inbox: None,
            unread: 0,
        })
    }

    /// With addresses of RoCE v1 or v2: the manager connects and is found in that encapsulation alone. Version 2 if this is
    /// not called; it is called before addresses are added. (Linux chooses for the side that connects,
    /// `default_roce_mode`.)
    #[must_use]
    pub const fn with_roce_version(mut self, version: RoceVersion) -> Self {
        self.roce_version = version;
        self
    }

    /// Gives the port an address, whose first `prefix` bits all hosts on the link share, in a VLAN or outside any.
    ///
    /// # Errors
    /// If it is no address of a host, if it is there already, or if the storage is full. Where the GID table is full,
    /// [`RdmaError::Full`], here or from [`poll`](Neighbours::poll) when the address has been probed for: the address is kept,
    /// and gets its entry when there is room.
    pub fn add_address(
        &mut self,
        address: IpAddr,
        prefix: u8,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        let now = self.device.platform().now();
        self.host.add_address(now, address, prefix, vlan)?;
        self.poll(now)
    }

    /// Takes an address away, and its entry in the GID table. Connections that use it fail. The entry is free for another
    /// address once the QPs of these are destroyed or reset.
    ///
    /// # Errors
    /// If it is not there, or if the firmware refuses.
    pub fn remove_address(&mut self, address: IpAddr, vlan: Option<u16>) -> Result<(), RdmaError> {
        let now = self.device.platform().now();
        self.host.remove_address(now, address, vlan)?;
        self.drop_gid(address, vlan)?;
        self.room_at = self.room_at.map(|_| now);
        self.poll(now)
    }

    /// Waits until each address that was added is the port's, or known to be another host's. An optimistic one is the port's at
    /// once. The time until `deadline` is for one step of probing, and begins anew with each: a caller that is late sends its
    /// probes late.
    ///
    /// # Errors
    /// [`RdmaError::AddressInUse`] if another machine has one; [`RdmaError::Full`] if the GID table has no room for one; if
    /// a step takes longer; if the device fails.
    pub fn wait_for_addresses(&mut self, mut deadline: Duration) -> Result<(), RdmaError> {
        let patience = deadline.saturating_sub(self.device.platform().now());
        let mut left = self.host.probing();
        loop {
            let now = self.device.platform().now();
            self.poll(now)?;
            let probing = self.host.probing();
            if probing < left {
                left = probing;
                deadline = now.saturating_add(patience);
            }
            while let Some(event) = self.events.pop_front() {
                if let Event::AddressDuplicate { address, mac, .. } = event {
                    return Err(RdmaError::AddressInUse { address, mac });
                }
            }
            if probing == 0 {
                return match self.room_at {
                    Some(_) => Err(self.no_room()),
                    None => Ok(()),
                };
            }
            if now >= deadline {
                return Err(RdmaError::TimedOut);
            }
            let until = self.next_deadline().map_or(deadline, |at| at.min(deadline));
            self.queue.wait(until)?;
        }
    }

    /// The next event of an address or a neighbour, oldest first. The latest are kept if they are not fetched, and those of
    /// addresses before those of neighbours, of which there may be many at once.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Lets another IP stack work on the port beside this one, which finds in `inbox` the frames that this one does not
    /// answer: everything but questions for addresses that were added here, and echo requests to these. See
    /// [`port`](Self::port).
    pub fn share(&mut self, inbox: Inbox<'s>) {
        self.inbox = Some(inbox);
    }

    /// The port, for the other stack, and a buffer for a frame that it sends. The device of an `Interface` of
    /// smoltcp's, which may have the addresses that were added here: their neighbours are found twice, and questions
    /// answered once. Until the port is [shared](Self::share) nothing is received there.
    pub fn port<'a>(&'a mut self, sent: &'a mut [u8]) -> SharedPort<'a, 's, 'd, P> {
        SharedPort::new(&mut self.queue, self.inbox.as_mut(), sent)
    }

    /// Frames that were dropped because the other stack's inbox was full.
    pub const fn unread(&self) -> u64 {
        self.unread
    }

    /// The host: routes, groups, counters.
    pub const fn host(&mut self) -> &mut Host<'s> {
        &mut self.host
    }

    /// The queue, whose counters show what was lost.
    pub const fn queue(&self) -> &EthernetQueue<'d, P> {
        &self.queue
    }

    /// Takes what has arrived.
    fn receive(&mut self, now: Duration) -> Result<(), RdmaError> {
        let mut frame = [0; FRAME];
        let mut reply = [0; FRAME];
        for _ in 0..BURST {
            let received = self.queue.receive_half().receive();
            let received = received.map(|received| received.map(|it| it.copy_to(&mut frame)));
            let length = match received {
                Ok(Some(length)) => length,
                Ok(None) => return Ok(()),
                Err(error @ EthernetReceiveError::Failed(_)) => {
                    log::warn!("{error}: starting again");
                    return Ok(self.queue.recover()?);
                }
                Err(error) => return Err(RdmaError::EthernetReceive(error)),
            };
            match self.host.receive(now, &frame[..length], &mut reply) {
                Some(length) if length <= self.queue.frame_len() => self.send(&reply[..length])?,
                Some(_) => {}
                None => self.pass_on(&frame[..length]),
            }
        }
        Ok(())
    }

    /// Keeps a frame for the other stack, if there is one.
    fn pass_on(&mut self, frame: &[u8]) {
        let Some(inbox) = &mut self.inbox else {
            return;
        };
        match inbox.enqueue(frame.len(), ()) {
            Ok(buffer) => buffer.copy_from_slice(frame),
            Err(_) => self.unread += 1,
        }
    }

    /// Sends what is due. A frame that does not fit into the queue is lost, as frames may be on the link, and repeated
    /// later.
    fn send(&mut self, frame: &[u8]) -> Result<(), RdmaError> {
        let sent = self
            .queue
            .send_half()
            .send(frame, EthernetSendFlags::empty());
        match sent {
            Ok(_) | Err(EthernetSendError::Full { .. }) => Ok(()),
            Err(error @ EthernetSendError::Failed(_)) => {
                log::warn!("{error}: starting again");
                Ok(self.queue.recover()?)
            }
            Err(error) => Err(RdmaError::EthernetSend(error)),
        }
    }

    /// Returns `true` if the queue can take a frame, or has failed: sending reports the error.
    fn can_transmit(&mut self) -> bool {
        let mut failed = None;
        can_transmit(&mut self.queue, &mut failed) || failed.is_some()
    }

    fn act(&mut self, now: Duration, event: Event) -> Result<(), RdmaError> {
        match event {
            Event::AddressReady { address, vlan } => {
                let entered = self.enter_gid(address, vlan);
                match entered {
                    Err(RdmaError::Full { .. }) => {
                        self.room_at = Some(now.saturating_add(NO_ROOM_WAIT));
                    }
                    Err(_) => self.host.refuse(address, vlan),
                    Ok(()) => {}
                }
                entered?;
            }
            // The manager asks for it (`next_change`).
            Event::NeighbourChanged { .. } => {}
            // Ids hear nothing: the entry of a neighbour that does not answer keeps its address in Linux (net/core/neighbour.c),
            // and `cma_netevent_callback` compares addresses.
            Event::NeighbourLost { .. } => {}
            Event::AddressDuplicate { address, .. } | Event::AddressConflict { address, .. } => {
                log::warn!("{address} is claimed by another machine");
            }
        }
        self.keep(event);
        #[cfg(feature = "optimistic-addresses")]
        if let Event::AddressDuplicate { address, vlan, .. } = event {
            self.drop_gid(address, vlan)?;
        }
        Ok(())
    }

    /// Keeps an event, in place of the oldest of a neighbour if there is no room, or else of the oldest.
    fn keep(&mut self, event: Event) {
        if self.events.is_full() {
            let of_neighbour = |event: &Event| {
                matches!(
                    event,
                    Event::NeighbourChanged { .. } | Event::NeighbourLost { .. }
                )
            };
            let mut dropped = self.events.iter().position(of_neighbour).unwrap_or(0);
            self.events.retain(|_| {
                let stays = dropped != 0;
                dropped = dropped.wrapping_sub(1);
                stays
            });
        }
        let _ = self.events.push_back(event);
    }

    fn enter_gid(&self, address: IpAddr, vlan: Option<u16>) -> Result<(), RdmaError> {
        let gid = Gid::from(address);
        if self
            .device
            .find_gid(&gid, self.roce_version, vlan)
            .is_some()
        {
            return Ok(());
        }
        let index = self.device.free_gid_index().ok_or_else(|| self.no_room())?;
        let entry = GidEntry {
            version: self.roce_version,
            vlan,
            ..GidEntry::roce_v2(gid, self.host.mac())
        };
        Ok(self.device.set_gid(index, entry)?)
    }

    fn no_room(&self) -> RdmaError {
        RdmaError::Full {
            what: "GIDs",
            capacity: self.device.gid_table_len(),
        }
    }

    /// Enters the addresses that found the GID table full, as far as there is room now. One that is refused does not keep the
    /// others from their entries, and is not tried again.
    ///
    /// # Errors
    /// The refusal of the last one that was refused.
    fn enter_late(&mut self, now: Duration) -> Result<(), RdmaError> {
        self.room_at = None;
        let mut entered = Ok(());
        loop {
            let missing = |(address, vlan): &(IpAddr, Option<u16>)| {
                let gid = Gid::from(*address);
                let found = self.device.find_gid(&gid, self.roce_version, *vlan);
                found.is_none()
            };
            let Some((address, vlan)) = self.host.accepted().find(missing) else {
                return entered;
            };
            if self.device.free_gid_index().is_none() {
                self.room_at = Some(now.saturating_add(NO_ROOM_WAIT));
                return entered;
            }
            if let Err(error) = self.act(now, Event::AddressReady { address, vlan }) {
                entered = Err(error);
            }
        }
    }

    fn drop_gid(&self, address: IpAddr, vlan: Option<u16>) -> Result<(), RdmaError> {
        let gid = Gid::from(address);
        match self.device.find_gid(&gid, self.roce_version, vlan) {
            Some(index) => Ok(self.device.del_gid(index)?),
            None => Ok(()),
        }
    }
}

impl<P: Platform> Subnet for NeighbourDiscovery<'_, '_, P> {}

impl<P: Platform> Neighbours for NeighbourDiscovery<'_, '_, P> {
    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        self.host.resolve(now, source, destination)
    }

    fn resolve_unknown_host(
        &mut self,
        now: Duration,
        source: IpAddr,
        destination: IpAddr,
    ) -> Resolution {
        self.host.resolve_unknown_host(now, source, destination)
    }

    fn roce_version(&self) -> RoceVersion {
        self.roce_version
    }

    fn other_vlan(&self) -> Option<u16> {
        self.host.other_vlan()
    }

    fn has_route(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.host.has_route(source, destination)
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        self.host.source_for(destination)
    }

    fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        self.host.join_group(now, group, vlan)?;
        self.poll(now)
    }

    fn leave_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        self.host.leave_group(now, group, vlan)?;
        self.poll(now)
    }

    fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        loop {
            self.receive(now)?;
            while let Some(filter) = self.host.poll_filter() {
                match filter {
                    Filter::Join(mac) => self.queue.join(mac)?,
                    Filter::Leave(mac) => self.queue.leave(mac)?,
                }
            }
            let mut frame = [0; ip::FRAME_MIN];
            // No more at once than answers are taken at once; what does not fit into the queue stays due.
            for _ in 0..BURST {
                if !self.can_transmit() {
                    break;
                }
                let Some(length) = self.host.poll_transmit(now, &mut frame) else {
                    break;
                };
                self.send(&frame[..length])?;
            }
            while let Some(event) = self.host.poll_event() {
                self.act(now, event)?;
            }
            if self.room_at.is_some_and(|at| at <= now) {
                self.enter_late(now)?;
            }
            // An interrupt reports only frames that come after it was armed, so that earlier ones have to be looked
            // for.
            let interrupts = self.device.config().interrupts;
            let receive = self.queue.receive_half();
            let arm = interrupts && (receive.take_event() || !self.armed);
            if !arm {
                return Ok(());
            }
            receive.arm();
            self.armed = true;
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        let deadlines = [self.host.next_deadline(), self.room_at];
        deadlines.into_iter().flatten().min()
    }

    fn next_change(&mut self) -> Option<AddressChange> {
        let (address, vlan, mac) = self.host.next_moved()?;
        Some(AddressChange { address, vlan, mac })
    }
}

impl<P: Platform> fmt::Debug for NeighbourDiscovery<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NeighbourDiscovery")
            .field("host", &self.host)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
