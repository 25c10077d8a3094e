//! The state that the device's one lock guards, and the loop body that moves all of it on.

// UNSAFETY: a mapping of the caller's memory crosses threads as a record.
#![expect(unsafe_code)]

use core::task::Waker;
use core::time::Duration;

use bareverbs_firmware_cmds::cmdq::MAX_ENTRIES;
use bareverbs_firmware_cmds::event::{Event, EventType, PortChange, Queue};

use crate::firmware::command_queue::CommandQueue;
use crate::firmware::context::Context;
use crate::firmware::eq::EventQueue;
use crate::firmware::health::{Health, read_health};
use crate::firmware::pages::PageSupply;
use crate::firmware::recorder::RecordKind;
use crate::firmware::sync_reset::ResetAnswer;
use crate::memory::dma::DmaMemory;
use crate::memory::tables::Tables;
use crate::platform::{Mapping, Platform};
use crate::types::error::DeviceError;
use crate::types::event::AsyncEvent;

/// Event queues of a device: the first for everything, the others for completions.
pub(crate) const MAX_EQS: usize = 33;
/// Asynchronous events that wait for [`Device::next_async_event`](crate::Device::next_async_event).
const MAX_EVENTS: usize = 128;
/// Pieces of memory that can be quarantined and still be given back after teardown.
const MAX_QUARANTINE: usize = 64;

/// A mapping that waits to be undone.
#[derive(Debug)]
struct KeptMapping(Mapping);

// SAFETY: it is a record of addresses that only the platform reads, and the platform's methods take it from any thread.
unsafe impl Send for KeptMapping {}

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) queue: CommandQueue,
    pub(crate) pages: PageSupply,
    pub(crate) eqs: heapless::Vec<EventQueue, MAX_EQS>,
    reset_answer: ResetAnswer,
    events: heapless::Deque<AsyncEvent, MAX_EVENTS>,
    /// Asynchronous events that did not fit.
    dropped_events: u64,
    /// Events of an unknown type, or about an unknown object.
    unknown_events: u64,
    health: Health,
    failed: Option<DeviceError>,
    quarantine: heapless::Vec<DmaMemory, MAX_QUARANTINE>,
    mappings: heapless::Vec<KeptMapping, MAX_QUARANTINE>,
    /// Bytes quarantined for ever, as there was no storage to record them.
    forgotten: u64,
    /// The task that waits for the next asynchronous event.
    event_task: Option<Waker>,
    /// The tasks that wait for the commands in the slots of the queue.
    command_tasks: [Option<Waker>; MAX_ENTRIES],
    /// A bit per slot that has a task, and per one whose task is to be woken.
    waiting_commands: u32,
    woken_commands: u32,
    /// Head of the list of CQs whose tasks are to be woken.
    woken: u32,
    /// Of a device that has failed: the first CQ whose task was not woken yet.
    unwoken: usize,
}

/// In [`Control::unwoken`]: there is none.
const ALL_WOKEN: usize = usize::MAX;

impl Control {
    pub(crate) fn new<P: Platform>(
        platform: &P,
        queue: CommandQueue,
        pages: PageSupply,
        reset_answer: ResetAnswer,
    ) -> Self {
        Self {
            health: Health::new(platform, queue.address()),
            queue,
            pages,
            eqs: heapless::Vec::new(),
            reset_answer,
            events: heapless::Deque::new(),
            dropped_events: 0,
            unknown_events: 0,
            failed: None,
            quarantine: heapless::Vec::new(),
            mappings: heapless::Vec::new(),
            forgotten: 0,
            event_task: None,
            command_tasks: [const { None }; MAX_ENTRIES],
            waiting_commands: 0,
            woken_commands: 0,
            woken: 0,
            unwoken: ALL_WOKEN,
        }
    }

    /// Moves everything on that can be: events, page requests; and looks at the device's health now and then.
    pub(crate) fn service<P: Platform>(&mut self, cx: &Context<'_, P>) -> Result<(), DeviceError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Self {
            queue,
            pages,
            eqs,
            reset_answer,
            events,
            dropped_events,
            unknown_events,
            woken,
            ..
        } = self;
        let mut dispatch = Dispatch {
            pages,
            reset_answer,
            events,
            dropped: dropped_events,
            unknown: unknown_events,
            woken,
        };
        for eq in eqs.iter_mut() {
            eq.drain(cx.platform, |event| dispatch.event(cx, event));
        }
        let mut recorded = queue.recorded(cx.recorder);
        pages.step(cx.platform, cx.chunks, &mut recorded);
        reset_answer.step(cx.platform, &mut recorded);
        let due = self.health.next();
        let health = self.health.check(cx);
        if self.health.next() != due {
            // They may be late.
            self.woken_commands |= self.waiting_commands;
        }
        if self.waiting_commands != 0 {
            self.woken_commands |= self.queue.answered(self.waiting_commands);
        }
        health.map_err(|error| self.fail(cx, error))
    }

    /// The device no longer works. The first reason stays. The health buffer is read now, before anything is reset.
    #[cold]
    pub(crate) fn fail<P: Platform>(
        &mut self,
        cx: &Context<'_, P>,
        error: DeviceError,
    ) -> DeviceError {
        if let Some(first) = self.failed {
            return first;
        }
        let health = read_health(cx.platform);
        log::error!("{error}; health: {health}");
        self.queue.recorded(cx.recorder).keep_pending();
        cx.record(RecordKind::Health(health));
        cx.record(RecordKind::Failed(error));
        self.failed = Some(error);
        // This event must not get lost: a caller that waits for events waits for this one too.
        if self.events.is_full() {
            self.events.pop_front();
            self.dropped_events += 1;
        }
        let _ = self.events.push_back(AsyncEvent::DeviceFatal(error));
        self.unwoken = 0;
        self.woken_commands = self.waiting_commands;
        error
    }

    /// Returns `true` if [`next_waker`](Self::next_waker) may have some.
    pub(crate) fn has_wakers(&self) -> bool {
        self.woken != 0
            || self.unwoken != ALL_WOKEN
            || self.event_task.is_some()
            || self.woken_commands != 0
    }

    /// The next task to be woken because of an event. The caller does that without the lock: what a waker does is the
    /// executor's.
    pub(crate) fn next_waker(&mut self, tables: &Tables<'_>) -> Option<Waker> {
        if !self.events.is_empty()
            && let Some(waker) = self.event_task.take()
        {
            return Some(waker);
        }
        if let Some(waker) = tables.next_woken(&mut self.woken) {
            return Some(waker);
        }
        while self.woken_commands != 0 {
            let slot = self.woken_commands.trailing_zeros() as usize;
            self.woken_commands &= self.woken_commands - 1;
            self.waiting_commands &= !(1 << slot);
            if let Some(waker) = self.command_tasks.get_mut(slot).and_then(Option::take) {
                return Some(waker);
            }
        }
        while let Some(slot) = tables.cqs.get(self.unwoken) {
            self.unwoken += 1;
            if let Some(waker) = slot.task.take() {
                return Some(waker);
            }
        }
        self.unwoken = ALL_WOKEN;
        None
    }

    /// Lets a task wait for the next asynchronous event. The task that waited before is returned.
    pub(crate) fn set_event_task(&mut self, waker: Option<Waker>) -> Option<Waker> {
        core::mem::replace(&mut self.event_task, waker)
    }

    /// Lets a task wait for the command in a slot. The task that waited before is returned.
    pub(crate) fn set_command_task(&mut self, slot: u8, waker: Waker) -> Option<Waker> {
        let task = self.command_tasks.get_mut(usize::from(slot))?;
        self.waiting_commands |= 1 << slot;
        task.replace(waker)
    }

    /// When [`service`](Self::service) is due even if nothing happens.
    pub(crate) fn next_deadline(&self) -> Duration {
        self.health.next()
    }

    /// Why the device no longer works, if it does not.
    pub(crate) fn failed(&self) -> Option<DeviceError> {
        self.failed
    }

    /// The next asynchronous event.
    pub(crate) fn next_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// Asynchronous events lost because they were not taken.
    pub(crate) fn dropped_events(&self) -> u64 {
        self.dropped_events
    }

    /// Events that the driver could not make sense of.
    pub(crate) fn unknown_events(&self) -> u64 {
        self.unknown_events
    }

    /// Keeps memory that the device may still use.
    pub(crate) fn quarantine(&mut self, memory: DmaMemory) {
        log::warn!("{} bytes of DMA memory are quarantined", memory.len());
        if let Err(memory) = self.quarantine.push(memory) {
            self.forgotten += memory.len() as u64;
        }
    }

    /// Frees the memory in quarantine of which `done` says that the device no longer uses it.
    pub(crate) fn end_quarantine_of<P: Platform>(
        &mut self,
        platform: &P,
        done: impl Fn(&DmaMemory) -> bool,
    ) {
        let mut at = 0;
        while let Some(memory) = self.quarantine.get(at) {
            if done(memory) {
                self.quarantine.swap_remove(at).free(platform);
            } else {
                at += 1;
            }
        }
    }

    /// Keeps a mapping that the device may still use.
    pub(crate) fn quarantine_mapping(&mut self, mapping: Mapping) {
        log::warn!("a mapping of {} bytes is quarantined", mapping.len);
        if let Err(KeptMapping(mapping)) = self.mappings.push(KeptMapping(mapping)) {
            self.forgotten += mapping.len as u64;
        }
    }

    /// Bytes in quarantine, mappings among them.
    pub(crate) fn quarantined(&self) -> u64 {
        let memory: u64 = self
            .quarantine
            .iter()
            .map(|memory| memory.len() as u64)
            .sum();
        let mappings: u64 = self
            .mappings
            .iter()
            .map(|KeptMapping(mapping)| mapping.len as u64)
            .sum();
        memory + mappings + self.forgotten
    }

    /// Ends the quarantine: the device no longer uses any memory.
    pub(crate) fn end_quarantine<P: Platform>(&mut self, platform: &P) {
        while let Some(memory) = self.quarantine.pop() {
            memory.free(platform);
        }
        while let Some(KeptMapping(mapping)) = self.mappings.pop() {
            // SAFETY: the mapping came from this device's platform, was kept because the device might still have used
            // it, and no longer does.
            unsafe { platform.dma_unmap(mapping) }
        }
    }
}

/// Where events go.
struct Dispatch<'a> {
    pages: &'a mut PageSupply,
    reset_answer: &'a mut ResetAnswer,
    events: &'a mut heapless::Deque<AsyncEvent, MAX_EVENTS>,
    dropped: &'a mut u64,
    unknown: &'a mut u64,
    woken: &'a mut u32,
}

impl Dispatch<'_> {
    fn event<P: Platform>(&mut self, cx: &Context<'_, P>, event: Event) {
        log::trace!("event {event:?}");
        let tables = cx.tables;
        if !matches!(event, Event::Completion(_) | Event::Command { .. }) {
            cx.record(RecordKind::Event(event));
        }
        match event {
            Event::Completion(cqn) => {
                if !tables.completion_event(self.woken, cqn.number()) {
                    // Not an error: the CQ may have been destroyed with its event under way.
                    *self.unknown += 1;
                }
            }
            // The slots show what is complete. The event only wakes who waits.
            Event::Command { .. } => {}
            Event::PageRequest {
                function_id,
                embedded_cpu,
                release_all,
                pages,
            } => {
                if release_all {
                    self.pages.release(function_id, embedded_cpu);
                } else {
                    self.pages.request(function_id, embedded_cpu, pages.into());
                }
            }
            Event::PortChange { port, change } => self.port_change(port, change),
            Event::TemperatureWarning { sensors } => {
                // One event for each: events are small, as many are kept.
                for sensor in sensors {
                    self.push(AsyncEvent::TemperatureWarning { sensor });
                }
            }
            Event::CqError { cqn, syndrome } => {
                if !tables.cq_error(self.woken, cqn.number(), syndrome) {
                    *self.unknown += 1;
                }
                self.push(AsyncEvent::CqError { cqn, syndrome });
            }
            Event::Queue { what, queue } => self.queue_event(tables, what, queue),
            Event::SyncReset { state } => {
                log::warn!("a reset of the firmware by others: {state:?}");
                self.reset_answer.event(state);
                self.push(AsyncEvent::FirmwareReset { state });
            }
            // The health registers show what it was, and whether it was fatal.
            Event::InternalError => log::error!("the device reports an internal error"),
            // Verbs do not depend on the slot's power, live patches, and timeouts of delayed drops.
            Event::Other {
                what: EventType::General,
                sub_type,
            } => log::debug!("general event {sub_type:#x}"),
            Event::Other { what, sub_type } => {
                log::debug!("event {what} subtype {sub_type:#x} is not handled");
                *self.unknown += 1;
            }
        }
    }

    fn port_change(&mut self, port: u8, change: PortChange) {
        let event = match change {
            PortChange::Down => AsyncEvent::PortError { port },
            PortChange::Active => AsyncEvent::PortActive { port },
            PortChange::Initialized => AsyncEvent::PortInitialized { port },
            PortChange::Lid => AsyncEvent::LidChange { port },
            PortChange::Pkey => AsyncEvent::PkeyChange { port },
            PortChange::Guid => AsyncEvent::GidChange { port },
            PortChange::ClientReregister => AsyncEvent::ClientReregister { port },
            PortChange::Unknown(sub_type) => {
                log::debug!("port {port} reports an unknown change {sub_type:#x}");
                *self.unknown += 1;
                return;
            }
        };
        self.push(event);
    }

    fn queue_event(&mut self, tables: &Tables<'_>, what: EventType, queue: Queue) {
        let event = match (what, queue) {
            (EventType::SrqCatastrophic, Queue::Srq(srqn) | Queue::XrcSrq(srqn)) => {
                AsyncEvent::SrqError { srqn }
            }
            (EventType::SrqLimit, Queue::Srq(srqn) | Queue::XrcSrq(srqn)) => {
                if !tables.srq_limit(srqn.number()) {
                    *self.unknown += 1;
                }
                AsyncEvent::SrqLimitReached { srqn }
            }
            // The firmware leaves the type 0 (QP) in SRQ events of some releases; the event says what it is about.
            (EventType::SrqCatastrophic, Queue::Qp(number)) => AsyncEvent::SrqError {
                srqn: srqn_of(number.number()),
            },
            (EventType::SrqLimit, Queue::Qp(number)) => {
                if !tables.srq_limit(number.number()) {
                    *self.unknown += 1;
                }
                AsyncEvent::SrqLimitReached {
                    srqn: srqn_of(number.number()),
                }
            }
            (EventType::PathMigrated, Queue::Qp(qpn)) => AsyncEvent::PathMigrated { qpn },
            (EventType::PathMigrationFailed, Queue::Qp(qpn)) => {
                AsyncEvent::PathMigrationError { qpn }
            }
            (EventType::CommunicationEstablished, Queue::Qp(qpn)) => {
                AsyncEvent::CommunicationEstablished { qpn }
            }
            (EventType::SqDrained, Queue::Qp(qpn)) => AsyncEvent::SqDrained { qpn },
            (EventType::WqCatastrophic, Queue::Qp(qpn)) => AsyncEvent::QpFatal { qpn },
            (EventType::WqCatastrophic, Queue::Rq(number)) => AsyncEvent::WqFatal {
                rqn: bareverbs_firmware_cmds::numbers::Rqn::from_low_bits(number),
            },
            (EventType::WqInvalidRequest, Queue::Qp(qpn)) => AsyncEvent::QpRequestError { qpn },
            (EventType::WqAccessError, Queue::Qp(qpn)) => AsyncEvent::QpAccessError { qpn },
            (EventType::SrqLastWqe, Queue::Qp(qpn)) => AsyncEvent::QpLastWqeReached { qpn },
            (EventType::DctKeyViolation, Queue::Dct(dctn)) => AsyncEvent::DctKeyViolation {
                dctn: bareverbs_firmware_cmds::numbers::Qpn::from_low_bits(dctn),
            },
            // The call that destroys the target waits for the event.
            (EventType::DctDrained, Queue::Dct(dctn)) if tables.target_drained(dctn) => return,
            (what, queue) => {
                log::debug!("event {what} for {queue:?} is not handled");
                *self.unknown += 1;
                return;
            }
        };
        self.push(event);
    }

    fn push(&mut self, event: AsyncEvent) {
        if self.events.push_back(event).is_err() {
            *self.dropped += 1;
            log::warn!("no room for event {event:?}: it is lost");
        }
    }
}

fn srqn_of(number: u32) -> bareverbs_firmware_cmds::numbers::Srqn {
    bareverbs_firmware_cmds::numbers::Srqn::from_low_bits(number)
}
