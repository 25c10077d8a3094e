//! The device's clock: for programs as it is, and converted into the system's time.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bareverbs_node::verbs::Device;

use crate::process::failure::{Errno, Result, lock};
use crate::process::hca::P;

/// The time that both clocks are taken to run at the same rate.
const FRESH: Duration = Duration::from_secs(1);

/// The conversion of a device's time.
#[derive(Default)]
pub(crate) struct Clock {
    pair: Mutex<Option<Pair>>,
}

/// The readings of both clocks at once.
#[derive(Clone, Copy)]
struct Pair {
    read: Instant,
    device: u64,
    nanoseconds: u64,
    khz: u32,
}

impl Pair {
    fn read(device: &Device<'static, P>) -> Result<Self> {
        let khz = device.clock_khz().ok_or(Errno::EOPNOTSUPP)?;
        let before = SystemTime::now();
        let cycles = device.clock()?;
        let after = SystemTime::now();
        // The register was read between the two.
        let middle = before + after.duration_since(before).unwrap_or_default() / 2;
        let since = middle.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            read: Instant::now(),
            device: cycles,
            nanoseconds: since.as_nanos() as u64,
            khz,
        })
    }

    /// Nanoseconds since 1970 at a time of the device, before or after the two were read.
    fn convert(&self, cycles: u64) -> u64 {
        let distance = i128::from(cycles.wrapping_sub(self.device) as i64);
        let nanoseconds = distance * 1_000_000 / i128::from(self.khz);
        self.nanoseconds.wrapping_add(nanoseconds as u64)
    }
}

impl Clock {
    /// Nanoseconds since 1970 at a time of the device.
    pub(crate) fn nanoseconds(&self, device: &Device<'static, P>, cycles: u64) -> Result<u64> {
        let mut pair = lock(&self.pair);
        let pair = match &mut *pair {
            Some(fresh) if fresh.read.elapsed() < FRESH => fresh,
            stale => stale.insert(Pair::read(device)?),
        };
        Ok(pair.convert(cycles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_are_converted() {
        let pair = Pair {
            read: Instant::now(),
            device: u64::MAX - 99,
            nanoseconds: 1_000_000,
            khz: 500_000,
        };
        assert_eq!(pair.convert(pair.device), 1_000_000);
        assert_eq!(pair.convert(pair.device - 50), 999_900);
        // Past the largest number.
        assert_eq!(pair.convert(100), 1_000_400);
    }
}
