//! The IP side of a port: hosts on one cable, in virtual time.

mod cable;
#[cfg(feature = "optimistic-addresses")]
mod optimistic;

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use bareverbs_cm::ip::{
    Addresses, Config, Event, Groups, Host, HostError, Mac, Neighbour, Neighbours, Resolution,
    Resources, Route, Routes, link_local,
};

use cable::Cable;

const A: Mac = [2, 0, 0, 0, 0, 0xa];
const B: Mac = [2, 0, 0, 0, 0, 0xb];
const C: Mac = [2, 0, 0, 0, 0, 0xc];
const SECOND: Duration = Duration::from_secs(1);

/// One host's.
type Memory = Resources<Addresses<4>, Neighbours<8>, Routes<2>, Groups<12>>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(mac: Mac) -> Resolution {
    Resolution::Found(Neighbour::new(mac))
}

fn ready(address: &str) -> Event {
    Event::AddressReady {
        address: ip(address),
        vlan: None,
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// No random waits: an address is ours at once.
fn at_once() -> Config {
    Config {
        ipv6_probes: 0,
        announcements: 0,
        ..Config::new(7)
    }
}

#[test]
fn neighbours_are_asked_for_and_answer() {
    for (own, peer, prefix) in [
        ("192.0.2.1", "192.0.2.2", 24),
        ("2001:db8::1", "2001:db8::2", 64),
        ("fe80::1", "fe80::2", 64),
    ] {
        let mut memories = [Memory::new(), Memory::new()];
        let mut cable = Cable::new(&mut memories, &[A, B], at_once());
        cable.add(0, own, prefix, None);
        cable.add(1, peer, prefix, None);
        let frames = cable.seen.len();
        assert_eq!(cable.resolve(0, own, peer), Resolution::Pending);
        assert_eq!(cable.resolve(0, own, peer), at(B));
        assert_eq!(cable.seen.len(), frames + 2, "a question and an answer");
        // The host that got the query has the sender's address.
        assert_eq!(cable.resolve(1, peer, own), at(A));
        assert_eq!(cable.seen.len(), frames + 2);
    }
}

#[test]
fn questions_and_answers_are_those_of_the_standards() {
    let mut memories = [Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B], at_once());
    cable.add(0, "192.0.2.1", 24, None);
    cable.add(1, "192.0.2.2", 24, None);
    cable.add(0, "2001:db8::1", 64, None);
    cable.add(1, "2001:db8::2", 64, None);
    cable.pass(20 * SECOND);
    cable.seen.clear();
    cable.resolve(0, "192.0.2.1", "192.0.2.2");
    cable.resolve(0, "2001:db8::1", "2001:db8::2");
    let frames: Vec<_> = cable.seen.iter().map(|(_, frame)| frame.clone()).collect();
    let expected = [
        "ffffffffffff 02000000000a 0806 0001 0800 06 04 0001
         02000000000a c0000201 000000000000 c0000202 000000000000000000000000000000000000",
        "02000000000a 02000000000b 0806 0001 0800 06 04 0002
         02000000000b c0000202 02000000000a c0000201 000000000000000000000000000000000000",
        "3333ff000002 02000000000a 86dd 60000000 0020 3a ff
         20010db8000000000000000000000001 ff0200000000000000000001ff000002
         87 00 1c1e 00000000 20010db8000000000000000000000002 01 01 02000000000a",
        "02000000000a 02000000000b 86dd 60000000 0020 3a ff
         20010db8000000000000000000000002 20010db8000000000000000000000001
         88 00 8a68 60000000 20010db8000000000000000000000002 02 01 02000000000b",
    ];
    for (frame, expected) in frames.iter().zip(expected) {
        assert_eq!(*frame, hex(expected));
    }
    assert_eq!(frames.len(), expected.len());
}

#[test]
fn who_does_not_answer_is_given_up_and_asked_again_later() {
    let mut memories = [Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B], at_once());
    cable.add(0, "192.0.2.1", 24, None);
    cable.pass(SECOND);
    cable.seen.clear();
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "192.0.2.9"),
        Resolution::Pending
    );
    cable.pass(3 * SECOND - Duration::from_millis(1));
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "192.0.2.9"),
        Resolution::Pending
    );
    assert_eq!(cable.seen.len(), 3, "three questions, a second apart");
    cable.pass(Duration::from_millis(2));
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "192.0.2.9"),
        Resolution::NoAnswer
    );
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "198.51.100.1"),
        Resolution::NoRoute
    );
    cable.add(1, "192.0.2.9", 24, None);
    cable.pass(SECOND);
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "192.0.2.9"),
        Resolution::Pending
    );
    assert_eq!(cable.resolve(0, "192.0.2.1", "192.0.2.9"), at(B));
    let known = Event::NeighbourChanged {
        address: ip("192.0.2.9"),
        vlan: None,
        mac: B,
    };
    // Nothing but this, and the address.
    assert_eq!(cable.events(0)[1..], [known]);
}

#[test]
fn a_neighbour_that_goes_away_is_reported() {
    let mut memories = [Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B], at_once());
    cable.add(0, "192.0.2.1", 24, None);
    cable.add(1, "192.0.2.2", 24, None);
    cable.resolve(0, "192.0.2.1", "192.0.2.2");
    cable.events(0);
    // It stays as long as it answers, whether it is needed or not.
    for _ in 0..20 {
        assert_eq!(cable.resolve(0, "192.0.2.1", "192.0.2.2"), at(B));
        cable.pass(17 * SECOND);
    }
    assert_eq!(cable.events(0), []);
    cable.cut = true;
    cable.pass(60 * SECOND);
    assert_eq!(cable.events(0), [], "it is not needed");
    assert_eq!(cable.resolve(0, "192.0.2.1", "192.0.2.2"), at(B));
    cable.pass(8 * SECOND + Duration::from_millis(1));
    let lost = Event::NeighbourLost {
        address: ip("192.0.2.2"),
        vlan: None,
    };
    assert_eq!(cable.events(0), [lost]);
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "192.0.2.2"),
        Resolution::NoAnswer
    );
}

#[test]
fn a_neighbour_that_moves_is_reported() {
    for (own, moved) in [("192.0.2.1", "192.0.2.2"), ("fe80::1", "fe80::2")] {
        let mut memories = [Memory::new(), Memory::new(), Memory::new()];
        let announcing = Config {
            announcements: 1,
            ..at_once()
        };
        let mut cable = Cable::new(&mut memories, &[A, B, C], announcing);
        cable.add(0, own, 24, None);
        cable.add(1, moved, 24, None);
        cable.resolve(0, own, moved);
        cable.events(0);
        let now = cable.now;
        cable.host(1).remove_address(now, ip(moved), None).unwrap();
        cable.add(2, moved, 24, None);
        let changed = Event::NeighbourChanged {
            address: ip(moved),
            vlan: None,
            mac: C,
        };
        assert_eq!(cable.events(0), [changed]);
        assert_eq!(cable.resolve(0, own, moved), at(C));
    }
}

#[test]
fn unsolicited_answers_are_ignored() {
    let mut memories = [Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B], at_once());
    cable.add(0, "192.0.2.1", 24, None);
    let announcement = hex("ffffffffffff 02000000000b 0806 0001 0800 06 04 0001
         02000000000b c0000202 000000000000 c0000202");
    assert_eq!(cable.give(0, &announcement), None);
    assert_eq!(cable.host(0).neighbours().count(), 0);
    // A question is different: it gets an answer.
    let mut question = announcement;
    question[38..42].copy_from_slice(&[192, 0, 2, 1]);
    assert!(cable.give(0, &question).is_some());
    assert_eq!(
        cable.host(0).neighbours().collect::<Vec<_>>(),
        [(ip("192.0.2.2"), None, B)]
    );
    // Multicast addresses belong to no host.
    question[22] = 3;
    question[31] = 77;
    assert_eq!(cable.give(0, &question), None);
    assert_eq!(cable.host(0).neighbours().count(), 1);
}

#[test]
fn addresses_are_probed_for_before_they_are_used() {
    let careful = Config {
        ipv4_probes: 3,
        ..Config::new(3)
    };
    for (own, prefix) in [("192.0.2.1", 24), ("2001:db8::1", 64)] {
        let mut memories = [Memory::new(), Memory::new()];
        let mut cable = Cable::new(&mut memories, &[A, B], careful);
        cable.add(0, own, prefix, None);
        assert_eq!(cable.events(0), []);
        assert_eq!(cable.host(0).addresses().count(), 0);
        cable.pass(10 * SECOND);
        assert_eq!(cable.events(0), [ready(own)]);

        // The second host to probe gets the error, with the owner's address.
        cable.add(1, own, prefix, None);
        cable.pass(10 * SECOND);
        let taken = Event::AddressDuplicate {
            address: ip(own),
            vlan: None,
            mac: A,
        };
        assert_eq!(cable.events(1), [taken], "{own}");
        assert_eq!(cable.host(1).addresses().count(), 0);
        assert_eq!(cable.host(1).groups().count(), 0);
        assert_eq!(cable.events(0), [], "a probe is no claim");
    }
}

#[test]
fn of_two_that_probe_at_once_none_wins() {
    let slow = Config {
        ipv4_probes: 3,
        ipv6_probes: 3,
        ..Config::new(3)
    };
    for own in ["192.0.2.1", "2001:db8::1"] {
        let mut memories = [Memory::new(), Memory::new()];
        let mut cable = Cable::new(&mut memories, &[A, B], slow);
        cable.add(0, own, 24, None);
        cable.add(1, own, 24, None);
        cable.pass(20 * SECOND);
        let both = [cable.events(0), cable.events(1)].concat();
        // At most one has it; the other got the error.
        let lost = |event: &&Event| matches!(event, Event::AddressDuplicate { .. });
        assert!(both.iter().filter(lost).count() >= 1, "{both:?}");
        assert!(both.iter().filter(|event| **event == ready(own)).count() <= 1);
    }
}

#[test]
fn a_claim_to_an_address_of_ours_is_contradicted_now_and_then() {
    let mut memories = [Memory::new(), Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B, C], at_once());
    cable.add(0, "192.0.2.1", 24, None);
    cable.add(1, "192.0.2.2", 24, None);
    cable.resolve(1, "192.0.2.2", "192.0.2.1");
    cable.pass(20 * SECOND);
    cable.events(0);
    cable.events(1);
    let claim = hex("ffffffffffff 02000000000c 0806 0001 0800 06 04 0001
         02000000000c c0000201 000000000000 c0000201");
    for _ in 0..5 {
        cable.seen.clear();
        cable.carry(2, claim.clone());
        cable.settle();
        let conflict = Event::AddressConflict {
            address: ip("192.0.2.1"),
            vlan: None,
            mac: C,
        };
        assert_eq!(cable.events(0), [conflict]);
    }
    assert_eq!(
        cable.seen.len(),
        1,
        "contradicted at most every ten seconds"
    );
    cable.pass(10 * SECOND);
    cable.seen.clear();
    cable.carry(2, claim);
    cable.settle();
    assert_eq!(cable.seen.len(), 2);
    assert_eq!(cable.resolve(1, "192.0.2.2", "192.0.2.1"), at(A));
}

#[test]
fn vlans_are_apart() {
    let mut memories = [Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B], at_once());
    cable.add(0, "192.0.2.1", 24, Some(5));
    cable.add(1, "192.0.2.2", 24, Some(5));
    cable.add(1, "198.51.100.2", 24, None);
    cable.add(0, "198.51.100.1", 24, Some(6));
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "192.0.2.2"),
        Resolution::Pending
    );
    let in_five = Resolution::Found(Neighbour {
        mac: B,
        vlan: Some(5),
        hop_limit: 64,
    });
    assert_eq!(cable.resolve(0, "192.0.2.1", "192.0.2.2"), in_five);
    let asked = &cable.seen[cable.seen.len() - 2].1;
    assert_eq!(asked[12..18], [0x81, 0, 0, 5, 8, 6]);
    cable.resolve(0, "198.51.100.1", "198.51.100.2");
    cable.pass(3 * SECOND);
    assert_eq!(
        cable.resolve(0, "198.51.100.1", "198.51.100.2"),
        Resolution::NoAnswer
    );
    assert_eq!(
        cable
            .host(0)
            .add_address(SECOND, ip("10.0.0.1"), 8, Some(4095)),
        Err(HostError::NotAVlan(4095))
    );
}

#[test]
fn packets_for_elsewhere_go_over_the_gateway() {
    let mut memories = [Memory::new(), Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B, C], at_once());
    let route = |destination, prefix, gateway| Route {
        destination: ip(destination),
        prefix,
        gateway: ip(gateway),
    };
    let default = route("0.0.0.0", 0, "192.0.2.254");
    let out_of_reach = HostError::GatewayOutOfReach(ip("192.0.2.254"));
    assert_eq!(cable.host(0).add_route(default), Err(out_of_reach));
    cable.add(0, "192.0.2.1", 24, None);
    cable.add(0, "10.0.0.1", 8, None);
    cable.add(1, "192.0.2.254", 24, None);
    cable.add(2, "10.0.0.254", 8, None);
    cable.host(0).add_route(default).unwrap();
    cable
        .host(0)
        .add_route(route("203.0.113.0", 24, "10.0.0.254"))
        .unwrap();
    assert_eq!(
        cable
            .host(0)
            .add_route(route("203.0.113.0", 25, "10.0.0.254")),
        Err(HostError::Full {
            what: "routes",
            max: 2
        })
    );
    cable.resolve(0, "192.0.2.1", "198.51.100.7");
    assert_eq!(cable.resolve(0, "192.0.2.1", "198.51.100.7"), at(B));
    cable.resolve(0, "10.0.0.1", "203.0.113.7");
    assert_eq!(cable.resolve(0, "10.0.0.1", "203.0.113.7"), at(C));
    assert_eq!(
        cable.host(0).source_for(ip("203.0.113.7")),
        Some(ip("10.0.0.1"))
    );
    assert_eq!(
        cable.host(0).source_for(ip("8.8.8.8")),
        Some(ip("192.0.2.1"))
    );
    assert_eq!(cable.host(0).source_for(ip("2001:db8::1")), None);
    // Routes over the address are removed with it.
    let now = cable.now;
    cable
        .host(0)
        .remove_address(now, ip("10.0.0.1"), None)
        .unwrap();
    assert_eq!(cable.host(0).routes().count(), 1);
    assert_eq!(cable.host(0).remove_route(default), Ok(()));
    assert_eq!(
        cable.resolve(0, "192.0.2.1", "198.51.100.7"),
        Resolution::NoRoute
    );
}

#[test]
fn a_flood_of_unknown_hosts_blocks_no_resolution() {
    let mut memories = [Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B], at_once());
    cable.add(0, "10.0.0.1", 8, None);
    cable.add(1, "10.0.0.2", 8, None);
    let mut question = hex("ffffffffffff 02000000ffff 0806 0001 0800 06 04 0001
         02000000ffff 0aff0000 000000000000 0a000001");
    cable.cut = true;
    assert_eq!(
        cable.resolve(0, "10.0.0.1", "10.0.0.2"),
        Resolution::Pending
    );
    for sender in 0..1000u16 {
        question[30..32].copy_from_slice(&sender.to_be_bytes());
        assert!(cable.give(0, &question).is_some(), "all are answered");
    }
    assert!(cable.host(0).stats().evicted > 900);
    cable.cut = false;
    cable.pass(2 * SECOND);
    assert_eq!(cable.resolve(0, "10.0.0.1", "10.0.0.2"), at(B));
    // And who is needed stays.
    for sender in 0..1000u16 {
        question[30..32].copy_from_slice(&sender.to_be_bytes());
        cable.give(0, &question);
    }
    assert_eq!(cable.resolve(0, "10.0.0.1", "10.0.0.2"), at(B));
    // More are resolved than there are slots: the last ones get the error.
    cable.cut = true;
    for last in 10..30 {
        let destination = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let now = cable.now;
        let outcome = cable.host(0).resolve(now, ip("10.0.0.1"), destination);
        assert_eq!(outcome == Resolution::NoAnswer, last >= 18, "{destination}");
    }
}

#[test]
fn echo_is_answered() {
    let mut memories = [Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A], at_once());
    cable.add(0, "192.0.2.1", 24, None);
    cable.add(0, "2001:db8::1", 64, None);
    let request = hex(
        "02000000000a 02000000000b 0800 4500 0020 1234 4000 40 01 a4a5 c0000202 c0000201
         0800 2326 0007 0001 68656c6c 00000000",
    );
    let reply = hex(
        "02000000000b 02000000000a 0800 4500 0020 0000 4000 40 01 b6d9 c0000201 c0000202
         0000 2b26 0007 0001 68656c6c 00000000 00000000000000000000",
    );
    let answer = cable.give(0, &request).expect("an answer");
    assert_eq!(answer[34..46], reply[34..46]);
    assert_eq!(answer, reply);
    // Neither fragments, nor what is damaged, nor what is for all.
    for (at, value) in [(20, 0x20), (37, 0), (33, 0xff), (0, 0xff)] {
        let mut other = request.clone();
        other[at] = value;
        assert_eq!(cable.give(0, &other), None, "byte {at}");
    }
    let mut short = [0; 40];
    let now = cable.now;
    assert_eq!(cable.host(0).receive(now, &request, &mut short), None);

    let request = hex("02000000000a 02000000000b 86dd 60000000 000c 3a 40
         20010db8000000000000000000000002 20010db8000000000000000000000001
         80 00 4f6a 0007 0001 68656c6c");
    let answer = cable.give(0, &request).expect("an answer");
    assert_eq!(answer[54], 129);
    assert_eq!(answer[58..66], request[58..66]);
}

#[test]
fn groups_are_reported() {
    let mut memories = [Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A], at_once());
    cable.add(0, "192.0.2.1", 24, None);
    cable.add(0, "fe80::1", 64, None);
    cable.pass(20 * SECOND);
    cable.seen.clear();
    let now = cable.now;
    let (v4, v6) = (ip("239.1.2.3"), ip("ff15::1234"));
    for group in [v4, v6, v4] {
        cable.host(0).join_group(now, group, None).unwrap();
    }
    cable.settle();
    assert!(cable.hosts[0].1.contains(&[1, 0, 0x5e, 1, 2, 3]));
    assert!(cable.hosts[0].1.contains(&[0x33, 0x33, 0, 0, 0x12, 0x34]));
    let expected = [
        "01005e010203 02000000000a 0800 4600 0020 0000 0000 01 02 71d2 c0000201 ef010203 94040000
         1600 f8fa ef010203 0000000000000000000000000000",
        "333300000016 02000000000a 86dd 60000000 0024 00 01
         fe800000000000000000000000000001 ff020000000000000000000000000016
         3a 00 0502 0000 0100 8f 00 5dc3 0000 0001
         04 00 0000 ff150000000000000000000000001234",
    ];
    let frames: Vec<_> = cable.seen.iter().map(|(_, frame)| frame.clone()).collect();
    for (frame, expected) in frames.iter().zip(expected) {
        assert_eq!(*frame, hex(expected));
    }
    cable.pass(20 * SECOND);
    assert_eq!(cable.seen.len(), 4, "reported twice each");

    // A router asks.
    cable.seen.clear();
    let query = hex(
        "01005e000001 02000000000b 0800 4500 001c 0000 0000 01 02 16e1 c00002fe e0000001
         1164 ee9b 00000000",
    );
    cable.give(0, &query);
    cable.pass(10 * SECOND);
    assert_eq!(cable.seen.len(), 1);

    // Left as often as joined.
    cable.seen.clear();
    let now = cable.now;
    cable.host(0).leave_group(now, v4, None).unwrap();
    cable.settle();
    assert_eq!(cable.seen.len(), 0);
    cable.host(0).leave_group(now, v4, None).unwrap();
    cable.host(0).leave_group(now, v6, None).unwrap();
    cable.settle();
    assert_eq!(cable.seen.len(), 2);
    assert_eq!(cable.seen[0].1[38], 0x17, "leave group");
    assert_eq!(cable.seen[1].1[70], 3, "change to include");
    assert!(!cable.hosts[0].1.contains(&[1, 0, 0x5e, 1, 2, 3]));
    assert_eq!(
        cable.host(0).leave_group(now, v4, None),
        Err(HostError::Unknown(v4))
    );
}

#[test]
fn a_multicast_destination_is_reached_at_its_mapped_address() {
    let mut memories = [Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A], at_once());
    cable.add(0, "192.0.2.1", 24, Some(9));
    let found = Resolution::Found(Neighbour {
        mac: [1, 0, 0x5e, 0x7f, 2, 3],
        vlan: Some(9),
        hop_limit: 64,
    });
    assert_eq!(cable.resolve(0, "192.0.2.1", "239.255.2.3"), found);
    assert_eq!(
        cable.resolve(0, "192.0.2.7", "239.255.2.3"),
        Resolution::NoRoute
    );
}

#[test]
fn what_is_full_says_so_and_leaves_nothing_behind() {
    let mut memory = Resources::<Addresses<1>, Neighbours<1>, Routes<0>, Groups<1>>::new();
    let mut host = Host::new(A, at_once(), memory.storage());
    let full = host.add_address(SECOND, ip("fe80::1"), 64, None);
    assert_eq!(
        full,
        Err(HostError::Full {
            what: "groups",
            max: 1
        })
    );
    assert_eq!(host.groups().count(), 0);
    assert_eq!(host.addresses().count(), 0);
    host.add_address(SECOND, ip("192.0.2.1"), 24, None).unwrap();
    let full = host.add_address(SECOND, ip("192.0.2.2"), 24, None);
    assert!(matches!(
        full,
        Err(HostError::Full {
            what: "addresses",
            ..
        })
    ));
    for odd in [
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "127.0.0.1",
        "::",
        "::1",
        "ff02::1",
    ] {
        let refused = host.add_address(SECOND, ip(odd), 8, None);
        assert_eq!(refused, Err(HostError::NotAnAddress(ip(odd), 8)));
    }
    // Without slots no host is found, and nothing breaks.
    let mut memory = Resources::<Addresses<1>, Neighbours<0>, Routes<0>, Groups<1>>::new();
    let mut host = Host::new(A, at_once(), memory.storage());
    host.add_address(SECOND, ip("192.0.2.1"), 24, None).unwrap();
    let outcome = host.resolve(SECOND, ip("192.0.2.1"), ip("192.0.2.2"));
    assert_eq!(outcome, Resolution::NoAnswer);
}

#[test]
fn link_local_addresses_are_made_as_linux_makes_default_gids() {
    let expected: core::net::Ipv6Addr = "fe80::ff:fe00:a".parse().unwrap();
    assert_eq!(link_local(A), expected);
}

/// Damaged frames, many of them: with any content, no panic, and what the host needs to find stays findable.
#[test]
fn nothing_that_arrives_breaks_a_host() {
    let seed = std::env::var("BAREVERBS_SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    println!("BAREVERBS_SEED={seed}");
    let mut state: u64 = seed;
    let mut random = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let mut memories = [Memory::new(), Memory::new()];
    let mut cable = Cable::new(&mut memories, &[A, B], Config::new(7));
    cable.add(0, "192.0.2.1", 24, None);
    cable.add(1, "192.0.2.2", 24, None);
    cable.add(0, "2001:db8::1", 64, Some(3));
    cable.add(1, "2001:db8::2", 64, Some(3));
    cable.pass(10 * SECOND);
    let now = cable.now;
    cable
        .host(0)
        .join_group(now, ip("239.0.0.1"), None)
        .unwrap();
    cable.resolve(0, "192.0.2.1", "192.0.2.2");
    cable.resolve(0, "2001:db8::1", "2001:db8::2");
    cable.pass(10 * SECOND);
    let corpus: Vec<_> = cable.seen.iter().map(|(_, frame)| frame.clone()).collect();
    assert!(corpus.len() > 8);
    for _ in 0..200_000 {
        let mut frame = corpus[random() % corpus.len()].clone();
        if random() % 4 != 0 {
            frame[..6].copy_from_slice(&A);
        }
        if random() % 2 == 0 {
            frame[6..12].copy_from_slice(&C);
        }
        for _ in 0..random() % 4 {
            let at = random() % frame.len();
            frame[at] = random() as u8;
        }
        if random() % 8 == 0 {
            frame.truncate(random() % (frame.len() + 1));
        }
        cable.give(0, &frame);
        if random() % 16 == 0 {
            cable.pass(Duration::from_millis((random() % 3000) as u64));
            cable.seen.clear();
        }
        cable.events(0);
    }
    cable.pass(100 * SECOND);
    assert!(cable.host(0).addresses().count() == 2, "ours stay ours");
    cable.resolve(0, "192.0.2.1", "192.0.2.2");
    cable.pass(10 * SECOND);
    cable.resolve(0, "192.0.2.1", "192.0.2.2");
    cable.pass(10 * SECOND);
    assert_eq!(cable.resolve(0, "192.0.2.1", "192.0.2.2"), at(B));
}
