//! A connection of the connection manager between two cards of a kind: set up, used, taken down.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::rdma::{
    self, ChannelId, Channels, CmEvent, EventType, Ids, PortSpace, QpInit, RdmaCm, SendFlags,
    StaticNeighbours,
};
use bareverbs_core::{Config, Cqs, Device, Mtu, PageChunks, QpCap, Qps, Resources, Srqs, WcStatus};
use bareverbs_in_process::{Builder, ModelPlatform, World, bring_up};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(10);
const PORT: u16 = 7174;
const TEXT: &[u8] = b"over a connection";

type Cm<'s, 'd> = RdmaCm<'s, 'd, ModelPlatform, StaticNeighbours<'s>>;

fn ip(node: usize) -> IpAddr {
    [10, 0, 0, node as u8 + 1].into()
}

fn qp<'q, 'd>() -> QpInit<'q, 'd, ModelPlatform> {
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

fn turn(world: &World, cms: &mut [Cm<'_, '_>; 2]) {
    for cm in cms.iter_mut() {
        cm.poll(cm.now()).expect("the manager works");
    }
    world.step();
    world.advance(MS / 10);
}

#[track_caller]
fn expect(
    world: &World,
    cms: &mut [Cm<'_, '_>; 2],
    channels: [ChannelId; 2],
    node: usize,
    kind: EventType,
) -> CmEvent {
    let end = world.now() + LIMIT;
    loop {
        let event = cms[node].try_get_cm_event(channels[node]).expect("channel");
        if let Some(event) = event {
            assert_eq!(event.event, kind, "{event:?}");
            return event;
        }
        assert!(world.now() < end, "no {kind:?}");
        turn(world, cms);
    }
}

fn connection(world: &World, cms: &mut [Cm<'_, '_>; 2]) {
    let channels = [0, 1].map(|node: usize| cms[node].create_event_channel().expect("channel"));
    let listener = cms[1]
        .create_id(Some(channels[1]), 0, PortSpace::Tcp)
        .expect("id");
    let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
    cms[1].bind_addr(listener, any).expect("bound");
    cms[1].listen(listener, 1).expect("listens");
    let ours = cms[0]
        .create_id(Some(channels[0]), 0, PortSpace::Tcp)
        .expect("id");
    let to = SocketAddr::new(ip(1), PORT);
    cms[0]
        .resolve_addr(ours, None, to, LIMIT)
        .expect("resolves");
    expect(world, cms, channels, 0, EventType::AddrResolved);
    cms[0].resolve_route(ours, LIMIT).expect("resolves");
    expect(world, cms, channels, 0, EventType::RouteResolved);
    cms[0].create_qp(ours, None, &mut qp()).expect("QP");
    cms[0].connect(ours, None).expect("connects");
    let theirs = expect(world, cms, channels, 1, EventType::ConnectRequest).id;
    cms[1].create_qp(theirs, None, &mut qp()).expect("QP");
    cms[1].accept(theirs, None).expect("accepts");
    expect(world, cms, channels, 0, EventType::Established);
    expect(world, cms, channels, 1, EventType::Established);

    for (from, to) in [((0, ours), (1, theirs)), ((1, theirs), (0, ours))] {
        let source = cms[from.0].reg_msgs(from.1, TEXT.len()).expect("memory");
        let sink = cms[to.0].reg_msgs(to.1, TEXT.len()).expect("memory");
        source.copy_in(0, TEXT).expect("fits");
        cms[to.0]
            .post_recv(to.1, 21, sink.slice(..TEXT.len()).unwrap())
            .expect("within the buffer");
        cms[from.0]
            .post_send(
                from.1,
                22,
                source.slice(..TEXT.len()).unwrap(),
                SendFlags::SIGNALED,
            )
            .expect("within the buffer");
        let end = world.now() + LIMIT;
        let sent = cms[from.0].get_send_comp_until(from.1, end).expect("sent");
        assert_eq!((sent.wr_id, sent.status), (22, WcStatus::Success));
        let got = cms[to.0].get_recv_comp_until(to.1, end).expect("received");
        assert_eq!((got.wr_id, got.status), (21, WcStatus::Success));
        let mut text = [0; TEXT.len()];
        sink.copy_out(0, &mut text).expect("fits");
        assert_eq!(text, TEXT);
    }

    cms[0].disconnect(ours).expect("disconnects");
    expect(world, cms, channels, 1, EventType::Disconnected);
    expect(world, cms, channels, 0, EventType::Disconnected);
    for (node, id) in [(0, ours), (1, theirs), (1, listener)] {
        cms[node].destroy_qp(id).ok();
        cms[node].destroy_id(id).expect("destroyed");
    }
}

#[test]
fn every_card_holds_a_connection() {
    crate::on_each(|card| {
        let world = Builder::new()
            .function(connectx_model::Config::card(card, 1))
            .function(connectx_model::Config::card(card, 2))
            .stepped();
        let mut resources = [
            Box::new(Resources::<Qps<8>, Cqs<16>, Srqs<2>, PageChunks<64>>::new()),
            Box::new(Resources::<Qps<8>, Cqs<16>, Srqs<2>, PageChunks<64>>::new()),
        ];
        let [first, second] = &mut resources;
        let open = |node: usize, storage| -> Device<'_, ModelPlatform> {
            bring_up(world.platform(node), Config::DEFAULT, storage, &[ip(node)])
        };
        let devices = [open(0, first.storage()), open(1, second.storage())];
        let neighbours = [0, 1].map(|node| (ip(node), devices[node].mac().expect("MAC")));
        {
            let mut memory = [
                Box::new(rdma::Resources::<Ids<ModelPlatform, 8>, Channels<2>>::new()),
                Box::new(rdma::Resources::<Ids<ModelPlatform, 8>, Channels<2>>::new()),
            ];
            let [first, second] = &mut memory;
            let manager = |node: usize, storage| -> Cm<'_, '_> {
                let config = rdma::Config {
                    gsi_depth: 16,
                    max_path_mtu: Mtu::B1024,
                    ..rdma::Config::new(node as u64 + 1)
                };
                let neighbours = StaticNeighbours(&neighbours);
                RdmaCm::new(&devices[node], neighbours, config, storage).expect("QP1")
            };
            let mut cms = [manager(0, first.storage()), manager(1, second.storage())];
            connection(&world, &mut cms);
        }
        for device in devices {
            device.close().expect("teardown");
        }
        for node in [0, 1] {
            assert_eq!(world.take_faults(node), [], "{card}");
            let accounting = world.accounting(node);
            assert_eq!((accounting.allocated, accounting.mapped), (0, 0), "{card}");
            world.with_model(node, |model| {
                assert_eq!(model.leaks(), [], "{card}");
                assert_eq!(
                    model.objects(),
                    connectx_model::Objects::default(),
                    "{card}"
                );
            });
        }
    });
}
