//! Doorbells of a device model: the records that the program has written, and who looks at them.
//!
//! On a card, a store to a doorbell page is seen by the device. A model's doorbell page is memory, so that somebody has to look
//! at the records when something was stored: all that a doorbell says stands there as well. Either nobody can write to the page,
//! and the handler of the signal that a store raises looks, in the program's thread, and leaves the store out
//! ([`trap`](crate::trap)); or the library's thread looks, whenever it looks at anything.

// UNSAFETY: doorbell records are the program's memory.
#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bareverbs_node::verbs::Platform;
use bareverbs_node::verbs::firmware_cmds::doorbell::{CQ_ARM, CqArmRecord, SEND, UAR_SIZE};
use bareverbs_node::verbs::firmware_cmds::numbers::{Cqn, Qpn};

use crate::attrs::Result;
use crate::server::P;

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

/// The record of a queue is looked at from now on. An error if it can be none.
pub(crate) fn add(queue: Queue, uar: u32, record: u64) -> Result<()> {
    let last = match queue {
        Queue::Send(_) => 0,
        Queue::Arm(_) => NEVER_ARMED,
    };
    let word = NonNull::new((record + WORD) as *mut AtomicU32).ok_or(libc::EFAULT)?;
    // SAFETY: the record is there, and the program does not use it before it has the queue. The first value that it
    // writes then is another.
    unsafe { word.as_ref() }.store(last.to_be(), Ordering::Release);
    records().push(Record {
        queue,
        uar,
        word,
        last,
    });
    Ok(())
}

/// The record of a queue, which is destroyed, is not looked at any more.
pub(crate) fn remove(queue: Queue) {
    records().retain(|record| record.queue != queue);
}

/// Looks at all records, and rings the model's doorbells of those that have changed.
pub(crate) fn ring(platform: &P) {
    for record in &mut *records() {
        // SAFETY: the program keeps the record until the queue is destroyed. What it had written before is seen.
        let now = u32::from_be(unsafe { record.word.as_ref() }.load(Ordering::Acquire));
        if std::mem::replace(&mut record.last, now) == now {
            continue;
        }
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
