//! Subscriptions, services and tables against subnet administration that is slow, loses its records, or answers falsely.

use std::time::Duration;

use crate::common::{MS, Random};
use bareverbs_cm::mad::MAD_LEN;
use bareverbs_cm::mad::sa::*;
use bareverbs_cm::sa::*;

const SECOND: Duration = Duration::from_secs(1);
const START: Duration = Duration::ZERO;
const GONE: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 3, 1];

type Mad = [u8; MAD_LEN];

fn sent(user: &mut impl SaUser, now: Duration) -> Vec<Mad> {
    let mut all = Vec::new();
    let mut mad = [0xa5; MAD_LEN];
    while user.poll_transmit(now, &mut mad) {
        all.push(mad);
    }
    all
}

/// The only MAD that is due.
#[track_caller]
fn one(user: &mut impl SaUser, now: Duration) -> Mad {
    let all = sent(user, now);
    assert_eq!(all.len(), 1);
    all[0]
}

/// The question as its own answer.
fn answered(asked: &Mad, status: u16) -> Mad {
    let mut answer = *asked;
    answer[3] = if asked[3] == 0x15 { 0x95 } else { 0x81 };
    answer[4..6].copy_from_slice(&status.to_be_bytes());
    answer
}

fn subscriptions() -> Subscriptions<'static> {
    Subscriptions::new(
        Config::new(7),
        vec![QuestionSlot::EMPTY; 2].leak(),
        vec![SubscriptionSlot::EMPTY; 2].leak(),
        vec![ReportSlot::EMPTY; 2].leak(),
    )
}

/// A report as OpenSM writes it (osm_report_notice), by the offsets of IBTA volume 1, 13.4.8.2 and 14.2.5.1.
fn report(transaction: u64, trap: u16, gid: [u8; 16]) -> Mad {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 3, 2, 6]);
    mad[8..16].copy_from_slice(&transaction.to_be_bytes());
    mad[17] = 2;
    let notice = &mut mad[56..136];
    notice[..4].copy_from_slice(&[0x83, 0, 0, 4]);
    notice[4..6].copy_from_slice(&trap.to_be_bytes());
    notice[7] = 1;
    notice[16..32].copy_from_slice(&gid);
    notice[64..80].copy_from_slice(&[0x11; 16]);
    mad
}

fn subscribed(user: &mut Subscriptions<'_>, trap: Trap) {
    user.subscribe(START, trap).unwrap();
    let asked = one(user, START);
    assert_eq!(user.standing(trap), Some(Standing::Asked));
    assert_eq!(user.handle_mad(START, &answered(&asked, 0)), Taken::Mine);
    assert_eq!(user.standing(trap), Some(Standing::Active));
}

#[test]
fn a_subscription_by_the_table_of_inform_info() {
    let mut user = subscriptions();
    user.subscribe(START, Trap::GidOutOfService).unwrap();
    let asked = one(&mut user, START);
    assert_eq!(asked[..4], [1, 3, 2, 2]);
    assert_eq!(asked[16..18], [0, 3]);
    let info = [
        0xff, 0xff, 0, 0, 0, 0, 1, 1, 0xff, 0xff, 0, 65, 0, 0, 1, 19, 0, 0xff, 0xff, 0xff,
    ];
    assert_eq!(asked[56..72], [0; 16]);
    assert_eq!(asked[72..92], info);
    user.handle_mad(START, &answered(&asked, 0));
    user.unsubscribe(START, Trap::GidOutOfService);
    let ended = one(&mut user, START);
    assert_eq!((ended[79], &ended[80..92]), (0, &asked[80..92]));
    user.handle_mad(START, &answered(&ended, 0));
    assert_eq!(user.standing(Trap::GidOutOfService), None);
}

#[test]
fn reports_are_answered_each_time_and_had_once() {
    let mut user = subscriptions();
    subscribed(&mut user, Trap::GidOutOfService);
    let gone = report(9, 65, GONE);
    for _ in 0..3 {
        assert_eq!(user.handle_mad(MS, &gone), Taken::GidGone(GONE));
        assert_eq!(user.next_deadline(), Some(Duration::ZERO));
        let mut answer = gone;
        answer[3] = 0x86;
        // Of the notice there is what is understood.
        answer[96 - 24..88].copy_from_slice(&GONE);
        assert_eq!(one(&mut user, MS), answer);
    }
    let notice = user.next_report().unwrap();
    assert!(notice.is(Trap::GidOutOfService) && notice.gid == GONE && notice.issuer_lid == 1);
    assert_eq!(user.next_report(), None);
    assert_eq!(user.next_deadline(), None);
}

#[test]
fn reports_that_find_no_room_are_not_answered() {
    let mut user = subscriptions();
    subscribed(&mut user, Trap::GidInService);
    for transaction in 1..=3 {
        user.handle_mad(MS, &report(transaction, 64, [transaction as u8; 16]));
    }
    assert_eq!(sent(&mut user, MS).len(), 2);
    assert_eq!(user.next_report().unwrap().gid, [1; 16]);
    user.handle_mad(2 * MS, &report(3, 64, [3; 16]));
    assert_eq!(sent(&mut user, 2 * MS).len(), 1);
    let rest: Vec<_> = std::iter::from_fn(|| user.next_report()).collect();
    assert_eq!(
        rest.iter().map(|notice| notice.gid[0]).collect::<Vec<_>>(),
        [2, 3]
    );
    // There is no subscription to groups.
    assert_eq!(user.handle_mad(MS, &report(4, 66, GONE)), Taken::Mine);
    assert!(sent(&mut user, MS).is_empty() && user.next_report().is_none());
}

#[test]
fn subscriptions_last_and_refusals_are_told() {
    let mut user = subscriptions();
    subscribed(&mut user, Trap::GidInService);
    user.subnet_changed(SECOND);
    let again = one(&mut user, SECOND);
    assert_eq!(user.standing(Trap::GidInService), Some(Standing::Asked));
    user.handle_mad(SECOND, &answered(&again, 0x0200));
    let refused = Standing::Failed(SaError::Status(SaStatus::REQUEST_INVALID));
    assert_eq!(user.standing(Trap::GidInService), Some(refused));
    // Success that says that there is no subscription.
    user.subscribe(SECOND, Trap::GidInService).unwrap();
    let mut no = answered(&one(&mut user, SECOND), 0);
    no[79] = 0;
    user.handle_mad(SECOND, &no);
    assert!(matches!(
        user.standing(Trap::GidInService),
        Some(Standing::Failed(_))
    ));
    user.subscribe(SECOND, Trap::GroupMade).unwrap();
    let full = user.subscribe(SECOND, Trap::GroupDeleted);
    assert!(matches!(full, Err(SaError::NoSlots { capacity: 2, .. })));
}

fn service() -> ServiceRecord {
    ServiceRecord {
        service_id: 0x1122,
        service_gid: GONE,
        pkey: 0xffff,
        lease: 60,
        name: ServiceRecord::named("bareverbs").unwrap(),
        ..ServiceRecord::ZERO
    }
}

fn services() -> Services<'static> {
    let questions = vec![QuestionSlot::EMPTY; 2].leak();
    Services::new(
        Config::new(7),
        questions,
        vec![ServiceSlot::EMPTY; 1].leak(),
    )
}

#[test]
fn leases_are_renewed_and_services_withdrawn() {
    let mut user = services();
    user.offer(START, &service()).unwrap();
    let asked = one(&mut user, START);
    assert_eq!((asked[3], asked[17]), (2, 0x31));
    // By IBTA volume 1, table 15.2.5.14.
    assert_eq!(asked[48..56], (0x1f_ffff_fff7_u64).to_be_bytes());
    assert_eq!(asked[56..64], 0x1122_u64.to_be_bytes());
    assert_eq!(
        (&asked[64..80], &asked[80..82]),
        (&GONE[..], &[0xff; 2][..])
    );
    assert_eq!(asked[84..88], [0, 0, 0, 60]);
    assert_eq!(&asked[104..114], b"bareverbs\0");
    user.handle_mad(SECOND, &answered(&asked, 0));
    assert_eq!(user.standing(&service()), Some(ServiceStanding::Known));
    // Half of the lease after it was asked for.
    assert_eq!(user.next_deadline(), Some(30 * SECOND));
    assert!(sent(&mut user, 29 * SECOND).is_empty());
    let renewed = one(&mut user, 30 * SECOND);
    assert_eq!(renewed[56..], asked[56..]);
    // Without an answer it is said, and tried again.
    user.handle_timeout(40 * SECOND);
    let failed = ServiceStanding::Failed(SaError::NoAnswer);
    assert_eq!(user.standing(&service()), Some(failed));
    let again = one(&mut user, 50 * SECOND);
    user.handle_mad(50 * SECOND, &answered(&again, 0));
    assert_eq!(user.standing(&service()), Some(ServiceStanding::Known));
    user.withdraw(51 * SECOND, &service());
    let gone = one(&mut user, 51 * SECOND);
    assert_eq!(
        (gone[3], &gone[48..56]),
        (0x15, &0x27_u64.to_be_bytes()[..])
    );
    user.handle_mad(51 * SECOND, &answered(&gone, 0));
    assert_eq!(
        (user.standing(&service()), user.next_deadline()),
        (None, None)
    );
    let no_time = ServiceRecord {
        lease: 0,
        ..service()
    };
    assert!(matches!(
        user.offer(START, &no_time),
        Err(SaError::Senseless { field: "lease", .. })
    ));
}

#[test]
fn a_service_that_was_not_asked_for_is_no_answer() {
    let mut user = services();
    for (at, good) in [(63, false), (79, true)] {
        let id = user
            .find(START, &service(), ServiceRecord::SERVICE_ID, SECOND)
            .unwrap();
        let mut answer = answered(&one(&mut user, START), 0);
        answer[at] ^= 1;
        user.handle_mad(START, &answer);
        assert_eq!(user.found(id).unwrap().is_ok(), good);
    }
}

/// Segments of a table of paths, each of whose bytes is told by its place.
fn segments(asked: &Mad, records: usize) -> Vec<Mad> {
    let table: Vec<u8> = (0..records * 64).map(byte).collect();
    let count = table.len().div_ceil(200).max(1);
    let pieces = (0..count).map(|place| &table[place * 200..table.len().min(place * 200 + 200)]);
    let numbered = pieces.enumerate().map(|(place, piece)| {
        let mut mad = *asked;
        mad[3] = 0x92;
        mad[45] = 8;
        mad[56..].fill(0xee);
        mad[56..56 + piece.len()].copy_from_slice(piece);
        let (first, last) = (place == 0, place + 1 == count);
        mad[24..28].copy_from_slice(&[1, 1, 1 | u8::from(first) << 1 | u8::from(last) << 2, 0]);
        mad[28..32].copy_from_slice(&(place as u32 + 1).to_be_bytes());
        let length = match (first, last) {
            (_, true) => piece.len() + 20,
            (true, _) => table.len() + 20 * count,
            _ => 0,
        };
        mad[32..36].copy_from_slice(&(length as u32).to_be_bytes());
        mad
    });
    numbered.collect()
}

fn byte(place: usize) -> u8 {
    (place * 7 + place / 256) as u8
}

fn reader(capacity: usize) -> TableReader<'static> {
    TableReader::new(Config::new(7), vec![0xa5; capacity].leak())
}

fn ask(user: &mut TableReader<'_>) -> Mad {
    user.ask(START, &PathRecord::ZERO, 0, 10 * SECOND).unwrap();
    let asked = one(user, START);
    assert_eq!((asked[3], asked[17], asked[26]), (0x12, 0x35, 0));
    asked
}

fn is_right(user: &TableReader<'_>, records: usize) {
    let table = user.table::<PathRecord>().expect("done").expect("a table");
    let bytes: Vec<u8> = table.rows().flatten().copied().collect();
    assert_eq!((table.len(), table.iter().count()), (records, records));
    assert_eq!(bytes, (0..records * 64).map(byte).collect::<Vec<_>>());
}

/// Segment and window of an acknowledgement.
fn ack(mad: &Mad) -> (u32, u32) {
    assert_eq!((mad[3], mad[25], mad[26], mad[27]), (0x12, 2, 1, 0));
    let dword = |at: usize| u32::from_be_bytes(mad[at..at + 4].try_into().unwrap());
    (dword(28), dword(32))
}

#[test]
fn tables_of_any_length() {
    for records in [0, 1, 3, 4, 25, 26, 100] {
        let mut user = reader(100 * 64);
        let all = segments(&ask(&mut user), records);
        let mut window = 1;
        for (place, segment) in all.iter().enumerate() {
            assert!(place < window as usize, "the sender has to wait for ever");
            user.handle_mad(MS, segment);
            for mad in sent(&mut user, MS) {
                let (whole, until) = ack(&mad);
                assert_eq!(whole as usize, place + 1);
                window = until;
            }
        }
        is_right(&user, records);
        assert!(user.table::<NodeRecord>().is_none());
        // Its last acknowledgement was lost.
        user.handle_mad(MS, &all[all.len() - 1]);
        assert_eq!(ack(&one(&mut user, MS)).0 as usize, all.len());
        is_right(&user, records);
        assert_eq!(user.next_deadline(), None);
    }
}

#[test]
fn segments_in_any_order_lost_and_twice() {
    for seed in 0..500 {
        let mut draws = Random(seed);
        let mut user = reader(100 * 64);
        let all = segments(&ask(&mut user), 100);
        let (mut whole, mut window, mut now) = (0, 1, START);
        while user.table::<PathRecord>().is_none() {
            now += 100 * MS;
            let mut flight: Vec<_> = (whole..window.min(all.len() as u32)).collect();
            for place in (1..flight.len()).rev() {
                flight.swap(place, draws.below(place as u64 + 1) as usize);
            }
            for place in flight {
                for _ in 0..[0, 1, 1, 1, 2][draws.below(5) as usize] {
                    user.handle_mad(now, &all[place as usize]);
                }
            }
            for mad in sent(&mut user, now) {
                // The question again, as long as nothing has come.
                let asks = mad[26] == 0;
                if !asks && draws.below(4) != 0 {
                    (whole, window) = ack(&mad);
                }
            }
            assert!(now < 60 * SECOND);
            if now >= 10 * SECOND {
                break;
            }
        }
        match user.table::<PathRecord>() {
            Some(Ok(_)) => is_right(&user, 100),
            Some(Err(error)) => assert!(matches!(error, TableError::Incomplete { .. })),
            None => panic!("no end with seed {seed}"),
        }
    }
}

#[test]
fn what_contradicts_itself_ends_the_transfer() {
    use RmppStatus as S;
    let cases: [(usize, &[[u8; 2]], S); 8] = [
        (0, &[[27, 1]], S::BAD_STATUS),
        (0, &[[24, 2]], S::VERSION),
        (0, &[[25, 9]], S::BAD_TYPE),
        (0, &[[26, 1]], S::BAD_SEGMENT),
        (1, &[[26, 3]], S::BAD_SEGMENT),
        (1, &[[31, 0]], S::BAD_SEGMENT),
        // The last one, too early, and of more than fits.
        (1, &[[26, 5], [35, 100]], S::BAD_LENGTH),
        (6, &[[35, 250]], S::BAD_LENGTH),
    ];
    for (place, changes, status) in cases {
        let mut user = reader(100 * 64);
        let all = segments(&ask(&mut user), 20);
        for segment in &all[..place] {
            user.handle_mad(MS, segment);
        }
        sent(&mut user, MS);
        let mut bad = all[place];
        for &[at, byte] in changes {
            bad[usize::from(at)] = byte;
        }
        user.handle_mad(MS, &bad);
        let told = one(&mut user, MS);
        assert_eq!((told[3], told[25], told[27]), (0x12, 4, status.0));
        let error = user.table::<PathRecord>().unwrap().unwrap_err();
        assert_eq!(error, TableError::Broken(status));
        // Whatever comes afterwards.
        user.handle_mad(MS, &all[place]);
        assert!(sent(&mut user, MS).is_empty());
    }
}

#[test]
fn endless_tables_end_with_the_buffer() {
    let mut user = reader(1000);
    let asked = ask(&mut user);
    let mut number = 0;
    while user.table::<PathRecord>().is_none() {
        number += 1;
        assert!(number < 10);
        let mut segment = segments(&asked, 100)[1];
        segment[26] = 1 | u8::from(number == 1) << 1;
        segment[31] = number;
        user.handle_mad(MS, &segment);
    }
    let error = user.table::<PathRecord>().unwrap().unwrap_err();
    assert_eq!((error, number), (TableError::TooLong { capacity: 1000 }, 6));
    let told = sent(&mut user, MS);
    assert_eq!(told.last().map(|mad| (mad[25], mad[27])), Some((3, 1)));
}

#[test]
fn the_deadline_holds_at_every_step() {
    // Nothing comes; busy; the first segment alone; the same one for ever.
    for case in 0..4 {
        let mut user = reader(100 * 64);
        let asked = ask(&mut user);
        let first = segments(&asked, 100)[0];
        let mut now = START;
        while user.table::<PathRecord>().is_none() {
            match case {
                1 => drop(user.handle_mad(now, &{
                    let mut busy = answered(&asked, 1);
                    busy[3] = 0x92;
                    busy
                })),
                2 if now == START => drop(user.handle_mad(now, &first)),
                3 => drop(user.handle_mad(now, &first)),
                _ => {}
            }
            sent(&mut user, now);
            now += 100 * MS;
            user.handle_timeout(now);
        }
        assert_eq!(now, 10 * SECOND);
        let error = user.table::<PathRecord>().unwrap().unwrap_err();
        let expected = match case {
            0 => TableError::Sa(SaError::NoAnswer),
            1 => TableError::Sa(SaError::Status(SaStatus::BUSY)),
            _ => TableError::Incomplete { segments: 1 },
        };
        assert_eq!(error, expected);
        let told = sent(&mut user, now);
        assert_eq!(told.len(), usize::from(case >= 2));
        assert!(told.iter().all(|mad| (mad[25], mad[27]) == (4, 118)));
    }
}

/// Drawn answers: right ones with bytes that are others, in any order, until the deadline. There is no panic, the buffer's
/// end is kept, and there is an end.
#[test]
fn anything_may_come() {
    for seed in 0..3000 {
        let mut draws = Random(seed);
        let mut user = (reader(1500), (subscriptions(), services()));
        user.1.0.subscribe(START, Trap::GidOutOfService).unwrap();
        user.1.1.offer(START, &service()).unwrap();
        user.0.ask(START, &PathRecord::ZERO, 0, SECOND).unwrap();
        let questions = sent(&mut user, START);
        let mut answers: Vec<_> = questions.iter().map(|asked| answered(asked, 0)).collect();
        let table = questions.iter().find(|asked| asked[3] == 0x12).unwrap();
        answers.extend(segments(table, 20));
        answers.push(report(5, 65, GONE));
        let mut now = START;
        for _ in 0..60 {
            let mut mad = answers[draws.below(answers.len() as u64) as usize];
            for _ in 0..draws.below(4) {
                // The headers decide more.
                let end = if draws.below(4) == 0 { 256 } else { 56 };
                let at = draws.below(end);
                mad[at as usize] = if draws.below(2) == 0 {
                    draws.below(256) as u8
                } else {
                    mad[at as usize] ^ 1 << draws.below(8)
                };
            }
            now += draws.below(30) as u32 * MS;
            user.handle_mad(now, &mad);
            assert!(sent(&mut user, now).len() < 20);
        }
        user.handle_timeout(now.max(SECOND));
        match user.0.table::<PathRecord>().expect("an end") {
            Ok(table) => assert!(table.len() <= 1500 / 64),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
