//! Flow counters: frames and bytes that entries have seen, allocated one by one or many in a row.

use crate::memory::pages::Place;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

#[derive(Debug)]
struct Bulk {
    traffic: Vec<Traffic>,
    /// Entries that count with one of them.
    users: u32,
    place: Place,
}

/// The state of counters that were allocated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BulkInfo {
    /// Entries count with one of them.
    pub(crate) used: bool,
    pub(crate) count: u32,
    pub(crate) place: Place,
}

/// All counters, by the number of the first of each bulk.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    bulks: BTreeMap<u32, Bulk>,
    /// Where the next bulk is looked for, so that numbers come back late.
    next: u32,
    count: u32,
}

/// Numbers of bulks are multiples of this, as queries of several have to begin at one.
const ALIGNMENT: u32 = 4;
/// Numbers are below this.
const END: u32 = 1 << 24;

impl Counters {
    /// Counters that there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The first number that so many new counters would get.
    pub(crate) fn find_space(&self, count: u32) -> Option<u32> {
        let fits = |from: u32, below: u32| {
            let mut at = from.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
            // The bulk that begins before `from` may reach beyond it.
            if let Some((first, bulk)) = self.bulks.range(..at).next_back() {
                at = at.max((first + bulk.traffic.len() as u32).next_multiple_of(ALIGNMENT));
            }
            for (&first, bulk) in self.bulks.range(at..) {
                if at + count <= first || at >= below {
                    break;
                }
                at = (first + bulk.traffic.len() as u32).next_multiple_of(ALIGNMENT);
            }
            (at < below && at + count <= END).then_some(at)
        };
        fits(self.next, END).or_else(|| fits(0, self.next))
    }

    /// Makes counters at a place that [`find_space`](Self::find_space) has named.
    pub(crate) fn insert(&mut self, first: u32, count: u32, place: Place) {
        let traffic = vec![Traffic::default(); count as usize];
        let bulk = Bulk {
            traffic,
            users: 0,
            place,
        };
        self.bulks.insert(first, bulk);
        self.next = first + count;
        self.count += count;
    }

    /// The bulk that begins at a number.
    pub(crate) fn bulk(&self, first: u32) -> Option<BulkInfo> {
        let bulk = self.bulks.get(&first)?;
        Some(BulkInfo {
            used: bulk.users != 0,
            count: bulk.traffic.len() as u32,
            place: bulk.place,
        })
    }

    pub(crate) fn remove(&mut self, first: u32) {
        if let Some(bulk) = self.bulks.remove(&first) {
            self.count -= bulk.traffic.len() as u32;
        }
    }

    fn of(&mut self, number: u32) -> Option<(&mut Bulk, usize)> {
        let (first, bulk) = self.bulks.range_mut(..=number).next_back()?;
        let at = (number - first) as usize;
        (at < bulk.traffic.len()).then_some((bulk, at))
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Traffic> {
        let (bulk, at) = self.of(number)?;
        bulk.traffic.get_mut(at)
    }

    pub(crate) fn hold(&mut self, number: u32) {
        if let Some((bulk, _)) = self.of(number) {
            bulk.users += 1;
        }
    }

    pub(crate) fn release(&mut self, number: u32) {
        if let Some((bulk, _)) = self.of(number) {
            bulk.users -= 1;
        }
    }

    /// First numbers of all bulks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.bulks.keys().copied()
    }
}
