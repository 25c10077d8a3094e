//! Writes into the doorbell pages of the BAR.

use crate::bus::io::Io;
use crate::device::Device;
use bareverbs_firmware_cmds::doorbell::{self, CqArmDoorbell, EqDoorbell};
use bareverbs_firmware_cmds::wqe::ControlWord;

const CQ_ARM: u64 = doorbell::CQ_ARM as u64;
const EQ_ARM: u64 = doorbell::EQ_ARM as u64;
const EQ_CONSUME: u64 = doorbell::EQ_CONSUME as u64;
const BLUE_FLAME: u64 = doorbell::SEND as u64;
const BLUE_FLAME_END: u64 = doorbell::UAR_SIZE as u64;
/// Half of a BlueFlame register: software alternates between the two.
const HALF: u64 = doorbell::SEND_TOGGLE as u64;

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Returns `true` if an offset in the BAR is one of those that drivers map write-combining, if any.
pub(crate) fn is_send_register(first_uar: u32, offset: u64) -> bool {
    offset >= u64::from(first_uar) << 12 && (BLUE_FLAME..BLUE_FLAME_END).contains(&(offset & 0xfff))
}

impl Device {
    /// A doorbell of a queue pair's send queue or of an Ethernet one: their numbers do not overlap.
    pub(crate) fn send_doorbell(&mut self, io: &mut Io<'_>, index: u32, control: ControlWord) {
        let number = control.qpn();
        if self.nic.sqs.contains(number) {
            self.ethernet_doorbell(io, index, number);
        } else {
            self.sq_doorbell(io, index, number);
        }
    }

    /// A write into a doorbell page. Returns whether it meant something.
    pub(crate) fn uar_write(&mut self, io: &mut Io<'_>, index: u32, at: u64, data: &[u8]) -> bool {
        if self.front.is_some() && self.uars.contains(index) {
            let start = (BLUE_FLAME..BLUE_FLAME_END).contains(&at) && at.is_multiple_of(HALF);
            let space = start.then_some(HALF as usize);
            if self.blue_flame_write(io, index, at, data, space) {
                return true;
            }
        }
        let Some(uar) = self.uars.get_mut(index) else {
            log::warn!("doorbell in page {index:#x}, which is no UAR");
            self.stats.bad_doorbells += 1;
            return false;
        };
        let Some(first) = word(data, 0) else {
            return false;
        };
        match (at, word(data, 4)) {
            (CQ_ARM, Some(second)) => {
                self.cq_doorbell(io, index, CqArmDoorbell(join(first, second)));
            }
            (CQ_ARM, None) => uar.cq_high = first,
            (at, None) if at == CQ_ARM + 4 => {
                let high = uar.cq_high;
                self.cq_doorbell(io, index, CqArmDoorbell(join(high, first)));
            }
            (EQ_ARM, _) => self.eq_doorbell(io, index, EqDoorbell(first), true),
            (EQ_CONSUME, _) => self.eq_doorbell(io, index, EqDoorbell(first), false),
            (BLUE_FLAME..BLUE_FLAME_END, second) => match ((at - BLUE_FLAME) % HALF, second) {
                // The second word names the queue, whether both come at once or one after the other; the first says
                // nothing that is not in the WQE. The rest of a BlueFlame write in pieces is the WQE, which is in memory as
                // well.
                (0, Some(second)) => {
                    self.send_doorbell(io, index, ControlWord(join(first, second)));
                }
                (4, None) => self.send_doorbell(io, index, ControlWord(first.into())),
                _ => {}
            },
            _ => return false,
        }
        true
    }
}
