//! The QP of an IP over InfiniBand interface, with its rings of receive and send buffers.

use bareverbs_core::ah::AhAttr;
use bareverbs_core::cq::{Cq, CqInit};
use bareverbs_core::mr::{Access, Buffer};
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{
    Destination, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, SendData, SendFlags, SendOp,
    SendWr, Ud,
};
use bareverbs_core::wc::{Wc, WcFlags, WcStatus};
use bareverbs_core::{Device, Gid, Platform, Qpn};

use crate::ipoib::Sender;
use crate::rdma::port::gsi::GRH;
use crate::rdma::types::error::RdmaError;

/// The longest packet, with its header of four bytes: groups have an MTU of 4096 bytes at most.
pub(crate) const PACKET: usize = 4096;
/// A receive buffer, in whole cache lines.
const RECV_STRIDE: usize = (GRH + PACKET).next_multiple_of(64);
const RECEIVES: usize = 64;
const SENDS: usize = 16;

/// The interface's QP, which begins in RESET.
#[derive(Debug)]
pub(crate) struct Interface<'d, P: Platform> {
    // In the order in which they have to be destroyed.
    qp: Qp<'d, P, Ud>,
    send_cq: Cq<'d, P>,
    recv_cq: Cq<'d, P>,
    recv: Buffer<'d, P>,
    send: Buffer<'d, P>,
    device: &'d Device<'d, P>,
    /// Q_Key and index of the P_Key, once it works.
    keys: Option<(u32, u16)>,
    free: u32,
    armed: bool,
    failed: bool,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) path: AhAttr,
    pub(crate) qpn: u32,
}

impl<'d, P: Platform> Interface<'d, P> {
    pub(crate) fn new(device: &'d Device<'d, P>, pd: &Pd<'d, P>) -> Result<Self, RdmaError> {
        let send_cq = device.create_cq(CqInit::new(SENDS as u32))?;
        let recv_cq = device.create_cq(CqInit::new(RECEIVES as u32))?;
        let recv = pd.alloc_buffer(RECEIVES * RECV_STRIDE, Access::LOCAL_WRITE)?;
        let send = pd.alloc_buffer(SENDS * PACKET, Access::LOCAL_WRITE)?;
        let mut init = QpInitAttr {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap: QpCap {
                max_send_wr: SENDS as u32,
                max_recv_wr: RECEIVES as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        };
        let qp = pd.create_qp::<Ud>(&mut init)?;
        Ok(Self {
            qp,
            send_cq,
            recv_cq,
            recv,
            send,
            device,
            keys: None,
            free: (1 << SENDS) - 1,
            armed: false,
            failed: false,
        })
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qp.qpn().number()
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.keys.is_some()
    }

    /// Lets it work with this Q_Key in this partition.
    pub(crate) fn start(&mut self, qkey: u32, pkey_index: u16) -> Result<(), RdmaError> {
        if self.keys == Some((qkey, pkey_index)) {
            return Ok(());
        }
        self.begin(qkey, pkey_index)
    }

    fn begin(&mut self, qkey: u32, pkey_index: u16) -> Result<(), RdmaError> {
        let mut attr = QpAttr {
            qp_state: QpState::Reset,
            pkey_index,
            qkey,
            port_num: 1,
            ..QpAttr::DEFAULT
        };
        if self.keys.is_some() {
            self.qp.modify(&attr, QpAttrMask::STATE)?;
            while self.recv_cq.poll()?.is_some() || self.send_cq.poll()?.is_some() {}
        }
        self.keys = None;
        let init = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
        for (state, more) in [
            (QpState::Init, init),
            (QpState::Rtr, QpAttrMask::empty()),
            (QpState::Rts, QpAttrMask::SQ_PSN),
        ] {
            attr.qp_state = state;
            self.qp.modify(&attr, QpAttrMask::STATE | more)?;
        }
        self.keys = Some((qkey, pkey_index));
        self.free = (1 << SENDS) - 1;
        self.failed = false;
        for index in 0..RECEIVES {
            self.post(index)?;
        }
        Ok(())
    }

    /// A work request failed, so that the QP takes no others. What was on its way is lost, as it could be on the wire.
    fn restart(&mut self) -> Result<(), RdmaError> {
        let Some((qkey, pkey_index)) = self.keys else {
            return Ok(());
        };
        log::warn!("the QP of IP over InfiniBand failed and is started again");
        self.begin(qkey, pkey_index)
    }

    pub(crate) fn attach(&mut self, group: [u8; 16]) -> Result<(), RdmaError> {
        Ok(self.qp.attach_mcast(Gid(group))?)
    }

    pub(crate) fn detach(&mut self, group: [u8; 16]) -> Result<(), RdmaError> {
        Ok(self.qp.detach_mcast(Gid(group))?)
    }

    fn post(&mut self, index: usize) -> Result<(), RdmaError> {
        if let Some(sge) = self.recv.sge(index * RECV_STRIDE, GRH + PACKET) {
            self.qp.recv_queue().post(index as u64, &[sge])?;
        }
        Ok(())
    }

    /// Takes the next packet: its sender, whether it came by a group, and its length.
    pub(crate) fn receive(
        &mut self,
        packet: &mut [u8; PACKET],
    ) -> Result<Option<(Sender, bool, usize)>, RdmaError> {
        if self.failed {
            self.restart()?;
        }
        loop {
            let wc = match self.recv_cq.poll()? {
                None => return Ok(None),
                Some(completion) if completion.status() != WcStatus::Success => {
                    self.failed = true;
                    continue;
                }
                Some(completion) => completion.to_wc(),
            };
            let taken = self.read(&wc, packet)?;
            self.post(wc.wr_id as usize)?;
            if taken.is_some() {
                return Ok(taken);
            }
        }
    }

    fn read(
        &self,
        wc: &Wc,
        packet: &mut [u8; PACKET],
    ) -> Result<Option<(Sender, bool, usize)>, RdmaError> {
        let at = wc.wr_id as usize * RECV_STRIDE;
        let length = (wc.byte_len as usize).checked_sub(GRH);
        let Some(bytes) = length.and_then(|length| packet.get_mut(..length)) else {
            return Ok(None);
        };
        self.recv.copy_out(at + GRH, bytes)?;
        let length = bytes.len();
        let mut sender = Sender {
            qpn: wc.src_qp.number(),
            lid: wc.slid,
            service_level: wc.sl,
            gid: None,
        };
        if !wc.flags.contains(WcFlags::GRH) {
            return Ok(Some((sender, false, length)));
        }
        let mut ends = [[0; 16]; 2];
        for (gid, at) in ends.iter_mut().zip([at + 8, at + 24]) {
            self.recv.copy_out(at, gid)?;
        }
        sender.gid = Some(ends[0]);
        Ok(Some((sender, ends[1][0] == 0xff, length)))
    }

    /// Returns `true` if there is a send buffer.
    pub(crate) fn can_send(&mut self) -> Result<bool, RdmaError> {
        while let Some(completion) = self.send_cq.poll()? {
            self.failed |= completion.status() != WcStatus::Success;
            let index = completion.wr_id() as u32;
            self.free |= 1u32.checked_shl(index).unwrap_or(0);
        }
        Ok(self.free != 0 && self.is_up())
    }

    /// Sends a packet. One for which there is no buffer or no path is lost, as it could be on the wire.
    pub(crate) fn send(&mut self, to: &Target, packet: &[u8]) -> Result<(), RdmaError> {
        let (Some((qkey, _)), true) = (self.keys, self.can_send()?) else {
            return Ok(());
        };
        let ah = match self.device.create_ah(&to.path) {
            Ok(ah) => ah,
            Err(error) => {
                log::debug!("no packet goes there: {error}");
                return Ok(());
            }
        };
        let index = self.free.trailing_zeros();
        let at = index as usize * PACKET;
        self.send.copy_in(at, packet)?;
        let Some(sge) = self.send.sge(at, packet.len()) else {
            return Ok(());
        };
        self.qp.send_queue().post(&SendWr {
            wr_id: u64::from(index),
            op: SendOp::SendTo(Destination {
                ah: &ah,
                remote_qpn: Qpn::from_low_bits(to.qpn),
                remote_qkey: qkey,
            }),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        })?;
        self.free &= !(1 << index);
        Ok(())
    }

    /// Makes the next packet an event. Whether that is new, so that the caller has to look once more.
    pub(crate) fn arm(&mut self) -> bool {
        let due = self.device.config().interrupts && (self.recv_cq.take_event() || !self.armed);
        if due {
            self.recv_cq.arm(false);
            self.armed = true;
        }
        due
    }
}
