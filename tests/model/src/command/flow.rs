//! Flow tables, groups, entries and counters.

use super::{Call, Result};
use crate::bus::io::Io;
use crate::device::Device;
use crate::objects::ObjectKind;
use crate::steering::group::{Destination, Entry};
use crate::steering::matching::{self, Mask};
use crate::steering::{Direction, Limits, Miss, Modify, Root};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::caps::FlowTablePropLayout;
use bareverbs_firmware_cmds::flow::{
    AllocFlowCounterIn, CreateFlowGroupIn, CreateFlowTableIn, DeallocFlowCounterIn, DeleteFteIn,
    DestFormat, DestroyFlowGroupIn, DestroyFlowTableIn, FlowContext, FlowCounterList,
    FlowTableContext, ModifyFlowTableIn, QueryFlowCounterIn, QueryFlowGroupIn, QueryFlowTableIn,
    QueryFteIn, SetFlowTableRootIn, SetFteIn,
};
use bareverbs_firmware_cmds::values::{FlowDestination, FlowTableMiss, FlowTableType};
use bareverbs_firmware_cmds::vport::TrafficCounter;
use zerocopy::{FromBytes, IntoBytes};

/// `op_mod` of SET_FLOW_TABLE_ROOT.
const CONNECT: u16 = 0;
const DISCONNECT: u16 = 1;
/// `op_mod` of SET_FLOW_TABLE_ENTRY.
const SET: u16 = 0;
const MODIFY: u16 = 1;
/// Bits of `modify_field_select` of MODIFY_FLOW_TABLE.
const MODIFY_MISS: u16 = 1 << 0;
/// Bits of `modify_enable_mask` of SET_FLOW_TABLE_ENTRY.
const MODIFY_ACTION: u8 = 1 << 0;
const MODIFY_FLOW_TAG: u8 = 1 << 1;
const MODIFY_DESTINATIONS: u8 = 1 << 2;
const MODIFY_COUNTERS: u8 = 1 << 3;
/// Counters in the smallest bulk.
const BULK: u32 = 128;
/// Queries of several counters begin at a multiple of this, and are for a multiple of it.
const QUERY_UNIT: u32 = 4;

pub(super) fn direction(table_type: u8) -> core::result::Result<Direction, Syndrome> {
    match FlowTableType::from_number(table_type) {
        Some(FlowTableType::NicReceive) => Ok(Direction::Receive),
        Some(FlowTableType::NicTransmit) => Ok(Direction::Transmit),
        Some(FlowTableType::RdmaReceive) => Ok(Direction::RdmaReceive),
        Some(FlowTableType::RdmaTransmit) => Ok(Direction::RdmaTransmit),
        _ => Err(Syndrome::FlowTableType),
    }
}

fn properties(device: &Device, direction: Direction) -> &FlowTablePropLayout {
    let caps = &device.caps.flow_table;
    match direction {
        Direction::Receive => caps.flow_table_properties_nic_receive(),
        Direction::Transmit => caps.flow_table_properties_nic_transmit(),
        Direction::RdmaReceive => caps.flow_table_properties_nic_receive_rdma(),
        Direction::RdmaTransmit => caps.flow_table_properties_nic_transmit_rdma(),
    }
}

pub(super) fn limits(
    device: &Device,
    direction: Direction,
) -> core::result::Result<Limits, Syndrome> {
    let properties = properties(device, direction);
    if !device.caps.general.nic_flow_table() || !properties.ft_support() {
        return Err(Syndrome::FlowUnsupported);
    }
    Ok(Limits {
        direction,
        max_level: properties.max_ft_level(),
        log_table_size: properties.log_max_ft_size(),
        log_tables: properties.log_max_ft_num(),
        log_entries: properties.log_max_flow(),
        log_destinations: properties.log_max_destination(),
        log_entry_counters: properties.log_max_flow_counter(),
        log_rewrites: properties.log_max_modify_header_context(),
        rewrite_actions: properties.max_modify_header_actions(),
        // Where QPs send there is no other domain that packets could go to.
        switch_domain: direction == Direction::RdmaReceive && properties.table_miss_action_domain(),
        modify_entry: properties.flow_modify_en(),
        several_tirs: device.caps.flow_table.nic_rx_multi_path_tirs(),
        tirs_and_tables: device.caps.flow_table.nic_rx_multi_path_tirs_fts(),
    })
}

/// The fields that most of the commands have.
struct Scope {
    op_mod: u16,
    other_vport: bool,
    vport_number: u16,
    table_type: u8,
}

impl Scope {
    fn check(&self, device: &Device) -> core::result::Result<Limits, Syndrome> {
        let limits = limits(device, direction(self.table_type)?)?;
        if self.other_vport || self.vport_number != 0 {
            return Err(Syndrome::OtherFunction);
        }
        if self.op_mod != 0 {
            return Err(Syndrome::FlowOpMod);
        }
        Ok(limits)
    }

    /// Also that the table of this number is one of its type.
    fn check_table(&self, device: &Device, table: u32) -> core::result::Result<Limits, Syndrome> {
        let limits = self.check(device)?;
        device.steering.check_table(limits.direction, table)?;
        Ok(limits)
    }
}

/// The scope of a command that has all of it.
macro_rules! scope {
    ($input:expr) => {
        Scope {
            op_mod: $input.op_mod(),
            other_vport: $input.other_vport(),
            vport_number: $input.vport_number(),
            table_type: $input.table_type(),
        }
    };
}

/// The scope of a query.
macro_rules! query_scope {
    ($input:expr) => {
        Scope {
            op_mod: $input.op_mod(),
            other_vport: false,
            vport_number: 0,
            table_type: $input.table_type(),
        }
    };
}

pub(super) fn set_root(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, SetFlowTableRootIn>,
) -> Result {
    let input = call.input;
    let scope = Scope {
        op_mod: 0,
        ..scope!(input)
    };
    let direction = scope.check(device)?.direction;
    if !properties(device, direction).modify_root() {
        return Err(Syndrome::FlowRootUnsupported.into());
    }
    if input.underlay_qpn() != 0 {
        return Err(Syndrome::FlowRootQp.into());
    }
    if input.table_of_other_vport()
        || input.table_vport_number() != 0
        || input.table_eswitch_owner_vhca_id_valid()
        || input.table_eswitch_owner_vhca_id() != 0
    {
        return Err(Syndrome::OtherFunction.into());
    }
    let root = match input.op_mod() {
        CONNECT => Root::Table(input.table_id()),
        DISCONNECT => Root::Disconnected,
        _ => return Err(Syndrome::FlowOpMod.into()),
    };
    Ok(device.steering.set_root(direction, root)?)
}

/// Where a table's misses go.
fn miss(limits: &Limits, context: &FlowTableContext) -> core::result::Result<Miss, Syndrome> {
    let action = FlowTableMiss::from_number(context.table_miss_action());
    match (action, context.table_miss_id()) {
        (Some(FlowTableMiss::Default), 0) => Ok(Miss::Default),
        (Some(FlowTableMiss::Forward), table) => Ok(Miss::Table(table)),
        (Some(FlowTableMiss::SwitchDomain), 0) if limits.switch_domain => Ok(Miss::SwitchDomain),
        _ => Err(Syndrome::FlowMissAction),
    }
}

fn table_context(level: u8, log_size: u8, miss: Miss) -> FlowTableContext {
    let action = match miss {
        Miss::Default => FlowTableMiss::Default,
        Miss::Table(_) => FlowTableMiss::Forward,
        Miss::SwitchDomain => FlowTableMiss::SwitchDomain,
    };
    let mut context = FlowTableContext::ZERO;
    context
        .set_level(level)
        .set_log_size(log_size)
        .set_table_miss_action(action.number())
        .set_table_miss_id(miss.table().unwrap_or(0));
    context
}

pub(super) fn create_table(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, CreateFlowTableIn>,
) -> Result {
    let limits = scope!(call.input).check(device)?;
    let context = call.input.flow_table_context();
    let (level, log_size) = (context.level(), context.log_size());
    let miss = miss(&limits, context)?;
    let plain = table_context(level, log_size, miss);
    if context != &plain {
        return Err(Syndrome::FlowTableFeature.into());
    }
    let number = device.steering.plan_table(&limits, level, log_size, miss)?;
    let place = device.store(io, ObjectKind::FlowTable, number, &plain.0)?;
    device
        .steering
        .insert_table(limits.direction, level, log_size, miss, place);
    call.output.set_table_id(number);
    Ok(())
}

/// A table as its context has it, which lies where it was put.
fn checked_table(
    device: &mut Device,
    io: &mut Io<'_>,
    number: u32,
) -> core::result::Result<FlowTableContext, crate::syndrome::Reject> {
    let table = device.steering.table(number)?;
    let context = table_context(table.level, table.log_size, table.miss);
    let place = table.place;
    device.check(io, place, ObjectKind::FlowTable, number, &context.0)?;
    Ok(context)
}

pub(super) fn destroy_table(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyFlowTableIn>,
) -> Result {
    let number = call.input.table_id();
    scope!(call.input).check_table(device, number)?;
    let place = device.steering.may_destroy_table(number)?;
    checked_table(device, io, number)?;
    device.steering.remove_table(number);
    device.pages.release(place);
    Ok(())
}

pub(super) fn query_table(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, QueryFlowTableIn>,
) -> Result {
    let number = call.input.table_id();
    query_scope!(call.input).check_table(device, number)?;
    let context = checked_table(device, io, number)?;
    *call.output.flow_table_context_mut() = context;
    Ok(())
}

pub(super) fn modify_table(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, ModifyFlowTableIn>,
) -> Result {
    let number = call.input.table_id();
    let limits = scope!(call.input).check_table(device, number)?;
    if call.input.modify_field_select() != MODIFY_MISS {
        return Err(Syndrome::FlowModifyFields.into());
    }
    let mut context = checked_table(device, io, number)?;
    let miss = miss(&limits, call.input.flow_table_context())?;
    device.steering.set_miss(number, miss)?;
    context = table_context(context.level(), context.log_size(), miss);
    let place = device.steering.table(number)?.place;
    device.restore(io, place, ObjectKind::FlowTable, number, &context.0)
}

/// The bytes of a group that lie in the host's pages.
fn group_context(table: u32, first: u32, last: u32) -> [u8; 12] {
    let mut context = [0; 12];
    for (bytes, word) in context
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip([table, first, last])
    {
        *bytes = word.to_be_bytes();
    }
    context
}

pub(super) fn create_group(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, CreateFlowGroupIn>,
) -> Result {
    let input = call.input;
    let table = input.table_id();
    let direction = scope!(input).check_table(device, table)?.direction;
    if input.group_type() != 0
        || input.match_definer_id() != 0
        || input.source_eswitch_owner_vhca_id_valid()
    {
        return Err(Syndrome::FlowGroupType.into());
    }
    let (first, last) = (input.start_flow_index(), input.end_flow_index());
    let enable = input.match_criteria_enable();
    let mask = Mask::new(direction, enable, input.match_criteria())?;
    let number = device.steering.plan_group(table, first, last)?;
    let context = group_context(table, first, last);
    let place = device.store(io, ObjectKind::FlowGroup, number, &context)?;
    device
        .steering
        .insert_group(table, (first, last), enable, mask, place);
    call.output.set_group_id(number);
    Ok(())
}

pub(super) fn destroy_group(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DestroyFlowGroupIn>,
) -> Result {
    let (table, number) = (call.input.table_id(), call.input.group_id());
    scope!(call.input).check_table(device, table)?;
    let place = device.steering.may_destroy_group(table, number)?;
    check_group(device, io, table, number)?;
    device.steering.remove_group(number);
    device.pages.release(place);
    Ok(())
}

fn check_group(device: &mut Device, io: &mut Io<'_>, table: u32, number: u32) -> Result {
    let group = device.steering.group(table, number)?;
    let context = group_context(table, group.first, group.last);
    let place = group.place;
    device.check(io, place, ObjectKind::FlowGroup, number, &context)
}

pub(super) fn query_group(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, QueryFlowGroupIn>,
) -> Result {
    let (table, number) = (call.input.table_id(), call.input.group_id());
    query_scope!(call.input).check_table(device, table)?;
    check_group(device, io, table, number)?;
    let group = device.steering.group(table, number)?;
    let output = call.output;
    output
        .set_start_flow_index(group.first)
        .set_end_flow_index(group.last)
        .set_match_criteria_enable(group.enable);
    matching::to_command(group.mask.bits(), output.match_criteria_mut());
    Ok(())
}

/// The lists behind an entry's context: destinations, then counters.
fn lists(
    context: &FlowContext,
    tail: &[u8],
) -> core::result::Result<(Vec<Destination>, Vec<u32>), Syndrome> {
    const EACH: usize = size_of::<DestFormat>();
    let destinations = context.destination_list_size() as usize * EACH;
    let counters = context.flow_counter_list_size() as usize * EACH;
    let used = tail
        .get(..destinations + counters)
        .ok_or(Syndrome::FteListShort)?;
    let (destinations, counters) = used.split_at(destinations);
    let destination = |bytes: &[u8]| {
        let to = DestFormat::read_from_bytes(bytes).map_err(|_| Syndrome::FteListShort)?;
        let mut plain = DestFormat::ZERO;
        plain
            .set_destination_type(to.destination_type())
            .set_destination_id(to.destination_id());
        match FlowDestination::from_number(to.destination_type()) {
            _ if to != plain => Err(Syndrome::FteDestinationFeature),
            Some(FlowDestination::FlowTable) => Ok(Destination::Table(to.destination_id())),
            Some(FlowDestination::Tir) => Ok(Destination::Tir(to.destination_id())),
            _ => Err(Syndrome::FteDestinationType),
        }
    };
    let counter = |bytes: &[u8]| {
        let counter = FlowCounterList::read_from_bytes(bytes).ok();
        counter
            .map(|counter| counter.flow_counter_id())
            .ok_or(Syndrome::FteListShort)
    };
    Ok((
        destinations
            .chunks(EACH)
            .map(destination)
            .collect::<core::result::Result<_, _>>()?,
        counters
            .chunks(EACH)
            .map(counter)
            .collect::<core::result::Result<_, _>>()?,
    ))
}

/// An entry's context as this firmware has it: what else a driver sets is refused.
fn entry_context(group: u32, entry: &Entry) -> FlowContext {
    let mut context = FlowContext::ZERO;
    context
        .set_group_id(group)
        .set_flow_tag(entry.flow_tag)
        .set_modify_header_id(entry.rewrite.unwrap_or(0))
        .set_action(entry.action)
        .set_destination_list_size(entry.destinations.len() as u32)
        .set_flow_counter_list_size(entry.counters.len() as u32);
    matching::to_command(&entry.value, context.match_value_mut());
    context
}

pub(super) fn set_entry(device: &mut Device, _: &mut Io<'_>, call: Call<'_, SetFteIn>) -> Result {
    let input = call.input;
    let scope = Scope {
        op_mod: 0,
        ..scope!(input)
    };
    let limits = scope.check_table(device, input.table_id())?;
    if input.ignore_flow_level() {
        return Err(Syndrome::FteIgnoreLevel.into());
    }
    let context = input.flow_context();
    let group = context.group_id();
    let (destinations, counters) = lists(context, call.tail)?;
    let entry = Entry {
        value: matching::of_command(context.match_value())?,
        action: context.action(),
        flow_tag: context.flow_tag(),
        destinations,
        counters,
        rewrite: Some(context.modify_header_id()).filter(|&number| number != 0),
    };
    if context != &entry_context(group, &entry) {
        return Err(Syndrome::FteFeature.into());
    }
    let fields = input.modify_enable_mask();
    let known = MODIFY_ACTION | MODIFY_FLOW_TAG | MODIFY_DESTINATIONS | MODIFY_COUNTERS;
    let modify = match (input.op_mod(), fields) {
        (SET, 0) => None,
        (MODIFY, 1..) if fields & !known == 0 => Some(Modify {
            action: fields & MODIFY_ACTION != 0,
            flow_tag: fields & MODIFY_FLOW_TAG != 0,
            destinations: fields & MODIFY_DESTINATIONS != 0,
            counters: fields & MODIFY_COUNTERS != 0,
        }),
        (SET | MODIFY, _) => return Err(Syndrome::FteModifyFields.into()),
        _ => return Err(Syndrome::FlowOpMod.into()),
    };
    let place = (input.table_id(), group, input.flow_index());
    let Device { steering, nic, .. } = device;
    let tir_exists = |tir| nic.tirs.contains(tir);
    Ok(steering.set_entry(&limits, place, entry, modify, &tir_exists)?)
}

pub(super) fn query_entry(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryFteIn>,
) -> Result {
    let (table, index) = (call.input.table_id(), call.input.flow_index());
    query_scope!(call.input).check_table(device, table)?;
    let (group, entry) = device.steering.entry(table, index)?;
    *call.output.flow_context_mut() = entry_context(group, entry);
    let destinations = entry.destinations.iter().map(|to| {
        let (kind, id) = match *to {
            Destination::Table(table) => (FlowDestination::FlowTable, table),
            Destination::Tir(tir) => (FlowDestination::Tir, tir),
        };
        let mut to = DestFormat::ZERO;
        to.set_destination_type(kind.number())
            .set_destination_id(id);
        to.0
    });
    let counters = entry.counters.iter().map(|&number| {
        let mut counter = FlowCounterList::ZERO;
        counter.set_flow_counter_id(number);
        counter.0
    });
    // A caller without space for the lists gets the context only.
    if call.output_tail.is_empty() {
        return Ok(());
    }
    let (slots, _) = call.output_tail.as_chunks_mut();
    if slots.len() < entry.destinations.len() + entry.counters.len() {
        return Err(Syndrome::FteOutputShort.into());
    }
    for (slot, bytes) in slots.iter_mut().zip(destinations.chain(counters)) {
        *slot = bytes;
    }
    Ok(())
}

pub(super) fn delete_entry(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, DeleteFteIn>,
) -> Result {
    let (table, index) = (call.input.table_id(), call.input.flow_index());
    scope!(call.input).check_table(device, table)?;
    Ok(device.steering.delete_entry(table, index)?)
}

/// The number of flow counters that there may be.
fn max_counters(device: &Device) -> core::result::Result<u32, Syndrome> {
    let general = &device.caps.general;
    let properties = device.caps.flow_table.flow_table_properties_nic_receive();
    if !general.nic_flow_table() || !properties.flow_counter() {
        return Err(Syndrome::FlowCounterUnsupported);
    }
    Ok(u32::from(general.max_flow_counter_31_16()) << 16
        | u32::from(general.max_flow_counter_15_0()))
}

pub(super) fn alloc_counter(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, AllocFlowCounterIn>,
) -> Result {
    let max = max_counters(device)?;
    if call.input.op_mod() != 0 {
        return Err(Syndrome::FlowOpMod.into());
    }
    let bulk = call.input.flow_counter_bulk();
    let offered = device.caps.general.flow_counter_bulk_alloc();
    if bulk & !offered != 0 || call.input.flow_counter_bulk_log_size() != 0 {
        return Err(Syndrome::FlowCounterBulk.into());
    }
    // The sizes double from bit to bit; the vendor's driver asks for all that are offered at once.
    let count = if bulk == 0 { 1 } else { BULK * u32::from(bulk) };
    let counters = &device.steering.counters;
    let first = counters
        .find_space(count)
        .ok_or(Syndrome::FlowCounterExhausted)?;
    if max.saturating_sub(counters.count()) < count {
        return Err(Syndrome::FlowCounterExhausted.into());
    }
    let place = device.store(io, ObjectKind::FlowCounter, first, &count.to_be_bytes())?;
    device.steering.counters.insert(first, count, place);
    call.output.set_flow_counter_id(first);
    Ok(())
}

pub(super) fn dealloc_counter(
    device: &mut Device,
    io: &mut Io<'_>,
    call: Call<'_, DeallocFlowCounterIn>,
) -> Result {
    max_counters(device)?;
    let first = call.input.flow_counter_id();
    let bulk = device
        .steering
        .counters
        .bulk(first)
        .ok_or(Syndrome::FlowCounterUnknown)?;
    if bulk.used {
        return Err(Syndrome::FlowCounterBusy.into());
    }
    let context = bulk.count.to_be_bytes();
    device.check(io, bulk.place, ObjectKind::FlowCounter, first, &context)?;
    device.steering.counters.remove(first);
    device.pages.release(bulk.place);
    Ok(())
}

pub(super) fn query_counter(
    device: &mut Device,
    _: &mut Io<'_>,
    call: Call<'_, QueryFlowCounterIn>,
) -> Result {
    max_counters(device)?;
    if call.input.op_mod() != 0 {
        return Err(Syndrome::FlowOpMod.into());
    }
    let first = call.input.flow_counter_id();
    let several = u32::from(call.input.num_of_counters());
    let log_most = device.caps.general.log_max_flow_counter_bulk().min(31);
    if several != 0
        && (!first.is_multiple_of(QUERY_UNIT)
            || !several.is_multiple_of(QUERY_UNIT)
            || several > 1 << log_most)
    {
        return Err(Syndrome::FlowCounterRange.into());
    }
    let space = call.output_tail;
    let (slots, _) = space.as_chunks_mut::<{ size_of::<TrafficCounter>() }>();
    let slots = slots
        .get_mut(..several.max(1) as usize)
        .ok_or(Syndrome::FlowCounterOutput)?;
    // Drivers query ranges with holes, where counters were freed.
    let mut known = false;
    for (at, slot) in (0..).zip(slots) {
        let mut shown = TrafficCounter::ZERO;
        let number = first.checked_add(at);
        if let Some(traffic) = number.and_then(|number| device.steering.counters.get(number)) {
            known = true;
            shown
                .set_packets(traffic.packets)
                .set_octets(traffic.octets);
            if call.input.clear() {
                *traffic = Default::default();
            }
        }
        slot.copy_from_slice(shown.as_bytes());
    }
    if !known {
        return Err(Syndrome::FlowCounterUnknown.into());
    }
    Ok(())
}
