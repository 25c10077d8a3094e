//! Frames and the queues at which they arrive.

use bareverbs_core::{EthernetError, EthernetSendFlags};

use crate::lab::lab;
use crate::support::{BROADCAST, INIT, NONE, TYPE, frame, padded, send, take};

const GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 1, 2, 3];
const OTHER_GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 0x16];

#[test]
fn frames_of_every_length_go_both_ways() {
    lab(|lab| {
        let mut queues = lab.queues();
        for (seed, len) in [14, 15, 59, 60, 61, 64, 128, 1000, 1514, 1518]
            .into_iter()
            .enumerate()
        {
            for node in [0, 1] {
                let sent = lab.frame(node, len, seed as u64);
                send(&mut queues[node], &sent);
                assert_eq!(lab.receive(&mut queues[1 - node]), padded(sent));
                lab.nothing(&mut queues[node]);
            }
        }
        for queue in &mut queues {
            assert_eq!(queue.receive_half().counters().received, 10);
            queue.send_half().poll().unwrap();
            assert_eq!(queue.send_half().outstanding(), 0);
        }
    });
}

/// A host with interfaces on several VLANs has to see whose a frame is.
#[test]
fn tags_stay_in_the_frame() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        for (tag, inner) in [
            (&[0x81, 0, 0, 5][..], &[][..]),
            (&[0x81, 0, 0xe0, 0], &[]),
            (&[0x88, 0xa8, 0x0f, 0xff], &[0x81, 0, 0, 7]),
        ] {
            for to in [lab.sides[1].mac, BROADCAST] {
                let from = lab.sides[0].mac;
                let arp = [0x08, 0x06];
                let sent = [&to[..], &from, tag, inner, &arp, &[0x5a; 46]].concat();
                send(&mut a, &sent);
                assert_eq!(lab.receive(&mut b), sent);
            }
        }
    });
}

#[test]
fn broadcast_reaches_the_others_only() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        let sent = frame(BROADCAST, lab.sides[0].mac, 60, 1);
        send(&mut a, &sent);
        assert_eq!(lab.receive(&mut b), sent);
        lab.nothing(&mut a);
        // It is joined for good.
        b.join(BROADCAST).unwrap();
        b.leave(BROADCAST).unwrap();
        send(&mut a, &sent);
        assert_eq!(lab.receive(&mut b), sent);
    });
}

#[test]
fn groups_are_joined_and_left() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        let sent = frame(GROUP, lab.sides[0].mac, 80, 1);
        let other = frame(OTHER_GROUP, lab.sides[0].mac, 80, 2);
        send(&mut a, &sent);
        lab.nothing(&mut b);
        assert_eq!(b.leave(GROUP), Err(EthernetError::NotJoined { mac: GROUP }));

        // Two groups of IPv4 may well have one address.
        b.join(GROUP).unwrap();
        b.join(GROUP).unwrap();
        for _ in 0..2 {
            send(&mut a, &other);
            send(&mut a, &sent);
            assert_eq!(lab.receive(&mut b), sent);
            lab.nothing(&mut b);
            b.leave(GROUP).unwrap();
        }
        send(&mut a, &sent);
        lab.nothing(&mut b);

        assert_eq!(
            b.join(lab.sides[0].mac),
            Err(EthernetError::NotMulticast {
                mac: lab.sides[0].mac
            })
        );
        for last in 1..=3 {
            b.join([0x01, 0, 0x5e, 0, 0, last]).unwrap();
        }
        assert_eq!(b.join(GROUP), Err(EthernetError::GroupsFull { limit: 3 }));
        b.join([0x01, 0, 0x5e, 0, 0, 2]).unwrap();
        b.leave([0x01, 0, 0x5e, 0, 0, 1]).unwrap();
        b.join(GROUP).unwrap();
        send(&mut a, &sent);
        assert_eq!(lab.receive(&mut b), sent);
    });
}

#[test]
fn all_multicast_and_everything() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        let group = frame(OTHER_GROUP, lab.sides[0].mac, 80, 1);
        let foreign = frame([2, 2, 2, 2, 2, 2], lab.sides[0].mac, 80, 2);
        send(&mut a, &foreign);
        lab.nothing(&mut b);
        for _ in 0..2 {
            b.set_all_multicast(true).unwrap();
            b.set_all_multicast(true).unwrap();
            send(&mut a, &foreign);
            send(&mut a, &group);
            assert_eq!(lab.receive(&mut b), group);
            lab.nothing(&mut b);
            b.set_promiscuous(true).unwrap();
            send(&mut a, &foreign);
            send(&mut a, &group);
            assert_eq!(lab.receive(&mut b), foreign);
            assert_eq!(lab.receive(&mut b), group);
            b.set_all_multicast(false).unwrap();
            send(&mut a, &group);
            assert_eq!(lab.receive(&mut b), group);
            b.set_promiscuous(false).unwrap();
            send(&mut a, &foreign);
            send(&mut a, &group);
            lab.nothing(&mut b);
        }
        // What is on when the queue goes, goes with it.
        b.set_all_multicast(true).unwrap();
        b.set_promiscuous(true).unwrap();
        b.join(GROUP).unwrap();
    });
}

/// A UDP datagram with zeros where the checksums belong.
fn datagram(from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[8, 0]].concat();
    frame.extend([
        0x45, 0, 0, 60, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame.extend([0x12, 0x34, 0x56, 0x78, 0, 40, 0, 0]);
    frame.extend([0x77; 32]);
    frame
}

#[test]
fn the_device_fills_in_and_verifies_checksums() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        let sent = datagram(lab.sides[0].mac, lab.sides[1].mac);
        let (l3, l4) = (
            EthernetSendFlags::L3_CHECKSUM,
            EthernetSendFlags::L4_CHECKSUM,
        );
        for (flags, l3_ok, changed) in [
            (NONE, false, &[][..]),
            (l3, true, &[24, 25]),
            (l3 | l4, true, &[24, 25, 40, 41]),
        ] {
            a.send_half().send(&sent, flags).unwrap();
            lab.pause(crate::lab::MS);
            let received = b.receive_half().receive().unwrap().expect("a frame");
            assert_eq!(received.l3_ok(), l3_ok, "{flags:?}");
            let mut bytes = vec![0; received.len()];
            received.copy_to(&mut bytes);
            let differ: Vec<usize> = (0..bytes.len())
                .filter(|&at| bytes[at] != sent[at])
                .collect();
            assert_eq!(differ, changed, "{flags:?}");
            if flags.contains(l4) {
                assert!(received.l4_ok());
            }
        }
        // A frame without complete headers is no error.
        send(&mut a, &lab.frame(0, 60, 3));
        lab.pause(crate::lab::MS);
        let received = b.receive_half().receive().unwrap().expect("a frame");
        assert!(!received.l3_ok() && !received.l4_ok());
    });
}

#[test]
fn parts_of_a_frame_are_read_where_they_are() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        let sent = lab.frame(0, 100, 9);
        send(&mut a, &sent);
        lab.pause(crate::lab::MS);
        let received = b.receive_half().receive().unwrap().expect("a frame");
        let mut kind = [0; 2];
        assert!(received.copy_from(12, &mut kind));
        assert_eq!(kind, TYPE);
        let mut short = [0; 20];
        assert_eq!(received.copy_to(&mut short), 20);
        assert_eq!(short, sent[..20]);
        assert!(received.copy_from(99, &mut kind[..1]));
        assert!(!received.copy_from(99, &mut kind));
        assert!(!received.copy_from(usize::MAX, &mut kind));
        drop(received);
        assert_eq!(take(&mut b), None);
    });
}

/// The beginning is copied, the rest goes out from where it lies.
#[test]
fn frames_are_gathered() {
    lab(|lab| {
        let mut a = lab.queue(0, INIT);
        let mut b = lab.queue(1, INIT);
        let data = lab.sides[0]
            .pd
            .alloc_buffer(4096, bareverbs_core::Access::empty())
            .unwrap();
        let bytes = crate::lab::pattern(4096, 1);
        data.copy_in(0, &bytes).unwrap();
        let header = lab.frame(0, 40, 4);
        let sges = [
            data.sge(0, 100).unwrap(),
            data.sge(4000, 0).unwrap(),
            data.sge(1001, 900).unwrap(),
        ];
        for _ in 0..40 {
            let sent = a.send_half().send_gather(&header, &sges, NONE).unwrap();
            let whole = [&header[..], &bytes[..100], &bytes[1001..1901]].concat();
            assert_eq!(lab.receive(&mut b), whole);
            a.send_half().poll().unwrap();
            assert!(a.send_half().is_complete(sent));
        }
    });
}
