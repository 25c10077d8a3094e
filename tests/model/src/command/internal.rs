//! Internal commands, which come through a [mailbox](crate::bus::icmd) in configuration space. Of them the model has the
//! access to registers, with the registers of ACCESS_REG.
//!
//! iPXE sets the speed of its ports with it, before the command queue has initialized the function (`golan_set_link_speed`).
//! What is in the mailbox are the blocks of management datagrams (TLVs), which Linux has for switches (`mlxsw/core.c`,
//! `mlxsw_emad_op_tlv`, `mlxsw_emad_reg_tlv`), and iPXE as `mail_box_tlv`.

use super::register;
use crate::bus::icmd::Mailbox;
use crate::bus::io::Io;
use crate::device::Device;
use crate::syndrome::{Reject, Syndrome};

/// The opcode for the access to registers (`FLASH_REG_ACCESS`).
const REGISTER_ACCESS: u16 = 0x9001;

/// Statuses of commands, as mstflint has them (`translate_status`).
mod status {
    pub(super) const OK: u8 = 0;
    pub(super) const INVALID_OPCODE: u8 = 1;
    pub(super) const OPERATIONAL_ERROR: u8 = 3;
    pub(super) const BAD_PARAMETER: u8 = 4;
}

/// Types and lengths of the blocks, in the highest 5 and the next 11 bits: what is to be done, of four dwords, and behind
/// it the register.
const OPERATION: u32 = 1;
const OPERATION_DWORDS: usize = 4;
const REGISTER: u32 = 3;
const TYPE_SHIFT: u32 = 27;
const LENGTH_SHIFT: u32 = 16;
const LENGTH: u32 = 0x7ff;
/// In the first dword of the operation: how it ended.
const STATUS_SHIFT: u32 = 8;
const STATUS: u32 = 0x7f << STATUS_SHIFT;
/// In its second: the register's number, that it is a response, reading or writing, and the class of registers.
const NUMBER_SHIFT: u32 = 16;
const RESPONSE: u32 = 1 << 15;
const METHOD_SHIFT: u32 = 8;
const METHOD: u32 = 0x7f;
const READ: u32 = 1;
const WRITE: u32 = 2;
const CLASS: u32 = 0xff;
const CLASS_REGISTERS: u32 = 1;

/// The end of an access, as Linux has it (`mlxsw_emad_op_tlv_status`).
mod ended {
    pub(super) const WELL: u32 = 0;
    pub(super) const NO_REGISTER: u32 = 4;
    pub(super) const NO_CLASS: u32 = 5;
    pub(super) const NO_METHOD: u32 = 6;
    pub(super) const BAD_PARAMETER: u32 = 7;
}

/// Executes the command in the mailbox, unless the firmware has stopped.
pub(crate) fn execute(device: &mut Device, io: &mut Io<'_>, mailbox: &mut Mailbox) {
    if !device.health.well() || !device.booted() {
        return;
    }
    let opcode = mailbox.opcode();
    let status = match opcode {
        REGISTER_ACCESS => access_register(device, io, &mut mailbox.data),
        _ => status::INVALID_OPCODE,
    };
    log::debug!("internal command {opcode:#06x}: status {status}");
    mailbox.complete(status);
}

fn block(dword: u32) -> (u32, usize) {
    let length = dword >> LENGTH_SHIFT & LENGTH;
    (dword >> TYPE_SHIFT, length as usize)
}

fn access_register(device: &mut Device, io: &mut Io<'_>, data: &mut [u32]) -> u8 {
    let Some((operation, rest)) = data.split_first_chunk_mut::<OPERATION_DWORDS>() else {
        return status::BAD_PARAMETER;
    };
    let Some((&mut head, rest)) = rest.split_first_mut() else {
        return status::BAD_PARAMETER;
    };
    let (kind, length) = block(head);
    let register = length
        .checked_sub(1)
        .and_then(|length| rest.get_mut(..length));
    let (Some(register), REGISTER, (OPERATION, OPERATION_DWORDS)) =
        (register, kind, block(operation[0]))
    else {
        return status::BAD_PARAMETER;
    };
    let what = operation[1];
    let ended = match (what & CLASS, what >> METHOD_SHIFT & METHOD) {
        (CLASS_REGISTERS, method @ (READ | WRITE)) => {
            let number = (what >> NUMBER_SHIFT) as u16;
            let input: Vec<u8> = register
                .iter()
                .flat_map(|dword| dword.to_be_bytes())
                .collect();
            let mut output = input.clone();
            let done =
                register::read_or_write(device, io, number, method == WRITE, &input, &mut output);
            for (dword, bytes) in register.iter_mut().zip(output.as_chunks().0) {
                *dword = u32::from_be_bytes(*bytes);
            }
            match done {
                Ok(()) => ended::WELL,
                Err(reject) if reject == Reject::from(Syndrome::RegisterUnknown) => {
                    ended::NO_REGISTER
                }
                Err(_) => ended::BAD_PARAMETER,
            }
        }
        (CLASS_REGISTERS, _) => ended::NO_METHOD,
        _ => ended::NO_CLASS,
    };
    operation[0] = operation[0] & !STATUS | ended << STATUS_SHIFT;
    operation[1] |= RESPONSE;
    match ended {
        ended::WELL => status::OK,
        _ => status::OPERATIONAL_ERROR,
    }
}
