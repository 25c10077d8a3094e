//! The firmware's objects around a queue: made by one command, destroyed by another, in the order of their owners'
//! fields.

use core::alloc::Layout;

use bareverbs_firmware_cmds::domain::{AllocTransportDomainIn, DeallocTransportDomainIn};
use bareverbs_firmware_cmds::rq::{DestroyRqIn, ModifyRqIn};
use bareverbs_firmware_cmds::sq::{DestroySqIn, ModifySqIn};
use bareverbs_firmware_cmds::tir::{CreateTirIn, DestroyTirIn};
use bareverbs_firmware_cmds::tis::{CreateTisIn, DestroyTisIn};

use crate::device::dma_buffer::DmaBuffer;
use crate::device::{Device, TailIn};
use crate::ethernet::error::EthernetError;
use crate::memory::ring_pages::{PageOffset, RingPages};
use crate::platform::{DmaError, Platform};
use crate::types::error::CommandError;
use bareverbs_firmware_cmds::srq::Wq;

/// States of send and receive queues.
pub(super) mod state {
    use bareverbs_firmware_cmds::values::QueueState;

    pub(crate) const RESET: u8 = QueueState::Reset.number();
    pub(crate) const READY: u8 = QueueState::Ready.number();
    pub(crate) const ERROR: u8 = QueueState::Error.number();
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    TransportDomain,
    Tis,
    Tir,
    Sq,
    Rq,
}

/// The state of an object in the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Alive,
    Gone,
    /// It did not say that it has destroyed it.
    Stuck,
}

/// An object of the firmware; destroyed when dropped.
pub(super) struct Object<'d, P: Platform> {
    device: &'d Device<'d, P>,
    kind: Kind,
    number: u32,
    life: Life,
}

impl<'d, P: Platform> Object<'d, P> {
    pub(super) fn new(device: &'d Device<'d, P>, kind: Kind, number: u32) -> Self {
        Self {
            device,
            kind,
            number,
            life: Life::Alive,
        }
    }

    /// A transport domain: queues of one domain do not receive each other's frames.
    pub(super) fn transport_domain(device: &'d Device<'d, P>) -> Result<Self, CommandError> {
        let out = device.execute(&AllocTransportDomainIn::new())?;
        Ok(Self::new(
            device,
            Kind::TransportDomain,
            out.transport_domain(),
        ))
    }

    /// A TIS in a transport domain.
    pub(super) fn tis(device: &'d Device<'d, P>, domain: u32) -> Result<Self, CommandError> {
        let mut command = CreateTisIn::new();
        command.ctx_mut().set_transport_domain(domain);
        let out = device.execute(&command)?;
        Ok(Self::new(device, Kind::Tis, out.tisn()))
    }

    /// A TIR that hands all its frames to one receive queue.
    pub(super) fn tir(
        device: &'d Device<'d, P>,
        domain: u32,
        rqn: u32,
    ) -> Result<Self, CommandError> {
        let mut command = CreateTirIn::new();
        command
            .ctx_mut()
            .set_transport_domain(domain)
            .set_inline_rqn(rqn);
        let out = device.execute(&command)?;
        Ok(Self::new(device, Kind::Tir, out.tirn()))
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Destroys it, if that was not tried before.
    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        if self.life != Life::Alive {
            return Ok(());
        }
        let result = self.execute_destroy();
        self.life = match result {
            Ok(()) => Life::Gone,
            Err(_) => Life::Stuck,
        };
        result
    }

    fn execute_destroy(&self) -> Result<(), CommandError> {
        let (device, number) = (self.device, self.number);
        match self.kind {
            Kind::TransportDomain => {
                let mut command = DeallocTransportDomainIn::new();
                command.set_transport_domain(number);
                device.execute_no_output(&command)
            }
            Kind::Tis => {
                let mut command = DestroyTisIn::new();
                command.set_tisn(number);
                device.execute_no_output(&command)
            }
            Kind::Tir => {
                let mut command = DestroyTirIn::new();
                command.set_tirn(number);
                device.execute_no_output(&command)
            }
            Kind::Sq => {
                let mut command = DestroySqIn::new();
                command.set_sqn(number);
                device.execute_no_output(&command)
            }
            Kind::Rq => {
                let mut command = DestroyRqIn::new();
                command.set_rqn(number);
                device.execute_no_output(&command)
            }
        }
    }
}

impl<P: Platform> Drop for Object<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!(
                "{:?} {:#x} stays with the device: {error}",
                self.kind,
                self.number
            );
        }
    }
}

/// Moves a send queue from state to state.
pub(super) fn move_sq<P: Platform>(
    device: &Device<'_, P>,
    sqn: u32,
    from: u8,
    to: u8,
) -> Result<(), CommandError> {
    let mut command = ModifySqIn::new();
    command.set_sqn(sqn).set_sq_state(from);
    command.ctx_mut().set_state(to);
    device.execute_no_output(&command)
}

/// Moves a receive queue from state to state. Tags stay in the frames, unless [`strip_vlan`] says otherwise.
pub(super) fn move_rq<P: Platform>(
    device: &Device<'_, P>,
    rqn: u32,
    from: u8,
    to: u8,
) -> Result<(), CommandError> {
    let mut command = ModifyRqIn::new();
    command.set_rqn(rqn).set_rq_state(from);
    command.ctx_mut().set_state(to).set_vsd(true);
    device.execute_no_output(&command)
}

/// Has a receive queue that is ready, or gets ready from this state, take VLAN tags out or leave them in.
pub(super) fn strip_vlan<P: Platform>(
    device: &Device<'_, P>,
    rqn: u32,
    from: u8,
    strip: bool,
) -> Result<(), CommandError> {
    /// `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD`.
    const VSD: u64 = 1 << 1;
    let mut command = ModifyRqIn::new();
    command
        .set_rqn(rqn)
        .set_rq_state(from)
        .set_modify_bitmask(VSD);
    command.ctx_mut().set_state(state::READY).set_vsd(!strip);
    device.execute_no_output(&command)
}

/// Memory of a queue: the ring at a page's start, the doorbell record in a separate cache line, and what the driver
/// keeps.
pub(super) struct QueueMemory<'d, P: Platform> {
    pub(super) buffer: DmaBuffer<'d, P>,
    /// Bytes of the ring.
    ring: usize,
    /// Offset of the doorbell record.
    pub(super) record: usize,
    /// Offset of what the driver keeps.
    pub(super) notes: usize,
}

impl<'d, P: Platform> QueueMemory<'d, P> {
    pub(super) fn new(
        device: &'d Device<'d, P>,
        ring: usize,
        notes: usize,
    ) -> Result<Self, DmaError> {
        let record = ring.next_multiple_of(64);
        let behind = record + 64;
        let layout = Layout::from_size_align((behind + notes).next_multiple_of(64), 4096)
            .map_err(|_| DmaError::OutOfMemory)?;
        Ok(Self {
            buffer: device.alloc_dma(layout)?,
            ring,
            record,
            notes: behind,
        })
    }

    /// Says in a context where it lies.
    pub(super) fn describe(&self, wq: &mut Wq) -> RingPages {
        let pages = RingPages::new(self.buffer.iova(), self.ring, PageOffset::FiveBits);
        wq.set_wq_type(CYCLIC)
            .set_page_offset(pages.page_offset())
            .set_log_wq_pg_sz(pages.log_page_size())
            .set_dbr_addr(self.buffer.iova() + self.record as u64);
        pages
    }
}

/// `wq_type`: a ring.
const CYCLIC: u8 = 1;

/// A send or receive queue with its memory, which is given back only when the device has let go of it.
pub(super) struct WorkQueue<'d, P: Platform> {
    object: Object<'d, P>,
    memory: QueueMemory<'d, P>,
}

impl<'d, P: Platform> WorkQueue<'d, P> {
    /// Makes the queue with `create`, which gets the page list and returns the number.
    pub(super) fn create(
        device: &'d Device<'d, P>,
        kind: Kind,
        memory: QueueMemory<'d, P>,
        pages: &RingPages,
        create: impl FnOnce(TailIn<'_>) -> Result<u32, CommandError>,
    ) -> Result<Self, EthernetError> {
        let mut list = |index: usize| pages.page(index);
        match create(TailIn::Qwords(pages.len(), &mut list)) {
            Ok(number) => Ok(Self {
                object: Object::new(device, kind, number),
                memory,
            }),
            Err(error) => {
                if error.may_still_happen() {
                    memory.buffer.quarantine();
                }
                Err(EthernetError::Command(error))
            }
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.object.number()
    }

    pub(super) fn memory(&self) -> &QueueMemory<'d, P> {
        &self.memory
    }

    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        self.object.destroy()
    }

    /// Returns `true` if the device has let go of its memory.
    pub(super) fn is_gone(&self) -> bool {
        self.object.life == Life::Gone
    }

    /// Leaves its memory allocated until the device is closed: something else points into it.
    pub(super) fn keep_memory(&mut self) {
        self.memory.buffer.take().quarantine();
    }
}

impl<P: Platform> Drop for WorkQueue<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.object.destroy() {
            let (kind, number) = (self.object.kind, self.object.number);
            log::warn!("{kind:?} {number:#x} stays with the device: {error}");
        }
        if self.object.life != Life::Gone {
            self.memory.buffer.take().quarantine();
        }
    }
}
