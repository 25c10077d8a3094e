//! Timers: a hierarchical wheel whose lists run through the slots, so that starting, stopping and expiring cost the same
//! for 16 and for 100,000 connections.

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

const LEVELS: usize = 5;
/// Bucket number of a slot whose timer has expired.
const DUE: u16 = (LEVELS * 64) as u16;
/// Bucket number of a slot without a timer.
pub(super) const IDLE: u16 = u16::MAX;
/// One tick is 2 to this nanoseconds, about a millisecond: the shortest CM timer is as long.
const TICK_SHIFT: u32 = 20;
/// Ticks that the wheel spans, about 13 days; the longest CM timer is 2.4 hours.
const SPAN: u64 = 1 << (6 * LEVELS);
/// One top bucket less than the span, so that a bucket never holds both this and the next turn of the wheel.
const MAX_AHEAD: u64 = SPAN - (SPAN >> 6) - 1;

/// A slot with a timer: the wheel's fields in it.
pub(super) trait Timed {
    /// When the timer expires.
    fn tick(&mut self) -> &mut u64;
    /// The bucket it is in.
    fn bucket(&mut self) -> &mut u16;
    /// Its neighbours there: the one before, the one after.
    fn links(&mut self) -> (&mut u32, &mut u32);
}

macro_rules! timed {
    ($slot:ty) => {
        impl $crate::engine::wheel::Timed for $slot {
            #[inline]
            fn tick(&mut self) -> &mut u64 {
                &mut self.timer_tick
            }
            #[inline]
            fn bucket(&mut self) -> &mut u16 {
                &mut self.timer_bucket
            }
            #[inline]
            fn links(&mut self) -> (&mut u32, &mut u32) {
                (&mut self.timer_prev, &mut self.timer_next)
            }
        }
    };
}
pub(super) use timed;

#[derive(Debug)]
pub(super) struct Wheel {
    now: u64,
    occupied: [u64; LEVELS],
    heads: [[u32; 64]; LEVELS],
    due: u32,
}

impl Wheel {
    pub(super) const fn new() -> Self {
        Self {
            now: 0,
            occupied: [0; LEVELS],
            heads: [[NIL; 64]; LEVELS],
            due: NIL,
        }
    }

    /// Starts the timer of slot `index`, or moves it. It expires at the first tick at or after `at` nanoseconds.
    pub(super) fn arm<T: Timed>(&mut self, slots: &mut [T], index: u32, at: u64) {
        self.disarm(slots, index);
        let tick = at.div_ceil(1 << TICK_SHIFT).min(self.now + MAX_AHEAD);
        *slots[index as usize].tick() = tick;
        self.insert(slots, index);
    }

    pub(super) fn disarm<T: Timed>(&mut self, slots: &mut [T], index: u32) {
        let (bucket, prev, next) = {
            let slot = &mut slots[index as usize];
            let bucket = core::mem::replace(slot.bucket(), IDLE);
            let (prev, next) = slot.links();
            (bucket, *prev, *next)
        };
        if bucket == IDLE {
            return;
        }
        if next != NIL {
            *slots[next as usize].links().0 = prev;
        }
        if prev != NIL {
            *slots[prev as usize].links().1 = next;
        } else {
            *self.head(bucket) = next;
            if next == NIL && bucket != DUE {
                self.occupied[usize::from(bucket / 64)] &= !(1 << (bucket % 64));
            }
        }
    }

    /// The time in nanoseconds before which nothing needs to be done.
    pub(super) fn next(&self) -> Option<u64> {
        if self.due != NIL {
            return Some(self.now << TICK_SHIFT);
        }
        self.next_bucket().map(|(tick, _)| tick << TICK_SHIFT)
    }

    /// The time that the wheel has reached, in nanoseconds.
    pub(super) fn reached(&self) -> u64 {
        self.now << TICK_SHIFT
    }

    /// Returns `true` if this time was handled already and nothing has fallen due since.
    pub(super) fn is_ahead_of(&self, now: u64) -> bool {
        self.due == NIL && now >> TICK_SHIFT <= self.now
    }

    /// Takes one slot whose timer has expired by `now` nanoseconds.
    #[inline]
    pub(super) fn expire<T: Timed>(&mut self, slots: &mut [T], now: u64) -> Option<u32> {
        let to = now >> TICK_SHIFT;
        // Most calls come within the tick that was processed last.
        if to <= self.now && self.due == NIL {
            return None;
        }
        loop {
            if self.due != NIL {
                let index = self.due;
                self.disarm(slots, index);
                return Some(index);
            }
            match self.next_bucket() {
                Some((tick, bucket)) if tick <= to => {
                    self.now = tick;
                    self.open(slots, bucket);
                }
                _ => {
                    self.now = self.now.max(to);
                    return None;
                }
            }
        }
    }

    fn head(&mut self, bucket: u16) -> &mut u32 {
        if bucket == DUE {
            &mut self.due
        } else {
            &mut self.heads[usize::from(bucket / 64)][usize::from(bucket % 64)]
        }
    }

    fn insert<T: Timed>(&mut self, slots: &mut [T], index: u32) {
        let tick = *slots[index as usize].tick();
        let bucket = if tick <= self.now {
            DUE
        } else {
            // The level is that of the highest digit (base 64) in which the tick differs from now.
            let level = (63 - (tick ^ self.now).leading_zeros()) / 6;
            let level = level.min(LEVELS as u32 - 1);
            let digit = (tick >> (6 * level)) & 63;
            self.occupied[level as usize] |= 1 << digit;
            (level * 64) as u16 + digit as u16
        };
        let head = self.head(bucket);
        let next = core::mem::replace(head, index);
        if next != NIL {
            *slots[next as usize].links().0 = index;
        }
        let slot = &mut slots[index as usize];
        let (before, after) = slot.links();
        (*before, *after) = (NIL, next);
        *slot.bucket() = bucket;
    }

    /// First occupied bucket and the tick at which it begins. Lower levels always begin earlier. Within a level the
    /// digits are ahead of now's, except on the top one, which wraps.
    fn next_bucket(&self) -> Option<(u64, u16)> {
        for level in 0..LEVELS {
            let occupied = self.occupied[level];
            if occupied == 0 {
                continue;
            }
            let shift = 6 * level as u32;
            let digit = (self.now >> shift) & 63;
            let ahead = occupied.rotate_right(digit as u32).trailing_zeros() as u64;
            let bucket = (digit + ahead) & 63;
            let tick = ((self.now >> shift) + ahead) << shift;
            return Some((tick.max(self.now), (level * 64) as u16 + bucket as u16));
        }
        None
    }

    /// Spreads a bucket that has begun over the lower levels; what is due goes to the due list.
    fn open<T: Timed>(&mut self, slots: &mut [T], bucket: u16) {
        let mut index = core::mem::replace(self.head(bucket), NIL);
        self.occupied[usize::from(bucket / 64)] &= !(1 << (bucket % 64));
        while index != NIL {
            let next = *slots[index as usize].links().1;
            self.insert(slots, index);
            index = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::Slot;
    use super::*;

    extern crate std;
    use std::collections::BTreeMap;
    use std::vec;

    /// The wheel against a sorted map, with random arming, moving, stopping and jumps in time.
    #[test]
    fn behaves_like_a_sorted_map() {
        for seed in 0..50u64 {
            let mut state = seed;
            let mut random = move |below: u64| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 33) % below
            };
            let mut slots = vec![Slot::EMPTY; 40];
            let mut wheel = Wheel::new();
            let mut model = BTreeMap::<u32, u64>::new();
            let mut now = random(1 << 40);
            for _ in 0..2000 {
                let index = random(40) as u32;
                match random(4) {
                    0 | 1 => {
                        let scale = random(44);
                        let at = now + random(1 << scale);
                        wheel.arm(&mut slots, index, at);
                        model.insert(index, at);
                    }
                    2 => {
                        wheel.disarm(&mut slots, index);
                        model.remove(&index);
                    }
                    _ => {
                        now += match random(3) {
                            0 => random(1 << 22),
                            1 => random(1 << 36),
                            _ => wheel.next().map_or(0, |next| next.saturating_sub(now)),
                        };
                        while let Some(index) = wheel.expire(&mut slots, now) {
                            let at = model
                                .remove(&index)
                                .unwrap_or_else(|| panic!("seed {seed}: {index} is not armed"));
                            assert!(at <= now, "seed {seed}: {index} expired early");
                        }
                        let tick = 1 << TICK_SHIFT;
                        assert!(
                            model.values().all(|at| *at + tick > now),
                            "seed {seed}: a timer was missed"
                        );
                    }
                }
                let first = model.values().min();
                match (wheel.next(), first) {
                    (None, None) => {}
                    (Some(next), Some(first)) => {
                        assert!(next <= first + (1 << TICK_SHIFT), "seed {seed}")
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
    }
}
