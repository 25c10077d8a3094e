//! Moving MADs over QP1: a GSI QP with its CQs, a ring of receive buffers and a ring of send buffers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use bareverbs_core::ah::AhAttr;
use bareverbs_core::cq::{Completion, Cq, CqInit};
use bareverbs_core::mr::{Access, Buffer};
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{
    Destination, Gsi, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, SendData, SendFlags,
    SendOp, SendWr,
};
use bareverbs_core::wc::{NetworkHeader, WcFlags, WcStatus};
use bareverbs_core::{Device, Gid, LinkLayer, Platform, Qpn};

use crate::engine::Address;
use crate::mad::{GSI_QKEY, MAD_LEN};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::sockaddr::ANY_GID;

/// The network header area before each datagram.
pub(crate) const GRH: usize = 40;
/// A receive buffer: the header area and a MAD, in whole cache lines.
const RECV_STRIDE: usize = 320;
/// Send buffers. When the ring is full, the engine keeps its messages until a buffer is free.
pub(crate) const SENDS: usize = 64;

/// QP1 of one port.
#[derive(Debug)]
pub(crate) struct GsiPort<'d, P: Platform> {
    // In the order in which they have to be destroyed.
    qp: Qp<'d, P, Gsi>,
    send_cq: Cq<'d, P>,
    recv_cq: Cq<'d, P>,
    recv: Buffer<'d, P>,
    send: Buffer<'d, P>,
    _pd: Pd<'d, P>,
    device: &'d Device<'d, P>,
    infiniband: bool,
    /// Receive buffers.
    depth: u32,
    /// Bit per send buffer that is free.
    free: u64,
    armed: bool,
    /// A work request failed.
    failed: bool,
    pub(crate) restarts: u64,
}

/// A MAD that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) mad: [u8; MAD_LEN],
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) pkey: u16,
    pub(crate) local: Local,
}

impl Received {
    /// Room for one.
    pub(crate) const EMPTY: Self = Self {
        mad: [0; MAD_LEN],
        source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        traffic_class: 0,
        pkey: 0,
        local: Local {
            slid: 0,
            path_bits: 0,
            service_level: 0,
            global: false,
        },
    };
}

/// The fields of InfiniBand's link layer for a MAD; zeros on RoCE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local {
    pub(crate) slid: u16,
    /// Low bits of the LID that it came to.
    pub(crate) path_bits: u8,
    pub(crate) service_level: u8,
    /// It came with a global header, without which nothing is known of GIDs.
    pub(crate) global: bool,
}

/// The fields of a completion for a MAD.
struct Arrival {
    kind: NetworkHeader,
    pkey: u16,
    local: Local,
}

impl<'d, P: Platform> GsiPort<'d, P> {
    /// Creates QP1 with `depth` receive buffers and brings it up.
    ///
    /// Bursts of more MADs than buffers are lost, and each costs its sender seconds: choose a large number.
    pub(crate) fn open(device: &'d Device<'d, P>, depth: u32) -> Result<Self, RdmaError> {
        let pd = device.default_pd()?;
        let send_cq = device.create_cq(CqInit::new(SENDS as u32))?;
        let recv_cq = device.create_cq(CqInit::new(depth))?;
        let recv = pd.alloc_buffer(depth as usize * RECV_STRIDE, Access::LOCAL_WRITE)?;
        let send = pd.alloc_buffer(SENDS * MAD_LEN, Access::LOCAL_WRITE)?;
        let mut init = QpInitAttr {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap: QpCap {
                max_send_wr: SENDS as u32,
                max_recv_wr: depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        };
        let qp = pd.create_qp::<Gsi>(&mut init)?;
        let mut port = Self {
            qp,
            send_cq,
            recv_cq,
            recv,
            send,
            _pd: pd,
            device,
            infiniband: device.capabilities().link_layer() == LinkLayer::InfiniBand,
            depth,
            free: u64::MAX,
            armed: false,
            failed: false,
            restarts: 0,
        };
        port.start()?;
        Ok(port)
    }

    /// From RESET to work.
    fn start(&mut self) -> Result<(), RdmaError> {
        let attr = QpAttr {
            qp_state: QpState::Init,
            qkey: GSI_QKEY,
            ..QpAttr::DEFAULT
        };
        self.qp.modify(
            &attr,
            QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::QKEY,
        )?;
        self.qp.modify(
            &QpAttr {
                qp_state: QpState::Rtr,
                ..attr
            },
            QpAttrMask::STATE,
        )?;
        self.qp.modify(
            &QpAttr {
                qp_state: QpState::Rts,
                ..attr
            },
            QpAttrMask::STATE | QpAttrMask::SQ_PSN,
        )?;
        for index in 0..self.depth {
            self.post(u64::from(index))?;
        }
        Ok(())
    }

    /// A work request failed, so that the QP is in error and takes no others. What was on its way is lost, as it could be
    /// on the wire; the engine will repeat its messages.
    fn restart(&mut self) -> Result<(), RdmaError> {
        log::warn!("QP1 failed and is started again");
        self.qp.modify(
            &QpAttr {
                qp_state: QpState::Reset,
                ..QpAttr::DEFAULT
            },
            QpAttrMask::STATE,
        )?;
        self.failed = false;
        self.free = u64::MAX;
        self.restarts += 1;
        self.start()
    }

    fn post(&mut self, index: u64) -> Result<(), RdmaError> {
        let sge = self.recv.sge(index as usize * RECV_STRIDE, GRH + MAD_LEN);
        if let Some(sge) = sge {
            self.qp.recv_queue().post(index, &[sge])?;
        }
        Ok(())
    }

    /// Takes the next MAD, if there is one. What is no MAD (too short, or without an address) is dropped on the way.
    pub(crate) fn receive(&mut self, received: &mut Received) -> Result<bool, RdmaError> {
        // Once per call: a QP that fails at once again must not hold the caller.
        if self.failed {
            self.restart()?;
        }
        loop {
            let infiniband = self.is_infiniband();
            let (index, arrived) = match self.recv_cq.poll()? {
                None => return Ok(false),
                Some(completion) if completion.status() != WcStatus::Success => {
                    self.failed = true;
                    continue;
                }
                Some(completion) => {
                    let whole = completion.byte_len() as usize >= GRH + MAD_LEN;
                    let arrived = whole.then(|| arrival(&completion, infiniband));
                    (completion.wr_id(), arrived)
                }
            };
            let whole = match arrived {
                Some(arrival) => self.read(index as usize, &arrival, received)?,
                None => false,
            };
            self.post(index)?;
            if whole {
                return Ok(true);
            }
        }
    }

    fn is_infiniband(&self) -> bool {
        cfg!(feature = "infiniband") && self.infiniband
    }

    /// Reads a MAD; false, if it has no addresses.
    fn read(
        &self,
        index: usize,
        arrival: &Arrival,
        received: &mut Received,
    ) -> Result<bool, RdmaError> {
        let at = index * RECV_STRIDE;
        let mut header = [0; GRH];
        self.recv.copy_out(at, &mut header)?;
        let found = if self.is_infiniband() && !arrival.local.global {
            Some((ANY_GID, ANY_GID, 0))
        } else {
            addresses(arrival.kind, &header)
        };
        let Some((source, destination, traffic_class)) = found else {
            return Ok(false);
        };
        self.recv.copy_out(at + GRH, &mut received.mad)?;
        (received.source, received.destination) = (source, destination);
        received.traffic_class = traffic_class;
        (received.pkey, received.local) = (arrival.pkey, arrival.local);
        Ok(true)
    }

    /// Returns `true` if there is a send buffer. If not, an event comes when there is one.
    #[inline]
    pub(crate) fn can_send(&mut self) -> Result<bool, RdmaError> {
        if self.free != 0 {
            return Ok(true);
        }
        self.find_send_buffer()
    }

    #[cold]
    fn find_send_buffer(&mut self) -> Result<bool, RdmaError> {
        self.reap()?;
        if self.free == 0 && self.device.config().interrupts {
            self.send_cq.take_event();
            self.send_cq.arm(false);
            self.reap()?;
        }
        Ok(self.free != 0)
    }

    /// Returns `true` if there is a send buffer, as far as is known.
    pub(crate) const fn has_buffer(&self) -> bool {
        self.free != 0
    }

    /// Returns `true` if all that was sent has left.
    pub(crate) const fn is_idle(&self) -> bool {
        self.free == u64::MAX
    }

    /// Returns `true` if a work request failed, so that nothing more is sent until QP1 is started again.
    pub(crate) const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Takes back the buffers of what was sent.
    pub(crate) fn reap(&mut self) -> Result<(), RdmaError> {
        while let Some(completion) = self.send_cq.poll()? {
            let index = completion.wr_id();
            if completion.status() != WcStatus::Success {
                self.failed = true;
            }
            self.free |= 1u64.checked_shl(index as u32).unwrap_or(0);
        }
        Ok(())
    }

    /// Sends a MAD to a QP at the other end of `path`.
    pub(crate) fn send_to(
        &mut self,
        path: &AhAttr,
        qpn: u32,
        qkey: u32,
        mad: &[u8; MAD_LEN],
    ) -> Result<(), RdmaError> {
        let index = self.free.trailing_zeros();
        if index >= SENDS as u32 {
            return Err(RdmaError::Full {
                what: "send buffers of QP1",
                capacity: SENDS,
            });
        }
        let ah = match self.device.create_ah(path) {
            Ok(ah) => ah,
            Err(error) => {
                // The GID was removed, or the path is invalid: the message is dropped, as if it were lost on the wire.
                log::warn!("a CM message cannot be sent: {error}");
                return Ok(());
            }
        };
        let at = index as usize * MAD_LEN;
        self.send.copy_in(at, mad)?;
        let Some(sge) = self.send.sge(at, MAD_LEN) else {
            return Ok(());
        };
        self.qp.send_queue().post(&SendWr {
            wr_id: u64::from(index),
            op: SendOp::SendTo(Destination {
                ah: &ah,
                remote_qpn: Qpn::from_low_bits(qpn),
                remote_qkey: qkey,
            }),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        })?;
        self.free &= !(1 << index);
        Ok(())
    }

    /// Makes the next MAD an event, so that waiting for the device ends with it. Whether that is new: what came before
    /// need not make an event, so that the caller has to poll once more.
    pub(crate) fn arm(&mut self) -> bool {
        let due = self.device.config().interrupts && (self.recv_cq.take_event() || !self.armed);
        if due {
            self.recv_cq.arm(false);
            self.armed = true;
        }
        due
    }

    /// Ends what is in flight, so that no buffer is written any more.
    pub(crate) fn close(&mut self) {
        let attr = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        let _ = self.qp.modify(&attr, QpAttrMask::STATE);
    }
}

fn arrival(completion: &Completion<'_>, infiniband: bool) -> Arrival {
    let (kind, local) = if infiniband {
        let wc = completion.to_wc();
        let local = Local {
            slid: wc.slid,
            path_bits: wc.dlid_path_bits,
            service_level: wc.sl,
            global: wc.flags.contains(WcFlags::GRH),
        };
        // Where RoCE has the header's type, InfiniBand has the service level.
        (NetworkHeader::Grh, local)
    } else {
        let local = Local {
            slid: 0,
            path_bits: 0,
            service_level: 0,
            global: true,
        };
        (completion.network_header(), local)
    };
    Arrival {
        kind,
        pkey: completion.pkey_index(),
        local,
    }
}

/// The path in the device's format, on RoCE.
pub(crate) fn ah_attr(address: &Address) -> AhAttr {
    AhAttr {
        dgid: Gid(address.remote_gid),
        sgid_index: address.link as u16,
        hop_limit: address.hop_limit,
        traffic_class: address.traffic_class,
        flow_label: address.flow_label,
        sl: address.service_level,
        dmac: address.remote_mac,
        port_num: 1,
        ..AhAttr::default()
    }
}

/// The GID of an IP address.
pub(crate) fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => Gid::from_ipv4(address),
        IpAddr::V6(address) => Gid::from_ipv6(address),
    }
}

/// Source, destination and traffic class from the header area. With IPv4 the header lies in the last 20 bytes and what is
/// before it is undefined.
pub(crate) fn addresses(kind: NetworkHeader, header: &[u8; GRH]) -> Option<(IpAddr, IpAddr, u8)> {
    match kind {
        NetworkHeader::Ipv4 => {
            let ip = header.last_chunk::<20>()?;
            let v4 =
                |at: usize| IpAddr::V4(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]));
            (ip[0] >> 4 == 4).then(|| (v4(12), v4(16), ip[1]))
        }
        NetworkHeader::Ipv6 | NetworkHeader::Grh => {
            let v6 = |at: usize| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&header[at..at + 16]);
                // RoCE v1 puts IPv4 addresses into its GRH in the mapped form.
                Ipv6Addr::from(bytes).to_canonical()
            };
            (header[0] >> 4 == 6).then(|| (v6(8), v6(24), header[0] << 4 | header[1] >> 4))
        }
    }
}

/// Interval at which an application or a resolver is asked again for an answer that is not there yet.
pub(crate) const SLICE: Duration = Duration::from_millis(10);
