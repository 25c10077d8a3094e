//! Doorbells: the offsets inside a UAR page and what is written there; and the doorbell records in host memory.
//!
//! A doorbell goes to the device over MMIO, big-endian, after everything that it announces is visible in memory. A
//! doorbell record lies in host memory; the device reads it when it needs to know how far a queue has been filled or
//! emptied.

use crate::numbers::{Cqn, Eqn};

/// Size of a UAR page in bytes.
pub const UAR_SIZE: usize = 0x1000;
/// CQ arm doorbell in a UAR page, 8 bytes: [`cq_arm`].
pub const CQ_ARM: usize = 0x20;
/// EQ doorbell that moves the consumer index and arms, 4 bytes: [`eq`].
pub const EQ_ARM: usize = 0x40;
/// EQ doorbell that only moves the consumer index, 4 bytes: [`eq`].
pub const EQ_CONSUME: usize = 0x48;
/// First send doorbell (BlueFlame register) in a UAR page, 8 bytes: the first 8 bytes of the last control segment.
pub const SEND: usize = 0x800;
/// Successive send doorbells alternate between two buffers, this far apart (half of a register with
/// `log_bf_reg_size` 9).
pub const SEND_TOGGLE: usize = 0x100;
/// BlueFlame registers per UAR page.
pub const SEND_REGISTERS: usize = 4;

/// Distance of the BlueFlame registers, which is also twice the distance of their two buffers.
#[must_use]
pub const fn send_register(number: usize, log_bf_reg_size: u8) -> usize {
    SEND + (number << log_bf_reg_size)
}

/// Value for [`EQ_ARM`] and [`EQ_CONSUME`].
#[must_use]
#[inline]
pub const fn eq(eqn: Eqn, consumer: u32) -> u32 {
    (eqn.0 as u32) << 24 | consumer & 0x00ff_ffff
}

/// The two parts of an EQ doorbell's value.
#[must_use]
pub const fn parse_eq(value: u32) -> (Eqn, u32) {
    (Eqn((value >> 24) as u8), value & 0x00ff_ffff)
}

/// When an armed CQ is to raise its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqArm {
    /// At the next completion.
    Next,
    /// At the next completion that is solicited or an error.
    Solicited,
}

const SOLICITED_ONLY: u32 = 1 << 24;

/// Arm record of a CQ: the second dword of its doorbell record, and the upper half of the doorbell.
///
/// `sequence` (2 bits) counts the events taken from this CQ; the device ignores an arm with the wrong one.
#[must_use]
#[inline]
pub const fn cq_arm_record(sequence: u32, when: CqArm, consumer: u32) -> u32 {
    let command = match when {
        CqArm::Next => 0,
        CqArm::Solicited => SOLICITED_ONLY,
    };
    (sequence & 3) << 28 | command | consumer & 0x00ff_ffff
}

/// Value for [`CQ_ARM`].
#[must_use]
#[inline]
pub const fn cq_arm(sequence: u32, when: CqArm, consumer: u32, cqn: Cqn) -> u64 {
    (cq_arm_record(sequence, when, consumer) as u64) << 32 | cqn.number() as u64
}

/// An arm doorbell taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqArmDoorbell {
    /// Which CQ.
    pub cqn: Cqn,
    /// Sequence number, 2 bits.
    pub sequence: u8,
    /// For which completions.
    pub when: CqArm,
    /// Consumer counter, 24 bits.
    pub consumer: u32,
}

/// What [`cq_arm`] put together.
#[must_use]
pub const fn parse_cq_arm(value: u64) -> CqArmDoorbell {
    let record = (value >> 32) as u32;
    CqArmDoorbell {
        cqn: Cqn::from_low_bits(value as u32),
        sequence: (record >> 28 & 3) as u8,
        when: if record & SOLICITED_ONLY != 0 {
            CqArm::Solicited
        } else {
            CqArm::Next
        },
        consumer: record & 0x00ff_ffff,
    }
}

/// Byte of the receive counter (16 bits, in a big-endian dword) in a QP's doorbell record.
pub const RECORD_RECEIVE: usize = 0;
/// Byte of the send counter (16 bits, in a big-endian dword) in a QP's doorbell record.
pub const RECORD_SEND: usize = 4;
/// Byte of the consumer counter (24 bits) in a CQ's doorbell record.
pub const RECORD_CQ_CONSUMER: usize = 0;
/// Byte of the arm record ([`cq_arm_record`]) in a CQ's doorbell record.
pub const RECORD_CQ_ARM: usize = 4;
/// Size of a doorbell record.
pub const RECORD_SIZE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eq_doorbell() {
        assert_eq!(eq(Eqn(7), 0x0112_3456), 0x0712_3456);
        assert_eq!(parse_eq(0x0712_3456), (Eqn(7), 0x12_3456));
    }

    #[test]
    fn cq_doorbell() {
        let cqn = Cqn::new(0x42).unwrap();
        assert_eq!(
            cq_arm(2, CqArm::Next, 0x00ab_cdef, cqn),
            0x20ab_cdef_0000_0042
        );
        let solicited = cq_arm(7, CqArm::Solicited, 0x0100_0001, cqn);
        assert_eq!(solicited, 0x3100_0001_0000_0042);
        let parsed = CqArmDoorbell {
            cqn,
            sequence: 3,
            when: CqArm::Solicited,
            consumer: 1,
        };
        assert_eq!(parse_cq_arm(solicited), parsed);
    }

    #[test]
    fn send_doorbells_of_a_uar() {
        assert_eq!(send_register(0, 9), 0x800);
        assert_eq!(send_register(3, 9), 0xe00);
    }
}
