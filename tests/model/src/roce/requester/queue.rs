//! Messages in order. Their slots are used again: a WQE is parsed into one, so that a message is neither moved nor allocated.

use super::message::Message;

#[derive(Default)]
pub(super) struct Queue {
    /// A power of two of them, or none yet.
    slots: Vec<Message>,
    first: usize,
    len: usize,
}

impl Queue {
    fn slot(&self, nth: usize) -> usize {
        (self.first + nth) & (self.slots.len() - 1)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn get(&self, nth: usize) -> Option<&Message> {
        (nth < self.len).then(|| &self.slots[self.slot(nth)])
    }

    pub(super) fn get_mut(&mut self, nth: usize) -> Option<&mut Message> {
        let slot = (nth < self.len).then(|| self.slot(nth))?;
        Some(&mut self.slots[slot])
    }

    pub(super) fn front(&self) -> Option<&Message> {
        self.get(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Message> {
        (0..self.len).map(|nth| &self.slots[self.slot(nth)])
    }

    /// The slot behind the last message, with what an earlier message has left in it.
    pub(super) fn next_slot(&mut self) -> &mut Message {
        if self.len == self.slots.len() {
            self.slots.rotate_left(self.first);
            self.first = 0;
            let more = (2 * self.len).max(1);
            self.slots.resize_with(more, Message::default);
        }
        let slot = self.slot(self.len);
        &mut self.slots[slot]
    }

    /// Makes what is in [`Self::next_slot`] the last message.
    pub(super) fn push(&mut self) {
        self.len += 1;
    }

    /// Removes the first message, whose content stays in its slot.
    pub(super) fn pop(&mut self) {
        self.first = self.slot(1);
        self.len -= 1;
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_lasts_while_it_grows_and_wraps() {
        let mut queue = Queue::default();
        let (mut pushed, mut popped) = (0, 0);
        for round in 0..200 {
            // More come than go, and what goes first moves through all slots.
            for _ in 0..1 + round % 3 {
                queue.next_slot().ssn = pushed;
                queue.push();
                pushed += 1;
            }
            assert_eq!(queue.front().map(|message| message.ssn), Some(popped));
            queue.pop();
            popped += 1;
            let found: Vec<u32> = queue.iter().map(|message| message.ssn).collect();
            assert_eq!(found, (popped..pushed).collect::<Vec<_>>());
            assert_eq!(queue.len(), found.len());
            assert!(queue.get(queue.len()).is_none());
            assert!(queue.get_mut(queue.len()).is_none());
        }
        queue.clear();
        assert!(queue.is_empty() && queue.front().is_none());
    }
}
