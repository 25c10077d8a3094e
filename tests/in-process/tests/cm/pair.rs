//! Two managers on one cable.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::rdma::{self, *};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{Cqs, Device, Mtu, PageChunks, Qps, Srqs, WcError, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::Link;

use crate::keep::keep;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const PORT: u16 = 7174;

pub(crate) type Cm = RdmaCm<'static, 'static, ModelPlatform, StaticNeighbours<'static>>;

pub(crate) fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

pub(crate) fn address(node: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ip(node), port)
}

/// A device of the world, with its addresses in the GID table. It outlives the managers of these tests.
pub(crate) fn device(world: &World, node: usize) -> &'static Device<'static, ModelPlatform> {
    let resources = keep(bareverbs_core::Resources::<
        Qps<32>,
        Cqs<64>,
        Srqs<2>,
        PageChunks<256>,
    >::new());
    let config = bareverbs_core::Config::DEFAULT;
    let addresses = ["fe80::1".parse().unwrap(), ip(node)];
    keep(world.open(node, config, resources.storage(), &addresses))
}

pub(crate) fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

pub(crate) fn manager(
    devices: &[&'static Device<'static, ModelPlatform>],
    node: usize,
    max_path_mtu: Mtu,
) -> Cm {
    manager_with(devices, node, max_path_mtu, node as u64 + 1)
}

fn manager_with(
    devices: &[&'static Device<'static, ModelPlatform>],
    node: usize,
    max_path_mtu: Mtu,
    seed: u64,
) -> Cm {
    let neighbours: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(node, device)| (ip(node), device.mac().unwrap()))
        .collect();
    let storage = keep(rdma::Resources::<Ids<ModelPlatform, 32>, Channels<4>>::new());
    let config = rdma::Config {
        trace: true,
        gsi_depth: 64,
        max_path_mtu,
        ..rdma::Config::new(seed)
    };
    RdmaCm::new(
        devices[node],
        StaticNeighbours(keep(neighbours)),
        config,
        storage.storage(),
    )
    .expect("QP1")
}

pub(crate) fn cap() -> QpCap {
    QpCap {
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 16,
    }
}

pub(crate) fn qp() -> QpInit<'static, 'static, ModelPlatform> {
    QpInit {
        cap: cap(),
        ..QpInit::default()
    }
}

/// Two managers on one thread: waiting for one drives the other.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) cms: [Cm; 2],
    pub(crate) channels: [ChannelId; 2],
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with_path_mtu(Mtu::B4096)
    }

    pub(crate) fn with_path_mtu(limit: Mtu) -> Self {
        Self::on_cards(limit, |card| card)
    }

    /// On cards that `change` has changed.
    pub(crate) fn on_cards(limit: Mtu, change: impl Fn(Card) -> Card) -> Self {
        let builder = Builder::new()
            .function(change(Card::new(1)))
            .function(change(Card::new(2)));
        Self::on(builder, limit, |node| node as u64 + 1)
    }

    /// On a link, with managers that have these seeds.
    pub(crate) fn on_link(link: Box<dyn Link>, seeds: impl Fn(usize) -> u64) -> Self {
        let builder = Builder::with_link(link, 1)
            .function(Card::new(1))
            .function(Card::new(2));
        Self::on(builder, Mtu::B4096, seeds)
    }

    fn on(builder: Builder, limit: Mtu, seeds: impl Fn(usize) -> u64) -> Self {
        let world = builder.stepped();
        let devices = [device(&world, 0), device(&world, 1)];
        let mut cms = [0, 1].map(|node| manager_with(&devices, node, limit, seeds(node)));
        let channels = [0, 1].map(|node| cms[node].create_event_channel().unwrap());
        Self {
            world,
            cms,
            channels,
        }
    }

    pub(crate) fn poll(&mut self) {
        for cm in &mut self.cms {
            cm.poll(cm.now()).unwrap();
        }
        self.world.step();
    }

    pub(crate) fn event_within(&mut self, node: usize, limit: Duration) -> Option<CmEvent> {
        let end = self.world.now() + limit;
        loop {
            if let Some(event) = self.cms[node]
                .try_get_cm_event(self.channels[node])
                .unwrap()
            {
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
    pub(crate) fn event(&mut self, node: usize) -> CmEvent {
        self.event_within(node, 10 * SECOND).expect("no event")
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, node: usize, kind: EventType) -> CmEvent {
        let event = self.event(node);
        assert_eq!(event.event, kind, "{event:?}");
        event
    }

    pub(crate) fn listener(&mut self) -> CmId {
        self.listener_of(PortSpace::Tcp, 8)
    }

    /// An id of node 1 that listens at every address.
    pub(crate) fn listener_of(&mut self, port_space: PortSpace, backlog: u32) -> CmId {
        let cm = &mut self.cms[1];
        let id = cm
            .create_id(Some(self.channels[1]), 77, port_space)
            .unwrap();
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
        cm.bind_addr(id, any).unwrap();
        cm.listen(id, backlog).unwrap();
        id
    }

    /// An id of node 0 that is ready to connect, without a QP.
    pub(crate) fn resolved(&mut self, port_space: PortSpace) -> CmId {
        let id = self.cms[0]
            .create_id(Some(self.channels[0]), 5, port_space)
            .unwrap();
        self.resolve(id, PORT);
        id
    }

    /// Address and route from an id of node 0 to a port of node 1.
    pub(crate) fn resolve(&mut self, id: CmId, port: u16) {
        self.cms[0]
            .resolve_addr(id, None, address(1, port), SECOND)
            .unwrap();
        self.expect(0, EventType::AddrResolved);
        self.cms[0].resolve_route(id, SECOND).unwrap();
        self.expect(0, EventType::RouteResolved);
    }

    /// An id of node 0 that is ready to connect, with a QP.
    pub(crate) fn client(&mut self) -> CmId {
        let id = self.resolved(PortSpace::Tcp);
        self.cms[0].create_qp(id, None, &mut qp()).unwrap();
        id
    }

    pub(crate) fn connected(&mut self) -> (CmId, CmId) {
        let ours = self.client();
        self.cms[0].connect(ours, None).unwrap();
        let theirs = self.expect(1, EventType::ConnectRequest).id;
        self.cms[1].create_qp(theirs, None, &mut qp()).unwrap();
        self.cms[1].accept(theirs, None).unwrap();
        self.expect(0, EventType::Established);
        self.expect(1, EventType::Established);
        (ours, theirs)
    }

    /// A message from `from` to the other node, byte for byte.
    pub(crate) fn say(&mut self, from: (usize, CmId), to: (usize, CmId), text: &[u8]) {
        say(&self.world, &mut self.cms, from, to, text);
    }
}

pub(crate) fn sizes(max_wr: u32) -> SrqAttr {
    SrqAttr {
        max_wr,
        max_sge: 1,
        srq_limit: 0,
    }
}

/// The objects that a card holds, as text.
pub(crate) fn objects(pair: &Pair, node: usize) -> String {
    pair.world
        .with_model(node, |model| format!("{:?}", model.objects()))
}

/// Returns what the completion of a failed work request says.
pub(crate) fn failed<T: std::fmt::Debug>(completion: Result<T, RdmaError>) -> WcError {
    match completion.unwrap_err() {
        RdmaError::Completion(failed) => failed,
        error => panic!("{error}"),
    }
}

/// A message from `from` to the other node, byte for byte.
pub(crate) fn say<R: Resolver>(
    world: &World,
    cms: &mut [RdmaCm<'static, 'static, ModelPlatform, R>],
    from: (usize, CmId),
    to: (usize, CmId),
    text: &[u8],
) {
    let source = cms[from.0].reg_msgs(from.1, text.len()).unwrap();
    let sink = cms[to.0].reg_msgs(to.1, text.len()).unwrap();
    source.copy_in(0, text).unwrap();
    cms[to.0]
        .post_recv(to.1, 21, sink.slice(..text.len()).unwrap())
        .unwrap();
    cms[from.0]
        .post_send(
            from.1,
            22,
            source.slice(..text.len()).unwrap(),
            SendFlags::SIGNALED,
        )
        .unwrap();
    let end = world.now() + SECOND;
    let sent = cms[from.0].get_send_comp_until(from.1, end).unwrap();
    assert_eq!((sent.wr_id, sent.status), (22, WcStatus::Success));
    let got = cms[to.0].get_recv_comp_until(to.1, end).unwrap();
    assert_eq!(
        (got.wr_id, got.status, got.byte_len as usize),
        (21, WcStatus::Success, text.len())
    );
    let mut bytes = vec![0; text.len()];
    sink.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, text);
}
