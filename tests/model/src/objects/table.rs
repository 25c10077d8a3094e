//! Numbered objects. The memory of one that is removed is free at once. Its number comes back late, so that a stale number is
//! seen as stale: after all numbers that were not used yet, and after the numbers that were freed before it. In large tables the
//! latter is true of the [last ones](RESTING); the others come back in the order of the numbers.

use std::collections::VecDeque;

/// Numbers of a page, which has memory as long as one of them is in use.
const PAGE: u32 = u32::BITS;
/// So many numbers, those that were freed last, are not given as long as there are others.
const RESTING: usize = 4096;

type Objects<T> = Box<[Option<T>; PAGE as usize]>;

#[derive(Debug)]
struct Page<T> {
    /// Numbers in use, and those that rest.
    taken: u32,
    used: u32,
    /// There is none if no number is in use.
    objects: Option<Objects<T>>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            taken: 0,
            used: 0,
            objects: None,
        }
    }
}

/// Objects of one kind, numbered from `base`.
#[derive(Debug)]
pub(crate) struct Table<T> {
    base: u32,
    limit: usize,
    pages: Vec<Page<T>>,
    /// An empty page's memory, so that creating and destroying one object again and again does not allocate.
    spare: Option<Objects<T>>,
    /// The search for the next number begins here.
    cursor: u32,
    /// In the order in which they were freed.
    resting: VecDeque<u32>,
    used: usize,
}

impl<T> Table<T> {
    /// At most `limit` objects numbered from `base`.
    pub(crate) fn new(base: u32, limit: usize) -> Self {
        Self {
            base,
            limit,
            pages: Vec::new(),
            spare: None,
            cursor: 0,
            resting: VecDeque::new(),
            used: 0,
        }
    }

    /// The number that [`insert`](Self::insert) would give next, if there is one.
    pub(crate) fn next_number(&self) -> Option<u32> {
        self.next_slot().map(|slot| self.base + slot)
    }

    fn next_slot(&self) -> Option<u32> {
        if self.used + self.resting.len() >= self.limit {
            return self.resting.front().copied();
        }
        self.free_slot(self.cursor, self.limit as u32)
            .or_else(|| self.free_slot(0, self.cursor))
    }

    /// The first slot between two that is neither used nor rests.
    fn free_slot(&self, from: u32, to: u32) -> Option<u32> {
        let mut slot = from;
        while slot < to {
            let page = self.pages.get((slot / PAGE) as usize);
            let free = !page.map_or(0, |page| page.taken) >> (slot % PAGE);
            if free != 0 {
                return Some(slot + free.trailing_zeros()).filter(|slot| *slot < to);
            }
            slot += PAGE - slot % PAGE;
        }
        None
    }

    /// Stores an object under the next number.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        let slot = self.next_slot()?;
        if self.resting.front() == Some(&slot) {
            self.resting.pop_front();
        } else {
            self.cursor = slot + 1;
        }
        let (at, within) = ((slot / PAGE) as usize, slot % PAGE);
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, Page::default);
        }
        let page = self.pages.get_mut(at)?;
        let objects = page.objects.get_or_insert_with(|| {
            let spare = self.spare.take();
            spare.unwrap_or_else(|| Box::new(std::array::from_fn(|_| None)))
        });
        objects[within as usize] = Some(object);
        page.taken |= 1 << within;
        page.used |= 1 << within;
        self.used += 1;
        Some(self.base + slot)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let slot = number.checked_sub(self.base)?;
        let objects = self.pages.get((slot / PAGE) as usize)?.objects.as_ref()?;
        objects[(slot % PAGE) as usize].as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let slot = number.checked_sub(self.base)?;
        let page = self.pages.get_mut((slot / PAGE) as usize)?;
        page.objects.as_mut()?[(slot % PAGE) as usize].as_mut()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.get(number).is_some()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = number.checked_sub(self.base)?;
        let page = self.pages.get_mut((slot / PAGE) as usize)?;
        let object = page.objects.as_mut()?[(slot % PAGE) as usize].take()?;
        page.used &= !(1 << (slot % PAGE));
        if page.used == 0 {
            self.spare = page.objects.take();
        }
        self.used -= 1;
        self.resting.push_back(slot);
        if self.resting.len() > RESTING
            && let Some(rested) = self.resting.pop_front()
            && let Some(page) = self.pages.get_mut((rested / PAGE) as usize)
        {
            page.taken &= !(1 << (rested % PAGE));
        }
        Some(object)
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let pages = (self.base..).step_by(PAGE as usize).zip(&self.pages);
        pages.flat_map(|(first, page)| {
            let objects = page.objects.iter().flat_map(|objects| objects.iter());
            (first..)
                .zip(objects)
                .filter_map(|(number, object)| Some((number, object.as_ref()?)))
        })
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.base, self.limit);
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

    /// Returns the number of objects that the table has memory for.
    fn room(table: &Table<u32>) -> usize {
        let objects = table.pages.iter().filter(|page| page.objects.is_some());
        objects.count() * PAGE as usize
    }

    #[test]
    fn a_million_objects_leave_no_memory_behind_and_no_number_comes_back_early() {
        let mut table = Table::new(0x10, 1 << 18);
        let kept: Vec<_> = (0..100).map(|_| table.insert(7).unwrap()).collect();
        // When each number was given last, and freed.
        let mut given = vec![None; 1 << 18];
        for round in 0..1_000_000u32 {
            let number = table.insert(round).unwrap();
            let before = given[number as usize - 0x10].replace(round);
            assert!(before.is_none_or(|before| round - before > (1 << 18) - 200));
            assert_eq!(table.remove(number), Some(round));
            assert!(!table.contains(number));
            // It looks at all pages.
            if round % 10_000 == 0 {
                assert!(room(&table) <= 100 + 2 * PAGE as usize);
            }
        }
        assert!(table.resting.len() <= RESTING);
        assert!(table.pages.len() <= (1 << 18) / PAGE as usize);
        let left: Vec<_> = table.iter().map(|(number, _)| number).collect();
        assert_eq!(left, kept);
    }

    #[test]
    fn a_number_that_was_freed_ahead_of_the_search_rests_first() {
        let mut table = Table::new(0, 1 << 14);
        let all: Vec<_> = (0..1 << 14).map(|at| table.insert(at).unwrap()).collect();
        assert_eq!(table.insert(0), None);
        // All but one rest or are free, and the search is at its beginning again.
        for number in &all[1..] {
            table.remove(*number).unwrap();
        }
        table.remove(0).unwrap();
        for _ in 0..(1 << 14) - RESTING {
            assert_ne!(table.insert(1), Some(0));
        }
        // The ones that were freed last, in their order.
        let last: Vec<_> = (0..RESTING).map(|_| table.insert(1).unwrap()).collect();
        let expected: Vec<_> = (all.len() as u32 - RESTING as u32 + 1..all.len() as u32).collect();
        assert_eq!(last[..RESTING - 1], expected);
        assert_eq!(last[RESTING - 1], 0);
        assert_eq!((table.len(), table.next_number()), (1 << 14, None));
    }
}
