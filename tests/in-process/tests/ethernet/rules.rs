//! Rules that come and go in a drawn order: what each frame meets is computed by the test from its own list of them.

use bareverbs_core::{FlowAction, FlowError, FlowMatch, FlowRule, FlowSlot, Tirn};

use crate::lab::{Lab, MS, lab};
use crate::packets::{OTHER, Packet, TCP, UDP};
use crate::spread::{Rule, numbers, pairs, take_all};
use crate::support::{INIT, Random, send};

/// The match of a rule, as the test understands it.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Everything,
    To([u8; 6]),
    Multicast,
    From([u8; 6]),
    Type(bool),
    Untagged,
    Vlan(u16),
    Protocol(u8),
    /// IPv6 (`true`) or IPv4, source (0) or destination, address, bits of it.
    Network(bool, usize, [u8; 16], u8),
    TcpTo(u16),
    TcpFrom(u16),
    UdpTo(u16),
    UdpFrom(u16),
    /// A flow of UDP to an address of IPv4.
    Flow([u8; 4], u16),
}

impl Ask {
    fn draw(random: &mut Random, mac: [u8; 6], from: [u8; 6]) -> Self {
        let ports = [9, 53, 80, 443];
        let like = Packet::draw(random, mac);
        match random.below(14) {
            0 => Self::Everything,
            1 => Self::To(random.pick(&[mac, [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]])),
            2 => Self::Multicast,
            3 => Self::From(random.pick(&[from, [2, 0, 0, 0, 0, 7]])),
            4 => Self::Type(random.below(2) == 0),
            5 => Self::Untagged,
            6 => Self::Vlan(random.pick(&[5, 6, 7])),
            7 => Self::Protocol(random.pick(&[TCP, UDP, OTHER])),
            8 => {
                let bits = random.pick(&[0, 7, 8, 15, 16]);
                Self::Network(like.v6, random.below(2), like.addresses[0], bits)
            }
            9 => Self::TcpTo(random.pick(&ports)),
            10 => Self::TcpFrom(random.pick(&ports)),
            11 => Self::UdpTo(random.pick(&ports)),
            12 => Self::UdpFrom(random.pick(&ports)),
            _ => {
                let [a, b, c, d, ..] = like.addresses[0];
                Self::Flow([a, b, c, d], random.pick(&ports))
            }
        }
    }

    fn rule(self) -> FlowMatch {
        let any = FlowMatch::ANY;
        let four = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
        match self {
            Self::Everything => any,
            Self::To(mac) => any.destination(mac),
            Self::Multicast => any.multicast(),
            Self::From(mac) => any.source(mac),
            Self::Type(true) => any.ethertype(0x86dd),
            Self::Type(false) => any.ethertype(0x0800),
            Self::Untagged => any.untagged(),
            Self::Vlan(vlan) => any.vlan(vlan),
            Self::Protocol(protocol) => any.ip_protocol(protocol),
            Self::Network(false, 0, address, bits) => any.ipv4_source(four(address), bits),
            Self::Network(false, _, address, bits) => any.ipv4_destination(four(address), bits),
            Self::Network(true, 0, address, bits) => any.ipv6_source(address, bits),
            Self::Network(true, _, address, bits) => any.ipv6_destination(address, bits),
            Self::TcpTo(port) => any.tcp_destination(port),
            Self::TcpFrom(port) => any.tcp_source(port),
            Self::UdpTo(port) => any.udp_destination(port),
            Self::UdpFrom(port) => any.udp_source(port),
            Self::Flow(address, port) => any.ipv4_destination(address, 32).udp_destination(port),
        }
    }

    fn fits(self, packet: &Packet, from: [u8; 6]) -> bool {
        let protocol = |wanted: u8| packet.protocol == wanted;
        match self {
            Self::Everything => true,
            Self::To(mac) => packet.to == mac,
            Self::Multicast => packet.to[0] & 1 != 0,
            Self::From(mac) => from == mac,
            Self::Type(v6) => packet.v6 == v6,
            Self::Untagged => packet.vlan.is_none(),
            Self::Vlan(vlan) => packet.vlan == Some(vlan),
            Self::Protocol(number) => protocol(number),
            Self::Network(v6, which, address, bits) => {
                let bit = |bytes: &[u8; 16], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
                let same = |at| bit(&packet.addresses[which], at) == bit(&address, at);
                packet.v6 == v6 && (0..usize::from(bits)).all(same)
            }
            Self::TcpTo(port) => protocol(TCP) && packet.ports[1] == port,
            Self::TcpFrom(port) => protocol(TCP) && packet.ports[0] == port,
            Self::UdpTo(port) => protocol(UDP) && packet.ports[1] == port,
            Self::UdpFrom(port) => protocol(UDP) && packet.ports[0] == port,
            Self::Flow(address, port) => {
                let to = !packet.v6 && packet.addresses[1][..4] == address;
                to && protocol(UDP) && packet.ports[1] == port
            }
        }
    }
}

struct Known {
    ask: Ask,
    priority: u8,
    /// `None` drops.
    queue: Option<usize>,
    tag: u32,
    rule: FlowRule,
}

fn come_and_go(lab: &Lab<'_>, seed: u64) {
    const QUEUES: usize = 3;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut a = lab.queue(0, INIT);
    let from = lab.sides[0].mac;
    let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
    let mac = domain.mac();
    let mut queues = pairs(lab, &domain, QUEUES);
    let targets: Vec<_> = numbers(&queues)
        .into_iter()
        .map(|queue| domain.create_target(queue).unwrap())
        .collect();
    let to: Vec<Tirn> = targets.iter().map(|target| target.number()).collect();
    let mut slots = [FlowSlot::new(); 30];
    let mut flows = domain.create_flow_table(&mut slots, 3).unwrap();
    let mut known: Vec<Known> = Vec::new();
    let (mut full, mut forwarded, mut dropped) = (0, 0, 0);
    for step in 0..700 {
        if !known.is_empty() && random.below(5) < 2 {
            let gone = known.swap_remove(random.below(known.len()));
            flows.remove(gone.rule).unwrap();
        } else {
            let ask = Ask::draw(&mut random, mac, from);
            let priority = random.below(3) as u8;
            let queue = (random.below(4) != 0).then(|| random.below(QUEUES));
            let action = match queue {
                Some(queue) => FlowAction::Forward(&to[queue..=queue]),
                None => FlowAction::Drop,
            };
            let rule = Rule::new(ask.rule(), action).priority(priority).tag(step);
            match flows.add(&rule) {
                Ok(rule) => known.push(Known {
                    ask,
                    priority,
                    queue,
                    tag: step,
                    rule,
                }),
                Err(error) => {
                    assert_eq!(error, FlowError::Full);
                    let there = known.iter().filter(|it| it.priority == priority).count();
                    assert!(there >= 3, "full with {there} rules");
                    full += 1;
                }
            }
        }
        assert_eq!(flows.rules(), known.len());
        for _ in 0..6 {
            let to = random.pick(&[mac, mac, [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]]);
            let packet = Packet::draw(&mut random, to);
            send(&mut a, &packet.frame(from));
            lab.pause(MS);
            let got = take_all(&mut queues);
            let fitting = known.iter().filter(|it| it.ask.fits(&packet, from));
            let best = fitting.clone().map(|it| it.priority).min();
            let mut candidates = fitting.filter(|it| Some(it.priority) == best);
            match &got[..] {
                [] => {
                    dropped += 1;
                    let right = best.is_none() || candidates.any(|it| it.queue.is_none());
                    assert!(right, "step {step}: {packet:?} was dropped");
                }
                [got] => {
                    forwarded += 1;
                    let right =
                        candidates.any(|it| it.queue == Some(got.queue) && it.tag == got.tag);
                    assert!(right, "step {step}: {packet:?} came by rule {}", got.tag);
                }
                more => panic!("step {step}: {} frames", more.len()),
            }
        }
    }
    assert!(
        full > 5 && forwarded > 500 && dropped > 500,
        "{full} refusals, {forwarded} forwarded, {dropped} dropped"
    );
    for gone in known {
        flows.remove(gone.rule).unwrap();
    }
    // All of a priority's room is there again for rules of one kind, and a rule that is gone is unknown.
    let add = |port| {
        let ask = FlowMatch::ANY.udp_destination(port);
        Rule::new(ask, FlowAction::Drop)
    };
    let rules: Vec<_> = (0..10).map(|port| flows.add(&add(port)).unwrap()).collect();
    assert_eq!(flows.add(&add(10)), Err(FlowError::Full));
    for rule in rules {
        flows.remove(rule).unwrap();
    }
    assert_eq!(flows.rules(), 0);
}

#[test]
fn rules_come_and_go() {
    for seed in [0xf10, 0xf11] {
        lab(|lab| come_and_go(lab, seed));
    }
}

/// Several targets get a copy each, and no target more of a frame than its own.
#[test]
fn a_rule_with_several_targets() {
    lab(|lab| {
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let mut queues = pairs(lab, &domain, 3);
        let targets: Vec<_> = numbers(&queues)
            .into_iter()
            .map(|queue| domain.create_target(queue).unwrap())
            .collect();
        let to: Vec<Tirn> = targets.iter().map(|target| target.number()).collect();
        let mut slots = [FlowSlot::new(); 2];
        let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let counter = domain.alloc_flow_counter().unwrap();
        let all = Rule::new(FlowMatch::ANY, FlowAction::Forward(&to));
        let rule = flows.add(&all.counted(&counter)).unwrap();
        for seed in 0..5 {
            send(&mut a, &lab.frame(0, 100, seed));
            lab.pause(MS);
            let got = take_all(&mut queues);
            let got: Vec<_> = got.into_iter().map(|got| (got.queue, got.bytes)).collect();
            let wanted: Vec<_> = (0..3)
                .map(|queue| (queue, lab.frame(0, 100, seed)))
                .collect();
            assert_eq!(got, wanted);
            assert_eq!(counter.query().unwrap().packets, seed + 1);
        }
        flows.remove(rule).unwrap();
        send(&mut a, &lab.frame(0, 100, 9));
        lab.pause(MS);
        assert_eq!(take_all(&mut queues), []);
        drop(flows);
        // The root is free for others.
        lab.queue(1, INIT).destroy().unwrap();
    });
}
