//! IP over InfiniBand in other partitions than the default one, as Linux's child interfaces are.

use std::net::SocketAddr;

use bareverbs_cm::ipoib::broadcast_group;
use bareverbs_cm::rdma::*;
use bareverbs_core::AsyncEvent;
use bareverbs_in_process::subnet::Group;
use connectx_model::roce::packet::Packet;
use connectx_model::roce::transport::GSI_QPN;

use super::ip::{Hosts, addresses};
use super::support::{MS, PORT, SECOND, gid, qp};

const BLUE: u16 = 0x8001;
const GREEN: u16 = 0x8002;

/// Puts ports into partitions, at different places of their tables.
fn let_in(hosts: &mut Hosts, pkeys: &[(usize, u16, u16)]) {
    for &(node, index, pkey) in pkeys {
        assert!(hosts.world.set_pkey(node, index, pkey));
        hosts.cms[node].handle_async_event(&AsyncEvent::PkeyChange { port: 1 });
    }
}

fn resolved(hosts: &mut Hosts, from: usize, to: usize) -> (CmId, CmEvent) {
    let channel = hosts.channels[from];
    let cm = &mut hosts.cms[from];
    let id = cm.create_id(Some(channel), 0, PortSpace::Tcp).unwrap();
    let there = SocketAddr::new(addresses(to)[0], PORT);
    cm.resolve_addr(id, None, there, 10 * SECOND).unwrap();
    for _ in 0..100_000 {
        let event = hosts.cms[from].try_get_cm_event(channel).unwrap();
        if let Some(event) = event {
            return (id, event);
        }
        hosts.poll_for(MS);
    }
    panic!("no event");
}

/// The interface waits until the port is let in. Then neighbours, paths and connections are in the partition, whose place in the
/// table is each port's own; so are all packets but those of QP1.
#[test]
fn connections_in_a_partition() {
    let mut hosts = Hosts::in_partitions(&[BLUE, BLUE & 0x7fff], &[Group::all_interfaces_in(BLUE)]);
    hosts.poll_for(3 * SECOND);
    let questions = hosts.subnet.with(|state| state.questions.len());
    assert_eq!(questions, 0, "asked for a group of a partition of others");
    assert!(hosts.cms.iter_mut().all(|cm| !cm.resolver_mut().is_up()));
    // Another partition changes nothing; a limited member of this one is one too.
    let_in(&mut hosts, &[(0, 1, GREEN), (0, 3, BLUE), (1, 5, BLUE)]);
    let mut hosts = hosts.settle();
    for cm in &mut hosts.cms {
        assert_eq!(cm.resolver_mut().partition(), BLUE);
    }
    hosts.subnet.with(|state| {
        let groups = state.administration.groups.iter();
        let of = |group: &Group| u16::from_be_bytes([group.mgid[4], group.mgid[5]]);
        let pkeys: Vec<u16> = groups.clone().map(of).collect();
        assert!(pkeys.iter().all(|&pkey| pkey == BLUE), "{pkeys:x?}");
        assert!(pkeys.len() > 3);
        let mut groups = groups.filter(|group| group.mgid == broadcast_group(BLUE));
        let all = groups.next().unwrap();
        for node in 0..2 {
            assert!(all.members.contains(&(gid(node).0, 1)));
        }
        state.frames = Some(Vec::new());
    });

    let listener = {
        let channel = hosts.channels[1];
        let cm = &mut hosts.cms[1];
        let id = cm.create_id(Some(channel), 0, PortSpace::Tcp).unwrap();
        let any = SocketAddr::from(([0, 0, 0, 0], PORT));
        cm.bind_addr(id, any).unwrap();
        cm.listen(id, 8).unwrap();
        id
    };
    let (ours, event) = resolved(&mut hosts, 0, 1);
    assert_eq!(event.event, EventType::AddrResolved);
    hosts.cms[0].resolve_route(ours, SECOND).unwrap();
    hosts.expect(0, EventType::RouteResolved);
    let path = hosts.cms[0].path(ours).unwrap().unwrap();
    assert_eq!((path.dgid, path.pkey), (gid(1).0, BLUE));
    hosts.cms[0].create_qp(ours, None, &mut qp()).unwrap();
    hosts.cms[0].connect(ours, None).unwrap();
    let request = hosts.expect(1, EventType::ConnectRequest);
    assert_eq!(request.listen_id, Some(listener));
    let theirs = request.id;
    hosts.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
    hosts.cms[1].accept(theirs, None).unwrap();
    hosts.expect(0, EventType::Established);
    hosts.expect(1, EventType::Established);
    let ends = ((0, ours), (1, theirs));
    crate::pair::say(&hosts.world, &mut hosts.cms, ends.0, ends.1, b"in blue");
    crate::pair::say(&hosts.world, &mut hosts.cms, ends.1, ends.0, b"and back");

    let frames = hosts.subnet.with(|state| state.frames.take()).unwrap();
    let (mut connections, mut packets) = (0, 0);
    for frame in &frames {
        let Ok(packet) = Packet::parse(frame) else {
            continue;
        };
        let bth = packet.repr.bth;
        if bth.destination_qpn == GSI_QPN {
            continue;
        }
        assert_eq!(bth.pkey, BLUE, "{bth:x?}");
        let datagram = packet.repr.extended.deth.qkey != 0;
        *(if datagram {
            &mut packets
        } else {
            &mut connections
        }) += 1;
    }
    // ARP both ways; two messages and their acknowledgements.
    assert!(packets >= 2 && connections >= 4, "{packets} {connections}");
}

/// Hosts in different partitions do not find each other, with the same IP network in both.
#[test]
fn partitions_are_separate() {
    let mut green = Group::all_interfaces_in(GREEN);
    green.mlid = 0xc010;
    green.record[36..38].copy_from_slice(&0xc010_u16.to_be_bytes());
    let groups = [Group::all_interfaces_in(BLUE), green];
    let mut hosts = Hosts::in_partitions(&[BLUE, GREEN, BLUE], &groups);
    // The second is in both, and its interface in one.
    let tables = [(0, 1, BLUE), (1, 1, GREEN), (1, 2, BLUE), (2, 9, BLUE)];
    let_in(&mut hosts, &tables);
    let mut hosts = hosts.settle();
    let (_, event) = resolved(&mut hosts, 0, 1);
    assert_eq!(event.event, EventType::AddrError);
    let (_, event) = resolved(&mut hosts, 0, 2);
    assert_eq!(event.event, EventType::AddrResolved);
}

/// A port whose partition moves in its table, is taken away and given back: the interface follows.
#[test]
fn a_partition_moves_and_goes() {
    let mut hosts = Hosts::in_partitions(&[BLUE, BLUE], &[Group::all_interfaces_in(BLUE)]);
    let_in(&mut hosts, &[(0, 1, BLUE), (1, 1, BLUE)]);
    let mut hosts = hosts.settle();
    let_in(&mut hosts, &[(0, 4, BLUE), (0, 1, GREEN)]);
    hosts.poll_for(2 * SECOND);
    let (_, event) = resolved(&mut hosts, 0, 1);
    assert_eq!(event.event, EventType::AddrResolved);
    let_in(&mut hosts, &[(1, 1, 0)]);
    hosts.poll_for(2 * SECOND);
    // Neighbours that are known stay so for a while: the other direction asks.
    let_in(&mut hosts, &[(1, 7, BLUE)]);
    hosts.poll_for(3 * SECOND);
    let (_, event) = resolved(&mut hosts, 1, 0);
    assert_eq!(event.event, EventType::AddrResolved);
}

/// 0 and 0x8000 are no partitions.
#[test]
fn no_partition() {
    use super::support::{device, subnet};
    use bareverbs_cm::ip::{self, Addresses, Groups, Neighbours, Routes};
    use bareverbs_cm::{ipoib::PeerSlot, sa};

    let (builder, _) = subnet(1, 1);
    let world = builder.stepped();
    let device = device(&world, 0);
    let pd = device.default_pd().unwrap();
    for pkey in [0, 0x8000] {
        let mut memory = ip::Resources::<Addresses<1>, Neighbours<1>, Routes<1>, Groups<4>>::new();
        let mut asked = SubnetResources::<Questions<1>, Paths<1>, Members<1>>::new();
        let mut peers = [PeerSlot::EMPTY; 1];
        let found = IpOverInfiniband::new(
            device,
            &pd,
            pkey,
            ip::Config::new(1),
            memory.storage(),
            &mut peers,
            SubnetAdministration::new(sa::Config::new(1), asked.storage()),
        );
        assert!(matches!(found, Err(RdmaError::NoSuchPartition(refused)) if refused == pkey));
    }
}
