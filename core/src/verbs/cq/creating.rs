//! CQs that are being created: memory and slot are there, the firmware has not answered yet.

// UNSAFETY: says which memory is the ring and which the doorbell record.
#![expect(unsafe_code)]

use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::cq::{CreateCqIn, CreateCqOut};
use bareverbs_firmware_cmds::numbers::Cqn;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::dma_buffer::DmaBuffer;
use crate::device::in_flight::{InFlight, SlotClass};
use crate::device::{Device, TailIn};
use crate::memory::arm::Arm;
use crate::memory::cqe_ring::CqeRing;
use crate::memory::record::{DoorbellRecord, RECORD_LEN};
use crate::memory::ring_pages::{PageOffset, RingPages};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::verbs::cq::entries::RECORDS_LEN;
use crate::verbs::cq::ring::Ring;
use crate::verbs::cq::{Cq, CqError, CqInit, ring_memory, ring_size};

/// A CQ that is being created ([`Device::start_create_cq`]).
///
/// Its command is with the firmware, or waits for a place in the command queue. Look for the CQ with
/// [`try_finish`](Self::try_finish) while the device is [polled](Device::poll), or await it: see the [crate](crate#tasks).
///
/// If it is dropped before, the answer is waited for, and the CQ destroyed, as when a CQ is dropped.
#[must_use = "dropping it waits for the firmware"]
pub struct CreatingCq<'d, P: Platform> {
    device: &'d Device<'d, P>,
    init: CqInit,
    log_size: u8,
    class: SlotClass,
    flight: InFlight,
    /// The parts of the CQ, until it is over.
    parts: Option<Parts<'d, P>>,
}

struct Parts<'d, P: Platform> {
    index: u32,
    memory: DmaBuffer<'d, P>,
    records: DmaBuffer<'d, P>,
}

impl<'d, P: Platform> Device<'d, P> {
    /// Begins to create a CQ, and waits for nothing: [`CreatingCq::try_finish`] gives the CQ, and in a task it is awaited.
    pub fn start_create_cq(&'d self, init: CqInit) -> Result<CreatingCq<'d, P>, CqError> {
        self.begin_cq(SlotClass::Begun, init)
    }

    /// The same, for a caller that waits, or not.
    pub(super) fn begin_cq(
        &'d self,
        class: SlotClass,
        init: CqInit,
    ) -> Result<CreatingCq<'d, P>, CqError> {
        let (mut log_stride, mut records_len) = (6, RECORD_LEN);
        if let Some(kind) = init.entries.kind() {
            (kind.check)(kind, &self.capabilities().hca)?;
            (log_stride, records_len) = (kind.log_stride, RECORDS_LEN);
        }
        let size = ring_size(self, init.cqe)?;
        let memory = ring_memory(self, size, log_stride)?;
        // A line of its own: consumer index, arm state.
        let records = super::memory(self, records_len, 64)?;
        let Some(index) = self.tables.alloc_cq() else {
            return Err(CqError::NoSlot {
                limit: self.tables.cqs.len(),
            });
        };
        let mut begun = CreatingCq {
            device: self,
            init,
            log_size: size.ilog2() as u8,
            class,
            flight: InFlight::Idle,
            parts: Some(Parts {
                index,
                memory,
                records,
            }),
        };
        begun.post()?;
        Ok(begun)
    }
}

impl<'d, P: Platform> CreatingCq<'d, P> {
    /// The CQ, or why there is none; `None` while the firmware has not answered, and once this has returned something. It
    /// waits for nothing; meanwhile the device has to be [polled](Device::poll).
    pub fn try_finish(&mut self) -> Option<Result<Cq<'d, P>, CqError>> {
        self.step(None)
    }

    /// Returns `true` if the firmware has the command. If not, the command queue is full, and
    /// [`try_finish`](Self::try_finish) asks again.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        self.flight.is_posted()
    }

    fn post(&mut self) -> Result<(), CqError> {
        let Some(Parts {
            memory, records, ..
        }) = &self.parts
        else {
            return Ok(());
        };
        let (device, init) = (self.device, &self.init);
        let pages = RingPages::new(memory.iova(), memory.len(), PageOffset::SixBits);
        let mut command = CreateCqIn::new();
        command
            .cq_context_mut()
            .set_log_cq_size(self.log_size)
            .set_uar_page(device.uar().number())
            .set_c_eqn_or_apu_element(device.completion_eqn(init.comp_vector).0.into())
            .set_log_page_size(pages.log_page_size())
            .set_page_offset(pages.page_offset())
            .set_dbr_addr(records.iova())
            .set_oi(init.ignore_overrun);
        if let Some(kind) = init.entries.kind() {
            (kind.set)(kind, command.cq_context_mut());
        }
        let mut list = |i: usize| pages.page(i);
        let begun = device.begin(
            &mut self.flight,
            self.class,
            CreateCqIn::OPCODE,
            command.as_bytes(),
            TailIn::Qwords(pages.len(), &mut list),
            size_of::<CreateCqOut>(),
        );
        begun.map_err(|error| self.fail(error))
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Result<Cq<'d, P>, CqError>> {
        self.parts.as_ref()?;
        if !self.is_posted()
            && let Err(error) = self.post()
        {
            return Some(Err(error));
        }
        let mut out = CreateCqOut::new_zeroed();
        let answer = self
            .device
            .look(&self.flight, out.as_mut_bytes(), &mut [], waker)?;
        Some(match answer {
            Ok(()) => Ok(self.made(Cqn::from_low_bits(out.cqn()))?),
            Err(error) => Err(self.fail(error)),
        })
    }

    /// The CQ, which the device has now.
    fn made(&mut self, cqn: Cqn) -> Option<Cq<'d, P>> {
        let device = self.device;
        let Parts {
            index,
            memory,
            records,
        } = self.parts.take()?;
        let tables = &device.tables;
        tables.register_cq(index, cqn.number());
        // SAFETY: all of one memory is the record, all of the other the ring. The CQ keeps both for as long as it lives, or
        // until it has moved to another ring; it is borrowed while a completion is in use, and takes the ring from its
        // slot before.
        let (record, entries, sessions) = unsafe {
            let record = DoorbellRecord::new(records.ptr());
            let (base, size) = (memory.ptr(), 1 << self.log_size);
            let (polled, sessions) = match self.init.entries.kind() {
                None => ((base, size), None),
                Some(kind) => {
                    let ring = (kind.make)(kind, records.ptr(), base, size);
                    ((records.ptr().add(RECORD_LEN), 1), Some(ring))
                }
            };
            (record, CqeRing::new(polled.0, polled.1), sessions)
        };
        let slot = &tables.cqs[index as usize];
        let ring = Ring::new(index, entries, sessions, record, tables.qps, tables.srqs);
        *slot.ring.lock() = Some(ring.share());
        Some(Cq {
            ring: RefCell::new(ring),
            slot,
            events: Arm::default(),
            cqn,
            index,
            device,
            memory: memory.into_memory(),
            records: records.into_memory(),
            init: self.init,
        })
    }

    /// There will be no CQ.
    fn fail(&mut self, error: CommandError) -> CqError {
        self.discard(error.may_still_happen());
        CqError::Command(error)
    }

    /// Frees what the CQ was to be made of. `used`: the device may still use the memory.
    fn discard(&mut self, used: bool) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        self.device.tables.free_cq(parts.index);
        if used {
            parts.memory.quarantine();
            parts.records.quarantine();
        }
    }
}

impl<P: Platform> Drop for CreatingCq<'_, P> {
    fn drop(&mut self) {
        if self.parts.is_some() && self.is_posted() {
            let device = self.device;
            // The CQ, if there is one, is destroyed right away.
            drop(device.until(|| self.try_finish()));
        }
        self.discard(false);
    }
}

impl<'d, P: Platform> Future for CreatingCq<'d, P> {
    type Output = Result<Cq<'d, P>, CqError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().step(Some(task.waker())) {
            Some(made) => Poll::Ready(made),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform> fmt::Debug for CreatingCq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatingCq")
            .field("log_size", &self.log_size)
            .field("posted", &self.is_posted())
            .finish_non_exhaustive()
    }
}
