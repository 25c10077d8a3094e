//! A bounded queue of frames between a socket's thread and the world, in buffers that are used again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest frame; no card sends a longer Ethernet frame.
pub(super) const LONGEST: usize = 10 * 1024;
/// A peer that takes nothing for so long loses the frame. (A local peer's queue holds ten datagrams, and what it cannot
/// hold waits here.)
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Frames {
    queued: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    closed: bool,
    /// The thread that [waits for frames](FrameQueue::pop) may still be busy with the one that it took last.
    taken: bool,
}

/// The queue has as many frames as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// Nothing is taken any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

#[derive(Debug)]
pub(super) struct FrameQueue {
    frames: Mutex<Frames>,
    limit: usize,
    /// A frame has come, or the queue is closed.
    filled: Condvar,
    /// There is room again, or the queue is closed.
    drained: Condvar,
    /// From so many frames on the sender shall pause, until there are half as many.
    pause_at: usize,
    congested: AtomicBool,
}

impl FrameQueue {
    /// A queue of at most `limit` frames, of which `pause_at` are [congestion](Self::is_congested).
    pub(super) fn new(limit: usize, pause_at: usize) -> Self {
        Self {
            frames: Mutex::default(),
            limit,
            filled: Condvar::new(),
            drained: Condvar::new(),
            pause_at,
            congested: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a copy. Whether the queue was empty before: the receiver may be sleeping then.
    pub(super) fn push(&self, frame: &[u8]) -> Result<bool, Full> {
        let frames = self.lock();
        if frames.queued.len() >= self.limit {
            return Err(Full);
        }
        Ok(self.append(frames, frame))
    }

    /// Appends a copy, unless nothing is queued, nothing that was taken may still be on its way, and `pass` takes the frame at
    /// once: then it comes before all that is queued later. `pass` must not wait, as it has the queue's lock.
    pub(super) fn pass_or_push(
        &self,
        frame: &[u8],
        pass: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(), Full> {
        let frames = self.lock();
        let is_first = frames.queued.is_empty() && !frames.taken && !frames.closed;
        if is_first && pass(frame) {
            return Ok(());
        }
        if frames.queued.len() >= self.limit {
            return Err(Full);
        }
        self.append(frames, frame);
        Ok(())
    }

    /// As [`push`](Self::push), but waits for room.
    pub(super) fn push_waiting(&self, frame: &[u8]) -> Result<bool, Closed> {
        let mut frames = self.lock();
        loop {
            if frames.closed {
                return Err(Closed);
            }
            if frames.queued.len() < self.limit {
                return Ok(self.append(frames, frame));
            }
            frames = self
                .drained
                .wait(frames)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn append(&self, mut frames: MutexGuard<'_, Frames>, frame: &[u8]) -> bool {
        let mut buffer = frames.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        let was_empty = frames.queued.is_empty();
        frames.queued.push_back(buffer);
        if frames.queued.len() >= self.pause_at {
            self.congested.store(true, Ordering::Relaxed);
        }
        drop(frames);
        if was_empty {
            self.filled.notify_one();
        }
        was_empty
    }

    /// Takes the first frame in exchange for the buffer in `frame`; `false` if there is none.
    pub(super) fn try_pop(&self, frame: &mut Vec<u8>) -> bool {
        self.pop_more(frame).is_some()
    }

    /// Takes the first frame as [`try_pop`](Self::try_pop) does, but waits for one, and until the next call none
    /// [passes](Self::pass_or_push). Returns whether congestion ended; `None` when the queue is closed and empty.
    pub(super) fn pop(&self, frame: &mut Vec<u8>) -> Option<bool> {
        let mut frames = self.lock();
        loop {
            let taken = self.take(&mut frames, frame);
            frames.taken = taken.is_some();
            if taken.is_some() {
                return taken;
            }
            if frames.closed {
                return None;
            }
            frames = self
                .filled
                .wait(frames)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`pop`](Self::pop), but does not wait.
    pub(super) fn pop_more(&self, frame: &mut Vec<u8>) -> Option<bool> {
        self.take(&mut self.lock(), frame)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().queued.is_empty()
    }

    /// Returns `true` if the sender shall pause.
    pub(super) fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed)
    }

    /// Lets those who wait go on: what is queued can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Returns whether congestion ended with this; `None` if there is no frame.
    fn take(&self, frames: &mut Frames, frame: &mut Vec<u8>) -> Option<bool> {
        let first = frames.queued.pop_front()?;
        frames.spare.push(std::mem::replace(frame, first));
        let left = frames.queued.len();
        if left + 1 == self.limit {
            self.drained.notify_one();
        }
        Some(left <= self.pause_at / 2 && self.congested.swap(false, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_order_and_their_number() {
        let queue = FrameQueue::new(2, 2);
        let mut frame = Vec::new();
        for round in 0..3 {
            assert!(queue.is_empty());
            assert_eq!(queue.push(&[round]), Ok(true));
            assert_eq!(queue.push(&[round, 1]), Ok(false));
            assert_eq!(queue.push(&[9; 9]), Err(Full));
            assert_eq!(queue.pop(&mut frame), Some(true));
            assert_eq!(frame, [round]);
            assert!(queue.try_pop(&mut frame));
            assert_eq!(frame, [round, 1]);
            assert!(!queue.try_pop(&mut frame));
        }
        // One buffer is with the caller, and no more were ever made than fit.
        assert!(queue.lock().spare.len() <= 3);
    }

    #[test]
    fn a_frame_passes_only_where_none_is_before_it() {
        let queue = FrameQueue::new(2, 2);
        let passed = std::cell::RefCell::new(Vec::new());
        let pass = |frame: &[u8]| {
            passed.borrow_mut().push(frame[0]);
            true
        };
        queue.pass_or_push(&[0], pass).unwrap();
        // There is no room.
        queue.pass_or_push(&[1], |_| false).unwrap();
        queue.pass_or_push(&[2], pass).unwrap();
        assert_eq!(queue.pass_or_push(&[9], pass), Err(Full));
        let mut frame = Vec::new();
        for number in [1, 2] {
            assert!(queue.pop(&mut frame).is_some());
            assert_eq!(frame, [number]);
        }
        // The queue is empty, and its last frame still on its way.
        queue.pass_or_push(&[3], pass).unwrap();
        assert!(queue.pop(&mut frame).is_some());
        assert_eq!(frame, [3]);
        queue.close();
        assert_eq!(queue.pop(&mut frame), None);
        queue.pass_or_push(&[4], pass).unwrap();
        assert_eq!(*passed.borrow(), [0]);
    }

    #[test]
    fn who_waits_is_woken() {
        let queue = FrameQueue::new(2, 2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut frame = Vec::new();
                queue.pop(&mut frame);
                frame
            });
            queue.push(&[7]).unwrap();
            assert_eq!(waiter.join().unwrap(), [7]);
        });
    }

    #[test]
    fn who_waits_for_room_loses_nothing() {
        let queue = FrameQueue::new(2, 2);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                for number in 0..=255 {
                    queue.push_waiting(&[number]).unwrap();
                }
                queue.close();
                assert_eq!(queue.push_waiting(&[0]), Err(Closed));
            });
            let mut frame = Vec::new();
            for number in 0..=255 {
                assert!(queue.pop(&mut frame).is_some());
                assert_eq!(frame, [number]);
            }
            assert_eq!(queue.pop(&mut frame), None);
            sender.join().unwrap();
        });
    }

    #[test]
    fn congestion_lasts_until_half_has_gone() {
        let queue = FrameQueue::new(8, 4);
        let mut frame = Vec::new();
        for number in 0..5 {
            assert_eq!(queue.is_congested(), number >= 4, "{number}");
            queue.push(&[number]).unwrap();
        }
        for left in [4, 3] {
            assert_eq!(queue.pop(&mut frame), Some(false));
            assert!(queue.is_congested(), "{left}");
        }
        assert_eq!(queue.pop(&mut frame), Some(true));
        assert!(!queue.is_congested());
        assert_eq!(queue.pop(&mut frame), Some(false));
    }

    #[test]
    fn the_end_frees_who_waits() {
        let queue = FrameQueue::new(1, 1);
        queue.push(&[0]).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.push_waiting(&[1]));
            queue.close();
            assert_eq!(waiter.join().unwrap(), Err(Closed));
        });
    }
}
