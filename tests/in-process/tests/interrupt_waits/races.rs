//! The event comes at every call of the platform before the waiter sleeps.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bareverbs_cm::rdma::*;
use bareverbs_core::{AsyncEvent, Platform, VectorSet, WcStatus};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;
use connectx_model::fault::{CommandFault, CommandRule};

use crate::support::*;

/// Longer than these tests: no check of the health wakes the waiter.
const NEVER: Duration = Duration::from_secs(1 << 30);

/// The peer sends a message.
fn message(lab: &Lab, id: CmId) -> impl FnOnce() + use<> {
    let peer = lab.peer.clone();
    move || {
        let mut peer = peer.borrow_mut();
        peer.cm
            .post_send_inline(id, 7, b"hello", SendFlags::SIGNALED)
            .unwrap();
        peer.settle();
        let sent = peer.cm.try_get_send_comp(id).unwrap().expect("sent");
        assert_eq!(sent.status, WcStatus::Success);
    }
}

/// A message of the peer comes at each `place` of `wait`, which returns whether it got it; `arrive` returns the action
/// that sends it. There are at least `least` places.
fn at_each_message(
    place: Place,
    least: u64,
    arrive: impl Fn(&Lab, CmId) -> Box<dyn FnOnce()>,
    wait: impl Fn(&mut Lab, CmId, Duration) -> bool,
) {
    for way in WAYS {
        let mut lab = Lab::new(way, NEVER);
        lab.peer.borrow_mut().listener();
        let (ours, theirs) = lab.connected();
        let buffer = lab.cm.reg_msgs(ours, 64).unwrap();
        let places = lab.at_each(
            place,
            |lab| {
                lab.cm
                    .post_recv(ours, 1, buffer.slice(..64).unwrap())
                    .unwrap();
                arrive(lab, theirs)
            },
            |lab, deadline| wait(lab, ours, deadline),
        );
        assert!(places >= least, "{places}");
    }
}

#[test]
fn a_message_wakes_get_recv_comp() {
    at_each_message(
        Place::Any,
        10,
        |lab, id| Box::new(message(lab, id)),
        |lab, id, deadline| match lab.cm.get_recv_comp_until(id, deadline) {
            Ok(wc) => wc.status == WcStatus::Success,
            Err(error) => {
                assert!(matches!(error, RdmaError::TimedOut), "{error}");
                false
            }
        },
    );
}

/// As with libibverbs: arm, poll, sleep for the CQ's events.
#[test]
fn a_message_wakes_a_completion_queue() {
    at_each_message(
        Place::Any,
        4,
        |lab, id| Box::new(message(lab, id)),
        |lab, id, deadline| {
            let endpoint = lab.cm.endpoint(id).unwrap();
            let cq = endpoint.recv_cq.unwrap();
            loop {
                cq.arm(false);
                if cq.poll().unwrap().is_some() {
                    return true;
                }
                if !cq.wait_event(deadline).unwrap() {
                    return false;
                }
            }
        },
    );
}

/// Another thread reads the event queue and sees the interrupt, both meant for the one that is about to sleep.
#[test]
fn no_thread_takes_a_wake_up_from_another() {
    at_each_message(
        Place::Sleep,
        1,
        |lab, id| {
            let message = message(lab, id);
            let device = lab.device;
            Box::new(move || {
                message();
                let other = std::thread::spawn(move || {
                    let now = device.platform().now();
                    assert!(device.platform().wait_interrupt(VectorSet::ALL, now));
                    device.poll().unwrap();
                    // It was the last one.
                    assert!(!device.platform().wait_interrupt(VectorSet::ALL, now));
                });
                other.join().unwrap();
            })
        },
        |lab, id, deadline| lab.cm.get_recv_comp_until(id, deadline).is_ok(),
    );
}

/// The program itself has something for the waiter.
#[test]
fn a_wake_is_never_lost() {
    for way in WAYS {
        let mut lab = Lab::new(way, NEVER);
        let work = Rc::new(Cell::new(false));
        let places = lab.at_each(
            Place::Any,
            |lab| {
                let (device, work) = (lab.device, work.clone());
                Box::new(move || {
                    work.set(true);
                    assert!(device.wake());
                })
            },
            |lab, deadline| {
                loop {
                    if work.take() {
                        return true;
                    }
                    if !lab.device.wait(deadline).unwrap() {
                        return work.take();
                    }
                }
            },
        );
        assert!(places >= 2, "{places}");
    }
}

/// Of several threads that wait for different vectors, each returns once.
#[test]
fn a_wake_ends_the_waits_of_all_threads() {
    let world = Builder::new()
        .function(Card::new(1))
        .interrupts(2)
        .threaded();
    let platform = world.platform(0);
    let distant = platform.now() + Duration::from_secs(3600);
    std::thread::scope(|scope| {
        let waiters = [VectorSet::ALL, VectorSet::one(0), VectorSet::one(1)].map(|vectors| {
            let platform = &platform;
            scope.spawn(move || {
                let woken = platform.wait_interrupt(vectors, distant);
                (woken, platform.wait_interrupt(vectors, platform.now()))
            })
        });
        assert!(platform.wake());
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), (true, false));
        }
    });
    assert!(platform.now() < distant);
}

/// The peer's client requests a connection.
fn request(lab: &mut Lab) -> Box<dyn FnOnce()> {
    let peer = lab.peer.clone();
    let client = peer.borrow_mut().client();
    Box::new(move || {
        let mut peer = peer.borrow_mut();
        peer.cm.connect(client, None).unwrap();
        peer.settle();
    })
}

#[test]
fn a_request_wakes_get_cm_event() {
    for way in WAYS {
        let mut lab = Lab::new(way, NEVER);
        lab.listener();
        let places = lab.at_each(
            Place::Any,
            |lab| {
                lab.wait_until_closed();
                request(lab)
            },
            |lab, deadline| {
                let channel = lab.channel;
                let Ok(event) = lab.cm.get_cm_event_until(channel, deadline) else {
                    return false;
                };
                assert_eq!(event.event, EventType::ConnectRequest);
                // The client gets the rejection, and is destroyed.
                lab.cm.reject(event.id, &[]).unwrap();
                lab.cm.destroy_id(event.id).unwrap();
                let mut peer = lab.peer.borrow_mut();
                let refused = peer.expect(EventType::Rejected);
                peer.cm.destroy_id(refused.id).unwrap();
                true
            },
        );
        assert!(places >= 6, "{places}");
    }
}

/// While the manager moves a QP for one connection, which takes commands and their interrupts, the request for another
/// comes, and only that one is waited for.
#[test]
fn a_request_behind_an_answer_wakes_get_cm_event() {
    for way in WAYS {
        let mut lab = Lab::new(way, NEVER);
        let listener = lab.listener();
        let requests = lab.cm.create_event_channel().unwrap();
        lab.cm.migrate_id(listener, Some(requests)).unwrap();
        lab.peer.borrow_mut().listener();
        // Slow firmware, so that commands have to be slept for.
        lab.world.with_model(0, |model| {
            model.faults_mut().commands.push(CommandRule {
                opcode: None,
                op_mod: None,
                skip: 0,
                times: u32::MAX,
                fault: CommandFault::Delay(MS / 10),
            });
        });
        let mut ids = None;
        let places = lab.at_each(
            Place::Any,
            |lab| {
                if let Some((ours, theirs)) = ids {
                    lab.cm.destroy_id(ours).unwrap();
                    lab.peer.borrow_mut().cm.destroy_id(theirs).unwrap();
                }
                lab.wait_until_closed();
                let request = request(lab);
                ids = Some(lab.answered());
                request
            },
            |lab, deadline| {
                let Ok(event) = lab.cm.get_cm_event_until(requests, deadline) else {
                    return false;
                };
                assert_eq!(event.event, EventType::ConnectRequest);
                lab.cm.reject(event.id, &[]).unwrap();
                lab.cm.destroy_id(event.id).unwrap();
                let mut peer = lab.peer.borrow_mut();
                peer.settle();
                while let Some(event) = peer.event() {
                    if event.event == EventType::Rejected {
                        peer.cm.destroy_id(event.id).unwrap();
                    }
                }
                true
            },
        );
        // All those of the commands are among them.
        assert!(places >= 20, "{places}");
    }
}

#[test]
fn a_change_of_the_port_wakes_get_async_event() {
    for way in WAYS {
        let mut lab = Lab::new(way, NEVER);
        while lab.device.next_async_event().is_some() {}
        let mut up = true;
        let places = lab.at_each(
            Place::Any,
            |lab| {
                let world = lab.world.clone();
                up = !up;
                Box::new(move || {
                    world.set_link(0, up);
                    while world.step() {}
                })
            },
            |lab, deadline| {
                let event = lab.device.get_async_event(deadline).unwrap();
                assert!(matches!(
                    event,
                    None | Some(
                        AsyncEvent::PortActive { port: 1 } | AsyncEvent::PortError { port: 1 }
                    )
                ));
                event.is_some()
            },
        );
        assert!(places >= 2, "{places}");
    }
}
