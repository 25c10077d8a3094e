//! Allocation of UARs and of protection, transport and XRC domains.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::objects::domain::Domain;
use crate::objects::table::Table;
use crate::objects::uar::Uar;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::domain::{
    AllocPdIn, AllocTransportDomainIn, AllocXrcdIn, DeallocPdIn, DeallocTransportDomainIn,
    DeallocXrcdIn,
};
use bareverbs_firmware_cmds::uar::{AllocUarIn, DeallocUarIn};

pub(super) fn alloc_uar(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AllocUarIn>,
) -> Result {
    let end = device.config.bar_size.min(device.memic.begins());
    let pages = end >> device.uar_shift();
    let number = device
        .uars
        .next_number()
        .filter(|&number| u64::from(number) < pages)
        .ok_or(Syndrome::UarExhausted)?;
    let place = device.store(io, ObjectKind::Uar, number, &[])?;
    device.uars.insert(Uar::new(place));
    call.output.set_uar(number);
    Ok(())
}

pub(super) fn dealloc_uar(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DeallocUarIn>,
) -> Result {
    let number = call.input.uar();
    let uar = device.uars.get(number).ok_or(Syndrome::UarUnknown)?;
    if uar.users != 0 {
        return Err(Syndrome::UarBusy.into());
    }
    let place = uar.place;
    device.check(io, place, ObjectKind::Uar, number, &[])?;
    if device.names_uar(number) {
        device.answer_unknown(format_args!(
            "DEALLOC_UAR of {number:#x}, which queues name"
        ));
    }
    device.uars.remove(number);
    device.pages.release(place);
    Ok(())
}

impl Device {
    /// Returns `true` if a queue has its doorbell in a UAR that does not keep the UAR.
    fn names_uar(&self, number: u32) -> bool {
        let qps = self.qps.iter().map(|(_, qp)| qp.context.uar_page());
        let cqs = self.cqs.iter().map(|(_, cq)| cq.context.uar_page());
        let sqs = self.nic.sqs.iter();
        let sqs = sqs.map(|(_, sq)| sq.context.wq().uar_page());
        qps.chain(cqs).chain(sqs).any(|uar| uar == number)
    }
}

/// The names of one kind of domain.
struct Family {
    table: fn(&mut Device) -> &mut Table<Domain>,
    kind: ObjectKind,
    exhausted: Syndrome,
    unknown: Syndrome,
    busy: Syndrome,
}

const PD: Family = Family {
    table: |device| &mut device.pds,
    kind: ObjectKind::Pd,
    exhausted: Syndrome::PdExhausted,
    unknown: Syndrome::PdUnknown,
    busy: Syndrome::PdBusy,
};
const TRANSPORT_DOMAIN: Family = Family {
    table: |device| &mut device.transport_domains,
    kind: ObjectKind::TransportDomain,
    exhausted: Syndrome::TdExhausted,
    unknown: Syndrome::TdUnknown,
    busy: Syndrome::TdBusy,
};
const XRCD: Family = Family {
    table: |device| &mut device.xrcds,
    kind: ObjectKind::Xrcd,
    exhausted: Syndrome::XrcdExhausted,
    unknown: Syndrome::XrcdUnknown,
    busy: Syndrome::XrcdBusy,
};

impl Family {
    fn alloc(
        &self,
        device: &mut Device,
        io: &mut Io<'_>,
    ) -> core::result::Result<u32, crate::syndrome::Reject> {
        let number = (self.table)(device).next_number().ok_or(self.exhausted)?;
        let place = device.store(io, self.kind, number, &[])?;
        (self.table)(device).insert(Domain { users: 0, place });
        Ok(number)
    }

    fn dealloc(&self, device: &mut Device, io: &mut Io<'_>, number: u32) -> Result {
        let domain = (self.table)(device).get(number).ok_or(self.unknown)?;
        if domain.users != 0 {
            return Err(self.busy.into());
        }
        let place = domain.place;
        device.check(io, place, self.kind, number, &[])?;
        (self.table)(device).remove(number);
        device.pages.release(place);
        Ok(())
    }
}

pub(super) fn alloc_pd(device: &mut Device, io: &mut Io<'_>, call: Call<'_, AllocPdIn>) -> Result {
    let number = PD.alloc(device, io)?;
    call.output.set_pd(number);
    Ok(())
}

pub(super) fn dealloc_pd(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DeallocPdIn>,
) -> Result {
    PD.dealloc(device, io, call.input.pd())
}

pub(super) fn alloc_transport_domain(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AllocTransportDomainIn>,
) -> Result {
    let number = TRANSPORT_DOMAIN.alloc(device, io)?;
    call.output.set_transport_domain(number);
    Ok(())
}

pub(super) fn dealloc_transport_domain(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DeallocTransportDomainIn>,
) -> Result {
    TRANSPORT_DOMAIN.dealloc(device, io, call.input.transport_domain())
}

pub(super) fn alloc_xrcd(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AllocXrcdIn>,
) -> Result {
    if !device.caps.general.xrc() {
        return Err(Syndrome::XrcdUnsupported.into());
    }
    let number = XRCD.alloc(device, io)?;
    call.output.set_xrcd(number);
    Ok(())
}

pub(super) fn dealloc_xrcd(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DeallocXrcdIn>,
) -> Result {
    XRCD.dealloc(device, io, call.input.xrcd())
}
