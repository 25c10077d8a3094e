//! The resolver of InfiniBand ports with IP addresses: an IP [host](crate::ip) on a datagram QP (RFC 4391, RFC 4392), over
//! paths and groups of subnet administration.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use bareverbs_core::ah::AhAttr;
use bareverbs_core::pd::Pd;
use bareverbs_core::{Device, Gid, Platform, PortState};

use crate::ip::{self, Host};
use crate::ipoib::interface::{Interface, PACKET, Target};
use crate::ipoib::stack::{IpPort, PacketSlot, Stack};
use crate::ipoib::{self, HardwareAddress, Link, PeerSlot, To, broadcast_group, group};
use crate::mad::MAD_LEN;
use crate::mad::sa::{JoinState, McMemberRecord, PathRecord, SaRedirection};
use crate::rdma::resolver::subnet::SubnetAdministration;
use crate::rdma::resolver::{
    Attempt, Membership, Neighbour, Neighbours, PathQuery, Resolution, Subnet,
};
use crate::rdma::types::error::RdmaError;

/// Frames that one poll takes at most, so that a flood cannot block the caller.
const BURST: usize = 64;
/// Groups that the interface is in, that of all interfaces among them.
const GROUPS: usize = 32;
/// The time that an answer about a group may take, and how long to wait after a refusal, or for the port.
const JOIN: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(1);
const MULTICAST_QPN: u32 = 0xff_ffff;
const PKEY_BASE: u16 = 0x7fff;
const FULL_MEMBER: u16 = 0x8000;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// A packet of the largest MTU with an Ethernet header in place of its own, and larger addresses.
const FRAME: usize = PACKET + 64;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Standing {
    /// To be joined from then on.
    Outside {
        from: Duration,
    },
    Joining,
    In(McMemberRecord),
}

/// A group of the interface; that of all interfaces has no IP address here.
#[derive(Debug, Clone, Copy)]
struct Group {
    ip: Option<IpAddr>,
    membership: Membership,
    standing: Standing,
    attached: bool,
}

/// Finds neighbours by ARP and neighbour discovery over a datagram QP, and answers for the addresses that the port is given;
/// paths to them come from subnet administration, as for GIDs.
///
/// It is in one partition, as Linux's interfaces and their children are, and has a place in its links as soon as the port's
/// table has the partition. It works when the port is in the partition's group of all interfaces (`ipoib` in OpenSM's list of
/// partitions), which says what Q_Key and MTU there are. A [`RdmaCm`](crate::rdma::RdmaCm) drives it, whose QP1 it asks through.
pub struct IpOverInfiniband<'s, 'd, P: Platform> {
    host: Host<'s>,
    link: Link<'s>,
    interface: Interface<'d, P>,
    subnet: SubnetAdministration<'s>,
    device: &'d Device<'d, P>,
    pkey: u16,
    groups: heapless::Vec<Group, GROUPS>,
    /// The port is to be looked at from then on; `None` while it is active.
    look: Option<Duration>,
    /// The longest IP packet, as the group of all interfaces has it.
    mtu: usize,
    /// Another stack's packets.
    stack: Option<Stack<'s>>,
    packet: [u8; PACKET],
    frame: [u8; FRAME],
    reply: [u8; FRAME],
}

impl<'s, 'd, P: Platform> IpOverInfiniband<'s, 'd, P> {
    /// An interface in a partition, 0xffff for the default one, without addresses. The port need not be in it yet; whether it is
    /// a full or a limited member there is the table's matter, not `pkey`'s.
    ///
    /// # Errors
    /// If the port is no InfiniBand port, if there is no such partition (0, 0x8000), or if the device fails.
    #[inline(never)]
    pub fn new(
        device: &'d Device<'d, P>,
        pd: &Pd<'d, P>,
        pkey: u16,
        config: ip::Config,
        storage: ip::Storage<'s>,
        peers: &'s mut [PeerSlot],
        subnet: SubnetAdministration<'s>,
    ) -> Result<Self, RdmaError> {
        if pkey & PKEY_BASE == 0 {
            return Err(RdmaError::NoSuchPartition(pkey));
        }
        let pkey = pkey | FULL_MEMBER;
        let interface = Interface::new(device, pd)?;
        let own = HardwareAddress {
            qpn: interface.qpn(),
            gid: device.query_infiniband_gid(0)?.0,
        };
        let link = Link::new(own, pkey, peers);
        Ok(Self {
            host: Host::new(link.mac(), config, storage),
            link,
            interface,
            subnet,
            device,
            pkey,
            groups: heapless::Vec::new(),
            look: Some(Duration::ZERO),
            mtu: 0,
            stack: None,
            packet: [0; PACKET],
            frame: [0; FRAME],
            reply: [0; FRAME],
        })
    }

    /// Gives the port an address, whose first `prefix` bits all hosts on the link share.
    ///
    /// # Errors
    /// If it is no address of a host, if it is there already, or if the storage is full.
    pub fn add_address(&mut self, address: IpAddr, prefix: u8) -> Result<(), RdmaError> {
        let now = self.device.platform().now();
        Ok(self.host.add_address(now, address, prefix, None)?)
    }

    /// The IP host.
    pub const fn host(&mut self) -> &mut Host<'s> {
        &mut self.host
    }

    /// The partition, as its full members have it.
    pub const fn partition(&self) -> u16 {
        self.pkey
    }

    /// Returns `true` if packets go and come: the port is in the group of all interfaces.
    pub const fn is_up(&self) -> bool {
        self.interface.is_up()
    }

    /// Where the interface is.
    pub const fn hardware_address(&self) -> HardwareAddress {
        self.link.own()
    }

    /// The longest IP packet: 4 bytes less than the MTU of the group of all interfaces. `None` before the port is in it.
    pub fn mtu(&self) -> Option<usize> {
        self.is_up().then_some(self.mtu)
    }

    /// Lets another IP stack work on the interface beside this host, with addresses that were added here. In `inbox` it finds
    /// the packets that this host does not answer: everything but ARP, neighbour discovery, and echo requests to these
    /// addresses. In `outbox` its own wait for the next poll, and for the neighbour to be found. See [`port`](Self::port).
    pub fn share(&mut self, inbox: &'s mut [PacketSlot], outbox: &'s mut [PacketSlot]) {
        self.stack = Some(Stack::new(inbox, outbox));
    }

    /// The interface for the other stack: the device of an `Interface` of smoltcp's, for IP packets. `None` until it is
    /// [shared](Self::share) and [up](Self::is_up).
    pub fn port(&mut self) -> Option<IpPort<'_, 's>> {
        let mtu = self.mtu()?;
        Some(IpPort::new(self.stack.as_mut()?, mtu))
    }

    /// Packets that were dropped because the other stack's inbox was full.
    pub fn unread(&self) -> u64 {
        self.stack.as_ref().map_or(0, |stack| stack.unread)
    }

    /// Packets of the other stack's that were dropped: no route, no answer of the neighbour, not from an address of this host,
    /// or longer than the MTU is since.
    pub fn unsent(&self) -> u64 {
        self.stack.as_ref().map_or(0, |stack| stack.unsent)
    }

    /// Returns `true` if there is a port to work with. A port that no manager has configured has no LID, and cannot send; one
    /// that is not in the partition may be let in later.
    fn port_is_active(&mut self, now: Duration) -> Result<bool, RdmaError> {
        let Some(from) = self.look else {
            return Ok(true);
        };
        if now < from {
            return Ok(false);
        }
        let port = self.device.query_port()?;
        let active = port.state == PortState::Active
            && port.sm_lid != 0
            && self.device.find_pkey(self.pkey)?.is_some();
        if active {
            let gid = self.device.query_infiniband_gid(0)?.0;
            if gid != self.link.own().gid {
                // All groups are joined anew, as another port.
                while let Some(group) = self.groups.pop() {
                    self.give_up(now, &group)?;
                }
                self.link.set_gid(gid);
            }
        }
        self.look = (!active).then(|| now.saturating_add(AGAIN));
        Ok(active)
    }

    /// The group of all interfaces, as the port is in it.
    fn all(&self) -> Option<&McMemberRecord> {
        match self.groups.first()?.standing {
            Standing::In(ref record) => Some(record),
            _ => None,
        }
    }

    /// Lists a group that is to be joined; if there is no room for it, its packets go to all interfaces.
    fn list(&mut self, ip: Option<IpAddr>, mgid: [u8; 16]) {
        let all = self.all();
        let membership = Membership {
            mgid,
            port_gid: self.link.own().gid,
            pkey: self.pkey,
            // That of all interfaces is there, and says it.
            qkey: all.map_or(0, |all| all.qkey),
            traffic_class: all.map_or(0, |all| all.traffic_class),
            join_state: JoinState::FullMember,
        };
        let _ = self.groups.push(Group {
            ip,
            membership,
            standing: Standing::Outside {
                from: Duration::ZERO,
            },
            attached: false,
        });
    }

    /// Joins what the host needs, and leaves what it does not need any more.
    fn attend(&mut self, now: Duration) -> Result<(), RdmaError> {
        if self.groups.is_empty() {
            self.list(None, broadcast_group(self.pkey));
        }
        if self.all().is_some() {
            for at in 0.. {
                let Some((ip, _)) = self.host.groups().nth(at) else {
                    break;
                };
                if !self.groups.iter().any(|known| known.ip == Some(ip)) {
                    self.list(Some(ip), group(ip, self.pkey));
                }
            }
        }
        let mut at = 0;
        while let Some(known) = self.groups.get(at).copied() {
            let wanted = |ip| self.host.groups().any(|(other, _)| other == ip);
            if known.ip.is_some_and(|ip| !wanted(ip)) {
                self.give_up(now, &known)?;
                self.groups.swap_remove(at);
                continue;
            }
            self.move_on(now, at)?;
            at += 1;
        }
        Ok(())
    }

    fn give_up(&mut self, now: Duration, group: &Group) -> Result<(), RdmaError> {
        if !matches!(group.standing, Standing::Outside { .. }) {
            self.subnet.leave(now, &group.membership);
        }
        if group.attached {
            self.interface.detach(group.membership.mgid)?;
        }
        Ok(())
    }

    fn move_on(&mut self, now: Duration, at: usize) -> Result<(), RdmaError> {
        let group = self.groups[at];
        let membership = &group.membership;
        let later = Standing::Outside {
            from: now.saturating_add(AGAIN),
        };
        let standing = match group.standing {
            Standing::Outside { from } if now < from => return Ok(()),
            Standing::Outside { .. } => {
                let joined = self.subnet.join(now, membership, now.saturating_add(JOIN));
                if joined.is_ok() {
                    Standing::Joining
                } else {
                    later
                }
            }
            Standing::In(_) => return Ok(()),
            Standing::Joining => match self.subnet.membership(now, membership) {
                Ok(None) => return Ok(()),
                Ok(Some(record)) => {
                    if self.enter(now, at, &record)? {
                        Standing::In(record)
                    } else {
                        // The port was put out of the partition meanwhile.
                        self.subnet.leave(now, membership);
                        self.look = Some(now);
                        later
                    }
                }
                Err(error) => {
                    log::info!("no group for IP over InfiniBand: {error}");
                    self.subnet.leave(now, membership);
                    later
                }
            },
        };
        self.groups[at].standing = standing;
        Ok(())
    }

    /// False if the port is not in the partition any more.
    fn enter(
        &mut self,
        now: Duration,
        at: usize,
        record: &McMemberRecord,
    ) -> Result<bool, RdmaError> {
        if self.groups[at].ip.is_none() {
            // The others have the Q_Key of that of all interfaces.
            let mut other = 1;
            while let Some(group) = self.groups.get(other).copied() {
                if group.membership.qkey == record.qkey {
                    other += 1;
                    continue;
                }
                self.give_up(now, &group)?;
                self.groups.swap_remove(other);
            }
            let port = self.device.query_port()?.active_mtu.bytes();
            let mtu = (128 << record.mtu.clamp(1, 5)).min(port);
            self.mtu = (mtu as usize).min(PACKET) - ipoib::HEADER_LEN;
            match self.device.find_pkey(record.pkey)? {
                Some((pkey_index, _)) => self.interface.start(record.qkey, pkey_index)?,
                None => return Ok(false),
            }
        }
        if !self.groups[at].attached {
            self.interface.attach(record.mgid)?;
            self.groups[at].attached = true;
        }
        Ok(true)
    }

    fn target(&self, to: &To) -> Option<Target> {
        let mgid = match to {
            To::Peer(peer) => {
                let path = AhAttr {
                    dlid: peer.lid,
                    sl: peer.service_level,
                    port_num: 1,
                    ..AhAttr::default()
                };
                let qpn = peer.address.qpn;
                return Some(Target { path, qpn });
            }
            To::Group(mgid) => mgid,
        };
        let joined = |group: &Group| match group.standing {
            Standing::In(record) if record.mgid == *mgid => Some(record),
            _ => None,
        };
        let record = self.groups.iter().find_map(joined);
        let record = record.or_else(|| self.all().copied())?;
        let path = AhAttr {
            dgid: Gid(record.mgid),
            dlid: record.mlid,
            sl: record.sl,
            hop_limit: record.hop_limit,
            traffic_class: record.traffic_class,
            flow_label: record.flow_label,
            port_num: 1,
            ..AhAttr::default()
        };
        Some(Target {
            path,
            qpn: MULTICAST_QPN,
        })
    }

    /// Sends a frame of the host's, in `reply` or in `frame`.
    fn send(&mut self, reply: bool, length: usize) -> Result<(), RdmaError> {
        let frame = if reply { &self.reply } else { &self.frame };
        let frame = frame.get(..length).unwrap_or_default();
        let Some((to, length)) = self.link.outgoing(frame, &mut self.packet) else {
            return Ok(());
        };
        match self.target(&to) {
            Some(target) => self.interface.send(&target, &self.packet[..length]),
            None => Ok(()),
        }
    }

    fn receive(&mut self, now: Duration) -> Result<(), RdmaError> {
        for _ in 0..BURST {
            let Some((from, multicast, length)) = self.interface.receive(&mut self.packet)? else {
                break;
            };
            let packet = &self.packet[..length];
            let frame = self
                .link
                .incoming(packet, &from, multicast, &mut self.frame);
            let Some(length) = frame else {
                continue;
            };
            let frame = &self.frame[..length];
            if let Some(length) = self.host.receive(now, frame, &mut self.reply) {
                self.send(true, length)?;
            } else if let (Some(stack), Some(packet)) = (&mut self.stack, ip_packet(frame)) {
                stack.pass_on(packet);
            }
        }
        Ok(())
    }

    /// Sends what the other stack has written, as far as it is known where to.
    fn send_written(&mut self, now: Duration) -> Result<(), RdmaError> {
        let waiting = self.stack.as_ref().map_or(0, Stack::waiting);
        for _ in 0..waiting {
            if !self.interface.can_send()? {
                return Ok(());
            }
            let Some(stack) = &mut self.stack else {
                return Ok(());
            };
            let Some(length) = stack.take(&mut self.frame[ETHERNET..]) else {
                continue;
            };
            let packet = &self.frame[ETHERNET..][..length];
            match neighbour(&mut self.host, now, packet).filter(|_| length <= self.mtu) {
                Some((kind, Resolution::Found(neighbour))) => {
                    self.frame[..6].copy_from_slice(&neighbour.mac);
                    self.frame[6..12].copy_from_slice(&self.link.mac());
                    self.frame[12..ETHERNET].copy_from_slice(&kind);
                    self.send(false, ETHERNET + length)?;
                }
                Some((_, Resolution::Pending)) => stack.put_back(packet),
                _ => stack.unsent += 1,
            }
        }
        if let Some(stack) = &mut self.stack {
            stack.written = false;
        }
        Ok(())
    }
}

/// The types of IPv4 and IPv6 in an Ethernet header.
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// The IP packet in a frame, if that is what it has.
fn ip_packet(frame: &[u8]) -> Option<&[u8]> {
    let (header, packet) = frame.split_at_checked(ETHERNET)?;
    [IPV4, IPV6]
        .contains(&[header[12], header[13]])
        .then_some(packet)
}

/// Where an IP packet goes, and its type.
fn neighbour(host: &mut Host<'_>, now: Duration, packet: &[u8]) -> Option<([u8; 2], Resolution)> {
    let v4 = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let v6 = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
    let (kind, source, destination) = match packet.first()? >> 4 {
        4 => (IPV4, v4(12)?, v4(16)?),
        6 => (IPV6, v6(8)?, v6(24)?),
        _ => return None,
    };
    let all = destination == Ipv4Addr::BROADCAST || host.is_broadcast_of_link(destination);
    let resolution = match all {
        true => Resolution::Found(Neighbour::new([0xff; 6])),
        false => host.resolve(now, source, destination),
    };
    Some((kind, resolution))
}

impl<P: Platform> Neighbours for IpOverInfiniband<'_, '_, P> {
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

    fn has_route(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.host.has_route(source, destination)
    }

    fn source_for(&mut self, destination: IpAddr) -> Option<IpAddr> {
        self.host.source_for(destination)
    }

    fn has_ip(&self) -> bool {
        true
    }

    fn partition(&self) -> u16 {
        self.pkey
    }

    fn is_settled(&self) -> bool {
        // An IPv4 address is not probed for, and is the port's own as soon as there is an interface.
        self.is_up() && self.host.is_settled()
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.host.addresses().any(|(own, ..)| own == address)
    }

    fn gid_of(&self, mac: [u8; 6]) -> Option<[u8; 16]> {
        let gid = self.link.peer(mac)?.address.gid;
        (gid != [0; 16]).then_some(gid)
    }

    fn poll(&mut self, now: Duration) -> Result<(), RdmaError> {
        self.subnet.handle_timeout(now);
        if !self.port_is_active(now)? {
            return Ok(());
        }
        loop {
            self.attend(now)?;
            if !self.interface.is_up() {
                return Ok(());
            }
            self.receive(now)?;
            for _ in 0..BURST {
                if !self.interface.can_send()? {
                    break;
                }
                let Some(length) = self.host.poll_transmit(now, &mut self.frame) else {
                    break;
                };
                self.send(false, length)?;
            }
            self.send_written(now)?;
            // The filter is the list of groups.
            while self.host.poll_filter().is_some() {}
            while let Some(event) = self.host.poll_event() {
                log::debug!("IP over InfiniBand: {event:?}");
            }
            if !self.interface.arm() {
                return Ok(());
            }
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        let again = self.groups.iter().filter_map(|group| match group.standing {
            Standing::Outside { from } => Some(from),
            _ => None,
        });
        let host = self.host.next_deadline().filter(|_| self.is_up());
        let written = self.stack.as_ref().is_some_and(|stack| stack.written);
        let written = (written && self.is_up()).then_some(Duration::ZERO);
        let others = [self.look, host, written, self.subnet.next_timeout()];
        others.into_iter().flatten().chain(again).min()
    }
}

/// [`Neighbours::poll`] does what is due of subnet administration.
impl<P: Platform> Subnet for IpOverInfiniband<'_, '_, P> {
    fn find_path(
        &mut self,
        now: Duration,
        query: &PathQuery,
        attempt: Attempt,
    ) -> Result<Option<PathRecord>, RdmaError> {
        self.subnet.find_path(now, query, attempt)
    }

    fn join(
        &mut self,
        now: Duration,
        membership: &Membership,
        until: Duration,
    ) -> Result<(), RdmaError> {
        self.subnet.join(now, membership, until)
    }

    fn membership(
        &mut self,
        now: Duration,
        membership: &Membership,
    ) -> Result<Option<McMemberRecord>, RdmaError> {
        self.subnet.membership(now, membership)
    }

    fn leave(&mut self, now: Duration, membership: &Membership) {
        self.subnet.leave(now, membership);
    }

    fn poll_transmit(&mut self, now: Duration, mad: &mut [u8; MAD_LEN]) -> bool {
        self.subnet.poll_transmit(now, mad)
    }

    fn redirection(&mut self) -> Option<SaRedirection> {
        self.subnet.redirection()
    }

    fn asks(&self, lid: u16) -> bool {
        self.subnet.asks(lid)
    }

    fn handle_mad(&mut self, now: Duration, mad: &[u8; MAD_LEN]) {
        self.subnet.handle_mad(now, mad);
    }

    fn gid_gone(&mut self, gid: [u8; 16]) {
        self.subnet.gid_gone(gid);
    }

    fn subnet_changed(&mut self, now: Duration) {
        self.subnet.subnet_changed(now);
        self.look = Some(now);
        for group in &mut self.groups {
            // Subnet administration is asked anew for what the port was in.
            if let Standing::In(_) = group.standing {
                group.standing = Standing::Joining;
            }
        }
    }
}

impl<P: Platform> Drop for IpOverInfiniband<'_, '_, P> {
    /// A QP that is in a group cannot be destroyed.
    fn drop(&mut self) {
        for group in self.groups.iter().filter(|group| group.attached) {
            // The QP's own end reports a device that has failed.
            let _ = self.interface.detach(group.membership.mgid);
        }
    }
}

impl<P: Platform> fmt::Debug for IpOverInfiniband<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpOverInfiniband")
            .field("host", &self.host)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
