//! Criteria, walks, and the lookup against a scan of everything.

use super::group::action::{COUNT, DROP, FORWARD};
use super::headers::Headers;
use super::headers::tests::{ME, PEER, Rng, frame, random_frame};
use super::matching::{Fields, MISC_PARAMETERS, OUTER_HEADERS};
use super::*;
use crate::ethernet::frame::Start;
use bareverbs_firmware_cmds::flow::FteMatchParam;

mod transmit;

const LIMITS: Limits = Limits {
    direction: Direction::Receive,
    max_level: 64,
    log_table_size: 16,
    log_tables: 16,
    log_entries: 20,
    log_destinations: 8,
    log_entry_counters: 2,
    log_rewrites: 4,
    switch_domain: false,
    rewrite_actions: 8,
    modify_entry: true,
    several_tirs: true,
    tirs_and_tables: true,
};

/// Criteria by what sets them.
fn criteria(set: impl FnOnce(&mut FteMatchParam)) -> Box<FteMatchParam> {
    let mut param = Box::new(FteMatchParam::ZERO);
    set(&mut param);
    param
}

fn mask(set: impl FnOnce(&mut FteMatchParam)) -> Mask {
    let param = criteria(set);
    Mask::new(Direction::Receive, OUTER_HEADERS | MISC_PARAMETERS, &param).unwrap()
}

fn value(set: impl FnOnce(&mut FteMatchParam)) -> Fields {
    matching::of_command(&criteria(set)).unwrap()
}

#[test]
fn criteria_that_cannot_be_matched() {
    let refused = |enable: u8, set: fn(&mut FteMatchParam)| {
        Mask::new(Direction::Receive, enable, &criteria(set)).unwrap_err()
    };
    assert_eq!(refused(8, |_| ()), Syndrome::FlowGroupCriteria);
    assert_eq!(refused(0x80, |_| ()), Syndrome::FlowGroupCriteria);
    assert_eq!(
        refused(0, |p| {
            p.outer_headers_mut().set_ethertype(1);
        }),
        Syndrome::FlowGroupMask
    );
    assert_eq!(
        refused(1, |p| {
            p.misc_parameters_mut().set_outer_second_vid(1);
        }),
        Syndrome::FlowGroupMask
    );
    assert_eq!(
        refused(3, |p| {
            p.misc_parameters_mut().set_source_sqn(1);
        }),
        Syndrome::FlowField
    );
    assert_eq!(
        refused(3, |p| {
            p.inner_headers_mut().set_ip_version(1);
        }),
        Syndrome::FlowGroupMask
    );
    assert_eq!(
        refused(3, |p| p.misc_parameters_3_mut()[4] = 1),
        Syndrome::FlowField
    );
    // A reserved bit between the fields.
    assert_eq!(refused(3, |p| p.0[0x1a] = 1), Syndrome::FlowField);
    assert!(Mask::new(Direction::Receive, 3, &FteMatchParam::ZERO).is_ok());
}

/// Steering with everything on one table of a level.
struct Lab {
    steering: Steering,
    indexes: HashMap<u32, u32>,
}

impl Lab {
    fn new() -> Self {
        Self {
            steering: Steering::default(),
            indexes: HashMap::new(),
        }
    }

    fn table(&mut self, level: u8, log_size: u8, miss: Option<u32>) -> u32 {
        let number = self
            .steering
            .plan_table(&LIMITS, level, log_size, miss)
            .unwrap();
        self.steering
            .insert_table(LIMITS.direction, level, log_size, miss, Place::default());
        number
    }

    fn group(&mut self, table: u32, range: (u32, u32), mask: Mask) -> u32 {
        let number = self.steering.plan_group(table, range.0, range.1).unwrap();
        self.steering
            .insert_group(table, range, 3, mask, Place::default());
        number
    }

    /// A group of one entry at the next index of a table.
    fn rule(&mut self, table: u32, mask: Mask, value: Fields, to: &[Destination]) -> u32 {
        let index = *self
            .indexes
            .entry(table)
            .and_modify(|next| *next += 1)
            .or_default();
        let group = self.group(table, (index, index), mask);
        self.set((table, group, index), value, to, 0).unwrap();
        index
    }

    fn set(
        &mut self,
        place: (u32, u32, u32),
        value: Fields,
        to: &[Destination],
        flow_tag: u32,
    ) -> Result<(), Syndrome> {
        let entry = Entry {
            value,
            action: if to.is_empty() { DROP } else { FORWARD },
            flow_tag,
            destinations: to.to_vec(),
            counters: Vec::new(),
            rewrite: None,
        };
        self.steering
            .set_entry(&LIMITS, place, entry, None, &|tir| tir < 1000)
    }

    fn hits(&mut self, frame: &[u8]) -> Vec<u32> {
        self.hits_inside(frame, None)
    }

    fn hits_inside(&mut self, frame: &[u8], inside: Option<Start>) -> Vec<u32> {
        let mut hits = Vec::new();
        self.steering.classify(frame, inside, &mut hits);
        hits.iter().map(|hit| hit.tir).collect()
    }
}

use Destination::{Table as To, Tir};

/// One kind of tag asked for, and not set, means no tag at all.
#[test]
fn one_kind_of_tag_excludes_the_other() {
    let mut lab = Lab::new();
    let table = lab.table(0, 4, None);
    let customer = || {
        mask(|p| {
            p.outer_headers_mut().set_cvlan_tag(true);
        })
    };
    let service = || {
        mask(|p| {
            p.outer_headers_mut().set_svlan_tag(true);
        })
    };
    lab.rule(table, customer(), value(|_| ()), &[Tir(1)]);
    lab.rule(
        table,
        customer(),
        value(|p| {
            p.outer_headers_mut().set_cvlan_tag(true);
        }),
        &[Tir(2)],
    );
    let plain = frame(ME, &[], 0x0806, &[0; 46]);
    let c = frame(ME, &[(false, 1)], 0x0806, &[0; 46]);
    let s = frame(ME, &[(true, 1)], 0x0806, &[0; 46]);
    assert_eq!(lab.hits(&plain), [1]);
    assert_eq!(lab.hits(&c), [2]);
    assert_eq!(lab.hits(&s), []);
    lab.rule(
        table,
        service(),
        value(|p| {
            p.outer_headers_mut().set_svlan_tag(true);
        }),
        &[Tir(3)],
    );
    assert_eq!(lab.hits(&s), [3]);
    // Both asked for: exactly as they are.
    let mut lab = Lab::new();
    let table = lab.table(0, 4, None);
    let both = mask(|p| {
        p.outer_headers_mut()
            .set_cvlan_tag(true)
            .set_svlan_tag(true);
    });
    lab.rule(
        table,
        both,
        value(|p| {
            p.outer_headers_mut().set_svlan_tag(true);
        }),
        &[Tir(4)],
    );
    assert_eq!(
        (lab.hits(&plain), lab.hits(&c), lab.hits(&s)),
        (vec![], vec![], vec![4])
    );
    // The second tag likewise.
    let mut lab = Lab::new();
    let table = lab.table(0, 4, None);
    let second = mask(|p| {
        p.misc_parameters_mut().set_outer_second_cvlan_tag(true);
    });
    lab.rule(table, second, value(|_| ()), &[Tir(5)]);
    let double = |service| frame(ME, &[(true, 1), (service, 2)], 0x0806, &[0; 46]);
    assert_eq!(lab.hits(&s), [5]);
    assert_eq!(
        (lab.hits(&double(false)), lab.hits(&double(true))),
        (vec![], vec![])
    );
}

#[test]
fn order_misses_and_several_destinations() {
    let mut lab = Lab::new();
    let last = lab.table(9, 2, None);
    let middle = lab.table(5, 4, Some(last));
    let first = lab.table(2, 4, Some(middle));
    let any = || mask(|_| ());
    let to_me = || {
        mask(|p| {
            p.outer_headers_mut()
                .set_dmac_47_16(u32::MAX)
                .set_dmac_15_0(0xffff);
        })
    };
    let me = value(|p| {
        p.outer_headers_mut()
            .set_dmac_47_16(0x02c9_0000)
            .set_dmac_15_0(1);
    });
    let mine = frame(ME, &[], 0x0806, &[0; 46]);
    let other = frame(PEER, &[], 0x0806, &[0; 46]);
    assert_eq!(lab.hits(&mine), []);
    lab.rule(last, any(), value(|_| ()), &[Tir(9)]);
    // Two tables missed, the third takes all.
    assert_eq!(lab.hits(&mine), [9]);
    lab.rule(middle, to_me(), me, &[Tir(4), To(last), Tir(5)]);
    assert_eq!(lab.hits(&mine), [4, 5, 9]);
    assert_eq!(lab.hits(&other), [9]);
    // A drop ends the walk, wherever the misses would go.
    lab.rule(first, to_me(), me, &[]);
    assert_eq!((lab.hits(&mine), lab.hits(&other)), (vec![], vec![9]));
    // The lowest index takes a frame, not the better fit.
    lab.rule(first, any(), value(|_| ()), &[To(last), Tir(7)]);
    assert_eq!((lab.hits(&mine), lab.hits(&other)), (vec![], vec![7, 9]));
    // Elsewhere is the root.
    lab.steering
        .set_root(Direction::Receive, Root::Table(middle))
        .unwrap();
    assert_eq!(lab.hits(&mine), [4, 5, 9]);
    lab.steering
        .set_root(Direction::Receive, Root::Disconnected)
        .unwrap();
    assert_eq!(lab.hits(&mine), []);
    assert_eq!(
        lab.steering.set_root(Direction::Receive, Root::Table(99)),
        Err(Syndrome::FlowTableUnknown)
    );
}

#[test]
fn destinations_are_served_in_order() {
    let mut lab = Lab::new();
    let tables = [1, 2, 3].map(|tir| {
        let table = lab.table(5, 0, None);
        lab.rule(table, mask(|_| ()), [0; 24], &[Tir(tir)]);
        To(table)
    });
    let first = lab.table(1, 0, None);
    lab.rule(first, mask(|_| ()), [0; 24], &tables);
    assert_eq!(lab.hits(&frame(ME, &[], 0x0806, &[0; 46])), [1, 2, 3]);
}

#[test]
fn tables_that_misses_lead_to_stay() {
    let mut lab = Lab::new();
    let (old, new) = (lab.table(5, 0, None), lab.table(6, 0, None));
    let first = lab.table(1, 0, Some(old));
    let busy = Err(Syndrome::FlowTableBusy);
    assert_eq!(lab.steering.may_destroy_table(old), busy);
    assert!(lab.steering.may_destroy_table(new).is_ok());
    lab.steering.set_miss(first, Some(new)).unwrap();
    assert_eq!(lab.steering.may_destroy_table(new), busy);
    assert!(lab.steering.may_destroy_table(old).is_ok());
    lab.steering.remove_table(first);
    assert!(lab.steering.may_destroy_table(new).is_ok());
}

#[test]
fn the_last_flow_tag_stays() {
    let mut lab = Lab::new();
    let last = lab.table(2, 0, None);
    let first = lab.table(1, 0, None);
    let group = lab.group(last, (0, 0), mask(|_| ()));
    lab.set((last, group, 0), [0; 24], &[Tir(1)], 0).unwrap();
    let group = lab.group(first, (0, 0), mask(|_| ()));
    lab.set((first, group, 0), [0; 24], &[To(last), Tir(2)], 0xabc)
        .unwrap();
    let mut hits = Vec::new();
    lab.steering
        .classify(&frame(ME, &[], 0x0806, &[0; 46]), None, &mut hits);
    let tagged = |tir| Hit {
        tir,
        flow_tag: 0xabc,
        rewritten: None,
    };
    assert_eq!(hits, [tagged(2), tagged(1)]);
}

/// Tables that each send a frame to the next twice would take two to the power of their number of steps.
#[test]
fn walks_end() {
    let mut lab = Lab::new();
    let mut next = lab.table(60, 0, None);
    lab.rule(next, mask(|_| ()), [0; 24], &[Tir(1)]);
    for level in (0..60).rev() {
        let table = lab.table(level, 0, None);
        lab.rule(table, mask(|_| ()), [0; 24], &[To(next), To(next)]);
        next = table;
    }
    let hits = lab.hits(&frame(ME, &[], 0x0806, &[0; 46]));
    assert!(
        (1..walk::WALK as usize).contains(&hits.len()),
        "{}",
        hits.len()
    );
}

#[test]
fn entries_replace_and_release() {
    let mut lab = Lab::new();
    let upper = lab.table(3, 0, None);
    let table = lab.table(1, 3, None);
    let group = lab.group(table, (2, 5), mask(|_| ()));
    assert_eq!(
        lab.set((table, group, 1), [0; 24], &[Tir(1)], 0),
        Err(Syndrome::FteIndex)
    );
    assert_eq!(
        lab.set((table, group, 6), [0; 24], &[Tir(1)], 0),
        Err(Syndrome::FteIndex)
    );
    lab.set((table, group, 4), [0; 24], &[Tir(1), Tir(1), To(upper)], 0)
        .unwrap();
    lab.set((table, group, 3), [0; 24], &[Tir(2)], 0).unwrap();
    let any = frame(ME, &[], 0x0806, &[0; 46]);
    assert_eq!(lab.hits(&any), [2]);
    assert!(lab.steering.is_tir_used(1) && lab.steering.is_tir_used(2));
    assert_eq!(
        lab.steering.may_destroy_table(upper),
        Err(Syndrome::FlowTableBusy)
    );
    lab.steering.delete_entry(table, 3).unwrap();
    assert_eq!(lab.hits(&any), [1, 1]);
    assert!(!lab.steering.is_tir_used(2));
    let tirs = |to: &[Destination]| Entry {
        value: [0; 24],
        action: FORWARD,
        flow_tag: 0,
        destinations: to.to_vec(),
        counters: Vec::new(),
        rewrite: None,
    };
    let modify = Modify {
        action: false,
        flow_tag: false,
        destinations: true,
        counters: false,
    };
    let at = (table, group, 4);
    lab.steering
        .set_entry(&LIMITS, at, tirs(&[Tir(3)]), Some(modify), &|_| true)
        .unwrap();
    assert_eq!(lab.hits(&any), [3]);
    assert!(lab.steering.is_tir_used(3) && !lab.steering.is_tir_used(1));
    assert!(lab.steering.may_destroy_table(upper).is_ok());
    // The last destination may go before the entry does.
    lab.steering
        .set_entry(&LIMITS, at, tirs(&[]), Some(modify), &|_| true)
        .unwrap();
    assert_eq!(lab.hits(&any), []);
    lab.steering.delete_entry(table, 4).unwrap();
    assert_eq!(
        lab.steering.delete_entry(table, 4),
        Err(Syndrome::FteUnknown)
    );
    assert!(!lab.steering.is_tir_used(3));
    assert_eq!(lab.steering.entries, 0);
}

#[test]
fn counters_count_and_are_found_in_rows() {
    let mut lab = Lab::new();
    let counters = &mut lab.steering.counters;
    let alloc = |counters: &mut Counters, count| {
        let first = counters.find_space(count).unwrap();
        counters.insert(first, count, Place::default());
        first
    };
    let (a, b, c) = (alloc(counters, 1), alloc(counters, 128), alloc(counters, 1));
    assert!(a % 4 == 0 && b % 4 == 0 && c % 4 == 0 && b > a && c >= b + 128);
    assert!(counters.get(a + 1).is_none() && counters.get(b + 127).is_some());
    assert_eq!(counters.count(), 130);
    counters.remove(b);
    assert!(counters.get(b).is_none());
    // The hole is filled only when there is no space behind.
    assert!(counters.find_space(1).unwrap() > c);
    counters.insert((1 << 24) - 64, 64, Place::default());
    assert_eq!(counters.find_space(128), Some(b));
    assert_eq!(counters.find_space(1 << 24), None);

    let table = lab.table(0, 0, None);
    let group = lab.group(table, (0, 0), mask(|_| ()));
    let entry = Entry {
        value: [0; 24],
        action: FORWARD | COUNT,
        flow_tag: 0,
        destinations: vec![Tir(1)],
        counters: vec![a, c],
        rewrite: None,
    };
    lab.steering
        .set_entry(&LIMITS, (table, group, 0), entry, None, &|_| true)
        .unwrap();
    for len in [46, 100] {
        assert_eq!(lab.hits(&frame(ME, &[], 0x0806, &vec![0; len])), [1]);
    }
    for number in [a, c] {
        assert!(lab.steering.counters.bulk(number).unwrap().used);
        let traffic = lab.steering.counters.get(number).unwrap();
        assert_eq!((traffic.packets, traffic.octets), (2, 60 + 114));
    }
    lab.steering.delete_entry(table, 0).unwrap();
    assert!(!lab.steering.counters.bulk(a).unwrap().used);
}

/// Criteria of a few fields, some of them in part.
fn random_criteria(rng: &mut Rng) -> Box<FteMatchParam> {
    criteria(|p| {
        let full = rng.below(2) == 0;
        for _ in 0..rng.below(4) {
            let partial = |all: u32| if full { all } else { all & 0x5555_5555 };
            match rng.below(14) {
                0 => {
                    p.outer_headers_mut()
                        .set_dmac_47_16(partial(u32::MAX))
                        .set_dmac_15_0(0xffff);
                }
                1 => {
                    p.outer_headers_mut().set_dmac_47_16(0x0100_0000);
                }
                2 => {
                    p.outer_headers_mut().set_cvlan_tag(true);
                }
                3 => {
                    p.outer_headers_mut().set_svlan_tag(true);
                }
                4 => {
                    p.outer_headers_mut().set_first_vid(partial(0xfff) as u16);
                }
                5 => {
                    p.outer_headers_mut().set_ip_version(0xf);
                }
                6 => {
                    p.outer_headers_mut().set_ip_protocol(partial(0xff) as u8);
                }
                7 => {
                    p.outer_headers_mut().set_tcp_dport(0xffff);
                }
                8 => {
                    p.outer_headers_mut().set_frag(true);
                }
                9 => {
                    p.inner_headers_mut().set_ip_version(0xf);
                }
                10 => {
                    p.inner_headers_mut().set_ip_protocol(0xff);
                }
                11 => {
                    p.inner_headers_mut().set_cvlan_tag(true);
                }
                12 => {
                    p.inner_headers_mut()
                        .set_svlan_tag(true)
                        .set_first_vid(0xfff);
                }
                _ => {
                    p.misc_parameters_mut()
                        .set_outer_second_vid(0xfff)
                        .set_outer_second_cvlan_tag(true);
                }
            }
        }
    })
}

/// A frame with what is inside of it, if anything is: an Ethernet frame or an IP packet.
fn random_tunnel(rng: &mut Rng) -> (Vec<u8>, Option<Start>) {
    let mut frame = random_frame(rng);
    let at = frame.len();
    let network = match rng.below(3) {
        0 => return (frame, None),
        1 => None,
        _ => Some(0x0800),
    };
    let inner = random_frame(rng);
    let from = if network.is_some() {
        inner.len().min(14)
    } else {
        0
    };
    frame.extend_from_slice(&inner[from..]);
    (frame, Some(Start { at, network }))
}

/// The result of a scan of all entries: written down once more, field by field where tags are concerned.
fn scan(
    entries: &[(u32, Box<FteMatchParam>, Fields, u32)],
    (frame, inside): (&[u8], Option<Start>),
) -> Option<u32> {
    let headers = Headers::parse(frame)?;
    let inner = inside.and_then(|start| Headers::parse_inner(frame, start));
    let fields = matching::of_frame(&headers, inner.as_ref());
    let matches = |criteria: &FteMatchParam, value: &Fields| {
        let (outer, misc) = (criteria.outer_headers(), criteria.misc_parameters());
        let within = criteria.inner_headers();
        let wrong_tag = |customer: bool, service: bool, tag: Option<headers::Tag>| {
            tag.is_some_and(|tag| customer != service && tag.service != service)
        };
        let mask = matching::of_command(criteria).unwrap();
        !wrong_tag(outer.cvlan_tag(), outer.svlan_tag(), headers.tags[0])
            && !wrong_tag(
                misc.outer_second_cvlan_tag(),
                misc.outer_second_svlan_tag(),
                headers.tags[1],
            )
            && !wrong_tag(
                within.cvlan_tag(),
                within.svlan_tag(),
                inner.and_then(|headers| headers.tags[0]),
            )
            && (0..fields.len()).all(|word| (fields[word] ^ value[word]) & mask[word] == 0)
    };
    let mut taken = entries
        .iter()
        .filter(|(_, criteria, value, _)| matches(criteria, value))
        .collect::<Vec<_>>();
    taken.sort_by_key(|(index, ..)| *index);
    taken.first().map(|&&(.., tir)| tir)
}

#[test]
fn lookup_finds_what_a_scan_finds() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(7);
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let (mut taken, mut missed) = (0, 0);
    for round in 0..60 {
        let mut lab = Lab::new();
        let table = lab.table(0, 10, None);
        let mut entries: Vec<(u32, Box<FteMatchParam>, Fields, u32)> = Vec::new();
        // Groups are made in any order, and their ranges have holes.
        let mut ranges: Vec<u32> = (0..8).collect();
        for at in (1..ranges.len()).rev() {
            ranges.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for range in ranges {
            let criteria = random_criteria(&mut rng);
            let group = lab.group(
                table,
                (range * 128, range * 128 + 99),
                Mask::new(Direction::Receive, 7, &criteria).unwrap(),
            );
            let bits = matching::of_command(&criteria).unwrap();
            for _ in 0..rng.below(6) {
                let index = range * 128 + rng.below(100) as u32;
                // Values are those of frames, or there would hardly be a match.
                let (like, inside) = random_tunnel(&mut rng);
                let inner = inside.and_then(|start| Headers::parse_inner(&like, start));
                let like = Headers::parse(&like)
                    .map(|headers| matching::of_frame(&headers, inner.as_ref()));
                let value = core::array::from_fn(|at| like.unwrap_or_default()[at] & bits[at]);
                let tir = rng.below(1000) as u32;
                match lab.set((table, group, index), value, &[Tir(tir)], 0) {
                    Ok(()) => entries.push((index, criteria.clone(), value, tir)),
                    Err(why) => assert_eq!(why, Syndrome::FteOccupied),
                }
                if rng.below(4) == 0 && !entries.is_empty() {
                    let gone = entries.swap_remove(rng.below(entries.len() as u64) as usize);
                    lab.steering.delete_entry(table, gone.0).unwrap();
                }
            }
        }
        for _ in 0..200 {
            let (frame, inside) = random_tunnel(&mut rng);
            let expected: Vec<u32> = scan(&entries, (&frame, inside)).into_iter().collect();
            assert_eq!(
                lab.hits_inside(&frame, inside),
                expected,
                "seed {seed} round {round} frame {frame:02x?} {inside:?}"
            );
            if expected.is_empty() {
                missed += 1
            } else {
                taken += 1
            }
        }
    }
    // Both happen, or nothing was compared.
    assert!(taken > 1000 && missed > 100, "{taken} {missed}");
}
