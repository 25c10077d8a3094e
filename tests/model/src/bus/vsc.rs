//! The vendor-specific capability in configuration space: a semaphore for its users, and a gateway to address spaces of
//! which the model has one, the semaphores that a card's functions share.
//!
//! There is no document of it; this is what Linux asks for (`core/lib/pci_vsc.c`). Other address spaces (the card's
//! registers) read as not supported, which Linux takes for a card without dumps.

/// Length of the capability.
pub(crate) const LEN: usize = 0x18;
/// Its ID.
pub(crate) const ID: u8 = 0x09;

const CONTROL: usize = 0x04;
const COUNTER: usize = 0x08;
const SEMAPHORE: usize = 0x0c;
const ADDRESS: usize = 0x10;
const DATA: usize = 0x14;

/// In the address: set by the writer for a write and cleared when it is done, set by the card when a read is done.
const FLAG: u32 = 1 << 31;
/// Above the space in the control register: it is supported.
const SUPPORTED: u32 = 1 << 29;
/// The space of semaphores.
const SPACE_SEMAPHORE: u32 = 0xa;

/// The registers behind the capability's head.
#[derive(Debug, Default)]
pub(crate) struct Vsc {
    space: u32,
    counter: u32,
    semaphore: u32,
    address: u32,
    data: u32,
    /// The owners of the semaphores that are taken, by address.
    semaphores: std::collections::BTreeMap<u32, u32>,
}

impl Vsc {
    /// The dword at a multiple of four.
    pub(crate) fn read(&mut self, offset: usize) -> u32 {
        match offset {
            CONTROL if self.space == SPACE_SEMAPHORE => self.space | SUPPORTED,
            CONTROL => self.space,
            COUNTER => {
                // Every reader gets another number, with which it tries to take the semaphore.
                self.counter = self.counter.wrapping_add(1).max(1);
                self.counter
            }
            SEMAPHORE => self.semaphore,
            ADDRESS => self.address,
            DATA => self.data,
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, offset: usize, value: u32) {
        match offset {
            CONTROL => self.space = value & 0xffff,
            // A second writer finds the number of the first.
            SEMAPHORE if value == 0 || self.semaphore == 0 => self.semaphore = value,
            ADDRESS => self.access(value),
            DATA => self.data = value,
            _ => {}
        }
    }

    fn access(&mut self, value: u32) {
        let address = value & !FLAG;
        let known = self.space == SPACE_SEMAPHORE;
        if value & FLAG == 0 {
            let owner = self.semaphores.get(&address).copied().unwrap_or(0);
            self.data = if known { owner } else { 0 };
            self.address = address | FLAG;
            return;
        }
        if known && self.data == 0 {
            self.semaphores.remove(&address);
        } else if known {
            self.semaphores.entry(address).or_insert(self.data);
        }
        self.address = address;
    }
}
