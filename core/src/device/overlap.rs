//! Commands of bring-up that do not depend on each other: all of them are posted, then their answers are taken.
//!
//! The firmware executes what is in different slots in any order. What finds no place in the queue goes when its answer is
//! wanted; in a queue with one slot, which must not stay taken meanwhile, all of them do. So answers are taken in the order in
//! which they were asked for.

use bareverbs_firmware_cmds::command::{Command, EmptyOut};
use bareverbs_firmware_cmds::opcode::Opcode;

use crate::device::in_flight::{InFlight, PollBackoff, SlotClass};
use crate::device::{Device, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;

impl<P: Platform> Device<'_, P> {
    /// Posts a command whose answer [`answer`](Self::answer) takes, if there is a place for it, with `tail_len` bytes after the
    /// fixed part.
    pub(crate) fn ask<C: Command>(
        &self,
        command: &C,
        tail_in: TailIn<'_>,
        tail_len: usize,
    ) -> InFlight {
        let output_len = size_of::<C::Output>() + tail_len;
        self.ask_bytes(C::OPCODE, command.as_bytes(), tail_in, output_len)
    }

    /// Once for all commands, as what follows: for the code's size.
    #[inline(never)]
    fn ask_bytes(
        &self,
        opcode: Opcode,
        fixed: &[u8],
        tail_in: TailIn<'_>,
        output_len: usize,
    ) -> InFlight {
        // The only slot is not left to a command while another one is waited for.
        match self.with(|control| control.queue.has_one_ordinary_slot()) {
            Some(false) => self
                .try_post(SlotClass::Ordinary, opcode, fixed, tail_in, output_len)
                .map_or(InFlight::Idle, |posted| InFlight::Posted(opcode, posted)),
            _ => InFlight::Idle,
        }
    }

    /// Posts a command whose answer says no more than that it was carried out, or executes it.
    pub(crate) fn order<C: Command>(&self, command: &C, tail_in: TailIn<'_>) -> InFlight {
        const { assert!(size_of::<C::Output>() == EmptyOut::SIZE) };
        self.order_bytes(C::OPCODE, command.as_bytes(), tail_in)
    }

    #[inline(never)]
    fn order_bytes(&self, opcode: Opcode, fixed: &[u8], mut tail_in: TailIn<'_>) -> InFlight {
        match self.ask_bytes(opcode, fixed, tail_in.reborrow(), EmptyOut::SIZE) {
            InFlight::Idle => {
                let mut answer = [0; EmptyOut::SIZE];
                let flight = InFlight::Idle;
                let done = self.complete(flight, opcode, fixed, tail_in, &mut answer, &mut []);
                InFlight::Answered(done.map(|()| [0; 4]))
            }
            posted => posted,
        }
    }

    /// Waits for the end of what was ordered.
    #[inline(never)]
    pub(crate) fn carried_out(&self, order: InFlight) -> Result<(), CommandError> {
        self.until(|| self.look_no_output(&order, None))
    }

    /// Waits for commands whose answers are not needed any more, as after an error, so that the device uses no memory of
    /// theirs. A command that is not answered before its deadline keeps its slot.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_commands(&self) {
        let mut backoff = PollBackoff::default();
        // They may need pages.
        while self.poll().is_ok()
            && self.with(|control| control.queue.forget(&self.platform)) == Some(true)
        {
            self.pause(&mut backoff);
        }
    }
}
