//! The device's free-running clock, which completions have the time of.

use core::time::Duration;

use bareverbs_firmware_cmds::init_segment::{
    INTERNAL_TIMER_H, INTERNAL_TIMER_L, REAL_TIME_H, REAL_TIME_L, VANISHED,
};

use crate::device::Device;
use crate::platform::Platform;
use crate::types::clock::{Clock, real_time};
use crate::types::error::DeviceError;

/// The lower half is read again if the upper half has changed meanwhile. It changes once in seconds, so that a device whose
/// upper half is another one each time is not right.
const TRIES: usize = 3;

impl<P: Platform> Device<'_, P> {
    /// The clock's cycles per millisecond; `None` if the device does not say.
    #[must_use]
    pub fn clock_khz(&self) -> Option<u32> {
        let khz = self.capabilities().hca.device_frequency_khz();
        (khz != 0).then_some(khz)
    }

    /// The time on the device's clock now, on the scale of [`Completion::timestamp`](crate::Completion::timestamp).
    ///
    /// # Errors
    /// [`DeviceError::Gone`] if the registers read all ones.
    pub fn clock(&self) -> Result<u64, DeviceError> {
        let (high, low) = self.read_halves(INTERNAL_TIMER_H, INTERNAL_TIMER_L)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Returns a clock that converts the time stamps of completions to nanoseconds, with its mark at this moment: now it shows
    /// `ns`, by any clock of the caller's. `None` if the device does not say how fast its clock is.
    ///
    /// # Errors
    /// It fails when [`clock`](Self::clock) does.
    pub fn start_clock(&self, ns: u64) -> Result<Option<Clock>, DeviceError> {
        let Some(mut clock) = self.clock_khz().and_then(Clock::new) else {
            return Ok(None);
        };
        clock.set_mark(self.clock()?, ns);
        Ok(Some(clock))
    }

    /// Returns `true` if completions of queue pairs have stamps of the real-time clock ([`real_time`]): those of cards that
    /// offer no others (`qp_ts_format`). Else they are the free-running clock's, which [`Clock`] converts.
    #[must_use]
    pub fn has_real_time_stamps(&self) -> bool {
        const REAL_TIME_ONLY: u8 = 1;
        let roce = self.capabilities().roce;
        roce.is_some_and(|roce| roce.qp_ts_format() == REAL_TIME_ONLY)
    }

    /// The time on the device's real-time clock now, since its epoch, on the scale of [`real_time`]. `None` if it shows no
    /// time: a card without such a clock has 0 there.
    ///
    /// # Errors
    /// It fails when [`clock`](Self::clock) does.
    pub fn real_time_clock(&self) -> Result<Option<Duration>, DeviceError> {
        let (seconds, ns) = self.read_halves(REAL_TIME_H, REAL_TIME_L)?;
        if (seconds, ns) == (0, 0) {
            return Ok(None);
        }
        Ok(real_time(u64::from(seconds) << 32 | u64::from(ns)))
    }

    /// Reads two halves as they are at one moment.
    fn read_halves(&self, upper: usize, lower: usize) -> Result<(u32, u32), DeviceError> {
        let platform = self.platform();
        let mut high = platform.read_be32(upper);
        let mut low = 0;
        for _ in 0..TRIES {
            low = platform.read_be32(lower);
            let again = platform.read_be32(upper);
            if again == high {
                break;
            }
            high = again;
        }
        if high == VANISHED {
            return Err(DeviceError::Gone);
        }
        Ok((high, low))
    }
}
