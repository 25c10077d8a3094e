//! QP1 in other partitions than the one at index 0 of the port's table: a UD QP with QP1's number for each that is in use.

use bareverbs_core::ah::AhAttr;
use bareverbs_core::cq::{Cq, CqInit};
use bareverbs_core::mr::{Access, Buffer};
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{
    Destination, GsiSource, GsiSourceError, QpCap, QpInitAttr, SendData, SendFlags, SendOp, SendWr,
};
use bareverbs_core::wc::WcStatus;
use bareverbs_core::{Device, LinkLayer, Platform, Qpn};

use crate::mad::MAD_LEN;
use crate::rdma::types::error::RdmaError;

/// Messages that one of them has on their way, or holds until it works.
const SENDS: usize = 16;
const ALL_FREE: u16 = u16::MAX;
/// Membership of a partition apart from how.
const PKEY_BASE: u16 = 0x7fff;

/// Storage for a QP with which a manager sends in a partition ([`set_partition_qps`](crate::rdma::RdmaCm::set_partition_qps)).
#[derive(Debug)]
pub struct PartitionQp<'d, P: Platform>(Option<Sender<'d, P>>);

impl<P: Platform> PartitionQp<'_, P> {
    /// An empty slot.
    pub const EMPTY: Self = Self(None);
}

impl<P: Platform> Default for PartitionQp<'_, P> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The QPs of a manager. What it does with them is called by pointers, so that an image without them has none of it.
#[derive(Debug)]
pub(crate) struct PartitionQps<'s, 'd, P: Platform> {
    slots: &'s mut [PartitionQp<'d, P>],
    device: &'d Device<'d, P>,
    /// The P_Key at index 0, in whose partition QP1 itself sends.
    first: u16,
    uses: u64,
    pub(crate) state: State,
    calls: Calls<P>,
}

/// State after the last call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// Each partition in use has a send buffer.
    pub(crate) has_buffers: bool,
    /// All that was sent has left.
    pub(crate) is_idle: bool,
    /// Something was begun whose end is to be looked for.
    pub(crate) waits: bool,
}

type Call<P> = for<'a, 's, 'd> fn(&'a mut PartitionQps<'s, 'd, P>) -> Result<(), RdmaError>;
type Send<P> = for<'a, 's, 'd> fn(
    &'a mut PartitionQps<'s, 'd, P>,
    u16,
    &'a To<'a>,
    &'a [u8; MAD_LEN],
) -> Result<(), RdmaError>;

#[derive(Debug)]
struct Calls<P: Platform> {
    send: Send<P>,
    poll: Call<P>,
    table_changed: Call<P>,
    close: Call<P>,
}

/// Where a MAD goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To<'a> {
    pub(crate) path: &'a AhAttr,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

/// The QP of a slot, with what it sends from; in the order in which the parts have to be destroyed.
#[derive(Debug)]
struct Sender<'d, P: Platform> {
    qp: GsiSource<'d, P>,
    cq: Cq<'d, P>,
    buffer: Buffer<'d, P>,
    _pd: Pd<'d, P>,
    device: &'d Device<'d, P>,
    /// P_Key and its index, once there are any.
    partition: Option<(u16, u16)>,
    starting: bool,
    failed: bool,
    /// Bit per send buffer that is free.
    free: u16,
    /// Messages in their buffers that wait until the QP works: path, QP and Q_Key.
    held: [Option<(AhAttr, u32, u32)>; SENDS],
    used: u64,
}

const fn same_partition(a: u16, b: u16) -> bool {
    a & PKEY_BASE != 0 && (a ^ b) & PKEY_BASE == 0
}

impl<'d, P: Platform> Sender<'d, P> {
    fn new(device: &'d Device<'d, P>) -> Result<Self, RdmaError> {
        let pd = device.default_pd()?;
        let cq = device.create_cq(CqInit::new(SENDS as u32))?;
        let buffer = pd.alloc_buffer(SENDS * MAD_LEN, Access::empty())?;
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: QpCap {
                max_send_wr: SENDS as u32,
                max_recv_wr: 0,
                max_send_sge: 1,
                max_recv_sge: 0,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        };
        let qp = pd
            .create_gsi_source(&mut init)
            .map_err(|error| match error {
                GsiSourceError::Create(error) => error.into(),
                _ => RdmaError::Unsupported("QP1 in other partitions on this device"),
            })?;
        Ok(Self {
            qp,
            cq,
            buffer,
            _pd: pd,
            device,
            partition: None,
            starting: false,
            failed: false,
            free: ALL_FREE,
            held: [None; SENDS],
            used: 0,
        })
    }

    fn serves(&self, pkey: u16) -> bool {
        self.partition
            .is_some_and(|(own, _)| same_partition(own, pkey))
    }

    /// Begins to work in a partition. What is on its way in the one before is lost; what is held goes to the new one only if
    /// that is the same.
    fn start(&mut self, pkey: u16, index: u16) {
        if !self.serves(pkey) {
            self.held = [None; SENDS];
        }
        self.partition = Some((pkey, index));
        self.qp.start(index);
        (self.starting, self.failed) = (true, false);
    }

    /// The port is in this partition no more.
    fn stop(&mut self) {
        let _ = self.qp.stop();
        self.partition = None;
        self.held = [None; SENDS];
        (self.starting, self.failed) = (false, false);
        self.free = ALL_FREE;
    }

    fn poll(&mut self) -> Result<(), RdmaError> {
        while let Some(completion) = self.cq.poll()? {
            let index = completion.wr_id() as u32;
            self.failed |= completion.status() != WcStatus::Success;
            self.free |= 1u16.checked_shl(index).unwrap_or(0);
        }
        if self.failed
            && !self.starting
            && let Some((pkey, index)) = self.partition
        {
            log::warn!("QP1 in partition {pkey:#06x} failed and is started again");
            self.start(pkey, index);
        }
        if !self.starting {
            return Ok(());
        }
        match self.qp.try_finish_start() {
            None => return Ok(()),
            Some(Ok(())) => self.starting = false,
            Some(Err(error)) => {
                // The messages are lost, and the next one has it tried again.
                self.stop();
                return Err(error.into());
            }
        }
        // What was on its way before has no completion.
        self.free = ALL_FREE;
        for index in 0..SENDS {
            if let Some((path, qpn, qkey)) = self.held[index].take() {
                let path = &path;
                self.post(index, &To { path, qpn, qkey })?;
            }
        }
        Ok(())
    }

    fn send(&mut self, to: &To<'_>, mad: &[u8; MAD_LEN]) -> Result<(), RdmaError> {
        let index = self.free.trailing_zeros() as usize;
        if index >= SENDS {
            log::warn!("a CM message is lost: no send buffer");
            return Ok(());
        }
        self.buffer.copy_in(index * MAD_LEN, mad)?;
        if self.starting {
            self.held[index] = Some((*to.path, to.qpn, to.qkey));
            self.free &= !(1 << index);
            return Ok(());
        }
        self.post(index, to)
    }

    fn post(&mut self, index: usize, to: &To<'_>) -> Result<(), RdmaError> {
        let ah = match self.device.create_ah(to.path) {
            Ok(ah) => ah,
            Err(error) => {
                log::warn!("a CM message cannot be sent: {error}");
                return Ok(());
            }
        };
        let Some(sge) = self.buffer.sge(index * MAD_LEN, MAD_LEN) else {
            return Ok(());
        };
        self.qp.send_queue().post(&SendWr {
            wr_id: index as u64,
            op: SendOp::SendTo(Destination {
                ah: &ah,
                remote_qpn: Qpn::from_low_bits(to.qpn),
                remote_qkey: to.qkey,
            }),
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        })?;
        self.free &= !(1 << index);
        Ok(())
    }
}

impl<'d, P: Platform> PartitionQps<'_, 'd, P> {
    /// Returns `true` if QP1 itself sends in this partition.
    pub(crate) const fn is_first(&self, pkey: u16) -> bool {
        same_partition(self.first, pkey)
    }

    /// Sends a MAD, or holds it until the QP for its partition works.
    pub(crate) fn send(
        &mut self,
        pkey: u16,
        to: &To<'_>,
        mad: &[u8; MAD_LEN],
    ) -> Result<(), RdmaError> {
        (self.calls.send)(self, pkey, to, mad)
    }

    /// Takes back buffers, and goes on with what is being started.
    pub(crate) fn poll(&mut self) -> Result<(), RdmaError> {
        (self.calls.poll)(self)
    }

    /// The port's table of P_Keys has changed.
    pub(crate) fn table_changed(&mut self) -> Result<(), RdmaError> {
        (self.calls.table_changed)(self)
    }

    /// Ends what is in flight.
    pub(crate) fn close(&mut self) {
        let _ = (self.calls.close)(self);
    }

    fn senders(&mut self) -> impl Iterator<Item = &mut Sender<'d, P>> {
        self.slots.iter_mut().filter_map(|slot| slot.0.as_mut())
    }

    /// The QP for a partition: its own, or the one that was not needed for longest. `None` if the port is not there, or all
    /// have messages on their way.
    fn sender(&mut self, pkey: u16) -> Result<Option<&mut Sender<'d, P>>, RdmaError> {
        self.uses += 1;
        let (uses, device) = (self.uses, self.device);
        let own = self.senders().position(|sender| sender.serves(pkey));
        let found = match own {
            Some(own) => own,
            None => {
                let idle = self.senders().enumerate();
                let idle = idle.filter(|(_, sender)| sender.free == ALL_FREE && !sender.starting);
                let Some((oldest, sender)) = idle.min_by_key(|(_, sender)| sender.used) else {
                    log::warn!("a CM message in partition {pkey:#06x} is lost: no QP for it");
                    return Ok(None);
                };
                let Some((index, _)) = device.find_pkey(pkey)? else {
                    log::warn!("a CM message is lost: the port is not in partition {pkey:#06x}");
                    return Ok(None);
                };
                sender.start(pkey, index);
                oldest
            }
        };
        let mut sender = self.senders().nth(found);
        if let Some(sender) = &mut sender {
            sender.used = uses;
        }
        Ok(sender)
    }

    fn send_now(&mut self, pkey: u16, to: &To<'_>, mad: &[u8; MAD_LEN]) -> Result<(), RdmaError> {
        match self.sender(pkey)? {
            Some(sender) => sender.send(to, mad)?,
            None => return Ok(()),
        }
        self.poll_now()
    }

    fn poll_now(&mut self) -> Result<(), RdmaError> {
        let mut state = State::IDLE;
        let mut result = Ok(());
        for sender in self.senders() {
            if let Err(error) = sender.poll() {
                result = Err(error);
            }
            state.has_buffers &= sender.free != 0;
            state.is_idle &= sender.failed || sender.free == ALL_FREE;
            state.waits |= sender.starting || sender.free == 0;
        }
        self.state = state;
        result
    }

    fn look_at_table(&mut self) -> Result<(), RdmaError> {
        let device = self.device;
        self.first = device.query_pkey(0)?;
        for sender in self.senders() {
            let Some((pkey, before)) = sender.partition else {
                continue;
            };
            match device.find_pkey(pkey)? {
                Some((index, _)) if index == before => {}
                Some((index, _)) => sender.start(pkey, index),
                None => sender.stop(),
            }
        }
        self.poll_now()
    }

    fn stop(&mut self) -> Result<(), RdmaError> {
        for sender in self.senders() {
            if sender.partition.is_some() {
                sender.stop();
            }
        }
        Ok(())
    }
}

impl State {
    const IDLE: Self = Self {
        has_buffers: true,
        is_idle: true,
        waits: false,
    };
}

impl<'s, 'd, P: Platform> PartitionQps<'s, 'd, P> {
    /// Creates a QP for each slot.
    pub(crate) fn new(
        device: &'d Device<'d, P>,
        slots: &'s mut [PartitionQp<'d, P>],
    ) -> Result<Self, RdmaError> {
        if device.capabilities().link_layer() != LinkLayer::InfiniBand {
            return Err(RdmaError::Unsupported("partitions on RoCE"));
        }
        for slot in &mut *slots {
            slot.0 = Some(Sender::new(device)?);
        }
        Ok(Self {
            slots,
            device,
            first: device.query_pkey(0)?,
            uses: 0,
            state: State::IDLE,
            calls: Calls {
                send: |qps, pkey, to, mad| qps.send_now(pkey, to, mad),
                poll: |qps| qps.poll_now(),
                table_changed: |qps| qps.look_at_table(),
                close: |qps| qps.stop(),
            },
        })
    }
}
