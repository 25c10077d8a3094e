//! The flow table at the root of what the function receives: rules with priorities.
//!
//! The device looks at groups of entries in the order of their indexes. All entries of a group have one mask, so a group
//! costs one lookup however many entries it has. The table is divided into equal parts, one for each priority, and in its
//! part a mask gets a group when the first rule needs it, of one entry; when its groups are full, the next one has as many
//! entries as they have together. A group that becomes empty is given back.

use core::fmt;
use core::ops::Range;

use bareverbs_firmware_cmds::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, DeleteFteIn, DestFormat, DestroyFlowGroupIn,
    DestroyFlowTableIn, FlowCounterList, FteMatchSetLyr24, SetFteIn,
};
use bareverbs_firmware_cmds::numbers::Tirn;
use bareverbs_firmware_cmds::values::{AllowedList, FlowDestination, FlowTableMiss};

use crate::device::{Device, TailIn};
use crate::ethernet::counter::FlowCounter;
use crate::ethernet::error::EthernetError;
use crate::ethernet::flow::{self, FlowMatch};
use crate::ethernet::limits::{Limits, MultiQueueLimits};
use crate::ethernet::steering::{self, FORWARD, NIC_RX, OUTER_HEADERS, Root};
use crate::ethernet::vport;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::Mac;

/// `action` of an entry: nothing comes of the frame.
const DROP: u16 = 1 << 1;
/// `action` of an entry: it counts what it sees.
const COUNT: u16 = 1 << 3;

/// Room for a rule, from the caller.
#[derive(Debug, Clone, Copy)]
pub struct FlowSlot {
    /// Entries of the group that starts here; 0 if none does.
    entries: u32,
    /// Its number, and what it looks at.
    group: u32,
    mask: FteMatchSetLyr24,
    /// `true` if there is a rule here.
    used: bool,
}

impl FlowSlot {
    /// No rule.
    pub const fn new() -> Self {
        Self {
            entries: 0,
            group: 0,
            mask: FteMatchSetLyr24::ZERO,
            used: false,
        }
    }
}

impl Default for FlowSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// The action on the frames of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowAction<'a> {
    /// Each target gets the frame. More than one target is not for every card.
    Forward(&'a [Tirn]),
    /// They are dropped.
    Drop,
}

/// A rule to be: `ibv_flow_attr`.
#[derive(Clone, Copy)]
pub struct FlowRuleInit<'a, 'd, P: Platform> {
    /// The frames of the rule.
    pub matches: FlowMatch,
    /// The action on them.
    pub action: FlowAction<'a>,
    /// Below the table's number of priorities; 0 is looked at first. Of two rules of one priority that a frame fits, it is
    /// not said which one takes it.
    pub priority: u8,
    /// Counts them.
    pub counter: Option<&'a FlowCounter<'d, P>>,
    /// 24 bits that frames bring along: [`ReceivedFrame::flow_tag`](super::ReceivedFrame::flow_tag).
    pub tag: u32,
}

impl<'a, 'd, P: Platform> FlowRuleInit<'a, 'd, P> {
    /// A rule of the first priority, without counter and tag.
    #[must_use]
    pub const fn new(matches: FlowMatch, action: FlowAction<'a>) -> Self {
        Self {
            matches,
            action,
            priority: 0,
            counter: None,
            tag: 0,
        }
    }

    /// Sets the priority.
    #[must_use]
    pub const fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Counted by this counter.
    #[must_use]
    pub const fn counted(mut self, counter: &'a FlowCounter<'d, P>) -> Self {
        self.counter = Some(counter);
        self
    }

    /// With this mark on each frame.
    #[must_use]
    pub const fn tag(mut self, tag: u32) -> Self {
        self.tag = tag;
        self
    }
}

/// The content of a table's entry, but for where its frames go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) matches: FlowMatch,
    pub(super) counter: Option<u32>,
    pub(super) tag: u32,
    pub(super) drop: bool,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            matches: FlowMatch::ANY,
            counter: None,
            tag: 0,
            drop: false,
        }
    }
}

/// A rule of a [`FlowTable`], which holds until it is removed, or the table goes.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a rule can only be removed by this"]
pub struct FlowRule {
    index: u32,
}

/// Why a rule was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowError {
    /// The card cannot match a field.
    Field {
        /// The field's name.
        name: &'static str,
    },
    /// The table has fewer priorities.
    Priority {
        /// The priority that was asked for.
        asked: u8,
        /// The number of priorities.
        limit: u8,
    },
    /// A rule sends frames to nothing, or to more targets than the card takes.
    Targets {
        /// The number of targets that was asked for.
        asked: usize,
        /// The most.
        limit: usize,
    },
    /// A tag has 24 bits.
    Tag {
        /// The tag that was asked for.
        asked: u32,
    },
    /// Two specifications ask for different values of a field, which no frame has.
    Conflict,
    /// The table does not have what the rule asks for.
    Unsupported {
        /// The missing capability.
        what: &'static str,
    },
    /// There is no room for a rule with these fields at this priority.
    Full,
    /// The table has no such rule.
    Unknown,
    /// The firmware refused.
    Command(CommandError),
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { name } => write!(f, "the function cannot match {name}"),
            Self::Priority { asked, limit } => {
                write!(f, "priority {asked} of a table with {limit}")
            }
            Self::Targets { asked, limit } => {
                write!(f, "a rule with {asked} targets, not 1..={limit}")
            }
            Self::Tag { asked } => write!(f, "a tag of more than 24 bits: {asked:#x}"),
            Self::Conflict => f.write_str("no frame has all that the rule asks for"),
            Self::Unsupported { what } => write!(f, "the table does not have {what}"),
            Self::Full => f.write_str("no room for the rule at its priority"),
            Self::Unknown => f.write_str("no such rule"),
            Self::Command(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FlowError {}

impl From<CommandError> for FlowError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

/// Rules that say which frames come to which target, at the root of what the function receives. Frames that no rule is
/// for are dropped. RoCE never comes here. Taken down when dropped, before targets and counters.
///
/// If an [`EthernetQueue`](super::EthernetQueue) has the root when the table is made, the table stands in front of it: the
/// queue gets what no rule takes. The table has to go before the queue. It takes no part in which frames a virtual function
/// gets: the queue says that.
///
/// Rules with the same mask at the same priority share groups, so that a frame costs the device few lookups. What the
/// growth of groups leaves unused, and what a removed rule leaves free beside others of its group, is for rules with the
/// same mask only.
pub struct FlowTable<'d, 's, P: Platform> {
    device: &'d Device<'d, P>,
    /// Until the firmware was asked to destroy it.
    table: Option<u32>,
    slots: &'s mut [FlowSlot],
    priorities: u8,
    max_targets: usize,
    fields: [u8; 16],
    mac: Mac,
    /// The queue's table, if that is no longer the root.
    root_behind: Option<u32>,
    /// The parts of the port's context that were written.
    addresses: bool,
    multicast: bool,
    promiscuous: bool,
    _root: Root<'d, P>,
}

impl<'d, 's, P: Platform> FlowTable<'d, 's, P> {
    pub(super) fn create(
        device: &'d Device<'d, P>,
        limits: &Limits,
        more: &MultiQueueLimits,
        slots: &'s mut [FlowSlot],
        priorities: u8,
        mac: Mac,
    ) -> Result<Self, EthernetError> {
        // The queue's table, if a queue has the root.
        let behind = device.steering.queue_table();
        let root = match behind {
            Some(_) => Root::take_front(device)?,
            None => Root::take(device)?,
        };
        let most = 1_u64 << limits.log_table;
        if slots.is_empty() || slots.len() as u64 > most {
            return Err(EthernetError::Size {
                field: "slots",
                asked: slots.len() as u64,
                limit: most,
            });
        }
        if priorities == 0 || usize::from(priorities) > slots.len() {
            return Err(EthernetError::Size {
                field: "priorities",
                asked: priorities.into(),
                limit: slots.len().min(u8::MAX.into()) as u64,
            });
        }
        slots.fill(FlowSlot::new());
        let mut command = CreateFlowTableIn::new();
        let context = command.set_table_type(NIC_RX).flow_table_context_mut();
        context.set_log_size(slots.len().next_power_of_two().ilog2() as u8);
        if let Some(behind) = behind {
            context
                .set_table_miss_action(FlowTableMiss::Forward.number())
                .set_table_miss_id(behind);
        }
        let table = device.execute(&command)?.table_id();
        // From here on, dropping undoes it.
        let mut this = Self {
            device,
            table: Some(table),
            slots,
            priorities,
            max_targets: more.max_targets,
            fields: more.fields,
            mac,
            root_behind: None,
            addresses: false,
            multicast: false,
            promiscuous: false,
            _root: root,
        };
        if limits.modify_root {
            steering::set_root(device, table)?;
            this.root_behind = behind;
        }
        if behind.is_some() {
            // The queue has told the port its addresses.
            return Ok(this);
        }
        this.addresses = true;
        let mut own = |_| vport::number(mac);
        vport::write_addresses(device, AllowedList::CurrentUc, 1, &mut own)?;
        Ok(this)
    }

    fn table(&self) -> u32 {
        self.table.unwrap_or(0)
    }

    /// The slots of a priority.
    fn part(&self, priority: u8) -> Range<usize> {
        let each = self.slots.len() / usize::from(self.priorities);
        let first = usize::from(priority) * each;
        first..first + each
    }

    /// Adds a rule, which counts for the next frame on: `ibv_create_flow`.
    ///
    /// # Errors
    /// [`FlowError`] says what does not go; then the table is as it was.
    pub fn add(&mut self, init: &FlowRuleInit<'_, 'd, P>) -> Result<FlowRule, FlowError> {
        let entry = Entry {
            matches: init.matches,
            counter: init.counter.map(|counter| counter.id().0),
            tag: init.tag,
            drop: false,
        };
        self.add_entry(&entry, init.action, init.priority)
    }

    pub(super) fn priorities(&self) -> u8 {
        self.priorities
    }

    /// Adds an entry at a priority.
    pub(super) fn add_entry(
        &mut self,
        entry: &Entry,
        action: FlowAction<'_>,
        priority: u8,
    ) -> Result<FlowRule, FlowError> {
        if priority >= self.priorities {
            return Err(FlowError::Priority {
                asked: priority,
                limit: self.priorities,
            });
        }
        if entry.tag >> 24 != 0 {
            return Err(FlowError::Tag { asked: entry.tag });
        }
        if let FlowAction::Forward(to) = action
            && !(1..=self.max_targets).contains(&to.len())
        {
            return Err(FlowError::Targets {
                asked: to.len(),
                limit: self.max_targets,
            });
        }
        let mut matches = entry.matches;
        if !flow::supports(self.fields, flow::VERSION) {
            matches = matches.version_by_ethertype();
        }
        if let Some(name) = flow::unsupported(&matches.mask, self.fields) {
            return Err(FlowError::Field { name });
        }
        let part = self.part(priority);
        let (first, index) = match self.free_entry(part.clone(), &matches.mask) {
            Ok(found) => found,
            Err(siblings) => {
                let first = self.add_group(part, siblings, matches.mask)?;
                (first, first)
            }
        };
        if let Err(error) = self.set_entry(first, index, &Entry { matches, ..*entry }, action) {
            // A new group has no other entry.
            let _ = self.destroy_group_if_empty(first);
            return Err(error.into());
        }
        self.slots[index].used = true;
        Ok(FlowRule {
            index: index as u32,
        })
    }

    /// The groups of a range of slots: where they start, and how many entries they have.
    fn groups(&self, part: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        part.filter_map(|at| match self.slots[at].entries {
            0 => None,
            entries => Some((at, entries as usize)),
        })
    }

    /// A free entry of a group with this mask, and the group's first; else how many entries all such groups have.
    fn free_entry(
        &self,
        part: Range<usize>,
        mask: &FteMatchSetLyr24,
    ) -> Result<(usize, usize), usize> {
        let mut siblings = 0;
        for (first, entries) in self.groups(part) {
            if self.slots[first].mask != *mask {
                continue;
            }
            siblings += entries;
            let mut inside = first..first + entries;
            if let Some(index) = inside.find(|&index| !self.slots[index].used) {
                return Ok((first, index));
            }
        }
        Err(siblings)
    }

    /// Makes a group of `wanted` entries, or as many as there is room for, and returns where it starts.
    fn add_group(
        &mut self,
        part: Range<usize>,
        wanted: usize,
        mask: FteMatchSetLyr24,
    ) -> Result<usize, FlowError> {
        // The first gap that is large enough, or the largest one.
        let wanted = wanted.max(1);
        let mut best = 0..0;
        let mut from = part.start;
        let ends = self.groups(part.clone()).chain([(part.end, 0)]);
        for (first, entries) in ends {
            let better = first - from > best.len() && best.len() < wanted;
            if better {
                best = from..first;
            }
            from = first + entries;
        }
        let entries = wanted.min(best.len());
        if entries == 0 {
            return Err(FlowError::Full);
        }
        let mut command = CreateFlowGroupIn::new();
        command
            .set_table_type(NIC_RX)
            .set_table_id(self.table())
            .set_start_flow_index(best.start as u32)
            .set_end_flow_index((best.start + entries - 1) as u32);
        if mask != FteMatchSetLyr24::ZERO {
            command.set_match_criteria_enable(OUTER_HEADERS);
            *command.match_criteria_mut().outer_headers_mut() = mask;
        }
        let group = self.device.execute(&command)?.group_id();
        self.slots[best.start] = FlowSlot {
            entries: entries as u32,
            group,
            mask,
            used: false,
        };
        Ok(best.start)
    }

    fn set_entry(
        &self,
        first: usize,
        index: usize,
        entry: &Entry,
        action: FlowAction<'_>,
    ) -> Result<(), CommandError> {
        let (mut action, targets) = match action {
            FlowAction::Forward(to) => (FORWARD, to),
            FlowAction::Drop => (DROP, &[][..]),
        };
        let counter = entry.counter;
        if counter.is_some() {
            action |= COUNT;
        }
        let mut command = SetFteIn::new();
        command
            .set_table_type(NIC_RX)
            .set_table_id(self.table())
            .set_flow_index(index as u32);
        let context = command.flow_context_mut();
        context
            .set_group_id(self.slots[first].group)
            .set_flow_tag(entry.tag)
            .set_action(action)
            .set_destination_list_size(targets.len() as u32)
            .set_flow_counter_list_size(u32::from(counter.is_some()));
        *context.match_value_mut().outer_headers_mut() = entry.matches.value;
        // Destinations, then counters.
        let mut list = |at: usize| match (targets.get(at), counter) {
            (Some(to), _) => {
                let mut format = DestFormat::ZERO;
                format
                    .set_destination_type(FlowDestination::Tir.number())
                    .set_destination_id(to.number());
                u64::from_be_bytes(format.0)
            }
            (None, Some(counter)) => {
                let mut format = FlowCounterList::ZERO;
                format.set_flow_counter_id(counter);
                u64::from_be_bytes(format.0)
            }
            (None, None) => 0,
        };
        let tail = TailIn::Qwords(targets.len() + usize::from(counter.is_some()), &mut list);
        self.device.execute_with(&command, tail, &mut []).map(drop)
    }

    fn delete_entry(&self, index: usize) -> Result<(), CommandError> {
        let mut command = DeleteFteIn::new();
        command
            .set_table_type(NIC_RX)
            .set_table_id(self.table())
            .set_flow_index(index as u32);
        self.device.execute_no_output(&command)
    }

    fn destroy_group_if_empty(&mut self, first: usize) -> Result<(), CommandError> {
        let slot = self.slots[first];
        let mut inside = first..first + slot.entries as usize;
        if slot.entries == 0 || inside.any(|index| self.slots[index].used) {
            return Ok(());
        }
        let mut command = DestroyFlowGroupIn::new();
        command
            .set_table_type(NIC_RX)
            .set_table_id(self.table())
            .set_group_id(slot.group);
        self.device.execute_no_output(&command)?;
        self.slots[first] = FlowSlot::new();
        Ok(())
    }

    /// Removes a rule: `ibv_destroy_flow`. Frames that its targets have already stay there.
    ///
    /// # Errors
    /// If the table has no such rule, or if the firmware refuses; then the rule holds on.
    pub fn remove(&mut self, rule: FlowRule) -> Result<(), FlowError> {
        self.remove_entry(&rule)?;
        Ok(self.destroy_group_of(&rule)?)
    }

    /// The same for a caller who keeps a rule that holds on.
    ///
    /// # Errors
    /// The rule, and why it holds on.
    pub fn try_remove(&mut self, rule: FlowRule) -> Result<(), (FlowRule, FlowError)> {
        if let Err(error) = self.remove_entry(&rule) {
            return Err((rule, error));
        }
        // The rule is gone. What is left of its group is there for the next one with the same fields.
        if let Err(error) = self.destroy_group_of(&rule) {
            log::warn!("a flow group stays with the device: {error}");
        }
        Ok(())
    }

    fn remove_entry(&mut self, rule: &FlowRule) -> Result<(), FlowError> {
        let index = rule.index as usize;
        if !self.slots.get(index).is_some_and(|slot| slot.used) {
            return Err(FlowError::Unknown);
        }
        self.delete_entry(index)?;
        self.slots[index].used = false;
        Ok(())
    }

    /// Gives the group back that a removed rule was in, if it was the last one there.
    fn destroy_group_of(&mut self, rule: &FlowRule) -> Result<(), CommandError> {
        let index = rule.index as usize;
        let group = self.groups(0..self.slots.len());
        let first = group.take_while(|&(first, _)| first <= index).last();
        match first {
            Some((first, _)) => self.destroy_group_if_empty(first),
            None => Ok(()),
        }
    }

    /// Rules that there are.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.slots.iter().filter(|slot| slot.used).count()
    }

    /// Tells the port which multicast addresses rules are for, in place of those told before. A virtual function gets
    /// frames to these only; for others it makes no difference. Not for a table in front of a queue, whose addresses these
    /// would replace.
    ///
    /// # Errors
    /// If the firmware refuses.
    pub fn set_multicast(&mut self, groups: &[Mac]) -> Result<(), CommandError> {
        let mut address = |at: usize| groups.get(at).copied().map_or(0, vport::number);
        let kind = AllowedList::CurrentMc;
        vport::write_addresses(self.device, kind, groups.len(), &mut address)
    }

    /// Tells the port that rules are for all multicast addresses, and for all addresses: for a virtual function, as
    /// [`set_multicast`](Self::set_multicast).
    ///
    /// # Errors
    /// If the firmware refuses, as it does for virtual functions that are not trusted.
    pub fn set_promiscuous(&mut self, multicast: bool, all: bool) -> Result<(), CommandError> {
        vport::write_promiscuity(self.device, multicast, all)?;
        (self.multicast, self.promiscuous) = (multicast, all);
        Ok(())
    }

    /// Takes everything away, in order; goes on after a refusal, and returns the first one.
    fn take_down(&mut self) -> Result<(), CommandError> {
        let Some(table) = self.table else {
            return Ok(());
        };
        let mut first = Ok(());
        let mut keep_first = |result: Result<(), CommandError>| {
            if first.is_ok() {
                first = result;
            }
        };
        if let Some(behind) = self.root_behind {
            keep_first(steering::set_root(self.device, behind));
        }
        for index in 0..self.slots.len() {
            if self.slots[index].used {
                keep_first(self.delete_entry(index));
                self.slots[index].used = false;
            }
        }
        for at in 0..self.slots.len() {
            keep_first(self.destroy_group_if_empty(at));
        }
        let mut command = DestroyFlowTableIn::new();
        command.set_table_type(NIC_RX).set_table_id(table);
        keep_first(self.device.execute_no_output(&command));
        self.table = None;
        if self.multicast || self.promiscuous {
            keep_first(vport::write_promiscuity(self.device, false, false));
        }
        if self.addresses {
            let mut none = |_| 0;
            let mc = AllowedList::CurrentMc;
            keep_first(vport::write_addresses(self.device, mc, 0, &mut none));
            // An address that was set for the device is not this table's to take away.
            if *self.device.chosen_mac.lock() != Some(self.mac) {
                let uc = AllowedList::CurrentUc;
                keep_first(vport::write_addresses(self.device, uc, 0, &mut none));
            }
        }
        first
    }

    /// Takes it down, as dropping does, and returns the first refusal of the firmware.
    ///
    /// # Errors
    /// The firmware's first refusal.
    pub fn destroy(mut self) -> Result<(), CommandError> {
        self.take_down()
    }
}

impl<P: Platform> Drop for FlowTable<'_, '_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            log::warn!("a flow table stays with the device: {error}");
        }
    }
}

impl<P: Platform> fmt::Debug for FlowTable<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowTable")
            .field("table", &self.table)
            .field("rules", &self.rules())
            .finish_non_exhaustive()
    }
}
