//! The device: the one object that everything else borrows.

pub mod capabilities;
mod capability_query;
mod clock;
mod congestion;
pub mod counters;
pub(crate) mod dm_pages;
pub(crate) mod dma_buffer;
mod event_queues;
pub mod function;
mod gids;
pub(crate) mod in_flight;
pub mod module;
pub(crate) mod open;
mod overlap;
mod port;
pub mod qos;
pub mod register;
pub mod resources;
pub(crate) mod steering_use;
pub mod storage;
pub mod tasks;
mod teardown;
pub mod temperature;
mod wait;
pub(crate) mod xrc_objects;

use core::alloc::Layout;
use core::sync::atomic::{AtomicBool, AtomicU8};

use crate::device::dm_pages::DmPages;
use crate::device::xrc_objects::{DefaultXrcd, XrcBase};
use bareverbs_firmware_cmds::health::HealthBuffer;
use bareverbs_firmware_cmds::init_segment::FirmwareVersion;
use bareverbs_firmware_cmds::numbers::{Eqn, Pdn, UarIndex};
use spin::Mutex;

use crate::device::capabilities::Capabilities;
use crate::device::dma_buffer::DmaBuffer;
pub use crate::device::in_flight::PendingCommand;
use crate::device::steering_use::SteeringUse;
use crate::device::storage::{DeviceSlot, Storage};
use crate::firmware::context::Context;
use crate::firmware::control::Control;
use crate::firmware::health;
pub use crate::firmware::mailbox::TailIn;
use crate::firmware::page_chunk::PageChunk;
use crate::firmware::recorder::FlightRecorder;
use crate::memory::blue_flame::BlueFlame;
use crate::memory::dma::DmaMemory;
use crate::memory::tables::Tables;
use crate::platform::{DmaError, Mapping, Platform};
use crate::types::config::Config;
use crate::types::error::DeviceError;
use crate::types::event::AsyncEvent;
use crate::types::gid::Mac;

/// An mlx5 function that was brought up.
///
/// All methods take `&self`: the control path (commands, events) sits behind one lock inside, which is never held while
/// waiting and which the data path never takes. Objects borrow the device, so it cannot be closed before they are gone.
///
/// Dropping a device takes the function down as [`close`](Self::close) does, but cannot say what went wrong, and does not
/// wait for a device that no longer works.
///
/// # Methods, in the order of use
///
/// With libibverbs' names, where it has them.
///
/// * **Opening and closing**:
///   [`open`](Self::open) (`ibv_open_device`), [`config`](Self::config), [`close`](Self::close) (`ibv_close_device`)
/// * **What it is**:
///   [`capabilities`](Self::capabilities) (`ibv_query_device_ex`),
///   [`query_port`](Self::query_port) (`ibv_query_port`), [`query_link`](Self::query_link),
///   [`set_link`](Self::set_link), [`mac`](Self::mac), [`set_mac`](Self::set_mac)
/// * **Addresses**:
///   [`gid_table`](Self::gid_table) (`ibv_query_gid_table`), [`port_gid`](Self::port_gid) (`ibv_query_gid`),
///   [`find_gid`](Self::find_gid), [`set_gid`](Self::set_gid), [`del_gid`](Self::del_gid)
/// * **Objects**:
///   [`alloc_pd`](Self::alloc_pd) (`ibv_alloc_pd`), [`default_pd`](Self::default_pd),
///   [`create_cq`](Self::create_cq) (`ibv_create_cq`), [`create_ah`](Self::create_ah) (`ibv_create_ah`)
/// * **Counters**:
///   [`query_port_counters`](Self::query_port_counters), [`query_vport_counters`](Self::query_vport_counters),
///   [`count_queues`](Self::count_queues)
/// * **What is alive**:
///   [`live_qps`](Self::live_qps), [`live_cqs`](Self::live_cqs)
/// * **Events**:
///   [`get_async_event`](Self::get_async_event) (`ibv_get_async_event`), [`poll`](Self::poll), [`wait`](Self::wait),
///   [`wait_completion`](Self::wait_completion) (`ibv_get_cq_event`);
///   in tasks [`async_event`](Self::async_event), [`Cq::next`](crate::Cq::next)
pub struct Device<'s, P: Platform> {
    pub(crate) platform: P,
    pub(crate) config: Config,
    /// The part behind the locks that all of the control path takes.
    pub(crate) slot: &'s DeviceSlot,
    pub(crate) page_chunks: &'s [PageChunk],
    pub(crate) recorder: Option<&'s FlightRecorder>,
    /// The slots of QPs, CQs and SRQs.
    pub(crate) tables: Tables<'s>,
    pub(crate) capabilities: Capabilities,
    pub(crate) uar: UarIndex,
    /// Where short WQEs of QPs are written, if the platform has write-combining pages.
    pub(crate) blue_flame: BlueFlame,
    /// Event queues for completions.
    pub(crate) completion_eqs: heapless::Vec<Eqn, { crate::firmware::control::MAX_EQS }>,
    /// The device's default protection domain, and how many hold it.
    pub(crate) default_pd: Mutex<DefaultPd>,
    /// The objects that XRC QPs name.
    pub(crate) xrc_base: Mutex<XrcBase>,
    pub(crate) default_xrcd: Mutex<DefaultXrcd>,
    /// Held while an entry of the GID table is written, so that table and shadow change in the same order.
    pub(crate) gid_writer: Mutex<()>,
    /// The MAC address that was set instead of the port's own.
    pub(crate) chosen_mac: Mutex<Option<Mac>>,
    /// Where the port's L2 table has that address (0 or 1), if there is such a table. Changes with it.
    pub(crate) l2_index: AtomicBool,
    /// The owners of received frames.
    pub(crate) steering: SteeringUse,
    /// `true` if there is a GSI queue pair: the port has one QP1.
    pub(crate) gsi_taken: AtomicBool,
    /// The pages of the device's memory that are allocated.
    pub(crate) dm_pages: DmPages,
    /// The set of counters that queue pairs count in which go to INIT; 0 for none.
    pub(crate) counter_set: AtomicU8,
    /// `true` if the function is one of the embedded processor's, which firmware commands and events say of each function.
    pub(crate) embedded_cpu: bool,
    /// Key of the segment that ends the scatter list of a receive WQE.
    pub(crate) list_terminator: u32,
    /// The stage that bring-up has reached, for teardown.
    pub(crate) stage: BringUpStage,
}

/// Key of the segment that ends the scatter list of a receive WQE, unless the device names another one.
const LIST_TERMINATOR: u32 = 0x100;

/// The steps of bring-up that teardown must undo.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BringUpStage {
    /// ENABLE_HCA was, or may have been, carried out.
    pub(crate) enabled: bool,
    /// INIT_HCA was, or may have been, carried out.
    pub(crate) initialized: bool,
    /// ALLOC_UAR was carried out.
    pub(crate) uar: bool,
}

/// The default protection domain of a device.
#[derive(Debug, Default)]
pub(crate) struct DefaultPd {
    /// Its number, while it has users.
    pub(crate) pdn: Option<Pdn>,
    /// The number of its users.
    pub(crate) users: u32,
}

impl<'s, P: Platform> Device<'s, P> {
    /// A device that was not brought up yet.
    pub(crate) fn unopened(
        platform: P,
        config: Config,
        storage: Storage<'s>,
        firmware: FirmwareVersion,
    ) -> Self {
        Self {
            platform,
            config,
            slot: storage.device,
            page_chunks: storage.page_chunks,
            recorder: storage.recorder,
            tables: Tables::new(storage.qps, storage.cqs, storage.srqs),
            capabilities: Capabilities::none(firmware),
            uar: UarIndex::from_low_bits(0),
            blue_flame: BlueFlame::none(),
            completion_eqs: heapless::Vec::new(),
            default_pd: Mutex::new(DefaultPd::default()),
            xrc_base: Mutex::new(XrcBase::default()),
            default_xrcd: Mutex::new(DefaultXrcd::default()),
            gid_writer: Mutex::new(()),
            chosen_mac: Mutex::new(None),
            l2_index: AtomicBool::new(false),
            steering: SteeringUse::new(),
            gsi_taken: AtomicBool::new(false),
            dm_pages: DmPages::default(),
            counter_set: AtomicU8::new(0),
            embedded_cpu: false,
            list_terminator: LIST_TERMINATOR,
            stage: BringUpStage::default(),
        }
    }

    /// The platform that it runs on.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// The configuration with which it was opened.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The device's capabilities.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Reads the health buffer, in which the firmware reports its own problems.
    pub fn health(&self) -> HealthBuffer {
        health::read_health(&self.platform)
    }

    /// The UAR page with the doorbells, which is uncached.
    pub(crate) fn uar(&self) -> UarIndex {
        self.uar
    }

    /// The UAR page with the doorbells of QPs: the same, or the write-combining one.
    pub(crate) fn qp_uar(&self) -> UarIndex {
        match self.blue_flame.uar() {
            Some(uar) if P::WRITE_COMBINING => uar,
            _ => self.uar,
        }
    }

    /// The event queue for completions of vector `vector` (modulo the number of vectors).
    pub(crate) fn completion_eqn(&self, vector: u16) -> Eqn {
        let count = self.completion_eqs.len().max(1);
        let index = usize::from(vector) % count;
        self.completion_eqs.get(index).copied().unwrap_or(Eqn(0))
    }

    /// The number of completion vectors: CQs spread over them.
    pub fn completion_vectors(&self) -> u16 {
        self.completion_eqs.len().max(1) as u16
    }

    pub(crate) fn context(&self) -> Context<'_, P> {
        Context {
            platform: &self.platform,
            config: &self.config,
            chunks: self.page_chunks,
            tables: &self.tables,
            recorder: self.recorder,
        }
    }

    /// The flight recorder that the device was opened with.
    pub fn recorder(&self) -> Option<&'s FlightRecorder> {
        self.recorder
    }

    /// Works on what the lock guards; `None` once the function was taken down.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Control) -> R) -> Option<R> {
        self.slot.control.lock().as_mut().map(work)
    }

    /// The number of firmware commands that were answered so far.
    #[inline(never)]
    pub fn commands_executed(&self) -> u64 {
        self.with(|control| control.queue.executed()).unwrap_or(0)
    }

    /// Drives the device: command completions, page requests, CQ and asynchronous events; looks at its health now and
    /// then. Call it in every loop. Once it has failed it fails for ever.
    pub fn poll(&self) -> Result<(), DeviceError> {
        let serviced = self.with(|control| {
            let serviced = control.service(&self.context());
            (serviced, control.has_wakers())
        });
        let (serviced, wakers) = serviced.unwrap_or((Err(DeviceError::Closed), false));
        if wakers {
            self.wake_tasks();
        }
        serviced
    }

    /// Wakes the tasks that wait for what was serviced.
    #[cold]
    fn wake_tasks(&self) {
        while let Some(waker) = self
            .with(|control| control.next_waker(&self.tables))
            .flatten()
        {
            waker.wake();
        }
    }

    /// The next asynchronous event, in order.
    pub fn next_async_event(&self) -> Option<AsyncEvent> {
        self.with(Control::next_event)?
    }

    /// Asynchronous events that were lost because they were not taken, and events that made no sense.
    pub fn lost_and_unknown_events(&self) -> (u64, u64) {
        self.with(|control| (control.dropped_events(), control.unknown_events()))
            .unwrap_or_default()
    }

    /// Pages of 4 KiB that the firmware holds.
    pub fn pages_given(&self) -> u32 {
        self.with(|control| control.pages.given())
            .unwrap_or_default()
    }

    /// Page requests of the firmware that were refused because memory was exhausted, and addresses that it returned
    /// without having been given them.
    pub fn page_faults(&self) -> (u64, u64) {
        self.with(|control| (control.pages.refused(), control.pages.bad_returns()))
            .unwrap_or_default()
    }

    /// Bytes of DMA memory that stay allocated because the device may still use them.
    pub fn bytes_quarantined(&self) -> u64 {
        self.with(|control| control.quarantined())
            .unwrap_or_default()
    }

    /// Zeroed DMA memory that belongs to an object of this device.
    pub(crate) fn alloc_dma(&self, layout: Layout) -> Result<DmaBuffer<'_, P>, DmaError> {
        Ok(DmaBuffer::new(
            self,
            DmaMemory::alloc(&self.platform, layout)?,
        ))
    }

    /// Keeps memory that the device may still use until the function was torn down.
    pub(crate) fn quarantine(&self, memory: DmaMemory) {
        self.with(|control| control.quarantine(memory));
    }

    /// Frees the memory in quarantine of which `done` says that the device no longer uses it.
    pub(crate) fn end_quarantine_of(&self, done: impl Fn(&DmaMemory) -> bool) {
        self.with(|control| control.end_quarantine_of(&self.platform, done));
    }

    /// Keeps a mapping of the caller's memory that the device may still use until the function was torn down.
    pub(crate) fn quarantine_mapping(&self, mapping: Mapping) {
        self.with(|control| control.quarantine_mapping(mapping));
    }
}

impl<P: Platform> core::fmt::Debug for Device<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device")
            .field("firmware", &self.capabilities.firmware)
            .field("uar", &self.uar)
            .field("pages_given", &self.pages_given())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handles hold `&'d Device<'d, P>`, so a device must be usable as one with a shorter lifetime.
    fn _is_covariant<'short, 'long: 'short, P: Platform>(
        device: &'short Device<'long, P>,
    ) -> &'short Device<'short, P> {
        device
    }

    fn _is_shared_between_threads<P: Platform + Send + Sync>(device: Device<'_, P>) {
        fn sync<T: Send + Sync>(_: T) {}
        sync(device);
    }

    #[test]
    fn a_device_slot_fits_on_a_small_stack() {
        let size = size_of::<DeviceSlot>();
        assert!(size < 22 << 10, "{size}");
    }
}
