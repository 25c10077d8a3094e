//! The network that joins the ports of a world, and leads out of it.

use crate::port::Outbox;
use crate::uncancelled::uncancelled;
use connectx_model::link::fault::Faulty;
use connectx_model::link::{Link, datagram};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The wire that joins the ports: any link, behind faults that a test can set.
pub type Wire = Faulty<Box<dyn Link>>;

/// Frames that a function takes at once.
const MOST_FRAMES: usize = 32;
/// Frames that come in from outside at once.
const MOST_ENTERING: usize = 64;

/// The link between the ports under its lock, and the wires to other processes.
pub(crate) struct Network {
    medium: Mutex<Medium>,
    /// When the next frame arrives at any port, in nanoseconds, to be read without the lock: for threaded worlds. A test that
    /// steps a world may have a link of its own and put frames into it from the side.
    arrival: AtomicU64,
    threaded: bool,
    /// Their far ends are the ports of the link behind the functions'.
    pub(crate) exits: Vec<Arc<datagram::Wire>>,
    functions: usize,
}

struct Medium {
    wire: Wire,
    frame: Vec<u8>,
    /// Threads read the clock before they have the lock: the wire's time stands still for those that come late.
    now: Duration,
}

/// Frames that were taken from the network, in buffers that are used again.
#[derive(Default)]
pub(crate) struct Inbox {
    buffers: Vec<Vec<u8>>,
    count: usize,
}

impl Inbox {
    /// The frames that the last [`Network::receive`] has taken.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.buffers.iter().take(self.count)
    }
}

impl Network {
    pub(crate) fn new(
        wire: Wire,
        exits: Vec<Arc<datagram::Wire>>,
        functions: usize,
        threaded: bool,
    ) -> Self {
        Self {
            medium: Mutex::new(Medium {
                wire,
                frame: Vec::new(),
                now: Duration::ZERO,
            }),
            arrival: AtomicU64::new(u64::MAX),
            threaded,
            exits,
            functions,
        }
    }

    /// Does something with the wire.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Wire) -> R) -> R {
        self.with_medium(Duration::ZERO, |medium| work(&mut medium.wire))
    }

    fn with_medium<R>(&self, now: Duration, work: impl FnOnce(&mut Medium) -> R) -> R {
        let mut medium: MutexGuard<'_, Medium> =
            self.medium.lock().unwrap_or_else(PoisonError::into_inner);
        medium.now = medium.now.max(now);
        let result = work(&mut medium);
        if self.threaded {
            let arrival = medium.wire.next_arrival();
            let arrival = arrival.map_or(u64::MAX, |at| at.as_nanos() as u64);
            self.arrival.store(arrival, Ordering::SeqCst);
        }
        result
    }

    /// Runs `work` as [`with_medium`](Self::with_medium) does, with the wires, whose other ends may have to be woken.
    fn with_exits<R>(&self, now: Duration, work: impl FnOnce(&mut Medium) -> R) -> R {
        uncancelled(|| self.with_medium(now, work))
    }

    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        if !self.threaded {
            return self.look();
        }
        let arrival = self.arrival.load(Ordering::SeqCst);
        (arrival != u64::MAX).then(|| Duration::from_nanos(arrival))
    }

    /// The same by a look at the link.
    pub(crate) fn look(&self) -> Option<Duration> {
        self.with(|wire| wire.next_arrival())
    }

    /// Returns `true` if a frame may have arrived at a port.
    fn has_arrivals(&self, now: Duration) -> bool {
        !self.threaded || self.next_arrival().is_some_and(|at| at <= now)
    }

    /// Returns `true` if nothing waits to come in.
    pub(crate) fn is_quiet(&self) -> bool {
        self.exits.iter().all(|exit| exit.is_idle())
    }

    /// Returns `true` if nothing waits to come in, before a sleep: from now on the wires wake the sleeper when something comes.
    pub(crate) fn doze(&self) -> bool {
        // Not only up to the first one with something.
        self.exits
            .iter()
            .fold(true, |quiet, exit| quiet & exit.doze())
    }

    /// While much waits for a peer outside, the models send nothing more.
    pub(crate) fn is_congested(&self) -> bool {
        self.exits.iter().any(|exit| exit.is_congested())
    }

    /// Frames from a function onto the link; whether there were any.
    pub(crate) fn send(&self, from: usize, outbox: &mut Outbox, now: Duration) -> bool {
        if outbox.is_empty() {
            return false;
        }
        self.with_medium(now, |medium| {
            for frame in outbox.drain() {
                medium.wire.hand_over(from, frame, medium.now);
            }
        });
        true
    }

    /// Takes frames that have arrived for a function; whether there may be more.
    pub(crate) fn receive(&self, to: usize, now: Duration, inbox: &mut Inbox) -> bool {
        inbox.count = 0;
        if !self.has_arrivals(now) {
            return false;
        }
        self.with_medium(now, |medium| {
            let Medium { wire, now, .. } = medium;
            while inbox.count < MOST_FRAMES {
                if inbox.buffers.len() == inbox.count {
                    inbox.buffers.push(Vec::new());
                }
                if !wire.receive(to, *now, &mut inbox.buffers[inbox.count]) {
                    return false;
                }
                inbox.count += 1;
            }
            true
        })
    }

    /// Frames from outside onto the link; whether there were any.
    pub(crate) fn enter(&self, now: Duration) -> bool {
        if self.is_quiet() {
            return false;
        }
        self.with_exits(now, |medium| {
            let mut any = false;
            for (port, exit) in (self.functions..).zip(&self.exits) {
                // What comes all the time must not keep the functions from it.
                for _ in 0..MOST_ENTERING {
                    if !exit.receive(&mut medium.frame) {
                        break;
                    }
                    medium.wire.hand_over(port, &mut medium.frame, medium.now);
                    any = true;
                }
            }
            any
        })
    }

    /// Frames from the link to outside.
    pub(crate) fn leave(&self, now: Duration) {
        if self.exits.is_empty() || !self.has_arrivals(now) {
            return;
        }
        self.with_exits(now, |medium| {
            for (port, exit) in (self.functions..).zip(&self.exits) {
                while medium.wire.receive(port, medium.now, &mut medium.frame) {
                    exit.transmit(&medium.frame);
                }
            }
        });
    }
}
