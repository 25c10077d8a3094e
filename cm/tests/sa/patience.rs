//! Times and places of questions to subnet administration: back-off with jitter, and redirection, against drawn administrations.

use std::time::Duration;

use bareverbs_cm::mad::sa::*;
use bareverbs_cm::mad::{MAD_LEN, MadError};
use bareverbs_cm::sa::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

fn question() -> Question {
    let wanted = PathRecord {
        dgid: [2; 16],
        sgid: [1; 16],
        ..PathRecord::ZERO
    };
    Question::Path {
        wanted,
        components: PathRecord::DGID | PathRecord::SGID,
    }
}

fn client(seed: u64, slots: usize) -> Client<'static> {
    Client::new(Config::new(seed), vec![QuestionSlot::EMPTY; slots].leak())
}

/// An answer with this status, by offsets.
fn answer(asked: &[u8; MAD_LEN], status: u16) -> [u8; MAD_LEN] {
    let mut mad = *asked;
    // GetResp to Get and to Set.
    mad[3] = 0x81;
    mad[4..6].copy_from_slice(&status.to_be_bytes());
    mad
}

/// A path: LIDs 2 and 3, MTU 2048.
fn path(asked: &[u8; MAD_LEN]) -> [u8; MAD_LEN] {
    let mut mad = answer(asked, 0);
    mad[56 + 41] = 3;
    mad[56 + 43] = 2;
    mad[56 + 54] = 2 << 6 | 4;
    mad
}

/// ClassPortInfo with a redirection, by the offsets of IBTA volume 1, 13.4.8.1. The attribute is ClassPortInfo, or that of the
/// question, which libibmad takes too.
fn redirected(asked: &[u8; MAD_LEN], same: bool, lid: u16, pkey: u16, qpn: u32) -> [u8; MAD_LEN] {
    let mut mad = answer(asked, 2);
    if !same {
        mad[16..18].copy_from_slice(&[0, 1]);
    }
    let info = &mut mad[56..];
    info.fill(0);
    info[..2].copy_from_slice(&[1, 2]);
    info[8..24].copy_from_slice(&[7; 16]);
    info[24] = 0x3c;
    info[25..28].copy_from_slice(&[0x4a, 0xbc, 0xde]);
    info[28..30].copy_from_slice(&lid.to_be_bytes());
    info[30..32].copy_from_slice(&pkey.to_be_bytes());
    info[32..36].copy_from_slice(&qpn.to_be_bytes());
    info[36..40].copy_from_slice(&[0x80, 1, 0, 0]);
    mad
}

#[test]
fn redirection_golden() {
    let asked = [
        &[1, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1][..],
        &[0; 238],
    ]
    .concat();
    let golden = redirected(
        &asked.try_into().unwrap(),
        false,
        0x1234,
        0xffff,
        0x0012_3456,
    );
    let to = SaRedirection {
        gid: [7; 16],
        traffic_class: 0x3c,
        sl: 4,
        flow_label: 0xabcde,
        lid: 0x1234,
        pkey: 0xffff,
        qpn: 0x0012_3456,
        qkey: 0x8001_0000,
    };
    let read = SaMad::new(&golden).unwrap();
    assert_eq!(read.redirection(), Some(to));
    let mut mad = [0xa5; MAD_LEN];
    to.emit(&read.header(), &mut mad).unwrap();
    assert_eq!(mad, golden);
    for (wide, field) in [
        (SaRedirection { sl: 16, ..to }, "redirect_sl"),
        (
            SaRedirection {
                flow_label: 1 << 20,
                ..to
            },
            "redirect_flow_label",
        ),
        (SaRedirection { qpn: 1 << 24, ..to }, "redirect_qpn"),
    ] {
        match wide.emit(&read.header(), &mut mad) {
            Err(MadError::FieldTooWide { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    // Other statuses are no redirections: nothing, busy, and both.
    for status in [0, 1, 3, 0x0202] {
        let mut other = golden;
        other[4..6].copy_from_slice(&u16::to_be_bytes(status));
        assert_eq!(SaMad::new(&other).unwrap().redirection(), None, "{status}");
    }
}

/// An administration's answer to the next MAD.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    Silent,
    Busy,
    Yes,
    No,
    Redirect {
        same: bool,
        lid: u16,
        pkey: u16,
        qpn: u32,
    },
    /// Once more the redirection that is known, as if a repetition had been on its way.
    Stale,
}

fn deed(draw: &mut Draw) -> Deed {
    match draw.below(16) {
        0..=4 => Deed::Silent,
        5..=9 => Deed::Busy,
        10 => Deed::Yes,
        11 => Deed::No,
        12 => Deed::Stale,
        _ => Deed::Redirect {
            same: draw.below(2) == 0,
            lid: draw.pick(&[4, 4, 4, 4, 0, 1, 0xbfff, 0xc000, 0xffff]),
            pkey: draw.pick(&[0xffff, 0xffff, 0xffff, 0x7fff, 0, 0x8001]),
            qpn: draw.pick(&[1, 1, 1, 0x45, 0xff_fffe, 0, 0xff_ffff]),
        },
    }
}

/// The field that makes a redirection useless.
fn wrong(lid: u16, pkey: u16, qpn: u32) -> Option<&'static str> {
    if lid == 0 || lid >= 0xc000 {
        Some("redirect_lid")
    } else if qpn == 0 || qpn == 0xff_ffff {
        Some("redirect_qpn")
    } else if pkey != 0xffff && pkey != 0x7fff {
        Some("redirect_pkey")
    } else {
        None
    }
}

/// Every question ends as its answers say, at its deadline at the latest, and every repetition comes at its time: a quarter
/// around 100 ms, 200 ms and so on after the last one, up to a second.
#[test]
fn drawn_administrations() {
    let (mut followed, mut ended) = (0, [0; 6]);
    for seed in 1..=4_000 {
        let mut draw = Draw(seed);
        let mut client = client(seed << 20, 1);
        let begin = SECOND * draw.below(1000) as u32;
        let deadline = begin + MS * (1 + draw.below(8_000) as u32);
        let id = client.ask(begin, &question(), deadline).unwrap();
        // What the one who asks has to know: where it asks, and how long it waits.
        let mut there: Option<(u16, u32)> = None;
        let (mut busy, mut interval, mut due) = (false, 100 * MS, begin..begin);
        let mut first: Option<[u8; MAD_LEN]> = None;
        let mut wanted = None;
        while wanted.is_none() {
            let now = client.next_deadline().expect("no end");
            let mut mad = [0xa5; MAD_LEN];
            if !client.poll_transmit(now, &mut mad) {
                assert_eq!(now, deadline, "seed {seed}");
                wanted = Some(match busy {
                    true => Err(SaError::Status(SaStatus::BUSY)),
                    false => Err(SaError::NoAnswer),
                });
                break;
            }
            assert!(
                now < deadline && due.start <= now && now <= due.end,
                "seed {seed}: {now:?} {due:?}"
            );
            let to = client.redirection();
            assert_eq!(to.map(|to| (to.lid, to.qpn)), there, "seed {seed}");
            assert_eq!(client.redirection(), None, "seed {seed}");
            due = now + interval * 3 / 4..now + interval * 5 / 4;
            interval = (interval * 2).min(SECOND);
            let at_first = *first.get_or_insert(mad);
            match deed(&mut draw) {
                Deed::Silent => {}
                Deed::Busy => {
                    busy = true;
                    client.handle_mad(now, &answer(&mad, 1)).unwrap();
                    due =
                        due.start.max(now + interval * 3 / 4)..due.end.max(now + interval * 5 / 4);
                }
                Deed::Yes => {
                    client.handle_mad(now, &path(&mad)).unwrap();
                    wanted = Some(Ok(()));
                }
                Deed::No => {
                    client.handle_mad(now, &answer(&mad, 0x0300)).unwrap();
                    wanted = Some(Err(SaError::Status(SaStatus::NO_RECORDS)));
                }
                Deed::Stale => {
                    let again = redirected(&at_first, false, 4, 0xffff, 1);
                    if there.is_some() {
                        let ignored = client.handle_mad(now, &again);
                        assert!(
                            matches!(ignored, Err(Ignored::Unexpected { .. })),
                            "seed {seed}"
                        );
                    }
                }
                Deed::Redirect {
                    same,
                    lid,
                    pkey,
                    qpn,
                } => {
                    client
                        .handle_mad(now, &redirected(&mad, same, lid, pkey, qpn))
                        .unwrap();
                    match (there, wrong(lid, pkey, qpn)) {
                        (Some((lid, _)), _) => wanted = Some(Err(SaError::RedirectedAgain(lid))),
                        (None, Some(field)) => {
                            let value = match field {
                                "redirect_lid" => lid.into(),
                                "redirect_qpn" => qpn.into(),
                                _ => pkey.into(),
                            };
                            wanted = Some(Err(SaError::Senseless { field, value }));
                        }
                        (None, None) => {
                            there = Some((lid, qpn));
                            assert!(client.asks(lid) && !client.asks(lid + 1), "seed {seed}");
                            (busy, interval, due) = (false, 100 * MS, now..now);
                            followed += 1;
                        }
                    }
                }
            }
        }
        let found = client.outcome(id).expect("no outcome").map(|_| ());
        let wanted = wanted.expect("no end");
        assert_eq!(found, wanted, "seed {seed}");
        assert!(
            client.next_deadline().is_none() && client.in_use() == 0,
            "seed {seed}"
        );
        assert!(
            !there.is_some_and(|(lid, _)| client.asks(lid)),
            "seed {seed}"
        );
        ended[match wanted {
            Ok(()) => 0,
            Err(SaError::NoAnswer) => 1,
            Err(SaError::Status(SaStatus::BUSY)) => 2,
            Err(SaError::Status(_)) => 3,
            Err(SaError::RedirectedAgain(_)) => 4,
            Err(_) => 5,
        }] += 1;
    }
    println!("{followed} redirections followed; ends {ended:?}");
    assert!(
        followed > 200 && ended.iter().all(|&count| count > 50),
        "{followed} {ended:?}"
    );
}

/// Ports that ask at the same time do not stay in step.
#[test]
fn askers_spread() {
    let mut times = std::collections::HashSet::new();
    for seed in 0..200_u64 {
        let mut client = client(seed << 32, 1);
        let _ = client.ask(SECOND, &question(), 20 * SECOND).unwrap();
        let mut mad = [0; MAD_LEN];
        for _ in 0..6 {
            let now = client.next_deadline().unwrap();
            assert!(client.poll_transmit(now, &mut mad));
        }
        times.insert(client.next_deadline().unwrap() / 1_000_000 * 1_000_000);
    }
    // Of 200 in half a second, in microseconds.
    assert!(times.len() > 150, "{}", times.len());
}

/// Redirections with damaged bytes: each is followed, refused or ignored, and none leads where no port can be.
#[test]
fn damaged_redirections() {
    let mut followed = 0;
    for seed in 1..=20_000 {
        let mut draw = Draw(seed);
        let mut client = client(seed, 2);
        let id = client.ask(SECOND, &question(), 9 * SECOND).unwrap();
        let other = client.ask(SECOND, &question(), 9 * SECOND).unwrap();
        let mut mads = [[0; MAD_LEN]; 2];
        for mad in &mut mads {
            assert!(client.poll_transmit(SECOND, mad));
        }
        let mut bad = redirected(&mads[0], draw.below(2) == 0, 4, 0xffff, 1);
        for _ in 0..=draw.below(4) {
            let at = if draw.below(2) == 0 {
                draw.below(256)
            } else {
                56 + draw.below(40)
            };
            bad[at as usize] = draw.pick(&[0, 1, 0xff, 0x80, draw.0 as u8]);
        }
        let _ = client.handle_mad(SECOND, &bad);
        let mut mad = [0; MAD_LEN];
        while client.poll_transmit(SECOND, &mut mad) {
            let Some(to) = client.redirection() else {
                continue;
            };
            assert_eq!(wrong(to.lid, to.pkey, to.qpn), None, "seed {seed}");
            followed += 1;
        }
        // The other question is not touched.
        client.handle_mad(SECOND, &path(&mads[1])).unwrap();
        assert!(matches!(client.outcome(other), Some(Ok(_))), "seed {seed}");
        client.handle_timeout(9 * SECOND);
        assert!(
            client.outcome(id).is_some() && client.in_use() == 0,
            "seed {seed}"
        );
    }
    assert!(followed > 5_000, "{followed}");
}

/// Services and subscriptions beside each other: each follows the redirection of its own question.
#[test]
fn users_are_redirected() {
    let mut services = Services::new(
        Config::new(1),
        vec![QuestionSlot::EMPTY; 1].leak(),
        vec![ServiceSlot::EMPTY; 1].leak(),
    );
    let mut subscriptions = Subscriptions::new(
        Config::new(2),
        vec![QuestionSlot::EMPTY; 1].leak(),
        vec![SubscriptionSlot::EMPTY; 1].leak(),
        vec![ReportSlot::EMPTY; 1].leak(),
    );
    let record = ServiceRecord {
        lease: ServiceRecord::FOREVER,
        ..ServiceRecord::ZERO
    };
    services.offer(SECOND, &record).unwrap();
    subscriptions
        .subscribe(SECOND, Trap::GidOutOfService)
        .unwrap();
    let mut users = (services, subscriptions);
    let mut mad = [0; MAD_LEN];
    for (now, same) in [(SECOND, false), (SECOND, true)] {
        assert!(users.poll_transmit(now, &mut mad));
        assert_eq!(users.redirection(), None);
        let lid = if same { 6 } else { 5 };
        assert!(!users.asks(lid));
        let redirection = redirected(&mad, same, lid, 0xffff, 1);
        assert_eq!(users.handle_mad(now, &redirection), Taken::Mine);
        assert!(users.asks(lid));
        assert!(users.poll_transmit(now, &mut mad));
        assert_eq!(users.redirection().map(|to| to.lid), Some(lid));
        let good = answer(&mad, 0);
        assert_eq!(users.handle_mad(now, &good), Taken::Mine);
        assert!(!users.asks(lid));
    }
    assert_eq!(users.0.standing(&record), Some(ServiceStanding::Known));
    assert_eq!(
        users.1.standing(Trap::GidOutOfService),
        Some(Standing::Active)
    );
    // A redirection of no question of theirs.
    let stray = redirected(&mad, false, 5, 0xffff, 1);
    assert_eq!(users.handle_mad(SECOND, &stray), Taken::NotMine);
}

/// A table that is redirected: the question again, and all acknowledgements, go there in another transaction.
#[test]
fn a_table_is_redirected() {
    let mut reader = TableReader::new(Config::new(7), vec![0; 1024].leak());
    let mut mad = [0; MAD_LEN];
    for (case, same) in [false, true].into_iter().enumerate() {
        let like = PathRecord::ZERO;
        reader.ask(SECOND, &like, 0, 9 * SECOND).unwrap();
        assert!(reader.poll_transmit(SECOND, &mut mad));
        assert_eq!(reader.redirection(), None);
        let first = mad;
        let mut to = redirected(&mad, same, 5, 0xffff, 0x45);
        if same {
            to[3] = 0x92;
        }
        assert_eq!(reader.handle_mad(SECOND, &to), Taken::Mine);
        assert!(reader.asks(5) && !reader.asks(6));
        // Once more from before: it is of no transaction that there is.
        let _ = reader.handle_mad(SECOND, &to);
        assert!(reader.table::<PathRecord>().is_none(), "case {case}");
        assert!(reader.poll_transmit(SECOND, &mut mad));
        assert_eq!(
            reader.redirection().map(|to| (to.lid, to.qpn)),
            Some((5, 0x45))
        );
        assert_eq!(
            (mad[..8].to_vec(), mad[16..].to_vec()),
            (first[..8].to_vec(), first[16..].to_vec())
        );
        assert_ne!(mad[8..16], first[8..16]);
        // One segment, the first and the last, with one record.
        let mut segment = answer(&mad, 0);
        segment[3] = 0x92;
        segment[24..36].copy_from_slice(&[1, 1, 7, 0, 0, 0, 0, 1, 0, 0, 0, 84]);
        segment[44..46].copy_from_slice(&[0, 8]);
        assert_eq!(reader.handle_mad(SECOND, &segment), Taken::Mine);
        let table = reader
            .table::<PathRecord>()
            .expect("done")
            .expect("a table");
        assert_eq!(table.len(), 1);
        assert!(reader.poll_transmit(SECOND, &mut mad));
        assert_eq!((mad[25], mad[26]), (2, 1), "an acknowledgement");
        assert_eq!(reader.redirection().map(|to| to.lid), Some(5));
        assert!(reader.asks(5));
    }
    // Redirected twice, to nowhere, and told of another subnet manager.
    for (hops, lid, error) in [
        (2, 5, Some(SaError::RedirectedAgain(5))),
        (
            1,
            0,
            Some(SaError::Senseless {
                field: "redirect_lid",
                value: 0,
            }),
        ),
        (1, 5, None),
    ] {
        reader
            .ask(SECOND, &PathRecord::ZERO, 0, 9 * SECOND)
            .unwrap();
        for _ in 0..hops {
            assert!(reader.poll_transmit(SECOND, &mut mad));
            let _ = reader.redirection();
            let to = redirected(&mad, false, lid, 0xffff, 1);
            assert_eq!(reader.handle_mad(SECOND, &to), Taken::Mine);
        }
        let Some(error) = error else {
            reader.subnet_changed(SECOND);
            assert!(!reader.asks(5) && reader.poll_transmit(SECOND, &mut mad));
            assert_eq!(reader.redirection(), None);
            continue;
        };
        let found = reader.table::<PathRecord>().expect("an end").err();
        assert_eq!(found, Some(TableError::Sa(error)));
    }
}
