//! AArch64, booted by QEMU's `virt` machine from an ELF image, with a device tree.

mod boot;
pub mod clock;
pub(crate) mod exit;
pub mod interrupts;
pub(crate) mod paging;
pub(crate) mod registers;
pub(crate) mod serial;

use crate::error::MachineError;
use crate::firmware::device_tree::DeviceTree;
use crate::firmware::{Description, largest_behind};
use crate::image;
use crate::physical::AtBoot;

/// Reads the device tree.
pub(crate) fn describe(device_tree: u64) -> Result<Description<clock::Source>, MachineError> {
    let tree = DeviceTree::read(&AtBoot, device_tree)?;
    if let Some(port) = tree.serial() {
        serial::found(port);
    }
    if let Some(interrupts) = tree.interrupts() {
        interrupts::found(interrupts);
    }
    let pci = tree.pci()?;
    Ok(Description {
        command_line: tree.command_line(),
        memory: largest_behind(&image::whole(), tree.ram())?,
        ecam: pci.ecam,
        buses: pci.buses,
        windows: Some(pci.windows),
        clock: clock::Source,
    })
}
