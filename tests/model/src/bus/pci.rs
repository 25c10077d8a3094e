//! The PCI function: configuration space, the PCI Express capability with its function reset, and MSI-X with table and
//! pending bits in BAR 0.

use crate::bus::icmd::Mailbox;
use crate::bus::vsc::{self, Vsc};
use crate::config::{Config, MsixMode, PortType};

const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u16 = 0x2;
const COMMAND_BUS_MASTER: u16 = 0x4;
const COMMAND_INTX_DISABLE: u16 = 0x400;
const BAR0: usize = 0x10;
const PM: usize = 0x40;
const PCIE: usize = 0x60;
const DEVICE_CONTROL: usize = PCIE + 0x08;
const MSIX: usize = 0x9c;
const MSIX_CONTROL: usize = MSIX + 2;
const VSC: usize = 0xc0;
/// BAR 0 page of the MSI-X table, as every card has it whose `lspci` is published. Linux's `struct mlx5_init_seg` has its last
/// registers there (`ieee1588_clk`, `clr_intx`), which its driver does not use.
pub(crate) const MSIX_TABLE: u64 = 0x2000;
/// BAR 0 page of the pending bits.
pub(crate) const MSIX_PENDING: u64 = 0x3000;

/// The effect of a configuration write beyond storing a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigEffect {
    None,
    FunctionReset,
    /// Vectors may have been unmasked.
    Unmasked,
    /// An internal command waits in its mailbox.
    InternalCommand,
}

/// One MSI-X table entry.
#[derive(Debug, Clone, Copy)]
struct Vector {
    raw: [u8; 16],
}

impl Vector {
    const RESET: Self = Self {
        raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    };

    fn masked(&self) -> bool {
        self.raw[12] & 1 != 0
    }
}

/// The function as the bus sees it.
#[derive(Debug)]
pub(crate) struct Pci {
    space: [u8; 256],
    writable: [u8; 256],
    vectors: Vec<Vector>,
    pending: Vec<bool>,
    mode: MsixMode,
    /// The vendor-specific capability, if there is one.
    vsc: Option<Vsc>,
    /// Virtual functions have no interrupt pin (SR-IOV 1.1, 3.4.1.15).
    has_pin: bool,
    /// Interrupts that asserted INTx.
    intx: u64,
    /// `true` if the log has it since the last reset.
    intx_logged: bool,
}

impl Pci {
    pub(crate) fn new(config: &Config) -> Self {
        let mut space = [0; 256];
        let mut writable = [0; 256];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x00, &config.vendor_id.to_le_bytes());
        put(0x02, &config.device_id.to_le_bytes());
        // Status: there is a capability list.
        put(0x06, &0x0010u16.to_le_bytes());
        // Class 0x020000, Ethernet controller, or 0x020700, InfiniBand controller.
        let subclass = match config.port_type {
            PortType::Ethernet => 0x00,
            PortType::InfiniBand => 0x07,
        };
        put(0x08, &[0x00, 0x00, subclass, 0x02]);
        put(0x0c, &[0x10]);
        // BAR 0: memory, 64 bits, prefetchable.
        put(BAR0, &[0x0c]);
        put(0x2c, &config.vendor_id.to_le_bytes());
        put(0x2e, &0x0008u16.to_le_bytes());
        if config.is_virtual() {
            // The physical function's SR-IOV capability enables memory for all of them. vfio-pci, which emulates the bit,
            // starts with it set.
            put(COMMAND, &COMMAND_MEMORY.to_le_bytes());
        } else {
            // Power management, version 3, no power states but D0 and D3hot: the last one in the list.
            put(PM, &[0x01, 0x00, 0x03, 0x00, 0x08, 0x00, 0x00, 0x00]);
        }
        let last = if config.is_virtual() { 0 } else { PM as u8 };
        put(0x34, &[PCIE as u8]);
        // PCI Express endpoint, version 2; function reset in the device capabilities.
        put(PCIE, &[0x10, MSIX as u8, 0x02, 0x00]);
        put(PCIE + 0x04, &(1u32 << 28 | 0x8002).to_le_bytes());
        put(DEVICE_CONTROL, &0x2810u16.to_le_bytes());
        // The link: what it can do, what it does, and every speed up to the best.
        let (speed, lanes) = (config.pcie_speed & 0xf, config.pcie_lanes & 0x3f);
        let link = u16::from(lanes) << 4 | u16::from(speed);
        put(PCIE + 0x0c, &u32::from(link).to_le_bytes());
        put(PCIE + 0x12, &(1 << 12 | link).to_le_bytes());
        put(PCIE + 0x2c, &((2u32 << speed) - 2).to_le_bytes());
        let vectors = usize::from(config.msix_vectors.clamp(1, 256));
        put(MSIX, &[0x11, last]);
        if config.vendor_specific_capability {
            put(MSIX + 1, &[VSC as u8]);
            put(VSC, &[vsc::ID, last, vsc::LEN as u8, 0]);
        }
        put(MSIX_CONTROL, &(vectors as u16 - 1).to_le_bytes());
        put(MSIX + 4, &(MSIX_TABLE as u32).to_le_bytes());
        put(MSIX + 8, &(MSIX_PENDING as u32).to_le_bytes());

        let mut rw =
            |at: usize, bytes: &[u8]| writable[at..at + bytes.len()].copy_from_slice(bytes);
        rw(COMMAND, &0x0546u16.to_le_bytes());
        rw(0x0c, &[0xff]);
        let bar = !(config.bar_size.next_power_of_two() - 1);
        rw(BAR0, &bar.to_le_bytes());
        rw(0x3c, &[0xff]);
        if !config.is_virtual() {
            rw(PM + 4, &[0x03]);
        }
        rw(DEVICE_CONTROL, &0x7fffu16.to_le_bytes());
        rw(PCIE + 0x10, &0x01ffu16.to_le_bytes());
        rw(PCIE + 0x28, &0x07ffu16.to_le_bytes());
        rw(MSIX_CONTROL, &0xc000u16.to_le_bytes());
        Self {
            space,
            writable,
            vectors: vec![Vector::RESET; vectors],
            pending: vec![false; vectors],
            mode: config.msix_mode,
            vsc: config.vendor_specific_capability.then(Vsc::default),
            has_pin: !config.is_virtual(),
            intx: 0,
            intx_logged: false,
        }
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.space[at], self.space[at + 1]])
    }

    /// Returns `true` if BAR 0 decodes.
    pub(crate) fn memory_enabled(&self) -> bool {
        self.word(COMMAND) & COMMAND_MEMORY != 0
    }

    /// Returns `true` if the function may do DMA.
    pub(crate) fn bus_master(&self) -> bool {
        self.word(COMMAND) & COMMAND_BUS_MASTER != 0
    }

    /// Reads configuration space; beyond 256 bytes there are no extended capabilities.
    pub(crate) fn read(&mut self, offset: usize, data: &mut [u8]) {
        if let Some((vsc, register)) = self.vsc_register(offset, data.len()) {
            let dword = vsc.read(register & !3).to_le_bytes();
            data.copy_from_slice(&dword[register & 3..][..data.len()]);
            return;
        }
        for (at, byte) in data.iter_mut().enumerate() {
            *byte = self.space.get(offset + at).copied().unwrap_or(0);
        }
    }

    /// The register of the vendor-specific capability that an access is to, which has 1, 2 or 4 bytes and lies in one dword.
    fn vsc_register(&mut self, offset: usize, len: usize) -> Option<(&mut Vsc, usize)> {
        let register = offset.checked_sub(VSC)?;
        let aligned = matches!(len, 1 | 2 | 4) && register.is_multiple_of(len);
        let within = aligned && (4..vsc::LEN).contains(&register);
        Some((self.vsc.as_mut().filter(|_| within)?, register))
    }

    /// The mailbox of internal commands, of functions with the vendor-specific capability.
    pub(crate) fn mailbox(&mut self) -> Option<&mut Mailbox> {
        self.vsc.as_mut().map(Vsc::mailbox)
    }

    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) -> ConfigEffect {
        if let Some((vsc, register)) = self.vsc_register(offset, data.len()) {
            // The space is the one register that is shorter than a dword.
            let whole = data.len() == 4 || data.len() == 2 && register == vsc::CONTROL;
            if whole {
                let bytes = data.iter().rev();
                let value = bytes.fold(0, |all, &byte| all << 8 | u32::from(byte));
                vsc.write(register, value);
            }
            return match vsc.mailbox().busy() {
                true => ConfigEffect::InternalCommand,
                false => ConfigEffect::None,
            };
        }
        let control = self.word(MSIX_CONTROL);
        for (at, &byte) in data.iter().enumerate() {
            let at = offset + at;
            if let (Some(old), Some(&mask)) = (self.space.get_mut(at), self.writable.get(at)) {
                *old = *old & !mask | byte & mask;
            }
        }
        // Bit 15 of Device Control starts a function reset and always reads as zero.
        let reset_byte = DEVICE_CONTROL + 1;
        if (offset..offset + data.len()).contains(&reset_byte)
            && data[reset_byte - offset] & 0x80 != 0
        {
            return ConfigEffect::FunctionReset;
        }
        if control != self.word(MSIX_CONTROL) {
            return ConfigEffect::Unmasked;
        }
        ConfigEffect::None
    }

    /// Back to power-on values. After a reset through VFIO, the command register is restored, as vfio-pci saves and
    /// restores configuration space around the reset: `keep_command`.
    pub(crate) fn reset(&mut self, config: &Config, keep_command: bool) {
        let saved = [self.space[COMMAND], self.space[COMMAND + 1]];
        let mut bar = [0; 8];
        bar.copy_from_slice(&self.space[BAR0..BAR0 + 8]);
        let intx = self.intx;
        *self = Self::new(config);
        self.intx = intx;
        if keep_command {
            self.space[COMMAND..COMMAND + 2].copy_from_slice(&saved);
            self.space[BAR0..BAR0 + 8].copy_from_slice(&bar);
        }
    }

    /// Returns `true` if raising `vector` reaches the host now; if a mask is in the way it stays pending.
    pub(crate) fn raise(&mut self, vector: u16) -> bool {
        let at = usize::from(vector);
        if at >= self.vectors.len() {
            log::warn!("interrupt vector {vector} does not exist");
            return false;
        }
        let control = self.word(MSIX_CONTROL);
        if control & 0x8000 == 0 {
            self.assert_intx();
        }
        if self.mode == MsixMode::HostManaged {
            return true;
        }
        if control & 0x8000 == 0 {
            return false;
        }
        if control & 0x4000 != 0 || self.vectors[at].masked() {
            self.pending[at] = true;
            return false;
        }
        true
    }

    /// A function whose MSI-X is off raises its interrupts by INTx, unless the command register forbids it (PCI 3.0,
    /// 6.2.2 and 6.8.2). A driver that polls has to forbid it: event queues are created armed, and Linux switches an
    /// interrupt line off that no driver answers for. The model has no pin to the host, so this is counted and logged.
    fn assert_intx(&mut self) {
        if self.has_pin && self.word(COMMAND) & COMMAND_INTX_DISABLE == 0 {
            self.intx += 1;
            if std::mem::replace(&mut self.intx_logged, true) {
                return;
            }
            log::warn!("INTx asserted: an event queue fired with MSI-X off and INTx not disabled");
        }
    }

    /// The number of interrupts that asserted INTx.
    pub(crate) fn intx(&self) -> u64 {
        self.intx
    }

    /// A vector that is pending and no longer masked; asked for until there is none.
    pub(crate) fn take_deliverable(&mut self) -> Option<u16> {
        let control = self.word(MSIX_CONTROL);
        if control & 0xc000 != 0x8000 {
            return None;
        }
        let at =
            (0..self.vectors.len()).find(|&at| self.pending[at] && !self.vectors[at].masked())?;
        self.pending[at] = false;
        Some(at as u16)
    }

    pub(crate) fn table_read(&self, offset: usize, data: &mut [u8]) {
        for (at, byte) in data.iter_mut().enumerate() {
            let at = offset + at;
            *byte = self.vectors.get(at / 16).map_or(0, |v| v.raw[at % 16]);
        }
    }

    pub(crate) fn table_write(&mut self, offset: usize, data: &[u8]) {
        for (at, &byte) in data.iter().enumerate() {
            let at = offset + at;
            if let Some(vector) = self.vectors.get_mut(at / 16) {
                vector.raw[at % 16] = byte;
            }
        }
    }

    pub(crate) fn pending_read(&self, offset: usize, data: &mut [u8]) {
        for (at, byte) in data.iter_mut().enumerate() {
            let first = (offset + at) * 8;
            *byte = (0..8).fold(0, |all, bit| {
                all | u8::from(self.pending.get(first + bit).copied().unwrap_or(false)) << bit
            });
        }
    }
}
