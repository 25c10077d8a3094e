//! Ethernet frames between two cards of a kind: each card demands other headers inline, and offers other checksums.

use bareverbs_core::{
    Access, CqInit, EthernetError, EthernetInit, EthernetSendFlags, FlowAction, FlowAttr,
    FlowMatch, FlowRuleInit, FlowSlot, FlowSpec, FrameCompression, HashedPackets, Inline,
    PostError, QpCap, QpInitAttr, RssHash, SendData, SendFlags, Sge, WcStatus,
};
use connectx_model::Config;

use crate::lab::{Lab, MS, lab_with, pattern};

const INIT: EthernetInit = EthernetInit {
    send_frames: 8,
    recv_frames: 8,
    frame_len: Some(1526),
    max_groups: 0,
    strip_vlan: false,
    comp_vector: 0,
    compression: FrameCompression::OFF,
};
/// A frame with an EtherType for experiments, of a customer's VLAN, of a customer's VLAN in a service's.
const TAGS: [&[u8]; 3] = [
    &[],
    &[0x81, 0x00, 0, 5],
    &[0x88, 0xa8, 0, 6, 0x81, 0x00, 0, 5],
];
const LENGTHS: [usize; 6] = [14, 17, 46, 60, 100, 1518];

fn frames(lab: &Lab<'_>) {
    let [mut from, mut to] = [0, 1].map(|node: usize| {
        lab.sides[node]
            .pd
            .create_ethernet_queue(&INIT)
            .expect("queue")
    });
    let checksums = from.send_half().has_checksums();
    let mut all = vec![EthernetSendFlags::empty()];
    if checksums {
        all.push(EthernetSendFlags::L3_CHECKSUM | EthernetSendFlags::L4_CHECKSUM);
    }
    for flags in all {
        for tags in TAGS {
            for len in LENGTHS {
                let (target, source) = (lab.sides[1].mac, lab.sides[0].mac);
                let mut frame = [&target[..], &source, tags, &[0x88, 0xb5]].concat();
                frame.extend(pattern(len - 14, len as u64));
                from.send_half().send(&frame, flags).expect("sent");
                lab.pause(MS);
                let received = to.receive_half().receive().expect("the queue works");
                let received = received.unwrap_or_else(|| panic!("{tags:x?}, {len}: no frame"));
                let mut got = vec![0; received.len()];
                received.copy_to(&mut got);
                frame.resize(frame.len().max(60), 0);
                assert_eq!(got, frame, "{tags:x?}, {len}");
                let failure = from.send_half().failure();
                assert_eq!(failure, None, "{tags:x?}, {len}");
            }
        }
    }
}

/// UDP packets of many flows come to two queues by their hash, and a counter has seen them all.
fn spread(lab: &Lab<'_>) {
    const FLOWS: u16 = 64;
    let side = &lab.sides[1];
    let mut from = lab.sides[0].pd.create_ethernet_queue(&INIT).expect("queue");
    let domain = side.device.alloc_ethernet_domain().expect("domain");
    let mut queues = [(); 2].map(|()| domain.create_queues(&side.pd, &INIT).expect("queues"));
    let numbers = [0, 1].map(|at: usize| queues[at].1.number());
    let size = domain.max_indirection_table();
    let table = domain
        .create_indirection_table(&numbers, size)
        .expect("table");
    let hash = RssHash::all_of(HashedPackets::UdpIpv4);
    let target = domain.create_hashed_target(&table, &hash).expect("target");
    // The ConnectX-4 Lx that was recorded has none.
    let counter = match domain.alloc_flow_counter() {
        Ok(counter) => Some(counter),
        Err(error) => {
            let what = "flow counters";
            assert_eq!(error, EthernetError::Unsupported { what });
            None
        }
    };
    let mut slots = [FlowSlot::new(); 4];
    let mut flows = domain.create_flow_table(&mut slots, 2).expect("flows");
    let to = [target.number()];
    let udp = FlowMatch::ANY.destination(side.mac).ipv4().ip_protocol(17);
    let mut rule = FlowRuleInit::new(udp, FlowAction::Forward(&to));
    rule.counter = counter.as_ref();
    let _rule = flows.add(&rule).expect("rule");
    let mut seen = [0; 2];
    for flow in 0..FLOWS {
        let ip = [
            0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbb, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let udp = [[9, flow as u8], [0, 53], [0, 26], [0, 0]].concat();
        let (target, source) = (side.mac, lab.sides[0].mac);
        let header = [&target[..], &source, &[0x08, 0x00], &ip, &udp].concat();
        let frame = [&header[..], &[0x5a; 18]].concat();
        from.send_half()
            .send(&frame, EthernetSendFlags::empty())
            .expect("sent");
        lab.pause(MS);
        let mut came = 0;
        for (at, (_, receive)) in queues.iter_mut().enumerate() {
            if let Some(received) = receive.receive().expect("the queue works") {
                let hash = received.hash().expect("kept");
                assert_eq!(hash.value % size % 2, at as u32, "flow {flow}");
                assert_eq!(received.len(), frame.len());
                seen[at] += 1;
                came += 1;
            }
        }
        assert_eq!(came, 1, "flow {flow}");
    }
    assert!(seen.iter().all(|&frames| frames > FLOWS / 4), "{seen:?}");
    if let Some(counter) = &counter {
        let traffic = counter.query().expect("counted");
        assert_eq!((traffic.packets, traffic.octets), (64, 64 * 60));
    }
}

/// The same frames between raw packet QPs: inline where the card demands it, from memory where it does not.
fn raw_packets(lab: &Lab<'_>) {
    let domains = [0, 1].map(|at: usize| lab.sides[at].device.alloc_ethernet_domain().unwrap());
    let mut cqs = [0, 1].map(|at: usize| lab.sides[at].device.create_cq(CqInit::new(31)).unwrap());
    let cap = QpCap {
        max_inline_data: 300,
        ..QpInitAttr::new(&cqs[0], 8).cap
    };
    let make = |at: usize| {
        let mut init = QpInitAttr::new(&cqs[at], 8);
        init.cap = cap;
        let qp = domains[at].create_raw_packet_qp(&lab.sides[at].pd, &mut init);
        let mut qp = qp.expect("QP");
        assert!(init.cap.max_inline_data >= 300 && init.cap.max_send_sge >= 1);
        qp.bring_to_rts().expect("RTS");
        qp
    };
    let (mut from, mut to) = (make(0), make(1));
    let memory = [0, 1].map(|at: usize| {
        let pd = &lab.sides[at].pd;
        pd.alloc_buffer(8192, Access::LOCAL_WRITE).expect("buffer")
    });
    let mut slots = [FlowSlot::new(); 12];
    let mut flows = domains[1].create_flow_table(&mut slots, 3).expect("flows");
    let specs = [FlowSpec::to_mac(lab.sides[1].mac)];
    let _flow = flows
        .create_flow(to.target().unwrap(), &FlowAttr::normal(&specs))
        .expect("flow");
    let min_inline = from.min_inline();
    for tags in TAGS {
        for len in LENGTHS {
            for form in 0..3 {
                let (target, source) = (lab.sides[1].mac, lab.sides[0].mac);
                let mut frame = [&target[..], &source, tags, &[0x88, 0xb5]].concat();
                frame.extend(pattern(len - 14, len as u64));
                memory[0].copy_in(0, &frame).unwrap();
                // What has two tags has a longer header.
                let needed = match min_inline {
                    0 => 0,
                    some if tags.len() > 4 => some + 4,
                    some => some,
                };
                let (headers, rest) = frame.split_at(needed.min(frame.len()));
                let behind = memory[0].sge(headers.len(), rest.len().max(1)).unwrap();
                let behind = Sge::new(behind.addr, rest.len() as u32, behind.lkey);
                let mut batch = from.send_queue().batch();
                let flags = SendFlags::SIGNALED;
                let posted = match form {
                    0 if frame.len() <= 300 && needed == min_inline => {
                        batch.send_packet(1, flags, Inline(&frame))
                    }
                    1 => {
                        let whole = memory[0].sge(0, frame.len()).unwrap();
                        let posted = batch.send_packet(1, flags, whole);
                        if min_inline != 0 {
                            let needed = min_inline as u16;
                            assert_eq!(posted, Err(PostError::HeadersNotInline { needed }));
                            continue;
                        }
                        posted
                    }
                    _ => batch.send_packet_with(1, flags, headers, SendData::Sges(&[behind])),
                };
                posted.unwrap_or_else(|error| panic!("{tags:x?}, {len}, {form}: {error}"));
                drop(batch);
                let sge = memory[1].sge(0, 4096).unwrap();
                to.recv_queue().post(2, &[sge]).unwrap();
                lab.pause(MS);
                let sent = cqs[0].poll().unwrap().expect("sent").to_wc();
                assert_eq!(sent.status, WcStatus::Success, "{tags:x?}, {len}, {form}");
                let came = cqs[1].poll().unwrap().expect("a frame").to_wc();
                let mut got = vec![0; came.byte_len as usize];
                memory[1].copy_out(0, &mut got).unwrap();
                frame.resize(frame.len().max(60), 0);
                assert_eq!(got, frame, "{tags:x?}, {len}, {form}");
            }
        }
    }
    let summed = from
        .send_queue()
        .batch()
        .send_packet(1, SendFlags::IP_CSUM, Inline(&[0; 14]));
    match from.has_checksums() {
        true => assert_eq!(summed, Ok(())),
        false => assert_eq!(summed, Err(PostError::NoChecksums)),
    }
}

fn on_every_card(test: fn(&Lab<'_>)) {
    crate::on_each(|card| {
        let of_this_kind = |plain: Config| {
            let mut config = Config::card(card, plain.mac[5]);
            config.unknown_answers_are_fatal = true;
            config
        };
        lab_with(of_this_kind, test);
    });
}

#[test]
fn every_card_carries_frames() {
    on_every_card(frames);
}

#[test]
fn every_card_has_raw_packets() {
    on_every_card(raw_packets);
}

#[test]
fn every_card_spreads_frames() {
    on_every_card(spread);
}
