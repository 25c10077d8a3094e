//! Descriptors that C programs wait on: one count for each event, in a counter of the kernel's.

// UNSAFETY: calls of the C library on a descriptor that is owned here.
#![expect(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use crate::process::cancel;
use crate::process::failure::{Errno, Result, lock};

/// A descriptor that is readable while there are counts in it: for poll and epoll, blocking or not, as the program sets it.
#[derive(Debug)]
pub(crate) struct Counter(OwnedFd);

impl Counter {
    /// Creates a counter at zero.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: it was just opened, and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Its number, for the program.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds one.
    pub(crate) fn add(&self) {
        let one = 1_u64;
        // SAFETY: reads 8 bytes of a number. It cannot fail below 2^64 - 1 counts.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    /// Takes one, and waits for it unless the program has made the descriptor non-blocking. The thread may be cancelled meanwhile.
    ///
    /// # Errors
    /// EAGAIN, or EINTR after a signal.
    pub(crate) fn take(&self) -> Result<()> {
        let mut one = 0_u64;
        // SAFETY: writes 8 bytes of a number.
        match unsafe { cancel::read(self.fd(), (&raw mut one).cast(), 8) } {
            8 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Returns true if there is a count to take.
    pub(crate) fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    /// Takes one if there is any, without waiting.
    pub(crate) fn try_take(&self) -> bool {
        let mut one = 0_u64;
        let buffer = libc::iovec {
            iov_base: (&raw mut one).cast(),
            iov_len: 8,
        };
        // SAFETY: the buffer is a number of 8 bytes.
        unsafe { libc::preadv2(self.fd(), &buffer, 1, -1, libc::RWF_NOWAIT) == 8 }
    }
}

/// Events with a descriptor that is readable while there are any.
#[derive(Debug)]
pub(crate) struct Events<T> {
    counter: Counter,
    queue: Mutex<VecDeque<T>>,
}

impl<T> Events<T> {
    /// None.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            counter: Counter::new()?,
            queue: Mutex::new(VecDeque::new()),
        })
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.counter.fd()
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        lock(&self.queue).push_back(event);
        self.counter.add();
    }

    /// Waits until there may be an event, unless the program has made the descriptor non-blocking. The thread may be cancelled
    /// meanwhile, and is to look for the event ([`take`](Self::take)) afterwards.
    ///
    /// # Errors
    /// EAGAIN, or EINTR after a signal.
    pub(crate) fn wait(&self) -> Result<()> {
        self.counter.take()
    }

    /// Takes the oldest event after a wait, and calls `taken` before another thread can find the event gone. `None` if it was
    /// removed when the thread was about to take it.
    pub(crate) fn take(&self, taken: impl FnOnce(&mut T)) -> Option<T> {
        let mut queue = lock(&self.queue);
        let mut event = queue.pop_front()?;
        taken(&mut event);
        Some(event)
    }

    #[cfg(test)]
    fn pop(&self) -> Result<T> {
        loop {
            self.wait()?;
            if let Some(event) = self.take(|_| {}) {
                return Ok(event);
            }
        }
    }

    /// Removes the events for which `is` holds; how many there were.
    pub(crate) fn remove(&self, mut is: impl FnMut(&T) -> bool) -> usize {
        let mut queue = lock(&self.queue);
        let before = queue.len();
        queue.retain(|event| !is(event));
        let removed = before - queue.len();
        for _ in 0..removed {
            self.counter.try_take();
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_while_there_are_events() {
        let events = Events::new().unwrap();
        assert!(!events.counter.is_readable());
        for number in 0..3 {
            events.push(number);
        }
        for number in 0..3 {
            assert!(events.counter.is_readable());
            assert_eq!(events.pop(), Ok(number));
        }
        assert!(!events.counter.is_readable());
    }

    #[test]
    fn removed_events_leave_the_descriptor_as_it_was() {
        let events = Events::new().unwrap();
        for number in 0..4 {
            events.push(number);
        }
        assert_eq!(events.remove(|number| number % 2 == 0), 2);
        assert_eq!(events.pop(), Ok(1));
        assert_eq!(events.pop(), Ok(3));
        assert!(!events.counter.is_readable());
    }

    #[test]
    fn a_descriptor_without_events_that_does_not_block_says_so() {
        let events = Events::<u8>::new().unwrap();
        // SAFETY: sets a flag of a descriptor.
        unsafe { libc::fcntl(events.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(events.pop(), Err(Errno(libc::EAGAIN)));
    }

    #[test]
    fn a_thread_that_waits_gets_the_event() {
        let events = Events::new().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| events.pop());
            events.push(7);
            assert_eq!(waiter.join().unwrap(), Ok(7));
        });
    }
}
