//! A function of a world, and the threads at it.

use crate::backoff::Backoff;
use crate::memory::Memory;
use crate::network::Inbox;
use crate::port::{Interrupts, Outbox, Port};
use connectx_model::{Config, Model};
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// A model and its way out.
pub(crate) struct Function {
    pub(crate) model: Model,
    pub(crate) port: Port,
    /// Frames that were taken from the network, until the model has taken them.
    pub(crate) inbox: Inbox,
    /// Threads that sleep until an interrupt.
    pub(crate) sleepers: usize,
}

/// A function, its lock, and what threads know of each other without it.
pub(crate) struct Slot {
    pub(crate) function: Mutex<Function>,
    /// Wakes the threads that sleep at the function, with its lock.
    pub(crate) changed: Condvar,
    /// Threads that sleep until a frame comes.
    pub(crate) naps: AtomicUsize,
    pub(crate) backoff: Backoff,
    /// When a driver executed its function last, in nanoseconds, and which thread that was. A hint: the two may not fit.
    attended: AtomicU64,
    by: AtomicUsize,
}

/// The file for the memory on the device.
static DEVICE_MEMORY: OnceLock<Arc<File>> = OnceLock::new();

/// Has the memory on the device in a file, for others to map: of the models that are made from now on, of which the process has
/// one. A second file is not used.
pub fn keep_device_memory_in(file: File) {
    let _ = DEVICE_MEMORY.set(Arc::new(file));
}

/// A number for the calling thread.
fn me() -> usize {
    thread_local!(static ME: u8 = const { 0 });
    ME.with(|me| std::ptr::from_ref(me).addr())
}

impl Slot {
    pub(crate) fn new(mut config: Config, vectors: usize) -> Self {
        if let Some(file) = DEVICE_MEMORY.get() {
            config.memic_file = Some(file.clone());
        }
        Self {
            function: Mutex::new(Function {
                model: Model::new(config),
                port: Port {
                    memory: Memory::default(),
                    interrupts: Interrupts::new(vectors),
                    outbox: Outbox::default(),
                },
                inbox: Inbox::default(),
                sleepers: 0,
            }),
            changed: Condvar::new(),
            naps: AtomicUsize::new(0),
            backoff: Backoff::default(),
            attended: AtomicU64::new(0),
            by: AtomicUsize::new(0),
        }
    }

    /// The driver has come back to its function.
    pub(crate) fn attend(&self, now: Duration) {
        self.attended
            .store(now.as_nanos() as u64, Ordering::Relaxed);
        self.by.store(me(), Ordering::Relaxed);
    }

    /// The driver goes to sleep.
    pub(crate) fn leave(&self) {
        self.attended.store(0, Ordering::Relaxed);
    }

    /// Returns `true` if the driver was here within this time.
    pub(crate) fn is_attended(&self, now: Duration, within: Duration) -> bool {
        let attended = Duration::from_nanos(self.attended.load(Ordering::Relaxed));
        !attended.is_zero() && now.saturating_sub(attended) < within
    }

    /// The same for a driver on another thread than the calling one.
    pub(crate) fn is_attended_by_another(&self, now: Duration, within: Duration) -> bool {
        self.is_attended(now, within) && self.by.load(Ordering::Relaxed) != me()
    }

    /// After the function was executed: wakes the threads at it that have something to look at.
    pub(crate) fn report(&self, function: &mut Function, happened: bool) {
        let raised =
            function.sleepers > 0 && std::mem::take(&mut function.port.interrupts.unreported);
        if raised || happened && self.naps.load(Ordering::SeqCst) > 0 {
            self.changed.notify_all();
        }
    }
}
