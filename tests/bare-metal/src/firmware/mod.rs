//! The boot loader's and the firmware's information about the machine.

#[cfg(any(not(target_os = "none"), target_arch = "x86_64"))]
pub(crate) mod acpi;
#[cfg(any(not(target_os = "none"), target_arch = "aarch64"))]
pub(crate) mod device_tree;
#[cfg(any(not(target_os = "none"), target_arch = "x86_64"))]
pub(crate) mod start_info;

use core::ops::{Range, RangeInclusive};

use crate::assign::Windows;
use crate::error::MachineError;

/// The machine, as the boot loader or the firmware describes it. `C` is what the clock needs.
pub(crate) struct Description<C> {
    /// The command line; empty if there is none, or if it is no text.
    pub(crate) command_line: &'static str,
    /// The memory that there is for page frames.
    pub(crate) memory: Range<u64>,
    /// Where PCI's configuration space of bus 0 would be.
    pub(crate) ecam: u64,
    /// The buses that it has.
    pub(crate) buses: RangeInclusive<u8>,
    /// Addresses for PCI functions, if they have none.
    pub(crate) windows: Option<Windows>,
    /// The clock's timer, where it needs one beside the processor.
    pub(crate) clock: C,
}

/// The largest run of memory behind the image.
pub(crate) fn largest_behind(
    image: &Range<u64>,
    ram: impl Iterator<Item = Range<u64>>,
) -> Result<Range<u64>, MachineError> {
    ram.map(|run| run.start.max(image.end)..run.end)
        .filter(|run| run.start < run.end)
        .max_by_key(|run| run.end - run.start)
        .ok_or(MachineError::NoMemory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_largest_run_behind_the_image() {
        let image = 0x20_0000..0x30_0000;
        let runs = [
            0..0xa_0000,
            0x10_0000..0x800_0000,
            0x1_0000_0000..0x1_0100_0000,
        ];
        let found = largest_behind(&image, runs.into_iter());
        assert_eq!(found, Ok(0x30_0000..0x800_0000));
        let below = largest_behind(&image, [0..0x10_0000, 0x20_0000..0x30_0000].into_iter());
        assert_eq!(below, Err(MachineError::NoMemory));
        assert_eq!(
            largest_behind(&image, [].into_iter()),
            Err(MachineError::NoMemory)
        );
    }
}
