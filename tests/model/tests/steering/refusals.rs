//! Every way to be refused, with the syndrome of its place; a list at the end checks that no place is missing.

use crate::common::{Failure, Node};
use crate::lab::*;
use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::flow::*;
use connectx_model::{Config, Syndrome};
use std::collections::BTreeSet;

/// A table with a group in the middle and an entry in it, and one above.
struct Fixture {
    lab: Lab,
    seen: BTreeSet<u32>,
    upper: u32,
    table: u32,
    group: u32,
    tir: u32,
    counter: u32,
}

impl Fixture {
    fn new() -> Self {
        let mut lab = Lab::new();
        let upper = lab.table(9, 2, 0);
        let table = lab.table(4, 4, upper);
        let group = lab.group(table, (4, 7), |set| {
            set.set_ethertype(0xffff);
        });
        let tir = lab.tir();
        let counter = lab.counter();
        let mut stand = Self {
            lab,
            seen: BTreeSet::new(),
            upper,
            table,
            group,
            tir,
            counter,
        };
        stand.lab.set(&stand.rule(4)).unwrap();
        stand
    }

    /// An entry that could be set.
    fn rule(&self, index: u32) -> Rule {
        Rule::new(self.table, self.group, index, &[to_tir(self.tir)])
    }

    fn is<T: std::fmt::Debug>(&mut self, result: Result<T, Failure>, syndrome: Syndrome) {
        assert_eq!(result.err(), Some(refused(syndrome)), "{syndrome:?}");
        self.seen.insert(syndrome.code());
    }

    fn refuses<C>(&mut self, syndrome: Syndrome, change: impl FnOnce(&mut C))
    where
        C: Command + Default,
    {
        let mut command = C::default();
        let opcode = C::OPCODE.number().to_be_bytes();
        command.as_mut_bytes()[..2].copy_from_slice(&opcode);
        self.refuses_from(command, syndrome, change);
    }

    fn refuses_from<C: Command>(
        &mut self,
        mut command: C,
        syndrome: Syndrome,
        change: impl FnOnce(&mut C),
    ) {
        change(&mut command);
        let result = self.lab.node.command_with(&command, &[], 0x400).map(drop);
        self.is(result, syndrome);
    }

    fn table_refused(&mut self, syndrome: Syndrome, change: impl FnOnce(&mut CreateFlowTableIn)) {
        let mut create = CreateFlowTableIn::new();
        create.flow_table_context_mut().set_level(3).set_log_size(3);
        self.refuses_from(create, syndrome, change);
    }

    fn group_refused(&mut self, syndrome: Syndrome, change: impl FnOnce(&mut CreateFlowGroupIn)) {
        let mut create = CreateFlowGroupIn::new();
        create
            .set_table_id(self.table)
            .set_start_flow_index(8)
            .set_end_flow_index(9)
            .set_match_criteria_enable(1);
        self.refuses_from(create, syndrome, change);
    }

    fn entry_refused(&mut self, syndrome: Syndrome, change: impl FnOnce(&mut Rule)) {
        let mut rule = self.rule(5);
        change(&mut rule);
        let result = self.lab.set(&rule);
        self.is(result, syndrome);
    }

    /// The same for what a rule cannot say.
    fn raw_entry_refused(&mut self, syndrome: Syndrome, change: impl FnOnce(&mut SetFteIn)) {
        let (mut command, tail) = self.rule(5).command();
        change(&mut command);
        let result = self.lab.node.command_with(&command, &tail, 0).map(drop);
        self.is(result, syndrome);
    }
}

fn tables(stand: &mut Fixture) {
    use Syndrome::*;
    let (upper, table) = (stand.upper, stand.table);
    stand.table_refused(FlowTableType, |c| {
        c.set_table_type(2);
    });
    stand.table_refused(OtherFunction, |c| {
        c.set_other_vport(true);
    });
    stand.table_refused(OtherFunction, |c| {
        c.set_vport_number(1);
    });
    stand.table_refused(FlowOpMod, |c| {
        c.set_op_mod(1);
    });
    stand.table_refused(FlowTableLevel, |c| {
        c.flow_table_context_mut().set_level(65);
    });
    stand.table_refused(FlowTableSize, |c| {
        c.flow_table_context_mut().set_log_size(23);
    });
    for feature in [
        |c: &mut FlowTableContext| {
            c.set_termination_table(true);
        },
        |c: &mut FlowTableContext| {
            c.set_reformat_en(true);
        },
        |c: &mut FlowTableContext| {
            c.set_sw_owner(true);
        },
        |c: &mut FlowTableContext| {
            c.set_lag_master_next_table_id(1);
        },
        |c: &mut FlowTableContext| {
            c.set_sw_owner_icm_root_1(1);
        },
    ] {
        stand.table_refused(FlowTableFeature, |c| feature(c.flow_table_context_mut()));
    }
    stand.table_refused(FlowMissAction, |c| {
        c.flow_table_context_mut().set_table_miss_action(2);
    });
    stand.table_refused(FlowMissAction, |c| {
        c.flow_table_context_mut().set_table_miss_id(upper);
    });
    stand.table_refused(FlowMissTable, |c| {
        c.flow_table_context_mut().set_table_miss_action(1);
    });
    stand.table_refused(FlowMissLevel, |c| {
        c.flow_table_context_mut()
            .set_level(9)
            .set_table_miss_action(1)
            .set_table_miss_id(upper);
    });
    let result = stand.lab.set_miss(upper, table);
    stand.is(result, FlowMissLevel);
    let result = stand.lab.set_miss(table, 99);
    stand.is(result, FlowMissTable);
    let result = stand.lab.set_miss(99, upper);
    stand.is(result, FlowTableUnknown);
    stand.refuses::<ModifyFlowTableIn>(FlowModifyFields, |c| {
        c.set_table_id(table).set_modify_field_select(1 << 15);
    });
    stand.refuses::<QueryFlowTableIn>(FlowTableUnknown, |_| ());
    stand.refuses::<QueryFlowTableIn>(FlowTableType, |c| {
        c.set_table_type(0xff);
    });
    let result = stand.lab.destroy_table(0xff_ffff);
    stand.is(result, FlowTableUnknown);
    let result = stand.lab.destroy_table(table);
    stand.is(result, FlowTableGroups);
    let result = stand.lab.destroy_table(upper);
    stand.is(result, FlowTableBusy);
    let root = stand.lab.table(2, 0, 0);
    stand.lab.set_root(root).unwrap();
    let result = stand.lab.destroy_table(root);
    stand.is(result, FlowTableRoot);
    let result = stand.lab.set_root(99);
    stand.is(result, FlowTableUnknown);
    stand.refuses::<SetFlowTableRootIn>(FlowRootQp, |c| {
        c.set_table_id(table).set_underlay_qpn(1);
    });
    stand.refuses::<SetFlowTableRootIn>(FlowOpMod, |c| {
        c.set_table_id(table).set_op_mod(2);
    });
    stand.refuses::<SetFlowTableRootIn>(OtherFunction, |c| {
        c.set_table_id(table).set_table_of_other_vport(true);
    });
}

fn groups(stand: &mut Fixture) {
    use Syndrome::*;
    let (upper, table, group) = (stand.upper, stand.table, stand.group);
    for (first, last) in [
        (9, 8),
        (8, 16),
        (16, 16),
        (0, u32::MAX),
        (u32::MAX, u32::MAX),
    ] {
        stand.group_refused(FlowGroupRange, |c| {
            c.set_start_flow_index(first).set_end_flow_index(last);
        });
    }
    for (first, last) in [(4, 7), (7, 8), (0, 4), (5, 6), (0, 15)] {
        stand.group_refused(FlowGroupOverlap, |c| {
            c.set_start_flow_index(first).set_end_flow_index(last);
        });
    }
    stand.group_refused(FlowTableUnknown, |c| {
        c.set_table_id(0);
    });
    stand.group_refused(FlowGroupType, |c| {
        c.set_group_type(1);
    });
    stand.group_refused(FlowGroupType, |c| {
        c.set_match_definer_id(1);
    });
    stand.group_refused(FlowGroupCriteria, |c| {
        c.set_match_criteria_enable(1 << 3);
    });
    stand.group_refused(FlowGroupMask, |c| {
        c.set_match_criteria_enable(0)
            .match_criteria_mut()
            .outer_headers_mut()
            .set_ethertype(1);
    });
    stand.group_refused(FlowField, |c| {
        c.set_match_criteria_enable(3)
            .match_criteria_mut()
            .misc_parameters_mut()
            .set_source_port(0xffff);
    });
    stand.group_refused(FlowGroupMask, |c| {
        c.match_criteria_mut().inner_headers_mut().set_frag(true);
    });
    stand.group_refused(ReservedSet, |c| c.match_criteria_mut().0[0x1a] = 1);
    let result = stand.lab.destroy_group(table, group);
    stand.is(result, FlowGroupBusy);
    let result = stand.lab.destroy_group(table, 99);
    stand.is(result, FlowGroupUnknown);
    // A group of another table is none of this one.
    let result = stand.lab.destroy_group(upper, group);
    stand.is(result, FlowGroupUnknown);
    stand.refuses::<QueryFlowGroupIn>(FlowGroupUnknown, |c| {
        c.set_table_id(upper).set_group_id(group);
    });
}

fn entries(stand: &mut Fixture) {
    use Syndrome::*;
    let (upper, table, tir, counter) = (stand.upper, stand.table, stand.tir, stand.counter);
    stand.entry_refused(FlowTableUnknown, |r| r.table = 99);
    stand.entry_refused(FlowGroupUnknown, |r| r.group = 99);
    stand.entry_refused(FlowGroupUnknown, |r| r.table = upper);
    for index in [3, 8, u32::MAX] {
        stand.entry_refused(FteIndex, |r| r.index = index);
    }
    stand.entry_refused(FteOccupied, |r| r.index = 4);
    stand.entry_refused(FteValue, |r| {
        r.value.outer_headers_mut().set_frag(true);
    });
    stand.entry_refused(FlowField, |r| r.value.misc_parameters_5_mut()[0] = 1);
    for action in [
        0,
        ALLOW,
        DROP | FORWARD,
        FORWARD | ALLOW,
        COUNT,
        0x10,
        0x8000 | FORWARD,
    ] {
        stand.entry_refused(FteAction, |r| r.action = action);
    }
    stand.entry_refused(FteDestinations, |r| r.action = DROP);
    stand.entry_refused(FteDestinations, |r| r.destinations.clear());
    stand.entry_refused(FteDestinationLimit, |r| {
        r.destinations = vec![to_tir(tir); 5]
    });
    for kind in [0, 3, 6, 8, 0xff] {
        stand.entry_refused(FteDestinationType, |r| {
            r.destinations[0].set_destination_type(kind);
        });
    }
    stand.entry_refused(FteDestinationFeature, |r| {
        r.destinations[0].set_packet_reformat(true);
    });
    stand.entry_refused(FteDestinationFeature, |r| r.destinations[0].0[5] = 1);
    stand.entry_refused(FteTable, |r| r.destinations = vec![to_table(99)]);
    for same_or_lower in [table, stand.lab.table(4, 0, 0), stand.lab.table(1, 0, 0)] {
        stand.entry_refused(FteTableLevel, |r| {
            r.destinations = vec![to_table(same_or_lower)]
        });
    }
    stand.entry_refused(FteTir, |r| r.destinations = vec![to_tir(tir + 1)]);
    stand.entry_refused(FteCounters, |r| r.action |= COUNT);
    stand.entry_refused(FteCounters, |r| r.counters = vec![counter]);
    stand.entry_refused(FteCounterUnknown, |r| {
        *r = r.clone().counted(counter).counted(counter + 1);
    });
    stand.entry_refused(FteCounterLimit, |r| {
        *r = r.clone().counted(counter).counted(counter).counted(counter);
    });
    for sizes in [(2, 0), (1, 1), (0xff_ffff, 0), (0xff_ffff, 0xff_ffff)] {
        stand.raw_entry_refused(FteListShort, |c| {
            c.flow_context_mut()
                .set_destination_list_size(sizes.0)
                .set_flow_counter_list_size(sizes.1);
        });
    }
    for feature in [
        |c: &mut FlowContext| {
            c.set_packet_reformat_id(1);
        },
        |c: &mut FlowContext| {
            c.set_push_vlan(0x8100_0001);
        },
        |c: &mut FlowContext| {
            c.set_extended_destination(true);
        },
        |c: &mut FlowContext| {
            c.set_flow_source(1);
        },
        |c: &mut FlowContext| c.execute_aso_mut()[0] = 0x80,
    ] {
        stand.raw_entry_refused(FteFeature, |c| feature(c.flow_context_mut()));
    }
    stand.raw_entry_refused(FteIgnoreLevel, |c| {
        c.set_ignore_flow_level(true);
    });
    stand.raw_entry_refused(FlowOpMod, |c| {
        c.set_op_mod(2);
    });
    stand.raw_entry_refused(FteModifyFields, |c| {
        c.set_op_mod(1);
    });
    stand.raw_entry_refused(FteModifyFields, |c| {
        c.set_modify_enable_mask(1);
    });
    stand.entry_refused(FteModifyFields, |r| r.modify = 0x10);
    stand.entry_refused(FteUnknown, |r| r.modify = 1);
    stand.entry_refused(FteModifyValue, |r| {
        (r.index, r.modify) = (4, 1);
        r.value.outer_headers_mut().set_ethertype(0x0800);
    });
    // The merged entry is checked, not what was sent.
    stand.entry_refused(FteDestinations, |r| {
        (r.index, r.modify, r.action) = (4, 1, DROP);
        r.destinations.clear();
    });
    for index in [0, 3, 5, 8, u32::MAX] {
        let result = stand.lab.delete(table, index);
        stand.is(result, FteUnknown);
        stand.refuses::<QueryFteIn>(FteUnknown, |c| {
            c.set_table_id(table).set_flow_index(index);
        });
    }
    let (mut query, crowded) = (QueryFteIn::new(), stand.rule(6).counted(counter));
    stand.lab.set(&crowded).unwrap();
    query.set_table_id(table).set_flow_index(6);
    let result = stand.lab.node.command_with(&query, &[], 12);
    stand.is(result, FteOutputShort);
    let mut one_path = config();
    one_path.flow_table.set_nic_rx_multi_path_tirs(false);
    one_path.flow_table.set_nic_rx_multi_path_tirs_fts(false);
    for mixed in [true, false] {
        let mut lab = Lab::with(one_path.clone());
        let (upper, table, tir) = (lab.table(2, 0, 0), lab.table(1, 0, 0), lab.tir());
        let group = lab.group(table, (0, 0), |_| ());
        let second = if mixed { to_table(upper) } else { to_tir(tir) };
        let result = lab.set(&Rule::new(table, group, 0, &[to_tir(tir), second]));
        stand.is(result, FteMultiPath);
    }
}

fn counters(stand: &mut Fixture) {
    use Syndrome::*;
    let counter = stand.counter;
    for bulk in [0x10, 0x13, 0xff] {
        stand.refuses::<AllocFlowCounterIn>(FlowCounterBulk, |c| {
            c.set_flow_counter_bulk(bulk);
        });
    }
    stand.refuses::<AllocFlowCounterIn>(FlowCounterBulk, |c| {
        c.set_flow_counter_bulk_log_size(3);
    });
    stand.refuses::<AllocFlowCounterIn>(FlowOpMod, |c| {
        c.set_op_mod(1);
    });
    for number in [0, counter + 1, u32::MAX] {
        stand.refuses::<DeallocFlowCounterIn>(FlowCounterUnknown, |c| {
            c.set_flow_counter_id(number);
        });
        stand.refuses::<QueryFlowCounterIn>(FlowCounterUnknown, |c| {
            c.set_flow_counter_id(number);
        });
    }
    stand.refuses::<DeallocFlowCounterIn>(FlowCounterBusy, |c| {
        c.set_flow_counter_id(counter);
    });
    for (first, count) in [
        (counter + 1, 4),
        (counter, 5),
        (counter, 260),
        (counter, u16::MAX),
    ] {
        stand.refuses::<QueryFlowCounterIn>(FlowCounterRange, |c| {
            c.set_flow_counter_id(first).set_num_of_counters(count);
        });
    }
    let mut query = QueryFlowCounterIn::new();
    query.set_flow_counter_id(counter).set_num_of_counters(8);
    let result = stand.lab.node.command_with(&query, &[], 127);
    stand.is(result, FlowCounterOutput);
    assert!(stand.lab.node.command_with(&query, &[], 128).is_ok());
    // 4096 of them, of which one is gone.
    let mut bulk = AllocFlowCounterIn::new();
    bulk.set_flow_counter_bulk(8);
    for _ in 0..3 {
        stand.lab.node.command(&bulk).unwrap();
    }
    stand.refuses_from(bulk, FlowCounterExhausted, |_| ());
}

/// Commands are refused on cards without the capability that they need.
fn capabilities(stand: &mut Fixture) {
    use Syndrome::*;
    let without = |change: fn(&mut Config), try_it: &dyn Fn(&mut Lab) -> Result<(), Failure>| {
        let mut config = config();
        change(&mut config);
        try_it(&mut Lab::with(config))
    };
    let nothing = |config: &mut Config| {
        let properties = config.flow_table.flow_table_properties_nic_receive_mut();
        properties.set_ft_support(false).set_flow_counter(false);
    };
    let result = without(nothing, &|lab| lab.try_table(1, 0, 0).map(drop));
    stand.is(result, FlowUnsupported);
    let result = without(nothing, &|lab| {
        lab.node.command(&AllocFlowCounterIn::new()).map(drop)
    });
    stand.is(result, FlowCounterUnsupported);
    let result = without(
        |config| {
            config
                .flow_table
                .flow_table_properties_nic_receive_mut()
                .set_modify_root(false);
        },
        &|lab| {
            let table = lab.table(1, 0, 0);
            lab.set_root(table)
        },
    );
    stand.is(result, FlowRootUnsupported);
    let result = without(
        |config| {
            config
                .flow_table
                .flow_table_properties_nic_receive_mut()
                .set_flow_modify_en(false);
        },
        &|lab| {
            let (table, tir) = (lab.table(1, 0, 0), lab.tir());
            let group = lab.group(table, (0, 0), |_| ());
            let mut rule = Rule::new(table, group, 0, &[to_tir(tir)]);
            lab.set(&rule).unwrap();
            rule.modify = 4;
            lab.set(&rule)
        },
    );
    stand.is(result, FteModifyUnsupported);
    let small = |config: &mut Config| {
        config
            .flow_table
            .flow_table_properties_nic_receive_mut()
            .set_log_max_ft_num(1)
            .set_log_max_flow(1);
    };
    let result = without(small, &|lab| {
        (0..3).try_for_each(|_| lab.try_table(1, 0, 0).map(drop))
    });
    stand.is(result, FlowTableExhausted);
    let result = without(small, &|lab| {
        let table = lab.table(1, 4, 0);
        let group = lab.group(table, (0, 9), |_| ());
        (0..3).try_for_each(|index| lab.set(&Rule::new(table, group, index, &[])))
    });
    stand.is(result, FteExhausted);
    // An InfiniBand port has none of this.
    let mut node = Node::new(Config::new(1).infiniband());
    node.initialize();
    let result = node.command(&CreateFlowTableIn::new());
    stand.is(result.map(drop), FlowUnsupported);
}

#[test]
fn every_place_that_refuses() {
    let mut stand = Fixture::new();
    tables(&mut stand);
    groups(&mut stand);
    entries(&mut stand);
    counters(&mut stand);
    capabilities(&mut stand);
    // What was refused has left nothing behind: the one entry still works and can go.
    let (table, group, upper) = (stand.table, stand.group, stand.upper);
    stand.lab.delete(table, 4).unwrap();
    stand.lab.delete(table, 6).unwrap();
    stand.lab.destroy_group(table, group).unwrap();
    stand.lab.destroy_table(table).unwrap();
    stand.lab.destroy_table(upper).unwrap();
    // 65536 groups would be needed.
    let elsewhere = [Syndrome::FlowGroupExhausted.code()];
    let flow = |code: &u32| (0x10..=0x13).contains(&(code >> 16));
    let missing: Vec<_> = Syndrome::ALL
        .iter()
        .filter(|syndrome| flow(&syndrome.code()))
        .filter(|syndrome| !stand.seen.contains(&syndrome.code()))
        .filter(|syndrome| !elsewhere.contains(&syndrome.code()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The driver takes an entry's destinations and counters away one by one, and redirects it.
#[test]
fn entries_are_modified_field_by_field() {
    const ACTION: u8 = 1;
    const TAG: u8 = 2;
    const DESTINATIONS: u8 = 4;
    const COUNTERS: u8 = 8;
    let mut stand = Fixture::new();
    let (counter, tir) = (stand.counter, stand.tir);
    let mut modified = stand.rule(4).counted(counter);
    modified.modify = ACTION | COUNTERS;
    stand.lab.set(&modified).unwrap();
    let frame = [0; 60];
    stand.lab.receive(&frame);
    assert_eq!(stand.lab.counted(counter), (1, 60));
    // Destinations and action are as they were: only the tag was named.
    let mut tag = stand.rule(4);
    (tag.modify, tag.flow_tag, tag.action) = (TAG, 0x1234, DROP);
    tag.destinations.clear();
    stand.lab.set(&tag).unwrap();
    let mut query = QueryFteIn::new();
    query.set_table_id(stand.table).set_flow_index(4);
    let context = *stand.lab.node.command(&query).unwrap().flow_context();
    assert_eq!(
        (context.flow_tag(), context.action()),
        (0x1234, FORWARD | COUNT)
    );
    assert_eq!(
        (
            context.destination_list_size(),
            context.flow_counter_list_size()
        ),
        (1, 1)
    );
    // The last destination goes before the entry does, with the action still in place.
    let mut nowhere = stand.rule(4);
    nowhere.modify = DESTINATIONS;
    nowhere.destinations.clear();
    stand.lab.set(&nowhere).unwrap();
    let mut destroy = bareverbs_firmware_cmds::tir::DestroyTirIn::new();
    destroy.set_tirn(tir);
    stand.lab.node.command(&destroy).unwrap();
    nowhere.modify = ACTION | COUNTERS;
    stand.lab.set(&nowhere).unwrap();
    stand.lab.receive(&frame);
    assert_eq!(stand.lab.counted(counter), (1, 60));
    stand.lab.delete(stand.table, 4).unwrap();
}

/// Tables, groups and counters live in the host's pages: without one they are refused, and a page that was overwritten
/// shows.
#[test]
fn contexts_lie_in_the_hosts_pages() {
    let mut stand = Fixture::new();
    // No event queue is subscribed to page requests.
    stand.lab.node.model.set_page_appetite(3);
    let result = stand.lab.try_table(1, 0, 0);
    stand.is(result, Syndrome::NoContextMemory);
    stand.group_refused(Syndrome::NoContextMemory, |_| ());
    stand.refuses::<AllocFlowCounterIn>(Syndrome::NoContextMemory, |_| ());
    stand.lab.node.model.set_page_appetite(0);
    let table = stand.lab.table(1, 0, 0);
    stand.lab.destroy_table(table).unwrap();

    for page in stand.lab.node.given.clone() {
        stand.lab.node.host.bytes(page, 4096).fill(0xdd);
    }
    let mut query = QueryFlowGroupIn::new();
    query.set_table_id(stand.table).set_group_id(stand.group);
    let lost = stand.lab.node.command(&query).map(drop);
    assert_eq!(lost, Err(refused(Syndrome::ContextLost)));
}
