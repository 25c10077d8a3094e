//! DevX of a program: its user, objects of its own commands, and memory that these name.

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::Device;
use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_node::verbs::firmware_cmds::umem::{
    CreateUctxIn, DestroyUctxIn, DestroyUmemIn, UCTX_CAP_INTERNAL_DEV_RES, UCTX_CAP_RAW_TX,
};

use crate::attrs::{Result, refused};
use crate::dct;
use crate::doorbells::{self, Queue};
use crate::queues::Mapped;

/// Shortest command and answer.
pub(crate) const HEADER: usize = 16;

/// An object that a program's command has created.
pub(crate) struct Devx<'d> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) create: Opcode,
    pub(crate) number: u32,
    pub(crate) destroy: Vec<u8>,
    pub(crate) bell: Option<Queue>,
}

/// Memory that commands name.
pub(crate) struct Umem<'d> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) number: u32,
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) _memory: Mapped<'d>,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
    word.map_or(0, |word| u32::from_be_bytes(*word))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

impl Devx<'_> {
    pub(crate) fn destroy(&self) -> Result<()> {
        if self.create == Opcode::CreateDct {
            dct::drain(self.device, self.number)?;
        }
        let mut output = [0; HEADER];
        let opcode = (word(&self.destroy, 0) >> 16) as u16;
        let opcode = Opcode::from_number(opcode).ok_or(libc::EINVAL)?;
        let done = self
            .device
            .execute_bytes(opcode, &self.destroy, &mut output);
        done.map_err(refused)?;
        self.silence();
        Ok(())
    }

    /// Its record is not looked at any more.
    pub(crate) fn silence(&self) {
        if let Some(bell) = self.bell {
            doorbells::remove(bell);
        }
    }
}

impl Umem<'_> {
    pub(crate) fn destroy(&self) -> Result<()> {
        let mut command = DestroyUmemIn::new();
        command.set_umem_id(self.number);
        self.device.execute(&command).map(drop).map_err(refused)
    }
}

/// Creates a user.
pub(crate) fn create_user(device: &Device<'_, P>) -> Result<u16> {
    let caps = &device.capabilities().hca;
    if caps.log_max_uctx() == 0 {
        return Err(libc::EINVAL);
    }
    let mut command = CreateUctxIn::new();
    let wanted = UCTX_CAP_RAW_TX | UCTX_CAP_INTERNAL_DEV_RES;
    command.uctx_mut().set_cap(wanted & caps.uctx_cap());
    Ok(device.execute(&command).map_err(refused)?.uid())
}

/// Ends a user.
pub(crate) fn destroy_user(device: &Device<'_, P>, uid: u16) {
    let mut command = DestroyUctxIn::new();
    command.set_uid(uid);
    // One that still has something stays.
    let _ = device.execute(&command).map_err(refused);
}
