//! Ends that do not fit together: what is said of them, and when.

use std::net::SocketAddr;
use std::sync::Mutex;

use super::*;

/// Warnings of the tests of this file, which take turns.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
static TURN: Mutex<()> = Mutex::new(());

struct Said;

impl log::Log for Said {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        // Of the thread's own test alone: the others of the program run beside it.
        if self.enabled(record.metadata()) && HERE.get() {
            SAID.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

thread_local! {
    static HERE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs a test whose warnings are kept.
fn listening(test: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Another test of this file may have been first.
    let _ = log::set_logger(&Said);
    log::set_max_level(log::LevelFilter::Warn);
    HERE.set(true);
    SAID.lock().unwrap().clear();
    test();
    HERE.set(false);
}

fn said() -> Vec<String> {
    std::mem::take(&mut SAID.lock().unwrap())
}

impl Pair {
    /// An id of node 0 that begins to look for an address.
    fn looking_for(&mut self, to: &str, timeout: Duration) -> CmId {
        let id = self.cms[0]
            .create_id(Some(self.channels[0]), 0, PortSpace::Tcp)
            .unwrap();
        let to = SocketAddr::new(ip(to), PORT);
        self.cms[0].resolve_addr(id, None, to, timeout).unwrap();
        id
    }
}

#[test]
fn another_vlan_is_seen_and_said() {
    listening(|| {
        for (own, other, seen) in [
            (Some(5), Some(7), "VLAN 7"),
            (None, Some(7), "VLAN 7"),
            (Some(5), None, "without a VLAN tag"),
        ] {
            let mut pair = Pair::new([&[("192.0.2.1", 24, own)], &[("192.0.2.2", 24, other)]]);
            said();
            // The other end looks for this one as well, so that its VLAN is seen here.
            let theirs = pair.cms[1]
                .create_id(Some(pair.channels[1]), 0, PortSpace::Tcp)
                .unwrap();
            let to = SocketAddr::new(ip("192.0.2.1"), PORT);
            pair.cms[1]
                .resolve_addr(theirs, None, to, 3 * SECOND)
                .unwrap();
            let id = pair.looking_for("192.0.2.2", 3 * SECOND);
            let began = pair.cms[0].now();
            let event = pair.next(0, 10 * SECOND).expect("an event");
            assert_eq!(event.event, EventType::AddrError);
            assert!(pair.cms[0].now() - began < 4 * SECOND);
            let error = pair.cms[0].last_error(id).unwrap().unwrap().to_string();
            assert!(
                error.contains("192.0.2.2") && error.contains(seen),
                "{error}"
            );
            let warnings = said();
            // Both ends: that their own address is asked for elsewhere.
            for address in ["192.0.2.1 is asked for", "192.0.2.2 is asked for"] {
                let count = warnings.iter().filter(|text| text.starts_with(address));
                assert_eq!(count.count(), 1, "{warnings:?}");
            }
        }
    });
}

#[test]
fn another_version_of_roce_is_said_after_two_seconds() {
    listening(|| {
        for (ours, theirs) in [
            (RoceVersion::V1, RoceVersion::V2),
            (RoceVersion::V2, RoceVersion::V1),
        ] {
            let addresses: [&[_]; 2] = [&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]];
            let mut pair = Pair::with_versions([ours, theirs], addresses);
            let listener = pair.cms[1]
                .create_id(Some(pair.channels[1]), 0, PortSpace::Tcp)
                .unwrap();
            let any = SocketAddr::new(ip("0.0.0.0"), PORT);
            pair.cms[1].bind_addr(listener, any).unwrap();
            pair.cms[1].listen(listener, 0).unwrap();
            let id = pair.looking_for("192.0.2.2", 3 * SECOND);
            pair.expect(0, EventType::AddrResolved);
            pair.cms[0].resolve_route(id, SECOND).unwrap();
            pair.expect(0, EventType::RouteResolved);
            pair.cms[0].create_qp(id, None, &mut init()).unwrap();
            assert_eq!(pair.cms[0].awaited(id), Ok(None));
            pair.cms[0].connect(id, None).unwrap();
            let awaited = Awaited::Answer {
                roce: Some(ours),
                limited: None,
            };
            assert_eq!(pair.cms[0].awaited(id), Ok(Some(awaited)));
            said();
            assert!(pair.next(0, SECOND * 19 / 10).is_none());
            assert!(said().is_empty(), "too early");
            assert!(pair.next(0, SECOND / 5).is_none());
            let expected = format!("still waiting for 192.0.2.2:{PORT}: {awaited}");
            assert_eq!(said(), [expected]);
            // Once.
            assert!(pair.next(0, 3 * SECOND).is_none());
            assert!(said().is_empty());
        }
    });
}

#[test]
fn what_is_answered_in_time_is_not_said() {
    listening(|| {
        let addresses: [&[_]; 2] = [&[("192.0.2.1", 24, None)], &[("192.0.2.2", 24, None)]];
        let mut pair = Pair::new(addresses);
        let [ours, _] = pair.connect("192.0.2.2");
        assert_eq!(pair.cms[0].awaited(ours), Ok(None));
        said();
        assert!(pair.next(0, 4 * SECOND).is_none());
        assert!(said().is_empty());
    });
}
