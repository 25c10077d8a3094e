//! Doorbells of a device model: the records that the program has written, and who looks at them.
//!
//! On a card, a store to a doorbell page is seen by the device. A model's doorbell page is memory, so that the library has to look
//! at the records when something was stored: all that a doorbell says stands there as well. Either the page is read-only,
//! and the handler of the signal that a store raises looks, in the program's thread, and leaves the store out
//! ([`trap`](crate::trap)); or the library's thread looks, whenever it looks at anything.

// UNSAFETY: doorbell records are the program's memory.
#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::Platform;
use bareverbs_node::verbs::firmware_cmds::doorbell::{CQ_ARM, CqArmRecord, SEND, UAR_SIZE};
use bareverbs_node::verbs::firmware_cmds::numbers::{Cqn, Qpn};

use crate::attrs::Result;
use crate::trap;

/// The word that counts stands behind the first one.
const WORD: u64 = 4;
/// The arm word of a CQ that was never armed: its sequence is 2, and programs begin at 0.
const NEVER_ARMED: u32 = 2 << 28;

/// The queue of a doorbell record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// A QP's send queue.
    Send(Qpn),
    /// A CQ, which is armed.
    Arm(Cqn),
}

/// A doorbell record, and what its word was when it was last looked at.
struct Record {
    queue: Queue,
    uar: u32,
    word: NonNull<AtomicU32>,
    last: u32,
}

// SAFETY: the word is atomic, and the program keeps it until the queue is destroyed.
unsafe impl Send for Record {}

static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word that counts of the record at an address.
pub(crate) fn word(record: u64) -> Result<NonNull<AtomicU32>> {
    let word = record.checked_add(WORD).ok_or(libc::EINVAL)?;
    NonNull::new(word as *mut AtomicU32).ok_or(libc::EFAULT)
}

impl Record {
    /// Begins anew: the first value that the program writes is another.
    fn reset(&mut self) {
        self.last = match self.queue {
            Queue::Send(_) => 0,
            Queue::Arm(_) => NEVER_ARMED,
        };
        // SAFETY: the record is there, and the program does not use it before the command returns.
        unsafe { self.word.as_ref() }.store(self.last.to_be(), Ordering::Release);
    }

    /// The word, if it is another than the last time.
    fn changed(&mut self) -> Option<u32> {
        // SAFETY: the program keeps the record until the queue is destroyed. What it had written before is seen.
        let now = u32::from_be(unsafe { self.word.as_ref() }.load(Ordering::Acquire));
        (std::mem::replace(&mut self.last, now) != now).then_some(now)
    }
}

/// The record of a queue, with this word, is looked at from now on; a card looks itself.
pub(crate) fn add(queue: Queue, uar: u32, word: NonNull<AtomicU32>) {
    if trap::is_card() {
        return;
    }
    let mut record = Record {
        queue,
        uar,
        word,
        last: 0,
    };
    record.reset();
    records().push(record);
}

/// A queue was reset: it has nothing posted.
pub(crate) fn reset(queue: Queue) {
    let mut records = records();
    if let Some(record) = records.iter_mut().find(|record| record.queue == queue) {
        record.reset();
    }
}

/// The record of a queue, which is destroyed, is not looked at any more.
pub(crate) fn remove(queue: Queue) {
    records().retain(|record| record.queue != queue);
}

/// Looks at all records, and rings the model's doorbells of those that have changed.
pub(crate) fn ring(platform: &P) {
    for record in &mut *records() {
        let Some(now) = record.changed() else {
            continue;
        };
        let page = record.uar as usize * UAR_SIZE;
        match record.queue {
            Queue::Send(qpn) => {
                let control = u64::from(now) << 40 | u64::from(qpn.number()) << 8;
                platform.write_be64(page + SEND, control);
            }
            Queue::Arm(cqn) => {
                platform.write_be64(page + CQ_ARM, CqArmRecord(now).doorbell(cqn).0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_posted_after_a_reset_rings_again() {
        let word = AtomicU32::new(7_u32.to_be());
        let mut record = Record {
            queue: Queue::Send(Qpn::from_low_bits(9)),
            uar: 0,
            word: NonNull::from(&word),
            last: 0,
        };
        assert_eq!(record.changed(), Some(7));
        assert_eq!(record.changed(), None);
        record.reset();
        assert_eq!(record.changed(), None);
        word.store(7_u32.to_be(), Ordering::Release);
        assert_eq!(record.changed(), Some(7));
    }
}
