//! Flow steering: which receive queues a frame goes to, what becomes of one that is sent, and of RDMA's packets.
//!
//! Pure: it uses frames and numbers only. Tables stand on levels and lead to higher ones of their direction only, so that a
//! walk ends; the entry with the lowest index takes a frame, and what no entry takes goes where the table's misses go. Without
//! such a place it goes nowhere if it was received, and out of the port if it is sent; RDMA's packets go on to their QPs.

use crate::memory::pages::Place;
use crate::objects::table::Table;
use crate::syndrome::Syndrome;
use counter::Counters;
pub(crate) use direction::{Direction, Miss};
use group::{Destination, Entry, Group, action};
use matching::{Fields, Mask};
use rewrite::Rewrite;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) mod counter;
pub(crate) mod direction;
pub(crate) mod group;
pub(crate) mod headers;
pub(crate) mod matching;
pub(crate) mod rewrite;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use walk::Verdict;

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    /// TIR that takes it.
    pub(crate) tir: u32,
    /// Tag of the last entry with one that it came through, which its completion carries.
    pub(crate) flow_tag: u32,
    /// The index of [`Steering::rewritten`] that it gets instead of the frame.
    pub(crate) rewritten: Option<usize>,
}

/// A frame whose headers an entry has changed.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) frame: Vec<u8>,
    fields: Fields,
}

/// The limits that the function's capabilities set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) direction: Direction,
    pub(crate) max_level: u8,
    pub(crate) log_table_size: u8,
    pub(crate) log_tables: u8,
    pub(crate) log_entries: u8,
    pub(crate) log_destinations: u8,
    pub(crate) log_entry_counters: u8,
    pub(crate) log_rewrites: u8,
    /// Actions of one list of changes to headers.
    pub(crate) rewrite_actions: u8,
    /// Misses may go to another domain.
    pub(crate) switch_domain: bool,
    /// Entries may be modified.
    pub(crate) modify_entry: bool,
    /// An entry may have several TIRs.
    pub(crate) several_tirs: bool,
    /// An entry may have tables beside its TIRs.
    pub(crate) tirs_and_tables: bool,
}

#[derive(Debug)]
pub(crate) struct FlowTable {
    pub(crate) direction: Direction,
    pub(crate) level: u8,
    pub(crate) log_size: u8,
    /// Where frames go that no entry takes.
    pub(crate) miss: Miss,
    pub(crate) place: Place,
    /// Groups by their first index.
    groups: BTreeMap<u32, u32>,
    /// Entries and misses that lead here.
    users: u32,
}

/// Where frames start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// At the table of the lowest level.
    Lowest,
    /// At this table.
    Table(u32),
    /// Nowhere.
    Disconnected,
}

/// An entry's fields that a modification sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modify {
    pub(crate) action: bool,
    pub(crate) flow_tag: bool,
    pub(crate) destinations: bool,
    pub(crate) counters: bool,
}

/// All flow tables with what is in them.
#[derive(Debug)]
pub(crate) struct Steering {
    tables: Table<FlowTable>,
    groups: Table<Group>,
    pub(crate) counters: Counters,
    /// Of each direction.
    roots: [Root; Direction::COUNT],
    /// Tables of each direction by level.
    levels: [BTreeSet<(u8, u32)>; Direction::COUNT],
    /// The number of destinations of entries that a TIR is.
    tirs: HashMap<u32, u32>,
    entries: usize,
    key: Vec<u64>,
    steps: Vec<walk::Step>,
    rewrites: Table<Rewrite>,
    /// The frames that the frame which was classified last has become.
    pub(crate) rewritten: Vec<Rewritten>,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            tables: Table::new(1, 1 << 16),
            groups: Table::new(1, 1 << 16),
            counters: Counters::default(),
            roots: [Root::Lowest; Direction::COUNT],
            levels: Default::default(),
            tirs: HashMap::new(),
            entries: 0,
            key: Vec::new(),
            steps: Vec::new(),
            rewrites: Table::new(1, 1 << 16),
            rewritten: Vec::new(),
        }
    }
}

impl Steering {
    /// The table where frames start.
    fn start(&self, direction: Direction) -> Option<u32> {
        match self.roots[direction as usize] {
            Root::Lowest => {
                let levels = &self.levels[direction as usize];
                levels.first().map(|&(_, table)| table)
            }
            Root::Table(table) => Some(table),
            Root::Disconnected => None,
        }
    }

    /// Returns `true` if an entry sends frames to a TIR.
    pub(crate) fn is_tir_used(&self, tir: u32) -> bool {
        self.tirs.contains_key(&tir)
    }

    pub(crate) fn table(&self, number: u32) -> Result<&FlowTable, Syndrome> {
        self.tables.get(number).ok_or(Syndrome::FlowTableUnknown)
    }

    /// A table of this direction has the number.
    pub(crate) fn check_table(&self, direction: Direction, number: u32) -> Result<(), Syndrome> {
        if self.table(number)?.direction != direction {
            return Err(Syndrome::FlowTableUnknown);
        }
        Ok(())
    }

    /// Checks whether frames may go to a table from one of this direction and level.
    fn lead(&self, direction: Direction, level: u8, to: u32) -> Result<(), Syndrome> {
        let table = self.tables.get(to);
        let table = table.filter(|table| table.direction == direction);
        let table = table.ok_or(Syndrome::FlowMissTable)?;
        if table.level <= level {
            return Err(Syndrome::FlowMissLevel);
        }
        Ok(())
    }

    /// Checks whether a table can be made, and which number it would get.
    pub(crate) fn plan_table(
        &self,
        limits: &Limits,
        level: u8,
        log_size: u8,
        miss: impl Into<Miss>,
    ) -> Result<u32, Syndrome> {
        if level > limits.max_level {
            return Err(Syndrome::FlowTableLevel);
        }
        if log_size > limits.log_table_size.min(31) {
            return Err(Syndrome::FlowTableSize);
        }
        if let Some(miss) = miss.into().table() {
            self.lead(limits.direction, level, miss)?;
        }
        if self.tables.len() >> limits.log_tables.min(31) != 0 {
            return Err(Syndrome::FlowTableExhausted);
        }
        self.tables
            .next_number()
            .ok_or(Syndrome::FlowTableExhausted)
    }

    /// Makes a table that was planned.
    pub(crate) fn insert_table(
        &mut self,
        direction: Direction,
        level: u8,
        log_size: u8,
        miss: impl Into<Miss>,
        place: Place,
    ) {
        let miss = miss.into();
        let table = FlowTable {
            direction,
            level,
            log_size,
            miss,
            place,
            groups: BTreeMap::new(),
            users: 0,
        };
        if let Some(number) = self.tables.insert(table) {
            self.levels[direction as usize].insert((level, number));
            self.lean(miss.table(), 1);
        }
    }

    /// Counts one more or less that leads to a table.
    fn lean(&mut self, to: Option<u32>, by: i32) {
        if let Some(table) = to.and_then(|number| self.tables.get_mut(number)) {
            table.users = table.users.saturating_add_signed(by);
        }
    }

    /// Lets a table's misses go elsewhere.
    pub(crate) fn set_miss(&mut self, number: u32, miss: impl Into<Miss>) -> Result<(), Syndrome> {
        let miss = miss.into();
        let &FlowTable {
            direction, level, ..
        } = self.table(number)?;
        if let Some(miss) = miss.table() {
            self.lead(direction, level, miss)?;
        }
        let table = self
            .tables
            .get_mut(number)
            .ok_or(Syndrome::FlowTableUnknown)?;
        let old = core::mem::replace(&mut table.miss, miss);
        self.lean(old.table(), -1);
        self.lean(miss.table(), 1);
        Ok(())
    }

    /// Checks whether a table can go.
    pub(crate) fn may_destroy_table(&self, number: u32) -> Result<Place, Syndrome> {
        let table = self.table(number)?;
        if !table.groups.is_empty() {
            return Err(Syndrome::FlowTableGroups);
        }
        if table.users != 0 {
            return Err(Syndrome::FlowTableBusy);
        }
        let direction = table.direction as usize;
        // The last table may go as the root: there is no other that could be.
        if self.roots[direction] == Root::Table(number) && self.levels[direction].len() > 1 {
            return Err(Syndrome::FlowTableRoot);
        }
        Ok(table.place)
    }

    pub(crate) fn remove_table(&mut self, number: u32) {
        if let Some(table) = self.tables.remove(number) {
            let direction = table.direction as usize;
            self.levels[direction].remove(&(table.level, number));
            self.lean(table.miss.table(), -1);
            if self.roots[direction] == Root::Table(number) {
                self.roots[direction] = Root::Lowest;
            }
        }
    }

    pub(crate) fn set_root(&mut self, direction: Direction, root: Root) -> Result<(), Syndrome> {
        if let Root::Table(number) = root {
            self.check_table(direction, number)?;
        }
        self.roots[direction as usize] = root;
        Ok(())
    }

    /// A group of a table.
    pub(crate) fn group(&self, table: u32, number: u32) -> Result<&Group, Syndrome> {
        self.table(table)?;
        self.groups
            .get(number)
            .filter(|group| group.table == table)
            .ok_or(Syndrome::FlowGroupUnknown)
    }

    /// Checks whether a group can be made, and which number it would get.
    pub(crate) fn plan_group(&self, table: u32, first: u32, last: u32) -> Result<u32, Syndrome> {
        let table = self.table(table)?;
        if first > last || u64::from(last) >= 1 << table.log_size {
            return Err(Syndrome::FlowGroupRange);
        }
        let before = table.groups.range(..=last).next_back();
        let before = before.and_then(|(_, &number)| self.groups.get(number));
        if before.is_some_and(|group| group.last >= first) {
            return Err(Syndrome::FlowGroupOverlap);
        }
        self.groups
            .next_number()
            .ok_or(Syndrome::FlowGroupExhausted)
    }

    /// Makes a group that was planned.
    pub(crate) fn insert_group(
        &mut self,
        table: u32,
        range: (u32, u32),
        enable: u8,
        mask: Mask,
        place: Place,
    ) {
        let group = Group::new(table, range, enable, mask, place);
        let number = self.groups.insert(group);
        if let (Some(number), Some(table)) = (number, self.tables.get_mut(table)) {
            table.groups.insert(range.0, number);
        }
    }

    /// Checks whether a group can go.
    pub(crate) fn may_destroy_group(&self, table: u32, number: u32) -> Result<Place, Syndrome> {
        let group = self.group(table, number)?;
        if group.len() != 0 {
            return Err(Syndrome::FlowGroupBusy);
        }
        Ok(group.place)
    }

    pub(crate) fn remove_group(&mut self, number: u32) {
        if let Some(group) = self.groups.remove(number)
            && let Some(table) = self.tables.get_mut(group.table)
        {
            table.groups.remove(&group.first);
        }
    }

    /// The group that an index of a table lies in.
    fn group_at(&self, table: u32, index: u32) -> Result<u32, Syndrome> {
        let below = self.table(table)?.groups.range(..=index).next_back();
        let (_, &number) = below.ok_or(Syndrome::FteUnknown)?;
        Ok(number)
    }

    /// The entry at an index of a table, and the group that it is in.
    pub(crate) fn entry(&self, table: u32, index: u32) -> Result<(u32, &Entry), Syndrome> {
        let number = self.group_at(table, index)?;
        let group = self.groups.get(number);
        let entry = group.and_then(|group| group.entry(index));
        Ok((number, entry.ok_or(Syndrome::FteUnknown)?))
    }

    /// Sets an entry, or modifies one that there is.
    pub(crate) fn set_entry(
        &mut self,
        limits: &Limits,
        (table, number, index): (u32, u32, u32),
        mut entry: Entry,
        modify: Option<Modify>,
        tir_exists: &dyn Fn(u32) -> bool,
    ) -> Result<(), Syndrome> {
        let level = self.table(table)?.level;
        let group = self.group(table, number)?;
        if index < group.first || index > group.last {
            return Err(Syndrome::FteIndex);
        }
        if !group.mask.covers(&entry.value) {
            return Err(Syndrome::FteValue);
        }
        match (group.entry(index), modify) {
            (None, None) => {
                if self.entries >> limits.log_entries.min(63) != 0 {
                    return Err(Syndrome::FteExhausted);
                }
            }
            (None, Some(_)) => return Err(Syndrome::FteUnknown),
            (Some(_), None) => return Err(Syndrome::FteOccupied),
            (Some(_), Some(_)) if !limits.modify_entry => {
                return Err(Syndrome::FteModifyUnsupported);
            }
            (Some(old), Some(modify)) => entry = merge(old, entry, modify)?,
        }
        self.check_entry(limits, level, &entry, modify.is_some(), tir_exists)?;
        self.hold(&entry);
        self.entries += 1;
        let old = self
            .groups
            .get_mut(number)
            .and_then(|group| group.put(index, entry));
        if let Some(old) = old {
            self.release(&old);
        }
        Ok(())
    }

    /// Returns `true` if what an entry does makes sense and leads somewhere.
    fn check_entry(
        &mut self,
        limits: &Limits,
        level: u8,
        entry: &Entry,
        modified: bool,
        tir_exists: &dyn Fn(u32) -> bool,
    ) -> Result<(), Syndrome> {
        let mut verdicts = action::DROP | action::FORWARD;
        if limits.direction != Direction::Receive {
            verdicts |= action::ALLOW;
        }
        let known = verdicts | action::COUNT | action::MODIFY_HEADER;
        let verdicts = entry.action & verdicts;
        if entry.action & !known != 0
            || verdicts.count_ones() > 1
            // Drivers take an entry's destinations away one by one before they delete it.
            || verdicts == 0 && !modified
        {
            return Err(Syndrome::FteAction);
        }
        let (required, has) = (
            entry.action & action::FORWARD != 0,
            !entry.destinations.is_empty(),
        );
        if has && !required || required && !has && !modified {
            return Err(Syndrome::FteDestinations);
        }
        if (entry.action & action::MODIFY_HEADER != 0) != entry.rewrite.is_some() {
            return Err(Syndrome::FteRewrite);
        }
        if let Some(number) = entry.rewrite
            && self.rewrite(number)?.direction != limits.direction
        {
            return Err(Syndrome::RewriteUnknown);
        }
        if (entry.action & action::COUNT != 0) == entry.counters.is_empty() {
            return Err(Syndrome::FteCounters);
        }
        if entry.destinations.len() > 1 << limits.log_destinations.min(31) {
            return Err(Syndrome::FteDestinationLimit);
        }
        if entry.counters.len() > 1 << limits.log_entry_counters.min(31) {
            return Err(Syndrome::FteCounterLimit);
        }
        let mut tirs = 0;
        for &destination in &entry.destinations {
            match destination {
                Destination::Tir(tir) if !tir_exists(tir) => return Err(Syndrome::FteTir),
                Destination::Tir(_) => tirs += 1,
                Destination::Table(to) => {
                    self.lead(limits.direction, level, to)
                        .map_err(|why| match why {
                            Syndrome::FlowMissLevel => Syndrome::FteTableLevel,
                            _ => Syndrome::FteTable,
                        })?;
                }
            }
        }
        // A frame that is sent has one way, and so has a packet of RDMA.
        if limits.direction != Direction::Receive && (tirs != 0 || entry.destinations.len() > 1)
            || tirs > 1 && !limits.several_tirs
            || tirs != 0 && tirs < entry.destinations.len() && !limits.tirs_and_tables
        {
            return Err(Syndrome::FteMultiPath);
        }
        if entry
            .counters
            .iter()
            .any(|&counter| self.counters.get(counter).is_none())
        {
            return Err(Syndrome::FteCounterUnknown);
        }
        Ok(())
    }

    pub(crate) fn delete_entry(&mut self, table: u32, index: u32) -> Result<(), Syndrome> {
        let number = self.group_at(table, index)?;
        let group = self.groups.get_mut(number);
        let entry = group
            .and_then(|group| group.take(index))
            .ok_or(Syndrome::FteUnknown)?;
        self.release(&entry);
        Ok(())
    }

    /// Counts what an entry uses.
    fn hold(&mut self, entry: &Entry) {
        for &destination in &entry.destinations {
            match destination {
                Destination::Tir(tir) => *self.tirs.entry(tir).or_default() += 1,
                Destination::Table(table) => self.lean(Some(table), 1),
            }
        }
        for &counter in &entry.counters {
            self.counters.hold(counter);
        }
        self.use_rewrite(entry.rewrite, 1);
    }

    /// The entry is gone.
    fn release(&mut self, entry: &Entry) {
        self.entries -= 1;
        for &destination in &entry.destinations {
            match destination {
                Destination::Tir(tir) => {
                    if let Some(users) = self.tirs.get_mut(&tir) {
                        *users -= 1;
                        if *users == 0 {
                            self.tirs.remove(&tir);
                        }
                    }
                }
                Destination::Table(table) => self.lean(Some(table), -1),
            }
        }
        for &counter in &entry.counters {
            self.counters.release(counter);
        }
        self.use_rewrite(entry.rewrite, -1);
    }

    /// Counts one entry more or less that uses a list of changes.
    fn use_rewrite(&mut self, number: Option<u32>, by: i32) {
        if let Some(rewrite) = number.and_then(|number| self.rewrites.get_mut(number)) {
            rewrite.users = rewrite.users.saturating_add_signed(by);
        }
    }

    pub(crate) fn rewrite(&self, number: u32) -> Result<&Rewrite, Syndrome> {
        self.rewrites.get(number).ok_or(Syndrome::RewriteUnknown)
    }

    /// The number that a new list of changes would get.
    pub(crate) fn plan_rewrite(&self, limits: &Limits) -> Result<u32, Syndrome> {
        let full = self.rewrites.len() >> limits.log_rewrites.min(31) != 0;
        let number = self.rewrites.next_number().filter(|_| !full);
        number.ok_or(Syndrome::RewriteExhausted)
    }

    pub(crate) fn insert_rewrite(&mut self, rewrite: Rewrite) {
        self.rewrites.insert(rewrite);
    }

    pub(crate) fn remove_rewrite(&mut self, number: u32) {
        self.rewrites.remove(number);
    }

    /// Numbers of the tables, of the lists of changes, and of the groups.
    pub(crate) fn tables(&self) -> impl Iterator<Item = u32> {
        self.tables.iter().map(|(number, _)| number)
    }

    pub(crate) fn rewrites(&self) -> impl Iterator<Item = u32> {
        self.rewrites.iter().map(|(number, _)| number)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().map(|(number, _)| number)
    }
}

/// An entry with the fields replaced that a modification names.
fn merge(old: &Entry, new: Entry, modify: Modify) -> Result<Entry, Syndrome> {
    if new.value != old.value {
        return Err(Syndrome::FteModifyValue);
    }
    let mut entry = old.clone();
    if modify.action {
        entry.action = new.action;
        entry.rewrite = new.rewrite;
    }
    if modify.flow_tag {
        entry.flow_tag = new.flow_tag;
    }
    if modify.destinations {
        entry.destinations = new.destinations;
    }
    if modify.counters {
        entry.counters = new.counters;
    }
    Ok(entry)
}
