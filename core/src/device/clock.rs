//! The device's free-running clock, which completions have the time of.

use bareverbs_firmware_cmds::init_segment::{INTERNAL_TIMER_H, INTERNAL_TIMER_L, VANISHED};

use crate::device::Device;
use crate::platform::Platform;
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
        let platform = self.platform();
        let mut high = platform.read_be32(INTERNAL_TIMER_H);
        let mut low = 0;
        for _ in 0..TRIES {
            low = platform.read_be32(INTERNAL_TIMER_L);
            let again = platform.read_be32(INTERNAL_TIMER_H);
            if again == high {
                break;
            }
            high = again;
        }
        if high == VANISHED {
            return Err(DeviceError::Gone);
        }
        Ok(u64::from(high) << 32 | u64::from(low))
    }
}
