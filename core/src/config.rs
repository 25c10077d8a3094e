//! What the caller decides about a device: limits, waiting, memory.

use core::time::Duration;

use spin::Mutex;

use crate::control::Control;
use crate::gid::GidTable;
use crate::page_chunk::PageChunk;
use crate::slots::{CqSlot, QpSlot, SrqSlot};

/// How a device is brought up and driven. [`Config::DEFAULT`] suits everything but special cases.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Config {
    /// How long the firmware may take to leave the "initializing" state after a reset.
    pub initialize_timeout: Duration,
    /// How long a firmware command may take.
    pub command_timeout: Duration,
    /// How long teardown waits for the firmware to return its pages, and for a disabled function to become quiet.
    pub teardown_timeout: Duration,
    /// How often [`Device::poll`](crate::Device::poll) looks at the health registers. Whoever polls finds out within 10 ms
    /// anyhow that the device has left the bus; whoever sleeps for interrupts wakes this often to look, and for nothing
    /// else, so that this is what an idle device costs.
    pub health_interval: Duration,
    /// For how long the health counter may stand still before the device counts as dead.
    pub health_stall: Duration,
    /// Entries of the event queue at least; rounded up to a power of two, and raised so that every CQ of the storage
    /// can have an event in it.
    pub event_queue_entries: u32,
    /// Completion event queues, each on its own interrupt vector, beside the one that everything else uses: not more than
    /// there are vectors, if interrupts are used. With 0 the completions share that one.
    pub completion_event_queues: u16,
    /// Sleep for interrupts (as far as the platform has vectors). Otherwise event queues are polled.
    pub interrupts: bool,
    /// Negotiate signatures on command mailboxes in both directions, if the firmware can, and verify them. Costs one
    /// command more at bring-up.
    pub command_signatures: bool,
    /// Told to the firmware if it wants to know (at most 63 bytes of ASCII); shown by vendor tools.
    pub driver_version: &'static str,
}

impl Config {
    /// The defaults: the stock kernel driver's timeouts, one event queue, polling.
    pub const DEFAULT: Self = Self {
        initialize_timeout: Duration::from_secs(120),
        command_timeout: Duration::from_secs(60),
        teardown_timeout: Duration::from_secs(5),
        health_interval: Duration::from_secs(1),
        health_stall: Duration::from_secs(10),
        event_queue_entries: 512,
        completion_event_queues: 0,
        interrupts: false,
        command_signatures: false,
        driver_version: concat!("bareverbs,core,", env!("CARGO_PKG_VERSION")),
    };
}

impl Default for Config {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Room for what a device itself keeps, some 20 KiB: its command queue, its events, its copy of the GID table. The
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
/// It is borrowed exclusively for as long as the device lives, so that no two devices can share it.
#[derive(Debug)]
pub struct Storage<'s> {
    pub(crate) device: &'s DeviceSlot,
    pub(crate) qps: &'s [QpSlot],
    pub(crate) cqs: &'s [CqSlot],
    pub(crate) srqs: &'s [SrqSlot],
    pub(crate) page_chunks: &'s [PageChunk],
}

impl<'s> Storage<'s> {
    /// One slot per queue pair, completion queue and shared receive queue; one chunk per run of at most 2 MiB of memory
    /// lent to the firmware, of which a ConnectX-5 wants tens of megabytes.
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
        }
    }
}

/// [`Storage`] as arrays, for statics and for the stack.
#[derive(Debug)]
pub struct Resources<const QPS: usize, const CQS: usize, const SRQS: usize, const CHUNKS: usize> {
    device: DeviceSlot,
    qps: [QpSlot; QPS],
    cqs: [CqSlot; CQS],
    srqs: [SrqSlot; SRQS],
    page_chunks: [PageChunk; CHUNKS],
}

impl<const QPS: usize, const CQS: usize, const SRQS: usize, const CHUNKS: usize>
    Resources<QPS, CQS, SRQS, CHUNKS>
{
    /// Empty storage.
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

    /// As what [`Device::open`](crate::Device::open) takes.
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

impl<const QPS: usize, const CQS: usize, const SRQS: usize, const CHUNKS: usize> Default
    for Resources<QPS, CQS, SRQS, CHUNKS>
{
    fn default() -> Self {
        Self::new()
    }
}
