//! The caller's memory for a device and its objects.

use spin::Mutex;

use crate::firmware::control::Control;
use crate::firmware::page_chunk::PageChunk;
use crate::firmware::recorder::FlightRecorder;
use crate::memory::slots::{CqSlot, QpSlot, SrqSlot};
use crate::types::gid::GidTable;

/// Storage for what a device itself keeps, some 20 KiB: its command queue, its events, its copy of the GID table. The
/// [`Device`](crate::Device) is small beside it, so that it can be handed on by value.
///
/// Opaque to the caller, who only provides the memory (see [`Storage`]).
#[derive(Debug)]
pub struct DeviceSlot {
    /// `None` unless a function is up.
    pub(crate) control: Mutex<Option<Control>>,
    pub(crate) gids: Mutex<GidTable>,
}

impl DeviceSlot {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            control: Mutex::new(None),
            gids: Mutex::new(GidTable::new()),
        }
    }
}

impl Default for DeviceSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory of the caller that holds the state of a device and of its objects: its lengths are the limits.
///
/// It is borrowed exclusively for as long as the device exists, so that no two devices can share it.
#[derive(Debug)]
pub struct Storage<'s> {
    pub(crate) device: &'s DeviceSlot,
    pub(crate) qps: &'s [QpSlot],
    pub(crate) cqs: &'s [CqSlot],
    pub(crate) srqs: &'s [SrqSlot],
    pub(crate) page_chunks: &'s [PageChunk],
    pub(crate) recorder: Option<&'s FlightRecorder>,
}

impl<'s> Storage<'s> {
    /// One slot per queue pair, completion queue and shared receive queue; one chunk per run of at most 2 MiB of memory
    /// lent to the firmware, of which a ConnectX-5 requires tens of megabytes.
    #[must_use]
    pub const fn new(
        device: &'s mut DeviceSlot,
        qps: &'s mut [QpSlot],
        cqs: &'s mut [CqSlot],
        srqs: &'s mut [SrqSlot],
        page_chunks: &'s mut [PageChunk],
    ) -> Self {
        Self {
            device,
            qps,
            cqs,
            srqs,
            page_chunks,
            recorder: None,
        }
    }

    /// Adds a flight recorder, of any size, which has the device's last commands, events and errors. It is the caller's own,
    /// and keeps its records if the device fails to open, and after it was closed.
    ///
    /// ```
    /// use bareverbs_core::{Cqs, FlightRecorder, PageChunks, Qps, Record, Resources, Srqs};
    ///
    /// static RECORDER: FlightRecorder<[Record; 256]> = FlightRecorder::new();
    /// let mut resources = Resources::<Qps<2>, Cqs<4>, Srqs<0>, PageChunks<64>>::new();
    /// let storage = resources.storage().record(&RECORDER);
    /// // Device::open(platform, config, storage) ...
    /// # drop(storage);
    /// let recorder: &FlightRecorder = &RECORDER;
    /// if recorder.has_failure() {
    ///     println!("{recorder}");
    /// }
    /// ```
    #[must_use]
    pub const fn record(mut self, recorder: &'s FlightRecorder) -> Self {
        self.recorder = Some(recorder);
        self
    }
}

/// `N` queue pairs, as [`Resources`] counts them.
pub type Qps<const N: usize> = [QpSlot; N];

/// `N` completion queues, as [`Resources`] counts them.
pub type Cqs<const N: usize> = [CqSlot; N];

/// `N` shared receive queues, as [`Resources`] counts them.
pub type Srqs<const N: usize> = [SrqSlot; N];

/// `N` runs of at most 2 MiB of memory lent to the firmware, as [`Resources`] counts them.
pub type PageChunks<const N: usize> = [PageChunk; N];

/// [`Storage`] as arrays, for statics and for the stack.
///
/// The type says how many there are of what: numbers in another order do not compile.
///
/// ```
/// use bareverbs_core::{Cqs, PageChunks, Qps, Resources, Srqs};
///
/// // For 2 QPs, 4 CQs, no SRQ, and 128 MiB that the firmware may ask for.
/// let mut resources = Resources::<Qps<2>, Cqs<4>, Srqs<0>, PageChunks<64>>::new();
/// let storage = resources.storage();
/// ```
///
/// ```compile_fail,E0599
/// # use bareverbs_core::{Cqs, PageChunks, Qps, Resources, Srqs};
/// let resources = Resources::<Cqs<4>, Qps<2>, Srqs<0>, PageChunks<64>>::new();
/// ```
#[derive(Debug)]
pub struct Resources<Q, C, S, P> {
    device: DeviceSlot,
    qps: Q,
    cqs: C,
    srqs: S,
    page_chunks: P,
}

impl<const QPS: usize, const CQS: usize, const SRQS: usize, const CHUNKS: usize>
    Resources<Qps<QPS>, Cqs<CQS>, Srqs<SRQS>, PageChunks<CHUNKS>>
{
    /// Empty storage.
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            device: DeviceSlot::new(),
            qps: [const { QpSlot::new() }; QPS],
            cqs: [const { CqSlot::new() }; CQS],
            srqs: [const { SrqSlot::new() }; SRQS],
            page_chunks: [const { PageChunk::new() }; CHUNKS],
        }
    }

    /// Lends what [`Device::open`](crate::Device::open) takes.
    #[must_use]
    pub const fn storage(&mut self) -> Storage<'_> {
        Storage::new(
            &mut self.device,
            &mut self.qps,
            &mut self.cqs,
            &mut self.srqs,
            &mut self.page_chunks,
        )
    }
}

#[cfg(not(all(test, loom)))]
impl<const QPS: usize, const CQS: usize, const SRQS: usize, const CHUNKS: usize> Default
    for Resources<Qps<QPS>, Cqs<CQS>, Srqs<SRQS>, PageChunks<CHUNKS>>
{
    fn default() -> Self {
        Self::new()
    }
}
