//! Health: the buffer in the init segment, the counter that ticks, and the ways to die.

use core::time::Duration;

/// Firmware assertion.
pub const FIRMWARE_ERROR: u8 = 0x1;
/// Event queue overrun.
pub const EQ_OVERRUN: u8 = 0xc;

/// The `nic_interface` field: full driver.
pub(crate) const INTERFACE_FULL: u8 = 0;
/// The `nic_interface` field: disabled.
pub(crate) const INTERFACE_DISABLED: u8 = 1;
/// The `nic_interface` field: software reset.
pub(crate) const INTERFACE_RESET: u8 = 7;

/// How the function is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Health {
    /// 0 when well.
    pub(crate) syndrome: u8,
    pub(crate) ext_syndrome: u16,
    /// Set with the syndrome: the driver should reset the function.
    pub(crate) reset_required: bool,
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

    /// The firmware stops with a syndrome; the first one stays.
    pub(crate) fn fail(&mut self, syndrome: u8, ext_syndrome: u16) {
        if self.syndrome == 0 {
            log::error!("health syndrome {syndrome:#x}, {ext_syndrome:#x}");
            self.syndrome = syndrome;
            self.ext_syndrome = ext_syndrome;
            self.reset_required = true;
            self.stopped = Some(self.now);
        }
    }

    /// Whether the firmware still works.
    pub(crate) fn well(&self) -> bool {
        self.syndrome == 0 && !self.vanished
    }

    /// The counter of the init segment: it is incremented every 10 ms while the firmware runs.
    pub(crate) fn counter(&self) -> u32 {
        let time = self.stopped.unwrap_or(self.now);
        (time.as_millis() / 10) as u32 & 0xff_ffff
    }
}
