//! Datagram rsockets: a UD QP, a datagram service by which others find it, and what is known of others.
//!
//! Another end is found by its address and port with SIDR (`PortSpace::Udp`), once; librdmacm asks over UDP sockets of the
//! kernel in its place, which there are none of here. Each datagram begins with a header in librdmacm's format:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | IP version, 4 or 6 |
//! | 1 | bytes of the header: 8 or 24 |
//! | 2–3 | the sender's port |
//! | 4–7 | with IPv4 the sender's address; with IPv6 the flow label, and 16 bytes of the address follow |
//!
//! Datagrams get lost where UDP's would: when the receiver's queue is full, or too many wait for an address.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bareverbs_node::cm::rdma::{CmEvent, CmId, ConnParam, EventType, PortSpace, UDP_QKEY};
use bareverbs_node::verbs::{
    Access, AddressHandle, Buffer, Cq, CqEvents, CqInit, Destination, Qp, QpAttr, QpAttrMask,
    QpCap, QpInitHandles, QpState, Qpn, SendData, SendFlags, SendOp, SendWr, Ud, WcStatus,
};

use crate::process::failure::{Errno, Result};
use crate::process::hca::{Hca, P};
use crate::rsocket::options::Sizes;
use crate::rsocket::port::Port;

/// Bytes before each datagram that are the device's.
const GRH: usize = 40;
const HEADER_V4: usize = 8;
const HEADER_V6: usize = 24;
/// Datagrams for one address that wait until it is found.
const WAITING: usize = 32;
/// Addresses that are known at once.
const PEERS: usize = 4096;
/// The time that finding an address may take.
const RESOLVE: Duration = Duration::from_secs(3);
/// The kind of a work request, above the number of its slot.
const RECEIVE: u64 = 1 << 32;

/// Another end.
enum Peer {
    /// It is asked for, and these datagrams wait.
    Asked(VecDeque<Vec<u8>>),
    Known(AddressHandle, Qpn, u32),
}

/// A datagram that has come: its slot, where its data begins and ends there, and from where it is.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    slot: u16,
    begin: usize,
    end: usize,
    from: SocketAddr,
}

/// A datagram rsocket's queues. The QP goes before what it uses.
pub(super) struct Datagrams {
    pub(super) hca: &'static Hca,
    port: &'static Port,
    qp: Qp<'static, P, Ud>,
    cq: Cq<'static, P>,
    received: Buffer<'static, P>,
    staging: Buffer<'static, P>,
    free: Vec<u16>,
    sends: usize,
    arrived: VecDeque<Arrived>,
    /// The most bytes of a datagram with its header.
    mtu: usize,
    serial: u64,
    local: SocketAddr,
    peers: HashMap<SocketAddr, Peer>,
    asked: HashMap<CmId, SocketAddr>,
    pub(super) connected: Option<SocketAddr>,
    pub(super) failure: Option<Errno>,
}

impl Datagrams {
    /// Queues and buffers on a device, ready for datagrams.
    pub(super) fn new(
        port: &'static Port,
        sizes: &Sizes,
        serial: u64,
        local: SocketAddr,
    ) -> Result<Self> {
        let device = port.hca.device;
        let (sends, receives) = (sizes.sends, sizes.receives);
        let cq = device.create_cq(CqInit::new(u32::from(sends) + u32::from(receives)))?;
        let mut init = QpInitHandles {
            send_cq: cq.handle(),
            recv_cq: cq.handle(),
            srq: None,
            cap: QpCap {
                max_send_wr: sends.into(),
                max_recv_wr: receives.into(),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        };
        let qp = port.pd.create_qp_by_handles(&mut init)?;
        let mtu = device.query_port()?.active_mtu.bytes() as usize;
        let slots = usize::from(receives) * (GRH + mtu);
        let received = port.pd.alloc_buffer(slots, Access::LOCAL_WRITE)?;
        let staging = port
            .pd
            .alloc_buffer(usize::from(sends) * mtu, Access::empty())?;
        let mut datagrams = Self {
            hca: port.hca,
            port,
            qp,
            cq,
            received,
            staging,
            free: (0..sends).collect(),
            sends: sends.into(),
            arrived: VecDeque::new(),
            mtu,
            serial,
            local,
            peers: HashMap::new(),
            asked: HashMap::new(),
            connected: None,
            failure: None,
        };
        datagrams.start(receives)?;
        Ok(datagrams)
    }

    fn start(&mut self, receives: u16) -> Result<()> {
        let state = QpAttrMask::STATE;
        let init = state | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
        for (to, mask) in [
            (QpState::Init, init),
            (QpState::Rtr, state),
            (QpState::Rts, state | QpAttrMask::SQ_PSN),
        ] {
            let attr = QpAttr {
                qp_state: to,
                qkey: UDP_QKEY,
                port_num: 1,
                ..QpAttr::DEFAULT
            };
            self.qp.modify(&attr, mask)?;
        }
        (0..receives).try_for_each(|slot| self.post_receive(slot))
    }

    fn post_receive(&mut self, slot: u16) -> Result<()> {
        let length = GRH + self.mtu;
        let sge = self.received.sge(usize::from(slot) * length, length);
        let sge = sge.ok_or(Errno::EIO)?;
        Ok(self
            .qp
            .recv_queue()
            .post(RECEIVE | u64::from(slot), &[sge])?)
    }

    /// The events of its CQ.
    pub(super) fn events(&self) -> CqEvents<'static> {
        self.cq.events()
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&mut self) {
        self.cq.arm(false);
    }

    /// Takes completions.
    pub(super) fn process(&mut self) {
        if let Err(errno) = self.take_completions() {
            self.failure = Some(errno);
        }
    }

    fn take_completions(&mut self) -> Result<()> {
        // What is dropped is posted again afterwards, so that this ends.
        let mut dropped = Vec::new();
        while let Some(found) = self.cq.poll()? {
            let (wr_id, length) = (found.wr_id(), found.byte_len() as usize);
            let slot = wr_id as u16;
            if wr_id & RECEIVE == 0 {
                self.free.push(slot);
                continue;
            }
            if found.status() != WcStatus::Success {
                return Err(Errno::EIO);
            }
            match read_header(&self.received, slot, GRH + self.mtu, length) {
                Some((begin, from)) if self.connected.is_none_or(|peer| peer == from) => {
                    self.arrived.push_back(Arrived {
                        slot,
                        begin,
                        end: length,
                        from,
                    });
                }
                _ => dropped.push(slot),
            }
        }
        dropped
            .into_iter()
            .try_for_each(|slot| self.post_receive(slot))
    }

    /// Returns `true` if a datagram can be received.
    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns `true` if all that was sent has left.
    pub(super) fn is_quiet(&self) -> bool {
        let waits = |peer: &Peer| matches!(peer, Peer::Asked(_));
        self.failure.is_some() || self.free.len() == self.sends && !self.peers.values().any(waits)
    }

    /// Takes a datagram, or looks at it: how many bytes it has, and from where it is. What has no room is lost.
    pub(super) fn receive(
        &mut self,
        parts: &mut [&mut [u8]],
        is_peek: bool,
    ) -> Result<Option<(usize, SocketAddr)>> {
        let Some(found) = self.arrived.front().copied() else {
            return Ok(None);
        };
        let base = usize::from(found.slot) * (GRH + self.mtu);
        let mut at = found.begin;
        for part in parts {
            let length = part.len().min(found.end - at);
            let copied = self.received.copy_out(base + at, &mut part[..length]);
            copied.map_err(|_| Errno::EIO)?;
            at += length;
        }
        if !is_peek {
            self.arrived.pop_front();
            self.post_receive(found.slot)?;
        }
        Ok(Some((found.end - found.begin, found.from)))
    }

    /// Sends a datagram, or lets it wait for its address; `false` if there is no room now.
    pub(super) fn send(&mut self, to: SocketAddr, parts: &[&[u8]]) -> Result<bool> {
        let mut bytes = header(self.local_to(to)?);
        for part in parts {
            bytes.extend_from_slice(part);
        }
        if bytes.len() > self.mtu {
            return Err(Errno(libc::EMSGSIZE));
        }
        match self.peers.get_mut(&to) {
            Some(Peer::Known(..)) => return self.post(to, &bytes),
            Some(Peer::Asked(waiting)) => {
                if waiting.len() < WAITING {
                    waiting.push_back(bytes);
                }
                return Ok(true);
            }
            None => {}
        }
        if self.peers.len() >= PEERS {
            // Those that are used are found again.
            self.peers.retain(|_, peer| matches!(peer, Peer::Asked(_)));
        }
        self.ask(to)?;
        self.peers.insert(to, Peer::Asked(VecDeque::from([bytes])));
        Ok(true)
    }

    /// This end's address as the other end may answer to it.
    fn local_to(&self, to: SocketAddr) -> Result<SocketAddr> {
        if !self.local.ip().is_unspecified() {
            return Ok(self.local);
        }
        let devices = crate::process::device::devices()?;
        let own = devices.iter().find(|device| {
            device
                .hca_if_up()
                .is_some_and(|up| std::ptr::eq(up, self.hca))
        });
        let addresses = own.map(|device| device.addresses()).unwrap_or_default();
        let fits = |address: &&bareverbs_node::Address| address.ip.is_ipv4() == to.is_ipv4();
        let address = addresses.iter().find(fits);
        let ip = address.ok_or(Errno::ENETUNREACH)?.ip;
        Ok(SocketAddr::new(ip, self.local.port()))
    }

    /// Asks where an address is.
    fn ask(&mut self, to: SocketAddr) -> Result<()> {
        let mut manager = self.hca.manager()?;
        let id = manager.create_id(Some(self.port.channel), self.serial, PortSpace::Udp)?;
        let asked = manager.resolve_addr(id, None::<SocketAddr>, to, RESOLVE);
        if let Err(error) = asked {
            manager.destroy_id(id)?;
            return Err(error.into());
        }
        drop(manager);
        self.asked.insert(id, to);
        Ok(())
    }

    fn post(&mut self, to: SocketAddr, bytes: &[u8]) -> Result<bool> {
        let Some(Peer::Known(ah, qpn, qkey)) = self.peers.get(&to) else {
            return Err(Errno::EIO);
        };
        let Some(slot) = self.free.pop() else {
            return Ok(false);
        };
        let at = usize::from(slot) * self.mtu;
        self.staging.copy_in(at, bytes).map_err(|_| Errno::EIO)?;
        let sge = self.staging.sge(at, bytes.len()).ok_or(Errno::EIO)?;
        let request = SendWr {
            wr_id: slot.into(),
            op: SendOp::SendTo(Destination {
                ah,
                remote_qpn: *qpn,
                remote_qkey: *qkey,
            }),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        };
        if let Err(error) = self.qp.send_queue().post(&request) {
            self.free.push(slot);
            return Err(error.into());
        }
        Ok(true)
    }

    /// An event of an id that asks.
    pub(super) fn on_event(&mut self, event: &CmEvent) -> Result<()> {
        let Some(to) = self.asked.get(&event.id).copied() else {
            return Ok(());
        };
        let step = match event.event {
            EventType::AddrResolved => {
                return Ok(self.hca.manager()?.resolve_route(event.id, RESOLVE)?);
            }
            EventType::RouteResolved => {
                let param = ConnParam {
                    qp_num: self.qp.qpn().number(),
                    ..ConnParam::default()
                };
                return Ok(self.hca.manager()?.connect(event.id, Some(&param))?);
            }
            EventType::Established => Ok(()),
            // No socket has that port, or no host that address.
            _ => Err(Errno(libc::ECONNREFUSED)),
        };
        self.asked.remove(&event.id);
        self.hca.manager()?.destroy_id(event.id)?;
        let waiting = match self.peers.remove(&to) {
            Some(Peer::Asked(waiting)) => waiting,
            _ => VecDeque::new(),
        };
        if let Err(errno) = step {
            if self.connected == Some(to) {
                self.failure = Some(errno);
            }
            return Ok(());
        }
        let ah = self.hca.device.create_ah(&event.ud.ah_attr)?;
        let qpn = Qpn::from_low_bits(event.ud.qp_num);
        self.peers.insert(to, Peer::Known(ah, qpn, event.ud.qkey));
        for bytes in waiting {
            // What there is no room for is lost.
            self.post(to, &bytes)?;
        }
        Ok(())
    }

    /// Another end asks for this one's QP.
    pub(super) fn answer(&self, id: CmId) -> Result<()> {
        let param = ConnParam {
            qp_num: self.qp.qpn().number(),
            ..ConnParam::default()
        };
        let mut manager = self.hca.manager()?;
        let accepted = manager.accept(id, Some(&param));
        manager.destroy_id(id)?;
        Ok(accepted?)
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        let ids: Vec<_> = self.asked.keys().map(|id| (self.hca, *id)).collect();
        super::ids::destroy(&ids);
    }
}

/// The header of datagrams from an address.
fn header(from: SocketAddr) -> Vec<u8> {
    let length = if from.is_ipv4() { HEADER_V4 } else { HEADER_V6 };
    let mut bytes = vec![0; length];
    bytes[1] = length as u8;
    bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
    match from.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[8..24].copy_from_slice(&ip.octets());
        }
    }
    bytes
}

/// Where the data of a datagram begins in its slot, and from where it is.
fn read_header(
    received: &Buffer<'static, P>,
    slot: u16,
    slot_length: usize,
    length: usize,
) -> Option<(usize, SocketAddr)> {
    let mut bytes = [0; HEADER_V6];
    let there = length.checked_sub(GRH)?.min(HEADER_V6);
    let at = usize::from(slot) * slot_length + GRH;
    received.copy_out(at, &mut bytes[..there]).ok()?;
    let (header, from) = parse(&bytes[..there])?;
    Some((GRH + header, from))
}

/// The length of the header, and the address in it.
fn parse(bytes: &[u8]) -> Option<(usize, SocketAddr)> {
    let (version, length) = (*bytes.first()?, usize::from(*bytes.get(1)?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match (version, length) {
        (4, HEADER_V4) => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        (6, HEADER_V6) => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some((length, SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_lie_as_they_are_written_above() {
        let from: SocketAddr = "10.0.0.2:7174".parse().unwrap();
        let bytes = header(from);
        assert_eq!(bytes, [4, 8, 0x1c, 0x06, 10, 0, 0, 2]);
        assert_eq!(parse(&bytes), Some((8, from)));
        let from: SocketAddr = "[fd00::2]:1".parse().unwrap();
        let bytes = header(from);
        assert_eq!((bytes.len(), bytes[0], bytes[1]), (24, 6, 24));
        assert_eq!(parse(&bytes), Some((24, from)));
    }

    #[test]
    fn other_headers_are_none() {
        for from in ["10.0.0.2:7174", "[fd00::2]:1"] {
            let bytes = header(from.parse().unwrap());
            for length in 0..bytes.len() {
                assert_eq!(parse(&bytes[..length]), None, "{length}");
            }
            for at in 0..2 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1;
                assert_eq!(parse(&wrong), None);
            }
        }
    }
}
