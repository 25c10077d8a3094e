//! The lock of a queue: an exchange to take it and a store to give it back, as the spin locks of rdma-core's providers are.
//!
//! Who finds it taken looks again a few times, then leaves the processor to others, then sleeps: what holds it for long is the
//! control path, during a command of the firmware. It knows nothing of panics: each holder leaves what it guards in order.

// UNSAFETY: lends what the lock guards.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::hint;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The numbers of a waiting thread's checks before it leaves the processor, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 128;
/// The time that it sleeps between two checks.
const NAP: Duration = Duration::from_micros(50);

/// A value behind a lock.
pub(crate) struct DataLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock reaches the value.
unsafe impl<T: Send> Sync for DataLock<T> {}

/// The guard of a lock. It stays in its thread.
pub(crate) struct DataGuard<'l, T> {
    of: &'l DataLock<T>,
    stays: PhantomData<*const T>,
}

impl<T> DataLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for it and takes it.
    #[inline(always)]
    pub(crate) fn lock(&self) -> DataGuard<'_, T> {
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        DataGuard {
            of: self,
            stays: PhantomData,
        }
    }

    /// Takes it if no other thread has it.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<DataGuard<'_, T>> {
        if self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(DataGuard {
            of: self,
            stays: PhantomData,
        })
    }

    /// The guard of a lock that was taken, and whose guard was forgotten.
    ///
    /// # Safety
    /// The calling thread has taken it, and has no other guard of it.
    #[inline(always)]
    pub(crate) unsafe fn taken(&self) -> DataGuard<'_, T> {
        DataGuard {
            of: self,
            stays: PhantomData,
        }
    }

    /// Takes it once it is free.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut turn = 0_u32;
        loop {
            match turn {
                ..SPINS => hint::spin_loop(),
                SPINS..YIELDS => thread::yield_now(),
                _ => thread::sleep(NAP),
            }
            turn = turn.saturating_add(1);
            // Reading alone leaves the line with its holder.
            if !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }
}

impl<T> fmt::Debug for DataLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLock")
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl<T> Deref for DataGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, and the result does not outlive the guard.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for DataGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed as mutable.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for DataGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.of.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem;
    use std::sync::Barrier;
    use std::time::Instant;

    #[test]
    fn one_thread_at_a_time_has_it() {
        const THREADS: usize = 4;
        const TURNS: usize = 20_000;
        let count = DataLock::new((0_usize, 0_usize));
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..TURNS {
                        let mut held = count.lock();
                        held.0 += 1;
                        held.1 = held.0;
                    }
                });
            }
        });
        assert_eq!(*count.lock(), (THREADS * TURNS, THREADS * TURNS));
    }

    #[test]
    fn who_finds_it_taken_waits_until_it_is_free() {
        let lock = DataLock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock());
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(20) {
                assert!(!other.is_finished());
                thread::yield_now();
            }
            let mut held = held;
            *held = 2;
            drop(held);
            assert_eq!(other.join().unwrap(), 2);
        });
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_guard_that_was_forgotten_is_had_again() {
        let lock = DataLock::new(());
        mem::forget(lock.lock());
        assert!(lock.try_lock().is_none());
        // SAFETY: it was taken above.
        drop(unsafe { lock.taken() });
        assert!(lock.try_lock().is_some());
    }
}
