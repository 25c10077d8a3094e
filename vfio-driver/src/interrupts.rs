//! MSI-X vectors as event file descriptors.

use std::io;
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vmm_sys_util::poll::{EpollContext, EpollEvents, PollToken};

use crate::removal::{Removal, Removals};

/// One vector: the kernel adds to the counter of `event` for each interrupt.
pub(crate) struct Vector {
    event: EventFd,
    epoll: EpollContext<Woken>,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    ByInterrupt,
    ByRemoval,
}

impl PollToken for Woken {
    fn as_raw_token(&self) -> u64 {
        *self as u64
    }

    fn from_raw_token(data: u64) -> Self {
        if data == Self::ByInterrupt as u64 {
            Self::ByInterrupt
        } else {
            Self::ByRemoval
        }
    }
}

impl Vector {
    /// Waiting ends as well when one of the removals is raised, which then stays raised.
    pub(crate) fn new(removals: &Removals) -> io::Result<Self> {
        let event = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        let epoll = EpollContext::new()?;
        epoll.add(&event, Woken::ByInterrupt)?;
        for removal in [Removal::Requested, Removal::BusError] {
            epoll.add(removals.event(removal), Woken::ByRemoval)?;
        }
        Ok(Self { event, epoll })
    }

    /// What the interrupt is routed to.
    pub(crate) fn event(&self) -> &EventFd {
        &self.event
    }

    /// Waits until the vector was raised since the last time, or until `deadline`, and returns whether it was. However
    /// often it was raised, that is one time. A removal counts as raised, always.
    pub(crate) fn wait(&self, deadline: Instant) -> bool {
        loop {
            match self.event.read() {
                Ok(_) => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    log::error!("an interrupt's event could not be read: {error}");
                    return false;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // The wait counts in whole milliseconds, rounded down; waking early would turn the rest into a busy loop.
            let left = left + Duration::from_micros(999);
            let events = EpollEvents::new();
            match self.epoll.wait_timeout(&events, left) {
                Ok(woken) => {
                    if woken.iter().any(|event| event.token() == Woken::ByRemoval) {
                        return true;
                    }
                }
                Err(error) => {
                    log::error!(
                        "waiting for an interrupt failed: {}",
                        io::Error::from(error)
                    );
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector() -> Vector {
        Vector::new(&Removals::new().unwrap()).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(3)
    }

    #[test]
    fn an_interrupt_before_the_wait_is_seen_once() {
        let vector = vector();
        vector.event().write(1).unwrap();
        vector.event().write(1).unwrap();
        assert!(vector.wait(soon()));
        assert!(!vector.wait(soon()));
    }

    #[test]
    fn the_deadline_is_kept_and_not_missed_by_much() {
        let vector = vector();
        let deadline = soon();
        assert!(!vector.wait(deadline));
        assert!(Instant::now() >= deadline);
        // In the past: looks, and does not wait.
        assert!(!vector.wait(deadline));
        vector.event().write(1).unwrap();
        assert!(vector.wait(deadline));
    }

    #[test]
    fn an_interrupt_during_the_wait_ends_it() {
        let vector = vector();
        let distant = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| vector.wait(distant));
            vector.event().write(1).unwrap();
            assert!(waiter.join().unwrap());
        });
        assert!(Instant::now() < distant);
    }

    #[test]
    fn a_removal_ends_every_wait() {
        let removals = Removals::new().unwrap();
        let vectors = [(); 2].map(|()| Vector::new(&removals).unwrap());
        let distant = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waiters = vectors
                .each_ref()
                .map(|vector| scope.spawn(move || vector.wait(distant)));
            removals.event(Removal::Requested).write(1).unwrap();
            for waiter in waiters {
                assert!(waiter.join().unwrap());
            }
        });
        // Whoever comes later does not wait at all.
        assert!(vectors[0].wait(distant));
        assert!(Instant::now() < distant);
    }
}
