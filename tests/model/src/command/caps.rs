//! QUERY_HCA_CAP and SET_HCA_CAP.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::{Device, Stage};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::caps::{QueryHcaCapIn, SetHcaCapIn};
use bareverbs_firmware_cmds::values::CapabilityGroup;

pub(super) fn query(device: &mut Device, _: &mut Io<'_>, call: Call<'_, QueryHcaCapIn>) -> Result {
    if call.input.other_function() || call.input.function_id() != 0 {
        return Err(Syndrome::OtherFunction.into());
    }
    let image = CapabilityGroup::parse_query(call.input.op_mod())
        .and_then(|(group, mode)| device.caps.image(group, mode))
        .ok_or(Syndrome::CapType)?;
    call.output_tail
        .get_mut(..image.len())
        .ok_or(Syndrome::CapOutputShort)?
        .copy_from_slice(image);
    Ok(())
}

pub(super) fn set(device: &mut Device, _: &mut Io<'_>, call: Call<'_, SetHcaCapIn>) -> Result {
    if call.input.other_function() || call.input.function_id() != 0 {
        return Err(Syndrome::OtherFunction.into());
    }
    if device.stage == Stage::Initialized {
        return Err(Syndrome::CapTooLate.into());
    }
    // SET_HCA_CAP refuses an unknown group like one that cannot be set.
    let group = CapabilityGroup::parse_query(call.input.op_mod())
        .ok_or(Syndrome::CapReadOnly)?
        .0;
    device.caps.set(group, call.tail)?;
    device.apply_caps();
    Ok(())
}
