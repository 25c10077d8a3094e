//! Counters that the driver reads, held against the frames that passed the cable, which are taken apart here and counted.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bareverbs_core::firmware_cmds::register::PortCounterGroup;
use bareverbs_core::{Counters, Device, Rc, WcOpcode};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;
use connectx_model::link::Cable;
use connectx_model::link::fault::Rates;
use connectx_model::link::trace::Tracer;

use crate::lab::{CAP, Lab, MS, SIGNALED, lab, lab_with, ok, run};
use crate::seam::{self, Seam};

/// Length of the check sequence, which is not among a frame's bytes here.
const FCS: u64 = 4;

/// Counts of what one side sent that reached the other.
#[derive(Default, Debug, Clone, Copy)]
struct Sent {
    frames: u64,
    octets: u64,
    rdma: u64,
    rdma_octets: u64,
    /// First or only packets of WRITEs, and READ requests.
    writes: u64,
    reads: u64,
    rnr_naks: u64,
    sequence_naks: u64,
}

impl Sent {
    /// Counts a frame by its bytes: Ethernet, IPv4 without options, UDP to port 4791, then the BTH (IBTA 9.2, A17.4).
    fn count(&mut self, frame: &[u8]) {
        self.frames += 1;
        self.octets += frame.len() as u64 + FCS;
        let at = |range: Range<usize>| frame.get(range).unwrap_or_default();
        if at(12..14) != [8, 0] || at(14..15) != [0x45] || at(36..38) != [0x12, 0xb7] {
            return;
        }
        self.rdma += 1;
        self.rdma_octets += frame.len() as u64;
        match frame[42] {
            // RC's and UC's WRITE first, only, and only with immediate data.
            0x06 | 0x0a | 0x0b | 0x26 | 0x2a | 0x2b => self.writes += 1,
            0x0c => self.reads += 1,
            // An acknowledgement, with the syndrome of its AETH.
            0x11 => match frame[54] {
                0x60 => self.sequence_naks += 1,
                0x20..=0x3f => self.rnr_naks += 1,
                _ => {}
            },
            _ => {}
        }
    }
}

/// Runs a test on a cable whose frames are counted by the port that sends them. `lost` frames of 1,000 do not arrive.
fn on_a_counted_cable(seed: u64, lost: u32, test: impl FnOnce(&Lab<'_>, &Mutex<[Sent; 2]>)) {
    let sent = Arc::new(Mutex::new([Sent::default(); 2]));
    let counted = Arc::clone(&sent);
    let link = Tracer::new(Cable::new(), move |_, from: usize, frame: &[u8]| {
        counted.lock().unwrap()[from].count(frame);
    });
    let world = Builder::with_link(Box::new(link), seed)
        .function(seam::card(Card::new(1)))
        .function(seam::card(Card::new(2)))
        .stepped();
    run(&world, |lab| {
        let rates = Rates {
            loss: lost,
            ..Rates::default()
        };
        world.with_wire(|wire| wire.set_rates(rates));
        test(lab, &sent);
        world.with_wire(|wire| wire.set_rates(Rates::default()));
    });
}

/// 30 operations, drawn; some SENDs come before the receive that they need.
fn traffic(lab: &Lab<'_>, seed: u64) {
    let [mut a, mut b] = lab.pair_with::<Rc>(CAP, &|attr| attr.timeout = 6);
    let mut state = seed * 2 + 1;
    for id in 0..30u64 {
        state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1);
        let len = (state >> 33) as usize % 5000;
        let (sge, remote) = (a.sge(0, len), b.remote(16_384));
        let queue = a.qp.send_queue();
        let opcode = match state >> 62 {
            0 => {
                queue.batch().write(id, SIGNALED, remote, sge).unwrap();
                WcOpcode::RdmaWrite
            }
            1 => {
                queue.batch().read(id, SIGNALED, remote, &[sge]).unwrap();
                WcOpcode::RdmaRead
            }
            kind => {
                let late = kind == 2;
                if !late {
                    b.receive(id, 0, 8192);
                }
                queue.batch().send(id, SIGNALED, sge).unwrap();
                if late {
                    lab.pause(MS / 2);
                    b.receive(id, 0, 8192);
                }
                ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
                WcOpcode::Send
            }
        };
        ok(lab.wait(&mut a.cq), id, opcode);
    }
    // The last frames arrive.
    lab.pause(MS);
}

/// The values of these names.
fn values<const N: usize>(counters: &Counters, names: [&str; N]) -> [u64; N] {
    names.map(|name| counters.get(name).expect(name))
}

/// Packets and octets under a name.
fn packets_and_octets(counters: &Counters, name: &str) -> Vec<(&'static str, u64)> {
    let named = counters.iter().filter(|counter| counter.name == name);
    named
        .map(|counter| (counter.unit.expect("a unit"), counter.value))
        .collect()
}

/// Checks that each side's port received what the other sent, by every counter; and that it sent it, if nothing was lost.
fn compare(lab: &Lab<'_>, sent: [Sent; 2], lost: bool) {
    for node in [0, 1] {
        let device: &Device<'_, Seam> = lab.sides[node].device;
        let (own, others) = (sent[node], sent[1 - node]);
        let vport = device.query_vport_counters().unwrap().unwrap();
        assert_eq!(
            packets_and_octets(&vport, "received_ib_unicast"),
            [("packets", others.rdma), ("octets", others.rdma_octets)]
        );
        let port = |group| device.query_port_counters(group, 0).unwrap().unwrap();
        let ieee = port(PortCounterGroup::Ieee8023);
        let names = ["a_frames_received_ok", "a_octets_received_ok"];
        assert_eq!(values(&ieee, names), [others.frames, others.octets]);
        let rfc = port(PortCounterGroup::Rfc2863);
        assert_eq!(values(&rfc, ["if_in_octets"]), [others.octets]);
        if lost {
            continue;
        }
        assert_eq!(
            packets_and_octets(&vport, "transmitted_ib_unicast"),
            [("packets", own.rdma), ("octets", own.rdma_octets)]
        );
        let names = ["a_frames_transmitted_ok", "a_octets_transmitted_ok"];
        assert_eq!(values(&ieee, names), [own.frames, own.octets]);
        assert_eq!(values(&rfc, ["if_out_octets"]), [own.octets]);
    }
}

#[test]
fn counters_agree_with_the_frames_on_the_cable() {
    let mut seen = Sent::default();
    for seed in 0..20 {
        let lost = if seed % 2 == 0 { 0 } else { 50 };
        on_a_counted_cable(seed, lost, |lab, sent| {
            let sets = [0, 1].map(|node| {
                let set = lab.sides[node].device.count_queues();
                set.unwrap().expect("a card with counters")
            });
            traffic(lab, seed);
            let sent = *sent.lock().unwrap();
            compare(lab, sent, lost != 0);
            let [requester, responder] = [0, 1].map(|node| sets[node].query().unwrap());
            let names = ["rnr_nak_retry_err", "packet_seq_err"];
            assert_eq!(
                values(&requester, names),
                [sent[1].rnr_naks, sent[1].sequence_naks],
                "seed {seed}"
            );
            if lost == 0 {
                let names = ["rx_write_requests", "rx_read_requests", "out_of_buffer"];
                assert_eq!(
                    values(&responder, names),
                    [sent[0].writes, sent[0].reads, sent[1].rnr_naks],
                    "seed {seed}"
                );
            }
            seen.rnr_naks += sent[1].rnr_naks;
            seen.sequence_naks += sent[1].sequence_naks;
            seen.writes += sent[0].writes;
            seen.reads += sent[0].reads;
        });
    }
    assert!(seen.rnr_naks > 10 && seen.sequence_naks > 3, "{seen:?}");
    assert!(seen.writes > 10 && seen.reads > 10, "{seen:?}");
}

/// A newer set takes over, and the older one's end does not end that; queue pairs keep the set that they began with.
#[test]
fn queue_pairs_count_in_the_newest_set() {
    lab(|lab| {
        let device = lab.sides[1].device;
        let first = device.count_queues().unwrap().unwrap();
        let second = device.count_queues().unwrap().unwrap();
        drop(first);
        traffic(lab, 1);
        let writes = |counters: &Counters| values(counters, ["rx_write_requests"])[0];
        let before = writes(&second.query().unwrap());
        assert_ne!(before, 0);
        let third = device.count_queues().unwrap().unwrap();
        traffic(lab, 1);
        assert_eq!(writes(&second.query().unwrap()), before);
        assert_eq!(writes(&third.query().unwrap()), before);
        drop(third);
        // Nothing counts now.
        traffic(lab, 1);
        assert_eq!(writes(&second.query().unwrap()), before);
    });
}

/// Cards without counters say so before a command is sent.
#[test]
fn cards_without_counters() {
    let without = |mut card: Card| {
        card.general.set_max_qp_cnt(0).set_vport_counters(false);
        card
    };
    lab_with(without, |lab| {
        let device = lab.sides[0].device;
        assert!(device.count_queues().unwrap().is_none());
        assert!(device.query_vport_counters().unwrap().is_none());
    });
}

/// Every group has names, each once, and no half of a counter among them.
#[test]
fn names_of_counters() {
    lab(|lab| {
        let device = lab.sides[0].device;
        for &group in PortCounterGroup::ALL {
            let counters = device.query_port_counters(group, 7).unwrap().unwrap();
            let mut names: Vec<_> = counters.iter().map(|counter| counter.name).collect();
            assert!(names.len() > 3, "{group:?}: {names:?}");
            assert!(!names.iter().any(|name| name.ends_with("_low")));
            assert!(!names.iter().any(|name| name.ends_with("_high")));
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{group:?}");
        }
        let vport = device.query_vport_counters().unwrap().unwrap();
        assert_eq!(vport.iter().count(), 24);
        assert_eq!(vport.get("status"), None);
    });
}
