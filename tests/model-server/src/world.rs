//! The functions, the cable between them, and the clock.

use crate::memory::Memory;
use connectx_model::link::{Cable, Link, Switch, Timing};
use connectx_model::pcap::Capture;
use connectx_model::{Config, Host, IommuFault, Model};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a step goes round at most before somebody else gets the lock.
const MOST_TURNS: usize = 64;
/// How long the clock's thread sleeps at most.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A function's way out: the guest's memory, its interrupts, and frames for the cable.
pub(crate) struct Port {
    pub(crate) memory: Memory,
    /// Event descriptors by vector.
    vectors: Vec<Option<File>>,
    /// Raised while the vector had no descriptor.
    pending: Vec<bool>,
    outbox: Vec<Vec<u8>>,
}

impl Port {
    fn new(vectors: u16) -> Self {
        Self {
            memory: Memory::default(),
            vectors: (0..vectors).map(|_| None).collect(),
            pending: vec![false; usize::from(vectors)],
            outbox: Vec::new(),
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
        self.outbox.push(frame.to_vec());
    }
}

/// One function and its guest.
pub(crate) struct Function {
    pub(crate) model: Model,
    pub(crate) port: Port,
}

/// Everything, behind the lock.
pub(crate) struct State {
    pub(crate) functions: Vec<Function>,
    link: Box<dyn Link>,
    frame: Vec<u8>,
}

/// Shared by the sockets' threads and the clock's.
pub(crate) struct World {
    state: Mutex<State>,
    started: Instant,
    /// Wakes the clock's thread: deadlines may have changed.
    changed: Condvar,
}

impl World {
    /// One function per configuration: alone, cabled back to back, or on a switch. Frames are recorded in `capture`.
    pub(crate) fn new(configs: Vec<Config>, capture: Option<&Path>) -> std::io::Result<Self> {
        let link: Box<dyn Link> = match configs.len() {
            0..=2 => Box::new(Cable::new()),
            ports => Box::new(Switch::new(ports, Timing::default())),
        };
        let link: Box<dyn Link> = match capture {
            Some(path) => Box::new(Capture::new(link, File::create(path)?)?),
            None => link,
        };
        let functions = configs
            .into_iter()
            .map(|config| Function {
                port: Port::new(config.msix_vectors),
                model: Model::new(config),
            })
            .collect();
        Ok(Self {
            state: Mutex::new(State {
                functions,
                link,
                frame: Vec::new(),
            }),
            started: Instant::now(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has printed why; the others go on serving.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to a function, and then what follows from it.
    pub(crate) fn with<R>(&self, index: usize, f: impl FnOnce(&mut Function) -> R) -> R {
        let mut state = self.lock();
        // Registers that show the time show this time.
        let now = self.started.elapsed();
        let Function { model, port } = &mut state.functions[index];
        model.advance(port, now);
        let result = f(&mut state.functions[index]);
        state.step(now);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// How many functions there are.
    pub(crate) fn functions(&self) -> usize {
        self.lock().functions.len()
    }

    /// The clock's thread: does what is due when nothing comes from outside.
    pub(crate) fn run_clock(&self) -> ! {
        let mut state = self.lock();
        loop {
            let busy = state.step(self.started.elapsed());
            let now = self.started.elapsed();
            let sleep = state
                .next_deadline()
                .map_or(LONGEST_SLEEP, |at| at.saturating_sub(now))
                .min(LONGEST_SLEEP);
            if busy || sleep.is_zero() {
                // The guests' accesses come first: they would starve behind a thread that never lets go.
                drop(state);
                std::thread::yield_now();
                state = self.lock();
            } else {
                state = self
                    .changed
                    .wait_timeout(state, sleep)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
            }
        }
    }
}

impl State {
    /// Does what is due now. Whether there is more.
    fn step(&mut self, now: Duration) -> bool {
        let functions = self.functions.len();
        for _ in 0..MOST_TURNS {
            let mut moved = false;
            for (at, Function { model, port }) in self.functions.iter_mut().enumerate() {
                model.advance(port, now);
                for frame in port.outbox.drain(..) {
                    // A cable that ends nowhere keeps nothing.
                    if functions > 1 {
                        self.link.send(at, &frame, now);
                    }
                }
            }
            for (at, Function { model, port }) in self.functions.iter_mut().enumerate() {
                while self.link.receive(at, now, &mut self.frame) {
                    model.receive(port, &self.frame);
                    moved = true;
                }
            }
            if !moved {
                return false;
            }
        }
        true
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.functions
            .iter()
            .filter_map(|function| function.model.next_deadline())
            .chain(self.link.next_arrival())
            .min()
    }
}
