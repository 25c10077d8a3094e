//! The vendor-specific capability in configuration space: a semaphore for its users, and a gateway to address spaces of
//! which the model has two, the semaphores that a card's functions share and the [mailbox](Mailbox) of internal commands.
//!
//! There is no document of it; this is what Linux asks for (`core/lib/pci_vsc.c`), and iPXE (`mlx_pci_gw.c`, `mlx_icmd.c`).
//! Other address spaces (the card's registers, the network interface of boot ROMs) read as not supported, which Linux takes
//! for a card without dumps, and iPXE for one that its ordinary driver is for.

use crate::bus::icmd::Mailbox;

/// Length of the capability.
pub(crate) const LEN: usize = 0x18;
/// Its ID.
pub(crate) const ID: u8 = 0x09;

/// Register: the space, and above it whether it is supported.
pub(crate) const CONTROL: usize = 0x04;
const COUNTER: usize = 0x08;
const SEMAPHORE: usize = 0x0c;
const ADDRESS: usize = 0x10;
const DATA: usize = 0x14;

/// In the address: set by the writer for a write and cleared when it is done, set by the card when a read is done.
const FLAG: u32 = 1 << 31;
/// Above the space in the control register: it is supported.
const SUPPORTED: u32 = 1 << 29;
/// The space of internal commands.
const SPACE_COMMANDS: u32 = 0x3;
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
    mailbox: Mailbox,
}

impl Vsc {
    /// The dword at a multiple of four.
    pub(crate) fn read(&mut self, offset: usize) -> u32 {
        match offset {
            CONTROL if self.supported() => self.space | SUPPORTED,
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

    fn supported(&self) -> bool {
        matches!(self.space, SPACE_COMMANDS | SPACE_SEMAPHORE)
    }

    /// The mailbox of internal commands.
    pub(crate) fn mailbox(&mut self) -> &mut Mailbox {
        &mut self.mailbox
    }

    /// Writes a dword at a multiple of four, or only the space of the control register.
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
        if value & FLAG == 0 {
            self.data = match self.space {
                SPACE_SEMAPHORE => self.semaphores.get(&address).copied().unwrap_or(0),
                SPACE_COMMANDS => self.mailbox.read(address),
                _ => 0,
            };
            self.address = address | FLAG;
            return;
        }
        match self.space {
            SPACE_SEMAPHORE if self.data == 0 => {
                self.semaphores.remove(&address);
            }
            SPACE_SEMAPHORE => {
                self.semaphores.entry(address).or_insert(self.data);
            }
            SPACE_COMMANDS => self.mailbox.write(address, self.data),
            _ => {}
        }
        self.address = address;
    }
}
