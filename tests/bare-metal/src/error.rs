//! Faults of the machine.

use core::fmt;

use pci_types::PciAddress;

/// A fault of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineError {
    /// The boot loader left no start information, or of an unknown form.
    NoStartInfo,
    /// There is no memory beyond the image.
    NoMemory,
    /// ACPI's root pointer leads nowhere.
    NoAcpi,
    /// ACPI lacks this table, or it is too short.
    NoTable(&'static str),
    /// There is no device tree where it should be.
    NoDeviceTree,
    /// The device tree lacks this, or has it of a kind that is not known here.
    NoTree(&'static str),
    /// Devices do not see what is in the processor's caches.
    NotCoherent,
    /// There are not enough bus numbers or addresses for this function.
    NoRoom(PciAddress),
    /// A counter does not count.
    ClockStands,
    /// No two measurements of the cycle counter agree.
    ClockUnsteady,
    /// Page tables reach not so far.
    AddressTooHigh(u64),
    /// The processor, or the address, has no write-combining pages.
    NoWriteCombining,
    /// No page frame is left.
    OutOfMemory,
    /// There is no ConnectX on the PCI bus.
    NoCard,
    /// BAR 0 of the card has no address, or is no memory.
    NoBar(PciAddress),
    /// The card's MSI-X table is not where it should be.
    NoMsix(PciAddress),
    /// The card did not come back from its reset.
    NotReset(PciAddress),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStartInfo => f.write_str("no boot information"),
            Self::NoMemory => f.write_str("there is no memory beside the image"),
            Self::NoAcpi => f.write_str("there are no ACPI tables"),
            Self::NoTable(name) => write!(f, "ACPI has no usable table {name}"),
            Self::NoDeviceTree => f.write_str("there is no device tree"),
            Self::NoTree(name) => write!(f, "the device tree has no usable {name}"),
            Self::NotCoherent => f.write_str("PCI functions do not see the processor's caches"),
            Self::NoRoom(at) => {
                write!(f, "{}: no bus number or address is left for it", Place(*at))
            }
            Self::ClockStands => f.write_str("a timer stands still"),
            Self::ClockUnsteady => f.write_str("the cycle counter is not steady"),
            Self::AddressTooHigh(address) => write!(f, "{address:#x} cannot be mapped"),
            Self::NoWriteCombining => f.write_str("no page can be write-combining"),
            Self::OutOfMemory => f.write_str("no page frame is left"),
            Self::NoCard => f.write_str("there is no ConnectX"),
            Self::NoBar(at) => write!(f, "{}: BAR 0 is no memory", Place(*at)),
            Self::NoMsix(at) => write!(f, "{}: there is no MSI-X table in BAR 0", Place(*at)),
            Self::NotReset(at) => write!(f, "{}: it did not come back from its reset", Place(*at)),
        }
    }
}

impl core::error::Error for MachineError {}

/// A PCI address, as it is usually written.
#[derive(Debug, Clone, Copy)]
pub struct Place(pub PciAddress);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0;
        let (segment, bus) = (at.segment(), at.bus());
        write!(
            f,
            "{segment:04x}:{bus:02x}:{:02x}.{}",
            at.device(),
            at.function()
        )
    }
}
