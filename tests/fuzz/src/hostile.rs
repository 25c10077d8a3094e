//! A card that writes what the input says into the driver's memory.

// UNSAFETY: writes where the device may.
#![expect(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bareverbs_in_process::{Call, ModelPlatform, Tap, Tapped};

/// It is this much later each time that the driver has waited without success: commands have minutes.
const LATER: Duration = Duration::from_millis(100);

/// The model's platform, and what the input does to memory.
pub(crate) type Hostile = Tapped<Lies>;

/// Lets the input decide about memory.
#[derive(Default)]
pub(crate) struct Lies {
    /// All that is allocated, with its size.
    memory: Mutex<Vec<(usize, usize)>>,
    /// These bytes say what is written, at each doorbell and each time that the driver waits.
    lies: Mutex<VecDeque<u8>>,
    /// The device hears no doorbells.
    deaf: AtomicBool,
    waits: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A card on this platform.
pub(crate) fn hostile(inner: ModelPlatform) -> Hostile {
    Tapped::new(inner, Lies::default())
}

impl Lies {
    /// From now on these bytes say what is written when: a byte that says whether, in which memory, where, and what.
    pub(crate) fn lie(&self, bytes: &[u8]) {
        *lock(&self.lies) = bytes.iter().copied().collect();
    }

    /// Sets whether doorbells go nowhere, so that the device does nothing by itself.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::Relaxed);
    }

    /// Numbers of the allocations of this size, which is that of completion queues for example, for [`write`](Self::write).
    pub(crate) fn of_size(&self, size: usize) -> Vec<usize> {
        let memory = lock(&self.memory);
        let numbers = memory.iter().enumerate();
        let alike = numbers.filter(|(_, (_, len))| *len == size);
        alike.map(|(number, _)| number).collect()
    }

    /// Writes into an allocation, as the device would.
    pub(crate) fn write(&self, number: usize, at: usize, bytes: &[u8]) {
        let memory = lock(&self.memory);
        if memory.is_empty() {
            return;
        }
        let (begin, len) = memory[number % memory.len()];
        let at = at % len.max(1);
        for (place, byte) in (at..len).zip(bytes) {
            // SAFETY: inside memory that is allocated until `dma_free` takes it off the list, and that the driver shares with
            // a device: it is not read while this runs, in the same thread.
            unsafe { ((begin + place) as *mut u8).write_volatile(*byte) };
        }
    }

    fn next_lie(&self) {
        let (number, at, bytes) = {
            let mut lies = lock(&self.lies);
            let mut byte = || lies.pop_front();
            let (Some(kind), Some(number)) = (byte(), byte()) else {
                return;
            };
            // A fourth of the doorbells, so that bring-up gets on.
            if kind & 3 != 3 {
                return;
            }
            let at = u16::from_le_bytes([byte().unwrap_or(0), byte().unwrap_or(0)]);
            let bytes: Vec<u8> = (0..=kind >> 4).filter_map(|_| byte()).collect();
            (number, at, bytes)
        };
        self.write(number.into(), at.into(), &bytes);
    }
}

impl Tap for Lies {
    fn after(&self, call: Call) {
        if call == Call::Relax {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        self.next_lie();
    }

    fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }

    fn allocated(&self, at: usize, len: usize) {
        lock(&self.memory).push((at, len));
    }

    fn freed(&self, at: usize) {
        lock(&self.memory).retain(|(begin, _)| *begin != at);
    }

    fn ahead(&self) -> Duration {
        let waits = self.waits.load(Ordering::Relaxed);
        LATER * u32::try_from(waits).unwrap_or(u32::MAX)
    }
}
