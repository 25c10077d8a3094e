//! A waiter on a platform that reports each call, and a peer that acts at a chosen call.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bareverbs_cm::rdma::{self, *};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{Config, Cqs, Device, GidEntry, PageChunks, Platform, Qps, Srqs};
use bareverbs_in_process::{Builder, Call, ModelPlatform, Tap, Tapped, World};
use connectx_model::Config as Card;

use crate::keep::keep;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// When a waiter gives up: long after every timer of the other end.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// The largest delay of a waiter: the time that the cards and the cable take.
const MAX_WAKE_DELAY: Duration = Duration::from_millis(20);
const PORT: u16 = 7174;

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

type Act = Box<dyn FnOnce()>;

/// An action at one of the next calls of the platform on this thread.
struct Plan {
    place: Place,
    /// The number of calls before it.
    left: u64,
    act: Act,
}

/// Calls of the platform that something can happen at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// All of them.
    Any,
    /// Going to sleep. The driver holds no lock then.
    Sleep,
}

fn point(place: Place) {
    let due = PLAN.try_with(|plan| {
        let mut plan = plan.borrow_mut();
        let next = plan.as_mut()?;
        if next.place == Place::Sleep && place != Place::Sleep {
            return None;
        }
        match next.left.checked_sub(1) {
            None => plan.take(),
            Some(fewer) => {
                next.left = fewer;
                None
            }
        }
    });
    // No plan is left when the thread ends, and what it kept is freed.
    if let Ok(Some(plan)) = due {
        (plan.act)();
    }
}

/// Acts before the calls of the platform.
pub(crate) struct Points;

impl Tap for Points {
    fn before(&self, call: Call) {
        point(match call {
            Call::Sleep => Place::Sleep,
            _ => Place::Any,
        });
    }
}

pub(crate) type Watched = Tapped<Points>;

pub(crate) type Manager<P> = RdmaCm<'static, 'static, P, StaticNeighbours<'static>>;

/// The waiter, function 0, and its peer, function 1, which polls.
pub(crate) struct Lab {
    pub(crate) world: Rc<World>,
    pub(crate) device: &'static Device<'static, Watched>,
    pub(crate) cm: Manager<Watched>,
    pub(crate) channel: ChannelId,
    pub(crate) peer: Rc<RefCell<Peer>>,
}

/// The other end.
pub(crate) struct Peer {
    world: Rc<World>,
    pub(crate) cm: Manager<ModelPlatform>,
    channel: ChannelId,
}

fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

/// A device and its manager. Kept, as what happens at a call of the platform has to own what it needs.
fn node<P: Platform + 'static>(
    platform: P,
    node: usize,
    config: Config,
) -> (&'static Device<'static, P>, Manager<P>) {
    let resources = keep(bareverbs_core::Resources::<
        Qps<16>,
        Cqs<32>,
        Srqs<1>,
        PageChunks<256>,
    >::new());
    let device = Device::open(platform, config, resources.storage()).expect("bring-up");
    let device = keep(device);
    let mac = device.mac().expect("MAC");
    for (index, address) in [(0, "fe80::1".parse().unwrap()), (1, ip(node))] {
        let entry = GidEntry::roce_v2(address.into(), mac);
        device.set_gid(index, entry).expect("GID");
    }
    let cards = [0, 1].map(|node| (ip(node), [2, 0xc9, 0, 0, 0, node as u8 + 1]));
    assert_eq!(cards[node].1, mac);
    let storage = keep(rdma::Resources::<Ids<P, 16>, Channels<2>>::new());
    let config = rdma::Config {
        gsi_depth: 16,
        ..rdma::Config::new(node as u64 + 1)
    };
    let neighbours = StaticNeighbours(keep(cards));
    let cm = RdmaCm::new(device, neighbours, config, storage.storage()).expect("QP1");
    (device, cm)
}

/// Setups of a waiter's interrupts: vectors, and event queues for completions.
pub(crate) const WAYS: [(u16, u16); 3] = [(1, 0), (1, 2), (4, 2)];

impl Lab {
    /// `health`: how often the waiter checks the device's health.
    pub(crate) fn new((vectors, queues): (u16, u16), health: Duration) -> Self {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .interrupts(vectors)
            .stepped();
        let mut config = Config::DEFAULT;
        config.interrupts = true;
        config.health_interval = health;
        // The virtual clock stands still while the peer works at one point of the waiter.
        config.health_stall = Duration::MAX;
        config.completion_event_queues = queues;
        let (device, mut cm) = node(Tapped::new(world.platform(0), Points), 0, config);
        let (_, mut other) = node(world.platform(1), 1, Config::DEFAULT);
        let channel = cm.create_event_channel().unwrap();
        let world = Rc::new(world);
        let peer = Peer {
            world: world.clone(),
            channel: other.create_event_channel().unwrap(),
            cm: other,
        };
        Self {
            world,
            device,
            cm,
            channel,
            peer: Rc::new(RefCell::new(peer)),
        }
    }

    /// Lets the peer and the cards do their pending work, and the waiter as well.
    pub(crate) fn settle(&mut self) {
        for _ in 0..20 {
            self.cm.poll(self.cm.now()).unwrap();
            self.peer.borrow_mut().settle();
            self.world.advance(MS / 10);
        }
    }

    /// The waiter's next event, which is there.
    #[track_caller]
    pub(crate) fn expect(&mut self, kind: EventType) -> CmEvent {
        self.settle();
        let event = self.cm.try_get_cm_event(self.channel).unwrap();
        let event = event.unwrap_or_else(|| panic!("no {kind}"));
        assert_eq!(event.event, kind, "{event:?}");
        event
    }

    pub(crate) fn listener(&mut self) -> CmId {
        let id = self
            .cm
            .create_id(Some(self.channel), 0, PortSpace::Tcp)
            .unwrap();
        self.cm.bind_addr(id, SocketAddr::new(ip(0), PORT)).unwrap();
        self.cm.listen(id, 4).unwrap();
        id
    }

    /// An id of the waiter that has asked the peer for a connection, which the peer has accepted: its answer is there.
    pub(crate) fn answered(&mut self) -> (CmId, CmId) {
        let id = self
            .cm
            .create_id(Some(self.channel), 0, PortSpace::Tcp)
            .unwrap();
        let there = SocketAddr::new(ip(1), PORT);
        self.cm.resolve_addr(id, None, there, SECOND).unwrap();
        self.expect(EventType::AddrResolved);
        self.cm.resolve_route(id, SECOND).unwrap();
        self.expect(EventType::RouteResolved);
        self.cm.create_qp(id, None, &mut queues()).unwrap();
        self.cm.connect(id, None).unwrap();
        let mut peer = self.peer.borrow_mut();
        peer.settle();
        let theirs = peer.expect(EventType::ConnectRequest).id;
        peer.cm.create_qp(theirs, None, &mut queues()).unwrap();
        peer.cm.accept(theirs, None).unwrap();
        peer.settle();
        (id, theirs)
    }

    /// A connection: the waiter's id and the peer's.
    pub(crate) fn connected(&mut self) -> (CmId, CmId) {
        let ids = self.answered();
        self.expect(EventType::Established);
        self.peer.borrow_mut().expect(EventType::Established);
        ids
    }

    /// Waits until all connections are closed and freed.
    pub(crate) fn wait_until_closed(&mut self) {
        for _ in 0..10_000 {
            self.settle();
            while self.cm.try_get_cm_event(self.channel).unwrap().is_some() {}
            let mut peer = self.peer.borrow_mut();
            while peer.event().is_some() {}
            if self.cm.connections_in_use() + peer.cm.connections_in_use() == 0 {
                return;
            }
            drop(peer);
            self.world.advance(100 * MS);
        }
        panic!("a connection is never freed");
    }

    /// Has `arrive` happen at each `place` of `wait` in turn, up to where the waiter sleeps. It returns what is to
    /// happen, and `wait` whether it saw that, or had waited until the time that it is given. Returns how many places
    /// there were.
    pub(crate) fn at_each(
        &mut self,
        place: Place,
        mut arrive: impl FnMut(&mut Self) -> Act,
        mut wait: impl FnMut(&mut Self, Duration) -> bool,
    ) -> u64 {
        for number in 0.. {
            let happened = Rc::new(Cell::new(None));
            let act = arrive(self);
            let act = Box::new({
                let (world, happened) = (self.world.clone(), happened.clone());
                move || {
                    happened.set(Some(world.now()));
                    act();
                }
            });
            let started = self.world.now();
            PLAN.set(Some(Plan {
                place,
                left: number,
                act,
            }));
            let seen = wait(self, started + TIMEOUT);
            let late = PLAN.take();
            match happened.get() {
                Some(at) if at < started + TIMEOUT => {
                    assert!(seen, "place {number}: the waiter did not wake");
                    let passed = self.world.now() - at;
                    assert!(
                        passed < MAX_WAKE_DELAY,
                        "place {number}: woken after {passed:?}"
                    );
                }
                // The waiter slept until its deadline.
                _ => {
                    if let Some(plan) = late {
                        (plan.act)();
                    }
                    let started = self.world.now();
                    assert!(
                        seen || wait(self, started + TIMEOUT),
                        "after the last place"
                    );
                    assert!(self.world.now() - started < MAX_WAKE_DELAY);
                    return number;
                }
            }
        }
        unreachable!("numbers do not end")
    }
}

impl Peer {
    pub(crate) fn settle(&mut self) {
        for _ in 0..10 {
            self.cm.poll(self.cm.now()).unwrap();
            while self.world.step() {}
        }
    }

    pub(crate) fn event(&mut self) -> Option<CmEvent> {
        self.cm.try_get_cm_event(self.channel).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, kind: EventType) -> CmEvent {
        self.settle();
        let event = self.event().unwrap_or_else(|| panic!("no {kind}"));
        assert_eq!(event.event, kind, "{event:?}");
        event
    }

    pub(crate) fn listener(&mut self) -> CmId {
        let id = self
            .cm
            .create_id(Some(self.channel), 0, PortSpace::Tcp)
            .unwrap();
        self.cm.bind_addr(id, SocketAddr::new(ip(1), PORT)).unwrap();
        self.cm.listen(id, 4).unwrap();
        id
    }

    /// An id that can ask the waiter for a connection.
    pub(crate) fn client(&mut self) -> CmId {
        let id = self
            .cm
            .create_id(Some(self.channel), 0, PortSpace::Tcp)
            .unwrap();
        let there = SocketAddr::new(ip(0), PORT);
        self.cm.resolve_addr(id, None, there, SECOND).unwrap();
        self.expect(EventType::AddrResolved);
        self.cm.resolve_route(id, SECOND).unwrap();
        self.expect(EventType::RouteResolved);
        self.cm.create_qp(id, None, &mut queues()).unwrap();
        id
    }
}

pub(crate) fn queues<P: Platform>() -> QpInit<'static, 'static, P> {
    QpInit {
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        },
        ..QpInit::default()
    }
}
