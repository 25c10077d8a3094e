//! No completion comes: how often the waiter wakes, and that it detects the loss of the device.

use std::time::Duration;

use bareverbs_cm::rdma::*;
use bareverbs_core::{AsyncEvent, DeviceError};

use crate::support::*;

/// Wakes only to look at the device's health, and keeps its deadline.
#[test]
fn who_waits_for_nothing_wakes_for_the_devices_health_alone() {
    for way in WAYS {
        for (interval, most) in [(SECOND, 101), (10 * SECOND, 11), (Duration::MAX, 1)] {
            let mut lab = Lab::new(way, interval);
            lab.peer.borrow_mut().listener();
            let (ours, _) = lab.connected();
            let channel = lab.channel;
            type Wait<'a> = &'a dyn Fn(&mut Lab, Duration) -> bool;
            let waits: [(&str, Wait<'_>); 4] = [
                ("get_recv_comp", &|lab, deadline| {
                    lab.cm.get_recv_comp_until(ours, deadline).is_ok()
                }),
                ("get_send_comp", &|lab, deadline| {
                    lab.cm.get_send_comp_until(ours, deadline).is_ok()
                }),
                ("get_cm_event", &|lab, deadline| {
                    lab.cm.get_cm_event_until(channel, deadline).is_ok()
                }),
                ("get_async_event", &|lab, deadline| {
                    lab.device.get_async_event(deadline).unwrap().is_some()
                }),
            ];
            for (what, wait) in waits {
                lab.settle();
                while lab.device.next_async_event().is_some() {}
                let (started, before) = (lab.world.now(), lab.world.waits(0));
                let deadline = started + 100 * SECOND;
                assert!(!wait(&mut lab, deadline), "{what}");
                assert!(lab.world.now() >= deadline, "{what} gives up too early");
                assert!(lab.world.now() < deadline + 20 * MS, "{what} gives up late");
                // One more may see an interrupt from before.
                let wakes = lab.world.waits(0) - before;
                assert!(wakes <= most + 1, "{what}: {wakes} with {interval:?}");
            }
        }
    }
}

/// The firmware fails, without an interrupt: the next check of the health detects it.
#[test]
fn a_device_that_fails_wakes_all_waiters() {
    let fatal = DeviceError::Fatal {
        syndrome: 8,
        extended: 0x77,
    };
    for (what, way) in WAYS.into_iter().enumerate() {
        let mut lab = Lab::new(way, SECOND);
        lab.peer.borrow_mut().listener();
        let (ours, _) = lab.connected();
        lab.settle();
        while lab.device.next_async_event().is_some() {}
        let started = lab.world.now();
        let limit = started + TIMEOUT;
        lab.world.with_model(0, |model| model.fail_health(8, 0x77));
        let channel = lab.channel;
        let error = match what {
            0 => lab.cm.get_recv_comp_until(ours, limit).unwrap_err(),
            1 => lab.cm.get_cm_event_until(channel, limit).unwrap_err(),
            _ => {
                let event = lab.device.get_async_event(limit).unwrap();
                assert_eq!(event, Some(AsyncEvent::DeviceFatal(fatal)));
                lab.device.get_async_event(limit).unwrap_err().into()
            }
        };
        assert!(
            matches!(error, RdmaError::Device(error) if error == fatal),
            "{error}"
        );
        assert!(lab.world.now() - started <= SECOND + 20 * MS);
        assert_eq!(lab.device.next_deadline(), None);
        if what < 2 {
            // All are notified, also those that did not wait.
            let event = lab.cm.try_get_cm_event(channel).unwrap().unwrap();
            assert_eq!(event.event, EventType::DeviceRemoval);
        }
    }
}
