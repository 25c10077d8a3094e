//! Flow steering at random: commands that nearly make sense and frames between them, against a ledger of what is there.

use crate::common::Failure;
use crate::lab::*;
use bareverbs_firmware_cmds::flow::*;
use bareverbs_firmware_cmds::hca::TeardownHcaIn;
use connectx_model::{ObjectKind, Status};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 9) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number that exists, or one near it, or any.
    fn near(&mut self, known: &[u32]) -> u32 {
        let known_one = match known.len() as u64 {
            0 => 1,
            len => known[self.below(len) as usize],
        };
        match self.below(12) {
            0 => self.below(1 << 24) as u32,
            1 => known_one.wrapping_add(1),
            _ => known_one,
        }
    }
}

/// Turns some bits of a message.
fn damage(random: &mut Random, message: &mut [u8]) {
    while random.one_in(3) {
        let at = 4 + random.below(message.len() as u64 - 4) as usize;
        message[at] ^= 1 << random.below(8);
    }
}

struct Ledger {
    lab: Lab,
    tables: Vec<u32>,
    /// (table, group, first, last)
    groups: Vec<(u32, u32, u32, u32)>,
    tirs: Vec<u32>,
    counters: Vec<u32>,
    done: usize,
    refused: usize,
}

impl Ledger {
    /// Executes a message and returns its answer; a refusal has to have a reason of the firmware's own.
    fn raw(&mut self, message: &[u8], out: usize) -> Option<Vec<u8>> {
        match self.lab.node.raw(message, out) {
            Ok(answer) => {
                self.done += 1;
                Some(answer)
            }
            Err(Failure::Status(status, syndrome)) => {
                assert_ne!(status, Status::InternalError as u8, "{syndrome:#x}");
                self.refused += 1;
                None
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn step(&mut self, random: &mut Random) {
        let tables = self.tables.clone();
        let groups: Vec<u32> = self.groups.iter().map(|group| group.1).collect();
        match random.below(14) {
            0 => {
                let mut create = CreateFlowTableIn::new();
                let miss = random.near(&tables);
                create
                    .flow_table_context_mut()
                    .set_level(random.below(66) as u8)
                    .set_log_size(random.below(7) as u8);
                if random.one_in(2) {
                    create
                        .flow_table_context_mut()
                        .set_table_miss_action(1)
                        .set_table_miss_id(miss);
                }
                damage(random, &mut create.0);
                if let Some(answer) = self.raw(&create.0, 16) {
                    self.tables.push(be24(&answer[9..]));
                }
            }
            1 => {
                let mut destroy = DestroyFlowTableIn::new();
                let table = random.near(&tables);
                destroy.set_table_id(table);
                if self.raw(&destroy.0, 16).is_some() {
                    self.tables.retain(|&other| other != destroy.table_id());
                }
            }
            2 => {
                let mut set = SetFlowTableRootIn::new();
                set.set_table_id(random.near(&tables));
                set.set_op_mod(u16::from(random.one_in(8)));
                damage(random, &mut set.0);
                self.raw(&set.0, 16);
            }
            3 => {
                let mut modify = ModifyFlowTableIn::new();
                modify
                    .set_table_id(random.near(&tables))
                    .set_modify_field_select(1)
                    .flow_table_context_mut()
                    .set_table_miss_action(1)
                    .set_table_miss_id(random.near(&tables));
                damage(random, &mut modify.0);
                self.raw(&modify.0, 16);
            }
            4 | 5 => self.create_group(random),
            6 => {
                let mut destroy = DestroyFlowGroupIn::new();
                destroy
                    .set_table_id(random.near(&tables))
                    .set_group_id(random.near(&groups));
                if self.raw(&destroy.0, 16).is_some() {
                    self.groups.retain(|group| group.1 != destroy.group_id());
                }
            }
            7..10 => self.set_entry(random),
            10 => {
                let mut delete = DeleteFteIn::new();
                delete
                    .set_table_id(random.near(&tables))
                    .set_flow_index(random.below(64) as u32);
                damage(random, &mut delete.0);
                self.raw(&delete.0, 16);
            }
            11 => {
                let mut query = QueryFlowCounterIn::new();
                query
                    .set_flow_counter_id(random.near(&self.counters))
                    .set_num_of_counters(random.below(9) as u16 * 4);
                damage(random, &mut query.0);
                let space = random.below(600) as usize;
                self.raw(&query.0, 16 + space);
            }
            12 => {
                let mut query = QueryFteIn::new();
                query
                    .set_table_id(random.near(&tables))
                    .set_flow_index(random.below(64) as u32);
                let space = random.below(40) as usize;
                self.raw(&query.0, 0x340 + space);
            }
            _ => {
                let mut alloc = AllocFlowCounterIn::new();
                alloc.set_flow_counter_bulk(random.below(3) as u8);
                if let Some(answer) = self.raw(&alloc.0, 16) {
                    self.counters.push(be24(&answer[9..]));
                }
                let mut free = DeallocFlowCounterIn::new();
                free.set_flow_counter_id(random.near(&self.counters));
                if self.raw(&free.0, 16).is_some() {
                    self.counters
                        .retain(|&other| other != free.flow_counter_id());
                }
            }
        }
        let mut frame = vec![0; random.below(200) as usize];
        frame
            .iter_mut()
            .for_each(|byte| *byte = random.below(256) as u8);
        if let Some(kind) = frame.get_mut(12..15) {
            kind.copy_from_slice(
                [&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[0x81, 0, 0]][random.below(3) as usize],
            );
        }
        self.lab.receive(&frame);
    }

    fn create_group(&mut self, random: &mut Random) {
        let mut create = CreateFlowGroupIn::new();
        let first = random.below(64) as u32;
        create
            .set_table_id(random.near(&self.tables))
            .set_start_flow_index(first)
            .set_end_flow_index(first + random.below(16) as u32);
        if random.one_in(2) {
            create
                .set_match_criteria_enable(1)
                .match_criteria_mut()
                .outer_headers_mut()
                .set_ip_version(random.below(16) as u8)
                .set_cvlan_tag(random.one_in(2))
                .set_svlan_tag(random.one_in(2));
        }
        damage(random, &mut create.0);
        if let Some(answer) = self.raw(&create.0, 16) {
            let range = (create.start_flow_index(), create.end_flow_index());
            let group = be24(&answer[9..]);
            self.groups
                .push((create.table_id(), group, range.0, range.1));
        }
    }

    fn set_entry(&mut self, random: &mut Random) {
        let known = match self.groups.len() as u64 {
            0 => return,
            len => self.groups[random.below(len) as usize],
        };
        let (table, group, first, last) = known;
        let index = first + random.below(u64::from(last - first) + 2) as u32;
        let to: Vec<DestFormat> = (0..random.below(4))
            .map(|_| match random.below(2) {
                0 => to_table(random.near(&self.tables)),
                _ => to_tir(random.near(&self.tirs)),
            })
            .collect();
        let mut rule = Rule::new(table, group, index, &to);
        if random.one_in(3) && !self.counters.is_empty() {
            rule = rule.counted(random.near(&self.counters));
        }
        if random.one_in(3) {
            rule.modify = random.below(16) as u8;
        }
        let (command, tail) = rule.command();
        let mut message = [&command.0[..], &tail].concat();
        damage(random, &mut message);
        if random.one_in(8) {
            message.truncate(random.below(message.len() as u64).max(16) as usize);
        }
        self.raw(&message, 16);
    }
}

fn be24(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

#[test]
fn nearly_sensible_commands() {
    let seeds = match std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..=12).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        println!("SEED={seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut lab = Lab::new();
        let tirs = (0..4).map(|_| lab.tir()).collect();
        lab.node.give(300);
        let mut ledger = Ledger {
            lab,
            tables: Vec::new(),
            groups: Vec::new(),
            tirs,
            counters: Vec::new(),
            done: 0,
            refused: 0,
        };
        for _ in 0..1500 {
            ledger.step(&mut random);
        }
        // Both happen, or nothing was tried.
        assert!(
            ledger.done > 200 && ledger.refused > 200,
            "{} {}",
            ledger.done,
            ledger.refused
        );
        // What the answers said is there is what is left, no more and no less.
        let Ledger {
            mut lab,
            tables,
            groups,
            counters,
            ..
        } = ledger;
        lab.node.command(&TeardownHcaIn::new()).unwrap();
        let left = |kind| {
            let leaks = lab.node.model.leaks().iter();
            let mut left: Vec<u32> = leaks
                .filter(|leak| leak.kind == kind)
                .map(|leak| leak.number)
                .collect();
            left.sort_unstable();
            left
        };
        let sorted = |mut numbers: Vec<u32>| {
            numbers.sort_unstable();
            numbers
        };
        assert_eq!(left(ObjectKind::FlowTable), sorted(tables));
        assert_eq!(
            left(ObjectKind::FlowGroup),
            sorted(groups.iter().map(|group| group.1).collect())
        );
        assert_eq!(left(ObjectKind::FlowCounter), sorted(counters));
    }
}
