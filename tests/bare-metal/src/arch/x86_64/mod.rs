//! x86-64, booted by Xen's PVH protocol.

mod boot;
pub mod clock;
pub(crate) mod exit;
pub mod interrupts;
pub(crate) mod paging;
mod port;
pub(crate) mod registers;
pub(crate) mod serial;

use crate::error::MachineError;
use crate::firmware::acpi::Tables;
use crate::firmware::start_info::StartInfo;
use crate::firmware::{Description, largest_behind};
use crate::image;
use crate::physical::AtBoot;

/// Reads what the boot loader, whose start information is at `info`, and the firmware left in memory.
pub(crate) fn describe(info: u64) -> Result<Description<clock::Source>, MachineError> {
    let info = StartInfo::read(&AtBoot, info)?;
    let tables = Tables::find(&AtBoot, info.rsdp)?;
    Ok(Description {
        command_line: info.command_line(),
        memory: largest_behind(&image::whole(), info.ram())?,
        ecam: tables.ecam,
        buses: tables.buses,
        windows: None,
        clock: clock::Source(tables.timer),
    })
}
