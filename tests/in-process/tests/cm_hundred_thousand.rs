//! A hundred thousand connections between two managers, all of them open at once: the ids, the engine and QP1 over the wire.
//! The QPs are the application's (here only their numbers), since it is the manager that is tried, not the cards' memory.
//!
//! Without optimization a tenth of them has to do; the engine's own test has all of them either way.

#[path = "../helpers/keep.rs"]
mod keep;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::engine::{ListenerSlot, ReplySlot, Slot};
use bareverbs_cm::rdma::{self, *};
use bareverbs_core::{Cqs, Device, PageChunks, Qps, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;

use keep::keep;

const COUNT: usize = if cfg!(debug_assertions) {
    10_000
} else {
    100_000
};
/// So many under way at once: a burst that QP1's receive queue can hold.
const BATCH: usize = 250;
const PORT: u16 = 7174;
const FIRST_QP: usize = 0x100;
const LONG: Duration = Duration::from_secs(10);
/// Addresses of the client, each with just as many ports as are needed.
const SOURCES: usize = 4;

type Cm = RdmaCm<'static, 'static, ModelPlatform, StaticNeighbours<'static>>;

fn source(nth: usize) -> IpAddr {
    IpAddr::from([10, 0, 1, nth as u8 + 1])
}

fn server() -> IpAddr {
    IpAddr::from([10, 0, 0, 2])
}

fn manager(
    device: &'static Device<'static, ModelPlatform>,
    neighbours: Vec<(IpAddr, [u8; 6])>,
    seed: u64,
) -> Cm {
    let ids = (0..COUNT + 1).map(|_| IdSlot::EMPTY).collect::<Vec<_>>();
    let storage = rdma::Storage {
        ids: keep(ids),
        channels: keep(vec![ChannelSlot::EMPTY]),
        connections: keep(vec![Slot::EMPTY; COUNT]),
        listeners: keep(vec![ListenerSlot::EMPTY]),
        replies: keep(vec![ReplySlot::EMPTY; 16]),
        sidr: &mut [],
        groups: &mut [],
        deferred_mads: &mut [],
    };
    let table = StaticNeighbours(keep(neighbours));
    let mut config = rdma::Config::new(seed);
    config.last_port = config.first_port + (COUNT / SOURCES) as u16 - 1;
    RdmaCm::new(device, table, config, storage).expect("QP1")
}

struct Nodes {
    world: World,
    cms: [Cm; 2],
    channels: [ChannelId; 2],
}

impl Nodes {
    fn new() -> Self {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let sources: Vec<_> = (0..SOURCES).map(source).collect();
        let open = |node: usize, addresses: &[IpAddr]| -> &'static Device<'_, _> {
            let memory =
                bareverbs_core::Resources::<Qps<16>, Cqs<32>, Srqs<2>, PageChunks<256>>::new();
            let memory = keep(memory).storage();
            let config = bareverbs_core::Config::DEFAULT;
            keep(world.open(node, config, memory, addresses))
        };
        let devices = [open(0, &sources), open(1, &[server()])];
        let macs = devices.map(|device| device.mac().unwrap());
        let clients = sources.iter().map(|ip| (*ip, macs[0])).collect();
        let mut cms = [
            manager(devices[0], vec![(server(), macs[1])], 1),
            manager(devices[1], clients, 2),
        ];
        let channels = cms.each_mut().map(|cm| cm.create_event_channel().unwrap());
        Self {
            world,
            cms,
            channels,
        }
    }

    /// Lets everything happen that is under way, and hands the events to `act`.
    fn settle(&mut self, mut act: impl FnMut(usize, &mut Cm, CmEvent)) {
        let mut quiet = 0;
        while quiet < 2 {
            quiet += 1;
            if self.world.step() {
                quiet = 0;
            }
            for (node, cm) in self.cms.iter_mut().enumerate() {
                cm.poll(cm.now()).unwrap();
                while let Some(event) = cm.try_get_cm_event(self.channels[node]).unwrap() {
                    quiet = 0;
                    act(node, cm, event);
                }
            }
        }
    }

    /// Connects so many more; both ends' ids.
    fn connect(&mut self, from: usize, count: usize) -> Vec<[CmId; 2]> {
        let target = SocketAddr::new(server(), PORT);
        for nth in from..from + count {
            let cm = &mut self.cms[0];
            let context = nth as u64;
            let id = cm
                .create_id(Some(self.channels[0]), context, PortSpace::Tcp)
                .unwrap();
            let source = SocketAddr::new(source(nth % SOURCES), 0);
            cm.resolve_addr(id, Some(source), target, LONG).unwrap();
            cm.resolve_route(id, LONG).unwrap();
            cm.connect(id, Some(&with_qp(nth))).unwrap();
        }
        let mut pairs = Vec::with_capacity(count);
        let mut accepted = Vec::with_capacity(count);
        self.settle(|_, cm, event| match event.event {
            EventType::ConnectRequest => {
                let nth = event.conn.qp_num as usize - FIRST_QP;
                cm.accept(event.id, Some(&with_qp(nth))).unwrap();
                accepted.push((nth, event.id));
            }
            EventType::ConnectResponse => {
                let nth = event.conn.qp_num as usize - FIRST_QP;
                assert_eq!(nth as u64, event.context);
                cm.establish(event.id).unwrap();
                pairs.push((nth, event.id));
            }
            EventType::AddrResolved | EventType::RouteResolved | EventType::Established => {}
            _ => panic!("{event:?}"),
        });
        assert_eq!((pairs.len(), accepted.len()), (count, count));
        pairs.sort_by_key(|(nth, _)| *nth);
        accepted.sort_by_key(|(nth, _)| *nth);
        let both = pairs.iter().zip(&accepted);
        both.map(|((_, ours), (_, theirs))| [*ours, *theirs])
            .collect()
    }
}

fn with_qp(nth: usize) -> ConnParam<'static> {
    ConnParam {
        qp_num: (FIRST_QP + nth) as u32,
        ..ConnParam::default()
    }
}

#[test]
fn held_open_and_taken_down() {
    let mut nodes = Nodes::new();
    let listener = nodes.cms[1]
        .create_id(Some(nodes.channels[1]), 0, PortSpace::Tcp)
        .unwrap();
    nodes.cms[1]
        .bind_addr(listener, SocketAddr::new(server(), PORT))
        .unwrap();
    nodes.cms[1].listen(listener, 0).unwrap();

    let mut pairs = Vec::with_capacity(COUNT);
    while pairs.len() < COUNT {
        pairs.extend(nodes.connect(pairs.len(), BATCH));
    }
    let in_use = |nodes: &Nodes| nodes.cms.each_ref().map(|cm| cm.connections_in_use());
    assert_eq!(in_use(&nodes), [COUNT; 2]);
    // No port is left.
    let one_more = nodes.cms[0]
        .create_id(Some(nodes.channels[0]), 0, PortSpace::Tcp)
        .unwrap();
    let bound = nodes.cms[0].bind_addr(one_more, SocketAddr::new(source(0), 0));
    assert!(matches!(bound, Err(RdmaError::AddrNotAvailable(_))));
    nodes.cms[0].destroy_id(one_more).unwrap();
    // A quiet day.
    nodes.world.advance(Duration::from_secs(24 * 3600));
    nodes.settle(|_, _, event| panic!("{event:?}"));
    for (nth, pair) in pairs.iter().enumerate() {
        for (node, id) in pair.iter().enumerate() {
            let attr = nodes.cms[node].init_qp_attr(*id, bareverbs_core::QpState::Rtr);
            let peer = attr.unwrap().0.dest_qp_num.number();
            assert_eq!(peer as usize, FIRST_QP + nth);
        }
    }

    for pairs in pairs.chunks(BATCH) {
        for [ours, _] in pairs {
            nodes.cms[0].disconnect(*ours).unwrap();
        }
        let mut over = 0;
        nodes.settle(|_, cm, event| {
            assert_eq!(event.event, EventType::Disconnected);
            cm.destroy_id(event.id).unwrap();
            over += 1;
        });
        assert_eq!(over, 2 * pairs.len());
    }
    nodes.world.advance(LONG);
    nodes.settle(|_, _, event| panic!("{event:?}"));
    assert_eq!(in_use(&nodes), [0; 2]);
    nodes.cms[1].destroy_id(listener).unwrap();
    for cm in &nodes.cms {
        let stats = cm.stats();
        assert_eq!((stats.repeated, stats.duplicates, stats.ignored), (0, 0, 0));
        assert_eq!(cm.ids_in_use(), 0);
    }
    println!(
        "{} bytes per id, {} per connection",
        size_of::<IdSlot<'_, ModelPlatform>>(),
        size_of::<Slot>()
    );
}
