//! Health: the buffer in the init segment, the counter that ticks, and the ways to die.

use bareverbs_firmware_cmds::health::HealthBuffer;
use core::time::Duration;

/// Firmware assertion.
pub const FIRMWARE_ERROR: u8 = 0x1;
/// Event queue overrun.
pub const EQ_OVERRUN: u8 = 0xc;

/// The severity of a firmware that stops, in syslog's levels.
const CRITICAL: u8 = 2;

/// The `nic_interface` field: full driver.
pub(crate) const INTERFACE_FULL: u8 = 0;
/// The `nic_interface` field: disabled.
pub(crate) const INTERFACE_DISABLED: u8 = 1;
/// The `nic_interface` field: software reset.
pub(crate) const INTERFACE_RESET: u8 = 7;

/// The health of the function.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Health {
    /// The health buffer as the firmware left it when it stopped. A version, time or hardware number of zero is replaced by the
    /// device's own.
    pub(crate) left: HealthBuffer,
    /// When it stopped, which freezes the counter.
    stopped: Option<Duration>,
    /// All reads give ones, nothing is written, nothing is sent.
    pub(crate) vanished: bool,
    pub(crate) interface: u8,
    now: Duration,
}

impl Health {
    pub(crate) fn tick(&mut self, now: Duration) {
        self.now = now;
    }

    /// The firmware stops with a syndrome, as it does after an assertion; the first one stays.
    pub(crate) fn fail(&mut self, syndrome: u8, ext_syndrome: u16) {
        let mut left = HealthBuffer::ZERO;
        left.set_synd(syndrome).set_ext_synd(ext_syndrome);
        // The firmware asks for a reset. Drivers make nothing of the place where it stopped, which is never zero.
        left.set_rfr(true).set_valid(true).set_severity(CRITICAL);
        left.set_assert_existptr(0x0080_1234)
            .set_assert_callra(0x0080_5678);
        self.stop(left);
    }

    /// The firmware reports a problem with all that this buffer says. It stops if the buffer asks for a reset; nothing
    /// changes after that.
    pub(crate) fn stop(&mut self, left: HealthBuffer) {
        if self.stopped.is_some() {
            return;
        }
        log::error!("health: {left}");
        self.left = left;
        if left.rfr() {
            self.stopped = Some(self.now);
        }
    }

    /// Returns `true` if the firmware still works.
    pub(crate) fn well(&self) -> bool {
        self.stopped.is_none() && !self.vanished
    }

    /// The counter of the init segment: it is incremented every 10 ms while the firmware runs.
    pub(crate) fn counter(&self) -> u32 {
        let time = self.stopped.unwrap_or(self.now);
        (time.as_millis() / 10) as u32 & 0xff_ffff
    }
}
