//! Memory that poster, poller and control path share, in every order that two or three threads can take (`cargo rig loom`).
//!
//! An atomic stands in for the device between poster and poller: a work request is posted when it is stored, and completed
//! as soon as it is loaded. Loom does not see volatile words (doorbell records, CQEs), nor that a load may be delayed behind
//! a store that follows it.

// UNSAFETY: the arrays of slots and rings are the tests' own.
#![expect(unsafe_code)]

extern crate std;

use core::ptr::NonNull;
use core::task::Waker;
use std::boxed::Box;
use std::sync::Arc;
use std::task::Wake;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

use bareverbs_firmware_cmds::numbers::{LKey, Qpn, UarIndex};

use crate::memory::arm::Arm;
use crate::memory::blue_flame::BlueFlame;
use crate::memory::record::DoorbellRecord;
use crate::memory::recv_ring::{RecvRing, RecvRingParts};
use crate::memory::send_ring::{BLOCK_WORDS, Cursor, SendRing, SendRingParts};
use crate::memory::slots::{CqSlot, QpArrays, QpSlot, SrqSlot, detach};
use crate::memory::sync::{AtomicU32, AtomicU64};
use crate::memory::test_platform::Bus;
use crate::types::sge::Sge;
use crate::verbs::qp::recv::RecvQueue;
use crate::verbs::qp::wr::PostError;

const QPN: u32 = 0x77;

/// Arrays of a QP, a ring for them, and its slot.
struct Shared {
    slot: QpSlot,
    heads: Box<[AtomicU32]>,
    send_ids: Box<[AtomicU64]>,
    recv_ids: Box<[AtomicU64]>,
    blocks: Box<[Block]>,
    record: Block,
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Block([u64; BLOCK_WORDS]);

fn pointer<T>(of: &[T]) -> NonNull<T> {
    NonNull::from(of).cast()
}

impl Shared {
    /// A live QP with `entries` blocks, sends and receives.
    fn new(entries: usize) -> Arc<Self> {
        let ids = || (0..entries).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Self {
            slot: QpSlot::new(),
            heads: (0..entries).map(|_| AtomicU32::new(u32::MAX)).collect(),
            send_ids: ids(),
            recv_ids: ids(),
            blocks: std::vec![Block([0; BLOCK_WORDS]); entries].into(),
            record: Block([0; BLOCK_WORDS]),
        });
        let arrays = QpArrays {
            heads: pointer(&shared.heads),
            blocks: entries as u32,
            send_ids: pointer(&shared.send_ids),
            sends: entries as u32,
            recv_ids: pointer(&shared.recv_ids),
            recvs: entries as u32,
        };
        // SAFETY: the arrays live as long as the slot beside them.
        unsafe { shared.slot.publish(arrays) };
        shared.slot.qpn_tag.store(QPN, Release);
        shared
    }

    fn entries(&self) -> u32 {
        self.heads.len() as u32
    }
}

/// A send queue of `capacity` entries takes one work request more than it holds, while a poller completes them: each
/// identifier arrives, in order, whatever is written over it.
fn sends(capacity: usize) {
    loom::model(move || {
        let shared = Shared::new(capacity);
        let posted = Arc::new(AtomicU32::new(0));
        let count = capacity as u32 + 1;
        let poster = {
            let (shared, posted) = (shared.clone(), posted.clone());
            thread::spawn(move || {
                let parts = SendRingParts {
                    base: pointer(&shared.blocks).cast(),
                    wr_ids: pointer(&shared.send_ids),
                    heads: pointer(&shared.heads),
                    blocks: shared.entries(),
                    wrs: shared.entries(),
                };
                // SAFETY: the parts live as long as `shared`, and no other ring is made of them.
                let ring = unsafe { SendRing::new(parts) };
                for head in 0..count {
                    // As `SendQueue` does.
                    while head.wrapping_sub(shared.slot.sq_tail.load(Acquire)) == shared.entries() {
                        thread::yield_now();
                    }
                    ring.wqe(Cursor::new(Qpn::from_low_bits(QPN)).behind(head))
                        .record(head, 100 + u64::from(head));
                    posted.store(head + 1, Release);
                }
            })
        };
        let qp = shared.slot.live(QPN).expect("it is alive");
        for head in 0..count {
            while posted.load(Acquire) <= head {
                thread::yield_now();
            }
            assert_eq!(qp.complete_send(head as u16), Some(100 + u64::from(head)));
        }
        poster.join().expect("the poster is done");
    });
}

#[test]
fn sends_in_a_queue_of_one() {
    sends(1);
}

#[test]
fn sends_in_a_queue_of_two() {
    sends(2);
}

/// The same for receives, by the queue itself.
fn receives(capacity: usize) {
    loom::model(move || {
        let shared = Shared::new(capacity);
        let posted = Arc::new(AtomicU32::new(0));
        let count = capacity as u32 + 1;
        let poster = {
            let (shared, posted) = (shared.clone(), posted.clone());
            thread::spawn(move || {
                let parts = RecvRingParts {
                    lists: pointer(&shared.blocks).cast(),
                    wr_ids: pointer(&shared.recv_ids),
                    entries: shared.entries(),
                    log_stride: 6,
                    max_sge: 4,
                    terminator: LKey(0x100),
                };
                // SAFETY: the parts live as long as `shared`, and no other ring or record is made of them.
                let (ring, record) = unsafe {
                    let record = DoorbellRecord::new(pointer(&shared.record.0).cast());
                    (RecvRing::new(parts), record)
                };
                let mut queue = RecvQueue {
                    ring,
                    record,
                    slot: &shared.slot,
                    head: 0,
                    limit: shared.entries(),
                    capacity: shared.entries(),
                    late: 0,
                };
                for head in 0..count {
                    let sges = [Sge::new(0, 1, LKey(1))];
                    while let Err(error) = queue.post(100 + u64::from(head), &sges) {
                        assert!(matches!(error, PostError::QueueFull { .. }));
                        thread::yield_now();
                    }
                    posted.store(head + 1, Release);
                }
            })
        };
        let qp = shared.slot.live(QPN).expect("it is alive");
        for head in 0..count {
            while posted.load(Acquire) <= head {
                thread::yield_now();
            }
            // Not while none is outstanding, whatever the device says.
            assert_eq!(qp.complete_recv(head as u16), Some(100 + u64::from(head)));
        }
        assert_eq!(qp.flush_recv(), None);
        poster.join().expect("the poster is done");
    });
}

#[test]
fn receives_in_a_queue_of_one() {
    receives(1);
}

#[test]
fn receives_in_a_queue_of_two() {
    receives(2);
}

/// Two CQs complete receives of one SRQ, one of them the same twice, while its owner takes them back: each comes back once.
#[test]
fn shared_receives_come_back_once() {
    loom::model(|| {
        let wr_ids: Arc<[AtomicU64]> = (0..2).map(|index| AtomicU64::new(100 + index)).collect();
        let states: Arc<[AtomicU32]> = (0..2).map(|_| AtomicU32::new(0)).collect();
        let slot = Arc::new(SrqSlot::new());
        // SAFETY: the arrays live until the end.
        unsafe { slot.publish(pointer(&wr_ids), pointer(&states), 2) };
        slot.post(0);
        slot.post(1);
        let other = {
            let slot = slot.clone();
            thread::spawn(move || [slot.complete(0), slot.complete(1)])
        };
        let third = {
            let slot = slot.clone();
            thread::spawn(move || slot.complete(0))
        };
        let mut returned = Vec::new();
        slot.take_returned(|index| returned.push(index));
        let [first, second] = other.join().expect("it is done");
        let again = third.join().expect("it is done");
        assert_eq!(second, Some(101));
        assert!(matches!(
            (first, again),
            (Some(100), None) | (None, Some(100))
        ));
        slot.take_returned(|index| returned.push(index));
        returned.sort_unstable();
        assert_eq!(returned, [0, 1]);
        let _ = (wr_ids, states);
    });
}

/// Two threads put QPs on a CQ's list, one of them a QP that may be there already, while the CQ's owner takes it.
#[test]
fn detached_qps_arrive_once() {
    loom::model(|| {
        let cq = Arc::new(CqSlot::new());
        let qps: Arc<[QpSlot]> = (0..2).map(|_| QpSlot::new()).collect();
        for qp in qps.iter() {
            qp.cqs[0].store(0, Relaxed);
            qp.flags.fetch_or(detach::PENDING, Relaxed);
        }
        let push = |index: u32| {
            let (cq, qps) = (cq.clone(), qps.clone());
            thread::spawn(move || assert!(cq.push_detached(&qps, index, 0)))
        };
        let threads = [push(0), push(1)];
        let mut seen = [0; 2];
        let mut take = || {
            cq.take_detached(&qps, 0, |index, _, flags, side| {
                assert_eq!((flags & detach::PENDING, side), (detach::PENDING, 0));
                seen[index as usize] += 1;
            });
        };
        take();
        for thread in threads {
            thread.join().expect("it is done");
        }
        take();
        assert_eq!(seen, [1, 1]);
    });
}

/// A CQ is abandoned while a QP is detached: either the CQ's owner takes the QP, or the push reports that it will not.
#[test]
fn no_detached_qp_is_lost_when_the_owner_goes() {
    loom::model(|| {
        let cq = Arc::new(CqSlot::new());
        let qps: Arc<[QpSlot]> = (0..1).map(|_| QpSlot::new()).collect();
        qps[0].cqs[0].store(0, Relaxed);
        let pusher = {
            let (cq, qps) = (cq.clone(), qps.clone());
            thread::spawn(move || cq.push_detached(&qps, 0, 0))
        };
        cq.abandon();
        let mut taken = 0;
        cq.take_detached(&qps, 0, |_, _, _, _| taken += 1);
        let pushed = pusher.join().expect("it is done");
        assert_eq!(pushed, taken == 1);
    });
}

/// A device's state of a CQ: how many completions it has written, and whether it has to send an event.
#[derive(Default)]
struct Device {
    written: u32,
    armed: bool,
}

/// The owner asks for events and sleeps until one comes; the device completes twice. No completion is slept over, and
/// asking again while a request stands does not disturb it.
#[test]
fn no_event_is_lost() {
    loom::model(|| {
        let slot = Arc::new(CqSlot::new());
        let device = Arc::new(Mutex::new(Device::default()));
        let writer = {
            let (slot, device) = (slot.clone(), device.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut device = device.lock().expect("unharmed");
                    device.written += 1;
                    let event = core::mem::take(&mut device.armed);
                    drop(device);
                    if event {
                        let _ = slot.add_event();
                    }
                }
            })
        };
        let mut arm = Arm::default();
        let mut taken = 0;
        while taken < 2 {
            if arm.request(&slot, false).is_some() {
                let mut device = device.lock().expect("unharmed");
                // The doorbell has the consumer index; a completion behind it causes an event at once.
                if device.written > taken {
                    drop(device);
                    let _ = slot.add_event();
                } else {
                    device.armed = true;
                }
            }
            // Polls once more before it sleeps.
            let written = device.lock().expect("unharmed").written;
            if written > taken {
                taken = written;
                continue;
            }
            while !arm.take_event(&slot) {
                thread::yield_now();
            }
            taken = device.lock().expect("unharmed").written;
        }
        writer.join().expect("it is done");
    });
}

/// The number of times that a task was woken.
struct Task(AtomicU32);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Release);
    }
}

/// The event queue's reader.
fn read_event(slot: &CqSlot) {
    if slot.add_event()
        && let Some(waker) = slot.task.take()
    {
        waker.wake();
    }
}

/// As before, with a task in the place of the thread: it registers its waker, asks for an event, looks once more, and does
/// nothing until it is woken.
#[test]
fn no_task_sleeps_over_an_event() {
    loom::model(|| {
        let slot = Arc::new(CqSlot::new());
        let device = Arc::new(Mutex::new(Device::default()));
        let writer = {
            let (slot, device) = (slot.clone(), device.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut device = device.lock().expect("unharmed");
                    device.written += 1;
                    let event = core::mem::take(&mut device.armed);
                    drop(device);
                    if event {
                        read_event(&slot);
                    }
                }
            })
        };
        let task = Arc::new(Task(AtomicU32::new(0)));
        let waker = Waker::from(task.clone());
        let mut arm = Arm::default();
        let (mut taken, mut woken) = (0, 0);
        while taken < 2 {
            slot.task.register(&waker);
            if arm.request(&slot, false).is_some() {
                let mut device = device.lock().expect("unharmed");
                if device.written > taken {
                    drop(device);
                    read_event(&slot);
                } else {
                    device.armed = true;
                }
            }
            let written = device.lock().expect("unharmed").written;
            if written > taken {
                taken = written;
                continue;
            }
            while task.0.load(Acquire) == woken {
                thread::yield_now();
            }
            woken = task.0.load(Acquire);
            taken = device.lock().expect("unharmed").written;
        }
        writer.join().expect("it is done");
    });
}

/// Offsets of writes to a doorbell page, in which writes that meet are found.
struct Written(UnsafeCell<Vec<usize>>);

// SAFETY: loom's cell finds any two accesses that meet.
unsafe impl Sync for Written {}
// SAFETY: it is not of one thread.
unsafe impl Send for Written {}

/// Two queues write to the BlueFlame register: never at the same time, and into alternating buffers.
#[test]
fn one_writer_at_a_time() {
    loom::model(|| {
        let register = Arc::new(BlueFlame::new(UarIndex::from_low_bits(5), 9));
        let written = Arc::new(Written(UnsafeCell::new(Vec::new())));
        let write = |register: &BlueFlame, written: &Written| {
            let bus = Bus(|offset, _: &[u64]| {
                // SAFETY: loom checks that no other access meets this one.
                written
                    .0
                    .with_mut(|written| unsafe { (*written).push(offset) });
            });
            let shared = Shared::new(1);
            let parts = SendRingParts {
                base: pointer(&shared.blocks).cast(),
                wr_ids: pointer(&shared.send_ids),
                heads: pointer(&shared.heads),
                blocks: 1,
                wrs: 1,
            };
            // SAFETY: the parts live as long as `shared`.
            let ring = unsafe { SendRing::new(parts) };
            usize::from(register.write(&bus, &ring, Cursor::new(Qpn::from_low_bits(7)), 64))
        };
        let other = {
            let (register, written) = (register.clone(), written.clone());
            thread::spawn(move || write(&register, &written) + write(&register, &written))
        };
        let mine = write(&register, &written);
        let others = other.join().expect("it is done");
        // SAFETY: loom checks it.
        let written = written.0.with(|written| unsafe { (*written).clone() });
        assert_eq!(written.len(), mine + others);
        let buffers = [0x5a00, 0x5b00].into_iter().cycle();
        assert!(written.iter().copied().eq(buffers.take(mine + others)));
        assert!(mine + others >= 1);
    });
}
