//! The calls that take several pieces of memory, and what the application says of events.

use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::WcStatus;
use bareverbs_core::qp::QpCap;

/// Checks that the next completion of a send is a success.
fn sent(pair: &mut Pair, id: CmId) {
    let end = pair.world.now() + SECOND;
    let wc = pair.cms[0].get_send_comp_until(id, end).unwrap();
    assert_eq!(wc.status, WcStatus::Success);
}

/// Two pieces on one side, in another order than they lie there, and one on the other.
#[test]
fn messages_in_pieces() {
    let mut pair = Pair::new();
    let init = || QpInit {
        cap: QpCap {
            max_send_sge: 2,
            max_recv_sge: 2,
            ..cap()
        },
        ..QpInit::default()
    };
    pair.listener();
    let ours = pair.client();
    pair.cms[0].destroy_qp(ours).unwrap();
    pair.cms[0].create_qp(ours, None, &mut init()).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].create_qp(theirs, None, &mut init()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);

    let near = pair.cms[0].reg_msgs(ours, 8).unwrap();
    let far = pair.cms[1].reg_write(theirs, 8).unwrap();
    let source = pair.cms[1].reg_read(theirs, 8).unwrap();
    near.copy_in(0, b"worlhell").unwrap();
    let pieces = [near.sge(4, 4).unwrap(), near.sge(0, 4).unwrap()];
    let scattered = [far.sge(4, 4).unwrap(), far.sge(0, 4).unwrap()];
    pair.cms[1].post_recvv(theirs, 1, &scattered).unwrap();
    pair.cms[0]
        .post_sendv(ours, 2, &pieces, SendFlags::SIGNALED)
        .unwrap();
    sent(&mut pair, ours);
    let end = pair.world.now() + SECOND;
    let got = pair.cms[1].get_recv_comp_until(theirs, end).unwrap();
    assert_eq!((got.status, got.byte_len), (WcStatus::Success, 8));
    let mut bytes = [0; 8];
    far.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"worlhell");

    pair.cms[0]
        .post_writev(ours, 3, &pieces, SendFlags::SIGNALED, far.remote(0))
        .unwrap();
    sent(&mut pair, ours);
    far.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hellworl");

    source.copy_in(0, b"12345678").unwrap();
    pair.cms[0]
        .post_readv(ours, 4, &pieces, SendFlags::SIGNALED, source.remote(0))
        .unwrap();
    sent(&mut pair, ours);
    near.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"56781234");
}

/// An event has the name that librdmacm gives it, and its id may go before it is acknowledged.
#[test]
fn events_have_names_and_hold_nothing() {
    let mut pair = Pair::new();
    let id = pair.client();
    pair.cms[0].write_cm_event(id, 3, 4).unwrap();
    let event = pair.expect(0, EventType::User);
    assert_eq!((event.status, event.arg), (3, 4));
    pair.cms[0].destroy_id(id).unwrap();
    pair.cms[0].ack_cm_event(event);
    let name = "RDMA_CM_EVENT_CONNECT_REQUEST";
    assert_eq!(event_str(EventType::ConnectRequest), name);
    assert_eq!(EventType::ConnectRequest.to_string(), name);
}

/// Events of the ids of a channel are fetched in the order in which they came, also after an id has moved there.
#[test]
fn events_of_several_ids_come_in_order() {
    let mut pair = Pair::new();
    let [first, second, third] = [(); 3].map(|()| pair.client());
    let other = pair.cms[0].create_event_channel().unwrap();
    pair.cms[0].migrate_id(third, Some(other)).unwrap();
    let cm = &mut pair.cms[0];
    let order = [
        first, first, second, third, first, third, second, second, first,
    ];
    for (status, id) in (0..).zip(order) {
        cm.write_cm_event(id, status, 0).unwrap();
    }
    let fetch = |cm: &mut Cm, count| -> Vec<i32> {
        let next = |_| cm.try_get_cm_event(pair.channels[0]).unwrap();
        (0..count).map_while(next).map(|it| it.status).collect()
    };
    assert_eq!(fetch(cm, 4), [0, 1, 2, 4]);
    // It stays where it is.
    cm.migrate_id(second, Some(pair.channels[0])).unwrap();
    cm.migrate_id(third, Some(pair.channels[0])).unwrap();
    cm.write_cm_event(first, 9, 0).unwrap();
    assert!(!cm.has_cm_event(other).unwrap());
    assert_eq!(fetch(cm, 9), [6, 7, 8, 3, 5, 9]);
}
