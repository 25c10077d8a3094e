//! A thousand connections at once, on cards whose firmware takes its time: 20, 100 and 300 µs a command, as ConnectX cards
//! do.
//!
//! Two managers on one thread, in virtual time, which passes only while both wait: what the processor takes is not counted
//! here (`connection` counts it), waiting for the firmware is. The time of a connection begins before its QPs are
//! created. The commands on the critical path of a side are those that one connection alone waits for: its time with slow
//! commands on that side, and commands that take no time on the other.
//!
//! Then 100,000 QPs without connections, and the opening of a device.

#[path = "connections/bring_up.rs"]
mod bring_up;
#[path = "connections/many_qps.rs"]
mod many_qps;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use bareverbs_bench::report::verdict;
use bareverbs_cm::engine::{ListenerSlot, ReplySlot, Slot};
use bareverbs_cm::rdma::{
    self, ChannelId, ChannelSlot, CmId, DeferredMadSlot, EventType, IdSlot, PooledQp, PortSpace,
    QpInit, RdmaCm, StaticNeighbours,
};
use bareverbs_core::qp::QpCap;
use bareverbs_core::{Config, Cq, CqInit, Cqs, Device, PageChunks, Platform, Qps, Resources, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};

/// Connections at once.
const MANY: usize = 1000;
const PORT: u16 = 7174;
const LONG: Duration = Duration::from_secs(10);
const NEIGHBOURS: [(IpAddr, [u8; 6]); 2] = [(address(0), mac(0)), (address(1), mac(1))];

/// A command's time in µs, and what a connection may take then, in µs.
const GOALS: [(u64, f64); 3] = [(20, 30.0), (100, 60.0), (300, 160.0)];
/// Commands on the critical path of one connection alone, on each side: with new QPs, and with QPs that are used again.
const LATENCIES: [f64; 2] = [4.0, 2.0];

/// Limits for 100,000 QPs in seconds: the goal, and the last result plus 2 %. Destruction has no goal of its own.
const MANY_QPS: [(&str, f64, f64); 2] = [
    ("from creation to RTS", 1.0, 0.287),
    ("destroyed", 1.0, 0.136),
];

/// Completion event queues, and how many command latencies opening a device may take.
/// One of them turns dynamic connections on (SET_HCA_CAP).
const OPENING: [(u16, f64); 3] = [(0, 14.0), (1, 14.0), (16, 14.0)];

const fn address(node: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node + 1))
}

const fn mac(node: u8) -> [u8; 6] {
    [2, 0xc9, 0, 0, 0, node + 1]
}

/// The costs of some connections.
struct Outcome {
    /// From before the first QP to the last `Established`.
    time: Duration,
    /// Messages that each side has sent again.
    repeated: [u64; 2],
    /// Commands that each side's firmware has answered.
    commands: [u64; 2],
}

type Memory = Resources<Qps<1100>, Cqs<8>, Srqs<1>, PageChunks<1024>>;

/// The slots of a manager.
struct Slots<'d> {
    ids: Vec<IdSlot<'d, ModelPlatform>>,
    channels: Vec<ChannelSlot>,
    connections: Vec<Slot>,
    listeners: Vec<ListenerSlot>,
    replies: Vec<ReplySlot>,
    deferred: Vec<DeferredMadSlot>,
    pool: Vec<PooledQp<'d, ModelPlatform>>,
}

fn many<T>(count: usize, slot: impl Fn() -> T) -> Vec<T> {
    std::iter::repeat_with(slot).take(count).collect()
}

impl<'d> Slots<'d> {
    fn new() -> Self {
        Self {
            // Twice as many, so that none counts as half open for too long.
            ids: many(2 * MANY, || IdSlot::EMPTY),
            channels: many(1, || ChannelSlot::EMPTY),
            connections: many(2 * MANY, || Slot::EMPTY),
            listeners: many(1, || ListenerSlot::EMPTY),
            replies: many(8, || ReplySlot::EMPTY),
            deferred: many(8, || DeferredMadSlot::EMPTY),
            pool: many(1, || PooledQp::EMPTY),
        }
    }

    /// The storage of the manager, and that of QPs that are kept.
    fn storage(
        &mut self,
    ) -> (
        rdma::Storage<'_, 'd, ModelPlatform>,
        &mut [PooledQp<'d, ModelPlatform>],
    ) {
        let storage = rdma::Storage {
            ids: &mut self.ids,
            channels: &mut self.channels,
            connections: &mut self.connections,
            listeners: &mut self.listeners,
            replies: &mut self.replies,
            sidr: &mut [],
            groups: &mut [],
            deferred_mads: &mut self.deferred,
        };
        (storage, &mut self.pool)
    }
}

/// One side: its manager, the CQ of all its QPs, and its event channel.
struct Side<'s, 'd> {
    cm: RdmaCm<'s, 'd, ModelPlatform, StaticNeighbours<'static>>,
    cq: Cq<'d, ModelPlatform>,
    channel: ChannelId,
}

impl<'s, 'd> Side<'s, 'd> {
    fn new(node: usize, device: &'d Device<'d, ModelPlatform>, slots: &'s mut Slots<'d>) -> Self {
        let config = rdma::Config {
            gsi_depth: 4096,
            max_backlog: 2 * MANY as u32,
            ..rdma::Config::new(node as u64 + 1)
        };
        let neighbours = StaticNeighbours(&NEIGHBOURS);
        let (storage, pool) = slots.storage();
        let mut cm = RdmaCm::new(device, neighbours, config, storage).expect("QP1");
        cm.recycle_qps(pool);
        Self {
            channel: cm.create_event_channel().expect("channel"),
            cq: device.create_cq(CqInit::new(1023)).expect("CQ"),
            cm,
        }
    }

    /// Begins to make the QP of an id.
    fn begin_qp(&mut self, id: CmId) {
        let cap = QpCap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let mut init = QpInit {
            send_cq: Some(&self.cq),
            recv_cq: Some(&self.cq),
            cap,
            ..QpInit::default()
        };
        self.cm.start_qp(id, None, &mut init).expect("QP");
    }

    fn poll(&mut self) {
        self.cm.poll(self.cm.now()).expect("poll");
    }

    fn event(&mut self) -> Option<rdma::CmEvent> {
        self.cm.try_get_cm_event(self.channel).expect("channel")
    }

    /// An id that is ready to connect.
    fn resolved(&mut self) -> CmId {
        let id = self
            .cm
            .create_id(Some(self.channel), 0, PortSpace::Tcp)
            .expect("id");
        let to = SocketAddr::new(address(1), PORT);
        self.cm.resolve_addr(id, None, to, LONG).expect("address");
        self.wait_for(EventType::AddrResolved);
        self.cm.resolve_route(id, LONG).expect("route");
        self.wait_for(EventType::RouteResolved);
        id
    }

    fn wait_for(&mut self, kind: EventType) {
        let event = self.cm.get_cm_event(self.channel).expect("event");
        assert_eq!((event.event, event.status), (kind, 0));
    }

    fn counts(&self) -> (u64, u64) {
        let commands = self.cm.device().commands_executed();
        (self.cm.stats().repeated, commands)
    }
}

/// Makes `count` connections at once; a command takes `times` on each side. With `again`, that is done a second time, after
/// the first ones are over.
fn connect(count: usize, times: [Duration; 2], again: bool) -> Outcome {
    let card = |node: u8| connectx_model::Config {
        mac: mac(node),
        command_time: times[usize::from(node)],
        ..connectx_model::Config::new(node + 1)
    };
    let world = Builder::new().function(card(0)).function(card(1)).stepped();
    let mut memory = [Box::new(Memory::new()), Box::new(Memory::new())];
    let [first, second] = &mut memory;
    let devices = [
        world.open(0, Config::DEFAULT, first.storage(), &[NEIGHBOURS[0].0]),
        world.open(1, Config::DEFAULT, second.storage(), &[NEIGHBOURS[1].0]),
    ];
    let mut slots = [Slots::new(), Slots::new()];
    let [first, second] = &mut slots;
    let mut client = Side::new(0, &devices[0], first);
    let mut server = Side::new(1, &devices[1], second);
    let listener = server
        .cm
        .create_id(Some(server.channel), 0, PortSpace::Tcp)
        .expect("listener");
    let here = SocketAddr::new(address(1), PORT);
    server.cm.bind_addr(listener, here).expect("bind");
    server.cm.listen(listener, 0).expect("listen");
    let mut outcome = None;
    for round in 0..1 + u8::from(again) {
        if round > 0 {
            // Until timewait is over, and the QPs are where they can be taken from.
            for _ in 0..100 {
                world.advance(LONG / 100);
                client.poll();
                server.poll();
            }
            while client.event().is_some() || server.event().is_some() {}
        }
        let (done, ids) = connect_once(&world, &devices[0], &mut client, &mut server, count);
        outcome = Some(done);
        if again {
            end(&world, &mut client, &mut server, ids);
        }
    }
    outcome.expect("a round")
}

/// The ids of both sides.
type Connected = [Vec<CmId>; 2];

/// Ends connections, in order.
fn end(world: &World, client: &mut Side<'_, '_>, server: &mut Side<'_, '_>, ids: Connected) {
    let [ours, theirs] = ids;
    for &id in &ours {
        client.cm.disconnect(id).expect("disconnect");
    }
    for _ in 0..100 {
        client.poll();
        server.poll();
        world.advance(Duration::from_millis(1));
    }
    for id in theirs {
        server.cm.disconnect(id).expect("disconnect");
        server.cm.destroy_id(id).expect("destroy");
    }
    for _ in 0..100 {
        client.poll();
        server.poll();
        world.advance(Duration::from_millis(1));
    }
    for id in ours {
        client.cm.destroy_id(id).expect("destroy");
    }
}

fn connect_once<'d>(
    world: &World,
    device: &Device<'d, ModelPlatform>,
    client: &mut Side<'_, 'd>,
    server: &mut Side<'_, 'd>,
    count: usize,
) -> (Outcome, Connected) {
    let ids: Vec<_> = (0..count).map(|_| client.resolved()).collect();

    let start = world.now();
    let before = [client.counts(), server.counts()];
    let mut theirs = Vec::new();
    for &id in &ids {
        client.begin_qp(id);
        client.cm.connect(id, None).expect("connect");
    }
    let mut left = 2 * count;
    while left > 0 {
        client.poll();
        server.poll();
        let mut any = world.step();
        while let Some(event) = client.event() {
            assert_eq!((event.event, event.status), (EventType::Established, 0));
            (left, any) = (left - 1, true);
        }
        while let Some(event) = server.event() {
            any = true;
            if event.event == EventType::ConnectRequest {
                theirs.push(event.id);
                server.begin_qp(event.id);
                server.cm.accept(event.id, None).expect("accept");
            } else {
                assert_eq!((event.event, event.status), (EventType::Established, 0));
                left -= 1;
            }
        }
        assert!(world.now() < start + 100 * LONG, "it hangs");
        if !any {
            // Both wait: time passes.
            device.platform().relax();
        }
    }
    let time = world.now() - start;
    let after = [client.counts(), server.counts()];
    let [repeated, commands] = [
        [0, 1].map(|side: usize| after[side].0 - before[side].0),
        [0, 1].map(|side: usize| after[side].1 - before[side].1),
    ];
    let outcome = Outcome {
        time,
        repeated,
        commands,
    };
    (outcome, [ids, theirs])
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn main() -> ExitCode {
    println!(
        "{MANY} connections at once, both ends, QPs and their creation included (virtual time)\n"
    );
    println!(
        "| a command, µs | µs each | goal | messages repeated, active / passive | commands each, active / passive | |"
    );
    println!("| --: | --: | --: | --: | --: | --- |");
    let (mut passed, mut failed) = (0, 0);
    let mut gate = |holds: bool| {
        *(if holds { &mut passed } else { &mut failed }) += 1;
        if holds { "" } else { "**misses the goal**" }
    };
    for (command, goal) in GOALS {
        let outcome = connect(MANY, [Duration::from_micros(command); 2], false);
        let each = micros(outcome.time) / MANY as f64;
        let holds = each <= goal && outcome.repeated == [0, 0];
        let [active, passive] = outcome
            .commands
            .map(|commands| commands as f64 / MANY as f64);
        println!(
            "| {command} | {each:.1} | {goal:.0} | {} / {} | {active:.1} / {passive:.1} | {} |",
            outcome.repeated[0],
            outcome.repeated[1],
            gate(holds),
        );
    }
    println!("\nOne connection alone: command latencies on the critical path\n");
    println!("| side | at 100 µs a command | goal | |");
    println!("| --- | --: | --: | --- |");
    let command = Duration::from_micros(100);
    for (side, times) in [
        ("active", [command, Duration::ZERO]),
        ("passive", [Duration::ZERO, command]),
    ] {
        for (again, most) in [false, true].into_iter().zip(LATENCIES) {
            let latencies = micros(connect(1, times, again).time) / micros(command);
            // Time passes in steps, which may end after the answer.
            let verdict = gate(latencies <= most + 0.2);
            let which = if again {
                "a QP that is used again"
            } else {
                "a new QP"
            };
            println!("| {side}, {which} | {latencies:.2} | {most:.0} | {verdict} |");
        }
    }
    println!(
        "\n{} RC QPs, {} µs a command, {} commands at once\n",
        many_qps::COUNT,
        many_qps::COMMAND.as_micros(),
        many_qps::DEPTH
    );
    println!("| what | s | with no slot ever empty | most | goal | MANAGE_PAGES beside | |");
    println!("| --- | --: | --: | --: | --: | --: | --- |");
    let outcome = many_qps::run();
    let ideal = many_qps::Outcome::ideal();
    for (side, (what, goal, most)) in MANY_QPS.into_iter().enumerate() {
        let [time, ideal] = [outcome.time, ideal].map(|times| times[side].as_secs_f64());
        let pages = outcome.others(side);
        // The firmware asks for pages once for more than a hundred QPs. Fewer commands than the QPs take would be a fault.
        let few = (0..=many_qps::COUNT as i64 / 100).contains(&pages);
        let verdict = gate(time <= goal && time <= most && time >= ideal && few);
        println!(
            "| {what} | {time:.3} | {ideal:.3} | {most:.3} | {goal:.3} | {pages} | {verdict} |"
        );
    }
    println!("\nOpening a device: command latencies on the critical path\n");
    println!("| completion event queues | commands | latencies | most | |");
    println!("| --: | --: | --: | --: | --- |");
    for (queues, most) in OPENING {
        let opened = bring_up::open(queues);
        let verdict = gate(opened.latencies <= most + 0.2);
        println!(
            "| {queues} | {} | {:.2} | {most:.0} | {verdict} |",
            opened.commands, opened.latencies
        );
    }
    verdict(passed, failed)
}
