//! The init segment: identification, the command queue's address and doorbell, health, clocks. All of it big-endian.

use crate::device::Device;
use crate::health::{INTERFACE_DISABLED, INTERFACE_FULL, INTERFACE_RESET};

/// Offset of the first byte behind the init segment, where the MSI-X table begins.
pub(crate) const END: u64 = 0x2000;

const COMMAND_INTERFACE_REVISION: u32 = 5;
const ADDRESS_HIGH: u64 = 0x010;
const ADDRESS_LOW: u64 = 0x014;
const DOORBELL: u64 = 0x018;
/// The health buffer.
const HEALTH: u64 = 0x200;
const HEALTH_END: u64 = 0x240;
/// In the word with the `initializing` bit: a driver may have the firmware reset by way of the interface state.
const RESET_SUPPORTED: u32 = 1 << 30;

impl Device {
    /// The word at a multiple of four.
    pub(crate) fn init_word(&self, offset: u64) -> u32 {
        let (major, minor, sub) = self.config.firmware;
        let timer = self.timer();
        match offset {
            0x000 => u32::from(minor) << 16 | u32::from(major),
            0x004 => COMMAND_INTERFACE_REVISION << 16 | u32::from(sub),
            ADDRESS_HIGH => (self.cmdq.shown_address(self.now) >> 32) as u32,
            ADDRESS_LOW => {
                (self.cmdq.shown_address(self.now) as u32 & !0xfff)
                    | u32::from(self.health.interface) << 8
                    | u32::from(self.config.log_cmdq_size) << 4
                    | u32::from(self.config.log_cmdq_stride)
            }
            0x1fc => {
                let initializing = !self.booted() || self.faults.never_boots;
                let embedded_cpu = u32::from(self.config.embedded_cpu) << 23;
                u32::from(initializing) << 31 | RESET_SUPPORTED | embedded_cpu
            }
            HEALTH..HEALTH_END => self.health_word(offset),
            // 0xff8 and 0xffc stay zero: the driver uses its own time limits and never reads the DTOR register.
            0x1000 => (timer >> 32) as u32,
            0x1004 => timer as u32,
            0x1010 => self.health.counter(),
            0x1040 => (self.real_time() >> 32) as u32,
            0x1044 => self.real_time() as u32,
            _ => 0,
        }
    }

    /// A word of the health buffer.
    fn health_word(&self, offset: u64) -> u32 {
        let (major, minor, sub) = self.config.firmware;
        let words = self.health.left.0.as_chunks::<4>().0;
        let left = u32::from_be_bytes(words[((offset - HEALTH) / 4) as usize]);
        match offset - HEALTH {
            0x2c if left == 0 => (self.now - self.started).as_secs() as u32,
            0x30 if left == 0 => u32::from(major) << 24 | u32::from(minor) << 16 | u32::from(sub),
            0x34 if left == 0 => self.config.hw_id,
            _ => left,
        }
    }

    /// A write of the word at a multiple of four.
    pub(crate) fn init_write(&mut self, offset: u64, value: u32) {
        match offset {
            ADDRESS_HIGH => self.cmdq.latch = value,
            ADDRESS_LOW => self.address_low(value),
            DOORBELL => {
                let most = self.config.quirks.command_delay;
                // The lowest slot first, and only those that are rung: there is one doorbell for each command.
                let mut rung = value;
                while rung != 0 {
                    let others = rung & (rung - 1);
                    let at = self.now + self.quirk_state.delay(most);
                    self.cmdq.ring(rung ^ others, at);
                    rung = others;
                }
            }
            _ => {
                log::debug!("write of {value:#x} to the init segment at {offset:#x}");
                self.stats.bad_accesses += 1;
            }
        }
    }

    /// The firmware restarts. A driver waits until the state says that this is over, and then initializes again.
    pub(crate) fn reset_firmware(&mut self) {
        log::info!("software reset");
        self.reset();
        self.health.interface = INTERFACE_DISABLED;
    }

    fn address_low(&mut self, value: u32) {
        let address = u64::from(self.cmdq.latch) << 32 | u64::from(value & !0xfff);
        match (value >> 8 & 7) as u8 {
            INTERFACE_FULL => {
                self.health.interface = INTERFACE_FULL;
                let latched = self.now + self.config.latch_time;
                self.cmdq.program(address, self.now, latched);
                self.quirk_state.initializing_until =
                    self.now + self.config.quirks.initialize_again;
            }
            // The driver gives up on the device without commands: nothing may touch its memory any more.
            INTERFACE_DISABLED => {
                self.health.interface = INTERFACE_DISABLED;
                self.cmdq.clear();
                // Pages and objects are given up on purpose here: nothing of it is a leak.
                let leaks = self.leaks.len();
                self.drop_objects();
                self.leaks.truncate(leaks);
                self.pages = crate::memory::pages::Pages::new(&self.config);
                self.stage = crate::device::Stage::Disabled;
            }
            // Firmware is reset by one of those that can lock the card for it (`lock_sem_sw_reset`); others wait.
            INTERFACE_RESET if self.config.is_virtual() => {
                log::warn!("a virtual function asks for a reset of the firmware");
            }
            INTERFACE_RESET => self.reset_firmware(),
            other => self.health.interface = other,
        }
    }
}
