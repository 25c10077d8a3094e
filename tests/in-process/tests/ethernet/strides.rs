//! Many frames in a request, on both sides: bursts from memory and out of the request itself, into strides that are held
//! for as long as the test likes.
//!
//! The frames are drawn, and what has to arrive is what was drawn, in order and whole. A frame that is held is compared
//! again when it is given back: had the device been given its strides before, others would lie there.

use bareverbs_core::{
    Access, Device, EthernetDomain, EthernetError, EthernetReceiveError, EthernetSendError,
    EthernetSendFlags, EthernetTarget, FlowAction, FlowMatch, FlowSlot, MultiSend, MultiSendInit,
    Sge, StrideCompression, StridedFrame, StridingInit, StridingReceive,
};
use std::collections::VecDeque;

use crate::lab::{Lab, MS, lab, lab_with};
use crate::packets::{Packet, UDP};
use crate::seam::Seam;
use crate::spread::Rule;
use crate::support::{INIT, NONE, Random, frame, padded};

pub(crate) const STRIDES: StridingInit = StridingInit {
    requests: 8,
    strides: 16,
    stride_len: 256,
    frame_len: Some(1518),
    strip_vlan: false,
    comp_vector: 0,
    compression: StrideCompression::OFF,
};
const MULTI: MultiSendInit = MultiSendInit {
    blocks: 64,
    frame_len: Some(1518),
    comp_vector: 0,
};

pub(crate) fn receiver<'d>(
    lab: &Lab<'d>,
    domain: &EthernetDomain<'d, Seam>,
    init: &StridingInit,
) -> (StridingReceive<'d, Seam>, EthernetTarget<'d, Seam>) {
    let receive = domain
        .create_striding_receive(&lab.sides[1].pd, init)
        .expect("a striding queue");
    let target = domain.create_target(receive.number()).expect("a target");
    (receive, target)
}

fn bytes(receive: &StridingReceive<'_, Seam>, frame: &StridedFrame) -> Vec<u8> {
    let mut bytes = vec![0xa5; frame.len()];
    assert_eq!(receive.copy_to(frame, &mut bytes), bytes.len());
    bytes
}

#[test]
fn drawn_bursts_arrive_whole_while_frames_are_held() {
    for compression in [StrideCompression::OFF, StrideCompression::CHECKSUM] {
        drawn_bursts(0x571d, compression);
    }
}

fn drawn_bursts(seed: u64, compression: StrideCompression) {
    println!("seed {seed:#x}, {compression:?}");
    let init = StridingInit {
        compression,
        ..STRIDES
    };
    lab(|lab| {
        let mut random = Random(seed);
        let domains = [0, 1].map(|node| lab.sides[node].device.alloc_ethernet_domain().unwrap());
        let (mut receive, target) = receiver(lab, &domains[1], &init);
        let mut slots = [FlowSlot::new(); 4];
        let mut flows = domains[1].create_flow_table(&mut slots, 1).unwrap();
        let to = [target.number()];
        let mine = FlowMatch::ANY.destination(domains[1].mac());
        let _rule = flows
            .add(&Rule::new(mine, FlowAction::Forward(&to)).tag(0x77))
            .unwrap();
        let pd = &lab.sides[0].pd;
        let mut send = domains[0].create_multi_send(pd, &MULTI).unwrap();
        let memory = pd.alloc_buffer(64 * 2048, Access::empty()).unwrap();
        let macs = [domains[1].mac(), domains[0].mac()];
        let mut expected = VecDeque::new();
        let mut held: Vec<(StridedFrame, Vec<u8>)> = Vec::new();
        let (mut sent, mut done, mut came) = (0, 0, 0);
        for round in 0..400_u64 {
            // What certainly has room: a request loses less than the strides of the longest frame.
            let (whole, mut needed) = (receive.posted() as usize, 0);
            let mut burst = send.burst(NONE).unwrap();
            for nth in 0..random.below(12) {
                let longest = random.pick(&[1505, 200, 200]);
                let length = 14 + random.below(longest);
                let data = frame(macs[0], macs[1], length, round << 8 | nth as u64);
                let pushed = if length <= 256 && random.below(2) == 0 {
                    burst.push_inline(&data)
                } else {
                    let at = nth * 2048;
                    memory.copy_in(at, &data).unwrap();
                    burst.push(memory.sge(at, length).unwrap())
                };
                pushed.expect("there is room for a round");
                expected.push_back(padded(data));
                needed += length.max(60).div_ceil(256);
                sent += 1;
            }
            drop(burst);
            lab.pause(MS);
            done += send.poll().unwrap();
            assert_eq!((done, send.outstanding()), (sent, 0));
            let mut burst = receive.burst();
            let mut new = Vec::new();
            while let Some(frame) = burst.next().expect("the queue works") {
                new.push(frame);
            }
            drop(burst);
            for frame in new {
                assert_eq!(frame.flow_tag(), 0x77);
                let data = bytes(&receive, &frame);
                // What comes while all requests are used up is dropped, and only that.
                while expected.front() != Some(&data) {
                    assert!(needed > whole.saturating_sub(1) * 11, "a frame is missing");
                    expected.pop_front().expect("a frame that was sent");
                }
                expected.pop_front();
                came += 1;
                held.push((frame, data));
            }
            let keep = if round % 40 == 39 {
                0
            } else {
                random.below(24)
            };
            while held.len() > keep {
                let (frame, data) = held.swap_remove(random.below(held.len()));
                assert_eq!(bytes(&receive, &frame), data, "while it was held");
                receive.give_back(frame).unwrap();
            }
            if keep == 0 {
                // All given back: nothing of this round is missing but what was dropped, and all is posted again.
                expected.clear();
                assert!(receive.posted() >= STRIDES.requests - 1);
            }
        }
        assert!(came > sent / 2, "{came} of {sent}");
        let counters = receive.counters();
        assert!(counters.unused_strides > 100, "{counters:?}");
        assert_eq!((counters.malformed, counters.garbage_completions), (0, 0));
        let compressed = lab.world.with_model(1, |model| model.stats().compressed);
        assert_eq!(compression != StrideCompression::OFF, compressed > 300);
    });
}

/// Received frames are sent on without a copy, with other addresses, and come back to the first side.
#[test]
fn frames_are_sent_on_where_they_lie() {
    lab(|lab| {
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let (mut receive, target) = receiver(lab, &domain, &STRIDES);
        let mut send: MultiSend<'_, Seam> =
            domain.create_multi_send(&lab.sides[1].pd, &MULTI).unwrap();
        let mut slots = [FlowSlot::new(); 4];
        let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let to = [target.number()];
        let mine = FlowMatch::ANY.destination(domain.mac());
        let _rule = flows
            .add(&Rule::new(mine, FlowAction::Forward(&to)))
            .unwrap();
        let mut under_way = VecDeque::new();
        for seed in 0..100 {
            let packet = Packet {
                to: domain.mac(),
                vlan: None,
                v6: false,
                addresses: [[1; 16], [2; 16]],
                protocol: UDP,
                ports: [7, seed as u16],
                payload: 20 + seed as usize,
            };
            let mut data = packet.frame(lab.sides[0].mac);
            a.send_half()
                .send(
                    &data,
                    EthernetSendFlags::L3_CHECKSUM | EthernetSendFlags::L4_CHECKSUM,
                )
                .unwrap();
            lab.pause(MS);
            let frame = receive.receive().unwrap().expect("a frame");
            assert!(frame.l3_ok() && frame.l4_ok());
            let swapped = [lab.sides[0].mac, domain.mac()].concat();
            assert!(receive.copy_from(&frame, 0, &swapped));
            let mut burst = send.burst(NONE).unwrap();
            burst.push(receive.sge(&frame).unwrap()).unwrap();
            drop(burst);
            under_way.push_back(frame);
            let back = lab.receive(&mut a);
            data[..12].copy_from_slice(&swapped);
            assert_eq!(back[..12], data[..12]);
            assert_eq!(back[50..data.len()], data[50..]);
            for _ in 0..send.poll().unwrap() {
                receive.give_back(under_way.pop_front().unwrap()).unwrap();
            }
        }
        assert!(under_way.is_empty());
    });
}

#[test]
fn what_does_not_go_is_refused_by_name() {
    lab(|lab| {
        let domain = lab.sides[0].device.alloc_ethernet_domain().unwrap();
        let pd = &lab.sides[0].pd;
        for init in [
            StridingInit {
                requests: 0,
                ..STRIDES
            },
            StridingInit {
                stride_len: 9000,
                ..STRIDES
            },
            StridingInit {
                strides: 1 << 17,
                ..STRIDES
            },
            StridingInit {
                requests: 1 << 15,
                strides: 1 << 16,
                ..STRIDES
            },
            // A frame has to fit into a request.
            StridingInit {
                strides: 8,
                stride_len: 64,
                ..STRIDES
            },
        ] {
            let made = domain.create_striding_receive(pd, &init).err();
            assert!(matches!(made, Some(EthernetError::Size { .. })), "{made:?}");
        }
        let mut send = domain.create_multi_send(pd, &MULTI).unwrap();
        let memory = pd.alloc_buffer(4096, Access::empty()).unwrap();
        let mut burst = send.burst(NONE).unwrap();
        for length in [13, 1519] {
            let refused = burst.push(memory.sge(0, length).unwrap());
            assert!(matches!(refused, Err(EthernetSendError::Length { .. })));
        }
        assert!(burst.push_inline(&[0; 257]).is_err());
        // The ring is full before the device has had a chance.
        let mut pushed = 0;
        while burst.push(memory.sge(0, 60).unwrap()).is_ok() {
            pushed += 1;
        }
        assert!((64 * 3..64 * 4).contains(&pushed), "{pushed}");
        drop(burst);
        lab.pause(MS);
        assert_eq!(send.poll().unwrap(), pushed);
        // A key that is none stops the queue, and all that was pushed is accounted for.
        let bad = Sge {
            addr: 0,
            length: 60,
            lkey: bareverbs_core::LKey(0x1234_5600),
        };
        let mut burst = send.burst(NONE).unwrap();
        burst.push(bad).unwrap();
        drop(burst);
        lab.pause(MS);
        assert_eq!(send.poll().unwrap(), 1);
        assert!(send.failure().is_some());
        assert!(matches!(
            send.burst(NONE),
            Err(EthernetSendError::Failed(_))
        ));
        assert_eq!(send.recover().unwrap(), 0);
        let mut burst = send.burst(NONE).unwrap();
        burst.push(memory.sge(0, 60).unwrap()).unwrap();
        drop(burst);
        lab.pause(MS);
        assert_eq!(send.poll().unwrap(), 1);
    });
    let without = |card: connectx_model::Config| {
        let mut card = card;
        card.general.set_striding_rq(false);
        card.ethernet.set_enhanced_multi_pkt_send_wqe(false);
        card
    };
    lab_with(without, |lab| {
        let device: &Device<'_, Seam> = lab.sides[0].device;
        let domain = device.alloc_ethernet_domain().unwrap();
        let pd = &lab.sides[0].pd;
        let receive = domain.create_striding_receive(pd, &STRIDES).err();
        let Some(EthernetError::Unsupported { what }) = receive else {
            panic!("{receive:?}");
        };
        assert!(what.contains("striding_rq"));
        let send = domain.create_multi_send(pd, &MULTI).err();
        let Some(EthernetError::Unsupported { what }) = send else {
            panic!("{send:?}");
        };
        assert!(what.contains("enhanced_multi_pkt_send_wqe"));
    });
}

/// Frames of another queue, or from before it was set going again, are given back by none.
#[test]
fn frames_belong_to_their_queue() {
    lab(|lab| {
        let mut a = lab.queue(0, INIT);
        let domain = lab.sides[1].device.alloc_ethernet_domain().unwrap();
        let (mut receive, target) = receiver(lab, &domain, &STRIDES);
        let (mut other, _target) = receiver(lab, &domain, &STRIDES);
        let mut slots = [FlowSlot::new(); 4];
        let mut flows = domain.create_flow_table(&mut slots, 1).unwrap();
        let to = [target.number()];
        let mine = FlowMatch::ANY.destination(domain.mac());
        let _rule = flows
            .add(&Rule::new(mine, FlowAction::Forward(&to)))
            .unwrap();
        let data = lab.frame(0, 100, 1);
        let mut next = |receive: &mut StridingReceive<'_, Seam>| {
            a.send_half().send(&data, NONE).unwrap();
            lab.pause(MS);
            receive
                .receive()
                .expect("the queue works")
                .expect("a frame")
        };
        let frame = next(&mut receive);
        assert!(other.sge(&frame).is_none());
        assert_eq!(other.copy_to(&frame, &mut [0; 8]), 0);
        let frame = other.give_back(frame).unwrap_err();
        receive.recover().unwrap();
        assert!(receive.sge(&frame).is_none());
        assert!(receive.give_back(frame).is_err());
        let frame = next(&mut receive);
        assert_eq!(bytes(&receive, &frame), data);
        receive.give_back(frame).unwrap();
        assert!(matches!(
            receive.receive(),
            Ok(None) | Err(EthernetReceiveError::Cq(_))
        ));
    });
}
