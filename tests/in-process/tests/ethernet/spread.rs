//! Frames spread over several queues by hash: which queue gets each is computed by the test, from what was published.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use bareverbs_core::error::CommandError;
use bareverbs_core::{
    Config, Cqs, Device, EthernetDomain, EthernetError, EthernetInit, EthernetReceive,
    EthernetSend, EthernetTarget, FlowAction, FlowCounter, FlowError, FlowMatch, FlowRuleInit,
    FlowSlot, FlowTraffic, HashFields, HashFunction, HashedPackets, IndirectionTable, PageChunks,
    Qps, Resources, Rqn, RssError, RssHash, Srqs, Tirn,
};
use bareverbs_in_process::{Builder, World};
use connectx_model::{CommandFault, CommandRule, Config as Card, Objects, Status};

use crate::lab::{self, Lab, MS, lab, lab_with};
use crate::packets::{Packet, TCP, UDP, VECTORS, toeplitz};
use crate::seam::{self, Seam};
use crate::support::{INIT, NONE, Random, padded, send};

pub(crate) type Pair<'d> = (EthernetSend<'d, Seam>, EthernetReceive<'d, Seam>);
pub(crate) type Rule<'a, 'd> = FlowRuleInit<'a, 'd, Seam>;

const RING: EthernetInit = EthernetInit {
    recv_frames: 32,
    ..INIT
};

/// A frame as a queue got it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) queue: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) hash: u32,
    pub(crate) kind: u8,
    pub(crate) tag: u32,
}

/// Everything that came to any of the queues.
pub(crate) fn take_all(queues: &mut [Pair<'_>]) -> Vec<Got> {
    let mut all = Vec::new();
    for (queue, (_, receive)) in queues.iter_mut().enumerate() {
        while let Some(frame) = receive.receive().expect("the queue works") {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(&mut bytes);
            let (hash, tag) = (frame.hash().expect("a hash"), frame.flow_tag());
            let (hash, kind) = (hash.value, hash.kind);
            all.push(Got {
                queue,
                bytes,
                hash,
                kind,
                tag,
            });
        }
    }
    all
}

pub(crate) fn pairs<'d>(
    lab: &Lab<'d>,
    domain: &EthernetDomain<'d, Seam>,
    count: usize,
) -> Vec<Pair<'d>> {
    let pd = &lab.sides[1].pd;
    (0..count)
        .map(|_| domain.create_queues(pd, &RING).expect("queues"))
        .collect()
}

pub(crate) fn numbers(queues: &[Pair<'_>]) -> Vec<Rqn> {
    queues.iter().map(|(_, receive)| receive.number()).collect()
}

const KINDS: [HashedPackets; 4] = [
    HashedPackets::TcpIpv4,
    HashedPackets::UdpIpv4,
    HashedPackets::TcpIpv6,
    HashedPackets::UdpIpv6,
];

/// Frames of each of [`KINDS`], then of each IP version.
fn kinds(mac: [u8; 6]) -> [FlowMatch; 6] {
    let mine = FlowMatch::ANY.destination(mac);
    [
        mine.ipv4().ip_protocol(TCP),
        mine.ipv4().ip_protocol(UDP),
        mine.ipv6().ip_protocol(TCP),
        mine.ipv6().ip_protocol(UDP),
        mine.ipv4(),
        mine.ipv6(),
    ]
}

fn targets<'d>(
    domain: &EthernetDomain<'d, Seam>,
    table: &IndirectionTable<'d, Seam>,
    key: [u8; 40],
) -> Vec<EthernetTarget<'d, Seam>> {
    let packets = KINDS
        .into_iter()
        .chain([HashedPackets::Ipv4, HashedPackets::Ipv6]);
    packets
        .map(|packets| {
            let mut hash = RssHash::all_of(packets);
            hash.key = key;
            domain.create_hashed_target(table, &hash).expect("target")
        })
        .collect()
}

/// The place of a packet's kind in [`kinds`].
fn kind_of(packet: &Packet) -> usize {
    let transport = match packet.protocol {
        TCP => Some(0),
        UDP => Some(1),
        _ => None,
    };
    let v6 = usize::from(packet.v6);
    transport.map_or(4 + v6, |transport| 2 * v6 + transport)
}

/// The published numbers, through the whole driver and onto the queue that the table names.
#[test]
fn published_hashes() {
    lab(|lab| {
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let mut queues = pairs(lab, &domain, 4);
        let table = domain
            .create_indirection_table(&numbers(&queues), 128)
            .unwrap();
        let targets = targets(&domain, &table, RssHash::PUBLIC_KEY);
        let mut slots = [FlowSlot::new(); 32];
        let mut flows = domain.create_flow_table(&mut slots, 2).unwrap();
        for (at, matches) in kinds(domain.mac()).into_iter().enumerate() {
            let to = [targets[at].number()];
            let rule = Rule::new(matches, FlowAction::Forward(&to));
            let _rule = flows.add(&rule.priority(u8::from(at >= 4))).unwrap();
        }
        for (to, to_port, from, from_port, addresses, with_ports) in VECTORS {
            let bytes = |text: &str| match text.parse().unwrap() {
                IpAddr::V4(ip) => {
                    let mut all = [0; 16];
                    all[..4].copy_from_slice(&ip.octets());
                    (false, all)
                }
                IpAddr::V6(ip) => (true, ip.octets()),
            };
            for (protocol, hash, kind) in [
                (TCP, with_ports, [0b0101_0101, 0b0101_1010]),
                (crate::packets::OTHER, addresses, [0b0101, 0b1010]),
            ] {
                let (v6, destination) = bytes(to);
                let packet = Packet {
                    to: domain.mac(),
                    vlan: None,
                    v6,
                    addresses: [bytes(from).1, destination],
                    protocol,
                    ports: [from_port, to_port],
                    payload: 30,
                };
                let frame = packet.frame(lab.sides[0].mac);
                send(&mut a, &frame);
                lab.pause(MS);
                let wanted = Got {
                    queue: (hash % 128 % 4) as usize,
                    bytes: padded(frame),
                    hash,
                    kind: kind[usize::from(v6)],
                    tag: 0,
                };
                assert_eq!(take_all(&mut queues), [wanted], "{to} from {from}");
            }
        }
    });
}

/// A mix of frames, with rules of three priorities, counters, and a table and keys that change in between.
#[test]
fn each_frame_comes_to_the_queue_that_the_test_computes() {
    const SEED: u64 = 0x0e55;
    println!("seed {SEED:#x}");
    lab(|lab| {
        let mut random = Random(SEED);
        let mut a = lab.queue(0, INIT);
        let from = lab.sides[0].mac;
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let mac = domain.mac();
        assert!(domain.max_indirection_table() >= 128);
        let mut queues = pairs(lab, &domain, 5);
        let all = numbers(&queues);
        let mut order: Vec<usize> = (0..4).collect();
        let mut key = RssHash::PUBLIC_KEY;
        let mut table = domain.create_indirection_table(&all[..4], 64).unwrap();
        assert_eq!(table.size(), 64);
        let mut targets = targets(&domain, &table, key);
        let last = domain.create_target(all[4]).unwrap();
        // One for each rule: what is dropped, the kinds, the rest.
        let mut counters: Vec<FlowCounter<'_, Seam>> = (0..8)
            .map(|_| domain.alloc_flow_counter().unwrap())
            .collect();
        let mut slots = [FlowSlot::new(); 48];
        let mut flows = domain.create_flow_table(&mut slots, 4).unwrap();
        let discard = FlowMatch::ANY.destination(mac).udp_destination(9);
        let rule = Rule::new(discard, FlowAction::Drop).counted(&counters[0]);
        let _rule = flows.add(&rule).unwrap();
        for (at, matches) in kinds(mac).into_iter().enumerate() {
            let to = [targets[at].number()];
            let rule = Rule::new(matches, FlowAction::Forward(&to))
                .priority(if at < 4 { 1 } else { 2 })
                .counted(&counters[at + 1])
                .tag(0x10_0000 + at as u32);
            let _rule = flows.add(&rule).unwrap();
        }
        let to = [last.number()];
        let rest = FlowMatch::ANY.destination(mac);
        let rule = Rule::new(rest, FlowAction::Forward(&to)).priority(3);
        let rule = rule.counted(&counters[7]).tag(0xff_ffff);
        let _rule = flows.add(&rule).unwrap();
        assert_eq!(flows.rules(), 8);

        let mut seen = [FlowTraffic::default(); 8];
        let mut to_queue = [0_u32; 5];
        for round in 0..400 {
            if round % 50 == 49 {
                // Fewer queues or others, and a key of its own, while nothing stops.
                order = (0..1 + random.below(4)).map(|_| random.below(4)).collect();
                let now: Vec<Rqn> = order.iter().map(|&at| all[at]).collect();
                table.set(&now).unwrap();
                key = std::array::from_fn(|_| random.below(256) as u8);
                for (packets, target) in KINDS.into_iter().zip(&mut targets) {
                    let mut hash = RssHash::all_of(packets);
                    hash.key = key;
                    target.set_hash(&hash).unwrap();
                }
                for (packets, target) in [HashedPackets::Ipv4, HashedPackets::Ipv6]
                    .into_iter()
                    .zip(&mut targets[4..])
                {
                    let mut hash = RssHash::all_of(packets);
                    hash.key = key;
                    target.set_hash(&hash).unwrap();
                }
            }
            let mut wanted = Vec::new();
            for _ in 0..1 + random.below(8) {
                let to = random.pick(&[mac, mac, mac, mac, [0xff; 6], [2, 0, 0, 0, 0, 9]]);
                let packet = Packet::draw(&mut random, to);
                let mut frame = packet.frame(from);
                let arp = random.below(12) == 0;
                if arp {
                    frame = [&to[..], &from, &[0x08, 0x06], &[0; 46]].concat();
                }
                send(&mut a, &frame);
                let frame = padded(frame);
                if to != mac {
                    continue;
                }
                let rule = if arp {
                    7
                } else if packet.protocol == UDP && packet.ports[1] == 9 {
                    0
                } else {
                    1 + kind_of(&packet)
                };
                seen[rule].packets += 1;
                seen[rule].octets += frame.len() as u64;
                match rule {
                    0 => {}
                    7 => wanted.push((4, frame, 0, 0xff_ffff)),
                    _ => {
                        let hash = toeplitz(&key, &packet.hash_input(rule < 5));
                        let queue = order[hash as usize % 64 % order.len()];
                        wanted.push((queue, frame, hash, 0x10_0000 + rule as u32 - 1));
                    }
                }
            }
            while lab.world.step() {}
            // In each queue in the order of the cable.
            wanted.sort_by_key(|frame| frame.0);
            let got: Vec<_> = take_all(&mut queues)
                .into_iter()
                .map(|got| (got.queue, got.bytes, got.hash, got.tag))
                .collect();
            assert_eq!(got, wanted, "round {round}");
            for (queue, ..) in got {
                to_queue[queue] += 1;
            }
        }
        let counted: Vec<_> = counters.iter().map(|it| it.query().unwrap()).collect();
        assert_eq!(counted, seen);
        assert!(to_queue.iter().all(|&frames| frames > 20), "{to_queue:?}");
        for (counter, seen) in counters.iter_mut().zip(seen) {
            assert_eq!(counter.take(), Ok(seen));
            assert_eq!(counter.query(), Ok(FlowTraffic::default()));
        }
    });
}

/// Fewer fields, both directions in one, and the other function.
#[test]
fn other_hashes() {
    lab(|lab| {
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let mut queues = pairs(lab, &domain, 2);
        let table = domain
            .create_indirection_table(&numbers(&queues), 2)
            .unwrap();
        let mut hash = RssHash::all_of(HashedPackets::UdpIpv4);
        let mut target = domain.create_hashed_target(&table, &hash).unwrap();
        let mut slots = [FlowSlot::new(); 1];
        let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let to = [target.number()];
        let everything = Rule::new(FlowMatch::ANY, FlowAction::Forward(&to));
        let _rule = flows.add(&everything).unwrap();
        let mut random = Random(77);
        let mut hash_of = |packet: &Packet| {
            send(&mut a, &packet.frame(lab.sides[0].mac));
            lab.pause(MS);
            take_all(&mut queues)[0].hash
        };
        for _ in 0..50 {
            let mut packet = Packet::draw(&mut random, domain.mac());
            (packet.v6, packet.protocol) = (false, UDP);
            hash.symmetric = false;
            hash.function = HashFunction::Toeplitz;
            hash.fields = HashFields::DESTINATION_ADDRESS | HashFields::SOURCE_PORT;
            target.set_hash(&hash).unwrap();
            let input = [packet.address(1), &packet.ports[0].to_be_bytes()].concat();
            assert_eq!(hash_of(&packet), toeplitz(&hash.key, &input));
            hash.function = HashFunction::InvertedXor8;
            target.set_hash(&hash).unwrap();
            let xor = input.iter().fold(0, |all, byte| all ^ byte);
            assert_eq!(hash_of(&packet), u32::from(!xor));
            hash.function = HashFunction::Toeplitz;
            hash.fields = HashFields::all();
            hash.symmetric = true;
            target.set_hash(&hash).unwrap();
            let mut back = packet;
            back.addresses.reverse();
            back.ports.reverse();
            assert_eq!(hash_of(&packet), hash_of(&back));
        }
    });
}

/// Each queue's halves on a thread, over the threaded device: each answers what comes to it, and all answers come back.
#[test]
fn each_queue_has_its_thread() {
    const FRAMES: u64 = 1500;
    let world = Builder::new()
        .function(seam::card(Card::new(1)))
        .function(seam::card(Card::new(2)))
        .threaded();
    lab::run(&world, |lab| {
        let mut a = lab.queue(0, RING);
        let from = lab.sides[0].mac;
        let device = lab.sides[1].device;
        let domain = device.alloc_ethernet_domain().unwrap();
        let mac = domain.mac();
        let mut queues = pairs(lab, &domain, 4);
        let table = domain
            .create_indirection_table(&numbers(&queues), 64)
            .unwrap();
        let targets = targets(&domain, &table, RssHash::PUBLIC_KEY);
        let mut slots = [FlowSlot::new(); 16];
        let mut flows = domain.create_flow_table(&mut slots, 2).unwrap();
        for (at, matches) in kinds(mac).into_iter().enumerate() {
            let to = [targets[at].number()];
            let rule = Rule::new(matches, FlowAction::Forward(&to));
            let _rule = flows.add(&rule.priority(u8::from(at >= 4))).unwrap();
        }
        let answered = AtomicU64::new(0);
        let each: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for ((send, receive), each) in queues.iter_mut().zip(&each) {
                let answered = &answered;
                scope.spawn(move || {
                    let mut frame = vec![0; 1518];
                    while answered.load(Ordering::Relaxed) < FRAMES {
                        let Some(received) = receive.receive().expect("the queue works") else {
                            bareverbs_core::Platform::relax(device.platform());
                            continue;
                        };
                        let length = received.copy_to(&mut frame);
                        drop(received);
                        let (to, rest) = frame.split_at_mut(6);
                        to.swap_with_slice(&mut rest[..6]);
                        while send.free() == 0 {
                            send.poll().expect("the queue works");
                            std::thread::yield_now();
                        }
                        send.send(&frame[..length], NONE).expect("sent");
                        each.fetch_add(1, Ordering::Relaxed);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut random = Random(4);
            for number in 0..FRAMES {
                let packet = Packet::draw(&mut random, mac);
                let mut sent = packet.frame(from);
                send(&mut a, &sent);
                // One at a time, so that nothing is lost for want of buffers.
                let deadline = bareverbs_core::Platform::now(device.platform())
                    + std::time::Duration::from_secs(20);
                assert_eq!(a.wait(deadline), Ok(true), "no answer to frame {number}");
                let answer = crate::support::take(&mut a).expect("an answer");
                let (to, rest) = sent.split_at_mut(6);
                to.swap_with_slice(&mut rest[..6]);
                assert_eq!(answer, padded(sent), "frame {number}");
            }
        });
        let each: Vec<u64> = each.into_iter().map(AtomicU64::into_inner).collect();
        assert_eq!(each.iter().sum::<u64>(), FRAMES);
        assert!(each.iter().all(|&count| count > 100), "{each:?}");
    });
}

/// Everything that a program makes, in order; only the queues are made and go without refusals, which are another
/// test's business.
fn everything<'d>(
    world: &World,
    device: &'d Device<'d, Seam>,
    queues: &mut Vec<Pair<'d>>,
) -> Result<(), CommandError> {
    fn ethernet(error: EthernetError) -> CommandError {
        match error {
            EthernetError::Command(error) => error,
            other => panic!("{other}"),
        }
    }
    fn rss(error: RssError) -> CommandError {
        match error {
            RssError::Command(error) => error,
            other => panic!("{other}"),
        }
    }
    fn flow(error: FlowError) -> CommandError {
        match error {
            FlowError::Command(error) => error,
            other => panic!("{other}"),
        }
    }
    let refusals = |new| {
        world.with_model(1, |model| {
            std::mem::replace(&mut model.faults_mut().commands, new)
        })
    };
    let domain = device.alloc_ethernet_domain().map_err(ethernet)?;
    let held = refusals(Vec::new());
    let pd = device.alloc_pd()?;
    for _ in 0..2 {
        queues.push(domain.create_queues(&pd, &RING).map_err(ethernet)?);
    }
    drop(pd);
    refusals(held);
    let all = numbers(queues);
    let mut table = domain.create_indirection_table(&all, 16).map_err(rss)?;
    let hash = RssHash::all_of(HashedPackets::TcpIpv4);
    let mut hashed = domain.create_hashed_target(&table, &hash).map_err(rss)?;
    let direct = domain.create_target(all[1]).map_err(rss)?;
    let counter = domain.alloc_flow_counter().map_err(ethernet)?;
    let mut slots = [FlowSlot::new(); 8];
    let mut flows = domain.create_flow_table(&mut slots, 2).map_err(ethernet)?;
    let tcp = FlowMatch::ANY
        .destination(domain.mac())
        .ipv4()
        .ip_protocol(TCP);
    let to = [hashed.number()];
    let rule = Rule::new(tcp, FlowAction::Forward(&to)).counted(&counter);
    let first = flows.add(&rule).map_err(flow)?;
    let to = [direct.number()];
    let rest = Rule::new(FlowMatch::ANY, FlowAction::Forward(&to)).priority(1);
    let _rest = flows.add(&rest).map_err(flow)?;
    flows.set_multicast(&[[0x33, 0x33, 0, 0, 0, 1]])?;
    flows.set_promiscuous(true, true)?;
    table.set(&all[..1]).map_err(rss)?;
    hashed.set_hash(&hash).map_err(rss)?;
    counter.query()?;
    flows.remove(first).map_err(flow)?;
    flows.destroy()?;
    counter.destroy()?;
    direct.destroy()?;
    hashed.destroy()?;
    table.destroy()?;
    let held = refusals(Vec::new());
    queues.clear();
    refusals(held);
    domain.destroy()
}

/// Every command is refused once, from the domain to the end: each refusal is reported, and nothing is left when the
/// device is closed.
#[test]
fn each_command_is_refused_once() {
    let mut refused = 0;
    for nth in 0.. {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let mut resources = Box::new(Resources::<Qps<1>, Cqs<8>, Srqs<1>, PageChunks<256>>::new());
        let before = world.accounting(1);
        let device = world.open(1, Config::DEFAULT, resources.storage(), &[]);
        world.with_model(1, |model| {
            let fault = CommandFault::Fail {
                status: Status::NoResources,
                syndrome: 0x1234,
            };
            model.faults_mut().commands = vec![CommandRule::nth(nth, fault)];
        });
        let mut queues = Vec::new();
        let result = everything(&world, &device, &mut queues);
        let struck = world.with_model(1, |model| {
            let rules = std::mem::take(&mut model.faults_mut().commands);
            rules.iter().all(|rule| rule.times == 0)
        });
        drop(queues);
        assert_eq!(result.is_err(), struck, "command {nth}: {result:?}");
        if let Err(error) = result {
            refused += 1;
            assert!(error.to_string().contains("0x1234"), "{nth}: {error}");
        }
        if let Err(error) = device.close() {
            assert!(struck, "command {nth}: {error}");
            assert_eq!((error.bytes_quarantined, error.pages_lost), (0, 0));
        }
        assert_eq!(world.take_faults(1), [], "command {nth}");
        assert_eq!(world.accounting(1), before, "command {nth}");
        world.with_model(1, |model| assert_eq!(model.objects(), Objects::default()));
        if !struck {
            break;
        }
    }
    assert!(refused > 30, "{refused}");
}

/// Capabilities that a card does not have are named before the firmware is asked.
#[test]
fn cards_that_lack_something() {
    let domain_of = |change: &dyn Fn(&mut Card),
                     test: &dyn Fn(&Lab<'_>, &EthernetDomain<'_, Seam>)| {
        let card = |mut card: Card| {
            change(&mut card);
            card
        };
        lab_with(card, |lab| {
            let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
            test(lab, &domain);
        });
    };
    let without_tables: [&dyn Fn(&mut Card); 2] = [
        &|card| {
            card.ethernet.set_rss_ind_tbl_cap(0);
        },
        &|card| {
            for caps in [&mut card.general, &mut card.general_max] {
                caps.set_log_max_rqt(0);
            }
        },
    ];
    for change in without_tables {
        domain_of(change, &|lab, domain| {
            assert_eq!(domain.max_indirection_table(), 0);
            let queues = pairs(lab, domain, 1);
            let table = domain.create_indirection_table(&numbers(&queues), 2);
            assert_eq!(table.expect_err("no tables"), RssError::Unsupported);
            // One queue goes on all the same.
            domain.create_target(queues[0].1.number()).unwrap();
        });
    }
    domain_of(
        &|card| {
            card.ethernet.set_rss_ind_tbl_cap(2);
        },
        &|lab, domain| {
            let queues = pairs(lab, domain, 2);
            for asked in [0, 3, 8, 128, 1 << 16] {
                assert_eq!(
                    domain
                        .create_indirection_table(&numbers(&queues), asked)
                        .expect_err("too large"),
                    RssError::TableSize { asked, limit: 4 }
                );
            }
            let none = domain.create_indirection_table(&[], 4);
            assert_eq!(none.expect_err("of nothing"), RssError::NoQueue);
            let mut table = domain
                .create_indirection_table(&numbers(&queues), 4)
                .unwrap();
            assert_eq!(table.set(&[]), Err(RssError::NoQueue));
            let mut hash = RssHash::all_of(HashedPackets::Ipv4);
            for fields in [HashFields::PORTS, HashFields::all(), HashFields::empty()] {
                hash.fields = fields;
                let error = domain.create_hashed_target(&table, &hash);
                let packets = HashedPackets::Ipv4;
                assert_eq!(error.expect_err("no ports"), RssError::Fields { packets });
            }
        },
    );
    domain_of(
        &|card| {
            let receive = card.flow_table.flow_table_properties_nic_receive_mut();
            receive.set_flow_counter(false);
            // Everything but the version of IP and ports of UDP.
            *receive.ft_field_support_mut() =
                [0xef, 0xff, 0xcf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            card.flow_table.set_nic_rx_multi_path_tirs(false);
        },
        &|lab, domain| {
            let error = domain.alloc_flow_counter().expect_err("no counters");
            let what = "flow counters";
            assert_eq!(error, EthernetError::Unsupported { what });
            let mut queues = pairs(lab, domain, 2);
            let targets: Vec<_> = numbers(&queues)
                .into_iter()
                .map(|queue| domain.create_target(queue).unwrap())
                .collect();
            let to: Vec<Tirn> = targets.iter().map(EthernetTarget::number).collect();
            let mut slots = [FlowSlot::new(); 4];
            let mut flows = domain.create_flow_table(&mut slots, 2).unwrap();
            let rule = |matches, to| Rule::new(matches, FlowAction::Forward(to));
            let asked = to.len();
            assert_eq!(
                flows.add(&rule(FlowMatch::ANY, &to)),
                Err(FlowError::Targets { asked, limit: 1 })
            );
            assert_eq!(
                flows.add(&rule(FlowMatch::ANY, &[])),
                Err(FlowError::Targets { asked: 0, limit: 1 })
            );
            let name = "UDP's destination port";
            assert_eq!(
                flows.add(&rule(FlowMatch::ANY.udp_destination(9), &to[..1])),
                Err(FlowError::Field { name })
            );
            assert_eq!(
                flows.add(&rule(FlowMatch::ANY, &to[..1]).priority(2)),
                Err(FlowError::Priority { asked: 2, limit: 2 })
            );
            assert_eq!(
                flows.add(&rule(FlowMatch::ANY, &to[..1]).tag(1 << 24)),
                Err(FlowError::Tag { asked: 1 << 24 })
            );
            assert_eq!(flows.rules(), 0);
            // The version goes by the EtherType.
            let _rule = flows.add(&rule(FlowMatch::ANY.ipv6(), &to[..1])).unwrap();
            let mut a = lab.queue(0, INIT);
            let mut packet = Packet::draw(&mut Random(1), domain.mac());
            for v6 in [false, true] {
                packet.v6 = v6;
                send(&mut a, &packet.frame(lab.sides[0].mac));
                lab.pause(MS);
                assert_eq!(take_all(&mut queues).len(), usize::from(v6));
            }
        },
    );
}

/// A hash of 8 bits finds 256 entries: Linux has no larger table with it (`MLX5E_MAX_RQT_SIZE_ALLOWED_WITH_XOR8_HASH`).
#[test]
fn a_short_hash_finds_no_more_than_256_entries() {
    lab_with(
        |card| card,
        |lab| {
            let domain = &lab.sides[1].device.alloc_ethernet_domain().unwrap();
            let queues = pairs(lab, domain, 2);
            let mut hash = RssHash::all_of(HashedPackets::Ipv4);
            hash.function = HashFunction::InvertedXor8;
            for size in [256, 512] {
                let table = domain
                    .create_indirection_table(&numbers(&queues), size)
                    .unwrap();
                let made = domain.create_hashed_target(&table, &hash).map(drop);
                let expected = match size {
                    256 => Ok(()),
                    asked => Err(RssError::TableSize { asked, limit: 256 }),
                };
                assert_eq!(made, expected);
            }
        },
    );
}
