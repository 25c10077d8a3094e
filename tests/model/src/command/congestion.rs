//! Congestion control: its parameters are kept, and never come to bear, as no frame on this cable is marked.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::syndrome::{Reject, Syndrome};
use bareverbs_firmware_cmds::congestion::{
    CongestionPoint, ModifyCongParamsIn, ModifyCongStatusIn, QueryCongParamsIn,
    QueryCongStatisticsIn, QueryCongStatusIn,
};
use bareverbs_firmware_cmds::layout;

impl Device {
    fn point(&self, protocol: u8, allowed: bool) -> core::result::Result<CongestionPoint, Reject> {
        if !allowed || !self.ethernet() {
            return Err(Syndrome::CongestionNotAllowed.into());
        }
        CongestionPoint::from_number(protocol).ok_or_else(|| Syndrome::CongestionProtocol.into())
    }

    fn in_force(&mut self, point: CongestionPoint, priority: u8) -> Option<&mut bool> {
        let point = usize::from(point.number() - 1);
        self.vport.settings.congestion[point].get_mut(usize::from(priority))
    }
}

pub(super) fn query_params(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryCongParamsIn>,
) -> Result {
    let allowed = device.caps.general.cc_query_allowed();
    let point = device.point(call.input.cong_protocol(), allowed)?;
    *call.output.congestion_parameters_mut() = *device.vport.settings.parameters(point);
    Ok(())
}

pub(super) fn modify_params(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, ModifyCongParamsIn>,
) -> Result {
    let allowed = device.caps.general.cc_modify_allowed();
    let point = device.point(call.input.cong_protocol(), allowed)?;
    let select = u32::from_be_bytes(*call.input.field_select());
    let known = point.select().iter().fold(0, |all, (_, bit)| all | bit);
    if select & !known != 0 {
        return Err(Syndrome::CongestionSelect.into());
    }
    let wanted = call.input.congestion_parameters();
    let kept = device.vport.settings.parameters(point);
    for field in point.descriptor().fields {
        let mut bits = point.select().iter();
        if bits.any(|(name, bit)| *name == field.name && select & bit != 0) {
            let value = layout::get(wanted, field.offset, field.width);
            layout::set(kept, field.offset, field.width, value);
        }
    }
    Ok(())
}

pub(super) fn query_status(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryCongStatusIn>,
) -> Result {
    let allowed = device.caps.general.cc_query_allowed();
    let point = device.point(call.input.cong_protocol(), allowed)?;
    let enable = device.in_force(point, call.input.priority());
    let enable = *enable.ok_or(Syndrome::CongestionPriority)?;
    call.output.set_enable(enable);
    Ok(())
}

pub(super) fn modify_status(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, ModifyCongStatusIn>,
) -> Result {
    let allowed = device.caps.general.cc_modify_allowed();
    let point = device.point(call.input.cong_protocol(), allowed)?;
    let enable = device.in_force(point, call.input.priority());
    *enable.ok_or(Syndrome::CongestionPriority)? = call.input.enable();
    Ok(())
}

/// Nothing is marked, nothing is slowed down. On InfiniBand ports too.
pub(super) fn query_statistics(
    device: &mut Device,
    _: &mut Io<'_>,
    _: Call<'_, QueryCongStatisticsIn>,
) -> Result {
    if !device.caps.general.cc_query_allowed() {
        return Err(Syndrome::CongestionNotAllowed.into());
    }
    Ok(())
}
