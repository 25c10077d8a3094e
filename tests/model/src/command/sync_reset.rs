//! MFRL: resets of the firmware that all functions of the card are asked about.

use super::Result;
use super::register_bytes::{input, output};
use crate::device::Device;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::register::MfrlReg;
use bareverbs_firmware_cmds::values::{ResetResponse, ResetState};

/// The levels of a reset that there are: without the driver, with it, and of the whole card.
const LEVELS: [u8; 3] = [1 << 0, 1 << 3, 1 << 6];

pub(super) fn access(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: MfrlReg = input(tail)?;
    let resets = &mut device.sync_reset;
    if write {
        let response = ResetResponse::from_number(register.pci_sync_for_fw_update_resp());
        // An answer names no new reset, and there is none without a question.
        let is_answer = matches!(
            response,
            Some(ResetResponse::Acknowledge | ResetResponse::Refuse)
        );
        let asked = resets.state == ResetState::InNegotiation;
        let at_a_level = LEVELS.contains(&register.reset_level());
        if register.pci_sync_for_fw_update_start() || !is_answer || !asked || !at_a_level {
            return Err(Syndrome::RegisterValue.into());
        }
        resets.answers.extend(response);
        if response == Some(ResetResponse::Refuse) {
            resets.state = ResetState::Refused;
        }
    } else {
        register
            .set_reset_level(LEVELS.iter().sum())
            .set_reset_state(resets.state.number());
    }
    Ok(output(out, &register)?)
}
