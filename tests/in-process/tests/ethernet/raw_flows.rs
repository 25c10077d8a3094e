//! Rules in the shapes of `ibv_create_flow`, drawn with values and masks: which QP gets a frame, with which mark, and whether it
//! was counted, is computed by the test from its own reading of the manual page.

use bareverbs_core::{
    Access, CqInit, EthFilter, EthernetError, FlowAttr, FlowError, FlowRule, FlowSpec, FlowType,
    Ipv4Filter, Ipv6Filter, PortFilter, QpInitAttr,
};

use crate::lab::{Lab, MS, lab};
use crate::packets::{OTHER, Packet, TCP, UDP};
use crate::raw::{SLOTS, domain};
use crate::support::{BROADCAST, INIT, Random, padded, send, take};

/// A frame's fields as a specification names them.
struct Facts<'a> {
    packet: &'a Packet,
    from: [u8; 6],
}

fn masked<const N: usize>(got: [u8; N], value: [u8; N], mask: [u8; N]) -> bool {
    (0..N).all(|at| got[at] & mask[at] == value[at] & mask[at])
}

impl Facts<'_> {
    fn v4(&self, which: usize) -> [u8; 4] {
        self.packet.addresses[which][..4].try_into().unwrap()
    }

    /// `ibv_create_flow(3)`: each specification has values, and masks for the bits that count.
    fn have(&self, spec: &FlowSpec) -> bool {
        let packet = self.packet;
        let ports = |value: &PortFilter, mask: &PortFilter| {
            (packet.ports[0] ^ value.src_port) & mask.src_port == 0
                && (packet.ports[1] ^ value.dst_port) & mask.dst_port == 0
        };
        match spec {
            FlowSpec::Eth { value, mask } => {
                let ether_type: u16 = if packet.v6 { 0x86dd } else { 0x0800 };
                let tag = match (mask.vlan_tag, packet.vlan) {
                    (0, _) => true,
                    (_, None) => false,
                    (mask, Some(vlan)) => (vlan ^ value.vlan_tag) & mask == 0,
                };
                masked(packet.to, value.dst_mac, mask.dst_mac)
                    && masked(self.from, value.src_mac, mask.src_mac)
                    && (ether_type ^ value.ether_type) & mask.ether_type == 0
                    && tag
            }
            FlowSpec::Ipv4 { value, mask } => {
                !packet.v6
                    && masked(self.v4(0), value.src_ip, mask.src_ip)
                    && masked(self.v4(1), value.dst_ip, mask.dst_ip)
                    && (packet.protocol ^ value.proto) & mask.proto == 0
                    && value.tos & mask.tos == 0
                    && (64 ^ value.ttl) & mask.ttl == 0
            }
            FlowSpec::Ipv6 { value, mask } => {
                packet.v6
                    && masked(packet.addresses[0], value.src_ip, mask.src_ip)
                    && masked(packet.addresses[1], value.dst_ip, mask.dst_ip)
                    && (packet.protocol ^ value.next_hdr) & mask.next_hdr == 0
                    && value.traffic_class & mask.traffic_class == 0
                    && (64 ^ value.hop_limit) & mask.hop_limit == 0
            }
            FlowSpec::Tcp { value, mask } => packet.protocol == TCP && ports(value, mask),
            FlowSpec::Udp { value, mask } => packet.protocol == UDP && ports(value, mask),
            FlowSpec::ActionTag(_) | FlowSpec::ActionDrop | FlowSpec::ActionCount(_) => true,
        }
    }
}

fn mask8(random: &mut Random) -> u8 {
    random.pick(&[0, 0, 0xff, 0x0f, 0x81])
}

fn bytes<const N: usize>(random: &mut Random) -> [u8; N] {
    let whole = random.pick(&[0, 0, 0xff, 1]);
    core::array::from_fn(|_| if whole == 1 { mask8(random) } else { whole })
}

/// Headers whose values are those of a packet that might come, or nearly.
fn draw(random: &mut Random, mac: [u8; 6], from: [u8; 6]) -> Vec<FlowSpec> {
    let like = Packet::draw(random, mac);
    let mut specs = Vec::new();
    if random.below(2) == 0 {
        specs.push(FlowSpec::Eth {
            value: EthFilter {
                dst_mac: random.pick(&[mac, mac, [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]]),
                src_mac: from,
                ether_type: random.pick(&[0x0800, 0x86dd, 0x0806]),
                vlan_tag: random.pick(&[5, 6, 0x2005]),
            },
            mask: EthFilter {
                dst_mac: bytes(random),
                src_mac: bytes(random),
                ether_type: random.pick(&[0, 0, 0, 0xffff]),
                vlan_tag: random.pick(&[0, 0, 0xfff, 0xffff, 1]),
            },
        });
    }
    match random.below(4) {
        0 => specs.push(FlowSpec::Ipv4 {
            value: Ipv4Filter {
                src_ip: like.addresses[0][..4].try_into().unwrap(),
                dst_ip: like.addresses[1][..4].try_into().unwrap(),
                proto: like.protocol,
                tos: random.pick(&[0, 0, 4, 1]),
                ttl: random.pick(&[64, 63]),
                flags: 0,
            },
            mask: Ipv4Filter {
                src_ip: bytes(random),
                dst_ip: bytes(random),
                proto: random.pick(&[0, 0xff]),
                tos: random.pick(&[0, 0, 0xff, 3]),
                ttl: random.pick(&[0, 0, 0xff]),
                flags: 0,
            },
        }),
        1 => specs.push(FlowSpec::Ipv6 {
            value: Ipv6Filter {
                src_ip: like.addresses[0],
                dst_ip: like.addresses[1],
                flow_label: 0,
                next_hdr: like.protocol,
                traffic_class: random.pick(&[0, 0, 8]),
                hop_limit: random.pick(&[64, 1]),
            },
            mask: Ipv6Filter {
                src_ip: bytes(random),
                dst_ip: bytes(random),
                flow_label: 0,
                next_hdr: random.pick(&[0, 0xff]),
                traffic_class: random.pick(&[0, 0, 0xff]),
                hop_limit: random.pick(&[0, 0, 0xff]),
            },
        }),
        _ => {}
    }
    let value = PortFilter {
        src_port: random.pick(&[9, 53, 80, 443]),
        dst_port: random.pick(&[9, 53, 80, 443]),
    };
    let mask = PortFilter {
        src_port: random.pick(&[0, 0, 0xffff, 1]),
        dst_port: random.pick(&[0, 0xffff, 0x00ff]),
    };
    match random.below(4) {
        0 => specs.push(FlowSpec::Tcp { value, mask }),
        1 => specs.push(FlowSpec::Udp { value, mask }),
        _ => {}
    }
    specs
}

struct Known {
    attr: (FlowType, u16),
    specs: Vec<FlowSpec>,
    qp: usize,
    drop: bool,
    tag: u32,
    rule: FlowRule,
}

impl Known {
    fn takes(&self, facts: &Facts<'_>) -> bool {
        match self.attr.0 {
            FlowType::AllDefault => true,
            FlowType::McDefault => facts.packet.to[0] & 1 != 0,
            _ => self.specs.iter().all(|spec| facts.have(spec)),
        }
    }

    /// The default types are behind all others.
    fn order(&self) -> u32 {
        match self.attr {
            (FlowType::AllDefault, _) => u32::MAX,
            (FlowType::McDefault, _) => u32::MAX - 1,
            (_, priority) => priority.into(),
        }
    }
}

/// With or without a queue behind the rules, which gets what they leave of the frames to its address and to all.
fn come_and_go(lab: &Lab<'_>, seed: u64, behind: bool) {
    const QPS: usize = 3;
    println!("seed {seed:#x}, a queue behind: {behind}");
    let mut random = Random(seed);
    let mut peer = lab.queue(0, INIT);
    let from = lab.sides[0].mac;
    let side = &lab.sides[1];
    let domain = domain(lab, 1);
    let mac = domain.mac();
    let mut cq = side.device.create_cq(CqInit::new(128)).unwrap();
    let buffer = side.pd.alloc_buffer(4096, Access::LOCAL_WRITE).unwrap();
    let mut qps: Vec<_> = (0..QPS)
        .map(|_| {
            let mut init = QpInitAttr::new(&cq, 16);
            let qp = domain.create_raw_packet_qp(&side.pd, &mut init);
            let mut qp = qp.unwrap();
            qp.bring_to_rts().unwrap();
            for _ in 0..16 {
                let sge = buffer.sge(0, 4096).unwrap();
                qp.recv_queue().post(0, &[sge]).unwrap();
            }
            qp
        })
        .collect();
    let counter = domain.alloc_flow_counter().unwrap();
    let mut slots = SLOTS;
    let mut queue = behind.then(|| lab.queue(1, INIT));
    let mut flows = domain.create_flow_table(&mut slots, 5).unwrap();
    let mut known: Vec<Known> = Vec::new();
    let mut left = 0;
    let (mut full, mut conflicts, mut came, mut dropped, mut counted) = (0, 0, 0, 0, 0);
    for step in 0..500 {
        if !known.is_empty() && random.below(5) < 2 {
            let gone = known.swap_remove(random.below(known.len()));
            flows.remove(gone.rule).unwrap();
        } else {
            let (qp, drop) = (random.below(QPS), random.below(6) == 0);
            let attr = match random.below(8) {
                0 => (FlowType::AllDefault, 0),
                1 => (FlowType::McDefault, 0),
                _ => (FlowType::Normal, random.below(3) as u16),
            };
            let mut specs = match attr.0 {
                FlowType::Normal => draw(&mut random, mac, from),
                _ => Vec::new(),
            };
            let headers = specs.len();
            specs.push(FlowSpec::ActionTag(step));
            specs.push(FlowSpec::ActionCount(counter.id()));
            if drop {
                specs.push(FlowSpec::ActionDrop);
            }
            let asked = FlowAttr {
                kind: attr.0,
                priority: attr.1,
                ..FlowAttr::normal(&specs)
            };
            match flows.create_flow(qps[qp].target().unwrap(), &asked) {
                Ok(rule) => known.push(Known {
                    attr,
                    specs: specs.clone(),
                    qp,
                    drop,
                    tag: step,
                    rule,
                }),
                Err(FlowError::Full) => full += 1,
                Err(FlowError::Conflict) => {
                    assert!(headers > 1, "{specs:?}");
                    // No frame of those that can be drawn has all of it.
                    for _ in 0..200 {
                        let packet = &Packet::draw(&mut random, mac);
                        let facts = Facts { packet, from };
                        assert!(!specs.iter().all(|spec| facts.have(spec)), "{specs:?}");
                    }
                    conflicts += 1;
                }
                Err(other) => panic!("{other}: {specs:?}"),
            }
        }
        for _ in 0..6 {
            let to = random.pick(&[mac, mac, [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]]);
            let packet = Packet::draw(&mut random, to);
            send(&mut peer, &packet.frame(from));
            lab.pause(MS);
            let mut got = Vec::new();
            while let Some(completion) = cq.poll().unwrap() {
                let number = completion.qp_num();
                got.push((
                    qps.iter().position(|qp| qp.qpn() == number),
                    completion.flow_tag(),
                ));
            }
            for &(qp, _) in &got {
                let sge = buffer.sge(0, 4096).unwrap();
                let qp = &mut qps[qp.expect("a QP of this CQ")];
                qp.recv_queue().post(0, &[sge]).unwrap();
            }
            let facts = Facts {
                packet: &packet,
                from,
            };
            let fitting = known.iter().filter(|it| it.takes(&facts));
            let best = fitting.clone().map(Known::order).min();
            let mut candidates = fitting.filter(|it| Some(it.order()) == best);
            counted += u64::from(best.is_some());
            if let Some(queue) = &mut queue {
                let is_left = best.is_none() && (to == mac || to == BROADCAST);
                let wanted = is_left.then(|| padded(packet.frame(from)));
                assert_eq!(take(queue), wanted, "step {step}: {packet:?}");
                left += u32::from(is_left);
            }
            match got[..] {
                [] => {
                    dropped += 1;
                    let right = best.is_none() || candidates.any(|it| it.drop);
                    assert!(right, "step {step}: {packet:?} was dropped");
                }
                [(qp, tag)] => {
                    came += 1;
                    let right = candidates.any(|it| !it.drop && Some(it.qp) == qp && it.tag == tag);
                    assert!(right, "step {step}: {packet:?} came by rule {tag}");
                }
                _ => panic!("step {step}: {got:?}"),
            }
            assert_eq!(counter.query().unwrap().packets, counted);
        }
    }
    println!("{full} {conflicts} {came} {dropped} {left}");
    assert!(full > 0 && conflicts > 5 && came > 300 && dropped > 100);
    for gone in known {
        flows.remove(gone.rule).unwrap();
    }
    flows.destroy().unwrap();
    if let Some(mut queue) = queue {
        assert!(left > 50);
        // It has everything again.
        let packet = Packet::draw(&mut random, mac);
        send(&mut peer, &packet.frame(from));
        assert_eq!(lab.receive(&mut queue), padded(packet.frame(from)));
        queue.destroy().unwrap();
    }
    assert_eq!(cq.garbage_completions(), 0);
    assert_eq!(OTHER, 47);
}

#[test]
fn flows_come_and_go() {
    for seed in [0xf20, 0xf21] {
        lab(|lab| come_and_go(lab, seed, false));
    }
}

#[test]
fn flows_in_front_of_a_queue() {
    for seed in [0xf22, 0xf23] {
        lab(|lab| come_and_go(lab, seed, true));
    }
}

/// There is one table at most, and the root is free again after both.
#[test]
fn one_table_in_front_of_a_queue() {
    lab(|lab| {
        let domain = domain(lab, 1);
        let (mut slots, mut others) = (SLOTS, SLOTS);
        let queue = lab.queue(1, INIT);
        let flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let second = domain.create_flow_table(&mut others, 1);
        assert_eq!(second.expect_err("there is one"), EthernetError::Busy);
        drop(flows);
        drop(queue);
        let flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let queue = lab.sides[1].pd.create_ethernet_queue(&INIT);
        assert_eq!(queue.expect_err("the table"), EthernetError::Busy);
        drop(flows);
        drop(lab.queue(1, INIT));
    });
}
