//! Connections with an alternate path, over two switches with two cables between them: what is cut under a data flow, and
//! what is refused. A port of the first switch is the test's, which is the subnet manager.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bareverbs_core::{
    AhAttr, AsyncEvent, Gid, LinkLayer, ModifyError, Mtu, PathMigState, Qp, QpAttr, QpAttrMask,
    QpState, QpType, Qpn, Rc, Uc, WcOpcode, WcStatus,
};
use bareverbs_in_process::{Builder, World};
use connectx_model::Config as Card;
use connectx_model::link::Link;
use connectx_model::link::rng::Rng;
use connectx_model::link::subnet::{Subnet, Topology};
use connectx_model::roce::packet::{MAX_FRAME, Packet, reseal};

use crate::lab::{self, CAP, End, Lab, MS, SIGNALED, ok, pattern};
use crate::managed::{LINEAR_FORWARDING, PORT_INFO, done, port_info, set};
use crate::seam::{self, Seam};
use crate::xrc;

const TOPOLOGY: &str =
    "switch one 4\nswitch two 4\nadapter 0 one:1\nadapter 1 two:1\nadapter 2 one:2
cable one:3 two:3\ncable one:4 two:4";
/// The first LID of each adapter; there are two of each, and the second is reached by the second cable.
const LIDS: [u16; 2] = [10, 20];
/// Ports of the switches that the cables between them are at.
const CABLES: [u8; 2] = [3, 4];

/// The subnet, shared with the world.
#[derive(Clone)]
struct Shared(Arc<Mutex<Wires>>);

struct Wires {
    subnet: Subnet,
    /// The migration bits of what the adapters sent, with the low bit of the LID that it went to.
    sent: Vec<(usize, bool, u8)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wires> {
        self.0.lock().unwrap()
    }

    fn cut(&self, cable: usize) {
        self.lock().subnet.set_cable(0, CABLES[cable], false);
    }

    /// Plugs a cable in, and has its ports in use again, the second of which is reached by the other cable.
    fn restore(&self, world: &World, cable: usize) {
        let (port, other) = (CABLES[cable], CABLES[1 - cable]);
        self.lock().subnet.set_cable(0, port, true);
        for state in [3, 4] {
            for path in [&[1][..], &[1, other]] {
                let info = port_info(0, 0, state);
                self.manage(world, &set(PORT_INFO, port.into(), path, &info));
            }
        }
    }

    /// Sends a datagram of the manager's, and checks the answer.
    fn manage(&self, world: &World, frame: &[u8]) {
        self.lock().subnet.send(2, frame, world.now());
        while world.step() {}
        done(|answer| self.lock().subnet.receive(2, world.now(), answer));
    }
}

impl Link for Shared {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        let mut wires = self.lock();
        if let Ok(packet) = Packet::parse(frame)
            && packet.repr.bth.destination_qpn > 1
        {
            let path = packet.repr.headers.path.destination_mac[5] & 1;
            wires.sent.push((from, packet.repr.bth.migration, path));
        }
        wires.subnet.send(from, frame, now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.lock().subnet.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.lock().subnet.next_arrival()
    }
}

/// Everything that the manager sets, in order.
fn configuration() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // Out of the manager's port; out of the first switch by its first cable. Its own table, and the other one's.
    for (path, own, here) in [(&[1_u8][..], 2, 0), (&[1, 3], 3, 1)] {
        all.push(set(PORT_INFO, 0, path, &port_info(own, 0, 0)));
        let mut table = [0xff; 64];
        for (adapter, lid) in LIDS.into_iter().enumerate() {
            for low in 0..2 {
                table[usize::from(lid) + low] = if adapter == here { 1 } else { CABLES[low] };
            }
        }
        all.push(set(LINEAR_FORWARDING, 0, path, &table));
    }
    for state in [3, 4] {
        for (path, ports) in [(&[1_u8][..], [1_u32, 2, 3, 4]), (&[1, 3], [1, 3, 4, 4])] {
            for port in ports {
                all.push(set(PORT_INFO, port, path, &port_info(0, 0, state)));
            }
        }
        for (path, lid) in [(&[1_u8, 1][..], LIDS[0]), (&[1, 3, 1], LIDS[1])] {
            all.push(set(PORT_INFO, 1, path, &port_info(lid, 1, state)));
        }
    }
    all
}

/// Runs a test on this fabric.
fn fabric(test: impl FnOnce(&Lab<'_>, &Shared)) {
    let topology: Topology = TOPOLOGY.parse().unwrap();
    let shared = Shared(Arc::new(Mutex::new(Wires {
        subnet: Subnet::new(&topology),
        sent: Vec::new(),
    })));
    let card = |unit| {
        let mut card = seam::card(Card::new(unit).infiniband());
        card.subnet_managed = true;
        card
    };
    let world = Builder::with_link(Box::new(shared.clone()), 1)
        .function(card(1))
        .function(card(2))
        .stepped();
    lab::run_on(&world, LinkLayer::InfiniBand, |lab| {
        for frame in configuration() {
            shared.manage(&world, &frame);
        }
        test(lab, &shared);
    });
}

fn path(node: usize, low: u8, global: bool) -> AhAttr {
    let guid = Card::new(2 - node as u8).infiniband().port_guid;
    let gid = Gid((0xfe80_u128 << 112 | u128::from(guid)).to_be_bytes());
    AhAttr {
        dgid: if global { gid } else { Gid::ZERO },
        hop_limit: u8::from(global),
        dlid: LIDS[1 - node] | u16::from(low),
        src_path_bits: low,
        ..AhAttr::default()
    }
}

fn loaded(node: usize, low: u8, global: bool) -> QpAttr {
    QpAttr {
        alt_ah_attr: path(node, low, global),
        alt_timeout: 8,
        path_mig_state: PathMigState::Rearm,
        ..QpAttr::DEFAULT
    }
}

const REARM: QpAttrMask = QpAttrMask::ALT_PATH.union(QpAttrMask::PATH_MIG_STATE);

/// A connection by the first cable, with the second as the alternate path of both ends.
fn connected<'d>(lab: &Lab<'d>, global: bool) -> [End<'d, Rc>; 2] {
    let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
    let qpns = [ends[0].qp.qpn(), ends[1].qp.qpn()];
    for (node, end) in ends.iter_mut().enumerate() {
        connect(lab, &mut end.qp, node, qpns[1 - node], global);
    }
    ends
}

fn connect<'d, T: QpType>(
    lab: &Lab<'d>,
    qp: &mut Qp<'d, Seam, T>,
    node: usize,
    peer: Qpn,
    global: bool,
) {
    let mut attr = lab.attr(node, peer);
    attr.ah_attr = path(node, 0, global);
    (attr.path_mtu, attr.timeout, attr.retry_cnt) = (Mtu::B1024, 8, 3);
    qp.bring_to_rts(&attr).expect("connected");
    qp.modify(&loaded(node, 1, global), REARM).expect("rearmed");
}

fn state<T: bareverbs_core::QpType>(end: &mut End<'_, T>) -> PathMigState {
    end.qp.query().expect("queried").attr.path_mig_state
}

/// One write each way, whose bytes are those that were written. Events meanwhile are for later.
#[track_caller]
fn exchange<'d>(lab: &Lab<'d>, ends: &mut [End<'d, Rc>; 2], seed: u64, cut: impl FnOnce()) {
    const LEN: usize = 30_001;
    for node in 0..2 {
        let from = &mut ends[node];
        from.fill(0, LEN, seed + node as u64);
        let (sge, remote) = (from.sge(0, LEN), ends[1 - node].remote(32_000));
        let from = &mut ends[node];
        from.qp
            .send_queue()
            .batch()
            .write(seed, SIGNALED, remote, &[sge])
            .expect("posted");
    }
    cut();
    for end in &mut *ends {
        ok(lab.wait(&mut end.cq), seed, WcOpcode::RdmaWrite);
    }
    for node in 0..2 {
        ends[1 - node].assert_pattern(32_000, LEN, seed + node as u64);
    }
}

fn events(lab: &Lab<'_>, node: usize) -> Vec<AsyncEvent> {
    lab.pause(MS);
    std::iter::from_fn(|| lab.sides[node].device.next_async_event())
        .filter(|event| {
            matches!(
                event,
                AsyncEvent::PathMigrated { .. }
                    | AsyncEvent::PathMigrationError { .. }
                    | AsyncEvent::QpFatal { .. }
            )
        })
        .collect()
}

#[track_caller]
fn migrated(lab: &Lab<'_>, ends: &[End<'_, Rc>; 2]) {
    for (node, end) in ends.iter().enumerate() {
        let qpn = end.qp.qpn();
        assert_eq!(events(lab, node), [AsyncEvent::PathMigrated { qpn }]);
    }
}

/// One cable is cut under a data flow, then, with the first one back, the other one: again and again, at drawn times.
#[test]
fn a_flow_survives_the_cut_of_either_path() {
    survives(false);
}

/// The same with a global header, which is the same on both paths.
#[test]
fn a_flow_with_global_headers_survives_the_cut_of_either_path() {
    survives(true);
}

fn survives(global: bool) {
    fabric(|lab, shared| {
        let mut ends = connected(lab, global);
        assert_eq!(state(&mut ends[0]), PathMigState::Rearm);
        exchange(lab, &mut ends, 1, || {});
        for seed in 2..40 {
            let mut rng = Rng::new(seed);
            let (used, free) = ((seed % 2) as usize, (1 - seed % 2) as u8);
            for end in &mut ends {
                assert_eq!(state(end), PathMigState::Armed, "{seed}");
            }
            assert_eq!(events(lab, 0), []);
            shared.lock().sent.clear();
            let steps = rng.below(60);
            exchange(lab, &mut ends, 100 * seed, || {
                for _ in 0..steps {
                    lab.world.step();
                }
                shared.cut(used);
            });
            // Whatever was over before the cut: the next one is not.
            exchange(lab, &mut ends, 100 * seed + 50, || {});
            migrated(lab, &ends);
            for (node, end) in ends.iter_mut().enumerate() {
                let attr = end.qp.query().expect("queried").attr;
                assert_eq!(attr.path_mig_state, PathMigState::Migrated);
                assert_eq!(attr.ah_attr.dlid, LIDS[1 - node] | u16::from(free));
            }
            // The bit says it: clear on the path that was armed, set on the alternate one.
            for &(node, migration, path) in &shared.lock().sent {
                assert_eq!(migration, path == free, "{seed}: adapter {node}");
            }
            shared.restore(lab.world, used);
            // The first to be loaded again stays as it is until the other one is.
            for node in 0..2 {
                exchange(lab, &mut ends, 100 * seed + 60 + node as u64, || {});
                assert_eq!(state(&mut ends[0]) == PathMigState::Migrated, node == 0);
                let again = loaded(node, used as u8, global);
                ends[node].qp.modify(&again, REARM).expect("rearmed");
            }
            exchange(lab, &mut ends, 100 * seed + 70, || {});
        }
    });
}

/// Length of the messages of unreliable and extended reliable connections.
const LEN: usize = 9_001;

fn write(ends: &mut [End<'_, Uc>; 2], from: usize, seed: u64) {
    ends[from].fill(0, LEN, seed);
    let (sge, remote) = (ends[from].sge(0, LEN), ends[1 - from].remote(32_000));
    let queue = ends[from].qp.send_queue();
    let posted = queue.batch().write(seed, SIGNALED, remote, &[sge]);
    posted.expect("posted");
}

/// A write whose bytes are those that were written.
#[track_caller]
fn arrives<'d>(lab: &Lab<'d>, ends: &mut [End<'d, Uc>; 2], from: usize, seed: u64) {
    write(ends, from, seed);
    ok(lab.wait(&mut ends[from].cq), seed, WcOpcode::RdmaWrite);
    lab.pause(MS);
    ends[1 - from].assert_pattern(32_000, LEN, seed);
}

/// An unreliable connection does not notice that its path is cut: the driver has one end migrate, which takes the other one
/// along with its next message. What was lost before stays lost, and what comes after is whole.
#[test]
fn an_unreliable_connection_migrates_when_it_is_told() {
    fabric(|lab, shared| {
        let mut ends = [lab.end::<Uc>(0, CAP), lab.end::<Uc>(1, CAP)];
        let qpns = [ends[0].qp.qpn(), ends[1].qp.qpn()];
        for (node, end) in ends.iter_mut().enumerate() {
            connect(lab, &mut end.qp, node, qpns[1 - node], false);
        }
        for seed in 2..30 {
            let mut rng = Rng::new(seed);
            let (used, free) = ((seed % 2) as usize, (1 - seed % 2) as u8);
            for from in 0..2 {
                arrives(lab, &mut ends, from, 100 * seed + from as u64);
            }
            for end in &mut ends {
                assert_eq!(state(end), PathMigState::Armed, "{seed}");
            }
            let first = rng.below(2) as usize;
            write(&mut ends, first, 100 * seed + 10);
            for _ in 0..rng.below(30) {
                lab.world.step();
            }
            shared.cut(used);
            let wc = lab.wait(&mut ends[first].cq);
            ok(wc, 100 * seed + 10, WcOpcode::RdmaWrite);
            assert_eq!((events(lab, 0), events(lab, 1)), (vec![], vec![]));
            let attr = QpAttr {
                path_mig_state: PathMigState::Migrated,
                ..QpAttr::DEFAULT
            };
            let told = ends[first].qp.modify(&attr, QpAttrMask::PATH_MIG_STATE);
            told.expect("migrated");
            let qpns = [ends[0].qp.qpn(), ends[1].qp.qpn()];
            let went = |qpn| [AsyncEvent::PathMigrated { qpn }];
            assert_eq!(events(lab, first), went(qpns[first]));
            assert_eq!(events(lab, 1 - first), []);
            arrives(lab, &mut ends, first, 100 * seed + 20);
            assert_eq!(events(lab, 1 - first), went(qpns[1 - first]));
            arrives(lab, &mut ends, 1 - first, 100 * seed + 30);
            for (node, end) in ends.iter_mut().enumerate() {
                let attr = end.qp.query().expect("queried").attr;
                assert_eq!(attr.ah_attr.dlid, LIDS[1 - node] | u16::from(free));
            }
            shared.restore(lab.world, used);
            for (node, end) in ends.iter_mut().enumerate() {
                let again = loaded(node, used as u8, false);
                end.qp.modify(&again, REARM).expect("rearmed");
            }
        }
    });
}

/// A message whose bytes are those that were sent.
fn send<'d>(
    lab: &Lab<'d>,
    initiator: &mut xrc::Initiator<'d>,
    owner: &mut xrc::Owner<'d>,
    seed: u64,
    cut: impl FnOnce(),
) {
    let data = pattern(LEN, seed);
    initiator.buffer.copy_in(0, &data).expect("filled");
    owner.receive(seed, 0, LEN);
    let (sge, srqn) = (initiator.sge(0, LEN), owner.srq.srqn());
    let queue = initiator.qp.send_queue();
    let posted = queue.batch().send(seed, SIGNALED, srqn, &[sge]);
    posted.expect("posted");
    cut();
    ok(lab.wait(&mut initiator.cq), seed, WcOpcode::Send);
    let wc = lab.wait(&mut owner.cq);
    assert_eq!((wc.wr_id, wc.status), (seed, WcStatus::Success));
    owner.assert_holds(0, &data);
}

/// An initiator goes over when its path is cut at a drawn time, and its target follows.
#[test]
fn an_extended_reliable_connection_survives_the_cut_of_either_path() {
    fabric(|lab, shared| {
        let mut target = xrc::target(lab);
        let mut owner = xrc::owner(lab, &target.domain, 8);
        let mut initiator = xrc::initiator(lab);
        let qpns = [initiator.qp.qpn(), target.qp.qpn()];
        connect(lab, &mut initiator.qp, 0, qpns[1], false);
        connect(lab, &mut target.qp, 1, qpns[0], false);
        send(lab, &mut initiator, &mut owner, 1, || {});
        for seed in 2..30 {
            let mut rng = Rng::new(seed);
            let (used, free) = ((seed % 2) as usize, (1 - seed % 2) as u8);
            let steps = rng.below(60);
            send(lab, &mut initiator, &mut owner, 100 * seed, || {
                for _ in 0..steps {
                    lab.world.step();
                }
                shared.cut(used);
            });
            send(lab, &mut initiator, &mut owner, 100 * seed + 1, || {});
            for (node, qpn) in qpns.into_iter().enumerate() {
                assert_eq!(events(lab, node), [AsyncEvent::PathMigrated { qpn }]);
            }
            let attr = target.qp.query().expect("queried").attr;
            assert_eq!(attr.path_mig_state, PathMigState::Migrated);
            assert_eq!(attr.ah_attr.dlid, LIDS[0] | u16::from(free));
            shared.restore(lab.world, used);
            let again = [0, 1].map(|node| loaded(node, used as u8, false));
            target.qp.modify(&again[1], REARM).expect("rearmed");
            initiator.qp.modify(&again[0], REARM).expect("rearmed");
            send(lab, &mut initiator, &mut owner, 100 * seed + 2, || {});
            let attr = initiator.qp.query().expect("queried").attr;
            assert_eq!(attr.path_mig_state, PathMigState::Armed, "{seed}");
        }
    });
}

/// The driver has one end go over, which takes the other one along.
#[test]
fn the_driver_has_a_connection_migrate() {
    fabric(|lab, shared| {
        let mut ends = connected(lab, false);
        exchange(lab, &mut ends, 1, || {});
        let attr = QpAttr {
            path_mig_state: PathMigState::Migrated,
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::PATH_MIG_STATE;
        ends[1].qp.modify(&attr, mask).expect("migrated");
        shared.lock().sent.clear();
        exchange(lab, &mut ends, 2, || {});
        migrated(lab, &ends);
        assert!(shared.lock().sent.iter().any(|sent| sent.2 == 1));
        // Nothing is left to go over to, and nothing was lost: the same again changes nothing.
        ends[1].qp.modify(&attr, mask).expect("migrated");
        exchange(lab, &mut ends, 3, || {});
        assert_eq!((events(lab, 0), events(lab, 1)), (vec![], vec![]));
    });
}

/// With both paths cut the connection goes over, and then ends.
#[test]
fn a_connection_without_any_path_ends() {
    fabric(|lab, shared| {
        let mut ends = connected(lab, false);
        exchange(lab, &mut ends, 1, || {});
        for cable in 0..2 {
            shared.cut(cable);
        }
        let (sge, remote) = (ends[0].sge(0, 5000), ends[1].remote(0));
        let queue = ends[0].qp.send_queue();
        let posted = queue.batch().write(7, SIGNALED, remote, &[sge]);
        posted.expect("posted");
        let wc = lab.wait(&mut ends[0].cq);
        assert_eq!((wc.wr_id, wc.status), (7, WcStatus::RetryExcErr));
        let qpn = ends[0].qp.qpn();
        assert_eq!(events(lab, 0), [AsyncEvent::PathMigrated { qpn }]);
        // The other end knows of nothing.
        assert_eq!(events(lab, 1), []);
        assert_eq!(ends[0].qp.state(), QpState::Err);
        assert_eq!(state(&mut ends[1]), PathMigState::Armed);
    });
}

/// A packet that says "migrated" on a path that is not the alternate one takes nothing along, from any sender.
#[test]
fn a_migration_to_another_path_is_refused() {
    fabric(|lab, shared| {
        let mut ends = connected(lab, false);
        shared.lock().sent.clear();
        exchange(lab, &mut ends, 1, || {});
        // An acknowledgement of adapter 0's, as if it had migrated to the path that it is on, or to one of no one's.
        for (lids, delivered) in [
            ([10, 20], true),
            ([11, 20], true),
            ([10, 21], true),
            ([11, 21], false),
        ] {
            let [from, to]: [u16; 2] = lids;
            let mut frame = vec![0; MAX_FRAME];
            let len = forged(&mut frame, from, to, ends[1].qp.qpn().number());
            shared.lock().subnet.send(0, &frame[..len], lab.world.now());
            let seen = events(lab, 1);
            let qpn = ends[1].qp.qpn();
            let refused = AsyncEvent::PathMigrationError { qpn };
            if delivered {
                assert_eq!(seen, [refused], "{lids:?}");
                assert_eq!(state(&mut ends[1]), PathMigState::Armed);
            } else {
                // All that a path has to say for itself are its identifiers: IBTA volume 1 knows no more.
                assert_eq!(seen, [AsyncEvent::PathMigrated { qpn }]);
            }
            // The flow goes on, and where one end was taken along the other one follows.
            exchange(lab, &mut ends, 2, || {});
        }
        let qpn = ends[0].qp.qpn();
        assert_eq!(events(lab, 0), [AsyncEvent::PathMigrated { qpn }]);
    });
}

/// An old acknowledgement with the migration bit set.
fn forged(frame: &mut [u8], from: u16, to: u16, qpn: u32) -> usize {
    let len = 74;
    let frame = &mut frame[..len];
    let ([f1, f0], [t1, t0]) = (from.to_be_bytes(), to.to_be_bytes());
    frame[..15].copy_from_slice(&[
        2, 0x1b, 0, 0, t1, t0, 2, 0x1b, 0, 0, f1, f0, 0x89, 0x15, 0x60,
    ]);
    let length = (len - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20..22].copy_from_slice(&[0x1b, 1]);
    frame[36..38].copy_from_slice(&[f1, f0]);
    frame[52..54].copy_from_slice(&[t1, t0]);
    // RC acknowledge; the bit; P_Key.
    frame[54..58].copy_from_slice(&[0x11, 0x40, 0xff, 0xff]);
    frame[59..62].copy_from_slice(&qpn.to_be_bytes()[1..]);
    frame[66] = 0x1f;
    assert!(reseal(frame));
    len
}

#[test]
fn what_cannot_be_is_refused() {
    fabric(|lab, _| {
        let mut ends = connected(lab, false);
        let good = loaded(0, 1, false);
        let value = |attribute, value, limit| {
            Err(ModifyError::Value {
                attribute,
                value,
                limit,
            })
        };
        let alternate = QpAttrMask::ALT_PATH;
        type Change = fn(&mut QpAttr);
        let cases: [(Change, _); 7] = [
            (
                |attr| attr.path_mig_state = PathMigState::Armed,
                value(QpAttrMask::PATH_MIG_STATE, 2, 1),
            ),
            (|attr| attr.alt_timeout = 32, value(alternate, 32, 31)),
            (|attr| attr.alt_pkey_index = 128, value(alternate, 128, 127)),
            (|attr| attr.alt_port_num = 0, value(alternate, 0, 1)),
            (|attr| attr.alt_port_num = 2, value(alternate, 2, 1)),
            (
                |attr| attr.alt_ah_attr.dlid = 0,
                value(alternate, 0, 0xbfff),
            ),
            (
                |attr| attr.alt_ah_attr.dlid = 0xc000,
                value(alternate, 0xc000, 0xbfff),
            ),
        ];
        for (change, refused) in cases {
            let mut attr = good;
            change(&mut attr);
            assert_eq!(ends[0].qp.modify(&attr, REARM), refused);
        }
        // The device refuses what has no alternate path to arm.
        let mut bare = lab.end::<Rc>(0, CAP);
        let mut attr = lab.attr(0, ends[1].qp.qpn());
        attr.ah_attr = path(0, 0, false);
        bare.qp.bring_to_rts(&attr).expect("connected");
        let armed = bare.qp.modify(&good, QpAttrMask::PATH_MIG_STATE);
        assert!(matches!(armed, Err(ModifyError::Command(_))), "{armed:?}");
        assert_eq!(state(&mut bare), PathMigState::Migrated);
    });
}

/// Ports of RoCE have no alternate paths, nor have devices that do not say so.
#[test]
fn devices_without_alternate_paths_say_so() {
    let refused = |lab: &Lab<'_>, to: u16| {
        let mut end = lab.end::<Rc>(0, CAP);
        let mut attr = lab.attr(0, end.qp.qpn());
        attr.ah_attr.dlid = to;
        end.qp.bring_to_rts(&attr).expect("connected");
        for attribute in [QpAttrMask::ALT_PATH, QpAttrMask::PATH_MIG_STATE, REARM] {
            let answer = end.qp.modify(&loaded(0, 1, false), attribute);
            assert_eq!(answer, Err(ModifyError::Unsupported { attribute }));
        }
        // It is on its path already, which Linux lets programs say.
        let stays = QpAttr {
            path_mig_state: PathMigState::Migrated,
            ..QpAttr::DEFAULT
        };
        let answer = end.qp.modify(&stays, QpAttrMask::PATH_MIG_STATE);
        assert_eq!(answer, Ok(()));
        assert!(!lab.sides[0].device.capabilities().has_alternate_paths());
    };
    lab::lab(|lab| refused(lab, 0));
    let card = |unit| {
        let mut card = seam::card(Card::new(unit).infiniband());
        card.general.set_apm(false);
        card.general_max.set_apm(false);
        card
    };
    let world = Builder::new().function(card(1)).function(card(2)).stepped();
    lab::run_on(&world, LinkLayer::InfiniBand, |lab| refused(lab, 2));
}
