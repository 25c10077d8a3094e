//! Multicast groups: only members receive, and subnet administration has the list of members.

use std::net::IpAddr;

use bareverbs_cm::rdma::*;
use bareverbs_cm::sa::SaError;
use bareverbs_core::{AsyncEvent, WcStatus};
use bareverbs_in_process::subnet::{Fault, Group};

use super::support::*;

const GRH: usize = 40;

fn group() -> IpAddr {
    "ff12:a01b:fe80::1:2".parse().unwrap()
}

fn full(group: IpAddr) -> JoinMulticast {
    JoinMulticast {
        group,
        send_only: false,
        context: 77,
    }
}

fn bound(nodes: &mut Nodes, node: usize) -> CmId {
    let id = nodes.id(node, PortSpace::Udp);
    let here = SockaddrIb::new(gid(node), PortSpace::Udp, 0);
    nodes.cms[node].bind_addr(id, here).unwrap();
    nodes.cms[node].create_qp(id, None, &mut qp()).unwrap();
    id
}

fn joined(nodes: &mut Nodes, node: usize, id: CmId, join: &JoinMulticast) -> UdEvent {
    nodes.cms[node].join_multicast_ex(id, join).unwrap();
    let event = nodes.expect(node, EventType::MulticastJoin);
    assert_eq!((event.status, event.arg), (0, join.context));
    assert_eq!((event.ud.qp_num, event.ud.qkey), (0xff_ffff, UDP_QKEY));
    event.ud
}

fn groups(nodes: &Nodes) -> Vec<Group> {
    nodes
        .subnet
        .with(|state| state.administration.groups.clone())
}

/// Returns `true` if what node 0 sends arrives at another node.
fn arrives(nodes: &mut Nodes, from: CmId, there: &UdEvent, (node, to): (usize, CmId)) -> bool {
    let buffer = nodes.cms[node].reg_msgs(to, GRH + 16).unwrap();
    let out = nodes.cms[0].reg_msgs(from, 5).unwrap();
    out.copy_in(0, b"hello").unwrap();
    nodes.cms[node]
        .post_recv(to, 3, buffer.slice(..GRH + 16).unwrap())
        .unwrap();
    let ah = nodes.cms[0].device().create_ah(&there.ah_attr).unwrap();
    nodes.cms[0]
        .post_ud_send(
            from,
            4,
            out.slice(..).unwrap(),
            SendFlags::SIGNALED,
            &ah,
            there.qp_num,
        )
        .unwrap();
    let end = nodes.world.now() + SECOND;
    let sent = nodes.cms[0].get_send_comp_until(from, end).unwrap();
    assert_eq!(sent.status, WcStatus::Success);
    let Ok(got) = nodes.cms[node].get_recv_comp_until(to, end) else {
        return false;
    };
    assert_eq!(got.byte_len as usize, GRH + 5);
    let mut bytes = [0; 5];
    buffer.copy_out(GRH, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    true
}

#[test]
fn only_members_receive() {
    let mut nodes = Nodes::new(3);
    let ids = [0, 1, 2].map(|node| bound(&mut nodes, node));
    let there = joined(&mut nodes, 0, ids[0], &full(group()));
    joined(&mut nodes, 1, ids[1], &full(group()));
    let known = groups(&nodes);
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].members, [(gid(0).0, 1), (gid(1).0, 1)]);
    assert_eq!(there.ah_attr.dlid, known[0].mlid);
    assert_eq!(there.ah_attr.dgid.0, known[0].mgid);
    assert!(arrives(&mut nodes, ids[0], &there, (1, ids[1])));
    assert!(!arrives(&mut nodes, ids[0], &there, (2, ids[2])));
    // A member that left receives no more, and the group ends with its last member.
    nodes.cms[1].leave_multicast(ids[1], group()).unwrap();
    assert!(nodes.event_within(1, 10 * MS).is_none());
    assert!(!arrives(&mut nodes, ids[0], &there, (1, ids[1])));
    assert_eq!(groups(&nodes)[0].members, [(gid(0).0, 1)]);
    nodes.cms[0].destroy_id(ids[0]).unwrap();
    assert!(nodes.event_within(0, 10 * MS).is_none());
    assert!(groups(&nodes).is_empty());
    for cm in &mut nodes.cms {
        assert_eq!(cm.resolver_mut().groups(), 0);
    }
}

/// The port is a member as long as one id of it is.
#[test]
fn ids_share_the_ports_membership() {
    let mut nodes = Nodes::new(1);
    let ids = [(); 2].map(|()| bound(&mut nodes, 0));
    for id in ids {
        joined(&mut nodes, 0, id, &full(group()));
    }
    assert_eq!(nodes.questions(), 1);
    nodes.cms[0].leave_multicast(ids[0], group()).unwrap();
    nodes.event_within(0, 10 * MS);
    assert_eq!((nodes.questions(), groups(&nodes).len()), (1, 1));
    nodes.cms[0].leave_multicast(ids[1], group()).unwrap();
    nodes.event_within(0, 10 * MS);
    assert_eq!((nodes.questions(), groups(&nodes).len()), (2, 0));
}

#[test]
fn senders_only() {
    let mut nodes = Nodes::new(2);
    let ids = [0, 1].map(|node| bound(&mut nodes, node));
    let sender = JoinMulticast {
        send_only: true,
        ..full(group())
    };
    let there = joined(&mut nodes, 0, ids[0], &sender);
    joined(&mut nodes, 1, ids[1], &full(group()));
    assert_eq!(groups(&nodes)[0].members, [(gid(0).0, 8), (gid(1).0, 1)]);
    assert!(arrives(&mut nodes, ids[0], &there, (1, ids[1])));
    // Both at once, and apart again.
    let both = bound(&mut nodes, 0);
    joined(&mut nodes, 0, both, &full(group()));
    assert_eq!(groups(&nodes)[0].members[0], (gid(0).0, 9));
    nodes.cms[0].leave_multicast(both, group()).unwrap();
    nodes.event_within(0, 10 * MS);
    assert_eq!(groups(&nodes)[0].members[0], (gid(0).0, 8));
}

/// IPv4 groups are the GIDs that Linux makes of them.
#[test]
fn ipv4_groups() {
    let mut nodes = Nodes::new(2);
    let ids = [0, 1].map(|node| bound(&mut nodes, node));
    let group = IpAddr::from([239, 1, 2, 3]);
    let there = joined(&mut nodes, 0, ids[0], &full(group));
    joined(&mut nodes, 1, ids[1], &full(group));
    let mgid: std::net::Ipv6Addr = "ff12:4001:ffff::f01:203".parse().unwrap();
    assert_eq!(groups(&nodes)[0].mgid, mgid.octets());
    assert!(arrives(&mut nodes, ids[0], &there, (1, ids[1])));
}

#[test]
fn refused_lost_and_dead() {
    let mut nodes = Nodes::new(1);
    let id = bound(&mut nodes, 0);
    nodes
        .subnet
        .with(|state| state.faults.push_back(Fault::Status(0x0200)));
    nodes.cms[0].join_multicast(id, group(), 1).unwrap();
    let event = nodes.expect(0, EventType::MulticastError);
    assert_eq!(event.status, -22);
    // Nothing is left, and the next try is a new one, although messages of the first are lost.
    let lost = [Fault::QuestionLost, Fault::AnswerLost, Fault::Busy];
    nodes.subnet.with(|state| state.faults.extend(lost));
    joined(&mut nodes, 0, id, &full(group()));
    nodes.cms[0].leave_multicast(id, group()).unwrap();
    nodes.event_within(0, 10 * MS);
    assert!(groups(&nodes).is_empty());

    nodes.subnet.with(|state| state.dead = true);
    let begin = nodes.world.now();
    nodes.cms[0].join_multicast(id, group(), 1).unwrap();
    let event = nodes.expect(0, EventType::MulticastError);
    assert_eq!(event.status, -110);
    let took = nodes.world.now() - begin;
    assert!(
        (3 * SECOND..3 * SECOND + 20 * MS).contains(&took),
        "{took:?}"
    );
    // Leaving what may have been joined ends, too.
    nodes.event_within(0, 4 * SECOND);
    assert_eq!(nodes.cms[0].resolver_mut().groups(), 0);
    assert_eq!(nodes.cms[0].resolver_mut().client().in_use(), 0);
    assert!(nodes.cms[0].leave_multicast(id, group()).is_err());
}

#[test]
fn a_synchronous_member() {
    let mut nodes = Nodes::new(1);
    let cm = &mut nodes.cms[0];
    let id = cm.create_id(None, 0, PortSpace::Udp).unwrap();
    cm.bind_addr(id, SockaddrIb::new(gid(0), PortSpace::Udp, 0))
        .unwrap();
    cm.join_multicast(id, group(), 5).unwrap();
    cm.leave_multicast(id, group()).unwrap();
    let mlid = Fault::Mangled {
        at: 56 + 36,
        byte: 0,
    };
    nodes.subnet.with(|state| state.faults.push_back(mlid));
    match nodes.cms[0].join_multicast(id, group(), 5) {
        Err(RdmaError::Sa(SaError::Senseless { field: "mlid", .. })) => {}
        other => panic!("{other:?}"),
    }
}

/// A new subnet manager does not have the groups of the old one.
#[test]
fn groups_are_joined_again() {
    let mut nodes = Nodes::new(1);
    let id = bound(&mut nodes, 0);
    joined(&mut nodes, 0, id, &full(group()));
    nodes
        .subnet
        .with(|state| state.administration.groups.clear());
    nodes.cms[0].handle_async_event(&AsyncEvent::ClientReregister { port: 1 });
    assert!(nodes.event_within(0, 100 * MS).is_none());
    assert_eq!(groups(&nodes)[0].members, [(gid(0).0, 1)]);
    // The next one refuses it: the application gets an event.
    nodes
        .subnet
        .with(|state| state.faults.push_back(Fault::Status(0x0700)));
    nodes.cms[0].handle_async_event(&AsyncEvent::ClientReregister { port: 1 });
    assert_eq!(nodes.expect(0, EventType::MulticastError).status, -22);
    assert_eq!(nodes.cms[0].resolver_mut().groups(), 0);
}
