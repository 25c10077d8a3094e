//! The flow of a stream: what may be sent, and what may come: credits, targets, and the two rings.

use std::collections::VecDeque;

use crate::rsocket::wire::{TARGETS, Target};

/// Below this much room in the staging ring a stream does not call itself writable.
pub(super) const LOW_WATER: u32 = 2048;
/// The most bytes of one data message.
const LONGEST: u32 = 64 << 10;

/// The direction out: credits and targets of the other end, and the staging ring.
#[derive(Debug)]
pub(super) struct Outbound {
    /// Data messages that were sent, modulo 2^16.
    sent: u16,
    /// The number at which sending has to stop.
    limit: u16,
    targets: [Target; TARGETS],
    current: usize,
    /// Bytes of the staging ring, where the next ones go, and how many are in use.
    size: u32,
    head: u32,
    used: u32,
    /// This many bytes before `head` wait for a credit. The current target has room for them.
    waiting: u32,
    /// Data work requests that may still be posted, and that may be at all.
    room: u32,
    rooms: u32,
}

/// Where bytes go next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of bytes.
    pub(super) length: u32,
    /// Where they wait in the staging ring; `None` if they go inline.
    pub(super) staged: Option<u32>,
    /// They are written to this target; `None` if they wait for a credit.
    pub(super) to: Option<Target>,
}

impl Outbound {
    /// With a staging ring of `size` bytes, for `room` data work requests at once.
    pub(super) fn new(size: u32, room: u32) -> Self {
        Self {
            sent: 0,
            limit: 0,
            targets: [Target::default(); TARGETS],
            current: 0,
            size,
            head: 0,
            used: 0,
            waiting: 0,
            room,
            rooms: room,
        }
    }

    /// Returns true if no data work request is under way, and nothing waits for a credit.
    pub(super) fn is_idle(&self) -> bool {
        self.room == self.rooms && !self.is_waiting()
    }

    /// Returns true if bytes wait for a credit.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Takes the other end's first credits and target.
    pub(super) fn begin(&mut self, credits: u16, first: Target) {
        self.limit = credits;
        self.targets[0] = first;
    }

    /// More data messages may be sent.
    pub(super) fn extend(&mut self, limit: u16) {
        self.limit = limit;
    }

    /// Returns `true` if the entry of the list of targets is used up, so that what the other end has written there is new.
    pub(super) fn wants_target(&self, index: usize) -> bool {
        self.targets[index].length == 0
    }

    /// The other end has written an entry of the list of targets.
    pub(super) fn set_target(&mut self, index: usize, target: Target) {
        self.targets[index] = target;
    }

    /// Returns `true` if anything can be posted that counts as data.
    pub(super) fn has_credit(&self) -> bool {
        self.room > 0 && self.sent != self.limit
    }

    /// Returns true if data can be sent, or wait for a credit: small messages end where their bytes have no room at the
    /// other end, not where there have been as many as it has receives.
    pub(super) fn can_send(&self) -> bool {
        self.targets[self.current].length > self.waiting && self.has_staging()
    }

    /// Returns `true` if there is room for bytes that no target is needed for.
    pub(super) fn has_staging(&self) -> bool {
        self.room > 0 && self.size - self.used >= LOW_WATER.min(self.size / 2)
    }

    /// Takes room for up to `left` bytes, which go inline up to `inline` if there is a credit. `None` if nothing can be sent now.
    pub(super) fn take(&mut self, left: usize, inline: u32) -> Option<Piece> {
        if !self.can_send() {
            return None;
        }
        let most = self.targets[self.current].length - self.waiting;
        if self.is_waiting() || !self.has_credit() {
            let (length, at) = self.reserve(left, most)?;
            self.waiting += length;
            return Some(Piece {
                length,
                staged: Some(at),
                to: None,
            });
        }
        let (length, staged) = self.stage(left, most, inline)?;
        Some(self.message(length, staged))
    }

    /// Takes bytes that have waited and lie together, if there is a credit.
    pub(super) fn take_waiting(&mut self) -> Option<Piece> {
        if !self.is_waiting() || !self.has_credit() {
            return None;
        }
        let at = (self.size + self.head - self.waiting) % self.size;
        let length = self.waiting.min(LONGEST).min(self.size - at);
        self.waiting -= length;
        self.room -= 1;
        Some(self.message(length, Some(at)))
    }

    /// Takes a credit for bytes, and their place in the current target.
    fn message(&mut self, length: u32, staged: Option<u32>) -> Piece {
        self.sent = self.sent.wrapping_add(1);
        let entry = &mut self.targets[self.current];
        let to = Some(*entry);
        entry.addr = entry.addr.wrapping_add(length.into());
        entry.length -= length;
        if entry.length == 0 {
            self.current = (self.current + 1) % TARGETS;
        }
        Piece { length, staged, to }
    }

    /// Takes room as [`take`](Self::take) does, for a write to a mapped buffer with `most` bytes, which needs no credit.
    /// Returns how many bytes it is for, and where they wait; it takes none before what waits for a credit is on its way.
    pub(super) fn take_direct(
        &mut self,
        left: usize,
        most: u32,
        inline: u32,
    ) -> Option<(u32, Option<u32>)> {
        if self.is_waiting() || !self.has_staging() {
            return None;
        }
        self.stage(left, most, inline)
    }

    fn stage(&mut self, left: usize, most: u32, inline: u32) -> Option<(u32, Option<u32>)> {
        let length = u32::try_from(left).unwrap_or(u32::MAX).min(most);
        let taken = if length <= inline {
            (length, None)
        } else {
            let (length, at) = self.reserve(left, most)?;
            (length, Some(at))
        };
        self.room -= 1;
        Some(taken)
    }

    /// Takes a part of the staging ring: how many bytes, and where.
    fn reserve(&mut self, left: usize, most: u32) -> Option<(u32, u32)> {
        let length = u32::try_from(left).unwrap_or(u32::MAX);
        let length = length.min(most).min(LONGEST);
        let length = length.min(self.size - self.used).min(self.size - self.head);
        if length == 0 {
            return None;
        }
        let at = self.head;
        self.head = (self.head + length) % self.size;
        self.used += length;
        Some((length, at))
    }

    /// Takes a credit for a message that counts as data but carries none.
    pub(super) fn take_credit(&mut self) -> bool {
        let takes = self.has_credit();
        if takes {
            self.sent = self.sent.wrapping_add(1);
            self.room -= 1;
        }
        takes
    }

    /// A data work request is done, of which so many bytes were in the staging ring. They are done in order.
    pub(super) fn done(&mut self, staged: u32) {
        self.used = self.used.saturating_sub(staged);
        self.room += 1;
    }
}

/// A violation of the protocol by the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Violation {
    /// More bytes than the targets have that it was given.
    Bytes,
    /// More messages than its credits.
    Credits,
}

/// The direction in: the receive ring, whose halves are the targets of the other end.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Bytes of the ring; an even number.
    size: u32,
    /// Data messages that can be outstanding.
    credits: u16,
    /// Lengths of messages that were not read yet, the first one without what was.
    messages: VecDeque<u32>,
    unread: u64,
    /// Where reading goes on.
    offset: u32,
    /// Bytes that the other end may still write.
    granted: u64,
    /// Bytes that were read since a half was given back, and where the half begins that is next.
    free: u32,
    next_half: u32,
    /// Messages that were read, modulo 2^16, and at which number credits are due.
    read: u16,
    due: u16,
}

/// Credits and target to send to the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Update {
    /// Up to which number it may send.
    pub(super) limit: u16,
    /// A half of the ring that is free: offset and length.
    pub(super) half: Option<(u32, u32)>,
}

impl Inbound {
    /// With a ring of `size` bytes, of which the first half is the first target.
    pub(super) fn new(size: u32, credits: u16) -> Self {
        Self {
            size,
            credits,
            messages: VecDeque::new(),
            unread: 0,
            offset: 0,
            granted: (size / 2).into(),
            free: size / 2,
            next_half: size / 2,
            read: 0,
            due: credits / 2,
        }
    }

    /// Data has come.
    pub(super) fn arrived(&mut self, length: u32) -> Result<(), Violation> {
        if self.messages.len() >= usize::from(self.credits) {
            return Err(Violation::Credits);
        }
        self.granted = self
            .granted
            .checked_sub(length.into())
            .ok_or(Violation::Bytes)?;
        if length == 0 {
            self.message_read();
        } else {
            self.messages.push_back(length);
            self.unread += u64::from(length);
        }
        Ok(())
    }

    /// A message was read, or counts as data and is not to be read.
    pub(super) fn message_read(&mut self) {
        self.read = self.read.wrapping_add(1);
    }

    /// Bytes that can be read.
    pub(super) fn unread(&self) -> usize {
        usize::try_from(self.unread).unwrap_or(usize::MAX)
    }

    /// Where the next bytes lie that can be read at once, `skip` bytes further on: offset and length.
    pub(super) fn next(&self, skip: usize) -> Option<(usize, usize)> {
        let left = self.unread().checked_sub(skip).filter(|left| *left > 0)?;
        let (size, offset) = (self.size as usize, self.offset as usize);
        let at = (offset + skip) % size;
        Some((at, left.min(size - at)))
    }

    /// So many bytes were read.
    pub(super) fn consume(&mut self, length: usize) {
        let mut left = u32::try_from(length.min(self.unread())).unwrap_or(u32::MAX);
        self.unread -= u64::from(left);
        self.offset = (self.offset + left) % self.size;
        self.free += left;
        while left > 0 {
            let Some(first) = self.messages.front_mut() else {
                return;
            };
            if *first > left {
                *first -= left;
                return;
            }
            left -= *first;
            self.messages.pop_front();
            self.message_read();
        }
    }

    /// Returns `true` if the other end has to be told something.
    pub(super) fn wants_update(&self) -> bool {
        self.free >= self.size / 2 || self.read.wrapping_sub(self.due) < 1 << 15
    }

    /// Takes the credits and the target to send to the other end, which count as sent afterwards.
    pub(super) fn update(&mut self) -> Update {
        let half = self.size / 2;
        self.due = self.read.wrapping_add(self.credits / 2);
        let given = self.free >= half;
        let at = self.next_half;
        if given {
            self.free -= half;
            self.granted += u64::from(half);
            self.next_half = if at == 0 { half } else { 0 };
        }
        Update {
            limit: self.read.wrapping_add(self.credits),
            half: given.then_some((at, half)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    /// A stream of random pieces through both directions' accounting: every byte lands where it is read from.
    #[test]
    fn no_byte_is_lost_or_overwritten() {
        let seeds: Vec<u64> = match std::env::var("BAREVERBS_TEST_SEED") {
            Ok(seed) => vec![seed.parse().unwrap()],
            Err(_) => (1..=40)
                .map(|number| u64::wrapping_mul(number, 0x9e37_79b9_7f4a_7c15))
                .collect(),
        };
        for first in seeds {
            println!("BAREVERBS_TEST_SEED={first}");
            let seed = &mut first.clone();
            let ring_size = 2 * (1 + random(seed) % 3000) as u32;
            let credits = (2 + random(seed) % 40) as u16;
            let staging = (64 + random(seed) % 5000) as u32;
            let inline = (random(seed) % 64) as u32;
            let mut outbound = Outbound::new(staging, 1 + (random(seed) % 20) as u32);
            let mut inbound = Inbound::new(ring_size, credits);
            let mut ring = vec![0_u8; ring_size as usize];
            let target = |at: u32, length: u32| Target {
                addr: at.into(),
                key: 0,
                length,
            };
            outbound.begin(credits, target(0, ring_size / 2));
            let mut entry = 1;
            let (mut written, mut read) = (0_u64, 0_u64);
            let mut in_flight = VecDeque::new();
            // What waits for credits, in the place where it is staged.
            let mut staged = vec![0_u8; staging as usize];
            while read < 100_000 {
                match random(seed) % 5 {
                    0 => {
                        let left = 1 + random(seed) as usize % 4000;
                        if let Some(piece) = outbound.take(left, inline) {
                            let length = piece.length as usize;
                            let bytes =
                                Vec::from_iter((0..length).map(|at| (written + at as u64) as u8));
                            written += u64::from(piece.length);
                            match piece.to {
                                Some(to) => {
                                    let at = to.addr as usize;
                                    ring[at..at + length].copy_from_slice(&bytes);
                                    inbound.arrived(piece.length).unwrap();
                                    in_flight.push_back(piece.staged.map_or(0, |_| piece.length));
                                }
                                None => {
                                    let at = piece.staged.unwrap() as usize;
                                    staged[at..at + length].copy_from_slice(&bytes);
                                }
                            }
                        }
                    }
                    4 => {
                        if let Some(piece) = outbound.take_waiting() {
                            let length = piece.length as usize;
                            let from = piece.staged.unwrap() as usize;
                            let at = piece.to.unwrap().addr as usize;
                            ring[at..at + length].copy_from_slice(&staged[from..from + length]);
                            inbound.arrived(piece.length).unwrap();
                            in_flight.push_back(piece.length);
                        }
                    }
                    1 => {
                        if let Some(staged) = in_flight.pop_front() {
                            outbound.done(staged);
                        }
                    }
                    2 => {
                        if let Some((at, length)) = inbound.next(0) {
                            let length = 1 + random(seed) as usize % length;
                            for byte in &ring[at..at + length] {
                                assert_eq!(*byte, read as u8, "byte {read}");
                                read += 1;
                            }
                            inbound.consume(length);
                        }
                    }
                    _ => {
                        if inbound.wants_update() {
                            let update = inbound.update();
                            outbound.extend(update.limit);
                            if let Some((at, length)) = update.half {
                                assert!(outbound.wants_target(entry));
                                outbound.set_target(entry, target(at, length));
                                entry = (entry + 1) % TARGETS;
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn more_than_was_granted_is_a_violation() {
        let mut inbound = Inbound::new(100, 4);
        assert_eq!(inbound.arrived(51), Err(Violation::Bytes));
        assert_eq!(inbound.arrived(50), Ok(()));
        assert_eq!(inbound.arrived(1), Err(Violation::Bytes));
        // The second half was free from the beginning, and is granted by the first update.
        assert!(inbound.wants_update());
        let update = inbound.update();
        assert_eq!(
            update,
            Update {
                limit: 4,
                half: Some((50, 50))
            }
        );
        assert!(!inbound.wants_update());
        assert_eq!(inbound.arrived(u32::MAX), Err(Violation::Bytes));
        for _ in 0..3 {
            assert_eq!(inbound.arrived(1), Ok(()));
        }
        assert_eq!(inbound.arrived(1), Err(Violation::Credits));
        assert_eq!(inbound.unread(), 53);
    }

    #[test]
    fn messages_without_bytes_cost_credits_only() {
        let mut inbound = Inbound::new(100, 4);
        inbound.update();
        for _ in 0..2 {
            assert!(!inbound.wants_update());
            inbound.arrived(0).unwrap();
        }
        assert_eq!(inbound.next(0), None);
        assert!(inbound.wants_update());
        assert_eq!(
            inbound.update(),
            Update {
                limit: 6,
                half: None
            }
        );
    }

    #[test]
    fn bytes_without_a_credit_wait_as_long_as_the_target_has_room() {
        let mut outbound = Outbound::new(8192, 4);
        assert_eq!(outbound.take(1, 64), None, "no target");
        let target = Target {
            addr: 0x1000,
            key: 7,
            length: 10,
        };
        outbound.begin(1, target);
        let piece = outbound.take(4, 64).unwrap();
        assert_eq!(
            (piece.length, piece.staged, piece.to),
            (4, None, Some(target))
        );
        for at in 0..5 {
            let piece = outbound.take(1, 64).unwrap();
            assert_eq!((piece.length, piece.staged, piece.to), (1, Some(at), None));
        }
        assert_eq!(outbound.take(100, 64).unwrap().length, 1);
        assert_eq!(outbound.take(1, 64), None, "the target is full");
        assert_eq!(outbound.take_direct(1, 1, 64), None, "what waits is first");
        assert_eq!(outbound.take_waiting(), None);
        outbound.extend(2);
        let all = outbound.take_waiting().unwrap();
        assert_eq!((all.length, all.staged), (6, Some(0)));
        assert_eq!(all.to.map(|to| (to.addr, to.length)), Some((0x1004, 6)));
        assert!(!outbound.can_send() && !outbound.is_waiting());
        outbound.set_target(1, target);
        assert!(outbound.can_send());
        assert!(!outbound.is_idle());
        outbound.done(0);
        outbound.done(6);
        assert!(outbound.is_idle());
    }
}
