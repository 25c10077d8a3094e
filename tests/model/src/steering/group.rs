//! A group: entries with one mask in a range of their table.

use crate::memory::pages::Place;
use crate::steering::matching::{Fields, Mask};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Where an entry sends a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    Table(u32),
    Tir(u32),
}

/// Bits of what an entry does.
pub(crate) mod action {
    pub(crate) const ALLOW: u16 = 1 << 0;
    pub(crate) const DROP: u16 = 1 << 1;
    pub(crate) const FORWARD: u16 = 1 << 2;
    pub(crate) const COUNT: u16 = 1 << 3;
    pub(crate) const MODIFY_HEADER: u16 = 1 << 6;
}

/// The action of an entry on frames that have its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) value: Fields,
    pub(crate) action: u16,
    pub(crate) flow_tag: u32,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) counters: Vec<u32>,
    /// The changes of headers.
    pub(crate) rewrite: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) table: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Sections of the criteria, as the driver had them.
    pub(crate) enable: u8,
    pub(crate) mask: Mask,
    pub(crate) place: Place,
    entries: BTreeMap<u32, Entry>,
    /// Indexes by what a frame must have; the lowest one takes it.
    by_value: HashMap<Box<[u64]>, BTreeSet<u32>>,
}

impl Group {
    pub(crate) fn new(
        table: u32,
        (first, last): (u32, u32),
        enable: u8,
        mask: Mask,
        place: Place,
    ) -> Self {
        Self {
            table,
            first,
            last,
            enable,
            mask,
            place,
            entries: BTreeMap::new(),
            by_value: HashMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(&index)
    }

    /// Puts an entry at an index, and gives back the one that was there.
    pub(crate) fn put(&mut self, index: u32, entry: Entry) -> Option<Entry> {
        let old = self.take(index);
        let filed = self.mask.filed(&entry.value);
        self.by_value.entry(filed).or_default().insert(index);
        self.entries.insert(index, entry);
        old
    }

    pub(crate) fn take(&mut self, index: u32) -> Option<Entry> {
        let entry = self.entries.remove(&index)?;
        let filed = self.mask.filed(&entry.value);
        if let Some(indexes) = self.by_value.get_mut(&filed) {
            indexes.remove(&index);
            if indexes.is_empty() {
                self.by_value.remove(&filed);
            }
        }
        Some(entry)
    }

    /// The entry that takes a frame. `key` is space to work in.
    pub(crate) fn find(&self, fields: &Fields, key: &mut Vec<u64>) -> Option<&Entry> {
        let key = self.mask.key(fields, key)?;
        let index = self.by_value.get(key)?.first()?;
        self.entries.get(index)
    }
}
