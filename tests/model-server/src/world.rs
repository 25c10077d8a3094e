//! The functions, what joins them, and the clock.

use crate::fabric::Fabric;
use crate::memory::Memory;
use connectx_model::link::Link;
use connectx_model::link::datagram::Wire;
use connectx_model::link::fault::{Faulty, Rates, Report};
use connectx_model::link::subnet::{Subnet, Topology};
use connectx_model::link::trace::Summary;
use connectx_model::{Config, Host, IommuFault, Model, pcap};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// After how long a step leaves the rest for later, so that another thread gets the lock.
const LONGEST_STEP: Duration = Duration::from_millis(1);
/// The number of frames of each wire that the clock's thread takes at a time, for the same reason.
const MOST_FRAMES: usize = 32;
/// The time that the clock's thread sleeps at most.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// The time that it stands back for guests that wait for the lock. They wake it when they leave it something to do.
const COURTESY: Duration = Duration::from_millis(1);

/// A function's way out: the guest's memory, its interrupts, and frames for the cable.
pub(crate) struct Port {
    pub(crate) memory: Memory,
    /// Event descriptors by vector.
    vectors: Vec<Option<File>>,
    /// Raised while the vector had no descriptor.
    pending: Vec<bool>,
    outbox: Outbox,
}

/// Frames behind each other in one buffer.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Port {
    fn new(vectors: u16) -> Self {
        Self {
            memory: Memory::default(),
            vectors: (0..vectors).map(|_| None).collect(),
            pending: vec![false; usize::from(vectors)],
            outbox: Outbox::default(),
        }
    }

    /// Connects a vector, or takes its descriptor away. One that was raised in between is delivered.
    pub(crate) fn set_vector(&mut self, vector: usize, descriptor: Option<File>) {
        if let Some(slot) = self.vectors.get_mut(vector) {
            *slot = descriptor;
            if slot.is_some() && std::mem::take(&mut self.pending[vector]) {
                self.interrupt(vector as u16);
            }
        }
    }

    /// Interrupts are switched off.
    pub(crate) fn clear_vectors(&mut self) {
        self.vectors.fill_with(|| None);
        self.pending.fill(false);
    }

    pub(crate) fn vectors(&self) -> usize {
        self.vectors.len()
    }
}

impl Host for Port {
    fn dma_read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        self.memory.read(iova, data)
    }

    fn dma_write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        self.memory.write(iova, data)
    }

    fn interrupt(&mut self, vector: u16) {
        let at = usize::from(vector);
        match self.vectors.get(at) {
            Some(Some(event)) => {
                // An event counter that is full has an interrupt in it already.
                if let Err(error) = (&*event).write_all(&1u64.to_ne_bytes()) {
                    log::debug!("interrupt {vector}: {error}");
                }
            }
            Some(None) => self.pending[at] = true,
            None => log::warn!("interrupt {vector} of {}", self.vectors.len()),
        }
    }

    fn transmit(&mut self, frame: &[u8]) {
        self.outbox.bytes.extend_from_slice(frame);
        self.outbox.ends.push(self.outbox.bytes.len());
    }
}

/// One function and its guest.
pub(crate) struct Function {
    pub(crate) model: Model,
    pub(crate) port: Port,
}

/// Where frames go in, and are recorded before anything happens to them.
struct Entrance {
    link: Faulty<Fabric>,
    capture: Option<pcap::Writer<File>>,
}

impl Entrance {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        log::trace!("frame from port {from}: {}", Summary(frame));
        if let Some(capture) = &mut self.capture
            && let Err(error) = capture.write(frame, now)
        {
            log::error!("capture stopped: {error}");
            self.capture = None;
        }
        self.link.send(from, frame, now);
    }
}

/// Everything, behind the lock.
struct State {
    functions: Vec<Function>,
    /// The number of functions with drivers. Those behind are adapters that act on what comes to them, and are left alone
    /// otherwise: there may be hundreds.
    driven: usize,
    /// Those without drivers that have something to do all the same.
    roused: BTreeSet<usize>,
    /// Their far ends are the ports behind the functions'.
    wires: Vec<Arc<Wire>>,
    /// The functions that have them.
    wired: Vec<usize>,
    entrance: Entrance,
    frame: Vec<u8>,
    /// When the clock's thread wakes by itself; who leaves something to do before has to wake it.
    clock_wakes: Duration,
    /// Wires have more frames than it took.
    wires_wait: bool,
}

/// The connections between the functions' ports, and their faults.
pub(crate) struct Wiring {
    /// Wires out of the process, and the functions that have them.
    pub(crate) wires: Vec<(usize, Arc<Wire>)>,
    /// Faults of everything between ports and wires, and the seed that decides them.
    pub(crate) rates: Rates,
    pub(crate) seed: u64,
    /// Where to record frames.
    pub(crate) capture: Option<pcap::Writer<File>>,
    /// The switches of InfiniBand's between the functions that have no wires.
    pub(crate) subnet: Option<Topology>,
}

/// Shared by the sockets' threads and the clock's.
pub(crate) struct World {
    state: Mutex<State>,
    functions: usize,
    started: Instant,
    /// The number of threads that wait for the lock on behalf of a guest.
    guests: AtomicUsize,
    clock: OnceLock<Thread>,
}

impl World {
    /// One function per configuration, of which the first so many have drivers.
    pub(crate) fn new(configs: Vec<Config>, driven: usize, wiring: Wiring) -> Self {
        let functions = configs.len();
        let (wired, wires): (Vec<usize>, Vec<Arc<Wire>>) = wiring.wires.into_iter().unzip();
        let fabric = Fabric::new(functions, &wired, wiring.subnet.as_ref());
        Self {
            state: Mutex::new(State {
                functions: configs
                    .into_iter()
                    .map(|config| Function {
                        port: Port::new(config.msix_vectors),
                        model: Model::new(config),
                    })
                    .collect(),
                driven,
                // They boot.
                roused: (driven..functions).collect(),
                wires,
                wired,
                entrance: Entrance {
                    link: Faulty::new(fabric, wiring.seed, wiring.rates),
                    capture: wiring.capture,
                },
                frame: Vec::new(),
                clock_wakes: Duration::ZERO,
                wires_wait: false,
            }),
            functions,
            started: Instant::now(),
            guests: AtomicUsize::new(0),
            clock: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has printed why; the others go on serving.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to a function on behalf of its guest, and then what follows from it.
    pub(crate) fn with<R>(&self, index: usize, f: impl FnOnce(&mut Function) -> R) -> R {
        self.guests.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        self.guests.fetch_sub(1, Ordering::Relaxed);
        // Registers that show the time show this time.
        let now = self.started.elapsed();
        let Function { model, port } = &mut state.functions[index];
        model.advance(port, now);
        let result = f(&mut state.functions[index]);
        state.rouse(index);
        let busy = state.step(now);
        // Most accesses create no work or deadline that the clock's thread does not have already.
        let wake = busy
            || state.wires_wait
            || state
                .next_deadline()
                .is_some_and(|at| at < state.clock_wakes);
        drop(state);
        if wake {
            self.wake();
        }
        result
    }

    /// Does something to the subnet, if there is one; whether there is.
    pub(crate) fn with_subnet(&self, change: impl FnOnce(&mut Subnet)) -> bool {
        let mut state = self.lock();
        let subnet = state.entrance.link.inner_mut().subnet();
        let there = subnet.is_some();
        subnet.map(change);
        drop(state);
        self.wake();
        there
    }

    /// Changes the links' faults from here on; what they have done so far.
    pub(crate) fn set_faults(&self, change: impl FnOnce(&mut Rates)) -> (Rates, Report) {
        let mut state = self.lock();
        let link = &mut state.entrance.link;
        let mut rates = link.rates();
        change(&mut rates);
        link.set_rates(rates);
        (rates, link.report())
    }

    /// The number of functions.
    pub(crate) fn functions(&self) -> usize {
        self.functions
    }

    /// Something may be due: the clock's thread is to look.
    pub(crate) fn wake(&self) {
        if let Some(clock) = self.clock.get() {
            clock.unpark();
        }
    }

    /// The clock's thread: does what is due when no guest does anything, and takes frames from the wires.
    pub(crate) fn run_clock(&self) -> ! {
        // There is one such thread.
        let _ = self.clock.set(std::thread::current());
        loop {
            let sleep = self.tick();
            if sleep.is_zero() {
                std::thread::yield_now();
            } else {
                std::thread::park_timeout(sleep);
            }
        }
    }

    /// One turn of the clock's thread, and how long it may sleep afterwards, if no other thread wakes it.
    fn tick(&self) -> Duration {
        let mut state = self.lock();
        let now = self.started.elapsed();
        state.wires_wait = state.take_from_wires(now);
        let busy = state.step(now) || state.wires_wait;
        let now = self.started.elapsed();
        let idle = state
            .next_deadline()
            .map_or(LONGEST_SLEEP, |at| at.saturating_sub(now))
            .min(LONGEST_SLEEP);
        let sleep = if !busy && !idle.is_zero() {
            idle
        } else if self.guests.load(Ordering::Relaxed) != 0 {
            // The guests' accesses come first: they would starve behind a thread that never releases the lock.
            COURTESY
        } else {
            Duration::ZERO
        };
        state.clock_wakes = now + sleep;
        sleep
    }
}

impl State {
    /// Does what is due now. Whether there is more.
    fn step(&mut self, now: Duration) -> bool {
        let functions = self.functions.len();
        let begin = Instant::now();
        loop {
            let mut moved = false;
            for (wire, &function) in self.wires.iter().zip(&self.wired) {
                if let Some(Function { model, .. }) = self.functions.get_mut(function) {
                    model.pause(wire.is_congested());
                }
            }
            for at in 0..self.driven {
                self.advance(at, now);
            }
            for at in std::mem::take(&mut self.roused) {
                self.advance(at, now);
                let Function { model, .. } = &self.functions[at];
                if model.next_deadline().is_some() {
                    self.roused.insert(at);
                }
            }
            for at in 0..self.driven {
                moved |= self.deliver(at, now);
            }
            let mut from = self.driven;
            while let Some(at) = self.next_waiting(from) {
                let Function { model, port } = &mut self.functions[at];
                model.advance(port, now);
                moved |= self.deliver(at, now);
                self.roused.insert(at);
                from = at + 1;
            }
            let link = &mut self.entrance.link;
            for (at, wire) in self.wires.iter().enumerate() {
                while link.receive(functions + at, now, &mut self.frame) {
                    wire.transmit(&self.frame);
                }
            }
            if !moved {
                return false;
            }
            if begin.elapsed() > LONGEST_STEP {
                return true;
            }
        }
    }

    /// Lets a function do its work that is due, and sends its frames.
    fn advance(&mut self, at: usize, now: Duration) {
        let Function { model, port } = &mut self.functions[at];
        model.advance(port, now);
        let Outbox { bytes, ends } = &mut port.outbox;
        let mut start = 0;
        for end in ends.drain(..) {
            self.entrance.send(at, &bytes[start..end], now);
            start = end;
        }
        bytes.clear();
    }

    /// Delivers the frames that have come for a function. Returns `true` if there were any.
    fn deliver(&mut self, at: usize, now: Duration) -> bool {
        let Function { model, port } = &mut self.functions[at];
        let mut moved = false;
        while self.entrance.link.receive(at, now, &mut self.frame) {
            model.receive(port, &self.frame);
            moved = true;
        }
        moved
    }

    /// The next function, from this one on, that has no driver and for which frames are on their way.
    fn next_waiting(&mut self, from: usize) -> Option<usize> {
        let subnet = self.entrance.link.inner_mut().subnet();
        subnet.and_then(|subnet| subnet.next_waiting(from))
    }

    /// Something was done to a function.
    fn rouse(&mut self, at: usize) {
        if at >= self.driven {
            self.roused.insert(at);
        }
    }

    /// Takes some frames in. Whether there are more.
    fn take_from_wires(&mut self, now: Duration) -> bool {
        let mut more = false;
        for (at, wire) in self.wires.iter().enumerate() {
            let mut taken = 0;
            while taken < MOST_FRAMES && wire.receive(&mut self.frame) {
                let port = self.functions.len() + at;
                self.entrance.send(port, &self.frame, now);
                taken += 1;
            }
            more |= !wire.is_idle();
        }
        more
    }

    fn next_deadline(&self) -> Option<Duration> {
        let driven = 0..self.driven;
        driven
            .chain(self.roused.iter().copied())
            .filter_map(|at| self.functions[at].model.next_deadline())
            .chain(self.entrance.link.next_arrival())
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use connectx_model::link::setting;

    #[test]
    fn adapters_without_drivers_rest_between_events() {
        let config = |unit| Config::new(1).with_unit(unit).infiniband();
        let wiring = Wiring {
            wires: Vec::new(),
            rates: setting::none(),
            seed: 0,
            capture: None,
            subnet: Some("fat-tree 6 4".parse().unwrap()),
        };
        let world = World::new((1..=6).map(config).collect(), 1, wiring);
        assert_eq!(world.functions(), 6);
        assert_eq!(world.lock().roused.len(), 5);
        while !world.lock().roused.is_empty() {
            world.tick();
            assert!(world.started.elapsed() < Duration::from_secs(60));
        }
        for up in [false, true] {
            world.with(4, |Function { model, port }| model.set_link(port, up));
            world.with(4, |Function { model, .. }| {
                assert_eq!(model.link_up(), up);
            });
            assert_eq!(world.lock().roused.len(), 0);
        }
    }
}
