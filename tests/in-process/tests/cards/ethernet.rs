//! Ethernet frames between two cards of a kind: each card demands other headers inline, and offers other checksums.

use bareverbs_core::{EthernetInit, EthernetSendFlags};
use connectx_model::Config;

use crate::lab::{Lab, MS, lab_with, pattern};

const INIT: EthernetInit = EthernetInit {
    send_frames: 8,
    recv_frames: 8,
    frame_len: Some(1526),
    max_groups: 0,
    comp_vector: 0,
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

#[test]
fn every_card_carries_frames() {
    crate::on_each(|card| {
        let of_this_kind = |plain: Config| {
            let mut config = Config::card(card, plain.mac[5]);
            config.unknown_answers_are_fatal = true;
            config
        };
        lab_with(of_this_kind, frames);
    });
}
