//! Messages of the CM in the partitions of their paths, with drawn tables of P_Keys on both ports. What arrives is what
//! IBTA volume 1, 10.9.3 says: the same 15 bits on both sides, and a full member on one of them.

use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{GsiSourceError, QpCap, QpInitAttr};
use bareverbs_core::{AsyncEvent, CqInit};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;
use connectx_model::link::rng::Rng;
use connectx_model::roce::packet::Packet;
use connectx_model::roce::transport::GSI_QPN;

use super::support::*;
use crate::keep::keep;

/// Partitions, as their full members have them.
const PARTITIONS: [u16; 4] = [0x8001, 0x8002, 0x9234, 0xfffe];
const DEFAULT: u16 = 0xffff;

/// A port's entry for each partition, and where it is in the table; the default partition is the last one.
#[derive(Debug, Clone, Copy)]
struct Table {
    entries: [Option<(u16, u16)>; 5],
}

impl Table {
    /// The default partition, in which subnet administration answers, is at index 0 or elsewhere.
    fn draw(rng: &mut Rng) -> Self {
        let mut taken = vec![0];
        let mut place = |rng: &mut Rng| loop {
            let index = rng.below(20) as u16;
            if !taken.contains(&index) {
                taken.push(index);
                return index;
            }
        };
        let mut entries = [None; 5];
        for (entry, pkey) in entries.iter_mut().zip(PARTITIONS) {
            let limited = rng.below(3) == 0;
            let absent = rng.below(4) == 0;
            let index = place(rng);
            *entry = (!absent).then_some((index, if limited { pkey & 0x7fff } else { pkey }));
        }
        entries[4] = Some((0, DEFAULT));
        if let (Some((index, first)), true) = (entries[0], rng.below(3) == 0) {
            entries[0] = Some((0, first));
            entries[4] = Some((index, DEFAULT));
        }
        Self { entries }
    }

    /// The whole table.
    fn install(&self, nodes: &mut Nodes, node: usize) {
        for index in 0..20 {
            assert!(nodes.world.set_pkey(node, index, 0));
        }
        for (index, pkey) in self.entries.iter().flatten() {
            assert!(nodes.world.set_pkey(node, *index, *pkey));
        }
        nodes.cms[node].handle_async_event(&AsyncEvent::PkeyChange { port: 1 });
    }

    /// The entry for a partition.
    fn entry(&self, partition: u16) -> Option<u16> {
        let own = |pkey: u16| (pkey ^ partition) & 0x7fff == 0;
        let mut entries = self.entries.iter().flatten();
        entries.find(|(_, pkey)| own(*pkey)).map(|(_, pkey)| *pkey)
    }
}

fn nodes<const N: usize>(seed: u64) -> Nodes {
    let mut nodes = Nodes::with_seed::<8>(2, seed);
    for cm in &mut nodes.cms {
        let slots = keep([const { PartitionQp::EMPTY }; N]);
        cm.set_partition_qps(slots).unwrap();
    }
    nodes
}

/// Records the datagrams to QP1 of the other node from here on.
fn record(nodes: &mut Nodes) {
    nodes.subnet.with(|state| state.frames = Some(Vec::new()));
}

/// P_Keys of the messages of the CM since then, by their sender. All of them name QP1 as their source.
fn recorded(nodes: &mut Nodes) -> [Vec<u16>; 2] {
    let frames = nodes.subnet.with(|state| state.frames.take()).unwrap();
    let mut found = [Vec::new(), Vec::new()];
    for frame in &frames {
        let Ok(packet) = Packet::parse(frame) else {
            continue;
        };
        // Class 7: the CM.
        if packet.repr.bth.destination_qpn != GSI_QPN || packet.payload[1] != 7 {
            continue;
        }
        assert_eq!(packet.repr.extended.deth.source_qpn, GSI_QPN);
        let from = u16::from_be_bytes([frame[10], frame[11]]);
        let node = (0..2).find(|&node| lid(node) == from);
        found[node.expect("a LID of a node")].push(packet.repr.bth.pkey);
    }
    found
}

/// An id of node 0 with a path to node 1 in a partition.
fn client(nodes: &mut Nodes, partition: u16) -> CmId {
    let id = nodes.id(0, PortSpace::Tcp);
    let there = address(1, PORT).with_pkey(partition);
    nodes.cms[0].resolve_addr(id, None, there, SECOND).unwrap();
    nodes.expect(0, EventType::AddrResolved);
    nodes.cms[0].resolve_route(id, 3 * SECOND).unwrap();
    nodes.expect(0, EventType::RouteResolved);
    nodes.cms[0].create_qp(id, None, &mut qp()).unwrap();
    id
}

#[track_caller]
fn all_are(found: &[Vec<u16>; 2], tables: [u16; 2], least: usize) {
    for (pkeys, own) in found.iter().zip(tables) {
        assert!(pkeys.len() >= least, "{found:x?}");
        assert!(
            pkeys.iter().all(|&pkey| pkey == own),
            "{found:x?}, not {own:x}"
        );
    }
}

fn trial(seed: u64) -> [usize; 2] {
    let mut rng = Rng::new(seed);
    let mut nodes = nodes::<2>(seed);
    let mut tables = [Table::draw(&mut rng), Table::draw(&mut rng)];
    for (node, table) in tables.iter().enumerate() {
        table.install(&mut nodes, node);
    }
    nodes.listener(1, PortSpace::Tcp);
    let mut outcomes = [0, 0];
    for _ in 0..4 {
        let partition = PARTITIONS[rng.below(4) as usize] & !((rng.below(2) as u16) << 15);
        let own = tables[0].entry(partition);
        let Some(own) = own else {
            let id = nodes.id(0, PortSpace::Tcp);
            let there = address(1, PORT).with_pkey(partition);
            let refused = nodes.cms[0].resolve_addr(id, None, there, SECOND);
            let event = refused.is_ok().then(|| nodes.event_within(0, SECOND));
            let none = matches!(refused, Err(RdmaError::NoSuchPartition(_)));
            let error = |event: CmEvent| event.event == EventType::AddrError;
            assert!(none || event.flatten().is_some_and(error));
            nodes.cms[0].destroy_id(id).unwrap();
            continue;
        };
        let theirs = tables[1].entry(partition);
        let reached = theirs.is_some_and(|theirs| (own | theirs) & 0x8000 != 0);
        let id = client(&mut nodes, partition);
        record(&mut nodes);
        if !reached {
            nodes.cms[0].connect(id, None).unwrap();
            let event = nodes.event_within(1, 300 * MS);
            assert!(event.is_none(), "from another partition: {event:?}");
            let found = recorded(&mut nodes);
            assert!(!found[0].is_empty() && found[1].is_empty(), "{found:x?}");
            assert!(found[0].iter().all(|&pkey| pkey == own), "{found:x?}");
            nodes.cms[0].destroy_id(id).unwrap();
            outcomes[1] += 1;
            continue;
        }
        let (ours, other) = nodes.connect(id);
        let entries = [own, theirs.unwrap()];
        // REQ and RTU one way, REP the other.
        all_are(&recorded(&mut nodes), entries, 1);
        // The tables change while there is a connection, in whose partition both ports stay.
        for (node, table) in tables.iter_mut().enumerate() {
            let mut next = Table::draw(&mut rng);
            while next.entry(partition) != table.entry(partition) {
                next = Table::draw(&mut rng);
            }
            *table = next;
            table.install(&mut nodes, node);
        }
        record(&mut nodes);
        let by = rng.below(2) as usize;
        let ends = [ours, other];
        nodes.cms[by].disconnect(ends[by]).unwrap();
        for node in [by, 1 - by] {
            nodes.expect(node, EventType::Disconnected);
        }
        // DREQ and DREP.
        all_are(&recorded(&mut nodes), entries, 1);
        for (node, id) in ends.into_iter().enumerate() {
            nodes.cms[node].destroy_id(id).unwrap();
            while nodes.event_within(node, MS).is_some() {}
        }
        outcomes[0] += 1;
    }
    outcomes
}

/// Two QPs for five partitions, of which every one may be the first of the table.
#[test]
fn drawn_tables() {
    let mut outcomes = [0, 0];
    for seed in 0..40 {
        let trial = std::panic::catch_unwind(|| trial(seed));
        let [connected, not] = trial.unwrap_or_else(|_| panic!("seed {seed}"));
        outcomes[0] += connected;
        outcomes[1] += not;
    }
    assert!(outcomes.iter().all(|&count| count > 10), "{outcomes:?}");
}

/// A port that is put out of a partition sends nothing there, and goes on when it comes back.
#[test]
fn a_partition_goes_and_comes() {
    let mut nodes = nodes::<1>(1);
    let blue = |index| Table {
        entries: [Some((index, 0x8001)), None, None, None, Some((0, DEFAULT))],
    };
    let none = Table {
        entries: [None, None, None, None, Some((0, DEFAULT))],
    };
    for node in 0..2 {
        blue(3).install(&mut nodes, node);
    }
    nodes.listener(1, PortSpace::Tcp);
    let id = client(&mut nodes, 0x8001);
    let (ours, _) = nodes.connect(id);
    none.install(&mut nodes, 0);
    record(&mut nodes);
    nodes.cms[0].disconnect(ours).unwrap();
    let event = nodes.event_within(1, 200 * MS);
    assert!(event.is_none(), "{event:?}");
    let found = recorded(&mut nodes);
    assert!(found.iter().all(Vec::is_empty), "{found:x?}");
    // DREQ is repeated, and has a partition again.
    blue(9).install(&mut nodes, 0);
    record(&mut nodes);
    nodes.expect(1, EventType::Disconnected);
    all_are(&recorded(&mut nodes), [0x8001, 0x8001], 1);
}

/// Without the QPs everything goes in the first partition of the table, as it always did.
#[test]
fn without_qps() {
    let mut nodes = Nodes::with_seed::<8>(2, 1);
    let table = Table {
        entries: [Some((3, 0x8001)), None, None, None, Some((0, DEFAULT))],
    };
    for node in 0..2 {
        table.install(&mut nodes, node);
    }
    nodes.listener(1, PortSpace::Tcp);
    let id = client(&mut nodes, 0x8001);
    record(&mut nodes);
    nodes.connect(id);
    all_are(&recorded(&mut nodes), [DEFAULT, DEFAULT], 1);
}

/// Cards without `set_deth_sqpn`, and Ethernet ports.
#[test]
fn refusals() {
    let mut without = Card::new(2).infiniband();
    for caps in [&mut without.general, &mut without.general_max] {
        caps.set_set_deth_sqpn(false);
    }
    let ethernet = Card::new(3);
    let world = Builder::new()
        .function(without)
        .function(ethernet)
        .stepped();
    for node in 0..2 {
        let mut cm = manager::<2>(&world, node);
        let device = cm.device();
        let refused = cm.set_partition_qps(keep([PartitionQp::EMPTY]));
        assert!(matches!(refused, Err(RdmaError::Unsupported(_))));
        let pd = device.default_pd().unwrap();
        let cq = device.create_cq(CqInit::new(4)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: QpCap {
                max_send_wr: 1,
                max_recv_wr: 0,
                max_send_sge: 1,
                max_recv_sge: 0,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        };
        let refused = pd.create_gsi_source(&mut init);
        assert!(matches!(refused, Err(GsiSourceError::NotOffered)));
    }
}
