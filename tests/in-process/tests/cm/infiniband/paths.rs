//! Finding paths: what is asked, what is remembered, and paths from elsewhere.

use bareverbs_cm::mad::sa::{PathRecord, SaMad, SaMethod};
use bareverbs_cm::rdma::*;

use super::support::*;

#[test]
fn the_question_is_linux_question() {
    let mut nodes = Nodes::new(2);
    let id = nodes.resolved(PortSpace::Tcp);
    nodes.cms[0].set_option(id, IdOption::Tos(0x20)).unwrap();
    nodes.cms[0].resolve_route(id, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    let asked = nodes.subnet.with(|state| state.questions[0]);
    let mad = SaMad::new(&asked).unwrap();
    assert_eq!(mad.header().method, SaMethod::Get);
    // Service, DGID, SGID, traffic class, reversible, number of paths, partition.
    assert_eq!(mad.header().component_mask, 0x3c0f);
    let wanted = PathRecord {
        service_id: 0x0106_1c06,
        dgid: gid(1).0,
        sgid: gid(0).0,
        traffic_class: 0x20,
        reversible: 1,
        numb_path: 1,
        pkey: 0xffff,
        ..PathRecord::ZERO
    };
    assert_eq!(mad.path_record().unwrap(), wanted);
}

/// Ids with the same destination share one query; after a minute it is sent again.
#[test]
fn paths_are_remembered() {
    let mut nodes = Nodes::new(2);
    let ids = [(); 3].map(|()| nodes.resolved(PortSpace::Tcp));
    for id in ids {
        nodes.cms[0].resolve_route(id, SECOND).unwrap();
    }
    for _ in ids {
        nodes.expect(0, EventType::RouteResolved);
    }
    assert_eq!(nodes.questions(), 1);
    let later = nodes.resolved(PortSpace::Tcp);
    nodes.cms[0].resolve_route(later, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    assert_eq!(nodes.questions(), 1);
    nodes.world.advance(60 * SECOND);
    let much_later = nodes.resolved(PortSpace::Tcp);
    nodes.cms[0].resolve_route(much_later, SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    assert_eq!(nodes.questions(), 2);
}

/// More ids with different destinations than there are slots for queries: they take turns.
#[test]
fn few_slots_are_enough() {
    let mut nodes = Nodes::with_resources::<1>(2);
    let mut ids = Vec::new();
    for port in 1..=6 {
        let id = nodes.id(0, PortSpace::Tcp);
        nodes.cms[0]
            .resolve_addr(id, None, address(1, port), SECOND)
            .unwrap();
        nodes.expect(0, EventType::AddrResolved);
        ids.push(id);
    }
    for &id in &ids {
        nodes.cms[0].resolve_route(id, SECOND).unwrap();
    }
    for _ in &ids {
        nodes.expect(0, EventType::RouteResolved);
    }
    assert_eq!(nodes.questions(), ids.len());
}

#[test]
fn a_path_from_elsewhere() {
    let mut nodes = Nodes::new(2);
    nodes.subnet.with(|state| state.dead = true);
    nodes.listener(1, PortSpace::Tcp);
    let path = nodes.path();
    let id = nodes.id(0, PortSpace::Tcp);
    let early = nodes.cms[0].set_option(id, IdOption::IbPath(path));
    assert!(matches!(early, Err(RdmaError::WrongState { .. })));
    let id = nodes.resolved(PortSpace::Tcp);
    let nonsense = PathRecord { mtu: 9, ..path };
    let refused = nodes.cms[0].set_option(id, IdOption::IbPath(nonsense));
    assert!(matches!(refused, Err(RdmaError::Sa(_))), "{refused:?}");
    let theirs = PathRecord { slid: 77, ..path };
    assert_eq!(
        nodes.cms[0].set_option(id, IdOption::IbPath(theirs)),
        Err(RdmaError::NotOurLid(77))
    );
    nodes.cms[0].set_option(id, IdOption::IbPath(path)).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    assert_eq!(nodes.cms[0].route(id).unwrap().path_mtu, 3);
    // Requests have the GID that the path has.
    let elsewhere = PathRecord {
        dgid: [7; 16],
        ..path
    };
    let other = nodes.resolved(PortSpace::Tcp);
    let cm = &mut nodes.cms[0];
    cm.set_option(other, IdOption::IbPath(elsewhere)).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    let used = nodes.cms[0].path(other).unwrap();
    assert_eq!(used.map(|path| path.dgid), Some([7; 16]));
    nodes.cms[0].create_qp(id, None, &mut qp()).unwrap();
    let (ours, theirs) = nodes.connect(id);
    nodes.say((0, ours), (1, theirs), b"by hand");
    assert_eq!(nodes.questions(), 0);
}

/// `ai_route` of `create_ep`.
#[test]
fn an_endpoint_with_its_path() {
    let mut nodes = Nodes::new(2);
    let info = AddrInfo {
        family: Some(AddressFamily::Ib),
        dst_addr: Some(address(1, PORT).into()),
        route: Some(nodes.path()),
        ..AddrInfo::hints(false)
    };
    let id = nodes.cms[0].create_ep(&info, None, None).unwrap();
    assert_eq!(nodes.cms[0].state(id).unwrap(), IdState::RouteResolved);
    assert_eq!(nodes.questions(), 0);
}

#[test]
fn addresses_that_do_not_go_here() {
    let mut nodes = Nodes::new(2);
    let id = nodes.id(0, PortSpace::Tcp);
    let cm = &mut nodes.cms[0];
    let ip = std::net::SocketAddr::from(([10, 0, 0, 1], 1));
    assert!(matches!(
        cm.bind_addr(id, ip),
        Err(RdmaError::Unsupported(_))
    ));
    assert!(matches!(
        cm.resolve_addr(id, None, ip, SECOND),
        Err(RdmaError::Unsupported(_))
    ));
    let udp = SockaddrIb::new(gid(0), PortSpace::Udp, 1);
    assert!(matches!(
        cm.bind_addr(id, udp),
        Err(RdmaError::WrongService { .. })
    ));
    assert!(matches!(
        cm.bind_addr(id, address(1, 1)),
        Err(RdmaError::NoDevice(_))
    ));
    assert_eq!(
        cm.bind_addr(id, address(0, 1).with_pkey(0x8123)),
        Err(RdmaError::NoSuchPartition(0x8123))
    );
    cm.bind_addr(id, address(0, 1)).unwrap();
    let other = cm.create_id(None, 0, PortSpace::Tcp).unwrap();
    assert!(matches!(
        cm.bind_addr(other, any(PortSpace::Tcp, 1)),
        Err(RdmaError::AddrNotAvailable(_))
    ));
}

#[test]
fn numeric_gids() {
    let hints = AddrInfo {
        family: Some(AddressFamily::Ib),
        port_space: PortSpace::Udp,
        ..AddrInfo::hints(false)
    };
    let info = getaddrinfo(Some("fe80::2:c903:0:301"), Some("7"), Some(&hints)).unwrap();
    let there = SockaddrIb::new(gid(1), PortSpace::Udp, 7);
    assert_eq!(info.dst_addr, Some(there.into()));
    assert_eq!(there.sid, 0x0111_0007);
    assert_eq!(
        getaddrinfo(Some("10.0.0.1"), Some("7"), Some(&hints)),
        Err(AddrInfoError::Family)
    );
    let ip = getaddrinfo(Some("fe80::1"), Some("7"), None).unwrap();
    assert!(matches!(ip.dst_addr, Some(SockAddr::Ip(_))));
}
