//! The command queue's state: where it lies, and what each slot is doing.

use crate::config::Config;
use core::time::Duration;

/// The state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Idle,
    /// Rung, to be executed at this time.
    Pending(Duration),
    /// Waits for the host to give pages.
    NeedsPages,
    /// Never answered, by a fault.
    Lost,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    pub(crate) address: u64,
    /// The time until which the registers give back the address before this one, and that address.
    former: (Duration, u64),
    /// High half of the address, until the low half comes.
    pub(crate) latch: u32,
    programmed: bool,
    pub(crate) slots: Vec<Slot>,
    /// A bit per pending slot, so that the other slots need not be read to find the device's next work.
    pending: u32,
    /// Delay faults that were applied already, so that the delayed command is not struck again.
    pub(crate) delayed: u32,
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl CommandQueue {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            address: 0,
            former: (Duration::ZERO, 0),
            latch: 0,
            programmed: false,
            slots: vec![Slot::Idle; 1 << config.log_cmdq_size.min(5)],
            pending: 0,
            delayed: 0,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// The address as the registers give it back.
    pub(crate) fn shown_address(&self, now: Duration) -> u64 {
        let (until, former) = self.former;
        if now < until { former } else { self.address }
    }

    /// The driver says where the queue lies; the registers give that back from `latched` on.
    pub(crate) fn program(&mut self, address: u64, now: Duration, latched: Duration) {
        self.former = (latched, self.shown_address(now));
        if self.slots.iter().any(|slot| *slot != Slot::Idle) {
            log::warn!("the command queue moves while commands are outstanding");
        }
        self.clear();
        self.address = address;
        self.programmed = true;
    }

    /// Nothing is answered any more.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(Slot::Idle);
        self.pending = 0;
        self.delayed = 0;
        self.programmed = false;
    }

    pub(crate) fn programmed(&self) -> bool {
        self.programmed
    }

    /// The doorbell: a bit per slot.
    pub(crate) fn ring(&mut self, slots: u32, now: Duration) {
        if !self.programmed {
            log::warn!("command doorbell {slots:#x} before the queue has an address");
            return;
        }
        let mut rung = slots;
        while rung != 0 {
            let number = rung.trailing_zeros() as usize;
            rung &= rung - 1;
            match self.slots.get(number) {
                None => {}
                Some(Slot::Idle) => self.set(number, Slot::Pending(now)),
                Some(slot) => log::warn!("command slot {number} rung again while {slot:?}"),
            }
        }
    }

    /// The host gave pages: commands that waited for them are due.
    pub(crate) fn feed(&mut self, now: Duration) {
        for number in 0..self.slots.len() {
            if self.slots[number] == Slot::NeedsPages {
                self.set(number, Slot::Pending(now));
            }
        }
    }

    pub(crate) fn any_pending(&self) -> bool {
        self.pending != 0
    }

    pub(crate) fn set(&mut self, number: usize, slot: Slot) {
        let bit = 1 << number;
        self.slots[number] = slot;
        if matches!(slot, Slot::Pending(_)) {
            self.pending |= bit;
        } else {
            self.pending &= !bit;
        }
    }

    /// When the pending slot with the highest number below `limit` is due.
    pub(crate) fn pending_below(&self, limit: usize) -> Option<(usize, Duration)> {
        let below = self.pending & (1u64 << limit).wrapping_sub(1) as u32;
        let number = below.checked_ilog2()? as usize;
        match self.slots[number] {
            Slot::Pending(at) => Some((number, at)),
            _ => None,
        }
    }

    /// When the next command is due.
    pub(crate) fn next_deadline(&self, command_time: Duration) -> Option<Duration> {
        let mut first = None;
        let mut limit = self.slots.len();
        while let Some((number, at)) = self.pending_below(limit) {
            first = Some(first.map_or(at, |first: Duration| first.min(at)));
            limit = number;
        }
        first.map(|at| at + command_time)
    }
}
