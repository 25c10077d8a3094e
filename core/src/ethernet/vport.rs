//! The port's context: which addresses the function receives for, by which the embedded switch decides what comes to it.

use bareverbs_firmware_cmds::values::AllowedList;
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;

use crate::device::{Device, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::Mac;

/// Replaces a list of addresses by `count` that `address` has.
pub(super) fn write_addresses<P: Platform>(
    device: &Device<'_, P>,
    kind: AllowedList,
    count: usize,
    address: &mut dyn FnMut(usize) -> u64,
) -> Result<(), CommandError> {
    let mut command = ModifyNicVportContextIn::new();
    command.field_select_mut().set_addresses_list(true);
    command
        .nic_vport_context_mut()
        .set_allowed_list_type(kind.number())
        .set_allowed_list_size(count as u16);
    let tail = TailIn::Qwords(count, address);
    device.execute_with(&command, tail, &mut []).map(drop)
}

/// Says whether all multicast frames, and whether all frames, are wanted.
pub(super) fn write_promiscuity<P: Platform>(
    device: &Device<'_, P>,
    multicast: bool,
    all: bool,
) -> Result<(), CommandError> {
    let mut command = ModifyNicVportContextIn::new();
    command.field_select_mut().set_promisc(true);
    command
        .nic_vport_context_mut()
        .set_promisc_mc(multicast)
        .set_promisc_all(all);
    device.execute_no_output(&command)
}

/// An address as a list has it.
pub(super) fn number(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
