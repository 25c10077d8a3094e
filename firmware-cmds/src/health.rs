//! The health buffer, in which the firmware reports a problem of its own: as numbers and in words.

use crate::layout::layout;
use crate::numbered::numbered;
use core::fmt;

layout! {
    /// The health buffer of the init segment ([`HEALTH`](crate::init_segment::HEALTH)). It says something only when
    /// [`synd`](Self::synd) is not 0.
    pub struct HealthBuffer: "health_buffer", 0x40 {
        bytes assert_var, assert_var_mut: 24 @ 0x00;
        bits assert_existptr, set_assert_existptr: u32 @ 0x20 [31:0];
        bits assert_callra, set_assert_callra: u32 @ 0x24 [31:0];
        bits time, set_time: u32 @ 0x2c [31:0];
        bits fw_version, set_fw_version: u32 @ 0x30 [31:0];
        bits hw_id, set_hw_id: u32 @ 0x34 [31:0];
        flag rfr, set_rfr @ 0x38 [31];
        flag crr, set_crr @ 0x38 [30];
        flag valid, set_valid @ 0x38 [27];
        bits severity, set_severity: u8 @ 0x38 [26:24];
        bits irisc_index, set_irisc_index: u8 @ 0x3c [31:24];
        bits synd, set_synd: u8 @ 0x3c [23:16];
        bits ext_synd, set_ext_synd: u16 @ 0x3c [15:0];
    }
}

numbered! {
    /// The health syndrome ([`HealthBuffer::synd`]).
    ///
    /// The numbers are `MLX5_INITIAL_SEG_HEALTH_SYNDROME_*` of `mlx5_ifc.h`. Number 0x11 and the descriptions are from the
    /// manual's table of the health buffer.
    pub enum HealthSyndrome: u8, words {
        /// Nothing is wrong.
        None = 0x00, "none";
        /// `FW_INTERNAL_ERR`.
        FirmwareInternal = 0x01, "firmware internal error";
        /// `DEAD_IRISC`.
        DeadProcessor = 0x07, "a processor of the device does not respond";
        /// `HW_FATAL_ERR`.
        HardwareUnrecoverable = 0x08, "unrecoverable hardware error";
        /// `FW_CRC_ERR`.
        FirmwareCrc = 0x09, "firmware CRC error";
        /// `ICM_FETCH_PCI_ERR`.
        IcmFetch = 0x0a, "fetching from PCI failed";
        /// `ICM_PAGE_ERR`.
        IcmPage = 0x0b, "ICM page error";
        /// `ASYNCHRONOUS_EQ_BUF_OVERRUN`.
        EqOverrun = 0x0c, "asynchronous event queue overrun";
        /// `EQ_IN_ERR`.
        EqError = 0x0d, "event queue error";
        /// `EQ_INV`.
        EqInvalid = 0x0e, "event queue invalid";
        /// `FFSER_ERR`.
        SelfReset = 0x0f, "fast firmware self reset error";
        /// `HIGH_TEMP_ERR`.
        HighTemperature = 0x10, "high temperature";
        /// No name in `mlx5_ifc.h`.
        PciPower = 0x11, "PCI power state error";
        /// `ICM_PCI_POISONED_ERR`.
        IcmPoisoned = 0x12, "data fetched from PCI was poisoned";
        /// `TRUST_LOCKDOWN_ERR`.
        TrustLockdown = 0x13, "trust lockdown error";
        _ = Unknown, "unknown";
    }
    /// Every syndrome that has a name.
    const ALL;
    /// The syndrome with this number.
    fn from_number;
    /// In words.
    fn description;
    /// The number in the buffer.
    fn number;
}

impl fmt::Display for HealthSyndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} ({})", self.number(), self.description())
    }
}

numbered! {
    /// The severity of a health problem, in the levels of `syslog`, with the names that Linux's driver prints.
    pub enum Severity: u8, code {
        /// The system is unusable.
        Emergency = 0, "EMERGENCY";
        /// It has to be dealt with at once.
        Alert = 1, "ALERT";
        /// A critical condition.
        Critical = 2, "CRITICAL";
        /// An error.
        Error = 3, "ERROR";
        /// A warning.
        Warning = 4, "WARNING";
        /// Normal, but to be noted.
        Notice = 5, "NOTICE";
        /// A message.
        Info = 6, "INFO";
        /// A message for debugging.
        Debug = 7, "DEBUG";
    }
    /// All of them, the gravest first.
    const ALL;
    /// The severity with this number.
    fn from_number;
    /// Name, as Linux's driver prints it.
    fn name;
}

impl HealthBuffer {
    /// The buffer from its 16 registers, in the host's byte order.
    #[must_use]
    pub fn from_registers(registers: [u32; 16]) -> Self {
        let mut buffer = Self::ZERO;
        for (place, register) in buffer.0.as_chunks_mut::<4>().0.iter_mut().zip(registers) {
            *place = register.to_be_bytes();
        }
        buffer
    }

    /// Returns true if it was read from a device that is not there: no firmware has version 0xffffffff.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.fw_version() == crate::init_segment::VANISHED
    }

    /// Returns true if the firmware reports a problem.
    #[must_use]
    pub const fn has_problem(&self) -> bool {
        self.synd() != 0
    }

    /// The syndrome.
    #[must_use]
    pub const fn syndrome(&self) -> HealthSyndrome {
        HealthSyndrome::from_number(self.synd())
    }

    /// The severity; an error, as in Linux's driver, if the firmware does not say.
    #[must_use]
    pub const fn level(&self) -> Severity {
        match Severity::from_number(self.severity()) {
            Some(severity) if self.valid() => severity,
            _ => Severity::Error,
        }
    }

    /// `assert_var`, as numbers.
    #[must_use]
    pub fn assert_vars(&self) -> [u32; 6] {
        let mut vars = [0; 6];
        for (var, bytes) in vars.iter_mut().zip(self.assert_var().as_chunks::<4>().0) {
            *var = u32::from_be_bytes(*bytes);
        }
        vars
    }
}

/// In one line.
impl fmt::Display for HealthBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_gone() {
            return f.write_str("the registers read all ones");
        }
        let (syndrome, extended) = (self.syndrome(), self.ext_synd());
        write!(f, "syndrome {syndrome}, extended {extended:#06x}")?;
        if self.has_problem() {
            write!(f, ", severity {}", self.level().name())?;
        }
        if self.rfr() {
            f.write_str(", asks for a reset")?;
        }
        if self.crr() {
            f.write_str(", asks for a cold reset")?;
        }
        f.write_str("; assert_var")?;
        for var in self.assert_vars() {
            write!(f, " {var:#010x}")?;
        }
        write!(
            f,
            ", assert_exit_ptr {:#010x}, assert_callra {:#010x}, time {}, fw_ver {:#010x}, hw_id {:#010x}, irisc_index {}",
            self.assert_existptr(),
            self.assert_callra(),
            self.time(),
            self.fw_version(),
            self.hw_id(),
            self.irisc_index()
        )
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    fn broken() -> HealthBuffer {
        let mut registers = [0; 16];
        for (at, value) in [
            (0x00, 0x1111_0001),
            (0x14, 0x1111_0006),
            (0x20, 0x2080_6d40),
            (0x24, 0x2080_aaaa),
            (0x2c, 1_234_567),
            (0x30, 0x101c_0fbe),
            (0x34, 0x0000_020d),
            (0x38, 0x8a00_0000),
            (0x3c, 0x0201_8a01_u32),
        ] {
            registers[at / 4] = value;
        }
        HealthBuffer::from_registers(registers)
    }

    /// The places are those at which Linux's driver (`print_health_info`) reads, by bytes and words of
    /// `struct health_buffer`.
    #[test]
    fn every_register_is_where_linux_reads_it() {
        let buffer = broken();
        assert_eq!(buffer.assert_vars(), [0x1111_0001, 0, 0, 0, 0, 0x1111_0006]);
        assert_eq!(buffer.assert_existptr(), 0x2080_6d40);
        assert_eq!(buffer.assert_callra(), 0x2080_aaaa);
        assert_eq!((buffer.time(), buffer.hw_id()), (1_234_567, 0x20d));
        assert!(buffer.rfr() && buffer.has_problem() && !buffer.crr());
        assert_eq!(buffer.level(), Severity::Critical);
        assert_eq!((buffer.irisc_index(), buffer.synd()), (2, 1));
        assert_eq!(buffer.ext_synd(), 0x8a01);
    }

    #[test]
    fn words_say_all_of_it() {
        assert_eq!(
            format!("{}", broken()),
            "syndrome 0x1 (firmware internal error), extended 0x8a01, severity CRITICAL, asks for a reset; \
             assert_var 0x11110001 0x00000000 0x00000000 0x00000000 0x00000000 0x11110006, \
             assert_exit_ptr 0x20806d40, assert_callra 0x2080aaaa, time 1234567, fw_ver 0x101c0fbe, \
             hw_id 0x0000020d, irisc_index 2"
        );
        let gone = HealthBuffer([0xff; 0x40]);
        assert_eq!(format!("{gone}"), "the registers read all ones");
    }

    /// Linux: `rfr_severity & MLX5_SEVERITY_VALID_MASK ? rfr_severity & MLX5_SEVERITY_MASK : LOGLEVEL_ERR`.
    #[test]
    fn a_severity_that_is_not_valid_is_an_error() {
        let mut buffer = broken();
        buffer.set_valid(false);
        assert_eq!(buffer.level(), Severity::Error);
        for (number, severity) in Severity::ALL.iter().enumerate() {
            buffer.set_valid(true).set_severity(number as u8);
            assert_eq!(buffer.level(), *severity);
        }
    }
}
