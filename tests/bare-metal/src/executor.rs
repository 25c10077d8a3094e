//! An executor for async/await: a fixed number of tasks, no memory but theirs, and one thread.
//!
//! [`run`] works in rounds. A round polls each task that was woken since it was polled last, once, and then drives what
//! the tasks wait for: the device, and [`Timers`]. So a task that wakes itself again and again keeps neither the others
//! nor the device from their turn. When no task is ready after a round, the processor sleeps.
//!
//! Tasks may borrow from the function that calls `run`, here the connection manager. Executors that keep their tasks in
//! static memory, such as embassy's, do not allow that.

// UNSAFETY: makes wakers without an allocator.
#![expect(unsafe_code)]

use core::cell::Cell;
use core::future::{Future, poll_fn};
use core::ops::ControlFlow;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use core::time::Duration;

/// The ready tasks of a [`run`]: they were woken, and not polled since. Static, as wakers refer to it, which may
/// be kept for any time and be used from anywhere.
#[derive(Debug)]
pub struct Ready<const N: usize>([AtomicBool; N]);

impl<const N: usize> Default for Ready<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ready<N> {
    /// No task is ready.
    pub const fn new() -> Self {
        Self([const { AtomicBool::new(false) }; N])
    }

    fn any(&self) -> bool {
        // What was written before a task was woken is seen by the task.
        self.0.iter().any(|task| task.load(Ordering::Acquire))
    }
}

/// A waker that makes one task ready.
fn waker(task: &'static AtomicBool) -> Waker {
    // SAFETY: the functions of the table are given the pointer that is given here, and use it as what it is: a
    // reference to a static flag, which any thread may set. They do nothing else, so that any order will do.
    unsafe { Waker::new((&raw const *task).cast(), &WAKER) }
}

const WAKER: RawWakerVTable = RawWakerVTable::new(
    |task| RawWaker::new(task, &WAKER),
    wake,
    wake,
    // It owns nothing.
    |_| {},
);

fn wake(task: *const ()) {
    // SAFETY: the table is in wakers that `waker` has made, and in clones of these.
    let task = unsafe { &*task.cast::<AtomicBool>() };
    task.store(true, Ordering::Release);
}

/// Runs tasks until `drive` says that it is enough, which it is asked after each round; all are ready at first.
///
/// `drive` wakes the tasks that can go on. If that leaves none ready, `sleep` is called with what `drive` has returned:
/// until when, for example. It may return at any time. What wakes a task while neither a task nor `drive` runs has
/// to end the sleep, also one that is about to begin. Interrupts need not wake tasks: it is enough that one which
/// comes after `drive` has looked ends the sleep, as with the `wait` of the `interrupts` module, for `drive` looks again.
pub fn run<const N: usize, T, B>(
    ready: &'static Ready<N>,
    mut tasks: [Pin<&mut dyn Future<Output = ()>>; N],
    mut drive: impl FnMut() -> ControlFlow<B, T>,
    mut sleep: impl FnMut(T),
) -> B {
    let mut ended = [false; N];
    for task in &ready.0 {
        task.store(true, Ordering::Relaxed);
    }
    loop {
        for ((woken, task), ended) in ready.0.iter().zip(&mut tasks).zip(&mut ended) {
            // Before it is polled: what wakes it from here on makes it ready again.
            if woken.swap(false, Ordering::Acquire) && !*ended {
                let waker = waker(woken);
                *ended = task
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_ready();
            }
        }
        match drive() {
            ControlFlow::Break(end) => return end,
            ControlFlow::Continue(until) if !ready.any() => sleep(until),
            ControlFlow::Continue(_) => {}
        }
    }
}

/// Times that tasks wait for: one each, for so many tasks.
pub struct Timers<const N: usize> {
    /// The last time that [`wake`](Self::wake) was told.
    now: Cell<Duration>,
    waiting: [Cell<Option<(Duration, Waker)>>; N],
}

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Timers<N> {
    /// No task waits.
    pub const fn new() -> Self {
        Self {
            now: Cell::new(Duration::ZERO),
            waiting: [const { Cell::new(None) }; N],
        }
    }

    /// Waits in a task until [`wake`](Self::wake) is told that time, or a later one.
    ///
    /// # Panics
    /// If there is no task of this number.
    pub async fn until(&self, task: usize, time: Duration) {
        let waiting = Waiting(&self.waiting[task]);
        poll_fn(|context| {
            if self.now.get() >= time {
                return Poll::Ready(());
            }
            waiting.0.set(Some((time, context.waker().clone())));
            Poll::Pending
        })
        .await;
    }

    /// Wakes those whose time has come. The next time that a task waits for.
    pub fn wake(&self, now: Duration) -> Option<Duration> {
        self.now.set(now);
        let mut next: Option<Duration> = None;
        for slot in &self.waiting {
            match slot.take() {
                Some((time, waker)) if time <= now => waker.wake(),
                Some((time, waker)) => {
                    next = Some(next.map_or(time, |next| next.min(time)));
                    slot.set(Some((time, waker)));
                }
                None => {}
            }
        }
        next
    }
}

/// A wait for a time, which may be dropped.
struct Waiting<'a>(&'a Cell<Option<(Duration, Waker)>>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Something that one task at a time may do, of so many.
pub struct Turns<const N: usize> {
    taken: Cell<bool>,
    waiting: [Cell<Option<Waker>>; N],
}

impl<const N: usize> Default for Turns<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Turns<N> {
    /// No task has it.
    pub const fn new() -> Self {
        Self {
            taken: Cell::new(false),
            waiting: [const { Cell::new(None) }; N],
        }
    }

    /// Waits in a task until no other one does it. The others may when what is returned is dropped.
    ///
    /// # Panics
    /// If there is no task of this number.
    pub async fn take(&self, task: usize) -> Turn<'_, N> {
        poll_fn(|context| {
            if self.taken.replace(true) {
                self.waiting[task].set(Some(context.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(Turn(self))
        })
        .await
    }
}

/// The turn of a task ([`Turns::take`]).
pub struct Turn<'a, const N: usize>(&'a Turns<N>);

impl<const N: usize> Drop for Turn<'_, N> {
    fn drop(&mut self) {
        self.0.taken.set(false);
        // All look: who comes first has it, and the others wait again. It does not matter if one waits no more.
        for waker in self.0.waiting.iter().filter_map(Cell::take) {
            waker.wake();
        }
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
