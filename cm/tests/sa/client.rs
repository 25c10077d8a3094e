//! Subnet administration: MADs byte for byte, and the client against loss, refusals and nonsense.

use std::time::Duration;

use bareverbs_cm::mad::sa::*;
use bareverbs_cm::mad::{MAD_LEN, MadError};
use bareverbs_cm::sa::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

const OURS: [u8; 16] = [
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xc9, 0x03, 0x00, 0x00, 0x02, 0x01,
];
const THEIRS: [u8; 16] = [
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xc9, 0x03, 0x00, 0x00, 0x03, 0x01,
];
const GROUP: [u8; 16] = [
    0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x0f, 0x01, 0x02, 0x03,
];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
        .collect()
}

/// A MAD of these bytes and zeros.
fn golden(text: &str) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    let bytes = hex(text);
    mad[..bytes.len()].copy_from_slice(&bytes);
    mad
}

/// Every field as another number, put together by hand from the table in IBTA volume 1, 15.2.5.16.
#[test]
fn path_record_golden() {
    let golden = golden(
        "01 03 02 81 0000 0000 1122334455667788 0035 0000 00000000
         00 00 00 00 00000000 00000000
         0102030405060708 0008 0000 00000000007fff7f
         a1a2a3a4a5a6a7a8
         fe80000000000000 0002c90300000301
         fe80000000000000 0002c90300000201
         1234 5678
         8 abcde 9f
         3c 85 8001
         123 4 84 c7 92 05",
    );
    let header = SaHeader {
        sm_key: 0x0102_0304_0506_0708,
        attribute_offset: 8,
        method: SaMethod::GetResp,
        ..SaHeader::request(SaMethod::Get, 0x1122_3344_5566_7788, 0x007f_ff7f)
    };
    let path = PathRecord {
        service_id: 0xa1a2_a3a4_a5a6_a7a8,
        dgid: THEIRS,
        sgid: OURS,
        dlid: 0x1234,
        slid: 0x5678,
        raw_traffic: 1,
        flow_label: 0xabcde,
        hop_limit: 0x9f,
        traffic_class: 0x3c,
        reversible: 1,
        numb_path: 5,
        pkey: 0x8001,
        qos_class: 0x123,
        sl: 4,
        mtu_selector: 2,
        mtu: 4,
        rate_selector: 3,
        rate: 7,
        packet_life_time_selector: 2,
        packet_life_time: 18,
        preference: 5,
    };
    let mut mad = [0xa5; MAD_LEN];
    path.emit(&header, &mut mad).unwrap();
    assert_eq!(mad, golden);
    let read = SaMad::new(&golden).unwrap();
    assert_eq!((read.header(), read.path_record()), (header, Ok(path)));
    assert_eq!(read.attribute(), SaAttribute::PathRecord);
    assert!(matches!(
        read.mc_member_record(),
        Err(MadError::WrongMessage { .. })
    ));
}

/// The same by 15.2.5.17.
#[test]
fn mc_member_record_golden() {
    let golden = golden(
        "01 03 02 15 0700 0000 00000000000000ff 0038 0000 00000000
         00 00 00 00 00000000 00000000
         0000000000000000 0000 0000 000000000003ffff
         ff124001ffff0000 000000000f010203
         fe80000000000000 0002c90300000201
         01234567 c001 85 10 ffff 90 cf
         3 12345 40 28 80",
    );
    let header = SaHeader {
        status: SaStatus::DENIED,
        ..SaHeader::request(SaMethod::Delete, 0xff, 0x3_ffff)
    };
    let member = McMemberRecord {
        mgid: GROUP,
        port_gid: OURS,
        qkey: 0x0123_4567,
        mlid: 0xc001,
        mtu_selector: 2,
        mtu: 5,
        traffic_class: 0x10,
        pkey: 0xffff,
        rate_selector: 2,
        rate: 16,
        packet_life_time_selector: 3,
        packet_life_time: 15,
        sl: 3,
        flow_label: 0x12345,
        hop_limit: 0x40,
        scope: 2,
        join_state: JoinState::SendOnlyFullMember as u8,
        proxy_join: 1,
    };
    let mut mad = [0xa5; MAD_LEN];
    member.emit(&header, &mut mad).unwrap();
    assert_eq!(mad, golden);
    let read = SaMad::new(&golden).unwrap();
    assert_eq!(
        (read.header(), read.mc_member_record()),
        (header, Ok(member))
    );
}

#[test]
fn class_port_info_golden() {
    let golden = golden(
        "01 03 02 81 0000 0000 0000000000000001 0001 0000 00000000
         00 00 00 00 00000000 00000000
         0000000000000000 0000 0000 0000000000000000
         01 02 2602 0002 0012",
    );
    let info = SaPortInfo {
        base_version: 1,
        class_version: 2,
        capability_mask: 0x2602,
        capability_mask2: 1 << 12,
        response_time: 18,
    };
    let header = SaHeader {
        method: SaMethod::GetResp,
        ..SaHeader::request(SaMethod::Get, 1, 0)
    };
    let mut mad = [0xa5; MAD_LEN];
    info.emit(&header, &mut mad).unwrap();
    assert_eq!(mad, golden);
    assert_eq!(SaMad::new(&golden).unwrap().port_info(), Ok(info));
    assert!(info.has_send_only_full_members());
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut mad = [0; MAD_LEN];
    let header = SaHeader::request(SaMethod::Get, 1, 0);
    for (path, field) in [
        (
            PathRecord {
                flow_label: 1 << 20,
                ..PathRecord::ZERO
            },
            "flow_label",
        ),
        (
            PathRecord {
                sl: 16,
                ..PathRecord::ZERO
            },
            "sl",
        ),
        (
            PathRecord {
                mtu: 64,
                ..PathRecord::ZERO
            },
            "mtu",
        ),
        (
            PathRecord {
                numb_path: 128,
                ..PathRecord::ZERO
            },
            "numb_path",
        ),
    ] {
        match path.emit(&header, &mut mad) {
            Err(MadError::FieldTooWide { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_no_such_mad_is_refused() {
    let mut good = [0; MAD_LEN];
    PathRecord::ZERO
        .emit(&SaHeader::request(SaMethod::Get, 1, 0), &mut good)
        .unwrap();
    assert!(SaMad::new(&good).is_ok());
    assert_eq!(
        SaMad::new(&good[..255]).unwrap_err(),
        MadError::Truncated {
            len: 255,
            need: 256
        }
    );
    for (at, byte, error) in [
        (0, 2, MadError::BaseVersion(2)),
        (1, 7, MadError::Class(7)),
        (2, 1, MadError::ClassVersion(1)),
        (
            3,
            0x13,
            MadError::Method {
                method: 0x13,
                attribute: 0x35,
            },
        ),
        (17, 0x39, MadError::UnknownAttribute(0x39)),
        (26, 1, MadError::Segmented),
    ] {
        let mut bad = good;
        bad[at] = byte;
        assert_eq!(SaMad::new(&bad).unwrap_err(), error);
    }
}

#[test]
fn statuses_have_words() {
    for (status, text) in [
        (0, "0x0000 (success)"),
        (1, "0x0001 (busy)"),
        (2, "0x0002 (redirection)"),
        (0x1c, "0x001c (invalid value)"),
        (0x0300, "0x0300 (no records)"),
        (0x0700, "0x0700 (denied)"),
        (0x4200, "0x4200 (reserved)"),
    ] {
        assert_eq!(SaStatus(status).to_string(), text);
    }
}

fn question() -> Question {
    Question::Path {
        wanted: PathRecord {
            dgid: THEIRS,
            sgid: OURS,
            pkey: 0xffff,
            ..PathRecord::ZERO
        },
        components: PathRecord::DGID | PathRecord::SGID | PathRecord::PKEY,
    }
}

fn client(slots: usize) -> Client<'static> {
    let config = Config {
        jitter: 0,
        ..Config::new(7)
    };
    Client::new(config, vec![QuestionSlot::EMPTY; slots].leak())
}

/// The MADs that are due.
fn sent(client: &mut Client<'_>, now: Duration) -> Vec<[u8; MAD_LEN]> {
    let mut all = Vec::new();
    let mut mad = [0xa5; MAD_LEN];
    while client.poll_transmit(now, &mut mad) {
        all.push(mad);
    }
    all
}

fn answer(asked: &[u8; MAD_LEN], status: SaStatus) -> [u8; MAD_LEN] {
    let mad = SaMad::new(asked).unwrap();
    let header = SaHeader {
        method: mad.header().method.response(),
        status,
        ..mad.header()
    };
    let path = PathRecord {
        dlid: 3,
        slid: 2,
        mtu: 4,
        ..mad.path_record().unwrap()
    };
    let mut bytes = [0; MAD_LEN];
    path.emit(&header, &mut bytes).unwrap();
    bytes
}

#[test]
fn repeated_at_doubling_intervals_until_the_time_is_up() {
    let mut client = client(1);
    let id = client.ask(SECOND, &question(), 6 * SECOND).unwrap();
    let mut times = Vec::new();
    let mut first = None;
    while let Some(now) = client.next_deadline() {
        for mad in sent(&mut client, now) {
            times.push((now - SECOND).as_millis());
            assert_eq!(*first.get_or_insert(mad), mad);
        }
        assert!(now <= 6 * SECOND);
    }
    assert_eq!(times, [0, 100, 300, 700, 1500, 2500, 3500, 4500]);
    assert_eq!(client.outcome(id), Some(Err(SaError::NoAnswer)));
    assert_eq!((client.outcome(id), client.in_use()), (None, 0));
}

#[test]
fn answers_once() {
    let mut client = client(2);
    let id = client.ask(Duration::ZERO, &question(), SECOND).unwrap();
    let other = client.ask(Duration::ZERO, &question(), SECOND).unwrap();
    assert_ne!(id, other);
    let mads = sent(&mut client, Duration::ZERO);
    let yes = answer(&mads[0], SaStatus::SUCCESS);
    client.handle_mad(MS, &yes).unwrap();
    assert!(matches!(
        client.handle_mad(MS, &yes),
        Err(Ignored::Unexpected { .. })
    ));
    assert!(matches!(client.outcome(id), Some(Ok(Answer::Path(_)))));
    assert_eq!(client.outcome(other), None);
    // The question itself, coming back, is no answer.
    assert!(client.handle_mad(MS, &mads[1]).is_err());
    let no = answer(&mads[1], SaStatus::NO_RECORDS);
    client.handle_mad(MS, &no).unwrap();
    let refused = Some(Err(SaError::Status(SaStatus::NO_RECORDS)));
    assert_eq!(client.outcome(other), refused);
    assert!(client.next_deadline().is_none());
}

#[test]
fn busy_is_asked_again_at_the_same_pace() {
    let mut client = client(1);
    let id = client.ask(Duration::ZERO, &question(), 3 * SECOND).unwrap();
    let mut times = Vec::new();
    while let Some(now) = client.next_deadline() {
        for mad in sent(&mut client, now) {
            times.push(now.as_millis());
            let busy = answer(&mad, SaStatus::BUSY);
            client.handle_mad(now, &busy).unwrap();
        }
    }
    assert_eq!(times, [0, 200, 600, 1400, 2400]);
    let busy = Some(Err(SaError::Status(SaStatus::BUSY)));
    assert_eq!(client.outcome(id), busy);
}

#[test]
fn slots_run_out_and_come_back() {
    let mut client = client(1);
    let id = client.ask(Duration::ZERO, &question(), SECOND).unwrap();
    let full = client.ask(Duration::ZERO, &question(), SECOND);
    assert!(matches!(full, Err(SaError::NoSlots { capacity: 1, .. })));
    client.cancel(id);
    assert!(client.ask(Duration::ZERO, &question(), SECOND).is_ok());
}

#[test]
fn memberships() {
    let wanted = McMemberRecord {
        mgid: GROUP,
        port_gid: OURS,
        join_state: 1,
        ..McMemberRecord::ZERO
    };
    for (method, response) in [
        (SaMethod::Get, SaMethod::GetResp),
        (SaMethod::Set, SaMethod::GetResp),
        (SaMethod::Delete, SaMethod::DeleteResp),
    ] {
        let mut client = client(1);
        let question = Question::Member {
            method,
            wanted,
            components: McMemberRecord::MGID | McMemberRecord::PORT_GID,
        };
        let id = client.ask(Duration::ZERO, &question, SECOND).unwrap();
        let asked = sent(&mut client, Duration::ZERO)[0];
        let mad = SaMad::new(&asked).unwrap();
        assert_eq!(mad.header().method, method);
        let member = McMemberRecord {
            mlid: 0xc001,
            mtu: 4,
            ..wanted
        };
        let header = SaHeader {
            method: response,
            ..mad.header()
        };
        let mut bytes = [0; MAD_LEN];
        member.emit(&header, &mut bytes).unwrap();
        client.handle_mad(MS, &bytes).unwrap();
        assert_eq!(client.outcome(id), Some(Ok(Answer::Member(member))));
    }
}

#[test]
fn what_it_says_of_itself() {
    let mut client = client(1);
    let id = client
        .ask(Duration::ZERO, &Question::PortInfo, SECOND)
        .unwrap();
    let asked = sent(&mut client, Duration::ZERO)[0];
    let header = SaHeader {
        method: SaMethod::GetResp,
        ..SaMad::new(&asked).unwrap().header()
    };
    let info = SaPortInfo {
        class_version: 2,
        response_time: 17,
        ..SaPortInfo::default()
    };
    let mut bytes = [0; MAD_LEN];
    info.emit(&header, &mut bytes).unwrap();
    client.handle_mad(MS, &bytes).unwrap();
    assert_eq!(client.outcome(id), Some(Ok(Answer::PortInfo(info))));
}

/// Any bytes at all, mostly of a real answer: no panic, and what is accepted is possible.
#[test]
fn anything_may_come() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut state: u64 = seed;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) as usize
    };
    let mut outcomes = [0; 3];
    for _ in 0..20_000 {
        let mut slot = [QuestionSlot::EMPTY];
        let mut client = Client::new(Config::new(9), &mut slot);
        let id = client.ask(Duration::ZERO, &question(), SECOND).unwrap();
        let asked = sent(&mut client, Duration::ZERO)[0];
        let mut bytes = answer(&asked, SaStatus::SUCCESS);
        for _ in 0..random() % 4 {
            bytes[random() % 120] = random() as u8;
        }
        let _ = client.handle_mad(MS, &bytes);
        match client.outcome(id) {
            Some(Ok(Answer::Path(path))) => {
                // The prefix of the subnet may be another than the link-local one, by which was asked.
                assert_eq!(
                    (&path.dgid[8..], &path.sgid[8..]),
                    (&THEIRS[8..], &OURS[8..])
                );
                assert!((1..0xc000).contains(&path.dlid) && (1..0xc000).contains(&path.slid));
                assert!((1..=5).contains(&path.mtu) && path.packet_life_time < 32);
                outcomes[0] += 1;
            }
            Some(Ok(other)) => panic!("{other:?}"),
            Some(Err(_)) => outcomes[1] += 1,
            None => outcomes[2] += 1,
        }
    }
    assert!(outcomes.iter().all(|&count| count > 100), "{outcomes:?}");
}
