//! MSI-X vectors as event file descriptors, and sleeping until one is raised.
//!
//! The kernel adds to an event's counter for each interrupt, and nothing is ever taken out of it: each waiter has an
//! separate epoll instance, in which the events are edge-triggered, so that it sees every interrupt since its last look
//! and takes none away from others. A waiter is an [`EventChannel`](crate::EventChannel), or a thread in
//! [`wait_interrupt`](bareverbs_core::platform::Platform::wait_interrupt).

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use bareverbs_core::platform::VectorSet;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::removal::Removals;

/// Everything that one watch can have: vectors, a wake-up, removals, a timer. With a smaller list, events that did not fit would
/// make the next look succeed.
const MOST_EVENTS: usize = 64 + 1 + 2 + 1;
/// The time that a thread sleeps at once when the process may open no more files.
const NAP: Duration = Duration::from_millis(1);

/// The vectors of a function.
pub(crate) struct Interrupts {
    events: Vec<EventFd>,
    /// Raised by the program itself, for every waiter.
    wake: EventFd,
    /// Distinguishes this function's watches from others'.
    identity: Arc<()>,
}

impl Interrupts {
    /// Of a function with so many vectors; with none it is polled.
    pub(crate) fn new(count: u16) -> io::Result<Self> {
        let event = |_| EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC);
        Ok(Self {
            events: (0..count).map(event).collect::<io::Result<_>>()?,
            wake: event(count)?,
            identity: Arc::new(()),
        })
    }

    /// The number of vectors.
    pub(crate) fn len(&self) -> u16 {
        self.events.len() as u16
    }

    /// The descriptors that the interrupts are routed to.
    pub(crate) fn events(&self) -> &[EventFd] {
        &self.events
    }

    /// Ends the waits of all threads, and the next one of those that do not wait.
    pub(crate) fn wake(&self) -> bool {
        self.wake.write(1).is_ok()
    }

    /// Waits until one of the vectors was raised since this thread last waited for them, or until `deadline`, and returns
    /// whether one was. However often they were raised, that is one time. A removal counts as raised, always. So does the
    /// first wait of a thread if there ever was an interrupt.
    pub(crate) fn wait(&self, vectors: VectorSet, removals: &Removals, deadline: Instant) -> bool {
        let waited = WATCHES.try_with(|watches| {
            let mut watches = watches.borrow_mut();
            let of_this = |kept: &Kept| {
                kept.vectors == vectors && std::ptr::eq(kept.of.as_ptr(), &*self.identity)
            };
            let at = match watches.iter().position(of_this) {
                Some(at) => at,
                None => {
                    watches.retain(|kept| kept.of.strong_count() > 0);
                    watches.push(Kept {
                        of: Arc::downgrade(&self.identity),
                        vectors,
                        watch: Watch::new(self, vectors, removals)?,
                    });
                    watches.len() - 1
                }
            };
            watches[at].watch.wait(deadline)
        });
        match waited {
            Ok(Ok(raised)) => raised,
            Ok(Err(error)) => {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| log::error!("interrupts cannot be waited for: {error}"));
                self.nap(deadline)
            }
            // The thread is about to end.
            Err(_) => self.nap(deadline),
        }
    }

    /// Where threads cannot be woken, they look every now and then.
    fn nap(&self, deadline: Instant) -> bool {
        std::thread::sleep(deadline.saturating_duration_since(Instant::now()).min(NAP));
        true
    }
}

thread_local! {
    /// The vectors that this thread has waited for: few, and searched when it is about to sleep.
    static WATCHES: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// A watch of one thread.
struct Kept {
    /// The function's identity; its memory is not used again before this is gone.
    of: Weak<()>,
    vectors: VectorSet,
    watch: Watch,
}

/// One waiter's view of some vectors of a function.
pub(crate) struct Watch {
    epoll: Epoll,
}

impl Watch {
    /// If there ever was an interrupt, the first look finds it.
    pub(crate) fn new(
        interrupts: &Interrupts,
        vectors: VectorSet,
        removals: &Removals,
    ) -> io::Result<Self> {
        let watch = Self {
            epoll: Epoll::new()?,
        };
        for (vector, event) in (0..).zip(&interrupts.events) {
            if vectors.contains(vector) {
                watch.add(event, EventSet::IN | EventSet::EDGE_TRIGGERED)?;
            }
        }
        watch.add(&interrupts.wake, EventSet::IN | EventSet::EDGE_TRIGGERED)?;
        // A function that is lost stays lost.
        for event in removals.events() {
            watch.add(event, EventSet::IN)?;
        }
        Ok(watch)
    }

    pub(crate) fn add(&self, event: &impl AsRawFd, how: EventSet) -> io::Result<()> {
        let fd = event.as_raw_fd();
        self.epoll
            .ctl(ControlOperation::Add, fd, EpollEvent::new(how, 0))
    }

    /// `true` if an interrupt was raised since the last call.
    pub(crate) fn look(&self) -> io::Result<bool> {
        self.sleep(0)
    }

    /// Looks, and if nothing happened sleeps until something does, or until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // In whole milliseconds, rounded up: waking early would turn the rest into a busy loop.
            let timeout = left.as_nanos().div_ceil(1_000_000);
            if self.sleep(i32::try_from(timeout).unwrap_or(i32::MAX))? {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    fn sleep(&self, timeout: i32) -> io::Result<bool> {
        match self
            .epoll
            .wait(timeout, &mut [EpollEvent::default(); MOST_EVENTS])
        {
            Ok(count) => Ok(count != 0),
            // A signal. A wait with a deadline continues.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> i32 {
        self.epoll.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::removal::Removal;

    struct Function {
        interrupts: Interrupts,
        removals: Removals,
    }

    impl Function {
        fn new(vectors: u16) -> Self {
            Self {
                interrupts: Interrupts::new(vectors).unwrap(),
                removals: Removals::new().unwrap(),
            }
        }

        fn raise(&self, vector: usize) {
            self.interrupts.events()[vector].write(1).unwrap();
        }

        fn wait(&self, vectors: VectorSet, deadline: Instant) -> bool {
            self.interrupts.wait(vectors, &self.removals, deadline)
        }
    }

    const FIRST: VectorSet = VectorSet::one(0);

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(3)
    }

    fn distant() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn an_interrupt_before_the_wait_is_seen_once() {
        let function = Function::new(1);
        function.raise(0);
        function.raise(0);
        assert!(function.wait(FIRST, soon()));
        assert!(!function.wait(FIRST, soon()));
    }

    #[test]
    fn the_deadline_is_kept_and_not_missed_by_much() {
        let function = Function::new(1);
        let deadline = soon();
        assert!(!function.wait(FIRST, deadline));
        assert!(Instant::now() >= deadline);
        // In the past: looks, and does not wait.
        assert!(!function.wait(FIRST, deadline));
        function.raise(0);
        assert!(function.wait(FIRST, deadline));
    }

    #[test]
    fn an_interrupt_during_the_wait_ends_it() {
        let function = Function::new(1);
        let distant = distant();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| function.wait(FIRST, distant));
            function.raise(0);
            assert!(waiter.join().unwrap());
        });
        assert!(Instant::now() < distant);
    }

    #[test]
    fn only_what_is_waited_for_ends_a_wait() {
        let function = Function::new(3);
        let some = VectorSet::one(0).union(VectorSet::one(2));
        assert!(!function.wait(some, soon()));
        function.raise(1);
        assert!(!function.wait(some, soon()));
        function.raise(2);
        assert!(function.wait(some, distant()));
        // Other waits are independent of that one.
        assert!(function.wait(VectorSet::ALL, distant()));
        assert!(!function.wait(FIRST, soon()));
    }

    #[test]
    fn functions_are_distinguished_also_when_one_replaces_another() {
        for _ in 0..20 {
            let function = Function::new(1);
            let other = Function::new(1);
            assert!(!function.wait(FIRST, Instant::now()));
            function.raise(0);
            assert!(!other.wait(FIRST, Instant::now()));
            assert!(function.wait(FIRST, Instant::now()));
        }
        // The last function's watches go with the next one that is waited for.
        let function = Function::new(1);
        function.wait(FIRST, Instant::now());
        assert_eq!(WATCHES.with_borrow(Vec::len), 1);
    }

    /// Two threads pass a turn to each other, each waking the other by one interrupt of the vector that both wait for.
    /// That one thread sees the interrupt that was meant for the other must not make it sleep for ever.
    #[test]
    fn no_thread_takes_an_interrupt_from_another() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let function = Function::new(1);
        let turn = AtomicU32::new(0);
        let distant = distant();
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (function, turn) = (&function, &turn);
                scope.spawn(move || {
                    for round in 0..1000 {
                        while turn.load(Ordering::Acquire) != 2 * round + me {
                            assert!(function.wait(FIRST, distant), "round {round}");
                        }
                        turn.fetch_add(1, Ordering::Release);
                        function.raise(0);
                    }
                });
            }
        });
        assert!(Instant::now() < distant);
    }

    #[test]
    fn a_wake_ends_every_wait_once() {
        let function = Function::new(2);
        let distant = distant();
        std::thread::scope(|scope| {
            let function = &function;
            let waiters = [FIRST, VectorSet::one(1), VectorSet::ALL].map(|vectors| {
                scope.spawn(move || {
                    let woken = function.wait(vectors, distant);
                    (woken, function.wait(vectors, soon()))
                })
            });
            assert!(function.interrupts.wake());
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), (true, false));
            }
        });
        assert!(Instant::now() < distant);
    }

    #[test]
    fn a_wake_between_two_waits_ends_the_second() {
        let function = Function::new(1);
        assert!(!function.wait(FIRST, soon()));
        assert!(function.interrupts.wake());
        assert!(function.interrupts.wake());
        assert!(function.wait(FIRST, distant()));
        assert!(!function.wait(FIRST, soon()));
    }

    #[test]
    fn a_removal_ends_every_wait() {
        for removal in [Removal::Requested, Removal::BusError] {
            let function = Function::new(2);
            let distant = distant();
            std::thread::scope(|scope| {
                let function = &function;
                let waiters = [FIRST, VectorSet::one(1), VectorSet::ALL]
                    .map(|vectors| scope.spawn(move || function.wait(vectors, distant)));
                function.removals.event(removal).write(1).unwrap();
                for waiter in waiters {
                    assert!(waiter.join().unwrap());
                }
            });
            // A later call does not wait at all.
            assert!(function.wait(FIRST, distant));
            assert!(function.wait(FIRST, distant));
            assert!(Instant::now() < distant);
        }
    }
}
