//! The ring of an event queue.
//!
//! An entry belongs to the host when its owner bit equals the parity of the consumer's pass over the ring. The owner bit is
//! read first, and what it guards behind a read barrier.

use bareverbs_firmware_cmds::eq::Eqe;
use bareverbs_firmware_cmds::event::{EQE_SIZE, EqeOwner, owner_of_pass};
use bareverbs_firmware_cmds::word::Word;

use crate::barrier::read_barrier;
use crate::memory::dma::DmaMemory;
use crate::platform::{DmaError, Platform};

/// An event queue's ring, as its consumer uses it.
#[derive(Debug)]
pub(crate) struct EqeRing {
    memory: DmaMemory,
    log_size: u8,
    /// Entries read, running freely.
    consumer: u32,
}

impl EqeRing {
    /// A ring in new memory, its entries belonging to the device.
    pub(crate) fn new<P: Platform>(platform: &P, log_size: u8) -> Result<Self, DmaError> {
        let memory = DmaMemory::alloc_pages(platform, EQE_SIZE << log_size)?;
        Ok(Self::on(memory, log_size))
    }

    /// A ring in memory that is large enough for it.
    pub(super) fn on(memory: DmaMemory, log_size: u8) -> Self {
        for entry in 0..1 << log_size {
            memory.write_u8(entry * EQE_SIZE + EqeOwner::OFFSET, EqeOwner::INIT.0);
        }
        Self {
            memory,
            log_size,
            consumer: 0,
        }
    }

    /// Begins at another consumer index.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn start_at(&mut self, consumer: u32) {
        self.consumer = consumer;
    }

    /// Binary logarithm of the number of entries.
    pub(crate) fn log_size(&self) -> u8 {
        self.log_size
    }

    /// Entries read, running freely.
    pub(crate) fn consumer(&self) -> u32 {
        self.consumer
    }

    /// The memory that it lies in.
    pub(crate) fn memory(&self) -> &DmaMemory {
        &self.memory
    }

    /// Its memory, once the device no longer writes to it.
    pub(crate) fn into_memory(self) -> DmaMemory {
        self.memory
    }

    /// Takes the next entry, if it is the host's.
    pub(crate) fn next(&mut self) -> Option<Eqe> {
        let at = (self.consumer as usize & ((1 << self.log_size) - 1)) * EQE_SIZE;
        let last = EqeOwner(self.memory.read_u8(at + EqeOwner::OFFSET));
        if last.owner() != owner_of_pass(self.consumer, self.log_size) {
            return None;
        }
        read_barrier();
        let mut entry = Eqe::ZERO;
        self.memory.read_bytes(at, &mut entry.0);
        self.consumer = self.consumer.wrapping_add(1);
        Some(entry)
    }
}
