//! ENABLE_HCA to DISABLE_HCA, ISSI, and what identifies the card.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::config::FunctionKind;
use crate::device::{Device, Stage};
use crate::objects::{Leak, ObjectKind};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::hca::{
    DisableHcaIn, EnableHcaIn, InitHcaIn, NopIn, QueryAdapterIn, QueryIssiIn, QueryVuidIn,
    QueryVuidOut, SetDriverVersionIn, SetIssiIn, TeardownHcaIn,
};
use bareverbs_firmware_cmds::values::Teardown;

/// The vendor's IEEE number, in QUERY_ADAPTER.
const IEEE_VENDOR: u32 = 0x0000_02c9;

impl Device {
    /// Checks whether a command names the function that it came from. Function 0 with `embedded_cpu_function` is the one of
    /// the embedded cores, and without it the host's.
    pub(super) fn own_function(&self, embedded_cpu: bool, id: u16) -> Result {
        if embedded_cpu == self.config.embedded_cpu && id == 0 {
            Ok(())
        } else {
            Err(Syndrome::OtherFunction.into())
        }
    }

    /// Returns `true` if a command is the embedded cores' and about the host's physical function, which they may enable and
    /// disable (`mlx5_cmd_host_pf_enable_hca`). That function is not part of the model.
    fn is_about_the_host(&self, embedded_cpu: bool, id: u16) -> bool {
        self.config.embedded_cpu && self.stage != Stage::Disabled && !embedded_cpu && id == 0
    }
}

pub(super) fn enable(device: &mut Device, _: &mut Io<'_>, call: Call<'_, EnableHcaIn>) -> Result {
    let (embedded_cpu, id) = (call.input.embedded_cpu_function(), call.input.function_id());
    if device.is_about_the_host(embedded_cpu, id) {
        log::info!("the host's physical function is enabled");
        return Ok(());
    }
    device.own_function(embedded_cpu, id)?;
    if device.stage != Stage::Disabled {
        return Err(Syndrome::AlreadyEnabled.into());
    }
    device.stage = Stage::Enabled;
    Ok(())
}

pub(super) fn disable(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DisableHcaIn>,
) -> Result {
    let (embedded_cpu, id) = (call.input.embedded_cpu_function(), call.input.function_id());
    if device.is_about_the_host(embedded_cpu, id) {
        log::info!("the host's physical function is disabled");
        return Ok(());
    }
    device.own_function(embedded_cpu, id)?;
    if device.stage == Stage::Initialized {
        return Err(Syndrome::DisableWhileInitialized.into());
    }
    let held = device.pages.held();
    if held != 0 {
        // The driver that gives up on pages leaks them, but goes on; so does the card.
        log::warn!("DISABLE_HCA with {held} pages not taken back");
        device.leaks.push(Leak {
            kind: ObjectKind::Page,
            number: held as u32,
        });
    }
    let checked = device.pages.check_firmware(io);
    device.pages = crate::memory::pages::Pages::new(&device.config);
    device.stage = Stage::Disabled;
    device.issi = 0;
    device.caps = crate::caps::Caps::new(&device.config);
    device.assert_context(checked)
}

pub(super) fn query_issi(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryIssiIn>,
) -> Result {
    if device.config.supported_issi == 0 {
        return Err(Syndrome::IssiQueryUnsupported.into());
    }
    call.output
        .set_current_issi(device.issi)
        .set_supported_issi_dw0(device.config.supported_issi);
    Ok(())
}

pub(super) fn set_issi(device: &mut Device, _: &mut Io<'_>, call: Call<'_, SetIssiIn>) -> Result {
    let level = call.input.current_issi();
    if device.stage == Stage::Initialized {
        return Err(Syndrome::IssiTooLate.into());
    }
    if level > 31 || device.config.supported_issi >> level & 1 == 0 {
        return Err(Syndrome::IssiUnsupported.into());
    }
    device.issi = level;
    Ok(())
}

pub(super) fn init(device: &mut Device, io: &mut Io<'_>, _: Call<'_, InitHcaIn>) -> Result {
    if device.stage == Stage::Initialized {
        return Err(Syndrome::InitTwice.into());
    }
    if !device.cmdq.programmed() {
        return Err(Syndrome::InitWithoutCommandQueue.into());
    }
    if device.boot_pages_missing() > 0 || device.init_pages_missing() > 0 {
        return Err(Syndrome::InitWithoutPages.into());
    }
    let checked = device.pages.check_firmware(io);
    device.assert_context(checked)?;
    device.stage = Stage::Initialized;
    Ok(())
}

pub(super) fn teardown(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, TeardownHcaIn>,
) -> Result {
    // The others need capabilities that this card does not have.
    if call.input.profile() != Teardown::Graceful.number() {
        return Err(Syndrome::TeardownProfile.into());
    }
    let checked = device.pages.check_firmware(io);
    device.drop_objects();
    device.stage = Stage::Enabled;
    device.assert_context(checked)
}

pub(super) fn query_adapter(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryAdapterIn>,
) -> Result {
    let block = call.output.query_adapter_struct_mut();
    block
        .set_ieee_vendor_id(IEEE_VENDOR)
        .set_vsd_vendor_id(0x15b3);
    block
        .vsd_contd_psid_mut()
        .copy_from_slice(&device.config.board_id);
    Ok(())
}

/// Gives the function's own universal identifier: the card's serial number, the maker's letters, and the function's place.
pub(super) fn query_vuid(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryVuidIn>,
) -> Result {
    if !device.caps.general.hca_cap_2() || !device.caps.general_2.query_vuid() {
        return Err(Syndrome::VuidUnsupported.into());
    }
    // Linux asks for other functions of the card, or for its data direct function, where there are such.
    let other = call.input.vhca_id() != device.caps.general.vhca_id();
    if other || call.input.query_vfs_vuid() || call.input.data_direct() {
        return Err(Syndrome::OtherFunction.into());
    }
    let function = match device.config.function {
        FunctionKind::Physical => "",
        FunctionKind::Virtual => "VF1",
    };
    let serial = &device.config.system_image_guid;
    let vuid = format!("BR{serial:016X}MLNXS0D0F0{function}");
    let entry = call
        .output_tail
        .get_mut(..QueryVuidOut::ENTRY)
        .ok_or(Syndrome::VuidOutputShort)?;
    entry[..vuid.len()].copy_from_slice(vuid.as_bytes());
    call.output.set_num_of_entries(1);
    Ok(())
}

pub(super) fn set_driver_version(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, SetDriverVersionIn>,
) -> Result {
    if !device.caps.general.driver_version() {
        return Err(Syndrome::DriverVersionUnsupported.into());
    }
    let text: String = call
        .input
        .driver_version()
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| {
            if byte.is_ascii_graphic() || byte == b' ' {
                byte as char
            } else {
                '?'
            }
        })
        .collect();
    log::info!("driver version {text:?}");
    Ok(())
}

pub(super) fn nop(_: &mut Device, _: &mut Io<'_>, _: Call<'_, NopIn>) -> Result {
    Ok(())
}
