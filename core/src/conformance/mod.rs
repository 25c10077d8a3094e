//! A test that a [`Platform`] can run against itself: run it first when the driver is ported to a new kernel.
//!
//! [`run`] calls every method of the platform and holds what comes back against the requirements in the trait's
//! documentation. Then it brings the function up and has the *device* say what it sees: two queue pairs that talk to
//! each other by force loopback move bytes between memory that was allocated and memory that was mapped, so that
//! neither a cable nor an address is needed. What is wrong is a [`ConformanceError`], which names the [`Requirement`]
//! that was violated and gives the values that were seen.
//!
//! ```no_run
//! use bareverbs_core::conformance::{self, MEMORY_LEN, Options};
//! use bareverbs_core::{Cqs, PageChunks, Platform, Qps, Resources, Srqs};
//!
//! fn judge<P: Platform>(platform: &P, memory: &'static mut [u8; MEMORY_LEN]) {
//!     // Two queue pairs, two completion queues, and 128 MiB that the firmware may ask for.
//!     let mut resources = Resources::<Qps<2>, Cqs<2>, Srqs<0>, PageChunks<64>>::new();
//!     match conformance::run(platform, memory, resources.storage(), Options::DEFAULT) {
//!         Ok(report) => println!("{report}"),
//!         Err(error) => panic!("{error}"),
//!     }
//! }
//! ```
//!
//! # What is checked
//!
//! | Requirement | How |
//! |---|---|
//! | BAR | the init segment is there, does not change by itself, and is read and written in the right byte order; what lies outside or is not aligned reads all ones and swallows writes; the doorbell page lies inside |
//! | clock | never goes back, advances while the driver waits, in steps of a millisecond at most |
//! | [`dma_alloc`](Platform::dma_alloc) | zeroed, also what was used before; both addresses aligned; pieces lie apart for host and device; impossible sizes are errors; what was freed comes back, for more bytes than there are |
//! | [`dma_map`](Platform::dma_map) | pages cover regions of odd places and lengths, and lie apart |
//! | the device's view | commands; a doorbell of 64 bits; RDMA WRITE and READ between allocated and mapped memory, over pages, every byte compared, also those around |
//! | [`write_combining`](Platform::write_combining), if the platform and the device have it | these messages go that way |
//! | interrupts, if there are any | a wait ends at its deadline, past or to come, and neither early nor late; a completion's interrupt ends a wait, and the next wait at once if it came in between |
//!
//! What cannot be seen from here: that memory is visible to the device *before* a register write that announces it (a
//! platform without the barrier mostly passes), that an access is one bus access, and that memory is out of the
//! device's reach once it was given back.
//!
//! It does the same in each run, and allocates nothing but from the platform. A program that does not call it does not
//! contain it. Each step is logged at level `info`.

mod clock;
mod interrupts;
mod limits;
mod loopback;
mod mapping;
mod memory;
mod pattern;
mod registers;
mod traffic;
mod violation;

use core::fmt;
use core::time::Duration;

use crate::device::Device;
use crate::device::open::wait_for_firmware;
use crate::device::storage::Storage;
use crate::platform::Platform;
use crate::types::config::Config;

use limits::TIMEOUT;
use pattern::Region;
pub use violation::{ConformanceError, Path, Requirement, Violation};

pub use limits::MEMORY_LEN;

/// The thoroughness of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes that are allocated and freed in all, a few at a time: more than the platform has, so that it runs out if it
    /// does not take memory back.
    pub turnover: u64,
}

impl Options {
    /// 1 GiB in all.
    pub const DEFAULT: Self = Self { turnover: 1 << 30 };

    /// With so many bytes allocated and freed in all.
    #[must_use]
    pub const fn with_turnover(mut self, bytes: u64) -> Self {
        self.turnover = bytes;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The report on a platform that keeps to the trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Length of BAR 0.
    pub bar_len: usize,
    /// `true` if the device gave back what was written to its registers. If not, their byte order and what lies beside them
    /// were seen by their effect alone.
    pub registers_read_back: bool,
    /// The smallest step of the clock that was seen.
    pub resolution: Duration,
    /// Pieces of memory that were allocated at the same time.
    pub pieces: usize,
    /// The page sizes that mappings had: bit n means 2^n bytes.
    pub page_sizes: u64,
    /// Bytes that the device moved.
    pub moved: u64,
    /// MSI-X vectors; 0 if the platform polls, and no interrupts were tried.
    pub vectors: u16,
    /// `true` if a wait without an interrupt lasted until its deadline. A platform that always returns at once keeps to the
    /// trait too, but never sleeps.
    pub sleeps: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BAR of {} bytes{}; clock of {:?}; {} pieces of memory at a time; pages of",
            self.bar_len,
            if self.registers_read_back {
                ""
            } else {
                " that reads nothing back"
            },
            self.resolution,
            self.pieces,
        )?;
        for shift in (0..u64::BITS).filter(|shift| self.page_sizes >> shift & 1 != 0) {
            write!(f, " 2^{shift}")?;
        }
        write!(f, " bytes; {} bytes moved by the device; ", self.moved)?;
        match (self.vectors, self.sleeps) {
            (0, _) => f.write_str("polled"),
            (vectors, true) => write!(f, "sleeps for {vectors} interrupt vectors"),
            (vectors, false) => write!(f, "has {vectors} interrupt vectors, but never sleeps"),
        }
    }
}

/// Holds a platform against its requirements.
///
/// The function was just reset, decodes memory and masters the bus, as for [`Device::open`]; afterwards it is as after
/// [`Device::close`]. `memory` is the platform's user's, as far from contiguous for the device as the machine allows; it
/// is kept, because after a failure the device may still use it. `storage` holds at least two QPs and two CQs, and
/// what the firmware requires.
///
/// # Errors
/// The first violation. A platform that breaks its requirements may also break the program: it is trusted (`unsafe
/// trait`), and this test does not shield from it.
pub fn run<P: Platform>(
    platform: &P,
    memory: &'static mut [u8; MEMORY_LEN],
    storage: Storage<'_>,
    options: Options,
) -> Result<Report, ConformanceError> {
    let mut config = Config::DEFAULT;
    config.command_timeout = TIMEOUT;
    let region = Region::new(memory);

    let bar_len = registers::read(platform)?;
    log::info!("BAR: {bar_len} bytes, the init segment reads well");
    let resolution = clock::check(platform)?;
    log::info!("clock: steps of {resolution:?}");
    let pieces = memory::check(platform, options.turnover)?;
    log::info!("dma_alloc: {pieces} pieces at a time");
    let page_sizes = mapping::check(platform, region)?;
    log::info!("dma_map: page sizes {page_sizes:#x}");
    wait_for_firmware(platform, config.initialize_timeout).map_err(ConformanceError::Open)?;
    let vectors = platform.interrupt_vectors();
    let sleeps = vectors > 0 && interrupts::check_deadlines(platform)?;

    let (registers_read_back, written_page) = registers::write(platform)?;
    log::info!("BAR: registers that were written read back: {registers_read_back}");
    wait_for_firmware(platform, config.initialize_timeout).map_err(ConformanceError::Open)?;
    config.interrupts = vectors > 0;
    // One queue of completions shows that vectors are distinguished.
    config.completion_event_queues = u16::from(vectors > 1);
    let device = Device::open(platform, config, storage).map_err(ConformanceError::Open)?;
    written_page.free(platform);
    log::info!("device: {} commands", device.commands_executed());
    let moved = traffic::check(&device, region)?;
    log::info!("device: {moved} bytes moved");
    interrupts::check_events(&device)?;
    log::info!("events: {vectors} interrupt vectors");
    let quarantined = device.bytes_quarantined();
    device.close().map_err(ConformanceError::Close)?;
    if quarantined != 0 {
        return Err(ConformanceError::Quarantined { bytes: quarantined });
    }
    Ok(Report {
        bar_len,
        registers_read_back,
        resolution,
        pieces,
        page_sizes,
        moved,
        vectors,
        sleeps,
    })
}
