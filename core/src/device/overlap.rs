//! Commands of bring-up that do not depend on each other: all of them are posted, then their answers are taken.
//!
//! The firmware executes what is in different slots in any order. What finds no place in the queue goes when its answer is
//! wanted; in a queue with one slot, which must not stay taken meanwhile, all of them do. So answers are taken in the order in
//! which they were asked for.

use bareverbs_firmware_cmds::command::{Command, EmptyOut};
use bareverbs_firmware_cmds::opcode::Opcode;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::{Device, PollBackoff, Posted};
use crate::firmware::command_queue::{SlotClass, TailIn};
use crate::platform::Platform;
use crate::types::error::CommandError;

/// A command whose answer is taken later; `None` if it was not posted.
#[derive(Clone, Copy)]
pub(crate) struct Asked(Option<Posted>);

impl Asked {
    /// No command.
    pub(crate) const NOTHING: Self = Self(None);
}

/// A command without an answer of its own.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    Posted(Opcode, Posted),
    /// There was no place in the queue, so that it was waited for.
    Done(Result<(), CommandError>),
}

impl<P: Platform> Device<'_, P> {
    /// Posts a command whose answer [`answer`](Self::answer) takes, with `tail_len` bytes after the fixed part.
    pub(crate) fn ask<C: Command>(
        &self,
        command: &C,
        tail_in: TailIn<'_>,
        tail_len: usize,
    ) -> Asked {
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
    ) -> Asked {
        // The only slot is not left to a command while another one is waited for.
        let alone = self.with(|control| control.queue.has_one_ordinary_slot());
        if alone != Some(false) {
            return Asked(None);
        }
        let posted = self.try_post(SlotClass::Ordinary, opcode, fixed, tail_in, output_len);
        Asked(posted.ok())
    }

    /// Waits for the answer of a command that was posted, or executes it now. `tail` is as long as was said then.
    pub(crate) fn answer<C: Command>(
        &self,
        asked: Asked,
        command: &C,
        tail_in: TailIn<'_>,
        tail: &mut [u8],
    ) -> Result<C::Output, CommandError> {
        let mut output = C::Output::new_zeroed();
        let (fixed_in, fixed) = (command.as_bytes(), output.as_mut_bytes());
        self.answer_bytes(asked, C::OPCODE, fixed_in, tail_in, fixed, tail)?;
        Ok(output)
    }

    #[inline(never)]
    fn answer_bytes(
        &self,
        asked: Asked,
        opcode: Opcode,
        fixed_in: &[u8],
        tail_in: TailIn<'_>,
        fixed: &mut [u8],
        tail: &mut [u8],
    ) -> Result<(), CommandError> {
        match asked.0 {
            Some(posted) => self.wait_for_posted(opcode, posted, fixed, tail),
            None => self.execute_bytes(opcode, fixed_in, tail_in, fixed, tail),
        }
    }

    /// Posts a command whose answer says no more than that it was carried out, or executes it.
    pub(crate) fn order<C: Command>(&self, command: &C, tail_in: TailIn<'_>) -> Order {
        const { assert!(size_of::<C::Output>() == EmptyOut::SIZE) };
        self.order_bytes(C::OPCODE, command.as_bytes(), tail_in)
    }

    #[inline(never)]
    fn order_bytes(&self, opcode: Opcode, fixed: &[u8], mut tail_in: TailIn<'_>) -> Order {
        match self.ask_bytes(opcode, fixed, tail_in.reborrow(), EmptyOut::SIZE) {
            Asked(Some(posted)) => Order::Posted(opcode, posted),
            Asked(None) => {
                let mut answer = [0; EmptyOut::SIZE];
                Order::Done(self.execute_bytes(opcode, fixed, tail_in, &mut answer, &mut []))
            }
        }
    }

    /// Waits for the end of what was ordered.
    #[inline(never)]
    pub(crate) fn carried_out(&self, order: Order) -> Result<(), CommandError> {
        match order {
            Order::Posted(opcode, posted) => {
                let mut answer = [0; EmptyOut::SIZE];
                self.wait_for_posted(opcode, posted, &mut answer, &mut [])
            }
            Order::Done(outcome) => outcome,
        }
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
