//! The mailbox of internal commands, which reaches the firmware while there is no command queue: space 3 of the
//! [vendor-specific capability](super::vsc).
//!
//! There is no document of it. Addresses and fields are those of iPXE (`mlx_icmd.h`) and mstflint (`tools_cif.c`,
//! `mtcr_icmd_cif.c`), and the size is what a ConnectX-5 tells mstflint.

/// Size of the data in bytes.
const SIZE: u32 = 0x340;

/// Address of the control register: opcode, status, and whether the command is under way.
const CONTROL: u32 = 0x0;
/// Address of the size.
const SIZE_ADDRESS: u32 = 0x1000;
/// Address of the data.
const DATA: u32 = 0x10_0000;

const BUSY: u32 = 1;
const STATUS_SHIFT: u32 = 8;
const STATUS: u32 = 0xff << STATUS_SHIFT;
const OPCODE_SHIFT: u32 = 16;

/// Control register and data.
#[derive(Debug)]
pub(crate) struct Mailbox {
    control: u32,
    /// The first bytes of a dword are its highest.
    pub(crate) data: [u32; (SIZE / 4) as usize],
}

impl Default for Mailbox {
    fn default() -> Self {
        Self {
            control: 0,
            data: [0; (SIZE / 4) as usize],
        }
    }
}

impl Mailbox {
    fn place(address: u32) -> Option<usize> {
        let offset = address.checked_sub(DATA)?;
        (offset < SIZE && offset.is_multiple_of(4)).then_some((offset / 4) as usize)
    }

    pub(crate) fn read(&self, address: u32) -> u32 {
        match (address, Self::place(address)) {
            (_, Some(place)) => self.data[place],
            (CONTROL, _) => self.control,
            (SIZE_ADDRESS, _) => SIZE,
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, address: u32, value: u32) {
        match (address, Self::place(address)) {
            // The firmware has it.
            _ if self.busy() => {}
            (_, Some(place)) => self.data[place] = value,
            (CONTROL, _) => self.control = value,
            _ => {}
        }
    }

    /// Returns `true` if a command is under way.
    pub(crate) fn busy(&self) -> bool {
        self.control & BUSY != 0
    }

    pub(crate) fn opcode(&self) -> u16 {
        (self.control >> OPCODE_SHIFT) as u16
    }

    /// The command is done.
    pub(crate) fn complete(&mut self, status: u8) {
        self.control &= !(STATUS | BUSY);
        self.control |= u32::from(status) << STATUS_SHIFT;
    }
}
