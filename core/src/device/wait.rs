//! Waiting for the device: who sleeps for which interrupt, and why no wake-up is lost.
//!
//! # Sleeping
//!
//! A wait is a loop: look for what is waited for, and if it is not there, sleep. What is looked at changes
//! only in [`Device::poll`], which reads the event queues, and an event queue stays armed at all times: reading it arms it
//! again, and the device raises an interrupt at once if more events have come meanwhile. So an event is either read by a
//! poll that the look comes after, or it raises an interrupt later than that; and an interrupt between two sleeps of a
//! thread ends the second one at once ([`Platform::wait_interrupt`]), no matter which thread reads the event. Any number
//! of threads may sleep for one vector.
//!
//! Commands sleep for interrupts, too, and poll the device when they wake. So nothing that executes a command may come
//! between looking and sleeping: poll again after it. ([`Cq::wait_event`](crate::Cq::wait_event) and event loops with a
//! descriptor do not depend on that.)
//!
//! Completions are one step further away: a CQ makes an event only when it is armed, and need not for completions that
//! came before. Hence the order of libibverbs: [`arm`](crate::Cq::arm), poll the CQ once more, then sleep.
//!
//! # Waking
//!
//! Another thread may have something for the one that sleeps: a deadline that is earlier than the one it sleeps until, work
//! of the program's, or the end. [`Device::wake`] is to the sleeping thread what an interrupt is: nothing that was written
//! before it is missed by a look after the sleep, and it ends the next sleep if it comes between two.
//!
//! # Event loops
//!
//! A program with its own event loop sleeps there, and needs two values to determine when to call
//! [`poll`](Device::poll): a descriptor, which is the platform's (`bareverbs_vfio::EventChannel`), and
//! [`next_deadline`](Device::next_deadline). The descriptor is acknowledged before the device is polled, never after.

use core::time::Duration;

use crate::device::Device;
use crate::platform::{Platform, VectorSet};
use crate::types::error::DeviceError;
use crate::types::event::AsyncEvent;

impl<P: Platform> Device<'_, P> {
    /// Sleeps until the device raises an interrupt, whichever (relaxes once when polling), at the longest until `deadline`
    /// on the platform's clock, then [`poll`](Self::poll)s. Returns whether the deadline has not passed yet. It may return
    /// early, and does so for every look at the device's health: what is waited for has to be looked at in a loop.
    pub fn wait(&self, deadline: Duration) -> Result<bool, DeviceError> {
        self.wait_for(VectorSet::ALL, deadline)
    }

    /// Waits like [`wait`](Self::wait), for the interrupt of completion vector `comp_vector` alone.
    pub fn wait_completion(
        &self,
        comp_vector: u16,
        deadline: Duration,
    ) -> Result<bool, DeviceError> {
        self.wait_for(VectorSet::one(self.interrupt_vector(comp_vector)), deadline)
    }

    /// Waits like [`wait`](Self::wait), for the interrupts of some MSI-X vectors.
    pub fn wait_for(&self, vectors: VectorSet, deadline: Duration) -> Result<bool, DeviceError> {
        self.poll()?;
        if self.config.interrupts {
            let until = self.next_deadline().map_or(deadline, |at| at.min(deadline));
            self.platform.wait_interrupt(vectors, until);
        } else {
            self.platform.relax();
        }
        self.poll()?;
        Ok(self.platform.now() < deadline)
    }

    /// Ends the waits for this device of all threads, and the next wait of each thread that does not wait now. For a thread
    /// that drives the device while others have work for it. Descriptors of event loops (`bareverbs_vfio::EventChannel`)
    /// become readable.
    ///
    /// Returns whether no thread sleeps any more: false on a platform that cannot wake ([`Platform::wake`]), where a wait
    /// lasts until its deadline or an interrupt.
    pub fn wake(&self) -> bool {
        !self.config.interrupts || self.platform.wake()
    }

    /// When [`poll`](Self::poll) has to be called even if there is no interrupt: to look at the device's health. `None`
    /// once the device has failed, and polling only says so again.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.with(|control| match control.failed() {
            None => Some(control.next_deadline()),
            Some(_) => None,
        })
        .flatten()
    }

    /// The MSI-X vector that the events of CQs with this completion vector
    /// ([`CqInit::comp_vector`](crate::CqInit::comp_vector)) raise. Everything else raises vector 0.
    pub fn interrupt_vector(&self, comp_vector: u16) -> u16 {
        if self.config.completion_event_queues == 0 {
            return 0;
        }
        comp_vector % self.completion_vectors() + 1
    }

    /// Waits for an asynchronous event until `deadline` (`ibv_get_async_event`), driving the device meanwhile. An event
    /// owns what it says, so there is nothing to acknowledge.
    ///
    /// # Errors
    /// Once the device has failed and all events, [`DeviceFatal`](AsyncEvent::DeviceFatal) among them, were taken.
    pub fn get_async_event(&self, deadline: Duration) -> Result<Option<AsyncEvent>, DeviceError> {
        let mut over = false;
        loop {
            let polled = self.poll();
            if let Some(event) = self.next_async_event() {
                return Ok(Some(event));
            }
            polled?;
            if over {
                return Ok(None);
            }
            // A device that fails meanwhile says so once more.
            over = self.wait_for(VectorSet::one(0), deadline) == Ok(false);
        }
    }
}
