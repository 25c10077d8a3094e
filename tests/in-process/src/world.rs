//! The world around the driver: functions, memory, cable, clock.

use crate::exit::Exit;
use crate::memory::{Accounting, Memory};
use crate::platform::ModelPlatform;
use crate::port::{Interrupts, Outbox, Port};
use bareverbs_core::{Config as DriverConfig, Device, GidEntry, Platform, Storage, VectorSet};
use connectx_model::host::IommuFault;
use connectx_model::link::datagram;
use connectx_model::link::fault::{Faulty, Rates};
use connectx_model::link::setting::LONGEST_DELAY;
use connectx_model::link::{Cable, Link};
use connectx_model::{Config, Model};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The command register in configuration space, and what a platform writes there before the driver comes: memory space,
/// bus master, and no INTx.
const PCI_COMMAND: usize = 4;
const COMMAND_IN_USE: [u8; 2] = [0x06, 0x04];
/// How often a step goes round at most: a model that always has something to do must not keep the world from the driver.
const MOST_TURNS: usize = 1024;
/// First and longest step of the virtual clock while nothing happens.
const SHORTEST_STEP: Duration = Duration::from_micros(1);
const LONGEST_STEP: Duration = Duration::from_millis(10);
/// How long the device's thread sleeps at most. Drivers that poll play the device themselves while they wait
/// ([`Shared::relax`]), so it is woken only for those that sleep; the short time is for who polls without waiting.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
const LONGEST_NAP: Duration = Duration::from_micros(200);
/// After so many turns in which there was nothing to do, a driver that waits for another process sleeps until a frame comes,
/// or for a nap: where there are more such processes than processors, a scheduler gives each that only yields its whole
/// share of time, some milliseconds, before the one that could answer runs.
const MOST_IDLE: u32 = 64;

/// What joins the ports: any link, behind faults that a test can set.
pub type Wire = Faulty<Box<dyn Link>>;

/// Builds a [`World`].
pub struct Builder {
    functions: Vec<Config>,
    wire: Wire,
    exits: Vec<Arc<datagram::Wire>>,
    interrupt_vectors: u16,
}

impl Builder {
    /// A world with no function yet, and a cable between the ports of the two to come.
    #[must_use]
    pub fn new() -> Self {
        Self::with_link(Box::new(Cable::new()), 0)
    }

    /// A world whose functions' ports are those of `link`, in this order. `seed` decides the faults, once a test sets
    /// some.
    #[must_use]
    pub fn with_link(link: Box<dyn Link>, seed: u64) -> Self {
        Self {
            functions: Vec::new(),
            wire: Faulty::new(link, seed, Rates::default()),
            exits: Vec::new(),
            interrupt_vectors: 0,
        }
    }

    /// Adds a function.
    #[must_use]
    pub fn function(mut self, config: Config) -> Self {
        self.functions.push(config);
        self
    }

    /// Lets a wire out of the process: its far end is the port of the link behind those of the functions and of the wires
    /// before. Frames come in and go out on the real clock, so that the world should be a threaded one.
    #[must_use]
    pub fn exit(mut self, wire: datagram::Wire) -> Self {
        self.exits.push(Arc::new(wire));
        self
    }

    /// Offers the driver this many MSI-X vectors; without, it polls.
    #[must_use]
    pub fn interrupts(mut self, vectors: u16) -> Self {
        self.interrupt_vectors = vectors;
        self
    }

    /// A world with a virtual clock, which moves when the driver waits.
    #[must_use]
    pub fn stepped(self) -> World {
        World::new(self.build(None), None)
    }

    /// A world on the real clock, with a thread for the devices.
    #[must_use]
    pub fn threaded(self) -> World {
        let shared = self.build(Some(Instant::now()));
        let device = std::thread::spawn({
            let shared = shared.clone();
            move || shared.run()
        });
        World::new(shared, Some(device))
    }

    fn build(self, started: Option<Instant>) -> Arc<Shared> {
        let vectors = usize::from(self.interrupt_vectors);
        let functions = self
            .functions
            .into_iter()
            .map(|config| Function {
                model: Model::new(config),
                port: Port {
                    memory: Memory::default(),
                    interrupts: Interrupts::new(vectors),
                    outbox: Outbox::default(),
                },
            })
            .collect();
        let state = State {
            functions,
            wire: self.wire,
            exits: self.exits,
            now: Duration::ZERO,
            step: SHORTEST_STEP,
            frame: Vec::new(),
            waiters: 0,
            idle: 0,
        };
        Arc::new(Shared {
            state: Mutex::new(state),
            interrupt_vectors: self.interrupt_vectors,
            started,
            clock: AtomicU64::new(0),
            work: Condvar::new(),
            raised: Condvar::new(),
            stop: AtomicBool::new(false),
        })
    }
}

/// Functions, their memory, and the cable between them.
pub struct World {
    shared: Arc<Shared>,
    device: Option<JoinHandle<()>>,
    exits: Mutex<Vec<Exit>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    fn new(shared: Arc<Shared>, device: Option<JoinHandle<()>>) -> Self {
        let wires = shared.lock().exits.clone();
        let exits = wires.into_iter().map(|wire| {
            let world = shared.clone();
            let cut = shared.clone();
            let wake = move || {
                // The device's thread has the lock until it sleeps: now it can be woken.
                drop(world.lock());
                world.work.notify_one();
            };
            Exit::new(wire, wake, move || cut.cut())
        });
        Self {
            exits: Mutex::new(exits.collect()),
            shared,
            device,
        }
    }

    /// The driver's seam to function `index`, which is reset first, as VFIO does when a device is opened.
    ///
    /// # Panics
    /// If there is no such function.
    #[must_use]
    pub fn platform(&self, index: usize) -> ModelPlatform {
        let mut state = self.shared.lock();
        let Function { model, port } = &mut state.functions[index];
        model.function_reset();
        model.config_write(port, PCI_COMMAND, &COMMAND_IN_USE);
        drop(state);
        ModelPlatform {
            shared: self.shared.clone(),
            index,
        }
    }

    /// Brings the driver up on a function and gives it these addresses, as RoCE v2.
    ///
    /// # Panics
    /// If the driver does not come up, or the table is too short.
    pub fn open<'s>(
        &self,
        index: usize,
        config: DriverConfig,
        storage: Storage<'s>,
        addresses: &[IpAddr],
    ) -> Device<'s, ModelPlatform> {
        bring_up(self.platform(index), config, storage, addresses)
    }

    /// Looks into a model, or sets its faults.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn with_model<R>(&self, index: usize, f: impl FnOnce(&mut Model) -> R) -> R {
        f(&mut self.shared.lock().functions[index].model)
    }

    /// Plugs the cable of function `index` in or pulls it out.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn set_link(&self, index: usize, up: bool) {
        let mut state = self.shared.lock();
        let Function { model, port } = &mut state.functions[index];
        model.set_link(port, up);
        self.shared.after(&mut state);
    }

    /// Ends the wires out of the process, as when the world ends: what was sent before leaves, and nothing arrives any more.
    /// For programs that end with devices in use. What a latency or a delay holds back leaves in its time.
    pub fn close_exits(&self) {
        let mut exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.now() + LONGEST_DELAY;
        while !exits.is_empty() {
            self.step();
            let next = self.with_wire(|wire| wire.next_arrival());
            match next.filter(|at| *at < end && self.shared.started.is_some()) {
                Some(at) => std::thread::sleep(at.saturating_sub(self.now())),
                None => break,
            }
        }
        for exit in exits.drain(..) {
            exit.close();
        }
    }

    /// Looks at the wire, or damages it.
    pub fn with_wire<R>(&self, f: impl FnOnce(&mut Wire) -> R) -> R {
        f(&mut self.shared.lock().wire)
    }

    /// Lets the devices do what is due now; whether anything happened. The virtual clock stands still.
    pub fn step(&self) -> bool {
        self.shared.lock().step(self.shared.started)
    }

    /// Moves the virtual clock on, doing everything that falls due on the way.
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.lock();
        let end = state.now + by;
        while state.step(self.shared.started) || state.now < end {
            let now = state
                .next_deadline()
                .map_or(end, |next| next.clamp(state.now, end));
            self.shared.set_now(&mut state, now);
        }
    }

    /// Time on the world's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.now()
    }

    /// DMA accesses of function `index` to memory that was not mapped, since the last call.
    pub fn take_faults(&self, index: usize) -> Vec<IommuFault> {
        std::mem::take(&mut self.shared.lock().functions[index].port.memory.faults)
    }

    /// How often the driver of function `index` went to sleep until an interrupt.
    #[must_use]
    pub fn waits(&self, index: usize) -> u64 {
        self.shared.lock().functions[index].port.interrupts.waits
    }

    /// Memory that function `index` still holds.
    #[must_use]
    pub fn accounting(&self, index: usize) -> Accounting {
        self.shared.lock().functions[index].port.memory.accounting()
    }

    /// Lets the driver allocate this many bytes more for function `index`, then none (`None`: no limit).
    pub fn limit_memory(&self, index: usize, budget: Option<usize>) {
        self.shared.lock().functions[index].port.memory.budget = budget;
    }
}

/// Brings the driver up on a platform over a function and gives it these addresses, as RoCE v2.
///
/// # Panics
/// If the driver does not come up, or the table is too short.
pub fn bring_up<'s, P: Platform>(
    platform: P,
    config: DriverConfig,
    storage: Storage<'s>,
    addresses: &[IpAddr],
) -> Device<'s, P> {
    let device = Device::open(platform, config, storage).expect("bring-up");
    let mac = device.mac().expect("MAC");
    for (index, &address) in (0..).zip(addresses) {
        device
            .set_gid(index, GidEntry::roce_v2(address.into(), mac))
            .expect("GID");
    }
    device
}

impl Drop for World {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.work.notify_all();
        if let Some(device) = self.device.take() {
            // A panic of the device's thread was printed when it happened.
            let _ = device.join();
        }
        self.close_exits();
    }
}

/// What the handles and the device's thread share.
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) interrupt_vectors: u16,
    /// When the real clock started; `None` if it is virtual.
    started: Option<Instant>,
    /// The virtual clock in nanoseconds, to be read without the lock.
    clock: AtomicU64,
    /// Wakes the device's thread.
    work: Condvar,
    /// Wakes the drivers that wait for an interrupt.
    raised: Condvar,
    stop: AtomicBool,
}

pub(crate) struct State {
    pub(crate) functions: Vec<Function>,
    wire: Wire,
    /// Their far ends are the ports of the link behind the functions'.
    exits: Vec<Arc<datagram::Wire>>,
    now: Duration,
    step: Duration,
    frame: Vec<u8>,
    /// Drivers that wait for an interrupt.
    waiters: usize,
    /// Turns since there was something to do.
    idle: u32,
}

pub(crate) struct Function {
    pub(crate) model: Model,
    pub(crate) port: Port,
}

impl State {
    fn tick(&mut self, started: Option<Instant>) {
        if let Some(started) = started {
            self.now = started.elapsed();
        }
    }

    /// Frames from the models onto the cable.
    fn collect(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.functions.len() {
            any |= self.collect_from(index);
        }
        any
    }

    /// Frames from one model onto the cable.
    fn collect_from(&mut self, index: usize) -> bool {
        let outbox = &mut self.functions[index].port.outbox;
        if outbox.ends.is_empty() {
            return false;
        }
        let mut start = 0;
        for &end in &outbox.ends {
            self.wire.send(index, &outbox.bytes[start..end], self.now);
            start = end;
        }
        outbox.bytes.clear();
        outbox.ends.clear();
        true
    }

    /// Frames from outside onto the link.
    fn enter(&mut self) -> bool {
        let mut any = false;
        for (port, exit) in (self.functions.len()..).zip(&self.exits) {
            while exit.receive(&mut self.frame) {
                self.wire.send(port, &self.frame, self.now);
                any = true;
            }
        }
        any
    }

    /// While much waits for a peer outside, the models send nothing more.
    fn pause(&mut self) {
        if !self.exits.is_empty() {
            let congested = self.exits.iter().any(|exit| exit.is_congested());
            for function in &mut self.functions {
                function.model.pause(congested);
            }
        }
    }

    /// Frames from the link to outside.
    fn leave(&mut self) {
        for (port, exit) in (self.functions.len()..).zip(&self.exits) {
            while self.wire.receive(port, self.now, &mut self.frame) {
                exit.transmit(&self.frame);
            }
        }
    }

    #[inline(never)]
    fn step(&mut self, started: Option<Instant>) -> bool {
        let mut any = false;
        for _ in 0..MOST_TURNS {
            self.tick(started);
            self.pause();
            for function in &mut self.functions {
                function.model.advance(&mut function.port, self.now);
            }
            let mut progress = self.collect();
            progress |= self.enter();
            for (index, function) in self.functions.iter_mut().enumerate() {
                while self.wire.receive(index, self.now, &mut self.frame) {
                    progress = true;
                    function.model.receive(&mut function.port, &self.frame);
                }
            }
            self.leave();
            // What a frame or a doorbell left to do is due now.
            progress |= self.functions.iter().any(|f| f.model.is_due());
            if !progress {
                break;
            }
            any = true;
        }
        any
    }

    fn next_deadline(&self) -> Option<Duration> {
        let models = self
            .functions
            .iter()
            .filter_map(|function| function.model.next_deadline());
        models.chain(self.wire.next_arrival()).min()
    }

    fn has_unreported(&self) -> bool {
        self.waiters > 0
            && self
                .functions
                .iter()
                .any(|function| function.port.interrupts.unreported)
    }

    /// Whether an interrupt was raised since the last time.
    fn take_unreported(&mut self) -> bool {
        self.functions.iter_mut().fold(false, |any, function| {
            std::mem::take(&mut function.port.interrupts.unreported) | any
        })
    }
}

/// Whether so many bytes at `offset` are an access of the bus to this function.
fn is_register(model: &Model, offset: u64, len: usize) -> bool {
    offset.is_multiple_of(len as u64) && offset < model.config().bar_size
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held the lock has failed already; the others go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Duration {
        match self.started {
            Some(started) => started.elapsed(),
            None => Duration::from_nanos(self.clock.load(Ordering::Acquire)),
        }
    }

    /// Moves the virtual clock.
    fn set_now(&self, state: &mut State, now: Duration) {
        state.now = now;
        let nanoseconds = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.clock.store(nanoseconds, Ordering::Release);
    }

    // Not inlined, so that benchmarks can separate the driver's instructions from the model's; so too further entry
    // points.
    #[inline(never)]
    pub(crate) fn bar_read(&self, index: usize, offset: u64, data: &mut [u8]) {
        let mut state = self.lock();
        state.tick(self.started);
        let function = &mut state.functions[index];
        if is_register(&function.model, offset, data.len()) {
            function.model.bar_read(&mut function.port, offset, data);
        } else {
            data.fill(0xff);
        }
    }

    #[inline(never)]
    pub(crate) fn bar_write(&self, index: usize, offset: u64, data: &[u8]) {
        let mut state = self.lock();
        state.tick(self.started);
        let now = state.now;
        let function = &mut state.functions[index];
        if !is_register(&function.model, offset, data.len()) {
            return;
        }
        function.model.advance(&mut function.port, now);
        function.model.bar_write(&mut function.port, offset, data);
        function.model.advance(&mut function.port, now);
        if state.collect_from(index) {
            // A driver that only sends does not come to a step.
            state.leave();
            state.pause();
        }
        self.after(&mut state);
    }

    /// Nothing more comes from outside: the ports have no link any more.
    fn cut(&self) {
        let mut state = self.lock();
        for Function { model, port } in &mut state.functions {
            model.set_link(port, false);
        }
        self.after(&mut state);
    }

    /// Wakes the threads that have something to do now.
    fn after(&self, state: &mut State) {
        if self.started.is_some() && state.waiters > 0 {
            self.work.notify_one();
            if state.take_unreported() {
                self.raised.notify_all();
            }
        }
    }

    /// The driver waits. In a stepped world this is where time passes; in a threaded one the waiting driver executes
    /// the device if no other thread does at the moment.
    #[inline(never)]
    pub(crate) fn relax(&self) {
        if self.started.is_some() {
            match self.state.try_lock() {
                Ok(mut state) => {
                    if state.step(self.started) || state.has_unreported() {
                        self.after(&mut state);
                        state.idle = 0;
                    } else if !state.exits.is_empty() && state.idle >= MOST_IDLE {
                        let now = self.now_real();
                        let sleep = state.next_deadline().map_or(LONGEST_NAP, |next| {
                            next.saturating_sub(now).min(LONGEST_NAP)
                        });
                        let _ = self.work.wait_timeout(state, sleep);
                    } else {
                        state.idle = state.idle.saturating_add(1);
                        drop(state);
                        std::thread::yield_now();
                    }
                }
                Err(_) => std::thread::yield_now(),
            }
            return;
        }
        let mut state = self.lock();
        if state.step(None) {
            state.step = SHORTEST_STEP;
            return;
        }
        let latest = state.now + state.step;
        let now = state
            .next_deadline()
            .map_or(latest, |next| next.clamp(state.now, latest));
        self.set_now(&mut state, now);
        state.step = (state.step * 2).min(LONGEST_STEP);
        state.step(None);
    }

    pub(crate) fn wait_interrupt(
        &self,
        index: usize,
        vectors: VectorSet,
        deadline: Duration,
    ) -> bool {
        let mut state = self.lock();
        state.functions[index].port.interrupts.waits += 1;
        loop {
            if state.functions[index].port.interrupts.take(vectors) {
                return true;
            }
            let Some(started) = self.started else {
                if state.now >= deadline {
                    return false;
                }
                drop(state);
                self.relax();
                state = self.lock();
                continue;
            };
            let Some(left) = deadline
                .checked_sub(started.elapsed())
                .filter(|left| !left.is_zero())
            else {
                return false;
            };
            state.waiters += 1;
            // While this driver was awake, it executed the device itself; now the device's thread has to.
            self.work.notify_one();
            state = self
                .raised
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.waiters -= 1;
        }
    }

    /// Ends the waits for interrupts of a function.
    pub(crate) fn wake(&self, index: usize) {
        self.lock().functions[index].port.interrupts.wakes += 1;
        self.raised.notify_all();
    }

    /// The device's thread.
    fn run(&self) {
        let mut state = self.lock();
        while !self.stop.load(Ordering::Relaxed) {
            if state.step(self.started) || state.has_unreported() {
                self.after(&mut state);
            }
            let now = self.now_real();
            let longest = match state.waiters {
                0 => LONGEST_NAP,
                _ => LONGEST_SLEEP,
            };
            let sleep = state
                .next_deadline()
                .map_or(longest, |next| next.saturating_sub(now).min(longest));
            state = self
                .work
                .wait_timeout(state, sleep)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn now_real(&self) -> Duration {
        self.started
            .map_or(Duration::ZERO, |started| started.elapsed())
    }
}
