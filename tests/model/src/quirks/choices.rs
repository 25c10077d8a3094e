//! The device's choices: when it does what, how often, and in which order.

use crate::bus::io::Io;
use crate::device::{Device, Stage};
use crate::objects::eq::event;
use crate::quirks::state::LateEntry;
use core::time::Duration;

impl Device {
    /// When an entry or an interrupt that is late is due.
    pub(crate) fn late_deadline(&self) -> Option<Duration> {
        if !self.quirk_state.any {
            return None;
        }
        let pages =
            (self.asks_at_random() && !self.asks_already()).then_some(self.quirk_state.next_pages);
        self.quirk_state
            .next_deadline()
            .into_iter()
            .chain(pages)
            .min()
    }

    /// Until when the work queues rest; the time is now if they do not.
    pub(crate) fn rests_until(&self) -> Duration {
        self.quirk_state.rests_until.max(self.now)
    }

    /// Returns `true` if the work queues rest now.
    pub(crate) fn rests(&self) -> bool {
        self.quirk_state.rests_until > self.now
    }

    /// A burst of work is over.
    pub(crate) fn rest(&mut self) {
        let most = self.config.quirks.rest;
        if !most.is_zero() {
            self.quirk_state.rests_until = self.now + self.quirk_state.delay(most);
        }
    }

    /// The length of the next queue's turn, and the number of turns of others that come first.
    pub(crate) fn turn(&mut self, usual: usize, waiting: usize) -> (usize, usize) {
        if !self.config.quirks.any_turn {
            return (usual, 0);
        }
        let budget = 1 + self.quirk_state.rng.below(usual as u32) as usize;
        (budget, self.quirk_state.rng.below(waiting as u32) as usize)
    }

    /// The number of pages that are given back when the host takes so many.
    pub(crate) fn returns(&mut self, count: usize) -> usize {
        if !self.config.quirks.keeps_pages || count == 0 {
            return count;
        }
        let quirk_state = &mut self.quirk_state;
        if quirk_state.rng.chance(250) {
            return 0;
        }
        1 + quirk_state
            .rng
            .below(u32::try_from(count).unwrap_or(u32::MAX)) as usize
    }

    /// Writes an entry into an event queue, now or later. Returns whether that is done.
    pub(crate) fn put_off(&mut self, eqn: u32, kind: u8, sub: u8, data: &[u8; 28]) -> bool {
        let most = self.config.quirks.event_delay;
        if most.is_zero() {
            return false;
        }
        let earliest = self.quirk_state.late_entries.back().map(|entry| entry.at);
        let at = (self.now + self.quirk_state.delay(most)).max(earliest.unwrap_or_default());
        if at <= self.now && earliest.is_none() {
            return false;
        }
        self.quirk_state.late_entries.push_back(LateEntry {
            at,
            eqn,
            kind,
            sub,
            data: *data,
        });
        true
    }

    /// An object is going to be destroyed: entries about it that are late may be written first, or come after it.
    pub(crate) fn catch_up(&mut self, io: &mut Io<'_>) {
        if !self.quirk_state.late_entries.is_empty() && self.quirk_state.rng.chance(500) {
            while let Some(entry) = self.quirk_state.late_entries.pop_front() {
                self.write_event(io, entry.eqn, entry.kind, entry.sub, &entry.data);
            }
        }
    }

    /// All objects are gone, and what would have been said about them.
    pub(crate) fn clear_late(&mut self) {
        self.quirk_state.late_entries.clear();
    }

    /// Raises an interrupt: once or twice, now or later.
    pub(crate) fn raise(&mut self, io: &mut Io<'_>, vector: u16) {
        if !self.quirk_state.any {
            return io.interrupt(vector);
        }
        let quirks = self.config.quirks;
        let times = 1 + u32::from(
            quirks.repeated_interrupts > 0
                && self
                    .quirk_state
                    .rng
                    .chance(u32::from(quirks.repeated_interrupts)),
        );
        for _ in 0..times {
            let at = self.now + self.quirk_state.delay(quirks.interrupt_delay);
            if at <= self.now {
                io.interrupt(vector);
            } else {
                let late = &mut self.quirk_state.late_interrupts;
                let place = late.partition_point(|&(other, _)| other <= at);
                late.insert(place, (at, vector));
            }
        }
    }

    /// Returns `true` if a delayed entry, interrupt or page request is due.
    pub(crate) fn quirk_is_due(&self) -> bool {
        self.late_deadline().is_some_and(|at| at <= self.now)
    }

    /// Does what is due.
    pub(crate) fn run_quirks(&mut self, io: &mut Io<'_>) {
        if !self.quirk_state.any {
            return;
        }
        let now = self.now;
        while let Some(entry) = self
            .quirk_state
            .late_entries
            .pop_front_if(|entry| entry.at <= now)
        {
            self.write_event(io, entry.eqn, entry.kind, entry.sub, &entry.data);
        }
        while let Some((_, vector)) = self
            .quirk_state
            .late_interrupts
            .pop_front_if(|late| late.0 <= now)
        {
            io.interrupt(vector);
        }
        if self.asks_at_random() && !self.asks_already() && self.quirk_state.next_pages <= now {
            self.ask_at_random(io);
        }
    }

    fn asks_at_random(&self) -> bool {
        !self.config.quirks.page_period.is_zero()
            && self.config.quirks.page_most > 0
            && self.stage == Stage::Initialized
            && !self.config.is_virtual()
            && self.eq_for(event::PAGE_REQUEST).is_some()
    }

    fn asks_already(&self) -> bool {
        self.pages.asked != 0 || self.pages.appetite > 0
    }

    /// Asks for pages, offers some back, or makes the next object wait for some.
    fn ask_at_random(&mut self, io: &mut Io<'_>) {
        let quirks = self.config.quirks;
        let rng = &mut self.quirk_state.rng;
        let period = quirks
            .page_period
            .mul_f64(f64::from(1 + rng.below(1000)) / 1000.0);
        self.quirk_state.next_pages = self.now + period;
        let pages = 1 + rng.below(u32::from(quirks.page_most));
        // It never holds much more than it needs.
        let plenty = self.pages.idle() > 4 * u32::from(quirks.page_most);
        let choice = if plenty { 0 } else { rng.below(3) };
        match choice {
            0 => {
                self.pages.asked = -(pages as i32);
                self.page_event(io, -(pages as i32));
            }
            1 => {
                self.pages.asked = pages as i32;
                self.page_event(io, pages as i32);
            }
            _ if self.config.page_chunk > 0 => self.pages.appetite = pages,
            _ => {}
        }
    }
}
