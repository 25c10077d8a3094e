//! Complaints of other connection managers' users that no other test has. The table in the engine's documentation names all of
//! them.

use std::net::{IpAddr, SocketAddr};

use crate::pair::*;
use bareverbs_cm::engine::Timers;
use bareverbs_cm::rdma::*;
use bareverbs_core::{Gid, GidEntry, RoceVersion, WcStatus};

/// No caller names a GID by its index: that of the address is found, in any order of the table, and never the one of
/// RoCE v1. An address that has only that one gets an error that says what is missing.
#[test]
fn gids_are_found_by_address_and_version() {
    let mut pair = Pair::new();
    let device = pair.cms[0].device();
    let mac = device.mac().unwrap();
    let only_v1 = IpAddr::from([10, 0, 0, 77]);
    for (index, address) in [(1, ip(0)), (2, only_v1)] {
        let v1 = GidEntry {
            version: RoceVersion::V1,
            ..GidEntry::roce_v2(Gid::from(address), mac)
        };
        device.set_gid(index, v1).unwrap();
    }
    device
        .set_gid(5, GidEntry::roce_v2(Gid::from(ip(0)), mac))
        .unwrap();
    pair.listener();
    let (ours, theirs) = pair.connected();
    let queried = pair.cms[0].endpoint(ours).unwrap().qp.query().unwrap();
    assert_eq!(queried.attr.ah_attr.sgid_index, 5);
    pair.say((0, ours), (1, theirs), b"from the right one");

    let id = pair.cms[0].create_id(None, 0, PortSpace::Tcp).unwrap();
    let bound = pair.cms[0].bind_addr(id, SocketAddr::new(only_v1, 0));
    let error = bound.unwrap_err();
    assert_eq!(error, RdmaError::NoDevice(only_v1));
    let text = error.to_string();
    assert!(
        text.contains("10.0.0.77") && text.contains("RoCE v2"),
        "{text}"
    );
}

/// The errno of an event says little. The error behind it says which step failed, and with what.
#[test]
fn errors_say_which_step_failed() {
    let mut pair = Pair::new();
    let id = pair.cms[0]
        .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    assert_eq!(pair.cms[0].last_error(id), Ok(None));
    let nowhere = SocketAddr::new(IpAddr::from([10, 0, 0, 99]), 1);
    let error = pair.cms[0]
        .resolve_addr(id, None, nowhere, SECOND)
        .unwrap_err();
    assert_eq!(error, RdmaError::NetUnreachable(nowhere.ip()));
    assert!(error.to_string().contains("10.0.0.99"));
    pair.cms[0].destroy_id(id).unwrap();

    // No listener.
    let id = pair.client();
    pair.cms[0].connect(id, None).unwrap();
    let event = pair.expect(0, EventType::Rejected);
    let text = pair.cms[0].last_error(id).unwrap().unwrap().to_string();
    assert_eq!(event.status, 8);
    assert!(text.contains("service"), "{text}");
    pair.cms[0].destroy_id(id).unwrap();

    // No answer.
    let id = pair.client();
    let timers = Timers {
        remote_response: 12,
        max_retries: 1,
        ..Timers::default()
    };
    pair.cms[0]
        .set_option(id, IdOption::CmTimers(timers))
        .unwrap();
    pair.world.set_link(1, false);
    pair.cms[0].connect(id, None).unwrap();
    let event = pair.expect(0, EventType::Unreachable);
    assert_eq!(event.status, -errno::ETIMEDOUT);
    let awaited = Awaited::Answer {
        roce: Some(RoceVersion::V2),
        limited: None,
    };
    let error = RdmaError::Unanswered(awaited);
    assert_eq!(pair.cms[0].last_error(id), Ok(Some(error)));
    assert!(error.to_string().contains("RoCE v1"), "{error}");
}

/// The time until a dead peer is detected can be set per connection, on either side: 4.2 ms a try here, where the
/// default of Linux makes it two seconds.
#[test]
fn ack_timeout_of_a_connection() {
    for side in 0..2 {
        let mut pair = Pair::new();
        let listener = pair.listener();
        let option = IdOption::AckTimeout(10);
        let ours = pair.client();
        let asking = if side == 0 { ours } else { listener };
        pair.cms[side].set_option(asking, option).unwrap();
        let param = ConnParam {
            retry_count: 3,
            ..ConnParam::default()
        };
        pair.cms[0].connect(ours, Some(&param)).unwrap();
        let theirs = pair.expect(1, EventType::ConnectRequest).id;
        pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        pair.cms[1].accept(theirs, None).unwrap();
        pair.expect(0, EventType::Established);
        pair.expect(1, EventType::Established);

        let id = [ours, theirs][side];
        let queried = pair.cms[side].endpoint(id).unwrap().qp.query().unwrap();
        assert_eq!(queried.attr.timeout, 10);
        pair.world.set_link(1 - side, false);
        let start = pair.world.now();
        pair.cms[side]
            .post_send_inline(id, 1, b"anybody there?", SendFlags::SIGNALED)
            .unwrap();
        let sent = failed(pair.cms[side].get_send_comp_until(id, start + 10 * SECOND));
        assert_eq!((sent.wr_id, sent.status), (1, WcStatus::RetryExcErr));
        // Its retries are over, the device adds.
        assert_eq!(sent.syndrome, 0x15);
        let took = pair.world.now() - start;
        assert!(took < 200 * MS, "{took:?}");
    }
}
