//! Queue counters.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::counters::CounterSet;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::counter::{AllocQCounterIn, DeallocQCounterIn, QueryQCounterIn};

pub(super) fn alloc(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AllocQCounterIn>,
) -> Result {
    let number = device
        .counters
        .next_number()
        .ok_or(Syndrome::CounterExhausted)?;
    let place = device.store(io, ObjectKind::QCounter, number, &[])?;
    device.counters.insert(CounterSet::new(place));
    call.output.set_counter_set_id(number as u8);
    Ok(())
}

pub(super) fn dealloc(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DeallocQCounterIn>,
) -> Result {
    let number = u32::from(call.input.counter_set_id());
    let set = device
        .counters
        .get(number)
        .ok_or(Syndrome::CounterUnknown)?;
    if set.users != 0 {
        return Err(Syndrome::CounterBusy.into());
    }
    let place = set.place;
    device.check(io, place, ObjectKind::QCounter, number, &[])?;
    device.counters.remove(number);
    device.pages.release(place);
    Ok(())
}

pub(super) fn query(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryQCounterIn>,
) -> Result {
    let number = u32::from(call.input.counter_set_id());
    let set = device
        .counters
        .get_mut(number)
        .ok_or(Syndrome::CounterUnknown)?;
    if !device.users.controls(ObjectKind::QCounter, number) {
        return Err(Syndrome::OtherUser.into());
    }
    set.show(call.output);
    if call.input.clear() {
        set.values = Default::default();
    }
    Ok(())
}
