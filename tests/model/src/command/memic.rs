//! ALLOC_MEMIC, DEALLOC_MEMIC.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::mkey::Mkey;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::memic::{AllocMemicIn, DeallocMemicIn, LOG_UNIT};
use bareverbs_firmware_cmds::values::MkeyAccessMode;

pub(super) fn alloc(device: &mut Device, _: &mut Io<'_>, call: Call<'_, AllocMemicIn>) -> Result {
    if !device.caps.general.device_memory() || !device.caps.device_memory.memic() {
        return Err(Syndrome::MemicNone.into());
    }
    let caps = &device.caps.device_memory;
    let len = u64::from(call.input.memic_size());
    let unit = 1 << caps.log_min_memic_alloc_size().max(LOG_UNIT);
    if len == 0 || !len.is_multiple_of(unit) {
        return Err(Syndrome::MemicSize.into());
    }
    let log_align = call.input.log_memic_addr_alignment();
    // Both count from the smallest alignment on (`mlx5_cmd_alloc_memic`).
    if log_align > caps.log_max_memic_addr_alignment() {
        return Err(Syndrome::MemicAlignment.into());
    }
    let start = call.input.range_start_addr();
    let end = start.checked_add(call.input.range_size().into());
    let range = end
        .map(|end| start..end)
        .filter(|range| device.memic.contains(range))
        .ok_or(Syndrome::MemicRange)?;
    if device.config.strict && !device.memic.as_drivers_ask(&range, len) {
        return Err(Syndrome::MemicWideRange.into());
    }
    if device.memic.used() + len > u64::from(caps.max_memic_size()) {
        return Err(Syndrome::MemicExhausted.into());
    }
    let align = 1_u64.checked_shl(u32::from(log_align) + u32::from(LOG_UNIT));
    let place = align.and_then(|align| device.memic.alloc(range, len, align));
    let place = place.ok_or(Syndrome::MemicExhausted)?;
    call.output.set_memic_start_addr(place);
    Ok(())
}

pub(super) fn dealloc(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, DeallocMemicIn>,
) -> Result {
    let start = call.input.memic_start_addr();
    let len = u64::from(call.input.memic_size());
    let inside = |key: &Mkey| {
        let at = key.context.start_addr();
        key.mode == MkeyAccessMode::Memic && (start..start + len).contains(&at)
    };
    if device.mkeys.iter().any(|(_, key)| inside(key)) {
        return Err(Syndrome::MemicBusy.into());
    }
    match device.memic.free(start, len) {
        true => Ok(()),
        false => Err(Syndrome::MemicUnknown.into()),
    }
}
