//! Time limits that mean "never", and clocks that are far ahead: no sum of times may overflow.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::*;
use bareverbs_cm::engine::Timers;
use bareverbs_cm::rdma::{EventType, IdOption, PortSpace, SendFlags};
use bareverbs_core::{Config, CqInit, Cqs, Device, PageChunks, Qps, Resources, Srqs, WcStatus};

#[test]
fn waiting_for_ever() {
    let what = "for ever";
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 4);
        let cm = &mut nodes.cms[0];
        let id = cm
            .create_id(Some(nodes.channels[0]), 0, PortSpace::Tcp)
            .expect("an id");
        nodes.open[0].push(id);
        cm.set_option(
            id,
            IdOption::CmTimers(Timers {
                remote_response: 31,
                local_response: 31,
                max_retries: 15,
                early: Some(Duration::MAX),
            }),
        )
        .expect("set");
        cm.resolve_addr(id, None, SocketAddr::new(ip(1), PORT), Duration::MAX)
            .expect("asked");
        let event = cm
            .get_cm_event_until(nodes.channels[0], Duration::MAX)
            .expect("an event");
        assert_eq!(event.event, EventType::AddrResolved);
        cm.resolve_route(id, Duration::MAX).expect("asked");
        let event = cm
            .get_cm_event_until(nodes.channels[0], Duration::MAX)
            .expect("an event");
        assert_eq!(event.event, EventType::RouteResolved);
        cm.create_qp(id, None, &mut init()).expect("a QP");
        cm.connect(id, None).expect("asked");
        let request = nodes.cms[1]
            .get_cm_event_until(nodes.channels[1], Duration::MAX)
            .expect("a request");
        nodes.open[1].push(request.id);
        let cm = &mut nodes.cms[1];
        cm.create_qp(request.id, None, &mut init()).expect("a QP");
        let memory = cm.reg_msgs(request.id, 16).expect("memory");
        cm.post_recv(request.id, 1, memory.slice(..16).unwrap())
            .expect("posted");
        cm.accept(request.id, None).expect("accepted");
        let cm = &mut nodes.cms[0];
        let event = cm
            .get_cm_event_until(nodes.channels[0], Duration::MAX)
            .expect("an event");
        assert_eq!(event.event, EventType::Established);
        cm.post_send_inline(id, 2, b"still here", SendFlags::SIGNALED)
            .expect("posted");
        let sent = cm.get_send_comp_until(id, Duration::MAX).expect("sent");
        assert_eq!(sent.status, WcStatus::Success);
        let got = nodes.cms[1]
            .get_recv_comp_until(request.id, Duration::MAX)
            .expect("received");
        assert_eq!(got.status, WcStatus::Success);

        let device = nodes.cms[0].device();
        assert_eq!(device.wait(Duration::MAX), Ok(true));
        assert_eq!(device.wait_completion(7, Duration::MAX), Ok(true));
        let mut cq = device.create_cq(CqInit::new(1)).expect("a CQ");
        assert_eq!(cq.wait_event(Duration::ZERO), Ok(false));
        drop((cq, memory));
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

/// A clock that has reached its end: everything times out at once, in order.
#[test]
fn the_end_of_time() {
    let what = "the end of time";
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 4);
        let ends = nodes.connect(0).expect("connected");
        let id = nodes.resolved(1).expect("a way");
        for cm in &mut nodes.cms {
            for now in [Duration::from_secs(u64::MAX), Duration::MAX] {
                cm.poll(now).expect("polled");
                let _ = cm.next_deadline(now);
            }
        }
        // What is sent from here on is sent, and what is waited for ends.
        nodes.cms[0].disconnect(ends[0].id).expect("hung up");
        for cm in &mut nodes.cms {
            for _ in 0..100 {
                world.step();
                cm.poll(Duration::MAX).expect("polled");
            }
        }
        nodes.cms[1].destroy_id(id).expect("destroyed");
        drop(ends);
        for node in 0..2 {
            for id in std::mem::take(&mut nodes.open[node]) {
                let _ = nodes.cms[node].destroy_id(id);
            }
        }
        nodes.cms[1].destroy_id(listener).expect("destroyed");
        assert_eq!(nodes.cms.each_ref().map(|cm| cm.ids_in_use()), [0, 0]);
    });
    assert_orderly(&world, &after, what);
}

#[test]
fn a_device_without_time_limits() {
    let world = world(1);
    let mut config = Config::DEFAULT;
    for limit in [
        &mut config.initialize_timeout,
        &mut config.command_timeout,
        &mut config.teardown_timeout,
        &mut config.health_interval,
        &mut config.health_stall,
    ] {
        *limit = Duration::MAX;
    }
    let mut memory = Resources::<Qps<4>, Cqs<4>, Srqs<1>, PageChunks<64>>::new();
    let device = Device::open(world.platform(0), config, memory.storage()).expect("bring-up");
    let pd = device.alloc_pd().expect("a PD");
    drop(pd);
    assert_eq!(device.poll(), Ok(()));
    device.close().expect("in order");
    assert_nothing_held(&world, "without limits");
}
