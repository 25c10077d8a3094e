//! The page by which programs convert the device's time stamps to nanoseconds: `struct mlx5_ib_clock_info`, which `mlx5_core`
//! keeps (`lib/clock.c`) and libmlx5 maps.

// UNSAFETY: a file without a name is mapped.
#![expect(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime};

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::Device;
use libc::c_int;

use crate::attrs::Result;

/// `MLX5_CYCLES_SHIFT`: fraction bits of the factor.
const SHIFT: u32 = 23;
/// The bits of the clock that count.
const MASK: u64 = (1 << 41) - 1;
/// `MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`.
const UPDATING: u32 = 1;
/// The time after which the mark moves: a cycle's nanoseconds have 41 bits left beside the fraction, which is 18 minutes.
const PERIOD: Duration = Duration::from_secs(60);
/// The size of the page.
const LEN: usize = 4096;

/// The file with the page; 0 before there is one.
static FILE: AtomicI32 = AtomicI32::new(0);

/// `struct mlx5_ib_clock_info`.
#[repr(C)]
struct Info {
    sign: AtomicU32,
    reserved: u32,
    nsec: AtomicU64,
    cycles: AtomicU64,
    frac: AtomicU64,
    mult: AtomicU32,
    shift: AtomicU32,
    mask: AtomicU64,
    overflow_period: AtomicU64,
}

/// The page, and the mark that it shows: at so many cycles the system's clock was at so many nanoseconds, and a fraction.
pub(crate) struct ClockPage {
    info: &'static Info,
    mult: u32,
    mark: Mark,
    moved: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    cycles: u64,
    nsec: u64,
    frac: u64,
}

impl Mark {
    /// The mark at a later time of the device's clock: `timecounter_read`.
    fn moved(self, cycles: u64, mult: u32) -> Self {
        let cycles = cycles & MASK;
        let passed = cycles.wrapping_sub(self.cycles) & MASK;
        let shifted = u128::from(passed) * u128::from(mult) + u128::from(self.frac);
        Self {
            cycles,
            nsec: self.nsec.wrapping_add((shifted >> SHIFT) as u64),
            frac: shifted as u64 & ((1 << SHIFT) - 1),
        }
    }
}

/// The nanoseconds of a cycle, shifted: `clocksource_khz2mult`. `None` if they do not fit.
fn factor(khz: u32) -> Option<u32> {
    let khz = u64::from(khz);
    let shifted = (1_000_000_u64 << SHIFT) + khz / 2;
    shifted.checked_div(khz)?.try_into().ok()
}

impl ClockPage {
    /// A page that shows the system's time now; `None` if the device does not say how fast its clock is.
    pub(crate) fn new(device: &Device<'_, P>) -> Option<Self> {
        let mult = factor(device.clock_khz()?)?;
        let cycles = device.clock().ok()? & MASK;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // SAFETY: the name is C's text.
        let file = unsafe { libc::memfd_create(c"clock".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: the descriptor is the one that was made.
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(LEN as u64).ok()?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (anywhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new page, at a place that has nothing yet.
        let place = unsafe { libc::mmap(anywhere, LEN, access, libc::MAP_SHARED, fd, 0) };
        if place == libc::MAP_FAILED {
            return None;
        }
        let page = Self {
            // SAFETY: the page begins there, is never given back, and zero is a value of each field.
            info: unsafe { &*place.cast::<Info>() },
            mult,
            mark: Mark {
                cycles,
                nsec: since.ok()?.as_nanos() as u64,
                frac: 0,
            },
            moved: Instant::now(),
        };
        page.publish();
        FILE.store(file.into_raw_fd(), Ordering::Release);
        Some(page)
    }

    /// Moves the mark when it is time to.
    pub(crate) fn turn(&mut self, device: &Device<'_, P>) {
        if self.moved.elapsed() < PERIOD {
            return;
        }
        self.moved = Instant::now();
        if let Ok(cycles) = device.clock() {
            self.mark = self.mark.moved(cycles, self.mult);
            self.publish();
        }
    }

    /// Shows the mark: `mlx5_update_clock_info_page`.
    fn publish(&self) {
        let Info {
            sign,
            nsec,
            cycles,
            frac,
            mult,
            shift,
            mask,
            overflow_period,
            ..
        } = self.info;
        let before = sign.load(Ordering::Acquire);
        sign.store(before | UPDATING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        nsec.store(self.mark.nsec, Ordering::Relaxed);
        cycles.store(self.mark.cycles, Ordering::Relaxed);
        frac.store(self.mark.frac, Ordering::Relaxed);
        mult.store(self.mult, Ordering::Relaxed);
        shift.store(SHIFT, Ordering::Relaxed);
        mask.store(MASK, Ordering::Relaxed);
        // libmlx5 takes it for nanoseconds (`max_clock_info_update_nsec`).
        overflow_period.store(PERIOD.as_nanos() as u64, Ordering::Relaxed);
        sign.store(before.wrapping_add(2 * UPDATING), Ordering::Release);
    }
}

/// The file that a program maps, with errors as `mlx5_ib_mmap_clock_info_page` has them.
pub(crate) fn file(index: i64, len: usize, protection: c_int) -> Result<c_int> {
    if len != LEN {
        return Err(libc::EINVAL);
    }
    // `MLX5_IB_CLOCK_INFO_V1` is the only version.
    if index != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if protection & (libc::PROT_WRITE | libc::PROT_EXEC) != 0 {
        return Err(libc::EPERM);
    }
    match FILE.load(Ordering::Acquire) {
        0 => Err(libc::EOPNOTSUPP),
        file => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_moves_as_a_timecounter_does() {
        // 6.4 ns, with the fraction's bits; what a clock of less than 2 MHz has does not fit.
        assert_eq!(factor(156_250), Some(53_687_091));
        assert_eq!((factor(0), factor(1_000)), (None, None));
        let mult = factor(156_250).unwrap();
        let start = Mark {
            cycles: MASK - 1,
            nsec: 1_000,
            frac: 0,
        };
        // The clock wraps. Five cycles are a little less than 32 ns here, and the fraction counts at the next move.
        let after = start.moved(3, mult);
        assert_eq!((after.cycles, after.nsec), (3, 1_031));
        let once = start.moved(1_000_003, mult);
        assert_eq!(after.moved(1_000_003, mult), once);
        assert_eq!(once.nsec - after.nsec, 6_400_000);
    }
}
