//! QUERY_HCA_CAP and SET_HCA_CAP.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::{Device, Stage};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::caps::{QueryHcaCapIn, SetHcaCapIn};

pub(super) fn query(device: &mut Device, _: &mut Io<'_>, call: Call<'_, QueryHcaCapIn>) -> Result {
    if call.input.other_function() || call.input.function_id() != 0 {
        return Err(Syndrome::OtherFunction.into());
    }
    let op_mod = call.input.op_mod();
    let image = device
        .caps
        .image(op_mod >> 1, op_mod & 1 != 0)
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
    device.caps.set(call.input.op_mod() >> 1, call.tail)?;
    device.apply_caps();
    Ok(())
}
