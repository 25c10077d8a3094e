//! Changes the link, the addresses and the MTU below connections, and checks what they survive and what the application sees:
//! the table of `docs/link-changes.md`, row by row.

use super::*;
use bareverbs_core::mr::Buffer;
use bareverbs_core::{Mtu, WcStatus};

const MS: Duration = Duration::from_millis(1);
/// The default ACK timeout, 4.096 us * 2^17; the device may wait four times as long.
const ACK_TIMEOUT: Duration = Duration::from_micros(536_871);
/// All tries of a message.
const RETRIES: Duration = Duration::from_micros(8 * 4 * 536_871);

const PLAIN: [&[(&str, u8, Option<u16>)]; 2] =
    [&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]];

/// A connection and the memory of its messages, which go from node 0 to node 1.
struct Talk {
    pair: Pair,
    ids: [CmId; 2],
    memory: [Buffer<'static, ModelPlatform>; 2],
    sent: u64,
    /// Events of the managers, with the node.
    heard: Vec<(usize, EventType)>,
}

impl Talk {
    fn new(addresses: [&[(&str, u8, Option<u16>)]; 2]) -> Self {
        let to = addresses[1][0].0;
        let mut pair = Pair::new(addresses);
        let ids = pair.connect(to);
        let memory = [0, 1].map(|node: usize| pair.cms[node].reg_msgs(ids[node], 4096).unwrap());
        Self {
            pair,
            ids,
            memory,
            sent: 0,
            heard: vec![],
        }
    }

    /// Posts a message of so many bytes.
    fn post(&mut self, len: usize) {
        self.sent += 1;
        let Self {
            pair,
            ids,
            memory,
            sent,
            ..
        } = self;
        pair.cms[1]
            .post_recv(ids[1], *sent, memory[1].slice(..len).unwrap())
            .unwrap();
        pair.cms[0]
            .post_send(
                ids[0],
                *sent,
                memory[0].slice(..len).unwrap(),
                SendFlags::SIGNALED,
            )
            .unwrap();
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.pair.world.now() + time;
        while self.pair.world.now() < until {
            for node in 0..2 {
                while let Some(event) = self.pair.next(node, Duration::ZERO) {
                    self.heard.push((node, event.event));
                }
            }
            self.pair.world.advance(MS / 2);
        }
    }

    /// The status of the next message; `None` if it does not end within the time.
    fn outcome(&mut self, within: Duration) -> Option<WcStatus> {
        let until = self.pair.world.now() + within;
        while self.pair.world.now() < until {
            match self.pair.cms[0].try_get_send_comp(self.ids[0]) {
                Ok(None) => self.pass(MS),
                Ok(Some(_)) => {
                    let received = self.pair.cms[1].try_get_recv_comp(self.ids[1]).unwrap();
                    assert!(received.is_some(), "what is acknowledged has arrived");
                    return Some(WcStatus::Success);
                }
                Err(RdmaError::Completion(failed)) => return Some(failed.status),
                Err(error) => panic!("{error}"),
            }
        }
        None
    }

    #[track_caller]
    fn arrives(&mut self, within: Duration) {
        assert_eq!(self.outcome(within), Some(WcStatus::Success));
    }

    #[track_caller]
    fn talks(&mut self) {
        self.post(64);
        self.arrives(100 * MS);
    }

    /// A message that is not answered in all its tries: that is all the application gets, until it disconnects.
    #[track_caller]
    fn fails(&mut self, len: usize) {
        self.post(len);
        assert_eq!(self.outcome(RETRIES), Some(WcStatus::RetryExcErr));
        self.pass(SECOND);
    }

    /// The managers had these events so far, of these nodes.
    #[track_caller]
    fn hears(&mut self, events: &[(usize, EventType)]) {
        assert_eq!(std::mem::take(&mut self.heard), events);
    }
}

/// A cable that is pulled and back within the tries, at either end, and a link that flaps: what was posted arrives, once and
/// in its order, and the connection manager has nothing to say.
#[test]
fn a_link_that_is_back_within_the_retries() {
    for end in 0..2 {
        let mut talk = Talk::new(PLAIN);
        talk.talks();
        talk.pair.world.set_link(end, false);
        for _ in 0..3 {
            talk.post(64);
        }
        assert_eq!(talk.outcome(ACK_TIMEOUT), None);
        talk.pair.world.set_link(end, true);
        for _ in 0..3 {
            talk.arrives(4 * ACK_TIMEOUT);
        }
        for _ in 0..10 {
            talk.post(64);
            talk.pair.world.set_link(end, false);
            talk.pass(20 * MS);
            talk.pair.world.set_link(end, true);
            talk.arrives(4 * ACK_TIMEOUT);
        }
        talk.talks();
        talk.hears(&[]);
    }
}

/// A link that is away for a minute (a switch that is restarted): an idle connection survives it, neighbours stay known.
#[test]
fn an_idle_connection_survives_a_minute_without_a_link() {
    let mut talk = Talk::new(PLAIN);
    for end in 0..2 {
        talk.pair.world.set_link(end, false);
    }
    talk.pair.world.advance(60 * SECOND);
    talk.pass(SECOND);
    for end in 0..2 {
        talk.pair.world.set_link(end, true);
    }
    talk.talks();
    talk.hears(&[]);
    talk.pair.connect_to("192.0.2.2");
}

/// The same under traffic: the message fails after its tries, and the connection is over for this end. The other end, which
/// has sent nothing, hears of it when this one disconnects.
#[test]
fn a_message_fails_after_its_retries() {
    let mut talk = Talk::new(PLAIN);
    talk.pair.world.set_link(1, false);
    talk.fails(64);
    talk.pair.world.set_link(1, true);
    talk.pass(SECOND);
    talk.hears(&[]);
    let [ours, theirs] = talk.ids;
    talk.pair.cms[0].disconnect(ours).unwrap();
    for (node, id) in [(1, theirs), (0, ours)] {
        let event = talk.pair.next(node, 10 * SECOND).expect("the end");
        assert_eq!((event.event, event.id), (EventType::Disconnected, id));
    }
}

/// A request that is under way when the cable is pulled is repeated, and accepted once it is back.
#[test]
fn a_request_outlives_a_pulled_cable() {
    let mut pair = Pair::new(PLAIN);
    pair.listener("192.0.2.2");
    let ours = pair.client("192.0.2.2");
    pair.world.set_link(0, false);
    pair.cms[0].connect(ours, None).unwrap();
    assert!(pair.next(0, 3 * SECOND).is_none());
    pair.world.set_link(0, true);
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].create_qp(theirs, None, &mut init()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
}

/// The peer's address is announced from another MAC address: the application hears that it has moved. The connection goes on
/// sending to the old one, and ends like any other once that does not answer.
#[test]
fn a_peer_with_another_mac() {
    let mut talk = Talk::new(PLAIN);
    talk.pair.arp(1, None, MOVED, [2; 2]);
    let event = talk.pair.next(0, SECOND).expect("an event");
    assert_eq!(
        (event.event, event.id),
        (EventType::Unreachable, talk.ids[0])
    );
    assert_eq!(event.status, -errno::ETIMEDOUT);
    // The connection goes on while the old port answers.
    talk.talks();
    talk.hears(&[]);
    talk.pair.world.set_link(1, false);
    talk.fails(64);
}

/// The peer stops answering, its slot is given up, and its address comes from another MAC address later: the ids of before hear
/// that it has moved. Linux's `cma_netevent_callback` compares the address of each id, and keeps none of its own.
#[test]
fn a_peer_that_was_lost_and_has_another_mac() {
    let mut talk = Talk::new(PLAIN);
    talk.pair.world.set_link(1, false);
    let host = talk.pair.cms[0].resolver_mut().host();
    let [ours, peer] = [ip("192.0.2.1"), ip("192.0.2.2")];
    assert!(host.neighbours().any(|(address, ..)| address == peer));
    talk.pass(60 * SECOND);
    let now = talk.pair.world.now();
    let host = talk.pair.cms[0].resolver_mut().host();
    assert!(matches!(
        host.resolve(now, ours, peer),
        Resolution::Found(_)
    ));
    talk.pass(60 * SECOND);
    let host = talk.pair.cms[0].resolver_mut().host();
    assert_eq!(host.neighbours().count(), 0, "given up");
    talk.hears(&[]);
    talk.pair.world.set_link(1, true);
    let now = talk.pair.world.now();
    let host = talk.pair.cms[0].resolver_mut().host();
    assert_eq!(host.resolve(now, ours, peer), Resolution::Pending);
    talk.pair.arp(1, None, MOVED, [2; 2]);
    let event = talk.pair.next(0, SECOND).expect("an event");
    assert_eq!(
        (event.event, event.id),
        (EventType::Unreachable, talk.ids[0])
    );
}

/// Two hosts claim the peer's address in turn. An application that fetches no events hears of it once, and of the end, too.
#[test]
fn a_peer_that_moves_all_the_time() {
    let mut talk = Talk::new(PLAIN);
    let [ours, theirs] = talk.ids;
    talk.pair.cms[0].migrate_id(ours, None).unwrap();
    for turn in 0..20 {
        let mac = [[2, 0, 0, 0, 0, 0x98], MOVED][turn % 2];
        talk.pair.arp(1, None, mac, [2; 2]);
        talk.pass(SECOND);
    }
    talk.pair.cms[1].disconnect(theirs).unwrap();
    talk.pass(SECOND);
    for expected in [EventType::Unreachable, EventType::Disconnected] {
        let event = talk.pair.cms[0].try_get_id_event(ours).unwrap();
        assert_eq!(event.map(|event| event.event), Some(expected));
    }
}

/// The address of the peer moves in another VLAN, where it is another host's.
#[test]
fn the_same_address_in_another_vlan_is_another_hosts() {
    let mut talk = Talk::new([
        &[("192.0.2.1", 24, None), ("192.0.2.3", 24, Some(7))],
        &[("192.0.2.2", 24, None)],
    ]);
    let pair = &mut talk.pair;
    for mac in [[2, 0, 0, 0, 0, 0x98], MOVED] {
        pair.arp(1, Some(7), mac, [2, 3]);
        assert!(pair.next(0, SECOND).is_none(), "{mac:x?}");
        let host = pair.cms[0].resolver_mut().host();
        let there = (ip("192.0.2.2"), Some(7), mac);
        assert!(host.neighbours().any(|neighbour| neighbour == there));
    }
    pair.arp(1, None, MOVED, [2, 1]);
    let event = pair.next(0, SECOND).map(|event| event.event);
    assert_eq!(event, Some(EventType::Unreachable));
}

/// An id without a channel has this event in its queue when the application disconnects: it is the call's outcome, as librdmacm's
/// `ucma_complete` takes the next event of the id, whichever it is. The connection ends nonetheless, which is the next event.
#[test]
fn a_disconnect_that_finds_the_peer_moved() {
    let mut talk = Talk::new(PLAIN);
    let [ours, theirs] = talk.ids;
    talk.pair.cms[0].migrate_id(ours, None).unwrap();
    talk.pair.arp(1, None, MOVED, [2; 2]);
    talk.pass(SECOND);
    let outcome = talk.pair.cms[0].disconnect(ours).unwrap_err();
    assert_eq!(outcome.errno(), errno::ETIMEDOUT, "{outcome}");
    let event = talk.pair.cms[0].event(ours).unwrap().expect("an event");
    assert_eq!(event.event, EventType::Unreachable);
    let event = talk.pair.next(1, SECOND).expect("an event");
    assert_eq!((event.event, event.id), (EventType::Disconnected, theirs));
    talk.pass(SECOND);
    let event = talk.pair.cms[0].try_get_id_event(ours).unwrap();
    let event = event.map(|event| (event.event, event.status));
    assert_eq!(event, Some((EventType::Disconnected, 0)));
}

/// The peer's address moves to a VLAN, and the peer no longer takes packets without a tag.
#[test]
fn a_peer_in_another_vlan() {
    let mut talk = Talk::new(PLAIN);
    let host = talk.pair.cms[1].resolver_mut();
    host.remove_address(ip("192.0.2.2"), None).unwrap();
    host.add_address(ip("192.0.2.2"), 24, Some(7)).unwrap();
    talk.pass(5 * SECOND);
    talk.hears(&[]);
    talk.fails(64);
    talk.pass(60 * SECOND);
    talk.hears(&[]);
}

/// An address is taken away under a connection, at either end: its GID goes with it, and nothing passes any more.
#[test]
fn an_address_that_is_removed() {
    for addresses in [
        PLAIN,
        [
            &[("2001:db8::1", 64, None)][..],
            &[("2001:db8::2", 64, None)],
        ],
    ] {
        for end in 0..2 {
            let mut talk = Talk::new(addresses);
            let host = talk.pair.cms[end].resolver_mut();
            host.remove_address(ip(addresses[end][0].0), None).unwrap();
            talk.pass(SECOND);
            talk.hears(&[]);
            talk.fails(64);
            talk.pass(60 * SECOND);
            talk.hears(&[]);
        }
    }
}

/// An address is taken away under a connection and another one is added: the QP sends nothing from that one, and its entry
/// of the GID table is given to a third one once the QP is destroyed. (Linux, core/cache.c: `del_gid` leaves the entry
/// `GID_TABLE_ENTRY_PENDING_DEL` until the last reference to it is put, `ib_destroy_qp_user` puts that of the QP, and
/// `find_gid` finds no free entry meanwhile.)
#[test]
fn an_address_in_place_of_another() {
    for (end, addresses) in PLAIN.iter().enumerate() {
        let mut talk = Talk::new(PLAIN);
        let device = talk.pair.devices[end];
        let index = |last: u8| {
            let gid = Gid::from_ipv4([192, 0, 2, last].into());
            device.find_gid(&gid, RoceVersion::V2, None)
        };
        let old = index(1 + end as u8);
        assert!(old.is_some());
        let host = talk.pair.cms[end].resolver_mut();
        host.remove_address(ip(addresses[0].0), None).unwrap();
        host.add_address(ip("192.0.2.7"), 24, None).unwrap();
        talk.pass(SECOND);
        assert!(index(7).is_some() && index(7) != old);
        talk.fails(64);
        let host = talk.pair.cms[end].resolver_mut();
        host.add_address(ip("192.0.2.8"), 24, None).unwrap();
        assert!(index(8).is_some() && index(8) != old);
        let id = talk.ids[end];
        talk.pair.cms[end].disconnect(id).unwrap();
        talk.pair.cms[end].destroy_qp(id).unwrap();
        let host = talk.pair.cms[end].resolver_mut();
        host.add_address(ip("192.0.2.9"), 24, None).unwrap();
        assert_eq!(index(9), old);
    }
}

/// A port's MTU is lowered below a connection's path MTU: short messages pass, and a long one fails.
#[test]
fn a_lowered_mtu() {
    for end in 0..2 {
        let mut talk = Talk::new(PLAIN);
        let mtu = talk.pair.devices[end].query_port().unwrap().active_mtu;
        assert_eq!(mtu, Mtu::B4096);
        talk.pair.devices[end].set_ethernet_mtu(600).unwrap();
        talk.talks();
        talk.fails(1000);
        talk.hears(&[]);
    }
}

/// A neighbour's entry ages and is confirmed, with traffic or without, while the connection lives.
#[test]
fn an_old_neighbour() {
    let mut talk = Talk::new([&[("2001:db8::1", 64, None)], &[("2001:db8::2", 64, None)]]);
    for _ in 0..5 {
        for _ in 0..60 {
            talk.pair.world.advance(SECOND);
            talk.pass(MS);
        }
        talk.talks();
    }
    talk.hears(&[]);
    talk.pair.connect_to("2001:db8::2");
}
