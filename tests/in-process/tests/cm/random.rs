//! Random calls on two managers with a bad cable between them, on fast cards and slow ones: nothing panics, no call blocks, and once every id is
//! destroyed and the disconnects are answered, no connection is left.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::rdma::{self, *};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{Cqs, Device, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::Cable;
use connectx_model::link::fault::Rates;

use crate::support::Random;

type Cm<'s, 'd> = RdmaCm<'s, 'd, ModelPlatform, StaticNeighbours<'d>>;

fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

fn open<'s>(
    world: &World,
    node: usize,
    memory: &'s mut Resources<Qps<24>, Cqs<48>, Srqs<2>, PageChunks<256>>,
) -> Device<'s, ModelPlatform> {
    let config = bareverbs_core::Config::DEFAULT;
    world.open(node, config, memory.storage(), &[ip(node)])
}

fn act(
    random: &mut Random,
    cm: &mut Cm<'_, '_>,
    node: usize,
    channels: &[ChannelId; 2],
    ids: &mut Vec<CmId>,
) {
    let some = |random: &mut Random, ids: &[CmId]| match ids.len() {
        0 => None,
        len => Some(ids[random.below(len)]),
    };
    let port = 5 + random.below(2) as u16;
    let channel = channels[random.below(2)];
    let second = Duration::from_secs(1);
    let Some(id) = some(random, ids).filter(|_| random.below(6) > 0) else {
        let port_space = [PortSpace::Tcp, PortSpace::Tcp, PortSpace::Udp][random.below(3)];
        if let Ok(id) = cm.create_id(Some(channel), 0, port_space) {
            ids.push(id);
        }
        return;
    };
    let mut init = QpInit {
        cap: QpCap {
            max_send_wr: 2,
            max_recv_wr: 2,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        },
        ..QpInit::default()
    };
    // Mostly what leads on, so that all states are reached.
    let sensible = match cm.state(id) {
        Ok(IdState::Idle) if node == 0 => 4,
        Ok(IdState::Idle) => 1,
        Ok(IdState::AddrBound) => 2,
        Ok(IdState::AddrResolved) => 7,
        Ok(IdState::RouteResolved) if cm.pd(id).is_ok() => 13,
        Ok(IdState::Connect) if node == 1 && cm.pd(id).is_ok() => 16,
        Ok(IdState::RouteResolved | IdState::Connect) => 10,
        _ => 25,
    };
    let any = random.below(26);
    let group = IpAddr::from([239, 0, 0, random.below(2) as u8]);
    // What any of these answers does not matter here.
    let _ = match if random.below(4) == 0 { any } else { sensible } {
        0 => cm.bind_addr(id, SocketAddr::new(ip(node), port)),
        1 => cm.bind_addr(id, SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port)),
        2 | 3 => cm.listen(id, random.below(3) as u32),
        4..7 => cm.resolve_addr(id, None, SocketAddr::new(ip(1 - node), port), second),
        7..10 => cm.resolve_route(id, second),
        10 => cm.create_qp(id, None, &mut init),
        11..13 => cm.start_qp(id, None, &mut init),
        13..16 => cm.connect(id, None),
        16 | 17 => cm.accept(id, None),
        18 => cm.reject(id, b"no"),
        19 => cm.disconnect(id),
        20 => cm.migrate_id(id, Some(channel)),
        21 => cm.write_cm_event(id, 0, 0),
        22 => cm.post_send_inline(id, 1, b"data", SendFlags::SIGNALED),
        23 => cm.join_multicast(id, group, 0),
        24 => cm.leave_multicast(id, group),
        _ => {
            ids.retain(|other| *other != id);
            cm.destroy_id(id)
        }
    };
}

#[test]
fn random_calls() {
    let mut connections = 0;
    for seed in 0..16 {
        // The firmware takes its time with the second half.
        let card = |node| Card {
            command_time: Duration::from_micros(if seed < 8 { 0 } else { 150 }),
            ..Card::new(node)
        };
        let world = Builder::with_link(Box::new(Cable::new()), seed)
            .function(card(1))
            .function(card(2))
            .stepped();
        let mut random = Random(seed);
        let mut memory = [Resources::new(), Resources::new()];
        let [first, second] = &mut memory;
        let devices = [open(&world, 0, first), open(&world, 1, second)];
        if random.below(2) == 0 {
            let rates = Rates {
                loss: 100,
                duplicate: 100,
                reorder: 100,
                ..Rates::default()
            };
            world.with_wire(|wire| wire.set_rates(rates));
        }
        let neighbours =
            [0, 1].map(|node| (ip(node), world.with_model(node, |model| model.config().mac)));
        let mut storage = [
            rdma::Resources::<Ids<ModelPlatform, 12>, Channels<2>>::new(),
            rdma::Resources::new(),
        ];
        let [s0, s1] = &mut storage;
        let config = |node| rdma::Config {
            gsi_depth: 32,
            ..rdma::Config::new(seed * 2 + node)
        };
        let mut cms = [
            RdmaCm::new(
                &devices[0],
                StaticNeighbours(&neighbours),
                config(0),
                s0.storage(),
            )
            .expect("QP1"),
            RdmaCm::new(
                &devices[1],
                StaticNeighbours(&neighbours),
                config(1),
                s1.storage(),
            )
            .expect("QP1"),
        ];
        let channels = [0, 1].map(|node: usize| {
            [0; 2].map(|_: u32| cms[node].create_event_channel().expect("a channel"))
        });
        let mut ids = [Vec::new(), Vec::new()];
        for _ in 0..300 {
            let node = random.below(2);
            act(
                &mut random,
                &mut cms[node],
                node,
                &channels[node],
                &mut ids[node],
            );
            if random.below(2) == 0 {
                let scale = random.below(22);
                world.advance(Duration::from_micros(random.below(1 << scale) as u64));
            }
            for node in 0..2 {
                let now = cms[node].now();
                cms[node]
                    .poll(now)
                    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                if random.below(3) == 0
                    && let Ok(Some(event)) =
                        cms[node].try_get_cm_event(channels[node][random.below(2)])
                {
                    connections += u32::from(event.event == EventType::Established);
                    if event.event == EventType::ConnectRequest {
                        ids[node].push(event.id);
                    }
                }
            }
        }
        // Requests that were not fetched go with their listeners.
        for (cm, ids) in cms.iter_mut().zip(&ids) {
            for id in ids {
                let _ = cm.destroy_id(*id);
            }
        }
        world.with_wire(|wire| wire.set_rates(Rates::default()));
        for _ in 0..40 {
            world.advance(Duration::from_millis(250));
            for (node, cm) in cms.iter_mut().enumerate() {
                cm.poll(cm.now()).expect("still there");
                for channel in channels[node] {
                    while let Ok(Some(event)) = cm.try_get_cm_event(channel) {
                        let _ = cm.destroy_id(event.id);
                    }
                }
            }
        }
        for cm in &mut cms {
            assert_eq!(
                (cm.ids_in_use(), cm.connections_in_use()),
                (0, 0),
                "seed {seed}"
            );
        }
        drop(cms);
        drop(storage);
        for (node, device) in devices.into_iter().enumerate() {
            device.close().expect("orderly");
            assert_eq!(world.take_faults(node), [], "seed {seed}");
            assert_eq!(world.accounting(node).allocated, 0, "seed {seed}");
        }
    }
    assert!(
        connections > 8,
        "only {connections} connections came about: the calls do not fit together"
    );
}
