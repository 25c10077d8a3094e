//! MSI-X vectors as event file descriptors.

use std::io;
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vmm_sys_util::poll::{EpollContext, EpollEvents};

/// One vector: the kernel adds to the counter of `event` for each interrupt.
pub(crate) struct Vector {
    event: EventFd,
    epoll: EpollContext<()>,
}

impl Vector {
    pub(crate) fn new() -> io::Result<Self> {
        let event = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        let epoll = EpollContext::new().map_err(io::Error::from)?;
        epoll.add(&event, ()).map_err(io::Error::from)?;
        Ok(Self { event, epoll })
    }

    /// What the interrupt is routed to.
    pub(crate) fn event(&self) -> &EventFd {
        &self.event
    }

    /// Waits until the vector was raised since the last time, or until `deadline`, and returns whether it was. However
    /// often it was raised, that is one time.
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
            if let Err(error) = self.epoll.wait_timeout(&events, left) {
                log::error!(
                    "waiting for an interrupt failed: {}",
                    io::Error::from(error)
                );
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(3)
    }

    #[test]
    fn an_interrupt_before_the_wait_is_seen_once() {
        let vector = Vector::new().unwrap();
        vector.event().write(1).unwrap();
        vector.event().write(1).unwrap();
        assert!(vector.wait(soon()));
        assert!(!vector.wait(soon()));
    }

    #[test]
    fn the_deadline_is_kept_and_not_missed_by_much() {
        let vector = Vector::new().unwrap();
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
        let vector = Vector::new().unwrap();
        let distant = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| vector.wait(distant));
            vector.event().write(1).unwrap();
            assert!(waiter.join().unwrap());
        });
        assert!(Instant::now() < distant);
    }
}
