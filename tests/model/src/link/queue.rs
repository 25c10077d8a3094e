//! A bounded queue of frames between a socket's thread and the world, in buffers that are used again.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Frames {
    queued: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

/// The queue has as many frames as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug)]
pub(super) struct FrameQueue {
    frames: Mutex<Frames>,
    limit: usize,
    filled: Condvar,
}

impl FrameQueue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            frames: Mutex::default(),
            limit,
            filled: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a copy. Whether the queue was empty before: the receiver may be sleeping then.
    pub(super) fn push(&self, frame: &[u8]) -> Result<bool, Full> {
        let mut frames = self.lock();
        if frames.queued.len() >= self.limit {
            return Err(Full);
        }
        let mut buffer = frames.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        let was_empty = frames.queued.is_empty();
        frames.queued.push_back(buffer);
        drop(frames);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(was_empty)
    }

    /// Takes the first frame in exchange for the buffer in `frame`; `false` if there is none.
    pub(super) fn try_pop(&self, frame: &mut Vec<u8>) -> bool {
        Self::take(&mut self.lock(), frame)
    }

    /// As [`try_pop`](Self::try_pop), but waits for a frame.
    pub(super) fn pop(&self, frame: &mut Vec<u8>) {
        let mut frames = self.lock();
        while !Self::take(&mut frames, frame) {
            frames = self
                .filled
                .wait(frames)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().queued.is_empty()
    }

    fn take(frames: &mut Frames, frame: &mut Vec<u8>) -> bool {
        let Some(first) = frames.queued.pop_front() else {
            return false;
        };
        frames.spare.push(std::mem::replace(frame, first));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_order_and_their_number() {
        let queue = FrameQueue::new(2);
        let mut frame = Vec::new();
        for round in 0..3 {
            assert!(queue.is_empty());
            assert_eq!(queue.push(&[round]), Ok(true));
            assert_eq!(queue.push(&[round, 1]), Ok(false));
            assert_eq!(queue.push(&[9; 9]), Err(Full));
            queue.pop(&mut frame);
            assert_eq!(frame, [round]);
            assert!(queue.try_pop(&mut frame));
            assert_eq!(frame, [round, 1]);
            assert!(!queue.try_pop(&mut frame));
        }
        // One buffer is with the caller, and no more were ever made than fit.
        assert!(queue.lock().spare.len() <= 3);
    }

    #[test]
    fn who_waits_is_woken() {
        let queue = FrameQueue::new(2);
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
}
