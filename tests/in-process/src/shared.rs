//! The state that the handles of a world and its threads share: the functions, each under a lock of its own, and the network
//! them.
//!
//! A thread takes the lock of a function first, then that of the network, and never those of two functions.
//!
//! In a threaded world each driver executes its own function: at its doorbells, and while it waits. The device's thread
//! does it for drivers that sleep or poll memory alone, and a driver that has nothing to do for those as well.

use crate::backoff::Pause;
use crate::function::{Function, Slot};
use crate::network::Network;
use bareverbs_core::VectorSet;
use connectx_model::{Host, Model};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The most rounds of a step: a model that always has something to do must not keep the world from the driver.
const MOST_TURNS: usize = 1024;
/// The same for a driver that waits, which looks at its completions between two steps.
const FEW_TURNS: usize = 4;
/// First and longest step of the virtual clock while nothing happens.
const SHORTEST_STEP: Duration = Duration::from_micros(1);
const LONGEST_STEP: Duration = Duration::from_millis(10);
/// The time that the device's thread sleeps at most: if a driver sleeps, which others wake the thread for; and while drivers
/// execute their functions, or poll memory alone, for which the thread is not woken.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
const LONGEST_NAP: Duration = Duration::from_micros(200);
/// The processor's hint that a thread only waits, so often between two looks: the other thread may be on the same core.
const SPIN: u32 = 16;
/// A driver that came back to its function so lately executes it itself.
const ATTENDED: Duration = Duration::from_micros(20);

/// The functions of a world and what is between them.
pub(crate) struct Shared {
    slots: Vec<Slot>,
    pub(crate) network: Network,
    pub(crate) interrupt_vectors: u16,
    /// When the real clock started; `None` if it is virtual.
    started: Option<Instant>,
    /// The virtual clock in nanoseconds.
    clock: AtomicU64,
    /// The next step of the virtual clock. The thread that executes a stepped world has the lock.
    step: Mutex<Duration>,
    /// Drivers that sleep until an interrupt.
    sleepers: AtomicUsize,
    /// Drivers that poll, found nothing for long, and sleep until a frame comes.
    nappers: AtomicUsize,
    /// `true` if the device's thread was woken.
    woken: Mutex<bool>,
    wake: Condvar,
    /// Until when the device's thread sleeps, in nanoseconds; 0 while it does not.
    sleeps_until: AtomicU64,
    /// The number of times that the thread slept for as long as it may and found that it should have been woken.
    late: AtomicU64,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that panicked while it held the lock has failed already; the others go on.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `true` if so many bytes at `offset` are an access of the bus to this function.
fn is_register(model: &Model, offset: u64, len: usize) -> bool {
    offset.is_multiple_of(len as u64) && offset < model.config().bar_size
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Shared {
    pub(crate) fn new(
        slots: Vec<Slot>,
        network: Network,
        interrupt_vectors: u16,
        started: Option<Instant>,
    ) -> Self {
        Self {
            slots,
            network,
            interrupt_vectors,
            started,
            clock: AtomicU64::new(0),
            step: Mutex::new(SHORTEST_STEP),
            sleepers: AtomicUsize::new(0),
            nappers: AtomicUsize::new(0),
            woken: Mutex::new(false),
            wake: Condvar::new(),
            sleeps_until: AtomicU64::new(0),
            late: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// # Panics
    /// If there is no such function.
    pub(crate) fn function(&self, index: usize) -> MutexGuard<'_, Function> {
        lock(&self.slots[index].function)
    }

    pub(crate) fn is_threaded(&self) -> bool {
        self.started.is_some()
    }

    pub(crate) fn now(&self) -> Duration {
        match self.started {
            Some(started) => started.elapsed(),
            None => Duration::from_nanos(self.clock.load(Ordering::Acquire)),
        }
    }

    // Not inlined, so that benchmarks can separate the driver's instructions from the model's; so too further entry
    // points.
    #[inline(never)]
    pub(crate) fn bar_read(&self, index: usize, offset: u64, data: &mut [u8]) {
        let mut function = self.function(index);
        if is_register(&function.model, offset, data.len()) {
            let Function { model, port, .. } = &mut *function;
            model.bar_read(port, offset, data);
        } else {
            data.fill(0xff);
        }
    }

    #[inline(never)]
    pub(crate) fn bar_write(&self, index: usize, offset: u64, data: &[u8]) {
        let now = self.now();
        let mut function = self.function(index);
        if !is_register(&function.model, offset, data.len()) {
            return;
        }
        let Function { model, port, .. } = &mut *function;
        model.advance(port, now);
        model.bar_write(port, offset, data);
        model.advance(port, now);
        let sent = self.network.send(index, &mut function.port.outbox, now);
        if sent {
            // A driver that only sends does not come to a step.
            self.network.leave(now);
        }
        if self.is_threaded() {
            self.after(index, function, sent);
        }
    }

    /// Ends the access of a driver to its function: reports interrupts, and wakes the threads that have something to do
    /// now.
    fn after(&self, index: usize, mut function: MutexGuard<'_, Function>, sent: bool) {
        self.slots[index].report(&mut function, false);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let mut next = function.model.next_deadline();
            if sent {
                next = next.into_iter().chain(self.network.next_arrival()).min();
            }
            drop(function);
            self.wake_device_before(next);
        } else {
            drop(function);
        }
        if sent {
            self.wake_nappers(index);
        }
    }

    /// Wakes the device's thread if it sleeps beyond that time, or may be about to.
    fn wake_device_before(&self, next: Option<Duration>) {
        let until = self.sleeps_until.load(Ordering::SeqCst);
        if next.is_some_and(|next| until == 0 || nanoseconds(next) < until) {
            self.wake_device();
        }
    }

    pub(crate) fn wake_device(&self) {
        let mut woken = lock(&self.woken);
        *woken = true;
        if self.sleeps_until.load(Ordering::SeqCst) != 0 {
            drop(woken);
            self.wake.notify_one();
        }
    }

    /// Wakes the drivers, but the one that calls this, that sleep until a frame comes.
    fn wake_nappers(&self, but: usize) {
        if self.nappers.load(Ordering::SeqCst) == 0 {
            return;
        }
        for (_, slot) in self
            .slots
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != but)
        {
            if slot.naps.load(Ordering::SeqCst) > 0 {
                // It has the lock until it sleeps: now it can be woken.
                drop(lock(&slot.function));
                slot.changed.notify_all();
            }
        }
    }

    /// Something has arrived from outside, or something can leave again.
    pub(crate) fn stir(&self) {
        self.wake_nappers(usize::MAX);
        let now = self.now();
        // A driver that looks in a loop finds it by itself. One that has just found something may be about to poll memory
        // alone.
        let looks = |slot: &Slot| slot.is_attended(now, ATTENDED) && slot.backoff.is_waiting();
        if !self.slots.iter().all(looks) {
            self.wake_device();
        }
    }

    /// Nothing more comes from outside: the ports have no link any more.
    pub(crate) fn cut(&self) {
        for index in 0..self.slots.len() {
            self.set_link(index, false);
        }
    }

    /// Changes a model, which tells its driver.
    pub(crate) fn strike(&self, index: usize, strike: impl FnOnce(&mut Model, &mut dyn Host)) {
        let mut function = self.function(index);
        let Function { model, port, .. } = &mut *function;
        strike(model, port);
        if self.is_threaded() {
            self.after(index, function, true);
        }
    }

    pub(crate) fn set_link(&self, index: usize, up: bool) {
        let mut function = self.function(index);
        let Function { model, port, .. } = &mut *function;
        model.set_link(port, up);
        if self.is_threaded() {
            self.after(index, function, true);
        }
    }

    pub(crate) fn function_comes(&self, index: usize, id: u16, pages: u32) {
        let mut function = self.function(index);
        let Function { model, port, .. } = &mut *function;
        model.function_comes(port, id, pages);
    }

    pub(crate) fn function_goes(&self, index: usize, id: u16, release_all: bool) {
        let mut function = self.function(index);
        let Function { model, port, .. } = &mut *function;
        model.function_goes(port, id, release_all);
    }

    pub(crate) fn set_pkey(&self, index: usize, at: u16, pkey: u16) -> bool {
        let mut function = self.function(index);
        let Function { model, port, .. } = &mut *function;
        model.set_pkey(port, at, pkey)
    }

    /// Executes a function until it has nothing to do, or has had so many turns; whether anything happened.
    fn execute(&self, index: usize, function: &mut Function, turns: usize) -> bool {
        let mut any = false;
        for _ in 0..turns {
            let now = self.now();
            function.model.pause(self.network.is_congested());
            function.model.advance(&mut function.port, now);
            let mut progress = self.network.send(index, &mut function.port.outbox, now);
            progress |= self.network.enter(now);
            progress |= self.deliver(index, function, now);
            self.network.leave(now);
            // What a frame or a doorbell left to do is due now.
            progress |= function.model.is_due() || !function.port.outbox.is_empty();
            if !progress {
                break;
            }
            any = true;
        }
        any
    }

    /// Gives a function the frames that have arrived for it; whether there were any.
    fn deliver(&self, index: usize, function: &mut Function, now: Duration) -> bool {
        let Function {
            model, port, inbox, ..
        } = function;
        let mut any = false;
        loop {
            let more = self.network.receive(index, now, inbox);
            for frame in inbox.frames() {
                any = true;
                model.receive(port, frame);
            }
            if !more {
                return any;
            }
        }
    }

    /// Does what is due now, in all functions; whether anything happened.
    #[inline(never)]
    pub(crate) fn step(&self) -> bool {
        let mut any = false;
        for _ in 0..MOST_TURNS {
            let mut progress = false;
            let now = self.now();
            let congested = self.network.is_congested();
            for (index, slot) in self.slots.iter().enumerate() {
                let mut function = lock(&slot.function);
                let Function { model, port, .. } = &mut *function;
                model.pause(congested);
                model.advance(port, now);
                progress |= self.network.send(index, &mut port.outbox, now);
            }
            progress |= self.network.enter(now);
            for (index, slot) in self.slots.iter().enumerate() {
                let mut function = lock(&slot.function);
                progress |= self.deliver(index, &mut function, now);
                // What a frame or a doorbell left to do is due now.
                progress |= function.model.is_due();
                slot.report(&mut function, progress);
            }
            self.network.leave(now);
            if !progress {
                break;
            }
            any = true;
        }
        any
    }

    /// When the next thing is due in one of these functions.
    fn next_deadline(&self, of: impl Fn(&Slot) -> bool) -> Option<Duration> {
        let slots = self.slots.iter().filter(|slot| of(slot));
        slots
            .filter_map(|slot| lock(&slot.function).model.next_deadline())
            .min()
    }

    /// The same in any function, or when the next frame arrives.
    fn next_event(&self) -> Option<Duration> {
        self.next_deadline(|_| true)
            .into_iter()
            .chain(self.network.next_arrival())
            .min()
    }

    /// Moves the virtual clock on, doing everything that falls due on the way.
    pub(crate) fn advance(&self, by: Duration) {
        let end = self.now() + by;
        let mut step = SHORTEST_STEP;
        loop {
            let any = self.step();
            let now = self.now();
            if any {
                step = SHORTEST_STEP;
                let next = self.next_event();
                self.set_now(next.map_or(end, |next| next.clamp(now, end)));
            } else if now < end {
                self.set_now(self.next_time(now, now + step, end));
                step = (step * 2).min(LONGEST_STEP);
            } else {
                return;
            }
        }
    }

    /// The time of the next event, at the latest `end`, when nothing is left to do now. If something is due all the same, it
    /// is a frame at an end of the link that has no function, where a test may take it. It must not stop the clock, and it
    /// hides what arrives after it, so that the clock goes to `step` only.
    fn next_time(&self, now: Duration, step: Duration, end: Duration) -> Duration {
        match self.next_event() {
            Some(next) if next <= now => step.min(end),
            next => next.map_or(end, |next| next.min(end)),
        }
    }

    /// Moves the virtual clock.
    fn set_now(&self, now: Duration) {
        self.clock.store(nanoseconds(now), Ordering::Release);
    }

    /// The driver waits. In a stepped world this is where time passes; in a threaded one the waiting driver executes its
    /// function, and those of drivers that do not.
    #[inline(never)]
    pub(crate) fn relax(&self, index: usize) {
        if self.is_threaded() {
            self.relax_threaded(index);
        } else {
            self.relax_stepped();
        }
    }

    fn relax_stepped(&self) {
        let mut step = lock(&self.step);
        if self.step() {
            *step = SHORTEST_STEP;
            return;
        }
        let now = self.now();
        let latest = now + *step;
        self.set_now(self.next_time(now, latest, latest));
        *step = (*step * 2).min(LONGEST_STEP);
        self.step();
    }

    fn relax_threaded(&self, index: usize) {
        let slot = &self.slots[index];
        let now = self.now();
        slot.attend(now);
        let mut any = self.try_execute(index);
        if !any || self.sleepers.load(Ordering::Relaxed) > 0 {
            for (other, slot) in self.slots.iter().enumerate() {
                if other != index && !slot.is_attended_by_another(now, ATTENDED) {
                    any |= self.try_execute(other);
                }
            }
        }
        match slot.backoff.next(any) {
            Pause::None => {}
            Pause::Spin => (0..SPIN).for_each(|_| std::hint::spin_loop()),
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep => self.nap(index),
        }
    }

    /// Executes a function, if no other thread does at the moment; whether anything happened.
    fn try_execute(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let mut function = match slot.function.try_lock() {
            Ok(function) => function,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let any = self.execute(index, &mut function, FEW_TURNS);
        slot.report(&mut function, any);
        drop(function);
        if any {
            self.wake_nappers(index);
        }
        any
    }

    /// Sleeps until a frame comes, something is due, or for a nap.
    fn nap(&self, index: usize) {
        let slot = &self.slots[index];
        let models = self.next_deadline(|_| true);
        let function = lock(&slot.function);
        slot.naps.fetch_add(1, Ordering::SeqCst);
        self.nappers.fetch_add(1, Ordering::SeqCst);
        let due = models.into_iter().chain(self.network.next_arrival()).min();
        let left = due.map_or(LONGEST_NAP, |due| {
            due.saturating_sub(self.now()).min(LONGEST_NAP)
        });
        if left.is_zero() || !self.network.doze() {
            drop(function);
            std::thread::yield_now();
        } else {
            // Whichever ended it, the driver looks.
            let _ = slot.changed.wait_timeout(function, left);
        }
        self.nappers.fetch_sub(1, Ordering::SeqCst);
        slot.naps.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn wait_interrupt(
        &self,
        index: usize,
        vectors: VectorSet,
        deadline: Duration,
    ) -> bool {
        let slot = &self.slots[index];
        let mut function = lock(&slot.function);
        function.port.interrupts.waits += 1;
        loop {
            if function.port.interrupts.take(vectors) {
                return true;
            }
            let left = deadline.saturating_sub(self.now());
            if left.is_zero() {
                return false;
            }
            if !self.is_threaded() {
                drop(function);
                self.relax_stepped();
                function = lock(&slot.function);
                continue;
            }
            slot.leave();
            function.sleepers += 1;
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // While this driver was awake, it executed the function itself; now the device's thread has to.
            self.wake_device();
            function = slot
                .changed
                .wait_timeout(function, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            function.sleepers -= 1;
        }
    }

    /// Ends the waits for interrupts of a function.
    pub(crate) fn wake(&self, index: usize) {
        self.function(index).port.interrupts.wakes += 1;
        self.slots[index].changed.notify_all();
    }

    /// The device's thread.
    pub(crate) fn run(&self) {
        let (mut overslept, mut called) = (false, false);
        while !self.stop.load(Ordering::Relaxed) {
            let now = self.now();
            let (mut attended, mut found) = (false, false);
            // A driver that does not run at the moment is given time, but not if there is something to do.
            let patience = if called { ATTENDED } else { LONGEST_NAP };
            for (index, slot) in self.slots.iter().enumerate() {
                if slot.is_attended(now, patience) {
                    attended = true;
                    continue;
                }
                let mut function = lock(&slot.function);
                let any = self.execute(index, &mut function, MOST_TURNS);
                slot.report(&mut function, any);
                drop(function);
                found |= any;
                if any {
                    self.wake_nappers(index);
                }
            }
            self.late
                .fetch_add(u64::from(found && overslept), Ordering::Relaxed);
            overslept = false;
            // What it was called for is still there.
            let again = called && attended && !self.network.is_quiet();
            let longest = match self.sleepers.load(Ordering::SeqCst) {
                _ if again => ATTENDED,
                0 => LONGEST_NAP,
                _ if attended => LONGEST_NAP,
                _ => LONGEST_SLEEP,
            };
            let now = self.now();
            // Frames that are there are for functions that their drivers execute.
            let arrival = self.network.look().filter(|at| *at > now);
            let models = self.next_deadline(|slot| !slot.is_attended(now, LONGEST_NAP));
            let next = models.into_iter().chain(arrival).min();
            let mut sleep = next.map_or(longest, |next| next.saturating_sub(now).min(longest));
            if !self.network.doze() && !attended {
                sleep = Duration::ZERO;
            }
            let mut woken = lock(&self.woken);
            if !*woken && !sleep.is_zero() {
                self.sleeps_until
                    .store(nanoseconds(now + sleep), Ordering::SeqCst);
                let (guard, timeout) = self
                    .wake
                    .wait_timeout(woken, sleep)
                    .unwrap_or_else(PoisonError::into_inner);
                woken = guard;
                overslept = timeout.timed_out() && !*woken && sleep == LONGEST_SLEEP;
                self.sleeps_until.store(0, Ordering::SeqCst);
            }
            called = again || *woken;
            *woken = false;
        }
    }

    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Ends the device's thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake_device();
    }
}
