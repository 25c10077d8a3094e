//! The init segment: the registers at the start of BAR 0, all big-endian.
//!
//! Two headers describe it: `mlx5_ifc.h` (structure `initial_seg`) by bits, and `include/linux/mlx5/device.h`
//! (`struct mlx5_init_seg`), by dwords, with some registers that the former leaves out. Both are compared.

use crate::health::HealthBuffer;
use crate::layout::{Descriptor, Field, Kind, Layout, field_name, layout};

layout! {
    /// The first 512 bytes of the init segment and the health buffer.
    pub struct InitSegment: "initial_seg", 0x240 {
        bits fw_rev_minor, set_fw_rev_minor: u16 @ 0x00 [31:16];
        bits fw_rev_major, set_fw_rev_major: u16 @ 0x00 [15:0];
        bits cmd_interface_rev, set_cmd_interface_rev: u16 @ 0x04 [31:16];
        bits fw_rev_subminor, set_fw_rev_subminor: u16 @ 0x04 [15:0];
        bits cmdq_phy_addr_63_32, set_cmdq_phy_addr_63_32: u32 @ 0x10 [31:0];
        bits cmdq_phy_addr_31_12, set_cmdq_phy_addr_31_12: u32 @ 0x14 [31:12];
        bits nic_interface, set_nic_interface: u8 @ 0x14 [10:8];
        bits log_cmdq_size, set_log_cmdq_size: u8 @ 0x14 [7:4];
        bits log_cmdq_stride, set_log_cmdq_stride: u8 @ 0x14 [3:0];
        bits command_doorbell_vector, set_command_doorbell_vector: u32 @ 0x18 [31:0];
        flag initializing, set_initializing @ 0x1fc [31];
        bits nic_interface_supported, set_nic_interface_supported: u8 @ 0x1fc [26:24];
        flag embedded_cpu, set_embedded_cpu @ 0x1fc [23];
        part health_buffer, health_buffer_mut: HealthBuffer @ 0x200;
    }
}

macro_rules! registers {
    ($( $(#[$meta:meta])* $NAME:ident = $at:literal, $width:literal, $field:ident; )*) => {
        $( $(#[$meta])* #[doc = concat!("\n`mlx5_init_seg.", stringify!($field), "`.")] pub const $NAME: usize = $at; )*

        /// The registers by the names of `device.h`.
        pub struct Registers;

        impl Layout for Registers {
            const DESCRIPTOR: &'static Descriptor = &Descriptor {
                name: "struct mlx5_init_seg",
                size: SIZE,
                fields: &[$(
                    Field { name: field_name(stringify!($field)), offset: $at * 8, width: $width, kind: Kind::Bits }
                ),*],
                #[cfg(test)]
                accessors: &[],
            };
        }
    };
}

/// Bytes of BAR 0 that the init segment takes.
pub const SIZE: usize = 0x2010;

registers! {
    /// Firmware revision: minor in 31:16, major in 15:0.
    FW_REV = 0x000, 32, fw_rev;
    /// Command interface revision in 31:16 (see [`crate::cmdq::COMMAND_INTERFACE_REVISION`]), firmware subminor in 15:0.
    CMDIF_REV_FW_SUB = 0x004, 32, cmdif_rev_fw_sub;
    /// Upper half of the command queue's address.
    CMDQ_ADDR_H = 0x010, 32, cmdq_addr_h;
    /// Address 31:12, nic_interface 10:8, log size 7:4, log stride 3:0. The write makes the address valid.
    CMDQ_ADDR_L_SZ = 0x014, 32, cmdq_addr_l_sz;
    /// Command doorbell: writing bit *i* submits entry *i*.
    CMD_DBELL = 0x018, 32, cmd_dbell;
    /// Bit 31 while the firmware is starting; see [`Initializing`].
    INITIALIZING = 0x1fc, 32, initializing;
    /// The [`HealthBuffer`].
    HEALTH = 0x200, 512, health;
    /// Time that a command may take; see [`timeout`].
    CMD_EXEC_TO = 0xff8, 32, cmd_exec_to;
    /// Time that the firmware may take to start; see [`timeout`]. 0: the device does not publish its timeouts.
    CMD_Q_INIT_TO = 0xffc, 32, cmd_q_init_to;
    /// Upper half of the free running counter.
    INTERNAL_TIMER_H = 0x1000, 32, internal_timer_h;
    /// Lower half of the free running counter.
    INTERNAL_TIMER_L = 0x1004, 32, internal_timer_l;
    /// Bits 23:0 count as long as the firmware runs.
    HEALTH_COUNTER = 0x1010, 32, health_counter;
    /// Upper half of the real-time clock (seconds).
    REAL_TIME_H = 0x1040, 32, real_time_h;
    /// Lower half of the real-time clock (nanoseconds).
    REAL_TIME_L = 0x1044, 32, real_time_l;
    /// IEEE 1588 clock.
    IEEE1588_CLK = 0x2000, 64, ieee1588_clk;
    /// Kind of that clock.
    IEEE1588_CLK_TYPE = 0x2008, 32, ieee1588_clk_type;
    /// Clears the legacy interrupt.
    CLR_INTX = 0x200c, 32, clr_intx;
}

/// Bits of [`HEALTH_COUNTER`] that count.
pub const HEALTH_COUNTER_MASK: u32 = 0x00ff_ffff;
/// The value of every register once the device has gone from the bus.
pub const VANISHED: u32 = u32::MAX;

/// Firmware version, from the first two dwords. Its order is the version's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FirmwareVersion {
    /// First number: the product line (16 is ConnectX-5).
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number.
    pub subminor: u16,
}

impl FirmwareVersion {
    /// From the values of [`FW_REV`] and [`CMDIF_REV_FW_SUB`].
    #[must_use]
    pub const fn from_registers(fw_rev: u32, cmdif_rev_fw_sub: u32) -> Self {
        Self {
            major: fw_rev as u16,
            minor: (fw_rev >> 16) as u16,
            subminor: cmdif_rev_fw_sub as u16,
        }
    }
}

impl core::fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{:04}", self.major, self.minor, self.subminor)
    }
}

/// Command interface revision, from the value of [`CMDIF_REV_FW_SUB`].
#[must_use]
pub const fn command_interface_revision(cmdif_rev_fw_sub: u32) -> u16 {
    (cmdif_rev_fw_sub >> 16) as u16
}

/// The value of [`CMDQ_ADDR_L_SZ`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandQueueRegister(pub u32);

impl CommandQueueRegister {
    /// Binary logarithm of the number of entries.
    #[must_use]
    pub const fn log_size(self) -> u8 {
        (self.0 >> 4 & 0xf) as u8
    }

    /// Binary logarithm of the distance between entries in bytes.
    #[must_use]
    pub const fn log_stride(self) -> u8 {
        (self.0 & 0xf) as u8
    }

    /// Lower half of the queue's address.
    #[must_use]
    pub const fn address_low(self) -> u32 {
        self.0 & 0xffff_f000
    }

    /// The state of the function's interface, which says who may drive the device.
    #[must_use]
    pub const fn nic_interface(self) -> NicInterface {
        NicInterface::from_number((self.0 >> 8 & 7) as u8)
    }

    /// The value that asks for another [`NicInterface`] and leaves the address alone; the driver writes the sizes as 0.
    #[must_use]
    pub const fn with_nic_interface(self, mode: NicInterface) -> Self {
        Self(self.0 & 0xffff_f000 | (mode.number() as u32) << 8)
    }
}

/// Mode of the interface between driver and device. Anything but [`Full`](Self::Full) under a running driver means that
/// the device is lost to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicInterface {
    /// 0: a driver may use it.
    Full,
    /// 1: disabled.
    Disabled,
    /// 2: a minimal mode without host memory.
    NoDram,
    /// 7: in software reset.
    SoftwareReset,
    /// Any other value.
    Unknown(u8),
}

impl NicInterface {
    /// From the register's bits 10:8.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Full,
            1 => Self::Disabled,
            2 => Self::NoDram,
            7 => Self::SoftwareReset,
            other => Self::Unknown(other),
        }
    }

    /// The register's bits 10:8.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Full => 0,
            Self::Disabled => 1,
            Self::NoDram => 2,
            Self::SoftwareReset => 7,
            Self::Unknown(other) => other & 7,
        }
    }
}

/// The value of [`INITIALIZING`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initializing(pub u32);

impl Initializing {
    /// The firmware is still starting.
    #[must_use]
    pub const fn busy(self) -> bool {
        self.0 >> 31 != 0
    }

    /// The driver runs on the device's own processor (BlueField).
    #[must_use]
    pub const fn embedded_cpu(self) -> bool {
        self.0 >> 23 & 1 != 0
    }
}

/// A timeout register: bits 31:29 are the unit (ms, s, min, h), 19:0 the number. `None` for a unit that does not exist.
#[must_use]
pub const fn timeout(register: u32) -> Option<core::time::Duration> {
    let number = (register & 0xf_ffff) as u64;
    let unit_ms = match register >> 29 {
        0 => 1,
        1 => 1000,
        2 => 60_000,
        3 => 3_600_000,
        _ => return None,
    };
    Some(core::time::Duration::from_millis(number * unit_ms))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::time::Duration;
    use std::string::ToString;

    #[test]
    fn registers_and_bit_structure_agree() {
        let mut segment = InitSegment([0xa5; 0x240]);
        segment
            .set_initializing(true)
            .set_embedded_cpu(false)
            .set_log_cmdq_size(5)
            .set_log_cmdq_stride(6);
        segment
            .set_nic_interface(7)
            .set_cmdq_phy_addr_31_12(0x12345)
            .set_fw_rev_major(16)
            .set_fw_rev_minor(35);
        segment.set_cmd_interface_rev(5).set_fw_rev_subminor(4030);
        let dword = |at: usize| u32::from_be_bytes(segment.0[at..at + 4].try_into().unwrap());
        let version = FirmwareVersion::from_registers(dword(FW_REV), dword(CMDIF_REV_FW_SUB));
        assert_eq!(version.to_string(), "16.35.4030");
        assert_eq!(command_interface_revision(dword(CMDIF_REV_FW_SUB)), 5);
        let queue = CommandQueueRegister(dword(CMDQ_ADDR_L_SZ));
        assert_eq!((queue.log_size(), queue.log_stride()), (5, 6));
        assert_eq!(queue.address_low(), 0x1234_5000);
        assert_eq!(queue.nic_interface(), NicInterface::SoftwareReset);
        assert_eq!(
            queue.with_nic_interface(NicInterface::Disabled).0,
            0x1234_5100
        );
        assert!(Initializing(dword(INITIALIZING)).busy());
        assert!(!Initializing(dword(INITIALIZING)).embedded_cpu());
    }

    #[test]
    fn timeouts_have_units() {
        assert_eq!(timeout(2000), Some(Duration::from_secs(2)));
        assert_eq!(timeout(1 << 29 | 60), Some(Duration::from_secs(60)));
        assert_eq!(
            timeout(3 << 29 | 0xf_ffff),
            Some(Duration::from_secs(3600 * 0xf_ffff))
        );
        assert_eq!(timeout(4 << 29), None);
    }
}
