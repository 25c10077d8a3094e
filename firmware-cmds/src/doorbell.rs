//! Doorbells: the offsets inside a UAR page and what is written there; and the doorbell records in host memory.
//!
//! A doorbell goes to the device over MMIO, big-endian, after everything that it announces is visible in memory. A
//! doorbell record lies in host memory; the device reads it to get how far a queue has been filled or emptied.

use crate::numbers::{Cqn, Eqn};
use crate::word::words;

/// Size of a UAR page in bytes.
pub const UAR_SIZE: usize = 0x1000;
/// CQ arm doorbell in a UAR page, 8 bytes: [`CqArmDoorbell`].
pub const CQ_ARM: usize = 0x20;
/// EQ doorbell that moves the consumer index and arms, 4 bytes: [`EqDoorbell`].
pub const EQ_ARM: usize = 0x40;
/// EQ doorbell that only moves the consumer index, 4 bytes: [`EqDoorbell`].
pub const EQ_CONSUME: usize = 0x48;
/// First send doorbell (BlueFlame register) in a UAR page, 8 bytes: the first 8 bytes of the last control segment.
pub const SEND: usize = 0x800;
/// Successive send doorbells alternate between two buffers, this far apart (half of a register with
/// `log_bf_reg_size` 9).
pub const SEND_TOGGLE: usize = 0x100;

/// Distance of the BlueFlame registers, which is also twice the distance of their two buffers.
#[must_use]
pub const fn send_register(number: usize, log_bf_reg_size: u8) -> usize {
    SEND + (number << log_bf_reg_size)
}

words! {
    /// Value for [`EQ_ARM`] and [`EQ_CONSUME`].
    pub struct EqDoorbell(u32): "" @ 0x00 {
        /// The event queue.
        u8 eqn, set_eqn: 31, 24;
        /// Consumer counter, of which 24 bits count.
        u32 consumer, set_consumer: 23, 0;
    }

    /// Arm record of a CQ: the second dword of its doorbell record, and the upper half of the doorbell.
    pub struct CqArmRecord(u32): "" @ 0x04 {
        /// Counts the events taken from this CQ; the device ignores an arm with the wrong one.
        u8 sequence, set_sequence: 29, 28;
        /// The event is to come at the next completion that is solicited or an error, rather than at any.
        bool solicited_only, set_solicited_only: 24;
        /// Consumer counter, of which 24 bits count.
        u32 consumer, set_consumer: 23, 0;
    }

    /// Value for [`CQ_ARM`].
    pub struct CqArmDoorbell(u64): "" @ 0x00 {
        /// [`CqArmRecord`].
        u32 record, set_record: 63, 32;
        /// The completion queue.
        u32 cqn, set_cqn: 23, 0;
    }

    /// Consumer record of a CQ: the first dword of its doorbell record.
    pub struct CqConsumerRecord(u32): "" @ 0x00 {
        /// Consumer counter, of which 24 bits count.
        u32 consumer, set_consumer: 23, 0;
    }

    /// Receive record of a queue: the first dword of its doorbell record.
    pub struct ReceiveRecord(u32): "" @ 0x00 {
        /// Counter of receives, of which 16 bits count.
        u16 counter, set_counter: 15, 0;
    }

    /// Send record of a queue: the second dword of its doorbell record.
    pub struct SendRecord(u32): "" @ 0x04 {
        /// Counter of basic blocks, of which 16 bits count.
        u16 counter, set_counter: 15, 0;
    }
}

impl EqDoorbell {
    /// For this queue and counter.
    #[must_use]
    pub fn new(eqn: Eqn, consumer: u32) -> Self {
        let mut word = Self(0);
        word.set_eqn(eqn.0);
        word.set_consumer(consumer);
        word
    }
}

impl CqArmRecord {
    /// For these counters, of which the lower bits count.
    #[must_use]
    #[inline]
    pub fn new(sequence: u32, solicited_only: bool, consumer: u32) -> Self {
        let mut word = Self(0);
        word.set_sequence(sequence as u8);
        word.set_solicited_only(solicited_only);
        word.set_consumer(consumer);
        word
    }

    /// The doorbell that goes with it.
    #[must_use]
    #[inline]
    pub fn doorbell(self, cqn: Cqn) -> CqArmDoorbell {
        let mut word = CqArmDoorbell(0);
        word.set_record(self.0);
        word.set_cqn(cqn.number());
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eq_doorbell() {
        let word = EqDoorbell::new(Eqn(7), 0x0112_3456);
        assert_eq!(word.0, 0x0712_3456);
        assert_eq!((word.eqn(), word.consumer()), (7, 0x12_3456));
    }

    #[test]
    fn cq_doorbell() {
        let cqn = Cqn::new(0x42).unwrap();
        let any = CqArmRecord::new(2, false, 0x00ab_cdef);
        assert_eq!(any.doorbell(cqn).0, 0x20ab_cdef_0000_0042);
        let solicited = CqArmRecord::new(7, true, 0x0100_0001);
        assert_eq!(solicited.doorbell(cqn).0, 0x3100_0001_0000_0042);
        assert_eq!(solicited.doorbell(cqn).record(), solicited.0);
        assert_eq!((solicited.sequence(), solicited.consumer()), (3, 1));
        assert!(solicited.solicited_only() && !any.solicited_only());
    }

    #[test]
    fn send_doorbells_of_a_uar() {
        assert_eq!(send_register(0, 9), 0x800);
        assert_eq!(send_register(3, 9), 0xe00);
    }
}
