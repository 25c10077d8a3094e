//! Lists of changes to headers.

use super::{Call, Result, flow};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::steering::Limits;
use crate::steering::rewrite::{EACH, Rewrite};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::flow::{AllocModifyHeaderContextIn, DeallocModifyHeaderContextIn};
use bareverbs_firmware_cmds::values::FlowTableType;

fn limits(device: &Device) -> core::result::Result<Limits, Syndrome> {
    let limits = flow::limits(device)?;
    if limits.rewrite_actions == 0 {
        return Err(Syndrome::RewriteUnsupported);
    }
    Ok(limits)
}

pub(super) fn alloc(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AllocModifyHeaderContextIn>,
) -> Result {
    let limits = limits(device)?;
    let input = call.input;
    if input.op_mod() != 0 {
        return Err(Syndrome::FlowOpMod.into());
    }
    if input.table_type() != FlowTableType::NicReceive.number() {
        return Err(Syndrome::FlowTableType.into());
    }
    let count = input.num_of_actions();
    if count == 0 || count > limits.rewrite_actions {
        return Err(Syndrome::RewriteLength.into());
    }
    let actions = call.tail.get(..usize::from(count) * EACH);
    let mut rewrite = Rewrite::new(actions.ok_or(Syndrome::RewriteShort)?)?;
    let number = device.steering.plan_rewrite(&limits)?;
    rewrite.place = device.store(io, ObjectKind::ModifyHeader, number, &rewrite.bytes)?;
    device.steering.insert_rewrite(rewrite);
    call.output.set_modify_header_id(number);
    Ok(())
}

pub(super) fn dealloc(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DeallocModifyHeaderContextIn>,
) -> Result {
    limits(device)?;
    if call.input.op_mod() != 0 {
        return Err(Syndrome::FlowOpMod.into());
    }
    let number = call.input.modify_header_id();
    let rewrite = device.steering.rewrite(number)?;
    if rewrite.users != 0 {
        return Err(Syndrome::RewriteBusy.into());
    }
    let (place, bytes) = (rewrite.place, rewrite.bytes.clone());
    device.check(io, place, ObjectKind::ModifyHeader, number, &bytes)?;
    device.steering.remove_rewrite(number);
    device.pages.release(place);
    Ok(())
}
