//! CREATE_EQ, DESTROY_EQ, QUERY_EQ.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::memory::ring::{Ring, RingError};
use crate::objects::ObjectKind;
use crate::objects::eq::{Eq, event};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::caps::HcaCap;
use bareverbs_firmware_cmds::eq::{CreateEqIn, DestroyEqIn, QueryEqIn};

const TEMPERATURE_WARNING: u8 = 0x17;
/// An event type that this model never reports.
const PORT_MODULE: u8 = 0x16;
const GENERAL_NOTIFICATION: u8 = 0x22;

/// Event types that need a capability which the device does not have (`gather_async_events_mask` and `create_async_eqs`
/// of the vendor's driver).
fn not_offered(caps: &HcaCap) -> u64 {
    [
        (event::PAGE_REQUEST, !caps.page_request_disable()),
        (PORT_MODULE, caps.port_module_event()),
        (TEMPERATURE_WARNING, caps.temp_warn_event()),
        (GENERAL_NOTIFICATION, caps.general_notification_event()),
    ]
    .into_iter()
    .filter(|&(_, offered)| !offered)
    .fold(0, |mask, (event, _)| mask | 1 << event)
}

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateEqIn>) -> Result {
    let context = *call.input.eq_context_entry();
    let fresh = context.status() == 0
        && context.st() == 0
        && context.consumer_counter() == 0
        && context.producer_counter() == 0;
    if !fresh {
        return Err(Syndrome::EqState.into());
    }
    if context.log_eq_size() > device.caps.general.log_max_eq_sz() {
        return Err(Syndrome::EqSize.into());
    }
    if !device.has(ObjectKind::Uar, context.uar_page()) {
        return Err(Syndrome::EqUar.into());
    }
    if context.intr() >= device.config.msix_vectors {
        return Err(Syndrome::EqVector.into());
    }
    let mut mask = [0; 4];
    for (bits, bytes) in mask
        .iter_mut()
        .zip(call.input.event_bitmask().chunks_exact(8))
    {
        *bits = bytes
            .iter()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
    }
    if device.config.strict && mask[0] & not_offered(&device.caps.general) != 0 {
        return Err(Syndrome::EqEventNotOffered.into());
    }
    let taken = device
        .eqs
        .iter()
        .any(|(_, eq)| eq.mask.iter().zip(&mask).any(|(had, new)| had & new != 0));
    if taken {
        return Err(Syndrome::EqEventTaken.into());
    }
    let ring = Ring::new(
        call.tail,
        context.log_page_size(),
        context.page_offset(),
        64 << context.log_eq_size(),
    )
    .map_err(|error| match error {
        RingError::Short => Syndrome::EqPages,
        RingError::PageSize => Syndrome::EqPageSize,
        // An EQ is never in user memory.
        RingError::Unaligned | RingError::Umem | RingError::Range => Syndrome::EqPageUnaligned,
    })?;
    let number = device.eqs.next_number().ok_or(Syndrome::EqExhausted)?;
    let place = device.store(io, ObjectKind::Eq, number, &context.0)?;
    device.eqs.insert(Eq {
        context,
        mask,
        ring,
        producer: 0,
        consumer: 0,
        armed: false,
        users: 0,
        overrun: false,
        place,
    });
    if let Some(uar) = device.uars.get_mut(context.uar_page()) {
        uar.users += 1;
    }
    call.output.set_eq_number(number as u8);
    Ok(())
}

pub(super) fn destroy(device: &mut Device, io: &mut Io<'_>, call: Call<'_, DestroyEqIn>) -> Result {
    let number = u32::from(call.input.eq_number());
    let eq = device.eqs.get(number).ok_or(Syndrome::EqUnknown)?;
    if eq.users != 0 {
        return Err(Syndrome::EqBusy.into());
    }
    let (place, context) = (eq.place, eq.context);
    device.check(io, place, ObjectKind::Eq, number, &context.0)?;
    device.eqs.remove(number);
    device.pages.release(place);
    if let Some(uar) = device.uars.get_mut(context.uar_page()) {
        uar.users -= 1;
    }
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryEqIn>) -> Result {
    let number = u32::from(call.input.eq_number());
    let eq = device.eqs.get(number).ok_or(Syndrome::EqUnknown)?;
    let (place, context) = (eq.place, eq.context);
    device.check(io, place, ObjectKind::Eq, number, &context.0)?;
    let eq = device.eqs.get(number).ok_or(Syndrome::EqUnknown)?;
    *call.output.eq_context_entry_mut() = eq.shown();
    call.output.set_event_bitmask(eq.mask[0]);
    super::put_pages(call.output_tail, eq.ring.pages());
    Ok(())
}
