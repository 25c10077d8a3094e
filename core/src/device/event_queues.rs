//! Creating the event queues, at the end of bring-up.

use bareverbs_firmware_cmds::eq::CreateEqIn;
use bareverbs_firmware_cmds::event::EventType;
use bareverbs_firmware_cmds::numbers::Eqn;

use crate::device::Device;
use crate::device::in_flight::InFlight;
use crate::device::open::AtStep;
use crate::firmware::control::MAX_EQS;
use crate::firmware::eq::{self, EventQueue};
use crate::firmware::mailbox::TailIn;
use crate::platform::Platform;
use crate::types::error::{OpenError, OpenFailure, OpenStep};

impl<P: Platform> Device<'_, P> {
    /// The first event queue takes everything, completions included if there are no others.
    pub(super) fn create_eqs(&mut self) -> Result<(), OpenError> {
        let completions = match usize::from(self.config.completion_event_queues) {
            wanted if self.config.interrupts && self.platform.interrupt_vectors() > 0 => {
                wanted.min(usize::from(self.platform.interrupt_vectors() - 1))
            }
            wanted => wanted,
        };
        let limit = (self.capabilities.max_eq() as usize).min(MAX_EQS);
        let completions = completions.min(limit.saturating_sub(1)) as u16;
        // What there is, for those who ask which vector is whose.
        self.config.completion_event_queues = completions;
        let cqs = self.tables.cqs.len() as u32;
        // Every CQ can have one completion event and one error event in a queue.
        let entries = self
            .config
            .event_queue_entries
            .max(cqs.saturating_mul(2).saturating_add(eq::RESERVE));
        let limit = self.capabilities.hca.log_max_eq_sz().clamp(8, 24);
        let log_size = (entries
            .checked_next_power_of_two()
            .map_or(31, u32::trailing_zeros) as u8)
            .min(limit);
        let events = if self.config.interrupts && self.platform.interrupt_vectors() > 0 {
            eq::EVENT_MASK
        } else {
            // A caller that polls looks at the slots anyway, and would only read past the events.
            eq::EVENT_MASK & !EventType::Command.mask()
        };
        let events = if self.capabilities.hca.page_request_disable() {
            events & !EventType::PageRequest.mask()
        } else {
            events
        };
        let events = if self.capabilities.hca.temp_warn_event() {
            events | EventType::TemperatureWarning.mask()
        } else {
            events
        };
        let events = if self.capabilities.hca.general_notification_event() {
            events | EventType::General.mask()
        } else {
            events
        };
        let events = if self.capabilities.hca.dct() {
            events | EventType::DctKeyViolation.mask() | EventType::DctDrained.mask()
        } else {
            events
        };
        let first = self.begin_eq(log_size, 0, events)?;
        let first = self.end_eq(first)?;
        let roce = self.order_roce();
        if completions == 0 {
            self.completion_eqs.extend(Some(first));
        }
        let mut begun = heapless::Vec::<_, MAX_EQS>::new();
        let mut outcome = Ok(());
        for vector in 1..=completions {
            match self.begin_eq(log_size, vector, 0) {
                Ok(eq) => drop(begun.push(Some(eq))),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        // Taken one by one: they are large for a small stack.
        for eq in begun.iter_mut().filter_map(Option::take) {
            match self.end_eq(eq) {
                Ok(eqn) => self.completion_eqs.extend(Some(eqn)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        if let Some(roce) = roce {
            let enabled = self.carried_out(roce).at(OpenStep::EnableRoce);
            outcome = outcome.and(enabled);
        }
        outcome
    }

    /// Has the device create an event queue.
    fn begin_eq(&self, log_size: u8, vector: u16, mask: u64) -> Result<BegunEq, OpenError> {
        let step = OpenStep::CreateEq;
        let interrupts = self.config.interrupts && self.platform.interrupt_vectors() > 0;
        let vector = if interrupts { vector } else { 0 };
        let eq = EventQueue::new(&self.platform, log_size, self.uar, vector, interrupts).map_err(
            |error| {
                let failure = OpenFailure::Memory(error);
                OpenError { step, failure }
            },
        )?;
        let create = create_eq(&eq, mask);
        let mut page = |index| eq.page_iova(index);
        let tail = TailIn::Qwords(eq.pages(), &mut page);
        let asked = self.ask(&create, tail, 0);
        Ok((eq, mask, asked))
    }

    /// Takes the answer.
    fn end_eq(&self, (mut eq, mask, asked): BegunEq) -> Result<Eqn, OpenError> {
        let create = create_eq(&eq, mask);
        let mut page = |index| eq.page_iova(index);
        let tail = TailIn::Qwords(eq.pages(), &mut page);
        match self.answer(asked, &create, tail, &mut []) {
            Ok(answer) => {
                let eqn = Eqn(answer.eq_number());
                eq.created(&self.platform, eqn);
                self.with(|control| {
                    if let Err(eq) = control.eqs.push(eq) {
                        control.quarantine(eq.into_memory());
                    }
                });
                Ok(eqn)
            }
            Err(error) => {
                let memory = eq.into_memory();
                if error.may_still_happen() {
                    self.quarantine(memory);
                } else {
                    memory.free(&self.platform);
                }
                Err(error).at(OpenStep::CreateEq)
            }
        }
    }
}

/// An event queue on its way, and which events it takes.
type BegunEq = (EventQueue, u64, InFlight);

/// The command without its pages.
fn create_eq(eq: &EventQueue, mask: u64) -> CreateEqIn {
    let mut create = CreateEqIn::new();
    eq.describe(create.eq_context_entry_mut());
    create.event_bitmask_mut()[..8].copy_from_slice(&mask.to_be_bytes());
    create
}
