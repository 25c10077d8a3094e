//! Connection set-up with something going wrong below: a bad link; a device that vanishes at any time. It ends in a
//! connection or in a typed error, and nothing is left behind.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::rdma::{self, *};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{CqError, CqInit, Cqs, Device, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::fault::Rates;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7174;

type Cm<'s, 'd> = RdmaCm<'s, 'd, ModelPlatform, StaticNeighbours<'d>>;

fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

fn quick() -> bareverbs_core::Config {
    let mut config = bareverbs_core::Config::DEFAULT;
    config.command_timeout = Duration::from_millis(50);
    config.teardown_timeout = Duration::from_millis(50);
    config.health_interval = Duration::from_millis(5);
    config
}

fn open<'s>(
    world: &World,
    node: usize,
    memory: &'s mut Resources<Qps<16>, Cqs<32>, Srqs<2>, PageChunks<256>>,
) -> Device<'s, ModelPlatform> {
    world.open(node, quick(), memory.storage(), &[ip(node)])
}

pub(crate) fn init<'a, 'd>() -> QpInit<'a, 'd, ModelPlatform> {
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

fn config(node: usize, seed: u64) -> rdma::Config {
    rdma::Config {
        gsi_depth: 16,
        ..rdma::Config::new(seed * 2 + node as u64)
    }
}

/// Connects node 0 to node 1, sends a message, disconnects. Errors of the connecting side, and those that make either
/// manager unusable, end it.
fn converse(
    tick: &mut dyn FnMut(),
    world: &World,
    cms: &mut [Cm<'_, '_>; 2],
    limit: Duration,
) -> Result<(), RdmaError> {
    let channels = [
        cms[0].create_event_channel()?,
        cms[1].create_event_channel()?,
    ];
    let listener = cms[1].create_id(Some(channels[1]), 0, PortSpace::Tcp)?;
    cms[1].bind_addr(listener, SocketAddr::new(ip(1), PORT))?;
    cms[1].listen(listener, 4)?;
    let ours = cms[0].create_id(Some(channels[0]), 0, PortSpace::Tcp)?;
    cms[0].resolve_addr(ours, None, SocketAddr::new(ip(1), PORT), SECOND)?;
    cms[0].resolve_route(ours, SECOND)?;
    tick();
    cms[0].create_qp(ours, None, &mut init())?;
    tick();
    cms[0].connect(ours, None)?;
    let start = world.now();
    let mut theirs = None;
    let mut sink = None;
    let mut up = [false; 2];
    let mut over = [false; 2];
    let mut said = false;
    while !(over[0] && over[1]) {
        if world.now() - start > limit {
            return Err(RdmaError::TimedOut);
        }
        tick();
        for node in 0..2 {
            let now = cms[node].now();
            cms[node].poll(now)?;
            while let Some(event) = cms[node].try_get_cm_event(channels[node])? {
                match event.event {
                    EventType::ConnectRequest => {
                        tick();
                        let cm = &mut cms[1];
                        let accepted = cm.create_qp(event.id, None, &mut init()).and_then(|()| {
                            let buffer = cm.reg_msgs(event.id, 16)?;
                            cm.post_recv(event.id, 1, buffer.slice(..16)?)?;
                            sink = Some(buffer);
                            cm.accept(event.id, None)
                        });
                        match accepted {
                            Ok(()) => theirs = Some(event.id),
                            // The connecting side will be notified.
                            Err(_) => cm.reject(event.id, b"sorry")?,
                        }
                    }
                    EventType::Established => up[node] = true,
                    EventType::Disconnected => over[node] = true,
                    EventType::Rejected | EventType::Unreachable | EventType::ConnectError
                        if node == 0 =>
                    {
                        return Err(RdmaError::Event {
                            event: event.event,
                            status: event.status,
                        });
                    }
                    _ => {}
                }
            }
        }
        if up[0] && theirs.is_some() && !said {
            said = true;
            tick();
            cms[0].post_send_inline(ours, 2, b"sixteen bytes...", SendFlags::SIGNALED)?;
            let until = world.now() + 20 * SECOND;
            // Both ends have to be driven, and the clock moves by itself while one waits.
            let _ = cms[0].get_send_comp_until(ours, until)?;
            let mut bytes = [0; 16];
            sink.as_ref().expect("a buffer").copy_out(0, &mut bytes)?;
            assert_eq!(&bytes, b"sixteen bytes...");
            tick();
            cms[0].disconnect(ours)?;
        }
        world.step();
        world.advance(MS / 4);
    }
    tick();
    if let Some(theirs) = theirs {
        cms[1].destroy_id(theirs)?;
    }
    cms[0].destroy_id(ours)?;
    cms[1].destroy_id(listener)
}

/// Both devices from reset to the end. `before` runs when the devices are up.
fn run_connection(
    world: &World,
    seed: u64,
    limit: Duration,
    before: impl FnOnce(&World),
    mut tick: impl FnMut(),
) -> (Result<(), RdmaError>, [u64; 2]) {
    let mut memory = [Resources::new(), Resources::new()];
    let [first, second] = &mut memory;
    let devices = [open(world, 0, first), open(world, 1, second)];
    before(world);
    let outcome = {
        let neighbours =
            [0, 1].map(|node| (ip(node), world.with_model(node, |model| model.config().mac)));
        let mut storage = [
            rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new(),
            rdma::Resources::new(),
        ];
        let [s0, s1] = &mut storage;
        let make = |node: usize, storage| {
            RdmaCm::new(
                &devices[node],
                StaticNeighbours(&neighbours),
                config(node, seed),
                storage,
            )
        };
        match (make(0, s0.storage()), make(1, s1.storage())) {
            (Ok(a), Ok(b)) => converse(&mut tick, world, &mut [a, b], limit),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    };
    // A device that lost a command may not give everything back in order; what counts is what is left.
    let quarantined = devices.map(|device| {
        device
            .close()
            .map_or_else(|error| error.bytes_quarantined, |()| 0)
    });
    (outcome, quarantined)
}

/// The firmware refused the second one's QP1 with a status that did not say why.
#[test]
fn a_second_manager_on_a_device_is_refused_by_name() {
    let world = Builder::new().function(Card::new(1)).stepped();
    let mut memory = Resources::new();
    let device = open(&world, 0, &mut memory);
    two_managers(&device);
    device.close().unwrap();
}

fn two_managers(device: &Device<'_, ModelPlatform>) {
    let mut storage = [
        rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new(),
        rdma::Resources::new(),
        rdma::Resources::new(),
    ];
    let [s0, s1, s2] = &mut storage;
    let make = |storage| RdmaCm::new(device, StaticNeighbours(&[]), config(0, 0), storage);
    let first = make(s0.storage()).unwrap();
    let error = make(s1.storage()).unwrap_err();
    assert!(error.to_string().contains("QP1 is in use"), "{error}");
    assert!(matches!(
        error,
        RdmaError::CreateQp(bareverbs_core::CreateQpError::GsiTaken)
    ));
    // It makes way when it goes.
    drop(first);
    drop(make(s2.storage()).unwrap());
}

/// `Device::close` failed at the event queue of a CQ that had stayed with the device.
#[test]
fn a_cq_that_is_dropped_before_the_id_that_uses_it_is_destroyed_with_the_qp() {
    let world = Builder::new().function(Card::new(1)).stepped();
    let mut memory = Resources::new();
    let device = open(&world, 0, &mut memory);
    drop_cq_first(&world, &device);
    device.close().unwrap();
}

fn drop_cq_first(world: &World, device: &Device<'_, ModelPlatform>) {
    let cqs = || world.with_model(0, |model| model.objects().cqs);
    let mut storage = rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new();
    let resolver = StaticNeighbours(&[]);
    let mut cm = RdmaCm::new(device, resolver, config(0, 0), storage.storage()).unwrap();
    let before = cqs();
    let cq = device.create_cq(CqInit::new(16)).unwrap();
    let id = cm.create_id(None, 0, PortSpace::Tcp).unwrap();
    cm.bind_addr(id, SocketAddr::new(ip(0), 0)).unwrap();
    let mut attr = QpInit {
        send_cq: Some(&cq),
        recv_cq: Some(&cq),
        ..init()
    };
    cm.create_qp(id, None, &mut attr).unwrap();
    // EBUSY while a QP uses it (ibv_destroy_cq(3)), and the CQ comes back.
    let Err((cq, CqError::Busy { users: 2 })) = cq.destroy() else {
        panic!("a CQ in use was destroyed");
    };
    drop(cq);
    assert_eq!(cqs(), before + 1, "it has to outlive the QP");
    cm.destroy_qp(id).unwrap();
    assert_eq!(cqs(), before);
    // One that is still used when the manager goes, goes with it.
    let cq = device.create_cq(CqInit::new(16)).unwrap();
    let mut attr = QpInit {
        send_cq: Some(&cq),
        ..init()
    };
    cm.create_qp(id, None, &mut attr).unwrap();
    drop(cq);
    drop(cm);
    assert_eq!(device.bytes_quarantined(), 0);
}

#[track_caller]
fn assert_nothing_held(world: &World, what: &str) {
    for node in 0..2 {
        assert_eq!(world.take_faults(node), [], "{what}, node {node}");
        let accounting = world.accounting(node);
        assert_eq!(
            (accounting.allocated, accounting.mapped, accounting.regions),
            (0, 0, 0),
            "{what}, node {node}: memory leaked"
        );
        world.with_model(node, |model| {
            assert_eq!(model.pages_held(), 0, "{what}, node {node}");
            assert_eq!(
                model.objects(),
                connectx_model::Objects::default(),
                "{what}, node {node}"
            );
        });
    }
}

fn world() -> World {
    Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped()
}

/// 10 % loss, duplication and reordering on the wire, for CM and data alike.
#[test]
fn bad_links() {
    let mut connected = 0;
    for seed in 0..200 {
        let world = Builder::with_link(Box::new(connectx_model::link::Cable::new()), seed)
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let rates = Rates {
            loss: 100,
            duplicate: 100,
            reorder: 100,
            ..Rates::default()
        };
        let (outcome, ..) = run_connection(
            &world,
            seed,
            200 * SECOND,
            |world| world.with_wire(|wire| wire.set_rates(rates)),
            || {},
        );
        match outcome {
            Ok(()) => connected += 1,
            Err(RdmaError::Event {
                event: EventType::Unreachable,
                ..
            }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        assert_nothing_held(&world, &format!("seed {seed}"));
    }
    assert!(connected >= 198, "only {connected} of 200");
}

/// A device that is pulled out, at each turn of a connection: the error is typed, and comes at once on the side that
/// lost its device. What the device held is given up without waiting for it.
#[test]
fn a_device_may_vanish_at_any_time() {
    let clean = world();
    let mut turns = 0;
    run_connection(&clean, 1, 60 * SECOND, |_| {}, || turns += 1)
        .0
        .expect("a connection");
    assert!(turns > 10);
    let mut unnoticed = 0;
    for node in 0..2 {
        for turn in 0..turns {
            let what = format!("turn {turn} of node {node}");
            let world = world();
            let mut now = 0;
            let tick = || {
                if now == turn {
                    world.with_model(node, connectx_model::Model::vanish);
                }
                now += 1;
            };
            let (outcome, quarantined) = run_connection(&world, 1, 60 * SECOND, |_| {}, tick);
            match outcome {
                // The side that lost its device, or its peer, whose data is not acknowledged any more.
                Err(error) => {
                    assert!(
                        [errno::EIO, errno::ETIMEDOUT].contains(&error.errno()),
                        "{what}: {error}"
                    );
                    assert_ne!(error, RdmaError::TimedOut, "{what}: stuck");
                }
                // The connection was over before the loss was detected.
                Ok(()) => unnoticed += 1,
            }
            for (node, quarantined) in quarantined.into_iter().enumerate() {
                assert_eq!(world.take_faults(node), [], "{what}, node {node}");
                // The host does not reuse what a device may still write to; that is all that is missing.
                let accounting = world.accounting(node);
                assert_eq!(
                    accounting.allocated as u64, quarantined,
                    "{what}, node {node}"
                );
                assert_eq!(accounting.mapped, 0, "{what}, node {node}");
            }
        }
    }
    // Out of twice as many.
    assert!(unnoticed <= turns / 2, "{unnoticed} unnoticed");
}
