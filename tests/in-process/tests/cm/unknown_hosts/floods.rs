//! Hosts that have the server's address while the server does not have theirs: many at once, and among a flood of
//! forged sources.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use bareverbs_cm::ip::NeighbourSlot;
use bareverbs_cm::rdma::DeferredMadSlot;

use super::bench::*;

/// Lets 200 us pass, and those of the hosts that the card asks for answer.
fn turn(bench: &mut Bench, hosts: &HashMap<IpAddr, Host>) -> usize {
    bench.world.advance(MS / 5);
    bench.cm.poll(bench.cm.now()).unwrap();
    let mut asked = 0;
    for frame in bench.sent() {
        if let SentFrame::Asks(address) = frame {
            asked += 1;
            if let Some(host) = hosts.get(&address) {
                bench.put(host.answers());
            }
        }
    }
    asked
}

/// The hosts whose requests the server has received.
fn served(bench: &mut Bench, into: &mut HashSet<IpAddr>) {
    while let Some(event) = bench.event() {
        let peer = bench.cm.get_peer_addr(event.id).unwrap().expect("a peer");
        into.insert(peer.ip());
        bench.cm.reject(event.id, b"busy").unwrap();
        bench.cm.destroy_id(event.id).unwrap();
    }
}

/// So many hosts, of both families in turn, each by one REQ at the same moment: how long until the last one is
/// received.
fn first_contact(count: u32, neighbours: usize) -> Duration {
    let mut bench = Bench::new(Capacity {
        ids: count as usize + 1,
        neighbours,
        gsi_depth: 1024,
    });
    let mut hosts = HashMap::new();
    for number in 0..count {
        let host = [Host::v4(number), Host::v6(number)][number as usize % 2];
        hosts.insert(host.ip, host);
        bench.put(host.datagram(&host.request(number + 1, 0x100 + number)));
    }
    let start = bench.world.now();
    let mut seen = HashSet::new();
    while seen.len() < hosts.len() {
        turn(&mut bench, &hosts);
        served(&mut bench, &mut seen);
        let took = bench.world.now() - start;
        assert!(
            took < 2 * SECOND,
            "{} of {count} after {took:?}",
            seen.len()
        );
    }
    let took = bench.world.now() - start;
    println!("{count} hosts, storage for {neighbours} neighbours: all served after {took:?}");
    took
}

/// A restarted server, and the hosts that were connected to it. Eight were served, and the others tried again.
#[test]
fn all_hosts_that_come_at_once_are_served() {
    assert!(first_contact(60, 128) < 20 * MS);
    // With fewer neighbour slots than hosts, too.
    assert!(first_contact(60, 16) < 500 * MS);
}

#[test]
fn a_thousand_hosts_that_come_at_once_are_served() {
    assert!(first_contact(1000, 2048) < 500 * MS);
    assert!(first_contact(1000, 64) < 2 * SECOND);
}

/// The sender's address in a query for another host is as good as an answer.
#[test]
fn a_query_for_another_host_resolves_its_sender() {
    let mut bench = Bench::new(Capacity::default());
    let host = Host::v4(3);
    bench.say(host.datagram(&host.request(1, 0x100)));
    assert!(bench.event().is_none());
    let mut question = host.asks();
    // For 10.0.0.9.
    question[38..42].copy_from_slice(&[10, 0, 0, 9]);
    bench.say(question);
    assert!(bench.event().is_some());
}

/// 500 MADs a second from sources that do not exist, for more than three seconds. Hosts that queried before are served
/// within a second, and hosts that were not as well.
#[test]
fn newcomers_are_served_among_forged_sources() {
    const NEIGHBOURS: usize = 64;
    let mut bench = Bench::new(Capacity {
        ids: 64,
        neighbours: NEIGHBOURS,
        gsi_depth: 512,
    });
    let mut random = Random(5);
    let host = |number| [Host::v4(number), Host::v6(number)][number as usize % 2];
    let hosts: HashMap<_, _> = (0..20)
        .map(|number| (host(number).ip, host(number)))
        .collect();
    // The first ten have asked for the server, once.
    for number in 0..10 {
        bench.say(host(number).asks());
    }
    let start = bench.world.now();
    let (mut seen, mut began, mut slowest) = (HashSet::new(), HashMap::new(), [Duration::ZERO; 2]);
    let mut asked = 0;
    for nth in 0..1700u32 {
        let forged = 0x1_0000 + random.below(0xe0_0000) as u32;
        let forged = [Host::v4(forged), Host::v6(forged)][nth as usize % 2];
        bench.put(forged.datagram(&forged.request(nth + 1, 0x100 + nth)));
        // From the second second on a newcomer each 100 ms; each asks once.
        if nth >= 500 && nth % 50 == 0 && began.len() < 20 {
            let number = began.len() as u32;
            let newcomer = host(number);
            began.insert(newcomer.ip, (number, bench.world.now()));
            bench.put(newcomer.datagram(&newcomer.request(0x8000_0000 | number, 0x100 + number)));
        }
        while bench.world.now() < start + 2 * MS * (nth + 1) {
            asked += turn(&mut bench, &hosts);
            let before = seen.clone();
            served(&mut bench, &mut seen);
            for ip in seen.difference(&before) {
                let (number, since) = began[ip];
                let at = usize::from(number >= 10);
                slowest[at] = slowest[at].max(bench.world.now() - since);
            }
        }
    }
    let known = (0..10)
        .filter(|number| seen.contains(&host(*number).ip))
        .count();
    println!(
        "{known} of 10 that queried before, {} of 10 that were not; the slowest after {slowest:?}; {asked} queries; \
         {} bytes for {NEIGHBOURS} neighbours, {} for 64 MADs",
        seen.len() - known,
        size_of::<NeighbourSlot>() * NEIGHBOURS,
        size_of::<DeferredMadSlot>() * 64,
    );
    assert_eq!((known, seen.len()), (10, 20));
    assert!(slowest.iter().all(|time| *time < SECOND), "{slowest:?}");
    // Turns of 50 ms, and what is free besides.
    assert!(asked < 4 * 20 * NEIGHBOURS, "{asked}");
}
