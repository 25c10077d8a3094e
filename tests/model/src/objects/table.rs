//! Numbered objects: slots by number, with the oldest freed number reused last, so that a stale number is seen as stale
//! for as long as possible.

use std::collections::VecDeque;

/// Objects of one kind, numbered from `base`.
#[derive(Debug)]
pub(crate) struct Table<T> {
    base: u32,
    limit: usize,
    slots: Vec<Option<T>>,
    free: VecDeque<u32>,
    used: usize,
}

impl<T> Table<T> {
    /// At most `limit` objects numbered from `base`.
    pub(crate) fn new(base: u32, limit: usize) -> Self {
        Self {
            base,
            limit,
            slots: Vec::new(),
            free: VecDeque::new(),
            used: 0,
        }
    }

    /// The number that [`insert`](Self::insert) would give next, if there is one.
    pub(crate) fn next_number(&self) -> Option<u32> {
        if self.slots.len() < self.limit {
            Some(self.base + self.slots.len() as u32)
        } else {
            self.free.front().map(|&slot| self.base + slot)
        }
    }

    /// Stores an object under the next number.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        // A quarter of the numbers stay unused for as long as possible before old ones come back.
        if self.slots.len() < self.limit {
            self.slots.push(Some(object));
            self.used += 1;
            return Some(self.base + self.slots.len() as u32 - 1);
        }
        let slot = self.free.pop_front()?;
        *self.slots.get_mut(slot as usize)? = Some(object);
        self.used += 1;
        Some(self.base + slot)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots
            .get(number.checked_sub(self.base)? as usize)?
            .as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots
            .get_mut(number.checked_sub(self.base)? as usize)?
            .as_mut()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.get(number).is_some()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = number.checked_sub(self.base)?;
        let object = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push_back(slot);
        self.used -= 1;
        Some(object)
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let base = self.base;
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(at, slot)| Some((base + at as u32, slot.as_ref()?)))
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_numbers_come_back_last() {
        let mut table = Table::new(3, 4);
        let numbers: Vec<_> = (0..3).map(|i| table.insert(i).unwrap()).collect();
        assert_eq!(numbers, [3, 4, 5]);
        assert_eq!(table.remove(4), Some(1));
        assert_eq!(table.remove(3), Some(0));
        assert_eq!(table.insert(9), Some(6));
        assert_eq!(table.next_number(), Some(4));
        assert_eq!(table.insert(10), Some(4));
        assert_eq!(table.insert(11), Some(3));
        assert_eq!(table.insert(12), None);
        assert_eq!(table.remove(2), None);
        assert_eq!(table.len(), 4);
    }
}
