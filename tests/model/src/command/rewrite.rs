//! Lists of changes to headers.

use super::{Call, Result, flow};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::steering::rewrite::{EACH, Rewrite};
use crate::steering::{Direction, Limits};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::flow::{AllocModifyHeaderContextIn, DeallocModifyHeaderContextIn};

fn limits(device: &Device, direction: Direction) -> core::result::Result<Limits, Syndrome> {
    let limits = flow::limits(device, direction)?;
    // Linux has no way to ask for changes to what RDMA receives (`mlx5_cmd_modify_header_alloc`).
    if limits.rewrite_actions == 0 || direction == Direction::RdmaReceive {
        return Err(Syndrome::RewriteUnsupported);
    }
    Ok(limits)
}

pub(super) fn alloc(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AllocModifyHeaderContextIn>,
) -> Result {
    let input = call.input;
    let direction = flow::direction(input.table_type())?;
    let limits = limits(device, direction)?;
    if input.op_mod() != 0 {
        return Err(Syndrome::FlowOpMod.into());
    }
    let count = input.num_of_actions();
    if count == 0 || count > limits.rewrite_actions {
        return Err(Syndrome::RewriteLength.into());
    }
    let actions = call.tail.get(..usize::from(count) * EACH);
    let mut rewrite = Rewrite::new(direction, actions.ok_or(Syndrome::RewriteShort)?)?;
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
    limits(device, Direction::Receive)
        .or(limits(device, Direction::Transmit))
        .or(limits(device, Direction::RdmaTransmit))?;
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
