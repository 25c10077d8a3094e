//! Tables of frames that are sent.

use super::*;
use crate::steering::group::action::{ALLOW, MODIFY_HEADER};
use bareverbs_firmware_cmds::flow::SetActionIn;
use bareverbs_firmware_cmds::values::HeaderField;

/// Drawn entries of two tables of frames that are sent: each entry lets a frame out, drops it, or takes it on, counts it or
/// not, with a new source address or not.
#[test]
fn frames_that_are_sent() {
    let transmit = Limits {
        direction: Direction::Transmit,
        ..LIMITS
    };
    let source = |last: u8| [2, 0, 0, 0, 0, last];
    let mut rng = Rng::new(7);
    for round in 0..200 {
        let mut steering = Steering::default();
        let mut frame = frame(PEER, &[], 0x0806, &[0; 46]);
        assert!(steering.transmit(&mut frame, |_| None), "no table");
        steering.counters.insert(1, 1, Place::default());
        let mut tables = Vec::new();
        // Level 3 first, as the one of level 1 leads to it.
        for level in [3, 1] {
            let number = steering.plan_table(&transmit, level, 3, None).unwrap();
            steering.insert_table(Direction::Transmit, level, 3, None, Place::default());
            let range = (0, 7);
            let by_source = mask(|p| {
                p.outer_headers_mut().set_smac_15_0(0xffff);
            });
            let group = steering.plan_group(number, range.0, range.1).unwrap();
            steering.insert_group(number, range, 3, by_source, Place::default());
            let mut entries = Vec::new();
            for index in 0..8u32 {
                let verdict =
                    [ALLOW, DROP, FORWARD][rng.below(if level == 1 { 3 } else { 2 }) as usize];
                let counted = rng.below(2) == 1;
                let changed = (rng.below(3) == 0).then(|| rng.below(8) as u8);
                let rewrite = changed.map(|last| {
                    let mut set = SetActionIn::ZERO;
                    set.set_action_type(1)
                        .set_field(HeaderField::Smac15_0.number())
                        .set_length(16)
                        .set_data(last.into());
                    let number = steering.plan_rewrite(&transmit).unwrap();
                    let rewrite = Rewrite::new(Direction::Transmit, &set.0).unwrap();
                    steering.insert_rewrite(rewrite);
                    number
                });
                let mut action = verdict;
                if counted {
                    action |= COUNT;
                }
                if rewrite.is_some() {
                    action |= MODIFY_HEADER;
                }
                let entry = Entry {
                    value: value(|p| {
                        p.outer_headers_mut().set_smac_15_0(index as u16);
                    }),
                    action,
                    flow_tag: 0,
                    destinations: match verdict {
                        FORWARD => vec![To(tables.last().map_or(0, |&(number, _)| number))],
                        _ => Vec::new(),
                    },
                    counters: counted.then_some(1).into_iter().collect(),
                    rewrite,
                };
                let place = (number, group, index);
                let none = |_| false;
                steering
                    .set_entry(&transmit, place, entry, None, &none)
                    .unwrap();
                entries.push((verdict, counted, changed));
            }
            tables.push((number, entries));
        }
        for last in 0..10 {
            let before = steering.counters.get(1).map_or(0, |count| count.packets);
            let mut sent = frame.clone();
            sent[6..12].copy_from_slice(&source(last));
            let passes = steering.transmit(&mut sent, |_| None);
            // The same by hand: the table of level 1, then that of level 3.
            let (mut address, mut counts, mut expected) = (last, 0, true);
            for (_, entries) in tables.iter().rev() {
                let Some(&(verdict, counted, changed)) = entries.get(usize::from(address)) else {
                    break;
                };
                counts += u64::from(counted);
                address = changed.unwrap_or(address);
                expected = verdict != DROP;
                if verdict != FORWARD {
                    break;
                }
            }
            assert_eq!(passes, expected, "round {round}, source {last}");
            if passes {
                assert_eq!(sent[6..12], source(address), "round {round}, source {last}");
            }
            let after = steering.counters.get(1).map_or(0, |count| count.packets);
            assert_eq!(after - before, counts, "round {round}, source {last}");
        }
        // What is received does not come through these tables.
        let mut hits = Vec::new();
        steering.classify(&frame, None, &mut hits);
        assert_eq!(hits, []);
    }
}

/// A table of one direction is none of the other's, and frames that are sent go to no TIR.
#[test]
fn directions_are_apart() {
    let mut lab = Lab::new();
    let received = lab.table(2, 4, None);
    let transmit = Limits {
        direction: Direction::Transmit,
        ..LIMITS
    };
    let sent = lab.steering.plan_table(&transmit, 1, 4, None).unwrap();
    assert_eq!(
        lab.steering.plan_table(&transmit, 1, 4, Some(received)),
        Err(Syndrome::FlowMissTable)
    );
    lab.steering
        .insert_table(Direction::Transmit, 1, 4, None, Place::default());
    assert_eq!(
        lab.steering.check_table(Direction::Receive, sent),
        Err(Syndrome::FlowTableUnknown)
    );
    assert_eq!(
        lab.steering.set_root(Direction::Receive, Root::Table(sent)),
        Err(Syndrome::FlowTableUnknown)
    );
    let group = lab.group(sent, (0, 1), mask(|_| ()));
    let mut set = |action: u16, to: &[Destination]| {
        let entry = Entry {
            value: value(|_| ()),
            action,
            flow_tag: 0,
            destinations: to.to_vec(),
            counters: Vec::new(),
            rewrite: None,
        };
        let place = (sent, group, 0);
        lab.steering
            .set_entry(&transmit, place, entry, None, &|_| true)
    };
    assert_eq!(set(FORWARD, &[Tir(1)]), Err(Syndrome::FteMultiPath));
    assert_eq!(set(FORWARD, &[To(received)]), Err(Syndrome::FteTable));
    assert_eq!(set(ALLOW | DROP, &[]), Err(Syndrome::FteAction));
    assert_eq!(set(ALLOW, &[]), Ok(()));
}
