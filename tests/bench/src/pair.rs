//! Two nodes on two models, connecting and disconnecting by asynchronous ids.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::rdma::{
    self, ChannelId, Channels, CmEvent, CmId, EventType, Ids, PooledQp, PortSpace, QpInit, RdmaCm,
    StaticNeighbours,
};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{
    Config, Cq, CqInit, Cqs, Device, FlightRecorder, PageChunks, Qps, Resources, Srqs,
};
use bareverbs_in_process::{Builder, ModelPlatform, World};

const PORT: u16 = 7174;
const LONG: Duration = Duration::from_secs(10);
const NEIGHBOURS: [(IpAddr, [u8; 6]); 2] = [(address(0), mac(0)), (address(1), mac(1))];

const fn address(node: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node + 1))
}

const fn mac(node: u8) -> [u8; 6] {
    [2, 0xc9, 0, 0, 0, node + 1]
}

/// Storage of a manager.
pub type Storage<'d> = Box<Managed<'d>>;
/// QPs that are kept.
pub type Pool<'d> = [PooledQp<'d, ModelPlatform>; 4];
type Managed<'d> = rdma::Resources<Ids<'d, ModelPlatform, 16>, Channels<2>>;
type Memory = Resources<Qps<32>, Cqs<8>, Srqs<1>, PageChunks<64>>;

/// Two cards on a cable, in virtual time.
#[must_use]
pub fn world() -> World {
    let card = |node| connectx_model::Config {
        mac: mac(node),
        ..connectx_model::Config::new(node + 1)
    };
    Builder::new().function(card(0)).function(card(1)).stepped()
}

/// Storage for a [`device`].
#[must_use]
pub fn resources() -> Box<Memory> {
    Box::new(Resources::new())
}

/// Storage for a manager.
#[must_use]
pub fn storage<'d>() -> Storage<'d> {
    Box::new(rdma::Resources::new())
}

/// Bytes of an id of the RDMA CM.
#[must_use]
pub fn id_size() -> usize {
    size_of::<rdma::IdSlot<'_, ModelPlatform>>()
}

/// Brings node 0 or 1 up and gives it its address.
///
/// # Panics
/// If that fails, as everything here: a benchmark has nothing to recover.
#[must_use]
pub fn device<'s>(
    world: &World,
    node: usize,
    resources: &'s mut Memory,
) -> Device<'s, ModelPlatform> {
    let (address, _) = NEIGHBOURS[node];
    world.open(node, Config::DEFAULT, resources.storage(), &[address])
}

/// The same, with a flight recorder.
#[must_use]
pub fn recorded_device<'s>(
    world: &World,
    node: usize,
    resources: &'s mut Memory,
    recorder: &'s FlightRecorder,
) -> Device<'s, ModelPlatform> {
    let (address, _) = NEIGHBOURS[node];
    let storage = resources.storage().record(recorder);
    world.open(node, Config::DEFAULT, storage, &[address])
}

/// Two managers, each on its device. The client is node 0.
pub struct Pair<'w, 's, 'd> {
    /// The world in which the devices work.
    pub world: &'w World,
    /// The managers.
    pub cms: [RdmaCm<'s, 'd, ModelPlatform, StaticNeighbours<'static>>; 2],
    /// A CQ for all of a node's QPs.
    pub cqs: [Cq<'d, ModelPlatform>; 2],
    channels: [ChannelId; 2],
    makes_cqs: bool,
}

impl<'w, 's, 'd> Pair<'w, 's, 'd> {
    /// Makes the managers, and lets node 1 listen.
    pub fn new(
        world: &'w World,
        devices: &'d [Device<'d, ModelPlatform>; 2],
        storage: &'s mut [Storage<'d>; 2],
    ) -> Self {
        let [first, second] = storage;
        let manager = |node: usize, storage: &'s mut Managed<'d>| {
            let config = rdma::Config {
                gsi_depth: 64,
                ..rdma::Config::new(node as u64 + 1)
            };
            RdmaCm::new(
                &devices[node],
                StaticNeighbours(&NEIGHBOURS),
                config,
                storage.storage(),
            )
            .expect("QP1")
        };
        let mut cms = [manager(0, first), manager(1, second)];
        let channels = cms
            .each_mut()
            .map(|cm| cm.create_event_channel().expect("channel"));
        let cqs = devices
            .each_ref()
            .map(|device| device.create_cq(CqInit::new(256)).expect("CQ"));
        let listener = cms[1]
            .create_id(Some(channels[1]), 0, PortSpace::Tcp)
            .expect("listener");
        cms[1]
            .bind_addr(listener, SocketAddr::new(address(1), PORT))
            .expect("bind");
        cms[1].listen(listener, 8).expect("listen");
        Self {
            world,
            cms,
            cqs,
            channels,
            makes_cqs: false,
        }
    }

    /// Keeps QPs for other connections from now on.
    pub fn recycle(&mut self, pools: &'s mut [Pool<'d>; 2]) {
        for (cm, pool) in self.cms.iter_mut().zip(pools) {
            cm.recycle_qps(pool);
        }
    }

    /// Lets the manager make the CQs of the QPs from now on, one for each queue, for its calls that take completions by id.
    pub fn make_cqs(&mut self) {
        self.makes_cqs = true;
    }

    fn qp(&mut self, node: usize, id: CmId) {
        let cap = QpCap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let cq = Some(&self.cqs[node]).filter(|_| !self.makes_cqs);
        let mut init = QpInit {
            send_cq: cq,
            recv_cq: cq,
            cap,
            ..QpInit::default()
        };
        self.cms[node].create_qp(id, None, &mut init).expect("QP");
    }

    /// Lets what is under way arrive, and takes the event that it makes.
    fn event(&mut self, node: usize, kind: EventType) -> CmEvent {
        self.world.step();
        let cm = &mut self.cms[node];
        cm.poll(cm.now()).expect("poll");
        let event = cm
            .try_get_cm_event(self.channels[node])
            .expect("channel")
            .expect("an event");
        assert_eq!((event.event, event.status), (kind, 0));
        event
    }

    /// Connects; both ends' ids.
    pub fn connect(&mut self) -> (CmId, CmId) {
        let id = self.cms[0]
            .create_id(Some(self.channels[0]), 0, PortSpace::Tcp)
            .expect("id");
        self.cms[0]
            .resolve_addr(id, None, SocketAddr::new(address(1), PORT), LONG)
            .expect("address");
        self.event(0, EventType::AddrResolved);
        self.cms[0].resolve_route(id, LONG).expect("route");
        self.event(0, EventType::RouteResolved);
        self.qp(0, id);
        self.cms[0].connect(id, None).expect("connect");

        let peer = self.event(1, EventType::ConnectRequest).id;
        self.qp(1, peer);
        self.cms[1].accept(peer, None).expect("accept");
        self.event(0, EventType::Established);
        self.event(1, EventType::Established);
        (id, peer)
    }

    /// One connection, from creating the id to destroying it.
    pub fn cycle(&mut self) {
        let (id, peer) = self.connect();
        self.cms[0].disconnect(id).expect("disconnect");
        self.event(1, EventType::Disconnected);
        self.cms[1].disconnect(peer).expect("disconnect");
        self.event(0, EventType::Disconnected);
        self.cms[0].destroy_id(id).expect("destroy");
        self.cms[1].destroy_id(peer).expect("destroy");
    }

    /// Lets timewait pass, so that connections do not pile up.
    pub fn wait_until_closed(&mut self) {
        self.world.advance(LONG);
        for cm in &mut self.cms {
            cm.poll(cm.now()).expect("poll");
            assert_eq!(cm.connections_in_use(), 0);
        }
    }
}
