//! QUERY_PAGES and MANAGE_PAGES.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::{Device, Stage};
use crate::memory::pages::PAGE;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::pages::{ManagePagesIn, QueryPagesIn};
use bareverbs_firmware_cmds::values::{ManagePages, QueryPages};

impl Device {
    /// Pages that the firmware itself still requires. It never requests any of a virtual function's driver.
    pub(crate) fn boot_pages_missing(&self) -> u32 {
        if self.config.is_virtual() {
            return 0;
        }
        let wanted = self
            .config
            .boot_pages
            .saturating_add(self.faults.extra_boot_pages);
        wanted.saturating_sub(self.pages.firmware())
    }

    /// Pages that contexts require before the first object.
    pub(crate) fn init_pages_missing(&self) -> u32 {
        if self.config.is_virtual() {
            return 0;
        }
        let wanted = self
            .config
            .init_pages
            .saturating_add(self.faults.extra_init_pages);
        wanted.saturating_sub(self.pages.contexts())
    }

    /// Asks the host to take idle pages back, when there are many.
    pub(crate) fn offer_pages(&mut self, io: &mut Io<'_>) {
        let chunk = self.config.page_chunk;
        if chunk == 0 || self.pages.asked != 0 || self.stage != Stage::Initialized {
            return;
        }
        let spare = self
            .pages
            .contexts()
            .saturating_sub(self.config.init_pages)
            .min(self.pages.idle());
        if spare >= 2 * chunk
            && self
                .eq_for(crate::objects::eq::event::PAGE_REQUEST)
                .is_some()
        {
            let surplus = -(chunk.min(0xffff) as i32);
            self.pages.asked = surplus;
            self.page_event(io, surplus);
        }
    }
}

pub(super) fn query(device: &mut Device, _: &mut Io<'_>, call: Call<'_, QueryPagesIn>) -> Result {
    device.own_function(call.input.embedded_cpu_function(), call.input.function_id())?;
    let pages = match QueryPages::from_number(call.input.op_mod()) {
        Some(QueryPages::Boot) => device.boot_pages_missing(),
        Some(QueryPages::Init) => device.init_pages_missing(),
        Some(QueryPages::Regular) => device.pages.asked as u32,
        None => return Err(Syndrome::PagesOpMod.into()),
    };
    call.output
        .set_embedded_cpu_function(device.config.embedded_cpu)
        .set_function_id(0)
        .set_num_pages(pages);
    Ok(())
}

pub(super) fn manage(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, ManagePagesIn>,
) -> Result {
    let other = (call.input.embedded_cpu_function(), call.input.function_id());
    if device.pages.others.contains_key(&other) {
        return manage_other(device, io, call, other);
    }
    device.own_function(other.0, other.1)?;
    if device.config.is_virtual() {
        return Err(Syndrome::PagesVirtual.into());
    }
    match ManagePages::from_number(call.input.op_mod()) {
        Some(ManagePages::CannotGive) => {
            device.pages.asked = 0;
            device.starve_commands(io);
            Ok(())
        }
        Some(ManagePages::Give) => give(device, io, &call),
        Some(ManagePages::Take) => take(device, io, call),
        None => Err(Syndrome::PagesOpMod.into()),
    }
}

/// Pages of another function, whose contents do not matter here.
fn manage_other(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, ManagePagesIn>,
    other: (bool, u16),
) -> Result {
    match ManagePages::from_number(call.input.op_mod()) {
        Some(ManagePages::CannotGive) => Ok(()),
        Some(ManagePages::Give) => {
            let list = offered(device, &call)?;
            for &page in &list {
                io.write(page, &[0x5a; 8])
                    .map_err(|_| Syndrome::PagesUnreachable)?;
            }
            let pages = device.pages.others.entry(other).or_default();
            pages.extend(list);
            Ok(())
        }
        Some(ManagePages::Take) => {
            let count = call.input.input_num_entries() as usize;
            if call.output_tail.len() / 8 < count {
                return Err(Syndrome::PagesOutputShort.into());
            }
            let pages = device.pages.others.entry(other).or_default();
            let mut taken = 0;
            for entry in call.output_tail.chunks_exact_mut(8).take(count) {
                let Some(page) = pages.pop_last() else {
                    break;
                };
                entry.copy_from_slice(&page.to_be_bytes());
                taken += 1;
            }
            call.output.set_output_num_entries(taken);
            Ok(())
        }
        None => Err(Syndrome::PagesOpMod.into()),
    }
}

/// The pages of a list, if they can be given.
fn offered(
    device: &Device,
    call: &Call<'_, ManagePagesIn>,
) -> core::result::Result<Vec<u64>, Syndrome> {
    let count = call.input.input_num_entries() as usize;
    let list = count
        .checked_mul(8)
        .and_then(|len| call.tail.get(..len))
        .ok_or(Syndrome::PagesListShort)?;
    let mut pages = Vec::with_capacity(count);
    let mut seen = std::collections::HashSet::new();
    for entry in list.chunks_exact(8) {
        let page = entry
            .iter()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
        // Linux avoids address 0 (`alloc_system_page`), but rdma-core's VFIO driver gives it, so cards have to take it.
        if page % PAGE != 0 {
            return Err(Syndrome::PagesUnaligned);
        }
        if device.pages.holds(page) || !seen.insert(page) {
            return Err(Syndrome::PagesTwice);
        }
        pages.push(page);
    }
    Ok(pages)
}

fn give(device: &mut Device, io: &mut Io<'_>, call: &Call<'_, ManagePagesIn>) -> Result {
    let list = offered(device, call)?;
    let count = list.len();
    let boot = device
        .config
        .boot_pages
        .saturating_add(device.faults.extra_boot_pages);
    for page in list {
        device.pages.give(io, page, boot)?;
    }
    device.pages.appetite = device
        .pages
        .appetite
        .saturating_sub(count.min(0xffff) as u32);
    if device.stage == Stage::Initialized {
        device.pages.asked = (device.pages.asked - count.min(0xffff) as i32).max(0);
        device.cmdq.feed(device.now);
    }
    Ok(())
}

fn take(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ManagePagesIn>) -> Result {
    let count = call.input.input_num_entries() as usize;
    if call.output_tail.len() / 8 < count {
        return Err(Syndrome::PagesOutputShort.into());
    }
    let all = device.stage != Stage::Initialized;
    if all {
        let checked = device.pages.check_firmware(io);
        device.assert_context(checked)?;
    }
    let wanted = count;
    let count = device.returns(wanted);
    let pages = device.pages.take(count, device.config.init_pages, all);
    for (entry, page) in call.output_tail.chunks_exact_mut(8).zip(&pages) {
        entry.copy_from_slice(&page.to_be_bytes());
    }
    call.output.set_output_num_entries(pages.len() as u32);
    if device.pages.asked < 0 {
        device.pages.asked = (device.pages.asked + pages.len() as i32).min(0);
        // Pages that it offered and does not return now are offered again later.
        if pages.len() < wanted {
            device.pages.asked = 0;
        }
    }
    Ok(())
}
