//! Undecoded completions, for queues that are no QPs: they have no slot, so that each queue checks itself which are its
//! own.

use core::sync::atomic::Ordering::Acquire;
use core::time::Duration;

use bareverbs_firmware_cmds::cqe::{self, TailWord};

use crate::memory::cqe_ring::{Cqe, CqeRing};
use crate::memory::session_ring::{Arrays, Session};
use crate::memory::slots::CQ_FAILED;
use crate::platform::Platform;
use crate::types::error::DeviceError;
use crate::verbs::cq::{Cq, CqError};

impl<P: Platform> Cq<'_, P> {
    /// Takes the next CQE. Nothing in it was checked.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub(crate) fn take_entry(&mut self) -> Result<Option<[u8; cqe::SIZE]>, CqError> {
        let ring = self.ring.get_mut();
        let entry = ring.take_entry();
        if entry.is_some() {
            ring.publish(ring.ci());
        } else if self.slot.pending_flags.load(Acquire) & CQ_FAILED != 0 {
            return Err(self.failure());
        }
        Ok(entry)
    }

    /// The next CQE, if it is the host's, without taking it. Nothing in it was checked.
    #[inline(always)]
    pub(crate) fn peek_entry(&mut self) -> Option<(Cqe, TailWord)> {
        self.ring.get_mut().entries.peek()
    }

    /// Takes the CQE that [`peek_entry`](Self::peek_entry) gave. The device is told later:
    /// [`publish_taken`](Self::publish_taken).
    #[inline(always)]
    pub(crate) fn advance_entry(&mut self, entry: Cqe) {
        self.ring.get_mut().entries.advance(entry);
    }

    /// Takes the next CQE of a CQ with sessions, or with long entries, where it lies. Nothing in it was checked, and the device
    /// is told later: [`publish_taken`](Self::publish_taken).
    pub(crate) fn take_of_sessions(&mut self) -> Option<(Cqe, TailWord)> {
        self.ring.get_mut().take()
    }

    /// The next session, if one comes next, and where its mini CQEs lie. It is taken with [`end_session`](Self::end_session),
    /// and the device is told later.
    #[inline(always)]
    pub(crate) fn begin_session(&mut self) -> Option<(Session, Arrays)> {
        self.ring.get_mut().begin_session()
    }

    /// Takes the session that [`begin_session`](Self::begin_session) gave.
    #[inline(always)]
    pub(crate) fn end_session(&mut self, session: &Session) {
        self.ring.get_mut().end_session(session);
    }

    /// Where the CQEs lie, for a queue whose CQ has no compression.
    #[inline(always)]
    pub(crate) fn entries(&mut self) -> &mut CqeRing {
        &mut self.ring.get_mut().entries
    }

    /// Tells the device which CQEs were taken.
    #[inline(always)]
    pub(crate) fn publish_taken(&mut self) {
        let ring = self.ring.get_mut();
        ring.publish(ring.ci());
    }

    /// Checks whether the CQ still works.
    pub(crate) fn check(&self) -> Result<(), CqError> {
        if self.slot.pending_flags.load(Acquire) & CQ_FAILED != 0 {
            return Err(self.failure());
        }
        Ok(())
    }

    /// Drops the completions that are in the ring, for queues whose device side is in reset.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub(crate) fn drain(&mut self) -> Result<(), CqError> {
        for _ in 0..=self.cqe() {
            if self.take_entry()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Returns `true` if no completion waits to be taken.
    pub(crate) fn is_empty(&self) -> bool {
        let ring = self.ring();
        !ring.is_ready()
    }

    /// Waits for a CQE until `deadline` (the platform's clock), driving the device meanwhile; whether there is one.
    pub(crate) fn wait_entry(&mut self, deadline: Duration) -> Result<bool, DeviceError> {
        loop {
            self.device.poll()?;
            if !self.is_empty() {
                return Ok(true);
            }
            self.arm(false);
            // It may have come before the CQ was armed.
            if !self.is_empty() {
                return Ok(true);
            }
            if !self
                .device
                .wait_completion(self.init.comp_vector, deadline)?
            {
                return Ok(!self.is_empty());
            }
        }
    }
}
