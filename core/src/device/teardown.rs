//! Taking a function down: in order while it answers, and without it when it does not.
//!
//! In order: event queues, doorbell page, TEARDOWN_HCA, every page back, DISABLE_HCA. Errors that the firmware reports do
//! not stop this, an answer that does not come does. Then the function is ordered to disable itself (`nic_interface` of
//! the init segment); once it says that it has, it no longer reaches memory, and everything can be given back all the
//! same. If it says nothing, the memory stays allocated: the platform alone can reset the function.

use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::eq::DestroyEqIn;
use bareverbs_firmware_cmds::hca::{DisableHcaIn, TeardownHcaIn};
use bareverbs_firmware_cmds::init_segment::{
    CMDQ_ADDR_L_SZ, CommandQueueRegister, NicInterface, VANISHED,
};
use bareverbs_firmware_cmds::uar::DeallocUarIn;

use crate::device::Device;
use crate::device::in_flight::PollBackoff;
use crate::firmware::page_chunk;
use crate::firmware::pages::SupplyError;
use crate::firmware::recorder::RecordKind;
use crate::platform::Platform;
use crate::types::error::{CloseError, CloseFailure, CommandError, CommandFailure, DeviceError};

/// The first failure, and whether going on in order makes sense.
#[derive(Debug, Default)]
struct FirstFailure {
    first: Option<CloseFailure>,
    /// The device does not answer.
    silent: bool,
}

impl FirstFailure {
    #[cold]
    #[inline(never)]
    fn record(&mut self, failure: CloseFailure) {
        if let CloseFailure::Command(error) = failure {
            log::error!("teardown: {error}");
            self.silent |= !matches!(
                error.failure,
                CommandFailure::Status { .. } | CommandFailure::BadOutput(_)
            );
        } else {
            self.silent = true;
        }
        self.first = self.first.or(Some(failure));
    }

    #[cold]
    #[inline(never)]
    fn command(&mut self, error: CommandError) {
        self.record(match error.failure {
            CommandFailure::Device(error) => CloseFailure::Device(error),
            _ => CloseFailure::Command(error),
        });
    }
}

impl<P: Platform> Device<'_, P> {
    /// Takes the function down: destroys what bring-up created, gets every page back, disables the function.
    ///
    /// # Errors
    /// Names the first failure, and what stays allocated for that. The function has to be reset then before it is used
    /// again.
    pub fn close(mut self) -> Result<(), CloseError> {
        self.tear_down(true)
    }

    /// `patient`: worth waiting for a device that does not answer.
    pub(crate) fn tear_down(&mut self, patient: bool) -> Result<(), CloseError> {
        let mut failures = FirstFailure::default();
        let Some(failed) = self.with(|control| control.failed()) else {
            return Ok(());
        };
        self.close_xrc_base();
        match failed {
            Some(error) => failures.record(CloseFailure::Device(error)),
            None => self.tear_down_in_order(&mut failures),
        }
        if P::WRITE_COMBINING
            && let Some(uar) = self.blue_flame.uar()
        {
            // The QPs are gone, and the page may be the next driver's for CQs.
            self.platform.set_write_combining(uar.bar_offset(), false);
        }
        let pages_lost = self.pages_given();
        // Only an order without any failures says for sure that the function no longer reaches memory.
        let mut quiet = failures.first.is_none()
            && self.with(|control| !control.queue.has_retired()) == Some(true);
        if failed == Some(DeviceError::WasReset) {
            // It has nothing of this driver's any more, and another driver may have it.
            quiet = true;
        }
        if !quiet {
            quiet = self.disable_interface(patient);
        }
        let Some(mut control) = self.slot.control.lock().take() else {
            return Ok(());
        };
        self.context().record(RecordKind::Closed);
        // Pages that a silent but disabled function has not returned are not lost.
        let kept = if quiet {
            control.end_quarantine(&self.platform);
            while let Some(eq) = control.eqs.pop() {
                eq.into_memory().free(&self.platform);
            }
            page_chunk::free_all(&self.platform, self.page_chunks);
            let forgotten = control.quarantined();
            control.queue.free(&self.platform);
            forgotten
        } else {
            let eqs: u64 = control.eqs.iter().map(|eq| eq.bytes()).sum();
            control.quarantined()
                + control.queue.bytes()
                + eqs
                + page_chunk::bytes(self.page_chunks)
        };
        match failures.first {
            None => Ok(()),
            Some(failure) => Err(CloseError {
                failure,
                pages_lost: if quiet { 0 } else { pages_lost },
                bytes_quarantined: kept,
            }),
        }
    }

    fn tear_down_in_order(&mut self, failures: &mut FirstFailure) {
        // Commands are polled from here on, as they were before there was an event queue.
        self.completion_eqs.clear();
        // The first queue goes last: until then page requests still arrive.
        while let Some(eq) = self.with(|control| control.eqs.pop()).flatten() {
            let mut destroy = DestroyEqIn::new();
            destroy.set_eq_number(eq.eqn().0);
            let result = self.execute_no_output(&destroy);
            let memory = eq.into_memory();
            match result {
                Ok(_) => memory.free(&self.platform),
                Err(error) => {
                    self.quarantine(memory);
                    failures.command(error);
                    if failures.silent {
                        return;
                    }
                }
            }
        }
        if let Err(error) = self.leave_l2_table() {
            failures.command(error);
            if failures.silent {
                return;
            }
        }
        if P::WRITE_COMBINING
            && let Some(uar) = self.blue_flame.uar()
        {
            let mut dealloc = DeallocUarIn::new();
            dealloc.set_uar(uar.number());
            self.step(failures, &dealloc);
        }
        if self.stage.uar {
            let mut dealloc = DeallocUarIn::new();
            dealloc.set_uar(self.uar.number());
            self.step(failures, &dealloc);
        }
        if self.stage.initialized {
            self.step(failures, &TeardownHcaIn::new());
        }
        self.reclaim_pages(failures);
        if self.stage.enabled {
            let mut disable = DisableHcaIn::new();
            disable.set_embedded_cpu_function(self.embedded_cpu);
            self.step(failures, &disable);
        }
    }

    /// Executes a command of teardown, unless the device has fallen silent.
    fn step<C: Command>(&self, failures: &mut FirstFailure, command: &C) {
        if !failures.silent
            && let Err(error) = self.execute_no_output(command)
        {
            failures.command(error);
        }
    }

    /// Takes pages back until the firmware has none, as long as it goes on giving.
    fn reclaim_pages(&self, failures: &mut FirstFailure) {
        // What went wrong with pages earlier is over.
        self.with(|control| control.pages.take_error());
        let mut backoff = PollBackoff::default();
        let mut progress = self.platform.now();
        while !failures.silent {
            let state = self.with(|control| {
                let serviced = control.service(&self.context());
                let returned = control.pages.take_returned();
                let error = control.pages.take_error();
                let idle = control.pages.is_idle();
                if idle {
                    control.pages.request_all_back();
                }
                let done = idle && control.pages.given() == 0;
                (serviced, returned, error, idle, done)
            });
            let Some((serviced, returned, error, idle, done)) = state else {
                return;
            };
            if let Err(error) = serviced {
                failures.record(CloseFailure::Device(error));
            }
            if let Some(SupplyError::Command(error)) = error {
                failures.command(error);
                // The firmware refuses: asking again would only be refused again.
                return;
            }
            if done {
                return;
            }
            let now = self.platform.now();
            if returned > 0 {
                progress = now;
            }
            let waited = now.saturating_sub(progress);
            // A command under way has its own time.
            if idle && waited >= self.config.teardown_timeout {
                failures.first = failures.first.or(Some(CloseFailure::PagesKept { waited }));
                return;
            }
            self.pause(&mut backoff);
        }
    }

    /// Orders a function that does not answer to disable itself. Whether it has: then it no longer reaches memory.
    fn disable_interface(&self, patient: bool) -> bool {
        let read = || self.platform.read_be32(CMDQ_ADDR_L_SZ);
        let is_disabled =
            |register| CommandQueueRegister(register).nic_interface() == NicInterface::Disabled;
        let register = read();
        if register == VANISHED {
            return false;
        }
        if !is_disabled(register) {
            let wanted = CommandQueueRegister(register).with_nic_interface(NicInterface::Disabled);
            self.platform.write_be32(CMDQ_ADDR_L_SZ, wanted.0);
        }
        let deadline = self
            .platform
            .now()
            .saturating_add(self.config.teardown_timeout);
        loop {
            let register = read();
            if register == VANISHED {
                return false;
            }
            if is_disabled(register) {
                return true;
            }
            if !patient || self.platform.now() >= deadline {
                return false;
            }
            self.platform.relax();
        }
    }
}

impl<P: Platform> Drop for Device<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.tear_down(false) {
            log::error!("{error}");
        }
    }
}
