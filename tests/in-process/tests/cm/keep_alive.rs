//! Keep-alives: idle connections whose other end is gone are reported, and the application sees nothing else of them.

use std::time::Duration;

use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::{CqInit, WcStatus};

const ETIMEDOUT: i32 = 110;
/// 67 ms: eight of these are the QP's retries, of which the device may make four times as much.
const ACK_TIMEOUT: u8 = 14;
const RETRIES: Duration = Duration::from_millis(8 * 4 * 67);

/// A listener at node 1 whose connections have this interval.
fn listener(pair: &mut Pair, interval: Option<Duration>) -> CmId {
    let listener = pair.listener();
    for option in [
        IdOption::KeepAlive(interval),
        IdOption::AckTimeout(ACK_TIMEOUT),
    ] {
        pair.cms[1].set_option(listener, option).unwrap();
    }
    listener
}

/// Resets the function of node 0, as when its process is killed: nothing answers any more.
fn kill(mut pair: Pair) -> Pair {
    let device = device(&pair.world, 0);
    let cms = [device, pair.cms[1].device()];
    let dead = std::mem::replace(
        &mut pair.cms[0],
        manager(&cms, 0, bareverbs_core::Mtu::B1024),
    );
    std::mem::forget(dead);
    pair
}

/// Four connections of a client that is killed: on one the server has something to do, so that it finds out by itself;
/// three are idle. With keep-alives all are reported in time, and without them the three stay.
#[test]
fn idle_connections_of_a_killed_client_are_reported() {
    for interval in [Some(SECOND), None] {
        let mut pair = Pair::new();
        listener(&mut pair, interval);
        let theirs = [(); 4].map(|()| pair.connected().1);
        // The connections stay while the client is alive.
        assert!(pair.event_within(1, 4 * SECOND).is_none());
        let mut pair = kill(pair);
        let killed = pair.world.now();
        let busy = theirs[0];
        pair.cms[1]
            .post_send_inline(busy, 5, b"hello?", SendFlags::SIGNALED)
            .unwrap();
        let failure = failed(pair.cms[1].get_send_comp_until(busy, killed + RETRIES));
        assert_eq!((failure.wr_id, failure.status), (5, WcStatus::RetryExcErr));
        let mut reported = vec![];
        while let Some(event) = pair.event_within(1, 6 * SECOND) {
            if event.event == EventType::TimewaitExit {
                continue;
            }
            assert_eq!(event.event, EventType::Disconnected);
            assert_eq!(event.status, -ETIMEDOUT);
            reported.push(event.id);
            if reported.len() == 4 {
                let took = pair.world.now() - killed;
                assert!(took <= 2 * SECOND + RETRIES, "{took:?}");
            }
        }
        if interval.is_none() {
            assert_eq!(reported, []);
            continue;
        }
        assert_eq!(reported.len(), 4);
        for id in theirs {
            assert!(reported.contains(&id));
            // Its keep-alive was all that was under way.
            if id != busy {
                assert_eq!(pair.cms[1].try_get_send_comp(id), Ok(None));
            }
            pair.cms[1].destroy_id(id).unwrap();
        }
    }
}

/// Hundreds of keep-alives take no place in the send queue, and make no completion: neither when all goes well, nor when
/// one waits for an answer while the application fills its queue.
#[test]
fn the_application_sees_nothing() {
    let mut pair = Pair::new();
    listener(&mut pair, Some(10 * MS));
    let (ours, theirs) = pair.connected();
    assert!(pair.event_within(1, SECOND).is_none());
    assert_eq!(pair.cms[1].try_get_send_comp(theirs), Ok(None));
    // The application uses all places that it was given.
    let places = u64::from(pair.cms[1].endpoint(theirs).unwrap().qp.cap().max_send_wr) - 1;
    assert!(places >= 8);
    let send = |pair: &mut Pair, number| {
        pair.cms[1].post_send_inline(theirs, number, b"x", SendFlags::SIGNALED)
    };
    let sink = pair.cms[0].reg_msgs(ours, 64).unwrap();
    for _ in 0..8 {
        pair.cms[0]
            .post_recv(ours, 0, sink.slice(..64).unwrap())
            .unwrap();
    }
    for round in 0..3 {
        // Nothing is answered now, so that a keep-alive is under way when the application's work requests come.
        pair.world.set_link(0, false);
        assert!(pair.event_within(1, 30 * MS).is_none());
        for number in 0..places {
            send(&mut pair, number).unwrap();
        }
        send(&mut pair, places).expect_err("the keep-alive has the last place");
        pair.world.set_link(0, true);
        for number in 0..places {
            let end = pair.world.now() + SECOND;
            let sent = pair.cms[1].get_send_comp_until(theirs, end).unwrap();
            assert_eq!(sent.wr_id, number, "round {round}");
            let received = pair.cms[0].get_recv_comp_until(ours, end).unwrap();
            assert_eq!(received.byte_len, 1);
            pair.cms[0]
                .post_recv(ours, 0, sink.slice(..64).unwrap())
                .unwrap();
        }
        assert!(pair.event_within(1, SECOND).is_none());
        assert_eq!(pair.cms[1].try_get_send_comp(theirs), Ok(None));
    }
    assert_eq!(pair.cms[0].try_get_recv_comp(ours), Ok(None));
}

/// With CQs of the application's, its polls take the completions of keep-alives without returning them.
#[test]
fn with_queues_of_the_applications() {
    let mut pair = Pair::new();
    pair.listener();
    let ours = pair.resolved(PortSpace::Tcp);
    let interval = IdOption::KeepAlive(Some(50 * MS));
    for option in [interval, IdOption::AckTimeout(ACK_TIMEOUT)] {
        pair.cms[0].set_option(ours, option).unwrap();
    }
    let mut cq = pair.cms[0].device().create_cq(CqInit::new(32)).unwrap();
    let mut init = QpInit {
        send_cq: Some(&cq),
        recv_cq: Some(&cq),
        ..qp()
    };
    pair.cms[0].create_qp(ours, None, &mut init).unwrap();
    // The option comes too late, as the queue's size was chosen.
    let late = pair.cms[0].set_option(ours, interval);
    assert!(matches!(late, Err(RdmaError::WrongState { .. })));
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    for _ in 0..20 {
        assert!(pair.event_within(0, 60 * MS).is_none());
        assert!(cq.poll().unwrap().is_none());
    }
    assert_eq!(cq.garbage_completions(), 0);
    // Nothing is reported until the CQ is polled.
    pair.world.set_link(1, false);
    assert!(pair.event_within(0, 3 * SECOND).is_none());
    assert!(cq.poll().unwrap().is_none());
    let lost = pair.event_within(0, 100 * MS).expect("an event");
    assert_eq!(
        (lost.id, lost.event, lost.status),
        (ours, EventType::Disconnected, -ETIMEDOUT)
    );
}
