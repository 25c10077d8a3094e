//! CREATE_TIS and the other commands of TISs.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::ethernet::Tis;
use crate::objects::ObjectKind;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::tis::{CreateTisIn, DestroyTisIn, ModifyTisIn, QueryTisIn};

/// Priorities are those of VLAN tags, doubled.
const MAX_PRIORITY: u8 = 15;

pub(super) fn create(device: &mut Device, io: &mut Io<'_>, call: Call<'_, CreateTisIn>) -> Result {
    let context = *call.input.ctx();
    let domain = context.transport_domain();
    if !device.has(ObjectKind::TransportDomain, domain) {
        return Err(Syndrome::TisDomain.into());
    }
    // Encryption, bonding and IPoIB are not offered.
    if context.tls_en()
        || context.lag_tx_port_affinity() != 0
        || context.strict_lag_tx_port_affinity()
        || context.underlay_qpn() != 0
    {
        return Err(Syndrome::TisFeature.into());
    }
    if context.prio() > MAX_PRIORITY {
        return Err(Syndrome::TisPriority.into());
    }
    let number = device
        .nic
        .tises
        .next_number()
        .ok_or(Syndrome::TisExhausted)?;
    let place = device.store(io, ObjectKind::Tis, number, &context.0)?;
    device.nic.tises.insert(Tis {
        context,
        users: 0,
        place,
    });
    device.use_domain(domain, true);
    call.output.set_tisn(number);
    Ok(())
}

fn checked(device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
    let tis = device.nic.tises.get(number).ok_or(Syndrome::TisUnknown)?;
    let (place, context) = (tis.place, tis.context);
    device.check(io, place, ObjectKind::Tis, number, &context.0)
}

pub(super) fn modify(device: &mut Device, io: &mut Io<'_>, call: Call<'_, ModifyTisIn>) -> Result {
    let number = call.input.tisn();
    checked(device, io, number)?;
    let fields = call.input.bitmask();
    let wanted = call.input.ctx();
    if fields.lag_tx_port_affinity() || fields.strict_lag_tx_port_affinity() {
        return Err(Syndrome::TisFeature.into());
    }
    if wanted.prio() > MAX_PRIORITY {
        return Err(Syndrome::TisPriority.into());
    }
    let tis = device
        .nic
        .tises
        .get_mut(number)
        .ok_or(Syndrome::TisUnknown)?;
    if fields.prio() {
        tis.context.set_prio(wanted.prio());
    }
    let (place, context) = (tis.place, tis.context);
    device.restore(io, place, ObjectKind::Tis, number, &context.0)
}

pub(super) fn destroy(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyTisIn>,
) -> Result {
    let number = call.input.tisn();
    checked(device, io, number)?;
    if device
        .nic
        .tises
        .get(number)
        .is_some_and(|tis| tis.users != 0)
    {
        return Err(Syndrome::TisBusy.into());
    }
    if let Some(tis) = device.nic.tises.remove(number) {
        device.pages.release(tis.place);
        device.use_domain(tis.context.transport_domain(), false);
    }
    Ok(())
}

pub(super) fn query(device: &mut Device, io: &mut Io<'_>, call: Call<'_, QueryTisIn>) -> Result {
    let number = call.input.tisn();
    checked(device, io, number)?;
    let tis = device.nic.tises.get(number).ok_or(Syndrome::TisUnknown)?;
    *call.output.tis_context_mut() = tis.context;
    Ok(())
}

impl Device {
    /// Counts a user of a transport domain in or out.
    pub(super) fn use_domain(&mut self, number: u32, add: bool) {
        if let Some(domain) = self.transport_domains.get_mut(number) {
            domain.users = if add {
                domain.users + 1
            } else {
                domain.users.saturating_sub(1)
            };
        }
    }
}
