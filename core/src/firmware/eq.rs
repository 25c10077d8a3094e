//! Event queues: a ring that the device writes, and a doorbell with the number of entries read.
//!
//! The consumer index goes to the device at the latest every [`UPDATE_INTERVAL`] entries, so that the ring cannot fill up
//! while it is being read; it is created large enough for one event of every CQ and a reserve for the others.

use bareverbs_firmware_cmds::doorbell::{self, EqDoorbell};
use bareverbs_firmware_cmds::eq::Eqc;
use bareverbs_firmware_cmds::event::{Event, EventType};
use bareverbs_firmware_cmds::numbers::{Eqn, UarIndex};

use crate::memory::dma::DmaMemory;
use crate::memory::eqe_ring::EqeRing;
use crate::platform::{DmaError, Platform};

/// Entries read before the doorbell is rung.
const UPDATE_INTERVAL: u32 = 64;
/// Entries beside those that the CQs may fill: what the stock driver reserves.
pub(crate) const RESERVE: u32 = 32 + 128;

/// Events that the first event queue is subscribed to: commands, page requests, and everything that `ibv_get_async_event`
/// can report.
pub(crate) const EVENT_MASK: u64 = EventType::Command.mask()
    | EventType::PageRequest.mask()
    | EventType::PathMigrated.mask()
    | EventType::CommunicationEstablished.mask()
    | EventType::SqDrained.mask()
    | EventType::CqError.mask()
    | EventType::WqCatastrophic.mask()
    | EventType::PathMigrationFailed.mask()
    | EventType::PortChange.mask()
    | EventType::WqInvalidRequest.mask()
    | EventType::WqAccessError.mask()
    | EventType::SrqCatastrophic.mask()
    | EventType::SrqLastWqe.mask()
    | EventType::SrqLimit.mask();

/// One event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    ring: EqeRing,
    /// Entries read since the last doorbell.
    untold: u32,
    eqn: Eqn,
    uar: UarIndex,
    vector: u16,
    /// Ask for an interrupt when there is more.
    interrupts: bool,
}

impl EventQueue {
    /// Memory for a queue, its entries belonging to the device. It gets its number from
    /// [`created`](Self::created).
    pub(crate) fn new<P: Platform>(
        platform: &P,
        log_size: u8,
        uar: UarIndex,
        vector: u16,
        interrupts: bool,
    ) -> Result<Self, DmaError> {
        Ok(Self {
            ring: EqeRing::new(platform, log_size)?,
            untold: 0,
            eqn: Eqn(0),
            uar,
            vector,
            interrupts,
        })
    }

    /// Fills the context of CREATE_EQ.
    pub(crate) fn describe(&self, context: &mut Eqc) {
        context
            .set_log_eq_size(self.ring.log_size())
            .set_uar_page(self.uar.number())
            .set_intr(self.vector);
    }

    /// The number of the ring's pages of 4 KiB.
    pub(crate) fn pages(&self) -> usize {
        self.ring.memory().len() / 4096
    }

    /// The device's address of a page of the ring.
    pub(crate) fn page_iova(&self, page: usize) -> u64 {
        self.ring.memory().iova() + page as u64 * 4096
    }

    /// The device has created it.
    pub(crate) fn created<P: Platform>(&mut self, platform: &P, eqn: Eqn) {
        self.eqn = eqn;
        if self.interrupts {
            self.update(platform, doorbell::EQ_ARM);
        }
    }

    /// Its number.
    pub(crate) fn eqn(&self) -> Eqn {
        self.eqn
    }

    /// Bytes of its ring.
    pub(crate) fn bytes(&self) -> u64 {
        self.ring.memory().len() as u64
    }

    /// Its memory, once the device no longer writes to it.
    pub(crate) fn into_memory(self) -> DmaMemory {
        self.ring.into_memory()
    }

    /// Reads all events that are there, but not more than one ring full. Returns how many.
    pub(crate) fn drain<P: Platform>(
        &mut self,
        platform: &P,
        mut handle: impl FnMut(Event),
    ) -> u32 {
        let mut read = 0u32;
        while read < 1 << self.ring.log_size() {
            let Some(entry) = self.ring.next() else {
                break;
            };
            self.untold += 1;
            read += 1;
            handle(Event::parse(&entry));
            if self.untold == UPDATE_INTERVAL {
                self.update(platform, doorbell::EQ_CONSUME);
            }
        }
        // Without interrupts there is nothing to arm, and the doorbell can be rung for several entries: the register
        // write would cost more than the event.
        if read > 0 && self.interrupts {
            self.update(platform, doorbell::EQ_ARM);
        }
        read
    }

    /// Rings the doorbell with the number of entries read. At [`doorbell::EQ_ARM`] this asks for an interrupt as well,
    /// which is raised at once if more events have come meanwhile.
    fn update<P: Platform>(&mut self, platform: &P, offset: usize) {
        self.untold = 0;
        platform.write_be32(
            self.uar.bar_offset() + offset,
            EqDoorbell::new(self.eqn, self.ring.consumer()).0,
        );
    }
}
