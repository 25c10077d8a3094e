//! Sleeping until there is an interrupt.

use std::time::Duration;

use bareverbs_core::{Config, Inline, Platform, SendFlags, VectorSet};
use bareverbs_vfio::{Options, VfioDevice};
use vmm_sys_util::poll::{EpollContext, EpollEvents};

use crate::pair::{ALL, pair, sleep};
use crate::{LONG, address, with_device_as};

/// With interrupts, and no look at the device's health that would wake a waiter without an interrupt.
const ASLEEP: Config = {
    let mut config = Config::DEFAULT;
    config.interrupts = true;
    config.health_interval = Duration::from_secs(3600);
    config
};

/// A program with its own event loop sleeps until the channel's descriptor is readable.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn interrupts_come_through_a_descriptor_that_can_be_waited_for() {
    let platform = VfioDevice::open_with(address(), Options::with_vectors(1)).expect("opened");
    assert_eq!(platform.interrupt_vectors(), 1);
    let mut channel = platform.event_channel(VectorSet::ALL).expect("channel");
    with_device_as(platform, ASLEEP, |device| {
        let pd = device.alloc_pd().expect("PD");
        let [mut a, mut b] = pair(device, &pd);
        let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
        let epoll = EpollContext::<u32>::new().unwrap();
        epoll.add(&channel, 0).unwrap();
        let woken = |patience| {
            let events = EpollEvents::new();
            epoll
                .wait_timeout(&events, patience)
                .unwrap()
                .iter()
                .count()
                == 1
        };
        let mut looks = 0;
        for round in 0..20 {
            let sge = buffer.sge(0, 64).unwrap();
            b.qp.recv_queue().post(round, &[sge]).unwrap();
            b.cq.arm(false);
            a.qp.send_queue()
                .batch()
                .send(round, SendFlags::SIGNALED, Inline(b"wake up"))
                .unwrap();
            // What came before, commands' interrupts among it, wakes as well.
            while !b.cq.take_event() {
                assert!(woken(LONG), "round {round}");
                assert!(channel.acknowledge().unwrap());
                device.poll().unwrap();
                looks += 1;
            }
            assert_eq!(sleep(device, &mut b.cq), round);
            assert_eq!(sleep(device, &mut a.cq), round);
        }
        // One event for each of the two CQs in a round.
        assert!(looks <= 2 * 20 + 1, "it wakes for nothing");
        // Then nothing happens, until the deadline.
        channel.acknowledge().unwrap();
        device.poll().unwrap();
        assert!(!woken(Duration::ZERO));
        let deadline = device.platform().now() + Duration::from_millis(50);
        channel.set_deadline(Some(deadline)).unwrap();
        assert!(woken(LONG));
        assert!(device.platform().now() >= deadline);
    });
}

/// Threads that sleep for the same vector, each in its own CQ's events: no slices of sleep that could hide an interrupt
/// which one has taken from the other.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn threads_share_a_vector() {
    for (vectors, queues) in [(1, 0), (3, 2)] {
        let platform = VfioDevice::open_with(address(), Options::with_vectors(vectors));
        let mut config = ASLEEP;
        config.completion_event_queues = queues;
        with_device_as(platform.expect("opened"), config, |device| {
            let pd = device.alloc_pd().expect("PD");
            let [a, b] = pair(device, &pd);
            std::thread::scope(|scope| {
                for (mut end, first) in [(a, true), (b, false)] {
                    let pd = &pd;
                    scope.spawn(move || {
                        let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
                        let sge = buffer.sge(0, 64).unwrap();
                        end.qp.recv_queue().post(0, &[sge]).unwrap();
                        let mut turn = first;
                        for round in 0..100 {
                            if turn {
                                end.qp
                                    .send_queue()
                                    .batch()
                                    .send(1, SendFlags::SIGNALED, Inline(b"your turn"))
                                    .unwrap();
                                assert_eq!(sleep(device, &mut end.cq), 1, "round {round}");
                            } else {
                                assert_eq!(sleep(device, &mut end.cq), 0, "round {round}");
                                end.qp.recv_queue().post(0, &[sge]).unwrap();
                            }
                            turn = !turn;
                        }
                    });
                }
            });
        });
    }
}
