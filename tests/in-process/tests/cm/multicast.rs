//! Multicast groups of ids: members receive what is sent to the group, and the resolver is notified of memberships.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use crate::keep::keep;
use crate::pair::{self, MS, SECOND, device, mapped, qp};
use bareverbs_cm::ip;
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::{Device, EthernetInit, GidEntry, Platform, RoceVersion, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::trace::Tracer;
use connectx_model::link::{Cable, Link};

const GRH: usize = 40;

/// Has the hosts' addresses, and records joins and leaves of groups.
struct Watched {
    version: RoceVersion,
    neighbours: Vec<(IpAddr, [u8; 6])>,
    reported: Vec<(bool, IpAddr)>,
}

impl Subnet for Watched {}

impl Neighbours for Watched {
    fn roce_version(&self) -> RoceVersion {
        self.version
    }

    fn resolve(&mut self, now: Duration, source: IpAddr, destination: IpAddr) -> Resolution {
        StaticNeighbours(&self.neighbours).resolve(now, source, destination)
    }

    fn join_group(
        &mut self,
        _: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), RdmaError> {
        assert_eq!(vlan, None);
        self.reported.push((true, group));
        Ok(())
    }

    fn leave_group(&mut self, _: Duration, group: IpAddr, _: Option<u16>) -> Result<(), RdmaError> {
        self.reported.push((false, group));
        Ok(())
    }
}

type Cm<R> = RdmaCm<'static, 'static, ModelPlatform, R>;

struct Nodes<R> {
    world: World,
    cms: [Cm<R>; 2],
    channels: [ChannelId; 2],
}

impl<R: Resolver> Nodes<R> {
    fn new(
        link: impl Link + 'static,
        resolver: impl Fn(&[&'static Device<'static, ModelPlatform>; 2], usize) -> R,
    ) -> Self {
        let world = Builder::with_link(Box::new(link), 0)
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let devices = [device(&world, 0), device(&world, 1)];
        let mut cms = [0, 1].map(|node| {
            let storage = keep(rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new());
            let config = rdma::Config::new(node as u64 + 1);
            RdmaCm::new(
                devices[node],
                resolver(&devices, node),
                config,
                storage.storage(),
            )
            .unwrap()
        });
        let channels = cms.each_mut().map(|cm| cm.create_event_channel().unwrap());
        Self {
            world,
            cms,
            channels,
        }
    }

    fn event(&mut self, node: usize) -> CmEvent {
        let end = self.world.now() + 10 * SECOND;
        loop {
            for cm in &mut self.cms {
                cm.poll(cm.now()).unwrap();
            }
            if let Some(event) = self.cms[node]
                .try_get_cm_event(self.channels[node])
                .unwrap()
            {
                return event;
            }
            assert!(self.world.now() < end, "no event");
            self.world.advance(MS / 10);
        }
    }

    /// An id that is bound to its node's address, with a QP.
    fn bound(&mut self, node: usize) -> CmId {
        let cm = &mut self.cms[node];
        let id = cm
            .create_id(Some(self.channels[node]), 0, PortSpace::Udp)
            .unwrap();
        cm.bind_addr(id, pair::address(node, 0)).unwrap();
        cm.create_qp(id, None, &mut qp()).unwrap();
        id
    }

    fn joined(&mut self, node: usize, id: CmId, join: &JoinMulticast) -> CmEvent {
        self.cms[node].join_multicast_ex(id, join).unwrap();
        let event = self.event(node);
        assert_eq!(
            (event.event, event.status, event.arg),
            (EventType::MulticastJoin, 0, join.context)
        );
        assert_eq!((event.ud.qp_num, event.ud.qkey), (0xff_ffff, UDP_QKEY));
        assert_eq!(event.ud.ah_attr.dgid.0, mapped(join.group));
        event
    }

    /// Sends from node 0 as the event says. Whether it arrives at node 1.
    fn arrives(&mut self, from: CmId, there: &UdEvent, to: CmId) -> bool {
        let buffer = self.cms[1].reg_msgs(to, GRH + 16).unwrap();
        let out = self.cms[0].reg_msgs(from, 5).unwrap();
        out.copy_in(0, b"hello").unwrap();
        self.cms[1]
            .post_recv(to, 3, buffer.slice(..GRH + 16).unwrap())
            .unwrap();
        let ah = self.cms[0].device().create_ah(&there.ah_attr).unwrap();
        self.cms[0]
            .post_ud_send(
                from,
                4,
                out.slice(..).unwrap(),
                SendFlags::SIGNALED,
                &ah,
                there.qp_num,
            )
            .unwrap();
        let end = self.world.now() + SECOND;
        let sent = self.cms[0].get_send_comp_until(from, end).unwrap();
        assert_eq!(sent.status, WcStatus::Success);
        match self.cms[1].get_recv_comp_until(to, end) {
            Ok(got) => {
                assert_eq!(
                    (got.status, got.byte_len as usize),
                    (WcStatus::Success, GRH + 5)
                );
                let mut bytes = [0; 5];
                buffer.copy_out(GRH, &mut bytes).unwrap();
                assert_eq!(&bytes, b"hello");
                true
            }
            Err(error) => {
                assert_eq!(error, RdmaError::TimedOut);
                // Gone with the id, which its caller destroys next.
                std::mem::forget(buffer);
                false
            }
        }
    }
}

fn watched() -> Nodes<Watched> {
    watched_over(RoceVersion::V2)
}

/// The addresses are in the GID tables in both versions of RoCE, and this one is used.
fn watched_over(version: RoceVersion) -> Nodes<Watched> {
    Nodes::new(Cable::new(), |devices, node| Watched {
        version: {
            let entry = GidEntry {
                version: RoceVersion::V1,
                ..GidEntry::roce_v2(pair::ip(node).into(), devices[node].mac().unwrap())
            };
            devices[node].set_gid(5, entry).unwrap();
            version
        },
        neighbours: [0, 1]
            .map(|node| (pair::ip(node), devices[node].mac().unwrap()))
            .to_vec(),
        reported: Vec::new(),
    })
}

fn group() -> IpAddr {
    IpAddr::from([239, 129, 130, 3])
}

fn full(context: u64) -> JoinMulticast {
    JoinMulticast {
        group: group(),
        send_only: false,
        context,
    }
}

#[test]
fn only_members_receive() {
    let mut nodes = watched();
    let member = nodes.bound(1);
    let sender = nodes.bound(0);
    let event = nodes.joined(1, member, &full(9));
    let send_only = JoinMulticast {
        send_only: true,
        ..full(1 << 40)
    };
    let there = nodes.joined(0, sender, &send_only).ud;
    assert_eq!(there.ah_attr.dmac, [1, 0, 0x5e, 1, 130, 3]);
    assert_eq!(event.ud.ah_attr.dmac, there.ah_attr.dmac);
    assert!(nodes.arrives(sender, &there, member));

    nodes.cms[1].leave_multicast(member, group()).unwrap();
    assert!(!nodes.arrives(sender, &there, member));
    let error = nodes.cms[1].leave_multicast(member, group()).unwrap_err();
    assert_eq!(error, RdmaError::NotJoined(group()));
    assert_eq!(error.errno(), errno::EADDRNOTAVAIL);
    // A sender that is no member is not reported to switches.
    assert_eq!(nodes.cms[0].resolver_mut().reported, []);
    assert_eq!(
        nodes.cms[1].resolver_mut().reported,
        [(true, group()), (false, group())]
    );
    nodes.cms[0].destroy_id(sender).unwrap();
    nodes.cms[1].destroy_id(member).unwrap();
}

/// The GID of a group of IPv4 on RoCE v1 is Linux's, and its Ethernet address that of IPv6.
#[test]
fn groups_of_roce_v1() {
    let mut nodes = watched_over(RoceVersion::V1);
    let [sender, member] = [0, 1].map(|node| nodes.bound(node));
    let [there, here] = [(0, sender), (1, member)].map(|(node, id)| {
        nodes.cms[node].join_multicast_ex(id, &full(0)).unwrap();
        let event = nodes.event(node);
        assert_eq!((event.event, event.status), (EventType::MulticastJoin, 0));
        event.ud
    });
    let mut gid = mapped(group());
    gid[..2].copy_from_slice(&[0xff, 0x0e]);
    assert_eq!((there.ah_attr.dgid.0, here.ah_attr.dgid.0), (gid, gid));
    assert_eq!(there.ah_attr.dmac, [0x33, 0x33, 239, 129, 130, 3]);
    assert_eq!(there.ah_attr.sgid_index, 5);
    assert!(nodes.arrives(sender, &there, member));
    nodes.cms[1].leave_multicast(member, group()).unwrap();
    assert!(!nodes.arrives(sender, &there, member));
    nodes.cms[0].destroy_id(sender).unwrap();
    nodes.cms[1].destroy_id(member).unwrap();
}

/// Nothing of a group outlives its id, nor the QP in it, nor an event of it its leaving.
#[test]
fn groups_end_with_their_ids() {
    let mut nodes = watched();
    let id = nodes.bound(1);
    for context in 0..4 {
        let group = IpAddr::from([239, 0, 0, context as u8]);
        let join = JoinMulticast {
            group,
            ..full(context)
        };
        nodes.cms[1].join_multicast_ex(id, &join).unwrap();
    }
    let fifth = nodes.cms[1].join_multicast(id, group(), 0);
    assert!(matches!(fifth, Err(RdmaError::Full { capacity: 4, .. })));
    let left = IpAddr::from([239, 0, 0, 1]);
    nodes.cms[1].leave_multicast(id, left).unwrap();
    for context in [0, 2, 3] {
        assert_eq!(nodes.event(1).arg, context);
    }
    let channel = nodes.channels[1];
    assert!(nodes.cms[1].try_get_cm_event(channel).unwrap().is_none());
    nodes.cms[1].destroy_qp(id).unwrap();
    nodes.cms[1].create_qp(id, None, &mut qp()).unwrap();
    nodes.cms[1].destroy_id(id).unwrap();
    assert_eq!(nodes.cms[1].ids_in_use(), 0);
    let reported = &nodes.cms[1].resolver_mut().reported;
    assert_eq!(reported.iter().filter(|(join, _)| *join).count(), 4);
    assert_eq!(reported.iter().filter(|(join, _)| !*join).count(), 4);
    // The slots are free again.
    let id = nodes.bound(1);
    nodes.joined(1, id, &full(0));
}

/// An id that loses the event of a group has the place of its next event.
#[test]
fn leaving_keeps_the_order_of_events() {
    let mut nodes = watched();
    let [member, other] = [(); 2].map(|()| nodes.bound(1));
    let cm = &mut nodes.cms[1];
    cm.join_multicast_ex(member, &full(0)).unwrap();
    cm.write_cm_event(other, 1, 0).unwrap();
    cm.write_cm_event(member, 2, 0).unwrap();
    cm.leave_multicast(member, group()).unwrap();
    assert_eq!([nodes.event(1), nodes.event(1)].map(|it| it.status), [1, 2]);
}

#[test]
fn what_cannot_be_joined() {
    let mut nodes = watched();
    let id = nodes.bound(1);
    let errno_of = |nodes: &mut Nodes<Watched>, id, group: &str| {
        let joined = nodes.cms[1].join_multicast(id, group.parse().unwrap(), 0);
        joined.unwrap_err().errno()
    };
    assert_eq!(errno_of(&mut nodes, id, "10.0.0.1"), errno::EINVAL);
    assert_eq!(errno_of(&mut nodes, id, "0.0.0.0"), errno::EINVAL);
    assert_eq!(errno_of(&mut nodes, id, "ff0e::1"), errno::EINVAL);
    nodes.joined(1, id, &full(0));
    assert_eq!(errno_of(&mut nodes, id, "239.129.130.3"), errno::EADDRINUSE);
    let unbound = nodes.cms[1].create_id(None, 0, PortSpace::Udp).unwrap();
    assert_eq!(errno_of(&mut nodes, unbound, "239.0.0.9"), errno::EINVAL);
    let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
    nodes.cms[1].bind_addr(unbound, any).unwrap();
    assert_eq!(errno_of(&mut nodes, unbound, "239.0.0.9"), errno::EINVAL);
    let connected = nodes.cms[1].create_id(None, 0, PortSpace::Tcp).unwrap();
    nodes.cms[1]
        .bind_addr(connected, pair::address(1, 0))
        .unwrap();
    assert_eq!(errno_of(&mut nodes, connected, "239.0.0.9"), errno::EINVAL);
}

/// Managers that send IGMP and MLD reports themselves.
fn over_ethernet(
    link: impl Link + 'static,
) -> Nodes<NeighbourDiscovery<'static, 'static, ModelPlatform>> {
    Nodes::new(link, |devices, node| {
        let memory = keep(ip::Resources::<
            ip::Addresses<2>,
            ip::Neighbours<4>,
            ip::Routes<1>,
            ip::Groups<8>,
        >::new());
        let pd = keep(devices[node].default_pd().unwrap());
        let mut host = NeighbourDiscovery::new(
            devices[node],
            pd,
            EthernetInit::default(),
            ip::Config::new(node as u64),
            memory.storage(),
        )
        .expect("a queue");
        host.add_address(pair::ip(node), 24, None).unwrap();
        host.add_address(link_local(node), 64, None).unwrap();
        let end = devices[node].platform().now() + 10 * SECOND;
        host.wait_for_addresses(end).unwrap();
        host
    })
}

fn link_local(node: usize) -> IpAddr {
    IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 0x11 + node as u16])
}

/// mckey: the group is resolved as an address, and joined; synchronous, over the port's own ARP and IGMP.
#[test]
fn a_resolved_group_over_the_ethernet_queue() {
    let mut nodes = over_ethernet(Cable::new());
    let members = [0, 1].map(|node| {
        let cm = &mut nodes.cms[node];
        let id = cm.create_id(None, 0, PortSpace::Udp).unwrap();
        cm.resolve_addr(id, None, SocketAddr::new(group(), 0), SECOND)
            .unwrap();
        assert_eq!(
            cm.get_local_addr(id).unwrap().map(|local| local.ip()),
            Some(pair::ip(node))
        );
        cm.create_qp(id, None, &mut qp()).unwrap();
        cm.join_multicast(id, group(), 5).unwrap();
        let event = cm.event(id).unwrap().unwrap();
        assert_eq!((event.event, event.arg), (EventType::MulticastJoin, 5));
        (id, event.ud)
    });
    let [(sender, there), (member, _)] = members;
    assert!(nodes.arrives(sender, &there, member));
    nodes.cms[1].leave_multicast(member, group()).unwrap();
    assert!(!nodes.arrives(sender, &there, member));
    nodes.cms[1].destroy_id(member).unwrap();
    nodes.cms[0].destroy_id(sender).unwrap();
}

/// Groups of IPv6 go the same way, and ids that are bound to IPv6 join those of IPv4 as well.
#[test]
fn ipv6_groups() {
    let mut nodes = watched();
    let group: IpAddr = "ff15::7:8901:203".parse().unwrap();
    let local = SocketAddr::new("fe80::1".parse().unwrap(), 0);
    let join = JoinMulticast { group, ..full(7) };
    let [(sender, there), (member, _)] = [0, 1].map(|node| {
        let cm = &mut nodes.cms[node];
        let id = cm
            .create_id(Some(nodes.channels[node]), 0, PortSpace::Udp)
            .unwrap();
        cm.bind_addr(id, local).unwrap();
        cm.create_qp(id, None, &mut qp()).unwrap();
        (id, nodes.joined(node, id, &join).ud)
    });
    assert_eq!(there.ah_attr.dmac, [0x33, 0x33, 0x89, 1, 2, 3]);
    assert!(nodes.arrives(sender, &there, member));
    let [there, _] =
        [(0, sender), (1, member)].map(|(node, id)| nodes.joined(node, id, &full(8)).ud);
    assert_eq!(there.ah_attr.dmac, [1, 0, 0x5e, 1, 130, 3]);
    assert!(nodes.arrives(sender, &there, member));
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    let byte = |pair: &[u32]| (pair[0] << 4 | pair[1]) as u8;
    digits.chunks(2).map(byte).collect()
}

/// The reports that switches evaluate, byte for byte: a member reports itself twice, however many ids have joined, and
/// reports when the last of them leaves. A sender that is no member reports nothing.
#[test]
fn groups_are_reported_by_igmp_and_mld() {
    for (group, own, reported, left) in [
        (
            group(),
            pair::ip(1),
            "01005e018203 02c900000002 0800 4600 0020 0000 0000 0102 a951 0a000002 ef818203 94040000
             1600 787a ef818203 0000000000000000000000000000",
            "01005e000002 02c900000002 0800 4600 0020 0000 0000 0102 3ad4 0a000002 e0000002 94040000
             1700 777a ef818203 0000000000000000000000000000",
        ),
        (
            "ff15::7:8901:203".parse().unwrap(),
            link_local(1),
            "333300000016 02c900000002 86dd 60000000 0024 00 01
             fe800000000000000000000000000012 ff020000000000000000000000000016
             3a 00 0502 0000 0100 8f 00 e4da 0000 0001
             04 00 0000 ff150000000000000000000789010203",
            "333300000016 02c900000002 86dd 60000000 0024 00 01
             fe800000000000000000000000000012 ff020000000000000000000000000016
             3a 00 0502 0000 0100 8f 00 e5da 0000 0001
             03 00 0000 ff150000000000000000000789010203",
        ),
    ] {
        let (sender, seen) = mpsc::channel();
        let mut nodes = over_ethernet(Tracer::new(Cable::new(), move |_, from, frame: &[u8]| {
            if from == 1 {
                let _ = sender.send(frame.to_vec());
            }
        }));
        let passed = |nodes: &mut Nodes<_>, time: Duration| -> Vec<Vec<u8>> {
            let end = nodes.world.now() + time;
            while nodes.world.now() < end {
                nodes.cms[1].poll(nodes.cms[1].now()).unwrap();
                nodes.world.advance(50 * MS);
            }
            seen.try_iter().collect()
        };
        passed(&mut nodes, 20 * SECOND);
        let bound = |nodes: &mut Nodes<_>| {
            let cm = &mut nodes.cms[1];
            let id = cm.create_id(Some(nodes.channels[1]), 0, PortSpace::Udp).unwrap();
            cm.bind_addr(id, SocketAddr::new(own, 0)).unwrap();
            id
        };
        let ids = [0; 3].map(|_| bound(&mut nodes));
        let send_only = JoinMulticast {
            group,
            send_only: true,
            context: 0,
        };
        nodes.joined(1, ids[2], &send_only);
        assert_eq!(passed(&mut nodes, 20 * SECOND), [[0; 0]; 0]);
        for id in [ids[0], ids[1]] {
            nodes.joined(1, id, &JoinMulticast { send_only: false, ..send_only });
        }
        let report = hex(reported);
        assert_eq!(passed(&mut nodes, 20 * SECOND), [report.clone(), report]);
        nodes.cms[1].leave_multicast(ids[0], group).unwrap();
        nodes.cms[1].destroy_id(ids[2]).unwrap();
        assert_eq!(passed(&mut nodes, 20 * SECOND), [[0; 0]; 0]);
        nodes.cms[1].destroy_id(ids[1]).unwrap();
        assert_eq!(passed(&mut nodes, 20 * SECOND), [hex(left)]);
    }
}
