//! Managers on InfiniBand ports of one subnet.

#![allow(unreachable_pub, reason = "as if it were a crate")]

use std::time::Duration;

use bareverbs_cm::mad::sa::PathRecord;
use bareverbs_cm::rdma::{self, *};
use bareverbs_cm::sa;
use bareverbs_core::qp::QpCap;
use bareverbs_core::{Cqs, Device, Gid, PageChunks, Qps, Srqs};
use bareverbs_in_process::subnet::{Port, Subnet};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::Link;

use crate::keep::keep;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const PORT: u16 = 7174;

pub type Cm = RdmaCm<'static, 'static, ModelPlatform, SubnetAdministration<'static>>;

/// The port's GID, from the model's configuration.
pub fn gid(node: usize) -> Gid {
    let guid = card(node).port_guid;
    Gid((0xfe80_u128 << 112 | u128::from(guid)).to_be_bytes())
}

/// LID 1 is subnet administration's.
pub fn lid(node: usize) -> u16 {
    node as u16 + 2
}

fn card(node: usize) -> Card {
    let card = Card::new(node as u8 + 2).infiniband();
    assert_eq!(card.lid, lid(node));
    card
}

pub fn address(node: usize, port: u16) -> SockaddrIb {
    SockaddrIb::new(gid(node), PortSpace::Tcp, port)
}

pub fn any(port_space: PortSpace, port: u16) -> SockaddrIb {
    SockaddrIb::new(Gid::ZERO, port_space, port)
}

pub fn qp() -> QpInit<'static, 'static, ModelPlatform> {
    QpInit {
        cap: QpCap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        },
        ..QpInit::default()
    }
}

/// Some nodes on one thread: waiting for one drives all.
pub struct Nodes {
    pub world: World,
    pub subnet: Subnet,
    pub cms: Vec<Cm>,
    pub channels: Vec<ChannelId>,
}

impl Nodes {
    pub fn new(count: usize) -> Self {
        Self::with_resources::<8>(count)
    }

    pub fn with_resources<const N: usize>(count: usize) -> Self {
        Self::with_seed::<N>(count, 1)
    }

    pub fn with_seed<const N: usize>(count: usize, seed: u64) -> Self {
        let seeds = |node| node as u64 + 1;
        Self::on_link::<N>(count, seed, |link| link, seeds)
    }

    /// On a link that `wrap` makes of the subnet, with managers that have these seeds.
    pub fn on_link<const N: usize>(
        count: usize,
        seed: u64,
        wrap: impl FnOnce(Box<dyn Link>) -> Box<dyn Link>,
        seeds: impl Fn(usize) -> u64,
    ) -> Self {
        Self::of::<N>(count, subnet_on(count, seed, wrap, |card| card), seeds)
    }

    /// With cards that `change` makes of the usual ones.
    pub fn with_cards(count: usize, change: impl Fn(Card) -> Card) -> Self {
        let seeds = |node| node as u64 + 1;
        Self::of::<8>(count, subnet_on(count, 1, |link| link, change), seeds)
    }

    fn of<const N: usize>(
        count: usize,
        (builder, subnet): (Builder, Subnet),
        seeds: impl Fn(usize) -> u64,
    ) -> Self {
        let world = builder.stepped();
        let mut cms: Vec<_> = (0..count)
            .map(|node| manager_with::<N>(&world, node, seeds(node)))
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

    pub fn poll(&mut self) {
        for cm in &mut self.cms {
            cm.poll(cm.now()).unwrap();
        }
        self.world.step();
    }

    pub fn event_within(&mut self, node: usize, limit: Duration) -> Option<CmEvent> {
        let end = self.world.now() + limit;
        loop {
            let event = self.cms[node].try_get_cm_event(self.channels[node]);
            if let Some(event) = event.unwrap() {
                return Some(event);
            }
            if self.world.now() >= end {
                return None;
            }
            self.poll();
            self.world.advance(MS / 10);
        }
    }

    #[track_caller]
    pub fn expect(&mut self, node: usize, kind: EventType) -> CmEvent {
        let event = self.event_within(node, 10 * SECOND).expect("no event");
        assert_eq!(event.event, kind, "{event:?}");
        event
    }

    pub fn id(&mut self, node: usize, port_space: PortSpace) -> CmId {
        let channel = self.channels[node];
        self.cms[node]
            .create_id(Some(channel), 5, port_space)
            .unwrap()
    }

    pub fn listener(&mut self, node: usize, port_space: PortSpace) -> CmId {
        let id = self.id(node, port_space);
        self.cms[node].bind_addr(id, any(port_space, PORT)).unwrap();
        self.cms[node].listen(id, 8).unwrap();
        id
    }

    /// An id of node 0 with the GID of node 1 resolved.
    pub fn resolved(&mut self, port_space: PortSpace) -> CmId {
        let id = self.id(0, port_space);
        let there = SockaddrIb::new(gid(1), port_space, PORT);
        self.cms[0].resolve_addr(id, None, there, SECOND).unwrap();
        self.expect(0, EventType::AddrResolved);
        id
    }

    /// The same with the path, and a QP.
    pub fn client(&mut self, port_space: PortSpace) -> CmId {
        let id = self.resolved(port_space);
        self.cms[0].resolve_route(id, SECOND).unwrap();
        self.expect(0, EventType::RouteResolved);
        self.cms[0].create_qp(id, None, &mut qp()).unwrap();
        id
    }

    pub fn connected(&mut self) -> (CmId, CmId) {
        let ours = self.client(PortSpace::Tcp);
        self.connect(ours)
    }

    pub fn connect(&mut self, ours: CmId) -> (CmId, CmId) {
        self.cms[0].connect(ours, None).unwrap();
        let theirs = self.expect(1, EventType::ConnectRequest).id;
        self.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        self.cms[1].accept(theirs, None).unwrap();
        self.expect(0, EventType::Established);
        self.expect(1, EventType::Established);
        (ours, theirs)
    }

    /// A message from `from` to the other node, byte for byte.
    pub fn say(&mut self, from: (usize, CmId), to: (usize, CmId), text: &[u8]) {
        crate::pair::say(&self.world, &mut self.cms, from, to, text);
    }

    /// The path record from node 0 to node 1.
    pub fn path(&self) -> PathRecord {
        PathRecord {
            sgid: gid(0).0,
            dgid: gid(1).0,
            slid: lid(0),
            dlid: lid(1),
            mtu: 3,
            rate: 16,
            packet_life_time: 12,
            pkey: 0xffff,
            sl: 2,
            ..PathRecord::ZERO
        }
    }

    /// The number of questions to subnet administration.
    pub fn questions(&self) -> usize {
        self.subnet.with(|state| state.questions.len())
    }
}

pub fn device(world: &World, node: usize) -> &'static Device<'static, ModelPlatform> {
    let resources = keep(bareverbs_core::Resources::<
        Qps<32>,
        Cqs<64>,
        Srqs<2>,
        PageChunks<256>,
    >::new());
    let config = bareverbs_core::Config::DEFAULT;
    let device = Device::open(world.platform(node), config, resources.storage());
    keep(device.expect("bring-up"))
}

/// A world to be, its ports known to subnet administration.
pub fn subnet(count: usize, seed: u64) -> (Builder, Subnet) {
    subnet_on(count, seed, |link| link, |card| card)
}

fn subnet_on(
    count: usize,
    seed: u64,
    wrap: impl FnOnce(Box<dyn Link>) -> Box<dyn Link>,
    change: impl Fn(Card) -> Card,
) -> (Builder, Subnet) {
    let subnet = Subnet::default();
    let mut builder = Builder::with_link(wrap(subnet.link(count)), seed);
    for node in 0..count {
        builder = builder.function(change(card(node)));
        let port = Port {
            gid: gid(node).0,
            lid: lid(node),
        };
        subnet.with(|state| state.administration.ports.push(port));
    }
    (builder, subnet)
}

pub fn manager<const N: usize>(world: &World, node: usize) -> Cm {
    manager_with::<N>(world, node, node as u64 + 1)
}

fn manager_with<const N: usize>(world: &World, node: usize, seed: u64) -> Cm {
    let device = device(world, node);
    let subnet = keep(SubnetResources::<Questions<N>, Paths<N>, Members<N>>::new());
    let resolver =
        SubnetAdministration::new(sa::Config::new((node as u64 + 1) << 32), subnet.storage());
    let storage = keep(rdma::Resources::<Ids<ModelPlatform, 32>, Channels<4>>::new());
    let config = rdma::Config {
        trace: true,
        gsi_depth: 64,
        ..rdma::Config::new(seed)
    };
    RdmaCm::new(device, resolver, config, storage.storage()).expect("QP1")
}
