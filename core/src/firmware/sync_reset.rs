//! The answer to a request for a reset of the firmware, in the register MFRL: `mlx5_sync_reset_request_event` of Linux's driver.

use bareverbs_firmware_cmds::event::SyncReset;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::register::{AccessRegisterIn, AccessRegisterOut, MfrlReg};
use bareverbs_firmware_cmds::values::{AccessRegister, RegisterId, ResetResponse};
use zerocopy::{FromZeros, IntoBytes};

use crate::firmware::command_queue::{PostError, RecordedQueue, SlotClass, Ticket};
use crate::firmware::mailbox::TailIn;
use crate::platform::Platform;
use crate::types::error::CommandFailure;

/// Bit 3 of `reset_level`: the driver of each function restarts, and the PCI link.
const LEVEL_3: u8 = 1 << 3;

/// Answers requests, without anyone waiting.
#[derive(Debug)]
pub(crate) struct ResetAnswer {
    response: ResetResponse,
    /// A request has no answer yet.
    due: bool,
    in_flight: Option<Ticket>,
}

impl ResetAnswer {
    pub(crate) fn new(allow: bool) -> Self {
        Self {
            response: match allow {
                true => ResetResponse::Acknowledge,
                false => ResetResponse::Refuse,
            },
            due: false,
            in_flight: None,
        }
    }

    /// Notes the state that the firmware reports.
    pub(crate) fn event(&mut self, state: SyncReset) {
        self.due = match state {
            SyncReset::Requested => true,
            SyncReset::Aborted => false,
            _ => self.due,
        };
    }

    /// Posts the answer that is due, and looks whether the firmware has taken it. Never waits.
    pub(crate) fn step<P: Platform>(&mut self, platform: &P, queue: &mut RecordedQueue<'_>) {
        if self.due && self.in_flight.is_none() {
            self.post(platform, queue);
        }
        if let Some(ticket) = self.in_flight {
            self.finish(platform, queue, ticket);
        }
    }

    #[cold]
    fn post<P: Platform>(&mut self, platform: &P, queue: &mut RecordedQueue<'_>) {
        let mut write = AccessRegisterIn::new();
        write
            .set_op_mod(AccessRegister::Write.number())
            .set_register_id(RegisterId::Mfrl.number());
        let mut register = MfrlReg::ZERO;
        register
            .set_reset_level(LEVEL_3)
            .set_pci_sync_for_fw_update_resp(self.response.number());
        let posted = queue.post(
            platform,
            SlotClass::Begun,
            Opcode::AccessRegister,
            write.as_bytes(),
            TailIn::Bytes(&register.0),
            AccessRegisterOut::SIZE + MfrlReg::SIZE,
        );
        match posted {
            Ok(ticket) => self.in_flight = Some(ticket),
            // The next step tries again.
            Err(PostError::Full) => return,
            Err(PostError::Failed(failure)) => self.failed(failure),
        }
        self.due = false;
    }

    #[cold]
    fn finish<P: Platform>(&mut self, platform: &P, queue: &mut RecordedQueue<'_>, ticket: Ticket) {
        let (mut fixed, mut tail) = (AccessRegisterOut::new_zeroed(), MfrlReg::ZERO);
        let Some(result) = queue.finish(platform, ticket, fixed.as_mut_bytes(), &mut tail.0) else {
            return;
        };
        self.in_flight = None;
        match result {
            Ok(()) => log::warn!("the answer to it: {}", self.response),
            Err(failure) => self.failed(failure),
        }
    }

    fn failed(&self, failure: CommandFailure) {
        log::warn!("the answer to it, {}, failed: {failure}", self.response);
    }
}
