//! IP addresses on InfiniBand ports: neighbours over the group of all interfaces, and connections between them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::ip::{self, Addresses, Groups, Neighbours, Routes};
use bareverbs_cm::ipoib::{PeerSlot, broadcast_group, group};
use bareverbs_cm::rdma::{self, Neighbours as _, *};
use bareverbs_cm::sa;
use bareverbs_core::AsyncEvent;
use bareverbs_in_process::subnet::{Group, Subnet};
use bareverbs_in_process::{ModelPlatform, World};

use super::support::{MS, PORT, SECOND, device, gid, lid, qp, subnet};
use crate::keep::keep;

pub(super) type Cm =
    RdmaCm<'static, 'static, ModelPlatform, IpOverInfiniband<'static, 'static, ModelPlatform>>;

const PKEY: u16 = 0xffff;
const QKEY: u32 = 0xb1b;

pub(super) struct Hosts {
    pub(super) world: World,
    pub(super) subnet: Subnet,
    pub(super) cms: Vec<Cm>,
    pub(super) channels: Vec<ChannelId>,
}

pub(super) fn addresses(node: usize) -> [IpAddr; 2] {
    let number = node as u8 + 1;
    [
        IpAddr::from([10, 0, 0, number]),
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]),
    ]
}

fn manager(world: &World, node: usize, pkey: u16) -> Cm {
    type Memory = ip::Resources<Addresses<4>, Neighbours<8>, Routes<1>, Groups<16>>;
    let device = device(world, node);
    let pd = keep(device.default_pd().unwrap());
    let asked = keep(SubnetResources::<Questions<8>, Paths<8>, Members<16>>::new());
    let config = sa::Config::new((node as u64 + 1) << 32);
    let paths = SubnetAdministration::new(config, asked.storage());
    let mut resolver = IpOverInfiniband::new(
        device,
        pd,
        pkey,
        ip::Config::new(node as u64),
        keep(Memory::new()).storage(),
        keep([PeerSlot::EMPTY; 8]),
        paths,
    )
    .expect("interface");
    for (address, prefix) in addresses(node).into_iter().zip([24, 64]) {
        resolver.add_address(address, prefix).unwrap();
    }
    let storage = keep(rdma::Resources::<Ids<ModelPlatform, 16>, Channels<4>>::new());
    RdmaCm::new(
        device,
        resolver,
        rdma::Config::new(node as u64 + 1),
        storage.storage(),
    )
    .expect("QP1")
}

impl Hosts {
    /// With what is changed in the group of all interfaces.
    pub(super) fn with_group(change: impl FnOnce(&mut Group)) -> Self {
        let mut all = Group::all_interfaces();
        change(&mut all);
        Self::in_partitions(&[PKEY, PKEY], &[all])
    }

    /// Interfaces in these partitions, and the groups that there are.
    pub(super) fn in_partitions(pkeys: &[u16], groups: &[Group]) -> Self {
        let (builder, subnet) = subnet(pkeys.len(), 1);
        subnet.with(|state| state.administration.groups.extend_from_slice(groups));
        let world = builder.stepped();
        let managers = pkeys.iter().enumerate();
        let mut cms: Vec<Cm> = managers
            .map(|(node, pkey)| manager(&world, node, *pkey))
            .collect();
        let channels = cms
            .iter_mut()
            .map(|cm| cm.create_event_channel().unwrap())
            .collect();
        Self {
            world,
            subnet,
            cms,
            channels,
        }
    }

    pub(super) fn poll_for(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            for cm in &mut self.cms {
                cm.poll(cm.now()).unwrap();
            }
            self.world.step();
            self.world.advance(MS / 10);
        }
    }

    fn settled() -> Self {
        Self::with_group(|_| {}).settle()
    }

    pub(super) fn settle(mut self) -> Self {
        for _ in 0..100 {
            if self.cms.iter_mut().all(|cm| cm.resolver_mut().is_settled()) {
                break;
            }
            self.poll_for(100 * MS);
        }
        for cm in &mut self.cms {
            let resolver = cm.resolver_mut();
            assert!(resolver.is_up() && resolver.is_settled());
        }
        self
    }

    #[track_caller]
    pub(super) fn expect(&mut self, node: usize, kind: EventType) -> CmEvent {
        for _ in 0..100_000 {
            let event = self.cms[node].try_get_cm_event(self.channels[node]);
            if let Some(event) = event.unwrap() {
                assert_eq!(event.event, kind, "{event:?}");
                return event;
            }
            self.poll_for(MS);
        }
        panic!("no event");
    }
}

/// Another manager knows nothing of the groups, and has another Q_Key for them.
#[test]
fn groups_are_joined_again() {
    let mut hosts = Hosts::settled();
    hosts.subnet.with(|state| {
        let mut all = Group::all_interfaces();
        all.record[32..36].copy_from_slice(&[0, 0, 0x0b, 0x1c]);
        state.administration.groups = vec![all];
    });
    for cm in &mut hosts.cms {
        cm.handle_async_event(&AsyncEvent::ClientReregister { port: 1 });
    }
    hosts.poll_for(3 * SECOND);
    let joined = hosts.subnet.with(|state| {
        let groups = state.administration.groups.iter();
        let ours = [gid(0).0, gid(1).0];
        let both = |group: &&Group| {
            assert_eq!(group.record[32..36], [0, 0, 0x0b, 0x1c]);
            ours.iter().all(|gid| group.members.contains(&(*gid, 1)))
        };
        groups.filter(both).count()
    });
    // All interfaces, all systems of IPv4, all nodes of IPv6.
    assert_eq!(joined, 3);
    // Neighbours are found with it.
    let channel = hosts.channels[0];
    let id = hosts.cms[0]
        .create_id(Some(channel), 0, PortSpace::Tcp)
        .unwrap();
    let there = SocketAddr::new(addresses(1)[0], 1);
    hosts.cms[0]
        .resolve_addr(id, None, there, 5 * SECOND)
        .unwrap();
    hosts.expect(0, EventType::AddrResolved);
}

/// The port is in the groups of its addresses, with the Q_Key of that of all interfaces.
#[test]
fn interfaces_join_the_groups_of_their_addresses() {
    let hosts = Hosts::settled();
    let groups = hosts
        .subnet
        .with(|state| state.administration.groups.clone());
    let members = |mgid: [u8; 16]| {
        let group = groups.iter().find(|group| group.mgid == mgid).unwrap();
        assert_eq!(group.record[32..36], QKEY.to_be_bytes());
        let ours = [gid(0).0, gid(1).0];
        ours.map(|gid| group.members.contains(&(gid, 1)))
    };
    assert_eq!(members(broadcast_group(PKEY)), [true, true]);
    let all_nodes = group("ff02::1".parse().unwrap(), PKEY);
    assert_eq!(members(all_nodes), [true, true]);
    for (node, own) in [[true, false], [false, true]].into_iter().enumerate() {
        let name = format!("ff02::1:ff00:{}", node + 1);
        assert_eq!(members(group(name.parse().unwrap(), PKEY)), own);
    }
}

#[test]
fn connections_between_ip_addresses() {
    let mut hosts = Hosts::settled();
    for (at, there) in addresses(1).into_iter().enumerate() {
        let channel = hosts.channels[1];
        let listener = hosts.cms[1]
            .create_id(Some(channel), 0, PortSpace::Tcp)
            .unwrap();
        let there = SocketAddr::new(there, PORT);
        hosts.cms[1].bind_addr(listener, there).unwrap();
        hosts.cms[1].listen(listener, 8).unwrap();

        let channel = hosts.channels[0];
        let ours = hosts.cms[0]
            .create_id(Some(channel), 0, PortSpace::Tcp)
            .unwrap();
        hosts.cms[0]
            .resolve_addr(ours, None, there, 5 * SECOND)
            .unwrap();
        hosts.expect(0, EventType::AddrResolved);
        hosts.cms[0].resolve_route(ours, SECOND).unwrap();
        hosts.expect(0, EventType::RouteResolved);
        let path = hosts.cms[0].path(ours).unwrap().unwrap();
        assert_eq!((path.dgid, path.dlid), (gid(1).0, lid(1)));
        hosts.cms[0].create_qp(ours, None, &mut qp()).unwrap();
        let param = ConnParam {
            private_data: b"by IP",
            ..ConnParam::default()
        };
        hosts.cms[0].connect(ours, Some(&param)).unwrap();
        let request = hosts.expect(1, EventType::ConnectRequest);
        assert_eq!(request.private_data()[..5], *b"by IP");
        let theirs = request.id;
        let here = hosts.cms[0].get_local_addr(ours).unwrap();
        assert_eq!(here.map(|here| here.ip()), Some(addresses(0)[at]));
        assert_eq!(hosts.cms[1].get_peer_addr(theirs).unwrap(), here);
        assert_eq!(hosts.cms[1].get_local_addr(theirs).unwrap(), Some(there));
        assert_eq!(hosts.cms[1].get_local_ib_addr(theirs).unwrap(), None);
        hosts.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        hosts.cms[1].accept(theirs, None).unwrap();
        hosts.expect(0, EventType::Established);
        hosts.expect(1, EventType::Established);
        let ends = ((0, ours), (1, theirs));
        crate::pair::say(&hosts.world, &mut hosts.cms, ends.0, ends.1, b"over IP");
        hosts.cms[0].disconnect(ours).unwrap();
        hosts.expect(0, EventType::Disconnected);
        hosts.expect(1, EventType::Disconnected);
        hosts.cms[0].destroy_id(ours).unwrap();
        hosts.cms[1].destroy_id(theirs).unwrap();
        hosts.cms[1].destroy_id(listener).unwrap();
    }
}

#[test]
fn hosts_that_are_not_there() {
    let mut hosts = Hosts::settled();
    let channel = hosts.channels[0];
    let id = hosts.cms[0]
        .create_id(Some(channel), 0, PortSpace::Tcp)
        .unwrap();
    let not_ours = SocketAddr::new(addresses(1)[0], 1);
    let bound = hosts.cms[0].bind_addr(id, not_ours);
    assert_eq!(bound.unwrap_err().errno(), rdma::errno::EADDRNOTAVAIL);
    let nobody = SocketAddr::from(([10, 0, 0, 9], 1));
    hosts.cms[0]
        .resolve_addr(id, None, nobody, 20 * SECOND)
        .unwrap();
    let event = hosts.expect(0, EventType::AddrError);
    assert_eq!(event.status, -rdma::errno::EHOSTUNREACH);
}

/// As Linux makes the groups' GIDs (`cma_set_mgid`): IPoIB's rule with the RDMA CM's signature, but for GIDs in IPv6's form.
#[test]
fn groups_by_ip_address() {
    let mut hosts = Hosts::settled();
    let [v4, v6] = addresses(0);
    for (here, group, mgid) in [
        (v4, "239.192.7.1", "ff12:4001:ffff::fc0:701"),
        (v6, "ff15::7:1", "ff12:6001:ffff::7:1"),
        (v6, "ff12:a01b:fe80::7:1", "ff12:a01b:fe80::7:1"),
    ] {
        let (group, channel): (IpAddr, _) = (group.parse().unwrap(), hosts.channels[0]);
        let cm = &mut hosts.cms[0];
        let id = cm.create_id(Some(channel), 0, PortSpace::Udp).unwrap();
        let (here, there) = (SocketAddr::new(here, 0), SocketAddr::new(group, 0));
        cm.resolve_addr(id, Some(here), there, SECOND).unwrap();
        hosts.expect(0, EventType::AddrResolved);
        hosts.cms[0].join_multicast(id, group, 0).unwrap();
        let joined = hosts.expect(0, EventType::MulticastJoin);
        let mgid: IpAddr = mgid.parse().unwrap();
        assert_eq!(IpAddr::V6(joined.ud.ah_attr.dgid.to_ipv6()), mgid);
        hosts.cms[0].leave_multicast(id, group).unwrap();
        hosts.cms[0].destroy_id(id).unwrap();
    }
}
