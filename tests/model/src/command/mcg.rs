//! Multicast groups and management datagrams through the firmware.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::objects::qp::service;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::mad::{AttachToMcgIn, DetachFromMcgIn, MadIfcIn};

fn member(device: &Device, qpn: u32) -> Result {
    let qp = device.qps.get(qpn).ok_or(Syndrome::GroupQp)?;
    if !device.users.controls(ObjectKind::Qp, qpn) {
        return Err(Syndrome::OtherUser.into());
    }
    if qp.context.st() != service::UD {
        return Err(Syndrome::GroupQpType.into());
    }
    Ok(())
}

pub(super) fn attach(device: &mut Device, _: &mut Io<'_>, call: Call<'_, AttachToMcgIn>) -> Result {
    let (qpn, gid) = (call.input.qpn(), *call.input.multicast_gid());
    member(device, qpn)?;
    let ipv4 = gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] && gid[12] >> 4 == 0xe;
    if gid[0] != 0xff && !ipv4 {
        return Err(Syndrome::GroupAddress.into());
    }
    if device.groups.contains(&gid, qpn) {
        return Err(Syndrome::GroupTwice.into());
    }
    if device.groups.len() >> device.caps.general.log_max_mcg() != 0 {
        return Err(Syndrome::GroupFull.into());
    }
    device.groups.attach(gid, qpn);
    Ok(())
}

pub(super) fn detach(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, DetachFromMcgIn>,
) -> Result {
    let (qpn, gid) = (call.input.qpn(), call.input.multicast_gid());
    if !device.groups.detach(gid, qpn) {
        return Err(Syndrome::GroupUnknown.into());
    }
    Ok(())
}

/// `op_mod` of MAD_IFC: keys that are not to be checked, of which there is one.
const IGNORE_M_KEY: u16 = 1;
const IGNORE_KEYS: u16 = 3;

/// Management datagrams for the port's own agents. On RoCE there is no subnet to manage, and the virtual port's commands
/// answer what drivers query.
pub(super) fn mad_ifc(device: &mut Device, io: &mut Io<'_>, call: Call<'_, MadIfcIn>) -> Result {
    if call.input.port() != 1 {
        return Err(Syndrome::MadPort.into());
    }
    if device.ethernet() {
        return Err(Syndrome::MadUnsupported.into());
    }
    if call.input.op_mod() & !IGNORE_KEYS != 0 {
        return Err(Syndrome::MadOpMod.into());
    }
    let keyed = call.input.op_mod() & IGNORE_M_KEY == 0;
    if let Some(answer) = device.manage(io, call.input.mad(), keyed)? {
        call.output
            .response_mad_packet_mut()
            .copy_from_slice(&answer);
    }
    Ok(())
}
