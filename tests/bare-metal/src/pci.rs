//! PCI Express: the configuration space in memory, the functions in it, and a card that is ready to be driven.

// UNSAFETY: the configuration space is registers in memory.
#![expect(unsafe_code)]

use core::ops::{Range, RangeInclusive};
use core::ptr::NonNull;
use core::time::Duration;

use pci_types::capability::{MsixCapability, PciCapability};
use pci_types::{
    Bar, CommandRegister, ConfigRegionAccess, EndpointHeader, HeaderType, PciAddress, PciHeader,
};
use volatile::VolatilePtr;

use crate::arch::registers::after_configuration;
use crate::arch::{clock, interrupts, paging};
use crate::assign::functions;
use crate::error::{MachineError, Place};
use crate::registers::Registers;

const MELLANOX: u16 = 0x15b3;
/// Bytes of configuration space that a function has, and a bus.
const FUNCTION: u64 = 4096;
const BUS: u64 = 256 * FUNCTION;
/// Of the PCI Express capability: device capabilities and device control.
const DEVICE_CAPABILITIES: u16 = 4;
const CAN_RESET: u32 = 1 << 28;
const DEVICE_CONTROL: u16 = 8;
const RESET: u32 = 1 << 15;
/// The time that a function may take to come back (PCI Express base specification, 6.6.2).
const RESET_TIME: Duration = Duration::from_millis(100);
/// Of an entry of the MSI-X table: its length, and where address, data and mask are.
const ENTRY: usize = 16;
const ENTRY_ADDRESS: usize = 0;
const ENTRY_DATA: usize = 8;
const ENTRY_CONTROL: usize = 12;
/// More capabilities than fit: a list that goes round.
const CAPABILITIES: usize = 48;

/// The enhanced configuration access mechanism.
#[derive(Debug)]
pub struct Ecam {
    base: *mut u8,
    buses: RangeInclusive<u8>,
}

impl Ecam {
    /// Maps it. `base` is where bus 0 would be.
    pub(crate) fn map(base: u64, buses: RangeInclusive<u8>) -> Result<Self, MachineError> {
        let first = base.saturating_add(u64::from(*buses.start()) * BUS);
        let end = base.saturating_add((u64::from(*buses.end()) + 1) * BUS);
        paging::map_configuration(&(first..end))?;
        Ok(Self {
            base: base as *mut u8,
            buses,
        })
    }

    fn register(&self, at: PciAddress, offset: u16) -> Option<NonNull<u32>> {
        let there = at.segment() == 0 && self.buses.contains(&at.bus());
        let place = u64::from(at.bus()) * BUS
            + u64::from(at.device()) * 8 * FUNCTION
            + u64::from(at.function()) * FUNCTION
            + u64::from(offset & 0xffc);
        let register = self.base.wrapping_add(place as usize).cast();
        NonNull::new(register).filter(|_| there)
    }

    /// All functions of all buses.
    fn functions(&self) -> impl Iterator<Item = PciAddress> {
        let buses = self.buses.clone();
        buses.flat_map(|bus| functions(self, bus))
    }

    /// The first card of ours: an endpoint whose maker is Mellanox.
    pub fn find_card(&self) -> Result<Card, MachineError> {
        for at in self.functions() {
            let header = PciHeader::new(at);
            let (vendor, device_id) = header.id(self);
            let (_, class, subclass, _) = header.revision_and_class(self);
            log::debug!(
                "{}: {vendor:04x}:{device_id:04x}, class {class:02x}{subclass:02x}",
                Place(at)
            );
            if vendor == MELLANOX && header.header_type(self) == HeaderType::Endpoint {
                return self.prepare(header, device_id);
            }
        }
        Err(MachineError::NoCard)
    }

    /// Resets a function, and turns on what the driver needs.
    fn prepare(&self, mut header: PciHeader, device_id: u16) -> Result<Card, MachineError> {
        let at = header.address();
        let quiet = CommandRegister::MEMORY_ENABLE | CommandRegister::BUS_MASTER_ENABLE;
        header.update_command(self, |command| command.difference(quiet));
        let endpoint = EndpointHeader::from_header(PciHeader::new(at), self);
        let endpoint = endpoint.ok_or(MachineError::NoCard)?;
        let bar = self.memory_bar(&endpoint).ok_or(MachineError::NoBar(at))?;
        let mut msix = None;
        let mut express = None;
        for capability in endpoint.capabilities(self).take(CAPABILITIES) {
            match capability {
                PciCapability::MsiX(found) => msix = Some(found),
                PciCapability::PciExpress(found) => express = Some(found.offset),
                _ => {}
            }
        }
        match express {
            Some(express) => self.reset(at, express)?,
            None => log::warn!("{}: no PCI Express capability, so no reset", Place(at)),
        }
        header.update_command(self, |command| {
            command.union(quiet | CommandRegister::INTERRUPT_DISABLE)
        });
        log::info!(
            "{}: {MELLANOX:04x}:{device_id:04x}, BAR 0 of {} KiB at {:#x}",
            Place(at),
            (bar.end - bar.start) >> 10,
            bar.start
        );
        Ok(Card {
            at,
            device_id,
            bar,
            msix,
        })
    }

    /// Where BAR 0 is, if it is memory and has an address.
    fn memory_bar(&self, endpoint: &EndpointHeader) -> Option<Range<u64>> {
        // SAFETY: the first BAR of an endpoint.
        let raw = unsafe { self.read(endpoint.header().address(), 0x10) };
        // pci_types panics at the two types that there are not.
        if raw >> 1 & 1 != 0 {
            return None;
        }
        let (start, size) = match endpoint.bar(0, self)? {
            Bar::Memory32 { address, size, .. } => (u64::from(address), u64::from(size)),
            Bar::Memory64 { address, size, .. } => (address, size),
            Bar::Io { .. } => return None,
        };
        let end = start.checked_add(size)?;
        (start != 0 && size.is_power_of_two() && start.is_multiple_of(size)).then_some(start..end)
    }

    /// A function level reset, if the function can do it. The registers that it clears are written again.
    fn reset(&self, at: PciAddress, express: u16) -> Result<(), MachineError> {
        // SAFETY: registers of the header, and of the capability, of a function that is there.
        let read = |offset| unsafe { self.read(at, offset) };
        if read(express + DEVICE_CAPABILITIES) & CAN_RESET == 0 {
            log::warn!("{}: it cannot be reset", Place(at));
            return Ok(());
        }
        let (low, high) = (read(0x10), read(0x14));
        let control = read(express + DEVICE_CONTROL);
        // SAFETY: as above; the function neither decodes addresses nor is bus master, so that no access of it or to it
        // is lost. The upper half is status bits, which are cleared by ones.
        unsafe { self.write(at, express + DEVICE_CONTROL, control & 0xffff | RESET) };
        let started = clock::since_boot();
        while clock::since_boot() - started < RESET_TIME {
            core::hint::spin_loop();
        }
        if read(0) as u16 != MELLANOX {
            return Err(MachineError::NotReset(at));
        }
        // SAFETY: the addresses are those that the firmware gave it.
        unsafe {
            self.write(at, 0x10, low);
            self.write(at, 0x14, high);
            self.write(at, express + DEVICE_CONTROL, control & 0xffff & !RESET);
        }
        Ok(())
    }
}

impl ConfigRegionAccess for Ecam {
    #[inline(never)]
    unsafe fn read(&self, at: PciAddress, offset: u16) -> u32 {
        match self.register(at, offset) {
            // SAFETY: a register of a bus that is mapped; of a function that is not there it reads all ones.
            Some(register) => unsafe { VolatilePtr::new(register) }.read(),
            None => u32::MAX,
        }
    }

    #[inline(never)]
    unsafe fn write(&self, at: PciAddress, offset: u16, value: u32) {
        if let Some(register) = self.register(at, offset) {
            // SAFETY: as above, and the caller's promise.
            unsafe { VolatilePtr::new(register) }.write(value);
            after_configuration();
        }
    }
}

/// A card that was found: reset, decoding its addresses, and bus master.
#[derive(Debug)]
pub struct Card {
    at: PciAddress,
    /// Its device ID; its maker is Mellanox.
    pub device_id: u16,
    /// Where BAR 0 is.
    pub bar: Range<u64>,
    msix: Option<MsixCapability>,
}

impl Card {
    /// Gives each vector its message. `registers` is BAR 0. How many vectors there are.
    pub fn enable_msix(mut self, ecam: &Ecam, registers: &Registers) -> Result<u16, MachineError> {
        let missing = MachineError::NoMsix(self.at);
        let msix = self.msix.as_mut().ok_or(missing)?;
        let table = msix.table_offset() as usize;
        let count = msix.table_size().min(interrupts::CARD_VECTORS);
        let end = table.saturating_add(usize::from(msix.table_size()) * ENTRY);
        if msix.table_bar() != 0 || end > registers.len() {
            return Err(missing);
        }
        msix.set_function_mask(true, ecam);
        msix.set_enabled(true, ecam);
        for vector in 0..count {
            let (address, data) = interrupts::message(vector).ok_or(missing)?;
            let entry = table + usize::from(vector) * ENTRY;
            let fields = [
                (ENTRY_ADDRESS, address as u32),
                (ENTRY_ADDRESS + 4, (address >> 32) as u32),
                (ENTRY_DATA, data),
                (ENTRY_CONTROL, 0),
            ];
            for (field, value) in fields {
                registers.write32(entry + field, value.to_le());
            }
        }
        msix.set_function_mask(false, ecam);
        Ok(count)
    }
}
