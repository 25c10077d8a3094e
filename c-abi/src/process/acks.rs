//! Events that were handed out and have to be acknowledged before their object may go.

use std::sync::{Condvar, Mutex};

use crate::process::failure::lock;

/// The numbers of an object's events that were handed out, and that were acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    outstanding: Mutex<u64>,
    none: Condvar,
}

impl Acks {
    /// One more was handed out.
    pub(crate) fn hand_out(&self) {
        *lock(&self.outstanding) += 1;
    }

    /// So many were acknowledged.
    pub(crate) fn acknowledge(&self, count: u64) {
        let mut outstanding = lock(&self.outstanding);
        *outstanding = outstanding.saturating_sub(count);
        if *outstanding == 0 {
            self.none.notify_all();
        }
    }

    /// Waits until all are acknowledged.
    pub(crate) fn wait(&self) {
        let outstanding = lock(&self.outstanding);
        drop(
            self.none
                .wait_while(outstanding, |outstanding| *outstanding != 0),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let acks = Acks::default();
        acks.wait();
        for _ in 0..3 {
            acks.hand_out();
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| acks.wait());
            acks.acknowledge(2);
            assert_eq!(*lock(&acks.outstanding), 1);
            acks.acknowledge(1);
            waiter.join().unwrap();
        });
        assert_eq!(*lock(&acks.outstanding), 0);
    }
}
