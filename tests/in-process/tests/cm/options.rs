//! `rdma_set_option`: what each option changes, and when it is too late for it.

use std::net::{IpAddr, SocketAddr};

use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::qp::QpState;

/// Traffic class, ACK timeout and RNR NAK timer reach the QPs of both ends: those of the connecting id, and those that ids
/// of a listener inherit.
#[test]
fn options_reach_the_qp() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let cm = &mut pair.cms[1];
    cm.set_option(listener, IdOption::AckTimeout(17)).unwrap();
    cm.set_option(listener, IdOption::MinRnrTimer(9)).unwrap();
    let ours = pair.client();
    let options = [
        IdOption::Tos(0x68),
        IdOption::AckTimeout(13),
        IdOption::MinRnrTimer(5),
    ];
    for option in options {
        pair.cms[0].set_option(ours, option).unwrap();
    }
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    for (node, id, timeout, rnr) in [(0, ours, 13, 5), (1, theirs, 17, 9)] {
        let qp = pair.cms[node].endpoint(id).unwrap().qp;
        let attr = qp.query().unwrap().attr;
        assert_eq!(attr.qp_state, QpState::Rts);
        assert_eq!((attr.timeout, attr.min_rnr_timer), (timeout, rnr));
        // The request says which class the connection is of.
        assert_eq!(attr.ah_attr.traffic_class, 0x68);
    }
    // Too late.
    let late = pair.cms[0].set_option(ours, IdOption::Tos(0)).unwrap_err();
    assert_eq!(late.errno(), errno::EINVAL, "{late}");
    let option = IdOption::MinRnrTimer(32);
    let refused = pair.cms[0].set_option(ours, option).unwrap_err();
    assert_eq!(refused.errno(), errno::EINVAL, "{refused}");
}

/// A path's packet life time is half of the ACK timeout that was set for the id, and 16 without one or with 0, which is no end
/// (`cma_resolve_iboe_route` of Linux's core/cma.c). The peer learns what `cm_ack_timeout` of core/cm.c makes of the packet life
/// time and of the card's ACK delay, which is 15 on the model; only the QP of this end has the ACK timeout itself.
#[test]
fn the_packet_life_time_comes_from_the_ack_timeout() {
    for (set, life_time, requested) in [
        (None, 16, 17),
        (Some(0), 16, 17),
        (Some(1), 0, 15),
        (Some(13), 12, 15),
        (Some(15), 14, 16),
        (Some(20), 19, 20),
    ] {
        let mut pair = Pair::new();
        pair.listener();
        let cm = &mut pair.cms[0];
        let ours = cm
            .create_id(Some(pair.channels[0]), 0, PortSpace::Tcp)
            .unwrap();
        if let Some(timeout) = set {
            cm.set_option(ours, IdOption::AckTimeout(timeout)).unwrap();
        }
        cm.resolve_addr(ours, None, address(1, PORT), SECOND)
            .unwrap();
        pair.expect(0, EventType::AddrResolved);
        pair.cms[0].resolve_route(ours, SECOND).unwrap();
        pair.expect(0, EventType::RouteResolved);
        let route = pair.cms[0].route(ours).unwrap();
        assert_eq!(route.packet_life_time, life_time, "{set:?}");
        pair.cms[0].create_qp(ours, None, &mut qp()).unwrap();
        pair.cms[0].connect(ours, None).unwrap();
        let theirs = pair.expect(1, EventType::ConnectRequest).id;
        pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        pair.cms[1].accept(theirs, None).unwrap();
        pair.expect(0, EventType::Established);
        pair.expect(1, EventType::Established);
        let timeout = |cm: &mut Cm, id| cm.endpoint(id).unwrap().qp.query().unwrap().attr.timeout;
        assert_eq!(timeout(&mut pair.cms[1], theirs), requested, "{set:?}");
        let own = set.unwrap_or(requested);
        assert_eq!(timeout(&mut pair.cms[0], ours), own, "{set:?}");
    }
}

/// Linux's `rdma_set_ack_timeout` (core/cma.c) looks at the type of the QP, and takes every value; `MLX5_SET` of the field
/// `ack_timeout` (mlx5/qp.c) leaves five bits of it. (`rdma_set_min_rnr_timer` looks at the value.)
#[test]
fn an_ack_timeout_has_five_bits_and_is_for_those_that_wait_for_acks() {
    let mut pair = Pair::new();
    pair.listener();
    let ours = pair.client();
    let option = IdOption::AckTimeout(32 + 13);
    pair.cms[0].set_option(ours, option).unwrap();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    pair.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    let qp = pair.cms[0].endpoint(ours).unwrap().qp;
    assert_eq!(qp.query().unwrap().attr.timeout, 13);

    let cm = &mut pair.cms[0];
    for (id_type, taken) in [
        (IdType::Rc, true),
        (IdType::XrcSend, true),
        (IdType::Uc, false),
        (IdType::Ud, false),
        (IdType::XrcRecv, false),
    ] {
        let id = cm.create_id_of(None, 0, PortSpace::Ib, id_type).unwrap();
        let errno = cm.set_option(id, option).map_err(|error| error.errno());
        let expected = taken.then_some(()).ok_or(errno::EINVAL);
        assert_eq!(errno, expected, "{id_type:?}");
    }
}

#[test]
fn addresses_are_shared_by_those_who_say_so() {
    let mut pair = Pair::new();
    let cm = &mut pair.cms[1];
    let mut bound = |options: &[IdOption], ip: IpAddr| {
        let id = cm.create_id(None, 0, PortSpace::Tcp).unwrap();
        for option in options {
            cm.set_option(id, *option).unwrap();
        }
        (id, cm.bind_addr(id, SocketAddr::new(ip, PORT)))
    };
    let v4 = IpAddr::from([0; 4]);
    let v6 = IpAddr::from([0; 16]);
    let reuse = IdOption::ReuseAddr(true);
    let (first, outcome) = bound(&[reuse], v4);
    outcome.unwrap();
    // All who share an address have to say so.
    let (_, outcome) = bound(&[], v4);
    assert!(outcome.is_err());
    let (second, outcome) = bound(&[reuse], v4);
    outcome.unwrap();
    // The IPv6 wildcard is a wildcard for IPv4 as well, unless that is disabled.
    let (_, outcome) = bound(&[], v6);
    assert!(outcome.is_err());
    let (third, outcome) = bound(&[IdOption::AfOnly(true)], v6);
    outcome.unwrap();
    // Sharing is for binding; who listens has the port alone.
    let error = pair.cms[1].listen(first, 1).unwrap_err();
    assert_eq!(error.errno(), errno::EADDRNOTAVAIL, "{error}");
    let state = pair.cms[1].state(first).unwrap();
    assert_eq!(state, IdState::AddrBound);
    let late = pair.cms[1].set_option(first, IdOption::ReuseAddr(false));
    assert_eq!(late.unwrap_err().errno(), errno::EINVAL);
    pair.cms[1].destroy_id(second).unwrap();
    pair.cms[1].listen(first, 1).unwrap();
    pair.cms[1].listen(third, 1).unwrap();
    for option in [reuse, IdOption::AfOnly(false), IdOption::Tos(1)] {
        let late = pair.cms[1].set_option(first, option).unwrap_err();
        assert_eq!(late.errno(), errno::EINVAL, "{late}");
    }
}

/// `cma_check_port` of Linux's core/cma.c: ids of the two families have a port apart if each keeps to its own, as an IPv4 id
/// does by itself.
#[test]
fn a_port_is_shared_by_families_that_keep_apart() {
    let mut pair = Pair::new();
    let cm = &mut pair.cms[1];
    let mut port = PORT;
    for (of_v4, of_v6, apart) in [
        (None, None, false),
        (None, Some(false), false),
        (None, Some(true), true),
        (Some(false), Some(true), false),
        (Some(true), Some(true), true),
    ] {
        for own in [IpAddr::from([0; 4]), ip(1)] {
            port += 1;
            let mut bind = |ip: IpAddr, only: Option<bool>| {
                let id = cm.create_id(None, 0, PortSpace::Tcp).unwrap();
                if let Some(only) = only {
                    cm.set_option(id, IdOption::AfOnly(only)).unwrap();
                }
                cm.bind_addr(id, SocketAddr::new(ip, port))
                    .map_err(|error| error.errno())
            };
            bind(own, of_v4).unwrap();
            let expected = apart.then_some(()).ok_or(errno::EADDRNOTAVAIL);
            assert_eq!(
                bind(IpAddr::from([0; 16]), of_v6),
                expected,
                "{of_v4:?} {of_v6:?} {own}"
            );
        }
    }
}
